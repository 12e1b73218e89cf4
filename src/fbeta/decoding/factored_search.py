"""The search for the best label sets where one order of the labels serves all sizes.

Every ``q_jk`` grows with ``p_j``, so that the best set of size l has the l most probable labels:
only sums of ``q_jk`` over the first labels are needed (docs/theory.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, host_integers
from fbeta._threads import map_rows, rows_at_once
from fbeta.decoding.measures import Goal, choose_size, largest_labels, rest_of, tie
from fbeta.statistics.composite import Sparse
from fbeta.statistics.conditional_bernoulli import (
    IndependentLaw,
    Law,
    largest_sizes,
    probabilities,
    sums_of_first,
)
from fbeta.statistics.storage import Factored, law_bytes, tile


def search_factored(form: Factored, goal: Goal) -> tuple[Array, Array]:
    """Find the best label sets, (n, s), and values, (n,), of labels in one order for all sizes."""
    (xp, _), (n, s) = form.place, form.shape
    tasks: list[Any] = []
    order = None
    if xp is np and form.sizes is None:
        # rows with numbers of labels that are alike share one window of sizes at little cost
        largest = largest_sizes(np, form.P, form.log_odds)
        order, start = np.argsort(-largest, kind="stable"), 0
        while start < n:
            rows = rows_at_once(form.place, n, law_bytes(s, int(largest[order[start]])))
            tasks.append(order[start : start + rows])
            start += rows
    labels, value = map_rows(
        xp, lambda rows: _search_rows(form.take(rows), goal), tasks or form.tasks()
    )
    if order is None:
        return labels, value
    back = np.argsort(order)
    return labels[back], value[back]


def search_sparse(form: Sparse, goal: Goal) -> tuple[Any, NDArray[np.float64]]:
    """Return the best sets of listed labels, csr (n, s), all of short lists, and values, (n,)."""
    if not form.shape[0]:
        return sp.csr_array(form.shape, dtype=np.int8), np.zeros(0)
    listed, first = form.listed(), form.P.indptr
    chosen = np.zeros(form.P.nnz, dtype=np.int8)

    def work(rows: slice) -> tuple[NDArray[np.float64]]:
        (lists, used), most = form.take(rows).padded(), listed[rows]
        least = np.minimum(goal.low, most)
        low, high = int(least.min()), min(goal.high, int(most.max()))
        limits = least, np.minimum(most, goal.high)
        labels, value = _search_rows(lists, replace(goal, low=low, high=high), limits)
        chosen[first[rows.start] : first[rows.stop]] = labels[used]
        return (value,)

    value = map_rows(np, work, form.tasks())[0]
    labels = sp.csr_array((chosen, form.P.indices, first), shape=form.shape, copy=True)
    labels.eliminate_zeros()
    return labels, value


def _search_rows(
    form: Factored, goal: Goal, limits: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Find the best label sets of rows that are worked on together, and their values."""
    xp = form.place[0]
    law, ascending = form.law()
    size, value = _PrefixSearch(law, xp.flip(ascending, axis=0), goal, limits).run()
    low, high = _find_ties(law, ascending, size, goal)
    return largest_labels(xp, form.finite(), size, low, high), value


def _find_ties(law: Law, ascending: Array, size: Array, goal: Goal) -> tuple[Array, Array]:
    """Return the least and the largest of P that tie with the last label taken, of shape (n,).

    Labels tie where their ``T_jl`` do, as in the search of dense statistics; T grows with P.
    """
    xp, (s, n) = law.xp, ascending.shape
    flat, column = xp.reshape(ascending, (-1,)), xp.arange(n, device=size.device)
    slack, score_of = tie(xp, ascending.dtype), _score_of(law, size, goal)

    def at(place: Array) -> Array:
        return xp.take(flat, place * n + column)

    def score(place: Array) -> Array:
        return score_of(at(place)[None, :])[0, :]

    last = xp.where(size > 0, s - size, xp.zeros_like(size))
    own, below = score(last), xp.where(last > 0, last - 1, last)
    if not bool(xp.any((score(below) >= own * (1 - slack)) & (below < last))):
        return at(last), at(last)
    # the first of the labels in rising order that ties, and the last, by halving intervals
    low, high = xp.zeros_like(last), xp.full_like(last, s - 1)
    first, final = last, last
    for _ in range(s.bit_length()):
        lower, upper = (low + first) // 2, (final + high + 1) // 2
        is_tie = score(lower) >= own * (1 - slack)
        low, first = xp.where(is_tie, low, lower + 1), xp.where(is_tie, lower, first)
        low = xp.minimum(low, first)
        is_tie = score(upper) <= own * (1 + slack)
        final, high = xp.where(is_tie, upper, final), xp.where(is_tie, high, upper - 1)
        high = xp.maximum(high, final)
    return at(first), at(final)


