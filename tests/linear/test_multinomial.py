"""The batched multinomial regressions against scikit-learn's, one by one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from fbeta.linear import Design, Multinomial, Problems, compiled
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.multinomial import softmax
from fbeta.linear.objectives import Binary
from fbeta.linear.problems import independent_start
from fbeta.losses import LogisticLoss

from .fits import fit_softmax


def firsts(model):
    return np.cumsum([0, *model.objective.counts])


def toy(n=80, d=6, counts=(3, 2, 5), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 4, size=d) + 1.0
    columns = [np.argmax(X @ rng.normal(size=(d, c)) + rng.gumbel(size=(n, c)), 1) for c in counts]
    classes = np.stack([np.unique(c, return_inverse=True)[1] for c in columns], axis=1)
    return X, classes


def objective(X, y, coef, intercept, alpha, weight):
    losses = -log_softmax(X @ coef.T + intercept, axis=1)[np.arange(len(y)), y]
    return (weight * losses).sum() + alpha / 2 * (coef**2).sum()


def sklearn_objective(X, y, alpha, weight, fit_intercept=True):
    two = y.max() == 1  # one weight vector there, w / 2 and -w / 2 here
    model = LogisticRegression(
        C=(2 if two else 1) / alpha,
        tol=1e-8,
        max_iter=1000,
        fit_intercept=fit_intercept,
        solver="newton-cholesky",
    ).fit(X, y, sample_weight=weight)
    coef, intercept = model.coef_, model.intercept_
    if two:
        coef, intercept = np.concatenate([-coef, coef]) / 2, np.r_[-intercept, intercept] / 2
    return objective(X, y, coef, intercept, alpha, weight)


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_reaches_the_optimum(alpha, fit_intercept, weighted):
    X, classes = toy()
    weight = np.random.default_rng(1).uniform(0.1, 3, len(X)) if weighted else np.ones(len(X))
    model = fit_softmax(
        X,
        classes,
        alpha,
        weight=weight if weighted else None,
        fit_intercept=fit_intercept,
        tol=1e-9,
    )
    assert model.converged.all()
    for m in range(classes.shape[1]):
        part = slice(*firsts(model)[m : m + 2])
        own = objective(X, classes[:, m], model.coef[part], model.intercept[part], alpha, weight)
        best = sklearn_objective(X, classes[:, m], alpha, weight, fit_intercept)
        assert own == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("shape", [(40, 6), (12, 40)])
def test_sparse_is_dense(shape):
    X, classes = toy(*shape)
    X = np.where(np.abs(X) < 1, 0.0, X)
    dense = fit_softmax(X, classes, 0.1, tol=1e-12)
    sparse = fit_softmax(sp.csr_array(X), classes, 0.1, tol=1e-12)
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-5)
    np.testing.assert_allclose(sparse.probabilities(X), dense.probabilities(X), atol=1e-5)


def test_problems_do_not_depend_on_their_company(monkeypatch):
    X, classes = toy(counts=(3, 2, 5, 4, 2, 3))
    together = fit_softmax(X, classes, 1.0, tol=1e-12)
    for m in range(classes.shape[1]):
        alone = fit_softmax(X, classes[:, [m]], 1.0, tol=1e-12)
        part = slice(*firsts(together)[m : m + 2])
        np.testing.assert_allclose(together.coef[part], alone.coef, atol=5e-6)
    monkeypatch.setattr("fbeta.linear.problems.BATCH_COLUMNS", 1)
    blocks = fit_softmax(X, classes, 1.0, tol=1e-12)
    np.testing.assert_allclose(blocks.coef, together.coef, atol=5e-6)


def test_hessian_and_gradient():
    """Against differences."""
    X, classes = toy(n=30, d=3, counts=(3, 3))
    design = Design.of(X, np.linspace(0.5, 2, 30))
    block = ProblemBatch(design, design, Multinomial(np.array([3, 3])), classes, 0.7)
    W, P = np.random.default_rng(3).normal(size=(2, 4, 6))
    W, P = (block.objective.project(A) for A in (W, P))
    step = 1e-5

    def at(W):
        return block.evaluate(W)

    point, up, down = at(W), at(W + step * P), at(W - step * P)
    slope = block.total((point.gradient * P).sum(axis=0))
    np.testing.assert_allclose((up.value - down.value) / (2 * step), slope, rtol=1e-6)
    product = block.hessian_product(block.tiles, point.curvature, P)
    np.testing.assert_allclose(
        block.objective.project(product), (up.gradient - down.gradient) / (2 * step), atol=1e-5
    )


def test_start_keeps_the_probability_of_class_0():
    X, classes = toy()
    problems = Problems(Design.of(X), Multinomial.of(classes), classes)
    W = problems.bound.start(problems.design, classes, 0.7)
    np.testing.assert_allclose(np.add.reduceat(W, problems.first[:-1], axis=1), 0, atol=1e-12)
    p = softmax(problems.design.scores(W), problems.objective.counts)
    binary, _ = independent_start(problems.design, classes > 0, 0.7)
    expected = 1 / (1 + np.exp(problems.design.scores(binary)))
    np.testing.assert_allclose(p[:, problems.first[:-1]], expected, rtol=1e-6)
    share = np.bincount(classes[:, 2])[1:]
    inside = p[:, 6:] / p[:, 6:].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(inside, np.tile(share / share.sum(), (len(X), 1)))


def test_gauge_and_single_class():
    X, classes = toy()
    classes[:, 1] = 0
    model = fit_softmax(X, classes, 1.0)
    starts = firsts(model)[:-1]
    assert model.objective.counts.tolist() == [3, 1, 5]
    np.testing.assert_allclose(np.add.reduceat(model.intercept, starts), 0, atol=1e-5)
    np.testing.assert_allclose(np.add.reduceat(model.coef, starts, axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.add.reduceat(model.probabilities(X), starts, axis=1), 1)
    assert (model.probabilities(X)[:, 3] == 1).all()


def test_nothing_to_fit():
    model = fit_softmax(np.ones((4, 2)), np.zeros((4, 0), dtype=int), 1.0)
    assert model.coef.shape == (0, 2)
    assert model.probabilities(np.ones((3, 2))).shape == (3, 0)


def test_separable_without_penalty_warns():
    X = np.linspace(-1, 1, 12)[:, None]
    classes = np.repeat([0, 1, 2], 4)[:, None]
    with pytest.warns(ConvergenceWarning, match="1 of 1 multinomial problems"):
        fit_softmax(X, classes, 0.0, max_iter=3, tol=1e-12)


def test_single_precision():
    X, classes = toy()
    model = fit_softmax(X.astype(np.float32), classes, 1.0)
    assert model.coef.dtype == np.float32
    double = fit_softmax(X, classes, 1.0)
    np.testing.assert_allclose(model.probabilities(X), double.probabilities(X), atol=1e-2)


def test_caution_is_that_of_a_binary_loss_where_there_are_two_classes():
    """Scores u / 2 and -u / 2 are those of one binary problem with score u."""
    u = np.linspace(-30, 30, 121)[:, None] + 0.01
    y = np.arange(121)[:, None] % 2
    far = np.ones(2, dtype=bool)
    _, _, p = Multinomial(np.array([2])).evaluate(y, np.hstack([-u, u]) / 2, far)
    _, _, h = Binary(LogisticLoss()).evaluate(y.astype(float), u, far[:1])
    assert np.allclose(p.sum(axis=1), 1)
    assert np.allclose(p[:, :1] * p[:, 1:], h, rtol=5e-3)  # what is barely wrong is left as it is


def test_caution_spares_the_classes_that_are_right_and_the_problems_that_are_near():
    rng = np.random.default_rng(0)
    counts, u = np.array([4, 3]), rng.normal(size=(50, 8)) * 5
    y = np.stack([rng.integers(c, size=50) for c in counts], axis=1)
    objective = Multinomial(counts)
    _, g, plain = objective.evaluate(y, u, None)
    _, same, careful = objective.evaluate(y, u, np.repeat([True, False], 4))
    assert np.array_equal(g, same)
    own = np.take_along_axis(plain[:, :4], y[:, :1], axis=1)[:, 0]
    assert np.array_equal(careful[own > 0.5, :4], plain[own > 0.5, :4])
    assert np.array_equal(careful[:, 4:], plain[:, 4:])
    wrong = own < 0.4
    now = np.take_along_axis(careful[:, :4], y[:, :1], axis=1)[:, 0]
    assert (now[wrong] > own[wrong]).all()
    assert (now < 0.5)[wrong].all()
    assert np.allclose(careful[:, :4].sum(axis=1), 1)


def test_a_class_whose_curvature_rounding_hides_is_not_certified(monkeypatch):
    """One class has a share of 2e-16 of the weight: its intercept is beyond double precision."""
    monkeypatch.setattr(compiled, "_engine", None)
    data = np.load(Path(__file__).parents[1] / "data" / "hidden_class.npz")
    X, classes, weight, alpha = data["X"], data["classes"], data["weight"], 0.00013217390201028265
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = fit_softmax(X, classes[:, None], alpha, weight=weight, tol=1e-6)
    # the optimum, by a damped Newton method with scaled columns; the rest is the tolerance
    most = 176.592181 + 0.00965
    own = objective(X, classes, found.coef, found.intercept, alpha, weight)
    assert own <= most or not found.converged.all()
