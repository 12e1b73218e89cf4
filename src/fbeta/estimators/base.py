"""What every estimator of the library shares: labels in and out, one fit, predict and score."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_array, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fbeta._array import array_namespace, concat, is_tensor, to_numpy
from fbeta._validation import check_beta, check_sample_weight
from fbeta.blocks.fitting import Scanned, fit_blocks, open_source, scan, settings_of
from fbeta.blocks.lazy import answer, is_blocks
from fbeta.blocks.source import Source
from fbeta.decoding.measures import Measure
from fbeta.decoding.rules import ExactDecode, StatisticsRule
from fbeta.labels.forms import Indicator, LabelForm, form_of
from fbeta.linear.learner import Alphas, Learner, Model, Rows, Weight, count_rows, take_rows
from fbeta.metrics import fbeta_score
from fbeta.statistics.codes import Code, Estimates
from fbeta.statistics.label_statistics import LabelStatistics

# bytes of what a model gives that predict keeps at a time
CHUNK = 1 << 27

Fold: TypeAlias = tuple[Rows, Rows]
Looks: TypeAlias = "Iterator[tuple[float, HeldOut]]"
Estimator = TypeVar("Estimator", bound=BaseEstimator)


@contextmanager
def all_or_nothing(estimator: Estimator) -> Iterator[Estimator]:
    """Give a copy of an estimator to be fitted, whose state the estimator takes at the end.

    It does so in one assignment: whatever stops the fit, and whenever, the estimator is left with
    the state that it had, and no other thread sees a part of the new one.
    """
    draft = copy(estimator)
    yield draft
    estimator.__dict__ = draft.__dict__


def validate_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or CSR matrix of float64 or float32 that agrees with the one of fit."""
    xp = array_namespace(X) if is_tensor(X) and get_config()["array_api_dispatch"] else np
    return validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=[xp.float64, xp.float32]
    )


