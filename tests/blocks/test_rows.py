"""Blocks are read ahead, checked and counted; errors name part and row."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fbeta import FBetaClassifier, FBetaDecoder
from fbeta.blocks import RowBlocks
from fbeta.blocks.rows import parse_memory, read_ahead

from .toys import SMALL, make_rows


def test_passes_and_bytes_are_counted():
    X, Y = make_rows(100)
    blocks = RowBlocks(X, Y, rows=30)
    assert [len(block[0]) for block in blocks] == [30, 30, 30, 10]
    list(blocks)
    assert (blocks.passes, blocks.n_rows) == (2, 100)
    assert blocks.bytes_read == 2 * (X.nbytes + Y.nbytes)


def test_a_generator_is_refused_and_changed_blocks_are_seen():
    X, Y = make_rows(60)
    with pytest.raises(TypeError, match="only once"):
        RowBlocks((X, Y) for _ in range(2))
    left = [(X, Y), (X[:5], Y[:5])]
    blocks = RowBlocks(lambda: iter([left.pop()]))
    list(blocks)
    with pytest.raises(ValueError, match="60 rows where there were 5"):
        list(blocks)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([[1.0, np.nan]], [[1, 0]], r"block 1, row 0: Input X contains NaN \(feature 1\)"),
        (sp.csr_array([[0.0, np.inf]]), [[1, 0]], r"block 1, row 0: .*infinity \(feature 1\)"),
        ([[1.0, 2.0, 3.0]], [[1, 0]], "block 1, row 0: found 3 features where other blocks have 2"),
        ([[1.0, 2.0]], [[1, 2]], "block 1, rows 0 to 0: .*0 and 1, found 2"),
        ([[1.0, 2.0]], [[1, 0, 1]], "block 1, rows 0 to 0: y has 3 labels"),
        ([[1.0, 2.0]], [[1, 0], [0, 1]], "X has 1 rows and y has 2"),
        ([["a", "b"]], [[1, 0]], "block 1, row 0: X must hold numbers"),
    ],
)
def test_errors_name_part_and_row(X, Y, message):
    good = (np.ones((2, 2)), np.array([[1, 0], [0, 1]]))
    X = X if sp.issparse(X) else np.array(X)
    with pytest.raises(ValueError, match=message):
        FBetaClassifier().fit(RowBlocks([good, (X, np.array(Y))]))


def to_library(frame, library):
    module = pytest.importorskip(library)
    if library == "pyarrow":
        return module.Table.from_pandas(frame, preserve_index=False)
    return module.from_pandas(frame) if library == "polars" else frame


LIBRARIES = ["pandas", "polars", "pyarrow"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("memory", ["1GB", SMALL])
def test_columns_of_data_frames_are_matched_by_name(memory, library):
    X, Y = make_rows(3000, d=4, s=2)
    frame = pd.DataFrame(X, columns=list("abcd"))
    right = FBetaClassifier(tol=1e-9).fit(frame, Y)

    def fit(second):
        first, second = (to_library(part, library) for part in (frame[:900], second))
        blocks = RowBlocks([(first, Y[:900]), (second, Y[900:])], memory=memory)
        return FBetaClassifier(tol=1e-9).fit(blocks)

    found = fit(frame[900:][list("badc")])
    np.testing.assert_array_equal(found.coef_, fit(frame[900:]).coef_)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-3)
    assert found.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(frame[list("badc")])
    for second in (frame[900:].rename(columns={"a": "z"}), frame[900:][list("abc")]):
        with pytest.raises(ValueError, match=r"columns of block 1 .* '[zd]' is in only one"):
            fit(second)


@pytest.mark.parametrize("library", LIBRARIES)
def test_answers_match_columns_of_data_frames_by_name(library):
    X, Y = make_rows(200, d=3, s=3)
    frame, labels = (pd.DataFrame(values, columns=list("abc")) for values in (X, Y))
    gaps = frame.where(frame.to_numpy() != frame.iloc[3, 0])
    P = 1 / (1 + np.exp(-frame))
    models = [(FBetaDecoder().fit(P, labels), P), (FBetaClassifier().fit(gaps, Y), frame)]
    for model, data in models:
        other = [(to_library(data[list("cab")], library),)]
        found = np.asarray(model.predict_proba(RowBlocks(other)))
        np.testing.assert_array_equal(found, model.predict_proba(data))
    found = FBetaClassifier().fit(RowBlocks(to_library(frame, library), Y, rows=70))
    np.testing.assert_allclose(found.coef_, FBetaClassifier().fit(frame, Y).coef_, rtol=1e-9)


def test_names_of_columns_are_unique():
    X, Y = make_rows(20, d=3, s=2)
    blocks = RowBlocks([(pd.DataFrame(X, columns=list("aab")), Y)])
    with pytest.raises(ValueError, match="block 0 has several columns named 'a'"):
        FBetaClassifier().fit(blocks)


def test_no_rows():
    with pytest.raises(ValueError, match="no rows"):
        FBetaClassifier().fit(RowBlocks([]))
    with pytest.raises(ValueError, match="y to be passed"):
        FBetaClassifier().fit(RowBlocks(np.ones((3, 2))))


def test_label_sets_are_found_in_a_pass():
    X = np.arange(6.0)[:, None]
    sets = [["sea"], ["sky", "sea"], [], ["rain"], [], ["sea"]]
    blocks = RowBlocks([(X[:3], sets[:3]), (X[3:], sets[3:])])
    clf = FBetaClassifier().fit(blocks)
    assert clf.classes_.tolist() == ["rain", "sea", "sky"]
    assert clf.predict(X) == FBetaClassifier().fit(X, sets).predict(X)
    known = RowBlocks([(X, sets)], classes=["rain", "sea", "sky"])
    FBetaClassifier().fit(known)
    assert known.passes == 1


SETS = [["sea"], ["sky", "sea"], []]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (SETS, np.eye(3, 2), "block 1, rows 0 to 2: y is a 0/1 matrix .*but label sets"),
        (SETS, [0, 1, 1], "block 1, rows 0 to 2: y is a 1-D target .*does not match label sets"),
        ([0, 1, 1], np.eye(3), "block 1, rows 0 to 2: y is a 0/1 matrix .*does not match a 1-D"),
        ([0, 1, 1], SETS, "block 1, rows 0 to 2: y is label sets .*does not match a 1-D"),
        (SETS, [{1}, {2}, set()], "label names in y are of several types: int, str"),
        ([0, 1, 1], ["a", "b", "b"], "label names in y are of several types: int, str"),
    ],
)
def test_labels_of_several_forms(first, second, message):
    X = np.arange(6.0).reshape(3, 2)
    with pytest.raises(ValueError, match=message):
        FBetaClassifier().fit(RowBlocks([(X, first), (X, second)]))


def test_reading_ahead_stops_with_its_reader():
    before = threading.active_count()
    items = read_ahead(iter(range(100)), 2)
    assert next(items) == 0
    items.close()
    assert threading.active_count() == before

    def broken():
        yield 1
        raise RuntimeError("the disk")

    with pytest.raises(RuntimeError, match="the disk"):
        list(read_ahead(broken(), 2))


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5.2GB", "nan"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="memory must be"):
        parse_memory(text)


def test_a_memory_map_that_was_truncated(tmp_path):
    X, Y = make_rows(2000)
    np.save(tmp_path / "X.npy", X)
    blocks = RowBlocks(np.load(tmp_path / "X.npy", mmap_mode="r"), Y, rows=500)
    assert len(list(blocks.blocks())) == 4
    with (tmp_path / "X.npy").open("r+b") as file:
        file.truncate(50_000)
    with pytest.raises(ValueError, match=r"X\.npy was truncated: it has 50000 bytes where"):
        list(blocks.blocks())
