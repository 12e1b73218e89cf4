from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    FBetaClassifier,
    LabelStatistics,
    decode,
    fbeta_score,
    make_fbeta_scorer,
)
from fbeta.datasets import load, make_calibrated
from fbeta.losses import SquaredLoss
from fbeta.rivals import ExactFPlugIn

from .toys import NAMES, as_sets


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(300, n_labels=3, n_features=12)
    return X, Y


def test_statistics_are_separate_logistic_regressions(data):
    """Every component of the statistics against scikit-learn, fitted one at a time."""
    X, Y = data
    clf = FBetaClassifier(alpha=0.5, tol=1e-12).fit(X, Y)
    q = clf.predict_statistics(X)
    sizes = Y.sum(axis=1)

    def peer(target):
        model = LogisticRegression(C=2.0, tol=1e-12, solver="newton-cholesky").fit(X, target)
        return model.predict_proba(X)[:, 1]

    assert np.allclose(q.empty, peer(sizes == 0), atol=1e-6)
    for k, size in enumerate(clf.cardinalities_):
        for j in range(3):
            target = (sizes == size) & (Y[:, j] == 1)
            expected = np.full(300, float(target[0])) if target.all() or not target.any() else None
            assert np.allclose(
                q.joint[:, k, j], peer(target) if expected is None else expected, atol=1e-6
            )


def test_predictions_are_the_decode_of_the_statistics(data):
    X, Y = data
    clf = FBetaClassifier().fit(X, Y)
    q = clf.predict_statistics(X)
    for beta in (0.5, 1.0, 2.0):
        labels, expected = decode(q, beta, return_expected=True)
        assert np.array_equal(clf.predict(X, beta=beta), labels)
        assert np.allclose(clf.expected_fbeta(X, beta=beta), np.minimum(expected, 1))
    assert np.array_equal(clf.predict(X), clf.predict(X, beta=1.0))
    assert clf.score(X, Y) == pytest.approx(fbeta_score(Y, clf.predict(X)))
    proba = clf.predict_proba(X)
    assert proba.shape == (300, 3)
    assert ((proba >= 0) & (proba <= 1)).all()
    assert isinstance(q, LabelStatistics)


def test_the_model_does_not_depend_on_beta(data):
    X, Y = data
    one, other = FBetaClassifier(beta=1.0).fit(X, Y), FBetaClassifier(beta=3.0).fit(X, Y)
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.predict(X, beta=3.0), other.predict(X))


def test_beta_trades_precision_for_recall(data):
    X, Y = data
    clf = FBetaClassifier().fit(X, Y)
    sizes = [clf.predict(X, beta=b).sum() for b in (0.25, 1.0, 4.0)]
    assert sizes[0] < sizes[1] < sizes[2]


FORMS = {
    "array": lambda Y: Y,
    "bool": lambda Y: Y.astype(bool),
    "sparse": sp.csr_array,
    "matrix": sp.csc_matrix,
    "frame": lambda Y: pd.DataFrame(Y, columns=NAMES),
    "list": lambda Y: Y.tolist(),
    "sets": as_sets,
}


@pytest.mark.parametrize("name", FORMS)
def test_predictions_come_back_in_the_form_of_y(data, name):
    X, Y = data
    truth = FORMS[name](Y)
    clf = FBetaClassifier().fit(X, truth)
    plain = FBetaClassifier().fit(X, Y).predict(X)
    out = clf.predict(X)
    assert type(out) is type(FORMS[name](plain)) or name == "list"
    back = np.asarray(out.toarray() if sp.issparse(out) else out if name != "sets" else
                      [[n in row for n in NAMES] for row in out])  # fmt: skip
    assert np.array_equal(back.astype(int), plain)
    assert clf.score(X, truth) == pytest.approx(fbeta_score(Y, plain))


def test_frames_keep_names_and_index(data):
    X, Y = data
    index = [f"row{i}" for i in range(300)]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)], index=index)
    clf = FBetaClassifier().fit(frame, pd.DataFrame(Y, columns=NAMES, index=index))
    out = clf.predict(frame.iloc[5:8])
    assert out.columns.tolist() == NAMES.tolist()
    assert out.index.tolist() == index[5:8]
    assert clf.feature_names_in_.tolist() == frame.columns.tolist()
    assert clf.classes_.tolist() == NAMES.tolist()
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame.rename(columns={"f0": "g0"}))


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_features(data, form):
    X, Y = data
    dense = FBetaClassifier(tol=1e-13).fit(X, Y)
    sparse = FBetaClassifier(tol=1e-13).fit(form(X), Y)
    assert np.allclose(dense.coef_, sparse.coef_, atol=1e-4)
    assert np.array_equal(dense.predict(X), sparse.predict(form(X)))


