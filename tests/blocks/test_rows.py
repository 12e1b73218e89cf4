"""Blocks are read ahead, checked and counted; errors name part and row."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from fbeta import FBetaClassifier
from fbeta.blocks import RowBlocks
from fbeta.blocks.rows import parse_memory, read_ahead
from fbeta.blocks.summary import CheckedRows, Summary, Tally
from fbeta.statistics.codes import JointCode, MarginalCode

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


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "csv", "svm"])
def test_folders_of_parts(tmp_path, kind):
    X, Y = make_rows(3000, sparse=kind in ("npz", "svm"))
    if sp.issparse(X):  # an empty line of a text file is no row
        some = np.flatnonzero(np.diff(X.indptr))
        X, Y = X[some], Y[some]
    options = {"memory": SMALL}
    for number, rows in enumerate(np.array_split(np.arange(len(Y)), 3)):
        part, labels = X[rows], Y[rows]
        name = f"{number}.{kind}"
        if kind == "npy":
            np.save(tmp_path / f"X-{name}", part)
            np.save(tmp_path / f"Y-{name}", labels)
        elif kind == "npz":
            sp.save_npz(tmp_path / f"X-{name}", part)
            sp.save_npz(tmp_path / f"Y-{name}", sp.csr_array(labels))
        elif kind == "svm":
            file = str(tmp_path / name)
            dump_svmlight_file(part, labels, file, multilabel=True, zero_based=False)
        else:
            columns = {f"f{j}": part[:, j] for j in range(part.shape[1])}
            frame = pd.DataFrame(columns | {f"is_{j}": labels[:, j] for j in range(Y.shape[1])})
            options["label_prefix"] = "is_"
            write = frame.to_parquet if kind == "parquet" else frame.to_csv
            write(tmp_path / name, index=False)
    blocks = RowBlocks.read(tmp_path, **options)
    found, inside = FBetaClassifier().fit(blocks), FBetaClassifier().fit(X, Y)
    assert blocks.n_rows == len(Y)
    assert blocks.passes > 2
    np.testing.assert_allclose(found.coef_, inside.coef_, atol=0.02)
    if kind in ("parquet", "csv"):
        assert found.feature_names_in_.tolist() == [f"f{j}" for j in range(8)]


def test_broken_folders(tmp_path):
    with pytest.raises(FileNotFoundError):
        RowBlocks.read(tmp_path / "absent")
    with pytest.raises(ValueError, match="no files"):
        RowBlocks.read(tmp_path)
    np.save(tmp_path / "X-1.npy", np.ones((2, 2)))
    np.save(tmp_path / "Y-2.npy", np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"no file Y-1\.npy"):
        RowBlocks.read(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="one format"):
        RowBlocks.read(tmp_path)
    with pytest.raises(ValueError, match="a column whose name begins with 'is_'"):
        RowBlocks.read(tmp_path / "a.csv", label_prefix="is_")


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


@given(
    Y=st.integers(1, 4).flatmap(
        lambda s: st.lists(st.lists(st.integers(0, 1), min_size=s, max_size=s), min_size=1)
    ),
    cut=st.integers(0, 20),
)
@settings(max_examples=60, deadline=None)
def test_tallies_add_up_to_the_sums_of_targets(Y, cut):
    dense = np.array(Y)
    Y, ids = sp.csr_array(dense.astype(np.int8)), np.arange(len(Y), dtype=np.uint64)
    cut = min(cut, len(ids))
    parts = [slice(0, cut), slice(cut, None)]
    first, second = (CheckedRows(dense[p], Y[p], None, ids[p]) for p in parts)
    tally = Tally.of(first) + Tally.of(second)
    for code in (JointCode.of(Y), JointCode.of(Y, "all"), MarginalCode.of(Y)):
        targets = code.targets(Y).toarray()
        np.testing.assert_array_equal(
            code.column_sums(tally.sizes, tally.counts), targets.sum(axis=0)
        )
        keys = code.column_sums(tally.sizes, tally.keys[:, 0])
        equal = (targets[:, :, None] == targets[:, None, :]).all(axis=0)
        np.testing.assert_array_equal(keys[:, None] == keys[None, :], equal)
    joint = JointCode.of(Y).targets(Y).toarray()
    rarest = np.where(joint > 0, joint.sum(axis=0), len(ids) + 1).min(axis=1)
    np.testing.assert_array_equal(tally.rarest(Y, by_size=True), rarest)


def test_rows_held_stand_for_all():
    """Each row is held with the probability that it is said to have."""
    X, Y = make_rows(6000, 2, 3)
    Y, hits, chances = sp.csr_array(Y), np.zeros(6000), np.zeros(6000)
    for draw in range(40):
        ids = np.arange(6000, dtype=np.uint64) + np.uint64(10_000 * draw)
        summary = None
        for at in range(0, 6000, 500):
            own = CheckedRows(X[at : at + 500], Y[at : at + 500], None, ids[at : at + 500])
            found = Summary.of(own, 400, by_size=True)
            summary = found if summary is None else summary + found
        rows = summary.rows()
        chances = summary.chance(Y)
        hits[(rows.ids - ids[0]).astype(int)] += 1
        assert len(rows) <= 1.3 * 400
    assert not summary.complete
    for low, high in ((0, 0.1), (0.1, 0.5), (0.5, 1.0)):
        own = (chances > low) & (chances <= high)
        expected = 40 * chances[own].sum()
        spread = np.sqrt(40 * (chances * (1 - chances))[own].sum())
        assert abs(hits[own].sum() - expected) <= 5 * spread + 1e-9


def test_predictions_are_saved_to_a_folder_that_is_made(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 3)), rng.integers(0, 2, size=(60, 2))
    clf = FBetaClassifier().fit(X, Y)
    paths = clf.predict(RowBlocks(X)).save(tmp_path / "new" / "folder")
    assert np.array_equal(np.concatenate([np.load(path) for path in paths]), clf.predict(X))


def test_results_are_written_and_joined(tmp_path):
    X, Y = make_rows(300)
    clf = FBetaClassifier().fit(X, Y)
    found = clf.predict(RowBlocks(X, rows=100))
    np.testing.assert_array_equal(np.asarray(found), clf.predict(X))
    frame = pd.read_parquet(found.to_parquet(tmp_path / "all.parquet"))
    np.testing.assert_array_equal(frame.to_numpy(), clf.predict(X))
    assert len(found.save(tmp_path / "new")) == 3
