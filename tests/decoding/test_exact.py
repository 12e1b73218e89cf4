from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics, decode
from fbeta.statistics.label_statistics import LabelStatistics as Statistics

from .. import reference
from ..cases import slow

BETAS = (0.3, 0.5, 1.0, 2.0, 5.0)


def check_against_brute_force(statistics, beta):
    labels, expected = decode(statistics, beta, return_expected=True)
    for i in range(len(statistics)):
        arguments = statistics.empty[i], statistics.joint[i], statistics.cardinalities
        value = reference.value_of(*arguments, labels[i], beta)
        assert value == pytest.approx(expected[i], rel=1e-12, abs=1e-300)
        assert value == pytest.approx(reference.best_value(*arguments, beta), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("s", [1, 2, 3, 4, slow(5), slow(6)])
def test_equals_brute_force_on_true_distributions(s, beta):
    rng = np.random.default_rng(s)
    sets = np.array(reference.label_sets(s))
    for concentration in (0.02, 0.1, 1.0):
        p = rng.dirichlet(np.full(len(sets), concentration), size=15)
        q = Statistics.from_distribution(p, sets)
        check_against_brute_force(q, beta)
        expected = decode(q, beta, return_expected=True)[1]
        direct = [max(reference.expected_fbeta(row, sets, y, beta) for y in sets) for row in p[:5]]
        assert np.allclose(expected[:5], direct)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("s", [1, 2, 3, 4, 5, slow(6)])
def test_equals_brute_force_on_arbitrary_numbers(s, beta):
    rng = np.random.default_rng(100 + s)
    for _ in range(6):
        K = rng.integers(1, s + 1)
        sizes = np.sort(rng.choice(np.arange(1, s + 1), K, replace=False))
        joint = rng.exponential(size=(20, K, s)) * (rng.uniform(size=(20, K, s)) < 0.6)
        empty = rng.exponential(size=20) * rng.integers(0, 2, 20) * s
        check_against_brute_force(
            Statistics(empty, joint * 10.0 ** rng.integers(-8, 3), sizes), beta
        )


@st.composite
def statistics(draw):
    s = draw(st.integers(1, 5))
    sizes = np.array(sorted(draw(st.sets(st.integers(1, s), min_size=1))))
    numbers = st.one_of(st.just(0.0), st.floats(0, 1), st.floats(0, 1e6))
    joint = draw(arrays(float, (1, len(sizes), s), elements=numbers))
    empty = draw(arrays(float, 1, elements=numbers))
    return Statistics(empty, joint, sizes)


@given(statistics(), st.floats(0.05, 20))
@settings(max_examples=300, deadline=None)
def test_equals_brute_force_property(q, beta):
    check_against_brute_force(q, beta)


@given(
    st.integers(1, 4).flatmap(
        lambda s: st.tuples(st.just(s), st.lists(st.integers(0, 3), min_size=2**s, max_size=2**s))
    )
)
@settings(max_examples=200, deadline=None)
def test_ties_go_to_the_smaller_set(case):
    """With small integer weights exact ties are common; they are found in exact arithmetic."""
    s, weights = case
    total = sum(weights)
    if total == 0:
        return
    sets = reference.label_sets(s)
    p = [Fraction(w, total) for w in weights]
    q = Statistics.from_distribution(np.array([p], dtype=float), np.array(sets))
    exact = {
        y: sum(
            v
            * (
                1
                if not any(t) and not any(y)
                else Fraction(
                    2 * sum(a & b for a, b in zip(t, y, strict=True)), max(sum(t) + sum(y), 1)
                )
            )
            for v, t in zip(p, sets, strict=True)
        )
        for y in sets
    }
    top = max(exact.values())
    smallest = min(sum(y) for y, v in exact.items() if v == top)
    labels = decode(q, 1.0)[0]
    assert labels.sum() == smallest
    assert exact[tuple(int(v) for v in labels)] == top


@given(statistics(), st.floats(0.1, 5), st.randoms())
@settings(max_examples=100, deadline=None)
def test_permuting_labels_permutes_predictions(q, beta, random):
    order = list(range(q.n_labels))
    random.shuffle(order)
    permuted = Statistics(q.empty, q.joint[:, :, order], q.cardinalities)
    one = decode(q, beta, return_expected=True)[1]
    other = decode(permuted, beta, return_expected=True)[1]
    assert np.allclose(one, other, rtol=1e-12)


def test_sizes_that_were_never_seen_are_predicted():
    q = LabelStatistics.from_distribution(np.full((1, 3), 1 / 3), np.eye(3))
    assert decode(q)[0].tolist() == [1, 1, 1]


def test_large_beta_takes_all_and_small_beta_few():
    q = LabelStatistics.from_marginals([[0.9] + [0.3] * 7])
    assert decode(q, 50.0).sum() == 8
    assert decode(q, 0.02)[0].tolist() == [1] + [0] * 7


def test_many_labels_against_the_unbounded_loop():
    """The stopping bound and the partial sort leave nothing out: compare with every size."""
    rng = np.random.default_rng(7)
    s, sizes = 120, np.array([1, 3, 10, 40])
    joint = rng.gamma(0.1, size=(30, len(sizes), s)) * rng.uniform(size=(30, len(sizes), 1))
    q = Statistics(rng.uniform(size=30) * 0.1, joint, sizes)
    for beta in (0.5, 1.0, 3.0):
        labels, expected = decode(q, beta, return_expected=True)
        for i in range(30):
            best = q.empty[i]
            for size in range(1, s + 1):
                T = sum(
                    (1 + beta**2) * joint[i, k] / (beta**2 * c + size) for k, c in enumerate(sizes)
                )
                best = max(best, np.sort(T)[-size:].sum())
            assert expected[i] == pytest.approx(best, rel=1e-12)
            value = reference.value_of(q.empty[i], joint[i], sizes, labels[i], beta)
            assert value == pytest.approx(best, rel=1e-12)


def test_chunks_do_not_change_the_result(monkeypatch):
    q = LabelStatistics.from_marginals(np.random.default_rng(0).uniform(size=(50, 9)))
    q = Statistics(q.empty, q.joint, q.cardinalities)
    whole = decode(q, return_expected=True)
    monkeypatch.setattr("fbeta._threads.CHUNK_ELEMENTS", 1)
    parts = decode(q, return_expected=True)
    assert np.array_equal(whole[0], parts[0])
    assert np.allclose(whole[1], parts[1], rtol=1e-14)


def test_single_precision_and_no_rows():
    q = LabelStatistics.from_marginals(np.random.default_rng(0).uniform(size=(5, 3)))
    single = Statistics(q.empty.astype(np.float32), q.joint.astype(np.float32), q.cardinalities)
    assert np.array_equal(decode(single), decode(q))
    assert decode(q[:0]).shape == (0, 3)
    nothing = Statistics(np.ones(2), np.zeros((2, 0, 3)), np.array([], dtype=int))
    assert decode(nothing).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("beta", [0, -1, np.nan, np.inf])
def test_bad_beta(beta):
    q = LabelStatistics.from_marginals([[0.5]])
    with pytest.raises(ValueError, match="beta"):
        decode(q, beta)
    with pytest.raises(TypeError, match="beta"):
        decode(q, "1")


def test_equal_labels_go_to_the_first():
    """A product of matrices rounds columns by where they are, and must not decide."""
    column = np.array([0.75, 0.75, 0.1, 0.3])
    for s in range(4, 20):
        joint = np.broadcast_to(column[:, None], (4, s)) / s
        q = LabelStatistics(np.zeros(1), joint[None], (1, 2, 3, 4))
        for beta in (0.3, 1.0, 2.0):
            labels = decode(q, beta, max_labels=s - 1)[0]
            assert (np.diff(labels) <= 0).all()
