"""What every estimator of the library shares: labels in and out, one fit, predict and score."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import _num_samples, check_is_fitted

from fbeta._array import array_namespace, concat, optional_import, to_numpy
from fbeta._validation import check_beta, check_choice, check_sample_weight
from fbeta.estimators.calibration import calibrate
from fbeta.estimators.decisions import Decisions, HeldOut
from fbeta.estimators.features import (
    all_or_nothing,
    column_order,
    drop_weightless,
    encode_table,
    in_blocks,
    validate_features,
)
from fbeta.labels.forms import Indicator, LabelForm, read_labels
from fbeta.linear.learner import Alphas, Rows, Weight, take_rows
from fbeta.metrics import fbeta_score

if TYPE_CHECKING:
    from fbeta.blocks.passes import RowSource

__all__ = ["MultiLabelClassifier", "views"]

# bytes of the output of a model that predict keeps at a time
CHUNK_BYTES = 1 << 27

Fold: TypeAlias = tuple[Rows, Rows]
HeldOutPath: TypeAlias = "Iterator[tuple[float, HeldOut]]"


def views(part: str, *names: str) -> tuple[property, ...]:
    """Return properties of an estimator that show attributes of one of its parts."""
    return tuple(property(attrgetter(f"{part}.{name}")) for name in names)


def _by_name(work: Callable[[Any], Any], order: Any, X: Any) -> Any:
    """Call a method with the columns of a block in the order of fit; they have no names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return work(X if order is None or hasattr(X, "iloc") else X[:, order])


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: reads X and Y, writes predictions in the form Y came in.

    A subclass has a parameter ``beta`` and implements ``_fit``, which sets ``_model`` and, unless
    the class has one, ``_rule``. Other modules of the package use the fitted estimator by

    - ``model`` and ``rule``: what was fitted, and what makes label sets of its output;
    - ``estimates(X)``: the output of the model, some rows at a time;
    - ``decide(X, betas)``: label sets for several betas from one run of the model;
    - ``alpha_shared`` and ``alpha_path``: fits for many alphas, for cross-validation.

    A ``StatisticsClassifier`` has ``code``, ``plan`` and ``adopt`` besides.
    """

    beta: float
    _any_array = False  # whether X may be of any library of the array API standard
    _streams = False  # whether rows may be read in blocks
    _encodes_tables = True  # whether data frames with text, categories, dates or gaps are encoded
    _label_form: LabelForm
    _model: Any
    _rule: Any
    calibration_: Any = None  # of the expected F_beta, where held-out rows were scored
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

    @property
    def model(self) -> Any:
        """The fitted model: arrays, or other fitted estimators."""
        return self._model

    @property
    def rule(self) -> Any:
        """What makes label sets of the output of the model and beta."""
        return self._rule

    @property
    def label_form(self) -> LabelForm:
        """The form that the labels had in ``fit``."""
        return self._label_form

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to labelled instances.

        A fit that fails or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features; sparse X is not densified, float32 stays float32. A data frame with text,
            categories, dates or gaps is encoded by :class:`fbeta.datasets.TableEncoder`, which is
            kept as ``table_encoder_``. Or
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

    def _remember(self, source: RowSource) -> None:
        """Set the fitted attributes that describe the data, from blocks of rows."""
        form, names = source.form(), source.feature_names
        self._label_form, self.classes_, self.n_labels_ = form, form.classes, form.n_labels
        self.n_features_in_ = source.summary.n_features
        if names is not None:
            self.feature_names_in_ = names

    @abstractmethod
    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        """Fit to validated X, the indicator of shape (n, s), and positive weights."""

    def _read_training(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, Indicator, Weight]:
        """Validate the training data, and remember the form of y."""
        check_beta(self.beta)
        form, indicator = read_labels(y, "y")
        self._label_form, self.classes_, self.n_labels_ = form, form.classes, form.n_labels
        X = self._validate_X(self._encode(X, reset=True), reset=True)
        n = _num_samples(X)
        if n != indicator.shape[0]:
            raise ValueError(f"X has {n} rows and y has {indicator.shape[0]}")
        return X, indicator, check_sample_weight(sample_weight, n)

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return validate_features(self, X, reset=reset)

    def alpha_shared(self, X: Any, weight: Weight) -> Any:
        """Return what all folds and alphas of a search share: here X itself."""
        return X

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, fold: Fold, alphas: Alphas
    ) -> HeldOutPath:
        """Yield each alpha with the estimator fitted to the training rows, and the held-out rows.

        ``shared`` is from :meth:`alpha_shared`, Y of shape (n, s), ``fold`` a pair of row indices.
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

    def _decide(
        self, rule: Any, output: Any, beta: float, expected: bool, **goal: Any
    ) -> tuple[Any, Any]:
        """Return label sets and their expected F_beta, or None, for an output of the model."""
        return rule(output, beta, **goal), None

    def estimates(self, X: Any, *, checked: bool = False) -> Iterator[Any]:
        """Yield the output of the model for some rows of X at a time: what ``rule`` takes.

        That are scores (rows, s), or estimates with ``statistics()`` and ``marginals()``. With
        ``checked``, X is as the model takes it: validated, or from :meth:`alpha_shared`.
        """
        X = X if checked else self._read_features(X)
        n, rows = _num_samples(X), max(1, CHUNK_BYTES // self._row_bytes())
        for start in range(0, max(n, 1), rows):
            chunk = slice(start, start + rows)
            yield self._output(X if rows >= n else take_rows(X, chunk))

    def decide(
        self,
        X: Any,
        betas: Sequence[float] | None = None,
        *,
        expected: bool = True,
        marginals: bool = False,
        calibrated: bool = True,
        skip_refused: bool = False,
        rule: Any = None,
        checked: bool = False,
        **goal: Any,
    ) -> Decisions:
        """Return label sets for several betas; the model is run once.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        betas : sequence of float, optional
            The measures; that of the estimator by default.
        expected, marginals : bool
            Whether to return the expected F_beta of each label set, where the estimator has label
            statistics, and the probability of each label.
        calibrated : bool
            Whether to calibrate the expected F_beta on held-out rows, where that is known.
        skip_refused : bool
            Whether to leave betas out that the rule refuses, such as those of a method that was
            fitted for one beta. By default they raise ValueError.
        rule : callable, optional
            Another rule than that of the estimator.
        checked : bool
            As for :meth:`estimates`.
        **goal
            ``measure``, ``min_labels`` and ``max_labels``, for the exact decode.

        Returns
        -------
        Decisions
        """
        wanted = [check_beta(beta) for beta in ([self.beta] if betas is None else betas)]
        rule = self._rule if rule is None else rule
        found: dict[float, list[tuple[Any, Any]]] = {beta: [] for beta in wanted}
        parts = []
        for output in self.estimates(X, checked=checked):
            for beta in list(found):
                try:
                    found[beta].append(self._decide(rule, output, beta, expected, **goal))
                except ValueError:
                    if not skip_refused:
                        raise
                    del found[beta]
            if marginals:
                parts.append(output.marginals())
        return self._joined(found, parts, calibrated and not goal)

    def _joined(
        self, found: dict[float, list[tuple[Any, Any]]], marginals: list[Any], calibrated: bool
    ) -> Decisions:
        """Join decisions on some rows at a time."""
        labels = {beta: concat([part[0] for part in parts]) for beta, parts in found.items()}
        values = {}
        for beta, parts in found.items():
            if parts[0][1] is not None:
                raw = concat([part[1] for part in parts])
                raw = array_namespace(raw).clip(raw, None, 1.0)
                values[beta] = calibrate(raw, self.calibration_ if calibrated else None, beta)
        return Decisions(labels, values, concat(marginals) if marginals else None)

    def _predict(self, X: Any, beta: float | None, **goal: Any) -> Any:
        """Predict label sets, in the form of those in ``fit``."""
        if in_blocks(X):
            return self._answer("predict", X, "labels", beta=beta, **goal)
        index = X.index if hasattr(X, "iloc") else None
        check_is_fitted(self)
        beta = check_beta(self.beta if beta is None else beta)
        found = self.decide(X, [beta], expected=False, **goal)
        return self._label_form.write(found.labels[beta], index)

    def _by_class(self, marginals: Any) -> Any:
        """Return marginals as ``predict_proba`` does: by class where the target was 1-D."""
        if self._label_form.kind != "single":
            return marginals
        if len(self.classes_) == 1:
            return 0 * marginals + 1
        return concat([1 - marginals, marginals], axis=1)

    def _read_features(self, X: Any) -> Any:
        """Validate the features of a fitted estimator."""
        check_is_fitted(self)
        return self._validate_X(self._encode(X, reset=False), reset=False)

    def _encode(self, X: Any, *, reset: bool) -> Any:
        """Return the features of a data frame that has columns other than numbers."""
        if not self._encodes_tables:
            return X
        allow_gaps = reset and bool(get_tags(self).input_tags.allow_nan)
        return encode_table(self, X, reset=reset, allow_gaps=allow_gaps)

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
        if kind == "default":
            return values
        names = [str(name) for name in self.classes_]
        if kind == "polars":
            polars = optional_import("polars", "polars", "data frames of Polars")
            return polars.DataFrame(to_numpy(values), schema=names)
        pandas = optional_import("pandas", "pandas", "data frames of pandas")
        index = X.index if hasattr(X, "iloc") else None
        return pandas.DataFrame(to_numpy(values), index=index, columns=self.classes_)

    def _answer(self, method: str, X: Any, kind: str, **options: Any) -> Any:
        """Return the result of a method for blocks of rows: lazily, block by block."""
        from fbeta.blocks.distributed import answer

        check_is_fitted(self)
        work = partial(getattr(self, method), **options)
        names, own = getattr(X, "feature_names", None), getattr(self, "feature_names_in_", None)
        if names is not None and own is not None:
            work = partial(_by_name, work, column_order(names, own, "X"))
        return answer(work, X, kind, self._label_form)

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
        check_is_fitted(self)
        truth = self._label_form.read(y, "y", unseen=True)
        beta = check_beta(self.beta)
        predicted = to_numpy(self.decide(X, [beta], expected=False).labels[beta])
        predicted = np.pad(predicted, ((0, 0), (0, truth.shape[1] - predicted.shape[1])))
        return fbeta_score(truth, predicted, beta, sample_weight=sample_weight)
