"""Rows that are held in memory: the driver's oracle for rows that are not.

Rows with rare targets are more likely to be held than others; each held row stands for as many as
it was drawn from. Their Hessian H_S is close to the Hessian H of all rows, up to a relative error
of about ``sqrt(d / held rows)``. And it bounds H from below: other rows only add to H, so that
``H >= share * H_S``, where ``share`` is the smallest weight of a row in units of what it stands
for. So ``g' H^-1 g <= g' H_S^-1 g / share`` for the gradient g of all rows: what there is left to
gain is bounded without a product with H, whatever the rows are that are not held.

The differences of the gradients seen so far correct directions where the held rows mislead: the
limited-memory BFGS method, with H_S^-1 in the place of a multiple of the identity.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.blocks.sums import Sums, TrialPoint
from fbeta.linear.batch import Evaluation, ProblemBatch, columns_of, take_problems
from fbeta.linear.conjugate import Directions, conjugate_gradients
from fbeta.linear.design import Design
from fbeta.linear.driver import Oracle, State, StepRule, objective_floor
from fbeta.linear.learner import solve_path
from fbeta.linear.objectives import Objective
from fbeta.linear.preconditioners import PRECONDITIONERS
from fbeta.linear.problems import MAX_FACTORISED, MIN_CG_STEPS

__all__ = ["GroupState", "HeldRows", "trial_point"]

_lock = threading.Lock()
# a trial costs a pass: any point where the objective still falls is accepted
STEP_RULE = StepRule(
    slope_before=float("inf"), slope_beyond=0.5, armijo=1e-4, shortest=0.02, longest=0.6
)
OBJECTIVE_ERROR = 1e-9  # rounding error of an objective, relative to it
FORCING = 1e-3  # share of the Newton decrement that a direction may leave
FACTORISED_BYTES = 1 << 26  # of factorised Hessians at a time
START_TOL = 1e-4  # of the problems of the held rows, which are only where to start
MAX_PAIRS = 6  # differences of gradients that are kept
MIN_CURVATURE = 1e-12  # cosine of a step and its difference of gradients below which it is not used
MIN_SLOPE_SHARE = 0.01  # of the slope along the Newton direction that a corrected one keeps


@dataclass
class GroupState(State):
    """Problems on the rows outside a fold, with one alpha; ``names`` are columns of the targets.

    ``newton``, (p, M), is the Newton direction by the held rows at the last accepted point,
    ``curvature_sum``, (M,), the curvature of all rows together by the held rows, and ``pairs``, (k,
    3, p, M), steps, differences of gradients, and these multiplied with H_S^-1.
    """

    newton: Array = None
    curvature_sum: Array = None
    pairs: Array = None
    fold: int = -1
    alpha: float = 0.0

    def forget_pairs(self) -> None:
        """Drop the pairs: they belong to the Hessian of rows that are not held any more."""
        self.pairs = np.zeros((0, 3, *self.W.shape))


def trial_point(design: Design, objective: Objective, state: GroupState) -> TrialPoint:
    """Return where the active problems of a group are to be evaluated."""
    coef, offset = design.centred_coefficients(state.trial)
    own = objective.take(state.names, narrow=True)
    return TrialPoint(own, state.names, coef, offset, design.mean, state.fold)


@dataclass(frozen=True)
class _Weighted:
    """The held rows that count for one fold, weighted so as to stand for all that count."""

    design: Design
    light: Design  # in single precision, or the design itself
    share: float  # no row stands for more than 1 / share rows of its weight
    total: float  # the weight of all rows


@dataclass
class HeldRows(Oracle):
    """Rows of all kinds, drawn at random, in the coordinates in which the problems are solved.

    The design has no weights and every coordinate. Each row was drawn with the probability
    ``chance``; ``fold`` holds it out; ``totals`` has for each fold, and last for all, the total
    weight of the rows that count; ``memory`` is that of the work, in bytes; ``scale``, (d,), the
    spread of the features.
    """

    rule = STEP_RULE
    max_stalled = 3

    design: Design
    targets: sp.csr_array
    weight: NDArray[np.float64]
    chance: NDArray[np.float64]
    fold: NDArray[Any] | None
    totals: NDArray[np.float64]
    memory: int
    objective: Objective
    scale: Array
    _weighted: dict[int, _Weighted] = field(default_factory=dict, repr=False)
    _light: list[Design] = field(default_factory=list, repr=False)

    @property
    def coordinates(self) -> tuple[Design, Array]:
        """The design without rows, and the scale of the features."""
        return self.design.take(np.zeros(0, np.intp)), self.scale

    def renew(self, X: Any, targets: sp.csr_array, weight: Any, chance: Any, fold: Any) -> HeldRows:
        """Return other rows in the same coordinates."""
        return replace(
            self,
            design=self.design.of_rows(X),
            targets=targets,
            weight=weight,
            chance=chance,
            fold=fold,
            _weighted={},
            _light=[],
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_weighted": {}, "_light": []}

    def weighted(self, fold: int) -> _Weighted:
        """Return the rows with the weights that they have for a fold, 0 for those of the fold."""
        with _lock:
            if fold not in self._weighted:
                self._weighted[fold] = self._weigh(fold)
            return self._weighted[fold]

    def _weigh(self, fold: int) -> _Weighted:
        if not self._light:
            single = self.design.holds_in(np.float32)
            self._light.append(self.design.astype(np.float32) if single else self.design)
        counts = np.ones(len(self.weight), np.bool_)
        if fold >= 0 and self.fold is not None:
            counts = self.fold != fold
        # those that were drawn stand for all that are not there for certain
        total, drawn = float(self.totals[fold]), counts & (self.chance < 1)
        stand = np.where(counts, self.weight / self.chance, 0.0)
        if drawn.any():
            rest = total - float(self.weight[counts & ~drawn].sum())
            stand[drawn] *= rest / float(stand[drawn].sum())
        share = float(np.min(self.weight[counts] / stand[counts], initial=1.0))
        design, light = (replace(d, weight=stand[:, None]) for d in (self.design, self._light[0]))
        return _Weighted(design, light, share, total)

    def start(
        self, fold: int, names: NDArray[np.intp], alphas: Sequence[float], learner: Any, mean: Array
    ) -> list[GroupState]:
        """Return the states of some problems before the first pass, at the optima of held rows.

        ``mean`` has the means of the targets over all rows, (M,).
        """
        held, separate = self.weighted(fold), self.objective.separates_columns
        design, columns = held.design, self.targets[:, names] if separate else self.targets
        if fold >= 0 and self.fold is not None:
            outside = np.flatnonzero(self.fold != fold)
            design, columns = design.take(outside), columns[outside]
        problems = learner.problems_of(design, self.objective, sp.csc_array(columns), self.memory)
        budget = np.full(len(names), learner.max_iter - 1)  # passes after the first
        floor = objective_floor(held.total, self.objective.null_loss)
        states = []
        path = solve_path(problems, alphas, tol=START_TOL, max_iter=learner.max_iter)
        for alpha, solution in path:
            W = problems.expanded(solution, mean[names] if separate else mean)
            state = GroupState.start(
                names,
                W,
                budget,
                cautious=False,
                floor=floor,
                n_iter=0,
                fold=fold,
                alpha=alpha,
                newton=np.zeros_like(W),
            )
            state.forget_pairs()
            state.curvature_sum = self._batch(state).evaluate(W).curvature_sum
            states.append(state)
        return states

    def _batch(self, state: GroupState) -> ProblemBatch:
        held, objective = self.weighted(state.fold), self.objective.take(state.names, narrow=True)
        targets = objective.batch_targets(held.design, self.targets, state.names)
        return ProblemBatch(held.design, held.light, objective, targets, state.alpha)

    def accept(self, state: GroupState, found: Sums) -> tuple[Evaluation, NDArray[np.bool_]]:
        """Accept trials that are not far beyond the minimum, and no higher than before."""
        objective, design = self.objective.take(state.names, narrow=True), self.design
        alpha = max(state.alpha, objective.min_alpha)
        penalty, W = design.penalty(alpha, objective.intercept_penalty), state.trial
        gradient = objective.project(design.from_centred(found.gradient, found.total) + penalty * W)
        value = found.value + 0.5 * state.dot(penalty * W, W)
        slope = state.dot(gradient, state.direction)
        slope = np.where(np.isfinite(slope), slope, np.inf)
        with np.errstate(all="ignore"):
            good = self.rule.accepts(
                state.slope,
                slope,
                value - state.value,
                state.step,
                OBJECTIVE_ERROR * np.abs(state.value),
            )
        finite = np.isfinite(gradient).all(axis=0).reshape(len(state), -1).all(axis=1)
        accepted = np.isfinite(value) & finite & (good | state.fresh)
        if accepted.any():
            old = state.spread(accepted & ~state.fresh)
            step, change = (np.where(old, a, 0.0) for a in (W - state.W, gradient - state.gradient))
            pair = np.stack([step, change, np.zeros_like(step)])[None]
            state.pairs = np.concatenate([state.pairs, pair])[-MAX_PAIRS:]
        return Evaluation(W, value, gradient), accepted

    def direction(self, state: GroupState, at: Evaluation, limit: Array) -> Directions:
        """Solve ``H_S x = -g`` for the gradients of all rows, and bound ``g' H^-1 g``."""
        batch, share = self._batch(state), self.weighted(state.fold).share
        with np.errstate(all="ignore"):
            there = replace(batch.evaluate(at.W, state.cautious), gradient=at.gradient)
            found = _newton(batch, there, limit * share, state.cautious)
        found.upper = found.upper / share
        state.curvature_sum = there.curvature_sum
        state.pairs = state.pairs.copy()
        state.pairs[-1, 2] = state.newton - found.direction
        state.newton = found.direction
        finite = np.isfinite(found.direction).all(axis=0)
        found.abandoned = ~finite.reshape(len(state), -1).all(axis=1)
        found.direction = _corrected(state, at.gradient, found.direction)
        return found


