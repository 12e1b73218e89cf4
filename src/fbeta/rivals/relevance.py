"""Binary relevance: one model for each label, as if labels were independent given x."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fbeta._path import Decide, LinearPath
from fbeta._validation import check_choice
from fbeta.encoding import LabelStatistics
from fbeta.labels import Indicator
from fbeta.linear import fit_linear
from fbeta.losses import Loss, get_loss
from fbeta.rivals._marginals import MarginalClassifier, OwnDecoding
from fbeta.rivals.independent import decode_independent

__all__ = ["BinaryRelevance"]


class BinaryRelevance(LinearPath, MarginalClassifier, OwnDecoding):
    """One regularised linear model of ``P(y_j = 1 | x)`` for each label.

    Parameters
    ----------
    beta : float > 0
        The measure that ``decode="independent"`` is optimal for.
    alpha : float >= 0
        Each label's model minimises the SUM of its losses plus ``alpha / 2 |w|^2``; the intercept
        is not penalised.
    decode : {"half", "independent"}
        Predict the labels with a probability above 1/2, whatever beta; or the label set with the
        highest expected F_beta if labels are independent given x (Ye et al. 2012).
    loss : {"logistic", "exponential", "squared"} or Loss
        A strictly proper composite loss.
    fit_intercept : bool
        Whether the models have an intercept.
    tol : float > 0
        A model has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_ : ndarray of shape (s, d)
        Coefficients, one row for each label.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite where a label is always or never present.
    n_iter_ : int
        Most Newton iterations of a model.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sky"]]
    >>> BinaryRelevance(alpha=0.1).fit(X, Y).predict([[0.0], [3.0]])
    [['sea'], ['sky']]
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        decode: str = "half",
        loss: str | Loss = "logistic",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.decode = decode
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> BinaryRelevance:
        """Fit the models.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : labels of n instances
            As for :meth:`fbeta.FBetaClassifier.fit`.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        BinaryRelevance
            Itself.
        """
        check_choice("decode", self.decode, ("half", "independent"))
        loss, solver = get_loss(self.loss), self._check_solver()
        X, Y, weight = self._read_training(X, y, sample_weight)
        self.cardinalities_ = np.arange(1, self.n_labels_ + 1)
        targets = Y.tocsc()
        self._keep(
            fit_linear(X, targets, loss, weight=weight, fit_intercept=self.fit_intercept, **solver)
        )
        return self

    def _marginals(self, X: Any) -> NDArray[Any]:
        return np.asarray(get_loss(self.loss).inverse_link(self._scores(X)))

    def _statistics(self, X: Any) -> LabelStatistics:
        return LabelStatistics.from_marginals(self._marginals(X))

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        return self._decide(self._marginals(X), beta)

    def _decide(self, marginals: NDArray[Any], beta: float) -> NDArray[np.bool_]:
        if self.decode == "half":
            return np.asarray(marginals > 0.5)
        return decode_independent(marginals, beta).astype(np.bool_)

    def _problems(self, Y: Indicator) -> tuple[sp.csc_array, Decide]:
        return Y.tocsc(), lambda marginals: self._decide(marginals, self.beta)
