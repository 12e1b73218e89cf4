"""The search for the best label sets where one order of the labels serves all sizes.

Under the laws of :mod:`fbeta.statistics.conditional_bernoulli` every ``q_jk`` grows with ``p_j``,
and so does ``T_jl = sum_k A(k, l) q_jk`` for every l. The best set of size l has the first l labels
in the order of the marginals, and only sums of ``q_jk`` over the first labels are needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbeta._array import Array, astype, cumulative_sum, is_accelerator
from fbeta._threads import map_rows, row_tasks, rows_at_once
from fbeta.decoding.dense_search import Goal, choose_size, largest_labels, rest_of, tie
from fbeta.statistics.conditional_bernoulli import largest_sizes
from fbeta.statistics.factored import Factored, Law, law_bytes, tile


def search_factored(form: Factored, goal: Goal) -> tuple[Array, Array]:
    """Find the best label sets under labels that are independent, perhaps given their number.

    Parameters
    ----------
    form : Factored
        Of n instances with s labels.
    goal : Goal
        What to find.

    Returns
    -------
    labels : int8 array of shape (n, s)
    value : array of shape (n,)
    """
    xp = form.place[0]

    def work(rows: Any) -> tuple[Array, Array]:
        some = form.take(rows)
        ascending = some.sorted()
        search = _PrefixSearch(some.law(ascending), xp.flip(ascending, axis=0), goal)
        size, value = search.run()
        s, n = ascending.shape
        place = xp.where(size > 0, s - size, size) * n + xp.arange(n, device=size.device)
        threshold = xp.take(xp.reshape(ascending, (-1,)), place)
        P = astype(xp, some.P, threshold.dtype)
        return largest_labels(xp, P, size, threshold), value

    order, tasks = _tasks(form)
    labels, value = map_rows(xp, work, tasks)
    if order is None:
        return labels, value
    back = np.argsort(order)
    return labels[back], value[back]


def _tasks(form: Factored) -> tuple[Any, list[Any]]:
    """Return rows to be worked on together, and their order where it is not that of the rows.

    Rows with numbers of labels that are alike share one window of sizes at little cost.
    """
    xp, (n, s) = form.place[0], form.shape
    if xp is not np or form.sizes is not None:
        return None, row_tasks(form.place, n, law_bytes(s, form.largest_size()))
    largest = largest_sizes(np, form.P)
    order = np.argsort(-largest, kind="stable")
    tasks, start = [], 0
    while start < n:
        rows = rows_at_once(form.place, n, law_bytes(s, int(largest[order[start]])))
        tasks.append(order[start : start + rows])
        start += rows
    return order, tasks


class _PrefixSearch:
    """The best number of labels of each instance, some labels at a time.

    With ``Q_l(k)`` the sum of ``q_jk`` over the first l labels, sets of m > l labels have ``Q_m(k)
    <= Q_l(k) + (m - l) q_lk``, because the q fall along the order. For a bounded measure ``A(k, m)
    (Q_l(k) + (m - l) q_lk)`` is monotone in m: the larger of its values at m = l and at the largest
    m bounds them all, and so does ``A(k, l + 1) S_k``.
    """

    def __init__(self, law: Law, descending: Array, goal: Goal) -> None:
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
            if stop < high and self._is_over(stop, last):
                break
        values, scales = (xp.concat(parts, axis=0) for parts in (self.values, self.scales))
        return choose_size(xp, self.sizes, values, scales)

    def _add(self, sizes: range, at_once: int) -> Array:
        """Add the values of some more sizes, and return ``q_lk`` of the last label."""
        xp = self.xp
        A, B = self._tables(sizes)
        hits, last = xp.matmul(A, self.sums), xp.zeros_like(self.sums)
        P = self.descending[sizes.start - 1 : sizes.stop - 1, :]
        for k, q in self.law.joint(P, at_once):
            last[k, :] += q[-1, :, :]
            q = _sums_of_first(xp, q)
            hits = hits + xp.matmul(A[:, None, k], q)[:, 0, :]
            self.sums[k, :] += q[-1, :, :]
        self._keep(sizes, hits, B)
        return last

    def _tables(self, sizes: range) -> tuple[Array, Array]:
        tables = self.goal.measure.tables(self.cardinalities, sizes, self.descending.shape[0])
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
        if first < len(sizes):
            self.sizes += sizes[first:]
            self.values.append(values[first:, :])
            self.scales.append(scales[first:, :])
            self.best = self.xp.maximum(self.best, self.xp.max(self.values[-1], axis=0))

    def _is_over(self, size: int, last: Array) -> bool:
        """Tell whether no larger set can be better in any row."""
        xp, high = self.xp, self.goal.high
        if not self.goal.measure.bounded:
            return False
        A, _ = self._tables(range(size, size + 2))
        end = self._tables(range(high, high + 1))[0]
        longest = end[0, :, None] * (self.sums + (high - size) * last)
        bound = xp.maximum(A[0, :, None] * self.sums, longest)
        k = xp.asarray(self.cardinalities, dtype=last.dtype, device=last.device)
        bound = xp.minimum(bound, (A[1, :] * k)[:, None] * self.law.weights)
        slack = 1 + tie(xp, last.dtype)
        return bool(xp.all(xp.sum(bound, axis=0) <= self.best * slack))


def _sums_of_first(xp: Any, q: Array) -> Array:
    """Return the sums over the first labels, of shape (C, K, n)."""
    if is_accelerator(q.device):
        return cumulative_sum(xp, q, axis=0)
    # on a processor a cumulative sum along the first axis takes ten times as long
    for j in range(1, q.shape[0]):
        q[j, ...] += q[j - 1, ...]
    return q
