"""A block of problems at once: Newton's method with conjugate gradients.

Column m minimises ``f_m(w) = sum_i c_i phi(y_im, z_i.w) + alpha / 2 |w|^2``. All columns share Z,
so that scores, gradients and products with the Hessians are matrix products; each column has its
own step size and stopping, and converged columns leave the block. Rows are visited in tiles that
stay in the cache between the product, the elementwise work and the product back. Objective and
gradient are computed in the precision of X; the directions, which need not be accurate, in single
precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from fbeta.linear.design import Design
from fbeta.losses import Loss

Array = Any
FORCING = 0.1  # relative accuracy of a Newton direction, in the preconditioner's norm
LOOSE = 0.45  # the same where less than that is left to gain
ARMIJO = 1e-4
DOUBT = 1e4  # factor by which a promise may be too low before a direction has tested it
FAR = 0.1  # promised relative decrease beyond which curvatures are cautious
MAX_STEPS = 200  # conjugate gradient steps for one direction
TILE = 1 << 16  # scores per tile
SHRINK = 0.9  # columns are dropped from the arrays once this share of them is left


@dataclass
class BlockResult:
    """Solutions of a block: ``W`` (p, m); per column, the iterations and whether it converged."""

    W: Array
    n_iter: Array
    converged: Array


@dataclass
class Point:
    """Objective (m,), gradient (p, m) and curvatures (one (rows, m) array per tile) at W."""

    value: Array
    gradient: Array
    curvature: list[Array]


class Block:
    """Problems that are solved together.

    Parameters
    ----------
    design : Design
        With n rows and p columns.
    light : Design
        The same in single precision.
    targets : array of shape (n, m)
        In [0, 1], in the type of the design.
    loss : Loss
        The binary loss phi.
    alpha : float >= 0
        Strength of the penalty.
    """

    def __init__(
        self, design: Design, light: Design, targets: Array, loss: Loss, alpha: float
    ) -> None:
        self.design, self.light, self.loss = design, light, loss
        self.xp = design.xp
        self.penalty = alpha * design.penalised
        zero = self.xp.zeros(1, dtype=design.dtype)
        self.middle = [float(loss.derivative(y, zero)[0]) for y in (0.0, 1.0)]
        rows = max(TILE // max(targets.shape[1], 1), 2 * min(design.matrix.shape[1], 2048), 256)
        n = targets.shape[0]
        tiles = [slice(start, min(start + rows, n)) for start in range(0, n, rows)]
        self.tiles = [design.matrix[tile, :] for tile in tiles]
        self.light_tiles = [light.matrix[tile, :] for tile in tiles]
        self.targets = [targets[tile, :] for tile in tiles]
        c = design.weight
        self.weights = [None if c is None else c[tile, :] for tile in tiles]

    def evaluate(self, W: Array, far: Array) -> Point:
        """Compute objective, gradient and curvatures at W.

        Parameters
        ----------
        W : array of shape (p, m)
        far : bool array of shape (m,)
            Columns that are far from their solution and get cautious curvatures.

        Returns
        -------
        Point
        """
        xp = self.xp
        any_far = bool(xp.any(far))
        value = 0.5 * xp.sum(self.penalty * W * W, axis=0)
        gradient = xp.zeros_like(W)
        curvature = []
        moved = self.design.forward(W)
        for tile, y, c in zip(self.tiles, self.targets, self.weights, strict=True):
            u = tile @ moved
            f, g, h = self.loss.evaluate(y, u)
            if any_far:
                h = xp.where(far, self._cautious(y, u, g, h), h)
            if c is not None:
                f, g, h = c * f, c * g, c * h
            value = value + xp.sum(f, axis=0)
            gradient = gradient + tile.T @ g
            curvature.append(xp.astype(h, self.light.dtype))
        return Point(value, self.design.backward(gradient) + self.penalty * W, curvature)

    def _cautious(self, y: Array, u: Array, g: Array, h: Array) -> Array:
        """Replace the curvature of rows on the wrong side by its average on the way to score 0.

        A saturated loss has almost no curvature, and a Newton step for it would overshoot by far.
        """
        xp = self.xp
        wrong = g * u > 0
        middle = self.middle[0] + (self.middle[1] - self.middle[0]) * y
        return xp.where(wrong, (g - middle) / xp.where(wrong, u, xp.ones_like(u)), h)

    def hessian_product(self, curvature: list[Array], P: Array) -> Array:
        """Compute the product of each column's Hessian with the column of P, of shape (p, m)."""
        xp, light = self.xp, self.light
        moved, out = light.forward(P), xp.zeros_like(P)
        for tile, h in zip(self.light_tiles, curvature, strict=True):
            scores = tile @ moved
            scores *= h
            out += tile.T @ scores
        return light.backward(out) + xp.astype(self.penalty, P.dtype) * P

    def diagonal(self, curvature: list[Array]) -> Array:
        """Compute the diagonal of each Hessian, of shape (p, m).

        The penalty keeps it positive; so does a floor where there is none.
        """
        xp, light = self.xp, self.light
        squares = sum(
            squared(tile).T @ h for tile, h in zip(self.light_tiles, curvature, strict=True)
        )
        if light.shifted:
            once = sum(tile.T @ h for tile, h in zip(self.light_tiles, curvature, strict=True))
            mean = light.mean[:, None]
            centred = squares[:-1, :] + mean * (mean * once[-1:, :] - 2 * once[:-1, :])
            squares = xp.concat([xp.clip(centred, 0.0, None), squares[-1:, :]], axis=0)
        diagonal = self.penalty + xp.astype(squares, self.design.dtype)
        return xp.clip(diagonal, xp.finfo(diagonal.dtype).smallest_normal ** 0.5, None)

    def keep(self, columns: Array) -> None:
        """Forget all columns but these."""
        self.targets = [self.xp.take(y, columns, axis=1) for y in self.targets]


