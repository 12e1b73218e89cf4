"""The label set with the highest expected F_beta, or other measure, under label statistics.

docs/theory.md shows that the decode is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import (
    Array,
    array_namespace,
    astype,
    cumulative_sum,
    sort_descending,
    spread_rows,
    take_rows,
    to_numpy,
    widest_float,
    without_gradients,
)
from fbeta._threads import map_rows
from fbeta.decoding.factored_search import search_factored, search_sparse
from fbeta.decoding.measures import (
    Goal,
    Measure,
    choose_size,
    form_of_statistics,
    get_measure,
    largest_of_size,
    read_limits,
    rest_of,
    search_on_device,
    tie,
)
from fbeta.statistics.codes import Estimates
from fbeta.statistics.composite import Form, Sparse
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Dense, Factored

# tables A (s + 1, K) and B (s + 1, 1 + K) of a measure, and A on the host, for decisions
Tables: TypeAlias = tuple[Array, Array, NDArray[np.float64]]


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


@overload
def decode(
    statistics: LabelStatistics,
    beta: float = ...,
    *,
    measure: str | Measure = ...,
    min_labels: int = ...,
    max_labels: int | None = ...,
    return_expected: bool = ...,
    names: Sequence[Any],
) -> Any: ...


def decode(
    statistics: LabelStatistics,
    beta: float = 1.0,
    *,
    measure: str | Measure = "fbeta",
    min_labels: int = 0,
    max_labels: int | None = None,
    return_expected: bool = False,
    names: Sequence[Any] | None = None,
) -> Any:
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
        :class:`fbeta.decoding.measures.Measure`. A zero denominator makes a ratio 1.
    min_labels, max_labels : int
        Limits on the number of labels of a prediction; none by default. Precision alone is
        highest for the empty set, and recall alone for all labels, unless these say otherwise.
    return_expected : bool
        Also return the expected value of the measure under the statistics.
    names : sequence of s names, optional
        Of the labels: label sets are then lists of names.

    Returns
    -------
    labels : int8 array of shape (n, s), or list of n lists of names
        Predicted label sets, 0/1, of the library and on the device of the statistics; a csr_array
        for statistics of listed labels, with listed labels alone.
    expected : array of shape (n,)
        Only with ``return_expected=True``.

    Notes
    -----
    Some rows are decoded at a time, in a few MiB for each thread, NumPy's on as many threads as the
    BLAS library would use. Statistics of :meth:`LabelStatistics.from_marginals` are not unfolded.

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

    Of a million labels, as names:

    >>> q = LabelStatistics.from_listed([[7, 2]], [[0.9, 0.2]], n_labels=1_000_000)
    >>> decode(q, beta=3.0, names=range(1_000_000))
    [[2, 7]]
    """
    form = form_of_statistics(statistics)
    if names is not None and len(names) != form.shape[1]:
        raise ValueError(f"names has {len(names)} names, but there are {form.shape[1]} labels")
    kind, s = get_measure(measure, beta), form.shape[1]
    goal = Goal(kind, *read_limits(min_labels, max_labels, s), s)
    with without_gradients(form.place[0]):
        found = None
        if measure == "fbeta" and isinstance(form, Dense) and form.shape[0]:
            found = search_on_device(form, beta, goal)
        labels, expected = _search(form, goal) if found is None else found
    if names is not None:
        sets = sp.csr_array(labels if sp.issparse(labels) else to_numpy(labels))
        labels = [[names[j] for j in row] for row in np.split(sets.indices, sets.indptr[1:-1])]
    return (labels, expected) if return_expected else labels


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
    shared = _tables(goal.measure, form.block(slice(0, 0))) if isinstance(form, Dense) else None

    def work(rows: Any) -> tuple[Array, Array]:
        block = form.block(rows)
        return search_dense(block, shared or _tables(goal.measure, block), goal)

    labels, value = map_rows(xp, work, form.tasks())
    return labels, value


