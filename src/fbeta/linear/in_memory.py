"""The driver's oracle for rows in memory, on arrays of any library.

All problems share Z, so that scores, gradients and products with the Hessians are matrix products.
Scores, objectives and gradients are in double precision; conjugate gradients, which need not be
accurate, in single precision where the conditioning allows it. Steps are chosen by the scores and
how they change along a direction, without another product with Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, is_accelerator, product_precision, take, to_numpy
from fbeta._threads import run_threaded
from fbeta.linear.batch import Evaluation, Losses, ProblemBatch, take_problems
from fbeta.linear.conjugate import FORCING, Directions, certified, conjugate_gradients
from fbeta.linear.driver import Oracle, State, StepRule, effective_tol, minimise
from fbeta.linear.preconditioners import PRECONDITIONERS, Diagonal, Preconditioner

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
            made = self.kind.build(own, there, self.preconditioner, self.steps)
            self.preconditioner = made if self.factorised else None
            return made

        def search(
            own: ProblemBatch, there: Evaluation, made: Preconditioner, goal: Array, far: Array
        ) -> Directions:
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
                anew = partial(self.kind.build, before=None, steps=None)
                fresh = anew if self.factorised else None
                found, limit = certified(state, batch, at, limit, build, search, fresh=fresh)
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


def solve_on_arrays(
    own: Problems,
    left: NDArray[np.intp],
    W: Array,
    results: tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]],
    *,
    max_iter: int,
    cold: bool,
    **settings: float,
) -> None:
    """Solve some problems, and those that are abandoned again by factorised Hessians.

    W, (p, M), is where to start, and is written to; so are the ``results``, (m,) each: iterations,
    whether problems have converged, and whether they need their Hessians factorised. ``settings``
    are ``alpha`` and ``tol``.
    """
    xp, there, (n_iter, converged, abandoned) = own.design.xp, own.design.device, results
    for factorised in (False, True) if own.factorises else (False,):
        batches = own.batches(left[abandoned[left] == factorised], factorised)
        options: Any = {"factorised": factorised, "cold": cold, **settings}
        run = partial(_solve_batch, own=own, W=W, budget=max_iter - n_iter, **options)
        found = run_threaded(run, batches, small=own.is_small())
        for names, (solved, *more) in zip(batches, found, strict=True):
            source = np.arange(W.shape[1])
            source[own.columns_of(names)] = W.shape[1] + np.arange(solved.shape[1])
            index = xp.asarray(source, device=there)
            W[...] = take(xp, xp.concat([W, solved], axis=1), index, axis=1)
            taken, certified, hard = map(to_numpy, more)
            n_iter[names], converged[names] = n_iter[names] + taken, certified
            abandoned[names] = hard & own.inverts[names]
        left, cold = left[~converged[left]], False


@np.errstate(all="ignore")  # trial points may overflow; they are not accepted
def _solve_batch(
    names: NDArray[np.intp],
    *,
    own: Problems,
    W: Array,
    budget: NDArray[np.intp],
    alpha: float,
    tol: float,
    factorised: bool,
    cold: bool,
) -> tuple[Array, ...]:
    """Solve a batch from its columns of W, on accelerators in single precision first."""
    design, light, xp = own.design, own.light, own.design.xp
    there, objective = {"device": design.device}, own.bound.take(names)
    targets = objective.batch_targets(design, own.targets, names)
    start = take(xp, W, xp.asarray(own.columns_of(names), **there), axis=1)
    # a stage before that diverged leaves nothing to start from
    start = xp.where(xp.isfinite(start), start, xp.zeros_like(start))
    rotate = factorised and own.rotates
    if rotate:
        light = design = own.design.orthogonal[0]
        start = own.design.rotate(start, to=True)
    steps = own.max_steps(objective.width, factorised)
    solve = partial(solve_batch, floor=own.floor, max_steps=steps, factorised=factorised)
    left = xp.asarray(budget[names], **there)
    taken = 0 * left
    # on processors the compiled part runs in single precision first
    single = light.matrix.dtype == xp.float32 and is_accelerator(design.device)
    if single and not factorised:
        batch = ProblemBatch(light, light, objective, targets, alpha, light.matrix.dtype)
        rough = solve(batch, start, tol=SINGLE_SHARE * tol, budget=left, cold_start=cold)
        start, taken, *_ = rough
        cold = cold and not bool(xp.any(taken > 0))
    batch = ProblemBatch(design, light, objective, targets, alpha)
    found, n_iter, *ended = solve(batch, start, tol=tol, budget=left - taken, cold_start=cold)
    return own.design.rotate(found, to=False) if rotate else found, n_iter + taken, *ended
