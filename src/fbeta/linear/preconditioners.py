"""Preconditioners for conjugate gradients that know a lower end of the spectrum they make.

H is a problem's Hessian ``Z' B Z + alpha``, with B the curvature of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, take, to_numpy
from fbeta.linear.batch import TINY, Evaluation, PerProblem, ProblemBatch, take_problems

# rounding error of a product with H, in units of eps times its diagonal
PRODUCT_ERROR_ULPS = 8.0
MAX_ERROR_SHARE = 0.1  # rounding error, relative to the smallest eigenvalue, that is tolerated
# share of the mean of all rows that a row adds at least to a factorised Hessian, unless fewer rows
# than so many for each feature do; size in medians of all from which it counts
MIN_CURVATURE, MIN_KEPT_ROWS, LARGE_ROW = 0.1, 1, 3.0
MAX_STALE_STEPS = 4  # conjugate gradient steps after which a Hessian is factorised again
SMALLEST_SIZE = 1e-100  # of a residual: no bound follows from it, other than that of penalties
MAX_REST = 0.75  # share of what is asked for that features leave to steps of the intercepts alone
RIDGE = 1e-12  # added to the diagonal of singular matrices, in units of their largest entry


@dataclass
class Preconditioner(PerProblem, ABC):
    """An approximation M of the Hessians of m problems, with M^-1.

    No eigenvalue of ``M^-1 H`` is below ``smallest``, (m,), which is 0 where nothing is known;
    ``single_precision`` says whether that is accurate enough for products with H.
    """

    mixed_precision: ClassVar[bool] = False  # whether it may choose single precision
    numbers = "smallest"

    batch: ProblemBatch
    smallest: Array
    single_precision: bool

    @classmethod
    @abstractmethod
    def build(cls, batch: ProblemBatch, at: Evaluation, before: Any, steps: Array | None) -> Self:
        """Make one for a point, given that of the point before and the steps it took there."""

    @abstractmethod
    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r``, (p, M), ``r' M^-1 r``, (m,), and what ``r' H^-1 r`` is at most, (m,).

        The last is infinite where nothing is known but the lower end of the spectrum.
        """

    def reaches(self, needed: Array) -> list[Array]:
        """Return bounds of the squared changes of scores by v with ``v' H v = 1``.

        Those of all rows and any two outcomes, (rows, m) tiles; of problems that are ``needed``.
        A diagonal one has none: strong convexity certifies its problems.
        """
        raise NotImplementedError(f"{type(self).__name__} has no bounds of scores")

    def farthest(self, at: Evaluation) -> Array:
        """Return the largest bound by the distance of a row, (m,), at the point itself."""
        return Eliminating.build(self.batch, at, None, None).farthest(at)

    def astype(self, dtype: Any) -> Self:
        """Return it in another floating type, if there may be another."""
        return self


