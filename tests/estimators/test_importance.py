"""Effects of features on labels, on laws whose effects are known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaClassifier,
    FBetaForest,
    SizedClassifier,
)
from fbeta.estimators.features import label_importances

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5)) * [1, 10, 1, 1, 1]
Y = np.stack([X[:, 0] > 0, X[:, 1] < 0], axis=1).astype(int)
SETS = [[name for name, on in zip(["sea", "sky"], row, strict=True) if on] for row in Y]


@pytest.mark.parametrize(
    "model",
    [
        SizedClassifier(),
        CardinalityClassifier(),
        FBetaClassifier(),
        AlphaSearchCV(SizedClassifier(), alphas=(1.0,), cv=2),
        FBetaForest(n_estimators=20, random_state=0),
        make_pipeline(StandardScaler(), SizedClassifier()),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_feature_behind_a_label_is_first(model, form):
    if form is not np.asarray and hasattr(model, "steps"):
        model = make_pipeline(StandardScaler(with_mean=False), SizedClassifier())
    found = label_importances(model.fit(form(X), SETS), form(X), n_features=2)
    assert list(found) == ["sea", "sky"]
    assert found["sea"][0].feature == "x0"
    assert found["sea"][0].effect > 0
    assert found["sky"][0].feature == "x1"
    assert found["sky"][0].effect < 0
    assert len(found["sky"]) <= 2


def test_coefficients_are_those_of_the_label_in_standard_deviations():
    clf = SizedClassifier().fit(X, Y)
    (first, *_) = label_importances(clf, X)[1]
    assert first.effect == pytest.approx(clf.coef_[1, 1] * X[:, 1].std())


def test_columns_of_a_table_have_their_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"colour": np.where(Y[:, 0], "red", "blue"), "size": X[:, 1]})
    found = label_importances(SizedClassifier().fit(frame, SETS), frame)
    assert found["sea"][0].feature.startswith("colour")
    assert found["sky"][0].feature == "size"
    with pytest.raises(ValueError, match="feature_names"):
        label_importances(SizedClassifier().fit(X, Y), X, feature_names=["a"])


@pytest.mark.parametrize(
    "estimator",
    [SizedClassifier(), CardinalityClassifier(), FBetaForest(n_estimators=20, random_state=0)],
)
@pytest.mark.parametrize("words", [False, True])
def test_columns_in_another_order_are_matched_by_name(estimator, words):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcde"))
    if words:
        frame["colour"] = np.where(X[:, 2] > 0, "red", "blue")
    estimator.fit(frame, SETS)
    found = label_importances(estimator, frame)
    assert (found["sea"][0].feature, found["sky"][0].feature) == ("a", "b")
    assert label_importances(estimator, frame[frame.columns[::-1]]) == found
    with pytest.raises(ValueError, match=r"'z' is in only one|lacks the columns"):
        label_importances(estimator, frame.rename(columns={"a": "z"}))


def test_transformed_features_have_their_own_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = make_pipeline(PCA(5), SizedClassifier()).fit(frame, SETS)
    assert label_importances(model, frame)["sea"][0].feature.startswith("pca")
