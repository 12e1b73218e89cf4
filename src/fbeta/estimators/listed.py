"""Recalibration of short lists of scores, out of any number of labels.

The curve for all labels and the line for each are those of :mod:`fbeta.estimators.recalibration`,
fitted label by label. The number of listed labels has potentials, and the number of labels that are
not listed is binomial with one mean for all rows. Time and memory grow with the listed scores.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from fbeta.estimators.recalibration import fit_curve
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["ListedMarginals", "ListedRecalibration", "fit_listed", "read_lists"]

ROWS_AT_ONCE = 1 << 14  # rows whose size laws are computed together
MIN_LOG_PROBABILITY = -700.0  # of a size under independent labels


@dataclass(frozen=True)
class ListedMarginals:
    """Marginals of listed labels, the law of their number, and the mean number of the others."""

    P: sp.csr_array  # (n, s)
    sizes: NDArray[np.float64]  # (n, m + 1)
    unlisted: NDArray[np.float64]  # (n,)

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
    longest: int  # largest number of listed labels of a training row
    most_iter: int

    @property
    def curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The knots and values of the curve."""
        return self.knots, self.values

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
