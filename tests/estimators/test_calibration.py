"""Calibration of the expected F_beta: monotone, exact on its groups, better on new rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from fbeta import AlphaSearchCV, FBetaClassifier, FBetaClassifierCV, SizedClassifier
from fbeta.datasets import CalibratedLaw, make_calibrated
from fbeta.estimators.calibration import GROUPS, LINE, ROWS, SLOPE, Calibration
from fbeta.estimators.folds import make_folds
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance
from fbeta.report.evaluation import calibration_bins
from fbeta.rivals import Limo


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.integers(0, 10**6), st.booleans())
def test_it_is_the_isotonic_regression_of_groups_of_rows(n, seed, ties):
    rng = np.random.default_rng(seed)
    expected = rng.integers(0, 5, n) / 4 if ties else rng.uniform(size=n)
    achieved, weight = rng.uniform(size=n), rng.uniform(0.1, 2, n)
    found = Calibration.of(1.0, expected, achieved, weight)
    groups = np.array_split(np.argsort(expected, kind="stable"), np.clip(n // ROWS, 1, GROUPS))
    x = [round(np.average(expected[g], weights=weight[g]), 12) for g in groups]
    y = [np.average(achieved[g], weights=weight[g]) for g in groups]
    # a line, in which a slope of 1 counts for some rows, counts for some rows in every group
    share = weight / weight.sum()
    mean, got = expected @ share, achieved @ share
    spread, both = (expected - mean) ** 2 @ share, (expected - mean) * (achieved - got) @ share
    slope = max(0, (n * both + SLOPE * spread) / (n + SLOPE) / spread) if spread > 0 else 0
    at = {value: [k for k in range(len(x)) if x[k] == value] for value in sorted(set(x))}
    counts = np.array([n * sum(share[groups[k]].sum() for k in own) for own in at.values()])
    sums = [n * sum(share[groups[k]].sum() * y[k] for k in own) for own in at.values()]
    line = np.clip(got + slope * (np.array(list(at)) - mean), 0, 1)
    values = (np.array(sums) + LINE * line) / (counts + LINE)
    plain = IsotonicRegression().fit(list(at), values, counts + LINE)
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
