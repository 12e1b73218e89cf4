"""Many problems at once: Newton's method with conjugate gradients, and a certificate.

All problems share Z, so that scores, gradients and products with the Hessians are matrix products;
each has its own step and stopping, and leaves once it is done. Rows are visited in blocks. Scores,
objectives and gradients are in double precision; conjugate gradients, which need not be accurate,
in single precision where the conditioning allows it.

A problem has converged when its Newton decrement ``g' H^-1 g / 2``, which is what there is left to
gain, is at most ``tol`` times its objective: by the upper bound of conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from fbeta._array import Array, product_precision
from fbeta.linear.block import Block, Leaving, Losses
from fbeta.linear.conjugate import FORCING, conjugate_gradients
from fbeta.linear.preconditioners import Diagonal, Eliminating, Factored, Preconditioner

__all__ = ["Result", "minimise"]

FLAT = (0.3, 0.3)  # shares of the slope that a step may leave: before and beyond the minimum
ENOUGH = 0.1  # share of the decrease that a straight line promises with which a step is taken
FAR = 0.3  # relative decrease beyond which curvatures are cautious
MAX_TRIALS = 40  # steps tried along one direction
MAX_STALLED = 2  # iterations without a decrease that can be seen
CLOSE = 0.02  # decrease, in roots of the tolerance, that ends single precision


@dataclass
class Result:
    """Solutions of m problems with c columns each."""

    W: Array  # (p, m c)
    n_iter: Array  # (m,)
    converged: Array = None  # (m,)
    hard: Array = None  # (m,), given up because of what their directions cost


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
