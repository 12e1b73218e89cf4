"""Graphs of ONNX predict the sets of the library, whatever beta and the limits."""

from __future__ import annotations

import json
import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    StandardScaler,
)

onnx = pytest.importorskip("onnx", reason="the export needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by onnxruntime")

from fbeta import (  # noqa: E402
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaDecoderCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    SizedClassifier,
    decode,
)
from fbeta.datasets import TableEncoder, load  # noqa: E402
from fbeta.estimators.boosting import BoostedClassifier  # noqa: E402
from fbeta.rivals import BinaryRelevance  # noqa: E402
from fbeta.storage.onnx_export import to_onnx  # noqa: E402

from ..cases import slow  # noqa: E402

MODELS = {
    "joint": FBetaClassifier(alpha=0.1),
    "joint, squared": FBetaClassifier(alpha=0.1, loss="squared"),
    "joint, exponential": FBetaClassifier(beta=2.0, alpha=0.1, loss="exponential"),
    "independent": BinaryRelevance(alpha=0.1, decode="independent"),
    "sized": SizedClassifier(alpha=0.1),
    "cardinality": CardinalityClassifier(alpha=0.1),
    "forest": FBetaForest(n_estimators=20, min_samples_leaf=2, random_state=0),
    "boosting": BoostedClassifier(n_estimators=5, random_state=0),
    "average": FBetaEnsemble(
        [
            ("joint", FBetaClassifier(alpha=0.1)),
            ("sized", make_pipeline(StandardScaler(), SizedClassifier(alpha=0.1))),
            ("independent", BinaryRelevance(alpha=0.1, decode="independent")),
            ("forest", FBetaForest(n_estimators=10, random_state=0)),
            ("boosting", BoostedClassifier(n_estimators=5, sizes="independent", random_state=0)),
        ],
        cv=2,
    ),
}
every = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # inputs that have defaults are worth a warning to it
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def draw(n=200, d=6, s=7, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) - 1
    return X, (scores > 0).astype(int)


@every
def test_same_sets(model):
    (X, Y), (X_test, _) = draw(), draw(seed=1)
    graph = to_onnx(model.fit(X, Y))
    onnx.checker.check_model(graph, full_check=True)
    run = session(graph).run
    statistics = model.predict_statistics(X_test)
    assert [out.shape for out in run(None, {"X": X[:0]})] == [(0, 7), (0,), (0, 7)]
    for beta in (None, 0.3, 4.0):
        feeds = {} if beta is None else {"beta": np.array(beta)}
        labels, expected, probabilities = run(None, {"X": X_test, **feeds})
        assert labels.dtype == np.int8
        np.testing.assert_allclose(probabilities, model.predict_proba(X_test), rtol=1e-9)
        np.testing.assert_array_equal(labels, model.predict(X_test, beta=beta))
        value = decode(statistics, beta or model.beta, return_expected=True)[1]
        np.testing.assert_allclose(expected, np.minimum(value, 1), rtol=1e-9)
        for limits in ((2, 3), (0, 1), (5, 9), (3, 1), (-2, 0), (7, 7)):
            feeds |= {"min_labels": np.array(limits[0]), "max_labels": np.array(limits[1])}
            low = min(max(limits[0], 0), 7)
            within = decode(
                statistics, beta or model.beta, min_labels=low, max_labels=max(limits[1], low)
            )
            np.testing.assert_array_equal(run(["labels"], {"X": X_test, **feeds})[0], within)


def test_separate_estimates_expect_no_more_than_one():
    """As the estimator says; the statistics alone promise more."""
    (X, Y), (X_test, _) = draw(30), draw(seed=1)
    model = FBetaClassifier(alpha=1e-4).fit(X, Y)
    expected = session(to_onnx(model)).run(["expected_fbeta"], {"X": X_test})[0]
    assert decode(model.predict_statistics(X_test), return_expected=True)[1].max() > 1.01
    np.testing.assert_allclose(expected, model.expected_fbeta(X_test, calibrated=False), rtol=1e-9)