@dataclass
class Eliminating(Preconditioner):
    """Diagonal, but for the intercepts, which are eliminated exactly.

    With b = Z' B 1 and c = 1' B 1 the Hessian is that of features centred by their curvature, plus
    ``b c^-1 b'``; on the intercepts themselves it is c. M has a diagonal D in place of the first
    part, which is no less than alpha: so ``M^-1 H >= alpha / max D``.
    """

    mixed_precision = True

    inverse: Array  # (p, M), of the diagonal part; 0 for intercepts
    means: list[Array]  # b, (p, M) for each of c classes
    small: Array  # (m, c, c), the inverse of c

    @classmethod
    def build(cls, batch: ProblemBatch, at: Evaluation, before: Any, steps: Array | None) -> Self:
        """Make one for a point; nothing is taken over from the point before."""
        xp, design = batch.xp, batch.design
        D = batch.penalty + design.spread * at.curvature_sum
        D = xp.where(design.penalised > 0, xp.clip(D, TINY, None), xp.zeros_like(D))
        kept = xp.where(D > 0, D, xp.ones_like(D))
        smallest, single = xp.zeros_like(at.value), True
        if batch.dtype == xp.float64:  # else nothing is certified
            largest = xp.clip(batch.largest(xp.max(D, axis=0)), TINY, None)
            smallest = xp.clip(batch.alpha / largest, None, 1.0)
            sizes = design.moments[1] * at.curvature_sum / kept
            error = PRODUCT_ERROR_ULPS * batch.largest(xp.max(sizes, axis=0))
            eps = [float(xp.finfo(t).eps) for t in (batch.light_tiles.dtype, batch.dtype)]
            single = bool(xp.all(error * eps[0] <= MAX_ERROR_SHARE * smallest))
            sound = error * eps[1] <= MAX_ERROR_SHARE * smallest
            smallest = xp.where(sound, smallest, xp.zeros_like(smallest))
        tiles = batch.light_tiles if single else batch.tiles
        parts = [batch.curvatures(at.curvature, k) for k in range(batch.width)]
        means = [xp.astype(tiles.adjoint(part), xp.float64) for part in parts]
        small = at.curvature_sum[:, None, None]
        if batch.width > 1:
            sums = [sum(xp.sum(xp.astype(a, xp.float64), axis=0) for a in part) for part in parts]
            small = xp.stack([xp.reshape(a, (-1, batch.width)) for a in sums], axis=-1)
        # the coordinate of the intercept is not of the diagonal part
        made = cls(batch, smallest, single, xp.where(D > 0, 1 / kept, D), means, small)
        if not design.intercept:
            again = [made._dots(own / D) for own in means]
            small = small + xp.stack(again, axis=-1)
        return replace(made, small=_inverses(xp, batch.objective.regular(small)))

    def _dots(self, z: Array) -> Array:
        """Return ``b' z``, (m, c)."""
        xp = self.batch.xp
        parts = [self.batch.total(xp.sum(own * z, axis=0)) for own in self.means]
        return xp.stack(parts, axis=-1) if len(parts) > 1 else parts[0][:, None]

    def _combine(self, s: Array) -> Array:
        """Return ``b s``, (p, M)."""
        spread = self.batch.spread
        return sum(own * spread(s[:, k]) for k, own in enumerate(self.means))

    def _solve(self, s: Array) -> Array:
        if s.shape[1] == 1:
            return self.small[:, :, 0] * s
        return (self.small @ s[:, :, None])[:, :, 0]

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r``, ``r' M^-1 r`` and a bound of ``r' H^-1 r``."""
        xp, total = self.batch.xp, self.batch.total
        if not self.batch.design.intercept:
            z = self.inverse * r
            z = z - self.inverse * self._combine(self._solve(self._dots(z)))
            return z, total(xp.sum(r * z, axis=0)), self._most(r)
        last = xp.reshape(r[-1, :], (-1, len(self.means)))
        own = self._solve(last)
        rest = r - self._combine(own)
        z = self.inverse * rest
        offset = xp.reshape(own - self._solve(self._dots(z)), (1, -1))
        of_last = xp.sum(last * own, axis=-1)
        size = total(xp.sum(rest * z, axis=0)) + of_last
        return xp.concat([z[:-1, :], offset], axis=0), size, self._most(rest[:-1, :]) + of_last

    def astype(self, dtype: Any) -> Self:
        """Return it in another floating type."""
        own = (self.inverse, *self.means, self.small)
        inverse, *means, small = (self.batch.xp.astype(a, dtype) for a in own)
        return replace(self, inverse=inverse, means=means, small=small)

    def reaches(self, needed: Array) -> list[Array]:
        """Return bounds by the distances of all rows."""
        return self._bounds(self.batch.tiles.split(self.batch.design.distances[1]))

    def farthest(self, at: Evaluation) -> Array:
        """Return the bound for the largest distance."""
        return self._bounds([self.batch.xp.max(self.batch.design.distances[1])])[0]

    def _bounds(self, distances: list[Array]) -> list[Array]:
        """Return bounds for rows at distances from the centre of the design, (..., m) each."""
        batch, xp, m, C = self.batch, self.batch.xp, self.smallest.shape[0], self.batch.width
        norm = batch.objective.outcome_distance / max(batch.alpha, TINY)
        if not batch.design.intercept:
            return [norm * (own + xp.zeros_like(self.smallest)) ** 2 for own in distances]
        centre, gaps = batch.design.distances[0], []
        for k in range(C):  # how far means b c^-1 are from the centre
            own = xp.asarray(np.tile(np.arange(C) == k, m), device=centre.device)
            gap = self._combine(self.small[:, :, k]) - centre * xp.astype(own, centre.dtype)
            gap = gap * batch.design.penalised
            gaps.append(batch.total(xp.sum(gap * gap, axis=0)))
        # two classes: each has a score of its own, and what they differ by is in two coordinates
        factor, largest = (1 if C == 1 else 2), xp.max(xp.linalg.diagonal(self.small), axis=-1)
        gap = xp.sqrt(factor * xp.max(xp.stack(gaps), axis=0))
        return [norm * (own + gap) ** 2 + factor**2 * largest for own in distances]

    def _most(self, rest: Array) -> Array:
        """Return the squares of penalised coordinates over their penalty, (m,)."""
        alpha = self.batch.alpha
        squares = self.batch.total(self.batch.xp.sum(rest * rest, axis=0))
        return squares / alpha if alpha > 0 else self.batch.xp.full_like(squares, self.batch.xp.inf)


@dataclass
class Diagonal(Preconditioner):
    """The diagonal alone, for one problem that is penalised in all that its loss depends on."""

    inverse: Array  # (p, M)

    @classmethod
    def build(cls, batch: ProblemBatch, at: Evaluation, before: Any, steps: Array | None) -> Self:
        """Make one for a point; nothing is taken over from the point before."""
        xp = batch.xp
        D = xp.clip(batch.penalty + batch.tiles.diagonal(at.curvature_sum), TINY, None)
        return cls(batch, xp.full_like(at.value, TINY), False, 1 / D)

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r``, ``r' M^-1 r`` and what the penalty gives for ``r' H^-1 r``."""
        total, project = self.batch.total, self.batch.objective.project
        r = project(r)  # rounding leaves a trace, and the size below must not be negative
        z, sum_ = self.inverse * r, self.batch.xp.sum
        size, most = (total(sum_(a, axis=0)) for a in (r * z, r * r / self.batch.penalty))
        # a narrowed one may have no residual left where that of the features remains
        return project(z), self.batch.xp.clip(size, SMALLEST_SIZE, None), most

    def narrowed(self, gradient: Array, goal: Array) -> Self | None:
        """Return that of the intercepts alone, where they have almost all of the bound."""
        xp, penalty = self.batch.xp, self.batch.penalty
        weak, nothing = penalty <= self.batch.objective.intercept_penalty, 0 * gradient
        rest = xp.sum(xp.where(weak, nothing, gradient**2 / penalty))
        small = bool(rest <= MAX_REST * xp.sum(goal)) and not bool(xp.all(weak))
        return replace(self, inverse=xp.where(weak, self.inverse, nothing)) if small else None


