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

from fbeta._array import is_accelerator, multiply_add, product_precision
from fbeta.linear.design import Design, Rows
from fbeta.linear.objectives import Objective
from fbeta.linear.preconditioners import Diagonal, Eliminating, Factored, Preconditioner

__all__ = ["Block", "Result", "minimise"]

Array = Any
FORCING = 0.01  # share of the Newton decrement that a direction may leave
LOOSE = 0.2  # the same where less than that is left to gain
FLAT = (0.3, 0.3)  # shares of the slope that a step may leave: before and beyond the minimum
ENOUGH = 0.1  # share of the decrease that a straight line promises with which a step is taken
FAR = 0.3  # relative decrease beyond which curvatures are cautious
MAX_TRIALS = 40  # steps tried along one direction
MAX_STALLED = 2  # iterations without a decrease that can be seen
CLOSE = 0.02  # decrease, in roots of the tolerance, that ends single precision
RESIDUE = 10.0  # what single precision takes the inverse of a preconditioned Hessian for, at most
TAIL = 0.1  # share of a block that single precision does not wait for
SHRINK = (0.9, 0.3)  # share of problems left at which the others are dropped; on accelerators
CACHE = 1 << 16  # scores of a block of rows that stay in a processor's cache
MEMORY = 1 << 26  # the same on other devices, where large products are the fast ones


@dataclass
class Result:
    """Solutions of m problems with c columns each."""

    W: Array  # (p, m c)
    n_iter: Array  # (m,)
    converged: Array = None  # (m,)
    hard: Array = None  # (m,), given up because of what their directions cost


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
        xp, double = self.xp, self.xp.float64
        cautious = self.spread(far) if far is not None and bool(xp.any(far)) else None
        value, total, residuals, curvature = 0.0, 0.0, [], []
        for y, u, c in zip(self.targets, scores, self.weights, strict=True):
            f, g, h = self.objective.evaluate(y, u, cautious)
            diagonal = self.objective.diagonal(h)
            if c is not None:
                f, g, diagonal = c * f, c * g, c * diagonal
            value = value + xp.astype(xp.sum(f, axis=0), double)
            total = total + xp.astype(xp.sum(diagonal, axis=0), double)
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

    def hessian_product(self, rows: Rows, curvature: list[Array], P: Array) -> Array:
        """Multiply each problem's Hessian with its columns of P, (p, M)."""
        out = rows.round_trip(P, lambda at, v: self.respond(curvature, at, v))
        return out + self.xp.astype(self.penalty, P.dtype) * P

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
    point = block.point(W, block.losses(scores, far))
    make: type[Preconditioner] = Diagonal if block.objective.joint else Eliminating
    make = Factored if direct else make
    reach = 0.0 if block.dtype == xp.float64 else CLOSE / (2 * tol**0.5)
    preconditioner, steps = None, None
    iteration = 0
    while True:
        preconditioner = make.at(block, point, preconditioner, steps)
        limit = 2 * tol * (point.value + floor)
        with product_precision(xp, block.design.device, full=reach == 0):
            search = conjugate_gradients(block, point, preconditioner, limit, far, max_steps, reach)
        converged = (search.upper <= limit) & ~far
        # conjugate gradients ended without a word on what is left, or cost too much
        silent = (search.lower <= limit) & ~(search.upper <= (1 + FORCING) * search.lower)
        hard = ~converged & ((search.steps >= max_steps) | silent) & ~far
        hard = hard & (not direct)
        lost = ~xp.isfinite(point.value) | (stalled >= MAX_STALLED)
        ended = converged | hard | lost | (iteration >= budget)
        taken = xp.full_like(budget, iteration)
        if reach > 0:
            # so close that the next point need not be looked at in single precision
            leap = ~ended & ~far & (search.lower <= reach * limit)
            W = W + xp.where(block.spread(leap), search.direction, xp.zeros_like(W))
            ended, taken = ended | leap, taken + xp.astype(leap, taken.dtype)
        left = xp.nonzero(~ended)[0]
        if left.shape[0] < ended.shape[0]:
            leaving.drop(xp.nonzero(ended)[0], left, W, taken, converged, hard)
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
            preconditioner = preconditioner.take(left, columns) if direct else None
            steps = xp.take(search.steps, left)
        else:
            direction, value, lower = search.direction, point.value, search.lower
            gradient, steps = point.gradient, search.steps
        far = lower > FAR * (value + floor)
        changes = block.heavy.product(direction)
        step, scores, losses = find_step(
            block, W, value, gradient, direction, scores, changes, far
        )  # fmt: skip
        W = W + block.spread(step) * direction
        point = block.point(W, losses)
        seen = point.value < value - 4 * float(xp.finfo(block.dtype).eps) * xp.abs(value)
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