def test_a_graph_of_boosted_trees_grows_as_they_do():
    X, Y = draw(60, s=60)
    model = BoostedClassifier(n_estimators=5, random_state=0).fit(X, Y)
    size = sum(array.nbytes for array in vars(model.model).values() if np.ndim(array))
    assert len(to_onnx(model).SerializeToString()) < 2 * size + 50_000


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_trees_take_features_beyond_single_precision(kind):
    X, Y = draw(40)
    model = MODELS[kind].fit(X, Y)
    X[:, 0] = np.resize([1e300, -1e300], len(X))
    probabilities = session(to_onnx(model)).run(["probabilities"], {"X": X})[0]
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize("name", ["yeast", slow("enron"), slow("bibtex")])
@pytest.mark.parametrize("kind", ["joint", "independent", "sized", "cardinality"])
def test_same_sets_on_real_data(kind, name, mulan):
    few, model = 400, MODELS[kind]
    if kind == "cardinality":
        # what the graph has to do does not depend on how well the model fits
        few, model = 200, CardinalityClassifier(alpha=3.0, tol=0.1, max_iter=4)
    X, Y, X_test, _ = load(name, data_home=mulan).split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:few], Y[:few])
    X_test = X_test[:250]
    labels, *_ = session(to_onnx(model)).run(
        None, {"X": X_test.toarray() if sp.issparse(X_test) else X_test}
    )
    predicted = model.predict(X_test)
    np.testing.assert_array_equal(
        labels, predicted.toarray() if sp.issparse(predicted) else predicted
    )
    assert labels.any()


@every
@pytest.mark.parametrize("labels", ["all empty", slow("constant"), slow("never"), "one label"])
def test_odd_data(model, labels):
    X, Y = draw(40)
    Y = Y[:, :1] if labels == "one label" else Y.copy()
    if labels == "all empty":
        Y[:] = 0
    if labels == "constant":
        Y[:, 2] = 1
    if labels == "never":
        Y[:, 2] = 0
    X_test = draw(30, seed=3)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, Y)
    found = session(to_onnx(model)).run(["labels"], {"X": X_test})[0]
    np.testing.assert_array_equal(found, model.predict(X_test))


@pytest.mark.parametrize("inputs", ["probabilities", "logits"])
def test_decoders_take_probabilities_or_logits(inputs):
    (X, Y), (X_test, _) = draw(), draw(seed=1)
    first = BinaryRelevance(alpha=0.1).fit(X, Y)

    def scores(X):
        P = first.predict_proba(X)
        return P if inputs == "probabilities" else np.log(P / (1 - P))

    decoder = FBetaDecoder().fit(scores(X), Y)
    run, new = session(to_onnx(decoder)).run, scores(X_test)
    if inputs == "logits":  # beyond those of fit, too
        new = np.concatenate([new, 10 * new])
    for beta in (1.0, 3.0):
        labels, expected, P = run(None, {"X": new, "beta": np.array(beta)})
        np.testing.assert_array_equal(labels, decoder.predict(new, beta=beta))
        np.testing.assert_allclose(expected, decoder.expected_fbeta(new, beta=beta), rtol=1e-9)
        np.testing.assert_allclose(P, decoder.predict_proba(new), rtol=1e-9)
    assert run(["labels"], {"X": X[:0, :1] * Y[:0]})[0].shape == (0, 7)


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 1e3, 1e5, 1e302])
@pytest.mark.parametrize("kind", ["cardinality", "sized", "independent"])
def test_scores_of_any_size(kind, scale):
    """Against enumeration with exact logarithms."""
    (X, Y), (X_test, _) = draw(100, d=3, s=4), draw(60, d=3, s=4, seed=5)
    model = MODELS[kind].fit(X, Y)
    X_test = scale * X_test
    labels, expected, P = session(to_onnx(model)).run(None, {"X": X_test})
    assert np.isfinite(expected).all()
    assert np.isfinite(P).all()
    scores = X_test @ model.model.coef.T + model.model.intercept
    if kind != "cardinality":
        scores = scores[:, model.model.problem]
    for row, chosen, value, marginal in zip(scores, labels, expected, P, strict=True):
        sets, law = exact_law(kind, model, row)
        np.testing.assert_allclose(law @ sets, marginal, rtol=1e-8, atol=1e-12)
        hits = sets @ sets.T
        below = sets.sum(1)[:, None] + sets.sum(1)
        f = np.where(below == 0, 1.0, 2 * hits / np.maximum(below, 1)) @ law
        own = int(np.flatnonzero((sets == chosen).all(1))[0])
        assert f[own] == pytest.approx(f.max(), rel=1e-9)
        assert value == pytest.approx(f.max(), rel=1e-8)


