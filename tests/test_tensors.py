"""Whole estimators on arrays of any library and device, as scikit-learn dispatches them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone

from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaEnsemble,
    SizedClassifier,
)
from fbeta.datasets import make_calibrated
from fbeta.rivals import BinaryRelevance
from fbeta.storage.model_files import load_model, save_model

from .cases import slow, slow_but
from .places import TENSORS, fetch, put

ESTIMATORS = [
    FBetaClassifier(alpha=0.5, tol=1e-10),
    FBetaClassifier(alpha=0.5, fit_intercept=False, loss="squared", tol=1e-10),
    FBetaClassifierCV(alphas=[1.0, 100.0], cv=2, tol=1e-10),
    AlphaSearchCV(BinaryRelevance(decode="independent", tol=1e-10), alphas=[0.1, 10.0], cv=2),
    BinaryRelevance(alpha=0.5, tol=1e-10),
    SizedClassifier(alpha=0.5, tol=1e-10),
    CardinalityClassifier(alpha=0.5, tol=1e-10),
]


@pytest.fixture(autouse=True)
def dispatch(monkeypatch):
    """Let scikit-learn pass tensors on."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


@cache
def draw():
    """Features, labels and weights of rows, one of which counts nothing."""
    X, Y, _, _ = make_calibrated(150, n_labels=4, n_features=17, random_state=0)
    weight = np.linspace(0.5, 2, len(X))
    weight[3] = 0
    return X, Y, weight


@pytest.fixture(scope="module")
def data():
    return draw()[:2]


@cache
def fitted_here(number, dtype):
    """An estimator that is fitted to plain arrays, and what it predicts."""
    X, Y, weight = draw()
    here = clone(ESTIMATORS[number]).fit(X.astype(dtype), Y, weight)
    return here, [here.predict(X), here.predict_proba(X), here.expected_fbeta(X)]


# arrays that allow nothing else take their time: two estimators of two kinds of models
KEPT = {("strict on device1", 0), ("strict on device1", 5)} | {
    ("torch", number) for number in range(len(ESTIMATORS))
}


@pytest.mark.parametrize(
    ("place", "number"),
    [
        (pytest.param if case in KEPT else slow)(*case, id=f"{type(e).__name__}-{case[0]}")
        for number, e in enumerate(ESTIMATORS)
        for case in ((place, number) for place in TENSORS)
    ],
)
@pytest.mark.parametrize("dtype", ["float64", slow("float32")])
def test_what_goes_in_comes_out(number, place, dtype):
    X, Y, weight = draw()
    T = put(X, place, dtype)
    here, expected = fitted_here(number, dtype)
    statistics = here.predict_statistics(X)
    there = clone(ESTIMATORS[number]).fit(T, put(Y, place), put(weight, place))
    one, other = (getattr(e, "best_estimator_", e).coef_ for e in (there, here))
    assert np.allclose(fetch(one, place), other, atol=1e-3)
    found = [there.predict(T), there.predict_proba(T), there.expected_fbeta(T)]
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert np.allclose(fetch(one, place), other, atol=1e-3)
    assert np.mean(fetch(found[0], place) == expected[0]) > 0.99
    assert fetch(found[0], place).dtype == Y.dtype
    assert np.allclose(fetch(there.predict_statistics(T).joint, place), statistics.joint, atol=1e-3)
    assert there.score(T, put(Y, place)) == pytest.approx(here.score(X, Y), abs=0.02)


@pytest.mark.parametrize("place", slow_but(("torch",), TENSORS))
def test_labels_that_are_no_tensors(place, data):
    X, Y = data
    T, sets = put(X, place), [[f"tag{j}" for j in np.flatnonzero(row)] for row in Y]
    clf = FBetaClassifier().fit(T, sets)
    assert clf.predict(T[:3, :]) == FBetaClassifier().fit(X, sets).predict(X[:3])
    sparse = FBetaClassifier().fit(T, sp.csr_array(Y)).predict(T)
    assert (sparse.toarray() == FBetaClassifier().fit(X, Y).predict(X)).mean() > 0.99
    one = FBetaClassifier().fit(T, put(Y[:, 0] > 0, place))
    assert fetch(one.predict(T), place).shape == (150,)
    assert fetch(one.predict_proba(T), place).shape == (150, 2)


@pytest.mark.parametrize("place", TENSORS[:3])
def test_other_precision_and_chunks_at_prediction(place, data, monkeypatch):
    X, Y = data
    clf = FBetaClassifier().fit(put(X, place), Y)
    whole = fetch(clf.predict_proba(put(X, place)), place)
    monkeypatch.setattr("fbeta.estimators.base.CHUNK_BYTES", 4000)
    assert np.allclose(fetch(clf.predict_proba(put(X, place)), place), whole)
    single = clf.predict_proba(put(X, place, "float32"))
    assert np.allclose(fetch(single, place), whole, atol=1e-4)


def test_a_model_on_tensors_is_stored_as_arrays(tmp_path, data):
    pytest.importorskip("torch")
    X, Y = data
    clf = FBetaClassifier().fit(put(X, "torch"), Y)
    save_model(tmp_path / "model.skops", clf)
    again = load_model(tmp_path / "model.skops").estimator
    assert np.allclose(again.predict_proba(X), fetch(clf.predict_proba(put(X, "torch")), "torch"))


