"""Marginals and the number of labels, by logistic regression or any classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples

from fbeta._validation import check_choice
from fbeta.estimators.base import views
from fbeta.estimators.features import pass_features_on, validate_features
from fbeta.estimators.reduction import fit_one, fit_weights, predict_one, warn_of_class_weight
from fbeta.estimators.statistics_base import Plan, StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, LinearLearner, Names, Weight
from fbeta.statistics.codes import Code, MarginalCode, SizedCode
from fbeta.statistics.encoding import constant_values, distinct_columns, read_matrix

__all__ = ["SizedClassifier", "SizedLearner", "SizedModel"]


@dataclass(frozen=True)
class SizedModel:
    """Classifiers of the labels, and one of the size of label sets."""

    labels: list[Any]  # of all distinct labels at once, or one for each; None for a constant one
    together: bool  # whether there is one for all
    constant: NDArray[np.float64]  # (m,), the value of a constant distinct label, else NaN
    place: NDArray[np.intp]  # (s,), the distinct label that each label equals
    size: Any  # of the place of the size among the C seen ones; None where there is nothing to tell
    n_sizes: int  # C

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of labels and sizes, of shape (n, s + C)."""
        n = _num_samples(X)
        if self.together:
            distinct = np.tile(self.constant, (n, 1))
            distinct[:, np.isnan(self.constant)] = read_matrix(self.labels[0].predict_proba(X))
        else:
            pairs = zip(self.labels, self.constant, strict=True)
            columns = [predict_one(fitted, X, constant) for fitted, constant in pairs]
            distinct = np.stack(columns, axis=1)
        sizes = np.full((n, self.n_sizes), 1.0 if self.size is None else 0.0)
        if self.size is not None:
            sizes[:, self.size.classes_] = self.size.predict_proba(X)
        return np.concatenate([distinct[:, self.place], sizes], axis=1)

    @property
    def most_iter(self) -> int:
        """Most iterations of a classifier, 1 where none of them says."""
        fitted = [*self.labels, self.size]
        return max([1, *(int(np.max(getattr(f, "n_iter_", 1))) for f in fitted)])


@dataclass(frozen=True)
class SizedLearner(Learner):
    """Copies of a classifier with predict_proba: of the labels, and of the size of label sets."""

    estimator: Any
    n_labels: int
    n_jobs: int | None = None

    def fit(
        self, X: Any, targets: sp.csc_array, weight: Weight, alpha: Any = None, name: Names = str
    ) -> SizedModel:
        """Fit to labels and, where there are more columns, to which size each row has."""
        weights = fit_weights(self.estimator, weight)
        labels, sizes = targets[:, : self.n_labels], targets[:, self.n_labels :]
        place, first = distinct_columns(labels)
        distinct = labels[:, first]
        constant = constant_values(distinct)
        varies = np.flatnonzero(np.isnan(constant))
        together = len(varies) > 1 and bool(get_tags(self.estimator).classifier_tags.multi_label)
        if together:
            Y = distinct[:, varies].toarray().astype(np.int8)
            fitted = [clone(self.estimator).fit(X, Y, **weights)]
        else:
            fitted = Parallel(n_jobs=self.n_jobs)(
                delayed(fit_one)(self.estimator, X, distinct[:, [c]].toarray()[:, 0], weights)
                for c in range(distinct.shape[1])
            )
        size = None
        if sizes.shape[1] > 1:
            which = np.asarray(sizes.toarray().argmax(axis=1))
            size = clone(self.estimator).fit(X, which, **weights)
        return SizedModel(fitted, together, constant, place, size, sizes.shape[1])


@dataclass(eq=False, repr=False)
class SizedClassifier(StatisticsClassifier):
    """Labels that are independent given their number, with a model of that number.

    One logistic regression for each label, and one for each size of label sets that was seen,
    against all others; the probabilities of the sizes are normalised. ``P(|y| = k, y_j = 1 | x)``
    is the probability of the size k times that of label j among k independent labels (the
    conditional Bernoulli law). That are s + C problems instead of the ``1 + K s`` of
    :class:`fbeta.FBetaClassifier`, each with all the positives of a label or of a size.

    With an ``estimator``, both are from copies of it: s + 1 fits, or two where it takes all labels
    at once, as trees and nearest neighbours do.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        Each binary problem minimises the SUM of its losses plus ``alpha / 2 |w|^2``.
    estimator : classifier, optional
        Any classifier or pipeline with ``predict_proba``, in place of logistic regression. X is
        passed on as it is, and alpha, fit_intercept, tol and max_iter have no effect.
    sizes : {"model", "independent"}
        Whether the number of labels has a model of its own, or is that of independent labels.
    fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    n_jobs : int, optional
        Copies of the estimator that are fitted at the same time, as in joblib.

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
    estimator: Any = None
    sizes: str = "model"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    n_jobs: int | None = None

    _any_array = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    @property
    def _streams(self) -> bool:  # type: ignore[override]
        return self.estimator is None

    @property
    def _encodes_tables(self) -> bool:  # type: ignore[override]
        return self.estimator is None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            tags.input_tags, tags.array_api_support = get_tags(self.estimator).input_tags, False
        return tags

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        validate = validate_features if self.estimator is None else pass_features_on
        return validate(self, X, reset=reset)

    def _make_code(self, Y: Indicator) -> Code:
        check_choice("sizes", self.sizes, ("model", "independent"))
        return SizedCode.of(Y) if self.sizes == "model" else MarginalCode.of(Y)

    def _make_learner(self) -> Learner:
        if self.estimator is None:
            return LinearLearner(self.fit_intercept, self.tol, self.max_iter)
        if not hasattr(self.estimator, "predict_proba"):
            name = type(self.estimator).__name__
            raise TypeError(f"estimator needs predict_proba, which {name} does not have")
        warn_of_class_weight(self.estimator)
        return SizedLearner(self.estimator, 0, self.n_jobs)

    def plan(self, Y: Indicator) -> Plan:
        """Return what is fitted to label sets Y, of shape (n, s)."""
        found = super().plan(Y)
        if isinstance(found.learner, SizedLearner):
            learner = replace(found.learner, n_labels=found.code.n_labels)
            return found._replace(learner=learner)
        return found
