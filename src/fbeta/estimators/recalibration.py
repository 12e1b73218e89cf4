"""Recalibration of given logits: a curve for all labels, a line for each, potentials of sizes.

A monotone curve m, the same for all labels, maps logits l to calibrated ones. The scores of the
labels are ``u_j = a_j m(l_j) + t (l_j - m(l_j)) + b_j``, those of the sizes ``g_k = c_k + d_k e``
with the standardised expected number of labels e, and ``ln P(y) = sum_j y_j u_j + g_|y| - ln Z``.
The penalty ``alpha / 2`` is on the squares of ``a_j - 1, t, b_j, c_k`` and ``d_k``: with few rows
the logits stay as they are, and the labels independent.

Few labels have all of these fitted together. Of lists and many labels, the lines are fitted first,
as if labels were independent and with t = 0, and then the potentials of the number of listed
labels; the number of labels that are not listed has one mean for all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import IsotonicRegression

from fbeta._array import Array, array_namespace
from fbeta._threads import check_cancelled, map_rows
from fbeta.linear.cardinality import Cardinality
from fbeta.linear.learner import Weight
from fbeta.statistics.cardinality_law import size_law
from fbeta.statistics.composite import is_present
from fbeta.statistics.label_statistics import LabelStatistics

MAX_JOINT_LABELS = 1000  # of which lines and potentials are fitted together, in time s^2
CURVE_BINS = 1 << 6  # of logits, for the curve
PRIOR_LABELS = 100.0  # labels whose logits are right that the curve counts, for each unit of alpha
# the objective is taken for at least this much for each row, so that tol stays above rounding
MIN_ROW_LOSS = 1e-4 * float(np.log(2))
CG_TOLERANCE, MAX_CG_STEPS = 0.01, 60  # of the solve with the approximate Hessian
ARMIJO, MIN_STEP = 1e-4, 1e-10  # share of the promised decrease that a step needs; least step
ROWS_AT_ONCE = 1 << 13  # lists whose size laws are computed together
IMPOSSIBLE_LOG_ODDS = -500.0  # of the unused places of a list


@dataclass(frozen=True)
class Recalibration:
    """A curve, lines and potentials that recalibrate logits, of all labels or of listed ones."""

    knots: NDArray[np.float64]  # (B,), logits
    values: NDArray[np.float64]  # (B,), the calibrated logits at them
    slope: NDArray[np.float64]  # (s,), of the calibrated logit, for each label
    offset: NDArray[np.float64]  # (s,)
    rest: float  # coefficient of logit minus curve; below 0, logits are cut beyond those of fit
    potential: NDArray[np.float64]  # (2, C), constants, and factors of the expected number
    centre: float  # of the expected number of labels in the training data
    scale: float
    sizes: NDArray[np.intp]  # (C,), increasing sizes that are possible
    n_iter: NDArray[np.intp]  # (1,), iterations of the fit
    converged: NDArray[np.bool_]  # (1,)
    unlisted: float = 0.0  # mean number of labels that are not listed
    # largest number of listed labels of a training row; the number of listed labels is expected by
    # the lines, that of all labels by the curve
    list_length: int | None = None

    def probabilities(self, X: Any) -> Any:
        """Return laws of labels and sizes, (n, s + C), for logits (n, s); statistics of lists."""
        listed = sp.issparse(X)
        x, label = (X.data, X.indices) if listed else (X, slice(None))
        xp = array_namespace(x)
        arrays = self.slope[label], self.offset[label], self.potential
        slope, offset, potential = (xp.asarray(a, device=x.device) for a in arrays)
        x = xp.astype(x, xp.float64, copy=False)
        if self.rest < 0:  # the logits of fit are less than 1, a bin of the curve, from its knots
            x = xp.clip(x, float(self.knots[0]) - 1, float(self.knots[-1]) + 1)
        curve = interpolate(x, self.knots, self.values)
        labels = curve * slope + self.rest * (x - curve) + offset
        labels = with_values(X, labels) if listed else labels
        number = (expected_number(labels if listed else curve) - self.centre) / self.scale
        sizes = potential[0, :] + number[:, None] * potential[1, :]
        if not listed:
            scores = xp.concat([labels, sizes], axis=1)
            return Cardinality(X.shape[1], self.sizes).probabilities(scores)
        law = np.zeros((X.shape[0], int(self.sizes[-1]) + 1))
        law[:, self.sizes] = softmax(log_size_law(labels, self.sizes) + sizes, axis=1)
        most = X.shape[1] - np.diff(X.indptr)
        return LabelStatistics.from_logits(labels, law, np.minimum(self.unlisted, most))

    @property
    def most_iter(self) -> int:
        """Iterations of the fit."""
        return int(self.n_iter.max(initial=0))


def ListedRecalibration(most_iter: int, **fields: Any) -> Recalibration:
    """Return the recalibration of a file with this name, of lists."""
    ended: Any = {"n_iter": np.array([most_iter]), "converged": np.array([True])}
    return Recalibration(rest=0.0, **ended, **fields)


def with_values(lists: sp.csr_array, values: NDArray[np.float64]) -> sp.csr_array:
    """Return other values for the labels of lists, (n, s)."""
    return sp.csr_array((values, lists.indices, lists.indptr), shape=lists.shape)


def expected_number(logits: Any) -> Array:
    """Return how many labels are expected under logits of shape (n, s), or of lists: (n,)."""
    if sp.issparse(logits):
        return with_values(logits, expit(logits.data)).sum(axis=1)
    xp = array_namespace(logits)
    return xp.sum(1 / (1 + xp.exp(-logits)), axis=1)


def log_size_law(lists: sp.csr_array, sizes: NDArray[np.intp]) -> Array:
    """Return ``ln P(k)`` of k independent listed labels, up to a number for each row: (n, C)."""
    (n, _), K, listed = lists.shape, int(sizes[-1]), np.diff(lists.indptr)

    def work(rows: slice) -> tuple[NDArray[np.float64]]:
        check_cancelled()
        used = np.arange(max(1, K, int(listed[rows].max(initial=0)))) < listed[rows, None]
        u = np.full(used.shape, IMPOSSIBLE_LOG_ODDS)
        u[used] = lists.data[lists.indptr[rows.start] : lists.indptr[rows.stop]]
        steps = size_law(np, np.ascontiguousarray(u.T), np.zeros((K + 1, len(u))))[2]
        return (np.concatenate([0 * u[:, :1], np.cumsum(steps, axis=0).T], axis=1)[:, sizes],)

    starts = range(0, max(n, 1), ROWS_AT_ONCE)
    return map_rows(np, work, [slice(i, min(i + ROWS_AT_ONCE, n)) for i in starts])[0]


def interpolate(x: Array, knots: NDArray[np.float64], values: NDArray[np.float64]) -> Array:
    """Return a piecewise linear curve at points of any array, constant beyond its ends."""
    xp = array_namespace(x)
    if xp is np:
        return np.interp(x, knots, values)
    knots, values = (xp.asarray(a, device=x.device) for a in (knots, values))
    flat = xp.clip(xp.reshape(x, (-1,)), float(knots[0]), float(knots[-1]))
    right = xp.clip(xp.searchsorted(knots, flat), 1, knots.shape[0] - 1)
    low, high = (xp.take(knots, place) for place in (right - 1, right))
    start, stop = (xp.take(values, place) for place in (right - 1, right))
    return xp.reshape(start + (flat - low) / (high - low) * (stop - start), x.shape)


def fit_curve(
    logits: NDArray[Any], labels: NDArray[Any], weight: Any, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return knots and values of a monotone curve: isotonic regression of bins, with a prior."""
    own = np.broadcast_to(1.0 if weight is None else weight[:, None], logits.shape)
    low, high = float(logits.min()), float(logits.max())
    if high - low < 1e-9:
        return np.array([low, low + 1]), np.array([low, low + 1])
    place = np.minimum(((logits - low) / (high - low) * CURVE_BINS).astype(np.intp), CURVE_BINS - 1)
    sums: list[Any] = [
        np.bincount(place.ravel(), (own * a).ravel(), minlength=CURVE_BINS)
        for a in (1, labels, logits)
    ]
    total, positive, centre = (part[sums[0] > 0] for part in sums)
    centre = centre / total
    prior = alpha * PRIOR_LABELS / total.sum()
    share = (positive / total + prior / (1 + np.exp(-centre))) / (1 + prior)
    share = IsotonicRegression().fit(centre, share, sample_weight=total).predict(centre)
    least = max(0.5 / max(1.0, float(own[:, 0].sum())), np.finfo(float).eps)
    share = np.clip(share, least, 1 - least)
    return centre, np.log(share / (1 - share))


