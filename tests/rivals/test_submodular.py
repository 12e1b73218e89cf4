"""Graph cuts and the structured SVM with attractions, against all 2^s label sets."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.rivals.structured import ReverseMultiLabel
from fbeta.rivals.submodular import (
    SubmodularMultiLabel,
    _minimum_cut,
    cooccurrence,
    loss_augmented,
    maximise_pairwise,
)

from ..reference import all_sets


@pytest.mark.slow
@parametrize_with_checks([SubmodularMultiLabel(tol=1e-2)])
def test_scikit_learn(estimator, check):
    check(estimator)


def set_scores(unary, pairs, attraction, sets):
    """Return the score of every set, with a loop over the pairs."""
    total = sets @ unary
    for u, v, weight in zip(*pairs, attraction, strict=True):
        total = total + weight * sets[:, u] * sets[:, v]
    return total


def losses(y, sets, beta):
    bottom = beta**2 * y.sum() + sets.sum(axis=1)
    return 1 - np.where(bottom > 0, (1 + beta**2) * (sets @ y) / np.where(bottom > 0, bottom, 1), 1)


def toy(n=40, d=3, s=4, seed=0):
    """Labels of which the last follows the first, whatever x."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.5).astype(int)
    Y[:, -1] = Y[:, 0]
    return X, Y


@st.composite
def pairwise_problems(draw):
    s = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    pairs = np.triu_indices(s, 1)
    keep = rng.random(len(pairs[0])) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    pairs = pairs[0][keep], pairs[1][keep]
    attraction = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0])) * rng.random(len(pairs[0]))
    unary = rng.normal(draw(st.sampled_from([-2.0, -0.5, 0.5])), 1.0, size=(5, s))
    # rows of very different size share one graph
    return unary * np.array([1, 1, 1e-6, 1e6, 0])[:, None], pairs, attraction


@settings(deadline=None, max_examples=100)
@given(pairwise_problems())
def test_cuts_find_the_best_of_all_sets(problem):
    unary, pairs, attraction = problem
    sets = all_sets(unary.shape[1])
    for found in (maximise_pairwise(unary, pairs, attraction), _minimum_cut(*problem)):
        for row, chosen in zip(unary, found, strict=True):
            best = set_scores(row, pairs, attraction, sets).max()
            value = set_scores(row, pairs, attraction, chosen[None].astype(int))[0]
            scale = max(np.abs(row).max(), attraction.sum())
            assert value == pytest.approx(best, abs=1e-7 * scale)


def test_many_rows_in_several_graphs():
    rng = np.random.default_rng(0)
    pairs = np.triu_indices(6, 1)
    attraction, unary = rng.random(15), rng.normal(-1.0, 1.0, size=(5000, 6))
    sets = all_sets(6)
    table = np.array([set_scores(row, pairs, attraction, sets) for row in unary])
    found = maximise_pairwise(unary, pairs, attraction)
    np.testing.assert_array_equal(found, sets[table.argmax(axis=1)])


def test_cooccurrence_counts_pairs():
    Y = np.random.default_rng(0).integers(0, 2, size=(20, 5))
    weight = np.arange(20.0)
    (u, v), C = cooccurrence(sp.csr_array(Y), weight)
    counts = np.array([(weight * Y[:, a] * Y[:, b]).sum() for a, b in zip(u, v, strict=True)])
    np.testing.assert_allclose(C, counts / counts.max())
    assert (u < v).all()
    (u, v), C = cooccurrence(sp.csr_array(np.eye(3, dtype=int)))
    assert len(u) == len(v) == len(C) == 0


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_loss_augmented_search_is_nearly_exact(beta):
    rng = np.random.default_rng(1)
    s, pairs = 5, np.triu_indices(5, 1)
    attraction, scores = 0.3 * rng.random(10), rng.normal(-0.3, 0.5, size=(300, s))
    Y = rng.random((300, s)) < 0.4
    found, values = loss_augmented(scores, pairs, attraction, Y, beta)
    sets, exact = all_sets(s), np.zeros(300)
    for i in range(300):
        table = losses(Y[i].astype(int), sets, beta) + set_scores(
            scores[i], pairs, attraction, sets
        )
        exact[i] = table.max()
        assert values[i] == pytest.approx(table[np.flatnonzero((sets == found[i]).all(axis=1))[0]])
    assert (values <= exact + 1e-12).all()
    assert np.mean(exact - values < 1e-9) > 0.95
    assert np.mean(exact - values) < 5e-3 * np.mean(exact)