def test_single_precision_stays_single(data):
    X, Y = data
    clf = FBetaClassifier().fit(X.astype(np.float32), Y)
    assert clf.coef_.dtype == np.float32
    q = clf.predict_statistics(X.astype(np.float32))
    assert q.joint.dtype == q.empty.dtype == np.float32
    assert clf.predict_proba(X.astype(np.float32)).dtype == np.float32


def test_all_cardinalities_change_nothing_with_an_intercept(data):
    X, Y = data
    keep = Y.sum(axis=1) < 3
    seen = FBetaClassifier(cardinalities="seen").fit(X[keep], Y[keep])
    full = FBetaClassifier(cardinalities="all").fit(X[keep], Y[keep])
    assert full.cardinalities_.tolist() == [1, 2, 3]
    assert seen.cardinalities_.tolist() == [1, 2]
    assert np.array_equal(seen.predict(X), full.predict(X))
    without = [
        FBetaClassifier(cardinalities=c, fit_intercept=False).fit(X[keep], Y[keep])
        for c in ("seen", "all")
    ]
    assert without[1].predict_statistics(X).joint[:, 2].min() > 0


@pytest.mark.parametrize("loss", ["logistic", "exponential", "squared", SquaredLoss()])
def test_every_loss_learns(data, loss):
    X, Y = data
    score = FBetaClassifier(loss=loss, alpha=0.1).fit(X, Y).score(X, Y)
    assert score > fbeta_score(Y, np.ones_like(Y)) + 0.02


def test_odd_data_has_a_meaning():
    X = np.arange(12.0).reshape(6, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = FBetaClassifier().fit(X, np.zeros((6, 3), int))
        assert not nothing.predict(X).any()
        assert nothing.expected_fbeta(X).tolist() == [1.0] * 6
        assert nothing.predict_proba(X).tolist() == [[0, 0, 0]] * 6
        everything = FBetaClassifier().fit(X, np.ones((6, 3), int))
        assert everything.predict(X).all()
        always = np.array([[1, 0, 0], [1, 1, 0]] * 3)
        assert FBetaClassifier().fit(X, always).predict(X)[:, [0, 2]].tolist() == [[1, 0]] * 6
        one = FBetaClassifier(alpha=0.01).fit(X, np.array([[0], [0], [0], [1], [1], [1]]))
        assert one.predict(X).ravel().tolist() == [0, 0, 0, 1, 1, 1]
        row = FBetaClassifier().fit(X[:1], [[1, 0]])
        assert row.predict(X).tolist() == [[1, 0]] * 6
        wide = FBetaClassifier().fit(np.random.default_rng(0).normal(size=(6, 50)), always)
        assert np.isfinite(wide.coef_).all()


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([[np.nan]], [[1]], "NaN"),
        ([[np.inf]], [[1]], "infinity"),
        ([[1.0]], [[2]], "only 0 and 1"),
        ([[1.0], [2.0]], [[1]], "X has 2 rows and y has 1"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "no rows"),
        ([[1.0]], np.zeros((1, 0)), "no labels"),
        ([["a"]], [[1]], "could not convert string"),
        ([1.0, 2.0], [[1], [0]], "Reshape your data"),
    ],
)
def test_bad_data_is_named(X, Y, message):
    with pytest.raises(ValueError, match=message):
        FBetaClassifier().fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"beta": 0}, ValueError, "beta must be positive"),
        ({"beta": -2.0}, ValueError, "beta must be positive"),
        ({"beta": "1"}, TypeError, "beta must be a number"),
        ({"alpha": -1}, ValueError, "alpha must be finite and >= 0"),
        ({"alpha": np.inf}, ValueError, "alpha"),
        ({"loss": "hinge"}, ValueError, "loss must be one of"),
        ({"cardinalities": "few"}, ValueError, "cardinalities must be one of"),
        ({"tol": 0}, ValueError, "tol"),
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"max_iter": 1.5}, TypeError, "max_iter"),
    ],
)
def test_bad_parameters_are_named(parameters, error, message):
    with pytest.raises(error, match=message):
        FBetaClassifier(**parameters).fit([[0.0], [1.0]], [[1], [0]])


