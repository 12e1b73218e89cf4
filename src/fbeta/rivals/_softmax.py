"""Many multinomial logistic regressions over one X.

Problem m has classes c of its own and minimises ``sum_i c_i (ln sum_c exp(x_i.w_c) - x_i.w_{y_i}) +
alpha / 2 sum_c |w_c|^2``: each class has a weight vector and the penalty is on all of them;
intercepts are not penalised.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fbeta._threads import n_threads, run_threaded
from fbeta.linear import Design, LinearProblems
from fbeta.linear.lanes import Lanes
from fbeta.linear.newton import DOUBT, squared
from fbeta.linear.problems import Solution
from fbeta.losses import LogisticLoss
from fbeta.rivals._softmax_newton import (
    FLAT,
    FORCING,
    Block,
    Groups,
    minimise,
    softmax,
    start_from,
    value_floor,
)

__all__ = ["SoftmaxModel", "SoftmaxProblems", "fit_softmax"]

Array = NDArray[Any]
ROUGH = 1e-2  # relative accuracy of the binary problems that the multinomial ones start from
WIDTH = 320  # classes of a block: enough for products at full speed
MEMORY = 1 << 30  # bytes of working memory for the blocks that are solved at the same time


@dataclass(frozen=True)
class SoftmaxModel:
    """Class scores ``X @ coef.T + intercept`` of every problem.

    Attributes
    ----------
    coef : ndarray of shape (M, d)
        One row for each class of each problem.
    intercept : ndarray of shape (M,)
    groups : Groups
        Which of the M classes belong to which of the m problems.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where there is one class only.
    converged : bool ndarray of shape (m,)
    """

    coef: Array
    intercept: Array
    groups: Groups
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def probabilities(self, X: Any) -> Array:
        """Return the probability of each class within its problem, of shape (n, M)."""
        scores = np.asarray(X @ self.coef.T) + self.intercept
        return softmax(scores, self.groups)[0]


class SoftmaxProblems:
    """Multinomial problems over one design.

    Parameters
    ----------
    design : Design
        With n rows.
    classes : int ndarray of shape (n, m)
        ``classes[i, m]`` is the class of row i in problem m; each problem has the classes
        0, 1, ..., its largest, and each of them occurs.

    Attributes
    ----------
    groups : Groups
        Which of the M classes belong to which of the m problems.
    """

    def __init__(self, design: Design, classes: NDArray[np.intp]) -> None:
        self.design, self.classes = design, classes
        self.light = design.single()
        self.squares = squared(self.light.matrix)
        self.groups = Groups(classes.max(axis=0) + 1 if classes.size else np.zeros(0, np.intp))
        self.lanes = Lanes.of(design, self.light, len(self.groups.problem))
        binary = sp.csc_array((classes > 0).astype(np.int8))
        self.binary = LinearProblems(design, binary, LogisticLoss())

    def _first(self, alpha: float, max_iter: int) -> Array:
        """Return where to start, of shape (p, M): at logistic regressions of "not class 0"."""
        W = np.asarray(self.binary.solve(alpha, tol=ROUGH, max_iter=max_iter).W)
        W = start_from(self.design, self.groups, self.classes, W[:, self.binary.problem])
        return W.astype(self.design.dtype)

    def solve(
        self,
        alpha: float,
        start: Array | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 100,
        trust: Array | None = None,
    ) -> Solution:
        """Solve every problem of two classes or more.

        Parameters
        ----------
        alpha : float >= 0
            Strength of the penalty.
        start : ndarray of shape (p, M), optional
            Where to start.
        tol, max_iter
            As for :func:`fit_softmax`.
        trust : ndarray of shape (m,), optional
            As for :meth:`fbeta.linear.LinearProblems.solve`.

        Returns
        -------
        Solution
        """
        W = self._first(alpha, max_iter) if start is None else start.copy()
        m = len(self.groups)
        n_iter, converged = np.zeros(m, dtype=np.intp), np.ones(m, dtype=np.bool_)
        trust = np.full(m, DOUBT) if trust is None else trust.copy()
        first = np.full(m, DOUBT)
        if self.lanes is not None:
            W, n_iter, good = self.lanes.solve_softmax(
                self.classes, self.groups.counts, W, alpha, tol=tol, max_iter=max_iter,
                floor=value_floor(self.design), forcing=FORCING, flat=FLAT,
                trust=trust,
            )  # fmt: skip
            first[good] = 1.0

        def run(problems: NDArray[np.intp]) -> None:
            columns, counts = self.groups.columns(problems), self.groups.counts[problems]
            classes = self.classes[:, problems]
            block = Block(self.design, self.light, self.squares, classes, counts, alpha)
            left = max_iter - n_iter[problems]
            with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
                W[:, columns], more, converged[problems] = minimise(
                    block, W[:, columns], tol, left, first[problems]
                )
            n_iter[problems] += more

        run_threaded(run, self._blocks())
        return Solution(W, n_iter, converged, trust)

    def _blocks(self) -> list[NDArray[np.intp]]:
        """Deal the problems with two classes or more into blocks of at most about WIDTH classes.

        The number of rows outside the first class tells most about the iterations of a problem;
        each block gets problems of all kinds and takes about as long.
        """
        n, p = self.design.matrix.shape
        counts, threads = self.groups.counts, n_threads()
        width = max(1, min(WIDTH, MEMORY // (threads * 8 * (6 * n + 10 * p))))
        order = np.argsort((self.classes > 0).sum(axis=0), kind="stable")
        order = order[counts[order] > 1]
        blocks = threads * -(-int(counts[order].sum()) // (threads * width))
        if not p:  # nothing to fit: no features and no intercept
            return []
        return [np.sort(order[i::blocks]) for i in range(min(blocks, len(order)))]

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probability of each class for the rows of a design, of shape (n, M).

        The design must have the coordinates of the problems' own.
        """
        return softmax(np.asarray(design.matrix @ design.forward(solution.W)), self.groups)[0]

    def model(self, solution: Solution) -> SoftmaxModel:
        """Return the models in the coordinates of X."""
        coef, intercept = (np.asarray(a) for a in self.design.coefficients(solution.W))
        return SoftmaxModel(
            np.ascontiguousarray(coef.T), intercept, self.groups, solution.n_iter,
            solution.converged,
        )  # fmt: skip


