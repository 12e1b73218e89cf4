"""Cells of columns: missing values, numbers, dates and categories, as files and frames have them.

Cells are an Arrow array of strings, numbers, truth values, ``timestamp[us]`` or lists of strings,
or a Python list of anything else. Null, NaN and text such as ``NA`` are missing values.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import UTC, date
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import

Cells: TypeAlias = Any
FloatArray: TypeAlias = NDArray[np.float64]
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
_NUMBER = {
    mark: rf"^{_SIGN}(?:{form}|{_GROUPED[mark]})(?:\s*(?:%|{_CURRENCY}))?$"
    for mark, form in _UNSIGNED.items()
}
#: Marks that may stand before the fraction of a number, and patterns of what is read with them.
DECIMALS = {mark: rf"{form}|^(?i:true|false)$" for mark, form in _NUMBER.items()}
_SAMPLE_CELLS = 200  # cells that show whether the others are worth a try
HEAD_ROWS = 10_000  # rows that show how often values are repeated

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
#: Orders of year, month (``b``: by its English name) and day, and patterns of dates in them.
DATE_ORDERS = {order: f"^{date}{_TIME}$" for order, date in _DATES.items()}
_CENTURY_PIVOT = 69  # years of two digits below this are those of 2000 and after, as in POSIX
_FIRST_DAY = -719_162  # of year 1, counted from 1970
MICROSECONDS_PER_DAY = 86_400e6


class _Module:
    """A package of the extra ``data``, imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(optional_import(self.name, "data", "reading tables"), attribute)
        setattr(self, attribute, found)
        return found


arrow, compute = _Module("pyarrow"), _Module("pyarrow.compute")


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
    if kinds.is_decimal(kind):
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
    with suppress(arrow.ArrowException, TypeError, ValueError, OverflowError):
        if types and all(issubclass(t, date | np.datetime64) for t in types):
            aware = [v for v in known if getattr(v, "tzinfo", None)]
            utc = {id(v): v.astimezone(UTC).replace(tzinfo=None) for v in aware}
            naive = [utc.get(id(v), v) for v in known]
            return arrow.array(np.array(naive, dtype="datetime64[us]"))
        return arrow_cells(arrow.array(known, from_pandas=True))
    if any(issubclass(t, list | tuple | dict | set | bytes | np.ndarray) for t in types):
        return values
    if all(issubclass(t, bool | int | float | Decimal | np.number | np.bool_) for t in types):
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


def without_gaps(cells: Any) -> Any:
    """Return Arrow strings without blanks at their ends, with null for missing values."""
    trimmed = compute.utf8_trim_whitespace(cells)
    short = compute.less_equal(compute.binary_length(trimmed), max(map(len, GAPS)))
    if not compute.any(short).as_py():  # in long text there is nothing to look for
        return trimmed
    gaps = compute.is_in(trimmed, value_set=arrow.array(GAPS))
    return compute.if_else(gaps, arrow.scalar(None, arrow.string()), trimmed)


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


def _to_floats(cells: Any) -> FloatArray:
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


def text_values(cells: Any) -> tuple[Any, NDArray[np.intp], NDArray[np.intp]]:
    """Return text without gaps, each of k values once if most are repeated, by their first cells.

    Also the place of each cell, of shape (n,) and -1 for gaps, and cells by value, of shape (k,).
    """
    head = cells[:HEAD_ROWS]
    coded = cells.dictionary_encode() if 2 * len(head.unique()) < len(head) else None
    known = without_gaps(cells if coded is None else coded.dictionary)
    if coded is None:
        there = np.asarray(known.is_valid())
        index = np.where(there, np.cumsum(there) - 1, -1)
        known = known.drop_null()
        return known, index, np.broadcast_to(1, len(known))
    once = known.dictionary_encode()
    places = np.append(np.asarray(once.indices.fill_null(-1), dtype=np.intp), -1)
    index = places[np.asarray(coded.indices.fill_null(-1))]
    return once.dictionary, index, np.bincount(index + 1, minlength=len(once.dictionary) + 1)[1:]


def numbers(cells: Cells, decimal: str = ".", plain: bool = False) -> FloatArray:
    """Return cells as numbers, of shape (n,); NaN where they are missing or no numbers."""
    found = cast_numbers(cells) if decimal == "." else None
    if found is not None:
        return found
    if is_text(cells):
        text, index, _ = text_values(cells)
        return np.append(parse_numbers(text, decimal, plain), np.nan)[index]
    if isinstance(cells, list) or is_list(cells) or "timestamp" in str(cells.type):
        return np.full(len(cells), np.nan)
    values = _to_floats(cells)
    values[~(np.abs(values) <= MAX_MAGNITUDE)] = np.nan
    return values


def parse_numbers(text: Any, decimal: str, plain: bool = False) -> FloatArray:
    """Return text without gaps as numbers, NaN where it is none; ``plain`` ones have no units."""
    sound = np.asarray(
        compute.match_substring_regex(text, (_PLAIN if plain else _NUMBER)[decimal]), dtype=bool
    )
    found = np.empty(len(text))
    found[sound] = _to_floats(compute.cast(_bare(text.filter(sound), decimal), arrow.float64()))
    words = compute.utf8_lower(text.filter(~sound))
    found[~sound] = _to_floats(compute.index_in(words, value_set=arrow.array(["false", "true"])))
    found[~(np.abs(found) <= MAX_MAGNITUDE)] = np.nan
    return found


