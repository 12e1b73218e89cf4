"""The search for an average of label statistics: what to try next, when to end, which weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import is_accelerator, is_tensor, namespace_and_device
from fbeta._threads import check_cancelled, periodic_check
from fbeta.estimators import members
from fbeta.estimators.average import AverageModel, Clock, Progress, Report
from fbeta.estimators.folds import ALPHAS
from fbeta.estimators.members import Candidate, Trial, at_most, evenly_spaced, fit_member
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import take_rows
from fbeta.statistics import LabelStatistics, observed_cardinalities
from fbeta.statistics.codes import LabelSetCode

__all__ = ["BOOSTED", "FEW_ROWS", "JOINT", "LINEAR_NAMES", "QUICK", "RAW", "Search"]

Pair: TypeAlias = tuple[str, str]  # names of a map and of a model

RAW = "raw"  # the map that only fills gaps
QUICK = "sized"  # the model that every map is tried with first: the fewest problems
JOINT = "joint"  # the paper's model
# linear models that take tens of times as long as the others: the last to be tried
SLOW_NAMES = ("label sets", "cardinality")
LINEAR_NAMES = (QUICK, JOINT, *SLOW_NAMES)
FOREST_NAMES = ("forest, leaves of 1", "forest, leaves of 3")
BOOSTED = "boosted trees"
# share of the time limit after which nothing new is begun
TRIALS_SHARE = 0.9
# share of the time left that a candidate of unknown cost may take before it is ended
CANDIDATE_SHARE = 0.6
# expected score below the best by which a candidate is tried at least: it may add to an average
MAX_SHORTFALL = 0.05
# gain of the average that counts, and candidates without one after which the search ends
MIN_GAIN, PATIENCE = 5e-4, 10
FEW_ROWS = 200  # below, noise hides small gains: fewer maps, alphas, trees and candidates
MAX_MODEL_BYTES = 1 << 30  # of the coefficients of a model that is tried
PILOT_ROWS = 2000  # of the first model, where there are more and time is short
QUICK_SHARE = 0.06  # of the time limit that the quickest model may take on all folds
WIDTH_POWER = 0.7  # of the number of columns in the time of a model
ROWS_POWER = 0.1  # of the number of rows in the time of a fit for each row: more leave the caches
JOINT_SHARE = 0.5  # of the time of a problem of the quickest model that one of the paper's takes
PROBE_ALPHAS = 6.0  # alphas of a path, about, each of which takes as long as a probe
ALPHA_SHARE = 0.25  # of the time of a path that the fit with the best alpha takes, at most
# of the time limit that a probe may take; on accelerators the first one compiles kernels
PROBE_SHARE, PROBE_SHARE_ACCELERATOR = 0.03, 0.15
ACCELERATOR_ROWS = 30_000  # fewer rows take as long on accelerators
# share of the time limit that a forest may take; with fewer trees if need be, but no fewer than so
FOREST_SHARE, MIN_TREES = 0.15, 50
# the same for columns of a kernel over dense rows; what takes longer is tried after the forests
KERNEL_SHARE, MIN_LANDMARKS = 0.2, 300
KERNELS_SHARE = 0.4  # of the time limit that all kernels may take, by the number of their columns
LATE_SHARE = 0.8  # of the time left that such a kernel may take, with fewer columns if need be
EARLY_SHARE = 0.05  # of the time limit: if it takes less, the paper's model comes before other maps
ONE_KIND_SHARE = 0.45  # of the time limit that neighbours or boosting may take
# trees of a forest, and of boosting, that predict its time; the others take as long
PROBE_TREES, PROBE_ROUNDS = 4, 20
PROBE_ROWS, MIN_PROBED_ROWS = 400, 500  # rows that predict the time of a model; rows that need it


@dataclass
class Search:
    """Tries pairs of a feature map and a model on one set of folds, and averages what did well."""

    X: Any
    trial: Trial
    clock: Clock
    report: Report
    maps: dict[str, Any]
    models: dict[str, Any]
    alphas: Any = ALPHAS
    kinds: bool = False  # whether independent labels are tried by the marginals of sized models
    refine: bool = False  # whether half decades are tried, of models that take little time
    fewer_folds: bool = False  # whether time may be too short for all of the folds
    found: dict[Pair, list[Candidate]] = field(default_factory=dict)
    failed: dict[Pair, str] = field(default_factory=dict)
    seen: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # the features of the last map
    gram: Any = None  # products of the candidates so far, of Trial.weights
    expected: dict[str, float] = field(default_factory=dict)  # seconds of models, by probes
    fallback: Search | None = None  # of some rows, where there are many

    @property
    def candidates(self) -> list[Candidate]:
        """Everything that has a score."""
        return [candidate for some in self.found.values() for candidate in some]

    def _pairs(self) -> list[Pair]:
        return [pair for pair, some in self.found.items() for _ in some]

    def run(self, pairs: Iterable[Pair] | None = None, keep_errors: bool = False) -> AverageModel:
        """Try pairs, by default what is worth it in the time there is, and fit the average."""
        with warnings.catch_warnings():
            # a candidate that did not converge is still scored
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                if pairs is None and self.clock.limit and self.trial.Y.shape[0] > PILOT_ROWS:
                    self._pilot()
                for pair in self._order() if pairs is None else pairs:
                    if not self._try(pair, keep_errors):
                        break
            except KeyboardInterrupt:
                if not self.found:
                    raise
                self._tell("search", "stopped", "interrupted: the best average so far is fitted")
            return self.average()

    def _tell(self, name: str, event: str, detail: str = "", score: float | None = None) -> None:
        best, clock = max((c.score for c in self.candidates), default=None), self.clock
        self.report(Progress(name, event, score, best, clock.elapsed, clock.limit, detail))

    def _pilot(self) -> None:
        """Try a first model that is not too large on some rows, and see how many can be used."""
        small, trial, limit = self._part(PILOT_ROWS), self.trial, self.clock.limit or np.inf
        try:
            next(name for name in self.maps if small._try((name, QUICK)) and small.found)
        except (ValueError, StopIteration):
            return
        self.fallback, quick = small, small.candidates[0]
        (some, held), (train, test) = small.trial.folds[0], trial.folds[0]
        share = 1.0 if self._on_accelerator else len(train) / len(some)
        # fits take time by their rows, and decoding by the rows that are held out
        fits = max(1e-9, share * quick.path_seconds)
        reads = len(test) / len(held) * (quick.seconds - quick.path_seconds)
        left = CANDIDATE_SHARE * (self._end_of_trials() - self.clock.elapsed) - reads
        count, folds = QUICK_SHARE * limit / max(1e-9, share * quick.seconds), trial.folds
        if self.fewer_folds and count < len(folds):
            folds = folds[: max(1, int(count))]
        most = max(PILOT_ROWS, int(min(1.0, left / fits) * len(train)))
        if self.fewer_folds and len(folds) == 1 and most < len(train):
            folds = [(train[evenly_spaced(len(train), most)], test)]
            fits *= most / len(train)
        self.trial = replace(trial, folds=folds)
        self.expected[QUICK] = len(folds) * (fits + reads)

    @property
    def _on_accelerator(self) -> bool:
        return is_tensor(self.X) and is_accelerator(self.X.device)

    def _part(self, count: int) -> Search:
        """Return the same search over evenly spaced rows, of which up to half are held out."""
        rows, clock = evenly_spaced(self.trial.Y.shape[0], count), Clock(self.clock.now)
        X, trial = take_rows(self.X, rows), self.trial.take(rows)
        nothing: dict[Any, Any] = {"found": {}, "failed": {}, "seen": {}, "gram": None}
        return replace(self, X=X, trial=trial, clock=clock, report=lambda event: None, **nothing)

    def _order(self) -> Iterator[Pair]:
        """Yield pairs, by what is known when the next is asked for; the cheap ones first."""
        yield (next(iter(self.maps)), QUICK)
        built_in = {"neighbours", BOOSTED, *LINEAR_NAMES, *FOREST_NAMES}
        yield from ((RAW, name) for name in self.models if name not in built_in)
        if 0 < self._seconds((RAW, JOINT)) <= EARLY_SHARE * (self.clock.limit or 0):
            yield (RAW, JOINT)
        self._limit_landmarks()
        quick = [(name, QUICK) for name in sorted(self.maps, key=self._width)]
        late = [p for p in quick if self._seconds(p) > KERNEL_SHARE * (self.clock.limit or np.inf)]
        yield from (pair for pair in quick if pair not in late)
        scaled = next((m for m in ("standardised", "TF-IDF", "length 1") if m in self.maps), RAW)
        # every kind of model once: one that is behind alone may still add to the average
        trees = ((RAW, name) for name in (*FOREST_NAMES, BOOSTED))
        once = [(scaled, "neighbours"), *trees, *late]
        for pair in (some for some in once if some[1] in self.models):
            if pair[1] in FOREST_NAMES:
                self._limit_trees(pair)
            elif pair in late:
                self._limit_late_kernel(pair)
            elif self._seconds(pair) > ONE_KIND_SHARE * (self.clock.limit or np.inf):
                self._leave_out(pair, "it would take too long")
            yield pair
        best = max(self.maps, key=lambda name: self._score((name, QUICK)))
        yield from [(RAW, JOINT), *((best, name) for name in (JOINT, *SLOW_NAMES))]
        if self.trial.Y.shape[0] >= FEW_ROWS:
            yield from self._while_it_gains(best)

    def _limit_landmarks(self) -> None:
        """Take fewer columns of kernels where a model over them would take too long."""
        quick = next((pair for pair in self.found if pair[1] == QUICK), None)
        many = self.trial.Y.shape[0] >= MIN_PROBED_ROWS and not hasattr(self.X, "nnz")
        if quick and many and self.clock.limit:
            kernels = max(1, sum(self._landmarks(name) is not None for name in self.maps))
            share = KERNELS_SHARE / kernels * self.clock.limit / max(self._spent(quick), 1e-9)
            most = max(MIN_LANDMARKS, int(share * self._width(quick[0])))
            self.maps = {name: at_most(m, "n_components", most) for name, m in self.maps.items()}

    def _limit_late_kernel(self, pair: Pair) -> None:
        """Take fewer columns of a kernel that would not be ready in the time left."""
        left = max(0.0, self._end_of_trials() - self.clock.elapsed)
        share, columns = LATE_SHARE * left / self._seconds(pair), self._landmarks(pair[0])
        if columns and share < 1:
            most = max(MIN_LANDMARKS, int(columns * share ** (1 / WIDTH_POWER)))
            mapping = at_most(self.maps[pair[0]], "n_components", most)
            self.maps = {**self.maps, pair[0]: mapping}

    def _limit_trees(self, pair: Pair) -> None:
        """Take fewer trees where a forest would take too long: they are nearly as good."""
        seconds, model = self._seconds(pair), self.models[pair[1]]
        share = FOREST_SHARE * (self.clock.limit or np.inf) / max(seconds, 1e-9)
        if share < 1 and np.isfinite(seconds):
            trees = max(MIN_TREES, int(share * model.n_estimators))
            self.expected[pair[1]] *= trees / model.n_estimators
            self.models = {**self.models, pair[1]: at_most(model, "n_estimators", trees)}

    def _while_it_gains(self, best: str) -> Iterator[Pair]:
        """Yield what may be near the top, by its gain in a second, until the average idles."""
        n, idle = self.trial.Y.shape[0], 0
        top = max((c.score for c in self.candidates), default=0.0)
        rest = [(name, model) for name in self.maps for model in LINEAR_NAMES]
        new = [p for p in rest if p not in self.found and p not in self.failed]
        # what a model adds over one map it adds over others; unknown scores are minus infinity
        added = {m: self._score((best, m)) - self._score((best, QUICK)) for m in LINEAR_NAMES}
        # three standard errors of a score, about, are the square root of 1 / n
        least = top - max(MAX_SHORTFALL, n**-0.5)
        gain = {p: self._score((p[0], QUICK)) + added[p[1]] - least for p in new}
        hopeful = [p for p in new if gain[p] > 0]
        reached = self.weights()[1] if hopeful else 0.0
        for pair in sorted(hopeful, key=lambda p: (0.01 + self._seconds(p)) / gain[p]):
            if idle >= PATIENCE:
                return
            yield pair
            if pair in self.found:
                score = self.weights()[1]
                idle = 0 if score > reached + MIN_GAIN else idle + 1
                reached = max(score, reached)

    def _spent(self, pair: Pair) -> float:
        return sum(candidate.seconds for candidate in self.found[pair])

    def _score(self, pair: Pair) -> float:
        return max((c.score for c in self.found.get(pair, ())), default=-np.inf)

    def weights(self) -> tuple[NDArray[np.float64], float]:
        """Return the weights of all candidates, and the F_beta of their average."""
        weights, score, self.gram = self.trial.weights(self.candidates, self.gram)
        return weights, score

    def _seconds(self, pair: Pair) -> float:
        """Return the expected time of a pair: by another map, by QUICK (JOINT), or by a probe."""
        name, model = pair
        if self.trial.Y.shape[0] < MIN_PROBED_ROWS or self.clock.limit is None:
            return 0.0
        for known in (JOINT, QUICK) if model == JOINT else (model,):
            for base in (pair for pair in self.found if pair[1] == known):
                share = (self._width(name) / self._width(base[0])) ** WIDTH_POWER
                if known != model:
                    share *= JOINT_SHARE * self._problems(model) / self._problems(known)
                return float(self._spent(base) * share)
        if model not in self.expected:
            self.expected[model] = self._probe(pair)
        return self.expected[model]

    def _landmarks(self, name: str) -> int | None:
        """Return the columns that the kernel of a map makes, None without a kernel."""
        return next((s.n_components for s in self.maps[name] if hasattr(s, "n_components")), None)

    def _width(self, name: str) -> float:
        """Return the columns of the features of a map; the stored numbers of a row if sparse."""
        n, d = self.X.shape
        return float(self._landmarks(name) or (self.X.nnz / n if hasattr(self.X, "nnz") else d))

    def _probe(self, pair: Pair) -> float:
        """Return the seconds that a pair will take, by those of a fit to a few rows."""
        model, small = self.models[pair[1]], self._part(PROBE_ROWS)
        repeats = PROBE_ALPHAS if hasattr(model, "alpha") else 1.0
        mapping = at_most(self.maps[pair[0]], "n_components", PROBE_ROWS)
        trees = [n for key, n in model.get_params().items() if key.endswith("n_estimators")]
        if trees:  # all trees take the same time: a few of them, on all rows of a fold
            count = PROBE_ROUNDS if pair[1] == BOOSTED else PROBE_TREES
            model, repeats = at_most(model, "n_estimators", count), max(1.0, trees[0] / count)
            one = replace(self.trial, folds=self.trial.folds[:1])
            small, mapping = replace(small, X=self.X, trial=one, seen=self.seen), self.maps[pair[0]]
        small.maps = {pair[0]: mapping}
        begin = self.clock.now()
        most = PROBE_SHARE_ACCELERATOR if self._on_accelerator else PROBE_SHARE
        small.clock.deadline = most * float(self.clock.limit or np.inf)
        try:
            with periodic_check(small.clock.check):
                small.trial.try_out("", model, small._features(pair[0])[1], (1.0,))
        except (TimeoutError, ValueError, ArithmeticError, MemoryError):
            return np.inf
        trained = sum(len(train) for train, _ in self.trial.folds)
        share = trained / len(small.trial.folds[0][0])
        if self._on_accelerator:
            share = max(1.0, trained / ACCELERATOR_ROWS)
        if pair[1] == "label sets":  # every row has a score for each of them
            all_sets, some = (LabelSetCode.of(t.Y).sets for t in (self.trial, small.trial))
            share *= all_sets.shape[0] / some.shape[0]
        return repeats * (self.clock.now() - begin) * share

    def _refits(self, places: Iterable[int], n: int) -> float:
        """Return the expected seconds of fits of some candidates to n rows."""
        pairs, fits = self._pairs(), dict[Any, float]()
        for i in places:
            # one fit serves both kinds of a model without alphas
            kind = i if hasattr(self.candidates[i].estimator, "alpha") else -1
            fits[kind, pairs[i]] = self.candidates[i].row_seconds
        return float(sum(fits.values()) * n * (n / len(self.trial.folds[0][0])) ** ROWS_POWER)

    def _scored(self) -> Search:
        return self if self.found or self.fallback is None else self.fallback

    def _end_of_trials(self) -> float:
        """Return when the fits to all rows have to begin, by what those of the best will take."""
        limit, own = self.clock.limit or np.inf, self._scored()
        best = np.argsort([-c.score for c in own.candidates])[: 6 if own is self else 1]
        return float(min(TRIALS_SHARE * limit, limit - own._refits(best, self.trial.Y.shape[0])))

    def _bytes(self, pair: Pair) -> float:
        """Return the size of the coefficients of a linear model over a map, about."""
        sparse = getattr(self.models[pair[1]], "max_listed", None) is not None
        if sparse or pair[1] not in LINEAR_NAMES or self.maps[pair[0]] is None:
            return 0.0
        return 8.0 * (self._landmarks(pair[0]) or self.X.shape[1]) * self._problems(pair[1])

    def _problems(self, model: str) -> int:
        """Return the number of coefficient vectors of a linear model, at most."""
        s, K = self.trial.Y.shape[1], max(1, len(observed_cardinalities(self.trial.Y)))
        return int({JOINT: 1 + K * s, "label sets": s}.get(model, s + K))

    def _leave_out(self, pair: Pair, why: str) -> bool:
        self.failed[pair] = why
        self._tell(": ".join(filter(None, pair)), "left out", why)
        return True

    def _try(self, pair: Pair, keep_errors: bool = False) -> bool:
        """Try a pair that has not been tried, and tell whether there is time for more."""
        if pair in self.found or pair in self.failed or pair[1] not in self.models:
            return True
        if self._bytes(pair) > MAX_MODEL_BYTES:
            return self._leave_out(pair, "its coefficients would need too much memory")
        # something has to be there in the end, however short the time
        safe = bool(self.found) or self.fallback is not None
        end = self._end_of_trials() if safe else np.inf
        if self.clock.elapsed >= end:
            return False
        expected = self._seconds(pair) if self.found else self.expected.get(pair[1], 0.0)
        left = end - self.clock.elapsed
        trained = sum(len(train) for train, _ in self.trial.folds)
        refit = ALPHA_SHARE if hasattr(self.models[pair[1]], "alpha") else 1.0
        refit *= members.REFIT_MARGIN * self.trial.Y.shape[0] / trained
        if expected * (1 + refit if self.found else CANDIDATE_SHARE) > left:
            return self._leave_out(pair, "it would take too long") and bool(self.found)
        share = max(CANDIDATE_SHARE * left, min(left, 1.5 * expected)) if self.found else left
        self.clock.deadline = self.clock.elapsed + share
        name = ": ".join(filter(None, pair))
        self._tell(name, "begin")
        try:
            with periodic_check(self.clock.check):
                check_cancelled()
                model, Z = self.models[pair[1]], self._features(pair[0])[1]
                alphas = self.alphas if hasattr(model, "alpha") else None
                more = {"kinds": self.kinds, "refine": self.refine and pair[1] not in SLOW_NAMES}
                some = self.trial.try_out(name, model, Z, alphas, **more)
        except TimeoutError:
            return self._leave_out(pair, "it took too long") and self.clock.elapsed < end
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
            if keep_errors or not safe:
                raise
            return self._leave_out(pair, str(error))
        self.found[pair] = some
        for candidate in some:
            self._tell(candidate.name, "scored", score=candidate.score)
        return True

    def _features(self, name: str) -> tuple[Any, Any]:
        """Return the fitted map of a name, and the features it makes; the last are remembered."""
        if self.maps[name] is None:
            return None, self.X
        if name not in self.seen:
            mapping = clone(self.maps[name])
            weights, weight = {}, self.trial.weight
            if weight is not None and "standardscaler" in mapping.named_steps:
                xp, device = namespace_and_device(X=self.X)
                weights["standardscaler__sample_weight"] = xp.asarray(weight, device=device)
            self.seen.clear()
            self.seen[name] = (mapping, mapping.fit_transform(self.X, **weights))
        return self.seen[name]

    def average(self) -> AverageModel:
        """Choose weights, and fit what has one to all rows, or to those that there is time for."""
        own, n, limit = self._scored(), self.trial.Y.shape[0], self.clock.limit or np.inf
        left, seconds = limit - self.clock.elapsed, lambda some: own._refits(some, n)
        weights = members.affordable(own.weights()[0], seconds, left)
        mixture = LabelStatistics.mixture([c.statistics for c in own.candidates], weights)
        calibration, score = own.trial.calibration(mixture)
        board = members.leaderboard(own.candidates, weights)
        names = [pair[0] for pair in own._pairs()]
        chosen = sorted(np.flatnonzero(weights).tolist(), key=lambda i: names[i])
        maps, fits, Y = self._fit_members(chosen, weights)
        places = [list(maps).index(names[i]) for i in chosen]
        fitted = list(maps.values()), fits, places, [float(weights[i]) for i in chosen]
        return AverageModel(*fitted, calibration, score, board, observed_cardinalities(Y))

    def _fit_members(
        self, chosen: list[int], weights: NDArray[np.float64]
    ) -> tuple[dict[str, Any], list[Any], Indicator]:
        """Return the maps and models of candidates, and the labels of the rows of their fits."""
        own, n, limit = self._scored(), self.trial.Y.shape[0], self.clock.limit or np.inf
        share = (limit - self.clock.elapsed) / max(own._refits(chosen, n), 1e-9)
        most = max(PILOT_ROWS, int(min(1.0, share) * n))
        rows = evenly_spaced(n, most) if most < n else None
        trial = self.trial if rows is None else self.trial.take(rows)
        pairs, maps, fits, fitted = own._pairs(), {}, list[Any](), dict[Pair, Any]()
        for i in chosen:
            maps[pairs[i][0]], Z = self._features(pairs[i][0])
            words = f"to {f'{most} of {n}' if most < n else 'all'} rows, weight {weights[i]:.2f}"
            self._tell(own.candidates[i].name, "fit", words)
            Z, one = Z if rows is None else take_rows(Z, rows), fitted.get(pairs[i])
            member = fit_member(own.candidates[i].estimator, Z, trial.Y, trial.weight, one)
            fitted[pairs[i]] = member
            fits.append(member)
        return maps, fits, trial.Y
