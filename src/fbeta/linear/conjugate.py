"""Newton directions by conjugate gradients, with certificates of what is left to gain.

Conjugate gradients bound ``g' H^-1 g`` from below by Gauss quadrature and, since no eigenvalue of
the preconditioned Hessian is below a number that is known, from above by Gauss-Radau quadrature.
Where that bounds what is left to gain is the theorem of docs/solver.md. As in ``newton.cpp``, which
has its constants from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from fbeta._array import Array
from fbeta._threads import check_cancelled
from fbeta.linear.batch import (
    TINY,
    Evaluation,
    PerProblem,
    ProblemBatch,
    join_results,
    take_problems,
)
from fbeta.linear.objectives import has_kernels
from fbeta.linear.preconditioners import Eliminating, Preconditioner

if TYPE_CHECKING:
    from fbeta.linear.driver import State

__all__ = ["Directions", "certified", "conjugate_gradients"]

FORCING = 0.01  # share of the Newton decrement that a direction may leave
MAX_FORCING = 0.2  # the same where less than that is left to gain
# share of the limit of the decrement that the residual of an accurate direction may be
LIMIT_SHARE = 0.3
# norm of the inverse of a preconditioned Hessian that estimates in single precision assume
ASSUMED_INVERSE_NORM = 10.0
MAX_KERNEL_FEATURES = 1024  # whose columns of coefficients fit the registers of a GPU program
UNFINISHED_SHARE = 0.1  # share of a batch that single precision leaves to double precision
# what is left to gain is at most 1 / CERTIFIED_SHARE times the decrement where the scores of no row
# can change by more than CERTIFIED_RADIUS within it, but for rows that have at most the share
# DROPPED_CURVATURE of the Hessian (theorem in docs/solver.md); where they change by a share r of
# that radius, and no row is left out, it may be 2 - GOAL_SLOPE * r times as large (in C++)
CERTIFIED_RADIUS, DROPPED_CURVATURE, CERTIFIED_SHARE, GOAL_SLOPE = 0.9, 0.05, 0.5, 0.9
MIN_CLASS_SHARE = 1e-13  # of the curvature of classes, below which that of one class is rounding
MAX_TENTATIVE = 3  # first points, and then every other one, at which curvature is left out
GOAL_FACTOR, MAX_LOWERED = 8.0, 8  # by which goals fall where more is left out, and how often


@dataclass
class Directions(PerProblem):
    """Directions (p, M); for each problem bounds of ``g' H^-1 g``, and what became of it."""

    numbers = "lower"
    direction: Array
    lower: Array
    upper: Array
    steps: Array = None  # (m,), of conjugate gradients
    abandoned: Array = None  # bool (m,), problems that need another method; None for none
    goal: Array = None  # (m,), what upper bounds have to reach to be certificates


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
    now = Iterates(batch, at, preconditioner, limit, unseen_radius, forcing)
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


class Iterates(PerProblem):
    """The iterates of conjugate gradients for m problems, with bounds of each ``g' H^-1 g``.

    x, r and p, (p, M), are solution, residual and direction, divided by ``scale``; rz, (m,), is the
    squared norm of the residual by the preconditioner; ``share`` of the decrement may be left;
    ``active`` problems need another step. The lower bound is that of Gauss quadrature; the upper
    one adds ``factor`` times the residual, by Gauss-Radau quadrature with the lower end of the
    spectrum prescribed (the recurrence of Meurant and Tichy), or the preconditioner's own bound.
    """

    numbers = "rz"

    def __init__(
        self,
        batch: ProblemBatch,
        at: Evaluation,
        preconditioner: Preconditioner,
        limit: Array,
        unseen_radius: float,
        forcing: float,
    ) -> None:
        xp, smallest, design = batch.xp, preconditioner.smallest, batch.design
        self.batch, self.unseen_radius, self.forcing = batch, unseen_radius, forcing
        self.tiles = batch.light_tiles if preconditioner.single_precision else batch.tiles
        z, size, most = preconditioner.apply(-at.gradient)
        # the residual has norm 1 by the preconditioner
        self.scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
        self.limit, self.rz, most = (a / self.scale**2 for a in (limit, size, most))
        dtype, wide = self.tiles.dtype, batch.spread(self.scale)
        self.r, self.p = (xp.astype(a / wide, dtype) for a in (-at.gradient, z))
        self.x, self.curvature = xp.zeros_like(self.r), at.curvature
        self.preconditioner = preconditioner.astype(dtype)
        self.names = xp.arange(self.rz.shape[0], device=design.device)
        # what may be left: a share of the decrement, or of the tolerance where that is more
        self.share = xp.clip(LIMIT_SHARE * self.limit, forcing, MAX_FORCING)
        self.lower, self.active = xp.zeros_like(self.rz), self.rz > 0
        known, none = (smallest > 0) & self.active, xp.full_like(smallest, xp.inf)
        self.factor = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
        if unseen_radius:  # estimates need a first step
            self.upper = ASSUMED_INVERSE_NORM * self.rz
        else:
            upper = xp.where(known, xp.minimum(self.factor * self.rz, most), none)
            zero = batch.total(xp.sum(xp.abs(self.r), axis=0)) == 0  # an exact optimum
            self.upper = xp.where(zero, self.lower, upper)
            self.update_active()
        plain = batch.width == 1 and design.intercept and not design.shifted
        plain = plain and self.r.shape[0] <= MAX_KERNEL_FEATURES
        known = bool(unseen_radius) and plain and isinstance(preconditioner, Eliminating)
        self.fused = known and has_kernels(self.r)
        if self.fused:  # the kernel writes to them
            self.x, self.r, self.p = (a.contiguous() for a in (self.x, self.r, self.p))

    def advance(self) -> None:
        """Take a step, and update which problems need another."""
        batch, xp, tiles = self.batch, self.batch.xp, self.tiles
        if self.fused:
            from fbeta.linear import _triton

            q = batch.response(tiles, self.curvature, self.p)
            _triton.advance(self, q, (ASSUMED_INVERSE_NORM, self.forcing, self.unseen_radius))
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


