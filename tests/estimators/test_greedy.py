"""Greedy selection against a plain loop over dense averages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fbeta import LabelStatistics, decode, fbeta_score
from fbeta.estimators.greedy import greedy_counts


def random_parts(rng, n=12, s=4, members=4):
    """Statistics of several forms and cardinalities, and labels."""
    parts = []
    for m in range(members):
        P = rng.uniform(size=(n, s))
        sizes = rng.dirichlet(np.ones(s), size=n) if m % 2 else None
        parts.append(LabelStatistics.from_marginals(P, sizes))
    parts[0] = LabelStatistics.from_labels((rng.uniform(size=(n, s)) < 0.4).astype(int))
    return parts, (rng.uniform(size=(n, s)) < 0.4).astype(int)


def dense(part, s):
    """Every number over all sizes, of shape (n, 1 + s s)."""
    joint = np.zeros((len(part), s, s))
    joint[:, np.asarray(part.cardinalities) - 1] = part.joint
    return np.column_stack([part.empty, joint.reshape(len(part), -1)])


def plain_loop(parts, Y, gain, most):
    s = Y.shape[1]
    codes = [dense(part, s) for part in parts]
    members, best = [], -np.inf
    while len(members) < most:
        scores = []
        for i in range(len(parts)):
            mean = np.mean([codes[j] for j in [*members, i]], axis=0)
            labels = decode(LabelStatistics.from_code(mean, np.arange(1, s + 1), s))
            scores.append(fbeta_score(Y, labels))
        i = int(np.argmax(scores))
        if scores[i] < best + gain:
            break
        members, best = [*members, i], scores[i]
    return np.bincount(members, minlength=len(parts)), best


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 0.02]))
def test_greedy_selection_is_the_plain_loop(seed, gain):
    parts, Y = random_parts(np.random.default_rng(seed))
    counts, value = greedy_counts(parts, lambda q: fbeta_score(Y, decode(q)), gain=gain, most=6)
    plain, best = plain_loop(parts, Y, gain, 6)
    assert counts.tolist() == plain.tolist()
    assert value == pytest.approx(best, abs=1e-12)
    singles = [fbeta_score(Y, decode(part)) for part in parts]
    assert value >= max(singles)


def test_one_member_and_equal_members():
    parts, Y = random_parts(np.random.default_rng(0), members=1)
    counts, value = greedy_counts(parts, lambda q: fbeta_score(Y, decode(q)))
    assert counts.tolist() == [1]
    assert value == fbeta_score(Y, decode(parts[0]))
    # the first of those that tie
    counts, _ = greedy_counts([parts[0], parts[0]], lambda q: fbeta_score(Y, decode(q)))
    assert counts.tolist() == [1, 0]
