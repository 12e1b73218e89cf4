"""What columns are taken for, and how their cells are read."""

from __future__ import annotations

import itertools
import time
from datetime import date, timedelta
from typing import Any

import pandas as pd
import pytest

from fbeta.datasets.cells import is_gap, object_cells
from fbeta.datasets.column_kinds import ColumnKind, infer_kinds, read_best

N = 40


def infer(name: str, cells: list[Any], kind: str | None = None) -> ColumnKind:
    chosen = {} if kind is None else {name: kind}
    (found,) = infer_kinds({name: object_cells(cells)}, chosen)
    return found


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
    "money": ([f"${i},{338 + i}.30" for i in range(1, N)], "numeric", "."),
    "euro": ([f"{i}.{338 + i},30 \u20ac" for i in range(1, N)], "numeric", ","),
    "share": ([f"{7 * i % 30} %" for i in range(N)], "numeric", "."),
    "short": ([f"12/{1 + i % 31}/24" for i in range(N)], "date", "mdy"),
    "named": ([f"{1 + i % 28} Dec 2024" for i in range(N)], "date", "dby"),
    "mixed": (["2024-12-31", "Dec 30, 2024", "29 Dec 2024", "2024/12/28"] * N, "date", "iso"),
    "either": (["2024-12-31", "2024-12-30", "4/3/24"] * N, "date", "dmy"),
    "month first": (["2024-12-31", "2024-12-30", "4/3/24", "4/30/24"] * N, "date", "mdy"),
    "answer": (["yes", "no"] * N, "categorical", ""),
    "huge": ([-1e308, *(float(i % 7) for i in range(N))], "numeric", ".?"),
    "same": (["x"] * N, "constant", ""),
    "flag": (["x", ""] * N, "categorical", ""),
    "nothing": (["", "NA"] * N, "empty", ""),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kinds(name: str) -> None:
    cells, kind, detail = COLUMNS[name]
    found = infer(name, cells)
    assert (found.kind, found.detail) == (kind, detail)
    assert found.gaps == sum(map(is_gap, cells))


@pytest.mark.parametrize("cells", [[["a"], []], [{"a": 1}], [["a", 1], []], [b"a"]])
def test_what_is_no_feature(cells: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"'x' holds a {type(cells[0]).__name__}"):
        infer("x", cells)


def test_the_user_decides() -> None:
    cells = [str(i % 5) for i in range(N)]
    for kind in ("numeric", "categorical", "text", "date", "id"):
        assert infer("x", cells, kind).kind == kind


def test_what_is_dropped_is_said() -> None:
    assert infer("x", ["7"] * N).note == "is always '7'"
    assert "1 cells such as 'about 7' count as missing" in infer("x", COLUMNS["odd words"][0]).note
    once = infer("x", [*"abcdefgh", *("z" * 20)])
    assert (once.kind, once.note) == ("categorical", "8 values are there once, and left out")
    assert infer("x", ["$1,338.30", "2"]).note == "'$1,338.30' is read as 1338.3"
    assert "1 cells such as '-1e+308' count as missing" in infer("x", COLUMNS["huge"][0]).note
    assert infer("x", ["2024-01-01", "soon"] * 9).note == (
        "50 % of the cells are dates: --date names the others"
    )
    units = infer("x", [f"${i + 1}.{i % 7}M" for i in range(N)])  # they differ, and are no names
    assert (units.kind, units.note[:38]) == ("text", "'$1.0M' is a word: a number without it")
    assert "'102 min' is a word" in infer("x", ["102 min", "95 min", "short"] * 9).note
    assert infer("x", [f"{i + 1:04}A" for i in range(N)]).kind == "id"
    for part in ("Dec {}", "Q3 {}", "{}-W07", "{}-12", "12/{}"):
        found = infer("x", [part.format(1950 + i) for i in range(N)])
        assert f"{part.format(1950)!r} is a word" in found.note
    assert "'00:00' is a word" in infer("x", [f"{i % 24:02}:{i % 60:02}" for i in range(N)]).note
    assert not infer("x", ["10-19", "20-29", "30-39"] * 9).note
    both = infer("x", ["1/2/2024", "3/4/2024"])
    assert (both.detail, "month, day" in both.note) == ("dmy", True)


def test_days_and_months_have_one_order_among_dates_of_several_forms() -> None:
    cells = ["2024-12-31", "2024-12-30", "4/3/24", "30 Apr 2024"]
    assert "month, day" in infer("x", cells).note
    for first, day in (("dmy", date(2024, 3, 4)), ("mdy", date(2024, 4, 3))):
        order, values, unread = read_best(object_cells(cells), "date", first)
        days = [(d - date(1970, 1, 1)).days for d in (date(2024, 12, 31), date(2024, 12, 30), day)]
        assert (order, values[:3].tolist(), unread.any()) == (first, days, False)
    assert infer("x", ["31/12/24", "30/12/24", "12/29/24"] * N).kind != "date"


def test_words_between_numbers_are_no_months() -> None:
    """Nor does a column of them take long, though all words differ."""
    words = ["".join(letters) for letters in itertools.product("abcdefghij", repeat=4)]
    start = time.process_time()
    assert infer("x", [f"{1 + i % 28} {word} 2024" for i, word in enumerate(words)]).kind == "text"
    assert infer("x", ["\u017fep 5 2024", "Sep 5 2024"] * 9).kind == "categorical"
    assert time.process_time() - start < 0.6


LONG = 12_000


def test_long_columns() -> None:
    codes = [f"A{i}" for i in range(LONG)]
    assert infer("x", codes).kind == "id"
    assert infer("x", [*codes[:-1], codes[0]]).kind == "text"
    notes = [f"{sentence(i)} number {i}" for i in range(LONG)]
    assert infer("x", notes).kind == "text"
    assert infer("row id", notes).kind == "id"
    repeated = [codes[min(i, 10_000 + i % 100)] for i in range(5 * LONG)]
    assert infer("x", repeated) == ColumnKind(
        "x", "categorical", 0, 10_100, "10000 values are there once, and left out"
    )
    rare = ["0"] * LONG + [f"word{i}" for i in range(LONG // 20)]
    assert (infer("x", rare).kind, infer("x", rare).detail) == ("numeric", ".?")
    constant = infer("x", ["$ 1.50"] * LONG)
    assert (constant.kind, constant.note) == ("constant", "is always '$ 1.50'")


@pytest.mark.parametrize("kind", [int, str])
def test_integers_that_share_floats_are_counted_apart(kind: type) -> None:
    ids = [kind(1_590_000_000_000_000_001 + 3 * i) for i in range(60)]
    assert infer("id", ids) == ColumnKind("id", "id", 0, 60, "is a number of each row")
    assert infer("size", ids).distinct == 60
    assert infer("id", [*ids[1:], ids[1], kind(2), None]).kind == "numeric"
    assert infer("id", [*ids[1:], ids[1], kind(2), None]).distinct == 60


def test_gaps_are_no_values() -> None:
    """Gaps among repeated values count for no report."""
    comma = infer("x", ["NaN", "3992,60", "NaN"])
    assert (comma.gaps, comma.note) == (2, "'3992,60' is read as 3992.6")
    codes = [f"A{i % 25}" for i in range(100)]
    assert infer("x", [*codes, "NA", "?", " "]).distinct == 25
    money = [f"${i:,}.50" for i in range(900, 1100)]
    found = infer("x", [*money, "", "-"])
    assert (found.kind, found.detail, found.gaps, found.distinct) == ("numeric", ".", 2, 200)
