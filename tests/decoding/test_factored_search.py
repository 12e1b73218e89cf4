"""Statistics of listed labels, against dense statistics and all subsets of the listed labels."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logit

from fbeta import LabelStatistics, decode
from fbeta.decoding.expected import expected_fbeta, expected_measure
from fbeta.decoding.measures import MEASURES

from .. import reference

ALL_MEASURES = ["fbeta", *MEASURES]


def draw(rng, s=6, n=5):
    """Listed marginals with many ties, as a sparse matrix."""
    P = rng.integers(0, 5, size=(n, s)) / 5 if rng.random() < 0.5 else rng.random((n, s))
    P[rng.random((n, s)) < 0.4] = 0
    return sp.csr_array(P)


def best_subset(dense, i, listed, options, **goal):
    """The best set of listed labels of a row, the smaller and the first of those that tie."""
    low, high = min(goal.get("min_labels", 0), len(listed)), goal.get("max_labels", len(listed))
    sizes = range(low, min(high, len(listed)) + 1)
    chosen = [list(own) for size in sizes for own in combinations(listed, size)]
    sets = np.zeros((len(chosen), dense.n_labels), dtype=int)
    for row, own in zip(sets, chosen, strict=True):
        row[own] = 1
    values = expected_measure(dense[np.full(len(sets), i)], sets, **options)
    first = np.argmax(values >= values.max() - 1e-12 * max(1, abs(values.max())))
    return sets[first], values[first]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("measure", ALL_MEASURES)
def test_best_among_the_listed_labels(seed, measure):
    rng = np.random.default_rng(seed)
    P = draw(rng)
    sizes = rng.dirichlet(np.ones(4), size=5) if seed % 2 else None
    listed, dense = (LabelStatistics.from_marginals(a, sizes) for a in (P, P.toarray()))
    beta = float(rng.choice([0.5, 1.0, 2.0]))
    options = {"measure": measure, "beta": beta}
    for goal in ({}, {"max_labels": 2}, {"min_labels": 2}):
        labels, value = decode(listed, **options, **goal, return_expected=True)
        assert (labels.format, labels.dtype) == ("csr", np.int8)
        for i in range(5):
            row, best = best_subset(dense, i, P[[i]].indices, options, **goal)
            np.testing.assert_array_equal(labels[[i]].toarray()[0], row)
            assert value[i] == pytest.approx(best, abs=1e-12)
        np.testing.assert_allclose(expected_measure(listed, labels, **options), value, atol=1e-12)
    given = sp.csr_array(rng.integers(0, 2, size=(5, 6)))
    found, right = (
        expected_measure(q, yhat, **options)
        for q, yhat in ((listed, given), (dense, given.toarray()))
    )
    np.testing.assert_allclose(found, right, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_labels_that_are_not_listed_share_a_mass(seed):
    rng = np.random.default_rng(seed)
    P = draw(rng)
    count = 6 - np.diff(P.indptr)
    mass = rng.random(5) * 0.1 * count
    full = P.toarray()
    full[full == 0] = np.repeat(mass / np.maximum(count, 1), count)
    q = LabelStatistics.from_marginals(P, unlisted=mass)
    dense = LabelStatistics.from_marginals(full)
    labels, value = decode(q, return_expected=True)
    np.testing.assert_allclose(q.empty, dense.empty, rtol=1e-12)
    sets = np.array(reference.label_sets(6))
    p = np.where(sets > 0, full[:, None], 1 - full[:, None]).prod(axis=2)
    law, right = q.cardinality_distribution(), p @ (sets.sum(axis=1)[:, None] == np.arange(7))
    np.testing.assert_allclose(np.pad(law, ((0, 0), (0, 7 - law.shape[1]))), right, atol=1e-12)
    np.testing.assert_allclose(expected_fbeta(dense, labels.toarray()), value, atol=1e-12)
    np.testing.assert_allclose(expected_fbeta(q, labels), value, atol=1e-12)
    assert q.cardinalities[-1] <= 6
    for i in range(5):
        row, best = best_subset(dense, i, P[[i]].indices, {})
        assert value[i] == pytest.approx(best, abs=1e-12)
        np.testing.assert_array_equal(labels[[i]].toarray()[0], row)


def law_of_all_labels(P, sizes, mass):
    """Sets and their probabilities: listed labels given their number, and independent others."""
    listed, s = np.flatnonzero(P), len(P)
    share = mass / max(s - len(listed), 1)
    odds = np.where(P > 0, P / (1 - P), 0)
    sets = np.array(reference.label_sets(s))
    number = sets[:, listed].sum(axis=1)
    weight = np.where(sets[:, listed] > 0, odds[listed], 1.0).prod(axis=1)
    others = sets.sum(axis=1) - number
    rest = share**others * (1 - share) ** (s - len(listed) - others)
    totals = np.bincount(number, weight * rest, minlength=s + 1)
    return sets, np.pad(sizes, (0, s + 1 - len(sizes)))[number] * weight * rest / totals[number]


@pytest.mark.parametrize("seed", range(12))
def test_sizes_of_listed_labels_and_a_mass_of_the_others(seed):
    rng = np.random.default_rng(seed)
    P = rng.random(6) * (rng.random(6) < 0.6)
    listed = np.flatnonzero(P)
    sizes = rng.dirichlet(np.ones(rng.integers(0, len(listed) + 1) + 1))
    mass, beta = rng.random() * (6 - len(listed)), float(rng.choice([0.5, 1.0, 2.0]))
    sets, p = law_of_all_labels(P, sizes, mass)
    q = LabelStatistics.from_marginals(sp.csr_array(P[None]), sizes[None], mass)
    labels, value = decode(q, beta, return_expected=True)
    allowed = sets[~sets[:, P == 0].any(axis=1)]
    best = max(reference.expected_fbeta(p, sets, yhat, beta) for yhat in allowed)
    own = reference.expected_fbeta(p, sets, labels.toarray()[0], beta)
    np.testing.assert_allclose([value[0], own], best, atol=1e-12)
    np.testing.assert_allclose(expected_fbeta(q, labels, beta), best, atol=1e-12)
    np.testing.assert_allclose(q.marginals().toarray()[0], (p @ sets) * (P > 0), atol=1e-12)
    np.testing.assert_allclose(q.empty, p[0], atol=1e-12)
    law = q.cardinality_distribution()[0]
    right = np.bincount(sets.sum(axis=1), p)
    np.testing.assert_allclose(np.pad(law, (0, len(right) - len(law))), right, atol=1e-12)


def test_lists_of_fixed_length():
    q = LabelStatistics.from_listed([[7, 2, -1], [0, 1, 2]], [[0.9, 0.2, 0], [0.5] * 3], 10**6)
    assert len(q) == 2
    labels, value = decode(q, return_expected=True)
    assert labels.shape == (2, 10**6)
    assert labels[[0]].indices.tolist() == [7]
    assert labels[[1]].indices.tolist() == [0, 1, 2]
    short = LabelStatistics.from_marginals([[0.9, 0.2, 0.0], [0.5] * 3])
    np.testing.assert_allclose(value, decode(short, return_expected=True)[1], rtol=1e-12)
    joined = LabelStatistics.concatenate([q[:1], q[1:]])
    assert (decode(joined) != labels).nnz == 0
    np.testing.assert_allclose(q.cardinality_distribution().sum(axis=1), 1)


def test_sizes_of_rows_that_list_nothing_are_those_of_the_others():
    q = LabelStatistics.from_marginals(sp.csr_array((1, 3)), unlisted=1.5)
    np.testing.assert_allclose(q.cardinality_distribution(), [[1 / 8, 3 / 8, 3 / 8, 1 / 8]])
    one = LabelStatistics.from_listed([[0, 1]], [[0.5, 0.5]], 10, unlisted=3.0)
    np.testing.assert_allclose(one.cardinality_distribution().sum(), 1)


def test_rows_without_listed_labels():
    q = LabelStatistics.from_marginals(sp.csr_array((3, 50)))
    labels, value = decode(q, return_expected=True)
    assert (labels.nnz, value.tolist()) == (0, [1, 1, 1])
    assert decode(q[:0]).shape == (0, 50)


def test_log_odds_and_names_of_listed_labels():
    rng = np.random.default_rng(3)
    for _ in range(20):
        P = draw(rng)
        Z = sp.csr_array((logit(P.data), P.indices, P.indptr), shape=P.shape)
        sizes = rng.dirichlet(np.ones(3), size=P.shape[0]) if rng.random() < 0.5 else None
        unlisted = 0.3 * (np.diff(P.indptr) < P.shape[1])
        one = LabelStatistics.from_marginals(P, sizes, unlisted)
        other = LabelStatistics.from_logits(Z, sizes, unlisted)
        (labels, value), names = decode(one, return_expected=True), list("abcdef")[: P.shape[1]]
        np.testing.assert_allclose(decode(other, return_expected=True)[1], value, atol=1e-12)
        np.testing.assert_allclose(
            other.marginals().toarray(), one.marginals().toarray(), atol=1e-12
        )
        sets = [[names[j] for j in np.flatnonzero(row)] for row in labels.toarray()]
        assert decode(one, names=names) == sets


def test_what_listed_labels_refuse():
    P = sp.csr_array([[0.5, 0.0], [0.1, 0.2]])
    q = LabelStatistics.from_marginals(P)
    for match, work in {
        "not unfolded": lambda: q.joint,
        "cannot be averaged": lambda: LabelStatistics.mixture([q, q]),
    }.items():
        with pytest.raises(TypeError, match=match):
            work()
    for match, work in {
        "probabilities": lambda: LabelStatistics.from_marginals(P * 3),
        "unlisted must lie": lambda: LabelStatistics.from_marginals(P, unlisted=5.0),
        "unlisted is for sparse": lambda: LabelStatistics.from_marginals([[0.5]], unlisted=0.1),
        "sizes must have shape": lambda: LabelStatistics.from_marginals(P, [[1.0]]),
        "below n_labels": lambda: LabelStatistics.from_listed([[3]], [[0.1]], 2),
        "one shape": lambda: LabelStatistics.from_listed([[3]], [[0.1, 0.2]], 5),
        "twice": lambda: LabelStatistics.from_listed([[3, 3]], [[0.1, 0.2]], 5),
        "integers, got float64": lambda: LabelStatistics.from_listed([[1.5]], [[0.1]], 5),
        "integers, got <U1": lambda: LabelStatistics.from_listed([["3"]], [[0.1]], 5),
        "integers, got object": lambda: LabelStatistics.from_listed([[None]], [[0.1]], 5),
        "indices is a masked": lambda: LabelStatistics.from_listed(
            np.ma.array([[1, 2]], mask=[[0, 1]]), [[0.1, 0.2]], 5
        ),
        "NaN": lambda: LabelStatistics.from_logits(P * np.nan),
        "2 labels": lambda: decode(q, names=["sea"]),
        "only 0 and 1": lambda: expected_fbeta(q, P),
        "labels must have shape": lambda: expected_fbeta(q, sp.csr_array((2, 3))),
    }.items():
        with pytest.raises(ValueError, match=match):
            work()


def test_reference_agrees_for_independent_labels():
    P = sp.csr_array([[0.6, 0.0, 0.3, 0.0]])
    sets = reference.label_sets(4)
    law = reference.product_law(P.toarray()[0], sets)
    value = decode(LabelStatistics.from_marginals(P), 2.0, return_expected=True)[1][0]
    assert value == pytest.approx(max(reference.expected_fbeta(law, sets, y, 2.0) for y in sets))
