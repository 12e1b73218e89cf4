"""The search for alpha against the search done by hand, and what it hands on."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit

from fbeta import (
    AlphaSearchCV,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoderCV,
    decode,
    fbeta_score,
)
from fbeta._threads import n_threads
from fbeta.blocks import RowBlocks
from fbeta.datasets import make_calibrated
from fbeta.estimators.folds import make_folds, over_folds
from fbeta.labels.forms import form_of
from fbeta.rivals import (
    BinaryRelevance,
    CostSensitiveRelevance,
    ExactFPlugIn,
    Limo,
    MacroFSvm,
    ProbabilisticChain,
    ReverseMultiLabel,
    SubmodularMultiLabel,
    ThresholdedRelevance,
)

from ..cases import slow
from .toys import NAMES, as_sets

METHODS = ("predict_proba", "predict_statistics", "expected_fbeta")


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(300, n_labels=3, n_features=12)
    return X, Y


def test_cv_is_the_search_done_by_hand(data):
    X, Y = data
    alphas, cv = (0.01, 1.0, 100.0), KFold(3, shuffle=True, random_state=1)
    clf = FBetaClassifierCV(alphas=alphas, cv=cv, beta=2.0, tol=1e-9).fit(X, Y)
    for i, (train, test) in enumerate(cv.split(X)):
        for a, alpha in enumerate(alphas):
            fold = FBetaClassifier(alpha=alpha, beta=2.0, tol=1e-9).fit(X[train], Y[train])
            score = fbeta_score(Y[test], fold.predict(X[test]), 2.0)
            assert clf.cv_results_[f"split{i}_test_score"][a] == pytest.approx(score, abs=2e-3)
    mean = clf.cv_results_["mean_test_score"]
    assert clf.alpha_ == alphas[int(np.argmax(mean))]
    assert clf.best_score_ == mean.max()
    assert clf.cv_results_["rank_test_score"].min() == 1
    refit = FBetaClassifier(alpha=clf.alpha_, beta=2.0, tol=1e-9).fit(X, Y)
    assert np.allclose(clf.coef_, refit.coef_)


@pytest.mark.parametrize("n_jobs", [None, slow(2)])
def test_cv_takes_splitters_groups_and_jobs(data, n_jobs):
    stratifiers = pytest.importorskip("iterstrat.ml_stratifiers")

    X, Y = data
    stratified = stratifiers.MultilabelStratifiedKFold(3, shuffle=True, random_state=0)
    one = FBetaClassifierCV(alphas=(0.1, 10.0), cv=stratified).fit(X, Y)
    folds = list(stratified.split(X, Y))
    two = FBetaClassifierCV(alphas=(0.1, 10.0), cv=folds, n_jobs=n_jobs).fit(X, Y)
    assert np.allclose(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    groups = np.arange(300) % 4
    grouped = FBetaClassifierCV(alphas=(0.1, 10.0), cv=GroupKFold(4)).fit(X, Y, groups=groups)
    assert "split3_test_score" in grouped.cv_results_
    sparse = FBetaClassifierCV(alphas=(0.1, 10.0), cv=3).fit(sp.csr_array(X), as_sets(Y))
    assert isinstance(sparse.predict(sp.csr_array(X))[0], list)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alphas": ()}, "empty"),
        ({"alphas": (-1.0,)}, "alphas"),
        ({"cv": 1}, "cv must be at least"),
    ],
)
def test_cv_bad_parameters(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        FBetaClassifierCV(**parameters).fit(*data)


def test_threads_of_the_user_leave_blas_as_it_was():
    X, Y, _, _ = make_calibrated(80, n_labels=3, n_features=12)
    before = n_threads()
    users = [
        threading.Thread(target=FBetaClassifierCV(alphas=(0.1, 1.0), cv=2).fit, args=(X, Y))
        for _ in range(6)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert n_threads() == before


def test_mistakes_are_named(data):
    X, Y = data
    with pytest.raises(ValueError, match="alphas must be a sequence"):
        FBetaClassifierCV(alphas=1.0).fit(X, Y)
    with pytest.raises(TypeError, match="estimator of fbeta with a parameter alpha"):
        AlphaSearchCV(LogisticRegression()).fit(X, Y)
    for estimator in (Limo(), MacroFSvm()):
        with pytest.raises(ValueError, match="does not support sample_weight"):
            AlphaSearchCV(estimator).fit(X, Y, sample_weight=np.ones(300))


def test_the_short_form_is_the_search_of_its_estimator(data):
    X, Y = data
    parameters = {"loss": "squared", "cardinalities": "all", "tol": 1e-8}
    short = FBetaClassifierCV((0.1, 10.0), 3, 2.0, **parameters).fit(X, Y)
    long = AlphaSearchCV(FBetaClassifier(2.0, **parameters), alphas=(0.1, 10.0), cv=3).fit(X, Y)
    assert short.beta == long.beta == 2.0
    assert short.alpha_ == long.alpha_
    assert np.array_equal(short.coef_, long.best_estimator_.coef_)
    for name in long.cv_results_:
        assert np.array_equal(short.cv_results_[name], long.cv_results_[name])
    for name in METHODS:
        one, other = (getattr(s, name)(X) for s in (short, long))
        if name == "predict_statistics":
            one, other = one.joint, other.joint
        assert np.array_equal(one, other)
    assert set(short.get_params()) == set(FBetaClassifierCV().get_params())
    assert not {"estimator", "alpha"} & set(short.get_params())


@pytest.mark.parametrize(
    "estimator",
    [
        FBetaClassifier(), BinaryRelevance(), ExactFPlugIn(), ProbabilisticChain(n_samples=5),
        ThresholdedRelevance(), CostSensitiveRelevance(grid=2), Limo(epochs=1), MacroFSvm(),
        slow(ReverseMultiLabel()), slow(SubmodularMultiLabel()),
    ],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_it_has_what_its_estimator_has(data, estimator):
    X, Y = data[0][:60], data[1][:60]
    search = AlphaSearchCV(estimator, alphas=(10.0,), cv=2)
    for name in METHODS:
        assert hasattr(search, name) == hasattr(estimator, name)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    search.fit(X, Y)
    best = search.best_estimator_
    assert np.array_equal(search.predict(X), best.predict(X))
    assert search.score(X, Y) == best.score(X, Y)
    if hasattr(best, "predict_proba"):
        assert np.array_equal(search.predict_proba(X), best.predict_proba(X))
    if hasattr(best, "predict_statistics"):
        raw = search.expected_fbeta(X, calibrated=False)
        assert np.array_equal(raw, best.expected_fbeta(X))
        assert np.array_equal(search.predict_statistics(X).joint, best.predict_statistics(X).joint)
        expected = search.expected_fbeta(X, beta=2.0)
        assert np.array_equal(expected, best.expected_fbeta(X, beta=2.0))


def test_frames_keep_names_and_index(data):
    X, Y = data
    index = [f"row{i}" for i in range(300)]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)], index=index)
    search = FBetaClassifierCV((1.0,), cv=2).fit(frame, pd.DataFrame(Y, columns=NAMES, index=index))
    assert search.predict(frame.iloc[3:5]).index.tolist() == index[3:5]
    assert search.feature_names_in_.tolist() == frame.columns.tolist()
    assert search.predict_proba(frame.iloc[3:5]).shape == (2, 3)


def test_rows_of_weight_zero_are_as_if_they_were_not_there(data):
    X, Y = data
    rng = np.random.default_rng(0)
    weight = np.where(rng.uniform(size=300) < 0.6, 0.0, rng.uniform(0.5, 2, 300))
    kept = weight > 0
    for search in (FBetaClassifierCV((0.1, 10.0)), AlphaSearchCV(ExactFPlugIn(), alphas=(1, 10.0))):
        one = search.fit(X, Y, sample_weight=weight)
        scores = one.cv_results_["mean_test_score"]
        other = search.fit(X[kept], Y[kept], sample_weight=weight[kept])
        assert np.allclose(scores, other.cv_results_["mean_test_score"], atol=1e-12)
    # the only rows that count are a few of many
    few = np.r_[np.ones(6), np.zeros(294)]
    assert FBetaClassifierCV((1.0,)).fit(X, Y, sample_weight=few).predict(X).shape == Y.shape
    with pytest.raises(ValueError, match="5 folds need 5 rows of positive weight, got n_samples=4"):
        FBetaClassifierCV((1.0,)).fit(X, Y, sample_weight=np.r_[np.ones(4), np.zeros(296)])


def test_folds_that_are_given_name_all_rows():
    X, Y = np.zeros((6, 1)), sp.csr_array(np.ones((6, 1), dtype=np.int8))
    weight = np.array([1.0, 0, 1, 1, 0, 1])
    halves = [(np.arange(3), np.arange(3, 6)), (np.arange(3, 6), np.arange(3))]
    for cv in (halves, KFold(2), PredefinedSplit([1, 1, 1, 0, 0, 0])):
        folds = make_folds(cv, X, Y, weight)
        assert sorted(map(str, folds)) == sorted(
            map(str, [(np.array([0, 2]), np.array([3, 5])), (np.array([3, 5]), np.array([0, 2]))])
        )
    folds = make_folds(2, X, Y, weight)
    assert sorted(np.concatenate([test for _, test in folds])) == [0, 2, 3, 5]
    with pytest.raises(ValueError, match="no rows with positive sample_weight"):
        make_folds(KFold(6), X, Y, weight)


@pytest.mark.parametrize(
    "estimator", [FBetaClassifier(), BinaryRelevance(), ExactFPlugIn()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_statistics_of_rows_that_were_held_out(data, estimator):
    X, Y = data[0], form_of(data[1]).read(data[1])
    folds, alphas = make_folds(3, X, Y), [0.1, 10.0]
    estimator.set_params(tol=1e-10)

    def look(fitted, held, rows, seconds):
        (estimates,) = fitted.estimates(held, checked=True)
        found = fitted.decide(held, [2.0], checked=True)
        return rows, estimates.statistics(), found.labels[2.0]

    found = over_folds(look, estimator, X, Y, folds=folds, alphas=alphas)
    seen = np.zeros(300, dtype=int)
    for (train, test), by_alpha in zip(folds, found, strict=True):
        assert set(by_alpha) == set(alphas)
        for alpha, (rows, statistics, labels) in by_alpha.items():
            fitted = estimator.set_params(alpha=alpha).fit(X[train], data[1][train])
            plain = fitted.predict_statistics(X[test])
            assert np.array_equal(rows, test)
            assert np.array_equal(statistics.cardinalities, plain.cardinalities)
            np.testing.assert_allclose(statistics.joint, plain.joint, atol=1e-4)
            if not isinstance(estimator, BinaryRelevance):
                assert np.array_equal(labels, decode(statistics, 2.0))
            seen[rows] += 1
    assert (seen == len(alphas)).all()


def test_a_decoder_with_its_classifier_has_a_search(data):
    X, Y = data[0][:120], data[1][:120]
    model = FBetaDecoderCV(LogisticRegression(), cv=2)
    search = AlphaSearchCV(model, alphas=(0.1, 1e4), cv=2).fit(X, Y)
    scores = []
    for train, test in KFold(2, shuffle=True, random_state=0).split(X):
        fitted = FBetaDecoderCV(LogisticRegression(), alpha=0.1, cv=2).fit(X[train], Y[train])
        scores.append(fitted.score(X[test], Y[test]))
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(scores))


def test_limits_measures_and_betas_are_those_of_its_estimator(data):
    X, Y = data[0][:90], data[1][:90]
    search = AlphaSearchCV(FBetaClassifier(), alphas=(1.0,), cv=2).fit(X, Y)
    best = search.best_estimator_
    for goal in ({"min_labels": 2}, {"measure": "hamming"}, {"max_labels": 1, "beta": 2.0}):
        assert np.array_equal(search.predict(X, **goal), best.predict(X, **goal))
    assert np.array_equal(
        search.set_params(estimator__beta=5.0).predict(X), best.predict(X, beta=5)
    )
    limo = Limo(epochs=1, random_state=0)
    for method in (limo, AlphaSearchCV(limo, alphas=(1.0,), cv=2)):
        with pytest.raises(ValueError, match="min_labels: only the exact decode takes these"):
            method.fit(X, Y).predict(X, min_labels=1)


def test_expected_values_of_blocks_are_calibrated(data):
    X, Y = data
    search = AlphaSearchCV(FBetaClassifier(), alphas=(1.0,), cv=2).fit(X, Y)
    lazy = search.expected_fbeta(RowBlocks([(X[:100],), (X[100:],)]))
    np.testing.assert_allclose(np.concatenate(list(lazy)), search.expected_fbeta(X), atol=1e-12)
