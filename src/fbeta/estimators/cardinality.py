"""The cardinality model: an exact log-linear law of labels and of their number."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear import Cardinality
from fbeta.linear.learner import SolverLearner
from fbeta.statistics.codes import CardinalityCode

__all__ = ["CardinalityClassifier"]


@dataclass(eq=False, repr=False)
class CardinalityClassifier(StatisticsClassifier):
    """Linear scores of labels, and linear potentials of how many there are.

    ``ln P(y | x) = sum_j y_j (w_j.x + b_j) + v_|y|.x + c_|y| - ln Z(x)`` over the sizes that were
    seen. The normaliser is exact, the model convex. It contains independent labels (v = c = 0) and
    learns how far to leave them; the statistics are those of a distribution by construction.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        and v is minimised; less than 1e-7 is taken for that. Intercepts have a penalty of 1e-5,
        which only keeps those of labels finite that are always or never there.
    fit_intercept : bool
        Whether there are b and c.
    tol : float > 0
        The solver has converged once the decrease of the objective that a further step promises
        is certified to be below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_ : ndarray of shape (s + C, d)
        The w of the labels, and the v of the sizes that were seen.
    intercept_ : ndarray of shape (s + C,)
        Their b and c.

    Notes
    -----
    A row costs O(s k) for sizes up to k. The two sides of the model can stand for each other - a
    constant added to all scores of labels, and its multiple by k taken off the potentials - and
    the solution is the one with the smallest coefficients.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = CardinalityClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 100

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> CardinalityCode:
        return CardinalityCode.of(Y)

    def _make_learner(self) -> SolverLearner:
        solver = self.fit_intercept, self.tol, self.max_iter
        return SolverLearner(*solver, objective=Cardinality)