def _tables(measure: Measure, block: Dense) -> Tables:
    """Return the tables of a measure, for all sizes of predictions, where the statistics are."""
    (xp, device), s, dtype = block.place, block.shape[1], block.empty.dtype
    host, B = measure.tables(block.cardinalities, np.arange(s + 1), s)
    there = {"dtype": dtype, "device": device}
    return xp.asarray(host, **there), xp.asarray(B, **there), host


def search_dense(block: Dense, tables: Tables, goal: Goal) -> tuple[Array, Array]:
    """Find the best label sets, (n, s), and their values, (n,), under any statistics."""
    xp = block.place[0]
    if goal.measure.separable:
        # A(k, l) = a(k) b(l): the labels have one order for all sizes
        (A, B, host), one = tables, min(1, block.shape[1])
        scores = sort_descending(xp, xp.matmul(A[one, :], block.joint))
        totals = cumulative_sum(xp, scores, axis=1)
        totals = xp.concat([xp.zeros_like(block.empty)[:, None], totals], axis=1)
        b = A[:, 0] / A[one, 0] if host.size else xp.zeros_like(B[:, 0])
        hits = xp.permute_dims(totals * b, (1, 0))[goal.low : goal.high + 1, :]
        size, value = _choose_among(block, B, goal, hits)
    elif goal.measure.bounded:
        size, value = _IntervalSearch(block, tables, goal).run()
    else:
        sizes = range(goal.low, goal.high + 1)
        parts = (xp.matmul(tables[0][size, :], block.joint) for size in sizes)
        sums = [_largest_sum(xp, own, size)[0] for own, size in zip(parts, sizes, strict=True)]
        size, value = _choose_among(block, tables[1], goal, xp.stack(sums, axis=0))
    weights = xp.take(tables[0], size, axis=0)
    # a product of matrices may round equal labels differently, and the first is to come first
    scores = xp.sum(weights[:, :, None] * block.joint, axis=1)
    return largest_of_size(xp, scores, sort_descending(xp, scores), size), value


def _choose_among(block: Dense, B: Array, goal: Goal, hits: Array) -> tuple[Array, Array]:
    """Choose between all sizes that are allowed, with what depends on the size alone."""
    rest, scale = rest_of(block.place[0], B[goal.low : goal.high + 1, :], *_sizes_of(block))
    sizes = block.place[0].arange(goal.low, goal.high + 1, device=hits.device)
    return choose_size(block.place[0], sizes, hits + rest, hits + scale)


def _sizes_of(block: Dense) -> tuple[Array, Array]:
    xp = block.place[0]
    return block.empty, xp.permute_dims(block.size_probabilities(), (1, 0))


def _largest_sum(xp: Any, scores: Array, size: int) -> tuple[Array, Array]:
    """Return the sum of the largest scores, and the next; NumPy's are sorted in place."""
    s = scores.shape[1]
    if xp is np:
        if size < s:
            scores.partition(s - size - 1, axis=1)
        largest, rest = scores[:, s - size :], scores[:, : s - size]
        return largest.sum(axis=1), rest[:, -1] if size < s else np.zeros(len(scores))
    scores = sort_descending(xp, scores)
    total = xp.sum(scores[:, :size], axis=1)
    return total, scores[:, size] if size < s else xp.zeros_like(total)


