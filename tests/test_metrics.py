from __future__ import annotations

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
