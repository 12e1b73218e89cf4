"""The reduction over any probabilistic classifier of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.utils import check_array, get_tags, indexable
from sklearn.utils.validation import _num_samples, has_fit_parameter, validate_data

from fbeta._estimator import StatisticsClassifier
from fbeta._validation import check_choice
from fbeta.encoding import LabelStatistics, encode, observed_cardinalities
from fbeta.linear.binary import constant_values, distinct_columns

__all__ = ["FBetaReduction"]

CALIBRATION_FOLDS = 3


class FBetaReduction(StatisticsClassifier):
    """F_beta-optimal multi-label classification over any binary classifier.

    Fits one copy of a classifier to each distinct binary problem - no labels, and each pair of a
    size and a label that the training data has - and decodes their probabilities exactly.
    Constant problems need no classifier.

    Parameters
    ----------
    estimator : scikit-learn classifier
        With ``predict_proba``, or with ``decision_function``, which is then calibrated by a
        sigmoid on held-out folds. Pipelines work; X is passed on as it is.
    beta : float > 0
        The measure to be optimal for.
    cardinalities : {"seen", "all"}
        Sizes of label sets that have statistics.
    n_jobs : int, optional
        Classifiers that are fitted at the same time, as in joblib.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    cardinalities_ : ndarray of shape (K,)
        Sizes of label sets that have statistics.
    estimators_ : list
        The fitted classifiers of the distinct problems; None where the target is constant.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> FBetaReduction(DecisionTreeClassifier()).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    def __init__(
        self,
        estimator: Any,
        beta: float = 1.0,
        *,
        cardinalities: str = "seen",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.beta = beta
        self.cardinalities = cardinalities
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        # what X may be is for the classifier to say: text, categories, missing values
        if getattr(X, "ndim", 2) == 1 and X.dtype.kind in "biuf":
            check_array(X)  # says how to reshape one row or one column of numbers
        validate_data(self, X, reset=reset, skip_check_array=True)
        return indexable(X)[0]

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> FBetaReduction:
        """Fit the classifiers.

        Parameters
        ----------
        X : array-like of shape (n, d), or whatever the classifier takes
            Features.
        y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), DataFrame, sequence of label sets, or a
            1-D binary target.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances; the classifier has to support them.

        Returns
        -------
        FBetaReduction
            Itself.
        """
        check_choice("cardinalities", self.cardinalities, ("seen", "all"))
        _check_estimator(self.estimator, sample_weight)
        X, Y, weight = self._read_training(X, y, sample_weight)
        self.cardinalities_ = observed_cardinalities(Y, self.cardinalities)
        targets = encode(Y, self.cardinalities_)
        self._problem, first = distinct_columns(targets)
        targets = targets[:, first]
        self._constant = constant_values(targets)
        open_ = np.flatnonzero(np.isnan(self._constant))
        fitted = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_one)(self.estimator, X, targets[:, [c]].toarray()[:, 0], weight)
            for c in open_
        )
        self.estimators_ = [None] * len(self._constant)
        for c, estimator in zip(open_, fitted, strict=True):
            self.estimators_[c] = estimator
        return self

    def _statistics(self, X: Any) -> LabelStatistics:
        columns = Parallel(n_jobs=self.n_jobs)(
            delayed(_predict_one)(estimator, X, constant)
            for estimator, constant in zip(self.estimators_, self._constant, strict=True)
        )
        code = np.stack(columns, axis=1)[:, self._problem]
        return LabelStatistics.from_code(code, self.cardinalities_, self.n_labels_)


def _check_estimator(estimator: Any, sample_weight: ArrayLike | None) -> None:
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise TypeError(
            "estimator needs predict_proba or decision_function, which "
            f"{type(estimator).__name__} does not have"
        )
    if sample_weight is not None and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(f"{type(estimator).__name__} does not support sample_weight in fit")


def _fit_one(
    estimator: Any, X: Any, target: NDArray[np.int8], weight: NDArray[np.float64] | None
) -> Any:
    """Fit a copy of the classifier to one 0/1 target that is not constant."""
    weights = {} if weight is None else {"sample_weight": weight}
    if hasattr(estimator, "predict_proba"):
        return clone(estimator).fit(X, target, **weights)
    folds = min(CALIBRATION_FOLDS, int(target.sum()), int((1 - target).sum()))
    everything = np.arange(len(target))
    # a class with one instance cannot be held out
    cv = folds if folds > 1 else [(everything, everything)]
    return CalibratedClassifierCV(clone(estimator), cv=cv).fit(X, target, **weights)


def _predict_one(estimator: Any, X: Any, constant: float) -> NDArray[np.float64]:
    """Return P(target = 1 | x) for each row."""
    if estimator is None:
        return np.full(_num_samples(X), constant)
    return np.asarray(estimator.predict_proba(X)[:, 1], dtype=np.float64)
