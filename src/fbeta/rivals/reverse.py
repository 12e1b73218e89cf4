"""Reverse multi-label learning: a structured SVM with the loss 1 - F_beta of an instance."""

from __future__ import annotations

from typing import Any

import numpy as np

from fbeta._array import Array
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.rivals.structured import (
    BundleClassifier,
    BundleModel,
    linear_gradient,
    linear_scores,
    most_violated,
)

__all__ = ["ReverseMultiLabel"]


class ReverseMultiLabel(BundleClassifier):
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

    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        truth, constant = Y.toarray(), float(self.fit_intercept)
        share = np.ones(len(truth)) if weight is None else weight
        shape = (truth.shape[1], X.shape[1] + 1)

        def oracle(w: Array) -> tuple[float, Array]:
            scores = linear_scores(X, w.reshape(shape), constant)
            sets, values = most_violated(scores, truth, self.beta)
            risk = share @ (values - (scores * truth).sum(axis=1))
            gradient = linear_gradient(X, share[:, None] * (sets - truth), constant)
            return float(risk), gradient.ravel()

        found = self._minimise(oracle, np.full(shape[0] * shape[1], float(self.alpha)))
        W = found.w.reshape(shape)
        intercept = constant * W[:, -1]
        return BundleModel(W[:, :-1].copy(), intercept, found.objective, found.gap, found.n_iter)
