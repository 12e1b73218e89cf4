"""Multi-label SVMlight / LIBSVM files: ``label,label index:value index:value``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta.datasets.dataset import Dataset, DatasetError, PathLike, fail, read_bytes
from fbeta.datasets.label_columns import TableLabels

_NUMBER = rb"[+-]?(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?\d{1,5}+)?"
_LABELS = re.compile(rb"-?\d{1,15}(?:,-?\d{1,15})*")
# Nine digits keep the index within the C int that scikit-learn reads it into.
_ENTRY = re.compile(rb"(\d{1,9}):(" + _NUMBER + rb")")
_LINE = re.compile(
    rb"\s*+(?:" + _LABELS.pattern + rb"(?=\s|$))?(?:\s*+" + _ENTRY.pattern + rb"(?=\s|$))*+\s*+"
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
    rows = _checked_rows(path, content.split(b"\n"))
    if n_features is None:
        _check_width(path, rows, _BASE_WIDTH + _BYTE_WIDTH * len(content))
    try:
        X, label_sets = load_svmlight_file(
            BytesIO(content), multilabel=True, zero_based=zero_based, n_features=n_features
        )
    except ValueError as error:
        raise _diagnose(path, rows, zero_based, n_features, error) from error
    lines = list(rows)
    if X.nnz == 0 and n_features is None:
        raise fail(path, lines[-1], "at least one feature index:value in the file")
    infinite = np.flatnonzero(~np.isfinite(X.data))
    if infinite.size:
        line = lines[int(np.searchsorted(X.indptr, infinite[0], side="right")) - 1]
        raise fail(path, line, "finite feature values", rows[line].decode())
    binarizer = MultiLabelBinarizer()
    found = binarizer.fit_transform([[int(label) for label in labels] for labels in label_sets])
    names = tuple(map(str, binarizer.classes_)) if label_names is None else tuple(label_names)
    if not names:
        raise fail(path, None, "at least one label in the file")
    labels = TableLabels.split(found, list(map(str, binarizer.classes_)), names)
    if labels.unknown:
        line = lines[int(np.argmax(labels.extra.any(axis=1)))]
        raise fail(path, line, f"labels among {list(names)}", next(iter(labels.unknown)))
    return Dataset(
        X=sparse.csr_array(X),
        Y=labels.Y,
        label_names=names,
        name=Path(path).stem if name is None else name,
    )


def _checked_rows(path: PathLike, raw: list[bytes]) -> dict[int, bytes]:
    """Give the rows by line number, after checks that scikit-learn does not make."""
    rows: dict[int, bytes] = {}
    for number, line in enumerate(raw, start=1):
        row = line.partition(b"#")[0]
        if not row.strip():
            continue
        if _LINE.fullmatch(row) is None:
            expected = "integer labels separated by commas, then index:value pairs"
            raise fail(path, number, expected, row.strip().decode("utf-8", "replace"))
        rows[number] = row
    if not rows:
        raise fail(path, len(raw), "at least one row")
    return rows


def _check_width(path: PathLike, rows: dict[int, bytes], most: int) -> None:
    """Refuse indices that a file of its size has no use for: each becomes a column of a model."""
    for number, row in rows.items():
        top = max((int(index) for index, _ in _ENTRY.findall(row)), default=0)
        if top > most:
            expected = f"feature indices up to {most:,} (or n_features) in a file of this size"
            raise fail(path, number, expected, top)


def _diagnose(
    path: PathLike,
    rows: dict[int, bytes],
    zero_based: ZeroBased,
    n_features: int | None,
    error: ValueError,
) -> DatasetError:
    """Find the line that scikit-learn refused without naming it."""
    indices = {
        number: [int(index) for index, _ in _ENTRY.findall(row)] for number, row in rows.items()
    }
    start = 0 if zero_based is True or (zero_based == "auto" and _has_zero(indices)) else 1
    for number, seen in indices.items():
        if any(a >= b for a, b in pairwise(seen)):
            return fail(path, number, "ascending feature indices", rows[number].decode())
        if zero_based is False and 0 in seen:
            return fail(path, number, "feature indices from 1", rows[number].decode())
        if n_features is not None and any(index >= start + n_features for index in seen):
            expected = f"feature indices from {start} to {start + n_features - 1}"
            return fail(path, number, expected, rows[number].decode())
    return fail(path, None, "a multi-label SVMlight file", str(error))


def _has_zero(indices: dict[int, list[int]]) -> bool:
    return any(0 in seen for seen in indices.values())
