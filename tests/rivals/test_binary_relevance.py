"""Binary relevance, and the decode of independent labels."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import LabelStatistics, decode
from fbeta.datasets import load
from fbeta.rivals import decode_independent
from fbeta.rivals.plug_in import BinaryRelevance
from fbeta.statistics.label_statistics import LabelStatistics as Statistics


@parametrize_with_checks([BinaryRelevance()])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        BinaryRelevance(decode="independent"),
        BinaryRelevance(loss="exponential", fit_intercept=False),
    ],
)
def test_scikit_learn_with_other_parameters(estimator, check):
    check(estimator)


def toy(n=60, d=4, s=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.3).astype(int)
    return X, Y


def test_is_one_logistic_regression_per_label():
    X, Y = toy()
    model = BinaryRelevance(alpha=0.5, tol=1e-12).fit(X, Y)
    for j in range(Y.shape[1]):
        single = LogisticRegression(C=2.0, tol=1e-10, max_iter=1000).fit(X, Y[:, j])
        np.testing.assert_allclose(model.coef_[j], single.coef_[0], atol=1e-5)
        np.testing.assert_allclose(
            model.predict_proba(X)[:, j], single.predict_proba(X)[:, 1], atol=1e-5
        )
    assert np.array_equal(model.predict(X), model.predict_proba(X) > 0.5)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 1.3])
def test_independent_decode_is_the_general_one(beta):
    X, Y = toy()
    model = BinaryRelevance(beta, decode="independent").fit(X, Y)
    statistics = LabelStatistics.from_marginals(model.predict_proba(X))
    assert np.array_equal(model.predict(X), decode(statistics, beta))
    assert np.array_equal(model.predict(X, beta=3.0), decode(statistics, 3.0))
    np.testing.assert_allclose(model.predict_statistics(X).joint, statistics.joint)


@pytest.mark.parametrize("how", ["half", "independent"])
def test_expected_fbeta_is_that_of_the_own_prediction(how):
    X, Y = toy(n=30, s=3)
    model = BinaryRelevance(2.0, decode=how).fit(X, Y)
    P, predicted = model.predict_proba(X), model.predict(X)
    slow = np.zeros(len(X))
    for y in product((0, 1), repeat=3):
        chance = np.prod(np.where(y, P, 1 - P), axis=1)
        bottom = 4 * sum(y) + predicted.sum(axis=1)
        both = (predicted * y).sum(axis=1)
        slow += chance * np.where(bottom == 0, 1.0, 5 * both / np.maximum(bottom, 1))
    np.testing.assert_allclose(model.expected_fbeta(X), slow)


def test_constant_labels_and_sparse_features():
    X, Y = toy()
    Y[:, 0], Y[:, 1] = 0, 1
    dense = BinaryRelevance().fit(X, Y)
    assert not dense.predict(X)[:, 0].any()
    assert dense.predict(X)[:, 1].all()
    sparse = BinaryRelevance().fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X), atol=1e-3)
    assert np.array_equal(BinaryRelevance().fit(X, Y * 0).predict(X), Y * 0)


def test_more_features_than_rows_and_one_label():
    X, Y = toy(n=10, d=30, s=1)
    predicted = BinaryRelevance(alpha=1e-2).fit(X, Y).predict(X)
    assert np.array_equal(predicted, Y)


def test_bad_parameters():
    X, Y = toy()
    with pytest.raises(ValueError, match="decode must be one of 'half', 'independent'"):
        BinaryRelevance(decode="all").fit(X, Y)
    with pytest.raises(ValueError, match="alpha"):
        BinaryRelevance(alpha=-1.0).fit(X, Y)


def test_yeast(mulan):
    data = load("yeast", data_home=mulan)
    model = BinaryRelevance().fit(data.X_train, data.Y_train)
    assert model.score(data.X_test, data.Y_test) == pytest.approx(0.6070, abs=0.002)


BETAS = [0.5, 1.0, 2.0, np.sqrt(2), 1.2345]
marginals = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
)


def expected(p, yhat, beta):
    """Sum over all outcomes, with no use of independence but the product of probabilities."""
    total = 0.0
    for y in product((0, 1), repeat=len(p)):
        chance = np.prod([q if on else 1 - q for q, on in zip(p, y, strict=True)])
        bottom = beta**2 * sum(y) + sum(yhat)
        both = sum(a * b for a, b in zip(y, yhat, strict=True))
        total += chance * (1.0 if bottom == 0 else (1 + beta**2) * both / bottom)
    return total


@settings(max_examples=60, deadline=None)
@given(marginals, st.sampled_from(BETAS))
def test_no_set_is_better(P, beta):
    for p, yhat in zip(P, decode_independent(P, beta), strict=True):
        best = max(expected(p, y, beta) for y in product((0, 1), repeat=len(p)))
        assert expected(p, yhat, beta) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_agrees_with_the_general_decoder(beta):
    P = np.random.default_rng(0).beta(0.3, 2.0, size=(40, 60))
    q = LabelStatistics.from_marginals(P)
    dense = Statistics(q.empty, q.joint, q.cardinalities)
    assert np.array_equal(decode_independent(P, beta), decode(dense, beta))


@pytest.mark.parametrize("P", [[[0.5, 1.5]], [[np.nan]], [0.5], np.zeros((2, 0))])
def test_bad_marginals(P):
    with pytest.raises(ValueError, match="P must"):
        decode_independent(P)
