"""From label statistics to the label set with the highest expected F_beta, exactly.

The expected F_beta of predicting ``yhat`` is ``q_0`` for the empty set and otherwise ``sum over j
in yhat of T_jl``, with ``l = |yhat|`` and ``T_jl = sum_k (1 + beta^2) q_jk / (beta^2 k + l)``. So
for each size l the best set holds the l labels with the largest ``T_jl``, and the best of the s + 1
candidates is the optimum over all 2^s sets. The size l runs over 1..s whatever sizes were seen.

With ``S_k = sum_j q_jk``, no set of size l or more has a value above ``sum_k (1 + beta^2) S_k /
(beta^2 k + l)``, which falls with l: as soon as that is no better than the best value so far, an
instance is finished.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._threads import run_threaded
from fbeta._validation import check_beta
from fbeta.encoding import LabelStatistics

__all__ = ["decode", "expected_fbeta"]

# sizes closer than this (relative) are a tie: sums of the same numbers in another order differ so
TIE = 64 * np.finfo(np.float64).eps
# bytes of statistics decoded together: small enough for the second-level cache
CHUNK = 1 << 19
SIZES = 8


@overload
def decode(
    statistics: LabelStatistics, beta: float = ..., *, return_expected: Literal[False] = ...
) -> NDArray[np.int8]: ...


@overload
def decode(
    statistics: LabelStatistics, beta: float = ..., *, return_expected: Literal[True]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]: ...


def decode(
    statistics: LabelStatistics, beta: float = 1.0, *, return_expected: bool = False
) -> NDArray[np.int8] | tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Find the label set with the highest expected F_beta for each instance.

    Exact over all 2^s label sets for any non-negative statistics, whether or not they belong to a
    distribution. Ties go to the smaller set and, within a size, to the labels that come first.

    Parameters
    ----------
    statistics : LabelStatistics
        Of n instances with s labels.
    beta : float > 0
        Weight of recall against precision.
    return_expected : bool
        Also return the expected F_beta of the predictions under the statistics.

    Returns
    -------
    labels : int8 ndarray of shape (n, s)
        Predicted label sets, 0/1.
    expected : ndarray of shape (n,)
        Only with ``return_expected=True``.

    Notes
    -----
    Instances are decoded in chunks that fit the cache, on as many threads as the BLAS library
    would use; the memory needed beyond the result is a few MiB.

    Examples
    --------
    Three labels, exactly one of which is present, each as likely: predicting all three is best,
    although no row has more than one label.

    >>> q = LabelStatistics.from_distribution([[1 / 3, 1 / 3, 1 / 3]], np.eye(3))
    >>> labels, expected = decode(q, beta=1.0, return_expected=True)
    >>> labels.tolist(), expected.round(3).tolist()
    ([[1, 1, 1]], [0.5])
    """
    if not isinstance(statistics, LabelStatistics):
        raise TypeError(
            "statistics must be LabelStatistics; for probabilities of the labels see "
            f"LabelStatistics.from_marginals (got {type(statistics).__name__})"
        )
    beta2 = check_beta(beta) ** 2
    n, K, s = statistics.joint.shape
    labels = np.zeros((n, s), dtype=np.int8)
    expected = np.array(statistics.empty, dtype=np.float64)
    if n and K and s:
        weights = _weights(statistics.cardinalities, s, beta2)
        rows = max(1, CHUNK // (8 * K * s))
        chunks = [slice(start, start + rows) for start in range(0, n, rows)]

        def run(chunk: slice) -> None:
            joint = np.asarray(statistics.joint[chunk], dtype=np.float64)
            _decode_chunk(joint, weights, labels[chunk], expected[chunk])

        run_threaded(run, chunks)
    return (labels, expected) if return_expected else labels


def expected_fbeta(
    statistics: LabelStatistics, labels: ArrayLike, beta: float = 1.0
) -> NDArray[np.float64]:
    """Compute the expected F_beta of given predictions.

    ``q_0`` for the empty set, else ``sum_k (1 + beta^2) / (beta^2 k + |yhat|) sum_{j in yhat}
    q_jk``.

    Parameters
    ----------
    statistics : LabelStatistics
        Of n instances.
    labels : array-like of shape (n, s)
        Predictions, 0/1.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.9, 0.5]])
    >>> expected_fbeta(q, np.array([[True, False]]), 1.0).round(3).tolist()
    [0.75]
    """
    beta, labels = check_beta(beta), np.asarray(labels, dtype=np.bool_)
    size = labels.sum(axis=1)
    hit = np.einsum("nks,ns->nk", statistics.joint, labels.astype(np.float64))
    weight = (1 + beta**2) / (beta**2 * statistics.cardinalities[None, :] + size[:, None])
    return np.where(size > 0, (weight * hit).sum(axis=1), statistics.empty)


def _weights(cardinalities: NDArray[np.intp], s: int, beta2: float) -> NDArray[np.float64]:
    """Return ``(1 + beta^2) / (beta^2 k + l)``, of shape (s, K), for l in 1..s."""
    sizes = np.arange(1, s + 1, dtype=np.float64)
    return (1 + beta2) / (beta2 * cardinalities[None, :] + sizes[:, None])


def _decode_chunk(
    joint: NDArray[np.float64],
    weights: NDArray[np.float64],
    labels: NDArray[np.int8],
    expected: NDArray[np.float64],
) -> None:
    """Decode some instances in place; ``expected`` comes in as q_0, the value of the empty set."""
    s = joint.shape[2]
    size = np.zeros(len(joint), dtype=np.intp)
    bound = joint.sum(axis=2) @ weights.T
    active = np.arange(len(joint))
    for start in range(0, s, SIZES):
        active = active[bound[active, start] > expected[active] * (1 + TIE)]
        if not len(active):
            break
        stop = min(start + SIZES, s)
        values = _best_values(joint[active], weights[start:stop], start)
        for i in range(stop - start):
            better = values[:, i] > expected[active] * (1 + TIE)
            expected[active[better]] = values[better, i]
            size[active[better]] = start + i + 1
    _fill(labels, joint, weights, size)


def _best_values(
    joint: NDArray[np.float64], weights: NDArray[np.float64], start: int
) -> NDArray[np.float64]:
    """Return the value of the best set of each of the sizes start + 1, start + 2, ...

    ``joint`` is (m, K, s), ``weights`` (L, K); the result is (m, L).
    """
    scores = weights @ joint
    s, last = joint.shape[2], start + len(weights)
    if 4 * last < s:
        # only the largest `last` scores of a row can count
        scores = np.partition(scores, s - last, axis=2)[:, :, s - last :]
    scores.sort(axis=2)
    totals = np.cumsum(scores[:, :, ::-1], axis=2)
    sizes = np.arange(start, last)
    best: NDArray[Any] = totals[:, np.arange(len(weights)), sizes]
    return best


def _fill(
    labels: NDArray[np.int8],
    joint: NDArray[np.float64],
    weights: NDArray[np.float64],
    size: NDArray[np.intp],
) -> None:
    """Switch on the labels of the best set of the given size, for each instance."""
    rows = np.flatnonzero(size)
    scores = np.einsum("mk,mks->ms", weights[size[rows] - 1], joint[rows])
    order = np.argsort(-scores, axis=1, kind="stable")
    chosen = np.arange(order.shape[1])[None, :] < size[rows, None]
    picked = np.zeros_like(order, dtype=np.int8)
    np.put_along_axis(picked, order, chosen.astype(np.int8), axis=1)
    labels[rows] = picked
