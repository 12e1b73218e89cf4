"""Sequences of label sets: told from 0/1 matrices, checked, and read as indicators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, ValuesView
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta._array import is_tensor, to_numpy
from fbeta.labels.frames import as_rows, is_missing, is_table

_NESTED = (set, frozenset, list, tuple, np.ndarray)
# between names where label sets are kept as strings; a comma may also belong to a name
_DELIMITERS = ";|,"


def materialise(Y: Any) -> Any:
    """Return a tensor as a NumPy array, and an iterable that has no rows to index as a list."""
    if is_tensor(Y):
        return to_numpy(Y)
    return list(Y) if isinstance(Y, (Iterator, KeysView, ValuesView)) else Y


def holds_sets(Y: Any, name: str, fitted_labels: int | None = None) -> bool:
    """Return whether Y holds label sets and not a matrix; raise where rows are neither.

    Label sets are Python sets, nested sequences with a string in them, or nested sequences of
    numbers of different lengths, which cannot be the rows of a matrix. After a fit to sets of
    ``fitted_labels`` labels, nested sequences of numbers of another length are label sets, too.
    """
    if sp.issparse(Y) or is_table(Y) or isinstance(Y, (str, bytes)) or not isinstance(Y, Iterable):
        return False
    if isinstance(Y, np.ndarray) and (Y.ndim != 1 or Y.dtype.kind != "O"):
        return False
    rows = list(as_rows(Y))
    once = next((i for i, row in enumerate(rows) if isinstance(row, Iterator)), None)
    if once is not None:
        raise ValueError(f"row {once} of {name} can be read only once: write list(row)")
    nested = [isinstance(row, _NESTED) for row in rows]
    if not any(nested):
        return False
    _check_rows(rows, nested, name)
    if any(isinstance(row, (set, frozenset)) for row in rows):
        return True
    if any(isinstance(tag, str) for row in rows for tag in row) or not any(map(len, rows)):
        return True
    if len(set(map(len, rows))) > 1:
        _check_not_ragged_matrix(rows, name)
        return True
    if fitted_labels is None:
        return False
    return len(rows[0]) != fitted_labels or not _looks_like_matrix(rows, name)


def _check_rows(rows: list[Any], nested: list[bool], name: str) -> None:
    """Refuse rows without a label set among others that have one."""
    for number, row in enumerate(rows):
        if nested[number]:
            continue
        if is_missing(row):
            raise ValueError(
                f"row {number} of {name} is {row}: an empty label set is [], and rows whose labels "
                "are not known have to be left out"
            )
        if isinstance(row, str):
            raise ValueError(f"row {number} of {name} is a string among lists: write [{row!r}]")
        raise ValueError(f"row {number} of {name} is not a set of labels: {row!r}")


def _check_not_ragged_matrix(rows: list[Any], name: str) -> None:
    """Refuse rows of different lengths that hold only 0 and 1."""
    if {tag for row in rows for tag in row} <= {0, 1}:
        raise ValueError(
            f"the rows of {name} hold only 0 and 1 but have different lengths: pass a 0/1 matrix, "
            f"or Python sets if 0 and 1 are names of labels: [set(row) for row in {name}]"
        )


def _looks_like_matrix(rows: list[Any], name: str) -> bool:
    """Return whether rows of one length repeat a number; refuse rows that may be either."""
    if any(len(set(row)) < len(row) for row in rows):
        return True
    if {tag for row in rows for tag in row} <= {0, 1}:
        raise ValueError(
            f"the rows of {name} may be label sets or rows of a 0/1 matrix: pass Python sets, "
            f"[set(row) for row in {name}], or an array"
        )
    return False


def as_sets(Y: Any, name: str) -> list[set[Any]]:
    """Return the label set of each row."""
    rows = list(as_rows(Y))
    _check_rows(rows, [isinstance(row, _NESTED) for row in rows], name)
    try:
        sets = [set(row) for row in rows]
    except TypeError as error:
        raise ValueError(f"{name} is not a sequence of label sets: {error}") from error
    # NumPy's numbers and strings are names like those of Python
    plain = [{tag.item() if isinstance(tag, np.generic) else tag for tag in row} for row in sets]
    for number, row in enumerate(plain):
        if any(map(is_missing, row)):
            raise ValueError(f"row {number} of {name} has a label that is missing: leave it out")
    return plain


def sorted_names(names: set[Any], name: str) -> NDArray[Any]:
    """Return the names of labels in order, as objects; they have to be of one type."""
    kinds = sorted({type(n).__name__ for n in names})
    if len(kinds) > 1:
        raise ValueError(f"the label names in {name} are of several types: {', '.join(kinds)}")
    ordered = np.empty(len(names), dtype=object)
    ordered[:] = sorted(names)
    return ordered


def sets_to_indicator(
    rows: list[set[Any]], classes: NDArray[Any], name: str, known: str, unseen: bool = False
) -> sp.csr_array:
    """Read label sets as an indicator (n, s), whose columns are ``classes``.

    Other labels are an error, or have columns of their own at the end where ``unseen`` is true.
    """
    unknown = set().union(*rows) - set(classes.tolist())
    if unknown and not unseen:
        raise ValueError(
            f"{name} has label names that were not {known}: {sorted(map(str, unknown))}"
        )
    sorted_names({*classes.tolist()[:1], *unknown}, name)
    binarizer = MultiLabelBinarizer(classes=[*classes.tolist(), *unknown], sparse_output=True)
    return sp.csr_array(binarizer.fit_transform(rows)).astype(np.int8)


def check_not_delimited(y: NDArray[Any], name: str) -> None:
    """Refuse label sets that are kept as strings, which look like a target with many classes."""
    if y.dtype.kind not in "UO":
        return
    texts = {text for text in y.tolist() if isinstance(text, str)}
    for delimiter in _DELIMITERS:
        if any(delimiter in text for text in texts) and _looks_delimited(texts, delimiter):
            raise ValueError(
                f"{name} holds strings with {delimiter!r} between names: split them into label "
                f"sets first, [text.split({delimiter!r}) for text in {name}], or "
                f"{name}.str.split({delimiter!r}) in pandas"
            )


def _looks_delimited(texts: set[str], delimiter: str) -> bool:
    """Tell names of two classes, in which a comma may occur, from lists of names."""
    parts = [part.strip() for text in texts for part in text.split(delimiter)]
    return delimiter != "," or len(texts) > 2 or len(set(parts)) < len(parts)
