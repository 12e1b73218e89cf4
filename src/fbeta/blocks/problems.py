"""All problems over rows that are not in memory: from the first pass to the models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta.blocks.checkpoint import Checkpoint
from fbeta.blocks.held import GroupState, HeldRows, trial_point
from fbeta.blocks.source import Layout, Pass, RowSource, folds_known, folds_of
from fbeta.blocks.summary import CheckedRows, Summary, Tally, random_bits
from fbeta.blocks.sums import Draw, MergedPoints, Sums, TrialPoint
from fbeta.linear.design import Design, check_squares, rotation_pays, round_coefficients
from fbeta.linear.driver import Evaluator, check_requirements, minimise, objective_floor
from fbeta.linear.driver import warn_if_not_converged as warn
from fbeta.linear.learner import SolverLearner
from fbeta.linear.models import LinearModel, LinearProbabilities
from fbeta.linear.objectives import Binary, Objective
from fbeta.linear.problems import BATCH_COLUMNS
from fbeta.statistics.codes import Code

__all__ = ["BlockProblems"]

WORKING_SHARE = 4  # a quarter of the memory is for work with the held rows
MAX_HELD_SHARE = 16  # at most one row in so many is held, unless these are too few
MIN_HELD_PER_FEATURE = 200  # held rows for each feature that are enough
MIN_SINGLE_TOL = 1e-7  # tolerance below which a pass is in double precision
REDRAW_AFTER = (2, 4, 8, 16, 32, 64)  # passes after which other rows are held
CURVATURE_MARGIN = 4  # times the curvature of all rows, as the held rows have it
# share of what may be left to gain that rounding in single precision may change an objective by
SINGLE_ERROR_SHARE = 0.01


class BlockProblems:
    """The problems of a code over the rows of a source, after its first pass.

    For cross-validation ``folds``, (n,), tells which fold holds each row out, and ``tallies`` are
    those of the rows that each fold holds out.
    """

    purpose = "a fit to blocks of rows"
    requires: ClassVar[dict[str, tuple[str, ...]]] = {
        "learner": ("make_objective", "problems_of"),
        "code": ("column_sums",),
    }

    def __init__(
        self,
        source: RowSource,
        summary: Summary,
        code: Code,
        learner: SolverLearner,
        folds: NDArray[Any] | None = None,
        tallies: Sequence[Tally] = (),
    ) -> None:
        check_requirements(type(self), learner=learner, code=code)
        limit = float(np.finfo(summary.dtype).max)
        check_squares(summary.max_abs, limit, (summary.n, summary.n_features))
        self.source, self.learner, self.folds = source, learner, folds
        none = sp.csr_array((0, code.n_labels), dtype=np.int8)
        self.objective: Objective = learner.make_objective(code.targets(none))
        self.problem = distinct = np.arange(code.width())
        if self.objective.separates_columns:
            self.problem, distinct = _distinct(code, summary.tally)
        self.layout = Layout(code, distinct)
        self.tallies = [*(summary.tally - own for own in tallies), summary.tally]
        self.mean, self.constant = zip(*map(self._means, self.tallies), strict=True)
        self.summary = summary = _useful(summary)
        build = partial(
            make_held_rows,
            summary=summary,
            layout=self.layout,
            objective=self.objective,
            intercept=learner.fit_intercept,
            memory=source.memory // WORKING_SHARE,
            totals=np.array([tally.total_weight for tally in self.tallies]),
        )
        self.design: Design
        self.design, self.scale = source.hold(build, folds)

    def _means(self, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of each distinct target, and its value where it has only one."""
        code: Any = self.layout.code
        own = self.layout.distinct
        count = code.column_sums(tally.sizes, tally.counts)[own]
        weight = code.column_sums(tally.sizes, tally.weights)[own]
        n = int(tally.rows.sum())
        constant = np.where(count == 0, 0.0, np.where(count == n, 1.0, np.nan))
        if not (self.learner.fit_intercept and self.objective.separates_columns):
            constant = np.full(len(own), np.nan)
        return weight / max(tally.total_weight, 1e-300), constant

    def solve(
        self, wanted: Sequence[tuple[int, float]], checkpoint: Checkpoint
    ) -> list[GroupState]:
        """Solve for some folds (-1 for all rows) and alphas, in passes that all of them share."""
        loaded = checkpoint.load()
        states, used = (self._start(wanted), 0) if loaded is None else loaded
        passes = _Passes(self, used)

        def save(states: list[GroupState]) -> None:
            checkpoint.save(states, passes.used)

        return minimise(passes, states, self.learner.tol, save)

    def _start(self, wanted: Sequence[tuple[int, float]]) -> list[GroupState]:
        """Solve the problems of the held rows, and make groups of all."""
        by_fold: dict[int, list[float]] = {}
        for fold, alpha in wanted:
            by_fold.setdefault(fold, []).append(alpha)
        jobs = []
        for fold, alphas in by_fold.items():
            names = np.zeros(1, np.intp)  # the one problem
            if self.objective.separates_columns:
                names = np.flatnonzero(np.isnan(self.constant[fold]))
            jobs += [(fold, part, alphas) for part in self._parts(names)]
        begin = partial(_begin, learner=self.learner, mean=self.mean[-1])
        return [state for states in self.source.each(begin, jobs) for state in states]

    def _parts(self, names: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Deal problems into groups that fit the memory, of like composition."""
        if not len(names):
            return []
        rows = min(self.summary.n, self.summary.capacity)
        threads, p = self.source.n_workers, len(self.design.penalised)
        column = 8 * (7 * rows + 24 * p)
        memory = self.source.memory // WORKING_SHARE
        size = int(np.clip(memory // (threads * column), 1, BATCH_COLUMNS))
        count = min(len(names), threads * -(-len(names) // (threads * size)))
        order = names[np.argsort(-self.mean[-1][names], kind="stable")]
        return [order[i::count] for i in range(count)]

    def model(
        self, states: Sequence[GroupState], fold: int, alpha: float, describe: Callable[[int], str]
    ) -> LinearProbabilities | LinearModel:
        """Return the models of a fold and an alpha, and warn of those that are not certified."""
        separate = self.objective.separates_columns
        m = len(self.layout.distinct) if separate else 1
        W = np.zeros((len(self.design.penalised), len(self.layout.distinct)))
        n_iter, converged = np.zeros(m, np.intp), np.ones(m, np.bool_)
        for state in states:
            if (state.fold, state.alpha) == (fold, alpha):
                for names, own, iterations, certified, _ in state.finished:
                    W[:, names if separate else slice(None)] = own
                    n_iter[names], converged[names] = iterations, certified
        where = "" if fold < 0 else f" in fold {fold}"
        warn(
            converged,
            lambda k: describe(int(np.argmax(self.problem == k))),
            "problems",
            f"{self.source.passes} passes at alpha = {alpha:g}{where}",
            "max_iter, memory or alpha",
            stacklevel=5,
        )
        coef, offset = self.design.coefficients(W)
        if separate:
            constant, loss = self.constant[fold], cast(Binary, self.objective).loss
            offset = np.where(np.isnan(constant), offset, loss.link(constant))
        summary = self.summary
        coef, offset = round_coefficients(coef, offset, summary.dtype, summary.max_abs)
        if not separate:
            return LinearModel(coef, offset, n_iter, converged, self.objective)
        model = LinearProbabilities(coef, offset, self.problem, n_iter, converged, loss)
        return model.unfold() if getattr(self.learner, "unfold", False) else model


def _begin(held: HeldRows, job: tuple[Any, ...], **settings: Any) -> list[GroupState]:
    return held.start(*job, **settings)


class _Passes(Evaluator):
    """Evaluates trial points in passes over all rows; ``used`` passes were made before."""

    def __init__(self, problems: BlockProblems, used: int) -> None:
        self.problems, self.source, self.used = problems, problems.source, used

    def evaluate(self, states: Sequence[GroupState]) -> list[Sums]:
        """Add up over all rows, and draw other rows to be held in some passes."""
        own = self.problems
        self.source.report(open=sum(map(len, states)))
        points = [trial_point(own.design, own.objective, state) for state in states]
        merged = MergedPoints(points)
        draw = self._draw(states, merged) if self.used in REDRAW_AFTER else None
        task = Pass(own.layout, merged.points, self._dtype(states, points), draw)
        found = self.source.evaluate(task, own.folds)
        self.used += 1
        return merged.split(found)

    def each(self, work: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Work with the held rows."""
        return self.source.each(work, items)

    def _draw(self, states: Sequence[GroupState], merged: MergedPoints) -> Draw:
        """Say which rows are to be held for the problems that are still active.

        Few rows make up the Hessian of a problem with rare targets: those with targets, and those
        that look as if they had one.
        """
        for state in states:
            state.forget_pairs()
        summary = self.problems.summary
        half = min(summary.capacity, summary.n) / 2
        totals = merged.join([state.curvature_sum for state in states])
        return Draw(totals, self.problems.scale, half, half / summary.n, 100 + self.used)

    def _dtype(self, states: Sequence[GroupState], points: Sequence[TrialPoint]) -> Any:
        """Return the type of a pass: single where neither X nor the certificates need more."""
        own, summary = self.problems, self.problems.summary
        tol, separate = own.learner.tol, own.objective.separates_columns
        if not separate or summary.dtype != np.float32 or tol < MIN_SINGLE_TOL:
            return np.float64
        floor = objective_floor(summary.weight, own.objective.null_loss)
        eps = float(np.finfo(np.float32).eps)
        for state, point in zip(states, points, strict=True):
            size = np.sqrt((own.scale[:, None] ** 2 * point.coef**2).sum(axis=0))
            value = np.where(np.isfinite(state.value), state.value, 0)
            # by the held rows, and no more than it can be at all
            bend = np.minimum(CURVATURE_MARGIN * state.curvature_sum, 0.25 * summary.weight)
            # a change of all scores by delta changes an objective by half its curvature delta^2
            change = 0.5 * bend * (2 * eps * (size + np.abs(point.offset))) ** 2
            allowed = SINGLE_ERROR_SHARE * tol * state.spread(value + floor)
            if not (change <= allowed).all():
                return np.float64
        return np.float32


def _distinct(code: Any, tally: Tally) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each target the distinct one it equals, and where each of these comes first."""
    keys = np.stack([code.column_sums(tally.sizes, key) for key in tally.keys])
    _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[which.reshape(-1)], first[order]


def _useful(summary: Summary) -> Summary:
    """Return a summary without its rows, and with the capacity that is fastest.

    Work with more rows would take longer than the passes that it saves.
    """
    enough = MIN_HELD_PER_FEATURE * (summary.n_features + 1)
    useful = max(summary.n // MAX_HELD_SHARE, enough)
    capacity = summary.capacity if summary.complete else min(summary.capacity, useful)
    return replace(summary, pieces=[], capacity=capacity)


def make_held_rows(
    rows: CheckedRows,
    *,
    summary: Summary,
    layout: Layout,
    objective: Objective,
    intercept: bool,
    folds: Any,
    totals: NDArray[np.float64],
    memory: int,
) -> HeldRows:
    """Bring the held rows into the coordinates in which the problems are solved."""
    drawn = random_bits(rows.ids) / 2.0**64 < summary.chance(rows.Y)
    rows = rows.take(np.flatnonzero(drawn)) if not drawn.all() else rows
    X = rows.X if sp.issparse(rows.X) else rows.X.astype(summary.dtype, copy=False)
    rotate = rotation_pays(X.shape, len(layout.distinct))
    design = Design.of(X, intercept=intercept, rotate=rotate, complete=True)
    mean = design.mean
    if mean is not None:
        # as many digits as X has: then differences to it are as exact as X
        mean = np.asarray(mean, summary.dtype).astype(np.float64)
        design = replace(design, mean=mean)
    if design.rotation is not None:
        design = replace(design, rotation=np.asarray(design.rotation, np.float64))
    centre = np.zeros(summary.n_features) if mean is None else mean
    square = summary.squares - 2 * centre * summary.sums + summary.n * centre**2
    scale = np.sqrt(np.clip(square / summary.n, 0, None))
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    fold = folds_of(folds, rows.ids) if folds_known(folds) else None
    own = (weight, summary.chance(rows.Y), fold)
    return HeldRows(design, layout.targets(rows.Y), *own, totals, memory, objective, scale)
