from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import BaseEstimator
from sklearn.metrics import fbeta_score as sklearn_fbeta
from sklearn.metrics import precision_score as sklearn_precision

from fbeta.metrics import (
    AVERAGES,
    averaged_fbeta,
    best_thresholds,
    fbeta_of_counts,
    fbeta_per_instance,
    fbeta_score,
    make_fbeta_scorer,
    precision_score,
    recall_score,
)

from . import reference

pairs = st.tuples(st.integers(1, 8), st.integers(1, 5)).flatmap(
    lambda shape: st.tuples(
        arrays(np.int8, shape, elements=st.integers(0, 1)),
        arrays(np.int8, shape, elements=st.integers(0, 1)),
    )
)


@given(pairs, st.floats(0.1, 10))
def test_equals_a_plain_loop_in_every_form(pair, beta):
    true, pred = pair
    expected = [reference.fbeta(y, p, beta) for y, p in zip(true, pred, strict=True)]
    assert np.allclose(fbeta_per_instance(true, pred, beta), expected)
    assert np.isclose(fbeta_score(true, pred, beta), np.mean(expected))
    assert np.isclose(fbeta_score(sp.csr_array(true), sp.csc_matrix(pred), beta), np.mean(expected))
    assert np.isclose(fbeta_score(true.tolist(), pred.astype(bool), beta), np.mean(expected))
    names = [f"l{j}" for j in range(true.shape[1])]
    frames = pd.DataFrame(true, columns=names), pd.DataFrame(pred, columns=names)[names[::-1]]
    assert np.isclose(fbeta_score(*frames, beta), np.mean(expected))
    sets = [[{n for n, on in zip(names, row, strict=True) if on} for row in Y] for Y in pair]
    assert np.isclose(fbeta_score(*sets, beta), np.mean(expected))


@given(pairs, st.floats(0.1, 10))
def test_agrees_with_scikit_learn_where_the_conventions_do(pair, beta):
    true, pred = (np.concatenate([Y, np.ones((len(Y), 2), np.int8)], axis=1) for Y in pair)
    ours = fbeta_score(true, pred, beta)
    assert np.isclose(ours, sklearn_fbeta(true, pred, beta=beta, average="samples"))
    assert np.isclose(precision_score(true, pred), sklearn_precision(true, pred, average="samples"))
    assert np.isclose(recall_score(true, pred), precision_score(pred, true))


def test_empty_against_empty_is_perfect():
    assert fbeta_score([[0, 0]], [[0, 0]]) == 1
    assert precision_score([[0, 1]], [[0, 0]]) == 1
    assert recall_score([[0, 0]], [[0, 1]]) == 1
    assert fbeta_score([[0, 0]], [[0, 1]]) == 0


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    true, pred = rng.integers(0, 2, (2, 20, 4))
    weight = rng.integers(0, 4, 20)
    repeated = (np.repeat(Y, weight, axis=0) for Y in (true, pred))
    assert np.isclose(fbeta_score(true, pred, 2, sample_weight=weight), fbeta_score(*repeated, 2))


def test_one_dimensional_targets_are_one_label():
    assert fbeta_score(["a", "b", "b"], ["a", "b", "a"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 1]], [[0, 1, 0]]), "shape"),
        (([[0, 2]], [[0, 1]]), r"Y_true must hold only 0 and 1, found 2 at row 0, column 1"),
        (([[0, 1]], [[0, np.nan]]), "Y_pred contains NaN"),
        (([[0, 1]], [[0, 1]], 0.0), "beta must be positive"),
        ((np.zeros((0, 2)), np.zeros((0, 2))), "no rows"),
        ((np.zeros((2, 0)), np.zeros((2, 0))), "no labels"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fbeta_score(*arguments)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0], "shape"),
        ([-1.0, 1.0], "negative at row 0"),
        ([np.nan, 1.0], "NaN"),
        ([0, 0], "zero"),
    ],
)
def test_bad_weights_are_named(weight, message):
    with pytest.raises(ValueError, match=message):
        fbeta_score([[1], [0]], [[1], [0]], sample_weight=weight)


def test_scorer_uses_its_own_beta():
    class Fixed(BaseEstimator):
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.ones((len(X), 4), int)

    Y = np.array([[1, 0, 0, 0]])
    assert make_fbeta_scorer(2.0)(Fixed(), [[0]], Y) == pytest.approx(5 / 8)
    with pytest.raises(ValueError, match="beta"):
        make_fbeta_scorer(-1)


