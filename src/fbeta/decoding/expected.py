"""The expected F_beta, or other measure, of given predictions, and rules that do not maximise it.

A rule is called with what the model of an estimator gives for n rows and with beta, and returns
booleans of shape (n, s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, as_array, astype, is_tensor, namespace_and_device, to_numpy
from fbeta._threads import map_rows
from fbeta.decoding.measures import Measure, form_of_statistics, get_measure
from fbeta.labels.forms import check_binary, read_dense
from fbeta.statistics.codes import Estimates
from fbeta.statistics.composite import Form, Sparse, is_present
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Factored, pieces


def expected_fbeta(
    statistics: LabelStatistics, labels: Any, beta: float = 1.0
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
    array of shape (n,)

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.9, 0.5]])
    >>> expected_fbeta(q, np.array([[True, False]]), 1.0).round(3).tolist()
    [0.75]
    """
    return expected_measure(statistics, labels, beta)


def expected_measure(
    statistics: LabelStatistics, labels: Any, beta: float = 1.0, *, measure: str | Measure = "fbeta"
) -> NDArray[np.float64]:
    """Compute the expected value of a measure for given predictions.

    Parameters
    ----------
    statistics, labels, beta
        As for :func:`expected_fbeta`; only F_beta has a beta.
    measure : str or Measure
        As for :func:`decode`.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.9, 0.5]])
    >>> expected_measure(q, [[1, 0]], measure="hamming").round(3).tolist()
    [0.7]
    """
    form, measure = form_of_statistics(statistics), get_measure(measure, beta)
    (xp, device), s = form.place, form.shape[1]
    if isinstance(form, Sparse):
        labels = sp.csr_array(labels, copy=True)
        check_binary(labels.data, "labels", labels)
        labels.eliminate_zeros()
    elif is_tensor(labels):
        if (xp, device) != namespace_and_device(labels=labels):
            raise ValueError("labels must be of the library and on the device of the statistics")
        check_binary(labels, "labels")
    elif 0 in getattr(labels, "shape", ()):
        labels = np.asarray(labels)
    else:
        labels = read_dense(labels, form.shape[1], "labels")
    if tuple(labels.shape) != form.shape:
        raise ValueError(f"labels must have shape {form.shape}, got {tuple(labels.shape)}")
    labels = labels if isinstance(form, Sparse) else as_array(xp, device, labels)
    chosen = astype(xp, labels, xp.bool)

    def work(rows: Any) -> tuple[Array]:
        size, (empty, sizes, cardinalities, hits) = _hits(form.take(rows), chosen[rows, :])
        values, place = np.unique(size, return_inverse=True) if xp is np else (range(s + 1), size)
        A, B = (
            xp.take(xp.asarray(table, dtype=hits.dtype, device=hits.device), place, axis=0)
            for table in measure.tables(cardinalities, values, s)
        )
        law = xp.concat([empty[:, None], sizes], axis=1)
        return (xp.sum(A * hits, axis=1) + xp.sum(B * law, axis=1),)

    expected: NDArray[np.float64] = map_rows(xp, work, form.tasks())[0]
    return expected


def _hits(form: Form, yhat: Array) -> tuple[Array, tuple[Array, ...]]:
    """Return the sizes of predictions, (n,); q_0, P(|y| = k), k, and the expected hits, (n, K)."""
    if isinstance(form, Sparse):
        (lists, used), size = form.padded(), np.diff(yhat.indptr)
        chosen = np.zeros_like(used)
        chosen[used] = is_present(form.P, yhat)
        empty, sizes, cardinalities, hits = _hits_of_factored(lists, chosen)
        unlisted = size - chosen.sum(axis=1)
        if unlisted.any():  # they share what the listed ones leave
            rest = np.maximum(cardinalities * sizes - _hits_of_factored(lists, used)[3], 0.0)
            hits = hits + rest * (unlisted / np.maximum(form.shape[1] - form.listed(), 1))[:, None]
        return size, (empty, sizes, cardinalities, hits)
    xp = form.place[0]
    size = xp.sum(astype(xp, yhat, xp.arange(0, device=yhat.device).dtype), axis=1)
    if isinstance(form, Factored):
        return size, _hits_of_factored(form, yhat)
    block = form.block(slice(None))
    chosen = astype(xp, yhat, block.joint.dtype)
    hits = xp.matmul(block.joint, chosen[:, :, None])[:, :, 0]
    return size, (block.empty, block.size_probabilities(), block.cardinalities, hits)


def _hits_of_factored(form: Factored, yhat: Array) -> tuple[Array, ...]:
    xp = form.place[0]
    (law, ascending), order = form.law(), form.order()
    chosen = xp.take(xp.reshape(yhat, (-1,)), xp.reshape(order, (-1,)))
    chosen = astype(xp, xp.reshape(chosen, order.shape), ascending.dtype)
    hits = xp.zeros_like(law.weights)
    used = to_numpy(xp.any(chosen > 0, axis=1))
    first = int(used.argmax()) if used.any() else len(used)  # the likely labels are the last ones
    for labels, sizes, q in pieces(law, ascending[first:, :]):
        hits[sizes, :] += xp.sum(q * chosen[first:, :][labels, None, :], axis=0)
    cardinalities = np.arange(law.first, law.first + law.weights.shape[0])
    sizes, hits = (xp.permute_dims(array, (1, 0)) for array in (law.weights, hits))
    return law.empty, sizes, cardinalities, hits


def cut_at_half(output: Estimates, beta: float) -> Any:
    """Choose the labels that are more likely than not, whatever beta."""
    return output.marginals() > 0.5


@dataclass(frozen=True)
class ScoreThresholds:
    """The labels whose scores exceed a threshold, by default 0, of a model fitted for one beta.

    Examples
    --------
    >>> ScoreThresholds(1.0)(np.array([[0.2, -0.1]]), 1.0).tolist()
    [[True, False]]
    """

    beta: float
    # (2 s,), of the scores of a row and of its scores in descending order
    coef: NDArray[np.float64] | None = None
    intercept: float = 0.0

    def __call__(self, output: NDArray[Any], beta: float) -> NDArray[np.bool_]:
        """Cut the scores; raise for another measure than the one that the model was fitted for."""
        if beta != self.beta:
            raise ValueError(
                f"the model was fitted for beta={self.beta:g} and depends on it: to predict for "
                f"beta={beta:g}, fit again"
            )
        if self.coef is None:
            return np.asarray(output > self.intercept)
        threshold = ordered_scores(output) @ self.coef + self.intercept
        return np.asarray(output > threshold[:, None])


def ordered_scores(scores: Array) -> Array:
    """Return the scores in the order of the labels, and in descending order, of shape (n, 2 s)."""
    return np.hstack([scores, -np.sort(-scores, axis=1)])
