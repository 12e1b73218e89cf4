"""Objectives: losses of scores with their derivatives; and the linear models that are fitted.

Arrays are of any library that follows the array API standard, of shape (rows, m c) for m problems
with c scores each, those of a problem side by side: one for a binary loss, one for each class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, dense_columns, is_accelerator, take, to_numpy
from fbeta.linear.batch import TINY
from fbeta.losses import LOSSES, LinearProbabilities, LogisticLoss, Loss, linear_scores, take_along
from fbeta.statistics.encoding import constant_values, distinct_columns

if TYPE_CHECKING:
    from fbeta.linear.design import Design

CAUTIOUS_LOSS = 0.75  # beyond which a row is cautious: its class has a probability below 1/2
# share of the objective of a model that predicts nothing which is added to objectives: where all
# is predicted with certainty, relative decreases need not be pursued
FLOOR_SHARE = 1e-4
HAS_TRITON = find_spec("triton") is not None
MAX_SCORE_ROUNDING = 1e-4  # change of a score by rounding coefficients that is tolerated


class Objective(ABC):
    """A convex loss of each problem's scores.

    Attributes
    ----------
    kind : str
        What problems are called in warnings.
    preconditioners : tuple of str
        Those that the Hessians allow, by name, the usual one first. Without ``"factorised"``,
        problems that conjugate gradients abandon do not converge.
    always_rotates, separates_columns : bool
        Whether the rotation of X always pays; whether each column of targets is a problem.
    null_loss : float
        Loss of a row by a model that predicts nothing.
    width : int
        Scores c of a problem.
    intercept_penalty, min_alpha : float
        Penalty of intercepts and the least one of others, where losses do not bound them.
    outcome_distance, self_concordance : float
        Largest squared distance between the effects of two outcomes on a row's scores; by how much
        the logarithm of a curvature changes at most, for each unit of a score.
    exact_steps : bool
        Whether a trial of a step costs less than the products with the Hessian that it may save.
    """

    kind: ClassVar[str]
    preconditioners: ClassVar[tuple[str, ...]] = ("eliminating", "factorised")
    always_rotates: ClassVar[bool] = False
    separates_columns: ClassVar[bool] = False
    null_loss: float = float(np.log(2))
    width: int = 1
    intercept_penalty: float = 0.0
    min_alpha: float = 0.0
    outcome_distance: float = 1.0
    self_concordance: float = 1.0
    exact_steps: bool = False
    # what bounds the changes of scores of each row from above by its curvature, (rows, m c), unless
    # the preconditioner is diagonal. Where a row's Hessian gives v' H v, two outcomes change their
    # scores by v by no more than sqrt(v' H v / mass); outcomes left out of a row take at most
    # 2 mass times the square of that change from v' H v
    masses: Callable[[Array], Array]

    @abstractmethod
    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return losses (rows, m), their gradients (rows, m c) and the curvature (rows, m c).

        ``cautious``, (m,) or (m c,), marks problems far from their optimum, where a curvature that
        is too low gives steps that are too long. Only the objective knows what the curvature
        consists of; Hessians grow with each of its entries, which are not negative.
        """

    def summed(
        self, y: Array, u: Array, cautious: Array | None, weight: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Evaluate rows with weights, (rows, 1), and sum over them in double precision.

        Returns sums of the losses, (m,), weighted gradients, the curvature without weights and sums
        of its weighted diagonal, (m c,).
        """
        xp = array_namespace(u)
        f, g, h = self.evaluate(y, u, cautious)
        diagonal = self.diagonal(h)
        if weight is not None:
            f, g, diagonal = weight * f, weight * g, weight * diagonal
        value, total = (xp.astype(xp.sum(a, axis=0), xp.float64) for a in (f, diagonal))
        return value, g, h, total

    @abstractmethod
    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply the Hessian of each row's loss with a change of its scores, (rows, m c)."""

    def floor(self, total_weight: float) -> float:
        """Return what is added to objectives that decreases are compared with."""
        return FLOOR_SHARE * total_weight * self.null_loss

    @abstractmethod
    def diagonal(self, curvature: Array) -> Array:
        """Return the diagonal of each row's Hessian, (rows, m c)."""

    def regular(self, c: Array) -> Array:
        """Make Hessians in one coordinate, (m, c, c), regular without changing any solution."""
        xp = array_namespace(c)
        return c + TINY * xp.eye(c.shape[-1], dtype=c.dtype, device=c.device)

    def project(self, values: Array) -> Array:
        """Remove from gradients or directions, (p, m c), what no loss depends on."""
        return values

    def take(self, problems: Any) -> Objective:
        """Return the objective of some problems."""
        return self

    def of_distinct(self, targets: Any, weight: Any, intercept: bool) -> tuple[Objective, Any]:
        """Return the objective of problems that differ from each other, and their targets."""
        return self, targets

    def bind(self, design: Design) -> tuple[Objective, Design]:
        """Return the objective that is solved over a design, and a design with its scores."""
        return self, design

    @property
    def counts(self) -> NDArray[np.intp]:
        """The columns of coefficients of each problem, (m,)."""
        return np.array([self.width])

    @property
    def n_linear(self) -> int:
        """The number of linear functions of X."""
        return int(self.counts.sum())

    def order(self, targets: Any) -> NDArray[np.intp]:
        """Return the problems that have to be solved, those that take longest first."""
        return np.arange(len(self.counts))

    def batch_targets(self, design: Design, targets: Any, problems: NDArray[np.intp]) -> Array:
        """Return the targets of some problems, with n rows, on the device of the design."""
        return design.xp.asarray(targets[:, problems], device=design.device)

    def compiled_targets(self, targets: Any) -> tuple[str, int, dict[str, Any]] | None:
        """Return the loss, how many columns are solved, and arrays, by their names in engine.hpp.

        None where the compiled solver does not know the loss.
        """
        return None

    @abstractmethod
    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Return where a cold solve starts, (p, M), newly allocated."""

    def with_constants(self, scores: Array) -> Array:
        """Return scores, (..., m), with those of targets that need no solution."""
        return scores

    def model(self, coef: Array, intercept: Array, n_iter: Any, converged: Any) -> Any:
        """Return the model of coefficients (M, d) and intercepts (M,)."""
        return LinearModel(coef, intercept, n_iter, converged, self)

    def model_scores(self, X: Any, coef: Array, intercept: Array) -> Array:
        """Return the scores of n rows of X by coefficients (M, d) and intercepts (M,)."""
        return linear_scores(X, coef, intercept)

    @abstractmethod
    def probabilities(self, scores: Array) -> Array:
        """Return the probabilities that the code of the targets makes statistics of, (n, M)."""


class Binary(Objective):
    """A binary loss phi(y, u) for each column; y holds targets in [0, 1].

    Columns with equal targets are one problem: ``problem``, (M,), is that of each column. With an
    intercept, a constant target q has the solution ``w = 0``, intercept ``link(q)``, and is not
    solved. For a solve ``mean``, (m,), has the means of the targets, and ``constant``, (m,), the
    value of constant ones, NaN elsewhere. Where problems are of several folds, ``rows`` are those
    of each fold, and ``fold``, (m,), is that of each problem; targets of other rows are NaN.
    """

    kind = "binary"
    separates_columns = True
    problem: Any = None
    fold: NDArray[np.intp]
    mean = constant = np.zeros(0)

    def __init__(self, loss: Loss, rows: Sequence[NDArray[np.intp]] | None = None) -> None:
        self.loss, self.rows, self.self_concordance = loss, rows, loss.self_concordance
        self.null_loss = float(loss.value(0.5, np.zeros(1))[0])

    def of_distinct(self, targets: Any, weight: Any, intercept: bool) -> tuple[Binary, Any]:
        """Return the objective of distinct columns of targets, (n, M), and these, (n, m)."""
        if self.problem is not None:
            return self, targets
        out = copy(self)
        out.problem, first = distinct_columns(targets)
        matrix = sp.csc_array(targets if len(first) == targets.shape[1] else targets[:, first])
        if weight is None:
            out.mean = np.asarray(matrix.sum(axis=0) / matrix.shape[0], dtype=np.float64)
        else:
            own = to_numpy(weight).astype(np.float64)[:, 0]
            out.mean = np.asarray(matrix.T @ own / own.sum())
        constant = constant_values(matrix)
        out.constant = constant if intercept else np.full_like(constant, np.nan)
        return out, matrix

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature.

        A saturated loss has almost no curvature, and a Newton step for it would be far too long:
        where cautious, rows on the wrong side get their average curvature on the way to score 0.
        """
        xp, absent = array_namespace(u), None
        if self.rows is not None:
            absent = xp.isnan(y)
            y = xp.where(absent, xp.zeros_like(y), y)
        f, g, h = self.loss.evaluate(y, u)
        if cautious is not None:
            wrong = g * u > 0
            low, high = (float(self.loss.derivative(end, np.zeros(1))[0]) for end in (0.0, 1.0))
            middle = low + (high - low) * y
            average = (g - middle) / xp.where(wrong, u, xp.ones_like(u))
            h = xp.where(wrong & cautious, average, h)
        if absent is not None:
            f, g, h = (xp.where(absent, xp.zeros_like(a), a) for a in (f, g, h))
        return f, g, h

    def summed(
        self, y: Array, u: Array, cautious: Array | None, weight: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Evaluate and sum, in one kernel where there is one."""
        if weight is None and type(self.loss) is LogisticLoss and has_kernels(u):
            from fbeta.linear import _triton

            return _triton.logistic(y, u, cautious)
        return super().summed(y, u, cautious, weight)

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply."""
        return curvature * v

    def masses(self, curvature: Array) -> Array:
        """Return the second derivative."""
        return curvature

    def diagonal(self, curvature: Array) -> Array:
        """Return the second derivative, which is the curvature."""
        return curvature

    @property
    def counts(self) -> NDArray[np.intp]:
        """One column for each problem."""
        return np.ones(len(self.mean), np.intp)

    def order(self, targets: Any) -> NDArray[np.intp]:
        """Return the columns that are not constant; those with more positives take longer."""
        solved = np.flatnonzero(np.isnan(self.constant))
        return solved[np.argsort(-self.mean[solved], kind="stable")]

    def batch_targets(self, design: Design, targets: Any, problems: NDArray[np.intp]) -> Array:
        """Return some columns of a sparse array on the host, dense."""
        xp, device = design.xp, design.device
        # 0 and 1 are exact in any type: accelerators, whose memory is scarce, get the smallest
        small = is_accelerator(device) and bool((targets.data == 1).all())
        dtype = xp.float32 if small and design.holds_in(xp.float32) else xp.float64
        dense = dense_columns(xp, device, targets[:, problems], dtype)
        if self.rows is None:
            return dense
        absent = np.ones((len(self.rows), design.shape[0]), np.bool_)
        for fold, own in enumerate(self.rows):
            absent[fold, own] = False
        fold_of = xp.asarray(self.fold[problems], device=device)
        held_out = take(xp, xp.asarray(absent.T, device=device), fold_of, axis=1)
        return xp.where(held_out, xp.full_like(dense, xp.nan), dense)

    def compiled_targets(self, targets: Any) -> tuple[str, int, dict[str, Any]] | None:
        """Return the columns of the targets."""
        if LOSSES.get(self.loss.name) != self.loss or self.rows is not None:
            return None
        arrays = {"target_start": targets.indptr, "target_index": targets.indices}
        arrays["target_value"] = targets.data.astype(np.float64)
        return self.loss.name, int(np.isnan(self.constant).sum()), arrays

    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Start at the models that ignore X, (p, m)."""
        # by columns, as the compiled solver has them
        W = np.zeros((design.matrix.shape[1], len(self.mean)), order="F")
        if design.intercept:
            W[-1] = np.where(np.isnan(self.constant), self.loss.link(self.mean), 0.0)
        return design.xp.asarray(W, device=design.device)

    def with_constants(self, scores: Array) -> Array:
        """Return scores, (..., m), with the link of the value in place of constant targets."""
        xp = array_namespace(scores)
        constant = xp.asarray(self.constant, dtype=scores.dtype, device=scores.device)
        return xp.where(xp.isnan(constant), scores, self.loss.link(constant))

    def probabilities(self, scores: Array) -> Array:
        """Return the inverse link of the scores, (n, m), of all columns, (n, M)."""
        return take_along(self.loss.inverse_link(scores), self.problem, axis=1)

    def model(self, coef: Array, intercept: Array, n_iter: Any, converged: Any) -> Any:
        """Return the models of the distinct problems."""
        fitted = coef, self.with_constants(intercept), self.problem
        return LinearProbabilities(*fitted, n_iter, converged, self.loss)


def has_kernels(array: Array) -> bool:
    """Tell whether an array is where kernels of Triton run: on CUDA, where it is installed."""
    return getattr(array.device, "type", None) == "cuda" and HAS_TRITON


def round_coefficients(
    coef: Array, intercept: Array, dtype: Any, max_abs: float
) -> tuple[Any, Any]:
    """Return (m, d) coefficients and intercepts, in the type of X unless scores change by it."""
    xp = array_namespace(coef)
    if dtype != xp.float64:
        sizes = xp.sum(xp.abs(coef), axis=0)
        largest = max_abs * float(xp.max(sizes)) if sizes.shape[0] else 0.0
        error = largest * float(xp.finfo(dtype).eps)
        dtype = dtype if error <= MAX_SCORE_ROUNDING else xp.float64
    coef = xp.astype(coef.T, dtype, copy=True)
    if isinstance(coef, np.ndarray):
        coef = np.ascontiguousarray(coef)
    return coef, xp.astype(intercept, dtype)


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
class LinearScores:
    """Scores ``X @ coef.T + intercept`` of the labels, which are no probabilities."""

    coef: NDArray[Any]  # (s, d)
    intercept: NDArray[Any]  # (s,)

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the scores, of shape (n, s)."""
        return np.asarray(np.asarray(X @ self.coef.T) + self.intercept)
