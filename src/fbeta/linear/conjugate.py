"""Conjugate gradients for many problems at once, with bounds of each Newton decrement.

They bound ``g' H^-1 g`` from below by Gauss quadrature and, since no eigenvalue of the
preconditioned Hessian is below a number that is known, from above by Gauss-Radau quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

from fbeta._array import Array
from fbeta._threads import check_cancelled
from fbeta.linear.batch import Evaluation, ProblemBatch, join_results, take_problems
from fbeta.linear.objectives import has_kernels
from fbeta.linear.preconditioners import Eliminating, Preconditioner

__all__ = ["Directions", "conjugate_gradients"]

FORCING = 0.01  # share of the Newton decrement that a direction may leave
MAX_FORCING = 0.2  # the same where less than that is left to gain
# share of the limit of the decrement that the residual of an accurate direction may be
LIMIT_SHARE = 0.3
# norm of the inverse of a preconditioned Hessian that estimates in single precision assume
ASSUMED_INVERSE_NORM = 10.0
UNFINISHED_SHARE = 0.1  # share of a batch that single precision leaves to double precision


@dataclass
class Directions:
    """Directions (p, M); for each problem bounds of ``g' H^-1 g``, and what became of it."""

    direction: Array
    lower: Array
    upper: Array
    steps: Array = None  # (m,), of conjugate gradients
    abandoned: Array = None  # bool (m,), problems that need another method; None for none


def conjugate_gradients(
    batch: ProblemBatch,
    at: Evaluation,
    preconditioner: Preconditioner,
    limit: Array,
    cautious: Array,
    max_steps: int,
    unseen_radius: float = 0.0,
    forcing: float = FORCING,
) -> Directions:
    """Solve ``H x = -g`` until x is accurate enough, or ``g' H^-1 g`` is known to be below a limit.

    ``limit``, (m,), is compared with the upper bound; problems that are ``cautious``, (m,), do not
    end here. Where ``g' H^-1 g`` is below ``unseen_radius`` limits, the step is taken without
    another evaluation, and the direction has to be accurate; with a positive radius there are
    estimates in place of bounds. ``forcing`` is the share of the decrement that may be left.
    """
    xp = batch.xp
    limit = xp.where(cautious, xp.zeros_like(limit), limit)
    now = Iterates.start(batch, at, preconditioner, limit, unseen_radius, forcing)
    few = int(UNFINISHED_SHARE * limit.shape[0]) if unseen_radius else 0
    steps, finished = 0, []
    while True:
        left = xp.nonzero(now.active)[0]
        over = steps >= max_steps or left.shape[0] <= few
        left = left[:0] if over else left
        if left.shape[0] <= batch.compaction_share * now.active.shape[0]:
            ended = (now.names, now.x, now.scale, now.lower, now.upper)
            if left.shape[0]:
                ended = take_problems(ended, xp.nonzero(~now.active)[0], now.active.shape[0])
            finished.append((*ended, xp.full_like(ended[0], steps)))
            if left.shape[0] == 0:
                break
            now = now.take(left)
        check_cancelled()
        now.advance()
        steps += 1
    x, scale, lower, upper, taken = join_results(finished)
    x = batch.objective.project(xp.astype(x, xp.float64) * batch.spread(scale))
    # rounding may spoil a direction, never the descent
    uphill = batch.total(xp.sum(x * at.gradient, axis=0)) >= 0
    x = xp.where(batch.spread(uphill), -at.gradient, x)
    return Directions(x, lower * scale**2, upper * scale**2, taken)


