"""What every estimator of the library shares: labels in and out, decode, score."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from fbeta._validation import check_beta, check_sample_weight
from fbeta.decoding import decode
from fbeta.encoding import LabelStatistics
from fbeta.labels import Indicator, LabelForm, form_of
from fbeta.metrics import fbeta_score

# bytes of statistics that predict keeps at a time
CHUNK = 1 << 27


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: reads X and Y, writes predictions in the form Y came in.

    A subclass has a parameter ``beta`` and implements ``fit`` (through :meth:`_read_training`)
    and ``_predict_indicator``.
    """

    beta: float
    _label_form: LabelForm
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
        return tags

    def _read_training(
        self, X: Any, Y: Any, sample_weight: ArrayLike | None = None
    ) -> tuple[Any, Indicator, NDArray[np.float64] | None]:
        """Validate the training data, remember the form of Y, and drop rows of weight zero."""
        check_beta(self.beta)
        form = form_of(Y, "y")
        indicator = form.read(Y, "y")
        X = self._validate_X(X, reset=True)
        n = _num_samples(X)
        if n != indicator.shape[0]:
            raise ValueError(f"X has {n} rows and y has {indicator.shape[0]}")
        weight = check_sample_weight(sample_weight, n)
        if weight is not None:
            rows = np.flatnonzero(weight)
            X, indicator, weight = _safe_indexing(X, rows), indicator[rows], weight[rows]
        self._label_form, self.classes_ = form, form.classes
        self.n_labels_ = form.n_labels
        return X, indicator, weight

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32]
        )

    def alpha_shared(self, X: Any, weight: NDArray[np.float64] | None) -> Any:
        """Return what all folds and strengths of a search for alpha share: here X itself."""
        return X

    def alpha_path(
        self,
        shared: Any,
        Y: Indicator,
        weight: NDArray[np.float64] | None,
        train: NDArray[np.intp],
        test: NDArray[np.intp],
        alphas: Sequence[float],
    ) -> Iterator[tuple[float, NDArray[np.bool_]]]:
        """Fit on some rows and predict others for each strength of regularisation.

        Parameters
        ----------
        shared : object
            From :meth:`alpha_shared`.
        Y : csr_array of shape (n, s)
            0/1 indicator.
        weight : ndarray of shape (n,), or None
            Weights of the rows, positive on ``train``.
        train, test : ndarray
            Indices of rows.
        alphas : sequence of float
            Strengths.

        Yields
        ------
        alpha : float
        predicted : bool ndarray of shape (number of test rows, s)
        """
        weights = {} if weight is None else {"sample_weight": weight[train]}
        for alpha in alphas:
            model = clone(self).set_params(alpha=alpha).fit(shared[train], Y[train], **weights)
            yield alpha, model._predict_indicator(shared[test], self.beta)

    @abstractmethod
    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        """Predict label sets for validated X, as booleans of shape (n, s)."""

    def _by_class(self, marginals: NDArray[Any]) -> NDArray[Any]:
        """Return marginals as ``predict_proba`` does: by class where the target was 1-D."""
        if self._label_form.kind != "single":
            return marginals
        if len(self.classes_) == 1:
            return np.ones_like(marginals)
        return np.concatenate([1 - marginals, marginals], axis=1)

    def predict(self, X: Any, *, beta: float | None = None) -> Any:
        """Predict label sets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            The measure to be optimal for; that of the estimator by default. The model does not
            depend on it.

        Returns
        -------
        labels of n instances
            In the form of the labels in ``fit``: array, sparse matrix, DataFrame or label sets.
        """
        check_is_fitted(self)
        beta = check_beta(self.beta if beta is None else beta)
        index = X.index if hasattr(X, "iloc") else None
        predicted = self._predict_indicator(self._validate_X(X, reset=False), beta)
        return self._label_form.write(predicted, index)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the instance-averaged F_beta of the predictions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : labels of n instances
            The truth, with the labels of ``fit``.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        truth = self._label_form.read(y, "y")
        X = self._validate_X(X, reset=False)
        predicted = self._predict_indicator(X, check_beta(self.beta))
        return fbeta_score(truth, predicted, self.beta, sample_weight=sample_weight)


class StatisticsClassifier(MultiLabelClassifier):
    """Base of the estimators that estimate label statistics and decode them.

    A subclass implements ``_statistics``.
    """

    cardinalities_: NDArray[np.intp]

    @abstractmethod
    def _statistics(self, X: Any) -> LabelStatistics:
        """Estimate the statistics for validated X."""

    def _row_bytes(self) -> int:
        """Return the size of the statistics of one instance, to bound the memory of predict."""
        return 8 * self.n_labels_ * max(len(self.cardinalities_), 1)

    def _chunks(self, X: Any) -> Iterator[tuple[slice, LabelStatistics]]:
        n, rows = _num_samples(X), max(1, CHUNK // self._row_bytes())
        for start in range(0, n, rows):
            chunk = slice(start, start + rows)
            yield chunk, self._statistics(X if rows >= n else _safe_indexing(X, chunk))

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        out = np.zeros((_num_samples(X), self.n_labels_), dtype=np.bool_)
        for rows, statistics in self._chunks(X):
            out[rows] = decode(statistics, beta)
        return out

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
        check_is_fitted(self)
        return self._statistics(self._validate_X(X, reset=False))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n, s)
            ``P(y_j = 1 | x)``. It is a sum of separate estimates over the sizes, and kept below 1
            where they add up to more. For a 1-D binary target, the probability of each class, as
            elsewhere in scikit-learn.
        """
        check_is_fitted(self)
        X = self._validate_X(X, reset=False)
        marginals = np.concatenate([q.marginals() for _, q in self._chunks(X)], axis=0)
        marginals[marginals >= 1] = np.nextafter(marginals.dtype.type(1), 0)
        return self._by_class(marginals)

    def expected_fbeta(self, X: Any, *, beta: float | None = None) -> NDArray[np.float64]:
        """Estimate the F_beta of each prediction, by the model's own statistics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            That of the estimator by default.

        Returns
        -------
        ndarray of shape (n,)
            Estimates from independent fits need not agree with each other, and the sum that the
            decoder maximises may then exceed 1: it is cut there.
        """
        check_is_fitted(self)
        beta = check_beta(self.beta if beta is None else beta)
        X = self._validate_X(X, reset=False)
        parts = [decode(q, beta, return_expected=True)[1] for _, q in self._chunks(X)]
        return np.minimum(np.concatenate(parts), 1.0)
