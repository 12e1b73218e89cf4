"""Certificates: bounds of what is left to gain, by the theorem of docs/solver.md.

As in ``newton.hpp``, which has its constants from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fbeta._array import Array, array_namespace
from fbeta.linear.batch import Evaluation, ProblemBatch, join_results, take_problems
from fbeta.linear.conjugate import Directions
from fbeta.linear.driver import State
from fbeta.linear.preconditioners import TINY, Preconditioner

__all__ = ["certified"]

# what is left to gain is at most 1 / CERTIFIED_SHARE times the decrement where the scores of no row
# can change by more than CERTIFIED_RADIUS within it, but for rows that have at most the share
# DROPPED_CURVATURE of the Hessian (theorem in docs/solver.md)
CERTIFIED_RADIUS, DROPPED_CURVATURE, CERTIFIED_SHARE = 0.9, 0.05, 0.5
MAX_TENTATIVE = 3  # first points, and then every other one, at which curvature is left out
GOAL_FACTOR, MAX_LOWERED = 8.0, 8  # by which goals fall where more is left out, and how often


def certified(
    state: State,
    batch: ProblemBatch,
    at: Evaluation,
    limit: Array,
    build: Callable[[ProblemBatch, Evaluation], Preconditioner],
    search: Callable[[ProblemBatch, Evaluation, Preconditioner, Array, Array], Directions],
    share: float = 1.0,
    renew: Callable[[Evaluation, Preconditioner, Array], Preconditioner] | None = None,
) -> tuple[Directions, Array]:
    """Return directions with upper bounds of twice what is left to gain, infinite where unknown.

    ``search`` compares bounds of ``g' H^-1 g`` with what they have to reach, (m,), which is the
    second result; its last argument is which problems are cautious. ``share`` is that of the
    batch's Hessian which the Hessian of all rows surely has. Where the distances of the rows are
    all that is needed, no row is looked at; other problems that may be about to end are looked at
    by themselves. ``renew`` may make another preconditioner for problems, (m,), whose bounds are
    too weak.
    """
    xp, reached = batch.xp, share * CERTIFIED_SHARE * limit
    radius = (share * batch.objective.certified_radius(CERTIFIED_RADIUS)) ** 2
    farthest = float(xp.max(_expected_reach(batch)))
    # rows are looked at where they can be, unless intercepts change scores by as much
    known = batch.objective.masses(at.curvature[0][:1, :]) is not None
    known = known and farthest > 2 * _reach_of_intercepts(batch)
    easy = GOAL_FACTOR * radius / max(farthest, TINY) >= reached
    if renew is not None or (known and not bool(xp.any(easy))):
        found, goal = _by_rows(state, batch, at, reached, radius, build, search, renew)
    else:
        made = build(batch, at)
        goal = xp.minimum(reached, radius / xp.clip(made.farthest(), TINY, None))
        first = xp.where(easy, goal, reached) if known else goal
        found = search(batch, at, made, first, state.cautious)
        low = (found.upper <= reached) & (found.upper > goal) & ~state.cautious
        some = xp.nonzero(low)[0] if known else low[:0]
        goal = xp.where(low, goal, first)
        found.upper = xp.where(found.upper > first, xp.full_like(goal, xp.inf), found.upper)
        if some.shape[0]:
            own, part, there = state.take(some), batch.only(some), _taken(at, some)
            again = _by_rows(own, part, there, xp.take(reached, some), radius, build, search)
            found, goal = _replaced(found, goal, low, *again)
    none = xp.full_like(goal, xp.inf)
    found.upper = xp.where(found.upper <= goal, found.upper / (share * CERTIFIED_SHARE), none)
    return found, goal


def _taken(at: Evaluation, problems: Array) -> Evaluation:
    """Return what is known of some problems at a point."""
    parts = (at.W, at.value, at.gradient, at.curvature, at.curvature_sum)
    return Evaluation(*take_problems(parts, problems, at.value.shape[0]))


def _replaced(
    found: Directions, goal: Array, chosen: Array, again: Directions, new: Array
) -> tuple[Directions, Array]:
    """Return directions and goals, with those of the chosen problems, bool (m,), replaced."""
    xp = array_namespace(goal)
    old, names = (xp.nonzero(own)[0] for own in (~chosen, chosen))
    kept = (found.direction, found.lower, found.upper, found.steps, goal)
    kept = take_problems(kept, old, goal.shape[0])
    pieces = [(old, *kept), (names, again.direction, again.lower, again.upper, again.steps, new)]
    *parts, goal = join_results(pieces)
    return Directions(*parts), goal


def _by_rows(
    state: State,
    batch: ProblemBatch,
    at: Evaluation,
    reached: Array,
    radius: float,
    build: Callable[[ProblemBatch, Evaluation], Preconditioner],
    search: Callable[[ProblemBatch, Evaluation, Preconditioner, Array, Array], Directions],
    renew: Callable[[Evaluation, Preconditioner, Array], Preconditioner] | None = None,
) -> tuple[Directions, Array]:
    """Return directions, and goals that take the curvature of every row into account.

    Tentatively, rows with little curvature are left out: bounds that are low enough without them
    are certificates, and where they are not, the next direction has these rows.
    """
    xp = batch.xp
    tentative = (state.n_iter + 1 < MAX_TENTATIVE) | (state.n_iter % 2 == 1)
    tentative = tentative & ~state.cautious & (renew is None and batch.width == 1)
    if bool(xp.any(tentative)):
        at, goal = _truncated(batch, at, xp.where(tentative, reached, 0 * reached), radius)
        reached = xp.where(tentative, goal, reached)
    made = build(batch, at)
    found = search(batch, at, made, reached, state.cautious)
    below = found.upper <= reached
    if not bool(xp.any(below)):
        return found, reached
    goal = _certifiable(batch, at, made, below, reached, radius)
    failed = below & (found.upper > goal)
    if bool(xp.any(failed)):
        if renew is not None:
            made = renew(at, made, failed)
            again = _certifiable(batch, at, made, failed, reached, radius)
            goal = xp.where(failed, again, goal)
        none = xp.full_like(goal, xp.inf)
        again = search(batch, at, made, xp.where(failed, goal, none), state.cautious)
        found.direction = xp.where(batch.spread(failed), again.direction, found.direction)
        for name in ("lower", "upper", "steps"):
            both = (getattr(own, name) for own in (again, found))
            setattr(found, name, xp.where(failed, *both))
    return found, goal


def _expected_reach(batch: ProblemBatch) -> Array:
    """Return bounds of squared changes of scores for centres that are not far, (n, 1)."""
    objective, (_, distances, middle) = batch.objective, batch.design.distances
    reach = objective.outcome_distance / max(batch.alpha, TINY) * (distances + middle) ** 2
    return reach + _reach_of_intercepts(batch)


def _reach_of_intercepts(batch: ProblemBatch) -> float:
    """Return what penalised intercepts add; 0 for those without a penalty."""
    objective = batch.objective
    penalty = objective.intercept_penalty
    return float(objective.outcome_distance / penalty) if penalty else 0.0


def _masses(batch: ProblemBatch, at: Evaluation) -> list[Array]:
    """Return the weighted masses of the rows' outcomes, (rows, m, c) tiles; none if not known."""
    xp, m, out = batch.xp, at.value.shape[0], []
    for h, weight in zip(at.curvature, batch.weights, strict=True):
        mass = batch.objective.masses(h)
        if mass is None:
            return []
        mass = xp.astype(mass, xp.float64, copy=False)
        mass = mass if weight is None else xp.astype(weight, xp.float64) * mass
        out.append(xp.reshape(mass, (mass.shape[0], m, -1)))
    return out


