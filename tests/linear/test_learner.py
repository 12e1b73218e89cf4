"""Learners: the path against separate fits, and checks of what they are made with."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.validation import _num_samples

from fbeta.linear import Design, LinearLearner, LinearScores, Multinomial
from fbeta.linear.learner import Learner, take_rows
from fbeta.losses import SquaredLoss
from fbeta.statistics.codes import MarginalCode

from ..cases import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = sp.csr_array((X[:, :3] + RNG.normal(size=(60, 3)) > 0).astype(np.int8))
ROWS, ALPHAS = np.arange(10, 50), [10.0, 0.1, 1.0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [slow(False), True])
@pytest.mark.parametrize(
    ("learner", "targets"),
    [
        (LinearLearner(tol=1e-12), Y.tocsc()),
        (LinearLearner(False, 1e-12, 200, SquaredLoss()), Y.tocsc()),
        (LinearLearner(tol=1e-12, objective=Multinomial), Y.toarray().cumsum(axis=1)),
    ],
)
def test_the_path_is_separate_fits(form, weighted, learner, targets):
    weight = RNG.uniform(0.5, 2, 60) if weighted else None
    own = None if weight is None else weight[ROWS]
    features = form(X)
    shared = learner.share(features, weight)
    found = dict(learner.path(shared, targets[ROWS], weight, ROWS, ALPHAS))
    plain = dict(Learner.path(learner, features, targets[ROWS], weight, ROWS, ALPHAS))
    assert set(found) == set(plain) == set(ALPHAS)
    for alpha in ALPHAS:
        single = learner.fit(features[ROWS], targets[ROWS], own, alpha)
        P = single.probabilities(features)
        assert np.array_equal(plain[alpha].probabilities(features), P)
        np.testing.assert_allclose(found[alpha].probabilities(shared), P, atol=2e-5)


def test_unfolded_models_predict_the_same():
    twice = sp.hstack([Y, Y[:, [0]]], format="csc")
    folded, unfolded = (
        LinearLearner(unfold=unfold).fit(X, twice, None, 1.0) for unfold in (False, True)
    )
    assert len(folded.coef) == 3
    assert len(unfolded.coef) == len(unfolded.intercept) == len(unfolded.n_iter) == 4
    np.testing.assert_allclose(unfolded.probabilities(X), folded.probabilities(X))
    assert folded.most_iter == unfolded.most_iter > 0


def test_targets_are_named_in_warnings():
    code = MarginalCode.of(Y)
    learner = LinearLearner(max_iter=1, tol=1e-12)
    with pytest.warns(UserWarning, match="label sun"):
        learner.fit(X, code.targets(Y), None, 1e-6, lambda t: code.name(t, ["sea", "sky", "sun"]))


@pytest.mark.parametrize(
    ("parameters", "error"),
    [({"tol": 0.0}, ValueError), ({"tol": "1"}, TypeError), ({"max_iter": 0}, ValueError)],
)
def test_parameters_are_checked_once(parameters, error):
    with pytest.raises(error, match=next(iter(parameters))):
        LinearLearner(**parameters)
    with pytest.raises(ValueError, match="alpha"):
        LinearLearner().fit(X, Y.tocsc(), None, -1.0)


def test_rows_of_everything():
    rows = np.array([3, 1])
    design = Design.of(X)
    for features in (X, sp.csr_array(X), design, X.tolist()):
        assert _num_samples(take_rows(features, rows)) == 2
        assert _num_samples(take_rows(features, slice(1, 4))) == 3
    assert LinearScores(np.ones((1, 4)), np.array([np.inf])).scores(X).tolist() == [[np.inf]] * 60
