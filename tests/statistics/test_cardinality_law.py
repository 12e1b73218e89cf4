"""The law of labels with scores and of their number, against all label sets in high precision."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta import LabelStatistics, decode
from fbeta.linear.cardinality import Cardinality
from fbeta.statistics.cardinality_law import expected_labels, law_of_sizes, log_likelihood

from ..cases import slow_but

# scores whose differences range from nothing to far more than an exponential can hold
SCALES = [1.0, 50.0, 1e3, 1e6, 1e30]


def enumerate_law(scores, potentials, sizes):
    """ln P of all label sets of the sizes as decimals, with their labels."""
    sets = [y for y in product((0, 1), repeat=len(scores)) if sum(y) in sizes]
    with localcontext() as context:
        context.prec = 60
        z, v = ([Decimal(float(x)) for x in part] for part in (scores, potentials))
        logs = [
            sum((x for x, on in zip(z, y, strict=True) if on), v[sizes.index(sum(y))]) for y in sets
        ]
        top = max(logs)
        total = top + sum((x - top).exp() for x in logs if x - top > -2000).ln()
        return sets, [x - total for x in logs]


def draw(rng, n_labels=4):
    """Scores and potentials of sizes, often equal, of mixed scales."""
    sizes = sorted(rng.choice(n_labels + 1, int(rng.integers(1, n_labels + 2)), replace=False))
    values = rng.normal(size=n_labels + len(sizes)) * rng.choice(SCALES, size=n_labels + len(sizes))
    values = np.where(rng.random(len(values)) < 0.3, rng.choice(values), values)
    if rng.random() < 0.3:  # potentials that make up for the scores: several sizes are likely
        order = np.sort(values[:n_labels])[::-1]
        values[n_labels:] = [-order[:k].sum() for k in sizes]
    return values[:n_labels], values[n_labels:], [int(k) for k in sizes]


def spread(potentials, sizes):
    out = np.full((max(sizes) + 1, 1), -np.inf)
    out[sizes, 0] = potentials
    return out


@pytest.mark.parametrize("seed", slow_but(range(30), range(150)))
def test_law_and_likelihood_at_any_scores(seed):
    rng = np.random.default_rng(seed)
    scores, potentials, sizes = draw(rng)
    sets, logs = enumerate_law(scores, potentials, sizes)
    p = np.array([float(x.exp()) if x > -700 else 0.0 for x in logs])
    order = np.argsort(-scores, kind="stable")
    u = scores[order][:, None]
    law = law_of_sizes(np, u, spread(potentials, sizes))
    exact = [sum(q for q, y in zip(p, sets, strict=True) if sum(y) == k) for k in sizes]
    np.testing.assert_allclose(law.probabilities(np)[sizes, 0], exact, rtol=1e-10, atol=1e-290)
    marginals = (p[:, None] * np.array(sets)).sum(axis=0)
    found = expected_labels(np, u, law)[:, 0]
    np.testing.assert_allclose(found, marginals[order], rtol=1e-10, atol=1e-290)
    for y, log in zip(sets, logs, strict=True):
        observed = np.array(y, dtype=float)[order][:, None]
        value = log_likelihood(np, u, observed, law)[0]
        np.testing.assert_allclose(value, float(log), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("seed", slow_but(range(30), range(100)))
def test_decode_from_logits_at_any_scores(seed):
    """The best set and its value, where rounded marginals would not tell labels apart."""
    rng = np.random.default_rng(seed)
    scores, potentials, sizes = draw(rng)
    sets, logs = enumerate_law(scores, potentials, sizes)
    p = np.array([float(x.exp()) if x > -700 else 0.0 for x in logs])
    exact = LabelStatistics.from_distribution(p[None, :], np.array(sets))
    law = np.zeros((1, max(sizes) + 1))
    law[0, sizes] = [sum(q for q, y in zip(p, sets, strict=True) if sum(y) == k) for k in sizes]
    q = LabelStatistics.from_logits(scores[None, :], law)
    np.testing.assert_allclose(q.marginals(), exact.marginals(), rtol=1e-12, atol=1e-300)
    s = len(scores)
    row = sp.csr_array((scores, np.arange(s), [0, s]), shape=(1, s))  # a list of all labels
    lists = LabelStatistics.from_logits(row, law)
    np.testing.assert_array_equal(lists.marginals().toarray(), q.marginals())
    for beta in (0.5, 1.0, 2.0):
        labels, value = decode(q, beta, return_expected=True)
        best, highest = decode(exact, beta, return_expected=True)
        np.testing.assert_allclose(value, highest, rtol=1e-12)
        np.testing.assert_array_equal(labels, best)
        np.testing.assert_array_equal(decode(lists, beta).toarray(), best)


@pytest.mark.parametrize("seed", slow_but(range(20), range(60)))
def test_gradients_of_the_solver_at_any_scores(seed):
    rng = np.random.default_rng(seed)
    scores, potentials, sizes = draw(rng)
    sets, logs = enumerate_law(scores, potentials, sizes)
    p = np.array([float(x.exp()) if x > -700 else 0.0 for x in logs])
    objective = Cardinality(len(scores), np.array(sizes))
    u = np.concatenate([scores, potentials])[None, :]
    _, gradient, _ = objective.evaluate(np.zeros_like(u), u, None)
    expected = [sum(q for q, y in zip(p, sets, strict=True) if sum(y) == k) for k in sizes]
    marginals = (p[:, None] * np.array(sets)).sum(axis=0)
    exact = np.concatenate([marginals, expected])
    np.testing.assert_allclose(gradient[0], exact, rtol=1e-9, atol=1e-12)


def test_a_row_far_from_the_data():
    """One sentinel in a row: the third label is out, however large the other two are."""
    law = Cardinality(3, np.array([1, 2, 3])).probabilities(
        np.array([[1252.0, 780.0, -749.0, 0.0, 0.0, 0.0]])
    )
    q = LabelStatistics.from_logits(law[:, :3], np.concatenate([[[0.0]], law[:, 3:]], axis=1))
    assert decode(q).tolist() == [[1, 1, 0]]
    assert q.marginals().tolist() == [[1.0, 1.0, 0.0]]


@pytest.mark.parametrize("listed", [False, True])
def test_labels_that_are_always_there_tie(listed):
    """Infinite log-odds are equal: limits on the number of labels hold, the first labels win."""
    Z = np.array([[0.0, np.inf, np.inf, np.inf, -np.inf]])
    given = sp.csr_array((Z[0], np.arange(5), [0, 5]), shape=(1, 5)) if listed else Z
    q = LabelStatistics.from_logits(given, sizes=[[0.0, 0.0, 0.0, 1.0]])
    assert decode(q, max_labels=2, names="abcde") == [["b", "c"]]
    assert decode(q, names="abcde") == [["b", "c", "d"]]
