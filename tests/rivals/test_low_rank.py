"""Theorem 1: any loss matrix, and the F_beta method as the special case."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import FBetaClassifier, fbeta_score
from fbeta.metrics import fbeta_per_instance
from fbeta.rivals.low_rank import LowRankClassifier, all_labelsets, factorise, fbeta_factors


@pytest.mark.slow
@parametrize_with_checks([LowRankClassifier(), LowRankClassifier(loss="squared", alpha=0.1)])
def test_scikit_learn(estimator, check):
    check(estimator)


def labels(n=60, d=3, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.4).astype(int)


def classes(n=90, d=2, c=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.argmax(X @ rng.normal(size=(d, c)) + rng.gumbel(size=(n, c)), axis=1)


@settings(max_examples=40, deadline=None)
@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        elements=st.integers(-4, 4).map(float),
    )
)
def test_factors_multiply_to_the_matrix(L):
    A, B = factorise(L)
    np.testing.assert_allclose(A @ B, L, atol=1e-10)
    assert A.shape[1] == max(1, np.linalg.matrix_rank(L))


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("s", [1, 2, 4])
def test_the_factors_of_the_paper(s, beta):
    A, B = fbeta_factors(s, beta)
    sets = all_labelsets(s)
    assert sorted(map(tuple, sets.tolist())) == sorted(product((0, 1), repeat=s))
    assert A.shape[1] == 1 + s**2
    for y, row in zip(sets, A @ B, strict=True):
        truth = np.tile(y, (len(sets), 1))
        np.testing.assert_allclose(-row, fbeta_per_instance(truth, sets, beta))
    # the rank that the errata give
    assert np.linalg.matrix_rank(A @ B) == s**2 - s + 2


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("s", [1, 2, 3, 6])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_is_the_fbeta_classifier(s, beta, loss):
    X, Y = labels(s=s)
    general = LowRankClassifier.for_fbeta(s, beta, alpha=0.3, loss=loss).fit(X, Y)
    special = FBetaClassifier(beta, 0.3, loss=loss).fit(X, Y)
    fresh = np.random.default_rng(1).normal(size=(200, 3))
    assert np.array_equal(general.predict(fresh), special.predict(fresh))
    assert general.score(X, Y) == pytest.approx(fbeta_score(Y, special.predict(X), beta))
    with pytest.raises(ValueError, match="rows and y has 1"):
        general.score(X, Y[:1])


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_factors_in_any_range(shift):
    """Classes as factors, moved and stretched: the same problems, another a_min and a_max.

    The estimates q of the classes' probabilities need not sum to 1, and what was moved shows by
    as much as they do not.
    """
    X, y = classes()
    L = np.abs(np.arange(4)[:, None] - np.arange(4)[None, :]).astype(float)
    A = np.eye(4)
    plain = LowRankClassifier(factors=(A, L)).fit(X, y)
    # (shift + 5 A) C = L for C = (L - shift sum(C)) / 5, with the column sums of C
    sums = L.sum(axis=0) / (5 + 4 * shift)
    moved = LowRankClassifier(factors=(shift + 5 * A, (L - shift * sums) / 5)).fit(X, y)
    q = LowRankClassifier(factors=(A, A)).fit(X, y).predict_loss(X)
    rest = 1 - q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved.predict_loss(X), q @ L + shift * rest * sums, atol=1e-10)
    np.testing.assert_allclose(plain.predict_loss(X), q @ L, atol=1e-10)


def test_zero_one_loss_is_one_against_rest():
    X, y = classes()
    names = np.array(["a", "b", "c", "d"])[y]
    model = LowRankClassifier(alpha=0.5, tol=1e-12).fit(X, names)
    best = np.column_stack(
        [
            LogisticRegression(C=2.0, tol=1e-10, max_iter=1000)
            .fit(X, y == c)
            .predict_proba(X)[:, 1]
            for c in range(4)
        ]
    )
    assert np.array_equal(model.predict(X), model.classes_[best.argmax(axis=1)])
    assert model.score(X, names) == pytest.approx(np.mean(model.predict(X) == names) - 1)


def test_rejection():
    """More predictions than classes: the last column is to refuse, at the cost 0.2."""
    X, y = classes(c=2)
    L = [[0, 1, 0.2], [1, 0, 0.2]]
    model = LowRankClassifier(L).fit(X, y)
    predicted, loss = model.predict(X), model.predict_loss(X)
    assert set(predicted) == {0, 1, 2}
    assert np.array_equal(predicted, loss.argmin(axis=1))
    assert model.score(X, y) == pytest.approx(-np.asarray(L)[y, predicted].mean())


def test_expected_loss_is_right_where_x_says_nothing():
    rng = np.random.default_rng(0)
    y, L = rng.integers(0, 3, 300), rng.normal(size=(3, 5))
    model = LowRankClassifier(L, tol=1e-12).fit(np.zeros((300, 1)), y)
    expected = np.bincount(y) / 300 @ L
    np.testing.assert_allclose(model.predict_loss(np.zeros((1, 1)))[0], expected, atol=1e-6)


def test_label_sets_in_their_forms():
    X, Y = labels(s=2)
    names = [[n for n, on in zip(("sea", "sky"), y, strict=True) if on] for y in Y]
    factors, sets = fbeta_factors(2), [[], ["sea"], ["sky"], ["sea", "sky"]]
    by_name = LowRankClassifier(factors=factors, labelsets=sets).fit(X, names)
    by_column = LowRankClassifier.for_fbeta(2).fit(X, Y)
    sparse = LowRankClassifier.for_fbeta(2).fit(sp.csr_array(X), sp.csr_array(Y))
    predicted = by_column.predict(X)
    assert by_name.predict(X) == [
        [n for n, on in zip(("sea", "sky"), y, strict=True) if on] for y in predicted
    ]
    assert sp.issparse(sparse.predict(X))
    assert np.mean(sparse.predict(X).toarray() == predicted) > 0.98


def test_one_row_of_a_constant_factor():
    X, y = classes(c=2)
    model = LowRankClassifier(factors=(np.ones((2, 1)), [[3.0, 1.0]])).fit(X, y)
    assert (model.predict(X) == 1).all()
    np.testing.assert_allclose(model.predict_loss(X), [[3.0, 1.0]] * len(X))


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"loss_matrix": [[0, 1], [1, 0]]}, [0, 1, 2], "not one of the 2 classes"),
        ({"loss_matrix": [1.0, 2.0]}, [0, 1, 0], "two dimensions"),
        ({"loss_matrix": np.eye(2), "factors": (np.eye(2),) * 2}, [0, 1, 0], "not both"),
        ({"factors": (np.eye(2), np.eye(3))}, [0, 1, 0], "shapes"),
        ({"labelsets": [[0], [1]]}, [[0], [1], [0]], "labelsets need"),
        ({"loss_matrix": np.eye(3), "labelsets": [[0], [1]]}, [[0]] * 3, "2 label sets"),
        ({"loss_matrix": np.eye(2), "labelsets": [[0, 0], [1, 1]]}, [[0, 1]] * 3, "row 0"),
        ({"alpha": -1.0}, [0, 1, 0], "alpha"),
    ],
)
def test_bad_input(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        LowRankClassifier(**parameters).fit(np.eye(3), y)
