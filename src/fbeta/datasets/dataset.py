"""The result of all readers, the error that names a place in a file, and files as text."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int8]
Indices = NDArray[np.intp]
Features: TypeAlias = FloatArray | sparse.csr_array
PathLike = str | os.PathLike[str]
Missing = Literal["error", "nan", "mean"]
Declared = Mapping[str, Sequence[str] | None]

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_MAX_QUOTED_CHARACTERS = 60
_MAX_UNPACKED_BYTES = 2**30


class DatasetError(ValueError):
    """A data file that cannot be read, or a benchmark that cannot be found.

    The message names the file, the line (or row), what was expected there and what was found.
    """


def fail(
    path: PathLike, where: int | str | None, expected: str, found: object = None
) -> DatasetError:
    """Word the error for one place in one file: a line number, other words, or None."""
    place = "" if where is None else f", {f'line {where}' if isinstance(where, int) else where}"
    message = f"{os.fspath(path)}{place}: expected {expected}"
    if found is not None:
        quoted = repr(found)
        if len(quoted) > _MAX_QUOTED_CHARACTERS:
            quoted = quoted[: _MAX_QUOTED_CHARACTERS - 3] + "..."
        message += f", found {quoted}"
    return DatasetError(message)


def quoted(names: Iterable[object], most: int = 5) -> str:
    """Return names in quotes, at most ``most`` of them."""
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(map(repr, shown[:most])) + more


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Instances, their label sets and, where one is prescribed, a train/test split.

    Parameters
    ----------
    X : ndarray or scipy.sparse.csr_array of shape (n_samples, n_features)
        Features in float64: dense where the file was dense, CSR where it was sparse.
    Y : int8 ndarray of shape (n_samples, n_labels)
        Dense, of 0 and 1; one row is one label set.
    label_names : tuple of str, length n_labels
        Names of the columns of `Y`.
    feature_names : tuple of str, length n_features, or None
        Names of the columns of `X`; None where the format has none.
    name : str
        What to call the data in tables and messages.
    train, test : ndarray of int or None
        Row numbers of the two parts of the prescribed split; both or neither.
    declared : mapping from str to sequence of str or None, or None
        Nominal values, in order, of each ARFF attribute in `X`, None for a numeric one; None where
        the format declares none.

    Raises
    ------
    DatasetError
        If shapes, names, label values or the split do not fit together.

    Examples
    --------
    >>> Dataset(np.eye(3), np.array([[1, 0], [1, 1], [0, 0]]), ("cat", "dog"))
    Dataset('', 3 samples, 3 features, 2 labels, no split)
    """

    X: Features
    Y: Labels
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    name: str = ""
    train: Indices | None = None
    test: Indices | None = None
    declared: Declared | None = None

    def __post_init__(self) -> None:
        X: Any = self.X
        if sparse.issparse(X):
            X = sparse.csr_array(X, dtype=np.float64)
            # liblinear and other solvers of scikit-learn refuse 64-bit indices.
            if max(X.nnz, *X.shape) < np.iinfo(np.int32).max:
                X.indices = X.indices.astype(np.int32, copy=False)
                X.indptr = X.indptr.astype(np.int32, copy=False)
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
        Y: Any = self.Y
        Y = np.asarray(Y.toarray() if sparse.issparse(Y) else Y)
        names = self.feature_names
        for what, matrix, columns in (("X", X, names), ("Y", Y, self.label_names)):
            if matrix.ndim != 2:
                raise DatasetError(
                    f"{what} must be two-dimensional, but has {matrix.ndim} dimensions"
                )
            if columns is not None and len(columns) != matrix.shape[1]:
                raise DatasetError(f"{what} has {matrix.shape[1]} columns for {len(columns)} names")
        if not np.all((Y == 0) | (Y == 1)):
            raise DatasetError("Y must hold 0 and 1 only")
        if Y.shape[0] != X.shape[0]:
            raise DatasetError(f"X has {X.shape[0]} rows, but Y has {Y.shape[0]}")
        if (self.train is None) != (self.test is None):
            raise DatasetError("a split needs both train and test rows")
        # Frozen for its users: the normal forms promised above are set once, here.
        normal = {"X": X, "Y": np.ascontiguousarray(Y, dtype=np.int8)}
        normal["label_names"] = tuple(self.label_names)
        normal["feature_names"] = None if names is None else tuple(names)
        for part in ("train", "test") if self.train is not None else ():
            normal[part] = rows = np.asarray(getattr(self, part), dtype=np.intp)
            if rows.ndim != 1 or np.any((rows < 0) | (rows >= X.shape[0])):
                raise DatasetError(f"{part} must hold row numbers from 0 to {X.shape[0] - 1}")
        self.__dict__.update(normal)

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
    """Put a train set and a test set into one data set with the split, train rows first.

    Parameters
    ----------
    train, test : Dataset
        Sets with the same features and the same labels, in the same order.
    name : str, optional
        Name of the result; that of `train` by default.

    Returns
    -------
    Dataset

    Raises
    ------
    DatasetError
        If the two sets disagree on features or labels.

    Examples
    --------
    >>> train = Dataset(np.zeros((3, 2)), np.eye(3), ("a", "b", "c"), name="toy")
    >>> test = Dataset(np.zeros((1, 2)), np.eye(3)[:1], ("a", "b", "c"))
    >>> join_split(train, test)
    Dataset('toy', 4 samples, 2 features, 3 labels, 3 train + 1 test)
    """
    if train.n_features != test.n_features:
        raise DatasetError(f"train has {train.n_features} features, but test has {test.n_features}")
    if train.feature_names != test.feature_names:
        raise DatasetError("train and test name their features differently")
    if None not in (train.declared, test.declared) and train.declared != test.declared:
        raise DatasetError("train and test declare the values of nominal features differently")
    if train.label_names != test.label_names:
        raise DatasetError("train and test name their labels differently")
    stack = sparse.vstack if sparse.issparse(train.X) or sparse.issparse(test.X) else np.vstack
    rows = np.arange(train.n_samples + test.n_samples)
    return Dataset(
        X=stack([train.X, test.X]),
        Y=np.vstack([train.Y, test.Y]),
        label_names=train.label_names,
        feature_names=train.feature_names,
        name=train.name if name is None else name,
        train=rows[: train.n_samples],
        test=rows[train.n_samples :],
        declared=train.declared,
    )


