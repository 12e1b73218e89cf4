"""Short lists of labels, out of any number: recalibration of scores, and linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fbeta._array import check_number
from fbeta._threads import check_cancelled, run_threaded
from fbeta.estimators.recalibration import (
    ListedRecalibration,
    Recalibration,
    expected_number,
    fit_curve,
    log_size_law,
    warn_not_converged,
    with_values,
)
from fbeta.linear import LinearLearner, LinearProbabilities
from fbeta.linear.design import Design
from fbeta.linear.learner import Names, Weight
from fbeta.statistics.codes import Code, SizedCode
from fbeta.statistics.composite import is_present
from fbeta.statistics.label_statistics import LabelStatistics

BATCH_BYTES = 1 << 27  # of the coefficients of labels that are fitted together
CHUNK_BYTES = 1 << 22  # of the scores of rows that are predicted together, on each thread
LABELS_OF_A_TOP = 16  # labels of which one, the most likely, is compared with those of other groups
MAX_SCORE_CHANGE = 0.05  # of a training row, by coefficients that are dropped


def fit_listed(
    logits: sp.csr_array,
    Y: sp.csr_array,
    alpha: float,
    *,
    weight: NDArray[np.float64] | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
    all_listed: bool = False,
) -> Recalibration:
    """Fit to logits of the listed labels and 0/1 labels, both of shape (n, s).

    With ``all_listed`` the recalibration is that of dense logits.
    """
    n, s = logits.shape
    row, label = np.repeat(np.arange(n), np.diff(logits.indptr)), logits.indices
    own = np.ones(n) if weight is None else weight
    y = is_present(logits, Y).astype(np.float64)
    knots, values = np.array([-1.0, 1.0]), np.array([-1.0, 1.0])
    if logits.nnz:
        knots, values = fit_curve(logits.data[:, None], y[:, None], own[row], alpha)
    m = np.interp(logits.data, knots, values)
    slope, offset, first = fit_lines(m, y, own[row], label, s, alpha, tol, max_iter)
    lists = with_values(logits, slope[label] * m + offset[label])
    expected = expected_number(with_values(logits, m) if all_listed else lists)
    centre = float(np.average(expected, weights=own))
    scale = float(np.average((expected - centre) ** 2, weights=own)) ** 0.5 or 1.0
    found = np.bincount(row, y, minlength=n).astype(np.intp)
    sizes, place = np.unique(found, return_inverse=True)
    law, number = log_size_law(lists, sizes), (expected - centre) / scale
    potential, second = fit_potentials(law, number, place, own, alpha, tol, max_iter)
    return ListedRecalibration(
        max(first, second),
        knots=knots,
        values=values,
        slope=slope,
        offset=offset,
        potential=potential,
        centre=centre,
        scale=scale,
        sizes=sizes,
        unlisted=float(np.average(np.diff(Y.indptr) - found, weights=own)),
        list_length=None if all_listed else int(np.diff(logits.indptr).max(initial=1)),
    )


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
        check_cancelled()
        p = expit(slope[label] * m + offset[label])
        residual, curvature = weight * (p - y), weight * p * (1 - p)
        by_slope = sums(residual * m) + alpha * (slope - 1)
        by_offset = sums(residual) + alpha * offset
        a, b, c = sums(curvature * m * m) + alpha, sums(curvature * m), sums(curvature) + alpha
        determinant = a * c - b * b
        d_slope = (c * by_slope - b * by_offset) / determinant
        d_offset = (a * by_offset - b * by_slope) / determinant
        left = float((by_slope * d_slope + by_offset * d_offset).sum()) / 2
        if left <= 0.1 * tol * max(float(weight.sum()) * 1e-4, 1e-12):
            return slope, offset, n_iter
        R = np.maximum(reach * np.abs(d_slope) + np.abs(d_offset), 1e-12)
        step = np.log1p(R) / R
        slope -= step * d_slope
        offset -= step * d_offset
    warn_not_converged("the lines of the labels", max_iter, left)
    return slope, offset, max_iter


def fit_potentials(
    law: NDArray[np.float64],
    number: NDArray[np.float64],
    place: NDArray[np.intp],
    weight: NDArray[np.float64],
    alpha: float,
    tol: float,
    max_iter: int,
) -> tuple[NDArray[np.float64], int]:
    """Return the potentials (2, C) of sizes, and the number of iterations of Newton's method.

    Of a multinomial model with ``law`` (n, C) as offset. ``number`` (n,) is the standardised
    expected number of labels, ``place`` (n,) the size of a row. Steps are those of
    :func:`fit_lines`, for R the range of the changes of the scores of a row.
    """
    (n, C), X = law.shape, np.stack([np.ones_like(number), number])
    w, sizes = np.zeros((2, C)), np.arange(C)
    for n_iter in range(max_iter + 1):
        check_cancelled()
        P = softmax(law + X.T @ w, axis=1)
        own = (X[:, None, :] * P.T).reshape(2 * C, n)
        hessian = alpha * np.eye(2 * C) - (own * weight) @ own.T
        blocks = hessian.reshape(2, C, 2, C)
        blocks[:, sizes, :, sizes] += ((X[:, None] * X * weight) @ P).transpose(2, 0, 1)
        P[np.arange(n), place] -= 1
        gradient = (X * weight) @ P + alpha * w
        direction = np.linalg.solve(hessian, gradient.ravel()).reshape(2, C)
        left = float(np.vdot(direction, gradient)) / 2
        if left <= 0.1 * tol * max(float(weight.sum()) * 1e-4, 1e-12):
            return w, n_iter
        R = max(float(np.ptp(X.T @ direction, axis=1).max()), 1e-12)
        w = w - np.log1p(R) / R * direction
    warn_not_converged("the potentials of the sizes", max_iter, left)
    return w, max_iter


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

    def probabilities(self, X: Any) -> LabelStatistics:
        """Return the statistics of the likely labels of n rows, and of the number of labels."""
        sparse, coef = sp.issparse(X), self.coef
        if sparse:  # with indices of one type, which the products need
            coef, X = sp.csr_array(coef.T), sp.csr_array((X.data, X.indices, X.indptr), X.shape)
        rows = max(1, CHUNK_BYTES // (8 * len(self.intercept)))

        def work(start: int) -> sp.csr_array:
            check_cancelled()
            some = X[start : start + rows]
            scores = (some @ coef).toarray() if sparse else np.ascontiguousarray((coef @ some.T).T)
            scores += self.intercept
            return likely_labels(scores, self.list_length)

        starts = range(0, max(X.shape[0], 1), rows)
        lists, law = sp.vstack(run_threaded(work, starts, small=True)), cast(Any, None)
        if self.of_size is not None:
            code = SizedCode(self.sizes, 0, self.sizes)
            law = code.law_of_sizes(code.estimates(self.of_size.log_odds(X)).P)
        return LabelStatistics.from_logits(lists, law)


def likely_labels(scores: NDArray[np.float64], max_listed: int) -> sp.csr_array:
    """Return the largest scores of each row, at most ``max_listed`` and above -inf, as CSR."""
    (n, s), tops = scores.shape, scores
    if s >= LABELS_OF_A_TOP * max_listed:
        # the k-th largest of the maxima of groups of labels is at most the k-th largest score
        width = s // LABELS_OF_A_TOP
        grouped = scores[:, : LABELS_OF_A_TOP * width].reshape(n, LABELS_OF_A_TOP, width)
        tops = grouped.max(axis=1)
    place = max(tops.shape[1] - max_listed, 0)
    least = np.partition(tops, place, axis=1)[:, place, None]
    row, label = np.nonzero((scores >= least) & (scores > -np.inf))
    value = scores[row, label]
    order = np.lexsort((-value, row))
    starts = np.searchsorted(row, np.arange(n + 1))
    kept = np.sort(order[np.arange(len(row)) - starts[row] < max_listed])
    indptr = np.searchsorted(row[kept], np.arange(n + 1))
    return sp.csr_array((value[kept], label[kept], indptr), shape=(n, s))


def fit_listed_models(
    solver: LinearLearner,
    max_listed: int,
    code: Code,
    name: Names,
    X: Any,
    targets: sp.csc_array,
    weight: Weight,
    alpha: float,
) -> ListedLinearModel:
    """Fit to labels, some at a time, and to the sizes of the code; drop small coefficients."""
    alpha, s = check_number("alpha", alpha), code.n_labels
    design = Design.of(X, weight, intercept=solver.fit_intercept, rotate=False)
    sizes = getattr(code, "sizes", np.zeros(0, dtype=np.intp))

    def solve(columns: NDArray[np.intp]) -> Any:
        some = targets[:, columns]
        problems = solver.problems_of(design, solver.make_objective(some), some)
        solution = problems.solve(alpha, tol=solver.tol, max_iter=solver.max_iter)
        problems.warn_if_not_converged(
            solution, alpha, solver.max_iter, lambda column: name(int(columns[column]))
        )
        return problems.model(solution)

    smallest = MAX_SCORE_CHANGE / max(float(abs(X).sum(axis=1).max()), 1e-300)
    coef, intercept, most = [], np.full(s, -np.inf), 0
    labels = np.flatnonzero(np.diff(targets.indptr)[:s])
    at_once = max(1, BATCH_BYTES // (8 * X.shape[1]))
    for start in range(0, len(labels), at_once):
        batch = labels[start : start + at_once]
        model = solve(batch)
        some = model.coef[model.problem]
        coef.append(sp.csr_array(np.where(np.abs(some) < smallest, 0.0, some)))
        intercept[batch], most = model.intercept[model.problem], max(most, model.most_iter)
    place = np.full(s, len(labels))
    place[labels] = np.arange(len(labels))
    empty = sp.csr_array((1, X.shape[1]))
    stacked = sp.csr_array(sp.csr_array(sp.vstack([*coef, empty]))[place])
    of_size = solve(np.arange(s, targets.shape[1])) if len(sizes) else None
    arrays = stacked.data, stacked.indices, stacked.indptr, X.shape[1], intercept
    return ListedLinearModel(*arrays, sizes, of_size, max_listed, most)