Build: TypeAlias = Callable[[ProblemBatch, Evaluation], Preconditioner]
Search: TypeAlias = Callable[[ProblemBatch, Evaluation, Preconditioner, Array, Array], Directions]


def certified(
    state: State,
    batch: ProblemBatch,
    at: Evaluation,
    limit: Array,
    build: Build,
    search: Search,
    share: float = 1.0,
    fresh: Build | None = None,
) -> tuple[Directions, Array]:
    """Return directions with upper bounds of twice what is left to gain, infinite where unknown.

    ``search`` compares bounds of ``g' H^-1 g`` with what they have to reach, (m,), which is the
    second result; its last argument is which problems are cautious. ``share`` is that of the
    batch's Hessian which the Hessian of all rows surely has. Where ``build`` factorises Hessians,
    and may keep those of points before, ``fresh`` does not keep any.
    """
    xp, reached = batch.xp, share * CERTIFIED_SHARE * limit
    concordance = batch.objective.self_concordance
    radius = (share * CERTIFIED_RADIUS / concordance) ** 2 if concordance else float("inf")
    here = _Point(state, batch, at, build, search, fresh, radius)
    if batch.objective.preconditioners[0] == "diagonal":
        found = here.by_penalty(limit, reached)
        return found, found.goal
    # steps with factorised Hessians cost next to nothing
    factor = GOAL_FACTOR if fresh is None else float("inf")
    easy = factor * radius / xp.clip(xp.max(batch.expected_reach()), TINY, None) >= reached
    found = here.by_distance(reached, easy) if bool(xp.any(easy)) else here.by_rows(reached)
    none, known = xp.full_like(reached, xp.inf), found.upper <= found.goal
    if batch.width > 1:  # curvature of an intercept below what rounding leaves of the others'
        own = xp.reshape(at.curvature_sum, (-1, batch.width))
        known = known & (xp.min(own, axis=1) > MIN_CLASS_SHARE * xp.max(own, axis=1))
    found.upper = xp.where(known, found.upper / (share * CERTIFIED_SHARE), none)
    return found, found.goal


