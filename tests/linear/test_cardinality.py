"""The objectives of whole label sets, against all 2^s of them, differences and another solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from fbeta.linear import Cardinality, Design, LabelSets, Problems, solve_path
from fbeta.statistics.codes import CardinalityCode, LabelSetCode, SizedCode
from fbeta.statistics.encoding import Targets

from ..cases import slow
from ..places import TENSORS, fetch, put
from ..reference import set_features
from .fits import fit_objective

RNG = np.random.default_rng(0)


@st.composite
def laws_of_rows(draw):
    s = draw(st.integers(1, 7))
    sizes = draw(st.sets(st.integers(0, s), min_size=1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.0, 0.5, 5.0, 50.0]))
    return s, np.array(sorted(sizes)), scale * rng.normal(size=(4, s + len(sizes))), rng


@given(laws_of_rows())
def test_value_gradient_and_covariance_of_all_sets(law):
    s, sizes, u, rng = law
    F, objective = set_features(s, sizes), Cardinality(s, sizes)
    y = F[rng.integers(len(F), size=len(u))]
    p = softmax(u @ F.T, axis=1)
    mean = p @ F
    v = rng.normal(size=u.shape)
    centred = F[None] - mean[:, None]
    covariance = np.einsum("nl,nli,nlj->nij", p, centred, centred)
    value, gradient, kept = objective.evaluate(y, u, None)
    expected = logsumexp(u @ F.T, axis=1) - (u * y).sum(axis=1)
    np.testing.assert_allclose(value[:, 0], expected, atol=1e-13 * (1 + np.abs(u).sum()))
    np.testing.assert_allclose(gradient, mean - y, atol=1e-12)
    np.testing.assert_allclose(
        objective.response(kept, v), np.einsum("nij,nj->ni", covariance, v), atol=1e-12
    )
    np.testing.assert_allclose(
        objective.diagonal(kept), np.einsum("nii->ni", covariance), atol=1e-12
    )
    # what no set depends on is flat, and nothing else
    flat = v - objective.project(v)
    np.testing.assert_allclose(flat @ F.T, (flat @ F.T)[:, :1] + 0 * p, atol=1e-12)
    assert np.linalg.matrix_rank(objective._null_space) == 2


def log_total(u, g):
    """``ln Z`` by sums of logarithms: slow, and no number is ever too small."""
    logs = np.full((len(g), u.shape[0]), -np.inf)
    logs[0] = 0.0
    for j in range(u.shape[1]):
        logs[1:] = np.logaddexp(logs[1:], logs[:-1] + u[:, j])
    return logsumexp(logs + np.asarray(g)[:, None], axis=0)


@pytest.mark.parametrize(("s", "scale"), [(300, 3.0), (300, 50.0), slow(2000, 50.0)])
def test_many_labels_with_extreme_scores(s, scale):
    sizes = np.array([0, 1, 2, 5, 40])
    objective, u = Cardinality(s, sizes), scale * RNG.uniform(-1, 1, size=(3, s + 5))
    g = np.full(41, -np.inf)
    value, gradient, kept = objective.evaluate(np.zeros_like(u), u, None)
    for i in range(3):
        g[sizes] = u[i, s:]
        total = log_total(u[i : i + 1, :s], g)
        np.testing.assert_allclose(value[i], total, rtol=1e-12)
        for j in np.argsort(-gradient[i, :s])[[0, 3, 10, s // 2]]:
            moved = u[i : i + 1, :s].copy()
            moved[0, j] += 1e-3
            up = log_total(moved, g)
            moved[0, j] -= 2e-3
            slope = (up - log_total(moved, g)) / 2e-3
            np.testing.assert_allclose(gradient[i, j], slope[0], atol=1e-6)
    # the numbers of labels agree with each other
    number = gradient[:, s:] @ sizes
    np.testing.assert_allclose(gradient[:, :s].sum(axis=1), number, rtol=1e-9)
    np.testing.assert_allclose(gradient[:, s:].sum(axis=1), 1, rtol=1e-12)
    v, step = RNG.normal(size=u.shape), 1e-5
    ahead, back = (objective.evaluate(0 * u, u + h * v, None)[1] for h in (step, -step))
    change = (ahead - back) / (2 * step)
    np.testing.assert_allclose(objective.response(kept, v), change, atol=1e-6)


@pytest.mark.parametrize("s", [300, slow(1200)])
def test_none_or_all_of_many_labels(s):
    # the law of the number of independent labels underflows at one of both sizes, or at both
    objective, u = Cardinality(s, np.array([0, s])), RNG.normal(size=(2, s + 2))
    u[:, s + 1] -= u[:, :s].sum(axis=1)  # both have probabilities that are not small
    value, gradient, kept = objective.evaluate(np.zeros_like(u), u, None)
    z = softmax(np.stack([u[:, s], u[:, s + 1] + u[:, :s].sum(axis=1)], axis=1), axis=1)
    np.testing.assert_allclose(value[:, 0], u[:, s] - np.log(z[:, 0]), atol=1e-11)
    np.testing.assert_allclose(gradient[:, s:], z, atol=1e-11)
    np.testing.assert_allclose(gradient[:, :s], z[:, [1]] + np.zeros((2, s)), atol=1e-11)
    assert np.isfinite(objective.response(kept, u)).all()


@pytest.mark.parametrize("place", TENSORS)
def test_tensors_give_the_same(place):
    objective, u = Cardinality(4, np.array([0, 1, 3])), RNG.normal(size=(5, 7))
    v = RNG.normal(size=u.shape)
    value, gradient, kept = objective.evaluate(0 * u, u, None)
    found = objective.evaluate(put(0 * u, place), put(u, place), None)
    for mine, theirs in zip((value, gradient, kept), found, strict=True):
        np.testing.assert_allclose(fetch(theirs, place), mine, atol=1e-12)
    response = objective.response(put(kept, place), put(v, place))
    np.testing.assert_allclose(fetch(response, place), objective.response(kept, v), atol=1e-12)
    law = objective.probabilities(put(u, place))
    np.testing.assert_allclose(fetch(law, place), objective.probabilities(u), atol=1e-12)


def toy(n=60, d=3, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.5).astype(np.int8)
    Y[:, -1] = 0  # a label that is never there
    return X, sp.csr_array(Y), rng.uniform(0.5, 2, size=n)


def best_by_enumeration(X, Y, weight, alpha, F, split, fixed=1e-5):
    """Minimise the same objective over all sets of features F by another solver: the value."""
    n, d = X.shape
    c = F.shape[1]
    sets = {tuple(y): i for i, y in enumerate(F[:, : Y.shape[1]])}
    which = np.array([sets[tuple(y)] for y in Y.toarray()])

    def objective(w):
        W, b = w[: d * c].reshape(c, d) * split[:, None], w[d * c :]
        scores = (X @ W.T + b) @ F.T
        logs = log_softmax(scores, axis=1)
        residual = weight[:, None] * (np.exp(logs) - np.eye(len(F))[which])
        of_scores = residual @ F
        value = -(weight * logs[np.arange(n), which]).sum()
        value += alpha / 2 * (W**2).sum() + fixed / 2 * (b**2).sum()
        gradient = (of_scores.T @ X + alpha * W) * split[:, None]
        return value, np.concatenate([gradient.ravel(), of_scores.sum(axis=0) + fixed * b])

    options = {"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.zeros(c * (d + 1))
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options)


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_the_cardinality_model_is_the_optimum(alpha):
    X, Y, weight = toy()
    code = SizedCode.of(Y)
    F = set_features(4, code.sizes)
    best = best_by_enumeration(X, Y, weight, alpha, F, np.ones(F.shape[1]))
    targets = code.targets(Y)
    model = fit_objective(Cardinality, X, Targets(targets, code.sizes), alpha, weight, tol=1e-10)
    assert model.converged.all()
    u = X @ model.coef.T + model.intercept
    losses = logsumexp(u @ F.T, axis=1) - (u * targets.toarray()).sum(axis=1)
    value = (weight * losses).sum() + alpha / 2 * (model.coef**2).sum()
    # the penalty of the intercepts is not counted here
    assert best.fun * (1 - 1e-3) <= value <= best.fun * (1 + 1e-7)
    coef = best.x[: F.shape[1] * 3].reshape(-1, 3)
    theirs = softmax((X @ coef.T + best.x[-F.shape[1] :]) @ F.T, axis=1)
    np.testing.assert_allclose(softmax(u @ F.T, axis=1), theirs, atol=1e-3)


def log_sums(u):
    """``ln R_k`` of rows with scores (n, s), (1 + s, n), by sums of logarithms."""
    logs = np.full((u.shape[1] + 1, len(u)), -np.inf)
    logs[0] = 0.0
    for j in range(u.shape[1]):
        logs[1:] = np.logaddexp(logs[1:], logs[:-1] + u[:, j])
    return logs


def test_the_certificate_of_many_labels_is_a_bound():
    rng, n, s = np.random.default_rng(0), 80, 25
    X = rng.normal(size=(n, 3))
    X -= X.mean(axis=0)
    Y = sp.csr_array((rng.random((n, s)) < rng.random((n, 1))).astype(np.int8))
    code = SizedCode.of(Y)
    y, sizes = code.targets(Y), code.sizes
    model = fit_objective(Cardinality, X, Targets(y, sizes), 1.0)
    assert model.converged.all()
    assert model.most_iter < 8  # it starts with the frequencies of the sizes
    u = X @ model.coef.T + model.intercept
    logs = log_sums(u[:, :s])[sizes] + u[:, s:].T
    total, some = logsumexp(logs, axis=0), sizes > 0
    mean = [np.exp(logs - total).T]
    for j in reversed(range(s)):
        others = log_sums(np.delete(u[:, :s], j, axis=1))[sizes[some] - 1] + u[:, s:].T[some]
        mean.insert(0, np.exp(others + u[:, j] - total).sum(axis=0)[:, None])
    residual = np.concatenate(mean, axis=1) - y.toarray()
    value = total.sum() - (u * y.toarray()).sum() + (model.coef**2).sum() / 2
    slopes = residual.T @ X + model.coef, residual.sum(axis=0) + 1e-5 * model.intercept
    left = (slopes[0] ** 2).sum() / 2 + (slopes[1] ** 2).sum() / 2e-5
    assert left <= 1.01e-6 * (value + 1e-4 * n * np.log(2))


@pytest.mark.parametrize("alpha", [0.1, 10.0])
@pytest.mark.parametrize("d", [3, 70])
def test_label_sets_are_the_optimum(alpha, d):
    X, Y, weight = toy(d=d)
    code = LabelSetCode.of(Y)
    sets = code.sets.toarray().astype(float)
    F = np.concatenate([sets, np.eye(len(sets))], axis=1)
    split = (np.arange(F.shape[1]) < 4).astype(float)  # offsets of sets have no features
    best = best_by_enumeration(X, Y, weight, alpha, F, split)
    targets = code.targets(Y)
    model = fit_objective(LabelSets, X, targets, alpha, weight, tol=1e-10)
    assert model.converged.all()
    P = model.probabilities(X)
    value = -(weight * np.log(P[np.arange(len(P)), targets.values[:, 0]])).sum()
    value += alpha / 2 * (model.coef**2).sum()
    # the penalty of the offsets is not counted here
    assert best.fun * (1 - 1e-3) <= value <= best.fun * (1 + 1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [slow(False), True])
def test_a_path_ends_where_single_solves_end(sparse, intercept):
    X, Y, weight = toy(d=6)
    X = sp.csr_array(X * (RNG.uniform(size=X.shape) < 0.5)) if sparse else X
    design = Design.of(X, weight, intercept=intercept)
    sized, code = CardinalityCode.of(Y), LabelSetCode.of(Y)
    targets, labels = code.targets(Y), sized.targets(Y)
    problems = (
        Problems(design, Cardinality.of(labels), labels.values),
        Problems(design, LabelSets.of(targets), targets.values),
    )
    singles = (
        (Cardinality, X, labels),
        (LabelSets, X, targets),
    )
    for problem, single in zip(problems, singles, strict=True):
        for alpha, solution in solve_path(problem, [10.0, 0.1], tol=1e-10):
            assert solution.converged.all()
            there = solution.probabilities(design)
            alone = fit_objective(*single, alpha, weight, intercept, tol=1e-10)
            np.testing.assert_allclose(there, alone.probabilities(X), rtol=1e-3, atol=5e-4)
            again = problem.model(solution).probabilities(X)
            np.testing.assert_allclose(again, there, rtol=1e-7, atol=1e-8)
