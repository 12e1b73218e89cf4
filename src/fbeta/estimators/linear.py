"""Linear models of label statistics: the search for alpha, the cardinality model, label sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.base import views
from fbeta.estimators.folds import ALPHAS
from fbeta.estimators.statistics_base import (
    FBetaClassifier,
    LinearParameters,
    StatisticsClassifier,
)
from fbeta.labels.forms import Indicator
from fbeta.linear import Cardinality, LabelSets, SolverLearner
from fbeta.losses import Loss
from fbeta.statistics.codes import CardinalityCode, LabelSetCode


@dataclass(eq=False, repr=False)
class FBetaClassifierCV(AlphaSearchCV):
    """:class:`AlphaSearchCV` of :class:`FBetaClassifier`, with the parameters of both.

    Each fold is one pass along the path of alphas with warm starts, in coordinates of X that all
    folds and alphas share.

    Parameters
    ----------
    alphas, cv, n_jobs, prune
        As for :class:`AlphaSearchCV`.
    beta, loss, cardinalities, fit_intercept, tol, max_iter
        As for :class:`FBetaClassifier`.

    Attributes
    ----------
    alpha_, best_score_, cv_results_, best_estimator_, calibration_, coef_, intercept_, n_iter_
        As for the two.

    Examples
    --------
    >>> from fbeta import FBetaClassifierCV
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> clf = FBetaClassifierCV(alphas=[0.1, 1.0, 1000.0], cv=3).fit(X, Y)
    >>> clf.cv_results_["mean_test_score"].shape, clf.alpha_ < 1000
    ((3,), True)
    """

    alphas: Sequence[float] = ALPHAS
    cv: Any = 5
    beta: float = 1.0  # a parameter, where other searches take that of their estimator
    _: KW_ONLY
    loss: str | Loss = "logistic"
    cardinalities: str = "seen"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    n_jobs: int | None = None
    prune: bool = True

    @property
    def estimator(self) -> FBetaClassifier:
        """The estimator whose alpha is chosen."""
        names = ("beta", "loss", "cardinalities", "fit_intercept", "tol", "max_iter")
        return FBetaClassifier(**{name: getattr(self, name) for name in names})

    cardinalities_, coef_, intercept_, n_iter_ = views(
        "best_estimator_", "cardinalities_", "coef_", "intercept_", "n_iter_"
    )


@dataclass(eq=False, repr=False)
class CardinalityClassifier(LinearParameters, StatisticsClassifier):
    """Linear scores of labels, and linear potentials of how many there are.

    ``ln P(y | x) = sum_j y_j (w_j.x + b_j) + v_|y|.x + c_|y| - ln Z(x)`` over the sizes that were
    seen. The normaliser is exact, the model convex. It contains independent labels (v = c = 0) and
    learns how far to leave them; the statistics are those of a distribution by construction.

    Parameters
    ----------
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        and v is minimised; less than 1e-7 is taken for that. Intercepts have a penalty of 1e-5,
        which only keeps those of labels finite that are always or never there.
    beta, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`; the intercepts are b and c.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_, intercept_ : ndarrays of shape (s + C, d) and (s + C,)
        The w and b of the labels, then the v and c of the sizes that were seen.

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

    _: KW_ONLY
    tol: float = 1e-4

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> CardinalityCode:
        return CardinalityCode.of(Y)

    def _make_learner(self) -> SolverLearner:
        return SolverLearner(self.fit_intercept, self.tol, self.max_iter, objective=Cardinality)


@dataclass(eq=False, repr=False)
class LabelSetClassifier(LinearParameters, StatisticsClassifier):
    """A softmax over the label sets of the training data.

    ``ln P(y | x) = sum_j y_j w_j.x + b_y - ln Z(x)``: the score of a set is the sum of the linear
    scores of its labels and a number of its own. Labels depend on each other as they do in the
    sets that were seen, and no other set has a probability. Memory grows with the number of rows
    times that of label sets.

    Parameters
    ----------
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        is minimised. The b have a penalty of 1e-5.
    beta, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`; the intercepts are the b.

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

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = LabelSetClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    tol: float = 1e-4

    coef_, offset_, n_iter_ = views("_model", "coef", "intercept", "most_iter")
    (labelsets_,) = views("_code", "sets")

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return LabelSetCode.of(Y)

    def _make_learner(self) -> SolverLearner:
        return SolverLearner(self.fit_intercept, self.tol, self.max_iter, objective=LabelSets)
