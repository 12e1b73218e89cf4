"""Weights by least squares, against a general solver and on laws whose truth is known."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from fbeta import FBetaEnsemble, FBetaForest, LabelStatistics, SizedClassifier
from fbeta.datasets import make_calibrated
from fbeta.estimators import members
from fbeta.estimators.boosting import BoostedClassifier
from fbeta.estimators.forest import NeighboursClassifier
from fbeta.estimators.members import (
    affordable,
    decoder_products,
    fit_member,
    stacked_weights,
)


def what_a_decoder_sees(q, beta, largest):
    """Return the worth of every label in sets of every size, and the probability of no labels."""
    table = [
        [(1 + beta**2) / (beta**2 * k + size) for k in q.cardinalities]
        for size in range(1, largest + 1)
    ]
    worth = np.einsum("lk,nkj->nlj", np.reshape(table, (largest, -1)), q.joint)
    return np.concatenate([q.empty[:, None], worth.reshape(len(q), -1)], axis=1)


def weights_of(parts, Y, beta=1.0, share=None):
    """Return the weights of statistics for true labels, and check that products can be added to."""
    share = np.full(Y.shape[0], 1 / Y.shape[0]) if share is None else share
    every = [LabelStatistics.from_labels(Y.toarray()), *(part.unfolded() for part in parts)]
    largest = int(every[0].cardinalities.max(initial=1))
    gram = decoder_products(every, beta, share, largest)
    known = decoder_products(every[:-1], beta, share, largest)
    np.testing.assert_allclose(decoder_products(every, beta, share, largest, known), gram)
    return stacked_weights(gram)


def make(n, s, m, seed):
    rng = np.random.default_rng(seed)
    Y = (rng.uniform(size=(n, s)) < rng.uniform(0.1, 0.9, s)).astype(int)
    parts = [LabelStatistics.from_marginals(rng.uniform(size=(n, s))) for _ in range(m)]
    return sp.csr_array(Y), parts, rng.dirichlet(np.ones(n))


@pytest.mark.parametrize(("s", "beta"), [(3, 1.0), (25, 0.5), (25, 2.0)])
def test_products_are_those_of_what_a_decoder_sees(s, beta, monkeypatch):
    monkeypatch.setattr(members, "STACKED_NUMBERS", 1 << 12)  # several blocks of rows
    Y, parts, share = make(40, s, 3, 0)
    every = [LabelStatistics.from_labels(Y.toarray()), *(part.unfolded() for part in parts)]
    largest = int(every[0].cardinalities.max())
    seen = np.stack([what_a_decoder_sees(q, beta, largest) for q in every])
    expected = np.einsum("ink,jnk,n->ij", seen, seen, share)
    found = decoder_products(every, beta, share, largest)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert decoder_products(every, beta, share, largest, found) is found


@pytest.mark.parametrize("kind", [FBetaForest, NeighboursClassifier])
def test_a_second_kind_of_candidate_shares_the_fit_of_the_first(kind):
    X, new = np.random.default_rng(0).normal(size=(2, 40, 3))
    Y, _, _ = make(40, 4, 1, 1)
    options = {"n_estimators": 5, "random_state": 0} if kind is FBetaForest else {}
    fitted, sized = kind(**options).fit(X, Y), kind(labels="sized", **options)
    shared = fit_member(sized, X, Y, None, fitted)
    own = sized.fit(X, Y).predict_statistics(new)
    assert shared.model is fitted.model
    assert (shared.labels, fitted.labels) == ("sized", "sets")
    np.testing.assert_array_equal(shared.predict_statistics(new).joint, own.joint)
    assert np.abs(fitted.predict_statistics(new).joint - own.joint).max() > 0.01


def test_boosted_trees_are_read_as_sized_and_as_independent_labels():
    X, new = np.random.default_rng(0).normal(size=(2, 40, 3))
    Y, _, _ = make(40, 4, 1, 1)
    for first, second in (("model", "independent"), ("independent", "model")):
        options = {"n_estimators": 5, "random_state": 0}
        fitted = BoostedClassifier(sizes=first, **options).fit(X, Y)
        other = BoostedClassifier(sizes=second, **options)
        shared = fit_member(other, X, Y, None, fitted).predict_statistics(new)
        own = other.fit(X, Y).predict_statistics(new)
        np.testing.assert_array_equal(shared.joint, own.joint)
        assert shared.cardinalities.tolist() == own.cardinalities.tolist()


def test_an_average_behind_a_candidate_is_explained():
    board = [{"score": 0.6874}, {"score": 0.61}]
    assert "two standard errors" in members.note_on_average(board, 0.679)
    assert members.note_on_average(board, board[0]["score"] - 1e-15) == ""  # rounding
    assert members.note_on_average(board, 0.6874) == members.note_on_average([], 0.5) == ""


def test_members_are_dropped_by_their_weight_if_that_saves_time():
    weights, cost = np.array([0.05, 0.3, 0.0, 0.25, 0.4]), np.array([0.01, 1.0, 9.0, 2.0, 5.0])

    def kept(left):
        found = affordable(weights, lambda some: float(cost[list(some)].sum()), left)
        assert found.sum() == pytest.approx(1)
        return np.flatnonzero(found).tolist()

    assert kept(9.0) == [0, 1, 3, 4]
    assert kept(7.0) == [0, 1, 4]  # the smallest weight would save a hundredth of a second
    assert kept(5.5) == [0, 4]
    assert kept(5.0) == [4]
    assert kept(1.0) == kept(-1.0) == [4]  # the heaviest, although it takes too long
    assert weights.sum() == pytest.approx(1)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 2.0])
)
def test_they_are_those_of_a_general_solver(s, m, seed, beta):
    Y, parts, share = make(12, s, m, seed)
    largest = max(1, int(Y.sum(axis=1).max()))
    truth = what_a_decoder_sees(LabelStatistics.from_labels(Y.toarray()), beta, largest)
    seen = np.stack([what_a_decoder_sees(q, beta, largest) for q in parts])

    def error(w):
        return float(share @ ((np.tensordot(w, seen, 1) - truth) ** 2).sum(axis=1))

    found = weights_of(parts, Y, beta, share)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    best = minimize(
        error, np.full(m, 1 / m), bounds=[(0, 1)] * m, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-12},
    )  # fmt: skip
    assert error(found) <= best.fun + 1e-5 * (1 + best.fun)


def test_blocks_of_rows_change_nothing(monkeypatch):
    Y, parts, share = make(40, 3, 3, 0)
    whole = weights_of(parts, Y, 1.0, share)
    monkeypatch.setattr(members, "STACKED_NUMBERS", 1)
    np.testing.assert_allclose(weights_of(parts, Y, 1.0, share), whole, atol=1e-9)


def test_the_true_statistics_get_all_the_weight_in_the_end():
    rng = np.random.default_rng(0)
    P = rng.uniform(size=(20_000, 3))
    Y = sp.csr_array((rng.uniform(size=P.shape) < P).astype(int))
    parts = [LabelStatistics.from_marginals(p) for p in (P**2, P, np.sqrt(P))]
    assert weights_of(parts, Y)[1] > 0.9


def test_odd_statistics():
    nothing = sp.csr_array((3, 2), dtype=int)
    empty = LabelStatistics.from_labels(np.zeros((3, 2), int))
    some = LabelStatistics.from_labels(np.ones((3, 2), int))
    assert weights_of([empty, some], nothing).round(6).tolist() == [1.0, 0.0]
    # equal ones share
    assert weights_of([some, some], nothing).sum() == pytest.approx(1)
    assert weights_of([empty], nothing).tolist() == [1.0]


@pytest.mark.parametrize(
    "given",
    [
        {"lr": NeighboursClassifier()},
        [NeighboursClassifier()],
        [("a", "b", NeighboursClassifier())],
        [(1, NeighboursClassifier())],
        ["lr"],
    ],
)
def test_candidates_are_pairs_of_a_name_and_an_estimator(given):
    with pytest.raises(TypeError, match="candidates must be pairs of a name and an estimator, got"):
        members.as_candidates(given, "candidates")


@pytest.mark.parametrize("kind", [NeighboursClassifier, LogisticRegression])
def test_a_candidate_is_no_class(kind):
    with pytest.raises(TypeError, match=r"'mine' is a class: pass .*\(\)"):
        members.as_candidates([("mine", kind)], "candidates")
    assert set(members.as_candidates([("mine", kind())], "candidates")) == {"mine"}


def test_only_alphas_of_this_library_are_searched():
    class Own(ClassifierMixin, BaseEstimator):
        used: ClassVar[list[float]] = []

        def __init__(self, alpha=20.0):
            self.alpha = alpha

        def fit(self, X, y):
            self.used.append(self.alpha)
            self.model_ = SizedClassifier(alpha=self.alpha).fit(X, y)
            self.classes_ = self.model_.classes_
            return self

        def predict_statistics(self, X):
            return self.model_.predict_statistics(X)

    X, Y, _, _ = make_calibrated(60, n_labels=3, n_features=12)
    FBetaEnsemble([("own", Own())], cv=3).fit(X, Y)
    assert Own.used == [20.0] * 4
