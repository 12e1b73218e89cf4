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
    HEAD_ROWS,
    MAX_MAGNITUDE,
    MICROSECONDS_PER_DAY,
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

__all__ = ["KINDS", "ColumnKind", "ColumnValues", "infer_kinds", "numbers", "read_best"]

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
_WITH_UNIT = r"^\W{0,2}(0[.,]|[1-9])[0-9., ]*\W?\p{L}{1,6}\.?$"
_DIGIT_FIRST = "(?s)^.{0,2}[0-9]"  # fits more, and is compiled in less time than all letters
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
        Different values; in long columns of text and fractions, those of the first 10,000 rows.
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
    """The k values of a column, text without blanks at its ends, each once if most are repeated."""

    def __init__(self, cells: Cells, decimal: str = ".") -> None:
        self.known = cells
        self.plain = cast_numbers(cells) if decimal == "." else None  # of all cells, (n,)
        self.index: Any = slice(None)  # from values to cells
        self.is_parsed = self.plain is not None or not is_text(cells)
        if self.is_parsed:
            is_known = ~(missing(cells) if self.plain is None else np.isnan(self.plain))
        else:
            head = cells[:HEAD_ROWS]
            if 2 * len(head.unique()) < len(head):
                coded = cells.dictionary_encode("encode")
                values = without_gaps(coded.dictionary).dictionary_encode("encode")
                self.known, self.index = values.dictionary, np.asarray(coded.indices)
                if len(self.known) < len(values):  # some differed in blanks, or are gaps
                    self.index = np.asarray(values.indices)[self.index]
            else:
                self.known = without_gaps(cells)
            is_known = np.asarray(self.known.is_valid())
        self.counts: NDArray[Any] = is_known  # cells by value, 0 for gaps
        if not isinstance(self.index, slice):
            self.counts = np.bincount(self.index, minlength=len(self.known)) * is_known

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of text."""
        return text_shapes(self.known)

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
        column, kind = _Inference(name, cells), chosen.get(name, "")
        plain = kind in ("categorical", "text", "id")
        kind, note, detail = (kind, "", "") if plain else column.infer(kind)
        return ColumnKind(name, kind, column.gaps, column.distinct, note, detail)

    # Arrow computes without the interpreter's lock
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(infer, columns))
    bad = [f"{column.name!r} {column.note}" for column in found if column.kind == "other"]
    if bad:
        raise ValueError(f"columns that are no features: {', '.join(bad)}")
    return found


class _Inference(ColumnValues):
    """Values of a column, their numbers, and questions about them."""

    def __init__(self, name: str, cells: Cells) -> None:
        super().__init__(cells)
        self.name = name
        self.decimal, self.values = self.read("numeric", ".")
        self.count = int(self.counts.sum())
        self.gaps = len(cells) - self.count
        self.is_repeated = np.count_nonzero(self.counts) < self.count
        # the values of the first cells that are not missing
        rows = np.flatnonzero(self.counts[self.index]) if self.gaps else np.arange(len(cells))
        self.rows = rows[:HEAD_ROWS]
        if not isinstance(self.index, slice):
            self.rows = self.index[self.rows]
        # in long columns of text and fractions, the different values of the first rows
        is_known = self.counts > 0
        counted: Any = self.values[is_known] if self.gaps else self.values
        head = self.values[self.rows]
        if not np.isnan(counted).any():
            is_long = not (head == np.floor(head)).all()
            bits = (head if is_long else counted).view(np.int64)  # counted in less time
            self.distinct = len(pandas.unique(bits))
        elif is_text(self.known) and not self.is_repeated:
            self.distinct = len(self.known.take(self.rows).unique())
        else:
            self.distinct = len(compute.filter(self.known, is_known).unique())

    def infer(self, chosen: str) -> tuple[str, str, str]:
        """Return the kind, ``chosen`` if it is given, a note and how the cells are written."""
        count, decimal = self.count, self.decimal
        unread = np.isnan(self.values) & (self.counts > 0)
        if not chosen and not count:
            return "empty", "has no value", ""
        if not chosen and self.distinct == 1 and not self.gaps:
            return "constant", f"is always {self._example(0)}", ""
        share = self._share(self.values)
        first = self._example(int(np.argmax(unread))) if unread.any() else ""
        note = f"{self.counts[unread].sum()} cells such as {first} count as missing"
        lenient = "numeric", note, f"{decimal}?"
        if chosen != "date":
            if not chosen and share == 1 and self._counts_rows():
                return "id", "is a number of each row", ""
            if share == 1 or chosen == "numeric":
                return "numeric", self._number_note(), decimal
            if not is_text(self.known) and "timestamp" not in str(self.known.type):
                return lenient
        if not is_text(self.known):
            return "date", "", "iso"
        order, moments = self.read("date", "iso")
        dated = self._share(moments)
        if dated == 1 or chosen == "date":
            dmy, mdy = (np.isnan(self.parse("date", way)) for way in ("dmy", "mdy"))
            either = order == "dmy" and bool((dmy == mdy).all())
            note = "read as day, month, year; month, day, year would do, too" if either else ""
            return "date", note, order
        if share >= _MIN_NUMERIC_SHARE and count >= _MIN_ROWS_OF_IDS:
            return lenient
        kind, note = self._words()
        for part, option in ((share, "numeric"), (dated, "date")):
            if kind != "id" and not note and part >= _MIN_NOTED_SHARE:
                what = "numbers" if option == "numeric" else "dates"
                note = f"{100 * part:.0f} % of the cells are {what}: --{option} names the others"
        return kind, note or ("" if kind == "id" else self._unit_note()), ""

    def _share(self, values: FloatArray) -> float:
        """Return the share of the cells that have a value."""
        return float(self.counts[~np.isnan(values)].sum() / max(self.count, 1))

    def _example(self, place: int) -> str:
        text = repr(str(categories(self.known[place : place + 1])[0]))
        return text if len(text) <= 24 else f"{text[:20]}...'"

    def _number_note(self) -> str:
        """Show how a number is read that is not plain."""
        if self.is_parsed:
            return ""
        odd = ~is_plain(self.shapes, self.decimal) & ~np.isnan(self.values)
        if self.decimal == "," and not odd.any():
            odd = self.values % 1 > 0
        place = int(np.argmax(odd))
        return f"{self._example(place)} is read as {self.values[place]:g}" if odd.any() else ""

    def _unit_note(self) -> str:
        """Show a number with a unit where most of the first cells are one."""
        sample = self.known.take(arrow.array(self.rows[:_WORD_SAMPLE_ROWS]))
        for pattern in (_DIGIT_FIRST, _WITH_UNIT):
            found = np.asarray(compute.match_substring_regex(sample, pattern))
            if found.mean() < _MIN_NOTED_SHARE:
                return ""
        example = self._example(int(self.rows[np.argmax(found)]))
        return f"numbers with units such as {example} are words: a column of numbers says more"

    def _counts_rows(self) -> bool:
        """Return whether numbers only count the rows: by the name of the column, or 0, 1, 2, ..."""
        values = self.values
        differ = not self.gaps and self.distinct >= self.count >= _MIN_ROWS_OF_IDS
        if not differ or not (values == np.floor(values)).all():
            return False
        steps = bool((np.diff(values) == 1).all() and values[0] in (0, 1))
        return bool(_ID_NAME.fullmatch(self.name)) or steps

    def _words(self) -> tuple[str, str]:
        """Tell categories, text and names of rows apart."""
        n = self.count
        if self.distinct <= _FEW_CATEGORIES and n >= _MIN_ROWS_PER_CATEGORY * self.distinct:
            return "categorical", ""
        may_be_id = self.distinct == min(n, HEAD_ROWS) and n >= _MIN_ROWS_OF_IDS and not self.gaps
        if may_be_id and not _ID_NAME.fullmatch(self.name):
            spaces = compute.any(compute.match_substring(self.known, " ")).as_py()
            may_be_id = not spaces and not self._unit_note()
        if may_be_id and len(compute.unique(self.known)) == n:
            return "id", "differs in each row"
        sample = self.known.take(arrow.array(self.rows[:_WORD_SAMPLE_ROWS])).to_pylist()
        if sum(len(text.split()) for text in sample) >= _MIN_WORDS_OF_TEXT * len(sample):
            return "text", ""
        counts = self.counts[self.counts > 0]
        if not self.is_repeated:
            counts = np.asarray(self.known.drop_null().value_counts().field("counts"))
        self.distinct = len(counts)
        if self.distinct > _MIN_DISTINCT_SHARE * n and n >= _MIN_ROWS_OF_IDS:
            return "text", ""
        rare = int((counts == 1).sum())
        return "categorical", f"{rare} values are there once, and left out" if rare else ""