@pytest.mark.parametrize("beta", [1e-150, 1e-8, 0.3, 1.0, 7.0, 1e8, 1e150])
def test_counts_are_the_fraction_for_any_beta(beta):
    beta2 = Fraction(beta) ** 2
    for true in range(4):
        for pred in range(4):
            for both in range(min(true, pred) + 1):
                bottom = beta2 * true + pred
                exact = float((1 + beta2) * both / bottom) if bottom else 1.0
                assert float(fbeta_of_counts(both, true, pred, beta)) == pytest.approx(exact)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_counts_at_the_ends(scale):
    """Precision for small beta, recall for large beta, also where beta^2 is no number."""
    both, true, pred = scale * np.array([[1, 2, 4], [0, 3, 0], [0, 0, 3], [0, 0, 0]]).T
    for beta in (1e-150, 1e-170, 1e-300):
        assert fbeta_of_counts(both, true, pred, beta).tolist() == [0.25, 0, 0, 1]
    for beta in (1e150, 1e170, 1e300):
        assert fbeta_of_counts(both, true, pred, beta).tolist() == [0.5, 0, 0, 1]


def test_counts_broadcast():
    values = fbeta_of_counts(1, np.array([1, 3])[:, None], np.array([1, 2, 5]), 1.0)
    assert values.shape == (2, 3)
    assert values[1, 2] == pytest.approx(2 / 8)


def slow_average(Y, predicted, beta, average, weight):
    """Loops over the entries; macro gives one value for each label."""
    n, s = Y.shape
    groups = {
        "instance": [[(i, j) for j in range(s)] for i in range(n)],
        "micro": [[(i, j) for i in range(n) for j in range(s)]],
        "macro": [[(i, j) for i in range(n)] for j in range(s)],
    }[average]
    values = []
    for group in groups:
        tp = fn = fp = 0.0
        for i, j in group:
            c = 1.0 if average == "instance" else weight[i]
            tp += c * (Y[i, j] and predicted[i, j])
            fn += c * (Y[i, j] and not predicted[i, j])
            fp += c * (not Y[i, j] and predicted[i, j])
        bottom = (1 + beta**2) * tp + beta**2 * fn + fp
        values.append(1.0 if bottom == 0 else (1 + beta**2) * tp / bottom)
    if average == "macro":
        return values
    return np.average(values, weights=weight) if average == "instance" else values[0]


# few distinct scores, so that ties are frequent, and the ends of the range
scored = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        arrays(
            np.float64,
            shape,
            elements=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
        ),
        arrays(np.bool_, shape),
        arrays(np.float64, shape[0], elements=st.sampled_from([0.5, 1.0, 2.0])),
    )
)
averages = st.sampled_from(AVERAGES)


@given(scored, st.sampled_from([0.5, 1.0]), averages)
def test_averages(case, beta, average):
    P, Y, weight = case
    own = averaged_fbeta(Y, P > 0.3, beta, average=average, sample_weight=weight)
    np.testing.assert_allclose(own, slow_average(Y, P > 0.3, beta, average, weight))
    plain = averaged_fbeta(sp.csr_array(Y), P > 0.3, beta, average=average)
    np.testing.assert_allclose(plain, slow_average(Y, P > 0.3, beta, average, np.ones(len(Y))))


@given(scored, st.sampled_from([0.5, 1.0, 2.0]), averages, st.sampled_from([(0.0, 1.0), None]))
def test_no_threshold_is_better(case, beta, average, ends):
    P, Y, weight = case
    if ends is None:
        P = 6 * P - 3
    threshold = best_thresholds(P, Y, beta, average=average, weight=weight, ends=ends)
    cuts = [P.min() - 1, *np.unique(P)]  # p > t changes nowhere else
    if average == "macro":
        for j in range(P.shape[1]):
            own = slow_average(Y[:, [j]], P[:, [j]] > threshold[j], beta, "macro", weight)[0]
            all_ = [slow_average(Y[:, [j]], P[:, [j]] > t, beta, "macro", weight)[0] for t in cuts]
            assert own == pytest.approx(max(all_), abs=1e-12)
        return
    own = slow_average(Y, threshold < P, beta, average, weight)
    best = max(slow_average(Y, t < P, beta, average, weight) for t in cuts)
    assert own == pytest.approx(best, abs=1e-12)


def test_where_the_thresholds_lie():
    scores, Y = np.array([[3.0, 1.0, 0.0]]), np.array([[1, 0, 0]])
    # each row by itself is each column of the transposed by itself
    assert best_thresholds(scores.T, Y.T, average="macro").tolist() == [2.0]
    assert float(best_thresholds(scores, np.array([[1, 1, 1]]))) == -0.5
    assert float(best_thresholds(scores, np.array([[0, 0, 0]]))) == 3.5
    P = np.array([[0.9, 0.5]])
    assert float(best_thresholds(P, np.array([[0, 0]]), ends=(0.0, 1.0))) == pytest.approx(0.95)
    assert float(best_thresholds(P, np.array([[1, 1]]), ends=(0.0, 1.0))) == pytest.approx(0.25)
    low = 0.3
    high = np.nextafter(low, 1)
    for average in ("instance", "micro"):
        threshold = best_thresholds(np.array([[low, high]]), np.array([[0, 1]]), average=average)
        assert low <= threshold < high
    with pytest.raises(ValueError, match="average must be one of"):
        best_thresholds(P, Y, average="samples")
