"""Multi-label SVMlight / LIBSVM files: ``label,label index:value index:value``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta.datasets.dataset import Dataset, PathLike, fail, read_bytes
from fbeta.datasets.label_columns import TableLabels

_NUMBER = rb"[+-]?(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?\d{1,5}+)?"
# labels, and entries whose indices are exact as floating-point numbers
_LINE = re.compile(
    rb"\s*+(-?\d{1,15}(?:,-?\d{1,15})*+(?=\s|$))?((?:\s*+\d{1,9}:" + _NUMBER + rb"(?=\s|$))*+)\s*+"
)
# A file may be wide: a million features, and a thousand for each byte. One that is wider would take
# memory, in every model of it, that has nothing to do with its size.
_BASE_WIDTH, _BYTE_WIDTH = 2**20, 1_000

ZeroBased = bool | Literal["auto"]


def read_svmlight(
    path: PathLike,
    *,
    n_features: int | None = None,
    label_names: Sequence[str] | None = None,
    zero_based: ZeroBased = "auto",
    name: str | None = None,
) -> Dataset:
    r"""Read a multi-label SVMlight file.

    Parameters
    ----------
    path : path
        Text file with one instance per line: integer labels separated by commas (none
        for an empty label set), then ``index:value`` pairs with ascending indices. What
        follows ``#`` is a comment.
    n_features : int, optional
        Number of columns of `X`; the largest index decides by default. Give it for two
        files that are to be joined by `join_split`.
    label_names : sequence of str, optional
        The labels that may occur, in the order of the columns of `Y`. By default those
        that do occur, in numerical order.
    zero_based : bool or "auto"
        Whether the first column has index 0; "auto" looks for an index 0 in the file.
    name : str, optional
        Name of the data set; the stem of `path` by default.

    Returns
    -------
    Dataset
        With CSR features and without feature names.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fbeta.datasets import read_svmlight
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.svm")
    ...     _ = file.write_text("3,7 1:0.5 3:2\n 2:1\n7 1:4\n")
    ...     data = read_svmlight(file)
    >>> data.label_names, data.Y.tolist()
    (('3', '7'), [[1, 1], [0, 0], [0, 1]])
    >>> data.X.toarray().tolist()
    [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0], [4.0, 0.0, 0.0]]
    """
    if label_names is not None and len(set(label_names)) < len(label_names):
        raise ValueError(f"label_names must not name a label twice, got {list(label_names)}")
    content = read_bytes(path)
    rows, sets, parts = _read_rows(path, content)
    indptr = np.cumsum([0, *(len(part) for part in parts)])
    entries = np.concatenate(parts) if parts else np.zeros((0, 2))
    indices, values = entries[:, 0].astype(np.int64), entries[:, 1]

    def refuse(bad: Any, expected: str) -> None:
        if np.any(bad):
            row = int(np.searchsorted(indptr, np.argmax(bad), side="right")) - 1
            line = list(rows)[row]
            raise fail(path, line, expected, rows[line].decode())

    ascending = np.diff(indices, prepend=-1) > 0
    ascending[indptr[:-1][np.diff(indptr) > 0]] = True
    refuse(~ascending, "ascending feature indices")
    start = int(not (zero_based if isinstance(zero_based, bool) else (indices == 0).any()))
    refuse(indices < start, "feature indices from 1")
    if n_features is None:
        widest = _BASE_WIDTH + _BYTE_WIDTH * len(content)
        expected = f"feature indices up to {widest:,} (or n_features) in a file of this size"
        refuse(indices > widest, expected)
        if not indices.size:
            raise fail(path, list(rows)[-1], "at least one feature index:value in the file")
        n_features = int(indices.max()) - start + 1
    refuse(
        indices >= start + n_features, f"feature indices from {start} to {start + n_features - 1}"
    )
    refuse(~np.isfinite(values), "finite feature values")
    binarizer = MultiLabelBinarizer()
    found = binarizer.fit_transform(sets)
    known = list(map(str, binarizer.classes_))
    labels = TableLabels.split(found, known, known if label_names is None else label_names)
    if not labels.names:
        raise fail(path, None, "at least one label in the file")
    if labels.unknown:
        line = list(rows)[int(np.argmax(labels.extra.any(axis=1)))]
        raise fail(path, line, f"labels among {list(labels.names)}", next(iter(labels.unknown)))
    X = sparse.csr_array((values, indices - start, indptr), shape=(len(rows), n_features))
    return Dataset(X, labels.Y, labels.names, name=Path(path).stem if name is None else name)


def _read_rows(
    path: PathLike, content: bytes
) -> tuple[dict[int, bytes], list[list[int]], list[Any]]:
    """Return rows by line number, their labels, their indices and values, of shape (k, 2)."""
    rows: dict[int, bytes] = {}
    sets, parts = [], []
    raw = content.split(b"\n")
    for number, line in enumerate(raw, start=1):
        row = line.partition(b"#")[0]
        if not row.strip():
            continue
        match = _LINE.fullmatch(row)
        if match is None:
            expected = "integer labels separated by commas, then index:value pairs"
            raise fail(path, number, expected, row.strip().decode("utf-8", "replace"))
        rows[number] = row
        sets.append([int(label) for label in match[1].split(b",")] if match[1] else [])
        words = match[2].replace(b":", b" ").split()
        parts.append(np.array(words, dtype=np.bytes_).astype(np.float64).reshape(-1, 2))
    if not rows:
        raise fail(path, len(raw), "at least one row")
    return rows, sets, parts
