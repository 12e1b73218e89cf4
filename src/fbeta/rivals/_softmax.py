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
from fbeta.losses import LogisticLoss
from fbeta.rivals._softmax_newton import Block, Groups, minimise, softmax

__all__ = ["SoftmaxModel", "fit_softmax"]

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
    light = design.astype(np.float32)
    squares = None if sp.issparse(light.matrix) else light.matrix**2
    m = classes.shape[1]
    groups = Groups(classes.max(axis=0) + 1 if m else np.zeros(0, dtype=np.intp))
    W = np.zeros((len(design.penalised), len(groups.problem)), dtype=design.dtype)
    n_iter, converged = np.zeros(m, dtype=np.intp), np.ones(m, dtype=np.bool_)
    first = LinearProblems(design, sp.csc_array((classes > 0).astype(np.int8)), LogisticLoss())
    binary = np.asarray(first.solve(alpha, tol=ROUGH, max_iter=max_iter).W)[:, first.problem]

    def run(problems: NDArray[np.intp]) -> None:
        counts = groups.counts[problems]
        block = Block(design, light, squares, classes[:, problems], counts, alpha)
        with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
            start = block.start(binary[:, problems])
            solution, n_iter[problems], converged[problems] = minimise(block, start, tol, max_iter)
        W[:, groups.columns(problems)] = solution

    run_threaded(run, _blocks(groups, classes, design.matrix.shape))
    _warn_if_not_converged(converged, max_iter)
    coef, intercept = (np.asarray(a) for a in design.coefficients(W))
    return SoftmaxModel(np.ascontiguousarray(coef.T), intercept, groups, n_iter, converged)


def _blocks(groups: Groups, classes: Array, shape: tuple[int, int]) -> list[NDArray[np.intp]]:
    """Deal the problems with two classes or more into blocks of at most about WIDTH classes.

    The number of rows outside the first class tells most about the iterations of a problem; each
    block gets problems of all kinds and takes about as long.
    """
    n, p = shape
    threads = n_threads()
    width = max(1, min(WIDTH, MEMORY // (threads * 8 * (6 * n + 10 * p))))
    order = np.argsort((classes > 0).sum(axis=0), kind="stable")
    order = order[groups.counts[order] > 1]
    count = threads * -(-int(groups.counts[order].sum()) // (threads * width))
    return [np.sort(order[i::count]) for i in range(min(count, len(order)))]


def _warn_if_not_converged(converged: NDArray[np.bool_], max_iter: int) -> None:
    failed = int((~converged).sum())
    if failed:
        warnings.warn(
            f"{failed} of {len(converged)} multinomial problems did not converge in {max_iter} "
            "iterations: increase max_iter or alpha, or scale X",
            ConvergenceWarning,
            stacklevel=4,
        )
