"""The choice of alpha by cross-validation, with one pass along the path for each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fbeta._array import to_numpy
from fbeta._estimator import (
    Fold,
    HeldOut,
    MultiLabelClassifier,
    StatisticsClassifier,
    all_or_nothing,
    remember,
)
from fbeta._threads import run_evenly
from fbeta._validation import check_count, check_number, check_takes_weight
from fbeta.blocks.searching import BlockSearch
from fbeta.blocks.source import Source
from fbeta.codes import Code
from fbeta.encoding import LabelStatistics
from fbeta.labels import Indicator
from fbeta.learners import Alphas, Rows, Weight
from fbeta.metrics import fbeta_score

__all__ = ["ALPHAS", "AlphaSearchCV", "make_folds", "over_folds"]

#: The grid of the paper.
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)

Found = TypeVar("Found")
Method = TypeVar("Method", bound=Callable[..., Any])


def make_folds(
    cv: Any, X: Any, Y: Indicator, weight: Weight = None, groups: Any = None
) -> list[Fold]:
    """Split the rows of multi-label data; rows of weight zero are in no fold.

    Parameters
    ----------
    cv : int, splitter or iterable of (train, test)
        A number stands for that many shuffled folds of the rows with a positive weight, always the
        same ones: files of multi-label data are often sorted by label, and label sets cannot be
        stratified like classes. Splitters get all rows, and Y as a 0/1 array.
    X, Y : array or csr_array of shape (n, d), csr_array of shape (n, s)
        Features, and labels as 0/1.
    weight, groups : array of shape (n,), optional
        Weights of the rows; groups for splitters that need them.

    Returns
    -------
    list of (train, test)
        Indices of rows.
    """
    rows = np.arange(Y.shape[0]) if weight is None else np.flatnonzero(weight)
    if isinstance(cv, Integral):
        splitter = KFold(check_count("cv", cv, low=2), shuffle=True, random_state=0)
        return [(rows[train], rows[test]) for train, test in splitter.split(rows)]
    folds = []
    for fold in check_cv(cv).split(X, Y.toarray(), groups):
        train, test = (part[np.isin(part, rows)] for part in map(np.asarray, fold))
        if not len(train) or not len(test):
            raise ValueError("a fold has no rows with positive sample_weight: choose another cv")
        folds.append((train, test))
    return folds


def over_folds(
    look: Callable[[HeldOut, Rows], Found],
    estimator: MultiLabelClassifier,
    X: Any,
    Y: Indicator,
    weight: Weight = None,
    *,
    folds: Sequence[Fold],
    alphas: Alphas = ALPHAS,
    n_jobs: int | None = None,
) -> list[dict[float, Found]]:
    """Look at the held-out rows of every fold, for each strength of regularisation.

    Parameters
    ----------
    look : callable
        Called with what the estimator that was fitted to the other rows says of these - label sets
        and statistics - and with their indices.
    estimator, alphas, n_jobs
        As for :class:`AlphaSearchCV`.
    X, Y, weight, folds
        As for :func:`make_folds` and from it; X is validated.

    Returns
    -------
    list of dict
        What ``look`` returned, by strength, for each fold.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> from fbeta.labels import form_of
    >>> X, Y = np.arange(6.0)[:, None], form_of([[1], [0]] * 3).read([[1], [0]] * 3)
    >>> found = over_folds(lambda held, rows: held.statistics(), FBetaClassifier(), X, Y,
    ...                    folds=make_folds(2, X, Y), alphas=[0.1, 1.0])
    >>> [len(statistics[0.1]) for statistics in found]
    [3, 3]
    """
    check_takes_weight(estimator, weight)
    shared = estimator.alpha_shared(X, weight)

    def run(fold: Fold) -> dict[float, Found]:
        path = estimator.alpha_path(shared, Y, weight, fold, alphas)
        return {alpha: look(held, fold[1]) for alpha, held in path}

    if n_jobs is None and effective_n_jobs(None) == 1:
        return run_evenly(run, folds)
    return list(Parallel(n_jobs=n_jobs)(delayed(run)(fold) for fold in folds))


def _score_rows(estimator: Any, code: Code, model: Any, rows: Any) -> tuple[float, float]:
    """Return the sum of the F_beta of some rows under a model, and of their weights."""
    fitted = clone(estimator)  # several threads may be here
    fitted._code, fitted._model, fitted.n_labels_ = code, model, rows.Y.shape[1]
    predicted = to_numpy(fitted._predict_indicator(rows.X, estimator.beta))
    weight = rows.X.shape[0] if rows.weight is None else float(rows.weight.sum())
    mean = fbeta_score(rows.Y, predicted, estimator.beta, sample_weight=rows.weight)
    return mean * weight, weight


def _if_estimator_has(name: str) -> Callable[[Method], Method]:
    """Make a method of a search available only where its estimator has it."""
    decorate: Callable[[Method], Method] = available_if(lambda s: hasattr(s.estimator, name))
    return decorate


class AlphaSearchCV(MultiLabelClassifier):
    """Any estimator of the library with its alpha chosen by cross-validation.

    Picks the alpha with the best instance-averaged F_beta over the folds - the largest of those
    that tie - and fits with it to all rows. Has ``predict_proba``, ``predict_statistics`` and
    ``expected_fbeta`` where the estimator has them.

    Parameters
    ----------
    estimator : estimator
        With a parameter ``alpha``; it is cloned, its ``beta`` is the measure.
    alphas : sequence of float
        The strengths of regularisation to try.
    cv : int, splitter or iterable of (train, test)
        A number of shuffled folds, or as in scikit-learn; splitters for multi-label data get Y as
        a 0/1 array.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    best_score_ : float
        Its mean F_beta over the folds.
    cv_results_ : dict
        ``"alpha"``, ``"split{i}_test_score"``, ``"mean_test_score"``, ``"std_test_score"`` and
        ``"rank_test_score"``, each of shape (number of strengths,).
    best_estimator_ : estimator
        Fitted to all rows with the chosen strength.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> search = AlphaSearchCV(FBetaClassifier(), alphas=[0.1, 1.0, 1000.0]).fit(X, Y)
    >>> search.alpha_ in (0.1, 1.0, 1000.0)
    True
    """

    def __init__(
        self, estimator: Any, *, alphas: Alphas = ALPHAS, cv: Any = 5, n_jobs: int | None = None
    ) -> None:
        self.estimator, self.alphas, self.cv, self.n_jobs = estimator, alphas, cv, n_jobs

    @property
    def beta(self) -> float:  # type: ignore[override]
        """The measure of the estimator."""
        return float(self.estimator.beta)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags, tags.array_api_support = own.input_tags, own.array_api_support
        return tags

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, groups: Any = None
    ) -> Self:
        """Search for alpha, and fit with it to all rows.

        Parameters
        ----------
        X, y, sample_weight
            As for the estimator; the weights count in fits and scores.
        groups : array-like of shape (n,), optional
            For splitters that need them.

        Returns
        -------
        estimator
            Itself.
        """
        estimator = self.estimator
        if not isinstance(estimator, MultiLabelClassifier) or not hasattr(estimator, "alpha"):
            raise TypeError(
                f"estimator must be an estimator of fbeta with a parameter alpha, got {estimator!r}"
            )
        with all_or_nothing(self) as draft:
            source = draft._open(X, y, sample_weight)
            if source is not None:
                draft._fit_blocks(source)
            else:
                features, Y, weight = draft._read_training(X, y, sample_weight)
                draft._search(estimator, features, Y, weight, groups)
                best = clone(estimator).set_params(alpha=draft.alpha_)
                weights = {} if weight is None else {"sample_weight": weight}
                draft.best_estimator_ = best.fit(X, y, **weights)
        return self

    def _fit_blocks(self, source: Source) -> None:
        if not isinstance(self.estimator, StatisticsClassifier):
            super()._fit_blocks(source)
        best = clone(self.estimator)
        scanned = best._scan(source)
        remember(self, scanned)
        rows = scanned.rows()
        if rows is not None:
            self._search(self.estimator, rows.X, rows.Y, rows.weight, None)
            best.set_params(alpha=self.alpha_)._fit(rows.X, rows.Y, rows.weight)
        else:
            grid, code = self._grid(), best._make_code(scanned.witnesses)
            search = BlockSearch(scanned, best._make_learner(), code, grid, self.cv)
            self._choose(grid, search.scores(partial(_score_rows, self.estimator)))
            best.set_params(alpha=self.alpha_)
            best._code, best._model = code, search.fit(self.alpha_, best._namer(code))
        self.best_estimator_ = best

    def _grid(self) -> list[float]:
        """Return the strengths, from the weakest to the strongest."""
        if np.ndim(self.alphas) != 1:
            raise ValueError(f"alphas must be a sequence of numbers, got {self.alphas!r}")
        grid = sorted({check_number("alphas", a) for a in self.alphas})
        if not grid:
            raise ValueError("alphas is empty: there is nothing to choose from")
        return grid

    def _search(self, estimator: Any, X: Any, Y: Indicator, weight: Weight, groups: Any) -> None:
        """Score every strength on every fold, and choose."""
        grid = self._grid()
        beta, folds = estimator.beta, make_folds(self.cv, X, Y, weight, groups)

        def score(held: HeldOut, rows: Rows) -> float:
            own = None if weight is None else weight[rows]
            return fbeta_score(Y[rows], to_numpy(held.labels(beta)), beta, sample_weight=own)

        found = over_folds(
            score, estimator, X, Y, weight, folds=folds, alphas=grid, n_jobs=self.n_jobs
        )
        self._choose(grid, np.array([[fold[alpha] for fold in found] for alpha in grid]))

    def _choose(self, grid: Sequence[float], scores: NDArray[np.float64]) -> None:
        """Choose a strength by the scores of the folds, (number of strengths, folds)."""
        mean = scores.mean(axis=1)
        best = int(np.flatnonzero(mean == mean.max())[-1])
        self.alpha_, self.best_score_ = grid[best], float(mean[best])
        self.cv_results_: dict[str, NDArray[Any]] = {
            "alpha": np.array(grid),
            **{f"split{i}_test_score": scores[:, i] for i in range(scores.shape[1])},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=1),
            "rank_test_score": 1 + (mean[None, :] > mean[:, None]).sum(axis=1),
        }

    def _best(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    def predict(self, X: Any, *, beta: float | None = None, **goal: Any) -> Any:
        """Predict label sets, by the best estimator, which may take limits or another measure."""
        return self._best().predict(X, beta=beta, **goal)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the instance-averaged F_beta of the best estimator."""
        return float(self._best().score(X, y, sample_weight))

    @_if_estimator_has("predict_statistics")
    def predict_statistics(self, X: Any) -> LabelStatistics:
        """Estimate everything the decoder needs, by the best estimator."""
        return self._best().predict_statistics(X)  # type: ignore[no-any-return]

    @_if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Estimate the marginal probability of each label, by the best estimator."""
        return self._best().predict_proba(X)

    @_if_estimator_has("expected_fbeta")
    def expected_fbeta(self, X: Any, *, beta: float | None = None, **limits: Any) -> Any:
        """Estimate the F_beta of each prediction, by the statistics of the best estimator."""
        return self._best().expected_fbeta(X, beta=beta, **limits)
