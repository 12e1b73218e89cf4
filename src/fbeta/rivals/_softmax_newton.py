"""A block of multinomial logistic regressions at once: Newton's method with conjugate gradients.

The weight vectors of all classes of all problems are the columns of one matrix W, so that scores,
gradients and products with the Hessians ``Z' (diag(p) - p p') Z`` are matrix products; each problem
has its own step and stopping, and leaves once it has converged. Objective and gradient are
computed in the precision of X, directions in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.linear import Design

Array = NDArray[Any]
FORCING = 0.3  # relative accuracy of a Newton direction, in the preconditioner's norm
FLAT = 0.3  # share of the slope that may be left after a step
MAX_TRIALS = 40  # steps tried along one direction
MAX_STEPS = 200  # conjugate gradient steps for one direction
SHRINK = 0.75  # problems are dropped from the arrays once this share of them is left


class Groups:
    """Columns that belong together: the classes of a problem are neighbours.

    Parameters
    ----------
    counts : ndarray of shape (m,)
        Number of classes of each problem, at least 1.

    Examples
    --------
    >>> groups = Groups(np.array([2, 1]))
    >>> groups.total(np.array([1.0, 2.0, 5.0])).tolist()
    [3.0, 5.0]
    """

    def __init__(self, counts: NDArray[np.intp]) -> None:
        self.counts = counts
        self.starts = np.cumsum(counts) - counts
        self.problem = np.repeat(np.arange(len(counts)), counts)

    def __len__(self) -> int:
        return len(self.counts)

    def total(self, values: Array) -> Array:
        """Sum over the classes of each problem: (..., M) to (..., m)."""
        return np.add.reduceat(values, self.starts, axis=-1) if len(self) else values

    def largest(self, values: Array) -> Array:
        """Take the maximum over the classes of each problem: (..., M) to (..., m)."""
        return np.maximum.reduceat(values, self.starts, axis=-1) if len(self) else values

    def spread(self, values: Array) -> Array:
        """Repeat the value of a problem for its classes: (..., m) to (..., M)."""
        return np.take(values, self.problem, axis=-1)

    def columns(self, problems: Array) -> NDArray[np.intp]:
        """Return the columns of some problems, in increasing order."""
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[problems] = True
        return np.flatnonzero(chosen[self.problem])


@dataclass
class Point:
    """Objective (m,), gradient (p, M), scores and probabilities (n, M) at W."""

    value: Array
    gradient: Array
    scores: Array
    probability: Array

    def take(self, problems: Array, columns: Array) -> Point:
        """Return some problems only."""
        wide = (a[:, columns] for a in (self.gradient, self.scores, self.probability))
        return Point(self.value[problems], *wide)


class Block:
    """Problems that are solved together.

    Parameters
    ----------
    design, light : Design
        X in its own and in single precision.
    squares : ndarray or csr_array of shape (n, p)
        Squares of the entries of ``light.matrix``.
    classes : int ndarray of shape (n, m)
        Class of each row in each problem, counted from 0.
    counts : ndarray of shape (m,)
        Number of classes of each problem.
    alpha : float >= 0
        Strength of the penalty.
    """

    def __init__(
        self,
        design: Design,
        light: Design,
        squares: Any,
        classes: Array,
        counts: Array,
        alpha: float,
    ) -> None:
        self.design, self.light, self.squares = design, light, squares
        self.groups, self.classes = Groups(counts), classes
        self.penalty = alpha * design.penalised
        self.light_penalty = self.penalty.astype(light.dtype)
        self.rows = np.arange(classes.shape[0])[:, None]

    def keep(self, problems: Array) -> None:
        """Forget all problems but these."""
        self.groups = Groups(self.groups.counts[problems])
        self.classes = self.classes[:, problems]

    def scores(self, W: Array) -> Array:
        """Return the scores of the classes, of shape (n, M)."""
        return np.asarray(self.design.matrix @ self.design.forward(W))

    def evaluate(self, W: Array, scores: Array) -> Point:
        """Compute objective, gradient and probabilities at W, which has these scores."""
        groups, weight = self.groups, self.design.weight
        probability, log_probability = softmax(scores, groups)
        true = (self.rows, groups.starts + self.classes)
        loss = -log_probability[true]
        residual = probability.copy()
        residual[true] -= 1
        if weight is not None:
            loss, residual = weight * loss, weight * residual
        gradient = self.design.backward(self.design.matrix.T @ residual) + self.penalty * W
        value = loss.sum(axis=0) + groups.total(0.5 * (self.penalty * W * W).sum(axis=0))
        return Point(value, gradient, scores, probability.astype(self.light.dtype))

    def slope(self, groups: Groups, problems: Array, scores: Array, change: Array) -> Array:
        """Return the derivative of the losses of some problems, as their scores change: (m,)."""
        residual = softmax(scores, groups)[0]
        residual[self.rows, groups.starts + self.classes[:, problems]] -= 1
        if self.design.weight is not None:
            residual *= self.design.weight
        return groups.total(_dots(residual, change))

    def hessian_product(self, groups: Groups, point: Point, P: Array) -> Array:
        """Compute ``(Z' (diag(p) - p p') Z + penalty) P``, of the shape (p, M) of P."""
        light, probability = self.light, point.probability
        scores = light.matrix @ light.forward(P)
        bent = scores - groups.spread(groups.total(probability * scores))
        bent *= probability
        if light.weight is not None:
            bent *= light.weight
        return np.asarray(light.backward(light.matrix.T @ bent) + self.light_penalty * P)

    def diagonal(self, point: Point) -> Array:
        """Return the diagonal of each Hessian.

        It must stay positive where there is neither curvature nor penalty.
        """
        light, curvature = self.light, point.probability * (1 - point.probability)
        if light.weight is not None:
            curvature *= light.weight
        squares = np.asarray(self.squares.T @ curvature)
        if light.shifted:
            once, mean = np.asarray(light.matrix.T @ curvature), light.mean[:, None]
            squares[:-1] += mean * (mean * once[-1:] - 2 * once[:-1])
        return np.asarray(np.clip(self.penalty + squares, np.finfo(np.float32).eps, None))


def start_from(design: Design, groups: Groups, classes: Array, binary: Array) -> Array:
    """Turn models of "not class 0" into models of the classes.

    They get the share of each class among the others, for all x: a good place to start.

    Parameters
    ----------
    design : Design
        With n rows and p columns.
    groups : Groups
        The classes of m problems.
    classes : int ndarray of shape (n, m)
        Class of each row in each problem.
    binary : ndarray of shape (p, m)
        Coefficients of the logistic regressions of class 0 against the others.

    Returns
    -------
    ndarray of shape (p, M)
        Weights that sum to 0 over the classes of a problem.
    """
    W = groups.spread(binary / groups.counts)
    W[:, groups.starts] = -binary * (groups.counts - 1) / groups.counts
    if design.intercept:
        row = None if design.weight is None else design.weight[:, 0]
        for m, start in enumerate(groups.starts):
            share = np.bincount(classes[:, m], weights=row)[1:]
            W[-1, start + 1 : start + 1 + len(share)] += np.log(share / share.sum())
        W[-1] -= groups.spread(groups.total(W[-1]) / groups.counts)
    return np.asarray(W)


def value_floor(design: Design) -> float:
    """Return what is added to an objective that decreases are compared with."""
    return 1e-4 * design.total_weight * float(np.log(2))


def softmax(scores: Array, groups: Groups) -> tuple[Array, Array]:
    """Return the probabilities of the classes within their problems, and their logarithms."""
    log_probability = scores - groups.spread(groups.largest(scores))
    probability = np.exp(log_probability)
    total = groups.total(probability)
    probability /= groups.spread(total)
    log_probability -= groups.spread(np.log(total))
    return probability, log_probability


def minimise(
    block: Block, W: Array, tol: float, budget: NDArray[np.intp], trust: Array
) -> tuple[Array, NDArray[np.intp], NDArray[np.bool_]]:
    """Minimise the objective of every problem of a block, from W.

    Parameters
    ----------
    block : Block
        Of m problems.
    W : ndarray of shape (p, M)
        Where to start.
    tol : float
        As for :func:`fbeta.linear.newton.solve_block`.
    budget : int ndarray of shape (m,)
        The largest number of iterations for each problem.
    trust : ndarray of shape (m,)
        Factors by which the preconditioner's promise at the start may be too low.

    Returns
    -------
    W : ndarray of shape (p, M)
    n_iter : ndarray of shape (m,)
    converged : bool ndarray of shape (m,)
    """
    m = len(block.groups)
    tol = max(tol, 32 * float(np.finfo(block.design.dtype).eps))
    floor = value_floor(block.design)
    n_iter, converged = np.zeros(m, dtype=np.intp), np.zeros(m, dtype=np.bool_)
    everything, names = block.groups, np.arange(m)
    solution, point = W.copy(), block.evaluate(W, block.scores(W))
    for iteration in range(int(budget.max()) + 1):
        diagonal = block.diagonal(point)
        decrease = 0.5 * block.groups.total(_dots(point.gradient, point.gradient / diagonal))
        done = decrease * trust <= tol * (point.value + floor)
        ended = done | (iteration >= budget[names])
        n_iter[names], converged[names] = iteration, done
        if ended.all():
            break
        if (~ended).sum() <= SHRINK * len(ended):
            left, columns = np.flatnonzero(~ended), block.groups.columns(~ended)
            solution[:, everything.columns(names)] = W
            names, W, diagonal = names[left], W[:, columns], diagonal[:, columns]
            point, decrease, trust = point.take(left, columns), decrease[left], trust[left]
            block.keep(left)
        direction = conjugate_gradients(block, point, diagonal)
        slope = block.groups.total(_dots(point.gradient, direction))
        gain = -0.5 * slope / np.where(decrease > 0, decrease, 1)
        trust = np.maximum(trust if iteration else 1.0, gain)
        W, scores = advance(block, W, point, direction)
        point = block.evaluate(W, scores)
    solution[:, everything.columns(names)] = W
    return solution, n_iter, converged


def conjugate_gradients(block: Block, point: Point, diagonal: Array) -> Array:
    """Solve ``H x = -g`` for each problem to the relative accuracy ``FORCING``.

    Returns descent directions of the shape (p, M) of the gradient.
    """
    groups, gradient, dtype = block.groups, point.gradient, block.light.dtype
    size = np.sqrt(groups.total(_dots(gradient, gradient / diagonal)))
    scale = groups.spread(np.where(size > 0, size, 1))
    direction, columns = np.zeros(gradient.shape, dtype=dtype), np.arange(gradient.shape[1])
    residual, inverse = (a.astype(dtype) for a in (-gradient / scale, 1 / diagonal))
    x, p = np.zeros_like(residual), residual * inverse
    rz = groups.total(_dots(residual, p))
    for _ in range(min(2 * len(gradient), MAX_STEPS)):
        product = block.hessian_product(groups, point, p)
        bend = groups.total(_dots(p, product))
        active = (rz > FORCING**2) & (bend > 0)
        length = groups.spread(np.where(active, rz / np.where(bend > 0, bend, 1), 0))
        x += length * p
        residual -= length * product
        z = residual * inverse
        new = groups.total(_dots(residual, z))
        active &= new > FORCING**2
        if not active.any():
            break
        p *= groups.spread(np.where(active, new / np.where(active, rz, 1), 0))
        p += z
        rz = np.where(active, new, 0)
        if active.sum() <= SHRINK * len(active):
            direction[:, columns] = x
            left, kept = np.flatnonzero(active), groups.columns(active)
            columns, rz, groups = columns[kept], rz[left], Groups(groups.counts[left])
            x, residual, p, inverse = (a[:, kept] for a in (x, residual, p, inverse))
            point = point.take(left, kept)
    direction[:, columns] = x
    return _descend(direction.astype(gradient.dtype) * scale, gradient, diagonal, block.groups)


def _descend(direction: Array, gradient: Array, diagonal: Array, groups: Groups) -> Array:
    """Make directions sum to 0 over the classes of a problem, and see that they lead downhill.

    The sum of the weight vectors of a problem changes the penalty but no probability: it is 0 at
    the optimum, and kept 0 on the way. Rounding may spoil a direction, never the descent.
    """
    uphill = groups.spread(groups.total(_dots(direction, gradient)) >= 0)
    direction = np.where(uphill, -gradient / diagonal, direction)
    return direction - groups.spread(groups.total(direction) / groups.counts)


def _dots(A: Array, B: Array) -> Array:
    """Return the inner products of the columns of A and B."""
    return np.asarray(np.einsum("ij,ij->j", A, B))


def advance(block: Block, W: Array, point: Point, direction: Array) -> tuple[Array, Array]:
    """Move each problem along its direction to where the slope all but vanishes.

    The slope ``sum_i c_i (p_i - y_i).v_i`` at ``W + t direction`` needs the scores v of the
    direction, but no further products with X. It grows with t: at most FLAT of the first slope is
    left, on the near side of the minimum wherever bisection was needed.

    Returns the new W and its scores.
    """
    groups, change = block.groups, block.scores(direction)
    slope = groups.total(_dots(point.gradient, direction))
    bend = groups.total(_dots(block.penalty * direction, direction))
    pull = groups.total(_dots(block.penalty * W, direction))
    step, low, high = np.ones(len(groups)), np.zeros(len(groups)), np.full(len(groups), np.inf)
    open_ = np.arange(len(groups))
    for _ in range(MAX_TRIALS):
        columns = groups.columns(open_)
        t, part = step[open_], Groups(groups.counts[open_])
        scores = point.scores[:, columns] + part.spread(t) * change[:, columns]
        now = pull[open_] + t * bend[open_] + block.slope(part, open_, scores, change[:, columns])
        short = now < 0  # false for NaN: an overflow is too far
        low[open_], high[open_] = np.where(short, t, low[open_]), np.where(short, high[open_], t)
        left = ~(np.abs(now) <= -FLAT * slope[open_])
        open_ = open_[left]
        if not len(open_):
            break
        bounded = np.isfinite(high[open_])
        step[open_] = np.where(bounded, (low[open_] + high[open_]) / 2, 2 * low[open_])
    step[open_] = low[open_]
    wide = groups.spread(step)
    return W + wide * direction, point.scores + wide * change
