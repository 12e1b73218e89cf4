"""Problems that are solved together: their losses, gradients and products with their Hessians."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta._array import Array, is_accelerator, multiply_add
from fbeta.linear.design import Design, Rows
from fbeta.linear.objectives import Objective

__all__ = ["Block", "Leaving", "Losses", "Point"]

SHRINK = (0.9, 0.3)  # share of problems left at which the others are dropped; on accelerators
CACHE = 1 << 14  # scores of a block of rows that stay in a processor's cache
MEMORY = 1 << 26  # the same on other devices, where large products are the fast ones


@dataclass
class Losses:
    """Sums of the losses (m,), residuals, curvature ((rows, M) blocks), its diagonal's sum (M,)."""

    value: Array
    residuals: list[Array]
    curvature: list[Array]
    total: Array


@dataclass
class Point:
    """Objective (m,), gradient (p, M), curvature (blocks of (rows, M)), its diagonal's sum (M,)."""

    value: Array
    gradient: Array
    curvature: list[Array]
    total: Array


class Block:
    """Problems that are solved together.

    Parameters
    ----------
    design : Design
        With n rows and p columns.
    light : Design
        The same in single precision, or the design itself where that would not do.
    objective : Objective
        With c columns for each problem.
    targets : array of shape (n, m)
        As the objective has them.
    alpha : float >= 0
        Strength of the penalty.
    dtype : floating type, optional
        Of scores and residuals: double precision by default. Nothing that is solved in another is
        certified.
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
        self.alpha = max(alpha, objective.least)
        self.penalty = design.penalty(self.alpha, objective.ridge)
        self.width = objective.width
        p = design.matrix.shape[1]
        scores, self.shrink = CACHE, SHRINK[0]
        if is_accelerator(design.device):
            scores, self.shrink = MEMORY, SHRINK[1]
        columns = max(targets.shape[1] * self.width, 1)
        size = max(scores // columns, 2 * min(p, 2048), 256)
        self.heavy = design.rows(size, self.dtype)
        self.light = light.rows(size, light.matrix.dtype)
        self.targets = self.heavy.split(targets)
        self.weights: list[Any] = [None] * len(self.targets)
        if design.weight is not None:
            self.weights = self.heavy.split(self.xp.astype(design.weight, self.dtype))

    def total(self, values: Array) -> Array:
        """Sum over the columns of each problem: (..., m c) to (..., m)."""
        if self.objective.joint:
            return self.xp.sum(values, axis=-1, keepdims=True)
        if self.width == 1:
            return values
        return self.xp.sum(self.xp.reshape(values, (*values.shape[:-1], -1, self.width)), axis=-1)

    def spread(self, values: Array) -> Array:
        """Repeat the value of a problem for its columns: (m,) to (m c,)."""
        alike = self.width == 1 or self.objective.joint
        return values if alike else self.xp.repeat(values, self.width)

    def columns(self, problems: Array) -> Array:
        """Return the columns of some problems."""
        if self.objective.joint:
            return self.xp.arange(self.design.columns(self.width), device=self.design.device)
        if self.width == 1:
            return problems
        own = self.xp.arange(self.width, dtype=problems.dtype, device=self.design.device)
        return self.xp.reshape(problems[:, None] * self.width + own[None, :], (-1,))

    def only(self, problems: Any) -> Block:
        """Return the block of some problems."""
        out = copy(self)
        out.keep(self.xp.asarray(problems, device=self.design.device))
        return out

    def keep(self, problems: Array) -> None:
        """Forget all problems but these."""
        self.targets = [self.xp.take(y, problems, axis=1) for y in self.targets]
        self.objective = self.objective.take(problems)

    def losses(self, scores: list[Array], far: Array | None) -> Losses:
        """Compute the losses of some scores, with their derivatives.

        ``far``, (m,), tells the problems that are far from their solution and get a cautious
        curvature.
        """
        xp = self.xp
        cautious = self.spread(far) if far is not None and bool(xp.any(far)) else None
        value, total, residuals, curvature = 0.0, 0.0, [], []
        for y, u, c in zip(self.targets, scores, self.weights, strict=True):
            f, g, h, diagonal = self.objective.summed(y, u, cautious, c)
            value, total = value + f, total + diagonal
            residuals.append(g)
            curvature.append(xp.astype(h, self.light.dtype, copy=False))
        return Losses(value, residuals, curvature, total)

    def point(self, W: Array, losses: Losses) -> Point:
        """Add the penalty of W, (p, M), and lead the residuals back to its coordinates."""
        xp = self.xp
        value = 0.5 * self.total(xp.sum(self.penalty * W * W, axis=0)) + losses.value
        pull = xp.astype(self.heavy.adjoint(losses.residuals), xp.float64, copy=False)
        gradient = self.objective.project(pull + self.penalty * W)
        return Point(value, gradient, losses.curvature, losses.total)

    def evaluate(self, W: Array, far: Array | None = None) -> Point:
        """Compute everything at W, (p, M); ``far`` as for :meth:`losses`."""
        return self.point(W, self.losses(self.heavy.product(W), far))

    def along(self, scores: list[Array], changes: list[Array], step: Array) -> list[Array]:
        """Return the scores at a step, (m,), along a change of them."""
        wide = self.xp.astype(self.spread(step), self.dtype, copy=False)
        pairs = zip(scores, changes, strict=True)
        return [multiply_add(self.xp, u, wide, v) for u, v in pairs]

    def slope(self, losses: Losses, changes: list[Array]) -> Array:
        """Return the slope of the losses along a change of the scores, (m,)."""
        pairs = zip(losses.residuals, changes, strict=True)
        total = sum(self.xp.sum(g * v, axis=0) for g, v in pairs)
        return self.total(self.xp.astype(total, self.xp.float64))

    def respond(self, curvature: list[Array], at: int, v: Array) -> Array:
        """Multiply the Hessians of a block's rows with changes of their scores."""
        out, weight = self.objective.response(curvature[at], v), self.weights[at]
        return out if weight is None else self.xp.astype(weight, out.dtype) * out

    def response(self, rows: Rows, curvature: list[Array], P: Array) -> Array:
        """Multiply the Hessian of each problem's losses with its columns of P, (p, M)."""
        return rows.round_trip(P, lambda at, v: self.respond(curvature, at, v))

    def hessian_product(self, rows: Rows, curvature: list[Array], P: Array) -> Array:
        """Multiply each problem's Hessian, penalty included, with its columns of P, (p, M)."""
        penalty = self.xp.astype(self.penalty, P.dtype)
        return multiply_add(self.xp, self.response(rows, curvature, P), penalty, P)

    def curvatures(self, curvature: list[Array], column: int) -> list[Array]:
        """Return the columns of each row's Hessian that belong to one column of each problem."""
        xp = self.xp
        if self.width == 1:
            pairs = zip(curvature, self.weights, strict=True)
            return [h if c is None else xp.astype(c, h.dtype) * h for h, c in pairs]
        one = xp.asarray(np.arange(self.width) == column, device=self.design.device)
        parts = []
        for at, h in enumerate(curvature):
            m = h.shape[1] // self.width
            v = xp.astype(xp.tile(one, (m,)), h.dtype)[None, :]
            parts.append(self.respond(curvature, at, xp.broadcast_to(v, h.shape)))
        return parts


