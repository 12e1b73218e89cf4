from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from fbeta.datasets import Dataset, DatasetError, join_split

X = np.arange(6.0).reshape(3, 2)
Y = np.array([[1, 0], [0, 0], [1, 1]])


def test_normal_forms() -> None:
    data = Dataset(X.tolist(), Y.astype(bool), ["a", "b"], ["f", "g"])
    assert data.X.dtype == np.float64
    assert data.Y.dtype == np.int8
    assert data.Y.flags.c_contiguous
    assert data.label_names == ("a", "b")
    assert data.feature_names == ("f", "g")
    assert (data.n_samples, data.n_features, data.n_labels) == (3, 2, 2)
    assert data.cardinality == 1.0


def test_sparse_features_become_csr_with_32_bit_indices() -> None:
    wide = sparse.coo_array(X)
    wide.coords = tuple(axis.astype(np.int64) for axis in wide.coords)
    data = Dataset(wide, sparse.csr_array(Y), ("a", "b"))
    assert isinstance(data.X, sparse.csr_array)
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    assert isinstance(data.Y, np.ndarray)
    LogisticRegression(solver="liblinear").fit(data.X, data.Y[:, 0])


def test_split() -> None:
    data = Dataset(X, Y, ("a", "b"), train=[2, 0], test=[1])
    X_train, Y_train, X_test, Y_test = data.split
    np.testing.assert_array_equal(X_train, X[[2, 0]])
    np.testing.assert_array_equal(Y_train, Y[[2, 0]])
    np.testing.assert_array_equal(X_test, X[[1]])
    np.testing.assert_array_equal(Y_test, Y[[1]])
    assert "2 train + 1 test" in repr(data)


def test_no_split() -> None:
    data = Dataset(X, Y, ("a", "b"), name="toy")
    with pytest.raises(DatasetError, match="'toy' has no prescribed train/test split"):
        _ = data.X_train


def test_frozen_and_picklable() -> None:
    data = Dataset(X, Y, ("a", "b"), train=[0], test=[1])
    with pytest.raises(AttributeError):
        data.name = "other"  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(copy.X, data.X)
    assert repr(copy) == repr(data)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"Y": Y[:2]}, "X has 3 rows, but Y has 2"),
        ({"Y": Y + 1}, "0 and 1 only"),
        ({"Y": Y[:, 0]}, "Y must be two-dimensional"),
        ({"X": X[0]}, "X must be two-dimensional"),
        ({"label_names": ("a",)}, "Y has 2 columns for 1 names"),
        ({"feature_names": ("f",)}, "X has 2 columns for 1 names"),
        ({"train": [0]}, "both train and test"),
        ({"train": [0], "test": [3]}, "test must hold row numbers from 0 to 2"),
    ],
)
def test_refuses_what_does_not_fit(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        Dataset(**{"X": X, "Y": Y, "label_names": ("a", "b")} | arguments)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_join_split(form) -> None:
    train = Dataset(form(X), Y, ("a", "b"), ("f", "g"), name="toy")
    test = Dataset(form(X[:1]), Y[:1], ("a", "b"), ("f", "g"))
    data = join_split(train, test)
    assert data.name == "toy"
    assert join_split(train, test, "other").name == "other"
    assert sparse.issparse(data.X) == sparse.issparse(train.X)
    dense = data.X.toarray() if sparse.issparse(data.X) else data.X
    np.testing.assert_array_equal(dense, np.vstack([X, X[:1]]))
    assert data.train is not None
    assert data.train.tolist() == [0, 1, 2]
    assert data.test is not None
    assert data.test.tolist() == [3]
    np.testing.assert_array_equal(data.Y_test, Y[:1])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Dataset(X[:, :1], Y, ("a", "b"), ("f",)), "2 features, but test has 1"),
        (Dataset(X, Y, ("a", "b"), ("g", "f")), "features differently"),
        (Dataset(X, Y, ("b", "a"), ("f", "g")), "labels differently"),
    ],
)
def test_join_split_refuses_different_columns(other: Dataset, words: str) -> None:
    with pytest.raises(DatasetError, match=words):
        join_split(Dataset(X, Y, ("a", "b"), ("f", "g")), other)
