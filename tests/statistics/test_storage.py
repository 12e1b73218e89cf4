"""Statistics that are kept as marginals and sizes, and averages, against laws written out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fbeta import LabelStatistics, decode
from fbeta.decoding.expected import expected_fbeta
from fbeta.statistics.composite import is_present
from fbeta.statistics.label_statistics import LabelStatistics as Statistics

from .. import reference

probabilities = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 1e-300, 1 - 1e-16]), st.floats(0, 1), st.floats(0, 1, width=16)
)


@st.composite
def marginals(draw, max_rows=3, max_labels=5):
    shape = draw(st.tuples(st.integers(1, max_rows), st.integers(1, max_labels)))
    return draw(arrays(float, shape, elements=probabilities))


@st.composite
def factors(draw, max_rows=3, max_labels=5):
    """Marginals, and a distribution of the number of labels that may give 0 to some."""
    P = draw(marginals(max_rows, max_labels))
    m = draw(st.integers(0, P.shape[1]))
    weights = draw(arrays(float, (len(P), m + 1), elements=st.integers(0, 5).map(float)))
    weights[:, 0] += weights.sum(axis=1) == 0
    return P, weights / weights.sum(axis=1, keepdims=True)


def check_law(q, i, law, sets, **tolerance):
    """Compare the statistics of row i with those of a distribution over label sets."""
    empty, joint = reference.statistics_of(np.array(law, dtype=float), sets)
    np.testing.assert_allclose(q.empty[i], empty, **tolerance)
    np.testing.assert_allclose(q.joint[i], joint[q.cardinalities - 1], **tolerance)
    np.testing.assert_allclose(q.marginals()[i], joint.sum(axis=0), **tolerance)
    sizes = [
        sum(float(p) for p, y in zip(law, sets, strict=True) if sum(y) == k)
        for k in range(len(sets[0]) + 1)
    ]
    np.testing.assert_allclose(q.cardinality_distribution()[i], sizes, **tolerance)


@given(marginals())
def test_from_marginals_is_the_product_law(P):
    sets = reference.label_sets(P.shape[1])
    q = LabelStatistics.from_marginals(P)
    for i, row in enumerate(P):
        check_law(q, i, reference.product_law(row, sets), sets, rtol=0, atol=1e-15)


@given(factors(max_labels=4))
@settings(max_examples=60, deadline=None)
def test_with_sizes_it_is_the_law_given_the_number_of_labels(case):
    """Sizes that certain and impossible labels rule out included: as limits."""
    P, sizes = case
    sets = reference.label_sets(P.shape[1])
    q = LabelStatistics.from_marginals(P, sizes)
    for i, row in enumerate(P):
        law = reference.sized_law(row, sizes[i], sets)
        check_law(q, i, law, sets, rtol=1e-14, atol=1e-40)


def test_conditional_marginals_keep_their_relative_accuracy():
    """Odds over hundreds of orders of magnitude, sizes that are all but impossible."""
    rng = np.random.default_rng(0)
    for spread in (0.1, 1.0, 10.0, 300.0):
        logits = np.clip(rng.normal(size=(1, 24)) * spread, -690, 36)
        P = 1 / (1 + np.exp(-logits))
        q = LabelStatistics.from_marginals(P, np.full((1, 25), 1 / 25))
        exact = reference.conditional_marginals([float(p) for p in P[0]], 24)
        for k, row in enumerate(exact):
            for j, value in enumerate(row):
                error = Fraction(float(q.joint[0, k, j]) * 25.0) / value - 1
                assert abs(float(error)) < 1e-14


@pytest.mark.parametrize("largest", [3, 30, 2000])
def test_sums_with_2000_labels(largest):
    rng = np.random.default_rng(largest)
    P = rng.beta(0.3, 2.0, size=(3, 2000))
    P[0, :5] = [0, 1, 0.5, 1e-300, 1 - 1e-16]
    P[1] = 1e-200
    sizes = rng.dirichlet(np.ones(largest + 1), size=3)
    q = LabelStatistics.from_marginals(P, sizes)
    row = q[0]
    total = row.joint.sum(axis=2)
    np.testing.assert_allclose(total, sizes[:1, 1:] * row.cardinalities, rtol=1e-12)
    assert (row.joint[0] <= sizes[0, 1:, None] * (1 + 1e-12)).all()
    # equal odds, however small: every label is as likely as every other
    np.testing.assert_allclose(q[1].marginals() * 2000, (sizes[1, 1:] * q.cardinalities).sum())


def test_sizes_that_cannot_be():
    P = [[1.0, 1.0, 0.5, 0.0, 0.0]]
    q = LabelStatistics.from_marginals(P, [[0.0, 0.2, 0.2, 0.2, 0.2, 0.2]])
    assert (q.joint[0, 0] * 5).round(12).tolist() == [0.5, 0.5, 0, 0, 0]
    assert (q.joint[0, 1] * 5).round(12).tolist() == [1, 1, 0, 0, 0]
    assert (q.joint[0, 3] * 5).round(12).tolist() == [1, 1, 1, 0.5, 0.5]
    assert (q.joint[0, :3, 3:] == 0).all()


@pytest.mark.parametrize("s", [50, 400])
def test_independent_labels_are_stable_for_many_labels(s):
    P = np.random.default_rng(s).uniform(size=(3, s)) ** 3
    P[0, :5] = [0, 1, 0.5, 1e-300, 1 - 1e-16]
    q = LabelStatistics.from_marginals(P)
    np.testing.assert_allclose(q.joint.sum(axis=1), P, atol=1e-13)
    by_size = q.joint.sum(axis=2) / q.cardinalities
    np.testing.assert_allclose(by_size, q.cardinality_distribution()[:, 1:], atol=1e-15)


def test_the_number_of_equal_labels_is_binomial():
    from scipy.stats import binom

    for s, p in ((30, 0.3), (1500, 0.01), (1500, 0.9)):
        found = LabelStatistics.from_marginals(np.full((1, s), p)).cardinality_distribution()[0]
        np.testing.assert_allclose(found, binom.pmf(np.arange(s + 1), s, p), rtol=1e-9, atol=1e-22)


@given(factors(max_rows=2, max_labels=6))
@settings(deadline=None)
def test_every_statistic_grows_with_the_marginal(case):
    """Why one order of the labels serves all sizes."""
    P, sizes = case
    for q in (LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)):
        for i, row in enumerate(P):
            ordered = q.joint[i][:, np.argsort(row, kind="stable")]
            assert (np.diff(ordered, axis=1) >= -1e-15).all()


@given(factors(max_rows=3, max_labels=6), st.floats(0.1, 10))
@settings(max_examples=100, deadline=None)
def test_factored_equals_dense(case, beta):
    P, sizes = case
    for q in (LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)):
        dense = Statistics(q.empty, q.joint, q.cardinalities)
        one, other = (decode(form, beta, return_expected=True) for form in (q, dense))
        np.testing.assert_allclose(one[1], other[1], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(expected_fbeta(q, one[0], beta), one[1], rtol=1e-13)
        np.testing.assert_allclose(
            expected_fbeta(q, other[0], beta), expected_fbeta(dense, other[0], beta), rtol=1e-13
        )
        assert np.array_equal(one[0], other[0]) or np.allclose(
            expected_fbeta(q, other[0], beta), one[1], rtol=1e-13
        )


@given(factors(max_labels=5))
@settings(deadline=None)
def test_a_wider_choice_is_never_worse(case):
    P, sizes = case
    for q in (LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)):
        most = range(P.shape[1] + 1)
        values = [decode(q, max_labels=m, return_expected=True)[1] for m in most]
        assert (np.diff(values, axis=0) >= -1e-14).all()


@given(
    st.integers(1, 4).flatmap(
        lambda s: st.tuples(
            st.lists(st.integers(0, 4), min_size=s, max_size=s),
            st.lists(st.integers(0, 3), min_size=s + 1, max_size=s + 1),
        )
    ),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_exact_ties_go_to_the_smaller_set(case, sized):
    """With quarters for marginals ties are common; they are found in exact arithmetic."""
    quarters, weights = case
    P, sets = [Fraction(v, 4) for v in quarters], reference.label_sets(len(quarters))
    if sum(weights) == 0:
        return
    sizes = [Fraction(w, sum(weights)) for w in weights]
    if sized:
        # the limit itself, not a law near it: only sizes that these labels can have
        low, high = sum(p == 1 for p in P), sum(p > 0 for p in P)
        if any(w and not low <= k <= high for k, w in enumerate(weights)):
            return
        law = reference.sized_law(P, sizes, sets, near=Fraction(0))
    else:
        law = []
        for y in sets:
            chance = Fraction(1)
            for p, on in zip(P, y, strict=True):
                chance *= p if on else 1 - p
            law.append(chance)
    exact = {
        yhat: sum(
            p
            * (
                1
                if not any(y) and not any(yhat)
                else Fraction(
                    2 * sum(a & b for a, b in zip(y, yhat, strict=True)), sum(y) + sum(yhat)
                )
            )
            for p, y in zip(law, sets, strict=True)
            if any(y) or not any(yhat)
        )
        for yhat in sets
    }
    top = max(exact.values())
    best = min((y for y, v in exact.items() if v == top), key=lambda y: (sum(y), [-v for v in y]))
    floats = np.array([P], dtype=float), np.array([sizes], dtype=float) if sized else None
    assert tuple(decode(LabelStatistics.from_marginals(*floats))[0].tolist()) == best


@pytest.mark.parametrize("beta", [0.02, 0.7, 1.0, 1.2345, 30.0])
def test_many_labels_against_every_prefix(beta):
    """The windows, the pieces and the stopping bound leave nothing out: compare all sizes."""
    rng = np.random.default_rng(3)
    rows = [
        rng.uniform(size=120),
        rng.beta(0.2, 3.0, size=120),
        np.full(120, 0.5),
        rng.beta(5.0, 0.5, size=120),
        np.r_[np.ones(60), np.zeros(60)],
    ]
    P, sizes = np.array(rows), rng.dirichlet(np.full(41, 0.3), size=5)
    for q in (LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)):
        labels, expected = decode(q, beta, return_expected=True)
        for i, row in enumerate(P):
            order = np.argsort(-row, kind="stable")
            Q = np.cumsum(q.joint[i][:, order], axis=1)
            length = np.arange(1, 121)
            weight = (1 + beta**2) / (beta**2 * q.cardinalities[:, None] + length)
            values = np.r_[q.empty[i], (weight * Q).sum(axis=0)]
            assert expected[i] == pytest.approx(values.max(), rel=1e-13)
            size = int(labels[i].sum())
            assert values[size] == pytest.approx(values.max(), rel=1e-13)
            assert set(np.flatnonzero(labels[i])) == set(order[:size])


@given(marginals(max_rows=2, max_labels=9), st.sampled_from([(1, 1), (1, 4), (4, 1), (2, 3)]))
@settings(deadline=None)
def test_independent_labels_against_another_recurrence(P, ratio):
    expected = decode(
        LabelStatistics.from_marginals(P), np.sqrt(ratio[0] / ratio[1]), return_expected=True
    )[1]
    for row, value in zip(P, expected, strict=True):
        values = reference.expected_of_prefixes(np.sort(row)[::-1], *ratio)
        assert value == pytest.approx(values.max(), rel=1e-12)


@pytest.mark.parametrize("ratio", [(1, 1), (1, 4), (9, 1)])
def test_a_thousand_labels_against_another_recurrence(ratio):
    """Few labels and most of them, all as likely, in two heaps: the windows have both ends."""
    rng = np.random.default_rng(6)
    s = 1000
    P = np.array(
        [
            rng.uniform(size=s),
            rng.beta(0.1, 5.0, size=s),
            rng.beta(5.0, 0.2, size=s),
            np.full(s, 0.5),
            np.r_[np.full(s // 2, 0.999), np.full(s // 2, 0.001)],
            np.r_[np.ones(400), np.full(200, 0.7), np.zeros(400)],
        ]
    )
    labels, expected = decode(
        LabelStatistics.from_marginals(P), np.sqrt(ratio[0] / ratio[1]), return_expected=True
    )
    for row, chosen, value in zip(P, labels, expected, strict=True):
        values = reference.expected_of_prefixes(np.sort(row)[::-1], *ratio)
        assert value == pytest.approx(values.max(), rel=1e-12)
        assert values[chosen.sum()] == pytest.approx(values.max(), rel=1e-12)


def test_pieces_and_chunks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(0)
    P, sizes = rng.uniform(size=(12, 19)), rng.dirichlet(np.ones(12), size=12)
    parts = [LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)]
    parts.append(LabelStatistics.mixture(parts))

    def results(q):
        labels, expected = decode(q, return_expected=True)
        return labels, expected, q.marginals(), q.joint, expected_fbeta(q, labels)

    whole = [results(q) for q in parts]
    for name, value in (("CHUNK_ELEMENTS", 1), ("TILE_ELEMENTS", 1), ("MIN_UNFOLDED_ROWS", 1)):
        monkeypatch.setattr(f"fbeta._threads.{name}", value)
    for q, before in zip(parts, whole, strict=True):
        for one, other in zip(results(q[:]), before, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-16)


@given(factors(max_labels=4), factors(max_labels=4), st.lists(st.integers(0, 3), min_size=3))
@settings(max_examples=60, deadline=None)
def test_a_mixture_is_the_average(one, other, weights):
    """Of statistics with different cardinalities, and linear in them."""
    n, s = min(len(one[0]), len(other[0])), min(one[0].shape[1], other[0].shape[1])
    weights = weights[:3]
    if not any(weights):
        return
    parts = [
        LabelStatistics.from_marginals(one[0][:n, :s]),
        LabelStatistics.from_marginals(other[0][:n, :s], other[1][:n, : s + 1]),
        LabelStatistics.from_labels(np.eye(s, dtype=int)[[0] * n]),
    ]
    q = LabelStatistics.mixture(parts, weights)
    shares = np.array(weights) / sum(weights)
    kept = [(part, w) for part, w in zip(parts, shares, strict=True) if w]
    assert q.cardinalities.tolist() == sorted(
        {int(k) for part, _ in kept for k in part.cardinalities}
    )
    full = np.zeros((n, s, s))
    for part, w in kept:
        full[:, part.cardinalities - 1] += w * part.joint
    np.testing.assert_allclose(q.joint, full[:, q.cardinalities - 1], atol=1e-16)
    for name in ("marginals", "cardinality_distribution"):
        average = sum(w * getattr(part, name)() for part, w in kept)
        np.testing.assert_allclose(getattr(q, name)(), average, atol=1e-15)
    labels, expected = decode(q, 2.0, return_expected=True)
    value = sum(w * expected_fbeta(part, labels, 2.0) for part, w in kept)
    np.testing.assert_allclose(expected, value, rtol=1e-13)
    dense = Statistics(q.empty, q.joint, q.cardinalities)
    np.testing.assert_allclose(expected, decode(dense, 2.0, return_expected=True)[1], rtol=1e-13)


def test_concatenate_keeps_the_form_where_it_can():
    rng = np.random.default_rng(1)
    P, sizes = rng.uniform(size=(4, 3)), rng.dirichlet(np.ones(3), size=4)
    plain, sized = LabelStatistics.from_marginals(P), LabelStatistics.from_marginals(P, sizes)
    labels = LabelStatistics.from_labels([[1, 0, 1]])
    assert LabelStatistics.concatenate([plain]).form is plain.form
    for parts, form in (
        ([plain, plain[:2]], "Factored"),
        ([sized[:1], LabelStatistics.from_marginals(P[:2], sizes[:2, :2])], "Factored"),
        ([plain, sized], "Dense"),
        ([labels, LabelStatistics.mixture([plain, sized])], "Dense"),
    ):
        q = LabelStatistics.concatenate(parts)
        assert type(q.form).__name__ == form
        assert len(q) == sum(map(len, parts))
        start = 0
        for part in parts:
            rows = q[start : start + len(part)]
            np.testing.assert_allclose(rows.empty, part.empty, rtol=1e-15)
            slots = np.searchsorted(q.cardinalities, part.cardinalities)
            np.testing.assert_allclose(rows.joint[:, slots], part.joint, rtol=1e-15)
            np.testing.assert_allclose(rows.joint.sum(), part.joint.sum())
            start += len(part)


def test_rows_of_every_form():
    rng = np.random.default_rng(2)
    P, sizes = rng.uniform(size=(6, 4)), rng.dirichlet(np.ones(4), size=6)
    factored = LabelStatistics.from_marginals(P, sizes)
    dense = Statistics(factored.empty, factored.joint, factored.cardinalities)
    for q in (factored, dense, LabelStatistics.mixture([factored, dense])):
        for rows in (slice(1, 4), [2, -1, 2], np.array([5, 0]), P[:, 0] > 0.5, 3, np.int64(-2), []):
            chosen = np.arange(6)[rows].reshape(-1)
            np.testing.assert_allclose(q[rows].joint, dense.joint[chosen], atol=1e-16)
            np.testing.assert_array_equal(decode(q[rows]), decode(q)[chosen])
        for rows in (6, [0, -7], np.ones(5, dtype=bool)):
            with pytest.raises(IndexError):
                q[rows]


def test_probabilities_of_each_label_as_forests_have_them():
    from sklearn.datasets import make_multilabel_classification
    from sklearn.ensemble import ExtraTreesClassifier

    X, Y = make_multilabel_classification(60, n_classes=3, random_state=0)
    columns = ExtraTreesClassifier(5, random_state=0).fit(X, Y).predict_proba(X)
    q = LabelStatistics.from_marginals(columns)
    assert np.array_equal(q.marginals(), np.stack([p[:, 1] for p in columns], axis=1))
    with pytest.raises(ValueError, match=r"P\[1\] must have shape \(n, 2\)"):
        LabelStatistics.from_marginals([columns[0], columns[1][:, :1]])
    with pytest.raises(ValueError, match=r"P\[2\] has 59 rows"):
        LabelStatistics.from_marginals([columns[0], columns[1], columns[2][1:]])


def test_no_rows_and_one_label():
    for q in (
        LabelStatistics.from_marginals(np.zeros((0, 3))),
        LabelStatistics.from_marginals(np.zeros((0, 3)), np.zeros((0, 2))),
        LabelStatistics.mixture([LabelStatistics.from_marginals(np.zeros((0, 3)))] * 2),
    ):
        assert decode(q).shape == (0, 3)
        assert decode(q, min_labels=1, return_expected=True)[1].shape == (0,)
        assert q.marginals().shape == (0, 3)
        assert q.joint.shape == (0, len(q.cardinalities), 3)
        assert q.cardinality_distribution().shape == (0, 4)
        assert expected_fbeta(q, np.zeros((0, 3))).shape == (0,)
    q = LabelStatistics.from_marginals([[0.0], [0.5], [0.6], [1.0]])
    labels, expected = decode(q, return_expected=True)
    assert labels[:, 0].tolist() == [0, 0, 1, 1]
    assert expected.tolist() == [1.0, 0.5, 0.6, 1.0]
    only = LabelStatistics.from_marginals([[0.3]], [[0.25, 0.75]])
    assert (only.empty.tolist(), only.joint.tolist()) == ([0.25], [[[0.75]]])


def test_all_labels_certain_or_impossible():
    for value in (0.0, 1.0):
        q = LabelStatistics.from_marginals(np.full((2, 7), value))
        labels, expected = decode(q, return_expected=True)
        assert (labels == value).all()
        assert expected.tolist() == [1.0, 1.0]


def test_the_result_is_not_the_argument():
    P = np.array([[0.2, 0.4]])
    q = LabelStatistics.from_marginals(P)
    q.marginals()[:] = 1
    assert q.marginals().tolist() == [[0.2, 0.4]]
    assert repr(q) == "<LabelStatistics of 1 instances, 2 labels, 2 cardinalities, factored>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelStatistics.from_marginals([[0.5]], [[0.1, 0.2, 0.7]]), "m <= 1"),
        (lambda: LabelStatistics.from_marginals([[0.5]], [[0.5], [0.5]]), "sizes must have shape"),
        (lambda: LabelStatistics.from_marginals([[0.5]], [[np.nan, 1.0]]), "sizes contains NaN"),
        (lambda: LabelStatistics.from_marginals([[0.5]], [[-0.5, 1.0]]), "sizes must not be neg"),
        (lambda: LabelStatistics.mixture([]), "at least one"),
        (lambda: LabelStatistics.concatenate([]), "at least one"),
        (lambda: LabelStatistics.mixture([one(2), one(3)]), r"parts\[1\] has 3 labels"),
        (lambda: LabelStatistics.mixture([one(2), one(2)[:0]]), r"parts\[1\] has 0 rows"),
        (lambda: LabelStatistics.mixture([one(2)], [1, 2]), r"weights must have shape \(1,\)"),
        (lambda: LabelStatistics.mixture([one(2)] * 2, [1, -1]), "not negative"),
        (lambda: LabelStatistics.mixture([one(2)] * 2, [0, 0]), "not all 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def one(s):
    return LabelStatistics.from_marginals(np.full((1, s), 0.5))


@given(factors(max_labels=4))
@settings(max_examples=60, deadline=None)
def test_infinite_log_odds_are_certain_and_impossible_labels(case):
    """Also where they are infinite after rounding to single precision."""
    P, sizes = case
    with np.errstate(divide="ignore"):
        Z = np.log(P) - np.log1p(-P)
    q, same = LabelStatistics.from_logits(Z, sizes), LabelStatistics.from_marginals(P, sizes)
    np.testing.assert_allclose(q.joint, same.joint, rtol=1e-12, atol=1e-40)
    np.testing.assert_allclose(q.marginals(), same.marginals(), rtol=1e-12, atol=1e-40)
    np.testing.assert_allclose(q.astype(np.float32).marginals(), same.marginals(), atol=1e-4)


def test_listed_labels_that_are_present() -> None:
    rng = np.random.default_rng(0)
    listed, present = rng.uniform(size=(2, 20, 9)) < 0.4
    lists = sp.csr_array(np.where(listed, rng.normal(size=listed.shape), 0.0))
    found = is_present(lists, sp.csr_array(present.astype(np.int8)))
    assert found.tolist() == present[listed].tolist()
