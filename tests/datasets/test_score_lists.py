"""Lists of scores and label sets in files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta.datasets import DatasetError
from fbeta.datasets.score_lists import read_lists, write_sets


def rows_of(path):
    names, (rows,) = read_lists([path])
    return [{names[j]: row[j] for j in np.flatnonzero(row)} for row in rows.toarray()]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        (
            "a.jsonl",
            '{"sea": 0.5, "sky": 1}\n\n["sky"]\n',
            [{"sea": 0.5, "sky": 1}, {}, {"sky": 1}],
        ),
        ("a.jsonl", '{"id": 7, "scores": {"x": 0.25}}\n{"labels": []}\n', [{"x": 0.25}, {}]),
        ("a.txt", "3:0.5 10:-2\n\n", [{"3": 0.5, "10": -2}, {}]),
        ("a.csv", "sea;sky\n0.5;1\n;0\n", [{"sea": 0.5, "sky": 1}, {}]),
        ("a.tsv", "sea\tsky\n0.5\t-2\n", [{"sea": 0.5, "sky": -2}]),
        ("a.svm", "3,10\n\nsea side, sky\n", [{"3": 1, "10": 1}, {}, {"sea side": 1, "sky": 1}]),
    ],
)
def test_forms(tmp_path, name, text, rows):
    (tmp_path / name).write_text(text)
    assert rows_of(tmp_path / name) == rows


def test_files_share_the_columns_of_their_labels(tmp_path):
    (tmp_path / "a.txt").write_text("b:0.5 d:0.25\n")
    (tmp_path / "b.jsonl").write_text('["c", "b"]\n["a"]\n')
    names, (first, second) = read_lists([tmp_path / "a.txt", tmp_path / "b.jsonl"])
    assert names == ("a", "b", "c", "d")
    assert first.toarray().tolist() == [[0, 0.5, 0, 0.25]]
    assert second.toarray().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0]]
    sp.save_npz(tmp_path / "c.npz", first)
    with pytest.raises(ValueError, match=r"all of them \.npz, or none"):
        read_lists([tmp_path / "a.txt", tmp_path / "c.npz"])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", "[]\n{\n", 2),
        ("a.jsonl", '{"a": "b"}\n', 1),
        ("a.jsonl", '{"a": true}\n', 1),
        ("a.jsonl", '{"a": NaN}\n', 1),
        ("a.jsonl", "7\n", 1),
        ("a.jsonl", '[]\n{"a": 0.9, "b": 0, "a": 0.1}\n', 2),
        ("a.txt", "b:1\na:0.9 b:0 a:0.1\n", 2),
        ("a.txt", "1:0.5\n2:x\n", 2),
        ("a.txt", "2:inf\n", 1),
        ("a.csv", "sea,sky\n0.5,1\n0.5,x\n", 3),
    ],
)
def test_what_is_refused_by_its_line(tmp_path, name, text, line):
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=f"line {line}: expected"):
        read_lists([tmp_path / name])


def test_an_empty_cell_of_a_table_is_a_label_that_is_not_listed(tmp_path):
    (tmp_path / "a.csv").write_text("b,a\n0,0.5\n,0.25\n")
    names, (rows,) = read_lists([tmp_path / "a.csv"])
    assert names == ("a", "b")
    assert rows.indices.tolist() == [0, 1, 0]
    assert rows.data.tolist() == [0.5, 0, 0.25]


def test_npz(tmp_path):
    matrix = sp.csr_array([[0.0, 0.5], [0.25, 0.0]])
    sp.save_npz(tmp_path / "a.npz", matrix)
    sp.save_npz(tmp_path / "wide.npz", sp.csr_array((1, 5)))
    names, (rows, wide) = read_lists([tmp_path / "a.npz", tmp_path / "wide.npz"])
    assert names is None
    assert rows.shape == (2, 5)
    assert wide.shape == (1, 5)
    assert rows.toarray()[:, :2].tolist() == matrix.toarray().tolist()
    for content in (b"", b"PK\x03\x04", b"x" * 100):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(DatasetError, match="save_npz"):
            read_lists([tmp_path / "b.npz"])


def test_sets_are_written_and_read(tmp_path):
    found = sp.csr_array(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.int8))
    names, values = ["a", "b c", "d"], np.array([0.5, 1.0])
    write_sets(tmp_path / "s.jsonl", found, names, values)
    lines = (tmp_path / "s.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"labels": ["a", "d"], "expected_fbeta": 0.5}
    for name in ("s.jsonl", "s.txt"):
        write_sets(tmp_path / name, found, names, values)
        assert rows_of(tmp_path / name) == [{"a": 1, "d": 1}, {}]
    write_sets(tmp_path / "s.csv", found, names, values)
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines == ["labels,expected_fbeta", "a;d,0.5", ",1.0"]
    write_sets(tmp_path / "s.npz", found, None, values)
    assert (read_lists([tmp_path / "s.npz"])[1][0] != found).nnz == 0
