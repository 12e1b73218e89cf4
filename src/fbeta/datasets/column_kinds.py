"""What a column holds, inferred from its cells."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.datasets.cells import (
    DATE_ORDERS,
    DECIMALS,
    MAX_MAGNITUDE,
    MICROSECONDS_PER_DAY,
    MONTHS,
    Cells,
    FloatArray,
    Reading,
    Shapes,
    arrow,
    cast_numbers,
    categories,
    compute,
    is_gap,
    is_list,
    is_plain,
    is_text,
    missing,
    pandas,
    parse_days,
    parse_numbers,
    text_shapes,
    to_floats,
    without_gaps,
)

#: Kinds that become features.
KINDS = ("numeric", "categorical", "text", "date")

# below this number of rows, that all values differ says nothing
_MIN_ROWS_OF_IDS = 10
# share of the cells that have to be numbers for the others to count as missing
_MIN_NUMERIC_SHARE = 0.9
# share of cells that are numbers or dates from which a column of text gets a note
_MIN_NOTED_SHARE = 0.5
# up to so many values are categories, however long their names, if each is there so often
_FEW_CATEGORIES, _MIN_ROWS_PER_CATEGORY = 20, 5
# that many words in a cell, or that share of different cells, make a column of text
_MIN_WORDS_OF_TEXT, _MIN_DISTINCT_SHARE = 4.0, 0.5
_WORD_SAMPLE_ROWS = 1_000
_OTHER_WAY = {".": ",", ",": ".", "dmy": "mdy", "mdy": "dmy"}
_WITH_UNIT = r"^\W{0,2}(0[.,]|[1-9])[0-9., ]*\W?\p{L}{1,6}\.?$"
_DIGIT_NEAR = "(?s)^.{0,11}[0-9]"  # fits more, and is compiled in less time than all letters
_YEAR, _MONTH = "(?:19|20)[0-9]{2}", f"(?:{'|'.join(MONTHS)})[a-z]*[., -]+|[01]?[0-9][./-]"
_PART_OF_DATE = (
    rf"^(?i:(?:{_MONTH}|q[1-4][ /-]?){_YEAR}|{_YEAR}[ /-][qw]?[0-9]{{1,2}}|"
    r"[0-9]{1,2}(?::[0-9]{2}){1,2}(?: ?[ap]\.?m\.?)?)$"
)
_ID_NAME = re.compile(
    r"(?i:(row|record|sample|item|case|user)?[_ -]?(id|uuid|guid|key|index|idx|no|nr|number))"
    r"|.*[_ -](?i:id|uuid|guid)|.*[a-z]I[dD]|(?i:unnamed: [0-9]+)"
)


@dataclass(frozen=True)
class ColumnKind:
    """What a column holds.

    Attributes
    ----------
    name : str
        Of the column.
    kind : str
        One of ``KINDS``; or ``"id"``, ``"constant"``, ``"empty"``, which say nothing of other rows;
        or ``"other"`` for lists and mappings.
    gaps : int
        Cells without a value.
    distinct : int
        Different values.
    note : str
        What else is to be said.
    detail : str
        How the cells are written: the decimal mark of numbers, the order of dates.
    """

    name: str
    kind: str
    gaps: int
    distinct: int
    note: str = ""
    detail: str = ""


class ColumnValues:
    """The k values of a column, those of text each once and without blanks at their ends."""

    def __init__(self, cells: Cells, decimal: str = ".") -> None:
        self.known = cells
        self.plain = cast_numbers(cells) if decimal == "." else None  # of all cells, (n,)
        self.is_parsed = self.plain is not None or not is_text(cells)
        self.index: Any = slice(None)  # from values to cells
        self.counts: NDArray[Any]  # cells by value, 0 for gaps
        if self.is_parsed:
            self.counts = ~(missing(cells) if self.plain is None else np.isnan(self.plain))
        else:
            coded = without_gaps(cells).dictionary_encode("encode")
            self.known, self.index = coded.dictionary, np.asarray(coded.indices)
            counts = np.bincount(self.index, minlength=len(self.known))
            self.counts = counts * np.asarray(self.known.is_valid())
        self.count = int(self.counts.sum())  # cells with a value
        self.gaps = len(cells) - self.count

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of text."""
        return text_shapes(self.known)

    @cached_property
    def numbers(self) -> tuple[str, FloatArray]:
        """The decimal mark with which most cells are numbers, and the numbers, (k,)."""
        return self.read("numeric", ".")

    @cached_property
    def distinct(self) -> int:
        """Number of different values; of numbers, however they are written."""
        is_known = self.counts > 0
        found = self.numbers[1][is_known]
        if (np.abs(found) < 2.0**53).all():  # NaN is not, and larger integers share floats
            return len(pandas.unique(found.view(np.int64)))  # counted in less time
        if not self.is_parsed:
            return int(is_known.sum())
        return len(compute.filter(self.known, is_known).unique())

    def share(self, values: FloatArray) -> float:
        """Return the share of the cells that have a value."""
        return float(self.counts[~np.isnan(values)].sum() / max(self.count, 1))

    @cached_property
    def sample(self) -> Any:
        """The first cells of text that are not missing."""
        rows = self.index[self.counts[self.index] > 0]
        return self.known.take(rows[:_WORD_SAMPLE_ROWS])

    def parse(self, kind: str, way: str) -> FloatArray:
        """Return values as numbers or dates (days since 1970), (k,); NaN where they are none."""
        if not self.is_parsed:
            return (parse_numbers if kind == "numeric" else parse_days)(
                self.known, self.shapes, way
            )
        if self.plain is not None and kind == "numeric":
            return self.plain
        cells, found = self.known, np.full(len(self.known), np.nan)
        form = "" if isinstance(cells, list) else str(cells.type)
        if kind == "date" and form == "timestamp[us]":
            found = to_floats(cells.cast(arrow.int64())) / MICROSECONDS_PER_DAY
        elif kind == "numeric" and form and not form.startswith(("list", "timestamp", "string")):
            found = to_floats(cells)
            found[~(np.abs(found) <= MAX_MAGNITUDE)] = np.nan
        return found

    def read(self, kind: str, first: str, tried: int = 200) -> tuple[str, FloatArray]:
        """Return the way in which most cells are read, ``first`` among equals, and the values.

        A way is tried if its pattern fits one of ``tried`` cells. Dates may be of several forms,
        but day and month have one order, which is then the way.
        """
        if self.is_parsed:
            return first, self.parse(kind, first)
        ways = DECIMALS if kind == "numeric" else DATE_ORDERS
        total = int(self.counts.sum())
        places = np.arange(0, total, max(total // max(tried, 1), 1))
        places = np.unique(np.searchsorted(np.cumsum(self.counts), places, side="right"))
        sample = self.known.take(arrow.array(places)).to_pylist()
        parsed, unread = {first: np.full(len(self.known), np.nan)}, {first: total}
        for way in dict.fromkeys((first, *ways)):
            if min(unread.values()) and any(map(re.compile(ways[way], re.ASCII).match, sample)):
                parsed[way] = self.parse(kind, way)
                unread[way] = int(self.counts[np.isnan(parsed[way])].sum())
        best, *others = sorted(unread, key=lambda way: unread[way])
        found = parsed[best]
        for way in others if kind == "date" and unread[best] else ():
            if unread[way] < total and not {way, best} >= {"dmy", "mdy"}:
                found = np.where(np.isnan(found), parsed[way], found)
                best = way if way in ("dmy", "mdy") else best
        return best, found


def read_best(cells: Cells, kind: str, first: str) -> Reading:
    """Read numbers or dates in the way in which most are read, ``first`` among equals."""
    column = ColumnValues(cells, first)
    way, values = column.read(kind, first, len(cells))
    return way, values[column.index], (np.isnan(values) & (column.counts > 0))[column.index]


def is_ambiguous(cells: Cells, way: str) -> bool:
    """Return whether another decimal mark, or order of day and month, gives other values."""
    other = _OTHER_WAY.get(way)
    if other is None or not is_text(cells):
        return False
    column, kind = ColumnValues(cells, ","), "numeric" if way in DECIMALS else "date"  # not cast
    return not np.array_equal(column.parse(kind, way), column.parse(kind, other), equal_nan=True)


def numbers(cells: Cells) -> FloatArray:
    """Return cells as numbers without units, (n,); NaN where they are missing or no numbers."""
    column = ColumnValues(cells)
    return np.asarray(column.parse("numeric", "plain")[column.index])


def infer_kinds(columns: Mapping[str, Cells], chosen: Mapping[str, str]) -> list[ColumnKind]:
    """Infer the kinds of columns; of those ``chosen`` only the details. Lists are an error."""

    def infer(name: str) -> ColumnKind:
        cells = columns[name]
        if isinstance(cells, list) or is_list(cells):
            values = cells if isinstance(cells, list) else cells.to_pylist()
            found = next((value for value in values if not is_gap(value)), None)
            gaps, note = sum(map(is_gap, values)), f"holds a {type(found).__name__}"
            return ColumnKind(name, "empty" if found is None else "other", gaps, 0, note)
        column, kind = ColumnValues(cells), chosen.get(name, "")
        plain = kind in ("categorical", "text", "id")
        kind, note, detail = (kind, "", "") if plain else _infer_kind(name, column, kind)
        return ColumnKind(name, kind, column.gaps, column.distinct, note, detail)

    # Arrow computes without the interpreter's lock
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(infer, columns))
    bad = [f"{column.name!r} {column.note}" for column in found if column.kind == "other"]
    if bad:
        raise ValueError(f"columns that are no features: {', '.join(bad)}")
    return found


def _infer_kind(name: str, column: ColumnValues, chosen: str) -> tuple[str, str, str]:
    """Return the kind, ``chosen`` if it is given, a note and how the cells are written."""
    (decimal, values), counts = column.numbers, column.counts
    if not chosen and not column.count:
        return "empty", "has no value", ""
    if not chosen and column.distinct == 1 and not column.gaps:
        return "constant", f"is always {_example(column.known, 0)}", ""
    share, unread = column.share(values), np.isnan(values) & (counts > 0)
    first = _example(column.known, int(np.argmax(unread))) if unread.any() else ""
    note = f"{counts[unread].sum()} cells such as {first} count as missing"
    lenient = "numeric", note, f"{decimal}?"
    is_words = is_text(column.known)
    if chosen != "date":
        if not chosen and share == 1 and _counts_rows(name, column):
            return "id", "is a number of each row", ""
        if share == 1 or chosen == "numeric":
            return "numeric", _number_note(column), decimal
        if not is_words and "timestamp" not in str(column.known.type):
            return lenient
    if not is_words:
        return "date", "", "iso"
    order, moments = column.read("date", "iso")
    dated = column.share(moments)
    if dated == 1 or chosen == "date":
        dmy, mdy = (np.isnan(column.parse("date", way)) for way in ("dmy", "mdy"))
        either = order == "dmy" and bool((dmy == mdy).all())
        note = "read as day, month, year; month, day, year would do, too" if either else ""
        return "date", note, order
    if share >= _MIN_NUMERIC_SHARE and column.count >= _MIN_ROWS_OF_IDS:
        return lenient
    kind, note = _infer_words(name, column)
    for part, option in ((share, "numeric"), (dated, "date")):
        if kind != "id" and not note and part >= _MIN_NOTED_SHARE:
            what = "numbers" if option == "numeric" else "dates"
            note = f"{100 * part:.0f} % of the cells are {what}: --{option} names the others"
    return kind, note or ("" if kind == "id" else _word_note(column)), ""


def _example(cells: Cells, place: int) -> str:
    """Return a cell in quotes, shortened if it is long."""
    text = repr(str(categories(cells[place : place + 1])[0]))
    return text if len(text) <= 24 else f"{text[:20]}...'"


def _number_note(column: ColumnValues) -> str:
    """Show how a number is read that is not plain."""
    if column.is_parsed:
        return ""
    decimal, values = column.numbers
    odd = ~is_plain(column.shapes, decimal) & ~np.isnan(values)
    if decimal == "," and not odd.any():
        odd = values % 1 > 0
    place = int(np.argmax(odd))
    return f"{_example(column.known, place)} is read as {values[place]:g}" if odd.any() else ""


def _word_note(column: ColumnValues) -> str:
    """Show a value where most of the first ones look like a number or a date and are words."""
    for pattern in (_DIGIT_NEAR, f"{_WITH_UNIT}|{_PART_OF_DATE}"):
        found = np.asarray(compute.match_substring_regex(column.sample, pattern))
        if found.mean() < _MIN_NOTED_SHARE:
            return ""
    example = _example(column.sample, int(np.argmax(found)))
    return f"{example} is a word: a number without its unit, or a whole date, says more"


def _counts_rows(name: str, column: ColumnValues) -> bool:
    """Return whether numbers only count the rows: by the name of the column, or 0, 1, 2, ..."""
    values = column.numbers[1]
    differ = not column.gaps and column.distinct >= column.count >= _MIN_ROWS_OF_IDS
    if not differ or not (values == np.floor(values)).all():
        return False
    steps = bool((np.diff(values) == 1).all() and values[0] in (0, 1))
    return bool(_ID_NAME.fullmatch(name)) or steps


def _infer_words(name: str, column: ColumnValues) -> tuple[str, str]:
    """Tell categories, text and names of rows apart."""
    n, distinct = column.count, column.distinct
    if distinct <= _FEW_CATEGORIES and n >= _MIN_ROWS_PER_CATEGORY * distinct:
        return "categorical", ""
    if distinct == n >= _MIN_ROWS_OF_IDS and not column.gaps:
        spaces = compute.any(compute.match_substring(column.known, " ")).as_py()
        if _ID_NAME.fullmatch(name) or not (spaces or _word_note(column)):
            return "id", "differs in each row"
    lengths = [len(text.split()) for text in column.sample.to_pylist()]
    is_long = sum(lengths) >= _MIN_WORDS_OF_TEXT * len(lengths)
    if is_long or (distinct > _MIN_DISTINCT_SHARE * n and n >= _MIN_ROWS_OF_IDS):
        return "text", ""
    rare = int((column.counts == 1).sum())
    return "categorical", f"{rare} values are there once, and left out" if rare else ""
