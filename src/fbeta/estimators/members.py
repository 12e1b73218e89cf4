"""Trials of estimators and pipelines: label statistics of held-out rows, and their scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from fbeta._threads import check_cancelled
from fbeta._validation import check_takes_weight
from fbeta.decoding.exact import decode
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.base import Fold
from fbeta.estimators.calibration import Calibration
from fbeta.estimators.decisions import HeldOut
from fbeta.estimators.features import validate_features
from fbeta.estimators.folds import (
    HeldOutScores,
    over_folds,
    row_shares,
    score_table,
    stop_when_idle,
)
from fbeta.estimators.forest import SizedSetsCode
from fbeta.estimators.sized import SizedClassifier
from fbeta.estimators.stacking import stacked_weights
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Rows, Weight, take_rows
from fbeta.metrics import fbeta_per_instance
from fbeta.statistics import LabelStatistics, observed_cardinalities
from fbeta.statistics.codes import LabelSetCode, MarginalCode, SizedCode

__all__ = ["INDEPENDENT", "Candidate", "Trial", "as_candidates", "fit_member", "kept_rows",
           "statistics_of"]  # fmt: skip

#: Added to the name of a candidate whose labels are independent, by the same marginals.
INDEPENDENT = "independent"
#: Added to the name of a forest whose labels are independent given their number.
SIZED = "sized"
HALF_DECADE = 10**0.5
# bytes of the statistics that are kept of all candidates, and numbers that one decode may read
KEPT_BYTES, MAX_DECODED_NUMBERS = 1 << 29, 3e7
EXPECTED_CANDIDATES = 24  # for which memory is planned


@dataclass(frozen=True)
class Candidate:
    """An estimator with its results on held-out rows."""

    name: str  # of map and model
    estimator: Any  # not fitted, with the best alpha
    score: float  # the mean over the folds of its F_beta
    seconds: float  # of the trial
    statistics: LabelStatistics  # of the held-out rows, in single precision


@dataclass(frozen=True)
class Trial:
    """The rows and folds that estimators are compared on."""

    Y: Indicator  # (n, s)
    weight: Weight
    folds: Sequence[Fold]
    beta: float
    n_jobs: int | None = None
    kept: NDArray[np.bool_] | None = None  # (n,), the rows whose statistics are kept; None for all

    def try_out(
        self, name: str, estimator: Any, X: Any, alphas: Any, *, more: bool = False
    ) -> list[Candidate]:
        """Fit to the training rows of every fold, and score the held-out rows.

        The transformers of a pipeline are fitted in every fold anew. ``alphas`` are those to choose
        from for estimators that have one; a search for alpha brings its own. ``more`` also tries
        half decades beside the best alpha, and a second candidate with other dependence of the
        labels from the same fits, where the estimator has two kinds.
        """
        begin = perf_counter()
        maps, last = split_pipeline(estimator)
        inner, grid = _search_space(last, alphas)
        check_takes_weight(inner, self.weight)
        both = (
            more
            and maps is None
            and (isinstance(inner, SizedClassifier) or hasattr(inner, "labels"))
        )
        found = self._scores(maps, inner, X, grid, both)
        if more and len(grid) > 1:
            tables = [self._best(grid, found, kind)[0] for kind in found[0][grid[-1]]]
            beside = {float(f"{a * f:.6g}") for a in tables for f in (HALF_DECADE, 1 / HALF_DECADE)}
            again = self._scores(maps, inner, X, sorted(beside), both, prune=False)
            found = [{**one, **other} for one, other in zip(found, again, strict=True)]
            grid = sorted({*grid, *beside})
        out, seconds = [], perf_counter() - begin
        for kind in found[0][grid[-1]]:
            alpha, score = self._best(grid, found, kind)
            chosen = _with_alpha(estimator, inner, alpha)
            if kind == INDEPENDENT:
                chosen.set_params(sizes="independent")
            elif kind:
                chosen.set_params(labels="sized")
            parts = [fold[alpha][kind].statistics for fold in found]
            words = f"{name}, {kind}" if kind else name
            joined = LabelStatistics.concatenate([part for part in parts if part is not None])
            out.append(Candidate(words, chosen, score, seconds, joined))
            seconds = 0.0
        return out

    def _best(self, grid: Sequence[Any], found: Any, kind: str) -> tuple[Any, float]:
        """Return the best alpha, the strongest of those that tie, and its mean score."""
        own = [{alpha: scores[kind] for alpha, scores in fold.items()} for fold in found]
        mean = score_table(grid, own, row_shares(self.folds, self.weight)).mean(axis=1)
        best = int(np.flatnonzero(mean == np.nanmax(mean))[-1])
        return grid[best], float(mean[best])

    def _scores(
        self, maps: Any, inner: Any, X: Any, grid: Sequence[Any], both: bool, prune: bool = True
    ) -> list[dict[Any, dict[str, HeldOutScores]]]:
        """Return the scores of each fold, by alpha and by kind of labels."""
        if maps is None:
            return list(self._over_folds(inner, X, self.folds, grid, both, prune))
        found = []
        for fold in self.folds:
            train = fold[0]
            fitted = clone(maps).fit(take_rows(X, train), self.Y[train].toarray())
            found += self._over_folds(inner, fitted.transform(X), [fold], grid, both, prune)
        return found

    def _over_folds(
        self,
        inner: Any,
        X: Any,
        folds: Sequence[Fold],
        grid: Sequence[Any],
        both: bool,
        prune: bool,
    ) -> Any:
        if not isinstance(inner, StatisticsClassifier):
            return [{grid[0]: {"": self._fit_other(inner, X, fold)}} for fold in folds]
        of_sets = hasattr(inner, "labels")
        if hasattr(inner, "alpha") and getattr(inner, "estimator", None) is None:
            X = validate_features(clone(inner), X, reset=True)

        def scores(held: HeldOut, rows: Rows) -> dict[str, HeldOutScores]:
            if not both:
                return {"": self._read(held.parts(), rows)}
            estimates = list(held.estimator.estimates(held.rows, checked=True))
            other, read = (SIZED, _sized) if of_sets else (INDEPENDENT, _independent)
            return {
                "": self._read((part.statistics() for part in estimates), rows),
                other: self._read(map(read, estimates), rows),
            }

        stop = stop_when_idle(self.Y, self.weight, self.beta)

        def stop_kinds(fold: Fold) -> Any:
            rules: dict[str, Any] = {}

            def is_over(alpha: float, found: dict[str, HeldOutScores]) -> bool:
                over = [
                    rules.setdefault(kind, stop(fold))(alpha, own) for kind, own in found.items()
                ]
                return all(over)

            return is_over

        return over_folds(
            scores,
            inner,
            X,
            self.Y,
            self.weight,
            folds=folds,
            alphas=grid,
            n_jobs=self.n_jobs,
            stop=stop_kinds if prune else None,
        )

    def _fit_other(self, estimator: Any, X: Any, fold: Fold) -> HeldOutScores:
        """Fit an estimator that is not of this library, and score the held-out rows."""
        train, test = fold
        weights = {} if self.weight is None else {"sample_weight": self.weight[train]}
        fitted = clone(estimator).fit(take_rows(X, train), self.Y[train].toarray(), **weights)
        return self._read([fitted.predict_statistics(take_rows(X, test))], test)

    def _read(self, parts: Iterable[LabelStatistics], rows: Rows) -> HeldOutScores:
        """Decode statistics of the test rows of a fold, and keep some of them."""
        labels, small, start = [], [], 0
        kept = self._kept(rows)
        for part in parts:
            check_cancelled()
            labels.append(decode(part, self.beta))
            own = kept[(kept >= start) & (kept < start + len(part))] - start
            small.append((part if len(own) == len(part) else part[own]).astype(np.float32))
            start += len(part)
        achieved = fbeta_per_instance(self.Y[rows], np.concatenate(labels), self.beta)
        return HeldOutScores(achieved, None, LabelStatistics.concatenate(small))

    def _kept(self, rows: Rows) -> NDArray[np.intp]:
        return np.arange(len(rows)) if self.kept is None else np.flatnonzero(self.kept[rows])

    def kept_rows(self) -> tuple[Rows, NDArray[np.float64]]:
        """Return the rows whose statistics are kept, and the share of each in a score."""
        shares = row_shares(self.folds, self.weight)
        kept = [self._kept(test) for _, test in self.folds]
        rows = np.concatenate([test[k] for (_, test), k in zip(self.folds, kept, strict=True)])
        share = [s[k] * (s.sum() / s[k].sum()) for s, k in zip(shares, kept, strict=True) if len(k)]
        joined = np.concatenate(share)
        return rows, joined / joined.sum()

    def achieved(self, statistics: LabelStatistics) -> NDArray[np.float64]:
        """Return the F_beta of decoded statistics of the kept rows, of each row."""
        labels = decode(statistics, self.beta)
        return fbeta_per_instance(self.Y[self.kept_rows()[0]], labels, self.beta)

    def stacked(
        self, parts: Sequence[LabelStatistics], of: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return weights of statistics of the rows that are kept, zero but for some of them."""
        rows, share = self.kept_rows()
        chosen = np.arange(len(parts)) if of is None else np.flatnonzero(of)
        weights = np.zeros(len(parts))
        own = [parts[int(i)] for i in chosen]
        weights[chosen] = stacked_weights(own, self.Y[rows], self.beta, share)
        return weights

    def calibration(self, statistics: LabelStatistics) -> Calibration:
        """Compare the expected F_beta of statistics of the kept rows with what they achieve."""
        rows, share = self.kept_rows()
        labels, expected = decode(statistics, self.beta, return_expected=True)
        achieved = fbeta_per_instance(self.Y[rows], labels, self.beta)
        return Calibration.of(self.beta, np.minimum(expected, 1.0), achieved, share)


