"""Structured support vector machines with the loss 1 - F_beta: inference and optimisation."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fbeta._array import Array
from fbeta._validation import check_number, check_solver
from fbeta.decoding.exact import SignOfScores
from fbeta.estimators.base import MultiLabelClassifier, views
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import LinearScores, Weight
from fbeta.metrics import fbeta_of_counts

Oracle = Callable[[Array], tuple[float, Array]]
# where the next plane is taken, on the way from the best point to the minimiser of the model
STEP_TOWARDS_MINIMISER = 0.2
MAX_IDLE_ITERATIONS = 50  # after which a plane of weight 0 is dropped
RELATIVE_JITTER = 1e-12  # of the diagonal of a singular system; also the smallest step length


@dataclass(frozen=True)
class BundleModel(LinearScores):
    """Scores that the bundle method found."""

    objective: Any  # reached
    gap: Any  # how far above the minimum the objective is at most
    n_iter: int


@dataclass(eq=False, repr=False)
class BundleClassifier(MultiLabelClassifier):
    """Base of the structured SVMs; parameters as for :class:`fbeta.rivals.ReverseMultiLabel`."""

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    tol: float = 1e-3
    max_iter: int = 1000

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "n_iter")
    objective_, gap_ = views("_model", "objective", "gap")
    (beta_,) = views("_rule", "beta")

    @abstractmethod
    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        """Fit the scores to valid parameters."""

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)
        check_number("alpha", self.alpha, strict=True)
        self._rule = SignOfScores(float(self.beta))
        self._model = self._fit_scores(X, Y, weight)

    def _minimise(
        self, oracle: Oracle, penalty: Array, nonnegative: NDArray[np.bool_] | None = None
    ) -> BundleResult:
        return minimise(
            oracle, penalty, nonnegative=nonnegative, tol=self.tol, max_iter=self.max_iter
        )


def linear_scores(X: Any, W: Array, constant: float) -> Array:
    """Return ``W[:, :-1] x + constant W[:, -1]`` (n, s) for rows x, with W of shape (s, d + 1)."""
    return np.asarray(X @ W[:, :-1].T) + constant * W[:, -1]


def linear_gradient(X: Any, residual: Array, constant: float) -> Array:
    """Apply the transpose of :func:`linear_scores`: (n, s) residuals to (s, d + 1)."""
    return np.hstack([np.asarray(X.T @ residual).T, constant * residual.sum(axis=0)[:, None]])


def most_violated(scores: Array, Y: NDArray[Any], beta: float) -> tuple[NDArray[np.bool_], Array]:
    """Return the label sets (n, s) that violate their margin most, and their values (n,).

    ``argmax_yhat 1 - F_beta(y, yhat) + sum_j yhat_j scores_j`` for scores and labels (n, s). The
    best set with t true and u false labels has those with the highest scores. For given t its value
    is concave in u, since the sorted scores fall and ``-1 / (c + u)`` is concave: the best u is
    found by bisection, and each row costs O(s log s).
    """
    sets, values = np.zeros(scores.shape, dtype=np.bool_), np.zeros(len(scores))
    truth = np.asarray(Y, dtype=np.bool_)
    size = truth.sum(axis=1)
    for p in np.unique(size).tolist():
        rows = np.flatnonzero(size == p)
        sets[rows], values[rows] = _most_violated_of_size(scores[rows], truth[rows], p, beta)
    return sets, values


def _most_violated_of_size(
    scores: Array, truth: NDArray[np.bool_], p: int, beta: float
) -> tuple[NDArray[np.bool_], Array]:
    """Solve the rows that have p true labels."""
    n, s = scores.shape
    order = np.lexsort((-scores, ~truth), axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    t = np.arange(p + 1)[None, :]
    true_sums, false_sums = (
        np.hstack([np.zeros((n, 1)), part.cumsum(axis=1)])
        for part in (ordered[:, :p], ordered[:, p:])
    )

    def value(u: NDArray[np.intp]) -> Array:
        loss = 1 - fbeta_of_counts(t, p, t + u, beta)
        return np.asarray(true_sums + np.take_along_axis(false_sums, u, axis=1) + loss)

    low, high = np.zeros((n, p + 1), dtype=np.intp), np.full((n, p + 1), s - p, dtype=np.intp)
    while (low < high).any():
        middle = (low + high) // 2
        # where low and high have met, the comparison is of u with itself
        rises = value(np.minimum(middle + 1, high)) > value(middle)
        low, high = np.where(rises, middle + 1, low), np.where(rises, high, middle)
    values = value(low)
    best = values.argmax(axis=1)[:, None]
    n_false = np.take_along_axis(low, best, axis=1)
    taken = np.hstack([np.arange(p) < best, np.arange(s - p) < n_false])
    sets = np.zeros((n, s), dtype=np.bool_)
    np.put_along_axis(sets, order, taken, axis=1)
    return sets, np.take_along_axis(values, best, axis=1)[:, 0]


@dataclass(frozen=True)
class BundleResult:
    """What :func:`minimise` found."""

    w: Array  # (D,), the best point
    objective: float  # of it
    gap: float  # how much lower the minimum may be, at most
    n_iter: int  # planes computed


def minimise(
    oracle: Oracle,
    penalty: Array,
    *,
    nonnegative: NDArray[np.bool_] | None = None,
    tol: float = 1e-3,
    max_iter: int = 1000,
) -> BundleResult:
    """Minimise ``sum_k penalty_k w_k^2 / 2 + R(w)`` for a convex R >= 0 by a bundle method.

    The largest of the planes that touch R so far bounds it from below. The minimum of penalty plus
    this model is a small concave problem in the weights of the planes, and its value is a lower
    bound of the minimum: the method stops once the gap is below ``tol`` times the objective, or
    with a :class:`ConvergenceWarning` after ``max_iter`` planes.

    ``oracle`` returns ``R(w)``, or less where it is hard to compute, and the gradient (D,) of a
    plane below R that has this value at w. ``penalty`` (D,) is positive; the coordinates marked in
    ``nonnegative`` (D,) must not be negative.
    """
    # the systems are small: threads of BLAS would wait for each other most of the time
    # an overflow is refused where planes are added
    with threadpool_limits(1, user_api="blas"), np.errstate(over="ignore", invalid="ignore"):
        result = _run_bundle(oracle, penalty, nonnegative, tol, max_iter)
    if result.gap > tol * result.objective:
        warnings.warn(
            f"the bundle method did not converge in {max_iter} iterations: the objective "
            f"{result.objective:.6g} may be {result.gap:.2g} too high. Increase max_iter, tol or "
            "alpha, or scale X",
            ConvergenceWarning,
            stacklevel=3,
        )
    return result


def _run_bundle(
    oracle: Oracle,
    penalty: Array,
    nonnegative: NDArray[np.bool_] | None,
    tol: float,
    max_iter: int,
) -> BundleResult:
    # in the units of v = sqrt(penalty) w the penalty is |v|^2 / 2
    scale = np.sqrt(penalty)
    bundle = _Bundle(nonnegative if nonnegative is not None else np.zeros(len(scale), np.bool_))
    point = best = np.zeros(len(scale))
    objective = gap = np.inf
    n_iter = 0
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
        # in the middle the objective is better known than at the minimiser of a rough model, and
        # a plane that shows no progress there cuts off the minimiser too, by convexity
        point = best + STEP_TOWARDS_MINIMISER * (minimiser - best)
    return BundleResult(best / scale, float(objective), float(gap), n_iter)


class _Bundle:
    """Planes ``R(w) >= offset + gradient.w``, and the minimum of ``|w|^2 / 2`` plus the largest.

    The dual of it is ``max_a offset.a - |w(a)|^2 / 2`` over weights a >= 0 with sum 1, where ``w(a)
    = -sum_k a_k gradient_k``, cut to 0 where a coordinate must not be negative.
    """

    def __init__(self, nonnegative: NDArray[np.bool_]) -> None:
        self.bounded = np.flatnonzero(nonnegative)
        # R >= 0 is the first plane
        self.gradients = np.zeros((1, len(nonnegative)))
        self.count, self.offsets, self.weights = 1, np.zeros(1), np.ones(1)
        self.gram, self.idle = np.zeros((1, 1)), np.zeros(1, dtype=np.intp)

    def add(self, gradient: Array, offset: float) -> None:
        """Add a plane."""
        if self.count == len(self.gradients):
            room = np.zeros((max(8, self.count), self.gradients.shape[1]))
            self.gradients = np.vstack([self.gradients, room])
        self.gradients[self.count] = gradient
        self.count += 1
        products = self.gradients[: self.count] @ gradient
        if not (np.isfinite(products).all() and np.isfinite(offset)):
            raise ValueError(
                "the gradients of the losses overflow: increase alpha, or scale X or sample_weight"
            )
        # the bounded coordinates enter in _curvature, which knows the active ones
        products -= self.gradients[: self.count, self.bounded] @ gradient[self.bounded]
        self.gram = np.pad(self.gram, (0, 1))
        self.gram[-1], self.gram[:, -1] = products, products
        self.offsets = np.append(self.offsets, offset)
        self.weights, self.idle = np.append(self.weights, 0.0), np.append(self.idle, 0)

    def height(self, point: Array, last: int = 0) -> float:
        """Return the largest of all or of the last planes at a point."""
        planes = slice(self.count - last if last else 0, self.count)
        return float((self.offsets[planes] + self.gradients[planes] @ point).max())

    def solve(self) -> tuple[Array, float]:
        """Return the minimiser, of shape (D,), and the minimum; forget planes long unused."""
        value = self._value(self.weights)
        while True:
            proposal = maximise_on_simplex(self._curvature(), self.offsets, self.weights)
            weights, new = self._search(proposal)
            if len(self.bounded) == 0 or new <= value + 1e-9 * abs(value):
                break
            self.weights, value = weights, new
        if new > value:
            self.weights, value = weights, new
        minimiser = self._point(self.weights)
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        self._keep(np.flatnonzero(self.idle <= MAX_IDLE_ITERATIONS))
        return minimiser, value

    def _point(self, weights: Array) -> Array:
        w = -(weights @ self.gradients[: self.count])
        w[self.bounded] = np.maximum(w[self.bounded], 0.0)
        return np.asarray(w)

    def _value(self, weights: Array) -> float:
        slack = np.minimum(weights @ self.gradients[: self.count, self.bounded], 0.0)
        quadratic = weights @ self.gram @ weights + slack @ slack
        return float(self.offsets @ weights - quadratic / 2)

    def _curvature(self) -> Array:
        """Return the negative Hessian of the dual at the present weights."""
        if not len(self.bounded):
            return self.gram
        active = self.gradients[: self.count, self.bounded]
        active = active[:, self.weights @ active < 0]
        return self.gram + active @ active.T

    def _search(self, proposal: Array) -> tuple[Array, float]:
        """Go to the proposal, or as far towards it as the dual rises."""
        start, step = self._value(self.weights), 1.0
        while step > RELATIVE_JITTER:
            trial = self.weights + step * (proposal - self.weights)
            value = self._value(trial)
            if value >= start:
                return trial, value
            step /= 2
        return self.weights, start

    def _keep(self, planes: NDArray[np.intp]) -> None:
        if len(planes) > 0.75 * self.count:  # moving the others is not worth it
            return
        self.gradients[: len(planes)] = self.gradients[planes]
        self.count, self.gram = len(planes), self.gram[np.ix_(planes, planes)]
        self.offsets, self.weights = self.offsets[planes], self.weights[planes]
        self.idle = self.idle[planes]


def maximise_on_simplex(H: Array, b: Array, start: Array) -> Array:
    """Maximise ``b.a - a'H a / 2`` over ``a >= 0, sum a = 1`` by active sets, up to rounding.

    H (K, K) is positive semidefinite, ``start`` (K,) feasible: its positive entries are free first.
    """
    a, free = start, start > 0
    jitter = RELATIVE_JITTER * max(float(np.trace(H)) / len(b), np.finfo(np.float64).tiny)
    for _ in range(20 * len(b) + 100):  # rounding may make active sets cycle
        index = np.flatnonzero(free)
        target, multiplier = _stationary(H[np.ix_(index, index)], b[index], jitter)
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


def _stationary(H: Array, b: Array, jitter: float) -> tuple[Array, float]:
    """Maximise with sum 1 but without the signs; also return the multiplier of the sum."""
    k = len(b)
    system = np.ones((k + 1, k + 1))
    system[:k, :k], system[k, k] = H + jitter * np.eye(k), 0.0
    try:
        solution = np.linalg.solve(system, np.append(b, 1.0))
    except np.linalg.LinAlgError:
        solution = np.linalg.lstsq(system, np.append(b, 1.0), rcond=None)[0]
    return solution[:k], float(solution[k])
