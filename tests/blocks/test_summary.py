"""The first pass: label counts add up, and rows are held by their probabilities."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fbeta.blocks.summary import CheckedRows, Summary, Tally
from fbeta.statistics.codes import JointCode, MarginalCode

from .toys import make_rows


@given(
    Y=st.integers(1, 4).flatmap(
        lambda s: st.lists(st.lists(st.integers(0, 1), min_size=s, max_size=s), min_size=1)
    ),
    cut=st.integers(0, 20),
)
@settings(max_examples=60, deadline=None)
def test_tallies_add_up_to_the_sums_of_targets(Y, cut):
    dense = np.array(Y)
    Y, ids = sp.csr_array(dense.astype(np.int8)), np.arange(len(Y), dtype=np.uint64)
    cut = min(cut, len(ids))
    parts = [slice(0, cut), slice(cut, None)]
    first, second = (CheckedRows(dense[p], Y[p], None, ids[p]) for p in parts)
    tally = Tally.of(first) + Tally.of(second)
    for code in (JointCode.of(Y), JointCode.of(Y, "all"), MarginalCode.of(Y)):
        targets = code.targets(Y).toarray()
        np.testing.assert_array_equal(
            code.column_sums(tally.sizes, tally.counts), targets.sum(axis=0)
        )
        keys = code.column_sums(tally.sizes, tally.keys[:, 0])
        equal = (targets[:, :, None] == targets[:, None, :]).all(axis=0)
        np.testing.assert_array_equal(keys[:, None] == keys[None, :], equal)
    joint = JointCode.of(Y).targets(Y).toarray()
    rarest = np.where(joint > 0, joint.sum(axis=0), len(ids) + 1).min(axis=1)
    np.testing.assert_array_equal(tally.rarest(Y, by_size=True), rarest)


def test_rows_held_stand_for_all():
    """Each row is held with the probability that it is said to have."""
    X, Y = make_rows(6000, 2, 3)
    Y, hits, chances = sp.csr_array(Y), np.zeros(6000), np.zeros(6000)
    for draw in range(40):
        ids = np.arange(6000, dtype=np.uint64) + np.uint64(10_000 * draw)
        summary = None
        for at in range(0, 6000, 500):
            own = CheckedRows(X[at : at + 500], Y[at : at + 500], None, ids[at : at + 500])
            found = Summary.of(own, 400, by_size=True)
            summary = found if summary is None else summary + found
        rows = summary.rows()
        chances = summary.chance(Y)
        hits[(rows.ids - ids[0]).astype(int)] += 1
        assert len(rows) <= 1.3 * 400
    assert not summary.complete
    for low, high in ((0, 0.1), (0.1, 0.5), (0.5, 1.0)):
        own = (chances > low) & (chances <= high)
        expected = 40 * chances[own].sum()
        spread = np.sqrt(40 * (chances * (1 - chances))[own].sum())
        assert abs(hits[own].sum() - expected) <= 5 * spread + 1e-9
