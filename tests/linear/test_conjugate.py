"""The bounds of conjugate gradients, against Hessians that are written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from fbeta.linear import Design, preconditioners, problems
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.conjugate import conjugate_gradients
from fbeta.linear.multinomial import Multinomial
from fbeta.linear.objectives import Binary
from fbeta.linear.preconditioners import Eliminating, Factorised
from fbeta.losses import LogisticLoss

from ..cases import slow
from .fits import fit_softmax

COUNTS = np.array([3, 2, 4])


def make_problem(kind, intercept, sparse, alpha, seed=0):
    """Return a block of problems and a point that is no solution."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 8)) * 10.0 ** rng.uniform(-1.5, 1.5, 8) + rng.normal(size=8)
    weight = rng.uniform(0.5, 2, 60)
    design = Design.of(sp.csr_array(X) if sparse else X, weight, intercept=intercept)
    if kind == "binary":
        objective = Binary(LogisticLoss())
        y = (rng.uniform(size=(60, 3)) < 0.3).astype(float)
    else:
        objective = Multinomial(COUNTS)
        y = np.stack([rng.integers(c, size=60) for c in COUNTS], axis=1)
    block = ProblemBatch(design, design, objective, y, alpha)
    W = rng.normal(size=(design.matrix.shape[1], 3 * objective.width))
    return block, block.evaluate(objective.project(0.1 * W))


