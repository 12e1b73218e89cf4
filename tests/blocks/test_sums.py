"""Sums over a block of rows, against plain formulas and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta.blocks.sums import BlockTargets, Draw, MergedPoints, TrialPoint, add_up
from fbeta.linear.objectives import Binary
from fbeta.losses import get_loss

RNG = np.random.default_rng(0)
N, D, M = 700, 4, 5


def rows(sparse=False, weighted=True):
    X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
    targets = sp.csr_array((RNG.random((N, M)) < 0.3).astype(np.int8))
    weight = RNG.random(N) + 0.1 if weighted else None
    return BlockTargets(sp.csr_array(X) if sparse else X, targets, weight, RNG.integers(0, 3, N))


def point(loss="logistic", names=(3, 0, 4), fold=-1, scale=1.0):
    names = np.array(names)
    coef, offset = scale * RNG.normal(size=(D, len(names))), RNG.normal(size=len(names))
    return TrialPoint(Binary(get_loss(loss)), names, coef, offset, RNG.normal(size=D), fold)


def value(block, p, loss, coef, offset):
    X = block.X.toarray() if sp.issparse(block.X) else block.X
    U = (X - p.mean) @ coef + offset
    losses = get_loss(loss).value(block.targets.toarray()[:, p.names].astype(float), U)
    weight = np.ones(N) if block.weight is None else block.weight
    return (weight * (block.fold != p.fold)) @ losses


@pytest.mark.parametrize("loss", ["logistic", "exponential", "squared"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [0.5, 60.0])
def test_sums_are_values_and_their_derivatives(loss, sparse, scale):
    scale = 0.5 if loss == "exponential" else scale
    block, p = rows(sparse), point(loss, fold=1, scale=scale)
    [sums], chance = add_up(block, [p], np.float64)
    assert chance is None
    np.testing.assert_allclose(sums.value, value(block, p, loss, p.coef, p.offset), rtol=1e-9)
    step = 1e-6
    for j in range(D):
        move = np.zeros_like(p.coef)
        move[j] = step
        high, low = (value(block, p, loss, p.coef + s * move, p.offset) for s in (1, -1))
        near = (high - low) / (2 * step)
        np.testing.assert_allclose(sums.gradient[j], near, rtol=1e-4, atol=1e-3)
    high, low = (value(block, p, loss, p.coef, p.offset + s * step) for s in (1, -1))
    np.testing.assert_allclose(sums.total, (high - low) / (2 * step), rtol=1e-4, atol=1e-3)


def test_single_precision_is_close():
    block, p = rows(), point()
    [single], _ = add_up(block, [p], np.float32)
    [double], _ = add_up(block, [p], np.float64)
    for name in ("value", "gradient", "total"):
        np.testing.assert_allclose(
            getattr(single, name), getattr(double, name), rtol=1e-4, atol=1e-2
        )


def test_merged_points_are_the_points():
    block = rows()
    mean = np.zeros(D)
    points = [
        TrialPoint(p.objective, p.names, p.coef, p.offset, mean, p.fold)
        for p in (point(fold=0), point(names=(1, 2), fold=1), point(names=(0, 2), fold=0))
    ]
    merged = MergedPoints(points)
    assert len(merged.points) == 2
    together = merged.split(add_up(block, merged.points, np.float64)[0])
    for own, p in zip(together, points, strict=True):
        [alone], _ = add_up(block, [p], np.float64)
        for name in ("value", "gradient", "total"):
            np.testing.assert_allclose(getattr(own, name), getattr(alone, name), rtol=1e-10)
    joined = merged.join([p.offset for p in points])
    for p, own in zip(merged.points, joined, strict=True):
        np.testing.assert_array_equal(p.offset, own)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_rows_are_drawn_by_their_share_in_hessians(loss):
    block, p = rows(weighted=False), point(loss)
    X = block.X
    U = (X - p.mean) @ p.coef + p.offset
    y = block.targets.toarray()[:, p.names].astype(float)
    curvature = get_loss(loss).second_derivative(y, U)
    totals, scale = curvature.sum(axis=0), np.ones(D)
    sums, chance = add_up(block, [p], np.float64, Draw([totals], scale, 50.0, 0.01, 0))
    size = ((X - p.mean) ** 2).sum(axis=1) / D
    shares = (curvature / totals).sum(axis=1) / len(totals)
    np.testing.assert_allclose(chance, np.minimum(1, 50 * shares * (1 + size) / 2 + 0.01))
    [plain], _ = add_up(block, [p], np.float64)
    np.testing.assert_allclose(sums[0].gradient, plain.gradient, rtol=1e-9)
