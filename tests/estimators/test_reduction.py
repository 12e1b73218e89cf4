"""Any classifier of scikit-learn: one for each target, with weights, and more rows."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fbeta import (
    AlphaSearchCV,
    FBetaClassifier,
    FBetaDecoderCV,
    FBetaEnsemble,
    FBetaReduction,
    SizedClassifier,
)
from fbeta.datasets import make_calibrated
from fbeta.methods import load_part

from ..blocks.toys import make_rows
from ..cases import slow


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(150, n_labels=3, n_features=12)
    return X, Y


def test_over_logistic_regression_it_is_the_linear_classifier(data):
    X, Y = data
    peer = LogisticRegression(tol=1e-10, solver="newton-cholesky")
    one = FBetaReduction(peer).fit(X, Y)
    other = FBetaClassifier(alpha=1.0, tol=1e-12).fit(X, Y)
    assert np.allclose(
        one.predict_statistics(X).joint, other.predict_statistics(X).joint, atol=1e-5
    )
    assert np.array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=5),
        RandomForestClassifier(n_estimators=5, random_state=0),
        LinearSVC(),
        RidgeClassifier(),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("n_jobs", [None, slow(2)])
def test_any_classifier(data, estimator, n_jobs):
    X, Y = data
    clf = FBetaReduction(estimator, beta=2.0, n_jobs=n_jobs).fit(X, Y)
    assert clf.score(X, Y) > 0.4
    proba = clf.predict_proba(X)
    assert ((proba >= 0) & (proba <= 1)).all()
    assert clf.predict(X, beta=0.5).sum() <= clf.predict(X).sum()


def test_pipelines_over_text():
    text = ["red apple", "green apple", "red car", "green car"] * 5
    labels = [["fruit", "red"], ["fruit"], ["red"], []] * 5
    clf = FBetaReduction(make_pipeline(TfidfVectorizer(), MultinomialNB())).fit(text, labels)
    assert clf.predict(["red apple", "green car"]) == [["fruit", "red"], []]


@pytest.mark.parametrize("wrapper", [ClassifierChain, MultiOutputClassifier])
def test_classifiers_of_several_labels_are_taken_at_once(data, wrapper):
    X, Y = data[0] / data[0].std(), data[1]
    one = LogisticRegression(max_iter=1000)
    whole, alone = wrapper(one), SizedClassifier(estimator=one)
    for estimator in (whole, make_pipeline(StandardScaler(), whole)):
        marginals = SizedClassifier(estimator=estimator, sizes="independent").fit(X, Y)
        expected = clone(estimator).fit(X, Y).predict_proba(X)
        if isinstance(expected, list):
            expected = np.column_stack([P[:, 1] for P in expected])
        np.testing.assert_allclose(marginals.predict_proba(X), expected, atol=1e-12)
        assert SizedClassifier(estimator=estimator).fit(X, Y).score(X, Y) > 0.4
        assert FBetaReduction(estimator).fit(X, Y).score(X, Y) > 0.4
    if wrapper is MultiOutputClassifier:
        P = SizedClassifier(estimator=whole).fit(X, Y).predict_proba(X)
        np.testing.assert_allclose(P, alone.fit(X, Y).predict_proba(X), atol=1e-12)
    assert FBetaEnsemble([("chain", whole)], cv=2).fit(X, Y).score(X, Y) > 0.4
    assert FBetaDecoderCV(whole, cv=2).fit(X, Y[:, :1]).score(X, Y[:, :1]) > 0.4


@pytest.mark.parametrize(
    "estimator",
    [
        FBetaReduction(LogisticRegression()),
        SizedClassifier(estimator=OneVsRestClassifier(LogisticRegression())),
        FBetaDecoderCV(RandomForestClassifier(20, random_state=0), cv=2),
        FBetaEnsemble([("own", LogisticRegression())], cv=2),
    ],
)
def test_tables_are_encoded_for_classifiers_that_take_numbers_only(estimator):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"colour": ["red", "blue", None, "red"] * 10, "size": [1.0, None] * 20})
    labels = [["hot"], ["cold"], [], ["hot"]] * 10
    assert estimator.fit(frame, labels).predict(frame[["size", "colour"]])[:2] == labels[:2]


def test_missing_values_are_for_the_classifier_to_accept(data):
    X, Y = data
    X = np.where(np.random.default_rng(0).uniform(size=X.shape) < 0.1, np.nan, X)
    assert FBetaReduction(HistGradientBoostingClassifier(max_iter=3)).fit(X, Y).score(X, Y) > 0.4
    with pytest.raises(ValueError, match="NaN"):
        FBetaReduction(LogisticRegression()).fit(X, Y)


def test_constant_columns_need_no_classifier():
    X = np.random.default_rng(0).normal(size=(20, 2))
    Y = np.zeros((20, 3), int)
    Y[:, 0] = 1
    Y[:10, 1] = 1
    clf = FBetaReduction(LogisticRegression()).fit(X, Y)
    # sizes 1 and 2: label 0 alone, labels 0 and 1 together; and what never happens
    assert sum(e is not None for e in clf.estimators_) == 2
    assert clf.predict_statistics(X).joint[:, :, 2].max() == 0
    nothing = FBetaReduction(LogisticRegression()).fit(X, np.zeros((20, 2), int))
    assert not nothing.predict(X).any()
    assert nothing.estimators_ == [None]


def test_one_positive_can_be_calibrated():
    X = np.arange(10.0)[:, None]
    Y = np.zeros((10, 2), int)
    Y[9, 0] = Y[3:, 1] = 1
    assert np.isfinite(FBetaReduction(LinearSVC()).fit(X, Y).predict_proba(X)).all()


def test_sparse_and_weights(data):
    X, Y = data
    weight = np.r_[np.zeros(50), np.ones(100)]
    one = FBetaReduction(LogisticRegression()).fit(sp.csr_array(X), Y, sample_weight=weight)
    other = FBetaReduction(LogisticRegression()).fit(X[50:], Y[50:])
    assert np.allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-3)


def test_bad_estimators_are_named(data):
    X, Y = data
    with pytest.raises(TypeError, match="TfidfVectorizer"):
        FBetaReduction(TfidfVectorizer()).fit(X, Y)
    with pytest.raises(ValueError, match="KNeighborsClassifier does not support sample_weight"):
        FBetaReduction(KNeighborsClassifier()).fit(X, Y, sample_weight=np.ones(150))


def test_batches_add_up_to_one_fit():
    """Naive Bayes is exact however its rows are dealt out."""
    X, _ = make_rows(900)
    Y = (X[:, :2] + np.random.default_rng(0).normal(size=(900, 2)) > 2).astype(int)
    parts = FBetaReduction(GaussianNB(), cardinalities="all")
    for at in range(0, 900, 300):
        parts.partial_fit(X[at : at + 300], Y[at : at + 300])
    whole = FBetaReduction(GaussianNB(), cardinalities="all").fit(X, Y)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    assert (parts.predict(X) == whole.predict(X)).mean() > 0.999


def test_sizes_and_names_are_fixed_by_the_first_call():
    clf = FBetaReduction(SGDClassifier(loss="log_loss", random_state=0))
    clf.partial_fit([[0.0], [1.0]], [["sea"], []], classes=["sea", "sky"])
    assert clf.classes_.tolist() == ["sea", "sky"]
    clf.partial_fit([[2.0]], [["sky"]])
    before = clf.estimators_
    with pytest.raises(ValueError, match="label set of size 2"):
        clf.partial_fit([[2.0]], [["sea", "sky"]])
    with pytest.raises(ValueError, match="not seen in fit"):
        clf.partial_fit([[2.0]], [["rain"]])
    with pytest.raises(ValueError, match="X has 1 rows and y has 2"):
        clf.partial_fit([[2.0]], [["sea"], ["sky"]])
    assert clf.estimators_ is before
    assert len(clf.predict([[0.0], [2.0]])) == 2


def test_only_where_the_classifier_can():
    assert not hasattr(FBetaReduction(LogisticRegression()), "partial_fit")
    assert not hasattr(FBetaReduction(SGDClassifier(loss="hinge")), "partial_fit")
    X, Y = make_rows(100, s=2)
    clf = FBetaReduction(GaussianNB()).fit(X, np.column_stack([Y, Y[:, 0]]))
    with pytest.raises(ValueError, match="does not go on from fit"):
        clf.partial_fit(X, np.column_stack([Y, Y[:, 0]]))


def values_of_sets(model, scores, sizes):
    """Return the expected F_1 of each label set, by all label sets in high precision."""
    s = model.n_labels_
    with localcontext() as context:
        context.prec = 60
        z = [Decimal(float(value)) for value in np.clip(scores, -1e6, 1e6)]
        share = [1 / (1 + (-u).exp()) for u in z[s:]]
        law = {}
        for size, p in zip(sizes, share, strict=True):
            odds = {
                y: sum((z[j] for j in y), Decimal(0)).exp() for y in combinations(range(s), size)
            }
            law |= {y: p / sum(share) * w / sum(odds.values()) for y, w in odds.items()}
        values = {}
        for chosen in (y for k in range(s + 1) for y in combinations(range(s), k)):
            hits = ((p, len({*y} & {*chosen}), len(y) + len(chosen)) for y, p in law.items())
            value = sum(p * (Decimal(2 * hit) / total if total else 1) for p, hit, total in hits)
            values[chosen] = float(value)
    return values


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("constant", [None, 0, 1])
@pytest.mark.parametrize("n_labels", [3, 4, 5])
def test_sized_labels_at_any_scores(scale, constant, n_labels):
    """Sets and values are the best of all sets where probabilities round to 0 or 1."""
    rng = np.random.default_rng(n_labels)
    X = rng.normal(size=(60, 3))
    Y = (X @ rng.normal(size=(3, n_labels)) + rng.normal(size=(60, n_labels)) > 0.3).astype(int)
    if constant is not None:
        Y[:, 0] = constant
    model, rows = SizedClassifier(alpha=0.1).fit(X, Y), scale * X[:12]
    scores = (rows @ model.coef_.T + model.intercept_)[:, model.model.problem]
    exact = [values_of_sets(model, row, model.code.sizes.tolist()) for row in scores]
    for most in (n_labels, 2):
        labels = model.predict(rows, max_labels=most)
        expected = model.expected_fbeta(rows, max_labels=most)
        for chosen, value, values in zip(labels, expected, exact, strict=True):
            best = max(v for y, v in values.items() if len(y) <= most)
            assert value == pytest.approx(best, abs=1e-12)
            assert values[tuple(np.flatnonzero(chosen).tolist())] == pytest.approx(best, abs=1e-12)


def test_sized_models_of_a_search_read_the_same_scores():
    """A solution on the coordinates of a search has the statistics of its model."""
    rng = np.random.default_rng(0)
    X = 30 * rng.normal(size=(60, 3))
    Y = (X @ rng.normal(size=(3, 4)) > 0).astype(int)
    Y[:, 0] = 1
    model, every = SizedClassifier(alpha=1e-4), np.arange(60)
    shared = model.alpha_shared(X, None)
    ((_, found),) = model.alpha_path(shared, sp.csr_array(Y.astype(np.int8)), None, every, [1e-4])
    (own,) = found.estimates(shared, checked=True)
    again = AlphaSearchCV(model, alphas=[1e-4], cv=2).fit(X, Y).predict_statistics(X)
    np.testing.assert_allclose(own.statistics().joint, again.joint, atol=1e-6)
    assert own.statistics().form.log_odds


@pytest.mark.parametrize("estimator", [GaussianNB(), KNeighborsClassifier()])
def test_models_of_sizes_in_earlier_files_have_other_fields(data, estimator):
    X, Y = data
    model = SizedClassifier(estimator=estimator).fit(X, Y).model
    names = ("together", "constant", "place", "size", "n_sizes")
    fields = {"labels": model.estimators} | {name: getattr(model, name) for name in names}
    earlier = load_part("SizedModel")(**fields)
    assert earlier.together == isinstance(estimator, KNeighborsClassifier)
    assert np.array_equal(earlier.probabilities(X[:5]), model.probabilities(X[:5]))


class Reversed(ClassifierMixin, BaseEstimator):
    """Naive Bayes with its classes in another order."""

    def fit(self, X, y):
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_[::-1]
        return self

    def predict(self, X):
        return self.inner_.predict(X)

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)[:, ::-1]


class ReversedLabels(ClassifierMixin, BaseEstimator):
    """The same for all labels at once."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X, y):
        self.inner_ = [Reversed().fit(X, own) for own in np.transpose(y)]
        self.classes_ = [one.classes_ for one in self.inner_]
        return self

    def predict(self, X):
        return np.stack([one.predict(X) for one in self.inner_], axis=1)

    def predict_proba(self, X):
        return [one.predict_proba(X) for one in self.inner_]


