"""The F_beta-measure of label sets, averaged over instances, with 0/0 = 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import make_scorer

from fbeta._validation import check_beta, check_sample_weight
from fbeta.labels import common_indicators

__all__ = [
    "fbeta_per_instance",
    "fbeta_score",
    "make_fbeta_scorer",
    "precision_score",
    "recall_score",
]


def _counts(Y_true: Any, Y_pred: Any) -> tuple[NDArray[np.float64], ...]:
    """Return |y & yhat|, |y| and |yhat| of each row, each of shape (n,)."""
    true, pred = common_indicators(Y_true, Y_pred)
    both = true.multiply(pred)
    tp, size_true, size_pred = (
        np.asarray(m.sum(axis=1, dtype=np.float64)).ravel() for m in (both, true, pred)
    )
    return tp, size_true, size_pred


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide with 0/0 = 1."""
    return np.divide(numerator, denominator, out=np.ones_like(numerator), where=denominator > 0)


def _average(values: NDArray[np.float64], sample_weight: ArrayLike | None) -> float:
    weight = check_sample_weight(sample_weight, len(values))
    if weight is None:
        return float(values.mean())
    return float(np.average(values, weights=weight))


def fbeta_per_instance(Y_true: Any, Y_pred: Any, beta: float = 1.0) -> NDArray[np.float64]:
    """Compute F_beta of each instance.

    ``F_beta(y, yhat) = (1 + beta^2) |y & yhat| / (beta^2 |y| + |yhat|)``, and 1 where both sets
    are empty.

    Parameters
    ----------
    Y_true, Y_pred : labels of n instances
        0/1 arrays or sparse matrices of shape (n, s), DataFrames, or sequences of label sets.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> fbeta_per_instance([[1, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0]]).round(3).tolist()
    [0.667, 1.0]
    """
    beta2 = check_beta(beta) ** 2
    tp, size_true, size_pred = _counts(Y_true, Y_pred)
    return _ratio((1 + beta2) * tp, beta2 * size_true + size_pred)


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
    return _average(fbeta_per_instance(Y_true, Y_pred, beta), sample_weight)


def precision_score(Y_true: Any, Y_pred: Any, *, sample_weight: ArrayLike | None = None) -> float:
    """Average the precision ``|y & yhat| / |yhat|`` over the instances, with 0/0 = 1.

    Parameters
    ----------
    Y_true, Y_pred : labels of n instances
        As for :func:`fbeta_score`.
    sample_weight : array-like of shape (n,), optional
        Weights of the instances.

    Returns
    -------
    float

    Examples
    --------
    >>> precision_score([[1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 0]])
    0.75
    """
    tp, _, size_pred = _counts(Y_true, Y_pred)
    return _average(_ratio(tp, size_pred), sample_weight)


def recall_score(Y_true: Any, Y_pred: Any, *, sample_weight: ArrayLike | None = None) -> float:
    """Average the recall ``|y & yhat| / |y|`` over the instances, with 0/0 = 1.

    Parameters
    ----------
    Y_true, Y_pred : labels of n instances
        As for :func:`fbeta_score`.
    sample_weight : array-like of shape (n,), optional
        Weights of the instances.

    Returns
    -------
    float

    Examples
    --------
    >>> recall_score([[1, 1, 0], [0, 1, 0]], [[1, 0, 0], [1, 1, 0]])
    0.75
    """
    tp, size_true, _ = _counts(Y_true, Y_pred)
    return _average(_ratio(tp, size_true), sample_weight)


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
