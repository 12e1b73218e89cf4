"""Base of all estimators: labels in and out, one fit, label sets from one run of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fbeta._array import (
    array_namespace,
    check_beta,
    check_choice,
    check_library,
    check_sample_weight,
    check_unmasked,
    concat,
    is_tensor,
    to_numpy,
)
from fbeta.decoding.exact import exact_decode
from fbeta.decoding.expected import expected_fbeta
from fbeta.decoding.measures import Measure
from fbeta.estimators.features import answer_blocks, as_frame, encode_table, pass_features_on
from fbeta.labels.forms import Indicator, LabelForm, materialise, read_labels
from fbeta.linear.learner import Alphas, Rows, Weight, drop_weightless, take_rows
from fbeta.metrics import fbeta_score
from fbeta.statistics.codes import Estimates

if TYPE_CHECKING:
    from fbeta.blocks.passes import RowSource

CHUNK_BYTES = 1 << 27  # of the output of a model that predict keeps at a time

Estimator = TypeVar("Estimator", bound=BaseEstimator)
Method = TypeVar("Method", bound=Callable[..., Any])
FittedPath: TypeAlias = "Iterator[tuple[float, MultiLabelClassifier]]"


def views(part: str, *names: str) -> tuple[property, ...]:
    """Return properties of an estimator that show attributes of one of its parts."""
    return tuple(property(attrgetter(f"{part}.{name}")) for name in names)


@contextmanager
def all_or_nothing(estimator: Estimator) -> Iterator[Estimator]:
    """Give a copy of an estimator to be fitted, whose state the estimator takes at the end."""
    draft = copy(estimator)
    yield draft
    estimator.__dict__ = draft.__dict__  # one assignment: no thread sees a part of the new state


def validate_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or CSR matrix of float64 or float32 that agrees with the one of fit."""
    check_unmasked("X", X)
    xp = array_namespace(X) if is_tensor(X) and get_config()["array_api_dispatch"] else np
    kinds = [xp.float64, xp.float32]
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=kinds)


