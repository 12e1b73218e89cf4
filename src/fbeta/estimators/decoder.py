"""A decoder for models that people already have: probabilities in, optimal label sets out."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import array_namespace, to_numpy
from fbeta._validation import check_choice, check_count, check_number
from fbeta.estimators.base import views
from fbeta.estimators.recalibration import Recalibration, fit_recalibration
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.statistics.codes import CardinalityCode
from fbeta.statistics.targets import Targets
from fbeta.statistics.validation import read_matrix

__all__ = ["FBetaDecoder", "RecalibrationLearner"]

LARGEST_LOGIT = 30.0  # larger ones are taken for it


@dataclass(frozen=True)
class RecalibrationLearner(Learner):
    """The model of :mod:`fbeta.estimators.recalibration`; X are logits of the labels."""

    tol: float
    max_iter: int

    def __post_init__(self) -> None:
        check_number("tol", self.tol, strict=True)
        check_count("max_iter", self.max_iter)

    def fit(
        self, X: Any, targets: Targets, weight: Weight, alpha: float, name: Names = str
    ) -> Recalibration:
        """Fit to labels and sizes."""
        alpha = check_number("alpha", alpha, strict=True)
        return fit_recalibration(
            X, targets.values, targets.structure, alpha, weight=weight, tol=self.tol,
            max_iter=self.max_iter,
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class FBetaDecoder(StatisticsClassifier):
    """From the probabilities of any model to the label sets that are best for F_beta.

    For models that are there already and will not be trained again: a forest, boosted trees, a
    network. Learns from rows which that model has not seen how far its probabilities can be
    trusted - a monotone curve for the logits of all labels, then a slope and an offset for each -
    and how many labels there are: potentials of the number of labels, which also depend on how many
    are expected. Both together are the cardinality model of :class:`fbeta.CardinalityClassifier`
    on logits; its exact statistics are decoded.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float > 0
        Penalty on the distance from logits as they are and independent labels, in units of a row:
        the SUM of the losses plus ``alpha / 2`` times the sum of the squares is minimised.
    inputs : {"auto", "probabilities", "logits"}
        What the model gives. By default numbers that are all in [0, 1] in ``fit`` are
        probabilities.
    tol, max_iter
        As for :class:`fbeta.CardinalityClassifier`.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    inputs_ : str
        What the numbers in ``fit`` were taken for.
    curve_ : tuple of two ndarrays of shape (B,)
        Logits, and what they are worth on average over all labels.
    slope_, offset_ : ndarray of shape (s,)
        Of that for each label.
    potential_ : ndarray of shape (2, C)
        Of the sizes that were seen: constants, and factors of the standardised number of labels
        that are expected.

    Notes
    -----
    ``fit`` needs predictions for rows that the model was not fitted to: a validation set, or
    ``cross_val_predict(model, X, Y, method="predict_proba")``. Probabilities closer to 0 or 1 than
    half a row of that data are taken for half a row.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.model_selection import cross_val_predict
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> held_out = cross_val_predict(forest, X, Y, cv=5, method="predict_proba")
    >>> decoder = FBetaDecoder().fit(held_out, Y)
    >>> decoder.predict(forest.fit(X, Y).predict_proba(X[:2]), max_labels=2).shape
    (2, 3)
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    inputs: str = "auto"
    tol: float = 1e-4
    max_iter: int = 100

    slope_, offset_, potential_, curve_, n_iter_ = views(
        "_model", "slope", "offset", "potential", "curve", "most_iter"
    )

    @property
    def probability_floor(self) -> float:
        """Probabilities closer to 0 or 1 are taken for this, or for 1 less this."""
        return self._least

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        """Return logits of the labels, of shape (n, s)."""
        P = read_matrix(X)
        xp = array_namespace(P)
        if not bool(xp.all(xp.isfinite(P))):
            raise ValueError("P contains NaN or infinity")
        inside = bool(xp.all((P >= 0) & (P <= 1)))
        if reset:
            check_choice("inputs", self.inputs, ("auto", "probabilities", "logits"))
            found = "probabilities" if inside else "logits"
            self.inputs_ = found if self.inputs == "auto" else self.inputs
            self.n_features_in_ = int(P.shape[1])
            self._least = 0.5 / max(1, int(P.shape[0]))
        if P.shape[1] != self.n_features_in_:
            raise ValueError(
                f"P has {P.shape[1]} columns, but the decoder was fitted with "
                f"{self.n_features_in_}: one for each label"
            )
        if self.inputs_ == "logits":
            return xp.clip(P, -LARGEST_LOGIT, LARGEST_LOGIT)
        if not inside:
            raise ValueError(
                "P must hold probabilities in [0, 1], as in fit; for logits say inputs='logits'"
            )
        P = xp.clip(xp.astype(P, xp.float64, copy=False), self._least, 1 - self._least)
        return xp.log(P / (1 - P))

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        if X.shape[1] == 2 and self._label_form.kind == "single":
            raise ValueError("P must have one column for a 1-D target: that of the second class")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(f"P has {X.shape[1]} columns, but y has {Y.shape[1]} labels")
        logits: NDArray[np.float64] = to_numpy(X)
        super()._fit(logits, Y, weight)

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return the logits, which are the same for all folds and strengths of a search."""
        return to_numpy(copy(self)._validate_X(X, reset=True))

    def _make_code(self, Y: Indicator) -> CardinalityCode:
        return CardinalityCode.of(Y)

    def _make_learner(self) -> RecalibrationLearner:
        return RecalibrationLearner(self.tol, self.max_iter)
