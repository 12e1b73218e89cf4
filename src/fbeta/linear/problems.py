"""All binary problems over one X: which of them need solving, and in which blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fbeta._threads import n_threads, one_blas_thread, run_threaded
from fbeta.linear.design import Design, rotation_pays
from fbeta.linear.lanes import Lanes, knows
from fbeta.linear.newton import DOUBT, BlockResult, solve_block
from fbeta.losses import Loss

__all__ = ["LinearModel", "LinearProblems", "Solution", "fit_linear"]

Array = Any
MEMORY = 1 << 30  # bytes of working memory for the blocks that are solved at the same time
WIDTH = 160  # columns of a block: enough for matrix products at full speed
SINGLE = 1 << 16  # entries of X below which single precision saves nothing
PARALLEL = 1 << 17  # scores below which a second thread costs more than it brings


@dataclass(frozen=True)
class Solution:
    """Solutions of the distinct problems, in the coordinates of the design.

    Attributes
    ----------
    W : array of shape (p, m)
    n_iter : ndarray of shape (m,)
    converged : bool ndarray of shape (m,)
    trust : ndarray of shape (m,)
        How much too low the promises of the preconditioner were found to be, at most.
    """

    W: Array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    trust: NDArray[np.float64]


@dataclass(frozen=True)
class LinearModel:
    """Scores ``X @ coef.T + intercept`` of every problem.

    Attributes
    ----------
    coef : ndarray of shape (m, d)
        Of the distinct problems.
    intercept : ndarray of shape (m,)
        Infinite where the target is constant and the loss has no minimiser.
    problem : ndarray of shape (M,)
        Row of ``coef`` that serves each of the M problems.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where nothing had to be solved.
    converged : bool ndarray of shape (m,)
    """

    coef: NDArray[Any]
    intercept: NDArray[Any]
    problem: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the scores of the distinct problems, of shape (n, m)."""
        with one_blas_thread(X.shape[0] * len(self.coef) < PARALLEL):
            scores = np.asarray(X @ self.coef.T)
        return np.asarray(scores + self.intercept)


