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
ARMIJO = 1e-4
FAR = 0.1  # promised relative decrease beyond which curvatures are cautious
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
    """Objective (m,), gradient (p, M), probabilities and added curvatures (n, M) at W."""

    value: Array
    gradient: Array
    probability: Array
    extra: Array | None

    def take(self, problems: Array, columns: Array) -> Point:
        """Return some problems only."""
        extra = None if self.extra is None else self.extra[:, columns]
        return Point(
            self.value[problems], self.gradient[:, columns], self.probability[:, columns], extra
        )


class Block:
    """Problems that are solved together.

    Parameters
    ----------
    design, light : Design
        X in its own and in single precision.
    classes : int ndarray of shape (n, m)
        Class of each row in each problem, counted from 0.
    counts : ndarray of shape (m,)
        Number of classes of each problem.
    alpha : float >= 0
        Strength of the penalty.
    """

    def __init__(
        self, design: Design, light: Design, classes: Array, counts: Array, alpha: float
    ) -> None:
        self.design, self.light = design, light
        self.groups, self.classes = Groups(counts), classes
        self.penalty = alpha * design.penalised
        self.light_penalty = self.penalty.astype(light.dtype)
        self.rows = np.arange(classes.shape[0])[:, None]

    def keep(self, problems: Array) -> None:
        """Forget all problems but these."""
        self.groups = Groups(self.groups.counts[problems])
        self.classes = self.classes[:, problems]

    def start(self) -> Array:
        """Return the models that ignore X, of shape (p, M)."""
        weight = self.design.weight
        share = np.ones(len(self.classes)) if weight is None else weight[:, 0]
        W = np.zeros((len(self.penalty), len(self.groups.problem)), dtype=self.design.dtype)
        if self.design.intercept:
            for m, start in enumerate(self.groups.starts):
                counts = np.bincount(self.classes[:, m], weights=share)
                W[-1, start : start + len(counts)] = np.log(counts / share.sum())
            W[-1] -= self.groups.spread(self.groups.total(W[-1]) / self.groups.counts)
        return W

    def evaluate(self, W: Array, far: NDArray[np.bool_]) -> Point:
        """Compute objective, gradient and curvatures; cautious ones for the problems ``far``."""
        groups, weight = self.groups, self.design.weight
        scores = self.design.matrix @ self.design.forward(W)
        probability, log_probability = softmax(scores, groups)
        true = (self.rows, groups.starts + self.classes)
        loss = -log_probability[true]
        residual = probability.copy()
        residual[true] -= 1
        extra = None
        if far.any():
            extra = _caution(probability, log_probability, residual) * groups.spread(far)
        if weight is not None:
            loss, residual = weight * loss, weight * residual
        gradient = self.design.backward(self.design.matrix.T @ residual) + self.penalty * W
        value = loss.sum(axis=0) + groups.total(0.5 * (self.penalty * W * W).sum(axis=0))
        dtype = self.light.dtype
        extra = None if extra is None else extra.astype(dtype)
        return Point(value, gradient, probability.astype(dtype), extra)

    def hessian_product(self, groups: Groups, point: Point, P: Array) -> Array:
        """Compute ``(Z' (diag(p) - p p' + extra) Z + penalty) P``, of the shape (p, M) of P."""
        light, probability = self.light, point.probability
        scores = light.matrix @ light.forward(P)
        bent = scores - groups.spread(groups.total(probability * scores))
        bent *= probability
        if point.extra is not None:
            scores *= point.extra
            bent += scores
        if light.weight is not None:
            bent *= light.weight
        return np.asarray(light.backward(light.matrix.T @ bent) + self.light_penalty * P)

    def diagonal(self, point: Point) -> Array:
        """Approximate the diagonal of each Hessian: as if curvature and features were independent.

        It must stay positive where there is neither curvature nor penalty.
        """
        curvature = point.probability * (1 - point.probability)
        if point.extra is not None:
            curvature += point.extra
        if self.light.weight is not None:
            curvature *= self.light.weight
        diagonal = self.penalty + self.design.mean_squares * curvature.sum(axis=0)
        return np.asarray(np.clip(diagonal, np.finfo(np.float32).eps, None))


def softmax(scores: Array, groups: Groups) -> tuple[Array, Array]:
    """Return the probabilities of the classes within their problems, and their logarithms."""
    log_probability = scores - groups.spread(groups.largest(scores))
    probability = np.exp(log_probability)
    total = groups.total(probability)
    probability /= groups.spread(total)
    log_probability -= groups.spread(np.log(total))
    return probability, log_probability


