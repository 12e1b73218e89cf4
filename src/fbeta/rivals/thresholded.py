"""Marginal probabilities on one part of the data, thresholds on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.estimators.base import views
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import LinearLearner, Weight
from fbeta.metrics import best_thresholds
from fbeta.rivals.held_out import HeldOutClassifier

__all__ = ["ThresholdedRelevance"]


@dataclass(frozen=True)
class HeldOutThresholds:
    """Cut marginals where that is best on rows that were held out."""

    P: NDArray[Any]  # (n, s), marginals of these rows
    Y: NDArray[np.bool_]  # (n, s), their labels
    weight: Weight
    average: str  # which average of F_beta is to be the highest
    beta: float  # the measure that the threshold is for
    threshold: NDArray[np.float64]  # (s,)

    @classmethod
    def choose(
        cls, P: NDArray[Any], Y: NDArray[np.bool_], weight: Weight, average: str, beta: float
    ) -> HeldOutThresholds:
        """Find the thresholds for one beta."""
        best = best_thresholds(P, Y, beta, average=average, weight=weight, ends=(0.0, 1.0))
        return cls(P, Y, weight, average, beta, np.broadcast_to(best, P.shape[1:]).copy())

    def __call__(self, output: NDArray[Any], beta: float) -> NDArray[np.bool_]:
        """Cut at the thresholds, which are chosen again for another beta."""
        rule = self
        if beta != self.beta:
            rule = self.choose(self.P, self.Y, self.weight, self.average, beta)
        return np.asarray(output > rule.threshold)


@dataclass(eq=False, repr=False)
class ThresholdedRelevance(HeldOutClassifier):
    """Binary relevance with the thresholds that are best on held-out rows (Koyejo et al. 2015).

    Fits one logistic regression for each label to a part of the rows, and predicts the labels
    whose probability exceeds a threshold: the one with the highest F_beta on the other rows,
    among all thresholds there are.

    Parameters
    ----------
    beta : float > 0
        The measure to choose the thresholds by.
    alpha, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    average : {"instance", "micro", "macro"}
        Which average of F_beta. One threshold is shared by all labels for ``"instance"`` and
        ``"micro"``; each label has its own for ``"macro"``.
    validation_fraction : float
        Share of the rows to choose thresholds on.
    random_state : int, RandomState or None
        Decides which rows are held out, together with their values: a float32 copy of X has
        other values, and other rows of it are held out.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_
        As for :class:`BinaryRelevance`.
    threshold_ : ndarray of shape (s,)
        Labels with a higher probability are predicted.

    Notes
    -----
    The held-out probabilities are kept, so that ``predict(X, beta=...)`` can choose the thresholds
    for another beta.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> Y = [["sea"], ["sea"], ["sea"], ["sky"], ["sky"], ["sky"]]
    >>> model = ThresholdedRelevance(alpha=0.1, validation_fraction=0.4, random_state=0).fit(X, Y)
    >>> model.predict([[0.0], [5.0]])
    [['sea'], ['sky']]
    """

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")
    (threshold_,) = views("_rule", "threshold")

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        (X, Y, weight), (held, truth, other) = self._parts(X, Y, weight)
        learner = LinearLearner(self.fit_intercept, self.tol, self.max_iter, unfold=True)
        self._model = learner.fit(X, Y.tocsc(), weight, self.alpha)
        self._rule = HeldOutThresholds.choose(
            self._output(held), truth.toarray() > 0, other, self.average, float(self.beta)
        )

    def _output(self, X: Any) -> NDArray[Any]:
        return np.asarray(self._model.probabilities(X))

    def predict_marginals(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label, of shape (n, s).

        It is not called ``predict_proba``: scikit-learn takes for granted that a classifier which
        has that predicts the most probable class. X is as for :meth:`predict`.
        """
        return self._output(self._read_features(X))