def fit_softmax(
    X: Any,
    classes: NDArray[np.intp],
    alpha: float,
    *,
    weight: NDArray[np.float64] | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 100,
) -> SoftmaxModel:
    """Fit one multinomial logistic regression for each column of ``classes``.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
        Features, float32 or float64.
    classes : int ndarray of shape (n, m)
        ``classes[i, m]`` is the class of row i in problem m; each problem has the classes
        0, 1, ..., its largest, and each of them occurs.
    alpha : float >= 0
        Strength of the penalty.
    weight : ndarray of shape (n,), optional
        Positive weights of the rows.
    fit_intercept : bool
        Whether there are intercepts.
    tol : float
        A problem has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.

    Returns
    -------
    SoftmaxModel

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = fit_softmax(X, np.array([[0], [0], [1], [2]]), alpha=0.1)
    >>> model.probabilities(X).argmax(axis=1).tolist()
    [0, 0, 1, 2]
    """
    design = Design.of(X, weight, intercept=fit_intercept)
    problems = SoftmaxProblems(design, classes)
    solution = problems.solve(alpha, tol=tol, max_iter=max_iter)
    warn_if_not_converged(solution, max_iter)
    return problems.model(solution)


def warn_if_not_converged(solution: Solution, max_iter: int) -> None:
    """Say how many problems did not converge, and what to do about it."""
    failed, problems = int((~solution.converged).sum()), len(solution.converged)
    if failed:
        warnings.warn(
            f"{failed} of {problems} multinomial problems did not converge in {max_iter} "
            "iterations: increase max_iter or alpha, or scale X",
            ConvergenceWarning,
            stacklevel=4,
        )
