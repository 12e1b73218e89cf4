"""How label statistics are kept, every number or factors, and their weights in F_beta.

Some rows are unfolded at a time, so that nobody needs the whole table of shape (n, K, s) at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import (
    Array,
    astype,
    is_tensor,
    namespace_and_device,
    take_rows,
    widest_float,
    without_gradients,
)
from fbeta._threads import chunk_and_tile, map_rows, row_tasks
from fbeta.statistics.conditional_bernoulli import (
    INFINITE_LOG_ODDS,
    Law,
    conditional_law,
    independent_law,
    largest_sizes,
    probabilities,
)

Cardinalities: TypeAlias = NDArray[np.intp]  # increasing sizes in 1..s; others have no weight
Rows: TypeAlias = Any  # a slice, or an array of integers
MAX_STATISTIC = 1e30  # sums of more may overflow, in single precision


@dataclass(frozen=True)
class Storage:
    """What the forms of the statistics of n instances with s labels have in common."""

    # fields with a row for each instance; the last axis of the first one is that of the labels
    per_row: ClassVar[tuple[str, ...]] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        first = getattr(self, self.per_row[0])
        return int(first.shape[0]), int(first.shape[-1])

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays."""
        return namespace_and_device(first=getattr(self, self.per_row[0]))

    def map_arrays(self, work: Callable[[Array], Array]) -> Self:
        """Return the statistics with each array of rows replaced by a function of it."""
        arrays = {name: getattr(self, name) for name in self.per_row}
        return replace(self, **{name: work(a) for name, a in arrays.items() if a is not None})

    def take(self, rows: Rows) -> Self:
        """Return some rows."""
        xp = self.place[0]
        return self.map_arrays(lambda array: take_rows(xp, array, rows))

    def astype(self, dtype: Any) -> Self:
        """Return the statistics in numbers of another type."""
        xp = self.place[0]
        return self.map_arrays(lambda array: astype(xp, array, dtype))

    def unfold(self) -> Dense:
        """Return every number, with all cardinalities."""
        form: Any = self
        out = zeros(form, form.cardinalities)

        def work(rows: slice) -> tuple[Array, ...]:
            add_block(out, rows, form.block(rows))
            return ()

        tasks = row_tasks(form.place, form.shape[0], form.row_bytes, unfolding=True)
        map_rows(form.place[0], work, tasks)
        return out


