"""How cells are read: missing values, numbers and dates."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fbeta.datasets.cells import (
    DATE_ORDERS,
    categories,
    columns_of,
    is_gap,
    missing,
    object_cells,
    to_number,
)
from fbeta.datasets.column_kinds import ColumnValues, numbers, read_best
from fbeta.datasets.tables import plain_values


def parsed(kind: str, cells: Any, way: str) -> Any:
    column = ColumnValues(cells, way)
    return column.parse(kind, way)[column.index]


def days(cells: Any, order: str = "iso") -> Any:
    return parsed("date", cells, order)


@example("0E000000")
@given(st.one_of(st.text(max_size=8), st.from_regex(r"[+-]?[0-9.,eE_٠-٩+-]{1,8}", fullmatch=True)))
def test_numbers_are_those_of_everybody(text: str) -> None:
    found = to_number(text)
    (cell,) = numbers(pa.array([text.encode("utf-8", "replace").decode()]))
    if found is None:
        assert math.isnan(cell) or text.strip().lower() in ("true", "false")
        return
    # an oracle that was written differently: exact rational numbers
    assert text.isascii()
    assert "_" not in text
    assert found == float(Fraction(text.strip()))
    assert cell == found or abs(found) > 1e150


@pytest.mark.parametrize(
    "text", ["١٢", "1_0", "１２", "0x10", "1e999", "inf", "nan", "1 2", "--1", "1,5", "½"]
)
def test_odd_numbers_are_none(text: str) -> None:
    assert to_number(text) is None
    assert math.isnan(numbers(pa.array([text]))[0])
    assert math.isnan(parsed("numeric", pa.array([text]), ".")[0])


def test_numbers_of_other_types() -> None:
    cells: list[Any] = [1, 2.5, np.float32(1.5), np.int8(3), Decimal("0.5"), True, math.inf]
    np.testing.assert_array_equal(
        numbers(object_cells(cells)), [1.0, 2.5, 1.5, 3.0, 0.5, 1.0, np.nan]
    )
    assert np.isnan(numbers(object_cells([10**400, 1]))[0])
    np.testing.assert_array_equal(numbers(object_cells([3, "4", None])), [3, 4, np.nan])


PEOPLE = {
    "$1,338.30": (".", 1338.30),
    "1,338": (".", 1338.0),
    "1.338,30": (",", 1338.30),
    "1.338.000": (",", 1338000.0),
    "40 %": (".", 40.0),
    "12,5%": (",", 12.5),
    "1 338,30": (",", 1338.30),
    "1\u202f338,30 \u20ac": (",", 1338.30),
    "1'338.30": (".", 1338.30),
    "-$3": (".", -3.0),
    "\u00a3-3.5": (".", -3.5),
    "+5": (".", 5.0),
    "(1,338.30)": (".", -1338.30),
    "($5)": (".", -5.0),
    "$(1e3)": (".", -1000.0),
    "(1.338,30 \u20ac)": (",", -1338.30),
}


@pytest.mark.parametrize("text", PEOPLE)
def test_numbers_as_people_write_them(text: str) -> None:
    decimal, value = PEOPLE[text]
    assert parsed("numeric", pa.array([text]), decimal)[0] == pytest.approx(value, rel=1e-15)
    assert read_best(pa.array([text, text]), "numeric", ".")[:1] == (decimal,)


def test_a_column_is_read_with_one_decimal_mark() -> None:
    decimal, values, unread = read_best(pa.array(["1,338", "2,5", "NA", "x"]), "numeric", ".")
    assert decimal == ","
    np.testing.assert_array_equal(values, [1.338, 2.5, np.nan, np.nan])
    assert unread.tolist() == [False, False, False, True]
    # the mark of the training counts where both would do
    assert read_best(pa.array(["1,338"]), "numeric", ",")[1].tolist() == [1.338]
    assert read_best(pa.array(["1.5", "2.25"]), "numeric", ",")[:1] == (".",)


def test_a_single_number_among_words_is_read() -> None:
    cells = pa.array(
        [*(f"word {i}" for i in range(1000)), "1,5", *(f"{i} th" for i in range(1000))]
    )
    decimal, values, unread = read_best(cells, "numeric", ",")
    assert (decimal, np.flatnonzero(~np.isnan(values)).tolist(), values[1000]) == (",", [1000], 1.5)
    assert unread.sum() == 2000


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 12))
def test_dates_are_days(moment: datetime, hours: int) -> None:
    exact = (moment - datetime(1970, 1, 1)) / timedelta(days=1)

    def read(text: Any, order: str = "iso") -> float:
        return float(days(object_cells([text]), order)[0])

    assert read(moment.isoformat(sep=" ")) == pytest.approx(exact, abs=1e-9)
    assert read(moment) == pytest.approx(exact, abs=1e-9)
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    assert read(there.isoformat()) == pytest.approx(exact, abs=1e-9)
    whole = math.floor(exact)
    assert read(moment.strftime("%d.%m.%Y"), "dmy") == whole
    assert read(f"{moment.month}/{moment.day}/{moment:%Y}", "mdy") == whole
    assert read(moment.strftime("%d %b %Y"), "dby") == whole
    assert read(moment.strftime("%B %d, %Y"), "bdy") == whole
    assert read(moment.strftime("%d %B %Y").upper(), "dby") == whole
    assert read(moment.strftime("%A, %B %d, %Y"), "bdy") == whole
    assert read(moment.strftime("%dth of %B %Y"), "dby") == whole
    for clock in ("%H:%M", "%I:%M %p", "%I:%M%p"):
        found = read(moment.strftime(f"%Y/%m/%d {clock}"), "ymd")
        assert found == pytest.approx(whole + (moment.hour * 60 + moment.minute) / 1440)
    mail = there.strftime("%a, %d %b %Y %H:%M:%S %z")
    assert read(mail, "dby") == pytest.approx(exact, abs=1.2e-5)


def test_years_of_two_digits() -> None:
    found = days(pa.array(["12/31/24", "12/31/68", "12/31/69"]), "mdy")
    expected = [datetime(year, 12, 31) for year in (2024, 2068, 1969)]
    assert found.tolist() == [(d - datetime(1970, 1, 1)).days for d in expected]


@pytest.mark.parametrize(
    "text",
    ["20240131", "2024-13-01", "31.2.2024", "x", "0000-01-01", "", 7, "2024-01-01 13:00 PM"],
)
def test_what_is_no_date(text: Any) -> None:
    cells = object_cells([text])
    assert all(np.isnan(days(cells, order)).all() for order in DATE_ORDERS)


def test_dates_of_another_order_are_read_alike() -> None:
    order, found, unread = read_best(pa.array(["31 Dec 2024", "?", "1 Feb 2023"]), "date", "iso")
    assert (order, unread.any()) == ("dby", False)
    same = days(pa.array(["2024-12-31", "", "2023-02-01"]))
    np.testing.assert_array_equal(found, same)


def test_frames_of_every_library_have_the_same_cells() -> None:
    data = {"a": [1, 2], "b": [1.5, None], "c": ["x", None], "d": [["u"], []], "e": [True, False]}
    frames = [pd.DataFrame(data), pl.DataFrame(data), pa.table(data)]
    for frame in frames:
        names, columns = columns_of(frame)
        assert names == list(data)
        np.testing.assert_array_equal(np.asarray(columns[0]), [1, 2])
        np.testing.assert_array_equal(missing(columns[1]), [False, True])
        np.testing.assert_array_equal(missing(columns[2]), [False, True])
        assert columns[4].to_pylist() == [True, False]


def test_objects_of_several_types() -> None:
    moments = [date(2024, 1, 1), datetime(2024, 1, 2, 12), np.datetime64("2024-01-03"), pd.NaT]
    first = (date(2024, 1, 1) - date(1970, 1, 1)).days
    np.testing.assert_array_equal(
        days(object_cells(moments)), [first, first + 1.5, first + 2, np.nan]
    )
    np.testing.assert_array_equal(numbers(object_cells([True, 2, pd.NA])), [1, 2, np.nan])
    assert object_cells(["a", 1, pd.NA, 2.0]).to_pylist() == ["a", "1", None, "2"]
    assert object_cells(["half \ud800 pair"]).to_pylist() == ["half ? pair"]
    assert missing(object_cells([{"a": 1}, None])).tolist() == [False, True]


def test_dates_beyond_the_calendar_of_python():
    pa = pytest.importorskip("pyarrow")
    cells = pa.array([2**62, None], pa.timestamp("us"))
    assert categories(cells).to_pylist() == [str(2**62), ""]
    assert len(plain_values(cells, typed=True)) == 2


@given(st.lists(st.sampled_from(["a", " a ", "b", "NA", "", None, "1", "c d"]), max_size=30))
def test_values_of_text_are_those_of_the_cells(cells: list[Any]) -> None:
    known = [None if is_gap(cell) else cell.strip() for cell in cells]
    column = ColumnValues(pa.array(cells, pa.string()), ",")  # numbers are not cast
    words, counts = column.known.to_pylist(), column.counts
    rows = np.arange(len(words))[column.index].tolist()
    assert [words[i] for i in rows] == known
    assert counts.tolist() == [
        rows.count(place) if word is not None else 0 for place, word in enumerate(words)
    ]
    # in the order of their first cells
    assert list(dict.fromkeys(filter(None, words))) == list(dict.fromkeys(filter(None, known)))


UNITS = ["$", "\u20ac", "EUR", "USD ", "CHF", ""]


@given(
    st.decimals(-(10**9), 10**9, places=2),
    st.sampled_from(UNITS),
    st.sampled_from(["", " %", "%", " EUR", "\u00a3"]),
    st.sampled_from([",", "'", "\u202f", " ", ""]),
)
def test_units_and_group_marks_change_no_number(
    value: Decimal, before: str, after: str, mark: str
) -> None:
    digits = f"{abs(value):,}".replace(",", mark)
    text = f"{'-' if value < 0 else ''}{before}{digits}{after}"
    assert parsed("numeric", pa.array(["$1", text]), ".")[1] == float(value)
    swapped = digits.replace(".", "\0").replace(",", ".").replace("\0", ",")
    text = f"{before}{'-' if value < 0 else ''}{swapped}{after}"
    assert parsed("numeric", pa.array(["$1", text]), ",")[1] == float(value)


MIXED = {
    "0,123": math.nan,  # digits in groups begin with no 0
    "1,234": 1234.0,
    "01,234": math.nan,
    "1e0000012": 1e12,
    "1e000123456": math.nan,
    "1E5 EUR": 1e5,
    "0.12345678901234567": 0.12345678901234567,
    "$12,345,678,901,234,567.25": 12345678901234567.25,
    "-$0.00": -0.0,
    "NA": math.nan,
    "TRUE": 1.0,
    "1.5 %": 1.5,
    " 7": 7.0,
}


@pytest.mark.parametrize("repeats", [1, 50])
def test_numbers_of_many_forms_in_one_column(repeats: int) -> None:
    found = parsed("numeric", pa.array([*MIXED] * repeats), ".")
    expected = np.array([*MIXED.values()] * repeats)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
