"""Any loss matrix ``l(y, yhat) = a_y . b_yhat`` over finite labels: Theorem 1 of the paper.

Binary problems with the factors a_y, scaled to [0, 1], as soft targets estimate ``E[a_y | x]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fbeta._array import check_beta, check_count, check_sample_weight
from fbeta.decoding.measures import tie
from fbeta.estimators.base import (
    Decisions,
    all_or_nothing,
    validate_features,
    views,
)
from fbeta.labels.forms import form_of, read_labels
from fbeta.linear import LinearLearner
from fbeta.linear.learner import drop_weightless
from fbeta.losses import Loss, get_loss
from fbeta.metrics import fbeta_of_counts
from fbeta.statistics import encode

__all__ = ["LowRankClassifier", "all_labelsets", "factorise", "fbeta_factors"]

Factors: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def factorise(L: ArrayLike) -> Factors:
    """Factorise a loss matrix ``L[y, yhat]`` by singular values, with as few factors as can be.

    Returns A (n_classes, r) and B (r, n_predictions) with ``L = A @ B``.

    Examples
    --------
    >>> A, B = factorise([[0, 1, 2], [0, 2, 4]])
    >>> A.shape, (A @ B).round(12).tolist()
    ((2, 1), [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])
    """
    L = np.asarray(L, dtype=np.float64)
    if L.ndim != 2 or 0 in L.shape or not np.isfinite(L).all():
        raise ValueError(f"the loss matrix must be finite and have two dimensions, got {L.shape}")
    U, sizes, V = np.linalg.svd(L, full_matrices=False)
    rank = max(1, int((sizes > max(L.shape) * np.finfo(np.float64).eps * sizes[0]).sum()))
    return U[:, :rank] * sizes[:rank], V[:rank]


def all_labelsets(n_labels: int) -> NDArray[np.int8]:
    """Return all subsets of s labels as int8 (2^s, s): small ones first, then in order of labels.

    Examples
    --------
    >>> all_labelsets(2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    sets = product((1, 0), repeat=check_count("n_labels", n_labels))
    return np.array(sorted(sets, key=sum), dtype=np.int8)


def fbeta_factors(n_labels: int, beta: float = 1.0) -> Factors:
    """Return the paper's s^2 + 1 factors of ``-F_beta`` over all 2^s label sets.

    ``a_y`` holds ``1(|y| = 0)`` and ``1(|y| = k) y_j``; ``b_yhat`` holds ``-1(|yhat| = 0)`` and
    ``-(1 + beta^2) yhat_j / (beta^2 k + |yhat|)``. The shapes are (2^s, 1 + s^2) and
    (1 + s^2, 2^s), with label sets in the order of :func:`all_labelsets`.

    Examples
    --------
    >>> A, B = fbeta_factors(2)
    >>> (A @ B).round(3).tolist()[3]
    [0.0, -0.667, -0.667, -1.0]
    """
    beta = check_beta(beta)
    sets = all_labelsets(n_labels).astype(np.float64)
    cardinalities = np.arange(1, n_labels + 1)
    A = encode(sp.csr_array(sets.astype(np.int8)), cardinalities).toarray().astype(np.float64)
    size = sets.sum(axis=1)
    weight = fbeta_of_counts(1, cardinalities[None, :, None], size[:, None, None], beta)
    joint = (weight * sets[:, None, :]).reshape(len(sets), -1)
    return A, -np.concatenate([(size == 0)[:, None], joint], axis=1).T


@dataclass(eq=False, repr=False)
class LowRankClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier that is calibrated for a given loss matrix (Ramaswamy et al. 2014).

    Parameters
    ----------
    loss_matrix : array-like of shape (n_classes, n_predictions), optional
        ``loss_matrix[y, yhat]``, which is factorised by singular values. With neither this nor
        ``factors``, the 0-1 loss between the classes in ``y``, each of which is one factor.
    factors : pair of arrays of shape (n_classes, r) and (r, n_predictions), optional
        Factors of the loss matrix, instead of the matrix. The loss may also be given up to terms
        that depend on y only.
    labelsets : labels of n_classes sets, optional
        The label sets that classes and predictions stand for; ``y`` then holds label sets.
    alpha, loss, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`, for the binary problems.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes; names of the labels where there are ``labelsets``.
    label_names_ : ndarray of shape (s,)
        Names of the columns of a prediction as 0/1: labels, classes, or columns of a loss matrix
        that is not square.
    factors_ : pair of ndarray of shape (n_classes, r) and (r, n_predictions)
        Factors of the loss matrix.
    coef_, intercept_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.

    Examples
    --------
    Missing the class 1 costs five times as much as a false alarm:

    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0, 0, 1, 0, 1]
    >>> LowRankClassifier([[0, 1], [5, 0]]).fit(X, y).predict([[0.0], [2.0]]).tolist()
    [0, 1]
    """

    loss_matrix: ArrayLike | None = None
    _: KW_ONLY
    factors: tuple[ArrayLike, ArrayLike] | None = None
    labelsets: Any = None
    alpha: float = 1.0
    loss: str | Loss = "logistic"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100

    beta = 1.0  # of evaluations; predictions do not depend on it
    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    @classmethod
    def for_fbeta(cls, n_labels: int, beta: float = 1.0, **parameters: Any) -> LowRankClassifier:
        """Make the classifier for ``-F_beta`` over all 2^s label sets, with the paper's factors.

        ``parameters`` are further parameters of the classifier.

        Examples
        --------
        >>> X, Y = [[0.0], [1.0], [2.0]], [[1, 0], [1, 0], [1, 1]]
        >>> LowRankClassifier.for_fbeta(2, alpha=0.1).fit(X, Y).predict([[0.0], [2.0]]).tolist()
        [[1, 0], [1, 1]]
        """
        factors = fbeta_factors(n_labels, beta)
        return cls(factors=factors, labelsets=all_labelsets(n_labels), **parameters)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if self.labelsets is not None:
            tags.target_tags.multi_output = True
            tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LowRankClassifier:
        """Fit the models; a fit that fails leaves the classifier as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : array-like of shape (n,), or labels of n instances
            Row numbers of the loss matrix; any classes for the 0-1 loss; label sets where there are
            ``labelsets``.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        LowRankClassifier
            Itself.
        """
        with all_or_nothing(self) as draft:
            solver = self.fit_intercept, self.tol, self.max_iter
            learner = LinearLearner(*solver, get_loss(self.loss))
            X, ids = validate_features(draft, X, reset=True), draft._read_classes(y)
            if X.shape[0] != len(ids):
                raise ValueError(f"X has {X.shape[0]} rows and y has {len(ids)}")
            weight = check_sample_weight(sample_weight, X.shape[0])
            X, ids, weight = drop_weightless(X, ids, weight)
            low, span = draft._range()
            targets = sp.csc_array((draft.factors_[0] - low)[ids] / span)
            draft._model = learner.fit(X, targets, weight, self.alpha)
        return self

    def _read_classes(self, y: Any) -> NDArray[np.intp]:
        """Set the classes and factors, and return the class of each row."""
        if y is None:
            raise ValueError("y is None: requires y to be passed, but the target y is None")
        given = self._given_factors()
        if self.labelsets is None:
            y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
            check_classification_targets(y)
            self.classes_ = np.unique(y) if given is None else np.arange(len(given[0]))
        elif given is None:
            raise ValueError("labelsets need a loss_matrix or factors")
        else:
            form, self._sets = read_labels(self.labelsets, "labelsets")
            self._form = form if form.kind == "sets" else form_of(y, "y")
            self.classes_, shape = self._form.classes, (len(given[0]), given[1].shape[1])
            if shape != 2 * self._sets.shape[:1]:
                count = self._sets.shape[0]
                raise ValueError(f"there are {count} label sets, but the loss matrix is {shape}")
        identity = np.eye(len(self.classes_))
        self.factors_ = (identity, 1 - identity) if given is None else given
        columns = self.factors_[1].shape[1]
        square = self.labelsets is not None or len(self.classes_) == columns
        self.label_names_ = self.classes_ if square else np.arange(columns)
        self.n_labels_ = len(self.label_names_)
        return self._ids(y)

    def _given_factors(self) -> Factors | None:
        if self.factors is None:
            return None if self.loss_matrix is None else factorise(self.loss_matrix)
        if self.loss_matrix is not None:
            raise ValueError("give loss_matrix or factors, not both")
        A, B = (np.asarray(a, dtype=np.float64) for a in self.factors)
        if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[0] or 0 in A.shape + B.shape:
            raise ValueError(
                "factors must have shapes (n_classes, r) and (r, n_predictions), "
                f"got {A.shape} and {B.shape}"
            )
        return A, B

    def _ids(self, y: Any) -> NDArray[np.intp]:
        """Return the class of each row as a row number of the loss matrix."""
        if self.labelsets is None:
            known, rows = self.classes_.tolist(), column_or_1d(y).tolist()
        else:
            both = self._sets, self._form.read(y, "y")
            known, rows = ([row.tobytes() for row in sets.toarray()] for sets in both)
        places = {key: i for i, key in enumerate(known)}
        ids = np.array([places.get(key, -1) for key in rows], dtype=np.intp)
        if (ids < 0).any():
            first = int(ids.argmin())
            what = repr(rows[first]) if self.labelsets is None else "a label set"
            raise ValueError(
                f"y has {what} in row {first}, which is not one of the {len(known)} classes"
            )
        return ids

    def _range(self) -> tuple[float, float]:
        """Return where the factors begin and how far they go, to scale them to [0, 1]."""
        A = self.factors_[0]
        return float(A.min()), float(np.ptp(A)) or 1.0

    def predict_loss(self, X: Any) -> NDArray[np.float64]:
        """Estimate ``E[l(y, yhat) | x]``, of shape (n, n_predictions); X as for :meth:`predict`."""
        check_is_fitted(self)
        X = validate_features(self, X, reset=False)
        P = np.asarray(self._model.probabilities(X), dtype=np.float64)
        low, span = self._range()
        return np.asarray((low + span * P) @ self.factors_[1])

    def _best(self, X: Any) -> NDArray[np.intp]:
        """Return the first column of each row whose expected loss is smallest up to rounding."""
        loss = self.predict_loss(X)
        margin = tie(np, np.float64) * np.abs(loss).max(axis=1, keepdims=True)
        near = loss <= loss.min(axis=1, keepdims=True) + margin
        return np.asarray(np.argmax(near, axis=1), dtype=np.intp)

    def predict(self, X: Any) -> Any:
        """Predict what has the smallest expected loss; ties go to the column that comes first.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.

        Returns
        -------
        ndarray of shape (n,), or labels of n instances
            Classes, column numbers of the loss matrix where it is not square, or label sets.
        """
        best = self._best(X)
        if self.labelsets is None:
            return self.label_names_[best]
        index = X.index if hasattr(X, "iloc") else None
        return self._form.write(self._sets[best].toarray() > 0, index)

    def decide(self, X: Any, betas: Sequence[float] | None = None, **options: Any) -> Decisions:
        """Return the predictions as booleans (n, s), which are the same for every beta."""
        best = self._best(X)
        if self.labelsets is None:
            labels = best[:, None] == np.arange(self.n_labels_)
        else:
            labels = self._sets[best].toarray() > 0
        return Decisions(dict.fromkeys([self.beta] if betas is None else betas, labels))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the average loss of the predictions; arguments as for :meth:`fit`."""
        (A, B), ids, best = self.factors_, self._ids(y), self._best(X)
        if len(ids) != len(best):
            raise ValueError(f"X has {len(best)} rows and y has {len(ids)}")
        losses = np.einsum("nr,rn->n", A[ids], B[:, best])
        weight = check_sample_weight(sample_weight, len(losses), averaging=True)
        return -float(np.average(losses, weights=weight))
