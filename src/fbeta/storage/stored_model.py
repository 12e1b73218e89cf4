"""A fitted estimator with what is needed to use it on files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from fbeta.datasets import TableEncoder
from fbeta.decoding.exact import ExactDecode
from fbeta.estimators.decisions import Decisions, decide

__all__ = ["StoredModel"]


@dataclass(frozen=True)
class StoredModel:
    """A fitted estimator with what is needed to use it on files.

    Attributes
    ----------
    estimator : estimator
        Fitted: a classifier of the library, or a pipeline that ends with one.
    label_names : tuple of str, length s
        Names of the labels.
    feature_names : tuple of str, length d, or None
        Names of the features, where the training data had them.
    reading : mapping
        How the training file was read, so that later files are read alike.
    versions : mapping
        Of the libraries that the model was fitted with.
    training : mapping
        How the model was chosen: ``method``, ``rows``, ``alpha`` and ``cv_score``, where known.
    """

    estimator: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> list[Any]:
        """The transformers before the classifier, where it is in a pipeline."""
        pipeline = isinstance(self.estimator, Pipeline)
        return [step for _, step in self.estimator.steps[:-1]] if pipeline else []

    @property
    def classifier(self) -> Any:
        """The estimator of the library: the last step, where it is in a pipeline."""
        return self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator

    def features(self, X: Any) -> Any:
        """Return the features of shape (n, d) that the classifier takes."""
        with _unnamed_columns():
            return self.estimator[:-1].transform(X) if self.steps else X

    def names_of_features(self) -> tuple[str, ...] | None:
        """Return the names of the features that the classifier takes, where they are known."""
        if not self.steps:
            return self.feature_names
        try:
            return tuple(map(str, self.estimator[:-1].get_feature_names_out()))
        except (AttributeError, ValueError):  # a step without names
            return None

    def decide(
        self,
        X: Any,
        betas: Sequence[float] | None = None,
        *,
        marginals: bool = False,
        limits: tuple[int, int | None] | None = None,
        **options: Any,
    ) -> Decisions:
        """Predict label sets as booleans (n, s) for several betas; feature maps and model run once.

        ``limits`` are the least and the largest number of labels; the other parameters are those of
        :meth:`fbeta.estimators.base.MultiLabelClassifier.decide`.
        """
        if marginals:
            self._check_has("predict_proba", "probabilities of its labels")
        if limits is not None:
            self._check_has("predict_statistics", "label statistics")
            options |= {"min_labels": limits[0], "max_labels": limits[1], "rule": ExactDecode()}
        with _unnamed_columns():
            return decide(self.estimator, X, betas, marginals=marginals, **options)

    def predict(self, X: Any, beta: float | None = None) -> NDArray[np.int8]:
        """Predict label sets as 0/1, of shape (n, s), whatever form the training labels had."""
        found = self.decide(X, None if beta is None else [beta], expected=False)
        (labels,) = found.labels.values()
        return np.asarray(labels).astype(np.int8)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Estimate the marginals of the labels, of shape (n, s), if the classifier does."""
        return np.asarray(self.decide(X, expected=False, marginals=True).marginals)

    def expected_fbeta(
        self, X: Any, beta: float | None = None, **options: Any
    ) -> NDArray[np.float64]:
        """Estimate the F_beta of each prediction, of shape (n,), if the classifier does."""
        self._check_has("expected_fbeta", "its own F_beta")
        found = self.decide(X, None if beta is None else [beta], **options)
        (values,) = found.expected.values()
        return np.asarray(values)

    def blank_row(self) -> Any:
        """Return one row without values, of shape (1, d), to try the model with."""
        first = self.estimator[0] if isinstance(self.estimator, Pipeline) else self.estimator
        # a search keeps the encoder in its best estimator
        first = getattr(getattr(first, "best_estimator_", first), "table_encoder_", first)
        if isinstance(first, TableEncoder):
            return first.blank_row()
        return np.zeros((1, int(self.estimator.n_features_in_)))

    def _check_has(self, method: str, what: str) -> None:
        if not hasattr(self.classifier, method):
            name = type(self.classifier).__name__
            raise ValueError(f"a model of {name} does not estimate {what}")


@contextmanager
def _unnamed_columns() -> Iterator[None]:
    """Allow plain arrays: the columns of files are matched by name before they get here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
