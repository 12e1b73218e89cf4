"""Problems that are evaluated together, over rows in tiles: losses, gradients, Hessian products.

A batch has m problems with c columns of coefficients each, side by side: M = m c columns in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array, array_namespace, astype, is_accelerator, multiply_add, take

if TYPE_CHECKING:
    from fbeta.linear.design import Design
    from fbeta.linear.objectives import Objective

# share of the problems that is still active at which the others are dropped: CPU, accelerators
COMPACTION_SHARE = (0.9, 0.3)
TILE_SCORES = 1 << 14  # scores of a tile of rows: they stay in a processor's cache
TILE_SCORES_ACCELERATOR = 1 << 26  # there large products are the fast ones
MIN_TILE_ROWS = 256
MAX_TILE_FEATURES = 2048  # a tile has at least twice as many rows as features, up to this many
TINY = 1e-150  # added where a zero would be divided by
SANDWICH_ENTRIES = 1 << 28  # entries of weighted rows that an accelerator multiplies at a time


class RowTiles:
    """The rows of a design in tiles of a ``size``, in the type of X; products in ``dtype``."""

    def __init__(self, design: Design, size: int, dtype: Any) -> None:
        self.design, self.dtype = design, dtype
        n = design.matrix.shape[0]
        self.parts = [slice(at, min(at + size, n)) for at in range(0, n, size)]
        self.tiles = [design.matrix[part, :] for part in self.parts]

    def split(self, values: Array) -> list[Array]:
        """Return the tiles of an array with n rows."""
        return [values[part, :] for part in self.parts]

    def __iter__(self) -> Iterator[Array]:
        return (astype(self.design.xp, tile, self.dtype) for tile in self.tiles)

    def product(self, W: Array) -> list[Array]:
        """Return the scores of W, (p, m), tile by tile."""
        moved = astype(self.design.xp, self.design.forward(W), self.dtype)
        return [tile @ moved for tile in self]

    def adjoint(self, parts: list[Array]) -> Array:
        """Multiply the transpose with (rows, m) tiles: (p, m)."""
        xp, pairs = self.design.xp, zip(self, parts, strict=True)
        total = sum(tile.T @ astype(xp, part, self.dtype) for tile, part in pairs)
        return self.design.backward(total)

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with the response of each tile to its scores of W: (p, m)."""
        moved = self.design.forward(W)
        total = None
        for at, tile in enumerate(self):
            part = tile.T @ respond(at, tile @ moved)
            total = part if total is None else total + part
        return self.design.backward(total)

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of ``Z' B Z``, (p, m), for B that sum to this, (m,), at any Z."""
        spread, xp = self.design.spread, self.design.xp
        if self.design.intercept:
            spread = xp.concat([spread[:-1, :], xp.ones_like(spread[-1:, :])], axis=0)
        return spread * total

    def sandwiches(self, weights: list[Array], *, positive: bool) -> Array:
        """Return ``Z' diag(weight) Z``, (k, p, p), for (rows, k) tiles of weights."""
        design, xp, k = self.design, self.design.xp, weights[0].shape[1]
        rows = max(tile.shape[0] for tile in self.tiles)
        # one after the other a processor is fast enough
        many = is_accelerator(design.device) and positive
        size = max(1, SANDWICH_ENTRIES // (rows * design.shape[1])) if many else 1
        out = []
        for at in range(0, k, size):
            total: Array = 0.0
            for tile, every in zip(self, weights, strict=True):
                dense = tile.toarray() if sp.issparse(tile) else tile
                weight = every[:, at : min(at + size, k)].T[:, :, None]
                own = xp.nonzero(weight[0, :, 0])[0] if size == 1 else ()
                if 0 < 2 * len(own) < dense.shape[0]:
                    dense, weight = take(xp, dense, own), take(xp, weight, own, axis=1)
                # a product of a matrix with its own transpose costs half
                half = dense * xp.sqrt(weight) if positive else dense
                total = total + xp.matrix_transpose(half) @ (half if positive else weight * dense)
            if design.shifted:
                total = design.backward(design.backward(total[0, :, :]).T).T[None, :, :]
            out.append(total)
        return xp.concat(out)


#: Sums of the losses (m,), residuals and curvature ((rows, M) tiles), sums of its diagonal.
Losses: TypeAlias = tuple[Array, list[Array], list[Array], Array]


class PerProblem:
    """Arrays of m problems, and lists of them; other attributes are shared.

    The problems, or their columns, are the last axis; where there are three, the first one.
    """

    numbers: ClassVar[str] = "value"  # name of an array with a number for each problem

    def __len__(self) -> int:
        return int(getattr(self, self.numbers).shape[0])

    def _arrays(self) -> dict[str, Any]:
        own = {name: a for name, a in vars(self).items() if name != "finished"}
        kinds = (list, PerProblem)
        return {n: a for n, a in own.items() if isinstance(a, kinds) or getattr(a, "ndim", None)}

    def take(self, problems: Array) -> Self:
        """Return that of some problems."""
        out = copy(self)
        for name, a in self._arrays().items():
            setattr(out, name, take_problems(a, problems, len(self)))
        return out

    def join(self, other: Self, names: Array) -> Self:
        """Return that of the problems of both, in the order of the names that they have."""
        out, xp, theirs = copy(self), array_namespace(names), other._arrays()
        for name, a in self._arrays().items():
            setattr(out, name, xp.concat([a, theirs[name]], axis=-1))
        return out.take(xp.argsort(names))


@dataclass
class Evaluation(PerProblem):
    """Objective (m,) and gradient (p, M) at W (p, M), with the curvature of the rows."""

    W: Array
    value: Array
    gradient: Array
    curvature: list[Array] = field(default_factory=list)  # (rows, M) tiles
    curvature_sum: Array = None  # (M,), sums of its diagonal


class ProblemBatch:
    """m problems over the n rows of a design that are evaluated together.

    ``light`` is the design in single precision, or the design itself where that is not accurate
    enough; ``targets``, (n, m), are as the objective takes them. Scores and residuals are in
    ``dtype``, double precision by default: only that is certified.
    """

    def __init__(
        self,
        design: Design,
        light: Design,
        objective: Objective,
        targets: Array,
        alpha: float,
        dtype: Any = None,
    ) -> None:
        self.design, self.objective, self.xp = design, objective, design.xp
        self.dtype = self.xp.float64 if dtype is None else dtype
        self.alpha = max(alpha, objective.min_alpha)
        self.penalty = design.penalty(self.alpha, objective.intercept_penalty)
        self.width = objective.width  # scores of a problem
        self.n_columns = design.columns(self.width)  # columns of coefficients of a problem
        accelerator = is_accelerator(design.device)
        scores = TILE_SCORES_ACCELERATOR if accelerator else TILE_SCORES
        self.compaction_share = COMPACTION_SHARE[accelerator]
        columns = max(targets.shape[1] * self.width, 1)
        features = min(design.matrix.shape[1], MAX_TILE_FEATURES)
        size = max(scores // columns, 2 * features, MIN_TILE_ROWS)
        self.tiles = design.rows(size, self.dtype)
        self.light_tiles = light.rows(size, light.matrix.dtype)
        self.targets = self.tiles.split(targets)
        self.weights: list[Any] = [None] * len(self.targets)
        if design.weight is not None:
            self.weights = self.tiles.split(self.xp.astype(design.weight, self.dtype))

    def total(self, values: Array) -> Array:
        """Sum over the columns of each problem: (..., M) to (..., m)."""
        if self.n_columns == 1:
            return values
        xp = self.xp
        return xp.sum(xp.reshape(values, (*values.shape[:-1], -1, self.n_columns)), axis=-1)

    def spread(self, values: Array) -> Array:
        """Repeat the value of each problem for its columns: (m,) to (M,)."""
        return values if self.n_columns == 1 else self.xp.repeat(values, self.n_columns)

    def _spread_scores(self, values: Array) -> Array:
        """Repeat the value of each problem for its scores, unless it has one for all of them."""
        return values if self.width != self.n_columns else self.spread(values)

    def only(self, problems: Any) -> ProblemBatch:
        """Return the batch of some problems."""
        out = copy(self)
        out.keep(self.xp.asarray(problems, device=self.design.device))
        return out

    def keep(self, problems: Array) -> None:
        """Drop all problems but these."""
        self.targets = [take(self.xp, y, problems, axis=1) for y in self.targets]
        self.objective = self.objective.take(problems)

    def losses(self, scores: list[Array], cautious: Array | None) -> Losses:
        """Evaluate the losses at scores; ``cautious``, (m,), as for :meth:`Objective.evaluate`."""
        xp = self.xp
        some = cautious is not None and bool(xp.any(cautious))
        wide = self._spread_scores(cautious) if some else None
        value, total, residuals, curvature = 0.0, 0.0, [], []
        for y, u, c in zip(self.targets, scores, self.weights, strict=True):
            f, g, h, diagonal = self.objective.summed(y, u, wide, c)
            value, total = value + f, total + diagonal
            residuals.append(g)
            curvature.append(xp.astype(h, self.light_tiles.dtype, copy=False))
        return value, residuals, curvature, total

    def evaluation(self, W: Array, losses: Losses) -> Evaluation:
        """Add the penalty of W, (p, M), and map the residuals back to its coordinates."""
        xp, (value, residuals, *curvature) = self.xp, losses
        value = 0.5 * self.total(xp.sum(self.penalty * W * W, axis=0)) + value
        pull = xp.astype(self.tiles.adjoint(residuals), xp.float64, copy=False)
        gradient = self.objective.project(pull + self.penalty * W)
        return Evaluation(W, value, gradient, *curvature)

    def evaluate(self, W: Array, cautious: Array | None = None) -> Evaluation:
        """Evaluate everything at W, (p, M)."""
        return self.evaluation(W, self.losses(self.tiles.product(W), cautious))

    def along(self, scores: list[Array], changes: list[Array], step: Array) -> list[Array]:
        """Return the scores at a step, (m,), along a change of them."""
        wide = self.xp.astype(self._spread_scores(step), self.dtype, copy=False)
        pairs = zip(scores, changes, strict=True)
        return [multiply_add(self.xp, u, wide, v) for u, v in pairs]

    def slope(self, residuals: list[Array], changes: list[Array]) -> Array:
        """Return the slope of the losses along a change of the scores, (m,)."""
        xp = self.xp
        pairs = zip(residuals, changes, strict=True)
        total = xp.astype(sum(xp.sum(g * v, axis=0) for g, v in pairs), xp.float64)
        return total if self.width == 1 else xp.sum(xp.reshape(total, (-1, self.width)), axis=-1)

    def respond(self, curvature: list[Array], at: int, v: Array) -> Array:
        """Multiply the Hessians of a tile's rows with changes of their scores."""
        out, weight = self.objective.response(curvature[at], v), self.weights[at]
        return out if weight is None else self.xp.astype(weight, out.dtype) * out

    def response(self, tiles: RowTiles, curvature: list[Array], P: Array) -> Array:
        """Multiply the Hessian of each problem's losses with its columns of P, (p, M)."""
        return tiles.round_trip(P, lambda at, v: self.respond(curvature, at, v))

    def hessian_product(self, tiles: RowTiles, curvature: list[Array], P: Array) -> Array:
        """Multiply each problem's Hessian, penalty included, with its columns of P, (p, M)."""
        penalty = self.xp.astype(self.penalty, P.dtype)
        return multiply_add(self.xp, self.response(tiles, curvature, P), penalty, P)

    def curvatures(self, curvature: list[Array], column: int) -> list[Array]:
        """Return the column of each row's Hessian that belongs to one column of each problem."""
        xp = self.xp
        if self.width == 1:
            pairs = zip(curvature, self.weights, strict=True)
            return [h if c is None else xp.astype(c, h.dtype) * h for h, c in pairs]
        one = xp.asarray(np.arange(self.width) == column, device=self.design.device)
        parts = []
        for at, h in enumerate(curvature):
            v = xp.astype(xp.tile(one, (h.shape[1] // self.width,)), h.dtype)[None, :]
            parts.append(self.respond(curvature, at, xp.broadcast_to(v, h.shape)))
        return parts

    def masses(self, curvature: list[Array]) -> list[Array]:
        """Return the weighted masses of the rows' outcomes, (rows, m, c) tiles."""
        xp, out = self.xp, []
        for h, weight in zip(curvature, self.weights, strict=True):
            mass = xp.astype(self.objective.masses(h), xp.float64, copy=False)
            mass = mass if weight is None else xp.astype(weight, xp.float64) * mass
            out.append(xp.reshape(mass, (mass.shape[0], -1, self.width)))
        return out

    def expected_reach(self) -> Array:
        """Return bounds of squared changes of scores for centres that are not far, (n, 1)."""
        _, distances, middle = self.design.distances
        return self.objective.outcome_distance / (self.alpha + TINY) * (distances + middle) ** 2

    def largest(self, values: Array) -> Array:
        """Take the largest over the columns of each problem: (m c,) to (m,)."""
        return self.xp.max(self.xp.reshape(values, (-1, self.width)), axis=-1)


def columns_of(xp: Any, problems: Array, width: int) -> Array:
    """Return the columns of problems that have ``width`` columns each, side by side."""
    if width == 1:
        return problems
    own = xp.arange(width, dtype=problems.dtype, device=problems.device)
    return xp.reshape(problems[:, None] * width + own[None, :], (-1,))


def take_problems(values: Any, problems: Array, m: int) -> Any:
    """Return the part of some of m problems, of arrays as in :class:`PerProblem`, also nested."""
    if values is None:
        return None
    if isinstance(values, list | tuple):
        return type(values)(take_problems(value, problems, m) for value in values)
    if isinstance(values, PerProblem):
        return values.take(problems)
    xp, matrices = array_namespace(values), values.ndim == 3
    if not problems.shape[0]:
        return values[:0, ...] if matrices else values[..., :0]
    if matrices:
        return take(xp, values, problems)
    return take(xp, values, columns_of(xp, problems, values.shape[-1] // m), axis=-1)


def join_results(pieces: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Join results of groups of problems, names (m,) first, and return the others by name."""
    if len(pieces) == 1:  # its problems are in order
        return pieces[0][1:]
    xp = array_namespace(pieces[0][0])
    names, *values = (xp.concat(a, axis=-1) for a in zip(*pieces, strict=True))
    return tuple(take_problems(values, xp.argsort(names), names.shape[0]))
