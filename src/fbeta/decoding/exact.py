"""From label statistics to the label set with the highest expected F_beta, exactly.

The expected F_beta of predicting ``yhat`` is ``q_0`` for the empty set and otherwise ``sum over j
in yhat of T_jl``, with ``l = |yhat|`` and ``T_jl = sum_k (1 + beta^2) q_jk / (beta^2 k + l)``. So
for each size l the best set holds the l labels with the largest ``T_jl``, and the best of the s + 1
candidates is the optimum over all 2^s sets. The size l runs over 1..s whatever sizes were seen.

Other measures that are linear in the hits given the two sizes work alike: see
:mod:`fbeta.decoding.measures`.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from fbeta._array import (
    Array,
    as_array,
    astype,
    is_tensor,
    namespace_and_device,
    widest_float,
    without_gradients,
)
from fbeta._threads import map_rows, row_tasks
from fbeta._validation import check_count
from fbeta.decoding.back_ends import search_on_device
from fbeta.decoding.dense_search import TIE_UNITS, Goal, Tables, search_dense
from fbeta.decoding.factored_search import search_factored
from fbeta.decoding.measures import Measure, get_measure
from fbeta.decoding.sparse_search import expected_of_sparse, search_sparse
from fbeta.labels.forms import check_binary, read_dense
from fbeta.statistics.dense import Dense, Form
from fbeta.statistics.factored import Factored, law_bytes, pieces
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.sparse import Sparse

__all__ = ["decode", "expected_fbeta", "expected_measure"]

# values closer than this (relative) are a tie, in double precision
TIE = TIE_UNITS * np.finfo(np.float64).eps


# the types are those of NumPy, for those who use it; other arrays come back as they are
@overload
def decode(
    statistics: LabelStatistics,
    beta: float = ...,
    *,
    measure: str | Measure = ...,
    min_labels: int = ...,
    max_labels: int | None = ...,
    return_expected: Literal[False] = ...,
) -> NDArray[np.int8]: ...


@overload
def decode(
    statistics: LabelStatistics,
    beta: float = ...,
    *,
    measure: str | Measure = ...,
    min_labels: int = ...,
    max_labels: int | None = ...,
    return_expected: Literal[True],
) -> tuple[NDArray[np.int8], NDArray[np.float64]]: ...


def decode(
    statistics: LabelStatistics,
    beta: float = 1.0,
    *,
    measure: str | Measure = "fbeta",
    min_labels: int = 0,
    max_labels: int | None = None,
    return_expected: bool = False,
) -> NDArray[np.int8] | tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Find the label set with the highest expected F_beta for each instance.

    Exact over all 2^s label sets, or over those with an allowed number of labels, for any
    non-negative statistics, whether or not they belong to a distribution. Ties go to the smaller
    set and, within a size, to the labels that come first.

    Parameters
    ----------
    statistics : LabelStatistics
        Of n instances with s labels.
    beta : float > 0
        Weight of recall against precision; only F_beta has it.
    measure : str or Measure
        What to maximise instead of F_beta: ``"precision"``, ``"recall"``, ``"informedness"``
        (recall + specificity - 1), ``"markedness"`` (precision + negative predictive value - 1),
        ``"hamming"`` (the share of labels that are right), or any
        :class:`fbeta.decoding.measures.Measure`. A ratio with nothing below the line counts as 1.
    min_labels, max_labels : int
        Limits on the number of labels of a prediction; none by default. Precision alone is
        highest for the empty set, and recall alone for all labels, unless these say otherwise.
    return_expected : bool
        Also return the expected value of the measure under the statistics.

    Returns
    -------
    labels : int8 array of shape (n, s)
        Predicted label sets, 0/1, of the library and on the device of the statistics; a csr_array
        for statistics of listed labels, with listed labels alone.
    expected : array of shape (n,)
        Only with ``return_expected=True``.

    Notes
    -----
    Some rows are decoded at a time: the memory needed beyond the result is a few MiB for each
    thread. NumPy arrays are decoded on as many threads as the BLAS library would use. Statistics
    that :meth:`LabelStatistics.from_marginals` made are not unfolded: there the best set of every
    size has the labels with the largest marginals.

    Examples
    --------
    Three labels, exactly one of which is present, each as likely: predicting all three is best,
    although no row has more than one label.

    >>> q = LabelStatistics.from_distribution([[1 / 3, 1 / 3, 1 / 3]], np.eye(3))
    >>> labels, expected = decode(q, beta=1.0, return_expected=True)
    >>> labels.tolist(), expected.round(3).tolist()
    ([[1, 1, 1]], [0.5])

    With at most two labels, and for another measure:

    >>> decode(q, max_labels=2).tolist(), decode(q, measure="hamming").tolist()
    ([[1, 1, 0]], [[0, 0, 0]])
    """
    form = _form_of(statistics)
    goal = _check_goal(get_measure(measure, beta), min_labels, max_labels, form.shape[1])
    with without_gradients(form.place[0]):
        found = None
        if measure == "fbeta" and isinstance(form, Dense) and form.shape[0]:
            found = search_on_device(form, beta, goal)
        labels, expected = _search(form, goal) if found is None else found
    return (labels, expected) if return_expected else labels


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
    statistics : LabelStatistics
        Of n instances.
    labels : array-like of shape (n, s)
        Predictions, 0/1.
    beta : float > 0
        Weight of recall against precision; only F_beta has it.
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
    form, measure = _form_of(statistics), get_measure(measure, beta)
    if isinstance(form, Sparse):
        return expected_of_sparse(form, labels, measure)
    xp, _ = form.place
    chosen = _read_predictions(form, labels)

    def work(rows: Any) -> tuple[Array]:
        yhat = chosen[rows, :]
        empty, sizes, cardinalities, hits = _hits(form.take(rows), yhat)
        size = xp.sum(astype(xp, yhat, xp.arange(0, device=yhat.device).dtype), axis=1)
        A, B = (
            xp.take(xp.asarray(table, dtype=hits.dtype, device=hits.device), size, axis=0)
            for table in measure.tables(cardinalities, range(form.shape[1] + 1), form.shape[1])
        )
        law = xp.concat([empty[:, None], sizes], axis=1)
        return (xp.sum(A * hits, axis=1) + xp.sum(B * law, axis=1),)

    n, s = form.shape
    if isinstance(form, Factored):
        tasks = row_tasks(form.place, n, law_bytes(s, form.largest_size()))
    else:
        tasks = row_tasks(form.place, n, form.row_bytes, unfolding=not isinstance(form, Dense))
    expected: NDArray[np.float64] = map_rows(xp, work, tasks)[0]
    return expected