def _truncated(
    batch: ProblemBatch, at: Evaluation, goal: Array, radius: float
) -> tuple[Evaluation, Array]:
    """Leave out curvature of rows whose scores may change by more than a radius.

    Returns the goals, which are lowered until the share of what is left out is small.
    """
    xp, reach = batch.xp, _expected_reach(batch)
    if not bool(xp.any(xp.max(reach) * goal > radius)):
        return at, goal
    masses = _masses(batch, at)
    reaches = [own[:, :, None] for own in batch.tiles.split(reach)]
    for _ in range(MAX_LOWERED if masses else 0):
        wide = goal[:, None]
        tiles = zip(masses, reaches, strict=True)
        kept = [(radius * mass >= wide) | (own * wide <= radius) for mass, own in tiles]
        lost = _lost_share(xp, masses, kept)
        if bool(xp.all(lost <= DROPPED_CURVATURE)):
            pairs = zip(at.curvature, kept, strict=True)
            return replace(at, curvature=[_rest(xp, h, own) for h, own in pairs]), goal
        goal = xp.where(lost <= DROPPED_CURVATURE, goal, goal / GOAL_FACTOR)
    return at, goal


def _lost_share(xp: Any, masses: list[Array], kept: list[Array]) -> Array:
    """Return the share of masses that are not kept: of all rows, or of several classes by row."""
    several, lost, total = masses[0].shape[2] > 1, [], []
    for mass, own in zip(masses, kept, strict=True):
        gone = xp.sum(xp.where(own, xp.zeros_like(mass), mass), axis=2)
        every = xp.clip(xp.sum(mass, axis=2), TINY, None)
        lost.append(xp.max(gone / every, axis=0) if several else xp.sum(gone, axis=0))
        total.append(xp.sum(every, axis=0))
    return xp.max(xp.stack(lost), axis=0) if several else sum(lost) / sum(total)


