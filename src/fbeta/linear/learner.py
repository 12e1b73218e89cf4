"""Learners: from X and the targets of a code to a model of their probabilities.

A learner holds how models are fitted, a fitted model holds arrays. ``path`` fits to some rows for
many alphas, in coordinates of X that all folds of a search share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from fbeta._array import Array, is_tensor
from fbeta._validation import check_number, check_solver
from fbeta.linear.design import Design, rotation_pays
from fbeta.linear.models import LinearProbabilities, LinearScores, take_along
from fbeta.linear.objectives import Binary, Objective
from fbeta.linear.problems import MEMORY_BYTES, LinearProblems, Problems, Solution
from fbeta.losses import LogisticLoss, Loss

__all__ = [
    "Learner",
    "LinearLearner",
    "LinearProbabilities",
    "LinearScores",
    "Model",
    "SolverLearner",
    "solve_path",
    "take_rows",
]

# share of the second-order term in an extrapolation: all of it overshoots where the path bends
SECOND_ORDER_SHARE = 0.5

Alphas: TypeAlias = Sequence[float]
Names: TypeAlias = Callable[[int], str]
Rows: TypeAlias = NDArray[np.intp]
Weight: TypeAlias = NDArray[np.float64] | None


def take_rows(X: Any, rows: Any) -> Any:
    """Return some rows of features, or of features in the coordinates of a solver."""
    if isinstance(X, Design):
        return X.take(rows)
    if not is_tensor(X):
        return _safe_indexing(X, rows)
    if isinstance(rows, slice):
        return X[slice(*rows.indices(X.shape[0])), :]
    return take_along(X, rows)


class Model(Protocol):
    """A fitted model."""

    def probabilities(self, X: Any) -> Any:
        """Return what the code of the targets makes statistics of, for n rows."""


Path: TypeAlias = Iterator[tuple[float, Model]]


class Learner(ABC):
    """How to fit models of targets."""

    @abstractmethod
    def fit(self, X: Any, targets: Any, weight: Weight, alpha: Any, name: Names = str) -> Model:
        """Fit a model of the targets, as the code makes them, of n rows of X.

        ``weight`` holds positive weights, ``alpha`` is the regularisation strength of learners that
        have one, and ``name`` says what a target is called in a warning.
        """

    def share(self, X: Any, weight: Weight) -> Any:
        """Return X as :meth:`path` takes it: what all folds and alphas of a search share."""
        return X

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Fit to some rows for each alpha, and yield alpha and the model.

        Models take rows of ``shared`` in place of X; targets are those of the given rows, weights
        of all.
        """
        X, own = take_rows(shared, rows), None if weight is None else weight[rows]
        for alpha in alphas:
            yield alpha, self.fit(X, targets, own, alpha)


def solve_path(
    problems: Problems, alphas: Sequence[float], *, tol: float = 1e-6, max_iter: int = 100
) -> Iterator[tuple[float, Solution]]:
    """Solve the problems for each alpha, from the strongest to the weakest, and yield both.

    Each solve starts where the solutions before it lead, as a function of ``ln alpha``: the
    coefficients of separable problems grow like ``ln(1 / alpha)``.
    """
    known: list[tuple[float, Array]] = []
    for alpha in sorted(set(alphas), reverse=True):
        start = extrapolate(known, alpha)
        solution = problems.solve(alpha, start, tol=tol, max_iter=max_iter)
        known = [*known[-2:], (alpha, solution.W)]
        yield alpha, solution