def solve_block(
    design: Design,
    light: Design,
    targets: Array,
    loss: Loss,
    alpha: float,
    start: Array,
    *,
    tol: float,
    max_iter: int,
    cold: bool = True,
    used: Array | None = None,
) -> BlockResult:
    """Minimise every column's objective.

    Parameters
    ----------
    design : Design
        With n rows and p columns.
    light : Design
        The same in single precision.
    targets : array of shape (n, m)
        In [0, 1], in the type of the design.
    loss : Loss
        The binary loss phi.
    alpha : float >= 0
        Strength of the penalty.
    start : array of shape (p, m)
        Where to start.
    tol : float
        A column has converged once the decrease that a further step promises is at most ``tol``
        times its objective. The promise is ``g' D^-1 g / 2`` with the preconditioner D, times the
        largest factor by which it was too low at a step before; ``DOUBT`` at the first.
    max_iter : int
        Largest number of iterations.
    cold : bool
        Whether the start is far from the solution.
    used : int array of shape (m,), optional
        Iterations that were spent on each column before, and count.

    Returns
    -------
    BlockResult
        With the iterations spent here.
    """
    xp = design.xp
    block = Block(design, light, targets, loss, alpha)
    m = targets.shape[1]
    left_over = xp.full(m, max_iter) if used is None else max_iter - used
    leaving = Leaving(xp, m)
    floor = value_floor(design, loss)
    tol = max(tol, 32 * float(xp.finfo(start.dtype).eps))

    step = xp.ones(m, dtype=start.dtype)
    trust = xp.ones_like(step)
    far = xp.full(m, cold, dtype=xp.bool)
    W, point = start, block.evaluate(start, far)
    for iteration in range(max_iter + 1):
        diagonal = block.diagonal(point.curvature)
        decrease = 0.5 * xp.sum(point.gradient**2 / diagonal, axis=0)
        trust = trust if iteration else xp.full_like(trust, DOUBT)
        promise = decrease * trust
        done = (promise <= tol * (point.value + floor)) & ~far
        ended = done | (iteration >= left_over)
        left = xp.nonzero(~ended)[0]
        if left.shape[0] == 0:
            break
        if left.shape[0] <= SHRINK * ended.shape[0]:
            gone = xp.nonzero(ended)[0]
            leaving.drop(gone, left, W, xp.take(done, gone), iteration)
            W, step, diagonal, point = _take(xp, left, W, step, diagonal, point)
            decrease, trust = xp.take(decrease, left), xp.take(trust, left)
            left_over = xp.take(left_over, left)
            block.keep(left)
        # the share of the promised decrease that may be left, for the objective to be accurate
        enough = _ratio(xp, 0.3 * tol * (point.value + floor), decrease * trust)
        accuracy = xp.clip(enough, FORCING**2, LOOSE**2)
        direction = conjugate_gradients(block, point, diagonal, accuracy)
        slope = xp.sum(point.gradient * direction, axis=0)
        # how much more a Newton step gains than the preconditioner promised
        gain = _ratio(xp, -0.5 * slope, decrease)
        trust = xp.maximum(trust if iteration else xp.ones_like(trust), gain)
        far = -slope > FAR * (point.value + floor)
        trial = block.evaluate(W + step * direction, far)
        W, point, step = _advance(xp, W, step, direction, slope, point, trial)
    return leaving.finish(W, done, iteration)


