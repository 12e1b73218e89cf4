"""Labels with linear scores, and linear potentials of how many there are.

``ln P(y | x) = sum_j y_j (w_j.x + b_j) + v_|y|.x + c_|y| - ln Z(x)`` over the sizes |y| that were
seen: an exact log-linear model, convex in all its coefficients, with independent labels where v and
c vanish. The penalty ``alpha / 2`` is on all w and v; intercepts have one that no score feels, and
that bounds those of labels which are always or never there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, is_tensor, to_numpy
from fbeta.linear.binary import LinearProblems, tensor_scores
from fbeta.linear.design import Design
from fbeta.linear.objectives import Cardinality
from fbeta.linear.problems import Problems, Solution
from fbeta.losses import LogisticLoss

__all__ = ["CardinalityModel", "CardinalityProblems"]

ROUGH = 1e-2  # relative accuracy of the independent labels that a solve starts from
DENSE = 1 << 24  # numbers of all covariances up to which they are kept
CERTAIN = 12.0  # how much more than ln n the score of a constant label starts with


@dataclass(frozen=True)
class CardinalityModel:
    """Scores ``X @ coef.T + intercept`` of the labels and of the sizes.

    Attributes
    ----------
    coef : array of shape (s + C, d)
    intercept : array of shape (s + C,)
    sizes : ndarray of shape (C,)
        Increasing sizes that are possible.
    n_iter : ndarray of shape (1,)
        Newton iterations.
    converged : bool ndarray of shape (1,)
    """

    coef: Array
    intercept: Array
    sizes: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def probabilities(self, X: Any) -> Array:
        """Return the probabilities of labels that are independent given their number, and of that.

        Of shape (n, s + C), as :class:`fbeta.statistics.codes.SizedCode` has them.
        """
        if is_tensor(X):
            return laws(tensor_scores(X, self.coef, self.intercept), self.sizes)
        return laws(X @ self.coef.T + self.intercept, self.sizes)

    @property
    def most_iter(self) -> int:
        """Newton iterations."""
        return int(self.n_iter.max(initial=0))


def laws(scores: Array, sizes: NDArray[np.intp]) -> Array:
    """Return the laws of the labels, given their number, and of that, for scores of both.

    Parameters
    ----------
    scores : array of shape (n, s + C)
    sizes : ndarray of shape (C,)
        Increasing.

    Returns
    -------
    array of shape (n, s + C)

    Examples
    --------
    >>> laws(np.array([[0.0, 0.0, -1.0, 1.0]]), np.array([0, 1])).round(2).tolist()
    [[0.33, 0.33, 0.06, 0.94]]
    """
    xp = array_namespace(scores)
    scores = xp.astype(scores, xp.float64, copy=False)
    objective = Cardinality(scores.shape[1] - len(sizes), sizes)
    return objective.probabilities(scores)


class CardinalityProblems(Problems):
    """The one problem of a cardinality model.

    Parameters
    ----------
    design : Design
        With n rows.
    targets : csc_array of shape (n, s + C)
        0/1, as :class:`fbeta.statistics.codes.SizedCode` has them.
    sizes : ndarray of shape (C,)
        The sizes that the last C columns stand for.
    """

    kind = "cardinality"
    factorises = False

    def __init__(self, design: Design, targets: sp.csc_array, sizes: NDArray[np.intp]) -> None:
        super().__init__(design)
        self.light = design.astype(design.xp.float64)
        self.matrix, self.sizes = targets, sizes
        self.first = np.array([0, targets.shape[1]])
        self.open, self.compiled = np.zeros(1, np.intp), None
        labels = targets[:, : targets.shape[1] - len(sizes)]
        self.labels = LinearProblems(design, labels, LogisticLoss())

    @property
    def floor(self) -> float:
        """A share of the objective of labels with probability 1/2."""
        return 1e-4 * self.design.total_weight * float(np.log(2))

    def objective(self, problems: NDArray[np.intp]) -> Cardinality:
        """Return the objective."""
        n, c = self.matrix.shape
        return Cardinality(c - len(self.sizes), self.sizes, dense=n * c * c <= DENSE)

    def targets(self, problems: NDArray[np.intp]) -> Array:
        """Return the labels and the sizes of the rows."""
        dense = self.matrix.toarray().astype(np.float64)
        return self.design.xp.asarray(dense, device=self.design.device)

    def null_solution(self, alpha: float) -> Array:
        """Return where to start, of shape (p, s + C): at independent labels."""
        xp, problems = self.design.xp, self.labels
        W = to_numpy(problems.solve(alpha, tol=ROUGH).W)[:, problems.problem]
        if self.design.intercept:
            constant = problems.constant[problems.problem]
            certain = CERTAIN + np.log(self.design.total_weight)
            W[-1] = np.where(np.isnan(constant), W[-1], (2 * constant - 1) * certain)
        W = np.concatenate([W, np.zeros((len(W), len(self.sizes)))], axis=1)
        # the shortest of those with the same scores of sets
        return self.objective(self.open).project(xp.asarray(W, device=self.design.device))

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the laws of labels and sizes for the rows of a design, of shape (n, s + C)."""
        return laws(self.scores(solution, design), self.sizes)

    def model(self, solution: Solution) -> CardinalityModel:
        """Return the model in the coordinates of X."""
        coef, intercept = self.coefficients(solution)
        return CardinalityModel(coef, intercept, self.sizes, solution.n_iter, solution.converged)
