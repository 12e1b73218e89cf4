"""Graphs of tables and of feature maps predict what the library predicts, on every row."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

onnx = pytest.importorskip("onnx", reason="the export needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by onnxruntime")
pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

from fbeta import FBetaAuto, FBetaClassifier, SizedClassifier  # noqa: E402
from fbeta.datasets import TableEncoder  # noqa: E402
from fbeta.estimators.auto import auto_models, feature_maps  # noqa: E402
from fbeta.storage.onnx_export import to_onnx  # noqa: E402

from .test_onnx_export import draw, session  # noqa: E402


def frame(n: int, seed: int) -> pd.DataFrame:
    """Numbers, categories and dates, with gaps in all of them."""
    rng = np.random.default_rng(seed)
    moments = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**6, n), unit="m")
    found = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "colour": rng.choice(["red", "blue", "green", "NA", "n/a"], n),
            "weight": rng.normal(size=n) ** 2,
            "when": moments,
            "day": moments.normalize(),
            "shape": rng.choice(["round", "square", "seen once or never"], n, p=[0.5, 0.49, 0.01]),
        }
    )
    for column, every in {"size": 7, "when": 11, "colour": 13}.items():
        found.loc[::every, column] = None
    return found


def truth(rows: pd.DataFrame) -> np.ndarray:
    rng = np.random.default_rng(len(rows))
    score = rows["weight"] + (rows["colour"] == "red") - 2 * (rows["shape"] == "round")
    return (score.to_numpy()[:, None] + rng.normal(size=(len(rows), 4)) > 0).astype(int)


def inputs(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """What a user without this library feeds to the graph."""
    day = pd.Timedelta(days=1)
    dates = [(rows[name] - pd.Timestamp("1970-01-01")) / day for name in ("when", "day")]
    numbers = np.column_stack([rows["size"], rows["weight"], *dates]).astype(np.float64)
    return {"X": numbers, "categories": rows[["colour", "shape"]].fillna("").to_numpy(dtype=object)}


@pytest.fixture(scope="module")
def fitted():
    rows = frame(300, 0)
    return make_pipeline(TableEncoder(), FBetaClassifier(alpha=0.1)).fit(rows, truth(rows))


def test_tables_of_numbers_categories_and_dates(fitted):
    graph = to_onnx(fitted)
    onnx.checker.check_model(graph, full_check=True)
    new = frame(500, 1)
    new.loc[3, "colour"] = "a colour that training did not have"
    for beta in (0.5, 1.0, 3.0):
        feeds = {**inputs(new), "beta": np.array(beta)}
        labels, _, probabilities = session(graph).run(None, feeds)
        np.testing.assert_array_equal(
            labels, fitted[-1].predict(fitted[0].transform(new), beta=beta)
        )
        np.testing.assert_allclose(probabilities, fitted.predict_proba(new), rtol=1e-9)
    found = session(graph).get_modelmeta().custom_metadata_map
    assert json.loads(found["feature_names"]) == ["size", "weight", "when", "day"]
    assert json.loads(found["category_names"]) == ["colour", "shape"]


def test_tables_of_categories_only_and_data_frames():
    rows, new = frame(200, 2)[["colour", "shape"]], frame(100, 3)[["colour", "shape"]]
    Y = truth(frame(200, 2))
    model = SizedClassifier(alpha=0.1).fit(rows, Y)
    graph = session(to_onnx(model, features="float32"))
    assert [value.name for value in graph.get_inputs()] == ["categories"]
    labels = graph.run(["labels"], {"categories": new.fillna("").to_numpy(dtype=object)})[0]
    np.testing.assert_array_equal(labels, model.predict(new))


def test_text_has_no_graph():
    words = np.random.default_rng(0).choice(["sea", "sky", "sun", "hot", "wet"], (60, 6))
    rows = frame(60, 4).assign(review=[" ".join(row) for row in words])
    model = make_pipeline(TableEncoder({"review": "text"}), FBetaClassifier())
    model.fit(rows, truth(rows))
    with pytest.raises(TypeError, match=r"'review' is text.*--drop"):
        to_onnx(model)


def test_float32_casts_numbers_only(fitted):
    new = frame(50, 5)
    feeds = inputs(new)
    single = feeds["X"].astype(np.float32)
    wide = session(to_onnx(fitted)).run(["labels"], {**feeds, "X": single.astype(np.float64)})[0]
    narrow = session(to_onnx(fitted, features="float32")).run(["labels"], {**feeds, "X": single})
    np.testing.assert_array_equal(narrow[0], wide)


def rows_of(kind: str, seed: int):
    X, _ = draw(120, seed=seed)
    if kind == "counts":
        return sp.csr_array(np.random.default_rng(seed).poisson(0.4, (120, 30)).astype(float))
    X[:, 0] = X[:, 0].round()  # quantiles that are equal
    if kind == "gaps":
        X[::5, 1], X[::7, 3] = np.nan, np.nan
    return X


@pytest.mark.parametrize("kind", ["numbers", "gaps", "counts"])
def test_feature_maps_of_the_automatic_classifier(kind):
    X, new, Y = rows_of(kind, 0), rows_of(kind, 1), draw(120)[1]
    for name, map_ in feature_maps(X, 0).items():
        steps = [step for _, step in map_.steps]
        model = make_pipeline(*steps, SizedClassifier(alpha=0.1)).fit(X, Y)
        dense = new.toarray() if sp.issparse(new) else new
        labels, _, P = session(to_onnx(model)).run(None, {"X": dense})
        np.testing.assert_allclose(P, model.predict_proba(new), rtol=1e-7, err_msg=name)
        np.testing.assert_array_equal(labels, model.predict(new), err_msg=name)


@pytest.mark.parametrize("labels", ["sets", "sized"])
def test_models_of_the_automatic_classifier(labels):
    (X, Y), (new, _) = draw(), draw(seed=1)
    for name, model in auto_models(1.0, 0, X).items():
        if hasattr(model, "labels"):
            model.set_params(labels=labels)
        if hasattr(model, "n_estimators"):
            model.set_params(n_estimators=20)
        model.fit(X, Y)
        found, _, P = session(to_onnx(model)).run(None, {"X": new})
        expected = model.predict_proba(new)
        np.testing.assert_allclose(P, expected, rtol=1e-8, atol=1e-15, err_msg=name)
        np.testing.assert_array_equal(found, model.predict(new), err_msg=name)


@pytest.mark.slow
def test_the_automatic_classifier_on_a_table():
    rows, new = frame(150, 6), frame(200, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = FBetaAuto(time_limit=1.0, random_state=0).fit(rows, truth(rows))
    labels, _, P = session(to_onnx(model)).run(None, inputs(new))
    np.testing.assert_allclose(P, model.predict_proba(new), rtol=1e-6, atol=1e-15)
    np.testing.assert_array_equal(labels, model.predict(new))


def test_quantiles_are_those_of_scikit_learn():
    """The graph of a decoder of what the map makes shows the map itself."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400), rng.integers(0, 5, 400), rng.exponential(size=400)])
    map_ = QuantileTransformer(n_quantiles=100, output_distribution="normal")
    model = make_pipeline(map_, FBetaClassifier(alpha=1.0, cardinalities="all"))
    model.fit(X, draw(400)[1][:, :3])
    new = np.vstack([X, 2 * X - 1, [[-99.0, 2.0, 99.0]]])
    P = session(to_onnx(model)).run(["probabilities"], {"X": new})[0]
    np.testing.assert_allclose(P, model.predict_proba(new), rtol=1e-10)


def test_other_imputers():
    X, Y = draw()
    X[::3, 2] = np.nan
    for imputer in (SimpleImputer(strategy="mean"), SimpleImputer(add_indicator=True)):
        model = make_pipeline(imputer, FBetaClassifier()).fit(X, Y)
        labels = session(to_onnx(model)).run(["labels"], {"X": X})[0]
        np.testing.assert_array_equal(labels, model.predict(X))
