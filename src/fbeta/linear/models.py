"""Fitted linear models: coefficients, and what makes probabilities of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, is_tensor
from fbeta._threads import one_blas_thread
from fbeta.losses import Loss

if TYPE_CHECKING:
    from fbeta.linear.objectives import Objective

__all__ = ["LinearModel", "LinearProbabilities", "LinearScores", "linear_scores", "take_along"]

MIN_PARALLEL_SCORES = 1 << 17  # scores below which a second thread does not pay


def take_along(values: Any, places: NDArray[np.intp], axis: int = 0) -> Any:
    """Return the entries of an array of any library at some places along an axis."""
    xp = array_namespace(values)
    return xp.take(values, xp.asarray(places, device=values.device), axis=axis)


def linear_scores(X: Any, coef: Array, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept``; tensors are brought to one type first."""
    if is_tensor(X):
        xp = array_namespace(X)
        dtype = xp.result_type(X, coef)
        X, coef, intercept = (xp.astype(a, dtype, copy=False) for a in (X, coef, intercept))
        return X @ coef.T + intercept
    with one_blas_thread(X.shape[0] * coef.shape[0] < MIN_PARALLEL_SCORES):
        return X @ coef.T + intercept


@dataclass(frozen=True)
class LinearModel:
    """Linear scores ``X @ coef.T + intercept``, and the objective that makes them probabilities.

    ``n_iter`` and ``converged``, (m,), are the Newton iterations of each problem, 0 where nothing
    had to be solved, and whether it was certified.
    """

    coef: Array
    intercept: Array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    objective: Objective

    def probabilities(self, X: Any) -> Array:
        """Return what the code of the targets makes statistics of, for n rows of X."""
        scores = self.objective.model_scores(X, self.coef, self.intercept)
        return self.objective.probabilities(scores)

    @property
    def most_iter(self) -> int:
        """Most Newton iterations of a problem."""
        return int(self.n_iter.max(initial=0))


@dataclass(frozen=True)
class LinearProbabilities:
    """Linear scores of distinct binary targets, and the loss whose link makes probabilities.

    Attributes
    ----------
    coef : array of shape (m, d)
        Of the distinct problems.
    intercept : array of shape (m,)
        Infinite where the target is constant and the loss has no minimiser.
    problem : ndarray of shape (M,)
        Row of ``coef`` that serves each of the M targets.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where nothing had to be solved.
    converged : bool ndarray of shape (m,)
    loss : Loss
    """

    coef: Array
    intercept: Array
    problem: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    loss: Loss

    def scores(self, X: Any) -> Array:
        """Return the scores of the distinct problems, of shape (n, m)."""
        return linear_scores(X, self.coef, self.intercept)

    def probabilities(self, X: Any) -> Any:
        """Return the probabilities of the targets, of shape (n, M)."""
        distinct: Any = self.loss.inverse_link(self.scores(X))
        return take_along(distinct, self.problem, axis=1)

    def log_odds(self, X: Any) -> Any:
        """Return the log-odds of the targets, of shape (n, M), of a model with logistic loss."""
        return take_along(self.scores(X), self.problem, axis=1)

    def unfold(self) -> LinearProbabilities:
        """Return a model with coefficients for each target, also where targets are equal."""
        names = ("coef", "intercept", "n_iter", "converged")
        own = {name: take_along(getattr(self, name), self.problem) for name in names}
        return LinearProbabilities(problem=np.arange(len(self.problem)), loss=self.loss, **own)

    @property
    def most_iter(self) -> int:
        """Most Newton iterations of a problem."""
        return int(self.n_iter.max(initial=0))


@dataclass(frozen=True)
class LinearScores:
    """Scores ``X @ coef.T + intercept`` of the labels, which are no probabilities."""

    coef: NDArray[Any]  # (s, d)
    intercept: NDArray[Any]  # (s,)

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the scores, of shape (n, s)."""
        return np.asarray(np.asarray(X @ self.coef.T) + self.intercept)