def _newton(batch: ProblemBatch, at: Evaluation, limit: Array, cautious: Array) -> Directions:
    """Return Newton directions; where conjugate gradients fail, by factorised Hessians."""
    order = at.W.shape[0] * batch.width
    steps = max(MIN_CG_STEPS, order // 4) if order <= MAX_FACTORISED else 2 * order
    usual, *others = batch.objective.preconditioners
    made = PRECONDITIONERS[usual].build(batch, at, None, None)
    found = conjugate_gradients(batch, at, made, limit, cautious, steps, forcing=FORCING)
    hard = (found.upper > limit) & ((found.steps >= steps) | (found.lower <= limit)) & ~cautious
    if "factorised" not in others or order > MAX_FACTORISED:
        return found
    names = np.flatnonzero(hard)
    count = max(1, FACTORISED_BYTES // (16 * order**2))
    for start in range(0, len(names), count):
        own = names[start : start + count]
        few, columns = batch.only(own), columns_of(np, own, batch.n_columns)
        parts = (at.W, at.value, at.gradient, at.curvature, at.curvature_sum)
        there = Evaluation(*take_problems(parts, own, len(hard)))
        made, near = PRECONDITIONERS["factorised"].build(few, there, None, None), hard[own] & False
        again = conjugate_gradients(few, there, made, limit[own], near, 4 * steps, forcing=FORCING)
        found.direction[:, columns] = again.direction
        found.lower[own], found.upper[own] = again.lower, again.upper
    return found


def _corrected(state: GroupState, gradient: Array, newton: Array) -> Array:
    """Correct Newton directions by the differences of gradients, unless their slope is lost.

    The two loops of the limited-memory BFGS method; products with H_S^-1 are linear combinations of
    those that are known.
    """
    dot, spread = state.dot, state.spread
    residual, out = -gradient, newton.copy()
    history = []
    for s, y, v in state.pairs[::-1]:
        bend = dot(s, y)
        usable = bend > MIN_CURVATURE * np.sqrt(dot(s, s) * dot(y, y))
        inverse = np.where(usable, 1 / np.where(usable, bend, 1.0), 0.0)
        a = inverse * dot(s, residual)
        residual = residual - spread(a) * y
        out = out - spread(a) * v
        history.append((s, y, inverse, a))
    for s, y, inverse, a in reversed(history):
        out = out + spread(a - inverse * dot(y, out)) * s
    bad = ~(dot(gradient, out) < MIN_SLOPE_SHARE * dot(gradient, newton))
    return np.where(spread(bad), newton, out)
