"""Cells of columns: missing values, numbers, dates and categories, as files and frames have them.

Cells are an Arrow array of strings, numbers, truth values, ``timestamp[us]`` or lists of strings,
or a Python list of anything else. Null, NaN and text such as ``NA`` are missing values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, date
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import

Cells: TypeAlias = Any
FloatArray: TypeAlias = NDArray[np.float64]
#: Text with 1 for each digit, every shape once, and the place of the shape of each cell, or -1.
Shapes: TypeAlias = tuple[Any, NDArray[np.intp]]
#: How cells were read, their values (NaN where there is none), and which cells cannot be read.
Reading: TypeAlias = tuple[str, FloatArray, NDArray[np.bool_]]

#: Text that stands for a missing value.
GAPS = ("", "?", "-", "--", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NaT", "null", "NULL", "None")
#: The squares of larger numbers, and their sums, are not finite: no scaling of a column mends that.
MAX_MAGNITUDE = 1e150

_CURRENCY = "[$\u20ac\u00a3\u00a5\u20b9]|EUR|USD|GBP|CHF|JPY"
_GROUPS = "'\u2019 \u00a0\u202f"
# without a sign; only ASCII digits: Python and Arrow differ in which others they read
_UNSIGNED = {
    ".": r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?0*[0-9]{1,5})?",
    ",": r"[0-9]+(?:,[0-9]+)?",
}
_GROUPED = {
    ".": rf"[1-9][0-9]{{0,2}}(?:[,{_GROUPS}][0-9]{{3}})+(?:\.[0-9]+)?",
    ",": rf"[1-9][0-9]{{0,2}}(?:[.{_GROUPS}][0-9]{{3}})+(?:,[0-9]+)?",
}
_PLAIN = {mark: rf"^[+-]?(?:{form})$" for mark, form in _UNSIGNED.items()}
_SIGN = rf"(?:[+-]|[+-]?(?:{_CURRENCY})\s*|(?:{_CURRENCY})\s*[+-])?"
_UNIT = rf"(?:\s*(?:%|{_CURRENCY}))?"
_DEBIT = rf"(?:{_CURRENCY})?\s*\((?:{_CURRENCY})?\s*"  # accountants write (5.00) for -5
_WRITTEN = rf"^(?:{_SIGN}(?:FORM){_UNIT}|{_DEBIT}(?:FORM){_UNIT}\))$"
_UNGROUPED = {mark: _WRITTEN.replace("FORM", form) for mark, form in _UNSIGNED.items()}
_NUMBER = {
    mark: _WRITTEN.replace("FORM", f"{_UNSIGNED[mark]}|{_GROUPED[mark]}") for mark in _GROUPED
}
_NUMBER["plain"] = _PLAIN["."]  # without units and groups
_TRUTH = ("false", "true")
_EXPONENT = "[eE][+-]?1"  # in a shape
_LONG_EXPONENT = f"{_EXPONENT}{{6}}"  # leading zeros do not count, which a shape does not tell
_MAX_EXACT_DIGITS = 15  # whole numbers and powers of ten up to there are floats, and so divided
_DIGITS_TO_1 = bytes.maketrans(b"023456789", b"1" * 9)
#: Marks that may stand before the fraction of a number, and patterns of what is read with them.
DECIMALS = {mark: rf"{_NUMBER[mark]}|^(?i:true|false)$" for mark in _UNSIGNED}
_SAMPLE_CELLS = 200  # cells that show whether the others are worth a try

_TIME = (
    r"(?:[T ]+(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2}(?:[.,][0-9]{1,9})?))?"
    r"(?: ?(?P<p>[AaPp])\.?[Mm]\.?)? ?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED = "|".join("".join(f"[{c.upper()}{c}]" for c in name) for name in MONTHS)  # ASCII alone
_NAMED = rf"(?P<m>{_NAMED})[A-Za-z]*\.?"
_WEEKDAY = "(?:(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]*[.,]* +)?"
_DAY, _YEAR = "(?P<d>[0-9]{1,2})", "(?P<y>[0-9]{4}|[0-9]{2})"
_DATES = {
    "iso": r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})",
    "ymd": rf"(?P<y>[0-9]{{4}})[/.](?P<m>[0-9]{{1,2}})[/.]{_DAY}",
    "dmy": rf"{_DAY}[/.-](?P<m>[0-9]{{1,2}})[/.-]{_YEAR}",
    "mdy": rf"(?P<m>[0-9]{{1,2}})[/.-]{_DAY}[/.-]{_YEAR}",
    "dby": rf"{_WEEKDAY}{_DAY}(?:st|nd|rd|th|\.)?(?: +of)?[ -]+{_NAMED},?[ -]+{_YEAR}",
    "bdy": rf"{_WEEKDAY}{_NAMED} +{_DAY}(?:st|nd|rd|th)?,? +{_YEAR}",
}
#: Orders of year, month (``b``: by its English name) and day, and patterns of dates in them.
DATE_ORDERS = {order: f"^{date}{_TIME}$" for order, date in _DATES.items()}
_CENTURY_PIVOT = 69  # years of two digits below this are those of 2000 and after, as in POSIX
MICROSECONDS_PER_DAY = 86_400e6


class _Module:
    """A package of the extra ``data``, imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(optional_import(self.name, "data", "reading tables"), attribute)
        setattr(self, attribute, found)
        return found


