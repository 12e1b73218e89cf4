"""Learners: from X and the targets of a code to a model of their probabilities.

A learner holds how models are fitted, a fitted model holds arrays. ``path`` fits to some rows for
many alphas, in coordinates of X that all folds of a search share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from fbeta._array import Array, is_tensor
from fbeta.linear.design import Design
from fbeta.losses import take_along

if TYPE_CHECKING:
    from fbeta.linear.problems import Problems, Solution

__all__ = ["Learner", "Model", "solve_path", "take_rows"]

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


def drop_weightless(X: Any, Y: Any, weight: Weight) -> tuple[Any, Any, Weight]:
    """Leave out the rows of weight zero."""
    if weight is None or weight.all():
        return X, Y, weight
    rows = np.flatnonzero(weight)
    return take_rows(X, rows), Y[rows], weight[rows]


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

    def paths(
        self, shared: Any, targets: Sequence[Any], rows: Sequence[Rows], alphas: Alphas
    ) -> list[Path] | None:
        """Return a path for each of several folds, to be followed in turns; None where slower."""
        return None


def solve_path(
    problems: Problems, alphas: Sequence[float], *, tol: float = 1e-6, max_iter: int = 100
) -> Iterator[tuple[float, Solution]]:
    """Solve the problems for each alpha, from the strongest to the weakest, and yield both.

    Each solve starts where the solutions before it lead, as a function of ``ln alpha``: the
    coefficients of separable problems grow like ``ln(1 / alpha)``.
    """
    known: list[tuple[float, Array]] = []
    for alpha in sorted(set(alphas), reverse=True):
        start = known[-1][1] if known else None
        if len(known) > 1 and alpha > 0:  # divided differences in ln alpha
            t, W = [float(np.log(a)) for a, _ in known], [w for _, w in known]
            ahead, slope = float(np.log(alpha)) - t[-1], (W[-1] - W[-2]) / (t[-1] - t[-2])
            start = W[-1] + ahead * slope
            if len(known) == 3:
                before = (W[-2] - W[-3]) / (t[-2] - t[-3])
                bend = (slope - before) / (t[-1] - t[-3])
                start += SECOND_ORDER_SHARE * ahead * (float(np.log(alpha)) - t[-2]) * bend
        solution = problems.solve(alpha, start, tol=tol, max_iter=max_iter)
        known = [*known[-2:], (alpha, solution.W)]
        yield alpha, solution
