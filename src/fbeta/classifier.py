"""The paper's algorithm as a scikit-learn estimator: validate, encode, solve, decode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._estimator import StatisticsClassifier
from fbeta._validation import check_choice, check_count, check_number
from fbeta.encoding import LabelStatistics, encode, observed_cardinalities
from fbeta.linear import LinearModel, fit_linear
from fbeta.losses import Loss, get_loss

__all__ = ["FBetaClassifier"]


class LinearStatisticsClassifier(StatisticsClassifier):
    """Statistics from linear models of every component of the code."""

    alpha: float
    loss: str | Loss
    cardinalities: str
    fit_intercept: bool
    tol: float
    max_iter: int
    _problem: NDArray[np.intp]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]

    def _check_parameters(self) -> Loss:
        """Check what the linear models are made with, and return the loss."""
        check_choice("cardinalities", self.cardinalities, ("seen", "all"))
        check_number("tol", self.tol, strict=True)
        check_count("max_iter", self.max_iter)
        return get_loss(self.loss)

    def _keep(self, model: LinearModel, cardinalities: NDArray[np.intp]) -> None:
        """Store the models of the distinct problems as attributes."""
        self.cardinalities_ = cardinalities
        self.coef_, self.intercept_, self._problem = model.coef, model.intercept, model.problem
        self.n_iter_ = int(model.n_iter.max(initial=0))

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
        loss, alpha = self._check_parameters(), check_number("alpha", self.alpha)
        X, Y, weight = self._read_training(X, y, sample_weight)
        cardinalities = observed_cardinalities(Y, self.cardinalities)
        model = fit_linear(
            X,
            encode(Y, cardinalities),
            loss,
            alpha,
            weight=weight,
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        self._keep(model, cardinalities)
        return self
