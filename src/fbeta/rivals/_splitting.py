"""Some rows for fitting and others for choosing, and the averages of F_beta to choose by."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fbeta._validation import check_number

AVERAGES = ("instance", "micro", "macro")


def split_rows(
    X: Any, weight: NDArray[np.float64] | None, fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split rows at random, equal rows on the same side.

    A row's side depends on what it holds and not on where it stands: a row of weight 2 is treated
    as the same row twice, and no copy of a row that was fitted is used for choosing.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
        Features.
    weight : ndarray of shape (n,), or None
        Weights of the rows.
    fraction : float
        Share of the weight for the second part, between 0 and 1.
    random_state : int, RandomState or None
        Decides the split.

    Returns
    -------
    fitting, choosing : int ndarray
        Row numbers; neither is empty.

    Examples
    --------
    >>> fitting, choosing = split_rows(np.eye(10), None, 0.3, random_state=0)
    >>> len(fitting), len(choosing)
    (7, 3)
    """
    fraction = check_number("validation_fraction", fraction, strict=True)
    if fraction >= 1:
        raise ValueError(f"validation_fraction must be below 1, got {fraction!r}")
    key = check_random_state(random_state).bytes(16)
    distinct, which = np.unique(_digests(X, key), return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(
            f"n_samples = 1 distinct row in X (of {X.shape[0]}): two are needed to choose on other "
            "rows than those that are fitted"
        )
    share = np.bincount(which, weights=weight)
    before = np.cumsum(share) - share / 2
    chosen = before < fraction * share.sum()
    chosen[0], chosen[-1] = True, False
    return np.flatnonzero(~chosen[which]), np.flatnonzero(chosen[which])


def _digests(X: Any, key: bytes) -> NDArray[np.uint64]:
    """Return a random-looking number for each row, the same for equal rows."""
    X = sp.csr_array(X, copy=True)
    X.eliminate_zeros()
    X.sort_indices()
    columns, out = X.indices.astype(np.int64), np.empty(X.shape[0], dtype=np.uint64)
    for i, (start, stop) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        row = columns[start:stop].tobytes() + X.data[start:stop].tobytes()
        out[i] = int.from_bytes(blake2b(row, key=key, digest_size=8).digest(), "little")
    return out


def averaged_fbeta(
    Y: NDArray[np.bool_],
    predicted: NDArray[np.bool_],
    beta: float,
    average: str,
    weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Compute F_beta averaged over instances, over all entries together, or for each label.

    Parameters
    ----------
    Y, predicted : bool ndarray of shape (n, s)
        Truth and predictions.
    beta : float > 0
        Weight of recall against precision.
    average : {"instance", "micro", "macro"}
        The mean over rows; one value of all counts together; or one value for each label.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    ndarray of shape (), or (s,) for ``"macro"``
        With 0/0 = 1.

    Examples
    --------
    >>> Y, predicted = np.array([[1, 0], [1, 1]]) > 0, np.array([[1, 1], [1, 0]]) > 0
    >>> averaged_fbeta(Y, predicted, 1.0, "macro").tolist()
    [1.0, 0.0]
    """
    column = np.ones((len(Y), 1)) if weight is None else weight[:, None]
    if average == "instance":
        tp, positive, size = (a.sum(axis=1) for a in (Y & predicted, Y, predicted))
        values = fbeta_of_counts(tp, positive, size, beta**2)
        return np.asarray(np.average(values, weights=column[:, 0]))
    axis = 0 if average == "macro" else None
    tp, positive, size = ((column * a).sum(axis=axis) for a in (Y & predicted, Y, predicted))
    return fbeta_of_counts(tp, positive, size, beta**2)


def fbeta_of_counts(tp: Any, positive: Any, predicted: Any, beta2: float) -> NDArray[np.float64]:
    """Compute ``(1 + beta^2) tp / (beta^2 positive + predicted)`` with 0/0 = 1."""
    denominator = np.asarray(beta2 * positive + predicted, dtype=np.float64)
    numerator = np.broadcast_to((1 + beta2) * np.asarray(tp), denominator.shape)
    return np.divide(numerator, denominator, out=np.ones_like(denominator), where=denominator > 0)