def _bare(text: Any, decimal: str) -> Any:
    """Return text of numbers without units, group marks and plus signs, with a decimal point."""
    marks = np.zeros(256, dtype=np.uint8)  # a byte for each byte; 0 leaves it out
    for old, new in zip(b"0123456789eE-" + decimal.encode(), b"0123456789eE-.", strict=True):
        marks[old] = new
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    raw = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    bare = marks[raw]
    bare[:-1][(raw[:-1] == ord("E")) & (raw[1:] == ord("U"))] = 0  # EUR has no exponent
    kept = bare > 0
    ends = np.append(0, np.cumsum(kept))[ends - ends[0]].astype(np.int32)
    parts = map(arrow.py_buffer, (ends, bare[kept]))
    return arrow.StringArray.from_buffers(len(text), *parts)


def days(cells: Cells, order: str = "iso") -> FloatArray:
    """Return cells as days since 1970, of shape (n,); NaN where they are missing or no dates."""
    if is_text(cells):
        text, index, _ = text_values(cells)
        return np.append(parse_days(text, order), np.nan)[index]
    if isinstance(cells, list) or str(cells.type) != "timestamp[us]":
        return np.full(len(cells), np.nan)
    return _to_floats(cells.cast(arrow.int64())) / MICROSECONDS_PER_DAY


def parse_days(text: Any, order: str) -> FloatArray:
    """Return text without gaps as days since 1970, NaN where it is no date of that order."""
    if order == "iso":
        with suppress(arrow.ArrowInvalid):
            found = _to_floats(compute.cast(text, arrow.date32()).cast(arrow.int32()))
            return np.where(found >= _FIRST_DAY, found, np.nan)
    parts = compute.extract_regex(text, DATE_ORDERS[order])

    def part(name: str) -> FloatArray:
        field = compute.struct_field(parts, name)
        if name == "m" and "b" in order:
            field = compute.index_in(compute.utf8_lower(field), value_set=arrow.array(_MONTHS))
            return 1 + _to_floats(field)
        field = compute.if_else(compute.equal(field, ""), "0", field)
        field = compute.replace_substring(field, ",", ".")
        return _to_floats(field.cast(arrow.float64()))

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
    zone = compute.struct_field(parts, "z")
    known = compute.fill_null(compute.match_substring_regex(zone, "^[+-]"), False)
    digits = compute.replace_substring(compute.if_else(known, zone, "+0000"), ":", "")
    signed = compute.replace_substring(digits, "+", "").cast(arrow.int64()).to_numpy()
    ahead, minutes = np.divmod(np.abs(signed), 100)  # of the clocks of a time zone
    clock = ((second / 60 + minute) / 60 + hour) / 24
    clock = clock - np.sign(signed) * (ahead + minutes / 60) / 24
    found = first.astype(np.float64) + day - 1 + clock
    return np.where(sound & (day <= last), found, np.nan)


def read_numbers(cells: Cells, first: str = ".") -> Reading:
    """Read numbers with the decimal mark that reads most cells, ``first`` among equals."""
    found = cast_numbers(cells) if first == "." else None
    if found is not None:
        return first, found, np.zeros(len(cells), dtype=np.bool_)
    return _read(cells, numbers, parse_numbers, first)


def read_days(cells: Cells, first: str = "iso") -> Reading:
    """Read dates in the order that reads most cells, ``first`` among equals."""
    return _read(cells, days, parse_days, first)


def _read(cells: Cells, read: Any, parse: Any, first: str) -> Reading:
    if not is_text(cells):
        found = read(cells)
        return first, found, np.isnan(found) & ~missing(cells)
    text, index, counts = text_values(cells)
    way, values = best_reading(text, counts, parse, first, len(cells))
    found = np.append(values, np.nan)[index]
    return way, found, np.isnan(found) & (index >= 0)


def best_reading(
    text: Any, counts: NDArray[np.intp], parse: Any, first: str, tried: int = 200
) -> tuple[str, FloatArray]:
    """Return the way in which ``parse`` reads most cells, ``first`` among equals, and the values.

    A way is tried if its pattern fits one of ``tried`` cells; ``counts`` are cells by text.
    """
    ways = DECIMALS if parse is parse_numbers else DATE_ORDERS
    total = int(counts.sum())
    places = np.arange(0, total, max(total // max(tried, 1), 1))
    places = np.unique(np.searchsorted(np.cumsum(counts), places, side="right"))
    sample = text.take(arrow.array(places))
    best, found, fewest = first, np.full(len(text), np.nan), total
    for way in dict.fromkeys((first, *ways)):
        if not compute.any(compute.match_substring_regex(sample, ways[way])).as_py():
            continue
        left = np.isnan(found)
        # a way that reads none of the cells that are left does not read more than the best
        if left.all() or not np.isnan(parse(text.filter(left), way)).all():
            values = parse(text, way)
            unread = int(counts[np.isnan(values)].sum())
            if unread < fewest:
                best, found, fewest = way, values, unread
        if not fewest:
            break
    return best, found