@pytest.mark.parametrize("kind", ["cardinality", "joint", "sized"])
@pytest.mark.parametrize("limits", [(0, 4), (0, 1), (1, 2), (3, 4)])
def test_limits_choose_the_sets_of_the_library_at_any_score(kind, limits):
    """Labels whose scores saturate tie, and the first of them are taken."""
    (X, Y), (X_test, _) = draw(100, d=3, s=4), draw(100, d=3, s=4, seed=5)
    model = MODELS[kind].fit(X, Y)
    run = session(to_onnx(model)).run
    for scale in (1.0, 30.0, 1e3):
        rows, (low, high) = scale * X_test, limits
        feeds = {"X": rows, "min_labels": np.array(low), "max_labels": np.array(high)}
        expected = model.predict(rows, min_labels=low, max_labels=high)
        np.testing.assert_array_equal(run(None, feeds)[0], expected)


def test_inputs_are_cut_to_what_is_possible():
    """A graph cannot raise: limits beyond each other, and numbers that are no probabilities."""
    P, Y = np.random.default_rng(0).random((50, 3)), np.eye(3, dtype=int)[np.arange(50) % 3]
    decoder = FBetaDecoder().fit(P, Y)
    run = session(to_onnx(decoder)).run
    feeds = {"X": 3 * P - 1, "min_labels": np.array(2), "max_labels": np.array(-1)}
    expected = decoder.predict(np.clip(3 * P - 1, 0, 1), min_labels=2, max_labels=2)
    np.testing.assert_array_equal(run(["labels"], feeds)[0], expected)


def exact_law(kind, model, row, s=4):
    """Return all label sets, and their probabilities under scores of labels and sizes."""
    sets = np.array(list(product((0, 1), repeat=s)))
    logs, size = sets @ row[:s], sets.sum(1)
    if kind == "independent":
        return sets, np.exp(logs - np.logaddexp.reduce(logs))
    sizes = model.code.sizes.tolist()
    share = np.full(s + 1, -np.inf)
    share[sizes] = row[s:]
    if kind == "cardinality":
        logs = logs + share[size]
        return sets, np.exp(logs - np.logaddexp.reduce(logs))
    of_size = -np.logaddexp(0.0, -share)
    given = np.array([np.logaddexp.reduce(logs[size == k]) for k in range(s + 1)])
    return sets, np.exp(logs - given[size] + of_size[size] - np.logaddexp.reduce(of_size))


def test_many_labels_and_no_rows():
    X, Y = draw(80, s=120)
    model = SizedClassifier(alpha=1.0).fit(X, Y)
    run = session(to_onnx(model)).run
    np.testing.assert_array_equal(run(["labels"], {"X": X})[0], model.predict(X))
    assert run(["labels"], {"X": X[:1]})[0].shape == (1, 120)


