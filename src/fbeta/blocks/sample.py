"""Rows that are held in memory, and the Hessians that they stand for.

Rows with rare targets are more likely to be held than others; each row stands for as many as it was
drawn from. Their Hessian H_S is close to the Hessian H of all rows, up to a relative error of about
``sqrt(d / rows held)``. And it bounds H from below: other rows only add to H, so that
``H >= share * H_S``, where ``share`` is the smallest weight of a row in units of what it stands
for. So
``g' H^-1 g <= g' H_S^-1 g / share`` for the gradient g of all rows: what there is left to gain is
bounded without a product with H, whatever the rows are that are not held.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.linear.batch import Evaluation, ProblemBatch
from fbeta.linear.binary import LinearProblems
from fbeta.linear.cardinality import Cardinality
from fbeta.linear.conjugate import Directions as Search
from fbeta.linear.conjugate import conjugate_gradients
from fbeta.linear.design import Design
from fbeta.linear.objectives import Binary, Objective
from fbeta.linear.path import solve_path
from fbeta.linear.preconditioners import Diagonal, Eliminating, Factorised, Preconditioner
from fbeta.linear.problems import MAX_FACTORISED as MAX_FACTORED
from fbeta.linear.problems import MIN_CG_STEPS as FEW_STEPS
from fbeta.linear.problems import Problems
from fbeta.losses import Loss

__all__ = ["BinaryFamily", "CardinalityFamily", "Coordinates", "Directions", "Family", "Held",
           "Sample", "curvature", "newton"]  # fmt: skip

_lock = threading.Lock()
FORCING = 1e-3  # share of the Newton decrement that a direction may leave
FACTORED = 1 << 26  # bytes of factorised Hessians at a time
ROUGH = 1e-4  # tolerance of the problems of the rows held, which are only where to start


@dataclass(frozen=True)
class BinaryFamily:
    """Problems with a binary loss for each column of the targets.

    Attributes
    ----------
    loss : Loss
    mean : ndarray of shape (M,)
        The weighted mean of each target over all rows.
    """

    loss: Loss
    mean: NDArray[np.float64]

    def objective(self, names: NDArray[np.intp]) -> Objective:
        """Return the objective of some problems."""
        return Binary(self.loss)

    def floor(self, weight: float) -> float:
        """Return what is added to objectives, for a total weight of the rows."""
        return 1e-4 * weight * float(self.loss.value(0.5, np.zeros(1))[0])

    def start(
        self, held: Held, names: NDArray[np.intp], alphas: Sequence[float], max_iter: int
    ) -> dict[float, NDArray[np.float64]]:
        """Return where to start: the solutions for the rows held, (p, m) for each strength."""
        targets = sp.csc_array(held.targets[:, names])
        problems = LinearProblems(held.design, targets, self.loss, memory=held.memory)
        unknown = ~np.isnan(problems.constant[problems.problem])
        out = {}
        for alpha, solution in solve_path(problems, alphas, tol=ROUGH, max_iter=max_iter):
            W = np.asarray(solution.W)[:, problems.problem]
            # the rows held say nothing of a target that is constant on them
            W[:, unknown] = 0.0
            if held.design.intercept:
                W[-1, unknown] = self.loss.link(self.mean[names[unknown]])
            out[alpha] = np.where(np.isfinite(W), W, 0.0)
        return out


@dataclass(frozen=True)
class CardinalityFamily:
    """The one problem of a cardinality model, with a column for each label and size.

    Attributes
    ----------
    n_labels : int
    sizes : ndarray of shape (C,)
    """

    n_labels: int
    sizes: NDArray[np.intp]

    def objective(self, names: NDArray[np.intp]) -> Objective:
        """Return the objective."""
        return Cardinality(self.n_labels, self.sizes)

    def floor(self, weight: float) -> float:
        """Return what is added to objectives, for a total weight of the rows."""
        return 1e-4 * weight * float(np.log(2))

    def start(
        self, held: Held, names: NDArray[np.intp], alphas: Sequence[float], max_iter: int
    ) -> dict[float, NDArray[np.float64]]:
        """Return where to start: the solutions for the rows held, (p, s + C)."""
        objective = Cardinality(self.n_labels, self.sizes)
        problems = Problems(held.design, objective, sp.csc_array(held.targets))
        path = solve_path(problems, alphas, tol=ROUGH, max_iter=max_iter)
        return {alpha: np.asarray(solution.W) for alpha, solution in path}


Family: TypeAlias = BinaryFamily | CardinalityFamily


@dataclass(frozen=True)
class Held:
    """The rows held that count for one fold, weighted so as to stand for all that count.

    Attributes
    ----------
    design : Design
        With n rows and p columns.
    light : Design
        The same in single precision, or the design itself.
    targets : csr_array of shape (n, M)
    share : float
        No row stands for more than ``1 / share`` rows of its weight.
    weight : float
        The total weight of all rows.
    memory : int
        Bytes of working memory.
    """

    design: Design
    light: Design
    targets: sp.csr_array
    share: float
    weight: float
    memory: int


@dataclass(frozen=True)
class Directions:
    """Newton directions (p, m c) by the Hessians of the rows held.

    ``lower`` is what they say of ``g' H^-1 g``, (m,), ``upper`` a bound of it for all rows;
    ``total``, (m c,), is the curvature of all rows together.
    """

    direction: Array
    lower: Array
    upper: Array
    total: Array


@dataclass(frozen=True)
class Coordinates:
    """Those in which problems are solved: centred and turned, with an intercept at the end.

    Attributes
    ----------
    mean : ndarray of shape (d,), or None
    rotation : ndarray of shape (d, d), or None
    penalised : ndarray of shape (p, 1)
    intercept : bool
    scale : ndarray of shape (d,)
        The spread of each feature about its mean.
    """

    mean: Array
    rotation: Array
    penalised: Array
    intercept: bool
    scale: Array

    @classmethod
    def of(cls, design: Design, scale: Array) -> Coordinates:
        """Return those of a design."""
        return cls(design.mean, design.rotation, design.penalised, design.intercept, scale)

    def outward(self, W: Array) -> tuple[Array, Array]:
        """Return coefficients (d, M) of centred features, and offsets (M,)."""
        offset = np.zeros(W.shape[1])
        if self.intercept:
            W, offset = W[:-1], W[-1]
        return (W if self.rotation is None else self.rotation @ W), offset

    def inward(self, gradient: Array, total: Array) -> Array:
        """Apply the transpose of :meth:`outward`."""
        if self.rotation is not None:
            gradient = self.rotation.T @ gradient
        return np.concatenate([gradient, total[None, :]]) if self.intercept else gradient


@dataclass
class Sample:
    """Rows of all kinds, drawn at random, in the coordinates in which the problems are solved.

    Attributes
    ----------
    design : Design
        Without weights, with every coordinate.
    targets : csr_array of shape (n, M)
    weight : ndarray of shape (n,)
    chance : ndarray of shape (n,)
        The probability with which each row was drawn.
    fold : ndarray of shape (n,), or None
        The fold that holds each row out.
    totals : ndarray
        For each fold, and last for all, the total weight of the rows that count.
    memory : int
        Bytes of working memory.
    coordinates : Coordinates
        Those of the design.
    """

    design: Design
    targets: sp.csr_array
    weight: NDArray[np.float64]
    chance: NDArray[np.float64]
    fold: NDArray[Any] | None
    totals: NDArray[np.float64]
    memory: int
    coordinates: Coordinates
    _held: dict[int, Held] = field(default_factory=dict, repr=False)
    _light: list[Design] = field(default_factory=list, repr=False)

    def held(self, fold: int = -1) -> Held:
        """Return the rows with the weights that they have for a fold, or for all.

        Those of the fold have weight 0: all folds share the arrays.
        """
        with _lock:
            if fold not in self._held:
                self._held[fold] = self._weigh(fold)
            return self._held[fold]

    def outside(self, fold: int = -1) -> Held:
        """Return the rows outside a fold, in arrays of their own."""
        held = self.held(fold)
        if fold < 0 or self.fold is None:
            return held
        rows = np.flatnonzero(self.fold != fold)
        return replace(
            held, design=held.design.take(rows), light=held.light.take(rows),
            targets=held.targets[rows],
        )  # fmt: skip

    def _weigh(self, fold: int) -> Held:
        if not self._light:
            design = self.design
            single = design.holds_in(np.float32)
            self._light.append(design.astype(np.float32) if single else design)
        counts = np.ones(len(self.weight), np.bool_)
        if fold >= 0 and self.fold is not None:
            counts = self.fold != fold
        # those that were drawn stand for all that are not there for certain
        total, drawn = float(self.totals[fold]), counts & (self.chance < 1)
        stand = np.where(counts, self.weight / self.chance, 0.0)
        if drawn.any():
            rest = total - float(self.weight[counts & ~drawn].sum())
            stand[drawn] *= rest / float(stand[drawn].sum())
        share = float(np.min(self.weight[counts] / stand[counts], initial=1.0))
        design, light = (replace(d, weight=stand[:, None]) for d in (self.design, self._light[0]))
        return Held(design, light, self.targets, share, total, self.memory)

    def renew(self, X: Any, targets: sp.csr_array, weight: Any, chance: Any, fold: Any) -> Sample:
        """Return a sample of other rows in the same coordinates."""
        own, matrix = self.coordinates, X
        if not sp.issparse(self.design.matrix):
            matrix = X.toarray() if sp.issparse(X) else X.astype(self.design.matrix.dtype)
            if own.mean is not None:
                matrix = matrix - own.mean.astype(matrix.dtype)
            if own.rotation is not None:
                matrix = matrix @ own.rotation.astype(matrix.dtype)
            ones = np.ones((len(matrix), int(own.intercept)), matrix.dtype)
            matrix = np.concatenate([matrix, ones], axis=1)
        else:
            matrix = sp.csr_array(X, dtype=self.design.matrix.dtype)
            if own.intercept:
                ones = sp.csr_array(np.ones((matrix.shape[0], 1), matrix.dtype))
                matrix = sp.csr_array(sp.hstack([matrix, ones], format="csr"))
        return replace(
            self, design=replace(self.design, matrix=matrix), targets=targets, weight=weight,
            chance=chance, fold=fold, _held={}, _light=[],
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": {}, "_light": []}


def _dense(held: Held, objective: Objective, names: NDArray[np.intp]) -> Array:
    """Return the targets of some problems; those of a joint one are all."""
    targets = (
        held.targets if ("factorised" not in objective.preconditioners) else held.targets[:, names]
    )
    return targets.toarray().astype(np.float64)


def curvature(
    held: Held,
    objective: Objective,
    names: NDArray[np.intp],
    alpha: float,
    W: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the curvature of all rows together, (m c,), by those held; arguments as elsewhere."""
    targets = _dense(held, objective, names)
    block = ProblemBatch(held.design, held.light, objective, targets, alpha)
    return np.asarray(block.evaluate(W).curvature_sum)


