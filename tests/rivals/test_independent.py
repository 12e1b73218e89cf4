"""The fast decoder of independent labels against all sets and against the general decoder."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics, decode
from fbeta.rivals.independent import _small_ratio, decode_independent, expected_of_prefixes

RATIONAL = [0.5, 1.0, 2.0, np.sqrt(2), np.sqrt(2 / 3), 3.0]
marginals = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
)


def expected(p, yhat, beta):
    """Sum over all outcomes, with no use of independence but the product of probabilities."""
    total = 0.0
    for y in product((0, 1), repeat=len(p)):
        chance = np.prod([q if on else 1 - q for q, on in zip(p, y, strict=True)])
        bottom = beta**2 * sum(y) + sum(yhat)
        both = sum(a * b for a, b in zip(y, yhat, strict=True))
        total += chance * (1.0 if bottom == 0 else (1 + beta**2) * both / bottom)
    return total


@settings(max_examples=60, deadline=None)
@given(marginals, st.sampled_from([*RATIONAL, 1.2345]))
def test_no_set_is_better(P, beta):
    for p, yhat in zip(P, decode_independent(P, beta), strict=True):
        best = max(expected(p, y, beta) for y in product((0, 1), repeat=len(p)))
        assert expected(p, yhat, beta) == pytest.approx(best, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (5, 9), elements=st.floats(0, 1, width=16)), st.sampled_from(RATIONAL))
def test_agrees_with_the_general_decoder(P, beta):
    """Not only in value: ties go the same way, up to sums that rounding makes unequal."""
    statistics = LabelStatistics.from_marginals(P)
    fast, (slow, value) = (
        decode_independent(P, beta),
        decode(statistics, beta, return_expected=True),
    )
    for i in np.flatnonzero((fast != slow).any(axis=1)):
        weight = (1 + beta**2) / (beta**2 * statistics.cardinalities + max(fast[i].sum(), 1))
        own = (weight @ statistics.joint[i] @ fast[i]) if fast[i].any() else statistics.empty[i]
        assert own == pytest.approx(value[i], rel=1e-10)


def test_many_labels_and_several_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    P = rng.beta(0.3, 2.0, size=(40, 60))
    monkeypatch.setattr("fbeta.rivals.independent.MEMORY", 8 * 61**2 * 7)
    assert np.array_equal(decode_independent(P), decode(LabelStatistics.from_marginals(P)))


def test_values_of_prefixes():
    p = np.array([0.8, 0.5, 0.3])
    values = expected_of_prefixes(p[None], 4, 1)[0]
    sets = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)]
    assert values == pytest.approx([expected(p, y, 2.0) for y in sets])


def test_ratios():
    assert _small_ratio(1.0) == (1, 1)
    assert _small_ratio(0.25) == (1, 4)
    assert _small_ratio(np.sqrt(2 / 3) ** 2) == (2, 3)
    assert _small_ratio(1.2345**2) is None
    assert _small_ratio(1e-9) is None
    assert _small_ratio(1e9) is None


@pytest.mark.parametrize("P", [[[0.5, 1.5]], [[np.nan]], [0.5], np.zeros((2, 0))])
def test_bad_marginals(P):
    with pytest.raises(ValueError, match="P must"):
        decode_independent(P)
