"""Codes against their definitions, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics
from fbeta.statistics.codes import Estimates, JointCode, MarginalCode

labels = st.tuples(st.integers(1, 7), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1))
)


@given(labels)
def test_joint_code(Y):
    indicator = sp.csr_array(Y)
    code = JointCode.of(indicator)
    targets = code.targets(indicator)
    assert targets.shape == (len(Y), code.width())
    estimates = Estimates(code, targets.toarray().astype(float))
    assert np.allclose(estimates.marginals(), Y)
    assert np.array_equal(estimates.statistics().to_code(), targets.toarray())
    assert JointCode.of(indicator, "all").cardinalities.tolist() == [*range(1, Y.shape[1] + 1)]


def test_marginals_stay_below_one():
    code = JointCode(np.array([1, 2]), 2)
    assert code.marginals(np.array([[0.0, 0.7, 0.1, 0.6, 0.1]])).max() < 1
    assert MarginalCode.of(sp.csr_array([[1]])).marginals(np.array([[1.0]])).max() == 1


def test_names():
    joint = JointCode(np.array([1, 3]), 2)
    names = ["no labels", "size 1 with label a", "size 1 with label b", "size 3 with label a"]
    assert [joint.name(c, "ab") for c in range(4)] == names
    assert joint.name(4) == "size 3 with label 1"
    marginal = MarginalCode.of(sp.csr_array(np.eye(2, dtype=np.int8)))
    assert (marginal.name(1, "ab"), marginal.name(1)) == ("label b", "label 1")


def test_concatenate():
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (9, 4))
    Y[:3] = np.eye(4, dtype=int)[:3]
    whole = LabelStatistics.from_labels(Y)
    parts = [LabelStatistics.from_labels(Y[rows]) for rows in (slice(3), slice(3, 5), slice(5, 9))]
    joined = LabelStatistics.concatenate(parts)
    assert np.array_equal(joined.cardinalities, whole.cardinalities)
    assert np.array_equal(joined.joint, whole.joint)
    assert np.array_equal(joined.empty, whole.empty)


def test_codes_cannot_be_changed():
    with pytest.raises(AttributeError):
        JointCode(np.array([1]), 2).n_labels = 3
