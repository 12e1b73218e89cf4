"""Conjugate gradients for many problems at once, with bounds of each Newton decrement.

They bound ``g' H^-1 g`` from below by Gauss quadrature and, since no eigenvalue of the
preconditioned Hessian is below a number that is known, from above by Gauss-Radau quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from fbeta._array import Array
from fbeta._threads import check_cancelled
from fbeta.linear.batch import Compaction, Evaluation, ProblemBatch, take_problems
from fbeta.linear.fused import advance, fuses_steps, prepare
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
    estimates in place of bounds. ``forcing`` is the share of the decrement that a direction may
    leave.
    """
    xp = batch.xp
    z, size, most = preconditioner.apply(-at.gradient)
    scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
    limit = xp.where(cautious, xp.zeros_like(limit), limit / scale**2)
    wide, size, most = batch.spread(scale), size / scale**2, most / scale**2
    residual = -at.gradient / wide
    now = Iterates.start(
        batch, at, preconditioner, residual, z / wide, size, most, limit, unseen_radius, forcing
    )
    finished = Compaction(xp.arange(scale.shape[0], device=batch.design.device))
    few = int(UNFINISHED_SHARE * scale.shape[0]) if unseen_radius else 0
    steps = 0
    while True:
        left = xp.nonzero(now.active)[0]
        over = steps >= max_steps or left.shape[0] <= few
        left = left[:0] if over else left
        if left.shape[0] <= batch.compaction_share * now.active.shape[0]:
            gone = xp.nonzero(xp.ones_like(now.active) if over else ~now.active)[0]
            finished.drop(gone, left, now.x, now.bounds.lower, now.bounds.upper, steps)
            if left.shape[0] == 0:
                break
            now = now.take(left)
        check_cancelled()
        now.advance()
        steps += 1
    x, lower, upper, taken = finished.collect()
    x = batch.objective.project(xp.astype(x, xp.float64) * batch.spread(scale))
    # rounding may spoil a direction, never the descent
    uphill = batch.total(xp.sum(x * at.gradient, axis=0)) >= 0
    x = xp.where(batch.spread(uphill), -at.gradient, x)
    return Directions(x, lower * scale**2, upper * scale**2, taken)


@dataclass
class Iterates:
    """The iterates of conjugate gradients for m problems.

    x, r and p, (p, M), are solution, residual and direction; rz, (m,), the squared norm of the
    residual by the preconditioner; ``share``, (m,), the share of the decrement that may be left;
    ``active``, (m,), the problems that need another step.
    """

    batch: ProblemBatch
    preconditioner: Preconditioner
    curvature: list[Array]
    x: Array
    r: Array
    p: Array
    rz: Array
    limit: Array
    share: Array
    active: Array
    bounds: Bounds
    unseen_radius: float
    forcing: float
    fused: bool = False

    @classmethod
    def start(
        cls,
        batch: ProblemBatch,
        at: Evaluation,
        preconditioner: Preconditioner,
        r: Array,
        z: Array,
        rz: Array,
        most: Array,
        limit: Array,
        unseen_radius: float,
        forcing: float,
    ) -> Iterates:
        """Start at 0 with residual r, (p, M), and the preconditioned residual z."""
        xp = batch.xp
        tiles = batch.light_tiles if preconditioner.single_precision else batch.tiles
        r, p = (xp.astype(a, tiles.dtype) for a in (r, z))
        kind = Estimate if unseen_radius else Bounds
        bounds = kind.start(xp, rz, most, preconditioner.smallest)
        # what may be left: a share of the decrement, or of the tolerance where that is more
        share = xp.clip(LIMIT_SHARE * limit, forcing, MAX_FORCING)
        preconditioner = preconditioner.astype(tiles.dtype)
        rest = (limit, share, rz > 0, bounds, unseen_radius, forcing)
        out = cls(batch, preconditioner, at.curvature, xp.zeros_like(r), r, p, rz, *rest)
        if not unseen_radius:  # estimates need a first step
            # the gradient may be exactly zero
            none = batch.total(xp.sum(xp.abs(r), axis=0)) == 0
            bounds.upper = xp.where(none, bounds.lower, bounds.upper)
            out.update_active()
        out.fused = isinstance(preconditioner, Eliminating) and fuses_steps(out)
        if out.fused:
            prepare(out)
        return out

    def take(self, problems: Array) -> Self:
        """Return those of some problems."""
        names = ("curvature", "x", "r", "p", "rz", "limit", "share", "active")
        m = self.rz.shape[0]
        taken = {name: take_problems(getattr(self, name), problems, m) for name in names}
        preconditioner = self.preconditioner.take(problems)
        bounds = self.bounds.take(problems)
        return replace(self, preconditioner=preconditioner, bounds=bounds, **taken)

    def advance(self) -> None:
        """Take a step, and update which problems need another."""
        batch, xp = self.batch, self.batch.xp
        tiles = batch.light_tiles if self.preconditioner.single_precision else batch.tiles
        if self.fused:
            q = batch.response(tiles, self.curvature, self.p)
            advance(self, q, ASSUMED_INVERSE_NORM)
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
        self.bounds.update(self.rz, new, most, length, ratio, going)
        self.rz = xp.where(going, new, nothing)
        self.update_active()

    def update_active(self) -> None:
        """Find the problems that need another step."""
        rz, limit, bounds = self.rz, self.limit, self.bounds
        accurate = (rz <= self.share) & (bounds.lower > limit)
        if self.unseen_radius:
            outside = bounds.lower > self.unseen_radius * limit
            accurate = accurate & ((rz <= LIMIT_SHARE * limit) | outside)
        done = accurate | bounds.tight(self.forcing)
        self.active = (bounds.upper > limit) & (rz > 0) & ~done


