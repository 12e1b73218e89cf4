"""What columns are taken for, and how their cells are read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbeta.datasets.cells import date_reader, is_gap, to_number
from fbeta.datasets.column_kinds import look_at
from fbeta.datasets.tags import TagForm, find_tag_form, read_tags

N = 40
WORDS = [
    "the",
    "old",
    "house",
    "by",
    "the",
    "sea",
    "has",
    "a",
    "red",
    "door",
    "and",
    "a",
    "small",
    "garden",
    "behind",
    "it",
]


def sentence(i: int) -> str:
    return " ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 7))


COLUMNS: dict[str, tuple[list[Any], str, str]] = {
    "whole": ([str(3 * i % 17) for i in range(N)], "numeric", "."),
    "real": ([f"{i / 7:.3f}" for i in range(N)], "numeric", "."),
    "exponent": ([f"{i}e-3" for i in range(N)], "numeric", "."),
    "comma": ([f"{i // 3},{i % 10}" for i in range(N)], "numeric", ","),
    "gaps": (["", "NA", "?", *(str(i % 5) for i in range(N))], "numeric", "."),
    "odd words": (["about 7", *(str(i % 5) for i in range(N))], "numeric", ".?"),
    "boolean": (["True", "False"] * N, "numeric", "."),
    "booleans": ([True, False] * N, "numeric", "."),
    "floats": ([1.5, float("nan"), 2.5] * N, "numeric", "."),
    "colour": (["red", "green", "blue", "red"] * 10, "categorical", ""),
    "answers": (["I do agree with all of this", "I do not agree with it"] * N, "categorical", ""),
    "surname": ([f"name{i % 15}" for i in range(N)], "categorical", ""),
    "note": ([sentence(i) for i in range(N)], "text", ""),
    "title": ([f"{WORDS[i % 14]} {WORDS[i % 11]} {i % 19}" for i in range(N)], "text", ""),
    "when": ([f"2024-03-{1 + i % 28:02d}" for i in range(N)], "date", "iso"),
    "moment": ([f"2024-03-{1 + i % 28:02d}T10:{i:02d}:00Z" for i in range(N)], "date", "iso"),
    "german": ([f"{1 + i % 28}.{1 + i % 12}.2023" for i in range(N)], "date", "dmy"),
    "american": ([f"{1 + i % 12}/{1 + i % 28}/2023" for i in range(N)], "date", "mdy"),
    "japanese": ([f"2023/{1 + i % 12}/{1 + i % 28}" for i in range(N)], "date", "ymd"),
    "stamp": ([pd.Timestamp("2024-01-01") + timedelta(days=i) for i in range(N)], "date", "iso"),
    "days": ([date(2024, 1, 1 + i % 28) for i in range(N)], "date", "iso"),
    "code": ([f"A-{i:04d}" for i in range(N)], "id", ""),
    "user_id": ([str(977 * i + 13) for i in range(N)], "id", ""),
    "counter": ([str(i) for i in range(N)], "id", ""),
    "year": ([str(1980 + i) for i in range(N)], "numeric", "."),
    "same": (["x"] * N, "constant", ""),
    "flag": (["x", ""] * N, "categorical", ""),
    "nothing": (["", "NA"] * N, "empty", ""),
    "lists": ([["a"], []] * N, "other", ""),
    "objects": ([{"a": 1}] * N, "other", ""),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kinds(name: str) -> None:
    cells, kind, detail = COLUMNS[name]
    look = look_at(name, cells)
    assert (look.kind, look.detail) == (kind, detail)
    assert look.gaps == sum(map(is_gap, cells))


def test_the_user_decides() -> None:
    cells = [str(i % 5) for i in range(N)]
    for kind in ("numeric", "categorical", "text", "date", "id"):
        assert look_at("x", cells, kind).kind == kind


def test_what_is_dropped_is_said() -> None:
    assert look_at("x", ["7"] * N).note == "is always '7'"
    assert (
        "1 cells such as 'about 7' count as missing" in look_at("x", COLUMNS["odd words"][0]).note
    )
    once = look_at("x", [*"abcdefgh", *("z" * 20)])
    assert (once.kind, once.note) == ("categorical", "8 values are there once, and left out")
    both = look_at("x", ["1/2/2024", "3/4/2024"])
    assert (both.detail, "month, day" in both.note) == ("dmy", True)


@given(st.one_of(st.text(max_size=8), st.from_regex(r"[+-]?[0-9.,eE_٠-٩+-]{1,8}", fullmatch=True)))
def test_numbers_are_those_of_everybody(text: str) -> None:
    found = to_number(text)
    if found is None or text.strip().lower() in ("true", "false"):
        return
    # an oracle that was written differently: exact rational numbers
    assert text.isascii()
    assert "_" not in text
    assert found == float(Fraction(text.strip()))


@pytest.mark.parametrize(
    "text", ["١٢", "1_0", "１２", "0x10", "1e999", "inf", "nan", "1 2", "--1", "1,5", "½"]
)
def test_odd_numbers_are_none(text: str) -> None:
    assert to_number(text) is None


def test_numbers_of_other_types() -> None:
    cells = [1, 2.5, np.float32(1.5), np.int8(3), Decimal("0.5"), True, 10**400, math.inf, object()]
    assert [to_number(c) for c in cells] == [1.0, 2.5, 1.5, 3.0, 0.5, 1.0, None, None, None]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.integers(-12, 12))
def test_dates_are_days(moment: datetime, hours: int) -> None:
    exact = (moment - datetime(1970, 1, 1)) / timedelta(days=1)
    assert date_reader("iso")(moment.isoformat(sep=" ")) == pytest.approx(exact, abs=1e-9)
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    assert date_reader("iso")(there.isoformat()) == pytest.approx(exact, abs=1e-9)
    whole = math.floor(exact)
    assert date_reader("dmy")(moment.strftime("%d.%m.%Y")) == whole
    assert date_reader("mdy")(f"{moment.month}/{moment.day}/{moment:%Y}") == whole
    clock = date_reader("ymd")(moment.strftime("%Y/%m/%d %H:%M"))
    assert clock == pytest.approx(whole + (moment.hour * 60 + moment.minute) / 1440)


@pytest.mark.parametrize("text", ["20240131", "2024-13-01", "31.2.2024", "x", "0000-01-01", "", 7])
def test_what_is_no_date(text: Any) -> None:
    assert all(date_reader(order)(text) is None for order in ("iso", "ymd", "dmy", "mdy"))


TAGS: dict[str, tuple[list[Any], list[list[str]]]] = {
    "semicolons": (["a;b;", " c ", ""], [["a", "b"], ["c"], []]),
    "commas": (["a, b", "c"], [["a", "b"], ["c"]]),
    "bars": (["a|b", "c d"], [["a", "b"], ["c d"]]),
    "python": (["['a', 'b']", "[]"], [["a", "b"], []]),
    "json": (['["a", "b, c"]', "[]", ""], [["a", "b, c"], [], []]),
    "numbers": (["[1, 2]", "[3]"], [["1", "2"], ["3"]]),
    "lists": ([["a"], [], None, ("b", "c")], [["a"], [], [], ["b", "c"]]),
    "arrays": ([np.array(["a", "b"]), np.array([])], [["a", "b"], []]),
    "single": (["a", "b", None, float("nan")], [["a"], ["b"], [], []]),
    "whole": ([1, 2, None], [["1"], ["2"], []]),
}


@pytest.mark.parametrize("name", TAGS)
def test_tags_are_recognised(name: str) -> None:
    cells, expected = TAGS[name]
    form = find_tag_form(cells)
    assert [read_tags(cell, form) for cell in cells] == expected


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["a;b", "c,d"], "';' in 1 cells and ',' in 1 cells"),
        (["['a']", "b"], "lists in 1 cells and other text in 1, such as 'b'"),
    ],
)
def test_tags_that_could_be_two_things_are_refused(cells: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_tag_form(cells)
    assert read_tags("a;b", find_tag_form(["a;b", "c,d"], ";")) == ["a", "b"]


@pytest.mark.parametrize(
    ("cell", "form"),
    [
        ("a;;b", TagForm()),
        ("[1.5]", TagForm(True)),
        ("['a', None]", TagForm(True)),
        ("[['a']]", TagForm(True)),
        ("{'a'}", TagForm(True)),
        ("[__import__('os')]", TagForm(True)),
        ("[" * 5_000 + "]" * 5_000, TagForm(True)),
        ([""], TagForm()),
        ([True], TagForm()),
        (1.5, TagForm()),
    ],
)
def test_what_is_no_list_of_tags(cell: Any, form: TagForm) -> None:
    with pytest.raises(ValueError, match=r"list of names|name of a label"):
        read_tags(cell, form)


def test_a_delimiter_is_something() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        TagForm(delimiter="")
