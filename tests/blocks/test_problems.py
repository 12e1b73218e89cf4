"""Fits to blocks are those to arrays: the same objective, the same certificate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.naive_bayes import GaussianNB

import fbeta.blocks.passes
from fbeta import CardinalityClassifier, FBetaClassifier, FBetaReduction, SizedClassifier
from fbeta.blocks import CheckpointError, RowBlocks
from fbeta.losses import get_loss
from fbeta.rivals import BinaryRelevance

from ..cases import slow
from ..linear import hostile
from .toys import SMALL, make_rows, objectives


@pytest.mark.parametrize("Estimator", [FBetaClassifier, slow(BinaryRelevance)])
@pytest.mark.parametrize("dtype", [slow(np.float32), np.float64])
@pytest.mark.parametrize("sparse", [slow(False), True])
@pytest.mark.parametrize("intercept", [slow(False), True])
def test_same_as_in_memory(Estimator, dtype, sparse, intercept):
    X, Y = make_rows(dtype=dtype, sparse=sparse)
    clf = Estimator(alpha=0.5, fit_intercept=intercept)
    blocks = RowBlocks(X, Y, memory=SMALL, rows=150)
    found = Estimator(**clf.get_params()).fit(blocks)
    inside = clf.fit(X, Y)
    assert 3 <= blocks.passes <= 15
    assert found.coef_.dtype == inside.coef_.dtype
    assert found.coef_.shape == inside.coef_.shape
    T = inside._code.targets(sp.csr_array(Y))
    own, other = (objectives(e._model, X, T, 0.5) for e in (found, inside))
    np.testing.assert_allclose(own, other, rtol=2e-6, atol=2e-6 * 1e-4 * len(Y))
    assert (found.predict(X) == inside.predict(X)).mean() > 0.999
    assert found.classes_.tolist() == inside.classes_.tolist()
    assert found.n_features_in_ == X.shape[1]


@pytest.mark.slow
def test_tight_tolerance_gives_the_same_coefficients():
    X, Y = make_rows(dtype=np.float32)
    blocks = RowBlocks(X, Y, memory=SMALL, rows=333)
    found = FBetaClassifier(tol=1e-13).fit(blocks)
    inside = FBetaClassifier(tol=1e-13).fit(X.astype(np.float64), Y)
    np.testing.assert_allclose(found.coef_, inside.coef_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [slow("exponential"), "squared"])
def test_other_losses(loss):
    X, Y = make_rows()
    clf = BinaryRelevance(loss=loss).fit(RowBlocks(X, Y, memory=SMALL))
    inside = BinaryRelevance(loss=loss).fit(X, Y)

    def value(e):
        U = X @ e.coef_.T + e.intercept_
        losses = get_loss(loss).value(Y.astype(float), U).sum(axis=0)
        return losses + 0.5 * (e.coef_**2).sum(axis=1)

    np.testing.assert_allclose(value(clf), value(inside), rtol=3e-6)


def test_weights():
    X, Y = make_rows()
    weight = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    found = BinaryRelevance().fit(RowBlocks(X, Y, weight, memory=SMALL, rows=170))
    inside = BinaryRelevance().fit(X, Y, weight)
    own, other = (objectives(e._model, X, Y, 1.0, weight) for e in (found, inside))
    np.testing.assert_allclose(own, other, rtol=2e-6)


def test_all_rows_in_memory_is_the_fit_of_arrays():
    X, Y = make_rows(500)
    blocks = RowBlocks([(X[:200], Y[:200]), (X[200:], Y[200:])])
    found, inside = FBetaClassifier().fit(blocks), FBetaClassifier().fit(X, Y)
    assert blocks.passes == 1
    np.testing.assert_array_equal(found.coef_, inside.coef_)


@pytest.mark.slow
def test_how_rows_are_cut_changes_nothing_but_rounding():
    X, Y = make_rows()
    cuts = [RowBlocks(X, Y, memory=SMALL, rows=rows) for rows in (97, 1000)]
    one, other = (FBetaClassifier().fit(blocks) for blocks in cuts)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-6)


def test_equal_and_constant_targets():
    X, Y = make_rows()
    Y = np.column_stack([Y, Y[:, 0], np.zeros(len(Y), int), np.ones(len(Y), int)])
    found = BinaryRelevance().fit(RowBlocks(X, Y, memory=SMALL))
    inside = BinaryRelevance().fit(X, Y)
    assert np.isneginf(found.intercept_[5])
    assert np.isposinf(found.intercept_[6])
    np.testing.assert_array_equal(found.coef_[0], found.coef_[4])
    np.testing.assert_array_equal(np.isinf(found.intercept_), np.isinf(inside.intercept_))


def test_odd_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    Y = np.zeros((3000, 3), int)
    Y[:3, 0] = 1  # next to nothing, and the last label never
    found = FBetaClassifier().fit(RowBlocks(X, Y, memory=SMALL))
    inside = FBetaClassifier().fit(X, Y)
    assert (found.predict(X) == inside.predict(X)).all()
    wide = rng.normal(size=(2500, 300))
    found = BinaryRelevance(alpha=10.0).fit(RowBlocks(wide, Y[:2500, :1], memory="5MB"))
    inside = BinaryRelevance(alpha=10.0).fit(wide, Y[:2500, :1])
    own, other = (objectives(e._model, wide, Y[:2500, :1], 10.0) for e in (found, inside))
    np.testing.assert_allclose(own, other, rtol=1e-5)


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 10)), slow(range(100, 110))])
def test_nothing_is_silently_wrong(seeds, monkeypatch):
    """Hostile problems with hardly more rows held than features: certified, or a warning."""
    certified = total = 0
    for seed in seeds:
        case = hostile.make_case(seed)
        n = len(case.dense)
        monkeypatch.setattr(fbeta.blocks.passes, "row_capacity", lambda memory, X, n=n: 5 + n // 2)
        blocks = RowBlocks(case.X, case.targets.astype(np.int8), case.weight, rows=17)
        clf = BinaryRelevance(alpha=case.alpha, fit_intercept=case.intercept, max_iter=25)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = clf.fit(blocks)._model
        intercept = np.nan_to_num(model.intercept.astype(float), posinf=1e3, neginf=-1e3)
        found = hostile.objectives(case, model.coef, intercept)
        best = np.array([hostile.optimum(case, m) for m in range(10)])
        weight = n if case.weight is None else case.weight.sum()
        wrong = ~(found <= best + 1e-5 * (best + 1e-4 * weight * np.log(2)))
        assert not (wrong & model.converged).any(), case.words
        certified, total = certified + model.converged.sum(), total + 10
    assert certified > total / 3


def test_what_is_not_certified_is_named():
    X, Y = make_rows()
    blocks = RowBlocks(X, Y, memory=SMALL)
    with pytest.warns(ConvergenceWarning, match=r"passes at alpha = 1 \(label 0"):
        BinaryRelevance(max_iter=1).fit(blocks)
    assert blocks.passes == 2


def test_memory_map_is_recognised(tmp_path, monkeypatch):
    X, Y = make_rows(dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    seen = []
    read = RowBlocks.blocks
    monkeypatch.setattr(RowBlocks, "blocks", lambda self: seen.append(self) or read(self))
    found = FBetaClassifier().fit(mapped, Y)
    assert seen
    np.testing.assert_array_equal(found.coef_, FBetaClassifier().fit(X, Y).coef_)


def test_estimators_that_need_all_rows_say_so():
    X, Y = make_rows(100)
    with pytest.raises(TypeError, match="blocks of rows"):
        FBetaReduction(GaussianNB()).fit(RowBlocks(X, Y))


def test_a_failed_fit_changes_nothing():
    X, Y = make_rows()
    clf = FBetaClassifier().fit(X, Y)
    before, bad = clf.coef_, X.copy()
    bad[-1, 3] = np.nan
    with pytest.raises(ValueError, match="X, row 3999: Input X contains NaN"):
        clf.fit(RowBlocks(bad, Y, memory=SMALL))
    assert clf.coef_ is before


@pytest.mark.parametrize("Estimator", [CardinalityClassifier, SizedClassifier])
def test_models_of_sizes(Estimator):
    X, Y = make_rows(3000, 5, 3)
    blocks = RowBlocks(X, Y, memory=SMALL)
    found, inside = Estimator(tol=1e-7).fit(blocks), Estimator(tol=1e-7).fit(X, Y)
    assert 2 < blocks.passes <= 20
    np.testing.assert_allclose(found.predict_proba(X), inside.predict_proba(X), atol=3e-3)
    assert (found.predict(X) == inside.predict(X)).mean() > 0.999


PROGRAM = """
import os, signal, sys
import numpy as np
from fbeta import FBetaClassifier
from fbeta.blocks import RowBlocks
folder, last, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def watch(news):
    if news["passes"] == last and news["rows"] > (0 if where == "begin" else 2000):
        os.kill(os.getpid(), signal.SIGKILL)
