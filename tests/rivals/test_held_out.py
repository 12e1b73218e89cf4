"""Methods that choose on held-out rows: thresholds, and costs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.losses import LogisticLoss
from fbeta.metrics import averaged_fbeta
from fbeta.rivals.held_out import (
    CostedLogistic,
    CostSensitiveRelevance,
    ThresholdedRelevance,
    split_rows,
)
from fbeta.rivals.plug_in import BinaryRelevance


@pytest.mark.slow
@parametrize_with_checks(
    [ThresholdedRelevance(), ThresholdedRelevance(average="macro", validation_fraction=0.5)]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=80, d=4, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.8).astype(int)


@pytest.mark.parametrize("average", ["instance", "micro", "macro"])
def test_fit_and_other_betas(average):
    X, Y = toy()
    model = ThresholdedRelevance(average=average, random_state=0).fit(X, Y)
    P = model.predict_marginals(X)
    assert np.array_equal(model.predict(X), model.threshold_ < P)
    assert model.threshold_.shape == (4,)
    assert average == "macro" or len(set(model.threshold_)) == 1
    for beta in (0.3, 3.0):
        other = ThresholdedRelevance(beta, average=average, random_state=0).fit(X, Y)
        assert np.array_equal(model.predict(X, beta=beta), other.predict(X))
    few, many = (model.predict(X, beta=b).sum() for b in (0.1, 10.0))
    assert few <= many


def test_thresholds_beat_the_half_on_the_held_out_rows():
    X, Y = toy()
    model = ThresholdedRelevance(random_state=0).fit(X, Y)
    _, held = split_rows(X, None, 0.25, 0)
    P, truth = model.predict_marginals(X)[held], Y[held] > 0
    assert fbeta_score(truth, model.threshold_ < P) >= fbeta_score(truth, P > 0.5)


def test_split():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(200, 3)).astype(float)
    fitting, held = split_rows(X, None, 0.3, 0)
    assert sorted([*fitting, *held]) == list(range(200))
    assert 0.2 < len(held) / 200 < 0.4
    assert not {tuple(x) for x in X[fitting]} & {tuple(x) for x in X[held]}
    for same in (sp.csr_array(X), X.astype(np.float32), sp.csr_array(X, dtype=np.float32)):
        assert np.array_equal(split_rows(same, None, 0.3, 0)[0], fitting)
    shuffled = rng.permutation(200)
    again = split_rows(X[shuffled], None, 0.3, 0)
    assert sorted(shuffled[again[1]]) == sorted(held)
    assert not np.array_equal(split_rows(X, None, 0.3, 1)[1], held)
    tiny = split_rows(np.array([[1.0], [2.0]]), None, 0.01, 0)
    assert [len(part) for part in tiny] == [1, 1]


def test_odd_data():
    X, Y = toy()
    assert not ThresholdedRelevance().fit(X, Y * 0).predict(X).any()
    assert ThresholdedRelevance().fit(X, Y * 0 + 1).predict(X).all()
    wide, one = toy(n=10, d=30, s=1)
    assert ThresholdedRelevance().fit(wide, one).predict(wide).shape == (10, 1)
    with pytest.raises(ValueError, match="n_samples = 1 distinct row"):
        ThresholdedRelevance().fit(np.ones((5, 2)), np.ones((5, 1), dtype=int))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_bad_parameters(fraction):
    X, Y = toy()
    with pytest.raises(ValueError, match="validation_fraction"):
        ThresholdedRelevance(validation_fraction=fraction).fit(X, Y)
    with pytest.raises(ValueError, match="average must be one of"):
        ThresholdedRelevance(average="samples").fit(X, Y)


costs = st.floats(0.05, 5.0)
unit = st.floats(0, 1)


@pytest.mark.slow
@parametrize_with_checks(
    [CostSensitiveRelevance(), CostSensitiveRelevance(grid=(0.5, 1.0), average="macro")]
)
def test_scikit_learn_cost_sensitive(estimator, check):
    check(estimator)


@settings(max_examples=80, deadline=None)
@given(costs, costs, unit, st.floats(-30, 30))
def test_loss(fn, fp, y, u):
    loss = CostedLogistic(fn, fp)
    value = fn * y * np.log1p(np.exp(-u)) + fp * (1 - y) * np.log1p(np.exp(u))
    arrays = np.array([y]), np.array([u])
    np.testing.assert_allclose(loss.value(*arrays), value, rtol=1e-12, atol=1e-12)
    step = 1e-4
    up, down = (loss.value(np.array([y]), np.array([u + d])) for d in (step, -step))
    np.testing.assert_allclose(loss.derivative(*arrays), (up - down) / (2 * step), atol=1e-6)
    up, down = (loss.derivative(np.array([y]), np.array([u + d])) for d in (step, -step))
    np.testing.assert_allclose(loss.second_derivative(*arrays), (up - down) / (2 * step), atol=1e-6)
    together = loss.evaluate(*arrays)
    apart = loss.value(*arrays), loss.derivative(*arrays), loss.second_derivative(*arrays)
    np.testing.assert_allclose(np.ravel(together), np.ravel(apart), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(costs, costs, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_loss_is_proper_and_as_strong_as_it_says(fn, fp, q, other):
    loss = CostedLogistic(fn, fp)
    assert loss.inverse_link(loss.link(np.float64(q))) == pytest.approx(q)
    best, worse = (loss.value(q, loss.link(np.float64(p))) for p in (q, other))
    assert worse - best >= loss.strength / 2 * (other - q) ** 2 - 1e-9
    p = np.linspace(0, 1, 2001)[1:-1]
    weights = fn * fp / (p * (1 - p) * (fn * p + fp * (1 - p)))
    assert loss.strength == pytest.approx(weights.min(), rel=1e-3)


def test_loss_at_the_ends():
    loss = CostedLogistic(1.0, 1.0)
    assert loss.strength == pytest.approx(4.0)
    u = np.array([-1e4, 0.0, 1e4])
    np.testing.assert_allclose(loss.evaluate(np.ones(3), u)[0], LogisticLoss().value(1.0, u))
    assert np.isfinite(loss.evaluate(np.zeros(3), u)).all()
    assert loss.link(np.float64(0.0)) == -np.inf
    assert loss == CostedLogistic(1.0, 1.0)
    assert loss != CostedLogistic(1.0, 2.0)
    assert repr(CostedLogistic(1.5, 0.5)) == "CostedLogistic(fn=1.5, fp=0.5)"
    with pytest.raises(ValueError, match="fp"):
        CostedLogistic(1.0, 0.0)


def cost_sensitive_toy(n=90, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.9).astype(int)


@pytest.mark.parametrize("average", ["instance", "micro", "macro"])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_is_the_best_of_separate_weighted_fits(average, beta):
    X, Y = cost_sensitive_toy()
    grid = [0.2, 0.6, 1.0]
    model = CostSensitiveRelevance(
        beta, 0.5, grid=grid, average=average, random_state=0, tol=1e-12
    ).fit(X, Y)
    fitting, held = split_rows(X, None, 0.25, 0)
    scores = np.empty((len(grid), *Y.shape))
    for g, t in enumerate(grid):
        for j in range(Y.shape[1]):
            single = LogisticRegression(
                C=2.0, class_weight={0: t, 1: 1 + beta**2 - t}, tol=1e-10, max_iter=2000
            ).fit(X[fitting], Y[fitting, j])
            scores[g, :, j] = single.decision_function(X)
    truth = Y[held] > 0
    values = [averaged_fbeta(truth, u[held] > 0, beta, average=average) for u in scores]
    best = np.broadcast_to(np.argmax(values, axis=0), (3,))
    assert np.array_equal(model.t_, np.array(grid)[best])
    own = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(own, scores[best, :, np.arange(3)].T, atol=1e-4)
    assert np.array_equal(model.predict(X), own > 0)


def test_equal_costs_are_binary_relevance():
    X, Y = cost_sensitive_toy()
    fitting, _ = split_rows(X, None, 0.25, 0)
    model = CostSensitiveRelevance(grid=[1.0], random_state=0, tol=1e-12).fit(X, Y)
    plain = BinaryRelevance(tol=1e-12).fit(X[fitting], Y[fitting])
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict_marginals(X), plain.predict_proba(X), atol=1e-6)


def test_lower_t_predicts_more():
    X, Y = cost_sensitive_toy()
    low, high = (
        CostSensitiveRelevance(grid=[t], random_state=0).fit(X, Y).predict(X).sum()
        for t in (0.1, 1.5)
    )
    assert low > high


def test_another_beta_needs_another_fit():
    X, Y = cost_sensitive_toy()
    model = CostSensitiveRelevance().fit(X, Y)
    assert np.array_equal(model.predict(X, beta=1.0), model.predict(X))
    with pytest.raises(ValueError, match="fitted for beta=1 and depends on it"):
        model.predict(X, beta=2.0)


def test_odd_data_cost_sensitive():
    X, Y = cost_sensitive_toy()
    Y[:, 0], Y[:, 1] = 0, 1
    predicted = CostSensitiveRelevance().fit(X, Y).predict(X)
    assert not predicted[:, 0].any()
    assert predicted[:, 1].all()
    dense, sparse = (
        CostSensitiveRelevance(random_state=0, tol=1e-10).fit(x, Y) for x in (X, sp.csr_array(X))
    )
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-4)
    wide, one = cost_sensitive_toy(n=10, d=30, s=1)
    assert CostSensitiveRelevance().fit(wide, one).predict(wide).shape == (10, 1)


@pytest.mark.parametrize("grid", [[], [0.0], [2.0], [[0.5]], 0])
def test_bad_grid(grid):
    X, Y = cost_sensitive_toy()
    with pytest.raises(ValueError, match="grid must"):
        CostSensitiveRelevance(grid=grid).fit(X, Y)
