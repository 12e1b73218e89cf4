"""Sequences of label sets: told from 0/1 matrices, checked, and read as indicators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta.labels.frames import as_rows, is_table

_NESTED = (set, frozenset, list, tuple, np.ndarray)
# between names where label sets are kept as strings; a comma may also belong to a name
_DELIMITERS = ";|,"


def holds_sets(Y: Any, name: str) -> bool:
    """Tell label sets from an indicator, or raise where rows are neither.

    Label sets are Python sets, nested sequences with a string in them, or nested sequences of
    numbers of different lengths: these cannot be the rows of a matrix.
    """
    if sp.issparse(Y) or is_table(Y) or isinstance(Y, (str, bytes)) or not isinstance(Y, Iterable):
        return False
    if isinstance(Y, np.ndarray) and (Y.ndim != 1 or Y.dtype.kind != "O"):
        return False
    rows = list(as_rows(Y))
    nested = [isinstance(row, _NESTED) for row in rows]
    if not any(nested):
        return False
    _check_rows(rows, nested, name)
    if any(isinstance(row, (set, frozenset)) for row in rows):
        return True
    if any(isinstance(tag, str) for row in rows for tag in row) or not any(map(len, rows)):
        return True
    return len(set(map(len, rows))) > 1 and _are_tags(rows, name)


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


def is_missing(value: Any) -> bool:
    """Tell None, NaN and the like, which differ from themselves or cannot tell."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        # NA of pandas has no truth; nor have arrays, whose rows are not missing
        return np.ndim(value) == 0


def _are_tags(rows: list[Any], name: str) -> bool:
    """See that rows of different lengths hold labels, not the parts of a broken 0/1 matrix."""
    values = {tag for row in rows for tag in row}
    if values <= {0, 1}:
        raise ValueError(
            f"the rows of {name} hold only 0 and 1 but have different lengths: pass a 0/1 matrix, "
            f"or Python sets if 0 and 1 are names of labels: [set(row) for row in {name}]"
        )
    return True


def as_sets(Y: Any, name: str) -> list[set[Any]]:
    """Return the label set of each row."""
    rows = list(as_rows(Y))
    if not rows:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    _check_rows(rows, [isinstance(row, (str, *_NESTED)) for row in rows], name)
    try:
        sets = [{row} if isinstance(row, str) else set(row) for row in rows]
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
    rows: list[set[Any]], classes: NDArray[Any], name: str, unseen: bool = False
) -> sp.csr_array:
    """Read label sets as an indicator, whose columns are ``classes``.

    Other labels are an error, or have columns of their own at the end where ``unseen`` is true.
    """
    unknown = set().union(*rows) - set(classes.tolist())
    if unknown and not unseen:
        raise ValueError(
            f"{name} has label names that were not seen in fit: {sorted(map(str, unknown))}"
        )
    binarizer = MultiLabelBinarizer(classes=[*classes, *unknown], sparse_output=True)
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
