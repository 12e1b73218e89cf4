"""Converged means converged: nothing that the solver gets wrong goes without a warning."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from fbeta.datasets import load
from fbeta.estimators.folds import ALPHAS
from fbeta.linear import (
    Design,
    Multinomial,
    Problems,
    solve_path,
)
from fbeta.losses import LogisticLoss
from fbeta.statistics import encode, observed_cardinalities
from tests.linear.fits import linear_problems

from ..cases import slow
from . import hostile
from .fits import fit_linear, fit_softmax

TOL = 1e-6
LOGISTIC = LogisticLoss()


def binary_objectives(case):
    model = fit_linear(
        case.X,
        sp.csc_array(case.targets),
        LOGISTIC,
        case.alpha,
        weight=case.weight,
        fit_intercept=case.intercept,
    )
    # a constant target has an infinite intercept, and its objective is 0
    intercept = np.nan_to_num(model.intercept.astype(np.float64), posinf=1e3, neginf=-1e3)
    intercept = intercept[model.problem]
    found = hostile.objectives(case, model.coef[model.problem], intercept)
    return found, model.converged[model.problem]


def multinomial_objectives(case):
    model = fit_softmax(
        case.X, case.targets, case.alpha, weight=case.weight, fit_intercept=case.intercept
    )
    parts = [slice(*pair) for pair in pairwise(np.cumsum([0, *model.objective.counts]))]
    coef, intercept = ([a[part] for part in parts] for a in (model.coef, model.intercept))
    return hostile.objectives(case, coef, intercept, multinomial=True), model.converged


@pytest.mark.parametrize("multinomial", [False, True])
@pytest.mark.parametrize(
    "seeds",
    [
        range(4),
        slow(range(4, 10)),
        *(slow(range(a, a + 58)) for a in range(10, 300, 58)),
    ],
)
def test_nothing_is_silently_wrong(seeds, multinomial, stage):
    """3,000 problems of each kind; few of them may end in a warning."""
    if len(seeds) > 10:  # half of the slow ones are solved without the compiled part
        seeds = seeds[stage == "arrays" :: 2]
    warned = total = 0
    for seed in seeds:
        case = hostile.make_case(seed, multinomial)
        best = np.array([hostile.optimum(case, m, multinomial) for m in range(10)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            find = multinomial_objectives if multinomial else binary_objectives
            found, converged = find(case)
        weight = len(case.dense) if case.weight is None else case.weight.sum()
        limit = 10 * TOL * (best + 1e-4 * weight * np.log(2))
        wrong = ~(found <= best + limit)
        assert not (wrong & converged).any(), f"{case.words}: {(found / best - 1)[wrong]}"
        # the reference has to be one
        assert (found >= best - limit).all(), case.words
        warned, total = warned + (~converged).sum(), total + len(converged)
    # the ten problems of a case may all end so
    assert warned <= 0.03 * total + 10 * (len(seeds) > 10)


@pytest.mark.parametrize("shape", [(300, 40), slow((1000, 200))])
def test_pairs_of_nearly_equal_features(shape):
    rng = np.random.default_rng(0)
    A = rng.normal(size=shape)
    X = np.hstack([A, A + 1e-3 * rng.normal(size=shape)])
    y = (rng.random(shape[0]) < 1 / (1 + np.exp(-A[:, 0]))).astype(int)[:, None]
    case = hostile.Case(X, y, 1e-4, None, True, "pairs")
    found, converged = binary_objectives(case)
    assert converged.all()
    assert found[0] == pytest.approx(hostile.optimum(case, 0), rel=1e-5)


def test_a_mean_far_above_the_spread_without_an_intercept():
    rng = np.random.default_rng(0)
    X = sp.csr_array(1000 + rng.normal(size=(300, 20)))
    y = (rng.random(300) < 0.3).astype(int)[:, None]
    case = hostile.Case(X, y, 1.0, None, False, "shift")
    found, converged = binary_objectives(case)
    assert converged.all()
    assert found[0] == pytest.approx(hostile.optimum(case, 0), rel=1e-5)


@pytest.mark.parametrize("scale", [3e-8, 1.0, 3e8])
def test_the_scale_of_the_features_does_not_matter(scale):
    """With alpha scaled by its square it is the same problem."""
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(150, 6)), rng.integers(0, 4, size=(150, 3))
    plain = hostile.Case(X, classes, 0.5, None, True, "plain")
    scaled = hostile.Case(scale * X, classes, 0.5 * scale**2, None, True, "scaled")
    (one, _), (other, converged) = (multinomial_objectives(case) for case in (plain, scaled))
    assert converged.all()
    assert other == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scene", "yeast", "birds", "medical", "enron"])
def test_raw_data_sets_along_the_grid_of_the_paper(name, mulan, stage):
    """Against solutions of a far smaller tolerance, in other coordinates."""
    data = load(name, data_home=mulan)
    Y = sp.csr_array(data.Y_train)
    targets = encode(Y, observed_cardinalities(Y))
    rng = np.random.default_rng(0)
    # the array solver alone takes its time: some of the problems will do
    some = rng.permutation(targets.shape[1])[: 200 if stage == "compiled" else 25]
    X, targets = data.X_train, sp.csc_array(targets[:, np.sort(some)])
    problems = linear_problems(Design.of(X, rotate=False), targets, LOGISTIC)
    other = linear_problems(Design.of(X, rotate=True), targets, LOGISTIC)
    other.compiled = None
    fine = solve_path(other, ALPHAS, tol=1e-10, max_iter=300)
    for (alpha, solution), (_, best) in zip(solve_path(problems, ALPHAS), fine, strict=True):
        dense = problems.targets.toarray()
        values = []
        for owner, found in ((problems, solution), (other, best)):
            model = owner.model(found)
            u = np.asarray(X @ model.coef.T) + np.clip(model.intercept, -700, 700)
            loss = LOGISTIC.value(dense, u).sum(axis=0)
            values.append(loss + alpha / 2 * (model.coef**2).sum(axis=1))
        wrong = values[0] > values[1] + 10 * TOL * (values[1] + problems.floor)
        assert not (wrong & solution.converged).any(), (alpha, np.flatnonzero(wrong))
        assert solution.converged.mean() > 0.98, alpha


def test_classes_as_wide_as_the_registers_and_wider():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    classes = np.stack([rng.integers(0, c, 400) for c in (2, 8, 9, 16, 17)], axis=1)
    problems = Problems(Design.of(X), Multinomial.of(classes), classes)
    solution = problems.solve(0.1)
    assert solution.converged.all()
    case = hostile.Case(X, classes, 0.1, None, True, "wide")
    found, _ = multinomial_objectives(case)
    best = [hostile.optimum(case, m, multinomial=True) for m in range(5)]
    assert found == pytest.approx(best, rel=1e-5)
