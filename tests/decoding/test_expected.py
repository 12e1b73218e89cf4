"""Rules: what they choose, and what they expect of it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta import decode
from fbeta.decoding.exact import exact_decode
from fbeta.decoding.expected import ScoreThresholds, cut_at_half, expected_fbeta
from fbeta.statistics.codes import Estimates, MarginalCode

P = np.random.default_rng(0).uniform(size=(30, 4))
ESTIMATES = Estimates(MarginalCode.of(sp.csr_array(np.ones((1, 4), dtype=np.int8))), P)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_rules_of_statistics(beta):
    q = ESTIMATES.statistics()
    best, value = decode(q, beta, return_expected=True)
    labels, expected = exact_decode(ESTIMATES, beta, return_expected=True)
    assert np.array_equal(labels, best)
    assert np.array_equal(expected, value)
    half = cut_at_half(ESTIMATES, beta)
    assert np.array_equal(half, P > 0.5)
    assert half.dtype == best.astype(bool).dtype
    assert (expected_fbeta(q, half, beta) <= value + 1e-12).all()


def test_rules_of_one_beta():
    assert ScoreThresholds(2.0)(np.array([[0.0, 1.0]]), 2.0).tolist() == [[False, True]]
    with pytest.raises(ValueError, match="fitted for beta=2 and depends on it"):
        ScoreThresholds(2.0)(np.array([[0.0, 1.0]]), 1.0)
