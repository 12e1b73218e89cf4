"""Thresholds against every cut there is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta.rivals._splitting import averaged_fbeta, split_rows
from fbeta.rivals.thresholded import ThresholdedRelevance, best_thresholds


@parametrize_with_checks(
    [ThresholdedRelevance(), ThresholdedRelevance(average="macro", validation_fraction=0.5)]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=80, d=4, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.8).astype(int)


def slow_fbeta(Y, predicted, beta, average, weight):
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
    return (
        values
        if average == "macro"
        else np.average(values, weights=weight if n == len(values) else None)
    )


data = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
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


@settings(max_examples=100, deadline=None)
@given(data, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from(["instance", "micro", "macro"]))
def test_no_threshold_is_better(given_, beta, average):
    P, Y, weight = given_
    threshold = best_thresholds(P, Y, beta, average=average, weight=weight)
    cuts = [-1.0, *np.unique(P)]  # p > t changes nowhere else
    if average == "macro":
        for j in range(P.shape[1]):
            own = slow_fbeta(Y[:, [j]], P[:, [j]] > threshold[j], beta, "macro", weight)[0]
            all_ = [slow_fbeta(Y[:, [j]], P[:, [j]] > t, beta, "macro", weight)[0] for t in cuts]
            assert own == pytest.approx(max(all_), abs=1e-12)
        return
    own = slow_fbeta(Y, threshold < P, beta, average, weight)
    best = max(slow_fbeta(Y, t < P, beta, average, weight) for t in cuts)
    assert own == pytest.approx(best, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(data, st.sampled_from([0.5, 1.0]), st.sampled_from(["instance", "micro", "macro"]))
def test_averages(given_, beta, average):
    P, Y, weight = given_
    own = averaged_fbeta(Y, P > 0.3, beta, average, weight)
    np.testing.assert_allclose(own, slow_fbeta(Y, P > 0.3, beta, average, weight))


def test_neighbours_in_floating_point():
    low = 0.3
    high = np.nextafter(low, 1)
    P, Y = np.array([[low, high]]), np.array([[False, True]])
    for average in ("instance", "micro"):
        assert (best_thresholds(P, Y, average=average) < P).tolist() == [[False, True]]


@pytest.mark.parametrize("average", ["instance", "micro", "macro"])
def test_fit_and_other_betas(average):
    X, Y = toy()
    model = ThresholdedRelevance(average=average, random_state=0).fit(X, Y)
    P = model.predict_marginals(X)
    assert np.array_equal(model.predict(X), model.threshold_ < P)
    assert model.threshold_.shape == (4,)
    assert average == "macro" or len(set(model.threshold_)) == 1
    for beta in (0.3, 3.0):
        other = ThresholdedRelevance(beta, average=average, random_state=0).fit(X, Y)
        assert np.array_equal(model.predict(X, beta=beta), other.predict(X))
    few, many = (model.predict(X, beta=b).sum() for b in (0.1, 10.0))
    assert few <= many


def test_thresholds_beat_the_half_on_the_held_out_rows():
    X, Y = toy()
    model = ThresholdedRelevance(random_state=0).fit(X, Y)
    _, held = split_rows(X, None, 0.25, 0)
    P, truth = model.predict_marginals(X)[held], Y[held] > 0
    own = averaged_fbeta(truth, model.threshold_ < P, 1.0, "instance")
    assert own >= averaged_fbeta(truth, P > 0.5, 1.0, "instance")


def test_split():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(200, 3)).astype(float)
    fitting, held = split_rows(X, None, 0.3, 0)
    assert sorted([*fitting, *held]) == list(range(200))
    assert 0.2 < len(held) / 200 < 0.4
    assert not {tuple(x) for x in X[fitting]} & {tuple(x) for x in X[held]}
    sparse = split_rows(sp.csr_array(X), None, 0.3, 0)
    assert np.array_equal(sparse[0], fitting)
    shuffled = rng.permutation(200)
    again = split_rows(X[shuffled], None, 0.3, 0)
    assert sorted(shuffled[again[1]]) == sorted(held)
    assert not np.array_equal(split_rows(X, None, 0.3, 1)[1], held)
    tiny = split_rows(np.array([[1.0], [2.0]]), None, 0.01, 0)
    assert [len(part) for part in tiny] == [1, 1]


def test_odd_data():
    X, Y = toy()
    assert not ThresholdedRelevance().fit(X, Y * 0).predict(X).any()
    assert ThresholdedRelevance().fit(X, Y * 0 + 1).predict(X).all()
    wide, one = toy(n=10, d=30, s=1)
    assert ThresholdedRelevance().fit(wide, one).predict(wide).shape == (10, 1)
    with pytest.raises(ValueError, match="n_samples = 1 distinct row"):
        ThresholdedRelevance().fit(np.ones((5, 2)), np.ones((5, 1), dtype=int))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_bad_parameters(fraction):
    X, Y = toy()
    with pytest.raises(ValueError, match="validation_fraction"):
        ThresholdedRelevance(validation_fraction=fraction).fit(X, Y)
    with pytest.raises(ValueError, match="average must be one of"):
        ThresholdedRelevance(average="samples").fit(X, Y)
