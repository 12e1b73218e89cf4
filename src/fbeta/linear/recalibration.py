"""Given logits of labels, mended: a slope and an offset for each, and potentials of their number.

``u_j = a_j l_j + b_j`` are the scores of the labels and ``g_k = c_k + d_k m`` those of the sizes,
with m how many labels the given probabilities expect. The penalty ``alpha / 2`` is on the squares
of ``a_j - 1, b_j, c_k`` and ``d_k``: with few rows the logits stay as they are, and the labels
independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import array_namespace
from fbeta.linear.cardinality import laws
from fbeta.linear.design import Design, Rows
from fbeta.linear.objectives import Cardinality
from fbeta.linear.problems import Problems, Solution

__all__ = ["Recalibration", "fit_recalibration"]

Array = Any


@dataclass(frozen=True)
class Recalibration:
    """How to mend logits.

    Attributes
    ----------
    slope, offset : ndarray of shape (s,)
        Of the logits of the labels.
    potential : ndarray of shape (2, C)
        Of the sizes: constants, and factors of the expected number of labels.
    centre, scale : float
        Of the expected number of labels in the training data.
    sizes : ndarray of shape (C,)
        Increasing sizes that are possible.
    n_iter : ndarray of shape (1,)
        Newton iterations.
    converged : bool ndarray of shape (1,)
    """

    slope: NDArray[np.float64]
    offset: NDArray[np.float64]
    potential: NDArray[np.float64]
    centre: float
    scale: float
    sizes: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def probabilities(self, X: Any) -> Array:
        """Return the laws of labels and sizes for logits of shape (n, s): (n, s + C)."""
        xp = array_namespace(X)
        slope, offset, potential = (
            xp.asarray(a, device=X.device) for a in (self.slope, self.offset, self.potential)
        )
        X = xp.astype(X, xp.float64, copy=False)
        number = (expected_number(X) - self.centre) / self.scale
        labels, sizes = X * slope + offset, potential[0, :] + number[:, None] * potential[1, :]
        return laws(xp.concat([labels, sizes], axis=1), self.sizes)

    @property
    def most_iter(self) -> int:
        """Newton iterations."""
        return int(self.n_iter.max(initial=0))


def expected_number(logits: Array) -> Array:
    """Return how many labels are expected under logits of shape (n, s): (n,)."""
    xp = array_namespace(logits)
    return xp.sum(1 / (1 + xp.exp(-logits)), axis=1)


class LogitDesign(Design):
    """Logits, a number for each row, and no features: one row of coefficients for all of it.

    They are those of the slopes, of the offsets, and of the potentials, constants first.
    """

    @classmethod
    def over(cls, logits: NDArray[Any], weight: Any) -> LogitDesign:
        """Lay out logits with their standardised expected number beside them, (n, s + 1)."""
        column = None if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
        return cls(logits, column, np.ones((1, 1)), None, None, False, 0.0, logits.dtype)

    def rows(self, size: int, dtype: Any) -> LogitRows:
        """Return the rows in blocks of a size."""
        return LogitRows(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many coefficients there are."""
        return 2 * width


class LogitRows(Rows):
    """The rows of such a design as an operator."""

    def _scores(self, W: Array, tile: Array) -> Array:
        s, c = tile.shape[1] - 1, W.shape[1] // 2
        slope, offset, constant, factor = np.split(W[0], [s, 2 * s, s + c])
        sizes = constant + tile[:, s:] * factor
        return np.concatenate([tile[:, :s] * slope + offset, sizes], axis=1)

    def _back(self, tile: Array, residual: Array) -> Array:
        s = tile.shape[1] - 1
        labels, sizes = residual[:, :s], residual[:, s:]
        parts = (tile[:, :s] * labels).sum(axis=0), labels.sum(axis=0), sizes.sum(axis=0)
        return np.concatenate([*parts, tile[:, s] @ sizes])[None, :]

    def product(self, W: Array) -> list[Array]:
        """Return the scores, block by block."""
        return [self._scores(W, tile) for tile in self]

    def adjoint(self, blocks: list[Array]) -> Array:
        """Multiply the transpose with (rows, s + C) blocks: (1, 2 (s + C))."""
        return sum(self._back(tile, part) for tile, part in zip(self, blocks, strict=True))

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with what each block responds to its scores of W."""
        tiles = enumerate(self)
        return sum(self._back(t, respond(at, self._scores(W, t))) for at, t in tiles)

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of the Hessian if curvature did not depend on the logits."""
        squares = self.design.moments[1][:, 0]
        s = len(squares) - 1
        labels, sizes = total[:s], total[s:]
        return np.concatenate([squares[:s] * labels, labels, sizes, squares[s] * sizes])[None, :]


