"""Fits to collections of Dask, on separate processes that may be killed."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("distributed")

import dask
import dask.array as da
import pandas as pd
from dask import delayed

from fbeta import FBetaClassifier, FBetaClassifierCV
from fbeta.blocks import distributed
from fbeta.blocks.distributed import Distributed
from fbeta.rivals import BinaryRelevance

from ..cases import slow
from .toys import SMALL, make_rows

# what Dask itself warns of is not for these tests to mend
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    options = {"n_workers": 3, "threads_per_worker": 1, "processes": True}
    with (
        LocalCluster(dashboard_address=None, memory_limit="500MB", **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def chunked(values, sizes):
    return da.from_array(values, chunks=(sizes, *((n,) for n in values.shape[1:])))


def close(found, inside):
    np.testing.assert_allclose(found.coef_, inside.coef_, rtol=0.02, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1000,) * 3, (1, 1700, 0, 1299)])
def test_equal_to_the_fit_in_memory(client, sizes):
    X, Y = make_rows(3000, s=3, dtype=np.float32)
    source = Distributed(chunked(X, sizes), chunked(Y, sizes), memory=SMALL)
    found, inside = FBetaClassifier().fit(source), FBetaClassifier().fit(X, Y)
    close(found, inside)
    assert type(found) is FBetaClassifier
    assert source.passes <= 16
    X = chunked(X, sizes)
    for method in ("predict", "predict_proba", "expected_fbeta"):
        lazy = getattr(found, method)(X)
        assert isinstance(lazy, da.Array)
        np.testing.assert_allclose(lazy.compute(), getattr(found, method)(X.compute()), atol=1e-6)
    statistics = found.predict_statistics(X)
    assert dask.is_dask_collection(statistics)
    expected = found.predict_statistics(X.compute()).marginals()
    for lazy in (statistics, statistics.persist()):
        np.testing.assert_allclose(lazy.compute().marginals(), expected, atol=1e-6)


@pytest.mark.slow
def test_x_stays_where_it_is_and_graphs_do_not_grow(client, monkeypatch):
    X, Y = make_rows(6000, 16, 2, dtype=np.float32)
    seen, compute = [], dask.compute

    def watched(*args, **options):
        out = compute(*args, **options)
        tasks = sum(len(dict(a.__dask_graph__())) for a in args)
        seen.append((tasks, len(out), max(sum(n.nbytes for n in arrays(a)) for a in out)))
        return out

    monkeypatch.setattr(dask, "compute", watched)
    source = Distributed(chunked(X, 1000), chunked(Y, 1000), memory=600_000)
    close(FBetaClassifier().fit(source), FBetaClassifier().fit(X, Y))
    assert max(size for _, _, size in seen) < X.nbytes / 8
    # rounds that only add up
    rounds = [tasks for tasks, results, _ in seen if results == 1][3:]
    assert len(rounds) >= 3
    assert max(rounds) <= 30


def arrays(value):
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [a for part in value for a in arrays(part)]
    own = vars(value).values() if hasattr(value, "__dict__") else ()
    return [a for part in own for a in arrays(part)]


@pytest.mark.slow
def test_unknown_chunk_sizes_sparse_chunks_and_frames(client):
    X, Y = make_rows(3000, sparse=True)
    cut = [slice(0, 1300), slice(1300, 1300), slice(1300, 3000)]
    sparse = da.concatenate(
        [
            da.from_delayed(delayed(X[part]), shape=(np.nan, 8), meta=sp.csr_array((0, 8)))
            for part in cut
        ],
        allow_unknown_chunksizes=True,
    )
    labels = chunked(Y, (1300, 0, 1700))
    found = BinaryRelevance().fit(sparse, labels)
    close(found, BinaryRelevance().fit(X, Y))
    assert np.isnan(found.predict(sparse).shape[0])
    with pytest.raises(ValueError, match="chunk sizes of X are unknown: give y as"):
        BinaryRelevance().fit(sparse, Y)
    frames = pytest.importorskip("dask.dataframe")
    dense = pd.DataFrame(X.toarray(), columns=list("abcdefgh"))
    marks = pd.DataFrame(Y, columns=["sea", "sky", "sun", "fog"])
    ddx, ddy = (frames.from_pandas(frame, npartitions=3) for frame in (dense, marks))
    found = FBetaClassifier().fit(ddx, ddy)
    inside = FBetaClassifier().fit(dense, marks)
    close(found, inside)
    assert found.feature_names_in_.tolist() == list("abcdefgh")
    assert found.predict(ddx).compute().columns.tolist() == list(marks.columns)
    some = frames.from_delayed([delayed(dense[:0]), delayed(dense[:9])], meta=dense[:0])
    np.testing.assert_allclose(found.predict_proba(some).compute(), found.predict_proba(dense[:9]))


@pytest.mark.slow
@pytest.mark.parametrize("column", ["X", "y"])
def test_what_is_wrong_is_named_by_its_chunk(client, column):
    X, Y = make_rows(2000)
    if column == "X":
        X[1507, 3] = np.nan
        message = r"chunk 3, row 7: Input X contains NaN \(feature 3\)"
    else:
        Y[1507, 1] = 2
        message = "chunk 3.*found 2"
    clf = FBetaClassifier()
    with pytest.raises(ValueError, match=message):
        clf.fit(chunked(X, 500), chunked(Y, 500))
    assert not hasattr(clf, "classes_")
    with pytest.raises(ValueError, match="X has 2000 rows and y has 1500"):
        clf.fit(chunked(X, 500), chunked(Y[:1500], 500))


@pytest.mark.slow
def test_cross_validation_shares_rounds(client):
    X, Y = make_rows(2400, s=2)
    settings = {"alphas": [0.01, 10.0, 3000.0], "cv": 3}
    source = Distributed(chunked(X, 800), chunked(Y, 800), memory=SMALL)
    found = FBetaClassifierCV(**settings).fit(source)
    inside = FBetaClassifierCV(**settings).fit(X, Y)
    for key in ("mean_test_score", "split2_test_score"):
        np.testing.assert_allclose(found.cv_results_[key], inside.cv_results_[key], atol=2e-3)
    assert found.alpha_ == inside.alpha_
    close(found.best_estimator_, inside.best_estimator_)
    # nine fits and the last one took no more rounds than the slowest few of them
    assert source.passes < 40


@pytest.mark.slow
def test_workers_that_cannot_hold_x(client):
    """X is more than what a worker may use, in chunks that are made on the workers."""
    rows, chunks = 21_000, 20
    parts = [delayed(make_part, nout=2)(number, rows) for number in range(chunks)]
    X = da.concatenate([da.from_delayed(X, (rows, 300), np.float32) for X, _ in parts])
    Y = da.concatenate([da.from_delayed(Y, (rows, 1), np.int8) for _, Y in parts])
    assert X.nbytes > 500e6
    clf = BinaryRelevance(alpha=100.0, tol=1e-4).fit(Distributed(X, Y, memory="40MB"))
    truth = np.cos(np.arange(300))
    assert np.corrcoef(clf.coef_[0], truth)[0, 1] > 0.98


def make_part(number, rows):
    rng = np.random.default_rng(number)
    X = rng.random((rows, 300), dtype=np.float32) - np.float32(0.5)
    u = X @ (0.7 * np.cos(np.arange(300, dtype=np.float32)))
    return X, (rng.random(rows) < 1 / (1 + np.exp(-u)))[:, None].astype(np.int8)


@pytest.mark.slow
def test_a_killed_worker_changes_nothing_but_the_time(client, monkeypatch):
    X, Y = make_rows(3000, s=2, dtype=np.float32)
    evaluate = distributed.Distributed.evaluate
    killed = []

    def kill_once(self, *args, **options):
        if self.passes == 3 and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            late = threading.Timer(0.05, os.kill, (killed[0], signal.SIGKILL))
            late.start()
            time.sleep(0.04)
        return evaluate(self, *args, **options)

    monkeypatch.setattr(distributed.Distributed, "evaluate", kill_once)
    source = Distributed(chunked(X, 500), chunked(Y, 500), memory=SMALL)
    found = FBetaClassifier().fit(source)
    assert killed
    close(found, FBetaClassifier().fit(X, Y))


@pytest.mark.parametrize("scheduler", ["synchronous", slow("threads")])
def test_without_a_cluster(scheduler):
    X, Y = make_rows(2500)
    with dask.config.set(scheduler=scheduler):
        found = FBetaClassifier().fit(Distributed(chunked(X, 900), Y, memory=SMALL))
        lazy = found.predict(chunked(X, 900))
        assert isinstance(lazy, da.Array)
        np.testing.assert_array_equal(lazy.compute(), found.predict(X))
    close(found, FBetaClassifier().fit(X, Y))
