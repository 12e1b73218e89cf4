"""Structured support vector machines: what they share, of instances and of columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import LinearConstraint, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.rivals import MacroFSvm, ReverseMultiLabel, SubmodularMultiLabel
from fbeta.rivals.bundle import maximise_on_simplex, minimise
from fbeta.rivals.structured import most_violated

from ..cases import slow
from ..reference import all_sets

MACHINES = pytest.mark.parametrize("machine", [MacroFSvm, ReverseMultiLabel, SubmodularMultiLabel])


def toy(n=40, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0).astype(int)


@MACHINES
def test_sparse_is_dense_and_no_intercept(machine):
    X, Y = toy()
    X[np.abs(X) < 0.5] = 0
    dense = machine(fit_intercept=False).fit(X, Y)
    sparse = machine(fit_intercept=False).fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-6)
    assert not dense.intercept_.any()
    assert dense.coef_.any()


@pytest.mark.parametrize(
    "Y",
    [
        np.zeros((6, 3), int),
        np.ones((6, 3), int),
        np.array([[1], [0], [1], [0], [0], [0]]),
        np.array([[1, 0, 1]] * 6),
    ],
    ids=["empty", "full", "one label", "constant"],
)
@pytest.mark.parametrize("machine", [MacroFSvm, ReverseMultiLabel, slow(SubmodularMultiLabel)])
def test_odd_labels(machine, Y):
    X = np.random.default_rng(0).normal(size=(6, 20))
    for features in (X, sp.csr_array(X)):
        predicted = machine(alpha=0.1).fit(features, Y).predict(features)
        np.testing.assert_array_equal(predicted, Y)


@MACHINES
def test_warns_without_convergence(machine):
    X, Y = toy()
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        machine(alpha=1e-3, max_iter=2).fit(X, Y)


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"tol": 0.0}, {"max_iter": 0}, {"beta": -1.0}])
@MACHINES
def test_parameters_are_checked(machine, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        machine(**bad).fit(*toy())


def test_strength_of_pairs_is_checked():
    with pytest.raises(ValueError, match="alpha_pair"):
        SubmodularMultiLabel(alpha_pair=0.0).fit(*toy())


@MACHINES
def test_another_beta_needs_another_fit(machine):
    X, Y = toy()
    with pytest.raises(ValueError, match="fitted for beta=1"):
        machine().fit(X, Y).predict(X, beta=2.0)


@pytest.mark.slow
@parametrize_with_checks([ReverseMultiLabel()])
def test_scikit_learn(estimator, check):
    check(estimator)


def fbeta_table(y, sets, beta):
    bottom = beta**2 * y.sum() + sets.sum(axis=1)
    return np.where(bottom > 0, (1 + beta**2) * (sets @ y) / np.where(bottom > 0, bottom, 1), 1.0)


def reverse_toy(n=30, d=4, s=3, seed=0):
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
    X, Y = reverse_toy()
    model = ReverseMultiLabel(beta=beta, alpha=2.0, tol=1e-5).fit(X, Y)
    W = np.column_stack([model.coef_, model.intercept_])
    assert model.objective_ == pytest.approx(slow_objective(W, X, Y, 2.0, beta))
    assert 0 <= model.gap_ <= 1e-5 * model.objective_

    sets, design = all_sets(Y.shape[1]), np.hstack([X, np.ones((len(X), 1))])
    losses = np.array([1 - fbeta_table(y, sets, beta) for y in Y])

    def flat(w):
        """All rows at once: the general solver asks often."""
        scores = design @ w.reshape(W.shape).T
        margins = losses + scores @ sets.T - (scores * Y).sum(axis=1, keepdims=True)
        return w @ w + margins.max(axis=1).sum()

    assert flat(W.ravel()) == pytest.approx(model.objective_)
    # a general solver, and random steps of many sizes, find nothing better than the gap allows
    other = minimize(flat, np.zeros(W.size), method="Powell", options={"maxiter": 30})
    assert other.fun >= model.objective_ - model.gap_ - 1e-9
    assert other.fun <= model.objective_ * 1.05
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e-2, 1.0):
        step = size * rng.normal(size=W.size)
        assert flat(W.ravel() + step) >= model.objective_ - model.gap_


@pytest.mark.slow
def test_subgradient_descent_reaches_the_same_minimum():
    X, Y = reverse_toy(n=15, d=2, s=2)
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
    X, Y = reverse_toy()
    weight = np.random.default_rng(3).integers(0, 3, len(X))
    model = ReverseMultiLabel(tol=1e-6).fit(X, Y, sample_weight=weight)
    repeated = np.repeat(np.arange(len(X)), weight)
    again = ReverseMultiLabel(tol=1e-6).fit(X[repeated], Y[repeated])
    assert model.objective_ == pytest.approx(again.objective_, rel=1e-5)
    W = np.column_stack([model.coef_, model.intercept_])
    assert model.objective_ == pytest.approx(slow_objective(W, X, Y, 1.0, 1.0, weight))


def test_predicts_by_sign_and_learns():
    X, Y = reverse_toy(n=200)
    model = ReverseMultiLabel(alpha=0.1, tol=1e-2).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), X @ model.coef_.T + model.intercept_ > 0)
    constant = max(fbeta_score(Y, np.tile(y, (len(Y), 1))) for y in np.unique(Y, axis=0))
    assert model.score(X, Y) > constant + 0.05


@pytest.mark.slow
@parametrize_with_checks([MacroFSvm()])
def test_scikit_learn_macro_svm(estimator, check):
    check(estimator)


def losses(y, labelings, beta):
    """Return 1 - F_beta of the column, from its contingency table."""
    tp = labelings @ y
    fp, fn = labelings @ (1 - y), (1 - labelings) @ y
    bottom = (1 + beta**2) * tp + beta**2 * fn + fp
    return 1 - np.where(bottom > 0, (1 + beta**2) * tp / np.where(bottom > 0, bottom, 1), 1.0)


def macro_svm_toy(n=120, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + 0.5 * rng.normal(size=(n, s)) > 1.5).astype(int)
    return X, Y


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            arrays(float, n, elements=st.floats(-3, 3)),
            arrays(int, n, elements=st.integers(0, 1)),
        )
    ),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_most_violated_labeling_is_the_best_of_all(case, beta):
    scores, y = case
    labelings = all_sets(len(y))
    table = losses(y, labelings, beta) + labelings @ scores
    found, value = most_violated(scores[None, :], y[None, :], beta)
    assert value[0] == pytest.approx(table.max(), abs=1e-12)
    own = losses(y, found.astype(int), beta)[0] + found[0] @ scores
    assert own == pytest.approx(value[0], abs=1e-12)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_agrees_with_the_quadratic_program_over_all_sets(beta):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(7, 2)), np.array([1, 0, 0, 1, 0, 0, 1])
    alpha = 3.0
    model = MacroFSvm(beta=beta, alpha=alpha, tol=1e-7).fit(X, y[:, None])
    labelings, design = all_sets(7), np.hstack([X, np.ones((7, 1))])
    G, b = (labelings - y) @ design, 7 * losses(y, labelings, beta)
    w = np.r_[model.coef_[0], model.intercept_[0]]
    assert model.objective_[0] == pytest.approx(alpha / 2 * w @ w + (b + G @ w).max())
    reference = minimize(
        lambda z: alpha / 2 * z[:3] @ z[:3] + z[3],
        np.r_[np.zeros(3), b.max()],
        jac=lambda z: np.r_[alpha * z[:3], 1.0],
        constraints=LinearConstraint(np.hstack([-G, np.ones((128, 1))]), lb=b),
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert model.objective_[0] == pytest.approx(reference.fun, rel=1e-5)
    assert 0 <= model.gap_[0] <= 1e-7 * model.objective_[0]
    np.testing.assert_allclose(w, reference.x[:3], atol=1e-3)


def test_labels_are_fitted_on_their_own():
    X, Y = macro_svm_toy()
    together = MacroFSvm().fit(X, Y)
    for j in range(Y.shape[1]):
        alone = MacroFSvm().fit(X, Y[:, [j]])
        np.testing.assert_allclose(together.coef_[j], alone.coef_[0])


def test_learns_rare_labels():
    X, Y = macro_svm_toy(n=300)
    predicted = MacroFSvm(alpha=1.0).fit(X, Y).predict(X)
    everything = f1_score(Y, np.ones_like(Y), average="macro")
    assert f1_score(Y, predicted, average="macro") > everything + 0.2


def test_larger_beta_predicts_more():
    X, Y = macro_svm_toy(n=300)
    counts = [MacroFSvm(beta=b).fit(X, Y).predict(X).sum() for b in (0.3, 1.0, 4.0)]
    assert counts[0] < counts[1] < counts[2]


def test_constant_labels_are_predicted_everywhere():
    X, Y = macro_svm_toy()
    Y[:, 0], Y[:, 2] = 0, 1
    model = MacroFSvm().fit(X, Y)
    predicted = model.predict(100 * X)
    assert not predicted[:, 0].any()
    assert predicted[:, 2].all()
    assert model.intercept_[0] == -np.inf
    assert model.n_iter_ > 0


def test_more_features_than_rows():
    X = np.random.default_rng(0).normal(size=(6, 30))
    Y = np.array([[1, 0], [0, 0], [0, 1], [1, 1], [0, 0], [0, 0]])
    for features in (X, sp.csr_array(X)):
        predicted = MacroFSvm(alpha=0.1).fit(features, Y).predict(features)
        np.testing.assert_array_equal(predicted, Y)