def _rest(xp: Any, curvature: Array, kept: Array) -> Array:
    """Return the curvature that is kept; probabilities of several classes add up to 1 again."""
    rest = xp.where(kept, xp.reshape(curvature, kept.shape), xp.zeros_like(curvature[:1, :1]))
    if kept.shape[2] > 1:
        rest = rest / xp.sum(rest, axis=2, keepdims=True)
    return xp.reshape(rest, curvature.shape)


def _certifiable(
    batch: ProblemBatch,
    at: Evaluation,
    made: Preconditioner,
    needed: Array,
    goal: Array,
    radius: float,
) -> Array:
    """Lower goals to where no row may change its scores by more than a radius within them.

    But for rows that have too little curvature together to matter.
    """
    xp, worst = batch.xp, made.farthest()
    reaches = made.reaches(needed) if worst is None else []
    if worst is None:
        worst = xp.max(xp.stack([xp.max(own, axis=0) for own in reaches]), axis=0)
    if not bool(xp.any(worst * goal > radius)):
        return goal
    parts, count, reaches = [], xp.zeros_like(goal), reaches or made.reaches(needed)
    for mass, own in zip(_masses(batch, at), reaches, strict=False):
        cost = xp.where(mass > 0, 2 * mass * own[:, :, None], xp.zeros_like(mass))
        reach = xp.minimum(own[:, :, None], 1 / xp.clip(mass, TINY, None))
        reach = xp.where(reach * goal[:, None] > radius, reach, xp.zeros_like(reach))
        count = count + xp.sum(xp.astype(reach > 0, xp.float64), axis=(0, 2))
        parts.append((reach, cost))
    allowed = (DROPPED_CURVATURE / xp.clip(count, 1.0, None))[:, None]
    kept = [xp.where(cost <= allowed, xp.zeros_like(reach), reach) for reach, cost in parts]
    if kept:
        worst = xp.max(xp.stack([xp.max(own, axis=(0, 2)) for own in kept]), axis=0)
    return xp.minimum(goal, radius / xp.clip(worst, TINY, None))
