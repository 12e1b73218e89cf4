"""Cells of columns: missing values, numbers and categories, as files and frames have them.

A column is one of four: a NumPy array of numbers or truth values, one of ``datetime64[us]``, an
Arrow array of strings or of lists of strings, or a list of anything else. NaN, NaT and null are
missing values, and so is text such as ``NA``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import

Cells: TypeAlias = Any
FloatArray: TypeAlias = NDArray[np.float64]

#: Text that stands for a missing value.
GAPS = ("", "?", "-", "--", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NaT", "null", "NULL", "None")
#: Marks that may stand before the fraction of a number.
DECIMALS = (".", ",")
#: The squares of larger numbers, and their sums, are not finite: no scaling of a column mends that.
MAX_MAGNITUDE = 1e150

_CURRENCY = "[$\u20ac\u00a3\u00a5\u20b9]|EUR|USD|GBP|CHF|JPY"
_UNITS = rf"^([+-]?)(?:{_CURRENCY})\s*([+-]?)|\s*(?:%|{_CURRENCY})$"
_GROUPS = "'\u2019 \u00a0\u202f"
# only ASCII digits: Python and Arrow differ in which others they read
_PLAIN = {
    ".": r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?$",
    ",": r"^[+-]?[0-9]+(?:,[0-9]+)?$",
}
_GROUPED = {
    ".": rf"^[+-]?[1-9][0-9]{{0,2}}(?:[,{_GROUPS}][0-9]{{3}})+(?:\.[0-9]+)?$",
    ",": rf"^[+-]?[1-9][0-9]{{0,2}}(?:[.{_GROUPS}][0-9]{{3}})+(?:,[0-9]+)?$",
}
_SAMPLE_CELLS = 200  # cells that show whether the others are worth a try


def arrow_modules() -> tuple[Any, Any]:
    """Return ``pyarrow`` and ``pyarrow.compute``."""
    purpose = "reading tables"
    return (
        optional_import("pyarrow", "data", purpose),
        optional_import("pyarrow.compute", "data", purpose),
    )


def is_arrow(cells: Cells) -> bool:
    """Return whether cells are an Arrow array."""
    return hasattr(cells, "null_count")


def is_list(cells: Cells) -> bool:
    """Return whether cells are an Arrow array of lists."""
    return is_arrow(cells) and "list" in str(cells.type)


def is_text(cells: Cells) -> bool:
    """Return whether cells are an Arrow array of strings."""
    return is_arrow(cells) and "list" not in str(cells.type)


def columns_of(table: Any) -> tuple[list[str], list[Cells]]:
    """Return the names and cells of a data frame, an Arrow table or an array of shape (n, c)."""
    if hasattr(table, "iloc"):
        names = [str(name) for name in table.columns]
        return names, [_series_cells(table.iloc[:, j]) for j in range(len(names))]
    if hasattr(table, "columns") and hasattr(table, "__arrow_c_stream__"):
        arrow = arrow_modules()[0].table(table)
        return list(arrow.column_names), [arrow_cells(column) for column in arrow.columns]
    array = np.asarray(table, dtype=None if hasattr(table, "dtype") else object)
    if array.ndim != 2:
        raise ValueError(f"expected a table with rows and columns, got shape {array.shape}")
    return [f"x{j}" for j in range(array.shape[1])], [
        column if column.dtype.kind in "biuf" else object_cells(column.tolist())
        for column in array.T
    ]


def _series_cells(series: Any) -> Cells:
    if str(series.dtype) in ("object", "category"):
        return object_cells(series.tolist())
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return series.to_numpy()
    return arrow_cells(arrow_modules()[0].array(series, from_pandas=True))


def arrow_cells(column: Any) -> Cells:
    """Return the cells of an Arrow column."""
    arrow, compute = arrow_modules()
    kinds = arrow.types
    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, arrow.ChunkedArray):
            column = arrow.concat_arrays(column.chunks)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind):
        return column.cast(arrow.string())
    if kinds.is_decimal(kind):
        column, kind = column.cast(arrow.float64()), arrow.float64()
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind):
        if column.null_count:
            column = column.cast(arrow.float64())
        return column.to_numpy(zero_copy_only=False)
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        moments = compute.cast(column, arrow.timestamp("us"), safe=False)
        return moments.to_numpy(zero_copy_only=False).astype("datetime64[us]")
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        inner = kind.value_type
        if kinds.is_string(inner) or kinds.is_large_string(inner) or kinds.is_integer(inner):
            return column.cast(arrow.list_(arrow.string()))
    return object_cells(column.to_pylist())


def object_cells(values: list[Any]) -> Cells:
    """Return Python objects as cells; mixed ones as text, lists and mappings as they are."""
    arrow = arrow_modules()[0]
    known = [value for value in values if not is_gap(value)]
    types = {type(value) for value in known}
    if any(not _is_scalar(value) for value in known):
        return values
    if all(issubclass(t, bool | int | float | Decimal | np.number | np.bool_) for t in types):
        found = _number_array(values, bool(len(known) < len(values)))
        if found is not None and known:
            return found
    if known and all(issubclass(t, date | np.datetime64) for t in types):
        try:
            moments = [None if is_gap(value) else _utc(value) for value in values]
            return np.array(moments, dtype="datetime64[us]")
        except (ValueError, OverflowError):
            pass
    texts = [None if is_gap(value) else _text(value) for value in values]
    return arrow.array(texts, arrow.string())


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, list | tuple | dict | set | bytes) and np.ndim(value) == 0


def _number_array(values: list[Any], gaps: bool) -> Any:
    try:
        if gaps:
            return np.array([np.nan if is_gap(v) else float(v) for v in values])
        found = np.array(values)
        found = found.astype(np.float64) if found.dtype.kind not in "biuf" else found
    except (OverflowError, ValueError, TypeError):
        return None
    return found


def _utc(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return np.datetime64(int(value.timestamp() * 1e6), "us")
    return np.datetime64(value, "us")


def _text(value: Any) -> str:
    if isinstance(value, str):
        # half of a surrogate pair, as JSON may have it, is no text
        return value.encode("utf-8", "replace").decode()
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value) if whole else value)


def is_gap(cell: Any) -> bool:
    """Return whether one cell is missing."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip() in GAPS
    # NaN and NaT, of whatever library, are the values that differ from themselves
    return bool(np.ndim(cell) == 0 and cell != cell)


