"""Labels of tables: lists of tags, 0/1 columns and how people fill them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fbeta.datasets import DatasetError
from fbeta.datasets.label_columns import LabelColumns, find_delimiter, read_tags
from fbeta.datasets.table_files import frame_table

TAGS: dict[str, tuple[list[Any], list[list[str]]]] = {
    "semicolons": (["a;b;", " c ", ""], [["a", "b"], ["c"], []]),
    "commas": (["a, b", "c"], [["a", "b"], ["c"]]),
    "bars": (["a|b", "c d"], [["a", "b"], ["c d"]]),
    "python": (["['a', 'b']", "[]"], [["a", "b"], []]),
    "json": (['["a", "b, c"]', "[]", ""], [["a", "b, c"], [], []]),
    "tuples": (["('a', 'b')", "('a',)", "()"], [["a", "b"], ["a"], []]),
    "sets": (["{'b', 'a'}", '{"a"}', "set()"], [["a", "b"], ["a"], []]),
    "braces": (["{b;a}", "(a)", "{}"], [["{b", "a}"], ["(a)"], ["{}"]]),
    "numbers": (["[1, 2]", "[3]"], [["1", "2"], ["3"]]),
    "lists": ([["a"], [], None, ("b", "c")], [["a"], [], [], ["b", "c"]]),
    "arrays": ([np.array(["a", "b"]), np.array([])], [["a", "b"], []]),
    "single": (["a", "b", None, float("nan")], [["a"], ["b"], [], []]),
    "whole": ([1, 2, None], [["1"], ["2"], []]),
}


@pytest.mark.parametrize("name", TAGS)
def test_tags_are_recognised(name: str) -> None:
    cells, expected = TAGS[name]
    delimiter = find_delimiter(cells)
    assert [read_tags(cell, delimiter) for cell in cells] == expected


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["a;b", "c,d"], "';' in 1 different cells and ',' in 1 different cells"),
        (
            ["a;b", "c", "a;b ", "a|b", "c;d"],
            "';' in 2 different cells and '.' in 1 different cells",
        ),
        (
            ["['a']", "b"],
            "lists in 1 different cells and other text in 1 different cells, such as 'b'",
        ),
    ],
)
def test_tags_that_could_be_two_things_are_refused(cells: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_delimiter(cells)
    assert read_tags("a;b", ";") == ["a", "b"]


@pytest.mark.parametrize(
    ("cells", "before", "words"),
    [
        (["a|b", "c", "d|e"], "a;b", "';' in the blocks before and '|' in 2 different cells"),
        (["a|b", "a;b"], "a;b", "';' in 1 different cells and '|' in 1 different cells"),
        (["a;b"], "[]", "lists in the blocks before and other text in 1 different cells, such as"),
        (["['a']"], "a;b", "lists in 1 different cells and other text in the blocks before"),
    ],
)
def test_cells_of_other_blocks_are_not_counted(cells: list[str], before: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        find_delimiter(cells, [before])
    assert "such as 'a;b'" not in str(error.value) or "a;b" in cells


@pytest.mark.parametrize(
    ("cell", "delimiter"),
    [
        ("a;;b", ";"),
        ("[1.5]", None),
        ("['a', None]", None),
        ("[['a']]", None),
        ("{'a': 1}", None),
        ("('a')", None),
        ("[__import__('os')]", None),
        ("[" * 5_000 + "]" * 5_000, None),
        ([""], ";"),
        ([True], ";"),
        (1.5, ";"),
    ],
)
def test_what_is_no_list_of_tags(cell: Any, delimiter: str | None) -> None:
    with pytest.raises(ValueError, match=r"list of names|name of a label"):
        read_tags(cell, delimiter)


def test_columns_of_yes_of_crosses_and_of_blanks() -> None:
    frame = pd.DataFrame(
        {
            "yes": ["yes", "no", "Yes", "NO"],
            "cross": ["x", "", "X", None],
            "one": ["1", "", "", "1"],
            "flag": [True, False, True, False],
            "float": [1.0, 0.0, 1.0, 0.0],
            "blank": [1.0, np.nan, 1.0, np.nan],
        }
    )
    found = LabelColumns(list(frame)).read(frame_table(frame))
    right = [[1, 0, 1, 0]] * 6
    right[2] = [1, 0, 0, 1]
    assert found.Y.T.tolist() == right
    assert found.notes == ("6 blank cells of the label columns count as 0",)
    for cells in (["1", "0", ""], ["1", "2"], ["yes", "maybe"]):
        with pytest.raises(DatasetError, match="0 or 1 in label column 'a'"):
            LabelColumns(["a"]).read(frame_table(pd.DataFrame({"a": cells})))


def test_labels_that_differ_in_case_or_blanks_only() -> None:
    table = frame_table(pd.DataFrame({"t": ["Gift; sale", "gift", "Gift;New  in", "new in"]}))
    found = LabelColumns(column="t").read(table)
    assert found.names == ("Gift", "New  in", "gift", "new in", "sale")
    assert "'Gift' (2) and 'gift' (1); 'New  in' (1) and 'new in' (1)" in found.notes[0]
    joined = LabelColumns(column="t", join=True).read(table)
    assert joined.names == ("Gift", "New  in", "sale")
    assert joined.Y.tolist() == [[1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 1, 0]]


def test_words_for_missing_values_are_labels_where_the_model_has_these() -> None:
    for cells in (["a", "NA", " NA ", "", None], pd.array(["a", "NA", " NA ", "", None], "string")):
        table = frame_table(pd.DataFrame({"t": cells}))
        found = LabelColumns(column="t").read(table)
        assert found.names == ("a",)
        assert found.notes == (
            "4 rows have no label in the column 't': 2 cells 'NA' count as no label "
            "(write 'NA;' for a label of the name 'NA')",
        )
        found = LabelColumns(column="t", delimiter=";").read(table, ["a", "NA"])
        assert (found.Y.tolist(), found.notes) == ([[1, 0], [0, 1], [0, 1], [0, 0], [0, 0]], ())
        assert not found.unknown
    table = frame_table(pd.DataFrame({"t": ["a;b", "NA;", "-", ""]}))
    found = LabelColumns(column="t").read(table)
    assert (found.names, found.Y.sum()) == (("NA", "a", "b"), 3)
    assert "2 rows have no label in the column 't': 1 cells '-' count" in found.notes[0]
    table = frame_table(pd.DataFrame({"t": ["['a']", "None", ""]}))
    assert "write \"['None']\" for" in LabelColumns(column="t").read(table).notes[0]


def test_words_for_missing_values_are_labels_where_they_are_one_of_several() -> None:
    table = frame_table(pd.DataFrame({"t": ["a;NA", "NA", " NA ", "a", "-", "", None]}))
    found = LabelColumns(column="t").read(table)
    assert (found.names, found.Y[:, 0].tolist()) == (("NA", "a"), [1, 1, 1, 0, 0, 0, 0])
    assert found.gap_labels == ("NA",)
    assert found.notes[0] == "2 cells 'NA' are labels, as in cells with several labels"
    assert "3 rows have no label in the column 't': 1 cells '-' count" in found.notes[1]
    later = LabelColumns(column="t", delimiter=";").read(table, ["a"])
    assert (later.unknown, later.notes) == ({"NA": 3}, ())
    sets = LabelColumns(column="t", delimiter=";", gap_labels=found.gap_labels).sets(table)
    assert sets == [["a", "NA"], ["NA"], ["NA"], ["a"], [], [], []]
    # lists and a delimiter at the end say which cells are labels
    for cells in (["a;b", "NA;", "NA"], ['["a", "NA"]', "NA"]):
        found = LabelColumns(column="t").read(frame_table(pd.DataFrame({"t": cells})))
        assert (found.Y.sum(axis=1)[-1], found.gap_labels) == (0, ())


def test_lists_and_text_are_the_same_labels() -> None:
    rng = np.random.default_rng(0)
    names = np.array(["sea", "sky", "sun", "a b"])
    sets = [list(names[rng.random(4) < 0.4]) for _ in range(50)]
    right = [[int(name in row) for name in sorted(names)] for row in sets]
    for cells in (sets, [";".join(row) for row in sets], [str(list(map(str, r))) for r in sets]):
        found = LabelColumns(column="t").read(frame_table(pd.DataFrame({"t": cells})))
        assert found.Y.tolist() == right
    lists = LabelColumns(column="t").sets(frame_table(pd.DataFrame({"t": sets})))
    assert lists == sets
    known = LabelColumns(column="t").read(frame_table(pd.DataFrame({"t": sets})), ["sky", "moon"])
    assert known.Y[:, 0].tolist() == [int("sky" in row) for row in sets]
    assert known.unknown == {n: sum(n in row for row in sets) for n in ("a b", "sea", "sun")}
