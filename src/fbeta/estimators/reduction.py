"""Any classifier of scikit-learn: one for each target, or for the labels and their number."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples

from fbeta._array import check_choice, check_count
from fbeta.estimators.base import all_or_nothing, views
from fbeta.estimators.features import (
    check_classifier,
    check_takes_weight,
    fit_router,
    fit_weights,
)
from fbeta.estimators.linear import fit_listed_models
from fbeta.estimators.statistics_base import (
    FunctionLearner,
    LinearParameters,
    Plan,
    StatisticsClassifier,
)
from fbeta.labels.forms import Indicator
from fbeta.linear import LinearLearner
from fbeta.linear.learner import Learner, Weight, drop_weightless
from fbeta.statistics.codes import Code, JointCode, MarginalCode, SizedCode
from fbeta.statistics.encoding import constant_values, distinct_columns, read_matrix

CALIBRATION_FOLDS = 3


@dataclass(frozen=True)
class ClassifierModel:
    """Classifiers of the distinct targets, and perhaps one of the size of label sets."""

    # fitted, one for each distinct target, None where it is constant; or one for all that vary
    estimators: list[Any]
    constant: NDArray[np.float64]  # (m,), the value of a constant target, else NaN
    place: NDArray[np.intp]  # (M,), the distinct target that each target equals
    n_jobs: int | None = 1  # classifiers that predict at the same time
    together: bool = False  # whether there is one classifier for all targets
    size: Any = None  # of the place of the size among the C seen ones; None where there is only one
    n_sizes: int = 0  # C

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the targets and the sizes, of shape (n, M + C)."""
        n = _num_samples(X)
        distinct = np.tile(self.constant, (n, 1))
        if self.together:
            one = self.estimators[0]
            P, classes = one.predict_proba(X), getattr(one, "classes_", ())
            P = [*map(_in_order, P, classes)] if isinstance(P, list) and len(classes) else P
            distinct[:, np.isnan(self.constant)] = read_matrix(P)
        else:
            varying = [column for column, f in enumerate(self.estimators) if f is not None]
            calls = (delayed(self.estimators[column].predict_proba)(X) for column in varying)
            for column, P in zip(varying, Parallel(n_jobs=self.n_jobs)(calls), strict=True):
                one = self.estimators[column]
                if np.ndim(P) != 2 or np.shape(P)[1] != 2:
                    words = f"predict_proba of {type(one).__name__} has shape {np.shape(P)}"
                    raise ValueError(f"{words}: expected a column for each of two classes")
                distinct[:, column] = _in_order(P, getattr(one, "classes_", ()))[:, 1]
        sizes = np.full((n, self.n_sizes), 1.0 if self.size is None else 0.0)
        if self.size is not None:
            sizes[:, self.size.classes_] = self.size.predict_proba(X)
        return np.concatenate([distinct[:, self.place], sizes], axis=1)

    @property
    def most_iter(self) -> int:
        """Most iterations of a classifier, 1 where none of them says."""
        fitted = [*self.estimators, self.size]
        return max([1, *(int(np.max(getattr(f, "n_iter_", 1))) for f in fitted)])


def _in_order(P: Any, classes: Any) -> Any:
    """Return probabilities of two classes, (n, 2), the positive one last."""
    return np.asarray(P)[:, ::-1] if len(classes) == 2 and classes[0] == 1 else np.asarray(P)


def SizedModel(labels: Any, together: Any, constant: Any, place: Any, **sizes: Any) -> Any:
    """Return the model of a file with this name, of labels and sizes."""
    return ClassifierModel(labels, constant, place, together=together, **sizes)