arrow, compute, pandas = map(_Module, ("pyarrow", "pyarrow.compute", "pandas"))


def is_text(cells: Cells) -> bool:
    """Return whether cells are an Arrow array of strings."""
    return not isinstance(cells, list) and str(cells.type) == "string"


def is_list(cells: Cells) -> bool:
    """Return whether cells are an Arrow array of lists."""
    return not isinstance(cells, list) and str(cells.type).startswith("list")


def cell_at(cells: Cells, row: int) -> Any:
    """Return one cell as a value of Python."""
    return cells[row] if isinstance(cells, list) else cells[row].as_py()


def columns_of(table: Any) -> tuple[list[str], list[Cells]]:
    """Return the names and cells of a data frame, an Arrow table or an array of shape (n, c)."""
    if hasattr(table, "iloc"):
        columns = [_series_cells(table.iloc[:, j]) for j in range(table.shape[1])]
        return [str(name) for name in table.columns], columns
    if hasattr(table, "columns") and hasattr(table, "__arrow_c_stream__"):
        found = arrow.table(table)
        return list(found.column_names), [arrow_cells(column) for column in found.columns]
    array = np.asarray(table, dtype=None if hasattr(table, "dtype") else object)
    if array.ndim != 2:
        raise ValueError(f"expected a table with rows and columns, got shape {array.shape}")
    is_numeric = array.dtype.kind in "biuf"
    return [f"x{j}" for j in range(array.shape[1])], [
        arrow.array(column) if is_numeric else object_cells(column.tolist()) for column in array.T
    ]


def _series_cells(series: Any) -> Cells:
    if series.dtype != object:
        with suppress(arrow.ArrowException):
            return arrow_cells(arrow.array(series, from_pandas=True))
    return object_cells(series.tolist())


def arrow_cells(column: Any) -> Cells:
    """Return the cells of an Arrow column."""
    kinds = arrow.types
    if isinstance(column, arrow.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, arrow.ChunkedArray):
            column = arrow.concat_arrays(column.chunks)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    inner = kind.value_type if kinds.is_list(kind) or kinds.is_large_list(kind) else kind
    is_name = kinds.is_string(inner) or kinds.is_large_string(inner)
    if inner is not kind and (is_name or kinds.is_integer(inner)):
        return column.cast(arrow.list_(arrow.string()))
    if kinds.is_nested(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return column.to_pylist()
    if is_name or kinds.is_null(kind):
        return column.cast(arrow.string())
    if kinds.is_decimal(kind) and kind.scale > 0:  # whole ones become text: floats would be rounded
        return column.cast(arrow.float64())
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return compute.cast(column, arrow.timestamp("us"), safe=False)
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind):
        return column
    return arrow.array([None if value is None else str(value) for value in column.to_pylist()])


def object_cells(values: list[Any]) -> Cells:
    """Return Python objects as cells; mixed ones as text, and what is no scalar as it is."""
    known: list[Any] = [None if is_gap(value) else value for value in values]
    types = {type(value) for value in known if value is not None}
    if types <= {str}:  # a word for missing values may be the name of a label
        known = [value if isinstance(value, str) else None for value in values]
    with suppress(arrow.ArrowException, TypeError, ValueError, OverflowError):
        if types and all(issubclass(t, date | np.datetime64) for t in types):
            aware = [v for v in known if getattr(v, "tzinfo", None)]
            utc = {id(v): v.astimezone(UTC).replace(tzinfo=None) for v in aware}
            naive = [utc.get(id(v), v) for v in known]
            return arrow.array(np.array(naive, dtype="datetime64[us]"))
        return arrow_cells(arrow.array(known, from_pandas=True))
    if any(issubclass(t, list | tuple | dict | set | bytes | np.ndarray) for t in types):
        return values
    numeric = bool | int | float | Decimal | np.number | np.bool_
    # integers beyond 64 bits keep their digits, as text
    if types != {int} and all(issubclass(t, numeric) for t in types):
        with suppress(OverflowError):
            return arrow.array([None if value is None else float(value) for value in known])
    texts = [None if value is None else _text(value) for value in known]
    return arrow.array(texts, arrow.string())