class Mended(Cardinality):
    """The cardinality objective of scores that are added to given logits.

    y holds 0/1 for labels and sizes and beside them the logits, (rows, s + C + s).
    """

    ridge = 0.0

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Evaluate at the sum of both."""
        base = np.pad(y[:, self.width :], ((0, 0), (0, len(self.sizes))))
        return super().evaluate(y[:, : self.width], u + base, cautious)

    def project(self, values: Array) -> Array:
        """Return what there is: everything is penalised."""
        return values


class RecalibrationProblems(Problems):
    """The one problem of mending logits."""

    kind = "recalibration"
    factorises = False

    def __init__(self, design: LogitDesign, targets: sp.csc_array, sizes: NDArray[np.intp]) -> None:
        super().__init__(design)
        self.light = design
        self.matrix, self.sizes = targets, sizes
        self.first = np.array([0, design.columns(targets.shape[1])])
        self.open, self.compiled = np.zeros(1, np.intp), None

    @property
    def floor(self) -> float:
        """A share of the objective of one label with probability 1/2."""
        return 1e-4 * self.design.total_weight * float(np.log(2))

    def objective(self, problems: NDArray[np.intp]) -> Mended:
        """Return the objective."""
        return Mended(self.matrix.shape[1] - len(self.sizes), self.sizes)

    def targets(self, problems: NDArray[np.intp]) -> Array:
        """Return labels, sizes and logits of the rows."""
        dense = self.matrix.toarray().astype(np.float64)
        return np.concatenate([dense, self.design.matrix[:, :-1]], axis=1)

    def null_solution(self, alpha: float) -> Array:
        """Return where to start: at the logits as they are."""
        return np.zeros((1, int(self.first[-1])))

    def _holds(self, W: Array) -> NDArray[np.bool_]:
        return np.ones(1, np.bool_)


def fit_recalibration(
    logits: NDArray[Any],
    targets: sp.csc_array,
    sizes: NDArray[np.intp],
    alpha: float,
    *,
    weight: NDArray[np.float64] | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
) -> Recalibration:
    """Learn to mend logits.

    Parameters
    ----------
    logits : ndarray of shape (n, s)
        Of rows that the model behind them has not seen.
    targets : csc_array of shape (n, s + C)
        0/1, as :class:`fbeta.codes.SizedCode` has them.
    sizes : ndarray of shape (C,)
        The sizes that the last C columns stand for.
    alpha : float > 0
        Strength of the penalty.
    weight : ndarray of shape (n,), optional
        Positive weights of the rows.
    tol, max_iter
        As for :meth:`Problems.solve`.

    Returns
    -------
    Recalibration

    Examples
    --------
    >>> logits = np.array([[2.0, -2.0], [2.0, 2.0], [-2.0, 2.0], [2.0, -2.0]])
    >>> targets = sp.csc_array([[1, 0, 1], [0, 1, 1], [0, 1, 1], [1, 0, 1]])
    >>> mended = fit_recalibration(logits, targets, np.array([1]), alpha=0.1)
    >>> mended.probabilities(logits).argmax(axis=1).tolist(), bool(mended.converged[0])
    ([2, 2, 2, 2], True)
    """
    logits = np.asarray(logits, dtype=np.float64)
    number = expected_number(logits)
    centre, scale = float(number.mean()), float(number.std()) or 1.0
    beside = np.concatenate([logits, ((number - centre) / scale)[:, None]], axis=1)
    problems = RecalibrationProblems(LogitDesign.over(beside, weight), targets, sizes)
    solution: Solution = problems.solve(alpha, tol=tol, max_iter=max_iter)
    problems.warn_if_not_converged(solution, alpha, max_iter)
    s, C = logits.shape[1], len(sizes)
    slope, offset, potential = np.split(solution.W[0], [s, 2 * s])
    return Recalibration(
        1 + slope, offset, potential.reshape(2, C), centre, scale, sizes, solution.n_iter,
        solution.converged,
    )  # fmt: skip
