"""A bundle method: a convex function that is known by planes below it, plus a quadratic penalty."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import Array
from fbeta._threads import one_blas_thread

Oracle = Callable[[Array], tuple[float, Array]]
# where the next plane is taken, on the way from the best point to the minimiser of the model
STEP_TOWARDS_MINIMISER = 0.2
MAX_IDLE_ITERATIONS = 50  # after which a plane of weight 0 is dropped
RELATIVE_JITTER = 1e-12  # of the diagonal of a singular system; also the smallest step length


def minimise(
    oracle: Oracle,
    penalty: Array,
    *,
    nonnegative: NDArray[np.bool_] | bool = False,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> OptimizeResult:
    """Minimise ``sum_k penalty_k w_k^2 / 2 + R(w)`` for a convex R >= 0 by a bundle method.

    The minimum with the largest of the planes so far in place of R is a lower bound of it. Stops
    once the gap is below ``tol`` times the objective, or warns after ``max_iter`` planes.

    ``oracle`` returns ``R(w)``, or less where it is hard to compute, and the gradient (D,) of a
    plane below R that has this value at w. ``penalty`` (D,) is positive; the coordinates marked in
    ``nonnegative`` (D,) must not be negative. Returns the best point ``x``, its objective ``fun``,
    ``gap``, how much lower the minimum may be, and ``nit``, the number of planes.
    """
    # in the units of v = sqrt(penalty) w the penalty is |v|^2 / 2
    scale = np.sqrt(penalty)
    bundle = _Bundle(np.broadcast_to(nonnegative, scale.shape))
    point = best = np.zeros(len(scale))
    objective, gap, n_iter = np.inf, np.inf, 0
    # the systems are small: threads of BLAS would wait for each other most of the time
    # an overflow is refused where planes are added
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_iter):
            n_iter += 1
            risk, gradient = oracle(point / scale)
            gradient = gradient / scale
            bundle.add(gradient, risk - float(gradient @ point))
            # an oracle that gives less than R may be below a plane from another point
            value = bundle.height(point) + float(point @ point) / 2
            objective = max(objective, bundle.height(best, last=1) + float(best @ best) / 2)
            if value < objective:
                best, objective = point, value
            minimiser, bound = bundle.solve()
            gap = objective - bound
            if gap <= tol * objective:
                break
            # in the middle the objective is better known than at the minimiser of a rough model,
            # and a plane that shows no progress there cuts off the minimiser too, by convexity
            point = best + STEP_TOWARDS_MINIMISER * (minimiser - best)
        else:
            warnings.warn(
                f"the bundle method did not converge in {max_iter} iterations: the objective "
                f"{objective:.6g} may be {gap:.2g} too high. Increase max_iter, tol or "
                "alpha, or scale X",
                ConvergenceWarning,
                stacklevel=2,
            )
    return OptimizeResult(x=best / scale, fun=float(objective), gap=float(gap), nit=n_iter)


class _Bundle:
    """Planes ``R(w) >= offset + gradient.w``, and the minimum of ``|w|^2 / 2`` plus the largest.

    The dual of it is ``max_a offset.a - |w(a)|^2 / 2`` over weights a >= 0 with sum 1, where ``w(a)
    = -sum_k a_k gradient_k``, cut to 0 where a coordinate must not be negative.
    """

    def __init__(self, nonnegative: NDArray[np.bool_]) -> None:
        self.bounded = np.flatnonzero(nonnegative)
        # R >= 0 is the first plane
        self.buffer = np.zeros((8, len(nonnegative)))
        self.gradients, self.offsets, self.weights = self.buffer[:1], np.zeros(1), np.ones(1)
        self.gram, self.idle = np.zeros((1, 1)), np.zeros(1, dtype=np.intp)

    def add(self, gradient: Array, offset: float) -> None:
        """Add a plane."""
        count = len(self.offsets)
        if count == len(self.buffer):
            self.buffer = np.pad(self.buffer, ((0, count), (0, 0)))
        self.buffer[count] = gradient
        self.gradients = self.buffer[: count + 1]
        products = self.gradients @ gradient
        if not (np.isfinite(products).all() and np.isfinite(offset)):
            raise ValueError(
                "the gradients of the losses overflow: increase alpha, or scale X or sample_weight"
            )
        # the bounded coordinates enter in solve, which knows the active ones
        products -= self.gradients[:, self.bounded] @ gradient[self.bounded]
        self.gram = np.pad(self.gram, (0, 1))
        self.gram[-1], self.gram[:, -1] = products, products
        self.offsets = np.append(self.offsets, offset)
        self.weights, self.idle = np.append(self.weights, 0.0), np.append(self.idle, 0)

    def height(self, point: Array, last: int = 0) -> float:
        """Return the largest of all or of the last planes at a point."""
        return float((self.offsets[-last:] + self.gradients[-last:] @ point).max())

    def solve(self) -> tuple[Array, float]:
        """Return the minimiser, of shape (D,), and the minimum; forget planes long unused."""
        value, rises = self._value(self.weights), True
        while rises:
            # the negative Hessian of the dual at the present weights
            active = self.gradients[:, self.bounded]
            active = active[:, self.weights @ active < 0]
            curvature = self.gram + active @ active.T if len(self.bounded) else self.gram
            proposal = maximise_on_simplex(curvature, self.offsets, self.weights)
            # to the proposal, or as far towards it as the dual rises
            step = 1.0
            while step > RELATIVE_JITTER:
                weights = self.weights + step * (proposal - self.weights)
                new = self._value(weights)
                if new >= value:
                    break
                step /= 2
            rises = len(self.bounded) > 0 and new > value + 1e-9 * abs(value)
            if new > value:
                self.weights, value = weights, new
        minimiser = -(self.weights @ self.gradients)
        minimiser[self.bounded] = np.maximum(minimiser[self.bounded], 0.0)
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        planes = np.flatnonzero(self.idle <= MAX_IDLE_ITERATIONS)
        if len(planes) <= 0.75 * len(self.idle):  # else moving the others is not worth it
            self.buffer[: len(planes)] = self.gradients[planes]
            self.gradients = self.buffer[: len(planes)]
            self.gram, self.offsets = self.gram[np.ix_(planes, planes)], self.offsets[planes]
            self.weights, self.idle = self.weights[planes], self.idle[planes]
        return minimiser, value

    def _value(self, weights: Array) -> float:
        slack = np.minimum(weights @ self.gradients[:, self.bounded], 0.0)
        quadratic = weights @ self.gram @ weights + slack @ slack
        return float(self.offsets @ weights - quadratic / 2)


def maximise_on_simplex(H: Array, b: Array, start: Array) -> Array:
    """Maximise ``b.a - a'H a / 2`` over ``a >= 0, sum a = 1`` by active sets, up to rounding.

    H (K, K) is positive semidefinite, ``start`` (K,) feasible: its positive entries are free first.
    """
    a, free = start, start > 0
    jitter = RELATIVE_JITTER * max(float(np.trace(H)) / len(b), np.finfo(np.float64).tiny)
    for _ in range(20 * len(b) + 100):  # rounding may make active sets cycle
        index = np.flatnonzero(free)
        # with sum 1, but without the signs; the multiplier is that of the sum
        k = len(index)
        system = np.ones((k + 1, k + 1))
        system[:k, :k], system[k, k] = H[np.ix_(index, index)] + jitter * np.eye(k), 0.0
        try:
            solution = np.linalg.solve(system, np.append(b[index], 1.0))
        except np.linalg.LinAlgError:
            solution = np.linalg.lstsq(system, np.append(b[index], 1.0), rcond=None)[0]
        target, multiplier = solution[:k], float(solution[k])
        if (target > 0).all():
            a = np.zeros(len(b))
            a[index] = target
            slope = b - H @ a
            slope[index] = -np.inf
            enter = int(slope.argmax())
            if slope[enter] <= multiplier + 1e-10 * max(abs(multiplier), np.abs(b).max()):
                break
            free[enter] = True
            continue
        falling = np.flatnonzero(target <= 0)
        present = a[index]
        fall = np.maximum(present[falling] - target[falling], RELATIVE_JITTER**2)
        ratio = present[falling] / fall
        moved = present + min(1.0, float(ratio.min())) * (target - present)
        leave = falling[ratio <= ratio.min()]
        moved[leave] = 0.0
        a = np.zeros(len(b))
        a[index] = np.maximum(moved, 0.0)
        free[index[leave]] = False
    return np.asarray(a / a.sum())
