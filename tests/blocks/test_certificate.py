"""Bounds of what is left to gain over all rows, by rows that stand for them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta.blocks import certificate
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.design import Design
from fbeta.linear.objectives import Binary
from fbeta.losses import LogisticLoss
from tests.cases import slow
from tests.linear import hostile

KINDS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "cauchy": lambda rng, n, d: rng.standard_cauchy(size=(n, d)),
    "collinear": lambda rng, n, d: rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)),
    "sparse": lambda rng, n, d: rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.1) + 0.0,
}


@pytest.mark.parametrize("rows_per_feature", [2, slow(64)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_is_below_what_is_left(kind, rows_per_feature, monkeypatch):
    """At points near and far, for few and many rows of the factorised Hessian."""
    monkeypatch.setattr(certificate, "ROWS_PER_FEATURE", rows_per_feature)
    finite = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, d, alpha = 400, 4, 10.0 ** rng.uniform(-2, 1)
        X = KINDS[kind](rng, n, d)
        y = (X[:, 0] + rng.logistic(size=n) > 1).astype(np.int64)[:, None]
        case = hostile.Case(X, y, alpha, None, True, kind)
        best = hostile.optimum(case, 0)
        form = sp.csr_array if kind == "sparse" else np.asarray
        design = Design.of(form(X), intercept=True, rotate=False, complete=True)
        whole = ProblemBatch(design, design, Binary(LogisticLoss()), y, alpha)
        held = rng.permutation(n)[: n // 4]
        share = 0.2
        part = replace(design.take(held), weight=np.full((len(held), 1), 1 / share))
        batch = ProblemBatch(part, part, Binary(LogisticLoss()), y[held], alpha)
        W = np.zeros((d + 1, 1))
        for _ in range(25):
            at = whole.evaluate(W)
            there = batch.evaluate(W)
            there.gradient = at.gradient
            inverse = [np.linalg.pinv(_hessian(own, e)) for own, e in ((batch, there), (whole, at))]
            decrement = np.array([at.gradient[:, 0] @ inverse[0] @ at.gradient[:, 0]])
            found = SimpleNamespace(lower=decrement, upper=decrement * (1 + 1e-9))
            limit = np.array([1e3 * best])
            weight = np.ones(len(held))
            bound = certificate.bounds_of_gain(batch, weight, there, found, limit)[0]
            assert 2 * (at.value[0] - best) <= bound * (1 + 1e-6) + 1e-8 * best
            finite += bound < 1e-2 * best
            W = W - 0.7 * inverse[1] @ at.gradient
    assert finite > 12


def _hessian(batch, at):
    rows = np.concatenate([batch.design.backward(_array(tile).T).T for tile in batch.tiles])
    mass = np.concatenate(at.curvature)[:, 0]
    if batch.design.weight is not None:
        mass = mass * batch.design.weight[:, 0]
    return (rows * mass[:, None]).T @ rows + np.diag(batch.penalty[:, 0])


def _array(tile):
    return tile.toarray() if sp.issparse(tile) else tile
