"""The reduction over any probabilistic classifier of scikit-learn."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples

from fbeta._validation import check_beta, check_sample_weight, check_takes_weight
from fbeta.estimators.base import views
from fbeta.estimators.features import all_or_nothing, pass_features_on
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator, form_of, materialise
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.statistics.codes import JointCode
from fbeta.statistics.encoding import constant_values, distinct_columns

__all__ = ["ClassifierLearner", "ClassifierModel", "FBetaReduction", "fit_one", "fit_weights",
           "predict_one", "warn_of_class_weight"]  # fmt: skip

CALIBRATION_FOLDS = 3


@dataclass(frozen=True)
class ClassifierModel:
    """One classifier for each distinct target."""

    estimators: list[Any]  # fitted; None where the target is constant
    constant: NDArray[np.float64]  # (m,), the value of a constant target, else NaN
    place: NDArray[np.intp]  # (M,), the distinct target that each target equals
    n_jobs: int | None  # classifiers that predict at the same time

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the targets, of shape (n, M)."""
        columns = Parallel(n_jobs=self.n_jobs)(
            delayed(predict_one)(estimator, X, constant)
            for estimator, constant in zip(self.estimators, self.constant, strict=True)
        )
        return np.stack(columns, axis=1)[:, self.place]


@dataclass(frozen=True)
class ClassifierLearner(Learner):
    """One copy of a classifier of scikit-learn for each distinct target that is not constant."""

    estimator: Any  # with predict_proba, or with decision_function, which is then calibrated
    n_jobs: int | None = None  # classifiers that are fitted at the same time

    def __post_init__(self) -> None:
        known = hasattr(self.estimator, "predict_proba")
        if not known and not hasattr(self.estimator, "decision_function"):
            raise TypeError(
                "estimator needs predict_proba or decision_function, which "
                f"{type(self.estimator).__name__} does not have"
            )

    def fit(
        self, X: Any, targets: sp.csc_array, weight: Weight, alpha: Any = None, name: Names = str
    ) -> ClassifierModel:
        """Fit to targets of shape (n, M); how strongly is for the classifier to say."""
        weights = fit_weights(self.estimator, weight)
        place, first = distinct_columns(targets)
        constant = constant_values(targets[:, first])
        estimators = Parallel(n_jobs=self.n_jobs)(
            delayed(fit_one)(self.estimator, X, targets[:, [c]].toarray()[:, 0], weights)
            for c in first
        )
        return ClassifierModel(estimators, constant, place, self.n_jobs)

    def add(
        self, model: ClassifierModel | None, X: Any, targets: sp.csc_array, weight: Weight
    ) -> ClassifierModel:
        """Go on with more rows, with a classifier for each target, also where targets are equal."""
        check_takes_weight(self.estimator, weight)
        count = targets.shape[1]
        before = [clone(self.estimator)] * count if model is None else model.estimators
        estimators = Parallel(n_jobs=self.n_jobs)(
            delayed(_add_one)(before[c], X, targets[:, [c]].toarray()[:, 0], weight)
            for c in range(count)
        )
        return ClassifierModel(estimators, np.full(count, np.nan), np.arange(count), self.n_jobs)