def _form_of(statistics: Any) -> Form:
    if not isinstance(statistics, LabelStatistics):
        raise TypeError(
            "statistics must be LabelStatistics; for probabilities of the labels see "
            f"LabelStatistics.from_marginals (got {type(statistics).__name__})"
        )
    return statistics.form


def _check_goal(measure: Measure, low: int, high: int | None, s: int) -> Goal:
    low = check_count("min_labels", low, low=0)
    high = s if high is None else min(check_count("max_labels", high, low=0), s)
    if low > s:
        raise ValueError(f"min_labels is {low}, but there are only {s} labels")
    if low > high:
        raise ValueError(f"min_labels must not be above max_labels, got {low} and {high}")
    return Goal(measure, low, high, s)


def _search(form: Form, goal: Goal) -> tuple[Array, Array]:
    """Find the best label sets, and their values."""
    if isinstance(form, Sparse):
        return search_sparse(form, goal)
    xp, device = form.place
    if not form.shape[0]:
        labels = xp.zeros(form.shape, dtype=xp.int8, device=device)
        return labels, xp.zeros(0, dtype=widest_float(xp, device), device=device)
    if isinstance(form, Factored):
        return search_factored(form, goal)
    dense = isinstance(form, Dense)
    shared = Tables(goal.measure, form.block(slice(0, 0))) if dense else None

    def work(rows: Any) -> tuple[Array, Array]:
        block = form.block(rows)
        tables = Tables(goal.measure, block) if shared is None else shared
        return search_dense(block, tables, goal)

    tasks = row_tasks(form.place, form.shape[0], form.row_bytes, unfolding=not dense)
    labels, value = map_rows(xp, work, tasks)
    return labels, value


def _read_predictions(form: Form, labels: Any) -> Array:
    """Return predictions as 0/1 numbers, where the statistics are."""
    xp, device = form.place
    if is_tensor(labels):
        if (xp, device) != namespace_and_device(labels=labels):
            raise ValueError("labels must be of the library and on the device of the statistics")
        check_binary(labels, "labels")
    elif 0 in getattr(labels, "shape", ()):
        labels = np.asarray(labels)
    else:
        labels = read_dense(labels, form.shape[1], "labels")
    if tuple(labels.shape) != form.shape:
        raise ValueError(f"labels must have shape {form.shape}, got {tuple(labels.shape)}")
    return astype(xp, as_array(xp, device, labels), xp.bool)


def _hits(form: Form, yhat: Array) -> tuple[Array, Array, Any, Array]:
    """Return q_0, the probabilities of the sizes, these, and the expected hits at each: (n, K)."""
    xp, _ = form.place
    if not isinstance(form, Factored):
        block = form.block(slice(None))
        chosen = astype(xp, yhat, block.joint.dtype)
        hits = xp.matmul(block.joint, chosen[:, :, None])[:, :, 0]
        return block.empty, block.size_probabilities(), block.cardinalities, hits
    ascending, order = form.sorted(), form.order()
    law = form.law(ascending)
    chosen = xp.take(xp.reshape(yhat, (-1,)), xp.reshape(order, (-1,)))
    chosen = astype(xp, xp.reshape(chosen, order.shape), ascending.dtype)
    hits = xp.zeros_like(law.weights)
    for labels, sizes, q in pieces(law, ascending):
        hits[sizes, :] += xp.sum(q * chosen[labels, None, :], axis=0)
    cardinalities = np.arange(law.first, law.first + law.weights.shape[0])
    sizes, hits = (xp.permute_dims(array, (1, 0)) for array in (law.weights, hits))
    return law.empty, sizes, cardinalities, hits
