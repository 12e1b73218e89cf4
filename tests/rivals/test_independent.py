"""The decoder of independent labels against all sets, as users call it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics, decode
from fbeta.rivals import decode_independent
from fbeta.statistics.label_statistics import LabelStatistics as Statistics

BETAS = [0.5, 1.0, 2.0, np.sqrt(2), 1.2345]
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
@given(marginals, st.sampled_from(BETAS))
def test_no_set_is_better(P, beta):
    for p, yhat in zip(P, decode_independent(P, beta), strict=True):
        best = max(expected(p, y, beta) for y in product((0, 1), repeat=len(p)))
        assert expected(p, yhat, beta) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_agrees_with_the_general_decoder(beta):
    P = np.random.default_rng(0).beta(0.3, 2.0, size=(40, 60))
    q = LabelStatistics.from_marginals(P)
    dense = Statistics(q.empty, q.joint, q.cardinalities)
    assert np.array_equal(decode_independent(P, beta), decode(dense, beta))


@pytest.mark.parametrize("P", [[[0.5, 1.5]], [[np.nan]], [0.5], np.zeros((2, 0))])
def test_bad_marginals(P):
    with pytest.raises(ValueError, match="P must"):
        decode_independent(P)
