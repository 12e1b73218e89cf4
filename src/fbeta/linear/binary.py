"""Regularised linear models of binary targets, all over one X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, dense_columns, is_accelerator, is_tensor, to_numpy
from fbeta._threads import one_blas_thread
from fbeta.linear.compiled import Compiled
from fbeta.linear.design import Design, rotation_pays
from fbeta.linear.objectives import Binary
from fbeta.linear.problems import MEMORY, PARALLEL, Problems, Solution
from fbeta.losses import Loss

__all__ = ["LinearModel", "LinearProblems", "constant_values", "distinct_columns", "fit_linear"]


@dataclass(frozen=True)
class LinearModel:
    """Scores ``X @ coef.T + intercept`` of every problem.

    Attributes
    ----------
    coef : array of shape (m, d)
        Of the distinct problems.
    intercept : array of shape (m,)
        Infinite where the target is constant and the loss has no minimiser.
    problem : ndarray of shape (M,)
        Row of ``coef`` that serves each of the M problems.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where nothing had to be solved.
    converged : bool ndarray of shape (m,)
    """

    coef: Array
    intercept: Array
    problem: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def scores(self, X: Any) -> Array:
        """Return the scores of the distinct problems, of shape (n, m)."""
        if is_tensor(X):
            return tensor_scores(X, self.coef, self.intercept)
        with one_blas_thread(X.shape[0] * len(self.problem) < PARALLEL):
            return X @ self.coef.T + self.intercept


def tensor_scores(X: Array, coef: Array, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept``: a product needs one type, whatever X is asked about."""
    xp = array_namespace(X)
    dtype = xp.result_type(X, coef)
    X, coef, intercept = (xp.astype(a, dtype, copy=False) for a in (X, coef, intercept))
    return X @ coef.T + intercept


