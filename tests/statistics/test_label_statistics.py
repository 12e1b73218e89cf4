from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics
from fbeta.statistics import encode, encode_labels, observed_cardinalities

from .. import reference


def indicators(max_labels=5):
    return st.tuples(st.integers(1, 8), st.integers(1, max_labels)).flatmap(
        lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1))
    )


@given(indicators(), st.sampled_from(["seen", "all"]))
def test_encode_is_the_definition(Y, which):
    sparse = sp.csr_array(Y)
    sizes = observed_cardinalities(sparse, which)
    expected = [
        [sum(y) == 0] + [sum(y) == k and y[j] for k in sizes for j in range(Y.shape[1])] for y in Y
    ]
    assert np.array_equal(encode(sparse, sizes).toarray(), np.array(expected, dtype=np.int8))


@given(indicators(), st.sampled_from(["seen", "all"]))
def test_encode_labels_is_the_same_as_an_array(Y, which):
    sizes = observed_cardinalities(sp.csr_array(Y), which)
    code, cardinalities, s = encode_labels(Y, sizes if which == "all" else None)
    assert np.array_equal(code, encode(sp.csr_array(Y), sizes).toarray())
    assert np.array_equal(cardinalities, sizes)
    assert s == Y.shape[1]


def test_encode_leaves_out_sizes_that_are_not_asked_for():
    Y = sp.csr_array(np.array([[1, 1], [1, 0]], np.int8))
    assert encode(Y, np.array([2])).toarray().tolist() == [[0, 1, 1], [0, 0, 0]]


@st.composite
def distributions(draw):
    s = draw(st.integers(1, 5))
    sets = reference.label_sets(s)
    raw = draw(arrays(float, len(sets), elements=st.floats(0, 1)))
    total = raw.sum()
    return sets, raw / total if total > 0 else np.full(len(sets), 1 / len(sets))


@given(distributions())
def test_from_distribution_and_what_true_statistics_satisfy(law):
    sets, p = law
    q = LabelStatistics.from_distribution(p[None], np.array(sets))
    empty, joint = reference.statistics_of(p, sets)
    full = np.zeros_like(joint)
    full[q.cardinalities - 1] = q.joint[0]
    assert np.allclose(full, joint)
    assert np.allclose(q.empty, empty)
    sizes = q.cardinality_distribution()[0]
    assert np.isclose(sizes.sum(), 1)
    for k in range(len(sets[0]) + 1):
        assert np.isclose(sizes[k], sum(v for v, y in zip(p, sets, strict=True) if sum(y) == k))
    marginals = np.array(sets).T @ p
    assert np.allclose(q.marginals()[0], marginals)


@given(indicators())
def test_from_labels_and_from_samples_agree(Y):
    one = LabelStatistics.from_labels(Y)
    other = LabelStatistics.from_samples(Y[:, None, :])
    assert np.array_equal(one.to_code(), other.to_code())
    assert np.array_equal(one.cardinalities, other.cardinalities)
    assert np.array_equal(one.marginals(), Y)


def test_from_samples_counts():
    S = np.array([[[1, 1], [1, 0], [0, 0], [1, 0]]])
    q = LabelStatistics.from_samples(S)
    assert q.empty.tolist() == [0.25]
    assert q.joint.tolist() == [[[0.5, 0.0], [0.25, 0.25]]]


def test_all_rows_empty():
    q = LabelStatistics.from_labels(np.zeros((2, 3), int))
    assert q.joint.shape == (2, 0, 3)
    assert q.marginals().tolist() == [[0, 0, 0]] * 2
    assert q.cardinality_distribution()[:, 0].tolist() == [1, 1]


def test_rows_and_code():
    q = LabelStatistics.from_marginals(np.random.default_rng(0).uniform(size=(5, 3)))
    assert len(q) == 5
    assert np.array_equal(q[2].joint[0], q.joint[2])
    assert len(q[1:3]) == 2
    back = LabelStatistics.from_code(q.to_code(), q.cardinalities, 3)
    assert np.array_equal(back.joint, q.joint)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), np.zeros((3, 1, 2)), np.array([1])), "shape"),
        ((np.zeros(2), np.zeros((2, 1, 2)), np.array([1, 2])), "cardinalities must have shape"),
        ((np.zeros(2), np.zeros((2, 1, 2)), np.array([3])), "1..2, got 3"),
        ((np.zeros(2), np.zeros((2, 2, 2)), np.array([2, 1])), "increase"),
        ((np.zeros(2), np.zeros((2, 1, 2)), np.array([1.0])), "integers"),
        ((np.zeros(2), np.full((2, 1, 2), -0.1), np.array([1])), "joint must not be negative"),
        ((np.full(2, np.nan), np.zeros((2, 1, 2)), np.array([1])), "empty contains NaN"),
        ((np.zeros(2), np.zeros((2, 1, 2), int), np.array([1])), "floating"),
    ],
)
def test_bad_statistics_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        LabelStatistics(*arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelStatistics.from_marginals([[1.5]]), r"\[0, 1\]"),
        (lambda: LabelStatistics.from_marginals([0.5]), "shape"),
        (lambda: LabelStatistics.from_samples(np.full((1, 1, 1), 2)), "0 and 1"),
        (lambda: LabelStatistics.from_samples(np.zeros((1, 2))), "shape"),
        (lambda: LabelStatistics.from_distribution([[1.0]], np.eye(2)), "one column for each"),
        (lambda: observed_cardinalities(sp.csr_array([[1]]), "some"), "cardinalities must be"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_weights_of_any_size_and_statistics_that_are_too_large():
    a, b = LabelStatistics.from_labels([[1, 0]]), LabelStatistics.from_labels([[1, 1]])
    average = LabelStatistics.mixture([a, b], [1e308, 1e308])
    assert average.marginals().tolist() == [[1.0, 0.5]]
    with pytest.raises(ValueError, match="joint must hold probabilities"):
        LabelStatistics(np.zeros(1), np.full((1, 1, 2), 1e308), [1])


@pytest.mark.parametrize("make", [LabelStatistics.from_marginals, LabelStatistics.from_logits])
def test_a_label_is_listed_once(make):
    twice = sp.coo_array(([0.3, 0.3], ([0, 0], [1, 1])), shape=(1, 3))
    with pytest.raises(ValueError, match="a row of P lists a label twice"):
        make(twice)
    with pytest.raises(ValueError, match="a row of P lists a label twice"):
        make(sp.csr_array(([0.3, 0.3], [1, 1], [0, 2]), shape=(1, 3)))
    zeros = sp.coo_array(([0.0, 0.3], ([0, 0], [2, 1])), shape=(1, 3))  # stored
    assert make(zeros).n_labels == 3
