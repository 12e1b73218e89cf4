"""What a column holds, by a look at it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fbeta.datasets.cells import DATE_ORDERS, DECIMALS, date_reader, is_gap, to_number

__all__ = ["KINDS", "Look", "look_at"]

#: Kinds that become features, and those that are left out.
KINDS = ("numeric", "categorical", "text", "date")
LEFT_OUT = ("id", "constant", "empty")

# below this, that all values differ says nothing
_FEW = 10
# so many of the cells have to be numbers for the others to be taken for gaps
_MOSTLY = 0.9
# up to so many values are categories, however long their names, if each is there often
_CATEGORIES, _OFTEN = 20, 5
# that many words, or that many of them different, are text
_WORDS, _MOST_DIFFER = 4.0, 0.5
_ID_NAME = re.compile(
    r"(?i:(row|record|sample|item|case|user)?[_ -]?(id|uuid|guid|key|index|idx|no|nr|number))"
    r"|.*[_ -](?i:id|uuid|guid)|.*[a-z]I[dD]|(?i:unnamed: [0-9]+)"
)


@dataclass(frozen=True)
class Look:
    """What a column seems to hold.

    Attributes
    ----------
    name : str
        Of the column.
    kind : str
        One of ``KINDS``; or ``"id"``, ``"constant"``, ``"empty"``, which say nothing of other rows;
        or ``"other"`` for lists and objects.
    gaps : int
        Cells without a value.
    distinct : int
        Different values.
    note : str
        What else is to be said.
    detail : str
        How the cells are written: the decimal sign of numbers, the order of dates.
    """

    name: str
    kind: str
    gaps: int
    distinct: int
    note: str = ""
    detail: str = ""


def look_at(name: str, cells: Sequence[Any], kind: str | None = None) -> Look:
    """Look at the cells of a column.

    Parameters
    ----------
    name : str
        Of the column.
    cells : sequence
        Its cells, as text or as a data frame has them.
    kind : str, optional
        What it is to be, whatever it looks like.

    Returns
    -------
    Look

    Examples
    --------
    >>> look = look_at("size", ["1,5", "", "2"])
    >>> look.kind, look.gaps, look.detail
    ('numeric', 1, ',')
    >>> look_at("when", ["3.1.2024", "31.12.2023"]).kind
    'date'
    >>> look_at("colour", ["red", "blue", "red"]).kind
    'categorical'
    """
    values = [cell for cell in cells if not is_gap(cell)]
    gaps = len(cells) - len(values)
    if not all(_is_plain(value) for value in values):
        bad = next(value for value in values if not _is_plain(value))
        return Look(name, "other", gaps, 0, f"holds a {type(bad).__name__}")
    distinct = len({str(value) for value in values})
    found, note, detail = (kind, "", "") if kind in ("categorical", "text", "id") else ("", "", "")
    if not found:
        found, note, detail = _guess(name, values, gaps, distinct, kind)
    return Look(name, found, gaps, distinct, note, detail)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, list | tuple | dict | set | bytes) and np.ndim(value) == 0


def _guess(
    name: str, values: list[Any], gaps: int, distinct: int, wanted: str | None
) -> tuple[str, str, str]:
    """Return the kind, a note on it and how its cells are written."""
    if wanted is None:
        if not values:
            return "empty", "has no value", ""
        if distinct == 1 and not gaps:
            return "constant", f"is always {_short(values[0])}", ""
    if wanted in (None, "numeric"):
        share, decimal = _best(values, {d: partial(to_number, decimal=d) for d in DECIMALS})
        if share == 1 and wanted is None and _counts(name, values, gaps, distinct, decimal):
            return "id", "is a number of each row", ""
        odd = sum(to_number(value, decimal) is None for value in values)
        if not odd or wanted == "numeric":
            return "numeric", "", decimal
    if wanted in (None, "date"):
        readers = {order: date_reader(order) for order in DATE_ORDERS}
        # without a wish every cell has to be a date, which one that is none settles
        whole = next((o for o, read in readers.items() if _all(values, read)), None)
        if whole is not None or wanted == "date":
            order = whole or _best(values, readers)[1]
            return "date", _date_note(values, order), order
    if share >= _MOSTLY and len(values) >= _FEW:
        first = next(value for value in values if to_number(value, decimal) is None)
        return "numeric", f"{odd} cells such as {_short(first)} count as missing", f"{decimal}?"
    return (*_words(name, [str(value) for value in values], gaps, distinct), "")


def _best(
    values: list[Any], readers: dict[str, Callable[[Any], float | None]]
) -> tuple[float, str]:
    """Return the share of cells that the best reader can read, and its name."""
    best, name = -1.0, ""
    for key, read in readers.items():
        share = sum(read(value) is not None for value in values) / max(len(values), 1)
        if share > best:
            best, name = share, key
        if best == 1:
            break
    return best, name


def _all(values: list[Any], read: Callable[[Any], float | None]) -> bool:
    return bool(values) and all(read(value) is not None for value in values)


def _date_note(values: list[Any], order: str) -> str:
    if order != "dmy" or any(date_reader("mdy")(value) is None for value in values):
        return ""
    return "read as day, month, year; month, day, year would do, too"


def _counts(name: str, values: list[Any], gaps: int, distinct: int, decimal: str) -> bool:
    """Tell numbers that only number the rows: by the name of the column, or 0, 1, 2, ..."""
    if gaps or distinct < len(values) or len(values) < _FEW:
        return False
    numbers = [to_number(value, decimal) or 0.0 for value in values]
    if not all(number.is_integer() for number in numbers):
        return False
    steps = all(number == numbers[0] + i for i, number in enumerate(numbers))
    return bool(_ID_NAME.fullmatch(name)) or (steps and numbers[0] in (0, 1))


def _words(name: str, values: list[str], gaps: int, distinct: int) -> tuple[str, str]:
    """Tell categories, text and names of rows apart."""
    n = len(values)
    if distinct <= _CATEGORIES and n >= _OFTEN * distinct:
        return "categorical", ""
    blanks = any(" " in value.strip() for value in values)
    if distinct == n >= _FEW and not gaps and (not blanks or _ID_NAME.fullmatch(name)):
        return "id", "differs in each row"
    words = sum(len(value.split()) for value in values) / n
    if words >= _WORDS or (distinct > _MOST_DIFFER * n and n >= _FEW):
        return "text", ""
    rare = sum(count == 1 for count in Counter(values).values())
    return "categorical", f"{rare} values are there once, and left out" if rare else ""


def _short(value: Any) -> str:
    text = repr(str(value))
    return text if len(text) <= 24 else f"{text[:20]}...'"
