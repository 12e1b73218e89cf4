"""One support vector machine per label, trained for the F_beta of the whole column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._estimator import MultiLabelClassifier
from fbeta._validation import check_count, check_number
from fbeta.rivals._structured import (
    Array,
    BundleResult,
    check_same_beta,
    linear_gradient,
    linear_scores,
    minimise,
    most_violated,
)

__all__ = ["MacroFSvm"]


class MacroFSvm(MultiLabelClassifier):
    """Support vector machines for the macro-averaged F_beta (Joachims, 2005).

    For each label, with its column y in {0, 1}^n, minimises ``alpha / 2 |w|^2 + max_yhat [n (1 -
    F_beta(y, yhat)) + sum_i (yhat_i - y_i) w.x_i]`` over all columns yhat, and predicts the label
    where ``w.x > 0``. With the number of errors in place of ``n (1 - F_beta)`` this would be the
    sum of hinge losses, the ordinary machine.

    Parameters
    ----------
    beta : float > 0
        The measure in the loss.
    alpha : float > 0
        Strength of the penalty. Joachims' C for labels -1 and 1 is ``1 / (4 n alpha)``.
    fit_intercept : bool
        Whether the scores have an intercept: the weight of a constant feature 1, penalised like
        the others.
    tol : float > 0
        Stop once the duality gap of a label is below ``tol`` times its objective.
    max_iter : int
        Largest number of iterations of the cutting plane method for a label.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_ : ndarray of shape (s, d)
        Weights of the features.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite for a label that all or none of the training rows have.
    objective_, gap_ : ndarray of shape (s,)
        The objective reached for each label, and how far above the minimum it is at most.
    n_iter_ : int
        Most iterations of a label.
    beta_ : float
        The measure that the model was fitted for.

    Notes
    -----
    F_beta of a column does not decompose over the rows, so that rows have no weights.
    :meth:`score` is the instance-averaged measure, like everywhere in this library.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> MacroFSvm(alpha=0.01).fit(X, Y).predict([[0.5], [2.5]])
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

    def fit(self, X: Any, y: Any) -> MacroFSvm:
        """Fit one machine per label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified.
        y : labels of n instances
            In any form that :class:`fbeta.FBetaClassifier` takes.

        Returns
        -------
        MacroFSvm
            Itself.
        """
        check_number("alpha", self.alpha, strict=True)
        check_number("tol", self.tol, strict=True)
        check_count("max_iter", self.max_iter)
        X, indicator, _ = self._read_training(X, y)
        s = self.n_labels_
        self.coef_, self.intercept_ = np.zeros((s, X.shape[1])), np.zeros(s)
        self.objective_, self.gap_, self.n_iter_ = np.zeros(s), np.zeros(s), 0
        for j, column in enumerate(indicator.T.toarray()):
            if column.min() == column.max():
                self.intercept_[j] = np.inf if column[0] else -np.inf
                continue
            result = self._fit_label(X, column[None, :])
            self.coef_[j], self.intercept_[j] = result.w[:-1], self.fit_intercept * result.w[-1]
            self.objective_[j], self.gap_[j] = result.objective, result.gap
            self.n_iter_ = max(self.n_iter_, result.n_iter)
        self.beta_ = float(self.beta)
        return self

    def _fit_label(self, X: Any, y: NDArray[np.int8]) -> BundleResult:
        """Fit the machine for the column y, given as a row of shape (1, n)."""
        n, constant = y.shape[1], float(self.fit_intercept)

        def oracle(w: Array) -> tuple[float, Array]:
            scores = linear_scores(X, w[None, :], constant).T
            # the rows take the place of labels, and the loss counts n times
            labeling, values = most_violated(scores / n, y, self.beta)
            gradient = linear_gradient(X, (labeling - y).T.astype(np.float64), constant)
            return float(n * values[0] - (scores * y).sum()), gradient[0]

        penalty = np.full(X.shape[1] + 1, float(self.alpha))
        return minimise(oracle, penalty, tol=self.tol, max_iter=self.max_iter)

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        check_same_beta(beta, self.beta_)
        return np.asarray(X @ self.coef_.T + self.intercept_ > 0)
