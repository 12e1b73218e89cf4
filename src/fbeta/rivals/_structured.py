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
from fbeta._validation import check_solver
from fbeta.decoding.rules import SignOfScores
from fbeta.estimators.base import MultiLabelClassifier, views
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import LinearScores, Weight
from fbeta.metrics import fbeta_of_counts

Oracle = Callable[[Array], tuple[float, Array]]
TOWARDS = 0.2  # where the next plane is taken, on the way from the best point to the model's
PATIENCE = 50  # iterations after which a plane that does not matter is dropped
TINY = 1e-12


@dataclass(frozen=True)
class BundleModel(LinearScores):
    """Scores that the bundle method found."""

    objective: Any  # reached
    gap: Any  # how far above the minimum the objective is at most
    n_iter: int


@dataclass(frozen=True)
class BundleLearner:
    """What scores are fitted with by the bundle method, for the measure of beta."""

    beta: float
    fit_intercept: bool  # whether there is a constant feature 1, penalised like the others
    tol: float
    max_iter: int

    def __post_init__(self) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)


@dataclass(eq=False, repr=False)
class BundleClassifier(MultiLabelClassifier):
    """Base of the structured support vector machines: a learner by bundles, and its scores.

    Parameters and attributes are described for :class:`fbeta.rivals.ReverseMultiLabel`.
    """

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
    def _make_learner(self) -> Any:
        """Return what fits the scores, a :class:`BundleLearner`."""

    def _solver(self) -> tuple[float, bool, float, int]:
        """Return what every such learner takes."""
        return float(self.beta), self.fit_intercept, self.tol, self.max_iter

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        self._rule = SignOfScores(float(self.beta))
        self._model = self._make_learner().fit(X, Y, weight, self.alpha)


def linear_scores(X: Any, W: Array, constant: float) -> Array:
    """Compute ``W[:, :-1] x + constant W[:, -1]`` for each row x, with W of shape (s, d + 1).

    The constant feature carries the intercept; it is 0 for none. Returns shape (n, s).
    """
    return np.asarray(X @ W[:, :-1].T) + constant * W[:, -1]


def linear_gradient(X: Any, residual: Array, constant: float) -> Array:
    """Apply the transpose of :func:`linear_scores`: (n, s) residuals to (s, d + 1)."""
    return np.hstack([np.asarray(X.T @ residual).T, constant * residual.sum(axis=0)[:, None]])


def most_violated(scores: Array, Y: NDArray[Any], beta: float) -> tuple[NDArray[np.bool_], Array]:
    """Find the label sets that violate their margin most.

    ``argmax_yhat 1 - F_beta(y, yhat) + sum_j yhat_j scores_j`` for each row. The best set with t
    true and u false labels has those with the highest scores. For given t its value is concave in
    u, since the sorted scores fall and ``-1 / (c + u)`` is concave: the best u is found by
    bisection, and each row costs O(s log s).

    Parameters
    ----------
    scores : ndarray of shape (n, s)
    Y : 0/1 ndarray of shape (n, s)
        The true label sets.
    beta : float > 0

    Returns
    -------
    sets : bool ndarray of shape (n, s)
    values : ndarray of shape (n,)
        Of the maximum.

    Examples
    --------
    >>> sets, values = most_violated(np.array([[-0.5, 0.25, -2.0]]), np.array([[1, 0, 0]]), 1.0)
    >>> sets.astype(int).tolist(), values.tolist()
    ([[0, 1, 0]], [1.25])
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
    this model is a small concave problem in the weights of the planes, its value a lower bound of
    the minimum sought.

    Parameters
    ----------
    oracle : callable
        Gives ``R(w)``, or less where it is hard to compute, and the gradient, of shape (D,), of a
        plane below R that has this value at w.
    penalty : ndarray of shape (D,)
        Positive.
    nonnegative : bool ndarray of shape (D,), optional
        Coordinates that must not be negative.
    tol : float > 0
        Stop once the gap between objective and bound is below ``tol`` times the objective.
    max_iter : int
        Largest number of planes; a :class:`ConvergenceWarning` says when it was reached.

    Returns
    -------
    BundleResult

    Examples
    --------
    >>> result = minimise(lambda w: (abs(w[0] - 1), np.sign(w - 1)), np.array([2.0]), tol=1e-9)
    >>> result.w.round(3).tolist(), round(result.objective, 6)
    ([0.5], 0.75)
    """
    # the systems are small, and threads of BLAS that wait for each other would cost more than all
    # the rest
    with threadpool_limits(1, user_api="blas"):
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
        point = best + TOWARDS * (minimiser - best)
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
        self._keep(np.flatnonzero(self.idle <= PATIENCE))
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
        while step > TINY:
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
    """Maximise ``b.a - a'H a / 2`` over ``a >= 0, sum a = 1`` by active sets.

    Parameters
    ----------
    H : ndarray of shape (K, K)
        Positive semidefinite.
    b : ndarray of shape (K,)
    start : ndarray of shape (K,)
        Feasible; those of its entries that are positive are free at first.

    Returns
    -------
    ndarray of shape (K,)
        Feasible, and optimal up to rounding.

    Examples
    --------
    >>> a = maximise_on_simplex(np.eye(2), np.array([1.0, 0.5]), np.array([0.0, 1.0]))
    >>> a.round(6).tolist()
    [0.75, 0.25]
    """
    a, free = start, start > 0
    jitter = TINY * max(float(np.trace(H)) / len(b), np.finfo(np.float64).tiny)
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
        ratio = present[falling] / np.maximum(present[falling] - target[falling], TINY**2)
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
