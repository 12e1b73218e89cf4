"""The one reader of tables: whole and in blocks, with the line of every row."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fbeta.datasets import DatasetError, read_table
from fbeta.datasets.table_files import FileFormat

pytest.importorskip("pyarrow")

QUOTED = [
    ["a", "say hi", "1"],
    ["b", "two\nlines", "2"],
    ['"', "comma, here", "3"],
    ["", "", "4"],
    ["d", '""', "5"],
]


def write(path: Path, rows: list[list[str]], sep: str = ",", end: str = "\n") -> Path:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "text", "n"], *rows])
    path.write_bytes(out.getvalue().encode())
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_cells_are_those_of_the_csv_module(tmp_path: Path, sep: str, end: str) -> None:
    rows = [*QUOTED, *([["plain", "5 inches", "6"]] * 3)]
    path = write(tmp_path / "a.csv", rows, sep, end)
    table = FileFormat().read(path)
    found = [
        list(row) for row in zip(*(c.to_pylist() for c in table.columns.values()), strict=True)
    ]
    assert found == rows
    blocks = list(FileFormat().blocks(path, 2))
    assert [block.n_rows for block in blocks] == [2, 2, 2, 2]
    joined = [cell for block in blocks for cell in block.columns["text"].to_pylist()]
    assert joined == [row[1] for row in rows]


def test_lines_are_those_of_an_editor(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", QUOTED)
    assert [FileFormat().read(path).place(row) for row in range(5)] == [2, 3, 5, 6, 7]
    blocks = list(FileFormat().blocks(path, 2))
    assert [b.place(row) for b in blocks for row in range(b.n_rows)] == [2, 3, 5, 6, 7]


def test_quotes_inside_of_cells_are_read_as_the_csv_module_does(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('size,note\n5" disk,a\n6,b" and c\n')
    assert FileFormat().read(path).columns["size"].to_pylist() == ['5" disk', "6"]
    assert [t.n_rows for t in FileFormat().blocks(path, 1)] == [1, 1]
    path.write_text('size,note\n1,a\n"1"2,b\n')
    for read in (FileFormat().read, lambda p: list(FileFormat().blocks(p, 1))):
        with pytest.raises(DatasetError, match="line 3: expected cells separated by ','"):
            read(path)


def test_broken_rows_of_blocks_have_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 1000 + "3\n" + "1,2\n" * 10)
    with pytest.raises(DatasetError, match="line 1002: expected 2 cells"):
        list(FileFormat().blocks(path, 300))
    path.write_bytes(b"a,b\n" + b"1,2\n" * 1000 + b"1,\xff\n")
    with pytest.raises(DatasetError, match="line 1002: expected utf-8 text"):
        list(FileFormat(encoding="utf-8").blocks(path, 300))


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "jsonl", "parquet", "xlsx"])
def test_blocks_are_the_whole(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"a": np.arange(25), "b": [f"t{i % 7}" for i in range(25)]})
    path = tmp_path / f"a.{suffix}"
    if suffix == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif suffix == "parquet":
        frame.to_parquet(path)
    else:
        text = frame.to_csv(index=False).encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    whole, blocks = FileFormat().read(path), list(FileFormat().blocks(path, 10))
    assert FileFormat().names(path) == ["a", "b"]
    assert [block.n_rows for block in blocks] == [10, 10, 5]
    for name in ("a", "b"):
        cells = [str(cell) for block in blocks for cell in block.columns[name]]
        assert cells == list(map(str, whole.columns[name])) == frame[name].astype(str).tolist()
    assert blocks[2].place(4) == whole.place(24)


def test_rows_with_another_separator_have_their_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n" + "1,2,x\n" * 5 + "1;2;x\n" + "1,2,x\n" * 5)
    for read in (FileFormat().read, lambda p: list(FileFormat().blocks(p, 4))):
        with pytest.raises(DatasetError, match="line 7: expected 3 cells instead of 1"):
            read(path)
    path.write_text("a;b;c\n" + "1,2,x\n" * 5)
    with pytest.raises(DatasetError, match="line 2: expected 1 cells instead of 3"):
        FileFormat().read(path)


def test_a_key_that_is_there_twice_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for twice in ('{"x": 1, "y": 3, "x": 2}', '{"x": {"x": 1, "x": 2}}'):
        path.write_text('{"x": 1}\n\n' + twice + "\n")
        for read in (FileFormat().read, lambda p: list(FileFormat().blocks(p, 2))):
            with pytest.raises(DatasetError, match="line 3: expected the key 'x' once"):
                read(path)


def test_files_that_are_not_text_are_recognised(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"a": np.arange(3), "b": list("xyz")})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    for name, words in (
        ("a.xlsx", "that of an Excel file .*: rename it to .xlsx"),
        ("a.parquet", "that of a Parquet file: rename it to .parquet"),
        ("a.csv.gz", "that of a gzip file: add .gz to its name"),
    ):
        for wrong in (tmp_path / "wrong.csv", tmp_path / "wrong.jsonl"):
            wrong.write_bytes((tmp_path / name).read_bytes())
            for read in (FileFormat().read, lambda p: list(FileFormat().blocks(p, 2))):
                with pytest.raises(DatasetError, match=words):
                    read(wrong)
    text = tmp_path / "text.csv"
    text.write_text("PAR1,PK\n1,2\n")
    assert FileFormat().read(text).header == ["PAR1", "PK"]


def test_broken_gzip_is_told_in_blocks_too(tmp_path: Path) -> None:
    data = gzip.compress(b"a,b\n" + np.random.default_rng(0).bytes(3000).hex().encode() + b",1\n")
    for name, content in (("short.csv.gz", data[:1000]), ("plain.jsonl.gz", b"[]\n")):
        (tmp_path / name).write_bytes(content)
        for read in (FileFormat().read, lambda p: list(FileFormat().blocks(p, 2))):
            with pytest.raises(DatasetError, match=f"{name}: expected a file that gzip wrote"):
                read(tmp_path / name)


def test_cells_of_any_length(tmp_path: Path) -> None:
    long = "word " * 300_000
    path = write(tmp_path / "a.csv", [["a", long, "1"], ["b", '"' + long, "2"]])
    assert FileFormat().read(path).columns["text"].to_pylist() == [long, '"' + long]
    assert sum(t.n_rows for t in FileFormat().blocks(path, 1)) == 2


def test_frames_are_read_like_files(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pd.DataFrame({"x": [1.5, 2.5, 4.0], "c": ["u", "v", "u"], "tags": ["a;b", "", "b"]})
    path = tmp_path / "a.csv"
    frame.to_csv(path, index=False)
    for source in (path, frame, pl.from_pandas(frame), pl.from_pandas(frame).to_arrow()):
        found = read_table(source, label_column="tags")
        assert found.kinds == {"x": "numeric", "c": "categorical"}
        assert found.labels.to_numpy().tolist() == [[1, 1], [0, 0], [0, 1]]
        assert found.features["c"].tolist() == ["u", "v", "u"]
    assert read_table(frame).labels is None


def test_errors_of_excel_are_text_and_empty_cells_are_gaps(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [["is_a", "x", "n"], [1, 2.5, 1.0], ["#REF!", "#DIV/0!", None], [0, None, 3.0]]
    for row in [*rows, ["#N/A", "#N/A", "#N/A"], [None], [0, 1, 2], [None, None, None, None]]:
        book.active.append(row)
    assert book.active["B3"].data_type == "e"
    path = tmp_path / "a.xlsx"
    book.save(path)
    table = FileFormat().read(path)
    found = {name: cells.to_pylist() for name, cells in table.columns.items()}
    assert found == {
        "is_a": ["1", "#REF!", "0", None, None, "0"],
        "x": ["2.5", "#DIV/0!", None, None, None, "1"],
        "n": [1, None, 3, None, None, 2],
    }
    assert table.where(5) == "row 7"
    with pytest.raises(DatasetError, match=r"row 3: expected 0 or 1 .*'#REF!'"):
        read_table(path, label_prefix="is_")
    with pytest.raises(DatasetError, match=r"row 3: expected a number in column 'x', .*'#DIV/0!'"):
        table.numbers(["x"], "nan")
