from __future__ import annotations

import csv
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fbeta.datasets import Dataset, DatasetError, read_csv, read_parquet
from fbeta.datasets.cells import arrow_cells, object_cells
from fbeta.datasets.tables import plain_values, save_table

CSV = "id,size,y_cat,age,y_dog\n7,1.5,1,2,0\n8,-3e1,0,.25,1\n"


def test_labels_by_name_in_the_given_order(write) -> None:
    data = read_csv(write("toy.csv", CSV), labels=["y_dog", "y_cat"], drop=["id"])
    assert data.label_names == ("y_dog", "y_cat")
    assert data.Y.tolist() == [[0, 1], [1, 0]]
    assert data.feature_names == ("size", "age")
    assert data.X.tolist() == [[1.5, 2], [-30, 0.25]]
    assert data.name == "toy"


def test_labels_by_prefix_in_file_order(write) -> None:
    data = read_csv(write("toy.csv", CSV), label_prefix="y_", name="other")
    assert data.label_names == ("y_cat", "y_dog")
    assert data.feature_names == ("id", "size", "age")
    assert data.name == "other"


def test_delimited_column(write) -> None:
    text = 'x,tags\n1,b | a\n2,\n3,"a"\n'
    data = read_csv(write("toy.csv", text), label_column="tags", delimiter="|")
    assert data.label_names == ("a", "b")
    assert data.Y.tolist() == [[1, 1], [0, 0], [1, 0]]
    names = ["b", "c", "a"]
    data = read_csv(write("toy.csv", text), label_column="tags", delimiter="|", label_names=names)
    assert data.label_names == ("b", "c", "a")
    assert data.Y.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1]]


def test_labels_that_look_like_numbers_or_gaps_stay_words(write) -> None:
    data = read_csv(write("toy.csv", "x,tags\n1,007;NA\n2,nan\n"), label_column="tags")
    assert data.label_names == ("007", "NA", "nan")


@pytest.mark.parametrize("rest", ["5,6\n7,8\n", '5,"6"\n7,8\n'])  # to the end, or to another
def test_a_quote_that_is_not_closed(write, rest) -> None:
    path = write("a.csv", f'x,y\n1,0\n3,"4\n{rest}')
    with pytest.raises(DatasetError) as error:
        read_csv(path, labels=["y"])
    expected = """, and a quote (") at the end of one that begins with a quote, found '3,"4'"""
    assert str(error.value) == f"{path}, line 3: expected cells separated by ','{expected}"


def test_quotes_separators_line_ends_and_truth_values(write) -> None:
    text = '\ufeff"a; b";" c ";y\r\n\r\n"1";2;True\r\n3;" 4 ";false\r\n'
    data = read_csv(write("toy.csv", text), labels=["y"], sep=";")
    assert data.feature_names == ("a; b", "c")
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.Y.tolist() == [[1], [0]]


def test_every_number_is_read_exactly(tmp_path) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 3)) * 10.0 ** rng.integers(-30, 30, (50, 3))
    Y = rng.integers(0, 2, (50, 2))
    path = tmp_path / "toy.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "y1", "y2"])
        writer.writerows([*map(repr, map(float, x)), *y] for x, y in zip(X, Y, strict=True))
    data = read_csv(path, label_prefix="y")
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.Y, Y)


def test_missing(write) -> None:
    text = "a,b,y\n1,,1\n?,4,0\n3,NA,1\n"
    path = write("toy.csv", text)
    data = read_csv(path, labels=["y"], missing="nan")
    np.testing.assert_array_equal(data.X, [[1, np.nan], [np.nan, 4], [3, np.nan]])
    data = read_csv(path, labels=["y"], missing="mean")
    assert data.X.tolist() == [[1, 4], [2, 4], [3, 4]]