def test_without_dispatch_tensors_are_arrays(data):
    torch = pytest.importorskip("torch")
    X, Y = data
    with config_context(array_api_dispatch=False):
        clf = FBetaClassifier().fit(torch.asarray(X), Y)
        assert isinstance(clf.predict(torch.asarray(X)), np.ndarray)


@pytest.mark.parametrize("estimator", [BinaryRelevance(), SizedClassifier()])
def test_calibration_is_the_same_where_expected_values_come_last(estimator, data, monkeypatch):
    X, Y = data[:2]
    found = {}
    for on_device in (False, True):
        monkeypatch.setattr(
            "fbeta.estimators.alpha_search.is_accelerator", lambda _, d=on_device: d
        )
        found[on_device] = AlphaSearchCV(estimator, alphas=[0.1, 10.0]).fit(X, Y)
    one, other = found.values()
    assert one.alpha_ == other.alpha_
    np.testing.assert_array_equal(one.calibration_.expected, other.calibration_.expected)
    np.testing.assert_array_equal(one.calibration_.achieved, other.calibration_.achieved)


@pytest.mark.parametrize("place", slow_but(("torch",), TENSORS))
def test_an_average_of_estimators(place, data):
    X, Y = data
    weight = np.linspace(0.5, 2, len(X))
    members = [("joint", FBetaClassifier(tol=1e-10)), ("sized", SizedClassifier(tol=1e-10))]
    average = FBetaEnsemble(members, alphas=[0.1, 1.0], cv=3)
    here, there = clone(average).fit(X, Y, weight), clone(average)
    there.fit(put(X, place), put(Y, place), put(weight, place))
    assert there.weights_ == pytest.approx(here.weights_, abs=1e-5)
    found = there.predict_proba(put(X, place))
    assert np.allclose(fetch(found, place), here.predict_proba(X), atol=1e-5)
    found = there.expected_fbeta(put(X, place))
    assert np.allclose(fetch(found, place), here.expected_fbeta(X), atol=1e-5)
    assert np.mean(fetch(there.predict(put(X, place)), place) == here.predict(X)) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("place", TENSORS[2:])
def test_the_automatic_classifier(place, data, monkeypatch):
    X, Y = data
    monkeypatch.setattr("fbeta.estimators.base.CHUNK_BYTES", 4000)  # slices of rows
    told = []
    auto = FBetaAuto(time_limit=None, cv=2, random_state=0)
    auto.fit(put(X, place), put(Y, place), np.linspace(0.5, 2, len(X)), progress=told.append)
    left_out = {event.name for event in told if event.event == "left out"}
    assert {"forest, random splits", "neighbours"} <= left_out
    assert any(row["name"].startswith("kernel") for row in auto.leaderboard_)
    found = fetch(auto.predict_proba(put(X, place)), place)
    assert found.shape == Y.shape
    assert auto.score(put(X, place), put(Y, place)) > 0.5
    with pytest.raises(ValueError, match="NaN"):
        auto.fit(put(np.where(X > 1, np.nan, X), place), put(Y, place))


AVERAGES = [
    FBetaEnsemble([("joint", FBetaClassifier())], alphas=[1.0], cv=2),
    FBetaAuto(candidates=[("joint", FBetaClassifier())], replace=True, cv=2),
]


@pytest.mark.parametrize(
    "estimator", [FBetaClassifier(), *AVERAGES], ids=lambda e: type(e).__name__
)
def test_another_library_than_that_of_fit_is_named(estimator, data):
    X, Y = data
    T, name = put(X, "torch"), type(estimator).__name__
    for fitted, others in (
        (clone(estimator).fit(T, Y), (X, X.tolist())),
        (estimator.fit(X, Y), [T]),
    ):
        for other in others:
            for method in ("predict", "predict_proba", "predict_statistics", "expected_fbeta"):
                with pytest.raises(ValueError, match=rf"X of {name}.{method}\(\).* same namespace"):
                    getattr(fitted, method)(other)
            with pytest.raises(ValueError, match=rf"X of {name}.score\(\).* same namespace"):
                fitted.score(other, Y)
    tensors = clone(estimator).fit(T, Y)
    with config_context(array_api_dispatch=False):
        for other in (X, T):
            with pytest.raises(ValueError, match=rf"{name} was fitted to tensors: set_config"):
                tensors.predict(other)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_for_arrays(device, data):
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device is here")
    X, Y = data
    members = [("joint", FBetaClassifier(tol=1e-10)), ("sized", SizedClassifier(tol=1e-10))]
    here, there = (
        FBetaEnsemble(members, alphas=[0.1, 1.0], cv=3, device=name).fit(X, Y)
        for name in (None, device)
    )
    assert isinstance(there.predict(X), np.ndarray)
    assert np.allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-5)
    assert there.model.members[0].coef_.dtype == np.float64
    with pytest.raises(TypeError, match=f"device='{device}' needs a dense array X"):
        there.fit(sp.csr_array(X), Y)
