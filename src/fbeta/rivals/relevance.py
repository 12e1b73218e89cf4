"""Binary relevance: one model for each label, as if labels were independent given x."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._validation import check_choice
from fbeta.decoding.exact import CutAtHalf, ExactDecode, StatisticsRule, decode
from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import LinearLearner
from fbeta.losses import Loss, get_loss
from fbeta.statistics.codes import MarginalCode
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["BinaryRelevance", "decode_independent"]


RULES: dict[str, StatisticsRule] = {"half": CutAtHalf(), "independent": ExactDecode()}


@dataclass(eq=False, repr=False)
class BinaryRelevance(StatisticsClassifier):
    """One regularised linear model of ``P(y_j = 1 | x)`` for each label.

    Parameters
    ----------
    beta : float > 0
        The measure that ``decode="independent"`` is optimal for.
    alpha, loss, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    decode : {"half", "independent"}
        Predict the labels with a probability above 1/2, whatever beta; or the label set with the
        highest expected F_beta if labels are independent given x (Ye et al. 2012).

    Attributes
    ----------
    classes_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_ : ndarray of shape (s, d)
        Coefficients, one row for each label.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite where a label is always or never present.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sky"]]
    >>> BinaryRelevance(alpha=0.1).fit(X, Y).predict([[0.0], [3.0]])
    [['sea'], ['sky']]
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    decode: str = "half"
    loss: str | Loss = "logistic"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    @property
    def _rule(self) -> StatisticsRule:  # type: ignore[override]
        return RULES[self.decode]

    def _make_code(self, Y: Indicator) -> MarginalCode:
        return MarginalCode.of(Y)

    def _make_learner(self) -> LinearLearner:
        check_choice("decode", self.decode, tuple(RULES))
        loss = get_loss(self.loss)
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter, loss, unfold=True)


def decode_independent(P: Any, beta: float = 1.0) -> NDArray[np.int8]:
    """Find the label sets with the highest expected F_beta when labels are independent.

    Exact over all 2^s sets: ``decode(LabelStatistics.from_marginals(P), beta)``.

    Parameters
    ----------
    P : array-like of shape (n, s)
        ``P(y_j = 1 | x_i)``.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    int8 array of shape (n, s)
        Predicted label sets, 0/1.

    Examples
    --------
    >>> decode_independent([[0.9, 0.5, 0.1], [0.1, 0.1, 0.1]]).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    return decode(LabelStatistics.from_marginals(P), beta)