class _IntervalSearch:
    """The best size for a measure with ``A(k, l) = c(k) / (d(k) + l)``, and 0 beyond the hits.

    A few sizes are tried, and an interval between two of them is halved only where the bounds of
    docs/theory.md are above the best value so far.
    """

    def __init__(self, block: Dense, tables: Tables, goal: Goal) -> None:
        self.xp, self.block, self.goal = block.place[0], block, goal
        self.A, B, self.host = tables
        xp, n = self.xp, block.shape[0]
        self.tie = tie(xp, block.empty.dtype)
        self.rows = xp.arange(n, device=block.empty.device)
        self.values: dict[int, Array] = {}
        self.best = xp.full_like(block.empty, -xp.inf)
        if goal.low == 0:
            self._keep(0, self.rows, rest_of(xp, B[:1, :], *_sizes_of(block))[0][0, :])

    def run(self) -> tuple[Array, Array]:
        """Return the best sizes and their values."""
        xp, rows, high = self.xp, self.rows, self.goal.high
        total = xp.sum(self.block.joint, axis=2)
        starts, intervals, size = [], [], max(self.goal.low, 1)
        while size <= high:
            starts.append(size)
            size = max(size + 1, size * 3 // 2)
        for start, end in pairwise([*starts, high + 1]):
            bound = xp.matmul(xp.take(total, rows, axis=0), self.A[start, :])
            (rows,) = self._open(rows, bound > self._best(rows) * (1 + self.tie), rows)
            if not rows.shape[0]:
                break
            value, next_score = self._try(start, rows)
            intervals.append((start, end, rows, value, next_score))
            if start < high:
                bound = xp.maximum(value, self._bound(start, high, value, next_score))
                (rows,) = self._open(rows, bound > self._best(rows) * (1 + self.tie), rows)
        for interval in reversed(intervals):
            self._refine(*interval)
        sizes = sorted(self.values)
        values = xp.stack([self.values[size] for size in sizes], axis=0)
        return choose_size(xp, xp.asarray(sizes, device=values.device), values)

    def _refine(self, start: int, end: int, rows: Array, value: Array, next_score: Array) -> None:
        """Try the sizes between two that matter, given the value at the first."""
        if end - start < 2:
            return
        bound = self.xp.maximum(
            self._bound(start, start + 1, value, next_score),
            self._bound(start, end - 1, value, next_score),
        )
        near = bound >= self._best(rows) * (1 - 2 * self.tie)
        rows, value, next_score = self._open(rows, near, rows, value, next_score)
        if rows.shape[0]:
            middle = (start + end) // 2
            self._refine(middle, end, rows, *self._try(middle, rows))
            self._refine(start, middle, rows, value, next_score)

    def _bound(self, start: int, size: int, value: Array, next_score: Array) -> Array:
        shrinkage = float((self.host[size] / self.host[start]).max(initial=0.0))
        return shrinkage * (value + (size - start) * next_score)

    def _best(self, rows: Array) -> Array:
        return self.xp.take(self.best, rows)

    def _open(self, rows: Array, mask: Array, *arrays: Array) -> tuple[Array, ...]:
        """Return the arrays where the mask is true."""
        found = self.xp.nonzero(mask)[0]
        if found.shape[0] == rows.shape[0]:
            return arrays
        return tuple(take_rows(self.xp, array, found) for array in arrays)

    def _try(self, size: int, rows: Array) -> tuple[Array, Array]:
        """Compute the value of the best set of a size, for some rows, and the next score."""
        xp, weights, n = self.xp, self.A[size, :], self.block.shape[0]
        m = rows.shape[0]
        if 5 * m > n:
            # a product with all rows costs less than a copy of some
            scores = xp.matmul(weights, self.block.joint)
            scores = scores if m == n else xp.take(scores, rows, axis=0)
        else:
            scores = xp.matmul(weights, xp.take(self.block.joint, rows, axis=0))
        value, next_score = _largest_sum(xp, scores, size)
        self._keep(size, rows, value)
        return value, next_score

    def _keep(self, size: int, rows: Array, value: Array) -> None:
        spread = spread_rows(self.xp, value, rows, self.block.shape[0], -np.inf)
        self.values[size] = spread
        self.best = self.xp.maximum(self.best, spread)


def exact_decode(
    output: Estimates, beta: float, *, return_expected: bool = False, **goal: Any
) -> Any:
    """Decode estimates, as a rule: booleans of shape (n, s), by the goal of :func:`decode`.

    With ``return_expected``, return the value that is maximised, (n,), besides.
    """
    labels, expected = decode(output.statistics(), beta, return_expected=True, **goal)
    xp = np if sp.issparse(labels) else array_namespace(labels)
    found = astype(xp, labels, xp.bool)
    return (found, expected) if return_expected else found
