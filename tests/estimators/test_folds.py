"""Folds: pruning of the path, warnings, and calibration of the expected F_beta."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import PredefinedSplit
from sklearn.naive_bayes import GaussianNB

from fbeta import (
    AlphaSearchCV,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoderCV,
    FBetaEnsemble,
    SizedClassifier,
    fbeta_score,
)
from fbeta.datasets import CalibratedLaw, make_calibrated
from fbeta.datasets.benchmarks import all_label_sets
from fbeta.estimators.folds import (
    ALPHAS,
    LINE_ROWS,
    MAX_GROUPS,
    MIN_GROUP_ROWS,
    SLOPE_ROWS,
    Calibration,
    constant_scores,
    difference,
    make_folds,
    over_folds,
    pruning,
)
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance
from fbeta.report.evaluation import calibration_bins
from fbeta.rivals import Limo


def follow(scores, alphas=ALPHAS, constant=0.0):
    """The strengths that are tried where every row has the same score."""
    is_over = pruning(np.full(50, constant), None)
    tried = []
    for alpha, score in zip(sorted(alphas, reverse=True), scores, strict=False):
        tried.append(score)
        if is_over(alpha, np.full(50, score)):
            break
    return tried


@pytest.mark.parametrize(
    ("scores", "count"),
    [
        ([0.5, 0.6, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], 5),  # a peak, and two below it
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7], 5),  # a plateau
        ([0.5, 0.6, 0.7, 0.6, 0.8, 0.7, 0.9, 1.0], 8),  # never two in a row
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], 8),  # still rising
        ([0.5, 0.6, 0.6005, 0.601, 0.6, 0.5, 0.4, 0.3], 4),  # gains of no account
    ],
)
def test_the_rule(scores, count):
    assert len(follow(scores)) == count


def test_nothing_is_left_out_before_the_features_say_anything():
    flat = [0.3, 0.3, 0.3, 0.3, 0.3, 0.8, 0.8, 0.8]
    assert len(follow(flat, constant=0.3)) == 8
    assert len(follow(flat, constant=0.1)) == 3


def test_strengths_that_are_close_have_to_reach_further():
    fine = 10.0 ** np.arange(0, -2, -0.25)
    scores = [0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]
    # four steps of a quarter of a decade each
    assert len(follow(scores, fine)) == 5


def test_noise_of_few_rows_leaves_nothing_out():
    rng = np.random.default_rng(0)
    is_over = pruning(np.zeros(20), None)
    over = [is_over(alpha, rng.integers(0, 2, 20) * 1.0) for alpha in ALPHAS[::-1]]
    assert not any(over)


def test_paired_differences():
    rng = np.random.default_rng(0)
    one, other = rng.uniform(size=(2, 100))
    mean, error = difference(one, other)
    assert mean == pytest.approx((one - other).mean())
    assert error == pytest.approx((one - other).std() / 10)
    # a row of weight 2 is as two rows in the mean
    twice = np.r_[np.full(50, 2.0), np.ones(50)]
    again = np.r_[np.arange(50), np.arange(100)]
    assert difference(one, other, twice)[0] == pytest.approx((one - other)[again].mean())


def test_the_set_that_is_best_without_features():
    rng = np.random.default_rng(0)
    Y = (rng.uniform(size=(40, 3)) < [0.2, 0.5, 0.7]).astype(np.int8)
    indicator, train, test = sp.csr_array(Y), np.arange(30), np.arange(30, 40)
    weight = rng.uniform(0.5, 2, 40)
    for own in (None, weight):
        found = constant_scores(indicator, train, test, 2.0, own)
        sets = all_label_sets(3)
        value = [
            fbeta_score(Y[:30], np.tile(y, (30, 1)), 2.0,
                        sample_weight=None if own is None else own[:30])
            for y in sets
        ]  # fmt: skip
        best = sets[int(np.argmax(value))]
        plain = [fbeta_score(Y[[i]], best[None], 2.0) for i in test]
        np.testing.assert_allclose(found, plain)


@pytest.fixture(scope="module")
def data():
    X, Y, _, _ = make_calibrated(1500, n_labels=3, n_features=12)
    return X, Y


def test_a_search_marks_what_it_left_out_and_chooses_the_same(data):
    X, Y = data
    short = FBetaClassifierCV(cv=3).fit(X, Y)
    full = FBetaClassifierCV(cv=3, prune=False).fit(X, Y)
    mean = short.cv_results_["mean_test_score"]
    left_out = np.isnan(mean)
    assert 0 < left_out.sum() < len(mean) - 2
    # the weakest, and they rank last
    assert (np.diff(left_out.astype(int)) <= 0).all()
    ranks = short.cv_results_["rank_test_score"]
    assert (ranks[left_out] == (~left_out).sum() + 1).all()
    assert np.array_equal(mean[~left_out], full.cv_results_["mean_test_score"][~left_out])
    assert not np.isnan(full.cv_results_["mean_test_score"]).any()
    assert full.best_score_ - short.best_score_ < 1e-3
    assert not np.isnan(short.best_score_)


def test_folds_are_followed_from_strong_to_weak(data):
    X, Y = data[0][:90], form_of(data[1][:90]).read(data[1][:90])
    seen = []

    def stop(fold):
        def is_over(alpha, found):
            seen.append((len(fold[1]), alpha, found))
            return alpha <= 1.0

        return is_over

    for estimator in (FBetaClassifier(), SizedClassifier()):
        seen.clear()
        found = over_folds(
            lambda fitted, held, rows, _: len(rows), estimator, X, Y, folds=make_folds(3, X, Y),
            alphas=[0.1, 1.0, 10.0, 100.0], stop=stop,
        )  # fmt: skip
        assert [list(fold) for fold in found] == [[100.0, 10.0, 1.0]] * 3
        assert sorted(seen) == sorted(
            (30, alpha, 30) for alpha in (1.0, 10.0, 100.0) for _ in "abc"
        )


def test_an_edge_of_the_grid_is_told_where_it_matters(data):
    X, Y = data
    with pytest.warns(
        UserWarning, match="alpha=10000 is the weakest of the strengths.*weaker ones"
    ):
        AlphaSearchCV(FBetaClassifier(), alphas=(1e4, 1e5, 1e6), cv=2).fit(X, Y)
    noise = np.random.default_rng(0).normal(size=(300, 60))
    with pytest.warns(UserWarning, match="strongest of the strengths.*stronger ones"):
        AlphaSearchCV(FBetaClassifier(), alphas=(1e-4, 1e-2, 1e3), cv=2, prune=False).fit(
            noise, np.tile([[1, 0]] * 4 + [[0, 1]], (60, 1))
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # two strengths have no inside, and a plateau no better end
        AlphaSearchCV(FBetaClassifier(), alphas=(1e4, 1e6), cv=2).fit(X, Y)
        AlphaSearchCV(FBetaClassifier(), alphas=(1e-6, 1e-5, 1e-4), cv=2).fit(X, Y)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_columns_of_very_different_scales_are_told(form):
    X, Y, _, _ = make_calibrated(60, n_labels=2, n_features=6)
    search = AlphaSearchCV(FBetaClassifier(), alphas=(1.0,), cv=2)
    with pytest.warns(UserWarning, match="scale them first"):
        search.fit(form(X * [1, 1, 1, 1, 1, 1e5]), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(form(X * [0, 1, 1, 1, 1, 10]), Y)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.integers(0, 10**6), st.booleans())
def test_it_is_the_isotonic_regression_of_groups_of_rows(n, seed, ties):
    rng = np.random.default_rng(seed)
    expected = rng.integers(0, 5, n) / 4 if ties else rng.uniform(size=n)
    achieved, weight = rng.uniform(size=n), rng.uniform(0.1, 2, n)
    found = Calibration.of(1.0, expected, achieved, weight)
    count = np.clip(n // MIN_GROUP_ROWS, 1, MAX_GROUPS)
    groups = np.array_split(np.argsort(expected, kind="stable"), count)
    x = [round(np.average(expected[g], weights=weight[g]), 12) for g in groups]
    y = [np.average(achieved[g], weights=weight[g]) for g in groups]
    # a line, in which a slope of 1 counts for some rows, counts for some rows in every group
    share = weight / weight.sum()
    mean, got = expected @ share, achieved @ share
    spread, both = (expected - mean) ** 2 @ share, (expected - mean) * (achieved - got) @ share
    slope = (n * both + SLOPE_ROWS * spread) / (n + SLOPE_ROWS) / spread if spread > 0 else 0
    at = {value: [k for k in range(len(x)) if x[k] == value] for value in sorted(set(x))}
    counts = np.array([n * sum(share[groups[k]].sum() for k in own) for own in at.values()])
    sums = [n * sum(share[groups[k]].sum() * y[k] for k in own) for own in at.values()]
    line = np.clip(got + max(0, slope) * (np.array(list(at)) - mean), 0, 1)
    values = (np.array(sums) + LINE_ROWS * line) / (counts + LINE_ROWS)
    plain = IsotonicRegression().fit(list(at), values, counts + LINE_ROWS)
    np.testing.assert_allclose(found(np.array(x)), plain.predict(x), atol=1e-9)
    grid = found(np.linspace(0, 1, 50))
    assert (np.diff(grid) >= -1e-12).all()
    assert grid.min() >= 0
    assert grid.max() <= 1
    # the mean over the rows that it was learned from is right
    if not ties and len(groups) == 1:
        assert grid == pytest.approx(np.average(achieved, weights=weight))


def test_a_search_learns_it_from_the_rows_it_held_out():
    X, Y, _, _ = make_calibrated(250, n_labels=3, n_features=12)
    search = AlphaSearchCV(SizedClassifier(beta=2.0), alphas=(0.1, 10.0), cv=3).fit(X, Y)
    expected, achieved = [], []
    for train, test in make_folds(3, X, form_of(Y).read(Y)):
        fold = SizedClassifier(2.0, search.alpha_).fit(X[train], Y[train])
        expected.append(fold.expected_fbeta(X[test]))
        achieved.append(fbeta_per_instance(Y[test], fold.predict(X[test]), 2.0))
    plain = Calibration.of(2.0, np.concatenate(expected), np.concatenate(achieved))
    np.testing.assert_allclose(search.calibration_.expected, plain.expected, atol=0.01)
    np.testing.assert_allclose(search.calibration_.achieved, plain.achieved, atol=0.02)
    raw = search.best_estimator_.expected_fbeta(X)
    assert np.array_equal(search.expected_fbeta(X), search.calibration_(raw))
    assert np.array_equal(search.expected_fbeta(X, beta=2.0), search.calibration_(raw))
    # for another beta, and with limits, the statistics speak alone
    for options in ({"beta": 1.0}, {"min_labels": 1}, {"calibrated": False}):
        plain = {key: value for key, value in options.items() if key != "calibrated"}
        given = search.expected_fbeta(X, **options)
        assert np.array_equal(given, search.best_estimator_.expected_fbeta(X, **plain))


def test_methods_without_expectations_have_none():
    X, Y, _, _ = make_calibrated(60, n_labels=2, n_features=6)
    search = AlphaSearchCV(Limo(epochs=1, random_state=0), alphas=(1.0,), cv=2).fit(X, Y)
    assert search.calibration_ is None
    assert not hasattr(search, "expected_fbeta")


def error(expected, Y, predicted):
    bins = calibration_bins(expected, fbeta_per_instance(Y, predicted))
    return np.mean([abs(group["expected"] - group["actual"]) for group in bins])


def test_new_rows_get_what_is_expected_of_them():
    law = CalibratedLaw(n_labels=4, n_features=40, random_state=0)
    train, test = law.sample(200, 1), law.sample(3000, 2)
    clf = FBetaClassifierCV((1e-3, 1e-2), prune=False).fit(train.X, train.Y)
    predicted = clf.predict(test.X)
    raw = error(clf.expected_fbeta(test.X, calibrated=False), test.Y, predicted)
    assert raw > 0.08
    assert error(clf.expected_fbeta(test.X), test.Y, predicted) < 0.05


def test_weights_of_the_rows_count():
    X, Y, _, _ = make_calibrated(200, n_labels=2, n_features=6)
    weight = np.r_[np.ones(150), np.zeros(50)]
    search = AlphaSearchCV(FBetaClassifier(), alphas=(1.0,), cv=3)
    one = search.fit(X, Y, sample_weight=weight).calibration_
    other = search.fit(X[:150], Y[:150]).calibration_
    np.testing.assert_allclose(one.achieved, other.achieved, atol=1e-9)


def test_folds_without_rows_are_refused():
    Y = sp.csr_array(np.eye(4))
    with pytest.raises(ValueError, match="5 folds need 5 rows of positive weight, got n_samples=4"):
        make_folds(5, None, Y)
    with pytest.raises(ValueError, match="2 folds need 2 rows of positive weight, got n_samples=1"):
        make_folds(2, None, Y, np.array([0.0, 1.0, 0.0, 0.0]))
    assert len(make_folds(4, None, Y)) == 4


def test_row_numbers_of_folds_are_those_of_rows():
    X, Y, _, _ = make_calibrated(60, n_labels=3, n_features=12)
    for wrong in (-1, 60):
        with pytest.raises(ValueError, match=f"cv has row {wrong}, and X has the rows 0 to 59"):
            AlphaSearchCV(SizedClassifier(), cv=[(range(40), [50, wrong])]).fit(X, Y)
    mask = np.arange(60) < 40
    ((train, test),) = make_folds([(mask, ~mask)], X, sp.csr_array(Y))
    np.testing.assert_array_equal(train, np.arange(40))
    np.testing.assert_array_equal(test, np.arange(40, 60))
    with pytest.warns(UserWarning, match="takes no groups: pass a splitter such as GroupKFold"):
        FBetaClassifierCV(cv=2, alphas=(1.0,)).fit(X, Y, groups=np.arange(60))


@pytest.mark.parametrize(
    "estimator",
    [
        FBetaDecoderCV(GaussianNB()),
        FBetaEnsemble([("a", SizedClassifier()), ("b", FBetaClassifier())], alphas=(1.0, 10.0)),
        FBetaAuto(candidates=[("a", SizedClassifier())], replace=True, random_state=0),
        AlphaSearchCV(SizedClassifier(), alphas=(0.1, 10.0)),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("predefined", [False, True])
def test_folds_with_row_numbers_beside_rows_without_weight(estimator, predefined):
    X, Y, _, _ = make_calibrated(60, n_labels=3, n_features=12)
    weight, half = np.ones(60), np.repeat([0, 1], 30)
    weight[[0, 1, 2, 3, 4, 33, 50]] = 0
    rest = weight > 0

    def fitted(rows):
        own = half[rows]
        pairs = [(np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in (0, 1)]
        cv = PredefinedSplit(own) if predefined else pairs
        given = clone(estimator).set_params(cv=cv)
        return given.fit(X[rows], Y[rows], sample_weight=weight[rows]).predict_proba(X)

    found, expected = fitted(np.ones(60, dtype=bool)), fitted(rest)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("labels", [np.asarray, sp.csr_array])
def test_scores_are_of_as_many_rows_of_x_as_of_y(labels):
    X, Y, _, _ = make_calibrated(60, n_labels=3, n_features=12)
    model = SizedClassifier().fit(X, labels(Y))
    for rows, others in ((X, Y[:30]), (X[:30], Y), (X, Y[:1])):
        with pytest.raises(ValueError, match="60"):
            model.score(rows, labels(others))
