"""Many problems at once: Newton's method with conjugate gradients, and a certificate.

All problems share Z, so that scores, gradients and products with the Hessians are matrix products;
each has its own step and stopping, and leaves once it is done. Rows are visited in blocks. Scores,
objectives and gradients are in double precision; conjugate gradients, which need not be accurate,
in single precision where the conditioning allows it.

A problem has converged when its Newton decrement ``g' H^-1 g / 2``, which is what there is left to
gain, is at most ``tol`` times its objective. Conjugate gradients bound ``g' H^-1 g`` from below by
Gauss quadrature and, since no eigenvalue of the preconditioned Hessian is below a number that is
known, from above by Gauss-Radau quadrature: it is the upper bound that decides.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta.linear.design import Design, Rows
from fbeta.linear.objectives import Objective
from fbeta.linear.preconditioners import Diagonal, Eliminating, Factored, Preconditioner

__all__ = ["Block", "Result", "minimise"]

Array = Any
FORCING = 0.01  # share of the Newton decrement that a direction may leave
LOOSE = 0.2  # the same where less than that is left to gain
FLAT = (0.3, 0.3)  # shares of the slope that a step may leave: before and beyond the minimum
FAR = 0.3  # relative decrease beyond which curvatures are cautious
MAX_TRIALS = 40  # steps tried along one direction
MAX_STALLED = 2  # iterations without a decrease that can be seen
SHRINK = 0.9  # problems are dropped from the arrays once this share of them is left
CACHE = 1 << 16  # scores of a block of rows that stay in a processor's cache
MEMORY = 1 << 26  # the same on other devices, where large products are the fast ones


@dataclass
class Result:
    """Solutions of m problems with c columns each."""

    W: Array  # (p, m c)
    n_iter: Array  # (m,)
    converged: Array  # (m,)
    hard: Array  # (m,), given up because of what their directions cost


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
    """

    def __init__(
        self, design: Design, light: Design, objective: Objective, targets: Array, alpha: float
    ) -> None:
        self.design, self.objective, self.xp = design, objective, design.xp
        self.alpha = max(alpha, objective.least)
        self.penalty = design.penalty(self.alpha, objective.ridge)
        self.width = objective.width
        p = design.matrix.shape[1]
        scores = CACHE if "cpu" in str(design.device).lower() else MEMORY
        columns = max(targets.shape[1] * self.width, 1)
        size = max(scores // columns, 2 * min(p, 2048), 256)
        self.heavy = design.rows(size, self.xp.float64)
        self.light = light.rows(size, light.matrix.dtype)
        self.targets = self.heavy.split(targets)
        self.weights: list[Any] = [None] * len(self.targets)
        if design.weight is not None:
            self.weights = self.heavy.split(self.xp.astype(design.weight, self.xp.float64))

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

    def alone(self, problem: int) -> Block:
        """Return the block of one problem."""
        out = copy(self)
        out.keep(self.xp.asarray([problem], device=self.design.device))
        return out

    def keep(self, problems: Array) -> None:
        """Forget all problems but these."""
        self.targets = [self.xp.take(y, problems, axis=1) for y in self.targets]
        self.objective = self.objective.take(problems)

    def evaluate(self, W: Array, scores: list[Array], far: Array | None) -> Point:
        """Compute everything at W, (p, M), which has these scores.

        ``far``, (m,), tells the problems that are far from their solution and get a cautious
        curvature.
        """
        xp = self.xp
        cautious = self.spread(far) if far is not None and bool(xp.any(far)) else None
        value = 0.5 * self.total(xp.sum(self.penalty * W * W, axis=0))
        total, residuals, curvature = 0.0, [], []
        for y, u, c in zip(self.targets, scores, self.weights, strict=True):
            f, g, h = self.objective.evaluate(y, u, cautious)
            diagonal = self.objective.diagonal(h)
            if c is not None:
                f, g, diagonal = c * f, c * g, c * diagonal
            value, total = value + xp.sum(f, axis=0), total + xp.sum(diagonal, axis=0)
            residuals.append(g)
            curvature.append(xp.astype(h, self.light.dtype))
        gradient = self.objective.project(self.heavy.adjoint(residuals) + self.penalty * W)
        return Point(value, gradient, curvature, total)

    def along(self, scores: list[Array], changes: list[Array], step: Array) -> tuple[Array, Array]:
        """Return the losses at a step along a change of the scores, and their slope, (m,) each."""
        xp, value, slope = self.xp, 0.0, 0.0
        for y, u, v, c in zip(self.targets, scores, changes, self.weights, strict=True):
            f, g = self.objective.slopes(y, u + self.spread(step) * v)
            f, g = (f, g) if c is None else (c * f, c * g)
            value = value + xp.sum(f, axis=0)
            slope = slope + self.total(xp.sum(g * v, axis=0))
        return value, slope

    def respond(self, curvature: list[Array], at: int, v: Array) -> Array:
        """Multiply the Hessians of a block's rows with changes of their scores."""
        out, weight = self.objective.response(curvature[at], v), self.weights[at]
        return out if weight is None else self.xp.astype(weight, out.dtype) * out

    def hessian_product(self, rows: Rows, curvature: list[Array], P: Array) -> Array:
        """Multiply each problem's Hessian with its columns of P, (p, M)."""
        out = rows.round_trip(P, lambda at, v: self.respond(curvature, at, v))
        return out + self.xp.astype(self.penalty, P.dtype) * P

    def curvatures(self, curvature: list[Array], column: int) -> list[Array]:
        """Return the columns of each row's Hessian that belong to one column of each problem."""
        xp = self.xp
        one = xp.asarray(np.arange(self.width) == column, device=self.design.device)
        parts = []
        for at, h in enumerate(curvature):
            m = h.shape[1] // self.width
            v = xp.astype(xp.tile(one, (m,)), h.dtype)[None, :]
            parts.append(self.respond(curvature, at, xp.broadcast_to(v, h.shape)))
        return parts


def minimise(
    block: Block,
    W: Array,
    *,
    tol: float,
    floor: float,
    budget: Array,
    cold: bool,
    max_steps: int,
    direct: bool = False,
) -> Result:
    """Minimise the objective of every problem.

    Parameters
    ----------
    block : Block
        Of m problems with c columns each. It shrinks.
    W : array of shape (p, m c)
        Where to start, in double precision.
    tol : float
        A problem has converged once its Newton decrement is certified to be at most ``tol`` times
        its objective plus ``floor``.
    floor : float
        What is added to an objective that decreases are compared with.
    budget : int array of shape (m,)
        The largest number of iterations for each problem.
    cold : bool
        Whether the start is far from the solution.
    max_steps : int
        Of conjugate gradients for one direction; a problem that needs more is given up as hard,
        unless ``direct``.
    direct : bool
        Precondition with factorised Hessians.

    Returns
    -------
    Result
    """
    xp, m = block.xp, budget.shape[0]
    tol = max(tol, 32 * float(xp.finfo(xp.float64).eps))
    leaving = Leaving(block, m)
    far = xp.full(m, cold, dtype=xp.bool, device=block.design.device)
    stalled = xp.zeros(m, dtype=budget.dtype, device=block.design.device)
    scores = block.heavy.product(W)
    point = block.evaluate(W, scores, far)
    make: type[Preconditioner] = Diagonal if block.objective.joint else Eliminating
    make = Factored if direct else make
    preconditioner, steps = None, None
    iteration = 0
    while True:
        preconditioner = make.at(block, point, preconditioner, steps)
        limit = 2 * tol * (point.value + floor)
        search = conjugate_gradients(block, point, preconditioner, limit, far, max_steps)
        converged = (search.upper <= limit) & ~far
        # conjugate gradients ended without a word on what is left, or cost too much
        silent = (search.lower <= limit) & ~(search.upper <= (1 + FORCING) * search.lower)
        hard = ~converged & ((search.steps >= max_steps) | silent) & ~far
        hard = hard & (not direct)
        lost = ~xp.isfinite(point.value) | (stalled >= MAX_STALLED)
        ended = converged | hard | lost | (iteration >= budget)
        left = xp.nonzero(~ended)[0]
        if left.shape[0] < ended.shape[0]:
            leaving.drop(xp.nonzero(ended)[0], left, W, iteration, converged, hard)
            if left.shape[0] == 0:
                return Result(*leaving.collect())
            columns = block.columns(left)
            W, direction = (xp.take(a, columns, axis=1) for a in (W, search.direction))
            scores = [xp.take(u, columns, axis=1) for u in scores]
            budget, stalled, value, lower = (
                xp.take(a, left) for a in (budget, stalled, point.value, search.lower)
            )
            gradient = xp.take(point.gradient, columns, axis=1)
            block.keep(left)
            preconditioner = preconditioner.take(left, columns)
            steps = xp.take(search.steps, left)
        else:
            direction, value, lower = search.direction, point.value, search.lower
            gradient, steps = point.gradient, search.steps
        far = lower > FAR * (value + floor)
        changes = block.heavy.product(direction)
        step = find_step(block, W, value, gradient, direction, scores, changes)
        wide = block.spread(step)
        W = W + wide * direction
        scores = [u + wide * v for u, v in zip(scores, changes, strict=True)]
        point = block.evaluate(W, scores, far)
        seen = point.value < value - 4 * float(xp.finfo(xp.float64).eps) * xp.abs(value)
        stalled = xp.where(seen, xp.zeros_like(stalled), stalled + 1)
        iteration += 1


class Leaving:
    """Puts the problems of a shrinking block back into their places."""

    def __init__(self, block: Block, m: int) -> None:
        self.block, self.xp = block, block.xp
        self.names = block.xp.arange(m, device=block.design.device)
        self.pieces: list[tuple[Array, ...]] = []

    def drop(self, gone: Array, left: Array, W: Array, *values: Any) -> None:
        """Store the problems ``gone`` with some values, and go on with those ``left``."""
        xp, names = self.xp, self.xp.take(self.names, gone)
        full = (xp.full_like(names, v) if isinstance(v, int) else xp.take(v, gone) for v in values)
        wide = xp.take(W, self.block.columns(gone), axis=1)
        self.pieces.append((names, wide, *full))
        self.names = xp.take(self.names, left)

    def collect(self) -> tuple[Array, ...]:
        """Return the columns and values of all problems in their order."""
        xp = self.xp
        names, W, *values = (xp.concat(a, axis=-1) for a in zip(*self.pieces, strict=True))
        order = xp.argsort(names)
        W = xp.take(W, self.block.columns(order), axis=1)
        return (W, *(xp.take(v, order) for v in values))


def find_step(
    block: Block,
    W: Array,
    value: Array,
    gradient: Array,
    direction: Array,
    scores: list[Array],
    changes: list[Array],
) -> Array:
    """Find for each problem a step along its direction at which the slope all but vanishes: (m,).

    The slope grows with the step; up to where it vanishes the objective falls. All this needs the
    scores and how they change, but no product with Z.
    """
    xp = block.xp
    first = block.total(xp.sum(gradient * direction, axis=0))
    pull = block.total(xp.sum(block.penalty * W * direction, axis=0))
    bend = block.total(xp.sum(block.penalty * direction * direction, axis=0))
    start = value - 0.5 * block.total(xp.sum(block.penalty * W * W, axis=0))
    noise = 64 * float(xp.finfo(xp.float64).eps) * xp.abs(value)
    step, low = xp.ones_like(first), xp.zeros_like(first)
    high = xp.full_like(first, xp.inf)
    at_low, at_high = first, xp.zeros_like(first)
    for _ in range(MAX_TRIALS):
        loss, slope = block.along(scores, changes, step)
        now = pull + step * bend + slope
        change = loss - start + step * pull + 0.5 * step**2 * bend
        flat = (now >= FLAT[0] * first) & (now <= -FLAT[1] * first)
        good = flat & ((now <= 0) | (change <= noise))
        if bool(xp.all(good)):
            return step
        short = now < 0  # false for NaN: an overflow is too far
        low, at_low = xp.where(short, step, low), xp.where(short, now, at_low)
        high, at_high = xp.where(short, high, step), xp.where(short, at_high, now)
        # between two points, where a straight line would vanish; else farther
        secant = xp.clip(at_low / (at_low - at_high), 0.1, 0.9)
        secant = xp.where(xp.isfinite(secant), secant, xp.full_like(secant, 0.1))
        between = low + secant * (high - low)
        trial = xp.where(xp.isfinite(high), between, 4 * low)
        step = xp.where(good, step, trial)
    return xp.where(good, step, low)


@dataclass
class Search:
    """Directions (p, M); for each problem bounds of ``g' H^-1 g`` and the steps taken."""

    direction: Array
    lower: Array
    upper: Array
    steps: Array


def conjugate_gradients(
    block: Block,
    point: Point,
    preconditioner: Preconditioner,
    limit: Array,
    far: Array,
    max_steps: int,
    forcing: float = FORCING,
) -> Search:
    """Solve ``H x = -g`` until x is accurate enough, or ``g' H^-1 g`` is known to be below a limit.

    Parameters
    ----------
    block : Block
        For products with the Hessians.
    point : Point
        Gradient and curvature.
    preconditioner : Preconditioner
        With a lower bound of the spectrum.
    limit : array of shape (m,)
        What the upper bound is compared with.
    far : bool array of shape (m,)
        Problems that do not end here.
    max_steps : int
        The largest number of steps.
    forcing : float
        Share of the Newton decrement that a direction may leave.

    Returns
    -------
    Search
    """
    xp = block.xp
    size = preconditioner.apply(-point.gradient)[1]
    scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
    rows = block.light if preconditioner.single else block.heavy
    preconditioner = preconditioner.astype(rows.dtype)
    r = xp.astype(-point.gradient / block.spread(scale), rows.dtype)
    z, rz = preconditioner.apply(r)
    x, p, curvature = xp.zeros_like(r), z, point.curvature
    limit = xp.where(far, xp.zeros_like(limit), limit / scale**2)
    # what may be left: a share of the decrease, or of the tolerance where that is more
    share = xp.clip(0.3 * limit, forcing, LOOSE)
    gamma, lower, upper = _first_bounds(xp, rz, preconditioner.smallest)
    # nothing left at all
    upper = xp.where(block.total(xp.sum(xp.abs(r), axis=0)) == 0, lower, upper)
    leaving = Leaving(block, scale.shape[0])
    steps = 0
    while True:
        size = xp.astype(rz, xp.float64)
        accurate = (size <= share) & (lower > limit) | (upper - lower <= forcing * lower)
        active = (upper > limit) & ~accurate & (size > 0) & (steps < max_steps)
        left = xp.nonzero(active)[0]
        if left.shape[0] <= SHRINK * active.shape[0]:
            gone = xp.nonzero(~active)[0]
            leaving.drop(gone, left, x, lower, upper, steps)
            if left.shape[0] == 0:
                break
            columns = block.columns(left)
            x, r, p = (xp.take(a, columns, axis=1) for a in (x, r, p))
            rz, size, lower, upper, gamma, limit, share = (
                xp.take(a, left) for a in (rz, size, lower, upper, gamma, limit, share)
            )
            curvature = [xp.take(h, columns, axis=1) for h in curvature]
            preconditioner = preconditioner.take(left, columns)
            active = xp.take(active, left)
        q = block.hessian_product(rows, curvature, p)
        bend = block.total(xp.sum(p * q, axis=0))
        going = active & (bend > 0)
        length = xp.where(going, rz / xp.where(going, bend, xp.ones_like(bend)), 0 * rz)
        x = x + block.spread(length) * p
        r = r - block.spread(length) * q
        z, new = preconditioner.apply(r)
        ratio = xp.where(going, new / rz, 0 * rz)
        p = z + block.spread(ratio) * p
        lower, upper, gamma = _bounds(
            xp, size, new, length, ratio, lower, gamma, preconditioner.smallest, going
        )
        # a direction without curvature is the end: rounding has the last word
        rz = xp.where(going, new, 0 * new)
        steps += 1
    x, lower, upper, taken = leaving.collect()
    x = block.objective.project(xp.astype(x, xp.float64) * block.spread(scale))
    # rounding may spoil a direction, never the descent
    uphill = block.total(xp.sum(x * point.gradient, axis=0)) >= 0
    return Search(
        xp.where(block.spread(uphill), -point.gradient, x), lower * scale**2, upper * scale**2,
        taken,
    )  # fmt: skip


def _first_bounds(xp: Any, rz: Array, smallest: Array) -> tuple[Array, Array, Array]:
    """Return the factor of the residual, and the bounds of ``g' H^-1 g`` before any step."""
    known = (smallest > 0) & (rz > 0)
    none = xp.full_like(smallest, xp.inf)
    gamma = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
    upper = xp.where(known, gamma * xp.astype(rz, xp.float64), none)
    return gamma, xp.zeros_like(smallest), upper


def _bounds(
    xp: Any,
    size: Array,
    new: Array,
    length: Array,
    ratio: Array,
    lower: Array,
    gamma: Array,
    smallest: Array,
    going: Array,
) -> tuple[Array, Array, Array]:
    """Update the bounds of ``g' H^-1 g`` after a step.

    Gauss: the sum of length times residual. Gauss-Radau, with the lower end of the spectrum
    prescribed: plus ``gamma`` times the residual, by the recurrence of Meurant and Tichy. Where
    that breaks down the lower end was none for the products as they are computed, and there is no
    bound.
    """
    length, ratio, new = (xp.astype(a, xp.float64) for a in (length, ratio, new))
    lower = lower + length * size
    rest = gamma - length
    sound = going & (rest > 0) & (rest < xp.inf) & (new >= 0)
    gamma = xp.where(sound, rest / (smallest * rest + ratio), xp.full_like(gamma, xp.inf))
    return lower, xp.where(sound, lower + gamma * new, xp.full_like(gamma, xp.inf)), gamma
