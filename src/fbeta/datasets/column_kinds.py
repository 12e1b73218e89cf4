"""What a column holds, inferred from its cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.datasets.cells import (
    Cells,
    FloatArray,
    arrow_modules,
    cast_numbers,
    categories,
    days,
    is_gap,
    is_list,
    is_text,
    numbers,
    read_days,
    read_numbers,
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
_COUNTED_ROWS = 10_000
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
        Different values; in long columns of fractions, those of the first 10,000 rows.
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
    """Infer the kinds of columns; of those ``chosen`` only the details. Lists are an error.

    >>> from fbeta.datasets.cells import object_cells
    >>> size, when, colour = infer_kinds(
    ...     {
    ...         "size": object_cells(["1,5", "", "2"]),
    ...         "when": object_cells(["3.1.2024", "31.12.2023", "?"]),
    ...         "colour": object_cells(["red", "blue", "red"]),
    ...     },
    ...     {},
    ... )
    >>> size.kind, size.gaps, size.detail, when.kind, colour.kind
    ('numeric', 1, ',', 'date', 'categorical')
    """
    with ThreadPoolExecutor() as pool:  # Arrow computes without the interpreter's lock
        found = list(pool.map(lambda name: _infer(name, columns[name], chosen.get(name)), columns))
    bad = [f"{column.name!r} {column.note}" for column in found if column.kind == "other"]
    if bad:
        raise ValueError(f"columns that are no features: {', '.join(bad)}")
    return found


def _infer(name: str, cells: Cells, chosen: str | None) -> ColumnKind:
    if isinstance(cells, list) or is_list(cells):
        values = cells if isinstance(cells, list) else cells.to_pylist()
        found = next((value for value in values if not is_gap(value)), None)
        gaps, note = sum(map(is_gap, values)), f"holds a {type(found).__name__}"
        return ColumnKind(name, "empty" if found is None else "other", gaps, 0, note)
    return _Inference(name, cells).column_kind(chosen)


class _Inference:
    """Cells of a column that are not missing, their numbers, and questions about them."""

    def __init__(self, name: str, cells: Cells) -> None:
        compute = arrow_modules()[1]
        self.name = name
        plain = cast_numbers(cells)
        if plain is None:
            self.decimal, values, unread = read_numbers(cells)
        else:
            self.decimal, values, unread = ".", plain, np.zeros(len(cells), dtype=np.bool_)
        there = ~np.isnan(values) | unread
        self.gaps = int((~there).sum())
        self.known = compute.filter(cells, there) if self.gaps else cells
        self.values = values[there] if self.gaps else values
        self.is_plain = plain is not None or not is_text(cells)
        counted: Any = self.values
        if unread.any():
            if is_text(cells):
                self.known = compute.utf8_trim_whitespace(self.known)
            counted = self.known
        elif len(counted) > _COUNTED_ROWS:
            # in long columns of fractions, the different values of the first rows
            head = counted[:_COUNTED_ROWS]
            counted = counted if (head == np.floor(head)).all() else head
        self.distinct = int(compute.count_distinct(counted).as_py())

    def column_kind(self, chosen: str | None) -> ColumnKind:
        """Return the kind, ``chosen`` if it is given."""
        kind, note, detail = chosen or "", "", ""
        if chosen not in ("categorical", "text", "id"):
            kind, note, detail = self._inferred(chosen)
        return ColumnKind(self.name, kind, self.gaps, self.distinct, note, detail)

    def _inferred(self, chosen: str | None) -> tuple[str, str, str]:
        """Return the kind, a note on it and how the cells are written."""
        count, decimal, unread = len(self.known), self.decimal, np.isnan(self.values)
        if chosen is None and not count:
            return "empty", "has no value", ""
        if chosen is None and self.distinct == 1 and not self.gaps:
            return "constant", f"is always {self._example(0)}", ""
        share = 1 - unread.mean() if count else 0.0
        if chosen != "date":
            if chosen is None and share == 1 and self._numbers_rows(self.values):
                return "id", "is a number of each row", ""
            if share == 1 or chosen == "numeric":
                return "numeric", self._number_note(), decimal
            if not is_text(self.known) and "timestamp" not in str(self.known.type):
                return "numeric", self._unread_note(unread), f"{decimal}?"
        order, moments, _ = read_days(self.known)
        dated = 1 - np.isnan(moments).mean() if count else 0.0
        if dated == 1 or chosen == "date":
            return "date", self._date_note(order), order
        if share >= _MIN_NUMERIC_SHARE and count >= _MIN_ROWS_OF_IDS:
            return "numeric", self._unread_note(unread), f"{decimal}?"
        kind, note = self._words()
        for part, option in ((share, "numeric"), (dated, "date")):
            if kind != "id" and not note and part >= _MIN_NOTED_SHARE:
                what = "numbers" if option == "numeric" else "dates"
                note = f"{100 * part:.0f} % of the cells are {what}: --{option} reads them"
        return kind, note, ""

    def _example(self, row: int) -> str:
        text = repr(str(categories(self.known[row : row + 1])[0]))
        return text if len(text) <= 24 else f"{text[:20]}...'"

    def _unread_note(self, unread: NDArray[np.bool_]) -> str:
        first = self._example(int(np.argmax(unread)))
        return f"{unread.sum()} cells such as {first} count as missing"

    def _number_note(self) -> str:
        """Show how a number is read that is not plain."""
        if self.is_plain:
            return ""
        odd = np.isnan(numbers(self.known, self.decimal, plain=True)) & ~np.isnan(self.values)
        if self.decimal == "," and not odd.any():
            odd = self.values != np.floor(self.values)
        row = int(np.argmax(odd))
        return f"{self._example(row)} is read as {self.values[row]:g}" if odd.any() else ""

    def _date_note(self, order: str) -> str:
        if order == "dmy" and not np.isnan(days(self.known, "mdy")).any():
            return "read as day, month, year; month, day, year would do, too"
        return ""

    def _numbers_rows(self, values: FloatArray) -> bool:
        """Return whether numbers only count the rows: by the name of the column, or 0, 1, 2, ..."""
        if self.gaps or self.distinct < len(values) or len(values) < _MIN_ROWS_OF_IDS:
            return False
        if not (values == np.floor(values)).all():
            return False
        steps = bool((np.diff(values) == 1).all() and values[0] in (0, 1))
        return bool(_ID_NAME.fullmatch(self.name)) or steps

    def _words(self) -> tuple[str, str]:
        """Tell categories, text and names of rows apart."""
        compute = arrow_modules()[1]
        n = len(self.known)
        if self.distinct <= _FEW_CATEGORIES and n >= _MIN_ROWS_PER_CATEGORY * self.distinct:
            return "categorical", ""
        values = self.known if is_text(self.known) else categories(self.known)
        if self.distinct == n >= _MIN_ROWS_OF_IDS and not self.gaps:
            blanks = compute.any(compute.match_substring(values, " ")).as_py()
            if not blanks or _ID_NAME.fullmatch(self.name):
                return "id", "differs in each row"
        sample = values[:_WORD_SAMPLE_ROWS].to_pylist()
        words = sum(len(text.split()) for text in sample) / len(sample)
        if words >= _MIN_WORDS_OF_TEXT or (
            self.distinct > _MIN_DISTINCT_SHARE * n and n >= _MIN_ROWS_OF_IDS
        ):
            return "text", ""
        counts = compute.value_counts(values).field("counts")
        rare = int((np.asarray(counts) == 1).sum())
        return "categorical", f"{rare} values are there once, and left out" if rare else ""
