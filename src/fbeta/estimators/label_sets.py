"""Label sets as classes of one softmax, with scores that are sums over their labels."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear import LabelSets
from fbeta.linear.learner import SolverLearner
from fbeta.statistics.codes import LabelSetCode

__all__ = ["LabelSetClassifier"]


@dataclass(eq=False, repr=False)
class LabelSetClassifier(StatisticsClassifier):
    """A softmax over the label sets of the training data.

    ``ln P(y | x) = sum_j y_j w_j.x + b_y - ln Z(x)``: the score of a set is the sum of the linear
    scores of its labels and a number of its own. Labels depend on each other as they do in the
    sets that were seen, and no other set has a probability.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        is minimised. The b have a penalty of 1e-5.
    fit_intercept : bool
        Whether there are b.
    tol, max_iter
        As for :class:`fbeta.CardinalityClassifier`.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_ : ndarray of shape (s, d)
        The w of the labels.
    offset_ : ndarray of shape (L,)
        The b of the label sets.
    labelsets_ : csr_array of shape (L, s)
        The label sets that were seen, as 0/1.

    Notes
    -----
    Memory grows with the number of rows times that of label sets.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = LabelSetClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 100

    coef_, offset_, n_iter_ = views("_model", "coef", "intercept", "most_iter")
    (labelsets_,) = views("_code", "sets")

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return LabelSetCode.of(Y)

    def _make_learner(self) -> SolverLearner:
        solver = self.fit_intercept, self.tol, self.max_iter
        return SolverLearner(*solver, objective=LabelSets)