def _caution(probability: Array, log_probability: Array, residual: Array) -> Array:
    """Return what to add to the curvature of rows that are far on the wrong side.

    Where ``p`` is almost 0 or 1 the softmax has almost no curvature, and a Newton step to the
    other side would overshoot by far. With the logit ``l`` of one class against the rest, the
    average of the curvature ``2 p (1 - p)`` on the way from ``l`` to 0 is ``(2 p - 1) / l``.
    """
    tiny = np.finfo(probability.dtype).tiny
    rest = np.clip(1 - probability, tiny, None)
    logit = log_probability - np.log(rest)
    wrong = (residual * logit > 0) & (np.abs(logit) > 1e-3)
    average = (2 * probability - 1) / np.where(wrong, logit, 1)
    return np.where(wrong, np.clip(average - 2 * probability * rest, 0, None), 0)


def minimise(
    block: Block, tol: float, max_iter: int
) -> tuple[Array, NDArray[np.intp], NDArray[np.bool_]]:
    """Minimise the objective of every problem of a block.

    Returns the solutions (p, M), and for each problem the iterations and whether it converged.
    """
    m, total = len(block.groups), block.design.total_weight
    tol = max(tol, 32 * float(np.finfo(block.design.dtype).eps))
    floor = 1e-4 * total * np.log(2)
    n_iter, converged = np.zeros(m, dtype=np.intp), np.zeros(m, dtype=np.bool_)
    everything, names = block.groups, np.arange(m)
    W, step = block.start(), np.ones(m)
    solution = W.copy()
    point = block.evaluate(W, np.ones(m, dtype=np.bool_))
    for iteration in range(max_iter + 1):
        diagonal = block.diagonal(point)
        decrease = 0.5 * block.groups.total(_dots(point.gradient, point.gradient / diagonal))
        done = decrease <= tol * (point.value + floor)
        if done.all() or iteration == max_iter:
            break
        if (~done).sum() <= SHRINK * len(done):
            left, columns = np.flatnonzero(~done), block.groups.columns(~done)
            solution[:, everything.columns(names)] = W
            n_iter[names[done]], converged[names[done]] = iteration, True
            names, step, W, diagonal = names[left], step[left], W[:, columns], diagonal[:, columns]
            point = point.take(left, columns)
            block.keep(left)
        direction = conjugate_gradients(block, point, diagonal)
        W, point, step = _advance(block, W, point, direction, step, floor)
    solution[:, everything.columns(names)] = W
    n_iter[names], converged[names] = iteration, done
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


def _advance(
    block: Block, W: Array, point: Point, direction: Array, step: Array, floor: float
) -> tuple[Array, Point, Array]:
    """Move the problems whose trial is acceptable; shorten the step of the others.

    A trial is acceptable when it decreases the objective enough, or when rounding hides the
    decrease and it all but cancels the slope. NaN is never acceptable.
    """
    groups = block.groups
    slope = groups.total(_dots(point.gradient, direction))
    moved = W + groups.spread(step) * direction
    trial = block.evaluate(moved, -slope > FAR * (point.value + floor))
    new_slope = groups.total(_dots(trial.gradient, direction))
    noise = 64 * np.finfo(W.dtype).eps * np.abs(point.value)
    enough = trial.value <= point.value + ARMIJO * step * slope
    flat = (np.abs(new_slope) <= 0.1 * np.abs(slope)) & (trial.value <= point.value + noise)
    ok = enough | flat
    if ok.all():
        return moved, trial, np.ones_like(step)
    # the zero of the secant of the slope is a better guess than a half
    secant = np.nan_to_num(slope / (slope - new_slope), nan=0.1)
    step = np.where(ok, 1.0, step * np.clip(secant, 0.1, 0.5))
    wide = groups.spread(ok)
    return np.where(wide, moved, W), _merge(wide, ok, trial, point), step


def _merge(wide: NDArray[np.bool_], ok: NDArray[np.bool_], new: Point, old: Point) -> Point:
    """Take the problems that are ``ok`` from the new point and the others from the old one."""
    extra = None
    if new.extra is not None or old.extra is not None:
        zero = np.zeros(1, dtype=old.probability.dtype)
        extra = np.where(
            wide,
            zero if new.extra is None else new.extra,
            zero if old.extra is None else old.extra,
        )
    return Point(
        np.where(ok, new.value, old.value),
        np.where(wide, new.gradient, old.gradient),
        np.where(wide, new.probability, old.probability),
        extra,
    )
