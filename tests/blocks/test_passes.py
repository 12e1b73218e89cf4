"""Sums over a block, against plain formulas and finite differences; data that change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta.blocks import RowBlocks
from fbeta.blocks.held import Draw, TrialPoint, merge_points
from fbeta.blocks.passes import add_up
from fbeta.blocks.summary import CheckedRows, weighted_bits
from fbeta.linear.batch import take_problems
from fbeta.linear.objectives import Binary
from fbeta.losses import get_loss
from fbeta.rivals import BinaryRelevance

from .toys import SMALL, make_rows

RNG = np.random.default_rng(0)
N, D, M = 700, 4, 5


def rows(sparse=False, weighted=True):
    X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
    targets = sp.csr_array((RNG.random((N, M)) < 0.3).astype(np.int8))
    weight = RNG.random(N) + 0.1 if weighted else None
    X = sp.csr_array(X) if sparse else X
    return CheckedRows(X, targets, weight, np.arange(N, dtype=np.uint64), RNG.integers(0, 3, N))


def point(loss="logistic", names=(3, 0, 4), fold=-1, scale=1.0, mean=None):
    names = np.array(names)
    coef, offset = scale * RNG.normal(size=(D, len(names))), RNG.normal(size=len(names))
    mean = RNG.normal(size=D) if mean is None else mean
    curvature = RNG.random(len(names))
    return TrialPoint(Binary(get_loss(loss)), names, coef, offset, mean, curvature, fold)


def value(block, p, loss, coef, offset):
    X = block.X.toarray() if sp.issparse(block.X) else block.X
    U = (X - p.mean) @ coef + offset
    losses = get_loss(loss).value(block.Y.toarray()[:, p.names].astype(float), U)
    weight = np.ones(N) if block.weight is None else block.weight
    return (weight * (block.fold != p.fold)) @ losses


@pytest.mark.parametrize("loss", ["logistic", "exponential", "squared"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [0.5, 60.0])
def test_sums_are_values_and_their_derivatives(loss, sparse, scale):
    scale = 0.5 if loss == "exponential" else scale
    block, p = rows(sparse), point(loss, fold=1, scale=scale)
    [(found, gradient, total)], chance = add_up(block, [p], np.float64)
    assert chance is None
    np.testing.assert_allclose(found, value(block, p, loss, p.coef, p.offset), rtol=1e-9)
    step = 1e-6
    for j in range(D):
        move = np.zeros_like(p.coef)
        move[j] = step
        high, low = (value(block, p, loss, p.coef + s * move, p.offset) for s in (1, -1))
        near = (high - low) / (2 * step)
        np.testing.assert_allclose(gradient[j], near, rtol=1e-4, atol=1e-3)
    high, low = (value(block, p, loss, p.coef, p.offset + s * step) for s in (1, -1))
    np.testing.assert_allclose(total, (high - low) / (2 * step), rtol=1e-4, atol=1e-3)


def test_single_precision_is_close():
    block, p = rows(), point()
    [single], _ = add_up(block, [p], np.float32)
    [double], _ = add_up(block, [p], np.float64)
    for one, other in zip(single, double, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-2)


def test_merged_points_are_the_points():
    block = rows()
    mean = np.zeros(D)
    kinds = [((3, 0, 4), 0), ((1, 2), 1), ((0, 2), 0)]
    points = [point(names=names, fold=fold, mean=mean) for names, fold in kinds]
    merged, places = merge_points(points)
    assert len(merged) == 2
    together, _ = add_up(block, merged, np.float64)
    for (at, part), p in zip(places, points, strict=True):
        [alone], _ = add_up(block, [p], np.float64)
        own = take_problems(together[at], part, len(merged[at].names))
        for one, other in zip(own, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        for name in ("names", "coef", "offset", "curvature_sum"):
            found = getattr(merged[at], name)[..., part]
            np.testing.assert_array_equal(found, getattr(p, name))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_rows_are_drawn_by_their_share_in_hessians(loss):
    block, p = rows(weighted=False), point(loss)
    X = block.X
    U = (X - p.mean) @ p.coef + p.offset
    y = block.Y.toarray()[:, p.names].astype(float)
    curvature = get_loss(loss).second_derivative(y, U)
    totals, scale = curvature.sum(axis=0), np.ones(D)
    p = replace(p, curvature_sum=totals)
    sums, chance = add_up(block, [p], np.float64, Draw(scale, 50.0, 0.01, 0))
    size = ((X - p.mean) ** 2).sum(axis=1) / D
    shares = (curvature / totals).sum(axis=1) / len(totals)
    np.testing.assert_allclose(chance, np.minimum(1, 50 * shares * (1 + size) / 2 + 0.01))
    [plain], _ = add_up(block, [p], np.float64)
    np.testing.assert_allclose(sums[0][1], plain[1], rtol=1e-9)


def fit_and_change(X, Y, change, weight=None):
    """Fit to blocks of 500 rows, and change the data after the second pass."""
    blocks = RowBlocks(X, Y, weight, memory=SMALL, rows=500)
    done = []

    def watch(news):
        if news["passes"] == 2 and not done:
            done.append(change())

    blocks.progress = watch
    BinaryRelevance(tol=1e-9).fit(blocks)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.25, np.nan, np.inf])
def test_an_entry_that_changes_between_passes(value, dtype, sparse):
    X, Y = make_rows(2000, dtype=dtype, sparse=sparse)
    values = X.data if sparse else X

    def change():
        values[-1 if sparse else (1700, 5)] = value

    with pytest.raises(ValueError, match=r"X, row 1500 and after: .* have changed since"):
        fit_and_change(X, Y, change)


@pytest.mark.parametrize("what", ["rows", "labels", "weights"])
def test_rows_that_change_places(what):
    X, Y = make_rows(2000)
    weight = np.random.default_rng(0).uniform(0.5, 2, 2000)
    values = {"rows": X, "labels": Y, "weights": weight}[what]
    other = next(i for i in range(1, 500) if (Y[i] != Y[0]).any())

    def change():
        values[[0, other]] = values[[other, 0]]

    with pytest.raises(ValueError, match=r"X, row 0 and after: .* have changed since"):
        fit_and_change(X, Y, change, weight)


def features(kind):
    """Rows of features, of which many hold the same numbers at other places."""
    X, _ = make_rows(2000)
    if kind == "constant column":
        X[:, 0] = 1
        return X
    if kind == "binary":
        return np.floor(X % 2)
    return sp.csr_array(np.eye(8)[np.floor(X[:, 0]).astype(int) % 8])


@pytest.mark.parametrize("kind", ["constant column", "binary", "one-hot"])
def test_features_of_rows_that_change_places(kind):
    X, Y = features(kind), make_rows(2000)[1]
    order = np.arange(2000)
    order[:500] = np.random.default_rng(1).permutation(order[:500].reshape(-1, 2)).ravel()
    other = X[order]

    def change():
        if sp.issparse(X):
            X.indices[:] = other.indices
        else:
            X[:] = other

    with pytest.raises(ValueError, match=r"X, row 0 and after: .* have changed since"):
        fit_and_change(X, Y, change)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
def test_a_checksum_knows_every_place(dtype):
    values = np.random.default_rng(2).integers(0, 2, 5003).astype(dtype)
    before = weighted_bits(values)
    assert weighted_bits(values.copy()) == before
    for size in (1, 8, 2048):  # of what changes places
        for start in (0, 1, 700, len(values) - 2 * size):
            other = values.copy()
            one, two = other[start:][:size].copy(), other[start + size :][:size].copy()
            other[start:][:size], other[start + size :][:size] = two, one
            assert (weighted_bits(other) == before) == np.array_equal(other, values)
    values[-1] += 1
    assert weighted_bits(values) != before
