"""What a column holds, inferred from its cells."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta.datasets.cells import (
    DATE_ORDERS,
    DECIMALS,
    HEAD_ROWS,
    Cells,
    FloatArray,
    Reading,
    arrow,
    cast_numbers,
    categories,
    compute,
    days,
    is_gap,
    is_list,
    is_text,
    missing,
    numbers,
    pandas,
    parse_days,
    parse_numbers,
    text_shapes,
    text_values,
)

__all__ = ["KINDS", "ColumnKind", "infer_kinds"]

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


class _Inference:
    """Values of a column that are not missing, their numbers, and questions about them."""

    def __init__(self, name: str, cells: Cells) -> None:
        self.name = name
        self.decimal, self.shapes, plain = ".", None, cast_numbers(cells)
        self.rows: Any  # the values of the first cells that are not missing
        self.is_plain = plain is not None or not is_text(cells)
        if self.is_plain:
            values = numbers(cells) if plain is None else plain
            gaps = missing(cells) if plain is None else np.isnan(plain)
            self.known, self.values, self.rows = cells, values, slice(HEAD_ROWS)
            if gaps.any():
                self.known, self.values = compute.filter(cells, ~gaps), values[~gaps]
            self.counts = np.broadcast_to(1, len(self.values))
        else:
            self.known, self.shapes, index, self.counts = text_values(cells)
            there = np.flatnonzero(self.counts[index])[:HEAD_ROWS]
            self.rows = there if isinstance(index, slice) else index[there]
            self.decimal, self.values = best_reading(
                self.known, self.shapes, self.counts, parse_numbers, "."
            )
        self.count = int(self.counts.sum())
        self.gaps = len(cells) - self.count
        self.is_repeated = np.count_nonzero(self.counts) < self.count
        # in long columns of text and fractions, the different values of the first rows
        counted: Any = self.values[self.counts > 0] if self.gaps else self.values
        head = self.values[self.rows]
        if not np.isnan(counted).any():
            is_long = not (head == np.floor(head)).all()
            bits = (head if is_long else counted).view(np.int64)  # counted in less time
            self.distinct = len(pandas.unique(bits))
        elif is_text(self.known) and not self.is_repeated:
            self.distinct = len(self.known.take(self.rows).unique())
        else:
            self.distinct = len(self.known.drop_null().unique())

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
        order, moments = best_reading(self.known, self.shapes, self.counts, parse_days, "iso")
        dated = self._share(moments)
        if dated == 1 or chosen == "date":
            either = order == "dmy" and self._share(parse_days(self.known, self.shapes, "mdy")) == 1
            note = "read as day, month, year; month, day, year would do, too" if either else ""
            return "date", note, order
        if share >= _MIN_NUMERIC_SHARE and count >= _MIN_ROWS_OF_IDS:
            return lenient
        kind, note = self._words()
        for part, option in ((share, "numeric"), (dated, "date")):
            if kind != "id" and not note and part >= _MIN_NOTED_SHARE:
                what = "numbers" if option == "numeric" else "dates"
                note = f"{100 * part:.0f} % of the cells are {what}: --{option} reads them"
        return kind, note or ("" if kind == "id" else self._unit_note()), ""

    def _share(self, values: FloatArray) -> float:
        """Return the share of the cells that have a value."""
        return float(self.counts[~np.isnan(values)].sum() / max(self.count, 1))

    def _example(self, place: int) -> str:
        text = repr(str(categories(self.known[place : place + 1])[0]))
        return text if len(text) <= 24 else f"{text[:20]}...'"

    def _number_note(self) -> str:
        """Show how a number is read that is not plain."""
        for end in (_WORD_SAMPLE_ROWS, len(self.known)) if not self.is_plain else ():
            text, values = self.known[:end], self.values[:end]
            odd = np.isnan(parse_numbers(text, None, self.decimal, plain=True)) & ~np.isnan(values)
            if self.decimal == "," and end == len(self.known) and not odd.any():
                odd = values % 1 > 0
            if odd.any():
                place = int(np.argmax(odd))
                return f"{self._example(place)} is read as {values[place]:g}"
        return ""

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


def read_best(cells: Cells, parse: Any, first: str) -> Reading:
    """Read cells in the way in which ``parse`` reads most of them, ``first`` among equals."""
    if not is_text(cells):
        found = numbers(cells) if parse is parse_numbers else days(cells)
        return first, found, np.isnan(found) & ~missing(cells)
    plain = cast_numbers(cells) if first == "." else None
    if plain is not None:
        return first, plain, np.zeros(len(cells), dtype=np.bool_)
    text, shapes, index, counts = text_values(cells)
    way, values = best_reading(text, shapes, counts, parse, first, len(cells))
    return way, values[index], (np.isnan(values) & (counts > 0))[index]


def best_reading(
    text: Any, shapes: Any, counts: Any, parse: Any, first: str, tried: int = 200
) -> tuple[str, FloatArray]:
    """Return the way in which ``parse`` reads most cells, ``first`` among equals, and the values.

    A way is tried if its pattern fits one of ``tried`` cells; ``counts`` are cells by text.
    """
    ways = DECIMALS if parse is parse_numbers else DATE_ORDERS
    total = int(counts.sum())
    places = np.arange(0, total, max(total // max(tried, 1), 1))
    places = np.unique(np.searchsorted(np.cumsum(counts), places, side="right"))
    sample = text.take(arrow.array(places)).to_pylist()
    best, found, fewest = first, np.full(len(text), np.nan), total
    for way in dict.fromkeys((first, *ways)):
        if not fewest:
            break
        if any(map(re.compile(ways[way], re.ASCII).match, sample)):
            shapes = shapes or text_shapes(text)
            values = parse(text, shapes, way)
            unread = int(counts[np.isnan(values)].sum())
            if unread < fewest:
                best, found, fewest = way, values, unread
    return best, found
