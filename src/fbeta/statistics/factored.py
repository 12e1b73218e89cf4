"""Label statistics as factors: marginals, and perhaps probabilities of the number of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta._array import Array, astype, namespace_and_device, take_rows, widest_float
from fbeta._threads import chunk_elements, map_rows, row_tasks, tile_elements
from fbeta.statistics.conditional_bernoulli import (
    Law,
    conditional_law,
    independent_law,
    largest_sizes,
    probabilities,
)
from fbeta.statistics.dense import Cardinalities, Dense, Rows


@dataclass(frozen=True)
class Factored:
    """Independent labels, or labels that are independent given their number.

    Attributes
    ----------
    P : array of shape (n, s)
        Marginals of the independent labels, or their log-odds.
    sizes : array of shape (n, m + 1), or None
        ``P(|y| = k)`` for k in 0..m; None for what the marginals imply.
    log_odds : bool
        What P holds.
    """

    P: Array
    sizes: Array | None = None
    log_odds: bool = False

    @property
    def cardinalities(self) -> Cardinalities:
        """1..s, or 1..m."""
        largest = self.P.shape[1] if self.sizes is None else self.sizes.shape[1] - 1
        return np.arange(1, largest + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        return int(self.P.shape[0]), int(self.P.shape[1])

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays."""
        return namespace_and_device(P=self.P)

    @property
    def row_bytes(self) -> int:
        """Bytes of the unfolded statistics of one instance, at most."""
        return 8 * self.shape[1] * max(1, self.largest_size())

    def largest_size(self) -> int:
        """Return the largest size that carries weight in any row."""
        if self.sizes is not None:
            return int(self.sizes.shape[1]) - 1
        xp = self.place[0]
        return int(xp.max(largest_sizes(xp, self.P, self.log_odds))) if self.shape[0] else 0

    def take(self, rows: Rows) -> Factored:
        """Return some rows."""
        xp = self.place[0]
        sizes = None if self.sizes is None else take_rows(xp, self.sizes, rows)
        return Factored(take_rows(xp, self.P, rows), sizes, self.log_odds)

    def sorted(self) -> Array:
        """Return P of each row, the smallest first, of shape (s, n)."""
        xp, device = self.place
        P = astype(xp, self.P, widest_float(xp, device))
        return labels_first(xp, xp.sort(P, axis=1))

    def order(self) -> Array:
        """Return where each row of :meth:`sorted` is among all of P's numbers, of shape (s, n)."""
        xp, n, s = self.place[0], *self.shape
        labels = xp.argsort(self.P, axis=1)
        return labels_first(xp, labels + s * xp.arange(n, device=labels.device)[:, None])

    def law(self, ascending: Array) -> Law:
        """Return the law of the rows, given :meth:`sorted`."""
        xp = self.place[0]
        if self.sizes is None:
            return independent_law(xp, ascending, self.log_odds)
        sizes = labels_first(xp, astype(xp, self.sizes, ascending.dtype))
        seen = xp.nonzero(xp.any(sizes > 0, axis=1))[0]
        largest = int(xp.max(seen)) if seen.shape[0] else 0
        weights = sizes[1 : largest + 1, :]
        return conditional_law(xp, ascending, sizes[0, :], weights, self.log_odds)

    def by_rows(self, work: Callable[[Any], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Do work that takes the law of some rows at a time."""
        xp, (n, s) = self.place[0], self.shape
        return map_rows(xp, work, row_tasks(self.place, n, law_bytes(s, self.largest_size())))

    def block(self, rows: Rows) -> Dense:
        """Return some rows unfolded, without the sizes that have no weight in them."""
        some, (xp, device) = self.take(rows), self.place
        ascending = some.sorted()
        law = some.law(ascending)
        (s, n), K = ascending.shape, law.weights.shape[0]
        planes = xp.zeros((K, s, n), dtype=ascending.dtype, device=device)
        for labels, sizes, q in pieces(law, ascending):
            # rounding may leave a trace below 0
            q = xp.maximum(q, xp.zeros_like(q))
            planes[sizes, labels, :] += xp.permute_dims(q, (1, 0, 2))
        back = _back(xp, some.order())
        joint = xp.empty((n, K, s), dtype=ascending.dtype, device=device)
        for k in range(K):
            joint[:, k, :] = _rearrange(xp, planes[k, :, :], back)
        return Dense(law.empty, joint, np.arange(law.first, law.first + K))

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        if self.sizes is not None:
            return self.sizes[:, 0]
        xp = self.place[0]
        return xp.prod(probabilities(xp, self.P, self.log_odds)[1], axis=1)

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s): those given, unless the sizes change them."""
        xp = self.place[0]
        if self.sizes is None:
            return probabilities(xp, self.P + 0, self.log_odds)[0]

        def work(rows: Rows) -> tuple[Array]:
            some = self.take(rows)
            ascending = some.sorted()
            out = xp.zeros_like(ascending)
            for labels, _, q in pieces(some.law(ascending), ascending):
                out[labels, :] += xp.sum(q, axis=1)
            return (_rearrange(xp, out, _back(xp, some.order())),)

        return self.by_rows(work)[0]

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        if self.sizes is not None:
            return self.sizes[:, 1:]
        xp = self.place[0]

        def work(rows: Rows) -> tuple[Array]:
            some = self.take(rows)
            ascending = some.sorted()
            law, out = some.law(ascending), xp.zeros_like(ascending)
            out[law.first - 1 : law.first - 1 + law.weights.shape[0], :] = law.weights
            return (xp.permute_dims(out, (1, 0)),)

        return self.by_rows(work)[0]


def pieces(law: Law, P: Array) -> Iterator[tuple[slice, slice, Array]]:
    """Yield parts of the ``q_jk`` of all labels under a law, which add up to all of it.

    Shapes: ``P`` (s, n).
    """
    width, at_once = tile(law)
    for start in range(0, P.shape[0], width):
        labels = slice(start, min(start + width, P.shape[0]))
        for sizes, q in law.joint(P[labels, :], at_once):
            yield labels, sizes, q


def _back(xp: Any, order: Array) -> Array:
    """Return the inverse of an order, which finds every number of P among the sorted ones."""
    return xp.argsort(xp.reshape(order, (-1,)))


def _rearrange(xp: Any, array: Array, back: Array) -> Array:
    """Return numbers for the sorted labels, of shape (s, n), in the order of P: (n, s)."""
    s, n = array.shape
    return xp.reshape(xp.take(xp.reshape(array, (-1,)), back), (n, s))


def labels_first(xp: Any, array: Array) -> Array:
    """Return an array of shape (n, s) with the instances in its last axis, contiguous."""
    turned = xp.permute_dims(array, (1, 0))
    return np.ascontiguousarray(turned) if xp is np else turned


def law_bytes(s: int, largest: int) -> int:
    """Return what to count for a row of s labels, with sizes up to a largest, in a chunk."""
    return 32 * (1 + largest) + 2 * s


def tile(law: Law) -> tuple[int, int]:
    """Return how many labels, and how many sizes, of the rows of a law are unfolded together."""
    device, n = law.empty.device, max(1, int(law.empty.shape[0]))
    width = max(1, tile_elements(device) // n)
    return width, max(1, chunk_elements(device) // (width * n))