class LinearProblems(Problems):
    """The problems whose targets are the columns of a matrix.

    Columns with equal targets are one problem. With an intercept, a constant target q has the
    solution ``w = 0``, intercept ``link(q)``, and is not solved.

    Parameters
    ----------
    design : Design
        With n rows.
    targets : csc_array of shape (n, M)
        In [0, 1].
    loss : Loss
        The binary loss phi.
    memory : int
        Bytes of working memory.

    Attributes
    ----------
    problem : ndarray of shape (M,)
        The distinct problem that each column belongs to.
    constant : ndarray of shape (m,)
        The value of a constant target that is not solved, NaN elsewhere.
    """

    kind = "binary"

    def __init__(
        self, design: Design, targets: sp.csc_array, loss: Loss, *, memory: int = MEMORY
    ) -> None:
        super().__init__(design, memory=memory)
        self.loss = loss
        self.problem, first = distinct_columns(targets)
        alone = len(first) == targets.shape[1]
        self.matrix = sp.csc_array(targets if alone else targets[:, first])
        self.first = np.arange(len(first) + 1)
        self.mean = self._column_means()
        constant = constant_values(self.matrix)
        self.constant = constant if design.intercept else np.full_like(constant, np.nan)
        solved = np.flatnonzero(np.isnan(self.constant))
        # the number of positives tells most about the iterations that a problem takes
        self.open = solved[np.argsort(-self.mean[solved], kind="stable")]
        self.compiled = Compiled.binary(design, self.light, self.matrix, loss, len(self.open))

    @property
    def floor(self) -> float:
        """A share of the objective of score 0."""
        return 1e-4 * self.design.total_weight * float(self.loss.value(0.5, np.zeros(1))[0])

    def objective(self, problems: NDArray[np.intp]) -> Binary:
        """Return the loss."""
        return Binary(self.loss)

    def targets(self, problems: NDArray[np.intp]) -> Array:
        """Return the targets of some problems."""
        xp, device = self.design.xp, self.design.device
        # 0 and 1 are the same in any type: on accelerators, whose memory is what counts, the least
        light = is_accelerator(device) and bool((self.matrix.data == 1).all())
        dtype = self.light.matrix.dtype if light else xp.float64
        return dense_columns(xp, device, self.matrix[:, problems], dtype)

    def _column_means(self) -> NDArray[np.float64]:
        weight = self.design.weight
        if weight is None:
            return np.asarray(self.matrix.sum(axis=0) / self.matrix.shape[0], dtype=np.float64)
        column = to_numpy(weight).astype(np.float64)[:, 0]
        return np.asarray(self.matrix.T @ column / column.sum())

    def null_solution(self, alpha: float = 0.0) -> Array:
        """Return the models that ignore X, of shape (p, m)."""
        # by columns, as the compiled solver has them
        W = np.zeros((self.design.matrix.shape[1], len(self)), order="F")
        if self.design.intercept:
            W[-1] = np.where(np.isnan(self.constant), self.loss.link(self.mean), 0.0)
        return self.design.xp.asarray(W, device=self.design.device)

    def warn_if_not_converged(
        self,
        solution: Solution,
        alpha: float,
        max_iter: int,
        describe: Callable[[int], str] = str,
    ) -> None:
        """Say which problems did not converge, by the first column of the targets that each is."""
        super().warn_if_not_converged(
            solution, alpha, max_iter, lambda m: describe(int(np.argmax(self.problem == m)))
        )

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probabilities of every column of the targets for the rows of a design.

        Parameters
        ----------
        solution : Solution
            Of these problems.
        design : Design
            Of n rows, in the coordinates of the problems' design.

        Returns
        -------
        array of shape (n, M)
        """
        xp, there = design.xp, {"device": design.device}
        out = self.loss.inverse_link(self.scores(solution, design))
        constant = xp.asarray(self.constant, dtype=out.dtype, **there)
        out = xp.where(xp.isnan(constant), out, constant)
        return xp.take(out, xp.asarray(self.problem, **there), axis=1)

    def model(self, solution: Solution) -> LinearModel:
        """Return the models in the coordinates of X."""
        xp = self.design.xp
        coef, intercept = self.coefficients(solution)
        constant = xp.asarray(self.constant, dtype=intercept.dtype, device=self.design.device)
        intercept = xp.where(xp.isnan(constant), intercept, self.loss.link(constant))
        return LinearModel(coef, intercept, self.problem, solution.n_iter, solution.converged)


def fit_linear(
    X: Any,
    targets: sp.csc_array,
    loss: Loss,
    alpha: float,
    *,
    weight: NDArray[np.float64] | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 100,
    describe: Callable[[int], str] = str,
) -> LinearModel:
    """Fit one regularised linear model for each column of the targets.

    Each minimises ``sum_i c_i phi(y_i, x_i.w + b) + alpha / 2 |w|^2``; the intercept b is not
    penalised. A :class:`ConvergenceWarning` names how many did not converge.

    Parameters
    ----------
    X : array or csr_array of shape (n, d)
        Features, float32 or float64.
    targets : csc_array of shape (n, M)
        In [0, 1].
    loss : Loss
        The binary loss phi.
    alpha : float >= 0
        Strength of the penalty.
    weight : ndarray of shape (n,), optional
        Positive weights c of the rows.
    fit_intercept : bool
        Whether there is an intercept.
    tol, max_iter
        As for :meth:`Problems.solve`.
    describe : callable
        What to call a column of the targets in a warning.

    Returns
    -------
    LinearModel

    Examples
    --------
    >>> from fbeta.losses import LogisticLoss
    >>> X = np.array([[-1.0], [0.0], [1.0], [2.0]])
    >>> y = sp.csc_array(np.array([[0], [1], [0], [1]]))
    >>> model = fit_linear(X, y, LogisticLoss(), alpha=1.0)
    >>> model.coef.shape, bool(model.converged[0])
    ((1, 1), True)
    """
    rotate = rotation_pays(X.shape, targets.shape[1])
    design = Design.of(X, weight, intercept=fit_intercept, rotate=rotate)
    problems = LinearProblems(design, targets, loss)
    found = problems.solve_and_warn(alpha, tol=tol, max_iter=max_iter, describe=describe)
    return problems.model(found)


def distinct_columns(matrix: sp.csc_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the columns that differ from each other.

    Parameters
    ----------
    matrix : csc_array of shape (n, M)

    Returns
    -------
    which : ndarray of shape (M,)
        For each column, the number of the distinct column it equals.
    first : ndarray of shape (m,)
        For each distinct column, the first place it stands.

    Examples
    --------
    >>> which, first = distinct_columns(sp.csc_array(np.array([[1, 0, 1], [0, 1, 0]])))
    >>> which.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = sp.csc_array(matrix, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    seen: dict[tuple[int, int], list[int]] = {}
    which = np.empty(matrix.shape[1], dtype=np.intp)
    first: list[int] = []
    keys = zip(np.diff(matrix.indptr).tolist(), _hashes(matrix).tolist(), strict=True)
    for m, key in enumerate(keys):
        alike = seen.setdefault(key, [])
        which[m] = next((k for k in alike if _equal(matrix, first[k], m)), len(first))
        if which[m] == len(first):
            alike.append(len(first))
            first.append(m)
    return which, np.array(first, dtype=np.intp)


def _hashes(matrix: sp.csc_array) -> NDArray[np.uint64]:
    """Return a number for each column: equal columns have equal ones."""
    rows = np.random.default_rng(0).integers(0, 2**64, size=matrix.shape[0], dtype=np.uint64)
    terms, data = rows[matrix.indices], matrix.data
    if len(data) and (data != data[0]).any():
        terms = terms * (data.astype(np.float64).view(np.uint64) | np.uint64(1))
    out = np.zeros(matrix.shape[1], np.uint64)
    some = np.flatnonzero(np.diff(matrix.indptr))
    if len(some):
        out[some] = np.add.reduceat(terms, matrix.indptr[some])
    return out


def _equal(matrix: sp.csc_array, one: int, other: int) -> bool:
    a, b = (slice(*matrix.indptr[m : m + 2]) for m in (one, other))
    same = np.array_equal(matrix.indices[a], matrix.indices[b])
    return same and np.array_equal(matrix.data[a], matrix.data[b])


def constant_values(targets: sp.csc_array) -> NDArray[np.float64]:
    """Return the value of each column that has only one, NaN for the others."""
    counts = np.diff(targets.indptr)
    out = np.where(counts == 0, 0.0, np.nan)
    for column in np.flatnonzero(counts == targets.shape[0]):
        values = targets.data[targets.indptr[column] : targets.indptr[column + 1]]
        if len(values) and (values == values[0]).all():
            out[column] = values[0]
    return out
