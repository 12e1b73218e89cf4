"""The problems of all folds solved together, against those of each fold alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.model_selection import KFold

from fbeta import AlphaSearchCV, FBetaClassifier
from fbeta.linear import Design, Problems, solve_path
from fbeta.linear.objectives import Binary
from fbeta.linear.problems import folded_paths
from fbeta.losses import LOSSES, LogisticLoss
from fbeta.rivals import BinaryRelevance
from tests.linear.fits import linear_problems

from ..cases import slow
from ..places import put

ALPHAS = [10.0, 1.0, 0.1]


def make(n=150, d=6, m=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    T = (X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m)) > 0.7).astype(np.int8)
    T[:, 1] = T[:, 0]  # equal targets
    T[:, 2] = 0  # constant in all folds but one
    T[0, 2] = 1
    rows = [train for train, _ in KFold(3, shuffle=True, random_state=0).split(X)]
    return X, T, rows


def alone(X, T, rows, weight, intercept, loss):
    """The solutions of a fold by problems of its own, and their objectives."""
    design = Design.of(X, weight, intercept=intercept, rotate=False)
    return design, linear_problems(design.take(rows), sp.csc_array(T[rows]), loss)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("weighted", [slow(False), True])
@pytest.mark.parametrize("intercept", [slow(False), True])
def test_every_fold_has_the_solutions_of_its_own_rows(monkeypatch, loss, weighted, intercept):
    monkeypatch.setattr("fbeta.linear.problems.is_accelerator", lambda device: True)
    X, T, rows = make()
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighted else None
    shared = Design.of(X, weight, intercept=intercept, rotate=False)
    targets = [sp.csc_array(T[own]) for own in rows]
    settings = {"tol": 1e-9, "max_iter": 100}
    paths = folded_paths(shared, targets, rows, ALPHAS, LOSSES[loss], **settings)
    for k, steps in enumerate(zip(*paths, strict=True)):
        for (alpha, found), own in zip(steps, rows, strict=True):
            _, problems = alone(X, T, own, weight, intercept, LOSSES[loss])
            want = dict(solve_path(problems, ALPHAS, **settings))[alpha]
            assert alpha == ALPHAS[k]
            assert found.converged.all()
            ours, theirs = (s.probabilities(shared) for s in (found, want))
            np.testing.assert_allclose(ours, theirs, atol=2e-4)
            if intercept:  # the fold that lacks the one positive has a constant target
                assert (ours[:, 2] == 0).all() == (0 not in own)


def test_rows_of_other_folds_have_no_loss():
    rng = np.random.default_rng(0)
    y, u = (rng.uniform(size=(20, 3)) < 0.5).astype(float), 3 * rng.normal(size=(20, 3))
    absent = rng.uniform(size=y.shape) < 0.3
    for cautious in (None, np.array([True, False, True])):
        want = Binary(LogisticLoss()).evaluate(y, u, cautious)
        objective = Binary(LogisticLoss(), rows=[])
        got = objective.evaluate(np.where(absent, np.nan, y), u, cautious)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, np.where(absent, 0.0, b))


def test_a_fold_that_has_ended_is_solved_no_more(monkeypatch):
    monkeypatch.setattr("fbeta.linear.problems.is_accelerator", lambda device: True)
    X, T, rows = make()
    solved = []
    plain = Problems.solve

    def solve(self, *given, **options):
        solved.append(set(self.objective.fold[self.unsolved].tolist()))
        return plain(self, *given, **options)

    monkeypatch.setattr(Problems, "solve", solve)
    targets = [sp.csc_array(T[own]) for own in rows]
    options = {"tol": 1e-6, "max_iter": 100}
    shared = Design.of(X, None, rotate=False)
    paths = folded_paths(shared, targets, rows, ALPHAS, LogisticLoss(), **options)
    for path in paths:
        next(path)
    paths[1].close()
    for path in (paths[0], paths[2]):
        assert len(list(path)) == 2
    assert solved == [{0, 1, 2}, {0, 2}, {0, 2}]


def test_folds_go_one_by_one_where_that_is_not_slower(monkeypatch):
    X, T, rows = make()
    shared, targets = Design.of(X, None), [sp.csc_array(T[own]) for own in rows]
    options = {"tol": 1e-6, "max_iter": 100}
    assert folded_paths(shared, targets, rows, ALPHAS, LogisticLoss(), **options) is None
    monkeypatch.setattr("fbeta.linear.problems.is_accelerator", lambda device: True)
    monkeypatch.setattr("fbeta.linear.problems.MAX_FOLDED_SCORES", 100)
    assert folded_paths(shared, targets, rows, ALPHAS, LogisticLoss(), **options) is None


@pytest.mark.parametrize(
    "place", ["strict on device1", pytest.param("torch on cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("model", [slow(BinaryRelevance), FBetaClassifier])
def test_a_search_on_a_device_finds_what_one_on_the_processor_finds(monkeypatch, place, model):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, T, _ = make(n=240)
    device_X = put(X, place)
    plain = AlphaSearchCV(model(), alphas=ALPHAS, prune=False).fit(X, T)
    with config_context(array_api_dispatch=True):
        search = AlphaSearchCV(model(), alphas=ALPHAS, prune=False).fit(device_X, T)
    scores = [own.cv_results_["mean_test_score"] for own in (plain, search)]
    np.testing.assert_allclose(*scores, atol=2e-3)
    assert search.alpha_ == plain.alpha_