class LinearProblems:
    """The problems whose targets are the columns of a matrix, over one design.

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

    def __init__(
        self, design: Design, targets: sp.csc_array, loss: Loss, *, memory: int = MEMORY
    ) -> None:
        self.design, self.loss, self.memory = design, loss, memory
        large = np.prod(design.matrix.shape) >= SINGLE
        self.light = design.single() if large else design
        self.problem, first = distinct_columns(targets)
        self.targets = sp.csc_array(targets[:, first])
        self.mean = self._column_means()
        constant = constant_values(self.targets)
        self.constant = constant if design.intercept else np.full_like(constant, np.nan)
        self.open = np.flatnonzero(np.isnan(self.constant))
        self.lanes = Lanes.of(design, self.light, len(self.open)) if knows(loss) else None

    def __len__(self) -> int:
        return len(self.constant)

    def _column_means(self) -> NDArray[np.float64]:
        weight = self.design.weight
        if weight is None:
            return np.asarray(self.targets.sum(axis=0) / self.targets.shape[0], dtype=np.float64)
        column = np.asarray(weight, dtype=np.float64)[:, 0]
        return np.asarray(self.targets.T @ column / column.sum())

    def null_solution(self) -> Array:
        """Return the models that ignore X, of shape (p, m): where a cold solve starts."""
        xp, p = self.design.xp, self.design.matrix.shape[1]
        W = np.zeros((p, len(self)), dtype=np.float64)
        if self.design.intercept:
            W[-1] = np.where(np.isnan(self.constant), self.loss.link(self.mean), 0.0)
        return xp.asarray(W, dtype=self.design.dtype)

    def solve(
        self,
        alpha: float,
        start: Array | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 100,
        trust: NDArray[np.float64] | None = None,
    ) -> Solution:
        """Solve every problem that is not constant.

        Parameters
        ----------
        alpha : float >= 0
            Strength of the penalty.
        start : array of shape (p, m), optional
            Where to start; the models that ignore X by default.
        tol, max_iter
            As for :func:`fbeta.linear.newton.solve_block`.
        trust : ndarray of shape (m,), optional
            How much too low a promise of the preconditioner at the start may be, by experience.

        Returns
        -------
        Solution
        """
        xp = self.design.xp
        cold = start is None
        W = self.null_solution() if start is None else start
        n_iter, converged = np.zeros(len(self), np.intp), np.ones(len(self), np.bool_)
        columns = self.open
        trust = np.full(len(self), DOUBT) if trust is None else trust.copy()
        if self.lanes is not None:
            longest = columns[np.argsort(-self.mean[columns], kind="stable")]
            W, n_iter, certified = self.lanes.solve(
                self.targets, longest, W, self.loss, alpha,
                tol=tol, max_iter=max_iter, cold=cold, trust=trust,
            )  # fmt: skip
            columns, cold = columns[~certified[columns]], False
        blocks = self._blocks(columns)

        def run(columns: NDArray[np.intp]) -> BlockResult:
            y = xp.asarray(self.targets[:, columns].toarray(), dtype=self.design.dtype)
            first = xp.take(W, xp.asarray(columns), axis=1)
            with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
                return solve_block(
                    self.design,
                    self.light,
                    y,
                    self.loss,
                    alpha,
                    first,
                    tol=tol,
                    max_iter=max_iter,
                    cold=cold,
                    used=xp.asarray(n_iter[columns]),
                )

        results = run_threaded(run, blocks, small=self._is_small())
        W = xp.asarray(W, copy=True)
        for columns, result in zip(blocks, results, strict=True):
            W[:, columns] = result.W
            n_iter[columns] += np.asarray(result.n_iter)
            converged[columns] = np.asarray(result.converged)
            trust[columns] = DOUBT  # that of another preconditioner
        return Solution(W, n_iter, converged, trust)

    def _is_small(self) -> bool:
        return bool(self.design.matrix.shape[0] * len(self.open) < PARALLEL)

    def _blocks(self, columns: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Deal problems into blocks of like composition, which take about as long.

        The number of positives tells most about the iterations that a problem takes.
        """
        n, p = self.design.matrix.shape
        threads = 1 if self._is_small() else n_threads()
        # targets, curvatures, those of a trial and a share of the tiles, for each column
        per_column = 8 * (4 * n + 12 * p)
        width = max(1, min(WIDTH, self.memory // (threads * per_column)))
        if not p:  # nothing to fit: no features and no intercept
            return []
        count = threads * -(-len(columns) // (threads * width))
        order = columns[np.argsort(self.mean[columns], kind="stable")]
        return [order[i::count] for i in range(min(count, len(order)))]

    def warn_if_not_converged(
        self,
        solution: Solution,
        alpha: float,
        max_iter: int,
        describe: Callable[[int], str] = str,
    ) -> None:
        """Say which problems did not converge, and what to do about it."""
        failed = np.flatnonzero(~solution.converged)
        if not len(failed):
            return
        columns = [int(np.argmax(self.problem == m)) for m in failed[:10]]
        names = ", ".join(describe(c) for c in columns) + (", ..." if len(failed) > 10 else "")
        warnings.warn(
            f"{len(failed)} of {len(self)} binary problems did not converge in {max_iter} "
            f"iterations at alpha = {alpha:g} ({names}): increase max_iter or alpha, or scale X",
            ConvergenceWarning,
            stacklevel=4,
        )

    def probabilities(self, solution: Solution, design: Design) -> NDArray[Any]:
        """Return the probabilities of every problem for the rows of a design.

        Parameters
        ----------
        solution : Solution
            Of these problems.
        design : Design
            Of n rows, in the coordinates of the problems' design.

        Returns
        -------
        ndarray of shape (n, M)
        """
        with one_blas_thread(design.matrix.shape[0] * len(self) < PARALLEL):
            scores = np.asarray(design.matrix @ design.forward(solution.W))
        out = np.asarray(self.loss.inverse_link(scores))
        known = ~np.isnan(self.constant)
        out[:, known] = self.constant[known]
        return np.asarray(out[:, self.problem])

    def model(self, solution: Solution) -> LinearModel:
        """Return the models in the coordinates of X.

        Parameters
        ----------
        solution : Solution
            Of these problems.

        Returns
        -------
        LinearModel
        """
        with one_blas_thread(self._is_small()):
            coef, intercept = (np.asarray(a) for a in self.design.coefficients(solution.W))
        constant = ~np.isnan(self.constant)
        intercept = np.array(intercept)
        intercept[constant] = self.loss.link(self.constant[constant])
        return LinearModel(
            np.ascontiguousarray(coef.T), intercept, self.problem, solution.n_iter,
            solution.converged,
        )  # fmt: skip


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
    X : ndarray or csr_array of shape (n, d)
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
        As for :func:`fbeta.linear.newton.solve_block`.
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
    >>> fit_linear(X, y, LogisticLoss(), alpha=1.0).coef.round(3).tolist()
    [[0.453]]
    """
    rotate = rotation_pays(X.shape, targets.shape[1])
    design = Design.of(X, weight, intercept=fit_intercept, rotate=rotate)
    problems = LinearProblems(design, targets, loss)
    solution = problems.solve(alpha, tol=tol, max_iter=max_iter)
    problems.warn_if_not_converged(solution, alpha, max_iter, describe)
    return problems.model(solution)


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
    matrix = sp.csc_array(matrix, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    seen: dict[tuple[bytes, bytes], int] = {}
    which = np.empty(matrix.shape[1], dtype=np.intp)
    first: list[int] = []
    for m, (start, stop) in enumerate(zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)):
        key = (matrix.indices[start:stop].tobytes(), matrix.data[start:stop].tobytes())
        which[m] = seen.setdefault(key, len(first))
        if which[m] == len(first):
            first.append(m)
    return which, np.array(first, dtype=np.intp)


def constant_values(targets: sp.csc_array) -> NDArray[np.float64]:
    """Return the value of each column that has only one, NaN for the others."""
    n, m = targets.shape
    out = np.full(m, np.nan)
    for c, (start, stop) in enumerate(zip(targets.indptr[:-1], targets.indptr[1:], strict=True)):
        values = targets.data[start:stop]
        if stop == start:
            out[c] = 0.0
        elif stop - start == n and (values == values[0]).all():
            out[c] = values[0]
    return out
