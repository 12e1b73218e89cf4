"""Regularised linear models of binary targets, all over one X."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, dense_columns, is_accelerator, to_numpy
from fbeta.linear.compiled import Compiled
from fbeta.linear.design import Design
from fbeta.linear.models import LinearProbabilities
from fbeta.linear.objectives import Binary
from fbeta.linear.problems import MEMORY_BYTES, Problems, Solution
from fbeta.losses import LogisticLoss, Loss
from fbeta.statistics.targets import constant_values, distinct_columns

__all__ = ["LinearProblems", "independent_start"]

START_TOL = 1e-2  # of the binary problems that other ones start from


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

    def __init__(
        self, design: Design, targets: sp.csc_array, loss: Loss, *, memory: int = MEMORY_BYTES
    ) -> None:
        self.loss = loss
        self.problem, first = distinct_columns(targets)
        alone = len(first) == targets.shape[1]
        matrix = sp.csc_array(targets if alone else targets[:, first])
        self.mean = _column_means(matrix, design.weight)
        constant = constant_values(matrix)
        self.constant = constant if design.intercept else np.full_like(constant, np.nan)
        super().__init__(design, _Columns(loss, self.constant, self.mean), matrix, memory=memory)

    def warn_if_not_converged(
        self,
        solution: Solution,
        alpha: float,
        max_iter: int,
        describe: Callable[[int], str] = str,
    ) -> None:
        """Warn of problems that did not converge, by the first column that each of them is."""
        super().warn_if_not_converged(
            solution, alpha, max_iter, lambda m: describe(int(np.argmax(self.problem == m)))
        )

    def expanded(self, solution: Solution, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return finite coefficients of every column; constant ones have the link of the mean."""
        W = np.asarray(to_numpy(solution.W))[:, self.problem]
        unknown = ~np.isnan(self.constant[self.problem])
        W[:, unknown] = 0.0
        if self.design.intercept:
            W[-1, unknown] = self.loss.link(mean[unknown])
        return np.where(np.isfinite(W), W, 0.0)

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probabilities of all columns of the targets for n rows of a design, (n, M)."""
        xp, there = design.xp, {"device": design.device}
        out = super().probabilities(solution, design)
        constant = xp.asarray(self.constant, dtype=out.dtype, **there)
        out = xp.where(xp.isnan(constant), out, constant)
        return xp.take(out, xp.asarray(self.problem, **there), axis=1)

    def model(self, solution: Solution) -> LinearProbabilities:
        """Return the models in the coordinates of X."""
        xp = self.design.xp
        coef, intercept = self.coefficients(solution)
        constant = xp.asarray(self.constant, dtype=intercept.dtype, device=self.design.device)
        intercept = xp.where(xp.isnan(constant), intercept, self.loss.link(constant))
        n_iter, converged = solution.n_iter, solution.converged
        return LinearProbabilities(coef, intercept, self.problem, n_iter, converged, self.loss)


class _Columns(Binary):
    """A binary loss for each of m distinct columns, of which constant ones are not solved."""

    def __init__(
        self, loss: Loss, constant: NDArray[np.float64], mean: NDArray[np.float64]
    ) -> None:
        super().__init__(loss)
        self.constant, self.mean = constant, mean

    @property
    def counts(self) -> NDArray[np.intp]:
        """One column for each problem."""
        return np.ones(len(self.mean), np.intp)

    def order(self, targets: Any) -> NDArray[np.intp]:
        """Return the columns that are not constant; those with more positives take longer."""
        solved = np.flatnonzero(np.isnan(self.constant))
        return solved[np.argsort(-self.mean[solved], kind="stable")]

    def batch_targets(self, design: Design, targets: Any, problems: NDArray[np.intp]) -> Array:
        """Return some columns."""
        xp, device = design.xp, design.device
        # 0 and 1 are exact in any type: accelerators, whose memory is scarce, get the smallest
        small = is_accelerator(device) and bool((targets.data == 1).all())
        dtype = xp.float32 if small and design.holds_in(xp.float32) else xp.float64
        return dense_columns(xp, device, targets[:, problems], dtype)

    def compiled(self, design: Design, light: Design, targets: Any) -> Compiled | None:
        """Return the problems as the compiled solver takes them."""
        solved = int(np.isnan(self.constant).sum())
        return Compiled.binary(design, light, targets, self.loss, solved)

    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Start at the models that ignore X, (p, m)."""
        # by columns, as the compiled solver has them
        W = np.zeros((design.matrix.shape[1], len(self.mean)), order="F")
        if design.intercept:
            W[-1] = np.where(np.isnan(self.constant), self.loss.link(self.mean), 0.0)
        return design.xp.asarray(W, device=design.device)


def _column_means(matrix: sp.csc_array, weight: Any) -> NDArray[np.float64]:
    if weight is None:
        return np.asarray(matrix.sum(axis=0) / matrix.shape[0], dtype=np.float64)
    column = to_numpy(weight).astype(np.float64)[:, 0]
    return np.asarray(matrix.T @ column / column.sum())


def independent_start(
    design: Design, targets: Any, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a logistic regression to each column of targets, (n, M), roughly.

    Returns the coefficients in the coordinates of the design, (p, M), and the values of constant
    columns, which have none, NaN elsewhere.
    """
    problems = LinearProblems(design, sp.csc_array(targets), LogisticLoss())
    W = to_numpy(problems.solve(alpha, tol=START_TOL).W)[:, problems.problem]
    return W, problems.constant[problems.problem]
