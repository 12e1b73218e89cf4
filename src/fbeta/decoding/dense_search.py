"""The search for the best label set of each size, and for the best size, under any statistics.

The best set of size l has the l labels with the largest ``T_jl = sum_k A(k, l) q_jk``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from fbeta._array import Array, astype, cumulative_sum, sort_descending, spread_rows, take_rows
from fbeta.decoding.measures import Measure
from fbeta.statistics.storage import Dense

# values closer than this many units of rounding, relative to the sums they come from, are a tie:
# sums of the same numbers in another order differ so
TIE_UNITS = 64


def tie(xp: Any, dtype: Any) -> float:
    """Return the relative difference below which two values are a tie."""
    return TIE_UNITS * float(xp.finfo(dtype).eps)


@dataclass(frozen=True)
class Goal:
    """The measure to maximise in expectation, and how many labels a prediction may have."""

    measure: Measure
    low: int  # the smallest and the largest number of labels of a prediction
    high: int
    n_labels: int  # the number of labels s that there are


# from statistics, beta and a goal to label sets, (n, s), and expected values, (n,)
Search: TypeAlias = Callable[[Dense, float, Goal], tuple[Array, Array] | None]
_SEARCHES: dict[str, Search] = {}


def register_search(device_type: str, search: Search) -> None:
    """Register the decode of dense statistics on devices of a type, such as "cuda"."""
    _SEARCHES[device_type] = search


def search_on_device(form: Dense, beta: float, goal: Goal) -> tuple[Array, Array] | None:
    """Return label sets and expected values, or None where no search is registered."""
    search = _SEARCHES.get(getattr(form.place[1], "type", ""))
    return None if search is None else search(form, beta, goal)


class Tables:
    """A (s + 1, K) and B (s + 1, 1 + K) of a measure for all sizes of predictions 0..s.

    They are where the statistics are; ``host`` is A once more, for decisions.
    """

    def __init__(self, measure: Measure, block: Dense) -> None:
        xp, device = block.place
        s, dtype = block.shape[1], block.empty.dtype
        self.host, B = measure.tables(block.cardinalities, np.arange(s + 1), s)
        self.A, self.B = (xp.asarray(t, dtype=dtype, device=device) for t in (self.host, B))

    def shrinkage(self, start: int, size: int) -> float:
        """Return the largest ratio of A at a size to A at a smaller one, over the true sizes."""
        return float((self.host[size] / self.host[start]).max(initial=0.0))


def choose_size(
    xp: Any, sizes: list[int], values: Array, scales: Array | None = None
) -> tuple[Array, Array]:
    """Choose the best size of each instance, and the smallest among those that tie.

    Shapes: ``values`` (E, n), ``scales`` (E, n); returns (n,), (n,).
    """
    zero = xp.zeros_like(values)
    if scales is None:
        scales = xp.where(values > -xp.inf, xp.abs(values), zero)
    top = xp.max(values, axis=0)
    scale = xp.max(xp.where(values == top, scales, zero), axis=0)
    near = values >= top - tie(xp, values.dtype) * xp.maximum(scales, scale)
    place = xp.arange(len(sizes), device=values.device)
    place = xp.broadcast_to(place[:, None], values.shape)
    first = xp.min(xp.where(near, place, xp.full_like(place, len(sizes) - 1)), axis=0)
    value = xp.sum(xp.where(place == first, values, zero), axis=0)
    return xp.take(xp.asarray(sizes, device=values.device), first), value


def largest_labels(xp: Any, scores: Array, size: Array, low: Array, high: Array) -> Array:
    """Return the sets of the labels with the largest scores; the first come first among equals.

    Shapes: ``scores`` (n, s), ``size`` (n,), ``low, high`` (n,); returns (n, s).
    """
    infinite = xp.full_like(low, xp.inf)
    low, high = (xp.where(size > 0, limit, infinite)[:, None] for limit in (low, high))
    above = scores > high
    equal = (scores >= low) & ~above
    missing = size - xp.sum(astype(xp, above, size.dtype), axis=1)
    if xp is np and np.array_equal(equal.sum(axis=1), missing):
        return (above | equal).astype(np.int8)
    order = cumulative_sum(xp, astype(xp, equal, size.dtype), axis=1)
    return astype(xp, above | (equal & (order <= missing[:, None])), xp.int8)


def search_dense(block: Dense, tables: Tables, goal: Goal) -> tuple[Array, Array]:
    """Find the best label sets under any statistics.

    Returns shape (n, s), (n,).
    """
    xp = block.place[0]
    if goal.measure.separable:
        size, value = _search_one_order(block, tables, goal)
    elif goal.measure.bounded:
        size, value = _IntervalSearch(block, tables, goal).run()
    else:
        size, value = _search_every_size(block, tables, goal)
    weights = xp.take(tables.A, size, axis=0)
    # a product of matrices may round equal labels differently, and the first is to come first
    scores = xp.sum(weights[:, :, None] * block.joint, axis=1)
    n, s = scores.shape
    if not s:
        return astype(xp, scores, xp.int8), value
    place = xp.arange(n, device=size.device) * s + xp.where(size > 0, size - 1, size)
    threshold = xp.take(xp.reshape(sort_descending(xp, scores), (-1,)), place)
    near = tie(xp, scores.dtype) * xp.abs(threshold)
    return largest_labels(xp, scores, size, threshold - near, threshold + near), value


def _search_one_order(block: Dense, tables: Tables, goal: Goal) -> tuple[Array, Array]:
    """Find the best sizes where ``A(k, l) = a(k) b(l)``: the labels have one order for all."""
    xp = block.place[0]
    one = min(1, block.shape[1])
    scores = sort_descending(xp, xp.matmul(tables.A[one, :], block.joint))
    totals = cumulative_sum(xp, scores, axis=1)
    totals = xp.concat([xp.zeros_like(block.empty)[:, None], totals], axis=1)
    b = tables.A[:, 0] / tables.A[one, 0] if tables.host.size else xp.zeros_like(tables.B[:, 0])
    hits = xp.permute_dims(totals * b, (1, 0))
    return _choose_among(block, tables, goal, hits[goal.low : goal.high + 1, :])


def _search_every_size(block: Dense, tables: Tables, goal: Goal) -> tuple[Array, Array]:
    """Find the best sizes where nothing is known of the measure."""
    xp = block.place[0]
    hits = [
        _largest_sum(xp, xp.matmul(tables.A[size, :], block.joint), size)[0]
        for size in range(goal.low, goal.high + 1)
    ]
    return _choose_among(block, tables, goal, xp.stack(hits, axis=0))


def _choose_among(block: Dense, tables: Tables, goal: Goal, hits: Array) -> tuple[Array, Array]:
    """Choose between all sizes that are allowed, with what depends on the size alone."""
    rest, scale = rest_of(block.place[0], tables.B[goal.low : goal.high + 1, :], *_sizes_of(block))
    sizes = list(range(goal.low, goal.high + 1))
    return choose_size(block.place[0], sizes, hits + rest, hits + scale)


def _sizes_of(block: Dense) -> tuple[Array, Array]:
    xp = block.place[0]
    return block.empty, xp.permute_dims(block.size_probabilities(), (1, 0))


def rest_of(xp: Any, B: Array, empty: Array, probabilities: Array) -> tuple[Array, Array]:
    """Return the part of the expected values that does not depend on hits, and its scale.

    Shapes: ``B`` (E, 1 + K), ``empty`` (n,), ``probabilities`` (K, n); returns (E, n).
    """
    law = xp.concat([empty[None, :], probabilities], axis=0)
    return xp.matmul(B, law), xp.matmul(xp.abs(B), law)


def _largest_sum(xp: Any, scores: Array, size: int) -> tuple[Array, Array]:
    """Return the sum of the largest ``size`` scores of each row, and the next largest.

    NumPy's scores are sorted in place.
    """
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
        self.xp, self.block, self.tables, self.goal = block.place[0], block, tables, goal
        xp, n = self.xp, block.shape[0]
        self.tie = tie(xp, block.empty.dtype)
        self.rows = xp.arange(n, device=block.empty.device)
        self.values: dict[int, Array] = {}
        self.best = xp.full_like(block.empty, -xp.inf)
        if goal.low == 0:
            self._keep(0, self.rows, rest_of(xp, tables.B[:1, :], *_sizes_of(block))[0][0, :])

    def run(self) -> tuple[Array, Array]:
        """Return the best sizes and their values."""
        xp, rows, high = self.xp, self.rows, self.goal.high
        total = xp.sum(self.block.joint, axis=2)
        starts, intervals = _first_sizes(self.goal), []
        for start, end in pairwise([*starts, high + 1]):
            bound = xp.matmul(xp.take(total, rows, axis=0), self.tables.A[start, :])
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
        return choose_size(xp, sizes, values)

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
        return self.tables.shrinkage(start, size) * (value + (size - start) * next_score)

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
        xp, weights, n = self.xp, self.tables.A[size, :], self.block.shape[0]
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


def _first_sizes(goal: Goal) -> list[int]:
    """Return the sizes to be tried first: each 1.5 times the one before."""
    sizes, size = [], max(goal.low, 1)
    while size <= goal.high:
        sizes.append(size)
        size = max(size + 1, size * 3 // 2)
    return sizes
