"""The structured SVM with the loss 1 - F_beta: inference, optimiser and estimator."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import LinearConstraint, minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.rivals.bundle import maximise_on_simplex, minimise
from fbeta.rivals.structured import ReverseMultiLabel, most_violated


@parametrize_with_checks([ReverseMultiLabel()])
def test_scikit_learn(estimator, check):
    check(estimator)


def all_sets(s):
    return np.array(list(product([0, 1], repeat=s)))


def fbeta_table(y, sets, beta):
    bottom = beta**2 * y.sum() + sets.sum(axis=1)
    return np.where(bottom > 0, (1 + beta**2) * (sets @ y) / np.where(bottom > 0, bottom, 1), 1.0)


def toy(n=30, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + 0.5 * rng.normal(size=(n, s)) > 0.4).astype(int)
    return X, Y


def slow_objective(W, X, Y, alpha, beta, weight=None):
    """Enumerate all label sets of all instances."""
    sets = all_sets(Y.shape[1])
    design = np.hstack([X, np.ones((len(X), 1))])
    total = alpha / 2 * (W**2).sum()
    for i, (x, y) in enumerate(zip(design, Y, strict=True)):
        margins = 1 - fbeta_table(y, sets, beta) + (sets - y) @ (W @ x)
        total += margins.max() * (1 if weight is None else weight[i])
    return total


SCORES = st.floats(-2, 2) | st.sampled_from([-0.5, 0.0, 0.5])
BITS = st.integers(0, 1)
CASES = st.tuples(st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda k: st.tuples(arrays(float, k, elements=SCORES), arrays(int, k, elements=BITS))
)


@settings(deadline=None, max_examples=200)
@given(CASES, st.sampled_from([0.3, 1.0, 2.5]))
def test_most_violated_is_the_best_of_all_sets(case, beta):
    scores, Y = case
    sets, values = most_violated(scores, Y, beta)
    candidates = all_sets(Y.shape[1])
    for score, y, found, value in zip(scores, Y, sets, values, strict=True):
        table = 1 - fbeta_table(y, candidates, beta) + candidates @ score
        assert value == pytest.approx(table.max(), abs=1e-12)
        own = 1 - fbeta_table(y, found[None].astype(int), beta)[0] + score @ found
        assert own == pytest.approx(value, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_simplex_solver_satisfies_the_optimality_conditions(k, rank, seed):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(k, rank))
    H, b = B @ B.T, rng.normal(size=k)
    a = maximise_on_simplex(H, b, np.eye(k)[0])
    assert a.min() >= 0
    assert a.sum() == pytest.approx(1)
    slope = b - H @ a
    # no feasible direction gains anything
    assert slope.max() <= a @ slope + 1e-6 * (1 + np.abs(b).max() + np.abs(H).max())


@pytest.mark.parametrize("bounded", [False, True])
def test_bundle_solves_a_quadratic_program(bounded):
    rng = np.random.default_rng(1)
    G, b, penalty = rng.normal(size=(12, 5)), rng.random(12), 0.5 + rng.random(5)
    mask = np.array([False, False, True, True, True]) & bounded

    def oracle(w):
        values = np.maximum(b + G @ w, 0)
        k = int(values.argmax())
        return values[k], G[k] * (values[k] > 0)

    result = minimise(oracle, penalty, nonnegative=mask, tol=1e-8)
    # the epigraph form with a general solver
    lower = np.r_[np.where(mask, 0, -np.inf), 0.0]
    reference = minimize(
        lambda z: penalty @ z[:5] ** 2 / 2 + z[5],
        np.r_[np.zeros(5), b.max()],
        jac=lambda z: np.r_[penalty * z[:5], 1.0],
        bounds=list(zip(lower, np.full(6, np.inf), strict=True)),
        constraints=LinearConstraint(np.hstack([-G, np.ones((12, 1))]), lb=b),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert result.fun == pytest.approx(reference.fun, rel=1e-6)
    assert result.gap <= 1e-8 * result.fun
    assert (result.x[mask] >= 0).all()
    np.testing.assert_allclose(result.x, reference.x[:5], atol=1e-3)


def test_bundle_converges_with_an_oracle_that_underestimates():
    rng = np.random.default_rng(2)
    G, b = rng.normal(size=(200, 6)), rng.random(200)

    def oracle(w):
        # sees a random half of the planes only
        seen = rng.permutation(200)[:100]
        k = seen[int((b + G @ w)[seen].argmax())]
        return b[k] + G[k] @ w, G[k]

    result = minimise(oracle, np.ones(6), tol=1e-3, max_iter=2000)
    assert result.gap <= 1e-3 * result.fun
    exact = 0.5 * result.x @ result.x + (b + G @ result.x).max()
    assert result.fun <= exact + 1e-9


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_objective_is_the_one_of_the_definition_and_minimal(beta):
    X, Y = toy()
    model = ReverseMultiLabel(beta=beta, alpha=2.0, tol=1e-5).fit(X, Y)
    W = np.column_stack([model.coef_, model.intercept_])
    assert model.objective_ == pytest.approx(slow_objective(W, X, Y, 2.0, beta))
    assert 0 <= model.gap_ <= 1e-5 * model.objective_

    def flat(w):
        return slow_objective(w.reshape(W.shape), X, Y, 2.0, beta)

    # a general solver, and random steps of many sizes, find nothing better than the gap allows
    other = minimize(flat, np.zeros(W.size), method="Powell", options={"maxiter": 30})
    assert other.fun >= model.objective_ - model.gap_ - 1e-9
    assert other.fun <= model.objective_ * 1.05
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        step = size * rng.normal(size=W.size)
        assert flat(W.ravel() + step) >= model.objective_ - model.gap_


def test_subgradient_descent_reaches_the_same_minimum():
    X, Y = toy(n=15, d=2, s=2)
    alpha, design = 5.0, np.hstack([X, np.ones((15, 1))])
    W, best = np.zeros((2, 3)), np.inf
    sets = all_sets(2)
    for step in range(1, 4001):
        gradient = alpha * W
        for x, y in zip(design, Y, strict=True):
            worst = sets[(1 - fbeta_table(y, sets, 1.0) + (sets - y) @ (W @ x)).argmax()]
            gradient = gradient + np.outer(worst - y, x)
        W = W - gradient / (alpha * step)
        if step % 20 == 0:
            best = min(best, slow_objective(W, X, Y, alpha, 1.0))
    model = ReverseMultiLabel(alpha=alpha, tol=1e-6).fit(X, Y)
    assert model.objective_ <= best + 1e-9
    assert best == pytest.approx(model.objective_, rel=1e-3)


def test_weights_count_rows():
    X, Y = toy()
    weight = np.random.default_rng(3).integers(0, 3, len(X))
    model = ReverseMultiLabel(tol=1e-6).fit(X, Y, sample_weight=weight)
    repeated = np.repeat(np.arange(len(X)), weight)
    again = ReverseMultiLabel(tol=1e-6).fit(X[repeated], Y[repeated])
    assert model.objective_ == pytest.approx(again.objective_, rel=1e-5)
    W = np.column_stack([model.coef_, model.intercept_])
    assert model.objective_ == pytest.approx(slow_objective(W, X, Y, 1.0, 1.0, weight))


def test_predicts_by_sign_and_learns():
    X, Y = toy(n=200)
    model = ReverseMultiLabel(alpha=0.1, tol=1e-2).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), X @ model.coef_.T + model.intercept_ > 0)
    constant = max(fbeta_score(Y, np.tile(y, (len(Y), 1))) for y in np.unique(Y, axis=0))
    assert model.score(X, Y) > constant + 0.05