class Leaving:
    """Puts the problems of a shrinking block back into their places."""

    def __init__(self, block: Block, m: int) -> None:
        self.block, self.xp = block, block.xp
        self.names = block.xp.arange(m, device=block.design.device)
        self.pieces: list[tuple[Array, ...]] = []

    def drop(self, gone: Array, left: Array, W: Array, *values: Any) -> None:
        """Store the problems ``gone`` with some values, and go on with those ``left``."""
        xp, names = self.xp, self.names
        if gone.shape[0] == names.shape[0]:  # no need to sort the last ones out
            full = (xp.full_like(names, v) if isinstance(v, int) else v for v in values)
            self.pieces.append((names, W, *full))
            return
        names = xp.take(names, gone)
        full = (xp.full_like(names, v) if isinstance(v, int) else xp.take(v, gone) for v in values)
        wide = xp.take(W, self.block.columns(gone), axis=1)
        self.pieces.append((names, wide, *full))
        self.names = xp.take(self.names, left)

    def collect(self) -> tuple[Array, ...]:
        """Return the columns and values of all problems in their order."""
        xp = self.xp
        if len(self.pieces) == 1:  # in their order
            return self.pieces[0][1:]
        names, W, *values = (xp.concat(a, axis=-1) for a in zip(*self.pieces, strict=True))
        order = xp.argsort(names)
        W = xp.take(W, self.block.columns(order), axis=1)
        return (W, *(xp.take(v, order) for v in values))
