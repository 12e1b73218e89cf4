"""The cells of tables: gaps, numbers and dates, as files and data frames have them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

__all__ = ["DATE_ORDERS", "DECIMALS", "date_reader", "is_gap", "to_number"]

#: Text that stands for a missing value.
GAPS = frozenset(
    ("", "?", "-", "--", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NaT", "null", "NULL", "None")
)
_BOOLEAN = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
# Only the usual digits; float() takes those of every script, and 1_0
_PATTERNS = {
    ".": re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?"),
    ",": re.compile(r"[+-]?[0-9]{1,400}(?:,[0-9]{1,400})?"),
}
#: What may be between the whole part of a number and the rest.
DECIMALS = tuple(_PATTERNS)
_DATES = {
    "iso": re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[T ][0-9:.,+-]{4,30}Z?)?"),
    "ymd": re.compile(r"(?P<y>[0-9]{4})[/.](?P<m>[0-9]{1,2})[/.](?P<d>[0-9]{1,2})"),
    "dmy": re.compile(r"(?P<d>[0-9]{1,2})[/.-](?P<m>[0-9]{1,2})[/.-](?P<y>[0-9]{4})"),
    "mdy": re.compile(r"(?P<m>[0-9]{1,2})[/.-](?P<d>[0-9]{1,2})[/.-](?P<y>[0-9]{4})"),
}
_TIME = re.compile(r"[ T]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
#: The orders of year, month and day that are known, the first that fits being taken.
DATE_ORDERS = tuple(_DATES)
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400.0


def is_gap(cell: Any) -> bool:
    """Tell whether a cell is missing.

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


def to_number(cell: Any, decimal: str = ".") -> float | None:
    """Return a cell that is not missing as a number, or None where it is none.

    Examples
    --------
    >>> [to_number(cell) for cell in ("1.5", True, "1,5", "x")], to_number("1,5", ",")
    ([1.5, 1.0, None, None], 1.5)
    """
    if isinstance(cell, str):
        word = cell.strip()
        if word in _BOOLEAN:
            return _BOOLEAN[word]
        if not _PATTERNS[decimal].fullmatch(word):
            return None
        value = float(word.replace(decimal, "."))
    elif isinstance(cell, bool | int | float | Decimal | np.number | np.bool_):
        try:
            value = float(cell)
        except (OverflowError, ValueError):
            return None
    else:
        return None
    return value if math.isfinite(value) else None


def date_reader(order: str) -> Callable[[Any], float | None]:
    """Return a function that turns a cell into days since 1970, or None where it is no date.

    Parameters
    ----------
    order : {"iso", "ymd", "dmy", "mdy"}
        How dates are written as text.

    Examples
    --------
    >>> date_reader("iso")("1970-01-02T12:00"), date_reader("dmy")("3.1.1970")
    (1.5, 2.0)
    """
    pattern = _DATES[order]

    def read(cell: Any) -> float | None:
        try:
            moment = _moment(cell, order, pattern)
            return None if moment is None else (_plain(moment) - _EPOCH).total_seconds() / _DAY
        except (ValueError, OverflowError):
            return None

    return read


def _moment(cell: Any, order: str, pattern: re.Pattern[str]) -> datetime | None:
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, np.datetime64):
        found: Any = cell.astype("datetime64[us]").item()
        return found if isinstance(found, datetime) else None
    if not isinstance(cell, str):
        return None
    word = cell.strip()
    if order == "iso":
        # eight digits alone are a number, not a date
        fits = pattern.fullmatch(word) and not word.isdigit()
        return datetime.fromisoformat(word) if fits else None
    time = _TIME.search(word)
    parts = pattern.fullmatch(word[: time.start()] if time else word)
    if parts is None or (time is not None and time.end() != len(word)):
        return None
    hour, minute, second = (int(part or 0) for part in (time.groups() if time else "000"))
    return datetime(int(parts["y"]), int(parts["m"]), int(parts["d"]), hour, minute, second)


def _plain(moment: datetime) -> datetime:
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
