"""All problems over rows that are not in memory: from the first pass to the models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from functools import partial
from numbers import Integral
from operator import add
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from fbeta._array import check_count, check_number
from fbeta._files import write_atomically
from fbeta.blocks.held import Draw, GroupState, HeldRows, Sums, TrialPoint, merge_points
from fbeta.blocks.passes import RowSource
from fbeta.blocks.summary import CheckedRows, Tally, random_bits
from fbeta.labels.forms import Indicator
from fbeta.linear.batch import take_problems
from fbeta.linear.design import check_squares
from fbeta.linear.driver import minimise, warn_not_converged
from fbeta.linear.learner import Model
from fbeta.linear.objectives import Objective, round_coefficients
from fbeta.linear.problems import BATCH_COLUMNS
from fbeta.statistics.codes import Code

WORKING_SHARE = 4  # a quarter of the memory is for work with the held rows
MAX_HELD_SHARE = 16  # at most one row in so many is held, unless these are too few
MIN_HELD_PER_FEATURE = 200  # held rows for each feature that are enough
MIN_HELD_ROWS = 10  # with fewer, folds could have none
MIN_SINGLE_TOL = 1e-7  # tolerance below which a pass is in double precision
REDRAW_AFTER = (2, 4, 8, 16, 32, 64)  # passes after which other rows are held
CURVATURE_MARGIN = 4  # times the curvature of all rows, as the held rows have it
# share of what may be left to gain that rounding in single precision may change an objective by
SINGLE_ERROR_SHARE = 0.01
MAX_SHUFFLED_ROWS = 1 << 26  # rows up to which folds are those of arrays
CHECKPOINT_VERSION = 3

Score = Callable[[Code, Model, CheckedRows], tuple[float, float]]


def scan(source: RowSource, learner: Any, make_code: Callable[[Indicator], Code]) -> None:
    """Make the first pass, if the learner and the code of an estimator can do with blocks."""
    trial = make_code(sp.csr_array(np.ones((1, source.form().n_labels), np.int8)))
    needed = (("learner", learner, "make_objective"), ("code", trial, "column_sums"))
    for role, part, name in needed:
        if not hasattr(part, name):
            raise TypeError(
                f"a fit to blocks of rows requires a {role} with {name}, and "
                f"{type(part).__name__} has none"
            )
    source.scan(by_size=trial.by_size)


class BlockProblems:
    """The problems of a code over the rows of a source, in ``cv`` folds where that is given."""

    def __init__(self, source: RowSource, code: Code, learner: Any, cv: Any = None) -> None:
        self.source, self.code, self.learner, self.summary = source, code, learner, source.summary
        summary, self.n_folds, self.used = source.summary, 0, 0
        limit = float(np.finfo(summary.dtype).max)
        check_squares(summary.max_abs, limit, (summary.n, summary.n_features))
        none = sp.csr_array((0, code.n_labels), dtype=np.int8)
        self.objective: Objective = learner.make_objective(code.targets(none))
        self.problem = self.distinct = np.arange(code.width())
        if self.objective.separates_columns:
            tally, sums = summary.tally, cast(Any, code).column_sums
            keys = np.stack([sums(tally.sizes, tally.keys[:, seed]) for seed in (0, 1)])
            _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
            order = np.argsort(first)
            self.problem, self.distinct = np.argsort(order)[which.reshape(-1)], first[order]
        self.targets = partial(distinct_targets, code=code, distinct=self.distinct)
        tallies = [summary.tally]
        if cv is not None:
            folds = deal_folds(source.n_rows(), cv)
            self.n_folds = int(folds.max()) + 1
            tallies = [*(summary.tally - own for own in source.deal(folds)), summary.tally]
        self.mean, self.constant = zip(*map(self._means, tallies), strict=True)
        if not summary.complete and summary.capacity < MIN_HELD_ROWS:
            words = f"memory is enough for {summary.capacity} rows beside the work with them"
            raise ValueError(f"{words}: at least {MIN_HELD_ROWS} are needed, give more")
        # work with more rows would take longer than the passes that it saves
        useful = max(summary.n // MAX_HELD_SHARE, MIN_HELD_PER_FEATURE * (summary.n_features + 1))
        self.capacity = summary.capacity if summary.complete else min(summary.capacity, useful)
        build = partial(
            HeldRows.of,
            capacity=self.capacity,
            targets=self.targets,
            objective=self.objective,
            intercept=learner.fit_intercept,
            memory=source.memory // WORKING_SHARE,
            totals=np.array([tally.total_weight for tally in tallies]),
        )
        self.design = source.hold(build)
        centre = 0.0 if self.design.mean is None else self.design.mean
        square = summary.squares - 2 * centre * summary.sums + summary.n * centre**2
        self.scale = np.sqrt(np.clip(square / summary.n, 0, None))  # spread of features, (d,)

    def _means(self, tally: Tally) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of each distinct target, and its value where it has only one."""
        code, own = cast(Any, self.code), self.distinct
        count = code.column_sums(tally.sizes, tally.counts)[own]
        weight = code.column_sums(tally.sizes, tally.weights)[own]
        n = int(tally.rows.sum())
        constant = np.where(count == 0, 0.0, np.where(count == n, 1.0, np.nan))
        if not (self.learner.fit_intercept and self.objective.separates_columns):
            constant = np.full(len(own), np.nan)
        return weight / max(tally.total_weight, 1e-300), constant

    def fit(self, alpha: Any, describe: Callable[[int], str] = str) -> Any:
        """Return the model of all rows; ``describe`` names targets in warnings."""
        alpha, path = check_number("alpha", alpha), self.source.checkpoint
        states = self._solve([-1], [alpha], path)
        model = self._model(states, -1, alpha, describe)
        if path is not None:
            for file in (path, f"{path}.search"):
                Path(file).unlink(missing_ok=True)
        return model

    def scores(self, alphas: Sequence[float], score: Score) -> NDArray[np.float64]:
        """Fit every alpha on every fold, and return its mean score on the rows held out.

        ``score`` goes from a code, a model and rows to the sum of their scores, and of their
        weights. The scores have the shape (number of alphas, number of folds).
        """
        folds = range(self.n_folds)
        path = None if self.source.checkpoint is None else f"{self.source.checkpoint}.search"
        states = self._solve(folds, alphas, path)
        models = {(f, a): self._model(states, f, a, str) for f in folds for a in alphas}
        code = self.code  # the work is sent to where the rows are, and these problems are not

        def work(rows: CheckedRows) -> NDArray[np.float64]:
            out = np.zeros((len(models), 2))
            for at, ((fold, _), model) in enumerate(models.items()):
                own = np.flatnonzero(rows.fold == fold)
                if len(own):
                    out[at] = score(code, model, rows.take(own))
            return out

        sums = self.source.fetch(np.asarray, self.source.total(work, add))
        means = sums[..., 0] / np.maximum(sums[..., 1], 1e-300)
        return np.asarray(means).reshape(self.n_folds, len(alphas)).T

    def _solve(self, folds: Sequence[int], alphas: Sequence[float], path: Any) -> list[GroupState]:
        """Solve for folds (-1 for all rows) and alphas; states of a pass are kept in a file."""
        n_folds = 0 if folds[0] < 0 else len(folds)
        fingerprint = self.summary.fingerprint() | {
            "the parameters": f"{self.learner!r} {list(alphas)} {n_folds}",
            "the code": f"{type(self.code).__name__} {self.code.cardinalities.tolist()}",
            "memory": str(self.summary.capacity),
        }
        if path is None or not Path(path).exists():
            states, self.used = self._start(folds, alphas), 0
        else:
            states, self.used = load_states(Path(path), fingerprint)

        def save(states: list[GroupState]) -> None:
            if path is not None:
                save_states(Path(path), states, fingerprint, self.used)

        return minimise(self.evaluate, self.source.each, states, self.learner.tol, save)

    def _start(self, folds: Sequence[int], alphas: Sequence[float]) -> list[GroupState]:
        """Solve the problems of the held rows, and make groups of all."""
        jobs = []
        for fold in folds:
            names = np.zeros(1, np.intp)  # the one problem
            if self.objective.separates_columns:
                names = np.flatnonzero(np.isnan(self.constant[fold]))
            jobs += [(fold, part, list(alphas)) for part in self._parts(names)]
        begin = partial(HeldRows.start, learner=self.learner, mean=self.mean[-1])
        return [state for states in self.source.each(begin, jobs) for state in states]

    def _parts(self, names: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Deal problems into groups that fit the memory, of like composition."""
        if not len(names):
            return []
        rows = min(self.summary.n, self.capacity)
        threads, p = self.source.n_workers, len(self.design.penalised)
        column = 8 * (7 * rows + 24 * p)
        memory = self.source.memory // WORKING_SHARE
        size = int(np.clip(memory // (threads * column), 1, BATCH_COLUMNS))
        count = min(len(names), threads * -(-len(names) // (threads * size)))
        order = names[np.argsort(-self.mean[-1][names], kind="stable")]
        return [order[i::count] for i in range(count)]

    def evaluate(self, states: Sequence[GroupState]) -> list[Sums]:
        """Add up over all rows, and draw other rows to be held in some passes."""
        self.source.n_open = sum(map(len, states))
        points, draw = [], None
        for state in states:
            coef, offset = self.design.centred_coefficients(state.trial)
            own = (self.objective.take(state.names), state.names, coef, offset)
            points.append(TrialPoint(*own, self.design.mean, state.curvature_sum, state.fold))
        if self.used in REDRAW_AFTER:
            # few rows make up the Hessian of a problem with rare targets: those with targets, and
            # those that look as if they had one
            for state in states:
                state.forget_pairs()
            half = min(self.capacity, self.summary.n) / 2
            draw = Draw(self.scale, half, half / self.summary.n, 100 + self.used)
        merged, places = merge_points(points)
        found = self.source.evaluate(self.targets, merged, self._dtype(states, points), draw)
        self.used += 1
        return [take_problems(found[at], part, len(found[at][0])) for at, part in places]

    def _dtype(self, states: Sequence[GroupState], points: Sequence[TrialPoint]) -> Any:
        """Return the type of a pass: single where neither X nor the certificates need more."""
        summary, tol, separate = self.summary, self.learner.tol, self.objective.separates_columns
        if not separate or summary.dtype != np.float32 or tol < MIN_SINGLE_TOL:
            return np.float64
        floor = self.objective.floor(summary.weight)
        eps = float(np.finfo(np.float32).eps)
        for state, point in zip(states, points, strict=True):
            size = np.sqrt((self.scale[:, None] ** 2 * point.coef**2).sum(axis=0))
            value = np.where(np.isfinite(state.value), state.value, 0)
            # by the held rows, and no more than it can be at all
            bend = np.minimum(CURVATURE_MARGIN * state.curvature_sum, 0.25 * summary.weight)
            # a change of all scores by delta changes an objective by half its curvature delta^2
            change = 0.5 * bend * (2 * eps * (size + np.abs(point.offset))) ** 2
            allowed = SINGLE_ERROR_SHARE * tol * state.spread(value + floor)
            if not (change <= allowed).all():
                return np.float64
        return np.float32

    def _model(
        self, states: Sequence[GroupState], fold: int, alpha: float, describe: Callable[[int], str]
    ) -> Any:
        """Return the models of a fold and an alpha, and warn of those that are not certified."""
        separate = self.objective.separates_columns
        m = len(self.distinct) if separate else 1
        W = np.zeros((len(self.design.penalised), len(self.distinct)))
        n_iter, converged = np.zeros(m, np.intp), np.ones(m, np.bool_)
        for state in states:
            if (state.fold, state.alpha) == (fold, alpha):
                for names, own, iterations, certified, _ in state.finished:
                    W[:, names if separate else slice(None)] = own
                    n_iter[names], converged[names] = iterations, certified
        where = "" if fold < 0 else f" in fold {fold}"
        if not converged.all():
            warn_not_converged(
                converged,
                lambda k: describe(int(np.argmax(self.problem == k))),
                "problems",
                f"{self.source.passes} passes at alpha = {alpha:g}{where}",
                "max_iter, memory or alpha",
                stacklevel=5,
            )
        limits = self.summary.dtype, self.summary.max_abs
        coef, offset = round_coefficients(*self.design.coefficients(W), *limits)
        objective: Any = copy(self.objective)
        if separate:
            objective.problem, objective.constant = self.problem, self.constant[fold]
        model = objective.model(coef, offset, n_iter, converged)
        return model.unfold() if self.learner.unfold else model


def distinct_targets(Y: Indicator, code: Code, distinct: NDArray[np.intp]) -> sp.csr_array:
    """Return the targets of label sets that differ from each other, (n, m)."""
    found = code.targets(Y)
    targets = getattr(found, "values", found)
    if len(distinct) < targets.shape[1]:
        targets = targets[:, distinct]
    return sp.csr_array(targets)


def deal_folds(n: int, cv: Any) -> NDArray[np.int16]:
    """Return the fold that holds each of n rows out: that of arrays where shuffling is cheap."""
    if not isinstance(cv, Integral):
        raise ValueError(f"for blocks of rows cv must be a number of folds, got {cv!r}")
    folds = check_count("cv", cv, low=2)
    if n > MAX_SHUFFLED_ROWS:
        return (random_bits(np.arange(n, dtype=np.uint64), 7) % np.uint64(folds)).astype(np.int16)
    out = np.zeros(n, np.int16)
    for fold, (_, test) in enumerate(KFold(folds, shuffle=True, random_state=0).split(out)):
        out[test] = fold
    return out


class CheckpointError(ValueError):
    """A file that is not the checkpoint of this fit."""


def load_states(path: Path, fingerprint: dict[str, str]) -> tuple[list[GroupState], int]:
    """Return states and number of passes of a fit that was killed; refuse those of another fit."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            head = json.loads(str(file["head"]))
            if head["version"] != CHECKPOINT_VERSION:
                raise ValueError(f"its version is {head['version']!r}")
            names, states = {f.name for f in fields(GroupState)} - {"finished", "pairs"}, []
            for group in range(head["groups"]):
                own = {name: file[f"{group}/{name}"] for name in names}
                own |= {name: own[name].item() for name in ("floor", "alpha", "fold")}
                finished = tuple(file[f"{group}/finished{k}"] for k in range(5))
                states.append(GroupState(**own, finished=[finished] if len(finished[0]) else []))
                states[-1].forget_pairs()
            found, used = head["fingerprint"], int(head["used"])
            differs = [name for name, own in fingerprint.items() if found[name] != own]
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise CheckpointError(f"{path} is no checkpoint of a fit: {error}") from error
    if differs:
        raise CheckpointError(
            f"{path} is the checkpoint of a fit to other data or with other settings "
            f"({', '.join(differs)} differ): remove it, or give another path"
        )
    return states, used


def save_states(
    path: Path, states: Sequence[GroupState], fingerprint: dict[str, str], used: int
) -> None:
    """Write the states of a fit, all at once."""
    head = {"version": CHECKPOINT_VERSION, "fingerprint": fingerprint, "used": used}
    arrays: dict[str, Any] = {"head": np.array(json.dumps(head | {"groups": len(states)}))}
    for number, state in enumerate(states):
        stored = {f.name: getattr(state, f.name) for f in fields(state)}
        none = (state.names[:0], state.W[:, :0], *[np.zeros(0, np.bool_)] * 3)
        del stored["pairs"]  # they belong to the Hessian of rows that may not be held any more
        pieces = stored.pop("finished") or [none]
        for k, parts in enumerate(zip(*pieces, strict=True)):
            stored[f"finished{k}"] = np.concatenate(parts, axis=-1)
        arrays |= {f"{number}/{name}": own for name, own in stored.items()}
    with write_atomically(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)