def without_gaps(cells: Any) -> Any:
    """Return Arrow strings without blanks at their ends, with null for missing values."""
    arrow, compute = arrow_modules()
    trimmed = compute.utf8_trim_whitespace(cells)
    gaps = compute.is_in(trimmed, value_set=arrow.array(GAPS))
    return compute.if_else(gaps, arrow.scalar(None, arrow.string()), trimmed)


def missing(cells: Cells) -> NDArray[np.bool_]:
    """Return which cells are missing, of shape (n,)."""
    if is_list(cells) or isinstance(cells, list):
        return np.array(
            [is_gap(cell) for cell in (cells.to_pylist() if is_arrow(cells) else cells)]
        )
    if is_arrow(cells):
        return np.asarray(without_gaps(cells).is_null())
    if cells.dtype.kind == "M":
        return np.asarray(np.isnat(cells))
    return np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(len(cells), dtype=np.bool_)


def to_number(text: str) -> float | None:
    """Return plain text as a number, or None."""
    word = text.strip()
    found = float(word) if re.fullmatch(_PLAIN["."], word, re.ASCII) else math.nan
    return found if math.isfinite(found) else None


def numbers(cells: Cells, decimal: str = ".", plain: bool = False) -> FloatArray:
    """Return cells as numbers; NaN where they are missing or no numbers.

    Returns shape (n,).
    """
    found = cast_numbers(cells) if decimal == "." else None
    if found is not None:
        return found
    if is_text(cells):
        return _finite(_parsed_numbers(without_gaps(cells), decimal, plain))
    if not isinstance(cells, np.ndarray) or cells.dtype.kind == "M":
        return np.full(len(cells), np.nan)
    return _finite(np.array(cells, dtype=np.float64))


def _finite(values: FloatArray) -> FloatArray:
    values[~(np.abs(values) <= MAX_MAGNITUDE)] = np.nan
    return values


