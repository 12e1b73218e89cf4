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
ROWS_PER_FEATURE = 16  # rows of a factorised Hessian
LEFT_OUT = 0.05  # share of the mean curvature below which a row is not among them
MAX_EXPECTED = 2.0  # decrement, in units of what it has to reach, up to which it is computed


def _inverse_root(rows: Array, mass: Array, penalty: Array) -> Array | None:
    """Return R, (p, p), with ``R R'`` the inverse Hessian of rows, (n, p), with curvatures, (n,).

    None where the Hessian is singular.
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
    root: Array = scale[:, None] * vectors / np.sqrt(values - error)
    return root


def bounds_of_gain(
    batch: ProblemBatch, weight: Array, at: Evaluation, found: Any, limit: Array
) -> Array:
    """Return upper bounds of twice what is left to gain, (m,), infinite where they exceed a limit.

    Rows that are not held count with their gradients alone; held rows with their own ``weight``,
    (n,). ``found`` has bounds of the decrement by the batch. One column for each problem.
    """
    concordance, penalty = batch.objective.self_concordance, batch.penalty[:, 0]
    out, curvature = np.full_like(limit, np.inf), np.concatenate(at.curvature)
    # the decrement is as much larger as the curvature of rows is less than what they stand for
    needed = found.lower * at.curvature_sum / (MAX_EXPECTED * limit)
    count = ROWS_PER_FEATURE * len(at.W)
    for k in np.flatnonzero(needed <= weight @ curvature):
        mass = weight * curvature[:, k]
        kept = np.flatnonzero(mass >= LEFT_OUT * mass.mean())
        if len(kept) > count:
            kept = kept[np.argpartition(mass[kept], -count)[-count:]]
        if needed[k] > mass[kept].sum():
            continue
        rows = _dense(batch, batch.design.take(kept).matrix)
        root = _inverse_root(rows, mass[kept], penalty)
        decrement = np.inf if root is None else float(np.square(at.gradient[:, k] @ root).sum())
        if decrement <= limit[k]:
            reach = np.square(rows @ root).sum(axis=1).max()
            radius = concordance * (decrement * reach) ** 0.5
            # each term of the series of the theorem's factor (docs/solver.md) is at most this one's
            out[k] = decrement * (1 - radius) ** (-1 / 3) if radius < 1 else np.inf
    return out


def _dense(batch: ProblemBatch, matrix: Any) -> Array:
    """Return rows of a design's matrix in the coordinates of its coefficients, (n, p)."""
    dense = matrix.toarray() if sp.issparse(matrix) else matrix
    rows: Array = batch.design.backward(dense.astype(np.float64).T).T
    return rows