def newton(
    held: Held,
    objective: Objective,
    names: NDArray[np.intp],
    alpha: float,
    W: NDArray[np.float64],
    gradient: NDArray[np.float64],
    limit: NDArray[np.float64],
    far: NDArray[np.bool_],
) -> Directions:
    """Solve ``H_S x = -g`` for the gradients of all rows, and bound ``g' H^-1 g``.

    Parameters
    ----------
    held : Held
    objective : Objective
        Of the problems with these names.
    names : ndarray of shape (m,)
    alpha : float >= 0
        Strength of the penalty.
    W, gradient : ndarray of shape (p, m c)
        Where the problems are, and their gradients over all rows, with that of the penalty.
    limit : ndarray of shape (m,)
        What the bound is compared with.
    far : bool ndarray of shape (m,)
        Problems that are far from their solutions, whose curvature is cautious.

    Returns
    -------
    Directions
    """
    targets = _dense(held, objective, names)
    block = ProblemBatch(held.design, held.light, objective, targets, alpha)
    with np.errstate(all="ignore"):
        point = block.evaluate(W, far)
        point = replace(point, gradient=gradient)
        order, limit = W.shape[0] * objective.width, limit * held.share
        steps = max(FEW_STEPS, order // 4) if order <= MAX_FACTORED else 2 * order
        make: type[Preconditioner] = (
            Diagonal if ("factorised" not in objective.preconditioners) else Eliminating
        )
        preconditioner = make.build(block, point, None, None)
        search = conjugate_gradients(
            block, point, preconditioner, limit, far, steps, forcing=FORCING
        )
        hard = (search.upper > limit) & ((search.steps >= steps) | (search.lower <= limit)) & ~far
        if order <= MAX_FACTORED and "factorised" in objective.preconditioners:
            _factorise(block, point, search, limit, np.flatnonzero(hard), 4 * steps)
    return Directions(
        search.direction, search.lower, search.upper / held.share, point.curvature_sum
    )


def _factorise(
    block: ProblemBatch,
    point: Evaluation,
    search: Search,
    limit: Array,
    hard: NDArray[np.intp],
    steps: int,
) -> None:
    """Solve the hard ones again, with their factorised Hessians as preconditioners."""
    order = point.gradient.shape[0] * block.width
    count = max(1, FACTORED // (16 * order**2))
    for start in range(0, len(hard), count):
        own = hard[start : start + count]
        columns = block.columns(own)
        few = block.only(own)
        at = Evaluation(
            point.W[:, columns], point.value[own], point.gradient[:, columns],
            [h[:, columns] for h in point.curvature], point.curvature_sum[columns],
        )  # fmt: skip
        near = np.zeros(len(own), np.bool_)
        again = conjugate_gradients(
            few, at, Factorised.build(few, at, None, None), limit[own], near, steps, forcing=FORCING
        )
        search.direction[:, columns] = again.direction
        search.lower[own], search.upper[own] = again.lower, again.upper
