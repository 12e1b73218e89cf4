"""The batched solver against scikit-learn, plain loops and its own definition."""

from __future__ import annotations

import tracemalloc
import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from fbeta.linear import Design, solve_path
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.in_memory import solve_batch
from fbeta.linear.objectives import Binary
from fbeta.losses import LOSSES, LogisticLoss
from fbeta.statistics.encoding import constant_values, distinct_columns
from tests.linear.fits import linear_problems

from .. import reference
from ..cases import slow
from .fits import fit_linear

LOGISTIC = LogisticLoss()


def make(n=120, d=7, m=5, seed=0, rate=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d) + rng.normal(size=d)
    T = (rng.uniform(size=(n, m)) < rate * rng.uniform(0.2, 1.5, m)).astype(np.int8)
    T[0], T[1] = 0, 1
    return X, T


def objective(loss, X, T, model, alpha, weight=None):
    u = X @ model.coef[model.problem].T + model.intercept[model.problem]
    values = loss.value(T.astype(float), u)
    values = values if weight is None else values * weight[:, None]
    return values.sum(axis=0) + alpha / 2 * (model.coef[model.problem] ** 2).sum(axis=1)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100.0])
def test_same_coefficients_as_scikit_learn(alpha, intercept, sparse):
    X, T = make()
    data = sp.csr_array(X) if sparse else X
    model = fit_linear(data, sp.csc_array(T), LOGISTIC, alpha, fit_intercept=intercept, tol=1e-13)
    for m in range(T.shape[1]):
        peer = LogisticRegression(
            C=1 / alpha, fit_intercept=intercept, tol=1e-12, solver="newton-cholesky", max_iter=1000
        ).fit(X, T[:, m])
        assert np.allclose(model.coef[model.problem[m]], peer.coef_[0], rtol=1e-4, atol=1e-7)
        if intercept:
            assert model.intercept[model.problem[m]] == pytest.approx(peer.intercept_[0], abs=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_every_loss_reaches_the_minimum(loss, intercept):
    """Against a general-purpose optimiser on the objective written out, with weights."""
    X, T = make(n=60, d=4, m=3)
    weight = np.random.default_rng(3).uniform(0.2, 3, 60)
    alpha = 0.5
    model = fit_linear(
        X, sp.csc_array(T), loss, alpha, weight=weight, fit_intercept=intercept, tol=1e-12
    )
    ours = objective(loss, X, T, model, alpha, weight)

    def f(w, m):
        u = X @ w[:-1] + intercept * w[-1]
        return float(weight @ loss.value(T[:, m].astype(float), u)) + alpha / 2 * w[:-1] @ w[:-1]

    for m in range(3):
        peer = minimize(f, np.zeros(5), args=(m,), method="BFGS", options={"gtol": 1e-6})
        assert ours[m] <= peer.fun * (1 + 1e-9)
        assert ours[m] == pytest.approx(peer.fun, rel=1e-6)


def test_objective_as_defined():
    X, T = make(n=30, d=3, m=2)
    model = fit_linear(X, sp.csc_array(T), LOGISTIC, 0.7)
    ours = objective(LOGISTIC, X, T, model, 0.7)
    for m in range(2):
        row = model.problem[m]
        loop = reference.logistic_objective(X, T[:, m], model.coef[row], model.intercept[row], 0.7)
        assert ours[m] == pytest.approx(loop)


@pytest.mark.parametrize("shape", [(200, 6), (25, 80), (40, 40)])
def test_rotation_changes_nothing(shape):
    X, T = make(n=shape[0], d=shape[1])
    problems = [
        linear_problems(Design.of(X, rotate=rotate), sp.csc_array(T), LOGISTIC)
        for rotate in (True, False)
    ]
    models = [p.model(p.solve(0.3, tol=1e-14, max_iter=500)) for p in problems]
    assert np.allclose(models[0].coef, models[1].coef, rtol=1e-5, atol=1e-6)
    assert np.allclose(models[0].intercept, models[1].intercept, rtol=1e-5, atol=1e-6)


def test_rotation_keeps_features_of_tiny_scale():
    """A Gram matrix alone would lose a feature 1e-10 times as large as another."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1e6, 1.0, 1e-4]
    y = (rng.uniform(size=300) < 1 / (1 + np.exp(-2e4 * X[:, 2]))).astype(int)
    model = fit_linear(X, sp.csc_array(y[:, None]), LOGISTIC, 1e-9, tol=1e-12)
    peer = LogisticRegression(C=1e5, tol=1e-10, solver="newton-cholesky", max_iter=1000)
    peer.fit(X * [1e-6, 1, 1e4], y)
    assert model.coef[0, 2] * 1e-4 == pytest.approx(peer.coef_[0, 2], rel=0.02)


def test_rank_deficient_and_constant_features():
    X, T = make(n=50, d=5)
    X = np.concatenate([X, X[:, :2], np.full((50, 1), 3.0), np.zeros((50, 1))], axis=1)
    model = fit_linear(X, sp.csc_array(T), LOGISTIC, 1.0, tol=1e-12)
    assert np.allclose(model.coef[:, :2], model.coef[:, 5:7], atol=1e-8)
    assert np.allclose(model.coef[:, 7:], 0, atol=1e-10)


def test_all_features_constant():
    model = fit_linear(np.ones((4, 2)), sp.csc_array([[0], [1], [1], [1]]), LOGISTIC, 1.0)
    assert np.allclose(model.coef, 0)
    assert LOGISTIC.inverse_link(model.intercept) == pytest.approx(0.75)


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_are_repetitions(sparse):
    X, T = make(n=40)
    weight = np.random.default_rng(1).integers(1, 5, 40)
    form = sp.csr_array if sparse else np.asarray
    one = fit_linear(
        form(X), sp.csc_array(T), LOGISTIC, 1.0, weight=weight.astype(float), tol=1e-13
    )
    other = fit_linear(
        form(np.repeat(X, weight, axis=0)),
        sp.csc_array(np.repeat(T, weight, axis=0)),
        LOGISTIC,
        1.0,
        tol=1e-13,
    )
    assert np.allclose(one.coef, other.coef, rtol=1e-6, atol=1e-6)


def test_savings_equal_the_plain_solve():
    """Constant and repeated columns: the same answers as when every column is solved."""
    X, T = make(m=3)
    T = np.concatenate(
        [T, T[:, :1], np.zeros((120, 2), np.int8), np.ones((120, 1), np.int8)], axis=1
    )
    design = Design.of(X)
    problems = linear_problems(design, sp.csc_array(T), LOGISTIC)
    assert len(problems) == 5
    assert problems.problem.tolist() == [0, 1, 2, 0, 3, 3, 4]
    assert problems.objective.constant[3:].tolist() == [0.0, 1.0]
    assert len(problems.unsolved) == 3
    model = problems.model(problems.solve(1.0, tol=1e-15))
    block = ProblemBatch(design, design, Binary(LOGISTIC), T[:, :4].astype(float), 1.0)
    plain, *_ = solve_batch(
        block,
        np.zeros((8, 4)),
        tol=1e-15,
        floor=0.0,
        budget=np.full(4, 100),
        cold_start=True,
        max_steps=200,
    )
    coef, intercept = design.coefficients(plain)
    assert np.allclose(model.coef[model.problem[:4]], coef.T, rtol=1e-5, atol=1e-6)
    assert np.allclose(model.intercept[model.problem[:4]], intercept, rtol=1e-5, atol=1e-6)
    p = LOGISTIC.inverse_link(model.scores(X))[:, model.problem]
    assert (p[:, 4:6] == 0).all()
    assert (p[:, 6] == 1).all()


def test_without_intercept_constant_columns_are_solved():
    X, T = make(m=1)
    T[:] = 0
    model = fit_linear(X, sp.csc_array(T), LOGISTIC, 1.0, fit_intercept=False, tol=1e-12)
    assert np.abs(model.coef).max() > 0
    gradient = X.T @ LOGISTIC.inverse_link(model.scores(X)[:, 0]) + model.coef[0]
    assert np.allclose(gradient, 0, atol=1e-4)


def test_soft_targets():
    X, _ = make()
    T = np.random.default_rng(0).uniform(size=(120, 2))
    model = fit_linear(X, sp.csc_array(T), LOGISTIC, 1.0, tol=1e-13)
    u = model.scores(X)
    gradient = X.T @ (LOGISTIC.inverse_link(u) - T) + model.coef.T
    assert np.allclose(gradient, 0, atol=1e-4)


def test_distinct_columns_and_constants():
    T = sp.csc_array(np.array([[0, 0.5, 1, 0.5, 0], [0, 0.5, 1, 0.5, 1]]))
    which, first = distinct_columns(T)
    assert which.tolist() == [0, 1, 2, 1, 3]
    assert first.tolist() == [0, 1, 2, 4]
    values = constant_values(T)
    assert values[:4].tolist() == [0.0, 0.5, 1.0, 0.5]
    assert np.isnan(values[4])


@pytest.mark.parametrize("sparse", [False, True])
def test_single_precision_stays_single(sparse):
    X, T = make()
    form = sp.csr_array if sparse else np.asarray
    single = fit_linear(form(X.astype(np.float32)), sp.csc_array(T), LOGISTIC, 1.0)
    double = fit_linear(form(X), sp.csc_array(T), LOGISTIC, 1.0)
    assert single.coef.dtype == single.intercept.dtype == np.float32
    assert np.allclose(single.coef, double.coef, rtol=2e-2, atol=5e-3)


def test_single_precision_directions_do_not_cost_accuracy():
    """Large enough for the conjugate gradients to run in single precision."""
    X, T = make(n=3000, d=50, m=4)
    problems = linear_problems(Design.of(X), sp.csc_array(T), LOGISTIC)
    assert problems.light.matrix.dtype == np.float32
    model = problems.model(problems.solve(1e-2, tol=1e-14))
    for m in range(4):
        peer = LogisticRegression(C=100, tol=1e-12, solver="newton-cholesky").fit(X, T[:, m])
        assert np.allclose(model.coef[m], peer.coef_[0], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_beyond_single_precision(sparse):
    """Scaled by a power of 2, with the penalty to match: the same model up to that."""
    X, T = make(n=3000, d=30, m=3)
    form, scale = (sp.csr_array if sparse else np.asarray), 2.0**150
    one = fit_linear(form(X), sp.csc_array(T), LOGISTIC, 1.0, tol=1e-10)
    other = fit_linear(form(X * scale), sp.csc_array(T), LOGISTIC, scale**2, tol=1e-10)
    assert other.converged.all()
    assert np.allclose(one.coef, other.coef * scale, rtol=1e-3, atol=1e-4)


def heavy_tailed(n, d=2, m=20):
    """Features whose scores hide the flat directions from any diagonal preconditioner."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) ** 5
    limits = np.quantile(X, rng.uniform(0.05, 0.95, m))
    return X, (X @ rng.standard_normal((d, m)) > limits).astype(np.int8)


def best_objectives(X, T, alpha):
    values = []
    for y in T.T:
        peer = LogisticRegression(C=1 / alpha, tol=1e-10, solver="newton-cholesky").fit(X, y)
        u = X @ peer.coef_[0] + peer.intercept_[0]
        values.append(LOGISTIC.value(y.astype(float), u).sum() + alpha / 2 * (peer.coef_**2).sum())
    return np.array(values)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sparse", [False, slow(True)])
def test_converged_means_converged_on_ill_conditioned_data(sparse):
    X, T = heavy_tailed(5000)
    model = fit_linear(sp.csr_array(X) if sparse else X, sp.csc_array(T), LOGISTIC, 1e-3)
    found, best = objective(LOGISTIC, X, T, model, 1e-3), best_objectives(X, T, 1e-3)
    assert model.converged.any()
    assert (found <= best * (1 + 1e-3))[model.converged[model.problem]].all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_start_does_not_pass_for_a_solution():
    """Along a path, the promises of the preconditioner at the start are not to be trusted."""
    X, T = heavy_tailed(3000)
    problems = linear_problems(Design.of(X), sp.csc_array(T), LOGISTIC)
    for alpha, solution in solve_path(problems, [1e3, 1e1, 1e-1, 1e-3]):
        found = objective(LOGISTIC, X, T, problems.model(solution), alpha)
        gap = found / best_objectives(X, T, alpha) - 1
        assert (gap <= 1e-3)[solution.converged[problems.problem]].all()


def test_sparse_is_never_densified(monkeypatch):
    """A matrix of 40 GB as an array."""
    rng = np.random.default_rng(0)
    n, d = 2000, 2_500_000
    X = sp.csr_array(
        (np.ones(20_000), (rng.integers(0, n, 20_000), rng.integers(0, d, 20_000))), shape=(n, d)
    )
    T = sp.csc_array((rng.uniform(size=(n, 2)) < 0.2).astype(np.int8))
    model = fit_linear(X, T, LOGISTIC, 1.0)
    assert np.isfinite(model.coef).all()


def test_memory_stays_in_the_budget():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20))
    T = sp.csc_array((rng.uniform(size=(4000, 300)) < 0.05).astype(np.int8))
    problems = linear_problems(Design.of(X), T, LOGISTIC, memory=1 << 24)
    tracemalloc.start()
    problems.solve(1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (1 << 24)


@pytest.mark.parametrize("sparse", [False, True])
def test_path_equals_separate_solves(sparse):
    X, T = make(n=80, d=12, m=6, rate=0.1)
    design = Design.of(sp.csr_array(X) if sparse else X)
    problems = linear_problems(design, sp.csc_array(T), LOGISTIC)
    alphas = [1.0, 1e-4, 100.0, 1e-2]
    order = []
    for alpha, solution in solve_path(problems, alphas, tol=1e-13, max_iter=500):
        order.append(alpha)
        cold = problems.solve(alpha, tol=1e-13, max_iter=500)
        assert np.allclose(solution.W, cold.W, rtol=1e-4, atol=1e-5)
    assert order == sorted(alphas, reverse=True)


def test_rows_share_coordinates():
    X, T = make(n=100)
    rows = np.arange(0, 100, 2)
    shared = Design.of(X).take(rows)
    one = linear_problems(shared, sp.csc_array(T[rows]), LOGISTIC)
    other = linear_problems(Design.of(X[rows]), sp.csc_array(T[rows]), LOGISTIC)
    models = [p.model(p.solve(0.5, tol=1e-15)) for p in (one, other)]
    assert np.allclose(models[0].coef, models[1].coef, rtol=1e-5, atol=1e-6)
    solution = one.solve(0.5, tol=1e-15)
    p = LOGISTIC.inverse_link(models[0].scores(X))[:, models[0].problem]
    assert np.allclose(solution.probabilities(Design.of(X)), p)


def test_a_warning_names_what_did_not_converge():
    X, T = make()
    with pytest.warns(ConvergenceWarning, match=r"5 of 5 binary problems did not converge in 1 it"):
        model = fit_linear(X, sp.csc_array(T), LOGISTIC, 1e-6, max_iter=1)
    assert np.isfinite(model.coef).all()
    assert not model.converged.any()


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_separable_without_penalty_warns_and_stays_finite(loss):
    X = np.array([[-1.0], [1.0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit_linear(X, sp.csc_array([[0], [1]]), LOSSES[loss], 0.0, max_iter=30)
    assert np.isfinite(model.coef).all()
    assert all(issubclass(w.category, ConvergenceWarning) for w in caught)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(2, 20),
    st.integers(1, 30),
    st.integers(0, 10**6),
    st.floats(-6, 4),
    st.floats(-4, 4),
    st.sampled_from(sorted(LOSSES)),
    st.booleans(),
)
def test_no_nan_and_stationary_whatever_the_data(n, d, seed, log_alpha, scale, name, sparse):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10**scale
    T = rng.integers(0, 2, (n, 3))
    alpha, loss = 10**log_alpha, LOSSES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fit_linear(
            sp.csr_array(X) if sparse else X,
            sp.csc_array(T),
            loss,
            alpha,
            fit_intercept=False,
            tol=1e-10,
            max_iter=200,
        )
    assert np.isfinite(model.coef).all()
    start = n * float(loss.value(0.0, np.zeros(1))[0])
    assert (objective(loss, X, T, model, alpha) <= start * (1 + 1e-9)).all()


@pytest.mark.parametrize("place", ["CPU_DEVICE", "device1"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_any_array_on_any_device(name, place):
    X, T = make(n=30, d=4, m=3)
    xp, device = array_api_strict, array_api_strict.Device(place)
    weight = np.linspace(0.5, 2, 30)
    there = fit_linear(
        xp.asarray(X, device=device), sp.csc_array(T), LOSSES[name], 0.5, weight=weight, tol=1e-10
    )
    here = fit_linear(X, sp.csc_array(T), LOSSES[name], 0.5, weight=weight, tol=1e-10)
    assert there.coef.device == there.intercept.device == device
    cpu = xp.Device("CPU_DEVICE")
    on_host = [np.from_dlpack(a.to_device(cpu)) for a in (there.coef, there.intercept)]
    assert np.allclose(on_host[0], here.coef, rtol=1e-4, atol=1e-5)
    assert np.allclose(on_host[1], here.intercept, rtol=1e-4, atol=1e-5)
