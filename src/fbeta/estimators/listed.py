"""Short lists of labels, out of any number: recalibration of scores, and linear models.

The curve for all labels and the line for each are those of :mod:`fbeta.estimators.recalibration`,
fitted label by label. The number of listed labels has potentials, and the number of labels that are
not listed is binomial with one mean for all rows. Time and memory grow with the listed scores.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import check_number
from fbeta.estimators.recalibration import Recalibration, fit_curve
from fbeta.linear import LinearLearner, LinearProbabilities
from fbeta.linear.design import Design
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = [
    "ListedLearner",
    "ListedLinearModel",
    "ListedMarginals",
    "ListedRecalibration",
    "fit_listed",
    "list_all",
    "read_lists",
]

ROWS_AT_ONCE = 1 << 14  # rows whose size laws are computed together
MIN_LOG_PROBABILITY = -700.0  # of a size under independent labels
BATCH_BYTES = 1 << 27  # of the coefficients of labels that are fitted together
CHUNK_BYTES = 1 << 27  # of the scores of rows that are predicted together
MAX_SCORE_CHANGE = 0.05  # of a training row, by coefficients that are dropped


@dataclass(frozen=True)
class ListedMarginals:
    """Marginals of listed labels, the law of their number, and the mean number of the others."""

    P: sp.csr_array  # (n, s)
    sizes: NDArray[np.float64] | None  # (n, m + 1)
    unlisted: NDArray[np.float64] | None  # (n,)

    def statistics(self) -> LabelStatistics:
        """Return the label statistics of n rows."""
        return LabelStatistics.from_marginals(self.P, self.sizes, self.unlisted)

    def marginals(self) -> sp.csr_array:
        """Return the probability of each listed label, of shape (n, s)."""
        found: sp.csr_array = self.statistics().marginals()
        return found


@dataclass(frozen=True)
class ListedRecalibration:
    """A curve, lines and potentials that recalibrate the logits of listed labels."""

    knots: NDArray[np.float64]  # (B,), logits,
    values: NDArray[np.float64]  # (B,), and the calibrated logits at them
    slope: NDArray[np.float64]  # (s,)
    offset: NDArray[np.float64]  # (s,)
    potential: NDArray[np.float64]  # (2, C): constants, factors of the expected number of labels
    centre: float  # of the expected number of listed labels in the training data
    scale: float
    sizes: NDArray[np.intp]  # (C,), numbers of listed labels that were seen
    unlisted: float  # mean number of labels that are not listed
    list_length: int  # largest number of listed labels of a training row
    most_iter: int

    @property
    def curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The knots and values of the curve."""
        return self.knots, self.values

    def of_all_labels(self) -> Recalibration:
        """Return the same for dense logits, after a fit to lists of all labels."""
        curve = self.knots, self.values, self.slope, self.offset, 0.0
        sizes = self.potential, self.centre, self.scale, self.sizes
        return Recalibration(*curve, *sizes, np.array([self.most_iter]), np.array([True]))

    def probabilities(self, X: sp.csr_array) -> ListedMarginals:
        """Return the laws of labels and of their number, for logits of listed labels (n, s)."""
        m = np.interp(X.data, self.knots, self.values)
        P = expit(self.slope[X.indices] * m + self.offset[X.indices])
        marginals = sp.csr_array((P, X.indices, X.indptr), shape=X.shape)
        number = (marginals.sum(axis=1) - self.centre) / self.scale
        scores = log_size_law(marginals, self.sizes)
        scores += self.potential[0] + number[:, None] * self.potential[1]
        law = np.zeros((X.shape[0], int(self.sizes[-1]) + 1))
        law[:, self.sizes] = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        most = X.shape[1] - np.diff(X.indptr)
        return ListedMarginals(marginals, law, np.minimum(self.unlisted, most))


