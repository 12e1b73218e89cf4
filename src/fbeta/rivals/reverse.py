"""Reverse multi-label learning: a structured SVM with the loss 1 - F_beta of an instance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._estimator import MultiLabelClassifier
from fbeta._validation import check_count, check_number
from fbeta.rivals._structured import (
    Array,
    check_same_beta,
    linear_gradient,
    linear_scores,
    minimise,
    most_violated,
)

__all__ = ["ReverseMultiLabel"]


class ReverseMultiLabel(MultiLabelClassifier):
    """Reverse multi-label learning (Petterson and Caetano, 2010).

    Minimises ``alpha / 2 sum_j |w_j|^2 + sum_i max_yhat [1 - F_beta(y_i, yhat) + sum_j (yhat_j -
    y_ij) w_j.x_i]`` and predicts the labels with ``w_j.x > 0``.

    Parameters
    ----------
    beta : float > 0
        The measure in the loss.
    alpha : float > 0
        Strength of the penalty against the SUM of the losses.
    fit_intercept : bool
        Whether the scores have an intercept: the weight of a constant feature 1, penalised like
        the others.
    tol : float > 0
        Stop once the duality gap is below ``tol`` times the objective.
    max_iter : int
        Largest number of iterations of the bundle method.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_ : ndarray of shape (s, d)
        Weights of the features.
    intercept_ : ndarray of shape (s,)
        Intercepts.
    objective_, gap_ : float
        The objective reached, and how far above the minimum it is at most.
    n_iter_ : int
        Iterations taken.
    beta_ : float
        The measure that the model was fitted for.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ReverseMultiLabel(alpha=0.01).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-3,
        max_iter: int = 1000,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> ReverseMultiLabel:
        """Fit the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified.
        y : labels of n instances
            In any form that :class:`fbeta.FBetaClassifier` takes.
        sample_weight : array-like of shape (n,), optional
            Weights of the losses of the instances.

        Returns
        -------
        ReverseMultiLabel
            Itself.
        """
        alpha = check_number("alpha", self.alpha, strict=True)
        tol = check_number("tol", self.tol, strict=True)
        max_iter = check_count("max_iter", self.max_iter)
        X, indicator, weight = self._read_training(X, y, sample_weight)
        Y, constant = indicator.toarray(), float(self.fit_intercept)
        share = np.ones(len(Y)) if weight is None else weight
        shape = (self.n_labels_, X.shape[1] + 1)

        def oracle(w: Array) -> tuple[float, Array]:
            scores = linear_scores(X, w.reshape(shape), constant)
            sets, values = most_violated(scores, Y, self.beta)
            risk = share @ (values - (scores * Y).sum(axis=1))
            return float(risk), linear_gradient(X, share[:, None] * (sets - Y), constant).ravel()

        result = minimise(oracle, np.full(shape[0] * shape[1], alpha), tol=tol, max_iter=max_iter)
        W = result.w.reshape(shape)
        self.coef_, self.intercept_ = W[:, :-1].copy(), constant * W[:, -1]
        self.objective_, self.gap_, self.n_iter_ = result.objective, result.gap, result.n_iter
        self.beta_ = float(self.beta)
        return self

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        check_same_beta(beta, self.beta_)
        return np.asarray(X @ self.coef_.T + self.intercept_ > 0)