@pytest.mark.parametrize(
    "scaler",
    [StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False),
     MaxAbsScaler(), MinMaxScaler((-1, 2), clip=True),
     *([MaxAbsScaler(clip=True)] if "clip" in MaxAbsScaler().get_params() else [])],
    ids=str,
)  # fmt: skip
def test_scalers_come_along(scaler):
    (X, Y), (X_test, _) = draw(), draw(seed=1)
    pipeline = make_pipeline(scaler, "passthrough", FBetaClassifier()).fit(X, Y)
    found = session(to_onnx(pipeline)).run(["labels"], {"X": 3 * X_test})[0]
    np.testing.assert_array_equal(found, pipeline.predict(3 * X_test))


def test_searches_are_their_best_estimator():
    X, Y = draw()
    for search in (
        FBetaClassifierCV((0.1, 1.0), cv=2),
        AlphaSearchCV(BinaryRelevance(decode="independent"), alphas=(0.1, 1.0), cv=2),
    ):
        found = session(to_onnx(search.fit(X, Y))).run(["labels"], {"X": X})[0]
        np.testing.assert_array_equal(found, search.predict(X))


def test_names_are_in_the_metadata():
    X, Y = draw()
    names = np.array([["sea", "sky"][j] if j < 2 else f"l{j}" for j in range(7)])
    sets = [{"sea", *names[row == 1].tolist()} for row in Y]
    graph = to_onnx(FBetaClassifier().fit(X, sets), feature_names=[f"f{i}" for i in range(6)])
    found = session(graph).get_modelmeta().custom_metadata_map
    assert json.loads(found["label_names"]) == sorted(names.tolist())
    assert json.loads(found["feature_names"]) == [f"f{i}" for i in range(6)]
    assert found["estimator"] == "FBetaClassifier"


def test_single_precision():
    (X, Y), (X_test, _) = draw(), draw(seed=1)
    model = FBetaClassifier().fit(X, Y)
    single = X_test.astype(np.float32)
    found = session(to_onnx(model, features="float32")).run(["labels"], {"X": single})[0]
    np.testing.assert_array_equal(found, model.predict(single.astype(np.float64)))


def test_one_binary_target():
    X, Y = draw()
    model = FBetaClassifier().fit(X, Y[:, 0])
    graph = session(to_onnx(model))
    np.testing.assert_array_equal(graph.run(["labels"], {"X": X})[0][:, 0], model.predict(X))
    assert json.loads(graph.get_modelmeta().custom_metadata_map["label_names"]) == ["1"]


def test_what_is_refused():
    X, Y = draw()
    with pytest.raises(NotFittedError):
        to_onnx(FBetaClassifier())
    stacked = FBetaDecoderCV(DummyClassifier(strategy="prior"), cv=2).fit(X, Y)
    for match, model in {
        "FBetaReduction cannot be exported": FBetaReduction(DummyClassifier()).fit(X, Y),
        'decode="half"': BinaryRelevance().fit(X, Y),
        "FBetaDecoderCV cannot be exported": stacked,
        "decoder that was fitted to dense": FBetaDecoder().fit(sp.csr_array(Y * 0.9), Y),
        "FBetaDecoderCV cannot": FBetaEnsemble([("stacked", stacked)], cv=2).fit(X, Y),
        "FunctionTransformer cannot": make_pipeline(FunctionTransformer(), FBetaClassifier()).fit(
            X, Y
        ),
    }.items():
        with pytest.raises(TypeError, match=match):
            to_onnx(model)
    model = FBetaClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="features"):
        to_onnx(model, features="int8")
    with pytest.raises(ValueError, match="beta must be positive and finite, got nan"):
        to_onnx(model.set_params(beta=np.nan))


def test_tables_of_numbers_with_gaps():
    X, Y = draw()
    X[::7, 2], X[::5, 4] = np.nan, np.nan
    pipeline = make_pipeline(TableEncoder(), FBetaClassifier()).fit(X, Y)
    assert any(part.gaps for part in pipeline[0].parts_)
    graph = session(to_onnx(pipeline))
    np.testing.assert_array_equal(graph.run(["labels"], {"X": X})[0], pipeline.predict(X))
