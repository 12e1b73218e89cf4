"""Given logits of labels, mended: a curve for all, a line for each, potentials of their number.

A monotone curve m, the same for all labels, first brings logits l to what they were worth on
average. Then ``u_j = a_j m(l_j) + t (l_j - m(l_j)) + b_j`` are the scores of the labels, and those
of the sizes ``g_k = c_k + d_k e``, with e how many labels are expected. The penalty ``alpha / 2``
is on the squares of ``a_j - 1, t, b_j, c_k`` and ``d_k``, and the curve counts some rows more at
which the logits were right: with few rows they stay as they are, and the labels independent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from fbeta._array import Array, array_namespace
from fbeta.linear.cardinality import laws
from fbeta.linear.design import Design, Rows
from fbeta.linear.objectives import Cardinality
from fbeta.linear.problems import Problems, Solution

__all__ = ["Recalibration", "fit_recalibration"]

BINS = 1 << 6  # of logits, for the curve
PRIOR = 100.0  # labels of rows at which the logits are right, for each unit of alpha


@dataclass(frozen=True)
class Recalibration:
    """How to mend logits.

    Attributes
    ----------
    knots, values : ndarray of shape (B,)
        The curve: logits, and what they are worth.
    slope, offset : ndarray of shape (s,)
        Of that for each label.
    rest : float
        The share of what the curve took off that is given back.
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

    knots: NDArray[np.float64]
    values: NDArray[np.float64]
    slope: NDArray[np.float64]
    offset: NDArray[np.float64]
    rest: float
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
        curve = interpolate(X, self.knots, self.values)
        number = (expected_number(curve) - self.centre) / self.scale
        labels = curve * slope + self.rest * (X - curve) + offset
        sizes = potential[0, :] + number[:, None] * potential[1, :]
        return laws(xp.concat([labels, sizes], axis=1), self.sizes)

    @property
    def curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The knots and values of the curve."""
        return self.knots, self.values

    @property
    def most_iter(self) -> int:
        """Newton iterations."""
        return int(self.n_iter.max(initial=0))


def expected_number(logits: Array) -> Array:
    """Return how many labels are expected under logits of shape (n, s): (n,)."""
    xp = array_namespace(logits)
    return xp.sum(1 / (1 + xp.exp(-logits)), axis=1)


def interpolate(x: Array, knots: NDArray[np.float64], values: NDArray[np.float64]) -> Array:
    """Return a piecewise linear curve at points of any array, constant beyond its ends.

    Examples
    --------
    >>> interpolate(np.array([[-1.0, 0.5]]), np.array([0.0, 1.0]), np.array([2.0, 4.0])).tolist()
    [[2.0, 3.0]]
    """
    xp = array_namespace(x)
    if xp is np:
        return np.interp(x, knots, values)
    knots, values = (xp.asarray(a, device=x.device) for a in (knots, values))
    flat = xp.clip(xp.reshape(x, (-1,)), float(knots[0]), float(knots[-1]))
    right = xp.clip(xp.searchsorted(knots, flat), 1, knots.shape[0] - 1)
    low, high = (xp.take(knots, place) for place in (right - 1, right))
    start, stop = (xp.take(values, place) for place in (right - 1, right))
    return xp.reshape(start + (flat - low) / (high - low) * (stop - start), x.shape)


def fit_curve(
    logits: NDArray[Any], labels: NDArray[Any], weight: Any, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find what logits are worth on average over all labels: the knots and values of a curve.

    Isotonic regression on bins, to which rows are added at which the logits are right.
    """
    own = np.broadcast_to(1.0 if weight is None else weight[:, None], logits.shape)
    low, high = float(logits.min()), float(logits.max())
    if high - low < 1e-9:
        return np.array([low, low + 1]), np.array([low, low + 1])
    place = np.minimum(((logits - low) / (high - low) * BINS).astype(np.intp), BINS - 1)
    sums: list[Any] = [
        np.bincount(place.ravel(), (own * a).ravel(), minlength=BINS) for a in (1, labels, logits)
    ]
    total, positive, centre = (part[sums[0] > 0] for part in sums)
    centre = centre / total
    prior = alpha * PRIOR / total.sum()
    share = (positive / total + prior / (1 + np.exp(-centre))) / (1 + prior)
    share = IsotonicRegression().fit(centre, share, sample_weight=total).predict(centre)
    least = 0.5 / max(1.0, float(own[:, 0].sum()))
    share = np.clip(share, least, 1 - least)
    return centre, np.log(share / (1 - share))


