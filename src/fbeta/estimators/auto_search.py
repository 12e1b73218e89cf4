"""The search of the automatic classifier: which feature map and model to try next, and when to end.

What is tried is a feature map with a model over it. The maps are fitted to all training rows, of
which they see no labels, and shared by all folds and models.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from fbeta._threads import check_cancelled, n_threads, periodic_check
from fbeta.estimators.base import Fold
from fbeta.estimators.cardinality import CardinalityClassifier
from fbeta.estimators.ensemble import AverageModel, leaderboard
from fbeta.estimators.feature_maps import RAW, feature_maps
from fbeta.estimators.folds import ALPHAS, make_folds
from fbeta.estimators.forest import FBetaForest
from fbeta.estimators.label_sets import LabelSetClassifier
from fbeta.estimators.linear import FBetaClassifier
from fbeta.estimators.members import Candidate, Trial, fit_member
from fbeta.estimators.sized import SizedClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight, take_rows
from fbeta.statistics.label_statistics import LabelStatistics, observed_cardinalities

__all__ = ["Clock", "Search", "TimeUpError"]

Pair: TypeAlias = tuple[str, str]  # names of a map and of a model

#: The model that every map is tried with first: the fewest problems.
QUICK = "sized"
#: The paper's model.
JOINT = "joint"
# share of the time limit after which nothing new is begun
TRY = 0.75
# share of the time that is left which a pair may take
SHARE = 0.6
# what a pair may be behind the best, by what is known of its map and its model, to be tried
BEHIND = 0.05
# bytes of the statistics that are kept of all pairs, and numbers that one decode may read
KEPT_BYTES, DECODED = 1 << 29, 3e7
MODEL_BYTES = 1 << 30  # of the coefficients of a model that is tried
PAIRS = 24  # that are kept, about
LEAST_WEIGHT = 0.02  # below, a member is left out
# features among which a split of a forest is chosen: a share of all, up to a number
DRAWN, MOST_DRAWN = 0.3, 150
PILOT = 2000  # rows of the first model, where there are more and time is short


class TimeUpError(Exception):
    """The time for what was going on is over."""


@dataclass
class Clock:
    """Tells the time since a search began, and stops what goes on too long."""

    now: Callable[[], float]
    limit: float | None
    deadline: float = np.inf
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.now()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now() - self.begin

    def is_over(self) -> bool:
        """Tell whether the deadline has passed."""
        return self.elapsed > self.deadline

    def check(self) -> None:
        """Raise an error after the deadline."""
        if self.is_over():
            raise TimeUpError


@dataclass
class Search:
    """Tries pairs of maps and models on one set of folds, and averages what did well."""

    X: Any
    Y: Indicator
    weight: Weight
    trial: Trial
    clock: Clock
    rng: np.random.RandomState
    tell: Callable[[str], None]
    maps: dict[str, Any]
    models: dict[str, Any]
    found: dict[Pair, Candidate] = field(default_factory=dict)
    failed: dict[Pair, str] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)  # the features of the last map
    fallback: AverageModel | None = None

    @classmethod
    def over(
        cls, X: Any, Y: Indicator, weight: Weight, clock: Clock, tell: Callable[[str], None],
        *, beta: float, cv: Any, n_jobs: int | None, rng: np.random.RandomState,
    ) -> Search:  # fmt: skip
        """Prepare a search over validated X, of shape (n, d), and labels of shape (n, s)."""
        folds = make_folds(cv, X, Y, weight)
        kept = _kept_rows(Y, folds, rng)
        trial = Trial(Y, weight, folds, beta, n_jobs, kept)
        seed = int(rng.randint(2**31 - 1))
        return cls(
            X,
            Y,
            weight,
            trial,
            clock,
            rng,
            tell,
            feature_maps(X, seed),
            _models(beta, seed, X.shape[1]),
        )

    def run(self) -> AverageModel:
        """Try what there is time for, and return the fitted average."""
        with warnings.catch_warnings():
            # what does not converge does as well as it does
            warnings.simplefilter("ignore", ConvergenceWarning)
            if self.clock.limit is not None and self.Y.shape[0] > PILOT:
                self.fallback = self._pilot()
            for pair in self._order():
                if not self._try(pair):
                    break
            return self._average()

    def _pilot(self) -> AverageModel | None:
        """Fit a first model to some of the rows, which is there if time ends too early."""
        self.tell(f"a first model, of {PILOT} rows")
        rows = np.sort(self.rng.choice(self.Y.shape[0], PILOT, replace=False))
        weight = None if self.weight is None else self.weight[rows]
        X, Y = take_rows(self.X, rows), self.Y[rows]
        trial = Trial(Y, weight, make_folds(2, X, Y, weight), self.trial.beta, self.trial.n_jobs)
        small = replace(self, X=X, Y=Y, weight=weight, trial=trial, found={}, failed={}, seen={})
        try:
            small._try((next(iter(self.maps)), QUICK))
            return small._average()
        except ValueError:
            return None

    def _order(self) -> Iterator[Pair]:
        """Yield pairs, by what is known when the next is asked for."""
        first = next(iter(self.maps))
        yield from ((first, QUICK), (RAW, JOINT))
        yield from ((name, QUICK) for name in self.maps)
        yield from ((RAW, name) for name in self.models if "forest" in name)
        tried = {name: c.score for (name, model), c in self.found.items() if model == QUICK}
        best = max(tried, key=lambda name: tried[name], default=first)
        linear = [name for name in self.models if "forest" not in name]
        yield from ((best, model) for model in linear)
        rest = [(name, model) for name in self.maps for model in linear]
        scores = {pair: self._predicted(pair, best) for pair in rest}
        seconds = {pair: self._seconds(pair, best) for pair in rest}
        top = max((c.score for c in self.found.values()), default=0.0)
        hopeful = [pair for pair in rest if scores[pair] > top - BEHIND]
        # what may be gained in a second
        gain = {p: (scores[p] - top + BEHIND) / max(seconds[p], 1e-3) for p in hopeful}
        for pair in sorted(hopeful, key=lambda pair: -gain[pair]):
            if self.clock.elapsed + seconds[pair] < self._end_of_trials():
                yield pair

    def _predicted(self, pair: Pair, best: str) -> float:
        """Return the score of a pair if maps and models add up, -inf if one is unknown."""
        terms = [self.found.get(p) for p in ((pair[0], QUICK), (best, pair[1]), (best, QUICK))]
        scores = [-np.inf if c is None else c.score for c in terms]
        return scores[0] + scores[1] - scores[2] if np.isfinite(scores).all() else -np.inf

    def _seconds(self, pair: Pair, best: str) -> float:
        """Return what a pair will take if maps and models multiply."""
        terms = [self.found.get(p) for p in ((pair[0], QUICK), (best, pair[1]), (best, QUICK))]
        times = [np.inf if c is None else max(c.seconds, 1e-3) for c in terms]
        return times[0] * times[1] / times[2] if np.isfinite(times).all() else np.inf

    def _end_of_trials(self) -> float:
        """Return when the fits to all rows have to begin, by what they will take."""
        if self.clock.limit is None:
            return np.inf
        best = sorted(self.found.values(), key=lambda c: -c.score)[:6]
        fits = sum(c.seconds for c in best) / len(self.trial.folds)
        return min(TRY * self.clock.limit, self.clock.limit - 1.5 * fits)

    def _bytes(self, pair: Pair) -> float:
        """Return what the coefficients of a linear model over a map need, about."""
        kernel = next((s for s in self.maps[pair[0]] if hasattr(s, "n_components")), None)
        d = self.X.shape[1] if kernel is None else kernel.n_components
        s, K = self.Y.shape[1], max(1, len(observed_cardinalities(self.Y)))
        problems = {JOINT: 1 + K * s, "label sets": s}.get(pair[1], s + K)
        return 0.0 if "forest" in pair[1] else 8.0 * d * problems

    def _try(self, pair: Pair) -> bool:
        """Try a pair that has not been tried, and tell whether there is time for more."""
        if pair in self.found or pair in self.failed:
            return True
        if self._bytes(pair) > MODEL_BYTES:
            self.failed[pair] = "its coefficients would need too much memory"
            self.tell(f"{pair[0]}: {pair[1]}: left out, {self.failed[pair]}")
            return True
        # something has to be there in the end, however short the time
        safe = bool(self.found) or self.fallback is not None
        end = self._end_of_trials() if safe else np.inf
        if self.clock.elapsed >= end:
            return False
        # no pair may take more than a share of what is left for all of them
        self.clock.deadline = self.clock.elapsed + SHARE * max(0.0, end - self.clock.elapsed)
        name, model = f"{pair[0]}: {pair[1]}", self.models[pair[1]]
        try:
            alphas = ALPHAS if hasattr(model, "alpha") else None
            with periodic_check(self.clock.check):
                check_cancelled()
                candidate = self.trial.try_out(name, model, self._features(pair[0])[1], alphas)
        except TimeUpError:
            self.failed[pair] = "it took too long"
            self.tell(f"{name}: left out, {self.failed[pair]}")
            return self.clock.elapsed < end
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as error:
            if not safe:
                raise
            self.failed[pair] = str(error)
            self.tell(f"{name}: failed, {error}")
            return True
        self.found[pair] = candidate
        best = max(c.score for c in self.found.values())
        self.tell(f"{name}: {candidate.score:.4f}, best {best:.4f}")
        return True

    def _features(self, name: str) -> tuple[Any, Any]:
        """Return the fitted map of a name, and the features it makes; the last are remembered."""
        if name not in self.seen:
            mapping = clone(self.maps[name])
            weights = {}
            if self.weight is not None and "standardscaler" in mapping.named_steps:
                weights["standardscaler__sample_weight"] = self.weight
            self.seen.clear()
            self.seen[name] = (mapping, mapping.fit_transform(self.X, **weights))
        pair: tuple[Any, Any] = self.seen[name]
        return pair

    def _average(self) -> AverageModel:
        """Choose weights, and fit what has one to all rows."""
        if not self.found and self.fallback is not None:
            return self.fallback
        pairs, candidates = list(self.found), list(self.found.values())
        weights, score = self._weights(candidates)
        parts = [candidate.statistics for candidate in candidates]
        chosen = sorted(np.flatnonzero(weights).tolist(), key=lambda i: pairs[i][0])
        names = list(dict.fromkeys(pairs[i][0] for i in chosen))
        maps, members = {}, []
        for i in chosen:
            maps[pairs[i][0]], Z = self._features(pairs[i][0])
            self.tell(f"{candidates[i].name}: fitted to all rows, weight {weights[i]:.2f}")
            members.append(fit_member(candidates[i].estimator, Z, self.Y, self.weight))
        return AverageModel(
            [maps[name] for name in names], members,
            [names.index(pairs[i][0]) for i in chosen], [float(weights[i]) for i in chosen],
            self.trial.calibration(LabelStatistics.mixture(parts, weights)), score,
            leaderboard(candidates, weights.tolist()),
        )  # fmt: skip

    def _weights(self, candidates: Sequence[Candidate]) -> tuple[NDArray[np.float64], float]:
        """Choose by least squares, unless the paper's method alone has the better F_beta.

        The best of many by F_beta is often only the luckiest, and no reason to leave the others.
        """
        parts = [candidate.statistics.unfolded() for candidate in candidates]
        weights = self.trial.stacked(parts)
        weights = self.trial.stacked(parts, weights >= LEAST_WEIGHT)
        score = self.trial.score()
        value, paper = score(LabelStatistics.mixture(parts, weights)), (RAW, JOINT)
        if paper in self.found:
            alone = list(self.found).index(paper)
            if score(parts[alone]) > value:
                return np.eye(len(candidates))[alone], candidates[alone].score
        return weights, value


def _models(beta: float, seed: int, n_features: int) -> dict[str, Any]:
    """Return the models to try; forests, which no scaling changes, over the raw features only."""
    threads = n_threads()
    drawn = max(1, int(n_features**0.5), int(min(DRAWN * n_features, MOST_DRAWN)))
    forests = {
        f"forest, leaves of {leaf}": FBetaForest(
            beta, min_samples_leaf=leaf, max_features=drawn, random_state=seed, n_jobs=threads
        )
        for leaf in (3, 1)
    }
    return {
        JOINT: FBetaClassifier(beta),
        QUICK: SizedClassifier(beta),
        "cardinality": CardinalityClassifier(beta),
        "label sets": LabelSetClassifier(beta),
        **forests,
    }


def _kept_rows(
    Y: Indicator, folds: Sequence[Fold], rng: np.random.RandomState
) -> NDArray[np.bool_] | None:
    """Return which rows are kept for the choice of weights, of every fold; None for all of them."""
    n, s = Y.shape
    width = 1 + s * max(1, len(observed_cardinalities(Y)))
    most = int(max(500, min(KEPT_BYTES / (4 * width * PAIRS), DECODED / width)))
    if n <= most:
        return None
    kept = np.zeros(n, dtype=np.bool_)
    total = sum(len(test) for _, test in folds)
    for _, test in folds:
        count = min(len(test), -(-most * len(test) // total))
        kept[rng.choice(test, count, replace=False)] = True
    return kept