def test_loss_augmented_search_without_attraction_is_exact():
    rng = np.random.default_rng(2)
    scores, Y = rng.normal(size=(100, 4)), rng.random((100, 4)) < 0.5
    pairs = np.triu_indices(4, 1)
    _, values = loss_augmented(scores, pairs, np.zeros(6), Y, 1.0)
    sets = all_sets(4)
    exact = [
        (losses(y.astype(int), sets, 1.0) + sets @ f).max() for f, y in zip(scores, Y, strict=True)
    ]
    np.testing.assert_allclose(values, exact)


def slow_objective(w, X, Y, C, pairs, alpha, alpha_pair):
    """Enumerate all label sets of all instances."""
    s, sets = Y.shape[1], all_sets(Y.shape[1])
    size = s * (X.shape[1] + 1)
    W, theta = w[:size].reshape(s, -1), w[size:]
    total = alpha / 2 * (W**2).sum() + alpha_pair / 2 * (theta**2).sum()
    for x, y in zip(X, Y, strict=True):
        scores = W[:, :-1] @ x + W[:, -1]
        table = losses(y, sets, 1.0) + set_scores(scores, pairs, theta * C, sets)
        total += table.max() - set_scores(scores, pairs, theta * C, y[None])[0]
    return total


def test_agrees_with_the_quadratic_program_over_all_sets():
    X, Y = toy(n=12, d=1, s=3, seed=3)
    Y[:4, :2] = 1
    alpha, alpha_pair = 1.5, 0.5
    model = SubmodularMultiLabel(alpha=alpha, alpha_pair=alpha_pair, tol=1e-6).fit(X, Y)
    (u, v), C = cooccurrence(sp.csr_array(Y))
    assert (model.pair_coef_ >= 0).all()
    assert model.pair_coef_.any()
    w = np.r_[np.column_stack([model.coef_, model.intercept_]).ravel(), model.pair_coef_ / C]
    value = slow_objective(w, X, Y, C, (u, v), alpha, alpha_pair)
    assert model.objective_ <= value + 1e-9
    assert value <= model.objective_ * 1.01
    # the same minimum with one variable for the loss of each instance
    sets, rows, bounds = all_sets(3), [], []
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        for other, loss in zip(sets, losses(y, sets, 1.0), strict=True):
            first = np.outer(other - y, np.r_[x, 1.0]).ravel()
            second = C * (other[u] * other[v] - y[u] * y[v])
            rows.append(np.r_[-first, -second, np.eye(12)[i]])
            bounds.append(loss)
    D = len(w)
    penalty = np.r_[np.full(6, alpha), np.full(len(C), alpha_pair)]
    reference = minimize(
        lambda z: penalty @ z[:D] ** 2 / 2 + z[D:].sum(),
        np.r_[np.zeros(D), np.ones(12)],
        jac=lambda z: np.r_[penalty * z[:D], np.ones(12)],
        bounds=[(None, None)] * 6 + [(0, None)] * (len(C) + 12),
        constraints=LinearConstraint(np.array(rows), lb=np.array(bounds)),
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert reference.success
    # the bound is a true one, and the point nearly optimal
    assert model.objective_ - model.gap_ <= reference.fun + 1e-6
    assert value <= reference.fun * 1.01


def test_strong_penalty_on_pairs_leaves_reverse_multi_label():
    X, Y = toy()
    model = SubmodularMultiLabel(alpha_pair=1e9, tol=1e-6).fit(X, Y)
    plain = ReverseMultiLabel(tol=1e-6).fit(X, Y)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-5)
    assert model.pair_coef_.max() < 1e-6


def test_attraction_lowers_the_objective_and_learns():
    X, Y = toy(n=150)
    model = SubmodularMultiLabel(alpha=1.0, alpha_pair=0.1).fit(X, Y)
    assert model.objective_ < ReverseMultiLabel(alpha=1.0).fit(X, Y).objective_
    strongest = model.pairs_[model.pair_coef_.argmax()]
    assert strongest.tolist() == [0, 3]
    constant = max(fbeta_score(Y, np.tile(y, (len(Y), 1))) for y in np.unique(Y, axis=0))
    assert model.score(X, Y) > constant + 0.03


@pytest.mark.slow
def test_weights_count_rows():
    X, Y = toy()
    weight = np.random.default_rng(3).integers(0, 3, len(X))
    repeated = np.repeat(np.arange(len(X)), weight)
    model = SubmodularMultiLabel(tol=1e-4).fit(X, Y, sample_weight=weight)
    again = SubmodularMultiLabel(tol=1e-4).fit(X[repeated], Y[repeated])
    assert model.objective_ == pytest.approx(again.objective_, rel=1e-3)
