"""Rows that are held in memory: the driver's oracle for rows that are not.

Why their Hessian gives directions and a certificate for all rows: see docs/blocks.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.blocks.certificate import MAX_ORDER, bounds_of_gain
from fbeta.blocks.summary import MAX_OVERFULL, CheckedRows, Summary, random_bits
from fbeta.linear.batch import Evaluation, ProblemBatch, columns_of, take_problems
from fbeta.linear.conjugate import Directions, certified, conjugate_gradients
from fbeta.linear.design import Design, rotation_pays
from fbeta.linear.driver import Oracle, State, StepRule
from fbeta.linear.learner import solve_path
from fbeta.linear.objectives import Objective
from fbeta.linear.preconditioners import PRECONDITIONERS
from fbeta.linear.problems import MAX_FACTORISED, MIN_CG_STEPS, Problems

#: Sums over rows: losses (m,), ``(X - mean)' r`` (d, m c) and ``1' r`` (m c,).
Sums: TypeAlias = tuple[Array, Array, Array]
#: Rows, and the probabilities that they were drawn with, (n,).
Drawn: TypeAlias = tuple[CheckedRows, NDArray[np.float64]]

_lock = threading.Lock()
# a trial costs a pass: any point where the objective still falls is accepted
STEP_RULE = StepRule(
    slope_before=float("inf"), slope_beyond=0.5, armijo=1e-4, shortest=0.02, longest=0.6
)
OBJECTIVE_ERROR = 1e-9  # rounding error of an objective, relative to it
FORCING = 1e-3  # share of the Newton decrement that a direction may leave
FACTORISED_BYTES = 1 << 26  # of factorised Hessians at a time
START_TOL = 1e-3  # of the problems of the held rows, which are only where to start
MAX_PAIRS = 6  # differences of gradients that are kept
MIN_CURVATURE = 1e-12  # cosine of a step and its difference of gradients below which it is not used
MIN_SLOPE_SHARE = 0.01  # of the slope along the Newton direction that a corrected one keeps


@dataclass(frozen=True)
class TrialPoint:
    """Where m problems, c columns each, are evaluated: at the scores ``(X - mean) coef + offset``.

    ``names``, (m,), are their columns of the targets; the mean is the same for all points of a
    pass; ``curvature_sum``, (m c,), as in :class:`GroupState`; rows of ``fold`` do not count (-1
    for none).
    """

    objective: Objective
    names: NDArray[np.intp]
    coef: Array
    offset: Array
    mean: Array | None
    curvature_sum: Array
    fold: int = -1


def merge_points(
    points: Sequence[TrialPoint],
) -> tuple[list[TrialPoint], list[tuple[int, NDArray[np.intp]]]]:
    """Merge points that count the same rows; return these, and where each and its problems went."""
    merged: list[TrialPoint] = []
    places: list[tuple[int, NDArray[np.intp]]] = [(0, np.zeros(0, np.intp))] * len(points)
    by_fold: dict[int, list[int]] = {}
    for at, point in enumerate(points):
        # points with several columns for a problem are not merged
        alone = point.objective.width > 1
        by_fold.setdefault(-2 - at if alone else point.fold, []).append(at)
    for own in by_fold.values():
        some = [points[at] for at in own]
        names = np.concatenate([point.names for point in some])
        order = np.argsort(names, kind="stable") if len(some) > 1 else np.arange(len(names))
        ends = np.cumsum([len(point.names) for point in some])
        parts = np.split(np.argsort(order, kind="stable"), ends[:-1])
        for at, part in zip(own, parts, strict=True):
            places[at] = (len(merged), part)
        if len(some) > 1:
            both: dict[str, Any] = {
                name: np.concatenate([getattr(point, name) for point in some], axis=-1)[..., order]
                for name in ("names", "coef", "offset", "curvature_sum")
            }
            some = [replace(some[0], **both)]
        merged.append(some[0])
    return merged, places


@dataclass(frozen=True)
class Draw:
    """How to draw the rows to be held: those that make up the Hessians of active problems.

    ``scale``, (d,), is the spread of each feature; ``wanted`` rows are drawn by their share in the
    Hessians, and every row has the probability ``base`` beside that.
    """

    scale: Array
    wanted: float
    base: float
    seed: int

    def chance(self, X: Any, points: Sequence[TrialPoint], shares: Array) -> Array:
        """Return the probabilities of rows whose curvatures have these shares in the totals."""
        mean = points[0].mean
        inverse = np.where(self.scale > 0, 1 / np.where(self.scale > 0, self.scale, 1.0), 0.0)
        used = max(1, np.count_nonzero(inverse))
        if sp.issparse(X):
            # entries of a sparse feature that are far from its mean are those that are not zero
            size = (X.multiply(X) @ inverse**2) / used
        else:
            Z = (X - (0.0 if mean is None else mean)) * inverse
            size = np.einsum("ij,ij->i", Z, Z) / used
        columns = max(1, sum(point.coef.shape[1] for point in points))
        chance = self.wanted * shares / columns * (1 + size) / 2 + self.base
        return np.clip(np.nan_to_num(chance, nan=1.0), 0.0, 1.0)

    def pick(self, rows: CheckedRows, chance: Array) -> list[Drawn]:
        """Draw some rows by their probabilities, (n,)."""
        own = np.flatnonzero(random_bits(rows.ids, self.seed) / 2.0**64 < chance)
        return [(rows.take(own), chance[own])] if len(own) else []

    def join(self, pieces: Sequence[Drawn]) -> Drawn:
        """Join the rows that were drawn; where they are too many, some of them."""
        count = sum(len(rows) for rows, _ in pieces)
        excess = MAX_OVERFULL * 2 * self.wanted / max(1.0, float(count))
        if excess < 1:
            pieces = [few for rows, own in pieces for few in self.pick(rows, excess * own)]
        ids = np.concatenate([rows.ids for rows, _ in pieces])
        chance = np.concatenate([own for _, own in pieces])
        order = np.argsort(ids, kind="stable")
        return CheckedRows.join([rows for rows, _ in pieces]), chance[order]


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


@dataclass
class HeldRows(Oracle):
    """Rows of all kinds, drawn at random, in the coordinates in which the problems are solved.

    The design has no weights and every coordinate. Each row was drawn with the probability
    ``chance``; ``fold`` holds it out; ``totals`` has for each fold, and last for all, the total
    weight of the rows that count; ``memory`` is that of the work, in bytes.
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
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)  # designs, by fold

    @classmethod
    def of(
        cls,
        drawn: Summary,
        *,
        capacity: int,
        targets: Callable[[Any], sp.csr_array],
        objective: Objective,
        intercept: bool,
        totals: NDArray[np.float64],
        memory: int,
    ) -> HeldRows:
        """Bring about ``capacity`` of the rows of a summary into coordinates for the problems."""
        summary = replace(drawn, capacity=capacity)
        rows = summary.rows()
        values = targets(rows.Y)
        X = rows.X if sp.issparse(rows.X) else rows.X.astype(summary.dtype, copy=False)
        rotate = rotation_pays(X.shape, values.shape[1])
        design = Design.of(X, intercept=intercept, rotate=rotate, complete=True)
        if design.mean is not None:
            # as many digits as X has: then differences to it are as exact as X
            mean = np.asarray(design.mean, summary.dtype).astype(np.float64)
            design = replace(design, mean=mean)
        if design.rotation is not None:
            design = replace(design, rotation=np.asarray(design.rotation, np.float64))
        own = (values, rows.weights, summary.chance(rows.Y), rows.fold)
        return cls(design, *own, totals, memory, objective)

    def renewed(self, found: tuple[Any, list[Drawn]], targets: Any, draw: Draw) -> HeldRows:
        """Return the rows that a pass has drawn, if any, in the same coordinates."""
        if not found[1]:
            return self
        rows, chance = draw.join(found[1])
        own = self.design.of_rows(rows.X), targets(rows.Y), rows.weights, chance, rows.fold
        return HeldRows(*own, self.totals, self.memory, self.objective)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}

    def weighted(self, fold: int) -> tuple[Design, Design, float]:
        """Return the held rows that count for a fold, weighted so as to stand for all that count.

        That is the design, the design in single precision (or the same), and the share: no row
        stands for more than 1 / share rows of its weight.
        """
        with _lock:
            if "light" not in self._made:
                single = self.design.holds_in(np.float32)
                self._made["light"] = self.design.astype(np.float32) if single else self.design
            if fold not in self._made:
                counts = np.ones(len(self.weight), np.bool_)
                if fold >= 0 and self.fold is not None:
                    counts = self.fold != fold
                # those that were drawn stand for all that are not there for certain
                drawn = counts & (self.chance < 1)
                stand = np.where(counts, self.weight / self.chance, 0.0)
                if drawn.any():
                    rest = float(self.totals[fold]) - float(self.weight[counts & ~drawn].sum())
                    stand[drawn] *= rest / float(stand[drawn].sum())
                share = float(np.min(self.weight[counts] / stand[counts], initial=1.0))
                stand = stand[:, None]
                designs = (replace(d, weight=stand) for d in (self.design, self._made["light"]))
                self._made[fold] = (*designs, share)
            made: tuple[Design, Design, float] = self._made[fold]
            return made

    def start(
        self, job: tuple[int, NDArray[np.intp], list[float]], *, learner: Any, mean: Array
    ) -> list[GroupState]:
        """Return the states of some problems before the first pass, at the optima of held rows.

        A job has a fold, the names of problems, and alphas; ``mean`` has the means of the targets
        over all rows, (M,).
        """
        fold, names, alphas = job
        design, separate = self.weighted(fold)[0], self.objective.separates_columns
        columns = self.targets[:, names] if separate else self.targets
        if fold >= 0 and self.fold is not None:
            outside = np.flatnonzero(self.fold != fold)
            design, columns = design.take(outside), columns[outside]
        problems = Problems(design, self.objective, sp.csc_array(columns), memory=self.memory)
        budget = np.full(len(names), learner.max_iter - 1)  # passes after the first
        floor = self.objective.floor(float(self.totals[fold]))
        states = []
        path = solve_path(problems, alphas, tol=START_TOL, max_iter=learner.max_iter)
        for alpha, solution in path:
            W = problems.expanded(solution, mean[names] if separate else mean)
            own = {"fold": fold, "alpha": alpha, "newton": np.zeros_like(W)}
            state = GroupState.start(names, W, budget, cautious=False, floor=floor, n_iter=0, **own)
            state.forget_pairs()
            state.curvature_sum = self._batch(state).evaluate(W).curvature_sum
            states.append(state)
        return states

    def _batch(self, state: GroupState) -> ProblemBatch:
        objective = self.objective.take(state.names)
        design, light, _ = self.weighted(state.fold)
        targets = objective.batch_targets(design, self.targets, state.names)
        return ProblemBatch(design, light, objective, targets, state.alpha)

    def accept(self, state: GroupState, found: Sums) -> tuple[Evaluation, NDArray[np.bool_]]:
        """Accept trials that are not far beyond the minimum, and no higher than before."""
        objective, design = self.objective.take(state.names), self.design
        alpha, (value, gradient, total) = max(state.alpha, objective.min_alpha), found
        penalty, W = design.penalty(alpha, objective.intercept_penalty), state.trial
        gradient = objective.project(design.from_centred(gradient, total) + penalty * W)
        value = value + 0.5 * state.dot(penalty * W, W)
        slope = state.dot(gradient, state.direction)
        slope = np.where(np.isfinite(slope), slope, np.inf)
        with np.errstate(all="ignore"):
            change, error = value - state.value, OBJECTIVE_ERROR * np.abs(state.value)
            good = self.rule.accepts(state.slope, slope, change, state.step, error)
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
        batch, share = self._batch(state), self.weighted(state.fold)[2]
        with np.errstate(all="ignore"):
            there = replace(batch.evaluate(at.W, state.cautious), gradient=at.gradient)
            kind = PRECONDITIONERS[batch.objective.preconditioners[0]]
            build = partial(kind.build, before=None, steps=None)
            if batch.width == 1 and len(at.W) <= MAX_ORDER:
                made = build(batch, there)
                found = _newton(batch, there, made, share * limit, state.cautious)
                own = np.where(batch.design.weight[:, 0] > 0, self.weight, 0.0)
                found.upper = bounds_of_gain(batch, own, there, found, limit)
            else:
                found, _ = certified(state, batch, there, limit, build, _newton, share)
        state.curvature_sum = there.curvature_sum
        state.pairs = state.pairs.copy()
        state.pairs[-1, 2] = state.newton - found.direction
        state.newton = found.direction
        finite = np.isfinite(found.direction).all(axis=0)
        found.abandoned = ~finite.reshape(len(state), -1).all(axis=1)
        found.direction = _corrected(state, at.gradient, found.direction)
        return found


def _newton(
    batch: ProblemBatch, at: Evaluation, made: Any, limit: Array, cautious: Array
) -> Directions:
    """Return Newton directions; where conjugate gradients fail, by factorised Hessians."""
    order = at.W.shape[0] * batch.width
    steps = max(MIN_CG_STEPS, order // 4) if order <= MAX_FACTORISED else 2 * order
    found = conjugate_gradients(batch, at, made, limit, cautious, steps, forcing=FORCING)
    hard = (found.upper > limit) & ((found.steps >= steps) | (found.lower <= limit)) & ~cautious
    if "factorised" not in batch.objective.preconditioners or order > MAX_FACTORISED:
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


@np.errstate(all="ignore")  # what is not finite is not used
def _corrected(state: GroupState, gradient: Array, newton: Array) -> Array:
    """Correct Newton directions by the two loops of limited-memory BFGS, unless slopes vanish."""
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