@dataclass
class _Point:
    """What directions are made from, and the squared radius in which decrements are bounds."""

    state: State
    batch: ProblemBatch
    at: Evaluation
    build: Build
    search: Search
    fresh: Build | None
    radius: float

    def directions(self, made: Preconditioner, goal: Array) -> Directions:
        """Return directions by a preconditioner."""
        return self.search(self.batch, self.at, made, goal, self.state.cautious)

    def by_penalty(self, limit: Array, reached: Array) -> Directions:
        """Return directions, with the bound that strong convexity gives."""
        batch, at, xp = self.batch, self.at, self.batch.xp
        bound = batch.total(xp.sum(at.gradient**2 / batch.penalty, axis=0))
        none = 0 * bound
        if bool(xp.all((bound <= limit) & ~self.state.cautious)):
            steps = xp.zeros_like(self.state.n_iter)
            return Directions(xp.zeros_like(at.W), none, bound, steps, goal=none)
        found = self.directions(self.build(batch, at), reached)
        upper = xp.where(bound <= limit, bound, xp.full_like(bound, xp.inf))
        return replace(found, upper=upper, goal=none)

    def by_distance(self, reached: Array, easy: Array) -> Directions:
        """Return directions; rows are looked at for problems that may end but for far rows.

        With factorised Hessians, only once steps gain nothing: bounds of all rows take far longer.
        """
        batch, xp, state = self.batch, self.batch.xp, self.state
        made = self.build(batch, self.at)
        farthest = made.farthest(self.at)
        goal = xp.minimum(reached, self.radius / xp.clip(farthest, TINY, None))
        first = xp.where(easy, goal, reached)
        found = self.directions(made, first)
        low = (found.upper <= reached) & (found.upper > goal) & ~state.cautious
        low = low & ((state.stalled > 0) | (state.budget <= 0) | (self.fresh is None))
        found.goal = xp.where(low, goal, first)
        found.upper = xp.where(found.upper > first, xp.full_like(goal, xp.inf), found.upper)
        some, others = (xp.nonzero(chosen)[0] for chosen in (low, ~low))
        if not some.shape[0]:
            return found
        state, at = self.state.take(some), self.at.take(some)
        alone = replace(self, state=state, batch=batch.only(some), at=at)
        again = alone.by_rows(xp.take(reached, some))
        return found.take(others).join(again, xp.concat([others, some]))

    def by_rows(self, reached: Array) -> Directions:
        """Return directions, and goals that take the curvature of every row into account.

        Tentatively, rows with little curvature are left out: bounds that are low enough without
        them are certificates, and where they are not, the next direction has these rows.
        """
        batch, xp, state = self.batch, self.batch.xp, self.state
        tentative = (state.n_iter + 1 < MAX_TENTATIVE) | (state.n_iter % 2 == 1)
        tentative = tentative & ~state.cautious & (self.fresh is None and batch.width == 1)
        if bool(xp.any(tentative)):
            lowered = self._leave_out(xp.where(tentative, reached, 0 * reached))
            reached = xp.where(tentative, lowered, reached)
        made = (self.fresh or self.build)(batch, self.at)
        found = self.directions(made, reached)
        found.goal, below = reached, found.upper <= reached
        if not bool(xp.any(below)):
            return found
        found.goal = self._certifiable(made, below, reached)
        failed = below & (found.upper > found.goal)
        if not bool(xp.any(failed)):
            return found
        goal = xp.where(failed, found.goal, xp.full_like(reached, xp.inf))
        again = self.directions(made, goal)
        found.direction = xp.where(batch.spread(failed), again.direction, found.direction)
        for name in ("lower", "upper", "steps"):
            both = (getattr(own, name) for own in (again, found))
            setattr(found, name, xp.where(failed, *both))
        return found

    def _leave_out(self, goal: Array) -> Array:
        """Leave out rows whose scores may change too much; lower goals until they matter little."""
        batch, xp, at, radius = self.batch, self.batch.xp, self.at, self.radius
        reach = batch.expected_reach()
        if not bool(xp.any(xp.max(reach) * goal > radius)):
            return goal
        masses = [own[:, :, 0] for own in batch.masses(at.curvature)]
        reaches = batch.tiles.split(reach)
        total = xp.clip(sum(xp.sum(mass, axis=0) for mass in masses), TINY, None)
        for _ in range(MAX_LOWERED):
            tiles = zip(masses, reaches, strict=True)
            kept = [(radius * mass >= goal) | (own * goal <= radius) for mass, own in tiles]
            pairs = list(zip(masses, kept, strict=True))
            lost = sum(xp.sum(xp.where(own, 0 * mass, mass), axis=0) for mass, own in pairs) / total
            if bool(xp.all(lost <= DROPPED_CURVATURE)):
                tiles = zip(at.curvature, kept, strict=True)
                curvature = [xp.where(own, h, 0 * h) for h, own in tiles]
                self.at = replace(at, curvature=curvature)
                break
            goal = xp.where(lost <= DROPPED_CURVATURE, goal, goal / GOAL_FACTOR)
        return goal

    def _certifiable(self, made: Preconditioner, needed: Array, goal: Array) -> Array:
        """Lower goals to where no score changes too much, but of rows that matter little."""
        batch, xp, radius = self.batch, self.batch.xp, self.radius
        if not bool(xp.any(made.farthest(self.at) * goal > radius)):
            return goal
        parts, count, reaches = [], xp.zeros_like(goal), made.reaches(needed)
        for mass, own in zip(batch.masses(self.at.curvature), reaches, strict=True):
            cost = xp.where(mass > 0, 2 * mass * own[:, :, None], xp.zeros_like(mass))
            reach = xp.minimum(own[:, :, None], 1 / xp.clip(mass, TINY, None))
            reach = xp.where(reach * goal[:, None] > radius, reach, xp.zeros_like(reach))
            count = count + xp.sum(xp.astype(reach > 0, xp.float64), axis=(0, 2))
            parts.append((reach, cost))
        allowed = (DROPPED_CURVATURE / xp.clip(count, 1.0, None))[:, None]
        kept = [xp.where(cost <= allowed, xp.zeros_like(reach), reach) for reach, cost in parts]
        worst = xp.max(xp.stack([xp.max(own, axis=(0, 2)) for own in kept]), axis=0)
        return xp.minimum(goal, radius / xp.clip(worst, TINY, None))