def _score_of(law: Law, size: Array, goal: Goal) -> Callable[[Array], Array]:
    """Return what gives ``T_jl`` of labels of shape (C, n), for the size l of each instance."""
    xp = law.xp
    if isinstance(law, IndependentLaw):
        # it grows with the probability, and is a tie where that is
        return lambda labels: probabilities(xp, labels, law.log_odds)[0]
    K, sizes = law.weights.shape[0], sorted(set(host_integers(xp.unique_values(size))))
    A, _ = goal.measure.tables(np.arange(law.first, law.first + K), sizes, goal.n_labels)
    table = xp.asarray(A, dtype=law.empty.dtype, device=law.empty.device)
    place = xp.searchsorted(xp.asarray(sizes, dtype=size.dtype, device=size.device), size)
    weights = xp.permute_dims(xp.take(table, place, axis=0), (1, 0))

    def score(labels: Array) -> Array:
        out = xp.zeros_like(labels)
        for k, q in law.joint(labels, max(K, 1)):
            out = out + xp.sum(q * weights[k, :], axis=1)
        return out

    return score


class _PrefixSearch:
    """The best number of labels of each instance, some labels at a time.

    With ``Q_l(k)`` the sum of ``q_jk`` over the first l labels, ``Q_m(k) <= Q_l(k) + (m - l) q_lk``
    for m > l: for a bounded measure, A times this is largest at m = l or at the largest m.
    """

    def __init__(
        self, law: Law, descending: Array, goal: Goal, limits: tuple[Array, Array] | None = None
    ) -> None:
        self.limits = limits  # of the sizes of each instance, (n,), within those of the goal
        self.law, self.descending, self.goal, self.xp = law, descending, goal, law.xp
        self.cardinalities = np.arange(law.first, law.first + law.weights.shape[0])
        self.sums = self.xp.zeros_like(law.weights)  # Q_l
        self.best = self.xp.full_like(law.empty, -self.xp.inf)
        self.sizes: list[int] = []
        self.values: list[Array] = []
        self.scales: list[Array] = []

    def run(self) -> tuple[Array, Array]:
        """Return the best sizes and their values."""
        xp, high = self.xp, self.goal.high
        if self.goal.low == 0:
            _, B = self._tables(range(1))
            self._keep(range(1), xp.zeros_like(self.law.empty)[None, :], B)
        width, at_once = tile(self.law)
        for start in range(0, high, width):
            stop = min(start + width, high)
            last = self._add(range(start + 1, stop + 1), at_once)
            if stop == high or not self.goal.measure.bounded:
                continue
            # whether no larger set can be better in any row
            A = self._tables(range(stop, stop + 2))[0]
            end = self._tables(range(high, high + 1))[0]
            longest = end[0, :, None] * (self.sums + (high - stop) * last)
            bound = xp.maximum(A[0, :, None] * self.sums, longest)
            k = xp.asarray(self.cardinalities, dtype=last.dtype, device=last.device)
            bound = xp.minimum(bound, (A[1, :] * k)[:, None] * self.law.weights)
            if bool(xp.all(xp.sum(bound, axis=0) <= self.best * (1 + tie(xp, last.dtype)))):
                break
        values, scales = (xp.concat(parts, axis=0) for parts in (self.values, self.scales))
        return choose_size(xp, xp.asarray(self.sizes, device=values.device), values, scales)

    def _add(self, sizes: range, at_once: int) -> Array:
        """Add the values of some more sizes, and return ``q_lk`` of the last label."""
        xp = self.xp
        A, B = self._tables(sizes)
        hits, last = xp.matmul(A, self.sums), xp.zeros_like(self.sums)
        P = self.descending[sizes.start - 1 : sizes.stop - 1, :]
        for k, q in self.law.joint(P, at_once):
            last[k, :] += q[-1, :, :]
            q = sums_of_first(xp, q)
            hits = hits + xp.matmul(A[:, None, k], q)[:, 0, :]
            self.sums[k, :] += q[-1, :, :]
        self._keep(sizes, hits, B)
        return last

    def _tables(self, sizes: range) -> tuple[Array, Array]:
        tables = self.goal.measure.tables(self.cardinalities, sizes, self.goal.n_labels)
        like = self.law.empty
        A, B = (self.xp.asarray(t, dtype=like.dtype, device=like.device) for t in tables)
        return A, B

    def _keep(self, sizes: range, hits: Array, B: Array) -> None:
        """Keep the values of those sizes that are allowed."""
        first = max(0, self.goal.low - sizes.start)
        values = scales = hits
        if not (self.goal.measure.bounded and sizes.start):
            rest, scale = rest_of(self.xp, B, self.law.empty, self.law.weights)
            values, scales = hits + rest, hits + scale
        if self.limits is not None:
            size = np.asarray(sizes)[:, None]
            allowed = (size >= self.limits[0]) & (size <= self.limits[1])
            values = np.where(allowed, values, -np.inf)
        if first < len(sizes):
            self.sizes += sizes[first:]
            self.values.append(values[first:, :])
            self.scales.append(scales[first:, :])
            self.best = self.xp.maximum(self.best, self.xp.max(self.values[-1], axis=0))
