"""Chains against the product of their conditionals, set by set."""

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

from fbeta.rivals.chain import (
    ChainCode,
    ProbabilisticChain,
    most_probable_set,
    sample_sets,
    search_beam,
)
from fbeta.statistics.codes import Estimates


@pytest.mark.slow
@parametrize_with_checks(
    [
        ProbabilisticChain(),
        ProbabilisticChain(inference="exhaustive", decode="hamming", order="random"),
        ProbabilisticChain(inference="beam", decode="subset"),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=50, d=3, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    noise = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, s))
    return X, (X @ rng.normal(size=(d, s)) + noise > 0.2).astype(int)


def chance(b, chain, y):
    """P(y | x) by its definition."""
    total = 1.0
    for t, on in enumerate(y):
        u = b[t] + sum(chain[t][r] for r in range(t) if y[r])
        p = 1 / (1 + np.exp(-u))
        total *= p if on else 1 - p
    return total


def infer(B, chain, inference, width=1, uniforms=None):
    """Estimates of a chain in the order of the labels."""
    s = B.shape[1]
    code = ChainCode(np.arange(1, s + 1), s, np.arange(s), inference, width, uniforms)
    return Estimates(code, (B, chain))


scores = st.integers(1, 4).flatmap(
    lambda s: st.tuples(
        arrays(np.float64, (3, s), elements=st.floats(-6, 6)),
        arrays(np.float64, (s, s), elements=st.floats(-4, 4)).map(lambda c: np.tril(c, -1)),
    )
)


def slow_statistics(sets, p):
    s = len(sets[0])
    empty, joint = 0.0, np.zeros((s, s))
    for y, q in zip(sets, p, strict=True):
        empty += q * (sum(y) == 0)
        for j in range(s):
            if y[j]:
                joint[sum(y) - 1, j] += q
    return empty, joint


@settings(max_examples=40, deadline=None)
@given(scores)
def test_exhaustive(given_):
    B, chain = given_
    found, _, probability = search_beam(B, chain, None)
    sets = [tuple(int(v) for v in y) for y in found[0]]
    assert sorted(sets) == sorted(product((0, 1), repeat=B.shape[1]))
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-12)
    estimates = infer(B, chain, "exhaustive")
    q, mode = estimates.statistics(), most_probable_set(estimates, 1.0)
    for i in range(len(B)):
        p = [chance(B[i], chain, y) for y in sets]
        np.testing.assert_allclose(probability[i], p, atol=1e-12)
        empty, joint = slow_statistics(sets, p)
        assert q.empty[i] == pytest.approx(empty, abs=1e-12)
        np.testing.assert_allclose(q.joint[i], joint[q.cardinalities - 1], atol=1e-12)
        assert chance(B[i], chain, mode[i]) == pytest.approx(max(p))