@dataclass(frozen=True)
class Dense(Storage):
    """Every number."""

    per_row = ("joint", "empty")
    empty: Array  # (n,)
    joint: Array  # (n, K, s)
    cardinalities: Cardinalities  # (K,)

    @property
    def row_bytes(self) -> int:
        """Bytes of the statistics of one instance."""
        return 8 * max(1, int(self.joint.shape[1]) * int(self.joint.shape[2]))

    def tasks(self) -> list[slice]:
        """Return rows to be worked on together."""
        return row_tasks(self.place, self.shape[0], self.row_bytes)

    def block(self, rows: Rows) -> Dense:
        """Return some rows in the widest floating type."""
        return self.take(rows).astype(widest_float(*self.place))

    def unfold(self) -> Dense:
        """Return every number."""
        return self

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        return self.empty

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self.place[0].sum(self.joint, axis=1)

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)``, (n, K), by ``sum_j P(|y| = k, y_j = 1) = k P(|y| = k)``."""
        xp, device = self.place
        total = xp.sum(self.joint, axis=2)
        return total / xp.asarray(self.cardinalities, dtype=total.dtype, device=device)


@dataclass(frozen=True)
class Factored(Storage):
    """Independent labels, or labels that are independent given their number."""

    per_row = ("P", "sizes", "others")
    P: Array  # (n, s), marginals of the independent labels, or their log-odds
    sizes: Array | None = None  # (n, m + 1), P(|y| = k) for k in 0..m; None for what P implies
    log_odds: bool = False  # what P holds
    # (n, m + 1), P(k labels) besides those of P, from which they are independent
    others: Array | None = None

    @property
    def cardinalities(self) -> Cardinalities:
        """1..s, or 1..m; larger with others."""
        largest = self.P.shape[1] if self.sizes is None else self.sizes.shape[1] - 1
        others = 1 if self.others is None else self.others.shape[1]
        return np.arange(1, largest + others)

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

    def tasks(self) -> list[slice]:
        """Return rows whose laws are computed together."""
        n, s = self.shape
        return row_tasks(self.place, n, law_bytes(s, self.largest_size()))

    def finite(self) -> Array:
        """Return P in the widest floating type; equal numbers stand for infinite log-odds."""
        xp, device = self.place
        P = astype(xp, self.P, widest_float(xp, device))
        most = min(INFINITE_LOG_ODDS, float(xp.finfo(P.dtype).max) / 4)
        return xp.clip(P, -most, most) if self.log_odds else P

    def law(self) -> tuple[Law, Array]:
        """Return the law of the rows, and P of each row, the smallest first, of shape (s, n)."""
        xp = self.place[0]
        ascending = labels_first(xp, xp.sort(self.finite(), axis=1))
        others = None if self.others is None else labels_first(xp, self.others)
        if self.sizes is None:
            return independent_law(xp, ascending, self.log_odds, others), ascending
        sizes = labels_first(xp, astype(xp, self.sizes, ascending.dtype))
        seen = xp.nonzero(xp.any(sizes > 0, axis=1))[0]
        weights = sizes[1 : (int(xp.max(seen)) if seen.shape[0] else 0) + 1, :]
        law = conditional_law(xp, ascending, sizes[0, :], weights, self.log_odds)
        return replace(law, others=others), ascending

    def order(self) -> Array:
        """Return where the labels of :meth:`law` are among all of P's numbers, of shape (s, n)."""
        xp, n, s = self.place[0], *self.shape
        labels = xp.argsort(self.P, axis=1)
        return labels_first(xp, labels + s * xp.arange(n, device=labels.device)[:, None])

    def _unsorted(self, planes: Sequence[Array]) -> list[Array]:
        """Return numbers for the sorted labels, (s, n) each, in the order of P, (n, s)."""
        xp = self.place[0]
        back = xp.argsort(xp.reshape(self.order(), (-1,)))
        flat = (xp.take(xp.reshape(plane, (-1,)), back) for plane in planes)
        return [xp.reshape(plane, self.shape) for plane in flat]

    def block(self, rows: Rows) -> Dense:
        """Return some rows unfolded, without the sizes that have no weight in them."""
        some, (xp, device) = self.take(rows), self.place
        law, ascending = some.law()
        (s, n), K = ascending.shape, law.weights.shape[0]
        planes = xp.zeros((K, s, n), dtype=ascending.dtype, device=device)
        for labels, sizes, q in pieces(law, ascending):
            # rounding may leave a trace below 0
            q = xp.maximum(q, xp.zeros_like(q))
            planes[sizes, labels, :] += xp.permute_dims(q, (1, 0, 2))
        joint = xp.empty((n, K, s), dtype=ascending.dtype, device=device)
        for k, plane in enumerate(some._unsorted([planes[k, :, :] for k in range(K)])):
            joint[:, k, :] = plane
        return Dense(law.empty, joint, np.arange(law.first, law.first + K))

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        if self.sizes is None:
            xp = self.place[0]
            absent = xp.prod(probabilities(xp, self.P, self.log_odds)[1], axis=1)
        else:
            absent = self.sizes[:, 0]
        return absent if self.others is None else absent * self.others[:, 0]

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s): those given, unless the sizes change them."""
        xp = self.place[0]
        if self.sizes is None:
            return probabilities(xp, self.P + 0, self.log_odds)[0]

        def work(rows: Rows) -> tuple[Array]:
            some = replace(self.take(rows), others=None)
            law, ascending = some.law()
            out = xp.zeros_like(ascending)
            for labels, _, q in pieces(law, ascending):
                out[labels, :] += xp.sum(q, axis=1)
            return (some._unsorted([out])[0],)

        return map_rows(xp, work, self.tasks())[0]

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        if self.sizes is not None and self.others is None:
            return self.sizes[:, 1:]
        (xp, device), K = self.place, len(self.cardinalities)

        def work(rows: Rows) -> tuple[Array]:
            law, ascending = self.take(rows).law()
            out = xp.zeros((K, ascending.shape[1]), dtype=ascending.dtype, device=device)
            kept = law.weights[: K + 1 - law.first, :]
            out[law.first - 1 : law.first - 1 + kept.shape[0], :] = kept
            return (xp.permute_dims(out, (1, 0)),)

        return map_rows(xp, work, self.tasks())[0]


def pieces(law: Law, P: Array) -> Iterator[tuple[slice, slice, Array]]:
    """Yield parts of the ``q_jk`` of all labels, P of shape (s, n), which add up to all of it."""
    width, at_once = tile(law)
    for start in range(0, P.shape[0], width):
        labels = slice(start, min(start + width, P.shape[0]))
        for sizes, q in law.joint(P[labels, :], at_once):
            yield labels, sizes, q


def labels_first(xp: Any, array: Array) -> Array:
    """Return an array of shape (n, s) with the instances in its last axis, contiguous."""
    turned = xp.permute_dims(array, (1, 0))
    return np.ascontiguousarray(turned) if xp is np else turned


def law_bytes(s: int, largest: int) -> int:
    """Return what to count for a row of s labels, with sizes up to a largest, in a chunk."""
    return 32 * (1 + largest) + 2 * s


def tile(law: Law) -> tuple[int, int]:
    """Return how many labels, and how many sizes, of the rows of a law are unfolded together."""
    chunk, step = chunk_and_tile(law.empty.device)
    n = max(1, int(law.empty.shape[0]))
    width = max(1, step // n)
    return width, max(1, chunk // (width * n))


def zeros(
    form: Any,
    cardinalities: Cardinalities,
    *,
    n: int | None = None,
    s: int | None = None,
    dtype: Any = None,
) -> Dense:
    """Return statistics that are zero, of the shape and in the place of a form."""
    xp, device = form.place
    dtype = widest_float(xp, device) if dtype is None else dtype
    n, s = form.shape[0] if n is None else n, form.shape[1] if s is None else s
    joint = xp.zeros((n, len(cardinalities), s), dtype=dtype, device=device)
    return Dense(xp.zeros(n, dtype=dtype, device=device), joint, cardinalities)


def add_block(out: Dense, rows: slice, block: Dense, weight: float = 1.0) -> None:
    """Add weighted statistics to some rows, those of each size to its slot."""
    out.empty[rows] += weight * block.empty
    for i, slot in enumerate(np.searchsorted(out.cardinalities, block.cardinalities).tolist()):
        out.joint[rows, slot, :] += weight * block.joint[:, i, :]


def union(forms: Sequence[Any]) -> Cardinalities:
    """Return the cardinalities of all forms together."""
    return np.unique(np.concatenate([form.cardinalities for form in forms]))


def check_dense(empty: Array, joint: Array, cardinalities: NDArray[Any]) -> None:
    """Raise where shapes, sizes or numbers are not those of dense statistics."""
    if joint.ndim != 3 or tuple(empty.shape) != tuple(joint.shape[:1]):
        raise ValueError(
            "empty must have shape (n,) and joint (n, K, s), "
            f"got {tuple(empty.shape)} and {tuple(joint.shape)}"
        )
    K, s = joint.shape[1:]
    if cardinalities.shape != (K,):
        raise ValueError(f"cardinalities must have shape ({K},), got {cardinalities.shape}")
    if K and cardinalities.dtype.kind not in "iu":
        raise ValueError(f"cardinalities must be integers, got {cardinalities.dtype}")
    outside = (cardinalities < 1) | (cardinalities > s)
    if outside.any():
        raise ValueError(f"cardinalities must lie in 1..{s}, got {cardinalities[outside][0]}")
    if (np.diff(cardinalities) <= 0).any():
        raise ValueError("cardinalities must increase strictly")
    check_statistics("empty", empty)
    check_statistics("joint", joint)


def check_statistics(name: str, values: Array) -> None:
    """Raise where numbers are not of a floating type, finite and non-negative."""
    xp, _ = namespace_and_device(**{name: values})
    if not xp.isdtype(values.dtype, "real floating"):
        raise ValueError(f"{name} must be of a floating type, got {values.dtype}")
    if 0 in values.shape:
        return
    # min and max see NaN too, and make no temporary of the size of the array
    with without_gradients(xp):
        low, high = float(xp.min(values)), float(xp.max(values))
    if not np.isfinite(low) or not np.isfinite(high):
        raise ValueError(f"{name} contains NaN or infinity")
    if low < 0:
        raise ValueError(f"{name} must not be negative, found {low}")
    if high > MAX_STATISTIC:
        raise ValueError(f"{name} must hold probabilities, or numbers of their size, found {high}")


def fbeta_weight(k: Any, size: Any, beta: Any) -> Any:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, also where the square of beta overflows.

    ``k`` and ``size`` are sizes that are not both 0; ``beta`` may be a tensor without axes.

    Examples
    --------
    >>> fbeta_weight(2, 3, 1.0), fbeta_weight(2, 3, 1e200), fbeta_weight(2, 4, 1e-200)
    (0.4, 0.5, 0.25)
    """
    above, below = fbeta_terms(k, size, beta)
    return above / below


def fbeta_terms(k: Any, size: Any, beta: Any) -> tuple[Any, Any]:
    """Return ``1 + beta^2`` and ``beta^2 k + size``, both divided by the larger of beta^2 and 1."""
    if not is_tensor(beta):
        small = min(beta, 1 / beta) ** 2
        return 1 + small, (small * k + size if beta <= 1 else k + small * size)
    # by operators alone, which compilers can trace
    large = (beta > 1) * 1.0
    small = ((1 - large) * beta + large / beta) ** 2
    return 1 + small, ((1 - large) * small + large) * k + ((1 - large) + large * small) * size
