"""One support vector machine per label, trained for the F_beta of the whole column."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.rivals.structured import (
    BundleClassifier,
    BundleModel,
    BundleResult,
    linear_gradient,
    linear_scores,
    most_violated,
)

__all__ = ["MacroFSvm"]


class MacroFSvm(BundleClassifier):
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
    fit_intercept, tol, max_iter
        As for :class:`ReverseMultiLabel`, for each label.

    Attributes
    ----------
    classes_, coef_, beta_
        As for :class:`ReverseMultiLabel`.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite for a label that all or none of the training rows have.
    objective_, gap_ : ndarray of shape (s,)
        The objective reached for each label, and how far above the minimum it is at most.
    n_iter_ : int
        Most iterations of a label.

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

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Fit one machine per label, to rows that all count the same; X, y as elsewhere."""
        return super().fit(X, y)

    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        s = Y.shape[1]
        coef, intercept = np.zeros((s, X.shape[1])), np.zeros(s)
        objective, gap, n_iter = np.zeros(s), np.zeros(s), 0
        for j, column in enumerate(Y.T.toarray()):
            if column.min() == column.max():
                intercept[j] = np.inf if column[0] else -np.inf
                continue
            found = self._fit_column(X, column[None, :])
            coef[j], intercept[j] = found.w[:-1], self.fit_intercept * found.w[-1]
            objective[j], gap[j], n_iter = found.objective, found.gap, max(n_iter, found.n_iter)
        return BundleModel(coef, intercept, objective, gap, n_iter)

    def _fit_column(self, X: Any, y: NDArray[np.int8]) -> BundleResult:
        """Fit the machine for one label, whose column is given as a row of shape (1, n)."""
        n, constant = y.shape[1], float(self.fit_intercept)

        def oracle(w: Array) -> tuple[float, Array]:
            scores = linear_scores(X, w[None, :], constant).T
            # the rows take the place of labels, and the loss counts n times
            labeling, values = most_violated(scores / n, y, self.beta)
            gradient = linear_gradient(X, (labeling - y).T.astype(np.float64), constant)
            return float(n * values[0] - (scores * y).sum()), gradient[0]

        return self._minimise(oracle, np.full(X.shape[1] + 1, float(self.alpha)))
