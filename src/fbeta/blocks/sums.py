"""The sums over one block of rows that objectives and gradients need: the inner loop of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.linear.batch import columns_of, take_problems
from fbeta.linear.objectives import Binary, Objective
from fbeta.losses import LogisticLoss, Loss

__all__ = ["BlockTargets", "Draw", "MergedPoints", "Sums", "TrialPoint", "add_up"]

TILE_SCORES = 1 << 17  # scores that stay in a processor's cache, with what is computed from them
TILE_ROWS = (256, 4096)  # the fewest and the most rows of a tile
MAX_EXP_SCORE = 80.0  # score up to which exp does not overflow in single precision


@dataclass(frozen=True)
class BlockTargets:
    """Checked rows (n, d), targets (n, M), positive weights, and the folds that hold rows out."""

    X: Any
    targets: sp.csr_array
    weight: NDArray[np.float64] | None = None
    fold: NDArray[np.integer[Any]] | None = None


@dataclass(frozen=True)
class TrialPoint:
    """Where m problems, c columns each, are evaluated: at the scores ``(X - mean) coef + offset``.

    ``names``, (m,), are their columns of the targets; the mean is the same for all points of a
    pass; rows of ``fold`` do not count (-1 for none).
    """

    objective: Objective
    names: NDArray[np.intp]
    coef: Array
    offset: Array
    mean: Array | None
    fold: int = -1


@dataclass(frozen=True)
class Sums:
    """Sums over rows: losses (m,), ``(X - mean)' r`` (d, m c) and ``1' r`` (m c,)."""

    value: Array
    gradient: Array
    total: Array

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.value + other.value, self.gradient + other.gradient, self.total + other.total
        )


class MergedPoints:
    """Points that count the same rows as one: a product with X for all of them together."""

    def __init__(self, points: Sequence[TrialPoint]) -> None:
        self.points: list[TrialPoint] = []
        self.places: list[tuple[int, Array]] = [(0, np.zeros(0, np.intp))] * len(points)
        by_fold: dict[int, list[int]] = {}
        for at, point in enumerate(points):
            # those with several columns for a problem stay as they are
            alone = point.objective.width > 1
            by_fold.setdefault(-2 - at if alone else point.fold, []).append(at)
        for own in by_fold.values():
            some = [points[at] for at in own]
            names = np.concatenate([point.names for point in some])
            order = np.argsort(names, kind="stable") if len(some) > 1 else np.arange(len(names))
            place = np.argsort(order, kind="stable")
            ends = np.cumsum([len(point.names) for point in some])
            for at, part in zip(own, np.split(place, ends[:-1]), strict=True):
                self.places[at] = (len(self.points), part)
            if len(some) > 1:
                coef = np.concatenate([point.coef for point in some], axis=1)[:, order]
                offset = np.concatenate([point.offset for point in some])[order]
                some = [replace(some[0], names=names[order], coef=coef, offset=offset)]
            self.points.append(some[0])

    def split(self, sums: Sequence[Sums]) -> list[Sums]:
        """Return the sums of the points that were merged."""
        parts = ((sums[at], part) for at, part in self.places)
        return [
            Sums(*take_problems((own.value, own.gradient, own.total), part, len(own.value)))
            for own, part in parts
        ]

    def join(self, values: Sequence[Array]) -> list[Array]:
        """Return values of the columns of each point, merged as the points are."""
        out = [np.zeros(point.coef.shape[1]) for point in self.points]
        for (at, part), own in zip(self.places, values, strict=True):
            out[at][columns_of(np, part, len(own) // max(1, len(part)))] = own
        return out


@dataclass(frozen=True)
class Draw:
    """How to draw the rows to be held: those that make up the Hessians of active problems.

    ``totals`` estimates for each point the sums of the curvatures of all rows, (m c,); ``scale`` is
    the spread of each feature; ``wanted`` rows are drawn by their share in the Hessians, and every
    row has the probability ``base`` beside that.
    """

    totals: list[Array]
    scale: Array
    wanted: float
    base: float
    seed: int

    def chance(self, X: Any, mean: Array | None, shares: Array) -> Array:
        """Return the probabilities of rows whose curvatures have these shares in the totals."""
        inverse = np.where(self.scale > 0, 1 / np.where(self.scale > 0, self.scale, 1.0), 0.0)
        used = max(1, np.count_nonzero(inverse))
        if sp.issparse(X):
            # entries of a sparse feature that are far from its mean are those that are not zero
            size = (X.multiply(X) @ inverse**2) / used
        else:
            Z = (X - (0.0 if mean is None else mean)) * inverse
            size = np.einsum("ij,ij->i", Z, Z) / used
        columns = max(1, sum(len(total) for total in self.totals))
        chance = self.wanted * shares / columns * (1 + size) / 2 + self.base
        return np.clip(np.nan_to_num(chance, nan=1.0), 0.0, 1.0)


def add_up(
    rows: BlockTargets, points: Sequence[TrialPoint], dtype: Any, draw: Draw | None = None
) -> tuple[list[Sums], Array | None]:
    """Return the sums of each point over a block of rows, and the chances to be drawn, (n,).

    ``dtype`` is that of scores and residuals for dense X; sums are in double precision, and so is
    all of it for sparse X, which is centred by arithmetic.
    """
    sparse, n = sp.issparse(rows.X), rows.X.shape[0]
    dtype = np.dtype(np.float64 if sparse else dtype)
    totals = [None] * len(points) if draw is None else draw.totals
    work = [_PointSums(p, rows, dtype, total) for p, total in zip(points, totals, strict=True)]
    columns = max(1, sum(point.coef.shape[1] for point in points))
    size = int(np.clip(TILE_SCORES // columns, *TILE_ROWS))
    mean = points[0].mean if points else None
    mean = None if mean is None or sparse else mean.astype(dtype)
    # arrays of this size, made anew for each tile, may cost more than what is done with them
    room = None if sparse else np.empty((min(size, n), rows.X.shape[1]), dtype)
    with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            tile = rows.X[part]
            if mean is not None and room is not None:
                tile = np.subtract(tile, mean, out=room[: len(tile)], dtype=dtype)
            elif tile.dtype != dtype:
                tile = tile.astype(dtype)
            for own in work:
                own.add(tile, part)
    sums = [own.sums() for own in work]
    if draw is None:
        return sums, None
    shares = sum((own.shares for own in work), np.zeros(n))
    return sums, draw.chance(rows.X, points[0].mean, shares)


def _loss(point: TrialPoint) -> Loss:
    return cast(Binary, point.objective).loss


class _PointSums:
    """The sums of one point, as they grow; ``total`` as in a :class:`Draw`."""

    def __init__(
        self, point: TrialPoint, rows: BlockTargets, dtype: np.dtype[Any], total: Array | None
    ) -> None:
        self.point, self.rows = point, rows
        self.buffers: dict[str, Array] = {}
        self.inverse = None if total is None else 1 / np.maximum(total, 1e-300)
        self.shares = np.zeros(rows.X.shape[0])
        self.coef = np.ascontiguousarray(point.coef, dtype=dtype)
        self.offset = point.offset.astype(dtype)
        self.shifted = sp.issparse(rows.X) and point.mean is not None
        if self.shifted:
            self.offset = self.offset - point.mean @ self.coef
        separate = point.objective.separates_columns
        every = np.array_equal(point.names, np.arange(rows.targets.shape[1]))
        self.targets = rows.targets if every or not separate else rows.targets[:, point.names]
        binary = separate and bool((self.targets.data == 1).all())
        self.quick = binary and (total is None or type(_loss(point)) is LogisticLoss)
        self.value = np.zeros(len(point.names))
        self.gradient = np.zeros(point.coef.shape)
        self.total = np.zeros(point.coef.shape[1])

    def add(self, tile: Any, part: slice) -> None:
        """Evaluate one tile of rows."""
        scores = tile @ self.coef if sp.issparse(tile) else None
        if scores is None:
            scores = np.matmul(tile, self.coef, out=self._buffer("scores", tile.shape[0]))
        scores += self.offset
        losses, residual, diagonal = self._evaluate(scores, part)
        weight = self._weight(part, scores.dtype)
        if weight is not None:
            losses, residual = losses * weight, residual * weight
        if self.inverse is not None:
            diagonal = diagonal if weight is None else diagonal * weight
            self.shares[part] += diagonal @ self.inverse
        self.value += losses.sum(axis=0, dtype=np.float64)
        self.gradient += tile.T @ residual
        self.total += residual.sum(axis=0, dtype=np.float64)

    def _evaluate(self, scores: Array, part: slice) -> tuple[Array, Array, Any]:
        """Return losses, residuals, and the diagonal of the curvature where it is needed."""
        objective = self.point.objective
        if self.quick:
            losses, residual = self._binary(scores, part)
            # that of the logistic loss, the only one that is quick where curvature is needed
            curved = self.inverse is not None
            return losses, residual, np.abs(residual) - residual * residual if curved else None
        y = self.targets[part].toarray()
        if self.inverse is None:
            return *objective.slopes(y, scores), None
        losses, residual, curvature = objective.evaluate(y, scores, None)
        return losses, residual, objective.diagonal(curvature)

    def _buffer(self, name: str, rows: int) -> Array:
        """Return memory for some rows of scores, which is used again."""
        if name not in self.buffers or len(self.buffers[name]) < rows:
            self.buffers[name] = np.empty((rows, self.coef.shape[1]), self.coef.dtype)
        return self.buffers[name][:rows]

    def _weight(self, part: slice, dtype: Any) -> Array | None:
        """Return the weights of some rows, 0 where held out; None where all are 1."""
        rows, fold = self.rows, self.point.fold
        weight = None if rows.weight is None else rows.weight[part].astype(dtype)[:, None]
        if fold < 0 or rows.fold is None:
            return weight
        kept = (rows.fold[part] != fold).astype(dtype)[:, None]
        return kept if weight is None else weight * kept

    def _binary(self, scores: Array, part: slice) -> tuple[Array, Array]:
        """Evaluate a binary loss as if no target were 1, and again for the few that are."""
        starts = self.targets.indptr[part.start : part.stop + 1]
        columns = self.targets.indices[starts[0] : starts[-1]]
        places = np.repeat(np.arange(len(scores)), np.diff(starts)) * scores.shape[1] + columns
        ones = scores.ravel()[places]
        loss = _loss(self.point)
        if type(loss) is LogisticLoss and scores.max(initial=0) < MAX_EXP_SCORE:
            residual = np.exp(scores, out=scores)
            losses = np.add(residual, 1, out=self._buffer("losses", len(residual)))
            residual /= losses
            np.log(losses, out=losses)
        else:
            losses, residual, _ = loss.evaluate(np.zeros((), scores.dtype), scores)
            losses, residual = np.ascontiguousarray(losses), np.ascontiguousarray(residual)
        one = np.ones((), scores.dtype)
        losses.reshape(-1)[places] = loss.value(one, ones)
        residual.reshape(-1)[places] = loss.derivative(one, ones)
        return losses, residual

    def sums(self) -> Sums:
        """Return the sums over all tiles."""
        if self.shifted:
            self.gradient -= cast(Array, self.point.mean)[:, None] * self.total
        return Sums(self.value, self.gradient, self.total)
