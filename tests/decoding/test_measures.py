"""The measures that decode maximises, against their definitions and all 2^s predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fbeta import LabelStatistics, decode
from fbeta.decoding.expected import expected_measure
from fbeta.decoding.measures import MEASURES, Measure, fbeta_measure, get_measure
from fbeta.metrics import fbeta_weight, precision_score, recall_score

from .. import reference

NAMES = ("fbeta", *MEASURES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_tables_are_the_definitions(name, s):
    sets = reference.label_sets(s)
    A, B = get_measure(name, 2.0).tables(range(1, s + 1), range(s + 1), s)
    assert (A >= 0).all()
    for y in sets:
        for yhat in sets:
            hits = sum(a & b for a, b in zip(y, yhat, strict=True))
            k, size = sum(y), sum(yhat)
            value = B[size, k] + (A[size, k - 1] * hits if k else 0.0)
            assert value == pytest.approx(reference.measure(name, y, yhat, 2.0), abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_measures_say_of_themselves(name):
    """Separable and bounded, where they say so: the decoder relies on it."""
    measure, s = get_measure(name, 0.7), 9
    sizes = np.arange(1, s + 1)
    A, B = measure.tables(sizes, sizes, s)
    if measure.separable:
        np.testing.assert_allclose(A, A[:, :1] * A[:1] / A[0, 0])
    if measure.bounded:
        assert (B == 0).all()
        # 1 / A is linear in the size of the prediction
        np.testing.assert_allclose(np.diff(1 / A, 2, axis=0), 0, atol=1e-12)
        assert (np.diff(1 / A, axis=0) > 0).all()


@st.composite
def laws(draw):
    s = draw(st.integers(1, 4))
    weights = draw(st.lists(st.integers(0, 9), min_size=2**s, max_size=2**s))
    weights[draw(st.integers(0, 2**s - 1))] += 1
    low = draw(st.integers(0, s))
    return s, np.array(weights) / sum(weights), low, draw(st.integers(low, s))


@given(laws(), st.sampled_from(NAMES), st.floats(0.2, 5))
@settings(max_examples=300, deadline=None)
def test_decode_equals_all_predictions(case, name, beta):
    """The value exactly; the set too, where small integers make ties common."""
    s, p, low, high = case
    sets = reference.label_sets(s)
    q = LabelStatistics.from_distribution(p[None], np.array(sets))
    limits = {"min_labels": low, "max_labels": high}
    labels, expected = decode(q, beta, measure=name, return_expected=True, **limits)
    top, best = reference.best_prediction(
        p,
        sets,
        lambda y, yhat: reference.measure(name, y, yhat, beta),
        [y for y in sets if low <= sum(y) <= high],
    )
    assert expected[0] == pytest.approx(top, rel=1e-12, abs=1e-14)
    assert labels[0].sum() == sum(best)
    value = expected_measure(q, labels, beta, measure=name)[0]
    assert value == pytest.approx(top, rel=1e-12, abs=1e-14)


@given(laws(), st.sampled_from(NAMES))
@settings(max_examples=100, deadline=None)
def test_factored_statistics_equal_all_predictions(case, name):
    s, weights, low, high = case
    P, sizes = weights[:s][None] * s / (1 + weights[:s].max() * s), weights[: s + 1][None]
    sets = reference.label_sets(s)
    sized = [float(v) for v in reference.sized_law(P[0], sizes[0], sets)]
    for q, law in (
        (LabelStatistics.from_marginals(P), reference.product_law(P[0], sets)),
        (LabelStatistics.from_marginals(P, sizes), sized),
    ):
        labels, expected = decode(
            q, measure=name, min_labels=low, max_labels=high, return_expected=True
        )
        top, _ = reference.best_prediction(
            law,
            sets,
            lambda y, yhat: reference.measure(name, y, yhat),
            [y for y in sets if low <= sum(y) <= high],
        )
        assert expected[0] == pytest.approx(top, rel=1e-12, abs=1e-14)
        assert low <= labels.sum() <= high


@pytest.mark.parametrize("name", NAMES)
def test_many_labels_and_limits_on_any_numbers(name):
    """Statistics of no distribution; every size against sorted scores."""
    rng = np.random.default_rng(5)
    s, k = 60, np.array([1, 2, 5, 17])
    joint = rng.gamma(0.2, size=(12, 4, s)) * rng.uniform(size=(12, 4, 1))
    q = LabelStatistics(rng.uniform(size=12) * 0.1, joint, k)
    A, B = get_measure(name, 0.5).tables(k, range(s + 1), s)
    law = np.concatenate([q.empty[:, None], joint.sum(axis=2) / k], axis=1)
    values = np.array(
        [
            [
                np.sort(A[size] @ joint[i])[s - size :].sum() + B[size] @ law[i]
                for size in range(s + 1)
            ]
            for i in range(12)
        ]
    )
    for low, high in ((0, s), (1, s), (7, 9), (30, s), (0, 3)):
        labels, expected = decode(
            q, 0.5, measure=name, min_labels=low, max_labels=high, return_expected=True
        )
        best = values[:, low : high + 1].max(axis=1)
        np.testing.assert_allclose(expected, best, rtol=1e-11, atol=1e-13)
        number = labels.sum(axis=1)
        assert ((low <= number) & (number <= high)).all()
        np.testing.assert_allclose(values[np.arange(12), number], best, rtol=1e-11, atol=1e-13)


def test_what_each_measure_asks_for():
    q = LabelStatistics.from_marginals([[0.9, 0.6, 0.4, 0.1]])
    assert decode(q, measure="hamming").tolist() == [[1, 1, 0, 0]]
    assert decode(q, measure="precision").tolist() == [[0, 0, 0, 0]]
    assert decode(q, measure="precision", min_labels=2).tolist() == [[1, 1, 0, 0]]
    assert decode(q, measure="recall").tolist() == [[1, 1, 1, 1]]
    assert decode(q, measure="recall", max_labels=3).tolist() == [[1, 1, 1, 0]]
    assert decode(q, max_labels=9).tolist() == decode(q).tolist()


def test_known_labels_score_as_the_metrics_do():
    rng = np.random.default_rng(0)
    Y, predicted = rng.integers(0, 2, (2, 20, 3))
    Y[0] = predicted[1] = 0
    q = LabelStatistics.from_labels(Y)
    for name, metric in (("precision", precision_score), ("recall", recall_score)):
        found = expected_measure(q, predicted, measure=name).mean()
        assert found == pytest.approx(metric(Y, predicted))


@pytest.mark.parametrize("beta", [1e-300, 1e-150, 1e-8, 1e8, 1e150, 1e300])
def test_extreme_betas(beta):
    """F_beta goes to precision and to recall, without overflow on the way."""
    k, size = np.arange(1, 5)[:, None], np.arange(1, 5)[None, :]
    limit = 1 / size + 0 * k if beta < 1 else 1 / k + 0 * size
    np.testing.assert_allclose(fbeta_weight(k, size, beta), limit, rtol=1e-7)
    P = np.random.default_rng(0).uniform(size=(6, 7))
    for q in (
        LabelStatistics.from_marginals(P),
        LabelStatistics.from_samples(P[:, None, :] > np.linspace(0, 1, 9)[None, :, None]),
    ):
        labels, expected = decode(q, beta, min_labels=1, return_expected=True)
        assert np.isfinite(expected).all()
        name = "precision" if beta < 1 else "recall"
        top = decode(q, measure=name, min_labels=1, return_expected=True)[1]
        recall_of_nothing = 0 if beta < 1 else q.empty
        np.testing.assert_allclose(expected, top - recall_of_nothing, rtol=1e-6)
        np.testing.assert_allclose(expected_measure(q, labels, beta), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"min_labels": -1}, ValueError, "min_labels must be at least 0"),
        ({"min_labels": 1.5}, TypeError, "min_labels must be an integer"),
        ({"max_labels": -1}, ValueError, "max_labels must be at least 0"),
        ({"min_labels": 2, "max_labels": 1}, ValueError, "min_labels must not be above max_labels"),
        ({"min_labels": 4}, ValueError, "min_labels is 4, but there are only 3 labels"),
        ({"measure": "accuracy"}, ValueError, "measure must be one of 'fbeta', 'precision'"),
        ({"measure": None}, ValueError, "measure must be one of"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    q = LabelStatistics.from_marginals([[0.5, 0.5, 0.1]])
    with pytest.raises(error, match=message):
        decode(q, **arguments)


def test_bad_predictions_and_measures_are_named():
    q = LabelStatistics.from_marginals([[0.5, 0.5, 0.1]])
    with pytest.raises(ValueError, match=r"labels has 2 labels, but 3 were expected"):
        expected_measure(q, [[1, 0]])
    with pytest.raises(TypeError, match="from_marginals"):
        decode(np.array([[0.5]]))
    falling = Measure("bad", lambda k, size, s: -1 / size + 0 * k, lambda k, size, s: 0 * k * size)
    with pytest.raises(ValueError, match="'bad' must not fall"):
        decode(q, measure=falling)
    assert get_measure(fbeta_measure(2.0)).name == "fbeta"
