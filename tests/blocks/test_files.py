"""Folders of files are read in blocks, and predictions are written so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from fbeta import FBetaClassifier
from fbeta.blocks import RowBlocks
from fbeta.datasets import DatasetError, TableEncoder

from ..cases import slow
from .toys import SMALL, make_rows


@pytest.mark.parametrize("kind", ["npy", *map(slow, ("npz", "parquet", "csv", "svm"))])
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


def write_parts(folder, kind, *parts):
    for number, part in enumerate(parts):
        path = folder / f"p{number}.{kind}"
        if kind == "jsonl":
            part.to_json(path, orient="records", lines=True)
        else:
            getattr(part, {"xlsx": "to_excel"}.get(kind, f"to_{kind}"))(path, index=False)
    return RowBlocks.read(folder, label_prefix="is_")


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", slow("xlsx")])
def test_columns_of_files_are_matched_by_name(tmp_path, kind):
    X, Y = make_rows(200, d=3, s=3)
    frame = pd.DataFrame(np.hstack([X, Y]), columns=["a", "b", "c", "is_x", "is_y", "is_z"])
    first, second = frame[:100], frame[100:]
    found = FBetaClassifier().fit(write_parts(tmp_path, kind, first, second[frame.columns[::-1]]))
    np.testing.assert_allclose(found.coef_, FBetaClassifier().fit(X, Y).coef_, rtol=1e-6)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    for other, name in (
        (second.rename(columns={"is_y": "is_q"}), "is_q"),
        (second.drop(columns="is_y"), "is_y"),
        (second.assign(is_w=0), "is_w"),
    ):
        blocks = write_parts(tmp_path, kind, first, other)
        with pytest.raises(ValueError, match=rf"labels in .*p1.{kind} are not .*p0.* '{name}' is"):
            FBetaClassifier().fit(blocks)


def test_delimiters_of_label_columns_are_inferred(tmp_path):
    X, rows = np.arange(6), [["sea"], ["sky", "sea"], [], ["rain"], ["sky"], ["sea", "sky"]]

    def read(*delimiters, **options):
        for number, delimiter in enumerate(delimiters):
            cells = [delimiter.join(row) for row in rows]
            pd.DataFrame({"x": X, "tags": cells}).to_csv(tmp_path / f"{number}.csv", index=False)
        return RowBlocks.read(tmp_path, label_column="tags", **options)

    for delimiter in (";", "|", ",", "\t"):
        blocks = read(delimiter, rows=2)
        assert [row for _, Y in blocks for row in Y] == rows
        assert blocks.label_form().classes.tolist() == ["rain", "sea", "sky"]
    # a block without any is read as well; one with another is not
    words = r"1\.csv: .* found ';' in the blocks before and '\|' in 2 different cells"
    with pytest.raises(DatasetError, match=words):
        list(read(";", "|"))
    assert [Y[1] for _, Y in read(";", "|", delimiter=";")] == [["sky", "sea"], ["sky|sea"]]


def test_blank_cells_of_label_columns_are_refused(tmp_path):
    (tmp_path / "0.csv").write_text("x,is_a,is_b\n1,1,0\n2,0,1\n")
    (tmp_path / "1.csv").write_text("x,is_a,is_b\n3,yes,0\n4,,1\n")
    with pytest.raises(DatasetError, match=r"1\.csv, line 3: .*'is_a', found 'a missing value'"):
        list(RowBlocks.read(tmp_path, label_prefix="is_"))
    _, (_, Y) = RowBlocks.read(tmp_path, label_prefix="is_", blank_labels=True)
    assert Y.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("memory", ["1GB", SMALL])
def test_dense_and_sparse_parts(tmp_path, memory):
    X, Y = make_rows(2000)
    np.save(tmp_path / "X-0.npy", X[:1000])
    sp.save_npz(tmp_path / "X-1.npz", sp.csr_array(X[1000:]))
    np.save(tmp_path / "Y-0.npy", Y[:1000])
    sp.save_npz(tmp_path / "Y-1.npz", sp.csr_array(Y[1000:]))
    blocks = RowBlocks.read(tmp_path, memory=memory, rows=500)
    found, inside = FBetaClassifier(tol=1e-8).fit(blocks), FBetaClassifier(tol=1e-8).fit(X, Y)
    np.testing.assert_allclose(found.coef_, inside.coef_, atol=2e-3)


@pytest.mark.parametrize("broken", ["cut", "objects", "no numbers", "complex", "weight"])
def test_errors_of_arrays_name_their_file(tmp_path, broken):
    X, Y = make_rows(100)
    name = "X-0.npz" if broken == "cut" else "X-0.npy"
    if broken == "cut":
        sp.save_npz(tmp_path / name, sp.csr_array(X))
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-100])
    elif broken == "no numbers":
        (tmp_path / name).write_text("no numbers")
    elif broken == "weight":
        np.save(tmp_path / name, X)
        np.save(tmp_path / "weight-0.npy", np.ones(100) + 1j)
    else:
        np.save(tmp_path / name, X.astype(object if broken == "objects" else complex))
    np.save(tmp_path / "Y-0.npy", Y)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        FBetaClassifier().fit(RowBlocks.read(tmp_path))


def test_labels_of_svmlight_files_are_integers(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("# a comment\n1,2 1:1\n\n3,1.5 2:1\n")
    with pytest.raises(DatasetError, match=r"a\.svm, line 4: expected integer .*found '3,1\.5'"):
        RowBlocks.read(path)
    path.write_text("# a comment\n1,2 1:1\n\n3 x:1\n")
    with pytest.raises(ValueError, match=r"a\.svm, line 2 and after"):
        RowBlocks.read(path)


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


@pytest.mark.parametrize(("labels", "weights"), [(400, 200), (200, 500), (100, 200), (200, 10)])
def test_files_of_different_lengths(tmp_path, labels, weights):
    np.save(tmp_path / "X-0.npy", np.ones((200, 2)))
    np.save(tmp_path / "Y-0.npy", np.ones((labels, 2), np.int8))
    np.save(tmp_path / "weight-0.npy", np.ones(weights))
    which = "Y-0" if labels != 200 else "weight-0"
    with pytest.raises(ValueError, match=rf"{which}.npy (has more|does not have as many) rows"):
        list(RowBlocks.read(tmp_path, rows=50).blocks())


@pytest.mark.parametrize("stray", ["weights", "weight-1", "w", "sample_weight-0", "Y-1", "x-0"])
def test_no_file_of_a_folder_is_ignored(tmp_path, stray):
    np.save(tmp_path / "X-0.npy", np.ones((20, 2)))
    np.save(tmp_path / "Y-0.npy", np.ones((20, 2), np.int8))
    np.save(tmp_path / f"{stray}.npy", np.ones(50))
    with pytest.raises(ValueError, match=r"npy: (expected|there is no file (X|weight)-[01]\.npy)"):
        RowBlocks.read(tmp_path)


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
    with pytest.raises(ValueError, match=r"part-000000\.npy: is there already"):
        clf.predict(RowBlocks(X, rows=200)).save(tmp_path / "new")


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        ("%d/%m/%Y", "%m/%d/%Y", "dates with the month before the day"),
        ("%Y-%m-%d", "%d/%m/%Y", "dates with the day before the month"),
        ("%d.%m.%Y", "%Y-%m-%d", ""),
        (".", ",", "a decimal ','"),
        (",", ".", "a decimal '.'"),
        ("", ",", "a decimal ','"),
        (",", "", ""),
    ],
)
def test_blocks_are_read_as_the_encoder_was_fitted(tmp_path, first, later, found):
    days = pd.date_range("2024-01-01", periods=60)
    numbers = [f"{7 * i % 60}.{10 + i}" for i in range(60)]
    for part, way in enumerate((first, later)):
        plain = [text.partition(".")[0] if way == "" else text for text in numbers]
        values = days.strftime(way) if "%" in way else [text.replace(".", way) for text in plain]
        frame = pd.DataFrame({"x": values, "is_a": np.arange(60) % 2})
        frame.to_csv(tmp_path / f"p{part}.csv", index=False)
    cells = pd.read_csv(tmp_path / "p0.csv", dtype=str)[["x"]]
    encoder = TableEncoder({"x": "date" if "%" in first else "numeric"}).fit(cells)
    blocks = RowBlocks.read(tmp_path, label_prefix="is_", encoder=encoder)
    if not found:
        assert len(np.vstack([block.X for block in blocks.blocks()])) == 120
        return
    with pytest.raises(ValueError, match=r"p1\.csv.*column 'x'.*--memory") as error:
        FBetaClassifier().fit(blocks)
    assert found in str(error.value)


def test_an_index_of_pandas_is_no_feature(tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0), "is_a": np.arange(60) % 2})
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "i.parquet")
    blocks = RowBlocks.read(tmp_path / "i.parquet", label_prefix="is_")
    assert blocks.feature_names.tolist() == ["x"]
    assert sum(len(block.X) for block in blocks.blocks()) == 60