@dataclass(eq=False, repr=False)
class FBetaReduction(StatisticsClassifier):
    """F_beta-optimal multi-label classification over any binary classifier.

    Fits one copy of a classifier to each distinct binary problem - no labels, and each pair of a
    size and a label that the training data has - and decodes their probabilities exactly.
    Constant problems need no classifier.

    Parameters
    ----------
    estimator : scikit-learn classifier
        With ``predict_proba``, or with ``decision_function``, which is then calibrated by a
        sigmoid on held-out folds. Pipelines work, and get X as it is. Leave its
        ``class_weight`` alone: see the notes.
    beta : float > 0
        The measure to be optimal for.
    cardinalities : {"seen", "all"}
        Sizes of label sets that have statistics.
    n_jobs : int, optional
        Classifiers that are fitted at the same time, as in joblib.

    Attributes
    ----------
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.
    estimators_ : list
        The fitted classifiers of the distinct problems; None where the target is constant.

    Notes
    -----
    ``class_weight`` is not for F_beta: a classifier with ``class_weight="balanced"`` estimates the
    probabilities of other data, in which rare labels are as frequent as not. Label sets come out
    too large, and the expected F_beta is wrong. To find rare labels, choose a larger beta. A
    warning says so.

    ``fit(X, Y, sample_weight=w)`` passes weights of the rows on to a classifier that takes them,
    and into a pipeline by scikit-learn's metadata routing::

        sklearn.set_config(enable_metadata_routing=True)
        last = LogisticRegression().set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        FBetaReduction(make_pipeline(scaler, last)).fit(X, Y, sample_weight=w)

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> FBetaReduction(DecisionTreeClassifier()).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    estimator: Any
    beta: float = 1.0
    _: KW_ONLY
    cardinalities: str = "seen"
    n_jobs: int | None = None

    _passes_on = True

    (estimators_,) = views("_model", "estimators")

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what becomes of the weights of the rows: they are used here and passed on."""
        return fit_router(self.estimator, self).add_self_request(self)

    @available_if(  # type: ignore[untyped-decorator]
        lambda own: all(hasattr(own.estimator, n) for n in ("partial_fit", "predict_proba"))
    )
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on with more rows, where the classifier can, and return the estimator.

        The first call fixes the labels and the sizes of label sets: those that it sees, or all of
        them with ``cardinalities="all"``. Every target has a classifier from then on, so that none
        misses the rows before its first positive one.

        Parameters
        ----------
        X : what the classifier takes, of n rows
        y : labels of n instances
            As for :meth:`fit`, in the same form in each call.
        classes : sequence, optional
            Names of all labels, where y holds label sets and the first call does not have them all.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.
        """
        before = cast(ClassifierModel, getattr(self, "_model", None))
        if before is not None:
            each = np.array_equal(before.place, np.arange(len(before.place)))
            if None in before.estimators or not each:
                raise ValueError("partial_fit does not go on from fit: use a new estimator")
        with all_or_nothing(self) as draft:
            rows = draft._read_training(X, y, sample_weight, first=before is None, classes=classes)
            X, Y, weight = drop_weightless(*rows)
            code = self._make_code(Y) if before is None else self._code
            strange = np.setdiff1d(np.diff(Y.indptr), [0, *code.cardinalities])
            if len(strange):
                raise ValueError(
                    f"y has a label set of size {strange[0]}, which the first call did not: use "
                    'cardinalities="all"'
                )
            check_classifier(self.estimator, "predict_proba")
            check_takes_weight(self.estimator, weight)
            targets = code.targets(Y)
            count = targets.shape[1]
            # a classifier for each target, also where targets are equal
            old = [clone(self.estimator)] * count if before is None else before.estimators
            more: Any = {} if weight is None else {"sample_weight": weight}
            more["classes"] = np.array([0, 1])
            estimators = Parallel(n_jobs=self.n_jobs)(
                delayed(deepcopy(old[c]).partial_fit)(X, targets[:, [c]].toarray()[:, 0], **more)
                for c in range(count)
            )
            nan, every = np.full(count, np.nan), np.arange(count)
            draft._code, draft._model = code, ClassifierModel(estimators, nan, every, self.n_jobs)
        return self

    def _make_code(self, Y: Indicator) -> JointCode:
        return JointCode.of(Y, self.cardinalities)

    def _make_learner(self) -> Learner:
        check_classifier(self.estimator, "predict_proba", "decision_function")
        return FunctionLearner(partial(_fit_copies, self, None, str))


@dataclass(eq=False, repr=False)
class SizedClassifier(LinearParameters, StatisticsClassifier):
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
    beta, alpha, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    estimator : classifier, optional
        Any classifier or pipeline with ``predict_proba``, in place of logistic regression. X is
        passed on, and alpha, fit_intercept, tol and max_iter have no effect.
    sizes : {"model", "independent"}
        Whether the number of labels has a model of its own, or is that of independent labels.
    n_jobs : int, optional
        Copies of the estimator that are fitted at the same time, as in joblib.
    max_listed : int, optional
        For thousands of labels: list so many likely labels for each row, of which predictions
        consist; the others have probability 0. Labels are fitted some at a time, and coefficients
        so small that they change no score of a training row by more than 0.05 are dropped:
        ``coef_`` is sparse, with one row for each label, and so are predictions and probabilities.

    Attributes
    ----------
    classes_, cardinalities_, coef_, intercept_, n_iter_
        As for :class:`fbeta.FBetaClassifier`; problems of labels come first.

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

    _: KW_ONLY
    estimator: Any = None
    sizes: str = "model"
    n_jobs: int | None = None
    max_listed: int | None = None

    _any_array = property(lambda self: self.max_listed is None)
    _streams = property(lambda self: self.estimator is None and self.max_listed is None)
    _passes_on = property(lambda self: self.estimator is not None)

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> Code:
        check_choice("sizes", self.sizes, ("model", "independent"))
        return SizedCode.of(Y) if self.sizes == "model" else MarginalCode.of(Y)

    def _make_learner(self) -> Learner:
        if self.max_listed is not None:
            check_count("max_listed", self.max_listed)
            if self.estimator is not None:
                raise ValueError("max_listed is for logistic regression: estimator must be None")
        if self.estimator is not None:
            check_classifier(self.estimator, "predict_proba")
            return FunctionLearner(partial(_fit_copies, self))
        solver = LinearLearner(self.fit_intercept, self.tol, self.max_iter)
        if self.max_listed is None:
            return solver
        return FunctionLearner(partial(fit_listed_models, solver, self.max_listed))

    def plan(self, Y: Indicator) -> Plan:
        """Return code, learner and names of targets in warnings, for label sets Y (n, s)."""
        code, learner, name = super().plan(Y)
        if isinstance(learner, FunctionLearner):
            learner = FunctionLearner(partial(learner.function, code, name))
        return code, learner, name

    def _output(self, X: Any) -> Any:
        log_odds = getattr(self._model, "log_odds", None)
        if log_odds is None or not isinstance(self._code, SizedCode):
            return super()._output(X)
        return self._code.estimates(log_odds(X))


def _fit_copies(
    own: Any, code: Code | None, name: Any, X: Any, targets: sp.csc_array, weight: Weight, _: Any
) -> ClassifierModel:
    """Fit copies of a classifier to each target or, with a code, to its labels and the sizes."""
    weights = fit_weights(own.estimator, weight)
    s = targets.shape[1] if code is None else code.n_labels
    labels, sizes = targets[:, :s], targets[:, s:]
    place, first = distinct_columns(labels)
    distinct = labels[:, first]
    constant = constant_values(distinct)
    varies = np.flatnonzero(np.isnan(constant))
    one = _one_output(own.estimator)
    takes_all = one is not own.estimator or get_tags(one).classifier_tags.multi_label
    together = code is not None and bool(takes_all) and len(varies) > 1
    if together:
        Y = distinct[:, varies].toarray().astype(np.int8)
        fitted = [clone(own.estimator).fit(X, Y, **weights)]
    else:
        columns = (distinct[:, [c]].toarray()[:, 0] for c in range(len(constant)))
        calls = (delayed(_fit_one)(one, X, column, weights) for column in columns)
        fitted = list(Parallel(n_jobs=own.n_jobs)(calls))
    size = None
    if sizes.shape[1] > 1:
        which = np.asarray(sizes.toarray().argmax(axis=1))
        size = clone(one).fit(X, which, **weights)
    jobs = own.n_jobs if code is None else 1
    return ClassifierModel(fitted, constant, place, jobs, together, size, sizes.shape[1])


def _one_output(estimator: Any) -> Any:
    """Return a classifier of one target: where several labels are needed, what it is made of."""
    *steps, (name, last) = getattr(estimator, "steps", [("", estimator)])
    if not hasattr(last, "__sklearn_tags__") or get_tags(last).target_tags.single_output:
        return estimator
    return Pipeline([*steps, (name, last.estimator)]) if steps else last.estimator


def _fit_one(estimator: Any, X: Any, target: NDArray[np.int8], weights: dict[str, Any]) -> Any:
    """Fit a copy of the classifier to one 0/1 target, or to none where the target is constant."""
    if target.min() == target.max():
        return None
    if hasattr(estimator, "predict_proba"):
        return clone(estimator).fit(X, target, **weights)
    folds = min(CALIBRATION_FOLDS, int(target.sum()), int((1 - target).sum()))
    everything = np.arange(len(target))
    # a class with one instance cannot be held out
    cv = folds if folds > 1 else [(everything, everything)]
    return CalibratedClassifierCV(clone(estimator), cv=cv).fit(X, target, **weights)
