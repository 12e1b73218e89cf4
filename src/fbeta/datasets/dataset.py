"""The one result type of all readers, and the joining of a train and a test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fbeta.datasets.files import DatasetError

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int8]
Indices = NDArray[np.intp]
Features: TypeAlias = FloatArray | sparse.csr_array


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Instances, their label sets and, where one is prescribed, a train/test split.

    Parameters
    ----------
    X : ndarray or scipy.sparse.csr_array of shape (n_samples, n_features)
        Features in float64: dense where the file was dense, CSR where it was sparse.
    Y : ndarray of shape (n_samples, n_labels)
        Always a dense int8 array of 0 and 1; one row is one label set.
    label_names : tuple of str, length n_labels
        Names of the columns of `Y`.
    feature_names : tuple of str, length n_features, or None
        Names of the columns of `X`; None where the format has none.
    name : str
        What to call the data in tables and messages.
    train, test : ndarray of int or None
        Row numbers of the two parts of the prescribed split; both or neither.

    Raises
    ------
    DatasetError
        If shapes, names, label values or the split do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from fbeta.datasets import Dataset
    >>> data = Dataset(np.eye(3), np.array([[1, 0], [1, 1], [0, 0]]), ("cat", "dog"))
    >>> data
    Dataset('', 3 samples, 3 features, 2 labels, no split)
    >>> data.cardinality
    1.0
    """

    X: Features
    Y: Labels
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    name: str = ""
    train: Indices | None = None
    test: Indices | None = None

    def __post_init__(self) -> None:
        # Frozen for its users: the normal forms promised above are set once, here.
        object.__setattr__(self, "X", _as_features(self.X))
        object.__setattr__(self, "Y", _as_labels(self.Y))
        object.__setattr__(self, "label_names", tuple(self.label_names))
        if self.feature_names is not None:
            object.__setattr__(self, "feature_names", tuple(self.feature_names))
        self._check_shapes()
        self._check_split()

    def _check_shapes(self) -> None:
        if self.Y.shape[0] != self.n_samples:
            raise DatasetError(f"X has {self.n_samples} rows, but Y has {self.Y.shape[0]}")
        if len(self.label_names) != self.n_labels:
            raise DatasetError(f"Y has {self.n_labels} columns for {len(self.label_names)} names")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise DatasetError(
                f"X has {self.n_features} columns for {len(self.feature_names)} names"
            )

    def _check_split(self) -> None:
        if (self.train is None) != (self.test is None):
            raise DatasetError("a split needs both train and test rows")
        for part in ("train", "test"):
            rows = getattr(self, part)
            if rows is None:
                continue
            rows = np.asarray(rows, dtype=np.intp)
            if rows.ndim != 1 or np.any((rows < 0) | (rows >= self.n_samples)):
                raise DatasetError(f"{part} must hold row numbers from 0 to {self.n_samples - 1}")
            object.__setattr__(self, part, rows)

    def __repr__(self) -> str:
        split = "no split"
        if self.train is not None and self.test is not None:
            split = f"{self.train.size} train + {self.test.size} test"
        return (
            f"Dataset({self.name!r}, {self.n_samples} samples, {self.n_features} features, "
            f"{self.n_labels} labels, {split})"
        )

    @property
    def n_samples(self) -> int:
        """Number of instances."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns of `X`."""
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        """Number of columns of `Y`."""
        return int(self.Y.shape[1])

    @property
    def cardinality(self) -> float:
        """Mean number of labels of an instance."""
        return float(self.Y.sum(axis=1, dtype=np.int64).mean())

    @property
    def X_train(self) -> Features:
        """Features of the training rows."""
        return self.X[self._rows("train")]

    @property
    def Y_train(self) -> Labels:
        """Label sets of the training rows."""
        return self.Y[self._rows("train")]

    @property
    def X_test(self) -> Features:
        """Features of the test rows."""
        return self.X[self._rows("test")]

    @property
    def Y_test(self) -> Labels:
        """Label sets of the test rows."""
        return self.Y[self._rows("test")]

    @property
    def split(self) -> tuple[Features, Labels, Features, Labels]:
        """The four parts ``(X_train, Y_train, X_test, Y_test)`` of the prescribed split."""
        return self.X_train, self.Y_train, self.X_test, self.Y_test

    def _rows(self, part: str) -> Indices:
        rows: Indices | None = getattr(self, part)
        if rows is None:
            raise DatasetError(f"data set {self.name!r} has no prescribed train/test split")
        return rows


def join_split(train: Dataset, test: Dataset, name: str | None = None) -> Dataset:
    """Put a train set and a test set into one data set that remembers the split.

    Parameters
    ----------
    train, test : Dataset
        Sets with the same features and the same labels, in the same order.
    name : str, optional
        Name of the result; that of `train` by default.

    Returns
    -------
    Dataset
        The training rows followed by the test rows.

    Raises
    ------
    DatasetError
        If the two sets disagree on features or labels.

    Examples
    --------
    >>> import numpy as np
    >>> from fbeta.datasets import Dataset, join_split
    >>> train = Dataset(np.zeros((3, 2)), np.eye(3), ("a", "b", "c"), name="toy")
    >>> test = Dataset(np.zeros((1, 2)), np.eye(3)[:1], ("a", "b", "c"))
    >>> join_split(train, test)
    Dataset('toy', 4 samples, 2 features, 3 labels, 3 train + 1 test)
    """
    if train.n_features != test.n_features:
        raise DatasetError(f"train has {train.n_features} features, but test has {test.n_features}")
    if train.feature_names != test.feature_names:
        raise DatasetError("train and test name their features differently")
    if train.label_names != test.label_names:
        raise DatasetError("train and test name their labels differently")
    stack = sparse.vstack if sparse.issparse(train.X) or sparse.issparse(test.X) else np.vstack
    n_train, n_test = train.n_samples, test.n_samples
    return Dataset(
        X=stack([train.X, test.X]),
        Y=np.vstack([train.Y, test.Y]),
        label_names=train.label_names,
        feature_names=train.feature_names,
        name=train.name if name is None else name,
        train=np.arange(n_train),
        test=np.arange(n_train, n_train + n_test),
    )


def _as_features(X: Any) -> Features:
    if not sparse.issparse(X):
        dense = np.ascontiguousarray(X, dtype=np.float64)
        if dense.ndim != 2:
            raise DatasetError(f"X must be two-dimensional, but has {dense.ndim} dimensions")
        return dense
    csr = sparse.csr_array(X, dtype=np.float64)
    # liblinear and other solvers of scikit-learn refuse 64-bit indices.
    if max(csr.nnz, *csr.shape) < np.iinfo(np.int32).max:
        csr.indices = csr.indices.astype(np.int32, copy=False)
        csr.indptr = csr.indptr.astype(np.int32, copy=False)
    return csr


def _as_labels(Y: Any) -> Labels:
    dense = np.asarray(Y.toarray() if sparse.issparse(Y) else Y)
    if dense.ndim != 2:
        raise DatasetError(f"Y must be two-dimensional, but has {dense.ndim} dimensions")
    if not np.all((dense == 0) | (dense == 1)):
        raise DatasetError("Y must hold 0 and 1 only")
    return np.ascontiguousarray(dense, dtype=np.int8)