def _text(value: Any) -> str:
    if isinstance(value, str):
        # half of a surrogate pair, as JSON may have it, is no text
        return value.encode("utf-8", "replace").decode()
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value) if whole else value)


def is_gap(cell: Any) -> bool:
    """Return whether one cell is missing."""
    if isinstance(cell, str):
        return cell.strip() in GAPS
    if cell is None or type(cell).__name__ == "NAType":
        return True
    # NaN and NaT, of whatever library, are the values that differ from themselves
    return (np.isscalar(cell) or isinstance(cell, date)) and bool(cell != cell)


def without_gaps(cells: Any, kept: Collection[str] = ()) -> Any:
    """Return Arrow strings without blanks at their ends, null where missing and not ``kept``."""
    trimmed = compute.utf8_trim_whitespace(cells)
    short = compute.less_equal(compute.binary_length(trimmed), max(map(len, GAPS)))
    places = np.flatnonzero(short.fill_null(False))  # longer text is no gap
    words = arrow.array([word for word in GAPS if word not in kept])
    gaps = np.asarray(compute.is_in(trimmed.take(places), value_set=words))
    if not gaps.any():
        return trimmed
    is_known = np.ones(len(trimmed), dtype=np.bool_)
    is_known[places[gaps]] = False
    return compute.if_else(is_known, trimmed, arrow.scalar(None, arrow.string()))


def missing(cells: Cells) -> NDArray[np.bool_]:
    """Return which cells are missing, of shape (n,)."""
    if isinstance(cells, list):
        return np.array([is_gap(cell) for cell in cells], dtype=np.bool_)
    known = without_gaps(cells) if is_text(cells) else cells
    return np.asarray(compute.is_null(known, nan_is_null=True))


def categories(cells: Cells) -> Any:
    """Return cells as an Arrow array of strings, with an empty one for missing values."""
    if is_text(cells):
        return compute.fill_null(without_gaps(cells), "")
    # a column of whole numbers with gaps has 3.0 in a data frame, and 3 in a file
    try:
        values = cells if isinstance(cells, list) else cells.to_pylist()
    except (OverflowError, ValueError):  # dates that Python's calendar does not have
        values = cells.cast(arrow.int64()).to_pylist()
    return arrow.array(["" if is_gap(v) else _text(v) for v in values], arrow.string())


def to_number(text: str) -> float | None:
    """Return plain text as a number, or None."""
    word = text.strip()
    found = float(word) if re.fullmatch(_PLAIN["."], word, re.ASCII) else math.nan
    return found if math.isfinite(found) else None


def to_floats(cells: Any) -> FloatArray:
    """Return Arrow numbers with NaN for null, in memory that may be overwritten."""
    return np.array(cells.to_numpy(zero_copy_only=False), dtype=np.float64)


def cast_numbers(cells: Cells) -> FloatArray | None:
    """Return text as numbers if Arrow reads every cell that is not missing as one, else None."""
    if not is_text(cells):
        return None
    null = arrow.scalar(None, arrow.string())
    for has_gaps in (False, True):
        with suppress(arrow.ArrowInvalid):
            for part in (cells[:_SAMPLE_CELLS], cells):
                if has_gaps:
                    part = compute.if_else(
                        compute.is_in(part, value_set=arrow.array(GAPS)), null, part
                    )
                found = compute.cast(part, arrow.float64())
            values = np.asarray(found.to_numpy(zero_copy_only=False))
            finite = np.count_nonzero(np.abs(values) <= MAX_MAGNITUDE)
            return values if finite == len(cells) - found.null_count else None
    return None