def _independent(estimates: Any) -> LabelStatistics:
    """Return the statistics of independent labels by the marginals of a sized model."""
    code: SizedCode = estimates.code
    sizes = np.arange(1, code.n_labels + 1)
    return MarginalCode(sizes, code.n_labels).statistics(estimates.P[:, : code.n_labels])


def _sized(estimates: Any) -> LabelStatistics:
    """Return the statistics of labels that are independent given their number, of a forest."""
    code: LabelSetCode = estimates.code
    own = SizedSetsCode(code.cardinalities, code.n_labels, code.sets)
    return own.statistics(estimates.P)


def kept_rows(
    Y: Indicator, folds: Sequence[Fold], rng: np.random.RandomState
) -> NDArray[np.bool_] | None:
    """Return which rows are kept for the choice of weights, of every fold; None for all of them."""
    n, s = Y.shape
    width = 1 + s * max(1, len(observed_cardinalities(Y)))
    most = int(
        max(
            500,
            min(KEPT_BYTES / (4 * width * EXPECTED_CANDIDATES), MAX_DECODED_NUMBERS / width),
        )
    )
    total = sum(len(test) for _, test in folds)
    if total <= most:
        return None
    kept = np.zeros(n, dtype=np.bool_)
    for _, test in folds:
        count = min(len(test), -(-most * len(test) // total))
        kept[rng.choice(test, count, replace=False)] = True
    return kept


def as_candidates(given: Any, argument: str) -> dict[str, Any]:
    """Return estimators with statistics by name; other classifiers become sized ones."""
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f"the names of the {argument} must differ, got {names}")
    found = {}
    for name, estimator in given:
        last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        if hasattr(last, "predict_statistics"):
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


def _search_space(estimator: Any, alphas: Any) -> tuple[Any, list[Any]]:
    """Return the estimator to be tried out, and its alphas."""
    if isinstance(estimator, AlphaSearchCV):
        return estimator.estimator, list(estimator.alphas)
    fixed = getattr(estimator, "estimator", None) is not None
    if alphas is None or fixed or not hasattr(estimator, "alpha"):
        return estimator, [getattr(estimator, "alpha", None)]
    return estimator, list(alphas)


def _with_alpha(estimator: Any, inner: Any, alpha: Any) -> Any:
    """Return an estimator as it was tried out, with an alpha that is fixed."""
    chosen = clone(inner) if alpha is None else clone(inner).set_params(alpha=alpha)
    if not isinstance(estimator, Pipeline):
        return chosen
    return Pipeline([*clone(estimator).steps[:-1], (estimator.steps[-1][0], chosen)])


def fit_member(estimator: Any, X: Any, Y: Indicator, weight: Weight) -> Any:
    """Fit an estimator or pipeline to all rows."""
    name = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""
    weights = {} if weight is None else {f"{name}sample_weight": weight}
    labels = Y if isinstance(estimator, StatisticsClassifier) else Y.toarray()
    return clone(estimator).fit(X, labels, **weights)


def statistics_of(estimator: Any, X: Any) -> LabelStatistics:
    """Return the label statistics of a fitted estimator or pipeline."""
    maps, last = split_pipeline(estimator)
    found: LabelStatistics = last.predict_statistics(X if maps is None else maps.transform(X))
    return found
