"""The driver's oracle for rows in memory, on arrays of any library.

All problems share Z, so that scores, gradients and products with the Hessians are matrix products.
Scores, objectives and gradients are in double precision; conjugate gradients, which need not be
accurate, in single precision where the conditioning allows it. Steps are chosen by the scores and
how they change along a direction, without another product with Z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fbeta._array import Array, product_precision
from fbeta.linear.batch import Evaluation, Losses, ProblemBatch
from fbeta.linear.certificate import certified
from fbeta.linear.conjugate import FORCING, Directions, conjugate_gradients
from fbeta.linear.driver import (
    Evaluator,
    Oracle,
    State,
    StepRule,
    effective_tol,
    minimise,
)
from fbeta.linear.preconditioners import PRECONDITIONERS, Diagonal, Factorised, Preconditioner

__all__ = ["MAX_LINE_SEARCH_TRIALS", "STEP_RULE", "ArrayOracle", "solve_batch"]

STEP_RULE = StepRule(slope_before=0.3, slope_beyond=0.3, armijo=0.1, shortest=0.1, longest=0.9)
MAX_LINE_SEARCH_TRIALS = 40
STEP_EXPANSION = 4  # factor of a step beyond which the objective still falls
OBJECTIVE_ERROR_ULPS = 64  # rounding error of an objective
NEAR = 1.0  # decrement, in limits, at which a problem is near its optimum
# decrement, in roots of the tolerance, at which single precision takes its last step
MIXED_PRECISION_RADIUS = 0.02


@dataclass
class ArrayState(State):
    """With the scores of all rows at the last accepted point, (rows, M) tiles."""

    scores: list[Array] | None = None


class ArrayOracle(Evaluator, Oracle):
    """Evaluations, steps and directions of a batch of problems, which shrinks as problems end.

    A problem whose direction takes more than ``max_steps`` of conjugate gradients is abandoned,
    unless ``factorised`` Hessians are the preconditioner. ``tol`` is that of the driver.
    """

    rule = STEP_RULE

    def __init__(
        self, batch: ProblemBatch, max_steps: int, tol: float, factorised: bool = False
    ) -> None:
        self.batch, self.max_steps, self.factorised = batch, max_steps, factorised
        xp = batch.xp
        self.eps = float(xp.finfo(batch.dtype).eps)
        if batch.dtype != xp.float64:
            self.unseen_radius = MIXED_PRECISION_RADIUS / (2 * effective_tol(tol) ** 0.5)
        name = "factorised" if factorised else batch.objective.preconditioners[0]
        self.kind = PRECONDITIONERS[name]
        self.preconditioner: Preconditioner | None = None
        self.steps: Array = None

    def evaluate(self, states: Sequence[ArrayState]) -> list[Evaluation]:
        """Evaluate the start, or the step along the direction that the rule accepts."""
        [state] = states
        batch, W = self.batch, state.W
        if state.scores is None:
            state.scores = batch.tiles.product(W)
            losses = batch.losses(state.scores, state.cautious)
        else:
            step, state.scores, losses = self._search_line(state)
            W = W + batch.spread(step) * state.direction
        return [batch.evaluation(W, losses)]

    def each(self, work: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Work with the oracle itself."""
        return [work(self, item) for item in items]

    def accept(self, state: ArrayState, found: Evaluation) -> tuple[Evaluation, None]:
        """Accept what the line search found."""
        return found, None

    def direction(self, state: ArrayState, at: Evaluation, limit: Array) -> Directions:
        """Return Newton directions by conjugate gradients."""
        batch, cautious, radius, aim = self.batch, state.cautious, self.unseen_radius, limit

        def build(own: ProblemBatch, there: Evaluation) -> Preconditioner:
            return self.kind.build(own, there, self.preconditioner, self.steps)

        def search(
            own: ProblemBatch, there: Evaluation, made: Preconditioner, goal: Array, far: Array
        ) -> Directions:
            self.preconditioner = made if isinstance(made, Diagonal | Factorised) else None
            return conjugate_gradients(own, there, made, goal, far, self.max_steps, radius)

        with product_precision(batch.xp, batch.design.device, full=radius == 0):
            if radius:  # estimates are no certificates
                found = search(batch, at, build(batch, at), limit, cautious)
                going = found.upper > limit
            else:
                renew = partial(Factorised.renewed, batch) if self.factorised else None
                found, limit = certified(state, batch, at, limit, build, search, renew=renew)
                going = found.upper == batch.xp.inf
        self.steps = found.steps
        if isinstance(self.preconditioner, Diagonal):
            self.preconditioner.near = bool(batch.xp.all(found.lower <= NEAR * aim))
        if not self.factorised:
            # stopped before the bounds met, or after too many steps
            hard = (found.steps >= self.max_steps) | ((1 + FORCING) * found.lower <= limit)
            found.abandoned = going & hard & ~cautious
        return found

    def keep(self, problems: Array) -> None:
        """Drop all problems but these."""
        self.batch.keep(problems)
        self.steps = self.batch.xp.take(self.steps, problems)
        if self.preconditioner is not None:
            self.preconditioner = self.preconditioner.take(problems)

    def _search_line(self, state: ArrayState) -> tuple[Array, list[Array], Losses]:
        """Find for each problem a step that the rule accepts, (m,), with its scores and losses.

        The slope grows with the step; up to where it vanishes the objective falls.
        """
        batch, xp, rule = self.batch, self.batch.xp, self.rule
        W, direction, scores, value = state.W, state.direction, state.scores, state.value
        assert scores is not None
        changes = batch.tiles.product(direction)
        first = state.slope
        pull = batch.total(xp.sum(batch.penalty * W * direction, axis=0))
        bend = batch.total(xp.sum(batch.penalty * direction * direction, axis=0))
        start = value - 0.5 * batch.total(xp.sum(batch.penalty * W * W, axis=0))
        error = OBJECTIVE_ERROR_ULPS * self.eps * xp.abs(value)
        step, low = xp.ones_like(first), xp.zeros_like(first)
        high = xp.full_like(first, xp.inf)
        at_low, at_high = first, xp.zeros_like(first)
        for _ in range(MAX_LINE_SEARCH_TRIALS):
            trial = batch.along(scores, changes, step)
            losses = batch.losses(trial, state.cautious)
            now = pull + step * bend + batch.slope(losses, changes)
            change = losses.value - start + step * pull + 0.5 * step**2 * bend
            good = rule.accepts(first, now, change, step, error)
            if bool(xp.all(good)):
                return step, trial, losses
            short = now < 0  # false for NaN: an overflow is too far
            low, at_low = xp.where(short, step, low), xp.where(short, now, at_low)
            high, at_high = xp.where(short, high, step), xp.where(short, at_high, now)
            between = low + rule.share(at_low, at_high) * (high - low)
            longer = xp.where(xp.isfinite(high), between, STEP_EXPANSION * low)
            step = xp.where(good, step, longer)
        step = xp.where(good, step, low)
        trial = batch.along(scores, changes, step)
        return step, trial, batch.losses(trial, state.cautious)


def solve_batch(
    batch: ProblemBatch,
    W: Array,
    *,
    tol: float,
    floor: float,
    budget: Array,
    cold_start: bool,
    max_steps: int,
    factorised: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """Minimise the objectives of a batch from W, (p, M).

    Returns the coefficients, and for each problem the iterations, whether it has converged, and
    whether it was abandoned because its Hessian needs to be factorised. ``budget``, (m,), has the
    largest numbers of iterations; other arguments as for :class:`ArrayOracle`.
    """
    oracle = ArrayOracle(batch, max_steps, tol, factorised)
    # the start is not an iteration
    names = batch.xp.arange(budget.shape[0], device=W.device)
    state = ArrayState.start(names, W, budget, cautious=cold_start, floor=floor, n_iter=-1)
    [state] = minimise(oracle, [state], tol)
    W, n_iter, converged, abandoned = state.results()
    return W, n_iter, converged, abandoned
