"""Many multinomial logistic regressions over one X.

Problem m has classes c of its own and minimises ``sum_i c_i (ln sum_c exp(x_i.w_c) - x_i.w_{y_i}) +
alpha / 2 sum_c |w_c|^2``: each class has a weight vector and the penalty is on all of them;
intercepts are not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.linear.binary import LinearProblems
from fbeta.linear.compiled import Compiled
from fbeta.linear.design import Design
from fbeta.linear.objectives import Multinomial
from fbeta.linear.problems import Problems, Solution
from fbeta.losses import LogisticLoss

__all__ = ["SoftmaxModel", "SoftmaxProblems", "fit_softmax"]

ROUGH = 1e-2  # relative accuracy of the binary problems that the multinomial ones start from


@dataclass(frozen=True)
class SoftmaxModel:
    """Class scores ``X @ coef.T + intercept`` of every problem.

    Attributes
    ----------
    coef : ndarray of shape (M, d)
        One row for each class of each problem.
    intercept : ndarray of shape (M,)
    first : ndarray of shape (m + 1,)
        Where the classes of each of the m problems begin, and the number M of all.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where there is one class only.
    converged : bool ndarray of shape (m,)
    """

    coef: Array
    intercept: Array
    first: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def probabilities(self, X: Any) -> Array:
        """Return the probability of each class within its problem, of shape (n, M)."""
        return softmax(np.asarray(X @ self.coef.T) + self.intercept, self.first)


class SoftmaxProblems(Problems):
    """Multinomial problems over one design.

    Parameters
    ----------
    design : Design
        With n rows.
    classes : int ndarray of shape (n, m)
        ``classes[i, m]`` is the class of row i in problem m; each problem has the classes
        0, 1, ..., its largest, and each of them occurs.
    """

    kind = "multinomial"

    def __init__(self, design: Design, classes: NDArray[np.intp]) -> None:
        super().__init__(design)
        self.classes = classes
        self.counts = classes.max(axis=0) + 1 if classes.size else np.zeros(0, np.intp)
        self.first = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.intp)
        others = (classes > 0).sum(axis=0)
        order = np.argsort(-others, kind="stable")
        self.open = order[self.counts[order] > 1]
        self.compiled = Compiled.multinomial(design, self.light, classes, self.first)
        binary = sp.csc_array((classes > 0).astype(np.int8))
        self.binary = LinearProblems(design, binary, LogisticLoss())

    @property
    def floor(self) -> float:
        """A share of the objective of two equally probable classes."""
        return 1e-4 * self.design.total_weight * float(np.log(2))

    def objective(self, problems: NDArray[np.intp]) -> Multinomial:
        """Return the objective of problems with these classes."""
        return Multinomial(self.counts[problems])

    def targets(self, problems: NDArray[np.intp]) -> Any:
        """Return the classes of the rows."""
        return self.design.xp.asarray(self.classes[:, problems], device=self.design.device)

    def null_solution(self, alpha: float) -> Array:
        """Return where to start, of shape (p, M): at logistic regressions of "not class 0".

        The other classes get their share among them, for all x: a good place to start. The weights
        of a problem sum to 0 over its classes.
        """
        solved = np.asarray(self.binary.solve(alpha, tol=ROUGH).W)[:, self.binary.problem]
        solved = np.where(np.isfinite(solved), solved, 0.0)
        W = np.repeat(solved / self.counts, self.counts, axis=1)
        W[:, self.first[:-1]] = -solved * (self.counts - 1) / self.counts
        if self.design.intercept:
            weight = None if self.design.weight is None else self.design.weight[:, 0]
            for m, (start, stop) in enumerate(zip(self.first[:-1], self.first[1:], strict=True)):
                share = np.bincount(self.classes[:, m], weights=weight)[1:]
                W[-1, start + 1 : stop] += np.log(share / share.sum()) if len(share) else 0.0
                W[-1, start:stop] -= W[-1, start:stop].mean()
        return W

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probability of each class for the rows of a design, of shape (n, M)."""
        return softmax(np.asarray(self.scores(solution, design)), self.first)

    def model(self, solution: Solution) -> SoftmaxModel:
        """Return the models in the coordinates of X."""
        coef, intercept = self.coefficients(solution)
        return SoftmaxModel(coef, intercept, self.first, solution.n_iter, solution.converged)


def softmax(scores: Array, first: NDArray[np.intp]) -> Array:
    """Return the probabilities of the classes within their problems.

    Parameters
    ----------
    scores : ndarray of shape (n, M)
    first : ndarray of shape (m + 1,)
        Where the classes of each problem begin.

    Returns
    -------
    ndarray of shape (n, M)

    Examples
    --------
    >>> softmax(np.array([[0.0, 0.0, 5.0]]), np.array([0, 2, 3])).tolist()
    [[0.5, 0.5, 1.0]]
    """
    if not scores.shape[1]:
        return scores
    counts = np.diff(first)
    top = np.maximum.reduceat(scores, first[:-1], axis=1)
    e = np.exp(scores - np.repeat(top, counts, axis=1))
    return np.asarray(e / np.repeat(np.add.reduceat(e, first[:-1], axis=1), counts, axis=1))


def fit_softmax(
    X: Any,
    classes: NDArray[np.intp],
    alpha: float,
    *,
    weight: Array | None = None,
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
        As for :class:`SoftmaxProblems`.
    alpha : float >= 0
        Strength of the penalty.
    weight : ndarray of shape (n,), optional
        Positive weights of the rows.
    fit_intercept : bool
        Whether there are intercepts.
    tol, max_iter
        As for :meth:`Problems.solve`.

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
    problems = SoftmaxProblems(Design.of(X, weight, intercept=fit_intercept), classes)
    return problems.model(problems.solve_and_warn(alpha, tol=tol, max_iter=max_iter))
