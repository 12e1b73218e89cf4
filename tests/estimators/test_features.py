"""Data frames in, names of columns, probabilities as data frames."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    AlphaSearchCV,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaDecoderCV,
    SizedClassifier,
    decode,
    fbeta_score,
)
from fbeta.blocks import RowBlocks
from fbeta.datasets import TableEncoder
from fbeta.storage.model_files import load_model, save_model

pandas = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, :3] + 0.3 * RNG.normal(size=(120, 3)) > 0.3).astype(int)


def table():
    """Numbers with gaps, categories, text and dates."""
    words = np.array(["sea", "sky", "sun"])
    return pandas.DataFrame(
        {
            "price": np.where(RNG.random(120) < 0.1, np.nan, X[:, 3]),
            "colour": pandas.Categorical(np.where(Y[:, 0], "red", "blue")),
            "text": [" ".join(["a", "text", "on", *words[row > 0]]) for row in Y],
            "day": pandas.Timestamp("2024-01-01") + pandas.to_timedelta(np.arange(120), unit="D"),
        },
        index=np.arange(120) + 1000,
    )


@pytest.mark.parametrize(
    "estimator",
    [
        FBetaClassifier(),
        AlphaSearchCV(SizedClassifier(), alphas=(0.1, 1.0), cv=2),
        FBetaAuto(time_limit=1e-6, cv=2, random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_data_frame_goes_straight_in(estimator, tmp_path):
    frame = table()
    clf = clone(estimator).fit(frame, Y)
    encoded = TableEncoder().fit(frame)
    same = clone(estimator).fit(encoded.transform(frame), Y)
    assert np.array_equal(clf.predict(frame), same.predict(encoded.transform(frame)))
    assert clf.score(frame, Y) > 0.7
    # columns are matched by name
    assert np.array_equal(clf.predict(frame[frame.columns[::-1]]), clf.predict(frame))
    with pytest.raises(ValueError):
        clf.predict(frame.drop(columns="text"))
    pytest.importorskip("skops")
    save_model(tmp_path / "m.skops", clf)
    stored = load_model(tmp_path / "m.skops").estimator
    assert np.array_equal(stored.predict(frame), clf.predict(frame))
    # numbers alone need no encoder
    clf.fit(X, Y)
    assert not hasattr(clf, "table_encoder_")
    assert clf.predict(X).shape == Y.shape


def test_columns_of_probabilities_are_matched_by_name():
    names = ["sea", "sky", "sun"]
    P = pandas.DataFrame(1 / (1 + np.exp(-3 * X[:, :3])), columns=names)
    labels = pandas.DataFrame(Y, columns=names)
    decoder = FBetaDecoder().fit(P, labels)
    expected = decoder.predict(P)
    assert decoder.predict(P[names[::-1]]).equals(expected)
    assert FBetaDecoder().fit(P[names[::-1]], labels).predict(P).equals(expected)
    with pytest.raises(ValueError, match="columns of P are not those of fit: 'moon'"):
        decoder.predict(P.rename(columns={"sea": "moon"}))
    assert decoder.predict(P.to_numpy()).shape == (120, 3)


def test_columns_of_blocks_are_matched_by_name(tmp_path):
    pytest.importorskip("pyarrow")
    names = list("abcd")
    frame = pandas.DataFrame(X, columns=names)
    clf = FBetaClassifier().fit(frame, Y)
    frame[names[::-1]].to_parquet(tmp_path / "part-0.parquet")
    blocks = RowBlocks.read(tmp_path)
    found = np.concatenate(list(clf.predict(blocks)))
    assert np.array_equal(found, clf.predict(frame))
    frame.rename(columns={"a": "z"}).to_parquet(tmp_path / "part-0.parquet")
    with pytest.raises(ValueError, match="columns of X are not those of fit"):
        clf.predict(RowBlocks.read(tmp_path))


def test_probabilities_as_a_data_frame():
    frame = pandas.DataFrame(X, columns=list("abcd"), index=np.arange(120) + 7)
    labels = pandas.DataFrame(Y, columns=["sea", "sky", "sun"])
    for estimator in (FBetaClassifier(), FBetaClassifierCV((1.0,), cv=2)):
        clf = clone(estimator.set_output(transform="pandas")).fit(frame, labels)
        found = clf.predict_proba(frame)
        assert list(found.columns) == ["sea", "sky", "sun"]
        assert found.index.equals(frame.index)
        plain = clf.set_output(transform="default").predict_proba(frame)
        assert np.array_equal(found.to_numpy(), plain)
    with pytest.raises(ValueError, match="transform"):
        clf.set_output(transform="arrow")


@pytest.mark.parametrize(
    "classifier",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        ExtraTreesClassifier(20, random_state=0),
        FBetaClassifier(),
    ],
    ids=["pipeline", "trees", "ours"],
)
def test_a_decoder_over_cross_fitted_probabilities(classifier):
    labels = Y.copy()
    labels[:, 2] = 1  # a constant label
    clf = FBetaDecoderCV(classifier, cv=3).fit(X, labels)
    assert fbeta_score(labels, clf.predict(X)) > 0.7
    P = clf.estimator_.predict_proba(X)
    assert np.array_equal(clf.predict(X, beta=2.0), clf.decoder_.predict(P, beta=2.0).toarray())
    assert np.array_equal(clf.predict(X), decode(clf.predict_statistics(X)))
    assert clf.expected_fbeta(X).shape == (120,)
    weight = np.r_[np.ones(100), np.zeros(20)]
    if not hasattr(classifier, "steps"):
        one = clone(clf).fit(X, labels, sample_weight=weight)
        other = clone(clf).fit(X[:100], labels[:100], sample_weight=np.ones(100))
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("sizes", ["model", "independent"])
def test_sizes_and_marginals_of_any_classifier(sizes, tmp_path):
    labels = Y.copy()
    labels[:, 2] = labels[:, 0]  # equal labels are one problem
    for inner in (LogisticRegression(), ExtraTreesClassifier(20, random_state=0)):
        clf = SizedClassifier(estimator=inner, sizes=sizes).fit(X, labels)
        by_hand = [clone(inner).fit(X, y).predict_proba(X)[:, 1] for y in labels.T]
        if isinstance(inner, LogisticRegression):
            P = np.stack(by_hand, axis=1)
            np.testing.assert_allclose(clf.model.probabilities(X)[:, :3], P)
        if sizes == "model":
            size = clone(inner).fit(X, labels.sum(axis=1))
            law = clf.predict_statistics(X).cardinality_distribution()
            np.testing.assert_allclose(law[:, size.classes_], size.predict_proba(X), atol=1e-12)
    pytest.importorskip("skops")
    clf = SizedClassifier(estimator=LogisticRegression(), sizes=sizes).fit(X, labels)
    save_model(tmp_path / "m.skops", clf)
    assert np.array_equal(load_model(tmp_path / "m.skops").predict(X), clf.predict(X))
    with pytest.raises(TypeError, match="needs predict_proba"):
        SizedClassifier(estimator=StandardScaler()).fit(X, Y)


def test_no_folds_are_named():
    with pytest.raises(ValueError, match="cv has no folds"):
        FBetaClassifierCV(cv=[]).fit(X, Y)


@pytest.mark.parametrize("estimator", [FBetaClassifier(), FBetaDecoderCV(LogisticRegression())])
def test_rows_without_weight_are_not_in_the_encoding(estimator):
    frame, weight = table(), np.repeat([1.0, 0.0], 60)
    odd = frame.copy()
    odd.loc[1060:, "price"] = 1e6
    found = clone(estimator).fit(odd, Y, sample_weight=weight)
    expected = clone(estimator).fit(frame[:60], Y[:60], sample_weight=np.ones(60))
    given, wanted = (m.table_encoder_.transform(frame[:60]) for m in (found, expected))
    np.testing.assert_allclose(given, wanted, atol=1e-12)
    if isinstance(estimator, FBetaClassifier):  # without folds, which are of all rows
        np.testing.assert_allclose(
            found.predict_proba(frame), expected.predict_proba(frame), atol=1e-6
        )


def test_arrays_for_a_model_of_a_table_are_warned_of():
    frame = table()[["price", "day"]].assign(day=1.0)
    model = FBetaClassifier().fit(frame, Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = model.predict_proba(frame.to_numpy())
    np.testing.assert_array_equal(found, model.predict_proba(frame))
