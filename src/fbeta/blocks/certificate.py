"""What is left to gain over all rows, by factorised Hessians of a few: see docs/blocks.md."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Factor:
    """The inverse ``R R'`` of the Hessian of some rows, and what it gives for a problem.

    ``diagonal``, (p,), is a matrix that is no less than the inverse; ``decrement`` is
    ``g' R R' g``, and ``concordance`` that of the loss.
    """

    root: Array  # R, (p, p)
    diagonal: Array
    decrement: float
    concordance: float

    @classmethod
    def of(
        cls, rows: Array, mass: Array, penalty: Array, gradient: Array, concordance: float
    ) -> Factor | None:
        """Factorise the Hessian of rows, (n, p), with curvatures, (n,); None if singular."""
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
        decrement = float(np.square(gradient @ root).sum())
        return cls(root, scale**2 / (values[0] - error), decrement, concordance)

    def reach(self, rows: Array, squares: Array, decrement: float) -> float:
        """Bound ``x' R R' x`` of rows x, (n, p), given their ``squares``, (n, p).

        Bounds are those of the diagonal where that is good enough for the decrement.
        """
        out = squares @ self.diagonal
        far = self.concordance**2 * decrement * out > ROUGH_RADIUS**2
        out[far] = np.square(rows[far] @ self.root).sum(axis=1)
        return float(out.max(initial=0.0))

    def bound(self, decrement: float, reach: float) -> float:
        """Return what is left to gain at most, twice, by the theorem of docs/solver.md."""
        radius = self.concordance * (decrement * reach) ** 0.5
        # the factor of the theorem is no more than this: so is each term of its series
        return decrement * (1 - radius) ** (-1 / 3) if radius < 1 else np.inf


def bounds_of_gain(
    batch: ProblemBatch, weight: Array, at: Evaluation, found: Any, share: float, limit: Array
) -> Array:
    """Return upper bounds of twice what is left to gain, (m,), infinite where they exceed a limit.

    Rows that are not held count with their gradients alone; held rows with their own ``weight``,
    (n,), of which the ``share`` is that of what they stand for in the batch. ``found`` has bounds
    of the decrement by the batch. One column for each problem.
    """
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
        problem = (batch.penalty[:, 0], at.gradient[:, k], batch.objective.self_concordance)
        own = Factor.of(rows, mass[kept], *problem)
        if own is not None:
            out[k] = own.bound(own.decrement, own.reach(rows, rows**2, own.decrement))
            if out[k] > limit[k] and known[k] <= limit[k]:
                left[k] = own, min(known[k], own.decrement), [0.0]
    if left:  # with all held rows the decrement is smaller, and each of them counts
        for tile, counts in zip(batch.tiles, batch.tiles.split(weight[:, None]), strict=True):
            rows = _dense(batch, tile)[counts[:, 0] > 0]
            squares = rows**2
            for own, decrement, reach in left.values():
                reach.append(own.reach(rows, squares, decrement))
    for k, (own, decrement, reach) in left.items():
        out[k] = min(out[k], own.bound(decrement, max(reach)))
    return out


def _dense(batch: ProblemBatch, matrix: Any) -> Array:
    """Return rows of a design's matrix in the coordinates of its coefficients, (n, p)."""
    dense = matrix.toarray() if sp.issparse(matrix) else matrix
    rows: Array = batch.design.backward(dense.astype(np.float64).T).T
    return rows