def squared(matrix: Array) -> Array:
    """Return the squares of the entries of a dense or sparse matrix."""
    return matrix.power(2) if sp.issparse(matrix) else matrix * matrix


def value_floor(design: Design, loss: Loss) -> float:
    """Return what is added to an objective that decreases are compared with.

    It is a small share of the objective of a model that knows nothing: where everything is
    predicted with certainty, a decrease of next to nothing need not be pursued.
    """
    zero = design.xp.zeros(1, dtype=design.dtype)
    return 1e-4 * design.total_weight * float(loss.value(0.5, zero)[0])


class Leaving:
    """Puts the columns of a shrinking block back into their places."""

    def __init__(self, xp: Any, m: int) -> None:
        self.xp = xp
        self.columns = xp.arange(m)
        self.pieces: list[tuple[Array, Array, Array, Array]] = []

    def drop(self, gone: Array, left: Array, W: Array, done: Array, iteration: int) -> None:
        """Store the columns ``gone``, and go on with those ``left``."""
        xp = self.xp
        self._store(xp.take(self.columns, gone), xp.take(W, gone, axis=1), done, iteration)
        self.columns = xp.take(self.columns, left)

    def finish(self, W: Array, done: Array, iteration: int) -> BlockResult:
        """Store what is in the block now, and return all columns in their order."""
        xp = self.xp
        self._store(self.columns, W, done, iteration)
        columns, W, n_iter, done = (
            xp.concat(parts, axis=-1) for parts in zip(*self.pieces, strict=True)
        )
        order = xp.argsort(columns)
        return BlockResult(xp.take(W, order, axis=1), xp.take(n_iter, order), xp.take(done, order))

    def _store(self, columns: Array, W: Array, done: Array, iteration: int) -> None:
        self.pieces.append((columns, W, self.xp.full_like(columns, iteration), done))


def _take(
    xp: Any, left: Array, W: Array, step: Array, diagonal: Array, point: Point
) -> tuple[Array, Array, Array, Point]:
    point = Point(
        xp.take(point.value, left),
        xp.take(point.gradient, left, axis=1),
        [xp.take(h, left, axis=1) for h in point.curvature],
    )
    return xp.take(W, left, axis=1), xp.take(step, left), xp.take(diagonal, left, axis=1), point


