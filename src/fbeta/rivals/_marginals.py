"""What the rivals share that estimate the probability of each label by itself."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fbeta._estimator import MultiLabelClassifier, StatisticsClassifier
from fbeta._validation import check_beta, check_count, check_number
from fbeta.decoding import expected_fbeta
from fbeta.linear import LinearModel


class LinearMarginals(MultiLabelClassifier):
    """One linear score ``x.w_j + b_j`` for each label.

    A subclass implements ``fit`` (ending in :meth:`_keep`) and ``_predict_indicator``.
    """

    alpha: float
    fit_intercept: bool
    tol: float
    max_iter: int
    coef_: NDArray[Any]
    intercept_: NDArray[Any]

    def _check_solver(self) -> dict[str, Any]:
        """Check the parameters of the solver, and return them for ``fit_linear``."""
        return {
            "alpha": check_number("alpha", self.alpha),
            "tol": check_number("tol", self.tol, strict=True),
            "max_iter": check_count("max_iter", self.max_iter),
        }

    def _keep(self, model: LinearModel) -> None:
        """Store one row of coefficients for each label."""
        self.coef_ = model.coef[model.problem]
        self.intercept_ = model.intercept[model.problem]
        self.n_iter_ = int(model.n_iter.max(initial=0))

    def _scores(self, X: Any) -> NDArray[Any]:
        scores: NDArray[Any] = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores


class OwnDecoding(StatisticsClassifier):
    """Statistics, and predictions that need not be the F_beta-optimal ones under them."""

    def expected_fbeta(self, X: Any, *, beta: float | None = None) -> NDArray[np.float64]:
        """Estimate the F_beta of each prediction, by the model's own statistics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            That of the estimator by default.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        beta = check_beta(self.beta if beta is None else beta)
        X = self._validate_X(X, reset=False)
        predicted = self._predict_indicator(X, beta)
        parts = [expected_fbeta(q, predicted[rows], beta) for rows, q in self._chunks(X)]
        return np.minimum(np.concatenate(parts), 1.0)


class MarginalClassifier(LinearMarginals):
    """Linear models of the marginal probabilities, which :meth:`predict_proba` returns."""

    @abstractmethod
    def _marginals(self, X: Any) -> NDArray[Any]:
        """Estimate ``P(y_j = 1 | x)`` for validated X, of shape (n, s)."""

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, s)
            ``P(y_j = 1 | x)``. For a 1-D binary target, the probability of each class, as
            elsewhere in scikit-learn.
        """
        check_is_fitted(self)
        return self._by_class(self._marginals(self._validate_X(X, reset=False)))


class HeldOutChoice(LinearMarginals):
    """Marginal probabilities, and predictions that do not cut them at 1/2.

    A subclass chooses where to cut on rows that are held out.
    """

    average: str
    validation_fraction: float
    random_state: Any

    @abstractmethod
    def _marginals(self, X: Any) -> NDArray[Any]:
        """Estimate ``P(y_j = 1 | x)`` for validated X, of shape (n, s)."""

    def predict_marginals(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label.

        It is not called ``predict_proba``: scikit-learn takes for granted that a classifier which
        has that predicts the most probable class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, s)
            ``P(y_j = 1 | x)``.
        """
        check_is_fitted(self)
        return self._marginals(self._validate_X(X, reset=False))
