"""FBetaEnsemble: members by hand, any estimators, weights, odd data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    AlphaSearchCV,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelStatistics,
    SizedClassifier,
    decode,
    fbeta_score,
)
from fbeta.datasets import make_calibrated
from fbeta.estimators.folds import make_folds
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance

ALPHAS = (0.01, 1.0, 100.0)


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(160, n_labels=3, n_features=10)
    return X, Y


MEMBERS = [
    ("joint", FBetaClassifier(alpha=7.0)),
    ("search", AlphaSearchCV(SizedClassifier(), alphas=(0.5, 50.0))),
    ("scaled", make_pipeline(StandardScaler(), SizedClassifier())),
    ("forest", FBetaForest(n_estimators=20, random_state=0)),
]


def test_members_are_averaged_as_dense_statistics(data):
    X, Y = data
    clf = FBetaEnsemble(MEMBERS, alphas=ALPHAS, cv=3).fit(X, Y)
    assert sum(clf.weights_.values()) == pytest.approx(1)
    weights = [w for w in clf.weights_.values() if w]
    model = clf.model
    parts = []
    for member in model.members:
        steps = getattr(member, "steps", None)
        Z = member[:-1].transform(X) if steps else X
        parts.append((member[-1] if steps else member).predict_statistics(Z))
    joint, empty = np.zeros((160, 3, 3)), np.zeros(160)
    for part, weight in zip(parts, model.weights, strict=True):
        joint[:, part.cardinalities - 1] += weight * part.joint
        empty += weight * part.empty
    q = clf.predict_statistics(X)
    np.testing.assert_allclose(q.joint, joint[:, q.cardinalities - 1], atol=1e-12)
    np.testing.assert_allclose(q.empty, empty, atol=1e-12)
    plain = LabelStatistics(empty, joint, [1, 2, 3])
    assert np.array_equal(clf.predict(X, beta=2.0), decode(plain, 2.0))
    assert len(weights) == len(model.members)
    assert clf.score(X, Y) == fbeta_score(Y, decode(plain))
    raw = clf.expected_fbeta(X, calibrated=False)
    expected = decode(plain, return_expected=True)[1]
    np.testing.assert_allclose(raw, np.minimum(expected, 1), atol=1e-12)
    np.testing.assert_allclose(clf.expected_fbeta(X), clf.calibration_(raw))
    # what is known is known for one beta, and without limits
    for options in ({"beta": 2.0}, {"max_labels": 1}):
        raw = clf.expected_fbeta(X, calibrated=False, **options)
        assert np.array_equal(clf.expected_fbeta(X, **options), raw)


def test_scores_are_those_of_fits_by_hand(data):
    X, Y = data
    clf = FBetaEnsemble(MEMBERS, alphas=ALPHAS, cv=3).fit(X, Y)
    board = {row["name"]: row for row in clf.leaderboard_}
    scores = [row["score"] for row in clf.leaderboard_]
    assert scores == sorted(scores, reverse=True)
    assert all(row["seconds"] > 0 for row in clf.leaderboard_)
    # one alone is taken where it is better by two standard errors
    assert clf.best_score_ >= scores[0] - 0.06
    folds = make_folds(3, X, form_of(Y).read(Y))
    by_alpha = []
    for alpha in ALPHAS:
        found = []
        for train, test in folds:
            scaler = StandardScaler().fit(X[train])
            fold = SizedClassifier(alpha=alpha).fit(scaler.transform(X[train]), Y[train])
            found.append(fbeta_score(Y[test], fold.predict(scaler.transform(X[test]))))
        by_alpha.append(np.mean(found))
    assert board["scaled"]["score"] == pytest.approx(max(by_alpha), abs=5e-3)
    search = FBetaClassifierCV(ALPHAS, cv=3).fit(X, Y)
    assert board["joint"]["score"] == pytest.approx(search.best_score_, abs=1e-12)
    forest = [
        fbeta_score(Y[test], FBetaForest(n_estimators=20, random_state=0).fit(X[train], Y[train])
                    .predict(X[test]))
        for train, test in folds
    ]  # fmt: skip
    assert board["forest"]["score"] == pytest.approx(np.mean(forest), abs=5e-3)


def test_an_alpha_is_kept_where_nothing_is_to_be_searched(data):
    clf = FBetaEnsemble([("joint", FBetaClassifier(alpha=7.0))], alphas=None, cv=2).fit(*data)
    assert clf.model.members[0].alpha == 7.0
    assert clf.weights_ == {"joint": 1.0}


@pytest.mark.parametrize("automatic", [False, True])
def test_alphas_are_searched_behind_transformers(data, automatic):
    X, Y = data
    pipeline = make_pipeline(StandardScaler(), SizedClassifier(alpha=1e4))
    if automatic:
        clf = FBetaAuto(candidates=[("scaled", pipeline)], replace=True, cv=3, time_limit=None)
        grid = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    else:
        clf, grid = FBetaEnsemble([("scaled", pipeline)], alphas=ALPHAS, cv=3), ALPHAS
    clf.fit(X, Y)

    def score(alpha):
        model = make_pipeline(StandardScaler(), SizedClassifier(alpha=alpha))
        folds = make_folds(3, X, Y)
        return np.mean([model.fit(X[i], Y[i]).score(X[j], Y[j]) for i, j in folds])

    # half decades beside the best are tried as well, of enough rows
    assert clf.best_score_ >= max(map(score, grid)) - 1e-9
    assert max(map(score, grid)) > score(1e4) + 1e-3
    assert score(clf.model.members[0][-1].alpha) == pytest.approx(clf.leaderboard_[0]["score"])


class Constant(BaseEstimator):
    """An estimator of somebody else, which has statistics and nothing more of ours."""

    def fit(self, X, y):
        self.P_ = np.asarray(y).mean(axis=0)
        return self

    def predict_statistics(self, X):
        return LabelStatistics.from_marginals(np.tile(self.P_, (len(X), 1)))


def test_estimators_of_others_and_supervised_pipelines(data):
    X, Y = data
    members = [
        ("theirs", Constant()),
        ("chosen", make_pipeline(SelectKBest(lambda X, y: f_classif(X, y[:, 0]), k=4), Constant())),
        ("reduction", FBetaReduction(LogisticRegression(max_iter=1000))),
        ("plain", make_pipeline(StandardScaler(), LogisticRegression())),
        ("near", KNeighborsClassifier(9)),
    ]
    clf = FBetaEnsemble(members, cv=2).fit(X, Y)
    assert clf.predict(X).shape == Y.shape
    with pytest.raises(ValueError, match="Constant does not support sample_weight"):
        FBetaEnsemble(members[:1], cv=2).fit(X, Y, sample_weight=np.ones(160))


def test_text_in_names_out():
    texts = ["sun sea", "sky", "sea sky", "sun", "sea", "sky sun"] * 4
    tags = [text.split() for text in texts]
    members = [("words", make_pipeline(TfidfVectorizer(), FBetaClassifier()))]
    clf = FBetaEnsemble(members, cv=3).fit(texts, tags)
    assert {"sea", "sun"} <= set(clf.predict(["sun sea"])[0])


def test_weights_of_rows_count(data):
    X, Y = data
    weight = np.r_[np.full(100, 2.0), np.zeros(60)]
    members = [
        ("joint", FBetaClassifier()),
        ("scaled", make_pipeline(StandardScaler(), SizedClassifier())),
    ]
    one = FBetaEnsemble(members, cv=2, alphas=ALPHAS).fit(X, Y, sample_weight=weight)
    other = FBetaEnsemble(members, cv=2, alphas=ALPHAS).fit(X[:100], Y[:100], np.full(100, 2.0))
    assert one.weights_ == other.weights_
    assert one.best_score_ == pytest.approx(other.best_score_, abs=1e-12)


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ValueError, "empty"),
        ([("a", FBetaClassifier()), ("a", SizedClassifier())], ValueError, "must differ"),
        ([("a", StandardScaler())], TypeError, "'a' has neither predict_statistics"),
    ],
)
def test_mistakes_are_named(data, members, error, message):
    with pytest.raises(error, match=message):
        FBetaEnsemble(members).fit(*data)


@pytest.mark.parametrize(
    "Y", [np.zeros((12, 2), int), np.ones((12, 1), int), np.eye(12, 3, dtype=int)]
)
def test_odd_labels(Y):
    X = np.arange(24.0).reshape(12, 2) / 24
    clf = FBetaEnsemble([("joint", FBetaClassifier()), ("sized", SizedClassifier())], cv=2).fit(
        X, Y
    )
    assert clf.predict(X).shape == Y.shape
    assert clf.predict(sp.csr_array(X)).shape == Y.shape
    expected = clf.expected_fbeta(X)
    assert ((expected >= 0) & (expected <= 1)).all()
    if not Y.any() or Y.all():
        assert (fbeta_per_instance(Y, clf.predict(X)) == 1).all()