def cast_numbers(cells: Cells) -> FloatArray | None:
    """Return text as numbers if Arrow reads every cell that is not missing as one, else None."""
    if not is_text(cells):
        return None
    arrow, compute = arrow_modules()
    for part in (cells[:_SAMPLE_CELLS], cells):
        gaps = compute.is_in(part, value_set=arrow.array(GAPS))
        known = compute.if_else(gaps, arrow.scalar(None, arrow.string()), part)
        try:
            found = compute.cast(known, arrow.float64())
        except arrow.ArrowInvalid:
            return None
    values = np.array(found.to_numpy(zero_copy_only=False), dtype=np.float64)
    sound = np.count_nonzero(np.abs(values) <= MAX_MAGNITUDE)
    return values if sound == len(cells) - found.null_count else None


def _parsed_numbers(text: Any, decimal: str, plain: bool) -> FloatArray:
    arrow, compute = arrow_modules()
    for word, digit in (("^(?i:true)$", "1"), ("^(?i:false)$", "0")):
        text = compute.replace_substring_regex(text, word, digit)
    readable = compute.match_substring_regex(text, _PLAIN[decimal])
    if not plain and not compute.all(readable, min_count=0).as_py():
        text = compute.replace_substring_regex(text, _UNITS, r"\1\2")
        grouped = compute.match_substring_regex(text, _GROUPED[decimal])
        marks = _GROUPS + (",." if decimal == "." else ".,")[0]
        joined = compute.replace_substring_regex(text, f"[{marks}]", "")
        text = compute.if_else(grouped, joined, text)
        readable = compute.match_substring_regex(text, _PLAIN[decimal])
    text = compute.if_else(readable, text, arrow.scalar(None, arrow.string()))
    text = compute.replace_substring_regex(text, r"^\+", "")
    text = compute.replace_substring(text, decimal, ".")
    found = compute.cast(text, arrow.float64())
    return np.array(found.to_numpy(zero_copy_only=False), dtype=np.float64)


def read_numbers(cells: Cells, first: str = ".") -> tuple[str, FloatArray, NDArray[np.bool_]]:
    """Read numbers with the decimal mark that reads most cells, ``first`` among equals.

    Returns shape (n,), (n,).
    """
    found = cast_numbers(cells) if first == "." else None
    if found is not None:
        return first, found, np.zeros(len(cells), dtype=np.bool_)
    gaps = missing(cells)
    worth = not is_text(cells) or is_worth_reading(cells, partial(numbers, decimal=first))
    found = numbers(cells, first) if worth else np.full(len(cells), np.nan)
    unread = np.isnan(found) & ~gaps
    other = DECIMALS[1 - DECIMALS.index(first)]
    if unread.any() and is_text(cells) and is_worth_reading(cells, partial(numbers, decimal=other)):
        second = numbers(cells, other)
        if np.isnan(second).sum() < np.isnan(found).sum():
            return other, second, np.isnan(second) & ~gaps
    return first, found, unread


def sample_of(cells: Any) -> Any:
    """Return evenly spaced cells of a long column."""
    if len(cells) <= 2 * _SAMPLE_CELLS:
        return cells
    return cells.take(arrow_modules()[0].array(range(0, len(cells), len(cells) // _SAMPLE_CELLS)))


def is_worth_reading(cells: Any, read: Callable[[Any], FloatArray]) -> bool:
    """Return whether some of a sample of the cells can be read."""
    return not bool(np.isnan(read(sample_of(cells))).all())


def categories(cells: Cells) -> Any:
    """Return cells as an Arrow array of strings, with an empty one for missing values."""
    arrow, compute = arrow_modules()
    if isinstance(cells, list) or is_list(cells):
        cells = arrow.array([None if is_gap(cell) else str(cell) for cell in cells])
    elif not is_arrow(cells):
        gaps = missing(cells)
        known = cells[~gaps]
        if known.dtype.kind == "f" and (known == np.floor(known)).all() and known.size:
            # a column of whole numbers with gaps has 3.0 in a data frame, and 3 in a file
            known = known.astype(np.int64) if (np.abs(known) < 2**53).all() else known
        texts = np.full(len(cells), "", dtype=object)
        texts[~gaps] = [_text(value) for value in known.tolist()]
        return arrow.array(texts, arrow.string())
    return compute.fill_null(without_gaps(cells), "")


def texts(cells: Cells) -> Sequence[str]:
    """Return cells as text, with an empty one for missing values."""
    found: Sequence[str] = categories(cells).to_pylist()
    return found