def fit_listed(
    logits: sp.csr_array,
    Y: sp.csr_array,
    alpha: float,
    *,
    weight: NDArray[np.float64] | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> ListedRecalibration:
    """Fit to logits of the listed labels and 0/1 labels, both of shape (n, s)."""
    n, s = logits.shape
    row = np.repeat(np.arange(n), np.diff(logits.indptr))
    own = np.ones(n) if weight is None else weight
    y = is_present(logits, Y)
    knots, values = np.array([-1.0, 1.0]), np.array([-1.0, 1.0])
    if logits.nnz:
        knots, values = fit_curve(logits.data[:, None], y[:, None], own[row], alpha)
    m = np.interp(logits.data, knots, values)
    slope, offset, n_iter = fit_lines(m, y, own[row], logits.indices, s, alpha, tol, max_iter)
    P = expit(slope[logits.indices] * m + offset[logits.indices])
    marginals = sp.csr_array((P, logits.indices, logits.indptr), shape=logits.shape)
    expected = np.asarray(marginals.sum(axis=1))
    centre = float(np.average(expected, weights=own))
    scale = float(np.average((expected - centre) ** 2, weights=own)) ** 0.5 or 1.0
    found = np.bincount(row, y, minlength=n).astype(np.intp)
    sizes, place = np.unique(found, return_inverse=True)
    potential = fit_potentials(
        log_size_law(marginals, sizes), (expected - centre) / scale, place, own, alpha, tol
    )
    unlisted = float(np.average(np.diff(Y.indptr) - found, weights=own))
    return ListedRecalibration(
        knots,
        values,
        slope,
        offset,
        potential,
        centre,
        scale,
        sizes,
        unlisted,
        int(np.diff(logits.indptr).max(initial=1)),
        n_iter,
    )


def read_lists(P: Any) -> sp.csr_array:
    """Return scores of listed labels, any sparse matrix of shape (n, s), as a checked csr_array."""
    lists = sp.csr_array(P, dtype=np.float64, copy=True)
    lists.sort_indices()
    if not np.isfinite(lists.data).all():
        raise ValueError("P contains NaN or infinity")
    if not lists.has_canonical_format:
        raise ValueError("a row of P lists a label twice")
    return lists


def list_all(values: NDArray[np.float64]) -> sp.csr_array:
    """Return a dense matrix (n, s) as lists of all labels, zeros included."""
    n, s = values.shape
    indices, indptr = np.tile(np.arange(s), n), np.arange(0, n * s + 1, s)
    return sp.csr_array((values.ravel(), indices, indptr), shape=(n, s))


def is_present(listed: sp.csr_array, Y: sp.csr_array) -> NDArray[np.float64]:
    """Return 0/1 for the listed labels, (nnz,): whether Y, of the same shape, has them."""
    place = np.arange(1.0, listed.nnz + 1)
    both = sp.csr_array((place, listed.indices, listed.indptr), listed.shape).multiply(Y > 0)
    out = np.zeros(listed.nnz)
    out[sp.csr_array(both).data.astype(np.intp) - 1] = 1.0
    return out


def fit_lines(
    m: NDArray[np.float64],
    y: NDArray[np.float64],
    weight: NDArray[np.float64],
    label: NDArray[np.intp],
    s: int,
    alpha: float,
    tol: float,
    max_iter: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return slopes and offsets (s,), and the number of iterations of Newton's method.

    Of logistic regressions on the calibrated logits m of the listed labels, all (nnz,), with the
    penalty ``alpha / 2`` on the squares of slope - 1 and offset. Steps are those of generalised
    self-concordant functions, ln(1 + R) / R for a Newton step that moves no score by more than R.
    """
    slope, offset = np.ones(s), np.zeros(s)
    reach = np.zeros(s)
    np.maximum.at(reach, label, np.abs(m))

    def sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(label, values, minlength=s).astype(np.float64, copy=False)

    for n_iter in range(max_iter + 1):
        p = expit(slope[label] * m + offset[label])
        residual, curvature = weight * (p - y), weight * p * (1 - p)
        by_slope = sums(residual * m) + alpha * (slope - 1)
        by_offset = sums(residual) + alpha * offset
        a, b, c = sums(curvature * m * m) + alpha, sums(curvature * m), sums(curvature) + alpha
        determinant = a * c - b * b
        d_slope = (c * by_slope - b * by_offset) / determinant
        d_offset = (a * by_offset - b * by_slope) / determinant
        decrement = by_slope * d_slope + by_offset * d_offset
        if float(decrement.sum()) / 2 <= 0.1 * tol * max(float(weight.sum()) * 1e-4, 1e-12):
            return slope, offset, n_iter
        R = np.maximum(reach * np.abs(d_slope) + np.abs(d_offset), 1e-12)
        step = np.log1p(R) / R
        slope -= step * d_slope
        offset -= step * d_offset
    warnings.warn(
        f"the lines of the labels did not converge in {max_iter} iterations: increase max_iter or "
        "alpha",
        ConvergenceWarning,
        stacklevel=2,
    )
    return slope, offset, max_iter


def log_size_law(P: sp.csr_array, sizes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return ``ln P(k listed labels)`` of independent labels for some sizes, of shape (n, C)."""
    listed, largest = np.diff(P.indptr), int(sizes[-1])
    out = np.empty((P.shape[0], len(sizes)))
    for start in range(0, P.shape[0], ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, P.shape[0]))
        width = int(listed[rows].max(initial=0))
        used = np.arange(width) < listed[rows, None]
        padded = np.zeros(used.shape)
        padded[used] = P.data[P.indptr[rows.start] : P.indptr[rows.stop]]
        pmf = np.zeros((largest + 1, len(used)))
        pmf[0] = 1.0
        for p in np.ascontiguousarray(padded.T):
            moved = pmf[:-1] * p
            pmf *= 1 - p
            pmf[1:] += moved
        with np.errstate(divide="ignore"):
            out[rows] = np.log(pmf[sizes].T)
    return np.maximum(out, MIN_LOG_PROBABILITY)


def fit_potentials(
    law: NDArray[np.float64],
    number: NDArray[np.float64],
    place: NDArray[np.intp],
    weight: NDArray[np.float64],
    alpha: float,
    tol: float,
) -> NDArray[np.float64]:
    """Return the potentials (2, C) of sizes: a multinomial model with ``law`` (n, C) as offset.

    ``number`` (n,) is the standardised expected number of labels, ``place`` (n,) the size of a row.
    """
    n, C = law.shape
    rows = np.arange(n)

    def objective(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        constant, factor = w.reshape(2, C)
        scores = law + constant + number[:, None] * factor
        total = logsumexp(scores, axis=1)
        loss = float(weight @ (total - scores[rows, place])) + alpha / 2 * float(w @ w)
        residual = np.exp(scores - total[:, None])
        residual[rows, place] -= 1
        residual *= weight[:, None]
        return loss, np.concatenate([residual.sum(axis=0), number @ residual]) + alpha * w

    found = minimize(
        objective,
        np.zeros(2 * C),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 0.01 * tol, "gtol": 0.0},
    )
    return np.asarray(found.x).reshape(2, C)


@dataclass(frozen=True)
class ListedLinearModel:
    """Linear models of any number of labels, which list the likely ones, and of the sizes."""

    values: NDArray[np.float64]  # of the sparse coefficients, (s, d), by rows,
    columns: NDArray[np.intp]  # their features,
    starts: NDArray[np.intp]  # (s + 1,), and where each label begins
    n_features: int  # d
    intercept: NDArray[np.float64]  # (s,), -inf for labels without rows
    sizes: NDArray[np.intp]  # (C,), those seen; empty where sizes have no model
    of_size: LinearProbabilities | None  # of the C sizes
    list_length: int  # labels that are listed for each row, at most
    most_iter: int

    @property
    def coef(self) -> sp.csr_array:
        """Coefficients of the labels, of shape (s, d)."""
        shape = len(self.intercept), self.n_features
        return sp.csr_array((self.values, self.columns, self.starts), shape=shape)

    def probabilities(self, X: Any) -> ListedMarginals:
        """Return the likely labels of n rows, and the law of the number of labels."""
        transposed, parts = sp.csc_array(self.coef.T), []
        rows = max(1, CHUNK_BYTES // (8 * len(self.intercept)))
        for start in range(0, max(X.shape[0], 1), rows):
            scores = X[start : start + rows] @ transposed
            scores = scores.toarray() if sp.issparse(scores) else np.asarray(scores)
            parts.append(likely_labels(scores + self.intercept, self.list_length))
        P = sp.csr_array(sp.vstack(parts))
        P.data = expit(P.data)
        if self.of_size is None:
            return ListedMarginals(P, None, None)
        law = np.zeros((X.shape[0], int(self.sizes[-1]) + 1))
        found = self.of_size.probabilities(X)
        law[:, self.sizes] = found / found.sum(axis=1, keepdims=True)
        return ListedMarginals(P, law, None)


def likely_labels(scores: NDArray[np.float64], max_listed: int) -> sp.csr_array:
    """Return the largest scores of each row, at most ``max_listed`` and above -inf, as CSR."""
    n, s = scores.shape
    if max_listed < s:
        place = np.argpartition(-scores, max_listed - 1, axis=1)[:, :max_listed]
    else:
        place = np.broadcast_to(np.arange(s), (n, s))
    place = np.sort(place, axis=1)
    values = np.take_along_axis(scores, place, axis=1)
    kept = values > -np.inf
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return sp.csr_array((values[kept], place[kept], indptr), shape=(n, s))


@dataclass(frozen=True)
class ListedLearner(Learner):
    """Linear models of the labels, some labels at a time, whose small coefficients are dropped."""

    solver: LinearLearner
    n_labels: int
    sizes: NDArray[np.intp]
    max_listed: int

    def fit(
        self, X: Any, targets: sp.csc_array, weight: Weight, alpha: float, name: Names = str
    ) -> ListedLinearModel:
        """Fit to labels and, where there are more columns, to the sizes."""
        alpha = check_number("alpha", alpha)
        design = Design.of(X, weight, intercept=self.solver.fit_intercept, rotate=False)
        smallest = MAX_SCORE_CHANGE / max(float(abs(X).sum(axis=1).max()), 1e-300)
        coef, intercept, most = [], np.full(self.n_labels, -np.inf), 0
        labels = np.flatnonzero(np.diff(targets.indptr)[: self.n_labels])
        at_once = max(1, BATCH_BYTES // (8 * X.shape[1]))
        for start in range(0, len(labels), at_once):
            batch = labels[start : start + at_once]
            model = self._solve(design, targets[:, batch], alpha, partial(_named, name, batch))
            some = model.coef[model.problem]
            coef.append(sp.csr_array(np.where(np.abs(some) < smallest, 0.0, some)))
            intercept[batch], most = model.intercept[model.problem], max(most, model.most_iter)
        empty = sp.csr_array((1, X.shape[1]))
        place = np.full(self.n_labels, len(labels))
        place[labels] = np.arange(len(labels))
        stacked = sp.csr_array(sp.csr_array(sp.vstack([*coef, empty]))[place])
        of_size = None
        if len(self.sizes):
            columns = targets[:, self.n_labels :]
            places = np.arange(self.n_labels, targets.shape[1])
            of_size = self._solve(design, columns, alpha, partial(_named, name, places))
        arrays = stacked.data, stacked.indices, stacked.indptr, X.shape[1], intercept
        return ListedLinearModel(*arrays, self.sizes, of_size, self.max_listed, most)

    def _solve(self, design: Design, targets: Any, alpha: float, name: Names) -> Any:
        solver = self.solver
        problems = solver.problems_of(design, solver.make_objective(targets), targets)
        solution = problems.solve(alpha, tol=solver.tol, max_iter=solver.max_iter)
        problems.warn_if_not_converged(solution, alpha, solver.max_iter, name)
        return problems.model(solution)


def _named(name: Names, columns: NDArray[np.intp], column: int) -> str:
    """Return what a column is called, of some columns of the targets."""
    return name(int(columns[column]))