@pytest.mark.parametrize(
    "estimator",
    [FBetaReduction(None), SizedClassifier(estimator=0), FBetaDecoderCV(None, cv=3)],
    ids=lambda e: type(e).__name__,
)
def test_probabilities_go_by_classes(estimator, data):
    X, Y = data
    expected = clone(estimator).set_params(estimator=GaussianNB()).fit(X, Y)
    found = clone(estimator).set_params(estimator=Reversed()).fit(X, Y)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=1e-12)


def test_probabilities_of_all_labels_go_by_classes(data):
    X, Y = data
    one, other = (
        SizedClassifier(estimator=model, sizes="independent").fit(X, Y)
        for model in (ReversedLabels(), GaussianNB())
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-12)


def test_probabilities_of_another_shape_are_named(data):
    class Third(Reversed):
        def predict_proba(self, X):
            return np.full((len(X), 3), 1 / 3)

    with pytest.raises(ValueError, match=r"predict_proba of Third has shape \(150, 3\): expected"):
        FBetaReduction(Third()).fit(*data).predict(data[0])


def test_more_rows_without_weight_are_as_if_not_there(data):
    X, Y = data
    weight = np.repeat([1.0, 0.0], 75)
    Y = np.where(weight[:, None] > 0, Y * (Y.cumsum(axis=1) < 2), 1)  # other sizes, without weight
    model = FBetaReduction(GaussianNB())
    found = clone(model).partial_fit(X, Y, sample_weight=weight)
    expected = clone(model).partial_fit(X[:75], Y[:75], sample_weight=weight[:75])
    np.testing.assert_array_equal(found.cardinalities_, [1])
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
