"""X in the coordinates in which the problems are solved, as an operator on tiles of rows.

The penalty ``alpha / 2 |w|^2`` does not change under rotations of the features, and an intercept
without penalty absorbs any shift of them. So for dense X the solver works on centred scores ``Z =
(X - mean) V`` with orthogonal columns: min(n, d) of them, and with a Hessian that is nearly
diagonal. The rotation is shared by all problems, all alphas and all subsets of the rows. Sparse X
stays as it is, and is centred by arithmetic on the coefficients; so is dense X that is mostly zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array, array_namespace
from fbeta._threads import one_blas_thread
from fbeta.linear.rotation import PART_ENTRIES, cast, orthogonal_scores
from fbeta.linear.tiles import RowTiles

__all__ = ["Design", "check_squares", "round_coefficients"]

MAX_ROTATED = 1500  # dimensions beyond which the eigendecomposition may cost more than it saves
MAX_DENSITY = 0.2  # share of non-zero entries up to which dense X is taken as sparse
MIN_SPARSE_ENTRIES = 1 << 16  # entries of X below which that saves nothing
MAX_ONE_THREAD_FEATURES = 400  # dimensions below which BLAS threads do not pay
COLUMNS_AT_ONCE = 256  # columns that are brought back to the coordinates of X at a time
MAX_SCORE_ROUNDING = 1e-4  # change of a score by rounding coefficients that is tolerated
MAX_DOUBLE_ENTRIES = 1 << 24  # entries of X up to which it is kept in double precision


@dataclass(frozen=True)
class Design:
    """X as the solver sees it, with the way back to the coefficients of X.

    Attributes
    ----------
    matrix : array or csr_array of shape (n, p)
        Scores of the rows; the last column is 1 where there is an intercept.
    weight : array of shape (n, 1), or None
        Weights of the rows.
    penalised : array of shape (p, 1)
        1 for the coordinates in the penalty, 0 for the intercept; in double precision.
    mean : array of shape (d,), or None
        The centre of the rows of X: subtracted from dense X, kept aside for sparse X.
    rotation : array or csr_array of shape (d, p - 1 or p), or None
        Orthonormal columns; None for the identity. For sparse X, the columns of the identity that
        belong to features which are not zero on every row.
    intercept : bool
        Whether the last coordinate is an intercept.
    max_abs : float
        The largest absolute value of a feature.
    dtype : floating type
        Of X; that of ``matrix`` may be more precise.
    """

    matrix: Array
    weight: Any
    penalised: Array
    mean: Any
    rotation: Any
    intercept: bool
    max_abs: float
    dtype: Any

    @classmethod
    def of(
        cls,
        X: Array,
        weight: Array | None = None,
        *,
        intercept: bool = True,
        rotate: bool = True,
        complete: bool = False,
    ) -> Design:
        """Prepare X, (n, d), float32 or float64, dense or csr, with positive weights of the rows.

        Parameters
        ----------
        X, weight : array or csr_array of shape (n, d); array of shape (n,), optional
        intercept : bool
            Whether the models have an intercept, which is not penalised.
        rotate : bool
            Rotate dense X to orthogonal scores where that pays.
        complete : bool
            Keep coordinates in which no row has a component: other rows may have one.
        """
        max_abs, dtype = _max_abs(X), X.dtype
        if sp.issparse(X) or _mostly_zero(X):
            return cls._of_sparse(X, weight, intercept, max_abs, complete)
        xp = array_namespace(X)
        if X.shape[0] * X.shape[1] <= MAX_DOUBLE_ENTRIES:
            # what centring and rotation round is no more than what X itself does not hold
            X = cast(xp, X, xp.float64)
        there = {"dtype": X.dtype, "device": X.device}
        column = None if weight is None else xp.asarray(weight, **there)[:, None]
        mean = None
        if intercept:
            mean = xp.mean(X, axis=0) if column is None else _weighted_mean(xp, X, column)
            X = X - mean
        rotation = None
        if rotate and min(X.shape) <= MAX_ROTATED and not (complete and X.shape[0] < X.shape[1]):
            with one_blas_thread(min(X.shape) < MAX_ONE_THREAD_FEATURES):
                X, rotation = orthogonal_scores(xp, X, column, complete)
        double = {"dtype": xp.float64, "device": X.device}
        penalised = xp.ones((X.shape[1], 1), **double)
        if intercept:
            X = xp.concat([X, xp.ones((X.shape[0], 1), **there)], axis=1)
            penalised = xp.concat([penalised, xp.zeros((1, 1), **double)], axis=0)
        return cls(X, column, penalised, mean, rotation, intercept, max_abs, dtype)

    @classmethod
    def _of_sparse(
        cls, X: Any, weight: Array | None, intercept: bool, max_abs: float, complete: bool
    ) -> Design:
        dtype, X = X.dtype, sp.csr_array(X)
        X, selection = (X, None) if complete else _used_columns(X)
        penalised = np.ones((X.shape[1] + intercept, 1))
        column = None if weight is None else weight.astype(X.dtype)[:, None]
        mean = None
        if intercept:
            weights = X.data.astype(np.float64)
            if column is not None:
                weights *= np.repeat(column[:, 0], np.diff(X.indptr))
            total = X.shape[0] if column is None else column.sum(dtype=np.float64)
            mean = np.bincount(X.indices, weights, minlength=X.shape[1]) / total
            X = _append_ones(X)
            penalised[-1] = 0
        return cls(X, column, penalised, mean, selection, intercept, max_abs, dtype)

    @property
    def xp(self) -> Any:
        """The array namespace of the dense state."""
        return array_namespace(self.penalised)

    @property
    def device(self) -> Any:
        """Where the arrays are."""
        return self.penalised.device

    @property
    def shifted(self) -> bool:
        """Whether ``matrix`` is not centred although the coordinates are."""
        return self.mean is not None and sp.issparse(self.matrix)

    def rows(self, size: int, dtype: Any) -> RowTiles:
        """Return the rows in tiles of a size, for products in a floating type."""
        return RowTiles(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many columns of coefficients give ``width`` scores."""
        return width

    def penalty(self, alpha: float, intercept_penalty: float) -> Array:
        """Return the penalties of the coefficients, (p, 1)."""
        return alpha * self.penalised + intercept_penalty * (1 - self.penalised)

    def forward(self, W: Array) -> Array:
        """Return what ``matrix`` has to be multiplied with to get the scores of W, (p, m)."""
        if not self.shifted:
            return W
        offset = W[-1:, :] - (self.mean.astype(W.dtype) @ W[:-1, :])[None, :]
        return self.xp.concat([W[:-1, :], offset], axis=0)

    def backward(self, G: Array) -> Array:
        """Apply the transpose of :meth:`forward`, to ``matrix.T @ residuals``, (p, m)."""
        if not self.shifted:
            return G
        mean = self.mean.astype(G.dtype)[:, None]
        return self.xp.concat([G[:-1, :] - mean * G[-1:, :], G[-1:, :]], axis=0)

    def scores(self, W: Array) -> Array:
        """Return the scores of all rows, (n, m)."""
        return self.matrix @ self.xp.astype(self.forward(W), self.matrix.dtype)

    def astype(self, dtype: Any) -> Design:
        """Return the design in another floating type."""
        if self.matrix.dtype == dtype:
            return self
        weight = None if self.weight is None else self.xp.astype(self.weight, dtype)
        return replace(self, matrix=cast(self.xp, self.matrix, dtype), weight=weight)

    def holds_in(self, dtype: Any) -> bool:
        """Tell whether entries and sums of their squares are finite in a type."""
        entries = max(1, self.matrix.shape[0] * self.matrix.shape[1])
        # centring and rotation make no entry larger than this
        largest = 2 * self.max_abs * (1 + self.matrix.shape[1]) ** 0.5
        return bool(largest <= (float(self.xp.finfo(dtype).max) / entries) ** 0.5)

    def take(self, rows: Array) -> Design:
        """Return the design of some rows, in the same coordinates."""
        if not sp.issparse(self.matrix) and not isinstance(self.matrix, np.ndarray):
            rows = self.xp.asarray(rows, device=self.device)
            matrix = self.xp.take(self.matrix, rows, axis=0)
            weight = None if self.weight is None else self.xp.take(self.weight, rows, axis=0)
            return replace(self, matrix=matrix, weight=weight)
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, matrix=self.matrix[rows], weight=weight)

    @cached_property
    def orthogonal(self) -> tuple[Design, Array]:
        """The same rows in double precision with orthogonal columns, and what leads there.

        The second is (p or p - 1, q) with orthonormal columns, for all but the intercept.
        """
        xp = self.xp
        matrix = cast(xp, self.matrix, xp.float64)
        matrix = matrix.toarray() if sp.issparse(matrix) else matrix
        ones = matrix[:, -1:] if self.intercept else matrix[:, :0]
        matrix = matrix[:, :-1] if self.intercept else matrix
        weight = None if self.weight is None else xp.astype(self.weight, xp.float64)
        Z, V = orthogonal_scores(xp, matrix - self.mean if self.shifted else matrix, weight)
        kinds = [xp.ones_like(V[0, :]), xp.zeros_like(ones[0, :])]
        penalised = xp.concat(kinds)[:, None]
        matrix = xp.concat([Z, ones], axis=1)
        return replace(self, matrix=matrix, weight=weight, penalised=penalised, mean=None), V

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """The weighted means of the columns of ``matrix`` and of their squares, (p, 1) each."""
        xp, total = self.xp, self.total_weight
        n, p = self.matrix.shape
        once = xp.zeros(p, dtype=xp.float64, device=self.device)
        twice = xp.zeros_like(once)
        if sp.issparse(self.matrix):
            X, values = self.matrix, self.matrix.data.astype(np.float64)
            weighted = values
            if self.weight is not None:
                weighted = values * np.repeat(self.weight[:, 0], np.diff(X.indptr))
            once = np.bincount(X.indices, weighted, minlength=p)
            twice = np.bincount(X.indices, weighted * values, minlength=p)
            return once[:, None] / total, twice[:, None] / total
        size = max(1, PART_ENTRIES // max(p, 1))
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            tile = weighted = cast(xp, self.matrix[part, :], xp.float64)
            if self.weight is not None:
                weighted = tile * xp.astype(self.weight[part, :], xp.float64)
            # sums and not products: the threads of BLAS would outlast them
            once = once + xp.sum(weighted, axis=0)
            twice = twice + xp.sum(tile * weighted, axis=0)
        return once[:, None] / total, twice[:, None] / total

    @cached_property
    def spread(self) -> Array:
        """The weighted variance of each coordinate, (p, 1)."""
        mean, square = self.moments
        return self.xp.clip(square - mean * mean, 0.0, None)

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""
        if self.weight is None:
            return float(self.matrix.shape[0])
        return float(self.xp.sum(self.xp.astype(self.weight, self.xp.float64)))

    def centred_coefficients(self, W: Array) -> tuple[Array, Array]:
        """Return coefficients (d, m) of centred X and offsets (m,) of solutions W, (p, m)."""
        xp = self.xp
        offset = xp.zeros(W.shape[1], dtype=W.dtype, device=self.device)
        if self.intercept:
            W, offset = W[:-1, :], W[-1, :]
        return W if self.rotation is None else cast(xp, self.rotation, W.dtype) @ W, offset

    def from_centred(self, gradient: Array, total: Array) -> Array:
        """Apply the transpose of :meth:`centred_coefficients`, to (d, m) and (m,): (p, m)."""
        if self.rotation is not None:
            gradient = cast(self.xp, self.rotation, gradient.dtype).T @ gradient
        return self.xp.concat([gradient, total[None, :]]) if self.intercept else gradient

    def coefficients(self, W: Array) -> tuple[Array, Array]:
        """Return coefficients (d, m) of X and intercepts (m,) of solutions W, (p, m)."""
        coef, offset = self.centred_coefficients(W)
        if self.mean is not None:
            own = W[:-1, :] if self.shifted else coef
            offset = offset - self.xp.astype(self.mean, W.dtype) @ own
        return coef, offset

    def rounded_coefficients(self, W: Array) -> tuple[Array, Array]:
        """Return coefficients (m, d) and intercepts (m,), in the type of X if scores allow it."""
        # some columns at a time: of many features and problems there is no room for copies
        size = COLUMNS_AT_ONCE if self.xp is np else max(1, W.shape[1])
        parts = [W[:, at : at + size] for at in range(0, max(1, W.shape[1]), size)]
        found = [
            round_coefficients(*self.coefficients(part), self.dtype, self.max_abs) for part in parts
        ]
        if len(found) == 1:
            return found[0]
        coef, intercept = (np.concatenate(own) for own in zip(*found, strict=True))
        return coef, intercept

    def of_rows(self, X: Any) -> Design:
        """Return the design of other rows, (n, d), in the same coordinates, without weights.

        The design has to have all coordinates: see ``complete``.
        """
        dtype = self.matrix.dtype
        if sp.issparse(self.matrix):
            matrix = sp.csr_array(X, dtype=dtype)
            matrix = _append_ones(matrix) if self.intercept else matrix
            return replace(self, matrix=matrix, weight=None)
        matrix = X.toarray() if sp.issparse(X) else X.astype(dtype)
        if self.mean is not None:
            matrix = matrix - self.mean.astype(matrix.dtype)
        if self.rotation is not None:
            matrix = matrix @ self.rotation.astype(matrix.dtype)
        ones = np.ones((len(matrix), int(self.intercept)), matrix.dtype)
        return replace(self, matrix=np.concatenate([matrix, ones], axis=1), weight=None)


def _max_abs(X: Array) -> float:
    """Return the largest absolute value in X; refuse values whose squares overflow."""
    values = X.data if sp.issparse(X) else X
    if 0 in values.shape:
        return 0.0
    xp = array_namespace(values)
    largest = float(xp.max(xp.abs(values)))
    check_squares(largest, float(xp.finfo(values.dtype).max), X.shape)
    return largest


def round_coefficients(
    coef: Array, intercept: Array, dtype: Any, max_abs: float
) -> tuple[Any, Any]:
    """Return coefficients (m, d) and intercepts (m,) in a type, if that hardly changes scores.

    Takes (d, m) and (m,) in double precision, which they keep otherwise, for X with values up to
    ``max_abs``.
    """
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


def check_squares(max_abs: float, limit: float, shape: tuple[int, int]) -> None:
    """Refuse X, of (n, d) values up to ``max_abs``, if a sum of their squares may reach a limit."""
    if max_abs > (limit / max(1, shape[0] * shape[1])) ** 0.5:
        raise ValueError(f"X has values up to {max_abs:.1g}, whose squares overflow: scale X")


def _mostly_zero(X: Array) -> bool:
    if not isinstance(X, np.ndarray) or X.size < MIN_SPARSE_ENTRIES:
        return False
    return bool(np.count_nonzero(X) <= MAX_DENSITY * X.size)


def _used_columns(X: Any) -> tuple[Any, Any]:
    """Leave out features that are zero on every row: their coefficients are zero.

    Returns the rest, and the matrix that puts their coefficients back into place (None where all
    features are used).
    """
    used = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(used) == X.shape[1]:
        return X, None
    ones = np.ones(len(used), dtype=X.dtype)
    places = sp.csr_array((ones, (used, np.arange(len(used)))), shape=(X.shape[1], len(used)))
    return X[:, used], places


def _append_ones(X: Any) -> Any:
    """Return sparse X with a last column of ones."""
    (n, d), count = X.shape, X.nnz + X.shape[0]
    last = X.indptr[1:] + np.arange(n)
    others = np.ones(count, dtype=np.bool_)
    others[last] = False
    data, indices = np.ones(count, dtype=X.dtype), np.full(count, d, dtype=X.indices.dtype)
    data[others], indices[others] = X.data, X.indices
    return sp.csr_array((data, indices, X.indptr + np.arange(n + 1)), shape=(n, d + 1))


def _weighted_mean(xp: Any, X: Array, column: Array) -> Array:
    return xp.sum(X * column, axis=0) / xp.sum(column)