@dataclass
class Factorised(Preconditioner):
    """The inverse of each problem's Hessian, at this point or at one before.

    Hessians grow with the curvature of every row, so that no eigenvalue of ``M^-1 H`` is below the
    smallest ratio of a row's curvature to what it was when M was made: rows whose curvature is
    small may be left out of M.
    """

    inverses: Array  # (m, c p, c p)
    sound: Array  # (m,), 1 where the inverse is accurate, 0 elsewhere
    curvature: list[Array]  # that the inverses were made for

    @classmethod
    def build(cls, batch: ProblemBatch, at: Evaluation, before: Any, steps: Array | None) -> Self:
        """Make one for a point, or keep that of problems for which it took few steps."""
        xp, m, now = batch.xp, at.value.shape[0], at.curvature
        at = replace(at, curvature=_largest(batch, now))
        if before is None:
            inverses, sound = _inverse_hessians(batch, at, np.arange(m))
            return cls(batch, sound, False, inverses, sound, at.curvature)
        made: Self = replace(before, batch=batch)
        stale = to_numpy(steps) > MAX_STALE_STEPS
        if stale.any():
            source = np.where(stale, m - 1 + np.cumsum(stale), np.arange(m))
            index = xp.asarray(source, device=batch.design.device)
            new = _inverse_hessians(batch, at, np.flatnonzero(stale))
            pairs = zip((made.inverses, made.sound), new, strict=True)
            made.inverses, made.sound = (take(xp, xp.concat(a), index) for a in pairs)
            renewed, both = index >= m, zip(at.curvature, made.curvature, strict=True)
            wide = batch.spread(renewed)
            made.curvature = [xp.where(wide, new, old) for new, old in both]
        shares = []
        for pair in zip(now, made.curvature, strict=True):
            new, old = (xp.astype(a, xp.float64) for a in pair)
            share = xp.where(old > 0, new / xp.where(old > 0, old, xp.ones_like(old)), 1.0)
            shares.append(xp.min(share, axis=0))
        least = -batch.largest(-xp.min(xp.stack(shares), axis=0))
        made.smallest = made.sound * xp.clip(least, 0.0, 1.0)
        return made

    def apply(self, r: Array) -> tuple[Array, Array, Array]:
        """Return ``M^-1 r`` and ``r' M^-1 r``."""
        xp, m = self.batch.xp, self.inverses.shape[0]
        flat = xp.reshape(r.T, (m, -1, 1))
        z = xp.reshape(self.inverses @ flat, (r.shape[1], r.shape[0])).T
        size = self.batch.total(xp.sum(r * z, axis=0))
        return z, size, xp.full_like(size, xp.inf)

    def reaches(self, needed: Array) -> list[Array]:
        """Return the bounds by the inverses themselves, which take n p^2 operations each."""
        batch, xp, C = self.batch, self.batch.xp, self.batch.width
        p, tiles = batch.penalty.shape[0], []
        parts = [slice(c * p, (c + 1) * p) for c in range(C)]
        for tile in batch.tiles:
            rows = batch.design.backward((tile.toarray() if sp.issparse(tile) else tile).T)
            columns = [xp.zeros_like(rows[0, :])] * len(self.sound)
            for k in np.flatnonzero(to_numpy(needed)):
                each = [xp.sum(rows * (self.inverses[k, s, s] @ rows), axis=0) for s in parts]
                columns[k] = (1 if C == 1 else 4) * xp.max(xp.stack(each), axis=0)
            tiles.append(xp.stack(columns, axis=-1) / xp.clip(self.smallest, TINY, None))
        return tiles


