"""Preconditioners for conjugate gradients that know a lower end of the spectrum they make.

H is a problem's Hessian ``Z' B Z + alpha``, with B the curvature of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from fbeta.linear.newton import Block, Point

__all__ = ["Diagonal", "Eliminating", "Factored", "Preconditioner"]

Array = Any
ROUNDING = 8.0  # units of rounding by which a product with H may be off, relative to its diagonal
MARGIN = 0.1  # share of the lower end of the spectrum that rounding may be
REFRESH = 12  # conjugate gradient steps after which a Hessian is factorised again
TINY = 1e-150


class Preconditioner(ABC):
    """An approximation M of the Hessians of m problems, with M^-1.

    Attributes
    ----------
    smallest : array of shape (m,)
        No eigenvalue of ``M^-1 H`` is below it; 0 where nothing is known.
    single : bool
        Whether single precision is accurate enough for products with H.
    """

    smallest: Array
    single: bool

    @classmethod
    @abstractmethod
    def at(cls, block: Block, point: Point, before: Any, steps: Array | None) -> Self:
        """Make one for a point, given that of the point before and the steps it took there."""

    @abstractmethod
    def apply(self, r: Array) -> tuple[Array, Array]:
        """Return ``M^-1 r``, (p, M), and ``r' M^-1 r``, (m,)."""

    @abstractmethod
    def take(self, problems: Array, columns: Array) -> Self:
        """Return that of some problems, which have these columns."""

    @abstractmethod
    def astype(self, dtype: Any) -> Self:
        """Return it in another floating type."""


