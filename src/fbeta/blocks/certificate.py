"""What is left to gain over all rows, by factorised Hessians of a few: see docs/blocks.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array
from fbeta.linear.batch import Evaluation, ProblemBatch
from fbeta.linear.preconditioners import MAX_ERROR_SHARE, PRODUCT_ERROR_ULPS

__all__ = ["MAX_ORDER", "bounds_of_gain"]

MAX_ORDER = 256  # of a Hessian; beyond, a factorisation costs more than the passes that it saves
ROWS_PER_FEATURE = 64  # rows of a factorised Hessian
LEFT_OUT = 0.05  # share of the mean curvature below which a row is not among them
ROUGH_RADIUS = 0.3  # change of scores up to which rough bounds are as good as exact ones
MAX_EXPECTED = 2.0  # decrement, in units of what it has to reach, up to which it is computed


def _factorise(rows: Array, mass: Array, penalty: Array) -> tuple[Array, Array] | None:
    """Return R, (p, p), and d, (p,), for the Hessian of rows, (n, p), with curvatures, (n,).

    Its inverse is ``R R'``, which is at most ``diag(d)``; None where it is singular.
    """
    half = rows * np.sqrt(mass)[:, None]
    H = half.T @ half + np.diag(penalty)
    scale = np.diagonal(H) ** -0.5
    H = scale[:, None] * H * scale
    if not np.isfinite(H).all():
        return None
    values, vectors = np.linalg.eigh(H)
    error = PRODUCT_ERROR_ULPS * float(np.finfo(np.float64).eps) * len(H)
    if not MAX_ERROR_SHARE * values[0] > error:
        return None
    root = scale[:, None] * vectors / np.sqrt(values - error)
    return root, scale**2 / (values[0] - error)


def bounds_of_gain(
    batch: ProblemBatch, weight: Array, at: Evaluation, found: Any, share: float, limit: Array
) -> Array:
    """Return upper bounds of twice what is left to gain, (m,), infinite where they exceed a limit.

    Rows that are not held count with their gradients alone; held rows with their own ``weight``,
    (n,), of which the ``share`` is that of what they stand for in the batch. ``found`` has bounds
    of the decrement by the batch. One column for each problem.
    """
    concordance, penalty = batch.objective.self_concordance, batch.penalty[:, 0]

    def reach(inverse: tuple[Array, Array], rows: Array, squares: Array, decrement: float) -> float:
        # the largest x' R R' x of rows x, by the diagonal where that is good enough
        out = squares @ inverse[1]
        far = concordance**2 * decrement * out > ROUGH_RADIUS**2
        out[far] = np.square(rows[far] @ inverse[0]).sum(axis=1)
        return float(out.max(initial=0.0))

    def bound(decrement: float, reach: float) -> float:  # by the theorem of docs/solver.md
        radius = concordance * (decrement * reach) ** 0.5
        # the factor of the theorem is no more than this: so is each term of its series
        return decrement * (1 - radius) ** (-1 / 3) if radius < 1 else np.inf

    out, left, curvature = np.full_like(limit, np.inf), {}, np.concatenate(at.curvature)
    # the decrement is as much larger as the curvature of rows is less than what they stand for
    needed = found.lower * at.curvature_sum / (MAX_EXPECTED * limit)
    known, count = found.upper / share, ROWS_PER_FEATURE * len(at.W)
    for k in np.flatnonzero((needed <= weight @ curvature) | (known <= limit)):
        mass = weight * curvature[:, k]
        kept = np.flatnonzero(mass >= LEFT_OUT * mass.mean())
        if len(kept) > count:
            kept = kept[np.argpartition(mass[kept], -count)[-count:]]
        if needed[k] > mass[kept].sum() and known[k] > limit[k]:
            continue
        rows = _dense(batch, batch.design.take(kept).matrix)
        inverse = _factorise(rows, mass[kept], penalty)
        if inverse is not None:
            decrement = float(np.square(at.gradient[:, k] @ inverse[0]).sum())
            out[k] = bound(decrement, reach(inverse, rows, rows**2, decrement))
            if out[k] > limit[k] and known[k] <= limit[k]:
                left[k] = inverse, min(known[k], decrement), [0.0]
    if left:  # with all held rows the decrement is smaller, and each of them counts
        for tile, counts in zip(batch.tiles, batch.tiles.split(weight[:, None]), strict=True):
            rows = _dense(batch, tile)[counts[:, 0] > 0]
            squares = rows**2
            for inverse, decrement, reaches in left.values():
                reaches.append(reach(inverse, rows, squares, decrement))
    for k, (_, decrement, reaches) in left.items():
        out[k] = min(out[k], bound(decrement, max(reaches)))
    return out


def _dense(batch: ProblemBatch, matrix: Any) -> Array:
    """Return rows of a design's matrix in the coordinates of its coefficients, (n, p)."""
    dense = matrix.toarray() if sp.issparse(matrix) else matrix
    rows: Array = batch.design.backward(dense.astype(np.float64).T).T
    return rows