def in_blocks(X: Any) -> bool:
    """Return whether rows come in blocks, of :mod:`fbeta.blocks` (not imported here) or Dask."""
    ours = any(base.__module__.startswith("fbeta.blocks") for base in type(X).__mro__)
    return ours or (type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__"))


def answers(kind: str) -> Callable[[Method], Method]:
    """Let a method of fitted estimators take blocks of rows, too; ``kind`` is what it returns."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def ask(self: Any, X: Any, *rest: Any, **options: Any) -> Any:
            fitted, name = copy(self), method.__name__  # one state, whatever others fit meanwhile
            check_is_fitted(fitted)
            if kind != "number" and in_blocks(X):
                return answer_blocks(fitted, partial(getattr(fitted, name), **options), X, kind)
            model = getattr(getattr(fitted, "best_estimator_", fitted), "model", None)
            check_library(getattr(model, "coef", None), X, type(fitted).__name__, name)
            return method(fitted, X, *rest, **options)

        return cast(Method, ask)

    return decorate


@dataclass(frozen=True)
class Decisions:
    """Label sets of n rows for several betas, from one run of a model."""

    labels: dict[float, Any]  # from beta to booleans of shape (n, s)
    # from beta to the expected F_beta, (n,); empty without label statistics, or if not asked for
    expected: dict[float, Any] = field(default_factory=dict)
    marginals: Any = None  # (n, s), the probability of each label, where it was asked for


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: reads X and Y, writes predictions in the form Y came in.

    A subclass has a parameter ``beta`` and implements ``_fit``, which sets ``_model`` and, unless
    the class has one, ``_rule``. Other modules of the package use the fitted estimator by

    - ``model``, ``rule`` and ``label_form``: what was fitted, what makes label sets of its output,
      and the form that the labels had;
    - ``streams``: whether ``fit`` takes rows in blocks;
    - ``estimates(X)``: the output of the model, some rows at a time;
    - ``decide(X, betas)``: label sets for several betas from one run of the model;
    - ``alpha_shared``, ``alpha_path`` and ``alpha_paths``: fits for many alphas and folds;
    - ``code``, ``plan`` and ``adopt`` of a ``StatisticsClassifier``.
    """

    beta: float
    _any_array = False  # whether X may be of any library of the array API standard
    _streams = False  # whether rows may be read in blocks
    _passes_on = False  # whether X goes to inner estimators as it is, which check and encode it
    _label_form: LabelForm
    _model: Any
    _rule: Any
    alpha_paths: Any = None  # the paths of several folds, to be followed in turns, where it exists
    calibration_: Any = None  # of the expected F_beta, where held-out rows were scored
    classes_: NDArray[Any]
    n_labels_: int

    model, rule, label_form = (property(attrgetter(n)) for n in ("_model", "_rule", "_label_form"))
    streams = property(attrgetter("_streams"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        # scikit-learn's checks of a good score equate prediction with p > 1/2, which is not
        # optimal for F_beta
        tags.classifier_tags.poor_score = True
        tags.array_api_support = self._any_array and not self._passes_on
        if self._passes_on and hasattr(self, "estimator"):
            tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to labelled instances, and return the estimator.

        A fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified, float32 stays float32. A data frame with text,
            categories, dates or gaps is encoded by :class:`fbeta.datasets.TableEncoder`, which is
            kept as ``table_encoder_``. A memory map, collections of Dask and
            :class:`fbeta.blocks.RowBlocks`, which hold the labels as well, are taken in blocks.
        y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), table of pandas, Polars or Arrow, or a
            sequence of label sets such as ``[["sky", "sea"], []]``; also a 1-D binary target,
            which is one label.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances. One of weight zero is as if it were not there.
        """
        with all_or_nothing(self) as draft:
            source = draft._open(X, y, sample_weight)
            if source is not None:
                draft._fit_blocks(source)
            else:
                rows = draft._read_training(X, y, sample_weight)
                if rows[2] is not None and not hasattr(draft, "cv"):  # folds may have row numbers
                    rows = drop_weightless(*rows)
                draft._fit(*rows)
        return self

    def _open(self, X: Any, y: Any, sample_weight: Any) -> RowSource | None:
        """Return where the rows come from if they are not arrays in memory."""
        mapped = isinstance(X, np.memmap) and self._streams and X.ndim == 2 and y is not None
        if not mapped and not in_blocks(X):
            return None
        from fbeta.blocks.distributed import open_source

        return open_source(X, y, sample_weight)

    def _fit_blocks(self, source: RowSource) -> None:
        """Fit to rows in blocks; only estimators that need no more than sums over them can."""
        raise TypeError(f"{type(self).__name__} cannot be fitted to blocks of rows: pass arrays")

    @abstractmethod
    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        """Fit to validated X, the indicator of shape (n, s), and positive weights."""

    def _set_labels(self, form: LabelForm) -> None:
        self._label_form, self.classes_, self.n_labels_ = form, form.classes, form.n_labels

    def _set_scanned(self, source: RowSource) -> None:
        """Set the fitted attributes that describe the data, from blocks of rows."""
        self._set_labels(source.form())
        self.n_features_in_ = source.summary.n_features
        if source.feature_names is not None:
            self.feature_names_in_ = source.feature_names

    def _read_training(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool = True, classes: Any = None
    ) -> tuple[Any, Indicator, Weight]:
        """Validate training rows; the first set what describes them, perhaps with all classes."""
        check_beta(self.beta)
        y = materialise(y)
        if first:
            form, indicator = read_labels(y, "y")
            if classes is not None and form.kind in ("sets", "single"):
                form = replace(form, classes=np.array(list(classes), dtype=form.classes.dtype))
                indicator = form.read(y, "y")
            self._set_labels(form)
        else:
            indicator = self._label_form.read(y, "y")
        weight = check_sample_weight(sample_weight, indicator.shape[0])
        X = self._read_features(X, reset=first, weight=weight)
        n = _num_samples(X)
        if n != indicator.shape[0]:
            raise ValueError(f"X has {n} rows and y has {indicator.shape[0]}")
        return X, indicator, weight

    def _read_features(self, X: Any, *, reset: bool = False, weight: Weight = None) -> Any:
        """Validate features, those of a data frame whose columns are not all numbers encoded."""
        if reset:
            self.__dict__.pop("table_encoder_", None)
        else:
            check_is_fitted(self)
        if in_blocks(X):
            if not hasattr(X, "compute"):
                raise TypeError(f"{type(self).__name__}.score takes no RowBlocks: pass arrays")
            X = X.compute()
        if not isinstance(X, np.ndarray) or hasattr(self, "table_encoder_"):
            X = encode_table(self, X, reset=reset, passes_on=self._passes_on, weight=weight)
        return self._validate_X(X, reset=reset, weight=weight)

    def _validate_X(self, X: Any, *, reset: bool, weight: Weight = None) -> Any:
        validate = pass_features_on if self._passes_on else validate_features
        return validate(self, X, reset=reset)

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return what all folds and alphas of a search share: here X itself."""
        return X

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, rows: Rows, alphas: Alphas
    ) -> FittedPath:
        """Yield each alpha with the estimator fitted to some ``rows``; the rest is of all rows."""
        X = take_rows(shared, rows)
        weights = {} if weight is None else {"sample_weight": weight[rows]}
        for alpha in alphas:
            yield alpha, clone(self).set_params(alpha=alpha).fit(X, Y[rows], **weights)

    def _output(self, X: Any) -> Any:
        """Return what the rule decides on, for validated X."""
        return self._model.scores(X)

    def _row_bytes(self) -> int:
        """Return the size of that for one instance, to bound the memory of predict."""
        return 8 * self.n_labels_

    def estimates(self, X: Any, *, checked: bool = False) -> Iterator[Any]:
        """Yield what ``rule`` takes, scores (rows, s) or ``Estimates``, for some rows at a time.

        With ``checked``, X is as the model takes it: validated, or from :meth:`alpha_shared`.
        """
        X = X if checked else self._read_features(X)
        n, rows = _num_samples(X), max(1, CHUNK_BYTES // self._row_bytes())
        for start in range(0, max(n, 1), rows):
            yield self._output(X if rows >= n else take_rows(X, slice(start, start + rows)))

    def decide(
        self,
        X: Any,
        betas: Sequence[float] | None = None,
        *,
        expected: bool = True,
        marginals: bool = False,
        calibrated: bool = True,
        skip_refused: bool = False,
        checked: bool = False,
        rule: Any = None,
        **goal: Any,
    ) -> Decisions:
        """Return label sets for several betas, by default that of the estimator, from one run.

        ``expected`` and ``marginals`` ask for the expected F_beta, ``calibrated`` where that is
        known, and for the probability of each label. ``skip_refused`` leaves betas out that the
        rule refuses with ValueError. X may be ``checked``, as for :meth:`estimates`; ``rule``
        replaces that of the estimator; ``goal`` has ``measure``, ``min_labels`` and ``max_labels``,
        for the exact decode.
        """
        wanted = [check_beta(beta) for beta in ([self.beta] if betas is None else betas)]
        found: dict[float, list[tuple[Any, Any]]] = {beta: [] for beta in wanted}
        parts, rule = [], self._rule if rule is None else rule
        for output in self.estimates(X, checked=checked):
            for beta in list(found):
                try:
                    found[beta].append(self._decide(rule, output, beta, expected, goal))
                except ValueError:
                    if not skip_refused:
                        raise
                    del found[beta]
            if marginals:
                parts.append(output.marginals())
        labels = {beta: concat([part[0] for part in some]) for beta, some in found.items()}
        known, values = self.calibration_ if calibrated and not goal else None, {}
        for beta, some in found.items():
            if some[0][1] is not None:
                raw = concat([part[1] for part in some])
                raw = array_namespace(raw).clip(raw, None, 1.0)
                values[beta] = known(raw) if known is not None and known.beta == beta else raw
        return Decisions(labels, values, concat(parts) if parts else None)

    def _decide(
        self, rule: Any, output: Any, beta: float, expected: bool, goal: dict[str, Any]
    ) -> tuple[Any, Any]:
        """Return label sets for an output of the model, and their expected F_beta or None."""
        if not expected or not isinstance(output, Estimates):
            return rule(output, beta, **goal), None
        if rule is exact_decode:
            return cast(tuple[Any, Any], exact_decode(output, beta, return_expected=True, **goal))
        labels = rule(output, beta, **goal)
        return labels, expected_fbeta(output.statistics(), labels, beta)

    def _goal(self, **goal: Any) -> dict[str, Any]:
        """Return what differs from the plain decode; other rules know nothing else."""
        plain = {"measure": "fbeta", "min_labels": 0, "max_labels": None}
        goal = {key: value for key, value in goal.items() if value != plain[key]}
        if goal and self._rule is not exact_decode:
            rule = getattr(self._rule, "__name__", type(self._rule).__name__)
            raise ValueError(
                f"{', '.join(goal)}: only the exact decode takes these, and this "
                f"{type(self).__name__} decides by {rule}"
            )
        return goal

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``predict_proba`` returns, and return the estimator.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            An array; or a data frame with the names of the labels as columns and, for pandas, the
            index of X. None changes nothing.
        """
        if transform is not None:
            check_choice("transform", transform, ("default", "pandas", "polars"))
            self._sklearn_output_config = {"transform": transform}  # clone keeps it
        return self

    def _framed(self, values: Any, X: Any) -> Any:
        """Return probabilities (n, s) as :meth:`set_output` says."""
        kind = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        return values if kind == "default" else as_frame(values, kind, self.classes_, X)

    @answers("labels")
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
            Features. For collections of Dask the prediction is one, too, and is computed when it is
            asked for; for :class:`fbeta.blocks.RowBlocks` it is made and saved block by block. The
            same holds for everything else that fitted estimators are asked.
        beta : float, optional
            The measure to be optimal for; that of the estimator by default. Methods whose models
            depend on it take no other.
        measure, min_labels, max_labels
            As for :func:`fbeta.decode`: another measure than F_beta, and limits on the number of
            labels, within which predictions are optimal. Only the exact decode takes them.

        Returns
        -------
        labels of n instances
            In the form of the labels in ``fit``: array, sparse matrix, table or label sets.
        """
        beta = check_beta(self.beta if beta is None else beta)
        goal = self._goal(measure=measure, min_labels=min_labels, max_labels=max_labels)
        found = self.decide(X, [beta], expected=False, **goal)
        return self._label_form.write(found.labels[beta], X.index if hasattr(X, "iloc") else None)

    @answers("number")
    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the instance-averaged F_beta of the predictions.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`. Label sets may have labels that ``fit`` did not see, such as those
            that only a test fold has: they count, and are never predicted.
        """
        truth = self._label_form.read(y, "y", unseen=True)
        (found,) = self.decide(X, expected=False).labels.values()
        predicted = sp.csr_array(to_numpy(found), dtype=np.int8)
        predicted.resize(predicted.shape[0], truth.shape[1])
        return fbeta_score(truth, predicted, self.beta, sample_weight=sample_weight)