def find_step(
    block: Block,
    W: Array,
    value: Array,
    gradient: Array,
    direction: Array,
    scores: list[Array],
    changes: list[Array],
    far: Array,
) -> tuple[Array, list[Array], Losses]:
    """Find for each problem a step along its direction at which the slope all but vanishes: (m,).

    The slope grows with the step; up to where it vanishes the objective falls. All this needs the
    scores and how they change, but no product with Z. Scores and losses at the step come with it.
    """
    xp = block.xp
    first = block.total(xp.sum(gradient * direction, axis=0))
    pull = block.total(xp.sum(block.penalty * W * direction, axis=0))
    bend = block.total(xp.sum(block.penalty * direction * direction, axis=0))
    start = value - 0.5 * block.total(xp.sum(block.penalty * W * W, axis=0))
    noise = 64 * float(xp.finfo(block.dtype).eps) * xp.abs(value)
    step, low = xp.ones_like(first), xp.zeros_like(first)
    high = xp.full_like(first, xp.inf)
    at_low, at_high = first, xp.zeros_like(first)
    for _ in range(MAX_TRIALS):
        trial = block.along(scores, changes, step)
        losses = block.losses(trial, far)
        now = pull + step * bend + block.slope(losses, changes)
        change = losses.value - start + step * pull + 0.5 * step**2 * bend
        flat = (now >= FLAT[0] * first) & (now <= -FLAT[1] * first)
        good = flat & ((now <= 0) | (change <= noise)) | (change <= ENOUGH * step * first)
        if bool(xp.all(good)):
            return step, trial, losses
        short = now < 0  # false for NaN: an overflow is too far
        low, at_low = xp.where(short, step, low), xp.where(short, now, at_low)
        high, at_high = xp.where(short, high, step), xp.where(short, at_high, now)
        # between two points, where a straight line would vanish; else farther
        secant = xp.clip(at_low / (at_low - at_high), 0.1, 0.9)
        secant = xp.where(xp.isfinite(secant), secant, xp.full_like(secant, 0.1))
        between = low + secant * (high - low)
        step = xp.where(good, step, xp.where(xp.isfinite(high), between, 4 * low))
    step = xp.where(good, step, low)
    trial = block.along(scores, changes, step)
    return step, trial, block.losses(trial, far)


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
    reach: float = 0.0,
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
    reach : float
        Where ``g' H^-1 g`` is below ``reach`` limits, the direction is followed unseen, and has to
        be accurate. With a reach there are estimates in place of bounds.
    forcing : float
        Share of the Newton decrement that a direction may leave.

    Returns
    -------
    Search
    """
    xp, double = block.xp, block.xp.float64
    z, size = preconditioner.apply(-point.gradient)
    scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
    rows = block.light if preconditioner.single else block.heavy
    preconditioner = preconditioner.astype(rows.dtype)
    r, p = (xp.astype(a / block.spread(scale), rows.dtype) for a in (-point.gradient, z))
    x, curvature = xp.zeros_like(r), point.curvature
    limit = xp.where(far, xp.zeros_like(limit), limit / scale**2)
    # what may be left: a share of the decrease, or of the tolerance where that is more
    share = xp.clip(0.3 * limit, forcing, LOOSE)
    rz = size / scale**2
    bounds = (Estimate if reach else Bounds).before(xp, rz, preconditioner.smallest)
    if not reach:  # nothing may be left at all
        none = block.total(xp.sum(xp.abs(r), axis=0)) == 0
        bounds.upper = xp.where(none, bounds.lower, bounds.upper)
    leaving = Leaving(block, scale.shape[0])
    few = int(TAIL * scale.shape[0]) if reach else 0
    steps = 0
    active = rz > 0
    while True:
        if steps or not reach:  # estimates need a step to go by
            accurate = (rz <= share) & (bounds.lower > limit)
            if reach:
                accurate = accurate & ((rz <= 0.3 * limit) | (bounds.lower > reach * limit))
            active = (bounds.upper > limit) & (rz > 0) & ~(accurate | bounds.tight(forcing))
        left = xp.nonzero(active)[0]
        if steps >= max_steps or left.shape[0] <= few:
            active, left = xp.zeros_like(active), left[:0]
        if left.shape[0] <= block.shrink * active.shape[0]:
            gone = xp.nonzero(~active)[0]
            leaving.drop(gone, left, x, bounds.lower, bounds.upper, steps)
            if left.shape[0] == 0:
                break
            columns = block.columns(left)
            x, r, p = (xp.take(a, columns, axis=1) for a in (x, r, p))
            rz, limit, share, active = (xp.take(a, left) for a in (rz, limit, share, active))
            bounds = bounds.take(left)
            curvature = [xp.take(h, columns, axis=1) for h in curvature]
            preconditioner = preconditioner.take(left, columns)
        q = block.hessian_product(rows, curvature, p)
        bend = block.total(xp.sum(p * q, axis=0))
        # a direction without curvature is the end: rounding has the last word
        going = active & (bend > 0)
        nothing = xp.zeros_like(rz)
        length = xp.where(going, rz / bend, nothing)
        wide = xp.astype(block.spread(length), rows.dtype)
        x, r = x + wide * p, r - wide * q
        z, size = preconditioner.apply(r)
        new = xp.astype(size, double)
        ratio = xp.where(going, new / rz, nothing)
        p = z + xp.astype(block.spread(ratio), rows.dtype) * p
        bounds.update(rz, new, length, ratio, going)
        rz = xp.where(going, new, nothing)
        steps += 1
    x, lower, upper, taken = leaving.collect()
    x = block.objective.project(xp.astype(x, xp.float64) * block.spread(scale))
    # rounding may spoil a direction, never the descent
    uphill = block.total(xp.sum(x * point.gradient, axis=0)) >= 0
    return Search(
        xp.where(block.spread(uphill), -point.gradient, x), lower * scale**2, upper * scale**2,
        taken,
    )  # fmt: skip


@dataclass
class Bounds:
    """Bounds of ``g' H^-1 g``, (m,) each, as conjugate gradients go on.

    Gauss: the sum of length times residual. Gauss-Radau, with the lower end ``smallest`` of the
    spectrum prescribed: plus ``factor`` times the residual, by the recurrence of Meurant and Tichy.
    Where that breaks down the lower end was none for the products as they are computed, and there
    is no bound.
    """

    xp: Any
    smallest: Array
    factor: Array
    lower: Array
    upper: Array

    @classmethod
    def before(cls, xp: Any, rz: Array, smallest: Array) -> Bounds:
        """Return what is known before any step."""
        known = (smallest > 0) & (rz > 0)
        none = xp.full_like(smallest, xp.inf)
        factor = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
        upper = xp.where(known, factor * rz, none)
        return cls(xp, smallest, factor, xp.zeros_like(smallest), upper)

    def tight(self, forcing: float) -> Array:
        """Tell where the bounds have met, up to a share, (m,)."""
        return self.upper <= (1 + forcing) * self.lower

    def take(self, problems: Array) -> Bounds:
        """Return those of some problems."""
        arrays = (self.smallest, self.factor, self.lower, self.upper)
        return type(self)(self.xp, *(self.xp.take(a, problems) for a in arrays))

    def update(self, rz: Array, new: Array, length: Array, ratio: Array, going: Array) -> None:
        """Account for a step, of the problems that took one."""
        xp = self.xp
        rest = self.factor - length
        sound = (rest > 0) & (rest < xp.inf) & (new >= 0)
        none = xp.full_like(rest, xp.inf)
        self.factor = xp.where(sound, rest / (self.smallest * rest + ratio), none)
        self.lower = self.lower + length * rz
        upper = xp.where(sound, self.lower + self.factor * new, none)
        self.upper = xp.where(going, upper, self.upper)


class Estimate(Bounds):
    """The same without a promise, where double precision has the last word.

    What is left is taken for ``RESIDUE`` times the residual.
    """

    @classmethod
    def before(cls, xp: Any, rz: Array, smallest: Array) -> Estimate:
        """Return what is known before any step."""
        return cls(xp, smallest, smallest, xp.zeros_like(rz), RESIDUE * rz)

    def update(self, rz: Array, new: Array, length: Array, ratio: Array, going: Array) -> None:
        """Account for a step."""
        self.lower = self.lower + length * rz
        self.upper = self.lower + RESIDUE * self.xp.where(going, new, self.xp.zeros_like(new))
