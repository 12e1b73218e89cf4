"""The paper's algorithm as a scikit-learn estimator: validate, encode, solve, decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fbeta._estimator import StatisticsClassifier
from fbeta._path import Decide, LinearPath
from fbeta._validation import check_choice, check_count, check_number, check_sample_weight
from fbeta.decoding import decode
from fbeta.encoding import LabelStatistics, encode, observed_cardinalities
from fbeta.labels import Indicator
from fbeta.linear import fit_linear
from fbeta.losses import Loss, get_loss
from fbeta.selection import ALPHAS, search_alpha

__all__ = ["FBetaClassifier", "FBetaClassifierCV"]


class LinearStatisticsClassifier(LinearPath, StatisticsClassifier):
    """Statistics from linear models of every component of the code."""

    cardinalities: str
    _problem: NDArray[np.intp]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]

    def _check_parameters(self) -> None:
        """Check what the linear models are made with."""
        check_choice("cardinalities", self.cardinalities, ("seen", "all"))
        check_number("tol", self.tol, strict=True)
        check_count("max_iter", self.max_iter)
        get_loss(self.loss)

    def _fit_linear(
        self, X: Any, Y: Indicator, weight: NDArray[np.float64] | None, alpha: float
    ) -> None:
        """Fit to validated data and store the models of the distinct problems."""
        self.cardinalities_ = observed_cardinalities(Y, self.cardinalities)
        model = fit_linear(
            X,
            encode(Y, self.cardinalities_),
            get_loss(self.loss),
            alpha,
            weight=weight,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
            describe=self._describe,
        )
        self.coef_, self.intercept_, self._problem = model.coef, model.intercept, model.problem
        self.n_iter_ = int(model.n_iter.max(initial=0))

    def _describe(self, column: int) -> str:
        """Name a binary problem, for a warning."""
        if column == 0:
            return "no labels"
        k, j = divmod(column - 1, self.n_labels_)
        return f"size {self.cardinalities_[k]} with label {self.classes_[j]!s}"

    def _problems(self, Y: Indicator) -> tuple[sp.csc_array, Decide]:
        cardinalities = observed_cardinalities(Y, self.cardinalities)

        def decide(code: NDArray[Any]) -> NDArray[np.int8]:
            statistics = LabelStatistics.from_code(code, cardinalities, Y.shape[1])
            return decode(statistics, self.beta)

        return encode(Y, cardinalities), decide

    def _statistics(self, X: Any) -> LabelStatistics:
        scores = np.asarray(X @ self.coef_.T) + self.intercept_
        code = get_loss(self.loss).inverse_link(scores)[:, self._problem]
        return LabelStatistics.from_code(code, self.cardinalities_, self.n_labels_)


class FBetaClassifier(LinearStatisticsClassifier):
    """Multi-label classifier that is optimal for the F_beta-measure.

    Fits a regularised linear model of each of the probabilities ``P(no labels | x)`` and ``P(|y| =
    k, y_j = 1 | x)`` by minimising a convex calibrated surrogate, and predicts the label set with
    the highest expected F_beta under them. The models do not depend on beta.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for: above 1 recall counts more, below 1 precision.
    alpha : float >= 0
        Each binary problem minimises the SUM of its losses plus ``alpha / 2 |w|^2``; the intercept
        is not penalised.
    loss : {"logistic", "exponential", "squared"} or Loss
        A strictly proper composite loss.
    cardinalities : {"seen", "all"}
        Estimate the probabilities for the sizes of label sets that the training data has, or for
        all of 1..s. With an intercept both give the same predictions.
    fit_intercept : bool
        Whether the models have an intercept.
    tol : float > 0
        A problem has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    cardinalities_ : ndarray of shape (K,)
        Sizes of label sets that have statistics.
    coef_ : ndarray of shape (m, d)
        Coefficients of the distinct binary problems.
    intercept_ : ndarray of shape (m,)
        Their intercepts, infinite where the target is constant.
    n_iter_ : int
        Most Newton iterations of a problem.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, where X had string column names.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = FBetaClassifier(beta=1.0, alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    >>> clf.predict([[1.4]], beta=0.2), clf.predict([[1.4]], beta=5.0)
    ([['sea']], [['sea', 'sky']])
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        loss: str | Loss = "logistic",
        cardinalities: str = "seen",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.loss = loss
        self.cardinalities = cardinalities
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> FBetaClassifier:
        """Fit the models.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified, float32 stays float32.
        y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), DataFrame, or a sequence of label sets
            such as ``[["sky", "sea"], []]``; also a 1-D binary target, which is one label.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        FBetaClassifier
            Itself.
        """
        self._check_parameters()
        alpha = check_number("alpha", self.alpha)
        X, Y, weight = self._read_training(X, y, sample_weight)
        self._fit_linear(X, Y, weight, alpha)
        return self


class FBetaClassifierCV(LinearStatisticsClassifier):
    """:class:`FBetaClassifier` with its alpha chosen by cross-validation.

    Picks the alpha with the best instance-averaged F_beta over the folds and fits with it to all
    rows. Each fold is one pass along the path of alphas with warm starts, in coordinates of X that
    all folds and alphas share.

    Parameters
    ----------
    alphas : sequence of float
        The strengths of regularisation to try.
    cv : int, splitter or iterable of (train, test)
        A number of shuffled folds, or as in scikit-learn; splitters for multi-label data get Y as
        a 0/1 array.
    beta, loss, cardinalities, fit_intercept, tol, max_iter
        As for :class:`FBetaClassifier`.
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
        ``"rank_test_score"``.
    classes_, cardinalities_, coef_, intercept_, n_iter_
        As for :class:`FBetaClassifier`.

    Examples
    --------
    >>> from fbeta import FBetaClassifierCV
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> clf = FBetaClassifierCV(alphas=[0.1, 1.0, 1000.0], cv=3).fit(X, Y)
    >>> clf.cv_results_["mean_test_score"].shape, clf.alpha_ < 1000
    ((3,), True)
    """

    def __init__(
        self,
        alphas: Sequence[float] = ALPHAS,
        cv: Any = 5,
        beta: float = 1.0,
        *,
        loss: str | Loss = "logistic",
        cardinalities: str = "seen",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        n_jobs: int | None = None,
    ) -> None:
        self.alphas = alphas
        self.cv = cv
        self.beta = beta
        self.loss = loss
        self.cardinalities = cardinalities
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> FBetaClassifierCV:
        """Search for alpha, and fit with it to all rows.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`FBetaClassifier.fit`; the weights count in fits and scores.
        groups : array-like of shape (n,), optional
            For splitters that need them.

        Returns
        -------
        FBetaClassifierCV
            Itself.
        """
        self._check_parameters()
        X, Y, _ = self._read_training(X, y)
        weight = check_sample_weight(sample_weight, X.shape[0])
        result = search_alpha(
            self, X, Y, weight, alphas=self.alphas, cv=self.cv, groups=groups, n_jobs=self.n_jobs
        )
        self.alpha_, self.best_score_ = result.alpha, result.score
        self.cv_results_ = result.cv_results
        if weight is not None:
            rows = np.flatnonzero(weight)
            X, Y, weight = X[rows], Y[rows], weight[rows]
        self._fit_linear(X, Y, weight, self.alpha_)
        return self