def pass_features_on(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X, which may be text, categories or anything: that is for other estimators to say."""
    if getattr(X, "ndim", 2) == 1 and X.dtype.kind in "biuf":
        check_array(X)  # says how to reshape one row or one column of numbers
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return indexable(X)[0]


def drop_weightless(X: Any, Y: Any, weight: Weight) -> tuple[Any, Any, Weight]:
    """Leave out the rows of weight zero."""
    if weight is None:
        return X, Y, None
    rows = np.flatnonzero(weight)
    return take_rows(X, rows), Y[rows], weight[rows]


def remember(estimator: Any, scanned: Scanned) -> None:
    """Give an estimator what it knows of the data it is fitted to, from blocks of rows."""
    form, names = scanned.source.form(), scanned.source.feature_names
    estimator._label_form, estimator.classes_ = form, form.classes
    estimator.n_labels_, estimator.n_features_in_ = form.n_labels, scanned.summary.n_features
    if names is not None:
        estimator.feature_names_in_ = names


def views(part: str, *names: str) -> tuple[property, ...]:
    """Return properties of an estimator that show attributes of one of its parts."""
    return tuple(property(attrgetter(f"{part}.{name}")) for name in names)


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: reads X and Y, writes predictions in the form Y came in.

    A subclass has a parameter ``beta``, implements ``_fit``, which keeps a model in ``_model``, and
    has a rule in ``_rule``, by which it predicts.
    """

    beta: float
    _any_array = False  # whether X may be of any library of the array API standard
    _streams = False  # whether rows may be read in blocks
    _label_form: LabelForm
    _model: Any
    _rule: Any
    classes_: NDArray[Any]
    n_labels_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        # scikit-learn's checks of a good score equate prediction with p > 1/2, which is not
        # optimal for F_beta
        tags.classifier_tags.poor_score = True
        tags.array_api_support = self._any_array
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to labelled instances.

        A fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified, float32 stays float32. Or
            :class:`fbeta.blocks.RowBlocks`, which hold the labels as well and need not fit into
            memory; a memory map and arrays of Dask are taken in blocks, too.
        y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), table of pandas, Polars or Arrow, or a
            sequence of label sets such as ``[["sky", "sea"], []]``; also a 1-D binary target,
            which is one label.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances. One of weight zero is as if it were not there.

        Returns
        -------
        estimator
            Itself.
        """
        with all_or_nothing(self) as draft:
            source = draft._open(X, y, sample_weight)
            if source is not None:
                draft._fit_blocks(source)
            else:
                draft._fit(*drop_weightless(*draft._read_training(X, y, sample_weight)))
        return self

    def _open(self, X: Any, y: Any, sample_weight: Any) -> Source | None:
        """Return where the rows come from if they are not in memory."""
        if isinstance(X, np.memmap) and not self._streams:
            return None  # an array as good as any
        return open_source(X, y, sample_weight)

    def _fit_blocks(self, source: Source) -> None:
        """Fit to rows in blocks; only estimators that need no more than sums over them can."""
        raise TypeError(f"{type(self).__name__} cannot be fitted to blocks of rows: pass arrays")

    @abstractmethod
    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        """Fit to validated X, the indicator of shape (n, s), and positive weights."""

    def _read_training(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, Indicator, Weight]:
        """Validate the training data, and remember the form of y."""
        check_beta(self.beta)
        form = form_of(y, "y")
        indicator = form.read(y, "y")
        X = self._validate_X(X, reset=True)
        n = _num_samples(X)
        if n != indicator.shape[0]:
            raise ValueError(f"X has {n} rows and y has {indicator.shape[0]}")
        self._label_form, self.classes_ = form, form.classes
        self.n_labels_ = form.n_labels
        return X, indicator, check_sample_weight(sample_weight, n)

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return validate_features(self, X, reset=reset)

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return what all folds and strengths of a search for alpha share: here X itself."""
        return X

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, fold: Fold, alphas: Alphas
    ) -> Looks:
        """Fit to some rows and look at others, for each strength of regularisation.

        ``shared`` is from :meth:`alpha_shared`, Y the indicator of shape (n, s), ``fold`` the
        indices of the rows to fit to, whose weights are positive, and of the others. Each strength
        is yielded with what the estimator that was fitted says of these.
        """
        train, test = fold
        X, held = take_rows(shared, train), take_rows(shared, test)
        weights = {} if weight is None else {"sample_weight": weight[train]}
        for alpha in alphas:
            fitted = clone(self).set_params(alpha=alpha).fit(X, Y[train], **weights)
            yield alpha, HeldOut(fitted, held)

    def _output(self, X: Any) -> Any:
        """Return what the rule decides on, for validated X."""
        return self._model.scores(X)

    def _row_bytes(self) -> int:
        """Return the size of that for one instance, to bound the memory of predict."""
        return 8 * self.n_labels_

    def _chunks(self, X: Any) -> Iterator[Any]:
        """Yield the output for some rows at a time."""
        n, rows = count_rows(X), max(1, CHUNK // self._row_bytes())
        for start in range(0, max(n, 1), rows):
            chunk = slice(start, start + rows)
            yield self._output(X if rows >= n else take_rows(X, chunk))

    def _predict_indicator(self, X: Any, beta: float, **goal: Any) -> Any:
        """Predict label sets for validated X, as booleans of shape (n, s)."""
        parts = [self._rule(output, beta, **goal) for output in self._chunks(X)]
        return concat(parts)

    def _predict(self, X: Any, beta: float | None, **goal: Any) -> Any:
        """Predict label sets, in the form of those in ``fit``."""
        if is_blocks(X):
            return self._answer("predict", X, "labels", beta=beta, **goal)
        index = X.index if hasattr(X, "iloc") else None
        predicted = self._predict_indicator(*self._read_features(X, beta), **goal)
        return self._label_form.write(predicted, index)

    def _by_class(self, marginals: Any) -> Any:
        """Return marginals as ``predict_proba`` does: by class where the target was 1-D."""
        if self._label_form.kind != "single":
            return marginals
        if len(self.classes_) == 1:
            return 0 * marginals + 1
        return concat([1 - marginals, marginals], axis=1)

    def _read_features(self, X: Any, beta: float | None = None) -> tuple[Any, float]:
        """Validate what a fitted estimator is asked about; beta is its own by default."""
        check_is_fitted(self)
        beta = check_beta(self.beta if beta is None else beta)
        return self._validate_X(X, reset=False), beta

    def _answer(self, method: str, X: Any, kind: str, **options: Any) -> Any:
        """Return what a method says of blocks of rows: lazily, block by block."""
        check_is_fitted(self)
        return answer(partial(getattr(self, method), **options), X, kind, self._label_form)

    def predict(self, X: Any, *, beta: float | None = None) -> Any:
        """Predict label sets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features. For collections of Dask the prediction is one, too, and is computed when it is
            asked for; for :class:`fbeta.blocks.RowBlocks` it is made and saved block by block. The
            same holds for everything else that fitted estimators are asked.
        beta : float, optional
            The measure to be optimal for; that of the estimator by default. Methods whose models
            depend on it take no other.

        Returns
        -------
        labels of n instances
            In the form of the labels in ``fit``: array, sparse matrix, table or label sets.
        """
        return self._predict(X, beta)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the instance-averaged F_beta of the predictions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : labels of n instances
            The truth. Label sets may have labels that ``fit`` did not see, such as those that only
            a test fold has: they count, and are never predicted.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        float
        """
        X, beta = self._read_features(X)
        truth = self._label_form.read(y, "y", unseen=True)
        predicted = to_numpy(self._predict_indicator(X, beta))
        predicted = np.pad(predicted, ((0, 0), (0, truth.shape[1] - predicted.shape[1])))
        return fbeta_score(truth, predicted, beta, sample_weight=sample_weight)


@dataclass(frozen=True)
class HeldOut:
    """What an estimator that was fitted to other rows says of the rows of a fold."""

    estimator: MultiLabelClassifier
    rows: Any  # as its model takes them

    def labels(self, beta: float) -> Any:
        """Return the predicted label sets, of shape (n, s)."""
        return self.estimator._predict_indicator(self.rows, beta)

    def decide(self, beta: float) -> tuple[Any, Any]:
        """Return the label sets, and what is expected of each: None where nothing is."""
        if isinstance(self.estimator, StatisticsClassifier):
            return self.estimator._decide(self.rows, beta)
        return self.labels(beta), None

    def statistics(self) -> LabelStatistics:
        """Return the label statistics, of estimators that have them."""
        return LabelStatistics.concatenate(list(self.parts()))

    def parts(self) -> Iterator[LabelStatistics]:
        """Yield the label statistics of some rows at a time."""
        for estimates in cast(StatisticsClassifier, self.estimator)._chunks(self.rows):
            yield estimates.statistics()


class StatisticsClassifier(MultiLabelClassifier):
    """Base of the estimators of label statistics: a code, a model of its targets and a rule.

    A subclass implements ``_make_code`` and ``_make_learner``; the rule is the exact decode unless
    it has another. Whatever follows from the three is here.
    """

    _code: Code
    _model: Model
    _rule: StatisticsRule = ExactDecode()

    (cardinalities_,) = views("_code", "cardinalities")

    @abstractmethod
    def _make_code(self, Y: Indicator) -> Code:
        """Return the code for label sets of the training rows."""

    @abstractmethod
    def _make_learner(self) -> Learner:
        """Return what fits the model, or raise where a parameter is wrong."""

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        learner, code = self._make_learner(), self._make_code(Y)
        alpha, name = getattr(self, "alpha", None), self._namer(code)
        self._code, self._model = code, learner.fit(X, code.targets(Y), weight, alpha, name)

    def _namer(self, code: Code) -> Callable[[int], str]:
        # a 1-D binary target has two classes and one label, the second of them
        return partial(code.name, labels=self.classes_[-self.n_labels_ :])

    def _fit_blocks(self, source: Source) -> None:
        scanned = self._scan(source)
        rows = scanned.rows()
        if rows is not None:
            self._fit(rows.X, rows.Y, rows.weight)
            return
        code, alpha = self._make_code(scanned.witnesses), getattr(self, "alpha", None)
        model = fit_blocks(scanned, self._make_learner(), code, alpha, self._namer(code))
        self._code, self._model = code, model

    def _scan(self, source: Source) -> Scanned:
        """Go through the rows for the first time, and remember the form of the labels."""
        check_beta(self.beta)
        settings_of(self._make_learner())
        scanned = scan(source, self._make_code)
        remember(self, scanned)
        return scanned

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return X in coordinates that all folds and strengths of a search for alpha share."""
        return self._make_learner().share(X, weight)

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, fold: Fold, alphas: Alphas
    ) -> Looks:
        """Follow the path of the learner on some rows, and look at others."""
        train, test = fold
        code, held = self._make_code(Y[train]), take_rows(shared, test)
        path = self._make_learner().path(shared, code.targets(Y[train]), weight, train, alphas)
        for alpha, model in path:
            fitted = clone(self)
            fitted._code, fitted._model = code, model
            yield alpha, HeldOut(fitted, held)

    def _output(self, X: Any) -> Estimates:
        return Estimates(self._code, self._model.probabilities(X))

    def _row_bytes(self) -> int:
        return 8 * self._code.width()

    def _statistics(self, X: Any) -> LabelStatistics:
        """Estimate the statistics for validated X."""
        parts = [estimates.statistics() for estimates in self._chunks(X)]
        return LabelStatistics.concatenate(parts)

    def _decide(self, X: Any, beta: float, **goal: Any) -> tuple[Any, Any]:
        """Return label sets for validated X, and the F_beta that is expected of each."""
        parts = [self._rule.decide(estimates, beta, **goal) for estimates in self._chunks(X)]
        labels, expected = (concat(list(some)) for some in zip(*parts, strict=True))
        return labels, array_namespace(expected).clip(expected, None, 1.0)

    def _goal(self, **goal: Any) -> dict[str, Any]:
        """Return what differs from the plain decode; other rules know nothing else."""
        plain = {"measure": "fbeta", "min_labels": 0, "max_labels": None}
        goal = {key: value for key, value in goal.items() if value != plain[key]}
        if goal and not isinstance(self._rule, ExactDecode):
            raise ValueError(
                f"{', '.join(goal)}: only the exact decode takes these, and this "
                f"{type(self).__name__} decides by {type(self._rule).__name__}"
            )
        return goal

    def predict(
        self,
        X: Any,
        *,
        beta: float | None = None,
        measure: str | Measure = "fbeta",
        min_labels: int = 0,
        max_labels: int | None = None,
    ) -> Any:
        """Predict label sets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            The measure to be optimal for; that of the estimator by default.
        measure, min_labels, max_labels
            As for :func:`fbeta.decode`: another measure than F_beta, and limits on the number of
            labels, within which predictions are optimal.

        Returns
        -------
        labels of n instances
            In the form of the labels in ``fit``: array, sparse matrix, DataFrame or label sets.
        """
        goal = self._goal(measure=measure, min_labels=min_labels, max_labels=max_labels)
        return self._predict(X, beta, **goal)

    def predict_statistics(self, X: Any) -> LabelStatistics:
        """Estimate everything the decoder needs.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        LabelStatistics
            ``P(no labels | x)`` and ``P(|y| = k, y_j = 1 | x)`` for n instances.
        """
        if is_blocks(X):
            return cast(LabelStatistics, self._answer("predict_statistics", X, "statistics"))
        return self._statistics(self._read_features(X)[0])

    def predict_proba(self, X: Any) -> Any:
        """Estimate the marginal probability of each label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, s)
            ``P(y_j = 1 | x)``. Where it is a sum of separate estimates over the sizes, it is kept
            below 1. For a 1-D binary target, the probability of each class, as elsewhere in
            scikit-learn.
        """
        if is_blocks(X):
            return self._answer("predict_proba", X, "matrix")
        X, _ = self._read_features(X)
        marginals = [estimates.marginals() for estimates in self._chunks(X)]
        return self._by_class(concat(marginals))

    def expected_fbeta(
        self,
        X: Any,
        *,
        beta: float | None = None,
        min_labels: int = 0,
        max_labels: int | None = None,
    ) -> Any:
        """Estimate the F_beta of each prediction, by the model's own statistics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            That of the estimator by default.
        min_labels, max_labels
            Limits on the number of labels of the predictions.

        Returns
        -------
        ndarray of shape (n,)
            Estimates from independent fits need not agree with each other, and the sum that the
            decoder maximises may then exceed 1: it is cut there.
        """
        goal = self._goal(min_labels=min_labels, max_labels=max_labels)
        if is_blocks(X):
            return self._answer("expected_fbeta", X, "vector", beta=beta, **goal)
        return self._decide(*self._read_features(X, beta), **goal)[1]