def decrements(block, point):
    """Return ``g' H^-1 g`` of each problem, with H column by column, by its products."""
    p, C = block.penalty.shape[0], block.width
    out = []
    for m in range(3):
        H = np.zeros((p * C, p * C))
        for k in range(p * C):
            P = np.zeros((p, 3 * C))
            P[k // C, m * C + k % C] = 1
            product = block.hessian_product(block.tiles, point.curvature, P)
            H[:, k] = product[:, m * C : (m + 1) * C].ravel()
        g = point.gradient[:, m * C : (m + 1) * C].ravel()
        out.append(g @ np.linalg.lstsq(H, g, rcond=1e-13)[0])
    return np.array(out)


@pytest.mark.parametrize("kind", ["binary", "multinomial"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, slow(True)])
@pytest.mark.parametrize("alpha", [1e-3, slow(1.0), slow(100.0)])
@pytest.mark.parametrize("make", [Eliminating, Factorised])
def test_the_decrement_is_between_its_bounds_after_any_number_of_steps(
    kind, intercept, sparse, alpha, make
):
    block, point = make_problem(kind, intercept, sparse, alpha)
    exact, never = decrements(block, point), np.zeros(3, dtype=bool)
    for steps in range(30):
        preconditioner = make.build(block, point, None, None)
        found = conjugate_gradients(block, point, preconditioner, np.zeros(3), never, steps)
        assert (found.lower <= exact * (1 + 1e-6)).all()
        assert (found.upper >= exact * (1 - 1e-6)).all()
    assert np.allclose(found.lower, exact, rtol=0.02)


@pytest.mark.parametrize("kind", ["binary", "multinomial"])
@pytest.mark.parametrize("intercept", [False, True])
def test_what_a_residual_can_hide_is_bounded_by_the_penalty(kind, intercept):
    """And by far better than by the lower end of the spectrum, where columns differ in scale."""
    block, point = make_problem(kind, intercept, False, 1e-3)
    preconditioner = Eliminating.build(block, point, None, None)
    _, size, most = preconditioner.apply(point.gradient)
    exact = decrements(block, point)
    assert (most >= exact * (1 - 1e-9)).all()
    assert (most <= size / preconditioner.smallest * (1 + 1e-9)).all()


def test_no_hessian_is_inverted_that_is_too_large_for_it(monkeypatch):
    """A problem that conjugate gradients give up ends with a warning, and not after hours."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 40))
    X = sp.csr_array(np.hstack([A, A + 1e-3 * rng.normal(size=(300, 40))]))
    classes = rng.integers(3, size=(300, 2))
    monkeypatch.setattr(problems.Problems, "max_steps", lambda self, width, factorised=False: 5)
    fit_softmax(X, classes, 1e-4)  # by inverses
    monkeypatch.setattr(problems, "MAX_INVERTED", 80)

    def fail(*arguments):
        raise AssertionError("inverted")

    monkeypatch.setattr(Factorised, "build", fail)
    with pytest.warns(ConvergenceWarning, match="2 of 2 multinomial problems did not converge"):
        fit_softmax(X, classes, 1e-4)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_with_little_curvature_only_make_a_hessian_smaller(intercept, sparse, monkeypatch):
    """Spectra of M^-1 H, with H written out, at a point far out and at one beside it."""
    monkeypatch.setattr(preconditioners, "MIN_KEPT_ROWS", 0)
    block, _ = make_problem("binary", intercept, sparse, 0.1)
    point = block.evaluate(np.random.default_rng(1).normal(size=(block.penalty.shape[0], 3)))
    made = Factorised.build(block, point, None, None)
    left_out = [own == 0 for own in made.curvature]
    assert np.concatenate(left_out).mean() > 0.3
    for at, steps in ((point, None), (block.evaluate(0.9 * point.W), np.zeros(3, dtype=int))):
        made = made if steps is None else Factorised.build(block, at, made, steps)
        for k in range(3):
            P = np.zeros((block.penalty.shape[0] ** 2, 3)).reshape(block.penalty.shape[0], -1, 3)
            P[:, :, k] = np.eye(len(P))
            columns = [
                block.hessian_product(block.tiles, at.curvature, P[:, j]) for j in range(len(P))
            ]
            H = np.stack([column[:, k] for column in columns], axis=1)
            spectrum = np.linalg.eigvals(made.inverses[k] @ H).real
            assert spectrum.min() >= made.smallest[k] * (1 - 1e-6)
            assert made.smallest[k] > 0


@pytest.mark.parametrize("kind", ["weights", "sizes", "many"])
def test_rows_that_make_up_a_hessian_are_not_left_out(kind, monkeypatch):
    """Rows of large weight, rows of large size, and as many rows as features need."""
    rng = np.random.default_rng(0)
    n, d = (4000 if kind == "many" else 60), 10
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2, size=(n, 1))
    weight = np.where(np.arange(n) < 5, 1e3, 1.0) if kind == "weights" else np.ones(n)
    X = X * (np.where(np.arange(n) < 5, 1e3, 1.0)[:, None] if kind == "sizes" else 1)
    design = Design.of(X, weight, intercept=True, rotate=False, complete=True)
    block = ProblemBatch(design, design, Binary(LogisticLoss()), y, 1e-3)
    at = block.evaluate(np.zeros((d + 1, 1)))
    # little curvature, as of rows that are far on the side of their labels
    factor = np.where(np.arange(n) % 12 == 0, 1.0, 1e-4)[:, None]
    at.curvature = block.tiles.split(np.concatenate(at.curvature) * factor)
    own = np.concatenate(Factorised.build(block, at, None, None).curvature)[:, 0]
    if kind == "many":
        assert ((own > 0) == (factor[:, 0] == 1)).all()
    else:
        assert (own > 0).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_changes_of_scores_by_an_inverse_are_those_of_the_hessian(intercept, sparse):
    """Also of inverses of a point before, and where problems are taken or not asked for."""
    block, point = make_problem("binary", intercept, sparse, 0.1)
    X = block.tiles.product(np.eye(block.penalty.shape[0]))
    rows, every = np.concatenate(X), np.ones(3, dtype=bool)

    def exact(made):
        inverses = [np.einsum("ij,jk,ik->i", rows, own, rows) for own in made.inverses]
        return np.stack(inverses, axis=1) / made.smallest

    made = Factorised.build(block, point, None, None)
    first = np.concatenate(made.reaches(np.array([True, False, False])))
    assert np.array_equal(first[:, 1:], np.zeros((60, 2)))
    assert np.allclose(first[:, 0], exact(made)[:, 0], rtol=1e-9)
    assert np.allclose(np.concatenate(made.reaches(every)), exact(made), rtol=1e-9)
    later = block.evaluate(2.0 * point.W)
    made = Factorised.build(block, later, made, np.array([0, 99, 0]))  # the second one is renewed
    assert made.smallest[1] == 1 > made.smallest[0]
    again = made.take(np.array([2, 1, 0]))
    assert np.allclose(np.concatenate(made.reaches(every)), exact(made), rtol=1e-9)
    assert np.allclose(np.concatenate(again.reaches(every)), exact(made)[:, ::-1], rtol=1e-9)