#: By the names that objectives declare.
PRECONDITIONERS: dict[str, type[Preconditioner]] = {
    "diagonal": Diagonal,
    "eliminating": Eliminating,
    "factorised": Factorised,
}


def _largest(batch: ProblemBatch, curvature: list[Array]) -> list[Array]:
    """Return curvature, (rows, M) tiles, without rows that add little to Hessians of many rows."""
    if batch.width > 1:  # there it is made of the probabilities of all classes
        return curvature
    (_, distances, middle), xp, n = batch.design.distances, batch.xp, batch.design.shape[0]
    # by the weight of a row, and by its size where that is large
    size = batch.tiles.split(xp.clip(distances / max(LARGE_ROW * middle, TINY), 1.0, None) ** 2)
    mass = [m[:, :, 0] * own for m, own in zip(batch.masses(curvature), size, strict=True)]
    least = MIN_CURVATURE / n * sum(xp.sum(own, axis=0) for own in mass)
    kept = sum(xp.sum(xp.astype(own >= least, xp.int64), axis=0) for own in mass)
    least = xp.where(kept >= MIN_KEPT_ROWS * batch.penalty.shape[0], least, 0 * least)
    pairs = zip(curvature, mass, strict=True)
    return [xp.where(m < least, 0 * own, own) for own, m in pairs]