class Eliminating(Preconditioner):
    """Diagonal, but for the intercepts, which are eliminated exactly.

    With b = Z' B 1 and c = 1' B 1 the Hessian is that of features centred by their curvature, plus
    ``b c^-1 b'``; on the intercepts themselves it is c. M has the same second part, and in place
    of the first a diagonal D: the penalty plus what the curvature would give if it were
    independent of the features. Since the first part is no less than alpha, ``M^-1 H >= alpha /
    max D``. Without an intercept the same holds for features whose mean is not 0.
    """

    def __init__(self, block: Block, **arrays: Any) -> None:
        self.block, self.xp = block, block.xp
        self.arrays = arrays

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["arrays"][name]
        except KeyError:
            raise AttributeError(name) from None

    @classmethod
    def at(cls, block: Block, point: Point, before: Any, steps: Array | None) -> Self:
        """Make one for a point; there is nothing to take over from before."""
        xp, design, C = block.xp, block.design, block.width
        D = block.penalty + design.spread * point.total
        D = xp.where(design.penalised > 0, xp.clip(D, TINY, None), xp.zeros_like(D))
        largest = xp.clip(_largest(block, xp.max(D, axis=0)), TINY, None)
        smallest = xp.clip(block.alpha / largest, None, 1.0)
        D = xp.where(D > 0, D, xp.ones_like(D))
        rough = ROUNDING * _largest(block, xp.max(design.moments[1] * point.total / D, axis=0))
        eps = [float(xp.finfo(t).eps) for t in (block.light.dtype, xp.float64)]
        single = bool(xp.all(rough * eps[0] <= MARGIN * smallest))
        smallest = xp.where(rough * eps[1] <= MARGIN * smallest, smallest, xp.zeros_like(smallest))
        parts = [block.curvatures(point.curvature, k) for k in range(C)]
        rows = block.light if single else block.heavy
        B = xp.stack([xp.astype(rows.adjoint(part), xp.float64) for part in parts])
        sums = [sum(xp.sum(xp.astype(a, xp.float64), axis=0) for a in part) for part in parts]
        small = xp.stack([xp.reshape(a, (-1, C)) for a in sums], axis=-1)
        made = cls(block, inverse=1 / D, B=B, small=small, smallest=smallest, single=single)
        if not design.intercept:
            again = [made._dots(B[k, :, :] / D) for k in range(C)]
            small = small + xp.stack(again, axis=-1)
        made.arrays["small"] = _inverses(xp, block.objective.regular(small))
        return made

    def _dots(self, z: Array) -> Array:
        """Return ``b' z``, (m, c)."""
        total, xp = self.block.total, self.xp
        parts = [total(xp.sum(self.B[k, :, :] * z, axis=0)) for k in range(self.B.shape[0])]
        return xp.stack(parts, axis=-1)

    def _combine(self, s: Array) -> Array:
        """Return ``b s``, (p, M)."""
        spread = self.block.spread
        return sum(self.B[k, :, :] * spread(s[:, k]) for k in range(self.B.shape[0]))

    def _solve(self, s: Array) -> Array:
        return (self.small @ s[:, :, None])[:, :, 0]

    def apply(self, r: Array) -> tuple[Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        xp, total = self.xp, self.block.total
        if not self.block.design.intercept:
            z = self.inverse * r
            z = z - self.inverse * self._combine(self._solve(self._dots(z)))
            return z, total(xp.sum(r * z, axis=0))
        last = xp.reshape(r[-1, :], (-1, self.B.shape[0]))
        own = self._solve(last)
        rest = (r - self._combine(own))[:-1, :]
        z = self.inverse[:-1, :] * rest
        full = xp.concat([z, xp.zeros_like(r[-1:, :])], axis=0)
        offset = xp.reshape(own - self._solve(self._dots(full)), (1, -1))
        size = total(xp.sum(rest * z, axis=0)) + xp.sum(last * own, axis=-1)
        return xp.concat([z, offset], axis=0), size

    def take(self, problems: Array, columns: Array) -> Self:
        """Return that of some problems."""
        take = self.xp.take
        return type(self)(
            self.block,
            inverse=take(self.inverse, columns, axis=1),
            B=take(self.B, columns, axis=2),
            small=take(self.small, problems, axis=0),
            smallest=take(self.smallest, problems),
            single=self.single,
        )

    def astype(self, dtype: Any) -> Self:
        """Return it in another floating type."""
        arrays = {k: self.xp.astype(self.arrays[k], dtype) for k in ("inverse", "B", "small")}
        return type(self)(self.block, **(self.arrays | arrays))


class Diagonal(Preconditioner):
    """The diagonal alone, for one problem with many columns.

    It is the penalty plus what the curvature would give if it were independent of the features,
    and acts on what the loss depends on only. There the Hessian is no less than the penalty, so
    that no eigenvalue of ``M^-1 H`` is below the smallest ratio of the penalty of a feature to the
    largest entry of M for it.
    """

    single = False

    def __init__(self, block: Block, inverse: Array, smallest: Array) -> None:
        self.block, self.xp = block, block.xp
        self.inverse, self.smallest = inverse, smallest

    @classmethod
    def at(cls, block: Block, point: Point, before: Any, steps: Array | None) -> Self:
        """Make one for a point; there is nothing to take over from before."""
        xp = block.xp
        D = xp.clip(block.penalty + block.heavy.diagonal(point.total), TINY, None)
        smallest = block.heavy.least_ratio(block.penalty, D)
        return cls(block, 1 / D, xp.reshape(smallest, (1,)))

    def apply(self, r: Array) -> tuple[Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        project = self.block.objective.project
        r = project(r)  # rounding leaves a trace, and the size below must not be negative
        z = self.inverse * r
        return project(z), self.block.total(self.xp.sum(r * z, axis=0))

    def take(self, problems: Array, columns: Array) -> Self:
        """Return itself: there is one problem only."""
        return self

    def astype(self, dtype: Any) -> Self:
        """Return it in another floating type."""
        return type(self)(self.block, self.xp.astype(self.inverse, dtype), self.smallest)


class Factored(Preconditioner):
    """The inverse of each problem's Hessian, at this point or at one before.

    Hessians grow with the curvature of every row, so that no eigenvalue of ``M^-1 H`` is below the
    smallest ratio of a row's curvature to what it was when M was made. M is made again where
    conjugate gradients took many steps with it.
    """

    single = False

    def __init__(
        self, block: Block, inverses: list[Array], sound: Array, curvature: list[Array]
    ) -> None:
        self.block, self.xp = block, block.xp
        self.inverses, self.sound, self.curvature = inverses, sound, curvature
        self.smallest = sound

    @classmethod
    def at(cls, block: Block, point: Point, before: Any, steps: Array | None) -> Self:
        """Make one for a point, or keep the one before where it served well."""
        xp, m = block.xp, point.value.shape[0]
        if before is None:
            every = {"dtype": xp.float64, "device": block.design.device}
            empty = [xp.zeros_like(h) for h in point.curvature]
            before = cls(block, [None] * m, xp.zeros(m, **every), empty)
        made = cls(block, list(before.inverses), before.sound, list(before.curvature))
        for i in range(m):
            if made.inverses[i] is None or (steps is not None and int(steps[i]) > REFRESH):
                made._renew(point, i)
        made.smallest = made.sound * _least_ratio(block, point.curvature, made.curvature)
        return made

    def _renew(self, point: Point, i: int) -> None:
        """Factorise the Hessian of a problem."""
        xp, own = self.xp, slice(i * self.block.width, (i + 1) * self.block.width)
        self.inverses[i], sound = self._invert(self.block, point, i)
        self.sound = xp.asarray(self.sound, copy=True)
        self.sound[i] = float(sound)
        for at, new in enumerate(point.curvature):
            old = xp.asarray(self.curvature[at], copy=True)
            old[:, own] = new[:, own]
            self.curvature[at] = old

    @staticmethod
    def _invert(block: Block, point: Point, i: int) -> tuple[Array, bool]:
        """Return the inverse of a problem's Hessian, and whether it can be relied upon."""
        xp, C, p = block.xp, block.width, block.penalty.shape[0]
        own = slice(i * C, (i + 1) * C)
        alone = block.alone(i)
        curvature = [h[:, own] for h in point.curvature]
        parts = [alone.curvatures(curvature, k) for k in range(C)]
        weights = [[xp.astype(a, xp.float64) for a in part] for part in parts]
        tiles = [
            [
                block.heavy.sandwich([a[:, c : c + 1] for a in part], positive=c == k)
                for k, part in enumerate(weights)
            ]
            for c in range(C)
        ]
        H = xp.concat([xp.concat(row, axis=1) for row in tiles], axis=0)
        H = (
            H
            + _along_diagonals(xp, alone, tiles)
            + xp.eye(p * C, dtype=H.dtype, device=H.device) * (xp.tile(block.penalty[:, 0], (C,)))
        )
        scale = xp.linalg.diagonal(H)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale)) ** -0.5
        H = scale[:, None] * H * scale[None, :]
        try:
            inverse = xp.linalg.inv(H)
        except np.linalg.LinAlgError:  # exactly singular: anything does, and nothing is known
            inverse = xp.eye(p * C, dtype=H.dtype, device=H.device)
        condition = _row_sums(xp, H) * _row_sums(xp, inverse)
        sound = bool(condition * float(xp.finfo(xp.float64).eps) * p <= MARGIN)
        return scale[:, None] * inverse * scale[None, :], sound

    def apply(self, r: Array) -> tuple[Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        xp, C, p = self.xp, self.block.width, r.shape[0]
        columns = []
        for i, inverse in enumerate(self.inverses):
            flat = xp.reshape(r[:, i * C : (i + 1) * C].T, (-1,))
            columns.append(xp.reshape(inverse @ flat, (C, p)).T)
        z = xp.concat(columns, axis=1)
        return z, self.block.total(xp.sum(r * z, axis=0))

    def take(self, problems: Array, columns: Array) -> Self:
        """Return that of some problems."""
        xp = self.xp
        inverses = [self.inverses[int(i)] for i in problems]
        curvature = [xp.take(h, columns, axis=1) for h in self.curvature]
        out = type(self)(self.block, inverses, xp.take(self.sound, problems), curvature)
        out.smallest = xp.take(self.smallest, problems)
        return out

    def astype(self, dtype: Any) -> Self:
        """Return itself: it is for double precision only."""
        return self


def _along_diagonals(xp: Any, alone: Block, tiles: list[list[Array]]) -> Array:
    """Return what makes the Hessian of one problem, given by the blocks of its columns, regular."""
    C = len(tiles)
    own = xp.stack([xp.stack([xp.linalg.diagonal(a) for a in row]) for row in tiles])
    more = [alone.objective.regular(own[None, :, :, j])[0, :, :] - own[:, :, j]
            for j in range(own.shape[2])]  # fmt: skip
    more = xp.stack(more, axis=-1)
    eye = xp.eye(own.shape[2], dtype=own.dtype, device=own.device)
    rows = [xp.concat([eye * more[c, k, :] for k in range(C)], axis=1) for c in range(C)]
    return xp.concat(rows, axis=0)


def _inverses(xp: Any, matrices: Array) -> Array:
    """Invert small matrices, (m, c, c), of whatever size their entries are."""
    size = xp.max(xp.abs(matrices), axis=(-1, -2), keepdims=True)
    return xp.linalg.inv(matrices / size) / size


def _row_sums(xp: Any, A: Array) -> float:
    return float(xp.max(xp.sum(xp.abs(A), axis=0)))


def _least_ratio(block: Block, new: list[Array], old: list[Array]) -> Array:
    """Return the smallest ratio of new to old curvature of each problem, (m,), at most 1."""
    xp, shares = block.xp, []
    for a, b in zip(new, old, strict=True):
        a, b = xp.astype(a, xp.float64), xp.astype(b, xp.float64)
        share = xp.where(b > 0, a / xp.where(b > 0, b, xp.ones_like(b)), xp.ones_like(b))
        shares.append(xp.min(share, axis=0))
    least = xp.min(xp.stack(shares), axis=0)
    return xp.clip(-_largest(block, -least), 0.0, 1.0)


def _largest(block: Block, values: Array) -> Array:
    """Take the largest over the columns of each problem: (m c,) to (m,)."""
    return block.xp.max(block.xp.reshape(values, (-1, block.width)), axis=-1)