class _Objective:
    """Negative log-likelihood with its penalty, of slopes, offsets, potentials and t.

    ``w`` holds ``a - 1`` (s), ``b`` (s), ``c`` (C), ``d`` (C) and ``t``.
    """

    def __init__(
        self, curve: Array, rest: Array, number: Array, targets: Array, sizes: Array, weight: Any
    ) -> None:
        self.curve, self.rest, self.number, self.targets = curve, rest, number, targets
        self.sizes, self.s, self.law = sizes, curve.shape[1], Cardinality(curve.shape[1], sizes)
        self.weight = np.ones(len(curve)) if weight is None else weight
        self.ends = np.cumsum([self.s, self.s, len(sizes), len(sizes)])

    def _scores(self, w: Array, slope: float = 0.0) -> tuple[Array, Array]:
        """Return scores of labels, (n, s), and of sizes, (n, C); ``slope`` is added to slopes."""
        own, offset, constant, factor, rest = np.split(w, self.ends)
        labels = self.curve * (slope + own) + self.rest * rest + offset
        return labels, constant + self.number[:, None] * factor

    def __call__(self, w: Array, alpha: float) -> tuple[float, Array, Array]:
        """Return the value, the gradient, and the expectations of the targets, (n, s + C)."""
        u = np.concatenate(self._scores(w, 1.0), axis=1)
        check_cancelled()
        losses, difference = self.law.evaluate(self.targets, u, None)[:2]
        value = float(self.weight @ losses[:, 0]) + alpha / 2 * float(w @ w)
        residual, mean = self.weight[:, None] * difference, difference + self.targets
        return value, self._back(residual, self.curve, self.rest, self.number) + alpha * w, mean

    def _back(self, values: Array, curve: Array, rest: Array, number: Array) -> Array:
        labels, sizes = values[:, : self.s], values[:, self.s :]
        parts = np.einsum("ij,ij->j", labels, curve), labels.sum(axis=0), sizes.sum(axis=0)
        return np.concatenate([*parts, number @ sizes, [np.vdot(labels, rest)]])

    def newton_direction(self, gradient: Array, mean: Array, alpha: float) -> Array:
        """Solve with an approximation of the Hessian, by conjugate gradients.

        The approximation is the covariance of a law of the sizes (exact) in which label j has
        variance D_j, and given the size k the expectation ``m_j + D_j (k - E|y|) / sum_i D_i`` and
        the covariance ``D - D 1 1' D / sum_i D_i``.
        """
        labels, z, sizes = mean[:, : self.s], mean[:, self.s :], self.sizes.astype(float)
        D = labels * (1 - labels)
        total = np.maximum(D.sum(axis=1), 1e-300)
        deviation = sizes - (z @ sizes)[:, None]
        spread = np.einsum("ik,ik->i", z, deviation**2)

        def product(w: Array) -> Array:
            change, of_sizes = self._scores(w)
            centre = np.einsum("ij,ij->i", D, change) / total
            between = spread * centre + np.einsum("ik,ik,ik->i", z, deviation, of_sizes)
            change += (between / total - centre)[:, None]
            change *= D
            own = of_sizes - np.einsum("ik,ik->i", z, of_sizes)[:, None]
            out = np.concatenate([change, z * (deviation * centre[:, None] + own)], axis=1)
            out *= self.weight[:, None]
            return self._back(out, self.curve, self.rest, self.number) + alpha * w

        variances = self.weight[:, None] * np.concatenate([D, z * (1 - z)], axis=1)
        squares = self.curve**2, self.rest**2, self.number**2
        diagonal = self._back(variances, *squares) + alpha
        shape = (len(gradient), len(gradient))
        hessian = LinearOperator(shape, matvec=product, dtype=float)
        inverse = LinearOperator(shape, matvec=lambda r: r / diagonal, dtype=float)
        limits = {"rtol": CG_TOLERANCE, "maxiter": MAX_CG_STEPS}
        return np.asarray(cg(hessian, gradient, M=inverse, **limits)[0])


