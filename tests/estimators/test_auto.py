"""FBetaAuto: what it chooses, within what time, on what data."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    FBetaAuto,
    FBetaClassifierCV,
    LabelStatistics,
    SizedClassifier,
)
from fbeta.datasets import CalibratedLaw, make_calibrated
from fbeta.estimators import auto, folds, members
from fbeta.estimators.auto import feature_maps
from fbeta.estimators.average import Clock
from fbeta.estimators.folds import make_folds
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance
from fbeta.storage.model_files import load_model, save_model

from ..cases import slow


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(100, n_labels=2, n_features=6)
    return X * 10.0 ** np.arange(-3, 3), Y


@pytest.fixture(scope="module")
def fitted(data, few_trees):
    return FBetaAuto(cv=3, time_limit=None, random_state=0).fit(*data)


def test_it_is_not_worse_than_the_papers_method_by_cross_validation(data, fitted):
    X, Y = data
    with pytest.warns(UserWarning, match="ranges of the columns"):
        paper = FBetaClassifierCV(cv=3).fit(X, Y)
    board = {row["name"]: row for row in fitted.leaderboard_}
    assert board["raw: joint"]["score"] >= paper.best_score_ - 5e-3
    assert fitted.best_score_ >= paper.best_score_ - 0.03
    models = {"joint", "sized", "sized, independent", "cardinality", "label sets"}
    assert models <= {name.partition(": ")[2] for name in board}
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert fitted.predict(X, beta=2.0, max_labels=1).sum(axis=1).max() <= 1


def test_the_statistics_are_the_average_of_those_of_its_members(data, fitted):
    X = data[0][:9]
    model = fitted.model
    parts = [
        member.predict_statistics(model.maps[place].transform(X))
        for member, place in zip(model.members, model.places, strict=True)
    ]
    mean = LabelStatistics.mixture(parts, model.weights)
    np.testing.assert_allclose(fitted.predict_statistics(X).joint, mean.joint, atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X), np.minimum(mean.marginals(), 1), atol=1e-12)
    raw = fitted.expected_fbeta(X, calibrated=False)
    np.testing.assert_allclose(fitted.expected_fbeta(X), fitted.calibration_(raw))


def test_it_says_what_it_chose(fitted):
    text = fitted.summary()
    for name, weight in fitted.weights_.items():
        assert name in text
        if weight:
            assert f"{weight:.2f}" in text
    assert f"{fitted.best_score_:.4f}" in text


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(data, few_trees):
    X, Y = data[0][:40], data[1][:40]
    one, other = (FBetaAuto(cv=2, time_limit=None, random_state=3).fit(X, Y) for _ in range(2))
    assert one.weights_ == other.weights_
    assert np.array_equal(one.expected_fbeta(X), other.expected_fbeta(X))


def test_model_files(data, fitted, tmp_path):
    pytest.importorskip("skops")
    X = data[0]
    save_model(tmp_path / "auto.skops", fitted)
    stored = load_model(tmp_path / "auto.skops").estimator
    assert stored.leaderboard_ == fitted.leaderboard_
    assert np.array_equal(stored.predict(X), fitted.predict(X))
    assert np.array_equal(stored.expected_fbeta(X), fitted.expected_fbeta(X))


def test_progress_is_printed(data, capsys):
    events = []
    clf = FBetaAuto(cv=2, time_limit=1e-6, random_state=0, verbose=1)
    clf.fit(*data, progress=events.append)
    lines = capsys.readouterr().out.splitlines()
    assert "standardised: sized: 0." in lines[0]
    assert "to all rows" in lines[-1]
    kinds = [event.event for event in events]
    assert kinds[:3] == ["begin", "scored", "scored"]
    assert set(kinds[3:]) == {"fit"}
    assert events[1].score == pytest.approx(clf.best_score_, abs=0.1)
    assert events[-1].limit == 1e-6


@pytest.mark.slow
def test_large_tables_are_compared_on_one_split(few_trees, monkeypatch):
    monkeypatch.setattr("fbeta.estimators.auto.LARGE_ELEMENTS", 1000)
    X, Y, _, _ = make_calibrated(300, n_labels=2, n_features=6)
    clf = FBetaAuto(time_limit=3, random_state=0).fit(X, Y)
    assert clf.predict(X).shape == Y.shape
    assert list(feature_maps(X, 0, True)) == ["standardised", "kernel 0.3", "kernel 1", "raw"]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    assert "standardised" not in feature_maps(scaled, 0, True)


def test_dense_features_that_are_mostly_zero_are_taken_as_sparse():
    rng = np.random.default_rng(0)
    X = np.where(rng.uniform(size=(60, 150)) < 0.05, 1.0, 0.0)
    Y = (X[:, :2] > 0).astype(int)
    clf = FBetaAuto(time_limit=1e-6, cv=2, random_state=0).fit(X, Y)
    assert "length 1" in clf.leaderboard_[0]["name"]
    assert np.array_equal(clf.predict(X), clf.predict(sp.csr_array(X)))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_gaps_in_the_features(data, few_trees, form):
    X, Y = data
    rng = np.random.default_rng(0)
    gaps = np.where(rng.uniform(size=X.shape) < 0.1, np.nan, np.where(np.abs(X) < 0.01, 0, X))
    gaps[:, 4] = np.nan
    given = sp.csr_array(gaps) if form == "sparse" else gaps
    clf = FBetaAuto(cv=2, time_limit=1e-6, random_state=0).fit(given, Y)
    assert clf.predict(given).shape == Y.shape
    clf = FBetaAuto(cv=2, time_limit=1e-6, random_state=0).fit(X, Y)
    if form == "dense":
        # no gaps in training, but later
        assert clf.predict(gaps).shape == Y.shape
    with pytest.raises(ValueError, match="infinity"):
        clf.predict(np.where(np.isnan(gaps), np.inf, gaps))
    # every column has gaps, and all maps but one of dense features mark them
    columns = {
        name: steps[:2].fit_transform(given).shape[1]
        for name, steps in feature_maps(given, 0).items()
        if "kernel" not in name
    }
    unmarked = {"standardised, no marks": 6} if form == "dense" else {}
    assert columns == {**dict.fromkeys(columns, 12), **unmarked}


@pytest.mark.slow
def test_sparse_features_stay_sparse(few_trees):
    rng = np.random.default_rng(0)
    X = sp.random_array((80, 300), density=0.05, random_state=rng, format="csr")
    X.data = np.ceil(3 * X.data)
    Y = np.asarray((X[:, :3] > 0).toarray(), dtype=int)
    clf = FBetaAuto(cv=2, random_state=0).fit(X, Y)
    assert {"length 1: sized", "TF-IDF: sized", "raw: joint"} <= set(clf.weights_)
    assert clf.score(X, Y) > 0.8
    assert "TF-IDF" not in feature_maps(-X, 0)


@pytest.mark.parametrize(
    "Y", [np.zeros((30, 2), int), np.ones((30, 1), int), slow(np.arange(30)[:, None] % 2)]
)
def test_odd_labels(few_trees, Y):
    X = np.arange(60.0).reshape(30, 2) / 60
    clf = FBetaAuto(cv=2, random_state=0).fit(X, Y)
    assert clf.predict(X).shape == Y.shape
    if not Y.any() or Y.all():
        assert clf.score(X, Y) == 1


def test_it_works_in_pipelines_and_cross_validation(data):
    X, Y = data
    model = make_pipeline(StandardScaler(), FBetaAuto(cv=2, time_limit=1e-6, random_state=0))
    assert (cross_val_score(model, X, Y, cv=2) > 0.3).all()


@pytest.mark.parametrize(
    ("parameters", "message"), [({"time_limit": 0}, "time_limit"), ({"beta": -1.0}, "beta")]
)
def test_mistakes_are_named(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        FBetaAuto(**parameters).fit(*data)


def test_maps_share_the_folds(data):
    X, Y = data
    maps = feature_maps(X, 0)
    folds = make_folds(2, X, form_of(Y).read(Y))
    assert len(folds) == 2
    for name, mapping in maps.items():
        Z = mapping.fit_transform(X)
        assert np.isfinite(Z).all(), name
        np.testing.assert_allclose(mapping.transform(X[:5]), Z[:5], atol=1e-8)


@pytest.fixture
def processor_time(monkeypatch):
    """Have limits in seconds of the processor: other programs do not use them up."""
    monkeypatch.setattr(auto, "Clock", partial(Clock, process_time))
    for module in (folds, members):
        monkeypatch.setattr(module, "perf_counter", process_time)


@pytest.mark.slow
def test_it_is_consistent_where_the_papers_method_is(few_trees, processor_time):
    law = CalibratedLaw(4, 40, 0)
    train, test = law.sample(10_000, 1), law.sample(4000, 2)
    clf = FBetaAuto(cv=2, time_limit=60, random_state=0).fit(train.X, train.Y)
    assert test.regret(clf.predict(test.X)) < 0.003


@pytest.mark.slow
def test_short_texts(processor_time):
    path = Path(__file__).resolve().parents[2] / "examples" / "02_text.py"
    if not path.exists():
        pytest.skip("the examples are not here")
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("example_text", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    texts, tags = example.make_corpus(1200, seed=0)
    new_texts, new_tags = example.make_corpus(1500, seed=1)
    clf = make_pipeline(TfidfVectorizer(), FBetaAuto(time_limit=60, cv=3, random_state=0))
    predicted = clf.fit(texts, tags).predict(new_texts)
    assert fbeta_per_instance(new_tags, predicted).mean() >= 0.825


@pytest.mark.slow
def test_many_labels_are_listed(monkeypatch, tmp_path):
    """Nothing of all labels is made of the rows, and one model over one map is chosen."""
    monkeypatch.setattr("fbeta.estimators.auto.MANY_LABELS", 40)
    monkeypatch.setattr("fbeta.estimators.auto.MAX_LISTED", 6)
    rng = np.random.default_rng(0)
    X = sp.random_array((250, 60), density=0.15, rng=rng, format="csr")
    Y = sp.csr_array(X @ (rng.random((60, 50)) < 0.05) > 1.1, dtype=np.int8)
    clf = FBetaAuto(time_limit=None, random_state=0).fit(X, Y)
    (member,) = clf.model.members
    assert member.max_listed == 6
    assert sorted(clf.weights_.values())[-2:] == [0.0, 1.0]
    assert len(clf.leaderboard_) >= 3
    P = clf.predict_proba(X)
    assert sp.issparse(P)
    assert np.diff(P.indptr).max() == 6
    assert clf.score(X, Y) > SizedClassifier(1.0, 100.0).fit(X, Y).score(X, Y)
    save_model(tmp_path / "auto", clf)
    assert (load_model(tmp_path / "auto").estimator.predict(X) != clf.predict(X)).nnz == 0