def _advance(
    xp: Any, W: Array, step: Array, direction: Array, slope: Array, point: Point, trial: Point
) -> tuple[Array, Point, Array]:
    """Move the columns whose trial is acceptable; shorten the step of the others.

    A trial is acceptable when it decreases the objective enough, or when rounding hides the
    decrease and it all but cancels the slope. NaN is never acceptable.
    """
    new_slope = xp.sum(trial.gradient * direction, axis=0)
    noise = 64 * xp.finfo(W.dtype).eps * xp.abs(point.value)
    enough = trial.value <= point.value + ARMIJO * step * slope
    flat = (xp.abs(new_slope) <= 0.1 * xp.abs(slope)) & (trial.value <= point.value + noise)
    ok = enough | flat
    moved = W + step * direction
    if bool(xp.all(ok)):
        return moved, trial, xp.ones_like(step)
    merged = Point(
        xp.where(ok, trial.value, point.value),
        xp.where(ok, trial.gradient, point.gradient),
        [xp.where(ok, new, old) for new, old in zip(trial.curvature, point.curvature, strict=True)],
    )
    # where the slope is known at both ends, the secant's zero is a better guess than a half
    secant = slope / (slope - new_slope)
    secant = xp.where(xp.isfinite(secant), secant, xp.full_like(secant, 0.1))
    shorter = step * xp.clip(secant, 0.1, 0.5)
    return xp.where(ok, moved, W), merged, xp.where(ok, xp.ones_like(step), shorter)


def conjugate_gradients(block: Block, point: Point, diagonal: Array, accuracy: Array) -> Array:
    """Solve ``H x = -g`` for each column until the residual is small in the inverse preconditioner.

    Parameters
    ----------
    block : Block
        For products with the Hessians.
    point : Point
        Gradient and curvatures.
    diagonal : array of shape (p, m)
        The preconditioner.
    accuracy : array of shape (m,)
        The square of the size of the residual, relative to the gradient's.

    Returns
    -------
    array of shape (p, m)
        Descent directions.
    """
    xp, curvature = block.xp, point.curvature
    size = xp.sqrt(xp.sum(point.gradient**2 / diagonal, axis=0))
    scale = xp.where(size > 0, size, xp.ones_like(size))
    residual = xp.astype(-point.gradient / scale, block.light.dtype)
    inverse = xp.astype(1 / diagonal, block.light.dtype)
    x = xp.zeros_like(residual)
    p = residual * inverse
    rz = xp.sum(residual * p, axis=0)
    accuracy = xp.astype(accuracy, rz.dtype)
    leaving = Leaving(xp, x.shape[1])
    for steps in range(min(2 * x.shape[0], MAX_STEPS)):
        product = block.hessian_product(curvature, p)
        bend = xp.sum(p * product, axis=0)
        active = (rz > accuracy) & (bend > 0)
        length = xp.where(active, _ratio(xp, rz, bend), xp.zeros_like(rz))
        x += length * p
        product *= length
        residual -= product
        z = residual * inverse
        new = xp.sum(residual * z, axis=0)
        active = active & (new > accuracy)
        left = xp.nonzero(active)[0]
        if left.shape[0] == 0:
            break
        p *= _ratio(xp, new, rz)
        p += z
        rz = xp.where(active, new, xp.zeros_like(new))
        if left.shape[0] <= SHRINK * active.shape[0]:
            gone = xp.nonzero(~active)[0]
            leaving.drop(gone, left, x, xp.ones_like(gone) > 0, steps)
            x, residual, p, inverse = (xp.take(a, left, axis=1) for a in (x, residual, p, inverse))
            rz, accuracy = xp.take(rz, left), xp.take(accuracy, left)
            curvature = [xp.take(h, left, axis=1) for h in curvature]
    x = xp.astype(leaving.finish(x, active, steps).W, point.gradient.dtype) * scale
    # rounding may spoil a direction, never the descent
    uphill = xp.sum(x * point.gradient, axis=0) >= 0
    return xp.where(uphill, -point.gradient / diagonal, x)


def _ratio(xp: Any, numerator: Array, denominator: Array) -> Array:
    """Divide, with 0 where the denominator is not positive."""
    positive = denominator > 0
    safe = xp.where(positive, denominator, xp.ones_like(denominator))
    return xp.where(positive, numerator / safe, xp.zeros_like(numerator))
