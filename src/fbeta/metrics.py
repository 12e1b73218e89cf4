"""The F_beta-measure: of counts, averaged over label sets, and the thresholds that maximise it.

``F_beta(y, yhat) = (1 + beta^2) |y & yhat| / (beta^2 |y| + |yhat|)``, with 0/0 = 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import make_scorer

from fbeta._array import (
    Array,
    array_namespace,
    as_real,
    check_beta,
    check_choice,
    check_sample_weight,
    is_tensor,
)
from fbeta.labels.forms import Indicator, common_indicators, read_dense
from fbeta.statistics.storage import fbeta_terms, fbeta_weight

__all__ = [
    "averaged_fbeta",
    "best_thresholds",
    "fbeta_of_counts",
    "fbeta_per_instance",
    "fbeta_score",
    "fbeta_weight",
    "make_fbeta_scorer",
    "precision_score",
    "recall_score",
]


#: What F_beta may be averaged over: the rows, all entries together, or the columns.
AVERAGES = ("instance", "micro", "macro")


def fbeta_of_counts(
    both: ArrayLike, size_true: ArrayLike, size_pred: ArrayLike, beta: float = 1.0
) -> NDArray[np.float64]:
    """Compute F_beta from the sizes of label sets, for any beta that is positive and finite.

    Parameters
    ----------
    both, size_true, size_pred : array-like, or tensors of a floating type
        ``|y & yhat|``, ``|y|`` and ``|yhat|``, or the weights of these labels.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    ndarray
        Of the shape that the three have together; 1 where both sets are empty.

    Examples
    --------
    >>> fbeta_of_counts(1, 1, [1, 2, 4], beta=2.0).round(3).tolist()
    [1.0, 0.833, 0.625]

    It goes to precision for small beta, and to recall for large beta:

    >>> [float(fbeta_of_counts(1, 2, 4, beta)) for beta in (1e-150, 1e150)]
    [0.25, 0.5]
    """
    counts: tuple[Any, ...] = (both, size_true, size_pred)
    if not any(is_tensor(a) for a in counts):
        counts = tuple(np.asarray(a, dtype=np.float64) for a in counts)
    xp, (hits, true, pred) = array_namespace(*counts), counts
    above, below = fbeta_terms(true, pred, beta)
    some = below > 0
    one = xp.ones_like(below)
    values = (above * hits) / xp.where(some, below, one)
    out: NDArray[np.float64] = xp.where(
        some, values, xp.where(true + pred == 0, one, xp.zeros_like(below))
    )
    return out


def _indicators(Y_true: Any, Y_pred: Any) -> tuple[Indicator, Indicator, Indicator]:
    """Return ``y & yhat``, ``y`` and ``yhat``, each of shape (n, s)."""
    true, pred = common_indicators(Y_true, Y_pred)
    return true.multiply(pred), true, pred


def _sizes(Y_true: Any, Y_pred: Any) -> tuple[Array, Array, Array]:
    """Return ``|y & yhat|``, ``|y|`` and ``|yhat|`` of each row, each of shape (n,)."""
    if (
        isinstance(Y_true, sp.csr_array)
        and type(Y_pred) is np.ndarray
        and Y_true.dtype == np.int8
        and Y_pred.dtype in (np.bool_, np.int8)
        and Y_pred.shape == Y_true.shape
        and Y_true.has_canonical_format
        and (Y_true.data == 1).all()
        and Y_pred.view(np.uint8).max(initial=0) <= 1
    ):  # such label sets need not become a sparse matrix
        true = np.diff(Y_true.indptr)
        rows = np.repeat(np.arange(len(true)), true)
        return np.bincount(rows, Y_pred[rows, Y_true.indices], len(true)), true, Y_pred.sum(axis=1)
    counts = (np.asarray(m.sum(axis=1, dtype=np.float64)) for m in _indicators(Y_true, Y_pred))
    both, true, pred = counts
    return both, true, pred


def _mean(values: Array, sample_weight: ArrayLike | None) -> float:
    weight = check_sample_weight(sample_weight, len(values), averaging=True)
    return float(np.average(values, weights=weight))


def averaged_fbeta(
    Y_true: Any,
    Y_pred: Any,
    beta: float = 1.0,
    *,
    average: str = "instance",
    sample_weight: ArrayLike | None = None,
) -> Array:
    """Compute F_beta averaged over instances, of all entries together, or for each label.

    Parameters
    ----------
    Y_true, Y_pred, beta, sample_weight
        As for :func:`fbeta_score`.
    average : {"instance", "micro", "macro"}
        The mean over the rows, of shape (); one value of all counts together, of shape (); or one
        value for each label, of shape (s,), of which the macro-averaged F_beta is the mean.

    Examples
    --------
    >>> averaged_fbeta([[1, 0], [1, 1]], [[1, 1], [1, 0]], average="macro").tolist()
    [1.0, 0.0]
    """
    check_choice("average", average, AVERAGES)
    if average == "instance":
        return np.asarray(fbeta_score(Y_true, Y_pred, beta, sample_weight=sample_weight))
    indicators = _indicators(Y_true, Y_pred)
    n = indicators[0].shape[0]
    weight = check_sample_weight(sample_weight, n, averaging=True)
    both, true, pred = (m.T @ (np.ones(n) if weight is None else weight) for m in indicators)
    if average == "micro":
        both, true, pred = both.sum(), true.sum(), pred.sum()
    return fbeta_of_counts(both, true, pred, check_beta(beta))


def fbeta_per_instance(Y_true: Any, Y_pred: Any, beta: float = 1.0) -> NDArray[np.float64]:
    """Compute F_beta of each instance, of shape (n,); arguments as for :func:`fbeta_score`.

    Examples
    --------
    >>> fbeta_per_instance([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]]).round(3).tolist()
    [0.667, 1.0]
    """
    return fbeta_of_counts(*_sizes(Y_true, Y_pred), check_beta(beta))


def fbeta_score(
    Y_true: Any, Y_pred: Any, beta: float = 1.0, *, sample_weight: ArrayLike | None = None
) -> float:
    """Average F_beta over the instances, with 0/0 = 1.

    Parameters
    ----------
    Y_true, Y_pred : labels of n instances
        0/1 arrays or sparse matrices of shape (n, s), DataFrames, or sequences of label sets.
    beta : float > 0
        Weight of recall against precision.
    sample_weight : array-like of shape (n,), optional
        Weights of the instances.

    Returns
    -------
    float

    Notes
    -----
    ``sklearn.metrics.fbeta_score(average="samples")`` counts an empty prediction for an empty
    set as 0 by default; here, as in the paper, it is perfect and counts as 1.

    Examples
    --------
    >>> fbeta_score([["sky", "sea"], []], [["sky"], []], beta=1.0)
    0.8333333333333333
    """
    return _mean(fbeta_per_instance(Y_true, Y_pred, beta), sample_weight)


def precision_score(Y_true: Any, Y_pred: Any, *, sample_weight: ArrayLike | None = None) -> float:
    """Average the precision ``|y & yhat| / |yhat|`` over the instances, with 0/0 = 1.

    Arguments as for :func:`fbeta_score`.

    Examples
    --------
    >>> precision_score([[1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 0]])
    0.75
    """
    both, _, size_pred = _sizes(Y_true, Y_pred)
    return _mean(fbeta_of_counts(both, size_pred, size_pred), sample_weight)


def recall_score(Y_true: Any, Y_pred: Any, *, sample_weight: ArrayLike | None = None) -> float:
    """Average the recall ``|y & yhat| / |y|`` over the instances, with 0/0 = 1.

    Arguments as for :func:`fbeta_score`.

    Examples
    --------
    >>> recall_score([[1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 0]])
    0.75
    """
    both, size_true, _ = _sizes(Y_true, Y_pred)
    return _mean(fbeta_of_counts(both, size_true, size_true), sample_weight)


def make_fbeta_scorer(beta: float = 1.0) -> Any:
    """Make a scorer of the instance-averaged F_beta for model selection.

    Parameters
    ----------
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    callable
        ``scorer(estimator, X, Y)``, for ``GridSearchCV(scoring=...)`` and the like; it takes
        ``sample_weight`` and follows scikit-learn's metadata routing.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, Y = [[0.0], [1.0]], [[1, 0], [1, 0]]
    >>> make_fbeta_scorer(2.0)(DummyClassifier().fit(X, Y), X, Y)
    1.0
    """
    return make_scorer(fbeta_score, beta=check_beta(beta))


def best_thresholds(
    scores: ArrayLike,
    Y: Any,
    beta: float = 1.0,
    *,
    average: str = "instance",
    weight: ArrayLike | None = None,
    ends: tuple[float, float] | None = None,
) -> Array:
    """Find the thresholds with the highest F_beta, exactly, in O(n s log(n s)).

    F_beta changes only where the threshold passes one of the scores.

    Parameters
    ----------
    scores : array-like of shape (n, s)
        ``scores > threshold`` is predicted.
    Y : labels of n instances
        The truth, a 0/1 matrix of shape (n, s) or label sets of the numbers of columns.
    beta, average, weight
        As ``beta``, ``average`` and ``sample_weight`` of :func:`averaged_fbeta`; macro maximises
        F_beta of each label by itself.
    ends : pair of float, optional
        The lowest and the highest that a score can be, such as 0 and 1; by default there are none.

    Returns
    -------
    ndarray of shape (), or (s,) for ``"macro"``
        Halfway between two scores, or between the outermost and the ends, or 1/2 beyond the
        outermost where there are none. Of several thresholds that are as good, the highest.

    Examples
    --------
    >>> P, Y = np.array([[0.9, 0.3], [0.2, 0.1]]), np.array([[1, 1], [0, 0]])
    >>> float(best_thresholds(P, Y))
    0.25
    """
    check_choice("average", average, AVERAGES)
    scores, beta = as_real("scores", scores), check_beta(beta)
    if np.isnan(scores).any():
        raise ValueError("Input scores contains NaN")
    Y = read_dense(Y, scores.shape[-1] if scores.ndim == 2 else 0, "Y")
    if scores.ndim != 2 or Y.shape != scores.shape:
        # one row of labels must not be broadcast to all rows of scores
        raise ValueError(f"Y has shape {Y.shape} and scores {scores.shape}: they must agree")
    weight = check_sample_weight(weight, len(scores), averaging=True)
    share = np.ones(len(scores)) if weight is None else weight
    if average == "macro":
        return _best_cuts(*_prefix_values(scores, Y, share[:, None], beta), ends)
    if average == "micro":
        share = np.repeat(share, scores.shape[1])
        scores, Y, share = (a.reshape(-1, 1) for a in (scores, Y, share))
        return np.asarray(_best_cuts(*_prefix_values(scores, Y, share, beta), ends)[0])
    # lowering the threshold past a score changes F_beta of its own row only
    down, values = _prefix_values(scores.T, Y.T, np.ones((1, 1)), beta)
    order = np.argsort(-down, axis=None, kind="stable")
    steps = (share * np.diff(values, axis=0)).ravel()[order]
    total = share @ values[0] + np.concatenate([[0.0], np.cumsum(steps)])
    return np.asarray(_best_cuts(down.ravel()[order][:, None], total[:, None], ends)[0])


def _prefix_values(
    scores: Array, Y: NDArray[Any], share: Array, beta: float
) -> tuple[Array, Array]:
    """Sort each column, and compute F_beta of predicting its 0, 1, ..., n largest scores.

    Returns the scores in falling order, (n, s), and the values, (n + 1, s).
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    hits, size = (
        np.cumsum(np.take_along_axis(a, order, axis=0), axis=0, dtype=np.float64)
        for a in (share * Y, np.broadcast_to(share, scores.shape))
    )
    hits, size = (np.pad(a, ((1, 0), (0, 0))) for a in (hits, size))
    values = fbeta_of_counts(hits, hits[-1:], size, beta)
    return np.take_along_axis(scores, order, axis=0), values


def _best_cuts(down: Array, values: Array, ends: tuple[float, float] | None) -> Array:
    """Return the threshold below the first m scores of each column, for the m of highest value."""
    first, last = down[:1], down[-1:]
    low, high = (last - 1, first + 1) if ends is None else ends
    # where a score is the lowest there can be, a threshold below it has to be lower still
    bottom = np.where(last > low, low, last - 1)
    above = np.concatenate([np.full_like(first, high), down])
    below = np.concatenate([down, bottom])
    values[1:-1][down[1:] == down[:-1]] = -np.inf  # no cut between ties
    best = values.argmax(axis=0)[None]
    upper, lower = (np.take_along_axis(a, best, axis=0)[0] for a in (above, below))
    middle = (upper + lower) / 2
    # there may be no number between neighbours in floating point
    return np.asarray(np.where(middle < upper, middle, lower))
