from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from fbeta.datasets import DatasetError, join_split, read_svmlight


def test_round_trip(tmp_path) -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((40, 9)) * (rng.random((40, 9)) < 0.4)
    dense[:, [0, 8]] = 1.25
    X = sparse.csr_array(dense)
    Y = (rng.random((40, 5)) < 0.3).astype(np.int8)
    Y[:, 0] = 1  # dump_svmlight_file cannot write an empty label set
    dump_svmlight_file(X, sparse.csr_array(Y), str(tmp_path / "a.svm"), multilabel=True)
    data = read_svmlight(tmp_path / "a.svm")
    np.testing.assert_allclose(data.X.toarray(), dense, rtol=1e-15)
    np.testing.assert_array_equal(data.Y, Y)
    assert data.label_names == ("0", "1", "2", "3", "4")
    assert data.feature_names is None
    assert data.name == "a"


def test_comments_blank_lines_and_empty_label_sets(write) -> None:
    text = "# head\n\n10,2 1:0.5 3:-2e1 # tail\r\n  2:1\n-1\n"
    data = read_svmlight(write("a.svm", text), name="toy")
    assert data.X.toarray().tolist() == [[0.5, 0, -20], [0, 1, 0], [0, 0, 0]]
    assert data.label_names == ("-1", "2", "10")
    assert data.Y.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert data.name == "toy"


@pytest.mark.parametrize(
    ("zero_based", "expected"), [("auto", [[5.0]]), (True, [[0.0, 5.0]]), (False, [[5.0]])]
)
def test_zero_based(write, zero_based, expected: list[list[float]]) -> None:
    data = read_svmlight(write("a.svm", "1 1:5\n"), zero_based=zero_based)
    assert data.X.toarray().tolist() == expected


def test_two_files_with_the_same_columns(write) -> None:
    options = {"n_features": 4, "label_names": ["2", "1", "7"], "zero_based": False}
    train = read_svmlight(write("a.svm", "1 1:5\n"), **options)
    test = read_svmlight(write("b.svm", "7,2 4:5\n"), **options)
    data = join_split(train, test)
    assert data.Y.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert data.X.toarray().tolist() == [[5, 0, 0, 0], [0, 0, 0, 5]]


FORM = "integer labels separated by commas, then index:value pairs"


@pytest.mark.parametrize(
    ("text", "options", "line", "expected"),
    [
        ("", {}, 1, "at least one row"),
        ("# nothing\n", {}, 2, "at least one row"),
        ("1\n2\n", {}, 2, "at least one feature index:value in the file"),
        ("1 1:2\n1 1\n", {}, 2, FORM),
        ("1 1:2\nx 1:1\n", {}, 2, f"{FORM}, found 'x 1:1'"),
        ("1.5 1:2\n", {}, 1, FORM),
        ("1, 1:2\n", {}, 1, FORM),
        ("1 1:\n", {}, 1, FORM),
        ("1 1:2 2:x\n", {}, 1, FORM),
        ("1 1:nan\n", {}, 1, FORM),
        ("1 1:1_0\n", {}, 1, FORM),
        ("1 -1:2\n", {}, 1, FORM),
        ("1 99999999999:2\n", {}, 1, FORM),
        ("1 qid:3 1:2\n", {}, 1, FORM),
        ("1 1:2\n\n2 1:1 2:1e999\n", {}, 3, "finite feature values"),
        ("1 1:2\n1 3:1 2:1\n", {}, 2, "ascending feature indices, found '1 3:1 2:1'"),
        ("1 1:2\n1 3:1 3:1\n", {}, 2, "ascending feature indices"),
        ("1 1:2\n1 0:1\n", {"zero_based": False}, 2, "feature indices from 1"),
        ("1 1:2\n1 4:1\n", {"n_features": 3}, 2, "feature indices from 1 to 3"),
        ("1 0:2\n1 3:1\n", {"n_features": 3}, 2, "feature indices from 0 to 2"),
        ("1 1:2\n1 3:1\n", {"n_features": 3, "zero_based": True}, 2, "feature indices from 0"),
        ("1 1:2\n#\n2 1:1\n", {"label_names": ["1"]}, 3, "labels among ['1'], found '2'"),
    ],
)
def test_broken_file(write, text: str, options: dict, line: int, expected: str) -> None:
    path = write("a.svm", text)
    with pytest.raises(DatasetError) as error:
        read_svmlight(path, **options)
    assert str(error.value).startswith(f"{path}, line {line}: expected {expected}")


def test_no_labels_at_all(write) -> None:
    path = write("a.svm", " 1:1\n")
    with pytest.raises(DatasetError, match="at least one label in the file"):
        read_svmlight(path)


def test_absent_file(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        read_svmlight(tmp_path / "absent.svm")


def test_label_names_must_differ(write) -> None:
    with pytest.raises(ValueError, match="must not name a label twice"):
        read_svmlight(write("a.svm", "1 1:1\n"), label_names=["1", "1"])
