"""The estimators beside those of scikit-learn: its folds, views, names, outputs and routing."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fbeta import (
    AlphaSearchCV,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaReduction,
    LabelStatistics,
    decode,
    fbeta_score,
    make_fbeta_scorer,
)

from .cases import slow_but

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = (X[:, :2] + RNG.normal(size=(60, 2)) > 0).astype(int)
TAGS = [[name for name, on in zip("ab", row, strict=True) if on] for row in Y]
# two labels that one row has each: every fold but its own does not know them
RARE = [[*tags, "rare"] if i == 3 else [*tags, "odd"] if i == 50 else tags
        for i, tags in enumerate(TAGS)]  # fmt: skip
NAMES = ["one", "two", "three", "four"]
ESTIMATORS = [
    FBetaClassifier(),
    FBetaClassifierCV(alphas=(0.1, 1.0), cv=2),
    AlphaSearchCV(FBetaClassifier(), alphas=(0.1, 1.0), cv=2),
    FBetaReduction(LogisticRegression()),
]
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
# one of both searches for alpha
some = pytest.mark.parametrize(
    "estimator",
    slow_but([e for e in ESTIMATORS if type(e) is not AlphaSearchCV], ESTIMATORS),
    ids=lambda e: type(e).__name__,
)


@some
def test_cross_validation_on_lists_of_tags(estimator):
    scores = cross_val_score(estimator, X, TAGS, cv=KFold(3), error_score="raise")
    same = cross_val_score(estimator, X, Y, cv=KFold(3), error_score="raise")
    np.testing.assert_allclose(scores, same)
    # scikit-learn reads Python sets itself; a number then stands for folds in order
    sets = cross_val_score(estimator, X, [set(t) for t in TAGS], cv=3, error_score="raise")
    np.testing.assert_allclose(sets, scores)


@some
@pytest.mark.parametrize("scoring", [None, make_fbeta_scorer(1.0)], ids=["score", "scorer"])
def test_a_label_that_only_a_test_fold_has_is_scored(estimator, scoring):
    found = cross_validate(
        estimator, X, RARE, cv=KFold(3), scoring=scoring, error_score="raise",
        return_estimator=True, return_indices=True,
    )  # fmt: skip
    for score, fitted, test in zip(
        found["test_score"], found["estimator"], found["indices"]["test"], strict=True
    ):
        predicted = fitted.predict(X[test])
        by_hand = [
            1.0 if not (true or guess)
            else 2 * len({*true} & {*guess}) / (len(true) + len(guess))
            for true, guess in zip([RARE[i] for i in test], predicted, strict=True)
        ]  # fmt: skip
        assert score == pytest.approx(np.mean(by_hand))
    assert any(len(e.classes_) < 4 for e in found["estimator"])


def test_a_class_that_only_a_test_fold_has_is_scored():
    y = np.array(["no"] * 40 + ["yes"] * 20)
    (score,) = cross_val_score(
        FBetaClassifier(), X, y, cv=[(np.arange(40), np.arange(30, 60))], error_score="raise"
    )
    assert score == pytest.approx(1 / 3)


def test_the_list_of_a_forest_is_marginals():
    forest = RandomForestClassifier(20, random_state=0).fit(X, Y)
    listed = forest.predict_proba(X)
    assert isinstance(listed, list)
    marginals = np.stack([p[:, 1] for p in listed], axis=1)
    found = decode(LabelStatistics.from_marginals(listed))
    assert np.array_equal(found, decode(LabelStatistics.from_marginals(marginals)))
    assert fbeta_score(Y, found) > 0.9


def test_class_weight_is_not_for_fbeta():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 5))
    Y = (rng.uniform(size=(2000, 5)) < 1 / (1 + np.exp(2 - X))).astype(int)  # rare labels
    train, test = slice(0, 1000), slice(1000, None)
    plain = FBetaReduction(LogisticRegression()).fit(X[train], Y[train])
    balanced = FBetaReduction(LogisticRegression(class_weight="balanced"))
    with pytest.warns(UserWarning, match=r"class_weight='balanced'.*not those of the data"):
        balanced.fit(X[train], Y[train])
    sizes = [e.predict(X[test]).sum(axis=1).mean() for e in (plain, balanced)]
    scores = [e.score(X[test], Y[test]) for e in (plain, balanced)]
    gaps = [abs(e.expected_fbeta(X[test]).mean() - e.score(X[test], Y[test]))
            for e in (plain, balanced)]  # fmt: skip
    assert sizes[1] > 1.5 * sizes[0]
    assert scores[0] > scores[1] + 0.05
    assert gaps[1] > 3 * gaps[0]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(class_weight={0: 1, 1: 2}))
    with pytest.warns(UserWarning, match="logisticregression__class_weight"):
        FBetaReduction(pipeline).fit(X[:100], Y[:100])


class TestRouting:
    weight = RNG.uniform(0.1, 2.0, size=60)

    @staticmethod
    def pipeline(last):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        return make_pipeline(scaler, last.set_fit_request(sample_weight=True))

    def test_without_routing_the_way_is_shown(self):
        reduction = FBetaReduction(make_pipeline(StandardScaler(), LogisticRegression()))
        with pytest.raises(ValueError, match="enable_metadata_routing=True"):
            reduction.fit(X, Y, sample_weight=self.weight)

    def test_weights_reach_the_last_step(self):
        scaled = StandardScaler().fit_transform(X)
        alone = FBetaReduction(LogisticRegression()).fit(scaled, Y, sample_weight=self.weight)
        with sklearn.config_context(enable_metadata_routing=True):
            reduction = FBetaReduction(self.pipeline(LogisticRegression()))
            found = reduction.fit(X, Y, sample_weight=self.weight).predict_proba(X)
            unweighted = reduction.fit(X, Y).predict_proba(X)
            calibrated = FBetaReduction(self.pipeline(LinearSVC()))
            calibrated.fit(X, Y, sample_weight=self.weight)
        np.testing.assert_allclose(found, alone.predict_proba(scaled))
        assert abs(found - unweighted).max() > 0.01
        assert np.isfinite(calibrated.predict_proba(X)).all()

    def test_a_step_that_does_not_say_is_an_error(self):
        with sklearn.config_context(enable_metadata_routing=True):
            reduction = FBetaReduction(make_pipeline(StandardScaler(), LogisticRegression()))
            with pytest.raises(UnsetMetadataPassedError, match="StandardScaler"):
                reduction.fit(X, Y, sample_weight=self.weight)

    def test_weights_pass_through_cross_validation(self):
        with sklearn.config_context(enable_metadata_routing=True):
            reduction = FBetaReduction(self.pipeline(LogisticRegression()))
            reduction.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
            scores = cross_val_score(
                reduction, X, Y, params={"sample_weight": self.weight}, error_score="raise",
                cv=[(range(40), range(40, 60))],
            )  # fmt: skip
            fitted = reduction.fit(X[:40], Y[:40], sample_weight=self.weight[:40])
        score = fitted.score(X[40:], Y[40:], sample_weight=self.weight[40:])
        assert scores.tolist() == pytest.approx([score])


@every
def test_the_html_view(estimator):
    for e in (estimator, sklearn.base.clone(estimator).fit(X, Y)):
        view = e._repr_html_()
        assert type(estimator).__name__ in view
        assert "sk-estimator" in view or "sk-top-container" in view
    name = next(key for key in estimator.get_params() if key.endswith("beta"))
    other = sklearn.base.clone(estimator).set_params(**{name: 2.5})
    assert "2.5" in other._repr_html_()


@some
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_feature_names(estimator, library):
    module = pytest.importorskip(library)

    def table(names):
        columns = dict(zip(names, X.T, strict=True))
        return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)

    fitted = sklearn.base.clone(estimator).fit(table(NAMES), Y)
    assert fitted.feature_names_in_.tolist() == NAMES
    assert np.array_equal(fitted.predict(table(NAMES)), fitted.fit(X, Y).predict(X))
    fitted.fit(table(NAMES), Y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(table(["one", "two", "other", "four"]))


@every
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_names_the_features_of_a_pipeline(estimator, library):
    module = pytest.importorskip(library)
    frame = module.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    transformer = make_column_transformer((StandardScaler(), ["two", "four"]))
    pipeline = make_pipeline(transformer, sklearn.base.clone(estimator))
    pipeline.set_output(transform=library).fit(frame, Y)
    assert pipeline[-1].feature_names_in_.tolist() == [
        "standardscaler__two", "standardscaler__four"
    ]  # fmt: skip
    assert pipeline.predict(frame).shape == Y.shape
    # predictions have the form of Y; probabilities are a frame of the library that was asked for
    assert isinstance(pipeline.predict(frame), np.ndarray)


@every
def test_polars_in_and_out(estimator):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    labels = pl.DataFrame({"a": Y[:, 0], "b": Y[:, 1].astype(bool)})
    fitted = sklearn.base.clone(estimator).fit(frame, labels)
    predicted = fitted.predict(frame)
    assert predicted.schema == labels.schema
    plain = sklearn.base.clone(estimator).fit(X, Y)
    assert np.array_equal(predicted.to_numpy(), plain.predict(X))
    assert fitted.score(frame, labels) == plain.score(X, Y)
    lists = sklearn.base.clone(estimator).fit(frame, pl.Series(TAGS)).predict(frame)
    assert lists.dtype == pl.List(pl.String)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_forms_of_other_libraries_in_model_files(library, tmp_path):
    pytest.importorskip("skops")
    module = pytest.importorskip(library)
    from fbeta.storage.model_files import load_model, save_model

    columns = {"a": Y[:, 0], "b": Y[:, 1].astype(bool)}
    labels = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    column = module.array(TAGS) if library == "pyarrow" else module.Series(TAGS)
    for y in (labels, column):
        clf = FBetaClassifier().fit(X, y)
        save_model(tmp_path / "m.skops", clf)
        stored = load_model(tmp_path / "m.skops")
        assert stored.estimator.predict(X).equals(clf.predict(X))
        assert np.array_equal(stored.predict(X), FBetaClassifier().fit(X, Y).predict(X))
