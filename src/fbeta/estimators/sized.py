"""Marginals and the number of labels, each by logistic regression, and the exact decode."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import LinearLearner
from fbeta.statistics.codes import SizedCode

__all__ = ["SizedClassifier"]


@dataclass(eq=False, repr=False)
class SizedClassifier(StatisticsClassifier):
    """Labels that are independent given their number, with a model of that number.

    One logistic regression for each label, and one for each size of label sets that was seen,
    against all others; the probabilities of the sizes are normalised. ``P(|y| = k, y_j = 1 | x)``
    is the probability of the size k times that of label j among k independent labels (the
    conditional Bernoulli law). That are s + C problems instead of the ``1 + K s`` of
    :class:`fbeta.FBetaClassifier`, each with all the positives of a label or of a size.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        Each binary problem minimises the SUM of its losses plus ``alpha / 2 |w|^2``.
    fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_ : ndarray of shape (m, d)
        Coefficients of the distinct binary problems, labels first.
    intercept_ : ndarray of shape (m,)
        Their intercepts, infinite where the target is constant.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = SizedClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    >>> clf.predict_statistics([[0.5]])
    <LabelStatistics of 1 instances, 2 labels, 2 cardinalities, factored>
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> SizedCode:
        return SizedCode.of(Y)

    def _make_learner(self) -> LinearLearner:
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter)