@pytest.mark.parametrize(
    ("text", "options", "line", "expected"),
    [
        ("", {"labels": ["y"]}, 1, "a header of two or more names separated by ','"),
        ("a;y\n1;1\n", {"labels": ["y"]}, 1, "a header of two or more names"),
        ("a,y\n", {"labels": ["y"]}, 2, "at least one row after the header"),
        ("a,y\n1,1\n\n1\n", {"labels": ["y"]}, 4, "2 cells instead of 1, found ['1']"),
        ("a,y\n1,1,1\n", {"labels": ["y"]}, 2, "2 cells instead of 3, found ['1', '1', '1']"),
        ('a,y\n"1\n",1\nx,0\n', {"labels": ["y"]}, 4, "a number in column 'a', found 'x'"),
        ('a,y\n1,1\n"1,1\n', {"labels": ["y"]}, 3, "cells separated by ','"),
        ('a,y\n"1"2,1\n', {"labels": ["y"]}, 2, "cells separated by ','"),
        ("a,y\n1,1\n1_0,1\n", {"labels": ["y"]}, 3, "a number in column 'a', found '1_0'"),
        ("a,y\ninf,1\n", {"labels": ["y"]}, 2, "a finite number in column 'a', found inf"),
        ("a,y\n1,1\n,1\n", {"labels": ["y"]}, 3, "a value in column 'a' (the option 'missing'"),
        ("a,y\n1,2\n", {"labels": ["y"]}, 2, "0 or 1 in label column 'y', found '2'"),
        ("a,y\n1,\n", {"labels": ["y"], "missing": "nan"}, 2, "0 or 1 in label column 'y'"),
        ("a,y\n1,u;;v\n", {"label_column": "y"}, 2, "label names separated by ';' in 'y'"),
        ("a,y\n1,u\n1,v\n", {"label_column": "y", "label_names": ["u"]}, 3, "labels among ['u']"),
    ],
)
def test_broken_cells(write, text: str, options: dict, line: int, expected: str) -> None:
    path = write("toy.csv", text)
    with pytest.raises(DatasetError) as error:
        read_csv(path, **options)
    assert str(error.value).startswith(f"{path}, line {line}: expected {expected}")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a,y\n1,1\n", {"labels": ["z"]}, "a label column 'z', found 'a', 'y'"),
        ("a,y\n1,1\n", {"label_column": "z"}, "a label column 'z'"),
        ("a,y\n1,1\n", {"label_prefix": "z"}, "a column whose name begins with 'z'"),
        ("a,y\n1,1\n", {"labels": ["a", "y"]}, "at least one feature column"),
        ("a,y\n1,1\n", {"labels": ["y"], "drop": ["q"]}, "a column 'q' to drop"),
        (",a,y\n1,1,1\n", {"labels": ["y"]}, "a name for column 1 (or drop=[''])"),
        ("a,y\n1,\n", {"label_column": "y"}, "at least one label in the column 'y'"),
        ("a,y\n,1\n", {"labels": ["y"], "missing": "mean"}, "at least one value in column 'a'"),
    ],
)
def test_broken_columns(write, text: str, options: dict, expected: str) -> None:
    path = write("toy.csv", text)
    with pytest.raises(DatasetError) as error:
        read_csv(path, **options)
    assert str(error.value).startswith(f"{path}: expected {expected}")


def test_columns_of_one_name(write) -> None:
    with pytest.raises(DatasetError, match="has several columns of the name 'a'"):
        read_csv(write("toy.csv", "a,a,y\n1,1,1\n"), labels=["y"])


def test_an_unnamed_column_can_be_dropped(write) -> None:
    data = read_csv(write("toy.csv", ",a,y\n0,5,1\n"), labels=["y"], drop=[""])
    assert data.feature_names == ("a",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of labels, label_prefix and label_column"),
        ({"labels": ["y"], "label_prefix": "y"}, "exactly one of"),
        ({"labels": "y"}, "labels must be a list of column names"),
        ({"labels": ["y", "y"]}, "none twice"),
        ({"labels": []}, "at least one column"),
        ({"labels": ["y"], "label_names": ["y"]}, "label_names goes with label_column"),
        ({"label_column": "y", "delimiter": ""}, "delimiter must not be empty"),
        ({"labels": ["y"], "missing": "zero"}, "missing must be one of"),
    ],
)
def test_wrong_arguments_are_not_the_file_s_fault(write, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        read_csv(write("toy.csv", "a,y\n1,1\n"), **options)
    assert not isinstance(error.value, DatasetError)


def test_encoding(tmp_path) -> None:
    path = tmp_path / "toy.csv"
    path.write_bytes(b"a,y\n1,1\n" + "é,1\n".encode("latin-1"))
    with pytest.raises(DatasetError) as error:
        read_csv(path, labels=["y"])
    assert str(error.value).startswith(f"{path}, line 3: expected utf-8 text")


# Parquet ------------------------------------------------------------------------------

Parquet = Callable[[dict[str, Any]], Path]


@pytest.fixture
def parquet(tmp_path: Path) -> Parquet:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def write_columns(columns: dict[str, Any]) -> Path:
        path = tmp_path / "toy.parquet"
        pandas.DataFrame(columns).to_parquet(path, engine="pyarrow")
        return path

    return write_columns


def test_parquet_round_trip(parquet: Parquet) -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((20, 3)), rng.integers(0, 2, (20, 2))
    columns = {f"x{j}": X[:, j] for j in range(3)} | {f"y{j}": Y[:, j] for j in range(2)}
    data = read_parquet(parquet(columns), label_prefix="y")
    assert isinstance(data, Dataset)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.Y, Y)
    assert data.feature_names == ("x0", "x1", "x2")
    assert data.name == "toy"


