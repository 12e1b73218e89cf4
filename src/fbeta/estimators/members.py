"""Trials of estimators and pipelines: statistics of held-out rows, their scores and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from fbeta._array import concat, host_copy, to_numpy
from fbeta._threads import check_cancelled, n_threads
from fbeta.decoding.exact import decode
from fbeta.estimators import folds
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.base import validate_features
from fbeta.estimators.features import check_takes_weight
from fbeta.estimators.folds import Calibration, Fold, HeldOutScores
from fbeta.estimators.forest import SizedSetsCode
from fbeta.estimators.reduction import SizedClassifier
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Rows, Weight, take_rows
from fbeta.metrics import fbeta_per_instance, fbeta_weight
from fbeta.statistics import LabelStatistics, observed_cardinalities
from fbeta.statistics.composite import Sparse

HALF_DECADE = 10**0.5
MIN_WEIGHT = 0.02  # below, a member of an average is left out
# bytes of the statistics that are kept of all candidates, and numbers that one decode may read
KEPT_BYTES, MAX_DECODED_NUMBERS = 1 << 29, 3e7
EXPECTED_CANDIDATES = 24  # for which memory is planned
MIN_KEPT_ROWS = 500  # whatever memory says
STACKED_NUMBERS = 1 << 22  # of statistics that are read together to choose weights
RANK_TOLERANCE = 1e-12  # of singular values that count
RIDGE = 1e-9  # share of the mean square of the statistics that keeps equal ones apart
SUM_PENALTY = 1e3  # how firmly weights are held to a sum of 1, before they are divided by it

# parameters of a second candidate from the same fits, by what is added to its name
SECOND_KINDS = {"independent": {"sizes": "independent"}, "sized": {"labels": "sized"}}

Readers = dict[str, Callable[[Any], LabelStatistics]]


PILOT_NUMBERS, MIN_HELD_OUT = 1e7, 200  # to decode of some rows; rows that are held out of them
COLD_START = 1.5  # time of a fit over that of a step of a path, which starts from the one before
REFIT_MARGIN = 1.1  # of the expected time of fits to all rows


@dataclass(frozen=True)
class Candidate:
    """An estimator with its results on held-out rows."""

    name: str  # of map and model
    estimator: Any  # not fitted, with the best alpha
    score: float  # the mean over the folds of its F_beta
    seconds: float  # of the trial
    path_seconds: float  # of its fits, for all alphas
    row_seconds: float  # expected, of a fit with the best alpha, for each of its rows
    statistics: LabelStatistics  # of the held-out rows, dense, in single precision


@dataclass(frozen=True)
class Trial:
    """The rows and folds that estimators are compared on."""

    Y: Indicator  # (n, s)
    weight: Weight
    folds: Sequence[Fold]
    beta: float
    n_jobs: int | None = None

    @cached_property
    def kept_share(self) -> float:
        """Share of the held-out rows whose statistics are kept: as many as memory allows."""
        width = 1 + self.Y.shape[1] * max(1, len(observed_cardinalities(self.Y)))
        limits = KEPT_BYTES / (4 * width * EXPECTED_CANDIDATES), MAX_DECODED_NUMBERS / width
        most = int(max(MIN_KEPT_ROWS, min(limits)))
        return min(1.0, most / sum(len(test) for _, test in self.folds))

    def take(self, rows: Rows) -> Trial:
        """Return the trial of some rows, of which half are held out, or as many as decode fast."""
        weight = None if self.weight is None else self.weight[rows]
        few = replace(self, Y=self.Y[rows], weight=weight)
        train, test = folds.make_folds(2, None, few.Y, few.weight)[0]
        numbers = few.Y.shape[1] * max(1, len(observed_cardinalities(few.Y)))
        held = test[: max(MIN_HELD_OUT, int(PILOT_NUMBERS / numbers))]
        return replace(few, folds=[(train, held)])

    def try_out(
        self,
        name: str,
        estimator: Any,
        X: Any,
        alphas: Any,
        *,
        kinds: bool = False,  # whether there is a second candidate from the same fits
        refine: bool = False,  # whether half decades beside the best alpha are tried
    ) -> list[Candidate]:
        """Fit to the training rows of every fold, transformers too, and score the held-out rows."""
        begin = perf_counter()
        maps, last = split_pipeline(estimator)
        inner, grid = _search_space(last, alphas)
        check_takes_weight(inner, self.weight)
        readers = _readers(inner, kinds and maps is None)
        found = self._scores(maps, inner, X, grid, readers)
        if refine and len(grid) > 1:
            best = [self._best(grid, found, kind)[0] for kind in readers]
            beside = {float(f"{a * f:.6g}") for a in best for f in (HALF_DECADE, 1 / HALF_DECADE)}
            beside = {alpha for alpha in beside if min(grid) < alpha < max(grid)}
            again = self._scores(maps, inner, X, sorted(beside), readers, prune=False)
            found = [{**one, **other} for one, other in zip(found, again, strict=True)]
            grid = sorted({*grid, *beside})
        out, seconds = [], perf_counter() - begin
        # folds share the threads, and a fit to all rows has all of them
        threads, rows = min(len(found), n_threads()), sum(len(train) for train, _ in self.folds)
        path = sum(scores[""].seconds for fold in found for scores in fold.values()) / threads
        factor = REFIT_MARGIN * (COLD_START if hasattr(inner, "alpha") else 1.0) / (threads * rows)
        for kind in readers:
            alpha, score = self._best(grid, found, kind)
            chosen = clone(inner).set_params(**SECOND_KINDS.get(kind, {}))
            if alpha is not None:
                chosen.set_params(alpha=alpha)
            if isinstance(estimator, Pipeline):
                chosen = clone(estimator).set_params(**{estimator.steps[-1][0]: chosen})
            parts = [fold[alpha][kind].statistics for fold in found]
            words = f"{name}, {kind}" if kind else name
            joined = LabelStatistics.concatenate([part for part in parts if part is not None])
            joined = joined if isinstance(joined.form, Sparse) else joined.unfolded()
            row = factor * sum(fold[alpha][kind].seconds for fold in found)
            out.append(Candidate(words, chosen, score, seconds, path, row, joined))
            seconds = 0.0
        return out

    def _best(self, grid: Sequence[Any], found: Any, kind: str) -> tuple[Any, float]:
        """Return the best alpha, the strongest of those that tie, and its mean score."""
        own = [{alpha: scores[kind] for alpha, scores in fold.items()} for fold in found]
        shares = folds.row_shares(self.folds, self.weight)
        mean = folds.score_table(grid, own, shares).mean(axis=1)
        best = folds.best_place(mean)
        return grid[best], float(mean[best])

    def _scores(
        self,
        maps: Any,
        inner: Any,
        X: Any,
        grid: Sequence[Any],
        readers: Readers,
        prune: bool = True,
        parts: Sequence[Fold] | None = None,
    ) -> list[dict[Any, dict[str, HeldOutScores]]]:
        """Return the scores of each fold, by alpha and by kind of labels."""
        parts = self.folds if parts is None else parts
        if maps is not None:
            found = []
            for fold in parts:
                fitted = clone(maps).fit(take_rows(X, fold[0]), self.Y[fold[0]].toarray())
                Z = fitted.transform(X)
                found += self._scores(None, inner, Z, grid, readers, prune, [fold])
            return found
        if not isinstance(inner, StatisticsClassifier):
            return [{grid[0]: {"": self._fit_other(inner, X, fold)}} for fold in parts]
        if hasattr(inner, "alpha") and getattr(inner, "estimator", None) is None:
            X = validate_features(clone(inner), X, reset=True)

        def scores(fitted: Any, held: Any, rows: Rows, spent: float) -> dict[str, HeldOutScores]:
            estimates: Iterable[Any] = fitted.estimates(held, checked=True)
            if len(readers) > 1:
                estimates = list(estimates)
            return {k: self._read(map(of, estimates), rows, spent) for k, of in readers.items()}

        def stop(fold: Fold) -> Any:
            constant = folds.constant_scores(self.Y, *fold, self.beta, self.weight)
            weight = None if self.weight is None else self.weight[fold[1]]
            rules = {kind: folds.pruning(constant, weight) for kind in readers}
            # the minimum, not all: every rule has to see the alpha
            return lambda alpha, found: min(rules[k](alpha, found[k].achieved) for k in rules)

        options: dict[str, Any] = {"folds": parts, "alphas": grid, "n_jobs": self.n_jobs}
        options["stop"] = stop if prune else None
        return folds.over_folds(scores, inner, X, self.Y, self.weight, **options)

    def _fit_other(self, estimator: Any, X: Any, fold: Fold) -> HeldOutScores:
        """Fit an estimator that is not of this library, and score the held-out rows."""
        (train, test), begin = fold, perf_counter()
        weight = None if self.weight is None else self.weight[train]
        fitted = fit_member(estimator, take_rows(X, train), self.Y[train], weight)
        spent = perf_counter() - begin
        return self._read([fitted.predict_statistics(take_rows(X, test))], test, spent)

    def _read(self, parts: Iterable[LabelStatistics], rows: Rows, spent: float) -> HeldOutScores:
        """Decode statistics of the test rows of a fold, and keep some of them."""
        labels, small, start = [], [], 0
        kept = self._kept(rows)
        for part in parts:
            check_cancelled()
            labels.append(to_numpy(decode(part, self.beta)))
            own = kept[(kept >= start) & (kept < start + len(part))] - start
            xp, device = part.form.place
            few = (part if len(own) == len(part) else part[own]).astype(xp.float32)
            small.append(few if device is None else host_copy(few))
            start += len(part)
        achieved = fbeta_per_instance(self.Y[rows], concat(labels), self.beta)
        return HeldOutScores(achieved, None, LabelStatistics.concatenate(small), spent)

    def _kept(self, rows: Rows) -> Rows:
        return evenly_spaced(len(rows), max(1, round(self.kept_share * len(rows))))

    def kept_rows(self) -> tuple[Rows, NDArray[np.float64]]:
        """Return the rows whose statistics are kept, and the share of each in a score."""
        shares = folds.row_shares(self.folds, self.weight)
        kept = [self._kept(test) for _, test in self.folds]
        rows = np.concatenate([test[k] for (_, test), k in zip(self.folds, kept, strict=True)])
        share = [s[k] * (s.sum() / s[k].sum()) for s, k in zip(shares, kept, strict=True)]
        joined = np.concatenate(share)
        return rows, joined / joined.sum()

    def weights(
        self, candidates: Sequence[Candidate], known: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], float, NDArray[np.float64] | None]:
        """Return weights, (m,), the F_beta of the average, and decoder_products, some ``known``."""
        parts = [candidate.statistics for candidate in candidates]
        (rows, share), best = self.kept_rows(), int(np.argmax([c.score for c in candidates]))
        truth = self.Y[rows]
        alone = fbeta_per_instance(truth, decode(parts[best], self.beta), self.beta)
        if any(isinstance(part.form, Sparse) for part in parts):  # lists of labels have no average
            return np.eye(len(parts))[best], float(alone @ share), None
        labels = LabelStatistics.from_labels(truth.toarray())
        largest = int(labels.cardinalities.max(initial=1))
        gram = decoder_products([labels, *parts], self.beta, share, largest, known)
        kept = np.flatnonzero(stacked_weights(gram) >= MIN_WEIGHT)
        own = np.append(0, 1 + kept)
        weights = np.zeros(len(parts))
        weights[kept] = stacked_weights(gram[np.ix_(own, own)])
        average = LabelStatistics.mixture([parts[i] for i in kept], weights[kept])
        together = fbeta_per_instance(truth, decode(average, self.beta), self.beta)
        gain, error = folds.difference(alone, together, share)
        # the best of many is often only the luckiest
        if gain > folds.STANDARD_ERRORS * error:
            return np.eye(len(parts))[best], float(alone @ share), gram
        return weights, float(together @ share), gram

    def calibration(self, statistics: LabelStatistics) -> tuple[Calibration, float]:
        """Compare the expected F_beta of statistics of the kept rows with the one they achieve."""
        rows, share = self.kept_rows()
        labels, expected = decode(statistics, self.beta, return_expected=True)
        achieved = fbeta_per_instance(self.Y[rows], labels, self.beta)
        calibration = Calibration.of(self.beta, np.minimum(expected, 1.0), achieved, share)
        return calibration, float(achieved @ share)


def leaderboard(candidates: Sequence[Candidate], weights: Any) -> list[dict[str, Any]]:
    """Return name, score, seconds and weight of each candidate, the best first."""
    pairs = sorted(zip(candidates, weights, strict=True), key=lambda pair: -pair[0].score)
    return [
        {"name": c.name, "score": c.score, "seconds": round(c.seconds, 3), "weight": float(w)}
        for c, w in pairs
    ]


def note_on_average(board: Sequence[dict[str, Any]], score: float) -> str:
    """Return why an average is kept that a candidate of its leaderboard is ahead of, or nothing."""
    if not board or board[0]["score"] <= score + 1e-9:  # sums of the same numbers may differ
        return ""
    return (
        "A candidate above the average is less than two standard errors ahead of it (the best of "
        "many is often only the luckiest), or its fit to all rows would have ended too late."
    )


def affordable(
    weights: NDArray[np.float64], seconds: Callable[[list[int]], float], left: float
) -> NDArray[np.float64]:
    """Drop small weights until the fits of the other candidates take no more than the time left."""
    weights = weights.copy()
    held = sorted(np.flatnonzero(weights).tolist(), key=lambda i: float(weights[i]))
    while len(held) > 1 and (excess := seconds(held) - left) > 0:
        # the heaviest is kept, and what takes next to no time
        slow = [i for i in held[:-1] if seconds([i]) > 0.1 * excess]
        drop = (slow or held)[0]
        held.remove(drop)
        weights[drop] = 0.0
    return np.asarray(weights / weights.sum())


def evenly_spaced(n: int, count: int) -> Rows:
    """Return the numbers of some out of n rows."""
    return np.arange(count) * n // count


def at_most(estimator: Any, parameter: str, most: int) -> Any:
    """Return an estimator or a pipeline with no more than so many landmarks or trees."""
    sizes = {key: n for key, n in estimator.get_params().items() if key.endswith(parameter)}
    large = {key: most for key, n in sizes.items() if n > most}
    return clone(estimator).set_params(**large) if large else estimator


def _readers(estimator: Any, both: bool) -> Readers:
    """Return what makes statistics of estimates, by what it adds to the name of a candidate."""
    readers: Readers = {"": lambda estimates: estimates.statistics()}
    if getattr(estimator, "max_listed", None) is not None:
        return readers
    if both and hasattr(estimator, "sizes"):  # independent labels by its marginals
        readers["independent"] = lambda e: getattr(e.code, "of_labels", e.code.statistics)(e.P)
    elif both and hasattr(estimator, "labels"):  # a forest
        readers["sized"] = lambda e: SizedSetsCode(**vars(e.code)).statistics(e.P)
    return readers


def as_candidates(given: Any, argument: str) -> dict[str, Any]:
    """Return estimators with statistics by name; other classifiers become sized ones."""
    if isinstance(given, Mapping) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in given
    ):
        raise TypeError(f"{argument} must be pairs of a name and an estimator, got {given!r}")
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f"the names of the {argument} must differ, got {names}")
    found = {}
    for name, estimator in given:
        if isinstance(estimator, type):
            raise TypeError(f"{argument}: {name!r} is a class: pass {estimator.__name__}()")
        if hasattr(split_pipeline(estimator)[1], "predict_statistics"):
            found[name] = estimator
        elif hasattr(estimator, "predict_proba"):
            found[name] = SizedClassifier(estimator=estimator)
        else:
            raise TypeError(
                f"{argument}: {name!r} has neither predict_statistics nor predict_proba: "
                f"{estimator!r}"
            )
    return found


def split_pipeline(estimator: Any) -> tuple[Any, Any]:
    """Return the transformers of a pipeline and its last step, or None and the estimator."""
    if not isinstance(estimator, Pipeline):
        return None, estimator
    return (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]


def has_alpha(estimator: Any) -> bool:
    """Return whether an estimator of ours, or the last step of a pipeline, has an ``alpha``."""
    last = split_pipeline(estimator)[1]
    return isinstance(last, StatisticsClassifier) and hasattr(last, "alpha")


def _search_space(estimator: Any, alphas: Any) -> tuple[Any, list[Any]]:
    """Return the estimator to be tried out, and its alphas."""
    if isinstance(estimator, AlphaSearchCV):
        return estimator.estimator, list(estimator.alphas)
    fixed = getattr(estimator, "estimator", None) is not None
    if alphas is None or fixed or not has_alpha(estimator):
        return estimator, [getattr(estimator, "alpha", None)]
    return estimator, list(alphas)


def fit_member(estimator: Any, X: Any, Y: Indicator, weight: Weight, other: Any = None) -> Any:
    """Fit an estimator or pipeline to all rows, or have it read the model of its other kind."""
    if other is not None and not hasattr(estimator, "alpha"):
        shared = copy(other).set_params(**estimator.get_params(deep=False))
        return shared.adopt(estimator.plan(Y)[0], other.model)
    name = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    weights = {} if weight is None else {f"{name}sample_weight": weight}
    labels = Y if isinstance(estimator, StatisticsClassifier) else Y.toarray()
    return clone(estimator).fit(X, labels, **weights)


def decoder_products(
    parts: Sequence[LabelStatistics],
    beta: float,
    share: NDArray[np.float64],
    largest: int,  # size of a label set
    known: NDArray[np.float64] | None = None,  # products of the first parts
) -> NDArray[np.float64]:
    """Return inner products, (m, m), of what a decoder reads of m dense statistics of n rows."""
    n, m, start = len(parts[0]), len(parts), 0 if known is None else len(known)
    if known is not None and start == m:
        return known
    gram = np.zeros((m, m))
    gram[:start, :start] = 0.0 if known is None else known
    sizes = np.unique(np.concatenate([part.cardinalities for part in parts]))
    predicted = np.arange(1.0, largest + 1)[:, None]
    table = np.asarray(fbeta_weight(sizes[None, :].astype(float), predicted, beta))
    # the table has a numerical rank of about ten: so few numbers of each label have its products
    _, scale, basis = np.linalg.svd(table, full_matrices=False)
    basis = (scale[:, None] * basis)[scale > RANK_TOLERANCE * scale[:1]]
    own = [basis[:, np.searchsorted(sizes, part.cardinalities)] for part in parts]
    rows = max(1, STACKED_NUMBERS // (m * (1 + parts[0].n_labels * max(1, len(basis)))))
    for begin in range(0, n, rows):
        root, seen = np.sqrt(share[begin : begin + rows]), []
        for part, columns in zip(parts, own, strict=True):
            few = part[begin : begin + rows].astype(np.float64)
            worth = np.matmul(columns, few.joint).reshape(len(few), -1)
            seen.append((root[:, None] * np.column_stack([few.empty, worth])).ravel())
        stacked = np.stack(seen)
        gram[start:] += stacked[start:] @ stacked.T
    lower = np.tril(gram)
    return np.asarray(lower + np.tril(lower, -1).T)


def stacked_weights(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights, (m,), of least squared error, by products of labels and m statistics."""
    # that error is a proper score, convex, and far less noisy than the F_beta of decoded sets
    m = len(gram) - 1
    scale = max(float(np.trace(gram[1:, 1:])) / m, 1e-300)
    lower = np.linalg.cholesky(gram[1:, 1:] / scale + RIDGE * np.eye(m))
    design = np.vstack([lower.T, np.full(m, SUM_PENALTY)])
    weights, _ = nnls(design, np.append(np.linalg.solve(lower, gram[1:, 0] / scale), SUM_PENALTY))
    return np.asarray(weights / weights.sum())