def _inverse_hessians(
    batch: ProblemBatch, at: Evaluation, problems: NDArray[np.intp]
) -> tuple[Array, Array]:
    """Invert the Hessians of k problems, (k, c p, c p); 1 where that is accurate, else 0, (k,)."""
    xp = batch.xp
    H = _hessians(batch, at, problems)
    order = H.shape[-1]
    scale = xp.linalg.diagonal(H)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale)) ** -0.5
    H = scale[:, :, None] * H * scale[:, None, :]
    inverses = _invert(xp, H)
    condition = xp.linalg.matrix_norm(H, ord=1) * xp.linalg.matrix_norm(inverses, ord=1)
    sound = condition * (float(xp.finfo(xp.float64).eps) * order / batch.width) <= MAX_ERROR_SHARE
    return scale[:, :, None] * inverses * scale[:, None, :], xp.astype(sound, xp.float64)


def _hessians(batch: ProblemBatch, at: Evaluation, problems: NDArray[np.intp]) -> Array:
    """Return the Hessians of some problems, (k, c p, c p), in double precision."""
    xp, C, p, there = batch.xp, batch.width, batch.penalty.shape[0], {"device": at.W.device}
    alone, index = batch.only(problems), xp.asarray(problems, **there)
    curvature = take_problems(at.curvature, index, at.value.shape[0])
    parts = [alone.curvatures(curvature, k) for k in range(C)]
    weights = [[xp.astype(a, xp.float64) for a in part] for part in parts]

    def block(c: int, k: int) -> Array:  # one class against another, for all problems: (k, p, p)
        return batch.tiles.sandwiches([a[:, c::C] for a in weights[k]], positive=c == k)

    blocks = xp.stack([xp.stack([block(c, k) for k in range(C)]) for c in range(C)])
    classes, eye = (xp.eye(size, dtype=xp.float64, **there) for size in (C, p))
    H = blocks + classes[:, :, None, None, None] * (eye * batch.penalty[:, 0])
    if C > 1:
        own = xp.permute_dims(xp.linalg.diagonal(blocks), (2, 0, 1, 3))  # (k, c, c, p)
        made = [alone.objective.regular(own[:, :, :, j]) for j in range(p)]
        change = xp.permute_dims(xp.stack(made, axis=-1) - own, (1, 2, 0, 3))
        H = H + eye * change[:, :, :, :, None]
    return xp.reshape(xp.permute_dims(H, (2, 0, 3, 1, 4)), (len(problems), C * p, C * p))


def _invert(xp: Any, H: Array) -> Array:
    """Invert symmetric matrices, (k, q, q); one that is exactly singular becomes the identity."""
    try:
        return xp.linalg.inv(H)
    except (np.linalg.LinAlgError, RuntimeError):  # the latter is PyTorch's
        if H.shape[0] == 1:  # anything does, and nothing is known of it
            return xp.eye(H.shape[-1], dtype=H.dtype, device=H.device)[None, :, :]
        return xp.concat([_invert(xp, H[i : i + 1, :, :]) for i in range(H.shape[0])])


def _inverses(xp: Any, matrices: Array) -> Array:
    """Invert small matrices, (m, c, c), of whatever size their entries are."""
    if matrices.shape[-1] == 1:
        return 1 / matrices
    size = xp.max(xp.abs(matrices), axis=(-1, -2), keepdims=True)
    size = xp.where(size > 0, size, xp.ones_like(size))
    try:
        return xp.linalg.inv(matrices / size) / size
    except (np.linalg.LinAlgError, RuntimeError):  # singular to rounding; the latter is PyTorch's
        eye = xp.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        return xp.linalg.inv(matrices / size + RIDGE * eye) / size
