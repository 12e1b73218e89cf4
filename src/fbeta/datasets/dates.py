"""Dates in cells, as days since 1970."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.datasets.cells import (
    Cells,
    FloatArray,
    arrow_modules,
    is_text,
    is_worth_reading,
    missing,
    sample_of,
    without_gaps,
)

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
_DATE_LIKE = r"^\s*(?:[0-9]{1,4}(?:st|nd|rd|th)?[-/. ]+[0-9A-Za-z]|[A-Za-z]{3,9}\.? +[0-9])"
#: Orders of year, month (``b``: by its English name) and day; the first that fits is taken.
DATE_ORDERS = tuple(_DATES)
# years of two digits below this are those of 2000 and after, as in POSIX
_CENTURY_PIVOT = 69
_MICROSECONDS_PER_DAY = 86_400e6


def days(cells: Cells, order: str = "iso") -> FloatArray:
    """Return cells as days since 1970; NaN where they are missing or no dates."""
    if is_text(cells):
        return _parsed_days(without_gaps(cells), order)
    found = np.full(len(cells), np.nan)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        known = ~np.isnat(cells)
        found[known] = cells[known].astype(np.int64) / _MICROSECONDS_PER_DAY
    return found


def _parsed_days(text: Any, order: str) -> FloatArray:
    arrow, compute = arrow_modules()
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
    arrow, compute = arrow_modules()
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
    orders = (first, *DATE_ORDERS) if _may_be_dates(cells) else ()
    for order in orders:
        if not is_worth_reading(cells, partial(days, order=order)):
            continue
        other = days(cells, order)
        if np.isnan(other).sum() < np.isnan(found).sum():
            best, found = order, other
        if not (np.isnan(found) & ~gaps).any():
            break
    return best, found, np.isnan(found) & ~gaps


def _may_be_dates(cells: Any) -> bool:
    """Return whether some of a sample of text begin as dates do."""
    compute = arrow_modules()[1]
    return bool(compute.any(compute.match_substring_regex(sample_of(cells), _DATE_LIKE)).as_py())