def extrapolate(known: list[tuple[float, Array]], alpha: float) -> Array | None:
    """Continue up to three solutions (alpha, W), the strongest first, to ``alpha``.

    By divided differences in ``ln alpha``; None where no solution is known.
    """
    if not known:
        return None
    if len(known) == 1 or alpha == 0:
        return known[-1][1]
    t = [float(np.log(a)) for a, _ in known]
    W = [w for _, w in known]
    ahead = float(np.log(alpha)) - t[-1]
    slope = (W[-1] - W[-2]) / (t[-1] - t[-2])
    out = W[-1] + ahead * slope
    if len(known) == 3:
        before = (W[-2] - W[-3]) / (t[-2] - t[-3])
        bend = (slope - before) / (t[-1] - t[-3])
        out = out + SECOND_ORDER_SHARE * ahead * (float(np.log(alpha)) - t[-2]) * bend
    return out


@dataclass(frozen=True)
class SolverLearner(Learner):
    """Models that :mod:`fbeta.linear` solves for.

    ``objective`` is a type with a class method ``of`` from targets to the objective.
    """

    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    objective: type[Objective] = field(default=Binary, kw_only=True)

    def __post_init__(self) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)

    def make_objective(self, targets: Any) -> Objective:
        """Return the objective of targets as a code makes them."""
        return self.objective.of(targets)

    def problems_of(
        self, design: Design, objective: Objective, targets: Any, memory: int = MEMORY_BYTES
    ) -> Problems:
        """Return the problems of an objective and its targets over a design."""
        return Problems(design, objective, getattr(targets, "values", targets), memory=memory)

    def fit(self, X: Any, targets: Any, weight: Weight, alpha: float, name: Names = str) -> Any:
        """Fit to the targets of n rows."""
        alpha, objective = check_number("alpha", alpha), self.make_objective(targets)
        columns = targets.shape[1] if objective.separates_columns else objective.n_linear
        problems = self.problems_of(self._design(X, weight, columns), objective, targets)
        solution = problems.solve(alpha, tol=self.tol, max_iter=self.max_iter)
        problems.warn_if_not_converged(solution, alpha, self.max_iter, name)
        return problems.model(solution)

    def share(self, X: Any, weight: Weight) -> Design:
        """Return X in coordinates in which the problems are easy."""
        return self._design(X, weight, np.inf)

    def _design(self, X: Any, weight: Weight, columns: float) -> Design:
        """Return X, rotated if that pays for so many columns of scores."""
        rotate = self.objective.always_rotates or rotation_pays(X.shape, columns)
        return Design.of(X, weight, intercept=self.fit_intercept, rotate=rotate)

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Solve from the strongest alpha to the weakest, each from the solutions before."""
        problems = self.problems_of(shared.take(rows), self.make_objective(targets), targets)
        for alpha, solution in solve_path(problems, alphas, tol=self.tol, max_iter=self.max_iter):
            problems.warn_if_not_converged(solution, alpha, self.max_iter)
            yield alpha, solution


@dataclass(frozen=True)
class LinearLearner(SolverLearner):
    """One linear model for each column of 0/1 targets.

    Examples
    --------
    >>> X, targets = np.array([[-1.0], [0.0], [1.0], [2.0]]), sp.csc_array([[0], [1], [0], [1]])
    >>> model = LinearLearner().fit(X, targets, None, alpha=1.0)
    >>> model.probabilities(X).ravel().round(2).tolist()
    [0.34, 0.44, 0.56, 0.66]
    """

    loss: Loss = LogisticLoss()  # noqa: RUF009 - it has no state
    unfold: bool = False  # keep coefficients for each target, also where targets are equal

    def make_objective(self, targets: Any) -> Binary:
        """Return the binary loss of each column."""
        return Binary(self.loss)

    def problems_of(
        self, design: Design, objective: Objective, targets: Any, memory: int = MEMORY_BYTES
    ) -> LinearProblems:
        """Return the binary problems."""
        return LinearProblems(design, targets, self.loss, memory=memory)

    def fit(
        self, X: Any, targets: sp.csc_array, weight: Weight, alpha: float, name: Names = str
    ) -> LinearProbabilities:
        """Fit to targets of shape (n, M)."""
        model: LinearProbabilities = super().fit(X, targets, weight, alpha, name)
        return model.unfold() if self.unfold else model
