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
    cast_numbers,
    categories,
    compute,
    days,
    is_gap,
    is_list,
    is_text,
    numbers,
    read_days,
    read_numbers,
    without_gaps,
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

    with ThreadPoolExecutor() as pool:  # Arrow computes without the interpreter's lock
        found = list(pool.map(infer, columns))
    bad = [f"{column.name!r} {column.note}" for column in found if column.kind == "other"]
    if bad:
        raise ValueError(f"columns that are no features: {', '.join(bad)}")
    return found


class _Inference:
    """Cells of a column that are not missing, their numbers, and questions about them."""

    def __init__(self, name: str, cells: Cells) -> None:
        self.name = name
        plain = cast_numbers(cells)
        self.is_plain = plain is not None or not is_text(cells)
        known = cells if self.is_plain else without_gaps(cells)
        gaps = compute.is_null(known, nan_is_null=True) if plain is None else np.isnan(plain)
        there = ~np.asarray(gaps)
        self.gaps = int((~there).sum())
        self.known = compute.filter(known, there) if self.gaps else known
        if plain is None:
            self.decimal, self.values, _ = read_numbers(self.known, clean=True)
        else:
            self.decimal, self.values = ".", plain[there]
        counted: Any = self.known if np.isnan(self.values).any() else self.values
        if counted is self.values and len(counted) > _COUNTED_ROWS:
            # in long columns of fractions, the different values of the first rows
            head = counted[:_COUNTED_ROWS]
            counted = counted if (head == np.floor(head)).all() else head
        self.distinct = len(compute.unique(counted))

    def infer(self, chosen: str) -> tuple[str, str, str]:
        """Return the kind, ``chosen`` if it is given, a note and how the cells are written."""
        count, decimal, unread = len(self.known), self.decimal, np.isnan(self.values)
        if not chosen and not count:
            return "empty", "has no value", ""
        if not chosen and self.distinct == 1 and not self.gaps:
            return "constant", f"is always {self._example(0)}", ""
        share = 1 - unread.mean() if count else 0.0
        lenient = "numeric", self._unread_note(unread), f"{decimal}?"
        if chosen != "date":
            if not chosen and share == 1 and self._counts_rows():
                return "id", "is a number of each row", ""
            if share == 1 or chosen == "numeric":
                return "numeric", self._number_note(), decimal
            if not is_text(self.known) and "timestamp" not in str(self.known.type):
                return lenient
        order, moments, _ = read_days(self.known, clean=True)
        dated = 1 - np.isnan(moments).mean() if count else 0.0
        if dated == 1 or chosen == "date":
            either = order == "dmy" and not np.isnan(days(self.known, "mdy")).any()
            note = "read as day, month, year; month, day, year would do, too" if either else ""
            return "date", note, order
        if share >= _MIN_NUMERIC_SHARE and count >= _MIN_ROWS_OF_IDS:
            return lenient
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
        first = self._example(int(np.argmax(unread))) if unread.any() else ""
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

    def _counts_rows(self) -> bool:
        """Return whether numbers only count the rows: by the name of the column, or 0, 1, 2, ..."""
        values = self.values
        differ = not self.gaps and self.distinct >= len(values) >= _MIN_ROWS_OF_IDS
        if not differ or not (values == np.floor(values)).all():
            return False
        steps = bool((np.diff(values) == 1).all() and values[0] in (0, 1))
        return bool(_ID_NAME.fullmatch(self.name)) or steps

    def _words(self) -> tuple[str, str]:
        """Tell categories, text and names of rows apart."""
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