@settings(max_examples=40, deadline=None)
@given(scores)
def test_a_wide_beam_is_exhaustive(given_):
    B, chain = given_
    s = B.shape[1]
    full, beam = search_beam(B, chain, None), search_beam(B, chain, 2**s)
    assert beam[0].shape == (len(B), 2**s, s)
    np.testing.assert_allclose(np.sort(beam[2], axis=1), np.sort(full[2], axis=1), atol=1e-12)
    a, b = (infer(B, chain, kind, 2**s).statistics() for kind in ("exhaustive", "beam"))
    np.testing.assert_allclose(a.empty, b.empty, atol=1e-12)
    np.testing.assert_allclose(a.joint, b.joint, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(scores, st.integers(1, 5))
def test_a_narrow_beam(given_, width):
    """Its sets are distinct, their probabilities the model's, and width 1 is the greedy one."""
    B, chain = given_
    sets, weight, probability = search_beam(B, chain, width)
    np.testing.assert_allclose(weight.sum(axis=1), 1)
    for i in range(len(B)):
        assert len({tuple(y) for y in sets[i]}) == sets.shape[1]
        p = [chance(B[i], chain, y) for y in sets[i]]
        np.testing.assert_allclose(probability[i], p, atol=1e-12)
    if width == 1:
        for t in range(B.shape[1]):
            u = B[0, t] + chain[t] @ sets[0, 0]
            assert abs(u) < 1e-12 or sets[0, 0, t] == (u > 0)


def test_sampling_converges():
    rng = np.random.default_rng(0)
    B, chain = rng.normal(size=(2, 3)), np.tril(rng.normal(size=(3, 3)), -1)
    uniforms = rng.random((40_000, 3))
    exact, q = (
        infer(B, chain, kind, uniforms=uniforms).statistics()
        for kind in ("exhaustive", "monte_carlo")
    )
    sets, _, probability = sample_sets(B, chain, uniforms)
    np.testing.assert_allclose(q.empty, exact.empty, atol=0.015)
    np.testing.assert_allclose(q.joint, exact.joint, atol=0.015)
    p = [chance(B[1], chain, y) for y in sets[1, :5]]
    np.testing.assert_allclose(probability[1, :5], p)


def test_the_models_are_those_of_a_chain():
    X, Y = toy()
    order = [2, 0, 3, 1]
    model = ProbabilisticChain(alpha=0.5, order=order, tol=1e-12).fit(X, Y)
    for t, j in enumerate(order):
        features = np.column_stack([X, Y[:, order[:t]]])
        single = LogisticRegression(C=2.0, tol=1e-10, max_iter=5000).fit(features, Y[:, j])
        np.testing.assert_allclose(model.coef_[t], single.coef_[0, :3], atol=1e-5)
        np.testing.assert_allclose(model.chain_coef_[t, :t], single.coef_[0, 3:], atol=1e-5)
        assert model.intercept_[t] == pytest.approx(single.intercept_[0], abs=1e-5)
        assert not model.chain_coef_[t, t:].any()


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_decodes_are_optimal(order):
    X, Y = toy(n=30)
    sets = np.array(list(product((0, 1), repeat=4)))
    fitted = {
        how: ProbabilisticChain(2.0, inference="exhaustive", decode=how, order=order).fit(X, Y)
        for how in ("fbeta", "subset", "hamming")
    }
    model = fitted["fbeta"]
    B = X @ model.coef_.T + model.intercept_
    joint = np.array([[chance(b, model.chain_coef_, y[model.order_]) for y in sets] for b in B])
    tp, true = sets @ sets.T, sets.sum(axis=1)
    bottom = 4 * true[:, None] + true[None, :]
    F = np.where(bottom == 0, 1.0, 5 * tp / np.maximum(bottom, 1))
    places = {how: sets_of(m.predict(X)) for how, m in fitted.items()}
    row = np.arange(len(X))
    gain = joint @ F
    np.testing.assert_allclose(gain[row, places["fbeta"]], gain.max(axis=1))
    np.testing.assert_allclose(joint[row, places["subset"]], joint.max(axis=1))
    marginals = joint @ sets
    assert np.array_equal(sets[places["hamming"]], marginals > 0.5)
    np.testing.assert_allclose(model.predict_proba(X), marginals)
    np.testing.assert_allclose(model.expected_fbeta(X), gain.max(axis=1))
    hit = gain[row, places["hamming"]]
    np.testing.assert_allclose(fitted["hamming"].expected_fbeta(X), hit)


def sets_of(predicted):
    return predicted @ (2 ** np.arange(predicted.shape[1])[::-1])


@pytest.mark.parametrize("inference", ["exhaustive", "beam", "monte_carlo"])
def test_chunks_do_not_matter(inference, monkeypatch):
    X, Y = toy()
    model = ProbabilisticChain(inference=inference, n_samples=20, random_state=0).fit(X, Y)
    whole, sets = model.predict_statistics(X), model.predict(X)
    monkeypatch.setattr("fbeta.estimators.base.CHUNK_BYTES", 4 * 8 * 16 * 7)
    parts = model.predict_statistics(X)
    assert np.array_equal(parts.cardinalities, whole.cardinalities)
    np.testing.assert_allclose(parts.joint, whole.joint, atol=1e-12)
    assert np.array_equal(model.predict(X), sets)


def test_random_order_and_sampling_follow_the_seed():
    X, Y = toy()
    a, b, c = (
        ProbabilisticChain(order="random", random_state=seed, n_samples=30).fit(X, Y)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(a.order_, b.order_)
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    assert sorted(c.order_) == [0, 1, 2, 3]


def test_odd_data():
    X, Y = toy()
    Y[:, 0], Y[:, 1] = 0, 1
    for inference in ("exhaustive", "beam", "monte_carlo"):
        predicted = ProbabilisticChain(inference=inference, random_state=0).fit(X, Y).predict(X)
        assert not predicted[:, 0].any()
        assert predicted[:, 1].all()
    assert not ProbabilisticChain().fit(X, Y * 0).predict(X).any()
    sparse = ProbabilisticChain(inference="exhaustive", tol=1e-12).fit(sp.csr_array(X), Y)
    dense = ProbabilisticChain(inference="exhaustive", tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(sparse.predict_proba(X), dense.predict_proba(X), atol=1e-5)
    wide, one = toy(n=10, d=30, s=1)
    assert np.array_equal(ProbabilisticChain(alpha=1e-2).fit(wide, one).predict(wide), one)


def test_bad_parameters():
    X, Y = toy()
    with pytest.raises(ValueError, match="permutation"):
        ProbabilisticChain(order=[0, 0, 1, 2]).fit(X, Y)
    with pytest.raises(ValueError, match="order must be one of 'random'"):
        ProbabilisticChain(order="sorted").fit(X, Y)
    with pytest.raises(ValueError, match="at most 20 labels, got 21"):
        ProbabilisticChain(inference="exhaustive").fit(X, np.ones((50, 21), dtype=int))
    for name, value in (("inference", "x"), ("decode", "x"), ("beam_width", 0), ("n_samples", 0)):
        with pytest.raises(ValueError, match=name):
            ProbabilisticChain(**{name: value}).fit(X, Y)