@contextmanager
def gzip_errors(path: PathLike) -> Iterator[None]:
    """Name the file in errors of gzip."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise fail(path, None, "a file that gzip wrote", str(error)) from error


def read_bytes(path: PathLike) -> bytes:
    """Read a file, the standard input for ``"-"``, and ``.gz`` unpacked to at most 1 GiB."""
    if os.fspath(path) == "-":
        return sys.stdin.buffer.read()
    if Path(path).suffix.lower() != ".gz":
        return Path(path).read_bytes()
    with gzip_errors(path), gzip.open(path) as file:
        data = file.read(_MAX_UNPACKED_BYTES + 1)
    if len(data) > _MAX_UNPACKED_BYTES:
        raise fail(path, None, "at most 1 GiB after unpacking (unpack it first)")
    return data


def decode_text(path: PathLike, data: bytes, encoding: str, first_line: int = 1) -> str:
    """Decode bytes. A byte-order mark is dropped."""
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = first_line - 1 + len(_NEWLINE.split(data[: error.start]))
        found = data[error.start : error.start + 8]
        raise fail(path, line, f"{encoding} text", found) from error
    except LookupError as error:
        raise fail(path, None, "the name of an encoding", encoding) from error


def read_lines(path: PathLike, encoding: str = "utf-8") -> list[str]:
    r"""Read a text file as lines, which only ``\n``, ``\r\n`` and ``\r`` end, as in an editor."""
    text = decode_text(path, read_bytes(path), encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def guess_encoding(data: bytes, whole: bool = True) -> str:
    """Return the encoding of text, which may end inside a character if it is not ``whole``."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if data.isascii():
        return "utf-8"
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(data, whole)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"