@dataclass
class Bounds:
    """Bounds of ``g' H^-1 g``, (m,) each, that tighten with each step.

    Gauss: the sum of length times residual. Gauss-Radau, with the lower end ``smallest`` of the
    spectrum prescribed: plus ``factor`` times the residual, by the recurrence of Meurant and Tichy,
    or plus the preconditioner's own bound for the residual, if that is less. Where the recurrence
    breaks down, ``smallest`` is no bound for the products as they are computed: no upper bound.
    """

    xp: Any
    smallest: Array
    factor: Array
    lower: Array
    upper: Array

    @classmethod
    def start(cls, xp: Any, rz: Array, most: Array, smallest: Array) -> Bounds:
        """Return the bounds before any step."""
        known = (smallest > 0) & (rz > 0)
        none = xp.full_like(smallest, xp.inf)
        factor = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
        upper = xp.where(known, xp.minimum(factor * rz, most), none)
        return cls(xp, smallest, factor, xp.zeros_like(smallest), upper)

    def tight(self, forcing: float) -> Array:
        """Tell where the bounds have met, up to a share, (m,)."""
        return self.upper <= (1 + forcing) * self.lower

    def take(self, problems: Array) -> Bounds:
        """Return those of some problems."""
        arrays = (self.smallest, self.factor, self.lower, self.upper)
        return type(self)(self.xp, *take_problems(arrays, problems, self.lower.shape[0]))

    def update(
        self, rz: Array, new: Array, most: Array, length: Array, ratio: Array, going: Array
    ) -> None:
        """Account for a step of the problems that took one."""
        xp = self.xp
        rest = self.factor - length
        sound = (rest > 0) & (rest < xp.inf) & (new >= 0)
        none = xp.full_like(rest, xp.inf)
        self.factor = xp.where(sound, rest / (self.smallest * rest + ratio), none)
        self.lower = self.lower + length * rz
        upper = xp.where(sound, self.lower + xp.minimum(self.factor * new, most), none)
        self.upper = xp.where(going, upper, self.upper)


class Estimate(Bounds):
    """Estimates in place of bounds, for single precision, which certifies nothing.

    What is left is taken for ``ASSUMED_INVERSE_NORM`` times the residual.
    """

    @classmethod
    def start(cls, xp: Any, rz: Array, most: Array, smallest: Array) -> Estimate:
        """Return the estimates before any step."""
        return cls(xp, smallest, smallest, xp.zeros_like(rz), ASSUMED_INVERSE_NORM * rz)

    def update(
        self, rz: Array, new: Array, most: Array, length: Array, ratio: Array, going: Array
    ) -> None:
        """Account for a step."""
        self.lower = self.lower + length * rz
        left = self.xp.where(going, new, self.xp.zeros_like(new))
        self.upper = self.lower + ASSUMED_INVERSE_NORM * left