class LogitDesign(Design):
    """What a curve makes of logits, what it took off, and a number for each row, (n, 2 s + 1).

    There is one row of coefficients for all of it: slopes, offsets, potentials, constants first,
    and the share of what the curve took off.
    """

    @classmethod
    def over(cls, matrix: NDArray[Any], weight: Any) -> LogitDesign:
        """Lay out the three."""
        column = None if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
        return cls(matrix, column, np.ones((1, 1)), None, None, False, 0.0, matrix.dtype)

    def rows(self, size: int, dtype: Any) -> LogitRows:
        """Return the rows in blocks of a size."""
        return LogitRows(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many coefficients there are."""
        return 2 * width + 1


class LogitRows(Rows):
    """The rows of such a design as an operator."""

    def _scores(self, W: Array, tile: Array) -> Array:
        s, c = tile.shape[1] // 2, W.shape[1] // 2
        slope, offset, constant, factor, rest = np.split(W[0], [s, 2 * s, s + c, 2 * c])
        labels = tile[:, :s] * slope + tile[:, s:-1] * rest + offset
        return np.concatenate([labels, constant + tile[:, -1:] * factor], axis=1)

    def _back(self, tile: Array, residual: Array) -> Array:
        s = tile.shape[1] // 2
        labels, sizes = residual[:, :s], residual[:, s:]
        slope, rest = (tile[:, :s] * labels).sum(axis=0), (tile[:, s:-1] * labels).sum()
        parts = labels.sum(axis=0), sizes.sum(axis=0), tile[:, -1] @ sizes
        return np.concatenate([slope, *parts, [rest]])[None, :]

    def product(self, W: Array) -> list[Array]:
        """Return the scores, block by block."""
        return [self._scores(W, tile) for tile in self]

    def adjoint(self, blocks: list[Array]) -> Array:
        """Multiply the transpose with (rows, s + C) blocks: (1, 2 (s + C) + 1)."""
        return sum(self._back(tile, part) for tile, part in zip(self, blocks, strict=True))

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with what each block responds to its scores of W."""
        tiles = enumerate(self)
        return sum(self._back(t, respond(at, self._scores(W, t))) for at, t in tiles)

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of the Hessian if curvature did not depend on the logits."""
        squares = self.design.moments[1][:, 0]
        s = len(squares) // 2
        labels, sizes = total[:s], total[s:]
        rest = (squares[s:-1] * labels).sum()
        parts = squares[:s] * labels, labels, sizes, squares[-1] * sizes, [rest]
        return np.concatenate(parts)[None, :]


class Mended(Cardinality):
    """The cardinality objective of scores that are added to given logits.

    y holds 0/1 for labels and sizes and beside them the logits, (rows, s + C + s).
    """

    ridge = 0.0

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Evaluate at the sum of both."""
        base = np.pad(y[:, self.width :], ((0, 0), (0, len(self.sizes))))
        return super().evaluate(y[:, : self.width], u + base, cautious)

    def slopes(self, y: Array, u: Array) -> tuple[Array, Array]:
        """Evaluate at the sum of both."""
        return self.evaluate(y, u, None)[:2]

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
        """Return labels, sizes and what the curve makes of the logits."""
        dense = self.matrix.toarray().astype(np.float64)
        s = self.design.matrix.shape[1] // 2
        return np.concatenate([dense, self.design.matrix[:, :s]], axis=1)

    def null_solution(self, alpha: float) -> Array:
        """Return where to start: at the curve."""
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
        0/1, as :class:`fbeta.statistics.codes.SizedCode` has them.
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
    s, C = logits.shape[1], len(sizes)
    knots, values = fit_curve(logits, targets[:, :s].toarray(), weight, alpha)
    curve = interpolate(logits, knots, values)
    number = expected_number(curve)
    centre = float(np.average(number, weights=weight))
    scale = float(np.average((number - centre) ** 2, weights=weight)) ** 0.5 or 1.0
    matrix = np.column_stack([curve, logits - curve, (number - centre) / scale])
    problems = RecalibrationProblems(LogitDesign.over(matrix, weight), targets, sizes)
    solution: Solution = problems.solve_and_warn(alpha, tol=tol, max_iter=max_iter)
    slope, offset, potential, rest = np.split(solution.W[0], [s, 2 * s, 2 * (s + C)])
    return Recalibration(
        knots, values, 1 + slope, offset, float(rest[0]), potential.reshape(2, C), centre, scale,
        sizes, solution.n_iter, solution.converged,
    )  # fmt: skip