def _takes_more(reduction: Any) -> bool:
    return all(hasattr(reduction.estimator, name) for name in ("partial_fit", "predict_proba"))


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
        sigmoid on held-out folds. Pipelines work; X is passed on as it is. Leave its
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
    ``class_weight`` is not for F_beta. The decode needs the probabilities of the data, and a
    classifier with ``class_weight="balanced"`` estimates those of other data, in which rare labels
    are as frequent as not: label sets come out too large, and the expected F_beta is wrong. What
    is wanted of it - rare labels that are found - is a larger beta. A warning says so.

    Weights of the rows are another matter. ``fit(X, Y, sample_weight=w)`` passes them on to a
    classifier that takes them, and into a pipeline by scikit-learn's metadata routing::

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

    (estimators_,) = views("_model", "estimators")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    _encodes_tables = False

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return pass_features_on(self, X, reset=reset)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what becomes of the weights of the rows: they are used here and passed on.

        Returns
        -------
        MetadataRouter
        """
        return _router(self.estimator, self).add_self_request(self)

    @available_if(_takes_more)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on with more rows, where the classifier can.

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

        Returns
        -------
        estimator
            Itself.
        """
        with all_or_nothing(self) as draft:
            draft._add_rows(X, y, classes, sample_weight)
        return self

    def _add_rows(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        first, y = not hasattr(self, "_model"), materialise(y)
        if first:
            form = form_of(y, "y")
            if classes is not None and form.kind in ("sets", "single"):
                form = replace(form, classes=np.array(list(classes), dtype=form.classes.dtype))
        else:
            form, before = self._label_form, cast(ClassifierModel, self._model)
            place = np.arange(len(before.place))
            if None in before.estimators or not np.array_equal(before.place, place):
                raise ValueError("partial_fit does not go on from fit: use a new estimator")
        check_beta(self.beta)
        Y, rows = form.read(y, "y"), self._validate_X(X, reset=first)
        if _num_samples(rows) != Y.shape[0]:
            raise ValueError(f"X has {_num_samples(rows)} rows and y has {Y.shape[0]}")
        code = self._make_code(Y) if first else self._code
        strange = np.setdiff1d(np.diff(Y.indptr), [0, *code.cardinalities])
        if len(strange):
            raise ValueError(
                f"y has a label set of size {strange[0]}, which the first call did not: use "
                'cardinalities="all"'
            )
        weight = check_sample_weight(sample_weight, Y.shape[0])
        model = None if first else cast(ClassifierModel, self._model)
        self._model = self._make_learner().add(model, rows, code.targets(Y), weight)
        self._code, self._label_form, self.classes_ = code, form, form.classes
        self.n_labels_ = form.n_labels

    def _make_code(self, Y: Indicator) -> JointCode:
        return JointCode.of(Y, self.cardinalities)

    def _make_learner(self) -> ClassifierLearner:
        warn_of_class_weight(self.estimator)
        return ClassifierLearner(self.estimator, self.n_jobs)


def _router(estimator: Any, owner: Any) -> MetadataRouter:
    """Tell scikit-learn that ``fit`` passes what it is given on to that of the classifier."""
    mapping = MethodMapping().add(caller="fit", callee="fit")
    return MetadataRouter(owner=owner).add(estimator=estimator, method_mapping=mapping)


def fit_weights(estimator: Any, weight: Weight) -> dict[str, Any]:
    """Return the weights as the ``fit`` of a classifier takes them, or raise where it cannot."""
    if weight is None:
        return {}
    given = {"sample_weight": weight}
    if not get_config()["enable_metadata_routing"]:
        if isinstance(estimator, Pipeline):
            raise ValueError(
                "a Pipeline takes sample_weight by metadata routing alone: call "
                "sklearn.set_config(enable_metadata_routing=True), and set_fit_request("
                "sample_weight=True) or False on its steps"
            )
        check_takes_weight(estimator, weight)
        return given
    router = _router(estimator, "FBetaReduction")
    router.validate_metadata(method="fit", params=given)
    return dict(router.route_params(caller="fit", params=given).estimator.fit)


def warn_of_class_weight(estimator: Any) -> None:
    """Say that probabilities of reweighted classes are not those which the decode needs."""
    for name, value in estimator.get_params().items():
        if name.rpartition("__")[2] == "class_weight" and value is not None:
            warnings.warn(
                f"the classifier has {name}={value!r}, and its probabilities are then not those of "
                "the data, which the best label sets depend on: leave it out, and choose a larger "
                "beta if recall matters more",
                UserWarning,
                stacklevel=2,
            )


def fit_one(estimator: Any, X: Any, target: NDArray[np.int8], weights: dict[str, Any]) -> Any:
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


def _add_one(estimator: Any, X: Any, target: NDArray[np.int8], weight: Weight) -> Any:
    """Return a copy of a classifier that has seen more rows of one 0/1 target."""
    weights = {} if weight is None else {"sample_weight": weight}
    return deepcopy(estimator).partial_fit(X, target, classes=np.array([0, 1]), **weights)


def predict_one(estimator: Any, X: Any, constant: float) -> NDArray[np.float64]:
    """Return P(target = 1 | x) for each row."""
    if estimator is None:
        return np.full(_num_samples(X), constant)
    return np.asarray(estimator.predict_proba(X)[:, 1], dtype=np.float64)
