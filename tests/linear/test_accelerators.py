"""What the solver does on accelerators, tried on a processor that passes for one."""

from __future__ import annotations

import warnings
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import array_namespace, dense_columns, is_accelerator, product_precision
from fbeta.linear import Design
from fbeta.linear.batch import ProblemBatch
from fbeta.losses import LogisticLoss
from tests.linear.fits import linear_problems

from ..cases import slow
from . import hostile
from .fits import fit_linear

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
LOGISTIC = LogisticLoss()
USERS = (
    "_array",
    "losses",
    *(f"linear.{part}" for part in ("batch", "in_memory", "objectives", "problems")),
)


@pytest.fixture
def stage():
    """Run each test once: the compiled part solves no tensors."""


@pytest.fixture
def _accelerator(monkeypatch):
    for user in USERS:
        monkeypatch.setattr(import_module(f"fbeta.{user}"), "is_accelerator", lambda device: True)
    monkeypatch.setattr("fbeta.linear.problems.MIN_SINGLE_ENTRIES", 0)


def make(n=400, d=12, m=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    share = 1 / (1 + np.exp(2 - X @ rng.normal(size=(d, m))))
    return X, sp.csc_array((rng.random((n, m)) < share).astype(np.int8))


@pytest.mark.usefixtures("_accelerator")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_same_solutions(dtype, weighted, intercept):
    X, T = make()
    X = X.astype(dtype)
    weight = np.random.default_rng(1).uniform(0.1, 2, len(X)) if weighted else None
    settings = {"weight": weight, "fit_intercept": intercept, "tol": 1e-10}
    found = fit_linear(torch.asarray(X), T, LOGISTIC, 0.5, **settings)
    right = fit_linear(X, T, LOGISTIC, 0.5, **settings)
    assert found.converged.all()
    assert isinstance(found.coef, torch.Tensor)
    assert found.coef.dtype == torch.asarray(X).dtype
    np.testing.assert_allclose(found.coef.numpy(), right.coef, atol=2e-4)
    np.testing.assert_allclose(found.intercept.numpy(), right.intercept, atol=2e-4)


@pytest.mark.usefixtures("_accelerator")
def test_single_precision_comes_first_and_double_has_the_last_word(monkeypatch):
    X, T = make()
    seen = []
    losses = ProblemBatch.losses

    def spy(block, *rest):
        seen.append(block.dtype)
        return losses(block, *rest)

    monkeypatch.setattr(ProblemBatch, "losses", spy)
    problems = linear_problems(Design.of(torch.asarray(X)), T, LOGISTIC)
    assert problems.solve(0.5).converged.all()
    assert seen == sorted(seen, key=str)
    assert seen.count(torch.float32) > 2
    assert seen[-1] == torch.float64
    # what single precision found was as good as solved
    assert seen.count(torch.float64) <= 2


@pytest.mark.usefixtures("_accelerator")
@pytest.mark.parametrize("seeds", [range(20), slow(range(20, 40)), slow(range(40, 80))])
def test_nothing_is_silently_wrong(seeds):
    warned = total = 0
    for seed in seeds:
        case = hostile.make_case(seed)
        if sp.issparse(case.X):
            continue
        best = np.array([hostile.optimum(case, m) for m in range(10)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = fit_linear(
                torch.asarray(np.ascontiguousarray(case.X)),
                sp.csc_array(case.targets),
                LOGISTIC,
                case.alpha,
                weight=case.weight,
                fit_intercept=case.intercept,
            )
        intercept = np.nan_to_num(model.intercept.double().numpy(), posinf=1e3, neginf=-1e3)
        coef, converged = model.coef.numpy()[model.problem], model.converged[model.problem]
        found = hostile.objectives(case, coef, intercept[model.problem])
        weight = len(case.dense) if case.weight is None else case.weight.sum()
        limit = 1e-5 * (best + 1e-4 * weight * np.log(2))
        assert not (~(found <= best + limit) & converged).any(), case.words
        warned, total = warned + (~converged).sum(), total + len(converged)
    assert warned <= 0.02 * total


@pytest.mark.usefixtures("_accelerator")
def test_targets_are_made_on_the_device():
    matrix = sp.random_array((7, 5), density=0.4, format="csc", rng=np.random.default_rng(0))
    xp = array_namespace(torch.zeros(1))
    dense = dense_columns(xp, torch.device("cpu"), matrix, torch.float64)
    np.testing.assert_array_equal(dense.numpy(), matrix.toarray())


def test_the_setting_of_products_is_put_back(monkeypatch):
    monkeypatch.setattr("fbeta._array.is_accelerator", lambda device: True)
    before = torch.get_float32_matmul_precision()
    with product_precision(torch, "cuda", full=False):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_processors_are_none():
    assert not is_accelerator(None)
    assert not is_accelerator(torch.device("cpu"))
    assert is_accelerator("cuda:0")
