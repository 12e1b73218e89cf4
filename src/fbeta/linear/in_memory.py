"""The driver's oracle for rows in memory, on arrays of any library.

All problems share Z, so that scores, gradients and products with the Hessians are matrix products.
Scores, objectives and gradients are in double precision; conjugate gradients, which need not be
accurate, in single precision where the conditioning allows it. Steps are chosen by the scores and
how they change along a direction, without another product with Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, is_accelerator, product_precision, take, to_numpy
from fbeta._threads import run_threaded
from fbeta.linear.batch import Evaluation, Losses, ProblemBatch, take_problems
from fbeta.linear.conjugate import FORCING, Directions, certified, conjugate_gradients
from fbeta.linear.driver import Oracle, State, StepRule, effective_tol, minimise
from fbeta.linear.preconditioners import PRECONDITIONERS, Diagonal, Factorised, Preconditioner

if TYPE_CHECKING:
    from fbeta.linear.problems import Problems

STEP_RULE = StepRule(slope_before=0.3, slope_beyond=0.3, armijo=0.1, shortest=0.1, longest=0.9)
# for objectives whose directions cost more than trials: the slope must all but vanish
EXACT_STEP_RULE = replace(STEP_RULE, armijo=1.0)
MAX_LINE_SEARCH_TRIALS = 40
STEP_EXPANSION = 4  # factor of a step beyond which the objective still falls
MAX_NARROW_STEPS = 8  # of conjugate gradients for the intercepts alone
OBJECTIVE_ERROR_ULPS = 64  # rounding error of an objective
SINGLE_SHARE = 0.4  # of the tolerance that single precision aims at
# decrement, in roots of the tolerance, at which single precision takes its last step
MIXED_PRECISION_RADIUS = 0.02


class ArrayOracle(Oracle):
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
        # of all rows at the last accepted point, (rows, M) tiles
        self.scores: list[Array] | None = None

    def evaluate(self, states: Sequence[State]) -> list[Evaluation]:
        """Evaluate the start, or the step along the direction that the rule accepts."""
        [state] = states
        batch, W = self.batch, state.W
        if self.scores is None:
            self.scores = batch.tiles.product(W)
            losses = batch.losses(self.scores, state.cautious)
        else:
            step, self.scores, losses = self._search_line(state)
            W = W + batch.spread(step) * state.direction
        return [batch.evaluation(W, losses)]

    def accept(self, state: State, found: Evaluation) -> tuple[Evaluation, None]:
        """Accept what the line search found."""
        return found, None

    def direction(self, state: State, at: Evaluation, limit: Array) -> Directions:
        """Return Newton directions by conjugate gradients."""
        batch, cautious, radius = self.batch, state.cautious, self.unseen_radius

        def build(own: ProblemBatch, there: Evaluation) -> Preconditioner:
            return self.kind.build(own, there, self.preconditioner, self.steps)

        def search(
            own: ProblemBatch, there: Evaluation, made: Preconditioner, goal: Array, far: Array
        ) -> Directions:
            self.preconditioner = made if isinstance(made, Factorised) else None
            narrow = made.narrowed(there.gradient, goal) if isinstance(made, Diagonal) else None
            if narrow is not None:
                found = conjugate_gradients(own, there, narrow, goal, far, MAX_NARROW_STEPS, radius)
                if bool(batch.xp.all(found.upper <= goal)):
                    return found
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
        if not self.factorised:
            # stopped before the bounds met, or after too many steps
            hard = (found.steps >= self.max_steps) | ((1 + FORCING) * found.lower <= limit)
            found.abandoned = going & hard & ~cautious
        return found

    def keep(self, problems: Array) -> None:
        """Drop all problems but these."""
        self.batch.keep(problems)
        self.scores = take_problems(self.scores, problems, self.steps.shape[0])
        self.steps = take(self.batch.xp, self.steps, problems)
        if self.preconditioner is not None:
            self.preconditioner = self.preconditioner.take(problems)

    def _search_line(self, state: State) -> tuple[Array, list[Array], Losses]:
        """Find steps that the rule accepts, (m,), with scores and losses; slopes rise with them."""
        batch, xp = self.batch, self.batch.xp
        rule = EXACT_STEP_RULE if batch.objective.exact_steps else self.rule
        W, direction, scores, value = state.W, state.direction, self.scores, state.value
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
            now = pull + step * bend + batch.slope(losses[1], changes)
            change = losses[0] - start + step * pull + 0.5 * step**2 * bend
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
    """Minimise the objectives of a batch from W, (p, M), in at most ``budget`` iterations, (m,).

    Returns W, and the iterations, which problems have converged, and which were abandoned, (m,).
    """
    oracle = ArrayOracle(batch, max_steps, tol, factorised)
    # the start is not an iteration
    names = batch.xp.arange(budget.shape[0], device=W.device)
    state = State.start(names, W, budget, cautious=cold_start, floor=floor, n_iter=-1)
    [state] = minimise(oracle.evaluate, oracle.each, [state], tol)
    W, n_iter, converged, abandoned = state.results()
    return W, n_iter, converged, abandoned


@dataclass
class ArrayRun:
    """One solve of problems on arrays, and what is known of each so far."""

    problems: Problems
    W: Array  # (p, M), is written to, as are the next three, (m,)
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    abandoned: NDArray[np.bool_]  # problems that need their Hessians factorised
    alpha: float
    tol: float
    max_iter: int
    cold_start: bool  # whether W is far from the optimum

    def solve(self, names: NDArray[np.intp]) -> None:
        """Solve some problems, and those that are abandoned again by factorised Hessians."""
        own, xp = self.problems, self.problems.design.xp
        for factorised in (False, True) if own.factorises else (False,):
            batches = own.batches(names[self.abandoned[names] == factorised], factorised)
            rotate = factorised and bool(batches) and own.rotates
            run = partial(self._solve_batch, factorised=factorised, rotate=rotate)
            results = run_threaded(run, batches, small=own.is_small())
            for batch, (W, n_iter, converged, abandoned) in zip(batches, results, strict=True):
                places, used = self._places(batch, W.shape[1] // len(batch))
                source = np.arange(self.W.shape[1])
                source[places[used]] = len(source) + np.flatnonzero(used)
                index = xp.asarray(source, device=own.design.device)
                self.W[...] = take(xp, xp.concat([self.W, W], axis=1), index, axis=1)
                self.n_iter[batch] += to_numpy(n_iter)
                self.converged[batch] = to_numpy(converged)
                self.abandoned[batch] = to_numpy(abandoned) & own.inverts[batch]
            names, self.cold_start = names[~self.converged[names]], False

    @np.errstate(all="ignore")  # trial points may overflow; they are not accepted
    def _solve_batch(
        self, names: NDArray[np.intp], factorised: bool, rotate: bool
    ) -> tuple[Array, ...]:
        """Solve a batch, on accelerators in single precision first."""
        own, xp = self.problems, self.problems.design.xp
        design, light = own.design, own.light
        objective = own.bound.take(names, narrow=True)
        targets = objective.batch_targets(design, own.targets, names)
        there = {"device": design.device}
        places, used = self._places(names, design.columns(objective.width))
        index = xp.asarray(np.minimum(places, self.W.shape[1] - 1), **there)
        start = take(xp, self.W, index, axis=1)
        # a stage before that diverged leaves nothing to start from
        usable = xp.isfinite(start) & xp.asarray(used, **there)
        start = xp.where(usable, start, xp.zeros_like(start))
        if rotate:
            light = design = own.design.orthogonal[0]
            start = self._rotate(start, to=True)
        budget = xp.asarray(self.max_iter - self.n_iter[names], **there)
        steps = own.max_steps(objective.width, factorised)
        solve = partial(solve_batch, floor=own.floor, max_steps=steps, factorised=factorised)
        cold, taken = self.cold_start, 0 * budget
        # on processors the compiled part runs in single precision first
        single = light.matrix.dtype == xp.float32 and is_accelerator(design.device)
        if single and not factorised:
            batch = ProblemBatch(light, light, objective, targets, self.alpha, light.matrix.dtype)
            tol = SINGLE_SHARE * self.tol
            start, taken, *_ = solve(batch, start, tol=tol, budget=budget, cold_start=cold)
            cold = cold and not bool(xp.any(taken > 0))
        batch = ProblemBatch(design, light, objective, targets, self.alpha)
        left = budget - taken
        found = solve(batch, start, tol=self.tol, budget=left, cold_start=cold)
        W, n_iter, converged, abandoned = found
        W = self._rotate(W, to=False) if rotate else W
        return W, n_iter + taken, converged, abandoned

    def _rotate(self, W: Array, *, to: bool) -> Array:
        """Bring coefficients to the orthogonal coordinates, or back."""
        design = self.problems.design
        V, last = design.orthogonal[1], -1 if design.intercept else W.shape[0]
        turned = (V.T if to else V) @ W[:last, :]
        return design.xp.concat([turned, W[last:, :]], axis=0)

    def _places(self, names: NDArray[np.intp], width: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the columns of some problems, filled up to a width, and which of them exist."""
        own, place = self.problems, np.arange(width)
        used = place < np.diff(own.first)[names, None]
        return (own.first[names, None] + place).ravel(), used.ravel()
