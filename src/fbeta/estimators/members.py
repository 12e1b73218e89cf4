"""Out-of-fold statistics of any estimator that has some, alone or at the end of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from fbeta.estimators.base import Fold, HeldOut
from fbeta.estimators.calibration import Calibration
from fbeta.estimators.features import validate_features
from fbeta.estimators.folds import (
    HeldOutScores,
    over_folds,
    row_shares,
    score_table,
    stop_when_idle,
)
from fbeta.estimators.stacking import stacked_weights
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Rows, Weight, take_rows
from fbeta.metrics import fbeta_per_instance
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["Candidate", "Trial", "fit_member", "statistics_of"]


@dataclass(frozen=True)
class Candidate:
    """An estimator as it did on rows that it had not seen.

    Attributes
    ----------
    name : str
        What it is called.
    estimator : estimator
        Not fitted, with the alpha that did best.
    score : float
        The mean over the folds of its F_beta.
    seconds : float
        What finding this out took.
    statistics : LabelStatistics
        Of the held-out rows, in single precision.
    """

    name: str
    estimator: Any
    score: float
    seconds: float
    statistics: LabelStatistics


@dataclass(frozen=True)
class Trial:
    """The rows and folds that estimators are compared on.

    Attributes
    ----------
    Y : csr_array of shape (n, s)
        Labels.
    weight : ndarray of shape (n,), or None
        Of the rows.
    folds : sequence of (train, test)
        Indices of rows.
    beta : float
        The measure.
    n_jobs : int, optional
        Folds that are run at the same time.
    kept : ndarray of bool of shape (n,), optional
        The rows whose statistics are kept; all by default.
    """

    Y: Indicator
    weight: Weight
    folds: Sequence[Fold]
    beta: float
    n_jobs: int | None = None
    kept: NDArray[np.bool_] | None = None

    def try_out(self, name: str, estimator: Any, X: Any, alphas: Any) -> Candidate:
        """Fit to the training rows of every fold, and look at the others.

        Parameters
        ----------
        name : str
            What to call it.
        estimator : estimator
            With ``predict_statistics``; or a pipeline that ends with one, whose transformers are
            fitted in every fold anew.
        X : features of n rows
            As the estimator takes them.
        alphas : sequence of float, or None
            The strengths to choose from for estimators with a parameter ``alpha``; None to leave
            it as it is. A search for alpha brings its own.

        Returns
        -------
        Candidate
        """
        begin = perf_counter()
        maps, last = split_pipeline(estimator)
        inner, grid = _search_space(last, alphas)
        check_takes_weight(inner, self.weight)
        if maps is None:
            found = self._over_folds(inner, X, self.folds, grid)
        else:
            found = []
            for fold in self.folds:
                train = fold[0]
                fitted = clone(maps).fit(take_rows(X, train), self.Y[train].toarray())
                found += self._over_folds(inner, fitted.transform(X), [fold], grid)
        shares = row_shares(self.folds, self.weight)
        mean = score_table(grid, found, shares).mean(axis=1)
        # the strongest of those that tie
        best = int(np.flatnonzero(mean == np.nanmax(mean))[-1])
        parts = [fold[grid[best]].statistics for fold in found]
        chosen = _with_alpha(estimator, inner, grid[best])
        return Candidate(
            name, chosen, float(mean[best]), perf_counter() - begin,
            LabelStatistics.concatenate(parts),
        )  # fmt: skip

    def _over_folds(self, inner: Any, X: Any, folds: Sequence[Fold], grid: Sequence[Any]) -> Any:
        if not isinstance(inner, StatisticsClassifier):
            return [{grid[0]: self._look_at_other(inner, X, fold)} for fold in folds]
        if hasattr(inner, "alpha"):
            X = validate_features(clone(inner), X, reset=True)
        return over_folds(
            self._look, inner, X, self.Y, self.weight, folds=folds, alphas=grid,
            n_jobs=self.n_jobs, stop=stop_when_idle(self.Y, self.weight, self.beta),
        )  # fmt: skip

    def _look_at_other(self, estimator: Any, X: Any, fold: Fold) -> HeldOutScores:
        train, test = fold
        weights = {} if self.weight is None else {"sample_weight": self.weight[train]}
        fitted = clone(estimator).fit(take_rows(X, train), self.Y[train].toarray(), **weights)
        return self._read([fitted.predict_statistics(take_rows(X, test))], test)

    def _look(self, held: HeldOut, rows: Rows) -> HeldOutScores:
        return self._read(held.parts(), rows)

    def _read(self, parts: Any, rows: Rows) -> HeldOutScores:
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

    def _kept_rows(self) -> tuple[Rows, NDArray[np.float64]]:
        """Return the rows whose statistics are kept, and what each counts in a score."""
        shares = row_shares(self.folds, self.weight)
        kept = [self._kept(test) for _, test in self.folds]
        rows = np.concatenate([test[k] for (_, test), k in zip(self.folds, kept, strict=True)])
        share = [s[k] * (s.sum() / s[k].sum()) for s, k in zip(shares, kept, strict=True) if len(k)]
        joined = np.concatenate(share)
        return rows, joined / joined.sum()

    def score(self) -> Callable[[LabelStatistics], float]:
        """Return what computes the F_beta of decoded statistics of the rows that are kept."""
        rows, share = self._kept_rows()
        truth = self.Y[rows]

        def score(statistics: LabelStatistics) -> float:
            labels = decode(statistics, self.beta)
            return float(fbeta_per_instance(truth, labels, self.beta) @ share)

        return score

    def stacked(
        self, parts: Sequence[LabelStatistics], of: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return weights of statistics of the rows that are kept, zero but for some of them."""
        rows, share = self._kept_rows()
        chosen = np.arange(len(parts)) if of is None else np.flatnonzero(of)
        weights = np.zeros(len(parts))
        own = [parts[int(i)] for i in chosen]
        weights[chosen] = stacked_weights(own, self.Y[rows], self.beta, share)
        return weights

    def calibration(self, statistics: LabelStatistics) -> Calibration:
        """Compare what statistics of the kept rows make expect with what they achieve."""
        rows, share = self._kept_rows()
        labels, expected = decode(statistics, self.beta, return_expected=True)
        achieved = fbeta_per_instance(self.Y[rows], labels, self.beta)
        return Calibration.of(self.beta, np.minimum(expected, 1.0), achieved, share)


def split_pipeline(estimator: Any) -> tuple[Any, Any]:
    """Return the transformers of a pipeline and its last step, or None and the estimator."""
    if not isinstance(estimator, Pipeline):
        return None, estimator
    return (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]


def _search_space(estimator: Any, alphas: Any) -> tuple[Any, list[Any]]:
    """Return the estimator to be tried out, and its strengths."""
    if isinstance(estimator, AlphaSearchCV):
        return estimator.estimator, list(estimator.alphas)
    if alphas is None or not hasattr(estimator, "alpha"):
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
    return clone(estimator).fit(X, Y.toarray(), **weights)


def statistics_of(estimator: Any, X: Any) -> LabelStatistics:
    """Return the label statistics of a fitted estimator or pipeline."""
    maps, last = split_pipeline(estimator)
    found: LabelStatistics = last.predict_statistics(X if maps is None else maps.transform(X))
    return found
