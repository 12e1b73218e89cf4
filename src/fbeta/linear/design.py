"""X in the coordinates in which the problems are solved, as an operator on blocks of rows.

The penalty ``alpha / 2 |w|^2`` does not change under rotations of the features, and an intercept
without penalty absorbs any shift of them. So for dense X the solver works on centred scores ``Z =
(X - mean) V`` with orthogonal columns: min(n, d) of them, and with a Hessian that is nearly
diagonal. The rotation is shared by all problems, all strengths of regularisation and all subsets
of the rows. Sparse X stays as it is, and is centred by arithmetic on the coefficients; so is dense
X that is mostly zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array, array_namespace, is_accelerator
from fbeta._threads import one_blas_thread

__all__ = ["Design", "Rows", "rotation_pays"]

# beyond this many dimensions the eigendecomposition may cost more than it saves
MAX_ROTATED = 1500
MAX_DENSITY = 0.2  # share of entries that are not zero up to which dense X is taken as sparse
MIN_ENTRIES = 1 << 16  # below which that saves nothing
SMALL = 400  # dimensions below which BLAS threads bring nothing
PART = 1 << 20  # entries of X that are squared at a time
TOGETHER = 1 << 28  # numbers of weighted rows that an accelerator multiplies at a time
EXACT = 1 << 24  # entries of X up to which it is kept in double precision


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
    reach : float
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
    reach: float
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
        """Prepare X.

        Parameters
        ----------
        X : array or csr_array of shape (n, d)
            Features, float32 or float64.
        weight : array of shape (n,), optional
            Positive weights of the rows.
        intercept : bool
            Whether the models have an intercept, which is not penalised.
        rotate : bool
            Rotate dense X to orthogonal scores where that pays.
        complete : bool
            Keep coordinates in which no row has a component: other rows may have one.

        Returns
        -------
        Design
        """
        reach, dtype = _check_size(X), X.dtype
        if sp.issparse(X) or _mostly_zero(X):
            return cls._of_sparse(X, weight, intercept, reach, complete)
        xp = array_namespace(X)
        if X.shape[0] * X.shape[1] <= EXACT:
            # what centring and rotation round is no more than what X itself does not hold
            X = _cast(xp, X, xp.float64)
        there = {"dtype": X.dtype, "device": X.device}
        column = None if weight is None else xp.asarray(weight, **there)[:, None]
        mean = None
        if intercept:
            mean = xp.mean(X, axis=0) if column is None else _weighted_mean(xp, X, column)
            X = X - mean
        rotation = None
        if rotate and min(X.shape) <= MAX_ROTATED and not (complete and X.shape[0] < X.shape[1]):
            with one_blas_thread(min(X.shape) < SMALL):
                X, rotation = _orthogonal_scores(xp, X, column, complete)
        double = {"dtype": xp.float64, "device": X.device}
        penalised = xp.ones((X.shape[1], 1), **double)
        if intercept:
            X = xp.concat([X, xp.ones((X.shape[0], 1), **there)], axis=1)
            penalised = xp.concat([penalised, xp.zeros((1, 1), **double)], axis=0)
        return cls(X, column, penalised, mean, rotation, intercept, reach, dtype)

    @classmethod
    def _of_sparse(
        cls, X: Any, weight: Array | None, intercept: bool, reach: float, complete: bool
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
        return cls(X, column, penalised, mean, selection, intercept, reach, dtype)

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

    def rows(self, size: int, dtype: Any) -> Rows:
        """Return the rows in blocks of a size, for products in a floating type."""
        return Rows(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many columns of coefficients give so many scores: as many."""
        return width

    def penalty(self, alpha: float, ridge: float) -> Array:
        """Return the penalties of the coefficients, (p, 1), with that of an intercept given."""
        return alpha * self.penalised + ridge * (1 - self.penalised)

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
        return replace(self, matrix=_cast(self.xp, self.matrix, dtype), weight=weight)

    def holds_in(self, dtype: Any) -> bool:
        """Tell whether entries and sums of their squares are surely numbers of a type."""
        entries = max(1, self.matrix.shape[0] * self.matrix.shape[1])
        # centring and rotation make no entry larger than this
        largest = 2 * self.reach * (1 + self.matrix.shape[1]) ** 0.5
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
        matrix = _cast(xp, self.matrix, xp.float64)
        matrix = matrix.toarray() if sp.issparse(matrix) else matrix
        ones = matrix[:, -1:] if self.intercept else matrix[:, :0]
        matrix = matrix[:, :-1] if self.intercept else matrix
        weight = None if self.weight is None else xp.astype(self.weight, xp.float64)
        Z, V = _orthogonal_scores(xp, matrix - self.mean if self.shifted else matrix, weight)
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
        size = max(1, PART // max(p, 1))
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            tile = weighted = _cast(xp, self.matrix[part, :], xp.float64)
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

    def coefficients(self, W: Array) -> tuple[Array, Array]:
        """Go back to the coordinates of X.

        Parameters
        ----------
        W : array of shape (p, m)
            Solutions in the coordinates of the design.

        Returns
        -------
        coef : array of shape (d, m)
        intercept : array of shape (m,)
        """
        xp = self.xp
        offset = xp.zeros(W.shape[1], dtype=W.dtype, device=self.device)
        if self.intercept:
            W, offset = W[:-1, :], W[-1, :]
        coef = W
        if self.rotation is not None:
            coef = _cast(xp, self.rotation, W.dtype) @ W
        if self.mean is not None:
            offset = offset - xp.astype(self.mean, W.dtype) @ (W if self.shifted else coef)
        return coef, offset


class Rows:
    """The rows of a design in blocks that fit the device's fastest memory.

    Parameters
    ----------
    design : Design
    size : int
        Rows of a block.
    dtype : floating type
        Of the products. Blocks are kept in the type of X, and converted as they are visited where
        that is another.
    """

    def __init__(self, design: Design, size: int, dtype: Any) -> None:
        self.design, self.dtype = design, dtype
        n = design.matrix.shape[0]
        self.parts = [slice(at, min(at + size, n)) for at in range(0, n, size)]
        self.tiles = [design.matrix[part, :] for part in self.parts]

    def split(self, values: Array) -> list[Array]:
        """Return the blocks of an array with a row for each row."""
        return [values[part, :] for part in self.parts]

    def __iter__(self) -> Iterator[Array]:
        return (_cast(self.design.xp, tile, self.dtype) for tile in self.tiles)

    def product(self, W: Array) -> list[Array]:
        """Return the scores of W, (p, m), block by block."""
        moved = _cast(self.design.xp, self.design.forward(W), self.dtype)
        return [tile @ moved for tile in self]

    def adjoint(self, blocks: list[Array]) -> Array:
        """Multiply the transpose with (rows, m) blocks: (p, m)."""
        xp, pairs = self.design.xp, zip(self, blocks, strict=True)
        total = sum(tile.T @ _cast(xp, part, self.dtype) for tile, part in pairs)
        return self.design.backward(total)

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with what each block responds to its scores of W: (p, m)."""
        moved = self.design.forward(W)
        total = None
        for at, tile in enumerate(self):
            part = tile.T @ respond(at, tile @ moved)
            total = part if total is None else total + part
        return self.design.backward(total)

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of ``Z' B Z``, (p, m), if B did not depend on Z and summed to this.

        ``total`` has the sum over the rows for each column, (m,). The intercept's is exact.
        """
        spread, xp = self.design.spread, self.design.xp
        if self.design.intercept:
            spread = xp.concat([spread[:-1, :], xp.ones_like(spread[-1:, :])], axis=0)
        return spread * total

    def least_ratio(self, penalty: Array, D: Array) -> Array:
        """Return a lower bound of ``penalty / D`` for all that is mixed by a projection."""
        xp = self.design.xp
        return xp.min(xp.min(xp.broadcast_to(penalty, D.shape), axis=1) / xp.max(D, axis=1))

    def sandwiches(self, weights: list[Array], *, positive: bool) -> Array:
        """Return ``Z' diag(weight) Z``, (k, p, p), for (rows, k) blocks of weights."""
        xp, k, p = self.design.xp, weights[0].shape[1], self.design.matrix.shape[1]
        rows = max(tile.shape[0] for tile in self.tiles)
        # one after the other a processor is fast enough, and multiplies by its own transpose
        many = is_accelerator(self.design.device) and positive
        size = max(1, TOGETHER // (rows * p)) if many else 1
        chunks = [slice(at, min(at + size, k)) for at in range(0, k, size)]
        out = [self._sandwich([w[:, chunk] for w in weights], positive) for chunk in chunks]
        return xp.concat(out)

    def _sandwich(self, weights: list[Array], positive: bool) -> Array:
        xp = self.design.xp
        total: Array = 0.0
        for tile, weight in zip(self, weights, strict=True):
            dense = tile.toarray() if sp.issparse(tile) else tile
            if weight.shape[1] > 1:
                half = dense[None, :, :] * xp.sqrt(weight).T[:, :, None]
                total = total + xp.matrix_transpose(half) @ half
                continue
            # a product of a matrix with its own transpose costs half
            half = dense * xp.sqrt(weight) if positive else dense
            total = total + (half.T @ (half if positive else weight * dense))[None, :, :]
        if not self.design.shifted:
            return total
        return self.design.backward(self.design.backward(total[0, :, :]).T).T[None, :, :]


def rotation_pays(shape: tuple[int, int], problems: float = np.inf) -> bool:
    """Tell whether a rotation saves more than it costs.

    With about as many features as rows the Hessians are far from diagonal in any coordinates.
    Otherwise the scores need about half the products, or have far fewer columns, against the cost
    of the eigendecomposition.

    Parameters
    ----------
    shape : tuple of int
        Rows n and features d of dense X.
    problems : float
        How many solves share it.

    Returns
    -------
    bool

    Examples
    --------
    >>> rotation_pays((30_000, 100), 1000), rotation_pays((1000, 300), 10)
    (True, False)
    """
    n, d = shape
    if max(n, d) < 2 * min(n, d):
        return False
    return bool(problems * n * max(1, d // max(n, 1)) >= min(n, d) ** 2)


def _cast(xp: Any, matrix: Array, dtype: Any) -> Array:
    if matrix.dtype == dtype:
        return matrix
    with np.errstate(over="ignore"):
        return matrix.astype(dtype) if sp.issparse(matrix) else xp.astype(matrix, dtype)


def _check_size(X: Array) -> float:
    """Return the largest absolute value in X; refuse values whose squares overflow."""
    values = X.data if sp.issparse(X) else X
    if 0 in values.shape:
        return 0.0
    xp = array_namespace(values)
    largest, limit = float(xp.max(xp.abs(values))), float(xp.finfo(values.dtype).max)
    if largest > (limit / max(1, X.shape[0] * X.shape[1])) ** 0.5:
        raise ValueError(f"X has values up to {largest:.1g}, whose squares overflow: scale X")
    return largest


def _mostly_zero(X: Array) -> bool:
    if not isinstance(X, np.ndarray) or X.size < MIN_ENTRIES:
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


def _orthogonal_scores(
    xp: Any, X: Array, column: Array | None, complete: bool = False
) -> tuple[Array, Array]:
    """Return ``Z = X V`` with V orthonormal and the columns of Z orthogonal under the weights.

    With more features than rows, a QR decomposition of X' gives orthonormal coordinates of the
    row space first. Errors of the eigenvectors cost preconditioning, never accuracy: V is
    orthonormal to rounding whatever they are. The products are in double precision, or features
    of a large scale would leave their rounding errors in the coordinates of the others.
    """
    basis, dtype = None, X.dtype
    if X.shape[0] < X.shape[1]:
        basis, R = xp.linalg.qr(_cast(xp, X, xp.float64).T, mode="reduced")
        X = R.T
    parts = list(_parts(X))
    tiles = (_cast(xp, X[part, :], xp.float64) for part in parts)
    if column is None:
        gram = sum(tile.T @ tile for tile in tiles)
    else:
        weights = (_cast(xp, column[part, :], xp.float64) for part in parts)
        gram = sum((tile * c).T @ tile for tile, c in zip(tiles, weights, strict=True))
    _, V = xp.linalg.eigh(gram)
    size, scores = 0.0, []
    for part in parts:
        Z = _cast(xp, X[part, :], xp.float64) @ V
        size = size + xp.sum(Z * Z, axis=0)
        scores.append(_cast(xp, Z, dtype))
    Z, size = xp.concat(scores, axis=0), xp.sqrt(size)
    keep = size > xp.finfo(xp.float64).eps * xp.max(size)
    if not complete and not bool(xp.all(keep)) and bool(xp.any(keep)):
        # directions in which no row has a component: their coefficients are zero
        index = xp.nonzero(keep)[0]
        Z, V = xp.take(Z, index, axis=1), xp.take(V, index, axis=1)
    return Z, V if basis is None else basis @ V


def _parts(X: Array) -> Iterator[slice]:
    """Split the rows into blocks of which a copy in double precision does no harm."""
    size = X.shape[0] if X.dtype == array_namespace(X).float64 else PART // max(X.shape[1], 1)
    n, size = X.shape[0], max(size, 1)
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))