def _minimise(
    objective: _Objective, alpha: float, tol: float, max_iter: int
) -> tuple[Array, int, bool]:
    """Minimise by the approximate Hessian: return parameters, iterations, whether it converged.

    Stops once the decrease that it promises is below a tenth of ``tol`` times the objective, or
    once no step decreases the objective any more.
    """
    w = np.zeros(objective.ends[-1] + 1)
    floor = MIN_ROW_LOSS * float(objective.weight.sum())
    value, gradient, mean = objective(w, alpha)
    for n_iter in range(max_iter + 1):
        direction = objective.newton_direction(gradient, mean, alpha)
        slope = float(direction @ gradient)
        if slope / 2 <= 0.1 * tol * max(value, floor):
            return w, n_iter, True
        if n_iter == max_iter:
            break
        step = 1.0
        while step > MIN_STEP:
            trial = w - step * direction
            after, *there = objective(trial, alpha)
            if after <= value - ARMIJO * step * slope:
                break
            step /= 2
        else:
            if np.isfinite(after):  # limited by rounding error
                return w, n_iter, True
            break
        w, value, (gradient, mean) = trial, after, there
    warn_not_converged("the recalibration", max_iter, slope / 2)
    return w, max_iter, False


def fit_recalibration(
    logits: Any,
    targets: sp.csc_array,
    sizes: NDArray[np.intp],
    alpha: float,
    *,
    weight: Weight = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> Recalibration:
    """Fit to logits (n, s), dense or lists, and 0/1 targets of labels and sizes, (n, s + C)."""
    s, C = logits.shape[1], len(sizes)
    if sp.issparse(logits) or s > MAX_JOINT_LABELS:
        return _fit_in_turn(logits, sp.csr_array(targets[:, :s]), alpha, weight, tol, max_iter)
    logits = np.asarray(logits, dtype=np.float64)
    dense = targets.toarray().astype(np.float64)
    knots, values = fit_curve(logits, dense[:, :s], weight, alpha)
    curve = interpolate(logits, knots, values)
    number, centre, scale = _standardised(expected_number(curve), weight)
    objective = _Objective(curve, logits - curve, number, dense, sizes, weight)
    w, n_iter, converged = _minimise(objective, alpha, tol, max_iter)
    slope, offset, potential, rest = np.split(w, [s, 2 * s, 2 * (s + C)])
    lines = 1 + slope, offset, float(rest[0]), potential.reshape(2, C)
    ended = np.array([n_iter]), np.array([converged])
    return Recalibration(knots, values, *lines, centre, scale, sizes, *ended)


def _standardised(number: Array, weight: Weight) -> tuple[Array, float, float]:
    """Return expected numbers of labels, (n,), standardised, and their mean and deviation."""
    centre = float(np.average(number, weights=weight))
    scale = float(np.average((number - centre) ** 2, weights=weight)) ** 0.5 or 1.0
    return (number - centre) / scale, centre, scale


def _fit_in_turn(
    logits: Any, Y: sp.csr_array, alpha: float, weight: Weight, tol: float, max_iter: int
) -> Recalibration:
    """Fit the lines of labels and then the potentials; dense logits are lists of all labels."""
    (n, s), listed = logits.shape, sp.issparse(logits)
    if not listed:  # zeros included
        every = np.tile(np.arange(s), n), np.arange(0, n * s + 1, s)
        logits = sp.csr_array((np.asarray(logits).ravel(), *every), shape=(n, s))
    row, label = np.repeat(np.arange(n), np.diff(logits.indptr)), logits.indices
    own = np.ones(n) if weight is None else weight
    y = is_present(logits, Y).astype(np.float64)
    knots, values = np.array([-1.0, 1.0]), np.array([-1.0, 1.0])
    if logits.nnz:
        knots, values = fit_curve(logits.data[:, None], y[:, None], own[row], alpha)
    m = np.interp(logits.data, knots, values)
    (slope, offset), first = fit_lines(m, y, own[row], label, s, alpha, tol, max_iter)
    lists = with_values(logits, slope[label] * m + offset[label])
    expected = expected_number(lists if listed else with_values(logits, m))
    number, centre, scale = _standardised(expected, own)
    found = np.bincount(row, y, minlength=n).astype(np.intp)
    sizes, place = np.unique(found, return_inverse=True)
    law = log_size_law(lists, sizes)
    potential, second = fit_potentials(law, number, place, own, alpha, tol, max_iter)
    unlisted = float(np.average(np.diff(Y.indptr) - found, weights=own))
    length = int(np.diff(logits.indptr).max(initial=1)) if listed else None
    lines = knots, values, slope, offset, 0.0, potential, centre, scale, sizes
    ended = np.array([max(first, second)]), np.array([True])
    return Recalibration(*lines, *ended, unlisted, length)


def fit_lines(
    m: Array, y: Array, weight: Array, label: Array, s: int, alpha: float, tol: float, max_iter: int
) -> tuple[NDArray[np.float64], int]:
    """Return slopes and offsets, (2, s), of the listed labels, and the number of iterations.

    Of logistic regressions on the calibrated logits m, as labels and weights of shape (nnz,), with
    the penalty ``alpha / 2`` on the squares of slope - 1 and offset.
    """
    reach = np.zeros(s)
    np.maximum.at(reach, label, np.abs(m))

    def sums(values: Array) -> NDArray[np.float64]:
        return np.bincount(label, values, minlength=s).astype(np.float64, copy=False)

    def newton(w: Array) -> tuple[Array, Array, Array]:
        p = expit(w[0][label] * m + w[1][label])
        residual, curvature = weight * (p - y), weight * p * (1 - p)
        by_slope = sums(residual * m) + alpha * (w[0] - 1)
        by_offset = sums(residual) + alpha * w[1]
        a, b, c = sums(curvature * m * m) + alpha, sums(curvature * m), sums(curvature) + alpha
        direction = np.stack([c * by_slope - b * by_offset, a * by_offset - b * by_slope])
        direction /= a * c - b * b
        change = reach * np.abs(direction[0]) + np.abs(direction[1])
        return np.stack([by_slope, by_offset]), direction, change

    start, floor = np.repeat([[1.0], [0.0]], s, axis=1), float(weight.sum()) * 1e-4
    return _damped_newton("the lines of the labels", newton, start, floor, tol, max_iter)


def fit_potentials(
    law: Array, number: Array, place: Array, weight: Array, alpha: float, tol: float, max_iter: int
) -> tuple[NDArray[np.float64], int]:
    """Return the potentials (2, C) of sizes, and the number of iterations of Newton's method.

    Of a multinomial model with ``law`` (n, C) as offset. ``number`` (n,) is the standardised
    expected number of labels, ``place`` (n,) the size of a row.
    """
    (n, C), X = law.shape, np.stack([np.ones_like(number), number])
    sizes = np.arange(C)

    def newton(w: Array) -> tuple[Array, Array, float]:
        P = softmax(law + X.T @ w, axis=1)
        own = (X[:, None, :] * P.T).reshape(2 * C, n)
        hessian = alpha * np.eye(2 * C) - (own * weight) @ own.T
        blocks = hessian.reshape(2, C, 2, C)
        blocks[:, sizes, :, sizes] += ((X[:, None] * X * weight) @ P).transpose(2, 0, 1)
        P[np.arange(n), place] -= 1
        gradient = (X * weight) @ P + alpha * w
        direction = np.linalg.solve(hessian, gradient.ravel()).reshape(2, C)
        return gradient, direction, float(np.ptp(X.T @ direction, axis=1).max())

    start, floor = np.zeros((2, C)), float(weight.sum()) * 1e-4
    return _damped_newton("the potentials of the sizes", newton, start, floor, tol, max_iter)


def _damped_newton(
    what: str, newton: Any, w: Array, floor: float, tol: float, max_iter: int
) -> tuple[NDArray[np.float64], int]:
    """Minimise a generalised self-concordant function: return where, and the iterations.

    ``newton`` returns the gradient, the Newton direction, and a bound R on the changes of scores by
    it, or their range: the step is ln(1 + R) / R.
    """
    for n_iter in range(max_iter + 1):
        check_cancelled()
        gradient, direction, change = newton(w)
        left = float((gradient * direction).sum()) / 2
        if left <= 0.1 * tol * max(floor, 1e-12):
            return w, n_iter
        R = np.maximum(change, 1e-12)
        w = w - np.log1p(R) / R * direction
    warn_not_converged(what, max_iter, left)
    return w, max_iter


def warn_not_converged(what: str, max_iter: int, left: float) -> None:
    """Warn that a fit did not converge, and by how much a further step would lower the loss."""
    warnings.warn(
        f"{what} did not converge in {max_iter} iterations: a further step promises to lower the "
        f"loss by {left:.2g}; increase max_iter or alpha",
        ConvergenceWarning,
        stacklevel=5,
    )
