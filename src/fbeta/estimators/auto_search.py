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
from fbeta.estimators import average, members
from fbeta.estimators.average import AverageModel, Clock, Progress, Report
from fbeta.estimators.folds import ALPHAS
from fbeta.estimators.members import Candidate, Trial, at_most, evenly_spaced
from fbeta.linear.learner import take_rows
from fbeta.statistics import observed_cardinalities

Pair: TypeAlias = tuple[str, str]  # names of a map and of a model

RAW = "raw"  # the map that only fills gaps
QUICK = "sized"  # the model that every map is tried with first: the fewest problems
JOINT, SLOW_NAMES = "joint", ("label sets", "cardinality")  # the paper's; linear, the last to try
LINEAR_NAMES = (QUICK, JOINT, *SLOW_NAMES)
FOREST_NAMES = ("forest, random splits", "forest, best splits")
BOOSTED_NAMES = ("few boosted trees", "boosted trees, best splits", "boosted trees, random splits")
NEIGHBOUR_NAMES = ("neighbours", "five neighbours")
BUILT_IN = {*BOOSTED_NAMES, *NEIGHBOUR_NAMES, *LINEAR_NAMES, *FOREST_NAMES}
TRIALS_SHARE = 0.9  # of the time limit, after which nothing new is begun
CANDIDATE_SHARE = 0.6  # of the time left that a candidate of unknown cost may take
MAX_SHORTFALL = 0.05  # expected, of a score, with which a candidate may still add to an average
MIN_GAIN, PATIENCE = 5e-4, 10  # gain of the average that counts; candidates without that end it
FEW_ROWS = 200  # below, noise hides small gains: fewer maps, alphas, trees and candidates
MAX_MODEL_BYTES = 1 << 30  # of the coefficients of a model that is tried
PILOT_ROWS = 2000  # of the first model, where there are more and time is short
QUICK_SHARE = 0.06  # of the time limit that the quickest model may take on all folds
# of the number of columns in the time of a model, and of one of a kernel of many rows with its map
WIDTH_POWER, KERNEL_POWER = 0.7, 1.5
# of the time limit, until which maps are tried on some rows; that the first trial may take
PILOTS_SHARE, FIRST_SHARE = 0.1, 0.35
ROWS_POWER = 0.1  # of the number of rows in the time of a fit for each row: more leave the caches
JOINT_SHARE = 0.5  # of the time of a problem of the quickest model that one of the paper's takes
ALPHA_SHARE = 0.25  # of the time of a path that the fit with the best alpha takes, at most
# share of the time limit that trees may take; with fewer of them if need be, but no fewer than so
TREES_SHARES = {**dict.fromkeys(FOREST_NAMES, 0.15), **dict.fromkeys(BOOSTED_NAMES, 0.2)}
MIN_TREES, PROBE_TREES = 50, dict.fromkeys(FOREST_NAMES, 4) | dict.fromkeys(BOOSTED_NAMES, 20)
KERNEL_SHARE, MIN_LANDMARKS = 0.2, 300  # of a kernel; what takes longer is tried last
KERNELS_SHARE = 0.4  # of the time limit that all kernels may take, by the number of their columns
LATE_SHARE = 0.8  # of the time left that such a kernel may take, with fewer columns if need be
EARLY_SHARE = 0.05  # of the time limit: if it takes less, the paper's model comes before other maps
KIND_SHARE = 0.45  # of the time limit that each model of neighbours or boosting may take
MIN_PROBED_ROWS = 500  # rows of data whose models without trees have an expected time


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
    seen: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # of the last map and the best
    map_seconds: dict[str, float] = field(default_factory=dict)  # of the features of a map
    gram: Any = None  # products of the candidates so far, of Trial.weights
    expected: dict[str, float] = field(default_factory=dict)  # seconds of models, by probes
    fallback: Search | None = None  # of some rows, where there are many
    narrow: bool = False  # whether that one chooses alphas and the first map: X is large

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
        small, trial, limit = self.part(PILOT_ROWS), self.trial, self.clock.limit or np.inf
        few = {name: at_most(m, "n_components", MIN_LANDMARKS) for name, m in self.maps.items()}
        small, pairs = replace(small, clock=self.clock, maps=few), [(m, QUICK) for m in self.maps]
        try:
            first = next(pair for pair in pairs if small._try(pair) and small.found)
        except (ValueError, StopIteration):
            return
        self.fallback, quick = small, small.candidates[0]
        self.narrow = self.fewer_folds and len(trial.folds) == 1 and not self.on_accelerator
        (some, _), (train, test) = small.trial.folds[0], trial.folds[0]
        seconds = quick.seconds * (1.0 if self.on_accelerator else len(train) / len(some))
        count, folds = QUICK_SHARE * limit / max(1e-9, seconds), trial.folds
        if self.fewer_folds and count < len(folds):
            folds = folds[: max(1, int(count))]
        self.trial = replace(trial, folds=folds)
        seconds = max(1e-9, self._by_pilot(first) if self.narrow else seconds)
        share = CANDIDATE_SHARE * (self._end_of_trials() - self.clock.elapsed) / seconds
        most = max(PILOT_ROWS, int(min(1.0, share) * len(train)))
        if self.fewer_folds and len(folds) == 1 and most < len(train):
            self.trial = replace(trial, folds=[(train[evenly_spaced(len(train), most)], test)])
            seconds *= most / len(train)
        self.expected[QUICK] = len(folds) * seconds

    def _by_pilot(self, pair: Pair) -> float:
        """Return the expected time of a pair with the alphas that were best on some rows."""
        small: Any = self.fallback
        some, (train, test), held = small.found[pair], self.trial.folds[0], small.trial.folds[0][1]
        fits = sum({getattr(c.estimator, "alpha", 0): c.row_seconds for c in some}.values())
        share = (self._width(pair[0]) / small._width(pair[0])) ** KERNEL_POWER
        rest = some[0].seconds - some[0].path_seconds
        return float(share * fits * len(train) + rest * len(test) / len(held))

    def _alphas(self, pair: Pair) -> Any:
        """Return the alphas to try, None for a model without."""
        if not members.has_alpha(self.models[pair[1]]):
            return None
        if self.fallback is None or not self.narrow:
            return self.alphas
        self.fallback._try(pair)
        return sorted({c.estimator.alpha for c in self.fallback.found.get(pair, ())}) or self.alphas

    def _ranked_maps(self) -> list[str]:
        """Return the maps, narrow ones first; or those that are best on some rows."""
        names, small, limit = sorted(self.maps, key=self._width), self.fallback, self.clock.limit
        if small is None or limit is None or not self.narrow:
            return names
        for pair in ((name, QUICK) for name in self.maps):  # likely ones first
            if self.clock.elapsed < PILOTS_SHARE * limit:
                small._try(pair)
        names.sort(key=lambda name: -small._score((name, QUICK)))
        self._limit_columns((names[0], QUICK), FIRST_SHARE * limit)
        return names

    @property
    def on_accelerator(self) -> bool:
        """Whether X is a tensor on one."""
        return is_tensor(self.X) and is_accelerator(self.X.device)

    def part(self, count: int) -> Search:
        """Return the same search over evenly spaced rows, of which up to half are held out."""
        rows, clock = evenly_spaced(self.trial.Y.shape[0], count), Clock(self.clock.now)
        X, trial = take_rows(self.X, rows), self.trial.take(rows)
        nothing: Any = {name: {} for name in ("found", "failed", "seen", "map_seconds")}
        nothing |= {"gram": None, "clock": clock, "report": lambda event: None}
        return replace(self, X=X, trial=trial, **nothing)

    def _order(self) -> Iterator[Pair]:
        """Yield pairs, by what is known when the next is asked for; the cheap ones first."""
        names = self._ranked_maps()
        yield (names[0] if self.narrow else next(iter(self.maps)), QUICK)
        yield from ((RAW, name) for name in self.models if name not in BUILT_IN)
        if 0 < self._seconds((RAW, JOINT)) <= EARLY_SHARE * (self.clock.limit or 0):
            yield (RAW, JOINT)
        self._limit_landmarks()
        quick, limit = [(name, QUICK) for name in names], self.clock.limit or np.inf
        late = [p for p in quick if p not in self.found and self._seconds(p) > KERNEL_SHARE * limit]
        timely = [pair for pair in quick if pair not in late]
        kernels = [pair for pair in timely if self._landmarks(pair[0]) and not self.narrow]
        yield from (pair for pair in timely if pair not in kernels)
        if self.found and self.clock.elapsed >= self._end_of_trials():
            return
        scaled = next((m for m in ("standardised", "TF-IDF", "length 1") if m in self.maps), RAW)
        # every kind of model once, the quickest first: one that is behind may add to the average
        trees = [(RAW, name) for name in TREES_SHARES if name in self.models]
        near = [(scaled, name) for name in NEIGHBOUR_NAMES if name in self.models]
        for pair in trees:
            self._limit_trees(pair)
        for pair in sorted([*kernels[:1], *near, *trees], key=self._seconds):
            if pair[1] not in (QUICK, *FOREST_NAMES) and self._seconds(pair) > KIND_SHARE * limit:
                self._leave_out(pair, "it would take too long")
            yield pair
        yield from kernels[1:]
        for pair in late:
            left = self._end_of_trials() - self.clock.elapsed
            self._limit_columns(pair, LATE_SHARE * left / (1 + self._refit_share(pair)))
            yield pair
        best = max(self.maps, key=lambda name: self._score((name, QUICK)))
        yield from [(RAW, JOINT), *((best, name) for name in (JOINT, *SLOW_NAMES))]
        if self.trial.Y.shape[0] >= FEW_ROWS:
            yield from self._while_it_gains(best)

    def _limit_landmarks(self) -> None:
        """Take fewer columns of kernels where a model over them would take too long."""
        quick = next((pair for pair in self.found if pair[1] == QUICK), None)
        many = self.trial.Y.shape[0] >= MIN_PROBED_ROWS and not hasattr(self.X, "nnz")
        if quick and many and self.clock.limit and not self.narrow:
            kernels = max(1, sum(self._landmarks(name) is not None for name in self.maps))
            share = KERNELS_SHARE / kernels * self.clock.limit / max(self._spent(quick), 1e-9)
            most = max(MIN_LANDMARKS, int(share * self._width(quick[0])))
            self.maps = {name: at_most(m, "n_components", most) for name, m in self.maps.items()}

    def _limit_columns(self, pair: Pair, seconds: float) -> None:
        """Take fewer columns of a kernel that would take longer."""
        share, columns = seconds / max(self._seconds(pair), 1e-9), self._landmarks(pair[0])
        if columns and share < 1:
            power = KERNEL_POWER if self.narrow else WIDTH_POWER
            most = max(MIN_LANDMARKS, int(columns * max(0.0, share) ** (1 / power)))
            self.maps = self.maps | {pair[0]: at_most(self.maps[pair[0]], "n_components", most)}

    def _limit_trees(self, pair: Pair) -> None:
        """Take fewer trees where all would take too long: they are nearly as good."""
        model, limit = self.models[pair[1]], self.clock.limit or np.inf
        share = TREES_SHARES[pair[1]] * limit / max(self._seconds(pair), 1e-9)
        if 0 < share < 1:  # zero where the time is not known
            trees = min(model.n_estimators, max(MIN_TREES, int(share * model.n_estimators)))
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
        least = top - max(MAX_SHORTFALL, n**-0.5)  # three standard errors of a score, about
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
        return sum(c.seconds for c in self.found[pair])

    def _score(self, pair: Pair) -> float:
        return max((c.score for c in self.found.get(pair, ())), default=-np.inf)

    def weights(self) -> tuple[NDArray[np.float64], float]:
        """Return the weights of all candidates, and the F_beta of their average."""
        weights, score, self.gram = self.trial.weights(self.candidates, self.gram)
        return weights, score

    def _seconds(self, pair: Pair) -> float:
        """Return the expected time of a pair: by another map, by QUICK (JOINT), or by a probe."""
        name, model = pair
        few = self.trial.Y.shape[0] < MIN_PROBED_ROWS and model not in PROBE_TREES
        if few or self.clock.limit is None:
            return 0.0
        if self.fallback is not None and self.narrow and pair in self.fallback.found:
            return self._by_pilot(pair)
        for known in (JOINT, QUICK) if model == JOINT else (model,):
            for base in (pair for pair in self.found if pair[1] == known):
                power = KERNEL_POWER if self.narrow else WIDTH_POWER
                share = (self._width(name) / self._width(base[0])) ** power
                if known != model:
                    share *= JOINT_SHARE * self._problems(model) / self._problems(known)
                return float(self._spent(base) * share)
        if model not in self.expected:
            self.expected[model] = average.probed_seconds(self, *pair, PROBE_TREES.get(model))
        return self.expected[model]

    def _landmarks(self, name: str) -> int | None:
        """Return the columns that the kernel of a map makes, None without a kernel."""
        return next((s.n_components for s in self.maps[name] if hasattr(s, "n_components")), None)

    def _width(self, name: str) -> float:
        """Return the columns of the features of a map; the stored numbers of a row if sparse."""
        n, d = self.X.shape
        return float(self._landmarks(name) or (self.X.nnz / n if hasattr(self.X, "nnz") else d))

    def _refit_share(self, pair: Pair) -> float:
        """Return the time of a fit to all rows over that of a trial, as an estimate."""
        trained = sum(len(train) for train, _ in self.trial.folds)
        path = members.has_alpha(self.models[pair[1]]) and not self.narrow
        share = members.REFIT_MARGIN * (ALPHA_SHARE if path else 1.0)
        return float(share * self.trial.Y.shape[0] / trained)

    def _refits(self, places: Iterable[int], n: int) -> float:
        """Return the expected seconds of fits of some candidates to n rows."""
        pairs, fits = self._pairs(), dict[Any, float]()
        for i in places:
            # one fit serves both kinds of a model without alphas
            kind = i if hasattr(self.candidates[i].estimator, "alpha") else -1
            fits[kind, pairs[i]] = self.candidates[i].row_seconds
        own, trained = self.trial.Y.shape[0], len(self.trial.folds[0][0])
        new = {pair[0] for _, pair in fits} - {*(self.seen if n == own else ())}
        maps = sum(self.map_seconds.get(name, 0.0) for name in new) * n / own
        return float(sum(fits.values()) * n * (n / trained) ** ROWS_POWER + maps)

    def _scored(self) -> Search:
        return self if self.found or self.fallback is None else self.fallback

    def _end_of_trials(self) -> float:
        """Return when the fits to all rows have to begin, by what those of the best will take."""
        limit, own = self.clock.limit or np.inf, self._scored()
        count = 6 if own is self and not self.narrow else 1
        best = np.argsort([-c.score for c in own.candidates])[:count]
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
        safe = bool(self.found) or self.fallback is not None  # else no time is too short
        end = self._end_of_trials() if safe else np.inf
        if self.clock.elapsed >= end:  # all candidates of the user are named
            return pair[1] not in BUILT_IN and self._leave_out(pair, "there is no time left")
        expected, left = self.expected.get(pair[1], 0.0), end - self.clock.elapsed
        if self.found or self.narrow:
            expected = self._seconds(pair)
        if expected * (1 + self._refit_share(pair) if self.found else CANDIDATE_SHARE) > left:
            return self._leave_out(pair, "it would take too long") and bool(self.found)
        alphas = self._alphas(pair)
        share = max(CANDIDATE_SHARE * left, min(left, 1.5 * expected)) if self.found else left
        self.clock.deadline = self.clock.elapsed + share
        name, fresh = ": ".join(filter(None, pair)), pair[0] not in self.seen
        self._tell(name, "begin")
        try:
            with periodic_check(self.clock.check):
                check_cancelled()
                model, Z = self.models[pair[1]], self.features(pair[0])[1]
                more = {"kinds": self.kinds, "refine": self.refine and pair[1] not in SLOW_NAMES}
                some = self.trial.try_out(name, model, Z, alphas, **more)
        except TimeoutError:
            return self._leave_out(pair, "it took too long") and self.clock.elapsed < end
        except Exception as error:
            average.check_may_fail(error, name, pair[1] in BUILT_IN, keep_errors or not safe)
            return self._leave_out(pair, str(error))
        spent = some[0].seconds + (self.map_seconds.get(pair[0], 0.0) if fresh else 0.0)
        self.found[pair] = [replace(some[0], seconds=spent), *some[1:]]
        for candidate in some:
            self._tell(candidate.name, "scored", score=candidate.score)
        return True

    def features(self, name: str) -> tuple[Any, Any]:
        """Return the fitted map of a name, and the features it makes; the last are remembered."""
        if self.maps[name] is None:
            return None, self.X
        if name not in self.seen:
            mapping = clone(self.maps[name])
            weights, weight = {}, self.trial.weight
            if weight is not None and "standardscaler" in mapping.named_steps:
                xp, device = namespace_and_device(X=self.X)
                weights["standardscaler__sample_weight"] = xp.asarray(weight, device=device)
            best = max(self.found, key=self._score, default=("",))[0]
            self.seen = {key: pair for key, pair in self.seen.items() if key == best}
            begin = self.clock.now()
            self.seen[name] = (mapping, mapping.fit_transform(self.X, **weights))
            self.map_seconds[name] = self.clock.now() - begin
        return self.seen[name]

    def average(self) -> AverageModel:
        """Choose weights, and fit what has one to all rows, or to those that there is time for."""
        own, n, limit = self._scored(), self.trial.Y.shape[0], self.clock.limit or np.inf
        weights, self.maps = own.weights()[0], own.maps  # those of some rows have fewer columns
        left = limit - self.clock.elapsed
        weights = members.affordable(weights, lambda some: own._refits(some, n), left)
        chosen = np.flatnonzero(weights).tolist()
        share = (limit - self.clock.elapsed) / max(own._refits(chosen, n), 1e-9)
        most = max(PILOT_ROWS, int(min(1.0, share) * n))
        rows = evenly_spaced(n, most) if most < n else None
        trial = self.trial if rows is None else self.trial.take(rows)
        pairs, words = own._pairs(), f"to {f'{most} of {n}' if most < n else 'all'} rows"

        def features(i: int) -> tuple[Any, Any]:
            mapping, Z = self.features(pairs[i][0])
            self._tell(own.candidates[i].name, "fit", f"{words}, weight {weights[i]:.2f}")
            return mapping, Z if rows is None else take_rows(Z, rows)

        return average.fit_average(own.trial, trial, own.candidates, pairs, weights, features)