def _bytes_of(text: Any) -> tuple[NDArray[np.int32], bytes]:
    """Return where each cell begins and the last one ends, of shape (n + 1,), and their bytes."""
    _, offsets, data = text.buffers()
    if not data:
        return np.zeros(len(text) + 1, dtype=np.int32), b""
    ends = np.frombuffer(offsets, dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    return ends - ends[0], data.slice(ends[0], ends[-1] - ends[0]).to_pybytes()


def text_shapes(text: Any) -> Shapes:
    """Return the shapes of Arrow strings."""
    ends, data = _bytes_of(text)
    parts = map(arrow.py_buffer, (ends, data.translate(_DIGITS_TO_1)))
    coded = arrow.StringArray.from_buffers(len(text), *parts).dictionary_encode()
    codes = np.asarray(coded.indices)
    return coded.dictionary, np.where(text.is_valid(), codes, -1) if text.null_count else codes


def is_plain(shapes: Shapes, decimal: str) -> NDArray[np.bool_]:
    """Return which text has the shape of a number without units and groups."""
    pattern = f"{_PLAIN[decimal]}|{_LONG_EXPONENT}|^(?i:true|false)$"
    return _matches(shapes[0], pattern)[shapes[1]]


def _by_shape(text: Any, shapes: Shapes, pattern: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield the places of each shape that fits, the shape, and their bytes, (places, length)."""
    forms, codes = shapes
    for shape in np.flatnonzero(_matches(forms, pattern)):
        places = np.flatnonzero(codes == shape)
        data = _bytes_of(text.take(places))[1]
        yield places, forms[shape].as_py(), np.frombuffer(data, np.uint8).reshape(len(places), -1)


def _matches(text: Any, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(compute.match_substring_regex(text, pattern), dtype=np.bool_)


def _digits(form: bytes, data: NDArray[np.uint8], span: Any = (None,)) -> Any:
    """Return the whole numbers that the digits in a span of cells of one shape make."""
    places = [place for place in range(len(form))[slice(*span)] if form[place] == ord("1")]
    if not places:
        return 0.0
    value = np.zeros(len(data))
    for place in places:
        value *= 10
        value += data[:, place]
    return value - ord("0") * (10 ** len(places) // 9)


def parse_numbers(text: Any, shapes: Shapes, way: str) -> FloatArray:
    """Return trimmed text as numbers, NaN where it is none."""
    pattern, decimal = _NUMBER[way], "," if way == "," else "."
    forms, codes = shapes
    words = compute.index_in(compute.utf8_lower(forms), value_set=arrow.array(_TRUTH))
    found = np.append(to_floats(words), np.nan)[codes]
    others = np.zeros(len(text), dtype=np.bool_)
    for cells, form, data in _by_shape(text, shapes, f"{pattern}|{_LONG_EXPONENT}"):
        if re.search(_EXPONENT, form) or form.count("1") > _MAX_EXACT_DIGITS:
            others[cells] = _matches(text.take(cells), pattern)
            continue
        fraction = form.rpartition(decimal)[2].count("1") if decimal in form else 0
        values = _digits(form.encode(), data) / 10.0**fraction
        if not re.match(_UNGROUPED[decimal], form, re.ASCII):  # digits in groups begin with no 0
            values[data[:, form.encode().index(b"1")] == ord("0")] = np.nan
        found[cells] = -values if "-" in form or "(" in form else values
    if others.any():
        rest = text.filter(others)
        values = cast_numbers(rest) if decimal == "." else None
        if values is None:
            marks = re.compile(rf"EUR|[^0-9eE{decimal}-]")  # the E of EUR is no exponent
            bare = [marks.sub("", c.replace("(", "-")).replace(",", ".") for c in rest.to_pylist()]
            values = np.array(bare, dtype=np.float64)
        found[others] = np.where(np.abs(values) <= MAX_MAGNITUDE, values, np.nan)
    return found


def parse_days(text: Any, shapes: Shapes, order: str) -> FloatArray:
    """Return trimmed text as days since 1970, NaN where it is no date of that order."""
    found = np.full(len(text), np.nan)
    for cells, form, data in _by_shape(text, shapes, DATE_ORDERS[order]):
        spans: Any = re.match(DATE_ORDERS[order], form)
        numbers = (_digits(form.encode(), data, spans.span(name)) for name in "ymdHMSz")
        year, month, day, hour, minute, second, zone = numbers
        if "b" in order:
            month = 1 + MONTHS.index(spans["m"].lower())
        if len(spans["y"]) == 2:
            year += np.where(year < _CENTURY_PIVOT, 2000.0, 1900.0)
        second = second / 10.0 ** max(len(spans["S"] or "") - len("00."), 0)
        sound = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
        if spans["p"]:  # 12 AM is midnight; 0 PM and 13 PM are no hours
            hour = np.where((hour - 1) // 12 == 0, hour % 12 + 12 * (spans["p"] in "pP"), 24)
        sound &= (hour < 24) & (minute < 60) & (second < 60)
        months = np.where(sound, (year - 1970) * 12 + month - 1, 0).astype(np.intp)
        start = months.min(initial=0)
        firsts = np.arange(start, months.max(initial=0) + 2).astype("datetime64[M]")
        starts = firsts.astype("datetime64[D]").astype(np.float64)
        first, last = starts[months - start], starts[months - start + 1]
        ahead, minutes = np.divmod(zone, 100)  # of the clocks of a time zone
        sign = -1 if (spans["z"] or "").startswith("-") else 1
        clock = ((second / 60 + minute) / 60 + hour) / 24
        clock = clock - sign * (ahead + minutes / 60) / 24
        found[cells] = np.where(sound & (first + day <= last), first + day - 1 + clock, np.nan)
    return found
