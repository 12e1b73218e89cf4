"""Thresholds on scores that maximise F_beta, found by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._validation import check_beta, check_choice

__all__ = ["global_threshold", "row_thresholds"]

Array = NDArray[np.float64]


def row_thresholds(scores: Array, Y: NDArray[Any], beta: float = 1.0) -> Array:
    """Find the highest of ``argmax_t F_beta(y_i, {j : scores_ij > t})`` for each row.

    It is in the middle between two scores, or 1/2 beyond the outermost.

    >>> row_thresholds(np.array([[3.0, 1.0, 0.0]]), np.array([[1, 0, 0]])).tolist()
    [2.0]
    """
    return _best_cuts(*_prefix_values(scores, Y, check_beta(beta)))


def global_threshold(
    scores: Array, Y: NDArray[Any], beta: float = 1.0, average: str = "instance"
) -> float:
    """Find the threshold t for which ``scores > t`` has the highest F_beta on given labels.

    Parameters
    ----------
    scores : ndarray of shape (n, s)
    Y : 0/1 ndarray of shape (n, s)
    beta : float > 0
        The measure to maximise.
    average : {"instance", "micro"}
        Average F_beta over the rows, or take the F_beta of all entries as one label set.

    Returns
    -------
    float
        As in :func:`row_thresholds`, over all scores.

    Examples
    --------
    >>> scores, Y = np.array([[3.0, 1.0], [0.0, 2.5]]), np.array([[1, 0], [0, 1]])
    >>> global_threshold(scores, Y)
    1.75
    """
    if check_choice("average", average, ("instance", "micro")) == "micro":
        return float(row_thresholds(scores.reshape(1, -1), Y.reshape(1, -1), beta)[0])
    descending, values = _prefix_values(scores, Y, check_beta(beta))
    # lowering the threshold past a score changes F_beta of its own row only
    order = np.argsort(-descending, axis=None, kind="stable")
    total = values[:, 0].sum() + np.r_[0.0, np.diff(values, axis=1).ravel()[order].cumsum()]
    return float(_best_cuts(descending.ravel()[order][None], total[None])[0])


def _prefix_values(scores: Array, Y: NDArray[Any], beta: float) -> tuple[Array, Array]:
    """Return the scores in descending order, and F_beta of the first 0..s labels of each row."""
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = np.cumsum(np.take_along_axis(Y, order, axis=1), axis=1, dtype=np.float64)
    size, beta2 = hits[:, -1:], beta**2
    values = (1 + beta2) * hits / (beta2 * size + np.arange(1, Y.shape[1] + 1))
    return np.take_along_axis(scores, order, axis=1), np.hstack([size == 0, values])


def _best_cuts(descending: Array, values: Array) -> Array:
    """Return the threshold below the first k scores of each row, for the k of highest value."""
    values[:, 1:-1][descending[:, 1:] == descending[:, :-1]] = -np.inf  # no cut between ties
    edges = np.hstack([descending[:, :1] + 1.0, descending, descending[:, -1:] - 1.0])
    best = values.argmax(axis=1)[:, None]
    above, below = (np.take_along_axis(edges, best + k, axis=1)[:, 0] for k in (0, 1))
    middle = (above + below) / 2
    # there may be no number between neighbours in floating point
    return np.where(middle < above, middle, below)
