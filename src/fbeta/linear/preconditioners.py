"""Preconditioners for conjugate gradients that know a lower end of the spectrum they make.

H is a problem's Hessian ``Z' B Z + alpha``, with B the curvature of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, to_numpy

if TYPE_CHECKING:
    from fbeta.linear.block import Block, Point
    from fbeta.linear.design import Rows

__all__ = ["Diagonal", "Eliminating", "Factored", "Preconditioner"]

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
    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r``, (p, M), ``r' M^-1 r``, (m,), and what ``r' H^-1 r`` is at most, (m,).

        The last is infinite where nothing is known but the lower end of the spectrum.
        """

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
    max D``, and ``r' H^-1 r`` at most the square of what is left of r, over alpha: where D differs
    much among the features that says far more. Without an intercept the same holds for features
    whose mean is not 0.
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
        kept = xp.where(D > 0, D, xp.ones_like(D))
        smallest, single = cls._lower_end(block, point, D, kept)
        rows = block.light if single else block.heavy
        B, small = cls._means(block, point, rows)
        # the coordinate of the intercept is not of the diagonal part
        inverse = xp.where(D > 0, 1 / kept, D)
        made = cls(block, inverse=inverse, B=B, small=small, smallest=smallest, single=single)
        if not design.intercept:
            again = [made._dots(B[k, :, :] / D) for k in range(C)]
            small = small + xp.stack(again, axis=-1)
        made.arrays["small"] = _inverses(xp, block.objective.regular(small))
        return made

    @staticmethod
    def _lower_end(block: Block, point: Point, D: Array, kept: Array) -> tuple[Array, bool]:
        """Return the lower end of the spectrum, and whether single precision can tell it from 0."""
        xp, square = block.xp, block.design.moments[1]
        if block.dtype != xp.float64:  # nothing is certified there
            return xp.zeros_like(point.value), True
        largest = xp.clip(_largest(block, xp.max(D, axis=0)), TINY, None)
        smallest = xp.clip(block.alpha / largest, None, 1.0)
        rough = ROUNDING * _largest(block, xp.max(square * point.total / kept, axis=0))
        eps = [float(xp.finfo(t).eps) for t in (block.light.dtype, block.dtype)]
        single = bool(xp.all(rough * eps[0] <= MARGIN * smallest))
        sound = rough * eps[1] <= MARGIN * smallest
        return xp.where(sound, smallest, xp.zeros_like(smallest)), single

    @staticmethod
    def _means(block: Block, point: Point, rows: Rows) -> tuple[Array, Array]:
        """Return b, (c, p, M), and c, (m, c, c), of the problems."""
        xp, C = block.xp, block.width
        parts = [block.curvatures(point.curvature, k) for k in range(C)]
        adjoints = [xp.astype(rows.adjoint(part), xp.float64) for part in parts]
        if C == 1:
            return adjoints[0][None, :, :], point.total[:, None, None]
        B = xp.stack(adjoints)
        sums = [sum(xp.sum(xp.astype(a, xp.float64), axis=0) for a in part) for part in parts]
        return B, xp.stack([xp.reshape(a, (-1, C)) for a in sums], axis=-1)

    def _dots(self, z: Array) -> Array:
        """Return ``b' z``, (m, c)."""
        total, xp = self.block.total, self.xp
        parts = [total(xp.sum(self.B[k, :, :] * z, axis=0)) for k in range(self.B.shape[0])]
        return xp.stack(parts, axis=-1) if len(parts) > 1 else parts[0][:, None]

    def _combine(self, s: Array) -> Array:
        """Return ``b s``, (p, M)."""
        spread = self.block.spread
        return sum(self.B[k, :, :] * spread(s[:, k]) for k in range(self.B.shape[0]))

    def _solve(self, s: Array) -> Array:
        if s.shape[1] == 1:
            return self.small[:, :, 0] * s
        return (self.small @ s[:, :, None])[:, :, 0]

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r``, ``r' M^-1 r`` and a bound of ``r' H^-1 r``."""
        xp, total = self.xp, self.block.total
        if not self.block.design.intercept:
            z = self.inverse * r
            z = z - self.inverse * self._combine(self._solve(self._dots(z)))
            return z, total(xp.sum(r * z, axis=0)), self._most(r)
        last = xp.reshape(r[-1, :], (-1, self.B.shape[0]))
        own = self._solve(last)
        rest = r - self._combine(own)
        z = self.inverse * rest
        offset = xp.reshape(own - self._solve(self._dots(z)), (1, -1))
        of_last = xp.sum(last * own, axis=-1)
        size = total(xp.sum(rest * z, axis=0)) + of_last
        return xp.concat([z[:-1, :], offset], axis=0), size, self._most(rest[:-1, :]) + of_last

    def _most(self, rest: Array) -> Array:
        """Return the squares of penalised coordinates over their penalty, (m,)."""
        alpha = self.block.alpha
        squares = self.block.total(self.xp.sum(rest * rest, axis=0))
        return squares / alpha if alpha > 0 else self.xp.full_like(squares, self.xp.inf)

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

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        project = self.block.objective.project
        r = project(r)  # rounding leaves a trace, and the size below must not be negative
        z = self.inverse * r
        size = self.block.total(self.xp.sum(r * z, axis=0))
        return project(z), size, self.xp.full_like(size, self.xp.inf)

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

    def __init__(self, block: Block, inverses: Array, sound: Array, curvature: list[Array]) -> None:
        self.block, self.xp = block, block.xp
        self.inverses, self.sound, self.curvature = inverses, sound, curvature
        self.smallest = sound

    @classmethod
    def at(cls, block: Block, point: Point, before: Any, steps: Array | None) -> Self:
        """Make one for a point, or keep the one before where it served well."""
        every = np.arange(point.value.shape[0])
        if before is None:
            made = cls(block, *_inverse_hessians(block, point, every), point.curvature)
        else:
            made = cls(block, before.inverses, before.sound, before.curvature)
            made._renew(point, np.flatnonzero(to_numpy(steps) > REFRESH))
        made.smallest = made.sound * _least_ratio(block, point.curvature, made.curvature)
        return made

    def _renew(self, point: Point, problems: NDArray[np.intp]) -> None:
        """Factorise the Hessians of some problems."""
        if not len(problems):
            return
        xp, there = self.xp, {"device": self.block.design.device}
        source = np.arange(self.sound.shape[0])
        source[problems] = len(source) + np.arange(len(problems))
        index = xp.asarray(source, **there)
        new = _inverse_hessians(self.block, point, problems)
        pairs = zip((self.inverses, self.sound), new, strict=True)
        self.inverses, self.sound = (xp.take(xp.concat(a), index, axis=0) for a in pairs)
        renewed = self.block.spread(index >= len(source))
        both = zip(point.curvature, self.curvature, strict=True)
        self.curvature = [xp.where(renewed, now, old) for now, old in both]

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        xp, m = self.xp, self.inverses.shape[0]
        flat = xp.reshape(r.T, (m, -1, 1))
        z = xp.reshape(self.inverses @ flat, (r.shape[1], r.shape[0])).T
        size = self.block.total(xp.sum(r * z, axis=0))
        return z, size, xp.full_like(size, xp.inf)

    def take(self, problems: Array, columns: Array) -> Self:
        """Return that of some problems."""
        xp = self.xp
        curvature = [xp.take(h, columns, axis=1) for h in self.curvature]
        inverses, sound = (xp.take(a, problems, axis=0) for a in (self.inverses, self.sound))
        out = type(self)(self.block, inverses, sound, curvature)
        out.smallest = xp.take(self.smallest, problems)
        return out

    def astype(self, dtype: Any) -> Self:
        """Return itself: it is for double precision only."""
        return self


def _inverse_hessians(
    block: Block, point: Point, problems: NDArray[np.intp]
) -> tuple[Array, Array]:
    """Invert the Hessians of some problems.

    Returns
    -------
    inverses : array of shape (k, c p, c p)
    sound : array of shape (k,)
        1 where they can be relied upon, 0 elsewhere.
    """
    xp = block.xp
    H = _hessians(block, point, problems)
    order = H.shape[-1]
    scale = xp.linalg.diagonal(H)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale)) ** -0.5
    H = scale[:, :, None] * H * scale[:, None, :]
    inverses = _invert(xp, H)
    condition = _norm(xp, H) * _norm(xp, inverses)
    sound = condition * (float(xp.finfo(xp.float64).eps) * order / block.width) <= MARGIN
    return scale[:, :, None] * inverses * scale[:, None, :], xp.astype(sound, xp.float64)


def _hessians(block: Block, point: Point, problems: NDArray[np.intp]) -> Array:
    """Return the Hessians of some problems, (k, c p, c p), in double precision."""
    xp, C, p = block.xp, block.width, block.penalty.shape[0]
    alone = block.only(problems)
    columns = block.columns(xp.asarray(problems, device=block.design.device))
    curvature = [xp.take(h, columns, axis=1) for h in point.curvature]
    parts = [alone.curvatures(curvature, k) for k in range(C)]
    weights = [[xp.astype(a, xp.float64) for a in part] for part in parts]
    # one class against another, for all problems: (k, p, p)
    tiles = [
        [
            block.heavy.sandwiches([a[:, c::C] for a in part], positive=c == k)
            for k, part in enumerate(weights)
        ]
        for c in range(C)
    ]
    H = xp.concat([xp.concat(row, axis=2) for row in tiles], axis=1)
    eye = xp.eye(p * C, dtype=H.dtype, device=H.device)
    H = H + eye * xp.tile(block.penalty[:, 0], (C,))
    return H if C == 1 else H + _along_diagonals(xp, alone, tiles)


def _along_diagonals(xp: Any, alone: Block, tiles: list[list[Array]]) -> Array:
    """Return what makes Hessians, given by the blocks of their columns, regular."""
    C, p = len(tiles), tiles[0][0].shape[-1]
    own = xp.stack([xp.stack([xp.linalg.diagonal(a) for a in row]) for row in tiles])
    more = [alone.objective.regular(xp.permute_dims(own[:, :, :, j], (2, 0, 1))) for j in range(p)]
    change = xp.stack(more, axis=-1) - xp.permute_dims(own, (2, 0, 1, 3))
    eye = xp.eye(p, dtype=own.dtype, device=own.device)
    rows = [
        xp.concat([eye * change[:, c, k, :][:, :, None] for k in range(C)], axis=2)
        for c in range(C)
    ]
    return xp.concat(rows, axis=1)


def _invert(xp: Any, H: Array) -> Array:
    """Invert symmetric matrices, (k, q, q); one that is exactly singular becomes the identity."""
    try:
        return xp.linalg.inv(H)
    except (np.linalg.LinAlgError, RuntimeError):  # the latter is PyTorch's
        if H.shape[0] == 1:  # anything does, and nothing is known of it
            return xp.eye(H.shape[-1], dtype=H.dtype, device=H.device)[None, :, :]
        return xp.concat([_invert(xp, H[i : i + 1, :, :]) for i in range(H.shape[0])])


def _norm(xp: Any, A: Array) -> Array:
    """Return the largest sum of absolute values of a column of each matrix."""
    return xp.max(xp.sum(xp.abs(A), axis=1), axis=-1)


def _inverses(xp: Any, matrices: Array) -> Array:
    """Invert small matrices, (m, c, c), of whatever size their entries are."""
    if matrices.shape[-1] == 1:
        return 1 / matrices
    size = xp.max(xp.abs(matrices), axis=(-1, -2), keepdims=True)
    return xp.linalg.inv(matrices / size) / size


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