def test_bad_use_is_named(data):
    X, Y = data
    with pytest.raises(NotFittedError):
        FBetaClassifier().predict(X)
    clf = FBetaClassifier().fit(X, as_sets(Y))
    with pytest.raises(ValueError, match="12 features"):
        clf.predict(X[:, :5])
    with pytest.raises(ValueError, match="beta"):
        clf.predict(X, beta=-1)
    # a label that it does not know is one that it misses
    assert clf.score(X[:1], [["moon"]]) == 0


def test_not_converged_is_said(data):
    X, Y = data
    with pytest.warns(ConvergenceWarning, match=r"\d+ of \d+ binary problems did not converge"):
        FBetaClassifier(max_iter=1, alpha=1e-6).fit(X, Y)


def test_weights(data):
    X, Y = data
    weight = np.random.default_rng(0).integers(0, 3, 300)
    one = FBetaClassifier(tol=1e-12).fit(X, Y, sample_weight=weight)
    other = FBetaClassifier(tol=1e-12).fit(
        np.repeat(X, weight, axis=0), np.repeat(Y, weight, axis=0)
    )
    assert np.allclose(one.coef_, other.coef_, atol=1e-5)


def test_ecosystem(data):
    X, Y = data
    pipeline = make_pipeline(StandardScaler(), FBetaClassifier())
    grid = GridSearchCV(
        pipeline, {"fbetaclassifier__alpha": [0.1, 10.0]}, scoring=make_fbeta_scorer(1.0), cv=3
    ).fit(X, Y)
    assert grid.best_params_["fbetaclassifier__alpha"] in (0.1, 10.0)
    assert len(cross_val_score(FBetaClassifier(), X, Y, cv=3)) == 3
    clf = FBetaClassifier(beta=2.0, alpha=3.0, loss=SquaredLoss())
    assert clone(clf).get_params() == clf.get_params()
    fitted = FBetaClassifier().fit(X, Y)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))


def test_metadata_routing(data):
    X, Y = data
    weight = np.random.default_rng(0).uniform(size=300)
    with sklearn.config_context(enable_metadata_routing=True):
        clf = FBetaClassifier().set_fit_request(sample_weight=True)
        clf.set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, clf).fit(X, Y, sample_weight=weight)
        scores = cross_val_score(clf, X, Y, params={"sample_weight": weight}, cv=3)
    direct = FBetaClassifier().fit(StandardScaler().fit_transform(X), Y, sample_weight=weight)
    assert np.allclose(routed[-1].coef_, direct.coef_)
    assert len(scores) == 3


def test_prediction_in_chunks(data, monkeypatch):
    X, Y = data
    clf = FBetaClassifier().fit(X, Y)
    whole = clf.predict(X), clf.predict_proba(X), clf.expected_fbeta(X)
    monkeypatch.setattr("fbeta.estimators.base.CHUNK_BYTES", 1)
    parts = clf.predict(X), clf.predict_proba(X), clf.expected_fbeta(X)
    assert np.array_equal(whole[0], parts[0])
    assert np.allclose(whole[1], parts[1])
    assert np.allclose(whole[2], parts[2])


@pytest.mark.parametrize(
    ("name", "alpha", "score", "within"),
    [("yeast", 1.0, 0.657, 0.002), ("scene", 1.0, 0.7435, 0.003), ("medical", 0.1, 0.794, 0.004)],
)
def test_figures_of_the_paper(mulan, name, alpha, score, within):
    d = load(name, data_home=mulan)
    clf = FBetaClassifier(alpha=alpha).fit(d.X_train, d.Y_train)
    assert clf.score(d.X_test, d.Y_test) == pytest.approx(score, abs=within)


def test_mistakes_are_named():
    X, Y, _, _ = make_calibrated(40, n_labels=3, n_features=12)
    with pytest.raises(TypeError, match="from_marginals"):
        decode(np.full((2, 3), 0.5))
    with pytest.raises(ValueError, match="scale X"):
        FBetaClassifier().fit(X * 1e160, Y)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_no_feature_is_used_and_there_is_no_intercept(form):
    Y = np.tile([[1, 0], [0, 1], [1, 1], [1, 0]], (1000, 1))
    X = form(np.zeros((4000, 20)))
    for estimator in (FBetaClassifier(fit_intercept=False), ExactFPlugIn(fit_intercept=False)):
        assert estimator.fit(X, Y).predict(X[:3]).shape == (3, 2)