@pytest.mark.parametrize("start", [1_590_000_000_000_000_001, 2**63 + 1, 2**64 + 1])
def test_long_integers_keep_their_digits(tmp_path: Path, start: int) -> None:
    """Excel rounds numbers to 15 digits, and floats integers beyond 2^53."""
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    ids = [start, start + 3, None, 7]
    cells = {"objects": object_cells(ids), "decimals": pyarrow_decimals(ids)}
    columns = {name: plain_values(found, typed=True) for name, found in cells.items()}
    save_table(tmp_path / "a.xlsx", columns, "xlsx")
    save_table(tmp_path / "a.jsonl", columns, "jsonl")
    rows = (tmp_path / "a.jsonl").read_text().splitlines()
    sheet = pandas.read_excel(tmp_path / "a.xlsx", dtype=object)
    for name in cells:
        assert [str(v) for v in sheet[name][[0, 1, 3]]] == [str(v) for v in ids if v]
        written = [json.loads(row)[name] for row in rows]
        assert [str(v) for v in written] == [str(v) for v in ids]


def pyarrow_decimals(values: list[int | None]) -> Any:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    found = [None if value is None else Decimal(value) for value in values]
    return arrow_cells(pyarrow.array(found, pyarrow.decimal128(38, 0)))


def test_parquet_types(parquet: Parquet) -> None:
    columns = {
        "small": np.array([1, 2], dtype=np.int8),
        "single": np.array([0.5, np.nan], dtype=np.float32),
        "flag": [True, False],
        "gap": [1, None],
        "y": [True, False],
    }
    data = read_parquet(parquet(columns), labels=["y"], missing="nan")
    np.testing.assert_array_equal(data.X, [[1, 0.5, 1, 1], [2, np.nan, 0, np.nan]])
    assert data.Y.tolist() == [[1], [0]]


@pytest.mark.parametrize("cells", [["b;a", "", None], [["b", "a"], [], None]])
def test_parquet_label_column(parquet: Parquet, cells: list[Any]) -> None:
    data = read_parquet(parquet({"x": [1, 2, 3], "tags": cells}), label_column="tags")
    assert data.label_names == ("a", "b")
    assert data.Y.tolist() == [[1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("columns", "options", "place", "expected"),
    [
        ({"x": ["1", "u"], "y": [0, 1]}, {"labels": ["y"]}, ", row 2", "a number in column 'x'"),
        ({"x": [1, 2], "y": [0, 5]}, {"labels": ["y"]}, ", row 2", "0 or 1 in label column 'y'"),
        ({"x": [1, None], "y": [0, 1]}, {"labels": ["y"]}, ", row 2", "a value in column 'x'"),
        ({"x": [1], "y": [3.5]}, {"label_column": "y"}, ", row 1", "label names separated by ';'"),
        ({"x": [1.0][:0], "y": [1][:0]}, {"labels": ["y"]}, "", "at least one row"),
        ({"x": [1]}, {"labels": ["y"]}, "", "a label column 'y'"),
    ],
)
def test_broken_parquet_content(
    parquet: Parquet, columns: dict, options: dict, place: str, expected: str
) -> None:
    path = parquet(columns)
    with pytest.raises(DatasetError) as error:
        read_parquet(path, **options)
    assert str(error.value).startswith(f"{path}{place}: expected {expected}")


@pytest.mark.parametrize("damage", ["text", "cut", "empty", "noise"])
def test_broken_parquet_file(parquet: Parquet, damage: str) -> None:
    path = parquet({"x": np.arange(100.0), "y": np.ones(100)})
    whole = path.read_bytes()
    path.write_bytes(
        {"text": b"hello", "cut": whole[: len(whole) // 2], "empty": b"", "noise": b"PAR1" * 9}[
            damage
        ]
    )
    with pytest.raises(DatasetError) as error:
        read_parquet(path, labels=["y"])
    assert str(error.value).startswith(f"{path}: expected a Parquet file")


def test_text_that_is_no_text_in_a_parquet_file(parquet: Parquet) -> None:
    path = parquet({"x": [1.0], "tags": ["marker"]})
    path.write_bytes(path.read_bytes().replace(b"marker", b"mark\xff\xfe"))
    with pytest.raises(DatasetError) as error:
        read_parquet(path, label_column="tags")
    assert str(error.value).startswith(f"{path}: expected a Parquet file")


@pytest.mark.slow
def test_a_parquet_file_that_unfolds_is_refused(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    # constant columns take no room in a file
    frame = pandas.DataFrame({f"c{j}": np.zeros(1_000_000, dtype=np.int8) for j in range(160)})
    frame.to_parquet(path)
    assert path.stat().st_size < 2_000_000
    with pytest.raises(DatasetError, match="after unpacking"):
        read_parquet(path, labels=["c0"])
