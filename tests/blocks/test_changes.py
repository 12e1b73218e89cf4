"""Data that differ from what a fit began with are refused, by name."""

from __future__ import annotations

import numpy as np
import pytest

from fbeta import FBetaClassifier
from fbeta.blocks import CheckpointError, RowBlocks
from fbeta.rivals import BinaryRelevance

from .toys import SMALL, make_rows


def fit_and_change(X, Y, change, weight=None):
    """Fit to blocks of 500 rows, and change the data after the second pass."""
    blocks = RowBlocks(X, Y, weight, memory=SMALL, rows=500)
    done = []

    def watch(news):
        if news["passes"] == 2 and not done:
            done.append(change())

    blocks.progress = watch
    BinaryRelevance(tol=1e-9).fit(blocks)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.25, np.nan, np.inf])
def test_an_entry_that_changes_between_passes(value, dtype, sparse):
    X, Y = make_rows(2000, dtype=dtype, sparse=sparse)
    values = X.data if sparse else X

    def change():
        values[-1 if sparse else (1700, 5)] = value

    with pytest.raises(ValueError, match=r"X, row 1500 and after: .* have changed since"):
        fit_and_change(X, Y, change)


@pytest.mark.parametrize("what", ["rows", "labels", "weights"])
def test_rows_that_change_places(what):
    X, Y = make_rows(2000)
    weight = np.random.default_rng(0).uniform(0.5, 2, 2000)
    values = {"rows": X, "labels": Y, "weights": weight}[what]
    other = next(i for i in range(1, 500) if (Y[i] != Y[0]).any())

    def change():
        values[[0, other]] = values[[other, 0]]

    with pytest.raises(ValueError, match=r"X, row 0 and after: .* have changed since"):
        fit_and_change(X, Y, change, weight)


def test_a_memory_map_that_was_truncated(tmp_path):
    X, Y = make_rows(2000)
    np.save(tmp_path / "X.npy", X)
    blocks = RowBlocks(np.load(tmp_path / "X.npy", mmap_mode="r"), Y, rows=500)
    assert len(list(blocks.blocks(ahead=False))) == 4
    with (tmp_path / "X.npy").open("r+b") as file:
        file.truncate(50_000)
    with pytest.raises(ValueError, match=r"X\.npy was truncated: it has 50000 bytes where"):
        list(blocks.blocks())


@pytest.mark.parametrize(("labels", "weights"), [(400, 200), (200, 500), (100, 200), (200, 10)])
def test_files_of_different_lengths(tmp_path, labels, weights):
    np.save(tmp_path / "X-0.npy", np.ones((200, 2)))
    np.save(tmp_path / "Y-0.npy", np.ones((labels, 2), np.int8))
    np.save(tmp_path / "weight-0.npy", np.ones(weights))
    which = "Y-0" if labels != 200 else "weight-0"
    with pytest.raises(ValueError, match=rf"{which}.npy (has more|does not have as many) rows"):
        list(RowBlocks.read(tmp_path, rows=50).blocks())


def interrupted(path, X, Y):
    def stop(news):
        if news["passes"] == 3:
            raise KeyboardInterrupt

    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        FBetaClassifier(tol=1e-8).fit(blocks)


def test_a_checkpoint_knows_rows_in_another_order(tmp_path):
    X, Y = make_rows()
    path = tmp_path / "state.npz"
    interrupted(path, X, Y)
    order = np.random.default_rng(0).permutation(len(X))
    for features, labels, what in (
        (X[order], Y[order], "X, the labels"),
        (X[order], Y, "X"),
        (X, Y[order], "the labels"),
        (np.sort(X, axis=0), Y, "X"),
    ):
        blocks = RowBlocks(features, labels, memory=SMALL, rows=500, checkpoint=path)
        with pytest.raises(CheckpointError, match=rf"\({what} differ\)"):
            FBetaClassifier(tol=1e-8).fit(blocks)