@dataclass
class Iterates:
    """The iterates of conjugate gradients for m problems, with bounds of each ``g' H^-1 g``.

    x, r and p, (p, M), are solution, residual and direction, divided by ``scale``; rz, (m,), is the
    squared norm of the residual by the preconditioner; ``share`` of the decrement may be left;
    ``active`` problems need another step. The lower bound is that of Gauss quadrature; the upper
    one adds ``factor`` times the residual, by Gauss-Radau quadrature with the lower end of the
    spectrum prescribed (the recurrence of Meurant and Tichy), or the preconditioner's own bound.
    """

    batch: ProblemBatch
    preconditioner: Preconditioner
    unseen_radius: float
    forcing: float
    names: Array
    scale: Array
    curvature: list[Array]
    x: Array
    r: Array
    p: Array
    rz: Array
    limit: Array
    share: Array
    active: Array
    factor: Array
    lower: Array
    upper: Array
    fused: bool = False

    @classmethod
    def start(
        cls,
        batch: ProblemBatch,
        at: Evaluation,
        preconditioner: Preconditioner,
        limit: Array,
        unseen_radius: float,
        forcing: float,
    ) -> Self:
        """Start at 0, scaled so that the residual has norm 1 by the preconditioner."""
        xp, smallest = batch.xp, preconditioner.smallest
        tiles = batch.light_tiles if preconditioner.single_precision else batch.tiles
        z, size, most = preconditioner.apply(-at.gradient)
        scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
        limit, rz, most = (a / scale**2 for a in (limit, size, most))
        r, p = (xp.astype(a / batch.spread(scale), tiles.dtype) for a in (-at.gradient, z))
        # what may be left: a share of the decrement, or of the tolerance where that is more
        share = xp.clip(LIMIT_SHARE * limit, forcing, MAX_FORCING)
        known = (smallest > 0) & (rz > 0)
        none = xp.full_like(smallest, xp.inf)
        factor = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
        upper = xp.where(known, xp.minimum(factor * rz, most), none)
        if unseen_radius:
            upper = ASSUMED_INVERSE_NORM * rz
        names = xp.arange(rz.shape[0], device=batch.design.device)
        state = (names, scale, at.curvature, xp.zeros_like(r), r, p, rz, limit, share, rz > 0)
        bounds = (factor, xp.zeros_like(rz), upper)
        preconditioner = preconditioner.astype(tiles.dtype)
        out = cls(batch, preconditioner, unseen_radius, forcing, *state, *bounds)
        if not unseen_radius:  # estimates need a first step
            # the gradient may be exactly zero
            zero = batch.total(xp.sum(xp.abs(r), axis=0)) == 0
            out.upper = xp.where(zero, out.lower, upper)
            out.update_active()
        out.fused = out.has_kernel()
        if out.fused:  # the kernel writes to them
            out.x, out.r, out.p = (a.contiguous() for a in (out.x, r, p))
        return out

    def take(self, problems: Array) -> Self:
        """Return those of some problems."""
        shared = ("batch", "preconditioner", "unseen_radius", "forcing", "fused")
        m, names = self.rz.shape[0], (f.name for f in fields(self) if f.name not in shared)
        taken = {name: take_problems(getattr(self, name), problems, m) for name in names}
        return replace(self, preconditioner=self.preconditioner.take(problems), **taken)

    def advance(self) -> None:
        """Take a step, and update which problems need another."""
        batch, xp = self.batch, self.batch.xp
        tiles = batch.light_tiles if self.preconditioner.single_precision else batch.tiles
        if self.fused:
            self._advance_by_kernel(batch.response(tiles, self.curvature, self.p))
            return
        q = batch.hessian_product(tiles, self.curvature, self.p)
        bend = batch.total(xp.sum(self.p * q, axis=0))
        # a direction without curvature ends the iteration: the rest is rounding error
        going = self.active & (bend > 0)
        nothing = xp.zeros_like(self.rz)
        length = xp.where(going, self.rz / bend, nothing)
        wide = xp.astype(batch.spread(length), tiles.dtype)
        self.x, self.r = self.x + wide * self.p, self.r - wide * q
        z, size, most = self.preconditioner.apply(self.r)
        new, most = (xp.astype(a, xp.float64) for a in (size, most))
        ratio = xp.where(going, new / self.rz, nothing)
        self.p = z + xp.astype(batch.spread(ratio), tiles.dtype) * self.p
        self.lower = self.lower + length * self.rz
        left = xp.where(going, new, nothing)
        if self.unseen_radius:
            self.upper = self.lower + ASSUMED_INVERSE_NORM * left
        else:
            self._update_upper(new, most, length, ratio, going)
        self.rz = left
        self.update_active()

    def _update_upper(
        self, new: Array, most: Array, length: Array, ratio: Array, going: Array
    ) -> None:
        """Account for a step of the problems that took one."""
        xp, smallest = self.batch.xp, self.preconditioner.smallest
        rest = self.factor - length
        sound = (rest > 0) & (rest < xp.inf) & (new >= 0)
        none = xp.full_like(rest, xp.inf)
        self.factor = xp.where(sound, rest / (smallest * rest + ratio), none)
        upper = xp.where(sound, self.lower + xp.minimum(self.factor * new, most), none)
        self.upper = xp.where(going, upper, self.upper)

    def update_active(self) -> None:
        """Find the problems that need another step."""
        rz, limit, lower, upper = self.rz, self.limit, self.lower, self.upper
        accurate = (rz <= self.share) & (lower > limit)
        if self.unseen_radius:
            outside = lower > self.unseen_radius * limit
            accurate = accurate & ((rz <= LIMIT_SHARE * limit) | outside)
        done = accurate | (upper <= (1 + self.forcing) * lower)
        self.active = (upper > limit) & (rz > 0) & ~done

    def has_kernel(self) -> bool:
        """Tell whether there is a kernel: for estimates of problems with one column each.

        They have an intercept, which the preconditioner eliminates.
        """
        batch, design = self.batch, self.batch.design
        plain = batch.width == 1 and design.intercept and not design.shifted
        if not (self.unseen_radius and plain and isinstance(self.preconditioner, Eliminating)):
            return False
        if not has_kernels(self.x):
            return False
        from fbeta.linear import _triton

        return bool(self.x.shape[0] <= _triton.MAX_FEATURES)

    def _advance_by_kernel(self, q: Array) -> None:
        """Take a step, given the product of the Hessians without the penalty with p."""
        from fbeta.linear import _triton

        xp, made = self.batch.xp, self.preconditioner
        assert isinstance(made, Eliminating)
        penalty = xp.astype(self.batch.penalty, q.dtype, copy=False)
        fixed = (penalty, made.inverse, made.means[0, :, :], made.small[:, 0, 0])
        state = (self.rz, self.lower, self.upper, self.active.view(xp.int8))
        numbers = (ASSUMED_INVERSE_NORM, self.forcing, self.unseen_radius)
        arrays, limits = (self.x, self.r, self.p), (self.limit, self.share)
        _triton.advance(arrays, q, fixed, state, limits, numbers)
