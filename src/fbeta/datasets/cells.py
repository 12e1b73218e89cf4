"""Cells of columns: missing values, numbers, dates and categories, as files and frames have them.

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
_TIME = (
    r"(?:[T ]+(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2}(?:[.,][0-9]{1,9})?))?"
    r" ?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED = r"(?P<m>[A-Za-z]{3})[a-z]*\.?"
_DAY, _YEAR = "(?P<d>[0-9]{1,2})", "(?P<y>[0-9]{4}|[0-9]{2})"
_DATES = {
    "iso": r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})",
    "ymd": rf"(?P<y>[0-9]{{4}})[/.](?P<m>[0-9]{{1,2}})[/.]{_DAY}",
    "dmy": rf"{_DAY}[/.-](?P<m>[0-9]{{1,2}})[/.-]{_YEAR}",
    "mdy": rf"(?P<m>[0-9]{{1,2}})[/.-]{_DAY}[/.-]{_YEAR}",
    "dby": rf"{_DAY}(?:st|nd|rd|th|\.)?[ -]+{_NAMED},?[ -]+{_YEAR}",
    "bdy": rf"{_NAMED} +{_DAY}(?:st|nd|rd|th)?,? +{_YEAR}",
}
#: Orders of year, month (``b``: by its English name) and day; the first that fits is taken.
DATE_ORDERS = tuple(_DATES)
# years of two digits below this are those of 2000 and after, as in POSIX
_CENTURY_PIVOT = 69
_SAMPLE_CELLS = 200  # cells that show whether the others are worth a try
_MICROSECONDS_PER_DAY = 86_400e6


def _arrow() -> tuple[Any, Any]:
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
        arrow = _arrow()[0].table(table)
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
    return arrow_cells(_arrow()[0].array(series, from_pandas=True))


def arrow_cells(column: Any) -> Cells:
    """Return the cells of an Arrow column."""
    arrow, compute = _arrow()
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
    arrow = _arrow()[0]
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
    """Return whether one cell is missing.

    Examples
    --------
    >>> [is_gap(cell) for cell in (None, " ", "NA", float("nan"), 0, "no")]
    [True, True, True, True, False, False]
    """
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip() in GAPS
    # NaN and NaT, of whatever library, are the values that differ from themselves
    return bool(np.ndim(cell) == 0 and cell != cell)


def without_gaps(cells: Any) -> Any:
    """Return Arrow strings without blanks at their ends, with null for missing values."""
    arrow, compute = _arrow()
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
    """Return plain text as a number, or None.

    Examples
    --------
    >>> [to_number(cell) for cell in ("1.5", "1,5", "x")]
    [1.5, None, None]
    """
    word = text.strip()
    found = float(word) if re.fullmatch(_PLAIN["."], word, re.ASCII) else math.nan
    return found if math.isfinite(found) else None


def numbers(cells: Cells, decimal: str = ".", plain: bool = False) -> FloatArray:
    """Return cells as numbers; NaN where they are missing or no numbers.

    Parameters
    ----------
    cells : cells of n rows
    decimal : {".", ","}
        Mark before the fraction. The other mark, blanks and apostrophes may group thousands.
    plain : bool
        Read neither groups nor signs of currencies and per cent.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> import pyarrow
    >>> numbers(pyarrow.array(["$1,338.30", "40 %", "x", "True"])).tolist()
    [1338.3, 40.0, nan, 1.0]
    >>> numbers(pyarrow.array(["1.338,30", "1,5"]), ",").tolist()
    [1338.3, 1.5]
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
    arrow, compute = _arrow()
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
    arrow, compute = _arrow()
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

    Returns
    -------
    decimal : str
    values : ndarray of shape (n,)
    unread : bool ndarray of shape (n,)
        Cells that are not missing, and no numbers.
    """
    found = cast_numbers(cells) if first == "." else None
    if found is not None:
        return first, found, np.zeros(len(cells), dtype=np.bool_)
    gaps = missing(cells)
    worth = not is_text(cells) or _is_worth_reading(cells, partial(numbers, decimal=first))
    found = numbers(cells, first) if worth else np.full(len(cells), np.nan)
    unread = np.isnan(found) & ~gaps
    other = DECIMALS[1 - DECIMALS.index(first)]
    if (
        unread.any()
        and is_text(cells)
        and _is_worth_reading(cells, partial(numbers, decimal=other))
    ):
        second = numbers(cells, other)
        if np.isnan(second).sum() < np.isnan(found).sum():
            return other, second, np.isnan(second) & ~gaps
    return first, found, unread


def _is_worth_reading(cells: Any, read: Callable[[Any], FloatArray]) -> bool:
    """Return whether some of a sample of the cells can be read."""
    sample = cells
    if len(cells) > 2 * _SAMPLE_CELLS:
        places = range(0, len(cells), len(cells) // _SAMPLE_CELLS)
        sample = cells.take(_arrow()[0].array(places))
    return not bool(np.isnan(read(sample)).all())


def days(cells: Cells, order: str = "iso") -> FloatArray:
    """Return cells as days since 1970; NaN where they are missing or no dates.

    Examples
    --------
    >>> import pyarrow
    >>> days(pyarrow.array(["1970-01-02T12:00", "x"])).tolist()
    [1.5, nan]
    >>> [days(pyarrow.array([text]), order)[0] for text, order in
    ...  (("3.1.1970", "dmy"), ("1/3/70", "mdy"), ("3 Jan 1970", "dby"))]
    [np.float64(2.0), np.float64(2.0), np.float64(2.0)]
    """
    if is_text(cells):
        return _parsed_days(without_gaps(cells), order)
    found = np.full(len(cells), np.nan)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        known = ~np.isnat(cells)
        found[known] = cells[known].astype(np.int64) / _MICROSECONDS_PER_DAY
    return found


def _parsed_days(text: Any, order: str) -> FloatArray:
    arrow, compute = _arrow()
    parts = compute.extract_regex(text, f"^{_DATES[order]}{_TIME}$")

    def part(name: str) -> FloatArray:
        field = compute.struct_field(parts, name)
        if name == "m" and "b" in order:
            months = arrow.array(_MONTHS)
            place = compute.index_in(compute.utf8_lower(field), value_set=months)
            return np.asarray(1 + place.cast(arrow.float64()).to_numpy(zero_copy_only=False))
        field = compute.if_else(compute.equal(field, ""), "0", field)
        field = compute.replace_substring(field, ",", ".")
        return np.asarray(field.cast(arrow.float64()).to_numpy(zero_copy_only=False))

    year, month, day = part("y"), part("m"), part("d")
    hour, minute, second = part("H"), part("M"), part("S")
    if order not in ("iso", "ymd"):
        length = compute.utf8_length(compute.struct_field(parts, "y"))
        two_digits = np.asarray(compute.fill_null(compute.equal(length, 2), False))
        pivot = np.where(year < _CENTURY_PIVOT, 2000.0, 1900.0)
        year = year + np.where(two_digits, pivot, 0.0)
    sound = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    sound &= (hour < 24) & (minute < 60) & (second < 60)
    months = np.where(sound, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first = months.astype("datetime64[D]")
    last = ((months + 1).astype("datetime64[D]") - first).astype(np.float64)
    clock = ((second / 60 + minute) / 60 + hour) / 24 - _zone_days(compute.struct_field(parts, "z"))
    found = first.astype(np.float64) + day - 1 + clock
    return np.where(sound & (day <= last), found, np.nan)


def _zone_days(zone: Any) -> FloatArray:
    """Return how far the clocks of time zones are ahead, in days."""
    arrow, compute = _arrow()
    known = compute.fill_null(compute.match_substring_regex(zone, "^[+-]"), False)
    digits = compute.replace_substring(compute.if_else(known, zone, "+0000"), ":", "")
    signed = compute.replace_substring(digits, "+", "").cast(arrow.int64()).to_numpy()
    hours, minutes = np.divmod(np.abs(signed), 100)
    return np.asarray(np.sign(signed) * (hours + minutes / 60) / 24)


def read_days(cells: Cells, first: str = "iso") -> tuple[str, FloatArray, NDArray[np.bool_]]:
    """Read dates in the order that reads most cells, ``first`` among equals, as `read_numbers`."""
    gaps = missing(cells)
    if not is_text(cells):
        found = days(cells)
        return first, found, np.isnan(found) & ~gaps
    best, found = first, np.full(len(cells), np.nan)
    for order in (first, *DATE_ORDERS):
        if not _is_worth_reading(cells, partial(days, order=order)):
            continue
        other = days(cells, order)
        if np.isnan(other).sum() < np.isnan(found).sum():
            best, found = order, other
        if not (np.isnan(found) & ~gaps).any():
            break
    return best, found, np.isnan(found) & ~gaps


def categories(cells: Cells) -> Any:
    """Return cells as an Arrow array of strings, with an empty one for missing values."""
    arrow, compute = _arrow()
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
