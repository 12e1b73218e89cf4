"""The choice of alpha by cross-validation, with one pass along the path for each fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from fbeta._estimator import MultiLabelClassifier
from fbeta._threads import run_evenly
from fbeta._validation import check_beta, check_count, check_number, check_sample_weight
from fbeta.labels import Indicator
from fbeta.metrics import fbeta_score

__all__ = ["ALPHAS", "AlphaSearchCV", "SearchResult", "search_alpha"]

#: The grid of the paper.
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


class PathEstimator(Protocol):
    """An estimator that can be fitted along a path of strengths of regularisation."""

    beta: float

    def alpha_shared(self, X: Any, weight: NDArray[np.float64] | None) -> Any:
        """Return what all folds and strengths share: X in coordinates that make the work small."""

    def alpha_path(
        self,
        shared: Any,
        Y: Indicator,
        weight: NDArray[np.float64] | None,
        train: NDArray[np.intp],
        test: NDArray[np.intp],
        alphas: Sequence[float],
    ) -> Iterator[tuple[float, NDArray[np.bool_]]]:
        """Fit on some rows and yield predictions for others, for each strength."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    alpha : float
        The strength with the highest mean score; the largest of those that tie.
    score : float
        Its mean score.
    cv_results : dict
        ``"alpha"``, ``"split{i}_test_score"``, ``"mean_test_score"``, ``"std_test_score"`` and
        ``"rank_test_score"``, each of shape (number of strengths,).
    """

    alpha: float
    score: float
    cv_results: dict[str, NDArray[Any]]


def search_alpha(
    estimator: PathEstimator,
    X: Any,
    Y: Indicator,
    weight: NDArray[np.float64] | None = None,
    *,
    alphas: Sequence[float] = ALPHAS,
    cv: Any = 5,
    groups: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> SearchResult:
    """Find the strength of regularisation with the best instance-averaged F_beta over the folds.

    Parameters
    ----------
    estimator : PathEstimator
        Any estimator of the library with a parameter ``alpha``.
    X : array or csr matrix of shape (n, d)
        Validated features.
    Y : csr_array of shape (n, s)
        0/1 indicator.
    weight : ndarray of shape (n,), optional
        Weights of the rows; rows of weight zero are in no fit and no score.
    alphas : sequence of float
        The strengths to try.
    cv : int, splitter or iterable of (train, test)
        As for :func:`make_splitter`.
    groups : array-like of shape (n,), optional
        For splitters that need them.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.

    Returns
    -------
    SearchResult
    """
    if np.ndim(alphas) != 1:
        raise ValueError(f"alphas must be a sequence of numbers, got {alphas!r}")
    grid = np.unique([check_number("alphas", a) for a in alphas])
    if not len(grid):
        raise ValueError("alphas is empty: there is nothing to choose from")
    dense = Y.toarray()
    folds = list(make_splitter(cv).split(X, dense, groups))
    shared = estimator.alpha_shared(X, weight)

    def run(fold: tuple[NDArray[np.intp], NDArray[np.intp]]) -> NDArray[np.float64]:
        return _fold_scores(estimator, shared, Y, weight, *fold, grid)

    if n_jobs is None and effective_n_jobs(None) == 1:
        columns = run_evenly(run, folds)
    else:
        columns = Parallel(n_jobs=n_jobs)(delayed(run)(fold) for fold in folds)
    scores = np.stack(columns, axis=1)
    mean = scores.mean(axis=1)
    best = int(np.flatnonzero(mean == mean.max())[-1])
    rank = 1 + (mean[None, :] > mean[:, None]).sum(axis=1)
    results: dict[str, NDArray[Any]] = {"alpha": grid}
    results |= {f"split{i}_test_score": scores[:, i] for i in range(len(folds))}
    results |= {"mean_test_score": mean, "std_test_score": scores.std(axis=1)}
    results["rank_test_score"] = rank
    return SearchResult(float(grid[best]), float(mean[best]), results)


def make_splitter(cv: Any) -> Any:
    """Return a splitter for multi-label data.

    Parameters
    ----------
    cv : int, splitter or iterable of (train, test)
        A number stands for that many shuffled folds, always the same ones: files of multi-label
        data are often sorted by label, and label sets cannot be stratified like classes.

    Returns
    -------
    splitter
    """
    if isinstance(cv, Integral):
        return KFold(check_count("cv", cv, low=2), shuffle=True, random_state=0)
    return check_cv(cv)


def _fold_scores(
    estimator: PathEstimator,
    shared: Any,
    Y: Indicator,
    weight: NDArray[np.float64] | None,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    alphas: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the score on one fold for each strength, of shape (number of strengths,)."""
    train, test = np.asarray(train), np.asarray(test)
    if weight is not None:
        train, test = train[weight[train] > 0], test[weight[test] > 0]
        if not len(train) or not len(test):
            raise ValueError("a fold has no rows with positive sample_weight: choose another cv")
    test_weight = None if weight is None else weight[test]
    scores = np.full(len(alphas), np.nan)
    for alpha, predicted in estimator.alpha_path(shared, Y, weight, train, test, list(alphas)):
        place = int(np.searchsorted(alphas, alpha))
        scores[place] = fbeta_score(
            Y[test], sp.csr_array(predicted), estimator.beta, sample_weight=test_weight
        )
    return scores


class AlphaSearchCV(MultiLabelClassifier):
    """Any estimator of the library with its alpha chosen by cross-validation.

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
        Scores by strength and fold.
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
        self,
        estimator: Any,
        *,
        alphas: Sequence[float] = ALPHAS,
        cv: Any = 5,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.alphas = alphas
        self.cv = cv
        self.n_jobs = n_jobs

    @property
    def beta(self) -> float:  # type: ignore[override]
        """The measure of the estimator."""
        return float(self.estimator.beta)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> AlphaSearchCV:
        """Search for alpha, and fit with it to all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : labels of n instances
            In any form that the estimator takes.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances, in fits and scores.
        groups : array-like of shape (n,), optional
            For splitters that need them.

        Returns
        -------
        AlphaSearchCV
            Itself.
        """
        if not isinstance(self.estimator, MultiLabelClassifier) or not hasattr(
            self.estimator, "alpha"
        ):
            raise TypeError(
                "estimator must be an estimator of fbeta with a parameter alpha, "
                f"got {self.estimator!r}"
            )
        X, Y, _ = self._read_training(X, y)
        weight = check_sample_weight(sample_weight, X.shape[0])
        result = search_alpha(
            self.estimator, X, Y, weight,
            alphas=self.alphas, cv=self.cv, groups=groups, n_jobs=self.n_jobs,
        )  # fmt: skip
        self.alpha_, self.best_score_ = result.alpha, result.score
        self.cv_results_ = result.cv_results
        weights = {} if weight is None else {"sample_weight": weight}
        self.best_estimator_ = clone(self.estimator).set_params(alpha=self.alpha_)
        self.best_estimator_.fit(X, y, **weights)
        return self

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return np.asarray(self.best_estimator_._predict_indicator(X, check_beta(beta)))
