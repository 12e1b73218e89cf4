"""All problems over rows that are not in memory: from the first pass to the models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fbeta.blocks.checkpoint import Checkpoint
from fbeta.blocks.kernel import Draw, Merged, Sums
from fbeta.blocks.sample import (
    BinaryFamily,
    CardinalityFamily,
    Coordinates,
    Family,
    Sample,
    curvature,
)
from fbeta.blocks.scan import Rows, Summary
from fbeta.blocks.source import Layout, Source, folds_known, folds_of
from fbeta.blocks.steps import CERTIFIED, Group, State, advance, trial_point
from fbeta.blocks.tally import Tally, random_bits
from fbeta.linear.cardinality import Cardinality
from fbeta.linear.design import Design, round_coefficients
from fbeta.linear.models import LinearModel, LinearProbabilities
from fbeta.linear.problems import BATCH_COLUMNS as WIDTH
from fbeta.linear.rotation import rotation_pays
from fbeta.losses import Loss
from fbeta.statistics.codes import Code

__all__ = ["BlockProblems", "Settings"]

WORKING = 4  # the share of the memory that work with the rows held may use, one over it
USEFUL = 16  # rows for one that is held at most, unless that makes too few
ENOUGH = 200  # rows held for each feature
SINGLE = 1e-7  # tolerance below which a pass is in double precision
RENEWED = (2, 4, 8, 16, 32, 64)  # passes after which other rows are held
CAREFUL = 4  # times the curvature of all rows, as the rows held have it
FELT = 0.01  # share of what may be left to gain that rounding in single precision may hide


@dataclass(frozen=True)
class Settings:
    """How problems are solved, as for :func:`fbeta.linear.fit_linear`; without a loss, jointly."""

    loss: Loss | None
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100


class BlockProblems:
    """The binary problems of a code over the rows of a source.

    Parameters
    ----------
    source : Source
        After its first pass.
    summary : Summary
        What that found.
    code : Code
    settings : Settings
    folds : integer ndarray of shape (n,), optional
        For cross-validation: the fold that holds each row out, by its number.
    tallies : list of Tally
        Of the rows that each fold holds out.
    """

    def __init__(
        self,
        source: Source,
        summary: Summary,
        code: Code,
        settings: Settings,
        folds: NDArray[Any] | None = None,
        tallies: Sequence[Tally] = (),
    ) -> None:
        self.source, self.summary, self.settings = source, summary, settings
        _check_reach(summary)
        tally = summary.tally
        if settings.loss is None:
            self.problem = distinct = np.arange(code.width())
        else:
            self.problem, distinct = _distinct(code, tally)
        self.layout, self.folds = Layout(code, distinct), folds
        self.tallies = [*(tally - own for own in tallies), tally]
        self.mean, self.constant = zip(*map(self._means, self.tallies), strict=True)
        self.family: Family
        if settings.loss is not None:
            self.family = BinaryFamily(settings.loss, self.mean[-1])
        else:
            self.family = CardinalityFamily(code.n_labels, code.sizes)  # type: ignore[attr-defined]
        self.summary = summary = _useful(summary)
        build = partial(
            make_sample, summary=summary, layout=self.layout, settings=settings,
            totals=self._totals(), memory=source.memory // WORKING,
        )  # fmt: skip
        self.coordinates: Coordinates = source.hold(build, folds)

    def _means(self, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of each distinct target, and its value where it has only one."""
        code: Any = self.layout.code
        own = self.layout.distinct
        count = code.column_sums(tally.sizes, tally.counts)[own]
        weight = code.column_sums(tally.sizes, tally.weights)[own]
        n = int(tally.rows.sum())
        constant = np.where(count == 0, 0.0, np.where(count == n, 1.0, np.nan))
        if not self.settings.fit_intercept or self.settings.loss is None:
            constant = np.full(len(own), np.nan)
        return weight / max(_total_weight(tally), 1e-300), constant

    def _totals(self) -> NDArray[np.float64]:
        return np.array([_total_weight(tally) for tally in self.tallies])

    def solve(
        self, wanted: Sequence[tuple[int, float]], checkpoint: Checkpoint, start: Any = None
    ) -> list[State]:
        """Solve for some folds (-1 for all rows) and strengths, in passes that all of them share.

        Parameters
        ----------
        wanted : sequence of (fold, alpha)
        checkpoint : Checkpoint
            To go on from, and to write to.

        Returns
        -------
        list of State
            Of groups of problems.
        """
        loaded = checkpoint.load()
        used = 0
        if loaded is not None:
            states, notes = loaded
            used = int(notes["used"])
            for state in states:
                state.pairs = []  # of Hessians of rows that may not be held now
        else:
            states = self._start(wanted)
        step = partial(_step, family=self.family, tol=self.settings.tol)
        while used < self.settings.max_iter:
            places = [at for at, state in enumerate(states) if len(state.open)]
            if not places:
                break
            now = [states[at] for at in places]
            self.source.report(open=sum(len(state.open) for state in now))
            points = [trial_point(self.coordinates, self.family, state) for state in now]
            merged = Merged(points)
            draw = self._draw(now, merged, used) if used in RENEWED else None
            dtype = self._dtype(now, points)
            found = self.source.evaluate(self.layout, merged.points, dtype, self.folds, draw)
            sums = merged.split(found)
            moved = self.source.each(step, list(zip(now, sums, strict=True)))
            for at, state in zip(places, moved, strict=True):
                states[at] = state
            used += 1
            checkpoint.save(states, {"used": used})
        return states

    def _start(self, wanted: Sequence[tuple[int, float]]) -> list[State]:
        """Solve the problems of the rows held, and make groups of all."""
        by_fold: dict[int, list[float]] = {}
        for fold, alpha in wanted:
            by_fold.setdefault(fold, []).append(alpha)
        jobs = []
        for fold, alphas in by_fold.items():
            names = np.flatnonzero(np.isnan(self.constant[fold]))
            if self.settings.loss is None:
                names = np.zeros(1, np.intp)  # the one problem
            jobs += [(fold, alphas, part) for part in self._parts(names)]
        begin = partial(_begin, family=self.family, max_iter=self.settings.max_iter)
        found = self.source.each(begin, jobs)
        return [state for states in found for state in states]

    def _parts(self, names: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Deal problems into groups that fit the memory, of like composition."""
        if not len(names):
            return []
        rows = min(self.summary.n, self.summary.capacity)
        threads, p = self.source.lanes, len(self.coordinates.penalised)
        column = 8 * (7 * rows + 24 * p)
        size = int(np.clip(self.source.memory // WORKING // (threads * column), 1, WIDTH))
        count = min(len(names), threads * -(-len(names) // (threads * size)))
        order = names[np.argsort(-self.mean[-1][names], kind="stable")]
        return [order[i::count] for i in range(count)]

    def _draw(self, states: Sequence[State], merged: Merged, used: int) -> Draw:
        """Say which rows are to be held for the problems that are still open.

        Few rows make up the Hessian of a problem with rare targets: those with targets, and those
        that look as if they had one.
        """
        totals = []
        for state in states:
            width = state.W.shape[1] // len(state.group.names)
            totals.append(state.total[(state.open[:, None] * width + np.arange(width)).ravel()])
            state.pairs = []  # they belong to the Hessians of the rows that were held before
        half = min(self.summary.capacity, self.summary.n) / 2
        return Draw(
            merged.join(totals), self.coordinates.scale, half, half / self.summary.n, 100 + used
        )

    def _dtype(self, states: Sequence[State], points: Sequence[Any]) -> Any:
        """Return the type of a pass: single where neither X nor the certificates need more."""
        joint = self.settings.loss is None
        if joint or self.summary.dtype != np.float32 or self.settings.tol < SINGLE:
            return np.float64
        floor = self.family.floor(self.summary.weight)
        eps = float(np.finfo(np.float32).eps)
        for state, point in zip(states, points, strict=True):
            size = np.sqrt((self.coordinates.scale[:, None] ** 2 * point.coef**2).sum(axis=0))
            value = np.where(np.isfinite(state.value), state.value, 0)[state.open]
            width = point.coef.shape[1] // len(value)
            own = (state.open[:, None] * width + np.arange(width)).ravel()
            # by the rows held, and no more than it can be at all
            bend = np.minimum(CAREFUL * state.total[own], 0.25 * self.summary.weight)
            # a change of all scores by delta is felt as half the curvature times its square
            felt = 0.5 * bend * (2 * eps * (size + np.abs(point.offset))) ** 2
            allowed = FELT * self.settings.tol * np.repeat(value + floor, width)
            if not (felt <= allowed).all():
                return np.float64
        return np.float32

    def model(
        self, states: Sequence[State], fold: int, alpha: float, describe: Callable[[int], str]
    ) -> LinearProbabilities | LinearModel:
        """Return the models of a fold and a strength, and warn of those that are not certified."""
        columns, p = len(self.layout.distinct), len(self.coordinates.penalised)
        joint = self.settings.loss is None
        m = 1 if joint else columns
        W, n_iter = np.zeros((p, columns)), np.zeros(m, np.intp)
        converged = np.ones(m, np.bool_)
        for state in states:
            if (state.group.fold, state.group.alpha) == (fold, alpha):
                own = state.group.names
                W[:, slice(None) if joint else own], n_iter[own] = state.W, state.n_iter
                converged[own] = state.status == CERTIFIED
        self._warn(converged, fold, alpha, describe)
        coef, offset = self.coordinates.outward(W)
        if self.coordinates.mean is not None:
            offset = offset - self.coordinates.mean @ coef
        summary = self.summary
        if self.settings.loss is None:
            coef, offset = round_coefficients(coef, offset, summary.dtype, summary.reach)
            sizes = self.layout.code.sizes  # type: ignore[attr-defined]
            law = Cardinality(self.layout.code.n_labels, sizes)
            return LinearModel(coef, offset, n_iter, converged, law)
        constant = self.constant[fold]
        offset = np.where(np.isnan(constant), offset, self.settings.loss.link(constant))
        coef, offset = round_coefficients(coef, offset, summary.dtype, summary.reach)
        loss = self.settings.loss
        return LinearProbabilities(coef, offset, self.problem, n_iter, converged, loss)

    def _warn(
        self, converged: NDArray[Any], fold: int, alpha: float, describe: Callable[[int], str]
    ) -> None:
        failed = np.flatnonzero(~converged)
        if not len(failed):
            return
        names = [describe(int(np.argmax(self.problem == m))) for m in failed[:10]]
        where = "" if fold < 0 else f" in fold {fold}"
        warnings.warn(
            f"{len(failed)} of {len(converged)} problems did not converge in "
            f"{self.source.passes} passes at alpha = {alpha:g}{where} ({', '.join(names)}"
            f"{', ...' if len(failed) > 10 else ''}): increase max_iter, memory or alpha, or "
            "scale X",
            ConvergenceWarning,
            stacklevel=6,
        )


def _distinct(code: Any, tally: Tally) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each target the distinct one it equals, and where each of these comes first."""
    keys = np.stack([code.column_sums(tally.sizes, key) for key in tally.keys])
    _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[which.reshape(-1)], first[order]


def _total_weight(tally: Tally) -> float:
    """Return the weight of all rows: each label of a row is counted with it."""
    sizes = np.maximum(tally.sizes, 1)
    return float((tally.weights.sum(axis=1) / sizes).sum())


def _check_reach(summary: Summary) -> None:
    limit = float(np.finfo(summary.dtype).max)
    if summary.reach > (limit / max(1, summary.n * summary.n_features)) ** 0.5:
        raise ValueError(f"X has values up to {summary.reach:.1g}, whose squares overflow: scale X")


def _useful(summary: Summary) -> Summary:
    """Return a summary without its rows, and with a capacity that is worth its while.

    Work with more rows would take longer than the passes that it saves.
    """
    useful = max(summary.n // USEFUL, ENOUGH * (summary.n_features + 1))
    capacity = summary.capacity if summary.complete else min(summary.capacity, useful)
    return replace(summary, pieces=[], capacity=capacity)


def make_sample(
    rows: Rows,
    *,
    summary: Summary,
    layout: Layout,
    settings: Settings,
    folds: Any,
    totals: NDArray[np.float64],
    memory: int,
) -> Sample:
    """Bring the rows held into the coordinates in which the problems are solved."""
    drawn = random_bits(rows.ids) / 2.0**64 < summary.chance(rows.Y)
    rows = rows.take(np.flatnonzero(drawn)) if not drawn.all() else rows
    X = rows.X if sp.issparse(rows.X) else rows.X.astype(summary.dtype, copy=False)
    rotate = rotation_pays(X.shape, len(layout.distinct))
    design = Design.of(X, intercept=settings.fit_intercept, rotate=rotate, complete=True)
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
    return Sample(
        design, layout.targets(rows.Y), weight, summary.chance(rows.Y), fold, totals, memory,
        Coordinates.of(design, scale),
    )  # fmt: skip


def _begin(
    sample: Sample, job: tuple[int, list[float], Any], family: Family, max_iter: int
) -> list[State]:
    """Return the states of some problems before the first pass, for each strength."""
    fold, alphas, names = job
    starts = family.start(sample.outside(fold), names, alphas, max_iter)
    held, states = sample.held(fold), []
    for alpha in alphas:
        state = State.at(Group(fold, alpha, names), starts[alpha], np.zeros(len(names), np.bool_))
        state.total = curvature(held, family.objective(names), names, alpha, state.W)
        states.append(state)
    return states


def _step(sample: Sample, item: tuple[State, Sums], family: Family, tol: float) -> State:
    state, sums = item
    return advance(sample, family, state, sums, tol)