blocks = RowBlocks(np.load(f"{folder}/X.npy"), np.load(f"{folder}/Y.npy"), memory=200_000,
                   rows=500, checkpoint=f"{folder}/state.npz", progress=watch)
FBetaClassifier(tol=1e-10).fit(blocks)
"""


def fit(X, Y, path=None, **settings):
    settings = {"tol": 1e-10} | settings
    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path)
    return FBetaClassifier(**settings).fit(blocks), blocks.passes


@cache
def uninterrupted():
    return fit(*make_rows())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize(("last", "where"), [slow(1, "begin"), (3, "end"), slow(4, "begin")])
def test_killed_at_any_moment(tmp_path, last, where):
    X, Y = make_rows()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(last), where],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    path = tmp_path / "state.npz"
    assert path.exists() == (last > 1)
    resumed, passes = fit(X, Y, path)
    whole, all_passes = uninterrupted()
    np.testing.assert_allclose(resumed.coef_, whole.coef_, rtol=1e-6, atol=1e-7)
    # the first pass is made again, for the rows that are held
    assert passes <= all_passes - max(0, last - 2)
    assert not path.exists()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] in ([], ["."])


def interrupted(path, X, Y, Estimator=FBetaClassifier, last=3, **settings):
    def stop(news):
        if news["passes"] == last:
            raise KeyboardInterrupt

    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        Estimator(**{"tol": 1e-10} | settings).fit(blocks)
    assert path.exists()


LINEAR = [FBetaClassifier, BinaryRelevance, SizedClassifier, CardinalityClassifier]


@pytest.mark.parametrize("Estimator", LINEAR)
@pytest.mark.parametrize("last", [3, slow(5)])
def test_every_linear_estimator_goes_on(tmp_path, Estimator, last):
    X, Y = make_rows(3000, 5, 3)
    path = tmp_path / "state.npz"
    interrupted(path, X, Y, Estimator, last, tol=1e-9)
    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path)
    resumed, inside = Estimator(tol=1e-9).fit(blocks), Estimator(tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(resumed.predict_proba(X), inside.predict_proba(X), atol=1e-3)
    assert not path.exists()


def test_other_data_or_settings_are_refused(tmp_path):
    X, Y = make_rows()
    path = tmp_path / "state.npz"
    interrupted(path, X, Y)
    other = X.copy()
    other[17, 3] += 1e-3
    flipped = Y.copy()
    flipped[20, 0] ^= 1
    settings = [{"alpha": 2.0}, {"fit_intercept": False}, {"tol": 1e-7}]
    tried = [((other, Y), {}), ((X, flipped), {}), *(((X, Y), own) for own in settings)]
    for args, settings in tried:
        with pytest.raises(CheckpointError, match="other data or with other settings"):
            fit(*args, path, **settings)
    assert path.exists()
    fit(X, Y, path)
    assert not path.exists()


def test_what_is_no_checkpoint_is_refused(tmp_path):
    X, Y = make_rows()
    path = tmp_path / "state.npz"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        fit(X, Y, path)
    interrupted(tmp_path / "other.npz", X, Y)
    path.write_bytes((tmp_path / "other.npz").read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="no checkpoint"):
        fit(X, Y, path)
    for head in ("[]", '"text"', "3", '{"version": 3, "groups": 0, "fingerprint": {}}'):
        np.savez(path, head=np.array(head))
        with pytest.raises(CheckpointError, match="no checkpoint"):
            fit(X, Y, path)


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
            FBetaClassifier(tol=1e-10).fit(blocks)


@pytest.mark.parametrize("estimator", [FBetaClassifier(), CardinalityClassifier()])
def test_too_little_memory_is_named(estimator):
    X, Y = make_rows(300)
    with pytest.raises(ValueError, match=r"memory is enough for \d+ rows.* at least 10 are needed"):
        estimator.fit(RowBlocks(X, Y, memory=500, rows=100))
