"""Learners: from X and the targets of a code to a model of their probabilities.

A learner holds how models are fitted, a fitted model holds arrays. ``path`` fits to some rows for
many strengths of regularisation, in coordinates of X that all folds of a search share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from fbeta._array import array_namespace, is_tensor
from fbeta._validation import check_number, check_solver
from fbeta.linear import (
    Design,
    LinearModel,
    LinearProblems,
    SoftmaxProblems,
    solve_path,
)
from fbeta.linear.design import rotation_pays
from fbeta.losses import LogisticLoss, Loss

__all__ = ["Learner", "LinearLearner", "LinearProbabilities", "LinearScores", "Model",
           "SoftmaxLearner", "SolverLearner", "count_rows", "take_rows"]  # fmt: skip

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


def take_along(values: Any, places: Rows, axis: int = 0) -> Any:
    """Return the entries of an array of any library at some places along an axis."""
    xp = array_namespace(values)
    return xp.take(values, xp.asarray(places, device=values.device), axis=axis)


def count_rows(X: Any) -> int:
    """Return the number of rows of what :func:`take_rows` takes."""
    return int(X.matrix.shape[0] if isinstance(X, Design) else _num_samples(X))


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

        ``weight`` holds positive weights of the rows, ``alpha`` is the strength of regularisation,
        for learners that have one, and ``name`` says what a target is called in a warning.
        """

    def share(self, X: Any, weight: Weight) -> Any:
        """Return X as :meth:`path` takes it: what all folds and strengths of a search share."""
        return X

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Fit to some rows for each strength, and yield the strength and the model.

        The models take rows of ``shared`` in place of X. The targets are those of the given rows,
        the weights those of all.
        """
        X, own = take_rows(shared, rows), None if weight is None else weight[rows]
        for alpha in alphas:
            yield alpha, self.fit(X, targets, own, alpha)


@dataclass(frozen=True)
class Solved:
    """A model in the coordinates in which its problems were solved."""

    problems: Any
    solution: Any

    def probabilities(self, X: Design) -> NDArray[Any]:
        """Return the probabilities of the targets, of shape (n, M)."""
        out: NDArray[Any] = self.problems.probabilities(self.solution, X)
        return out


@dataclass(frozen=True)
class SolverLearner(Learner):
    """Models that :mod:`fbeta.linear` solves for, with the parameters of its solver."""

    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    by_sums: ClassVar[bool] = False  # whether it can be fitted to blocks of rows

    def __post_init__(self) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)

    @abstractmethod
    def problems(self, design: Design, targets: Any) -> Any:
        """Return the problems of the targets over a design."""

    @abstractmethod
    def count(self, targets: Any) -> int:
        """Return how many columns of coefficients share the cost of a rotation of X."""

    def fit(self, X: Any, targets: Any, weight: Weight, alpha: float, name: Names = str) -> Any:
        """Fit to the targets of n rows; problems that are no single targets have no names."""
        return self._solve(X, targets, weight, alpha)

    def _solve(self, X: Any, targets: Any, weight: Weight, alpha: float, name: Names = str) -> Any:
        alpha = check_number("alpha", alpha)
        problems = self.problems(self._design(X, weight, self.count(targets)), targets)
        settings: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        return problems.model(problems.solve_and_warn(alpha, describe=name, **settings))

    def share(self, X: Any, weight: Weight) -> Design:
        """Return X in coordinates in which the problems are easy."""
        return self._design(X, weight, np.inf)

    def _design(self, X: Any, weight: Weight, columns: float) -> Design:
        rotate = rotation_pays(X.shape, columns)
        return Design.of(X, weight, intercept=self.fit_intercept, rotate=rotate)

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Solve from the strongest to the weakest, each from the solutions before."""
        problems = self.problems(shared.take(rows), targets)
        for alpha, solution in solve_path(problems, alphas, tol=self.tol, max_iter=self.max_iter):
            problems.warn_if_not_converged(solution, alpha, self.max_iter)
            yield alpha, Solved(problems, solution)


@dataclass(frozen=True)
class LinearProbabilities(LinearModel):
    """Linear scores of targets, and the loss whose link makes probabilities of them."""

    loss: Loss

    def probabilities(self, X: Any) -> Any:
        """Return the probabilities of the targets, of shape (n, M)."""
        distinct: Any = self.loss.inverse_link(self.scores(X))
        return take_along(distinct, self.problem, axis=1)

    @property
    def most_iter(self) -> int:
        """Most Newton iterations of a problem."""
        return int(self.n_iter.max(initial=0))


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

    by_sums: ClassVar[bool] = True
    loss: Loss = LogisticLoss()  # noqa: RUF009 - it has no state
    unfold: bool = False  # keep coefficients for each target, also where targets are equal

    def fit(
        self, X: Any, targets: sp.csc_array, weight: Weight, alpha: float, name: Names = str
    ) -> LinearProbabilities:
        """Fit to targets of shape (n, M)."""
        return self.wrap(self._solve(X, targets, weight, alpha, name))

    def wrap(self, model: LinearModel) -> LinearProbabilities:
        """Return the probabilities that linear scores stand for."""
        arrays: dict[str, Any] = vars(model)
        if self.unfold:
            arrays = {k: take_along(values, model.problem) for k, values in arrays.items()}
            arrays["problem"] = np.arange(len(model.problem))
        return LinearProbabilities(**arrays, loss=self.loss)

    def problems(self, design: Design, targets: sp.csc_array) -> LinearProblems:
        """Return the binary problems."""
        return LinearProblems(design, targets, self.loss)

    def count(self, targets: sp.csc_array) -> int:
        """Return the number of targets."""
        return int(targets.shape[1])


@dataclass(frozen=True)
class SoftmaxLearner(SolverLearner):
    """Multinomial regressions, one for each column of classes."""

    def problems(self, design: Design, targets: NDArray[np.intp]) -> SoftmaxProblems:
        """Return the multinomial problems of classes (n, m)."""
        return SoftmaxProblems(design, targets)

    def count(self, targets: NDArray[np.intp]) -> int:
        """Return the number of classes of all problems."""
        return int(targets.max(axis=0, initial=0).sum() + targets.shape[1])

    def _design(self, X: Any, weight: Weight, columns: float) -> Design:
        return Design.of(X, weight, intercept=self.fit_intercept)  # it always pays


@dataclass(frozen=True)
class LinearScores:
    """Scores ``X @ coef.T + intercept`` of the labels, which are no probabilities."""

    coef: NDArray[Any]  # (s, d)
    intercept: NDArray[Any]  # (s,)

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the scores, of shape (n, s)."""
        return np.asarray(np.asarray(X @ self.coef.T) + self.intercept)
