"""Thresholds on held-out rows, and which rows are held out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.rivals.held_out import ThresholdedRelevance, split_rows


@parametrize_with_checks(
    [ThresholdedRelevance(), ThresholdedRelevance(average="macro", validation_fraction=0.5)]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=80, d=4, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.8).astype(int)


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
    assert fbeta_score(truth, model.threshold_ < P) >= fbeta_score(truth, P > 0.5)


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
