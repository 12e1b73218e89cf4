"""X in the coordinates in which the problems are solved: centred and rotated where that pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array, array_namespace, astype, dense_to_csr, take_rows
from fbeta._threads import one_blas_thread
from fbeta.linear.batch import RowTiles
from fbeta.linear.objectives import round_coefficients

# dimensions up to which it costs nothing: rows with weights and repeated ones are solved alike
ALWAYS_ROTATED = 32
MAX_ROTATED = 1500  # dimensions beyond which the eigendecomposition may cost more than it saves
MAX_DENSITY = 0.2  # share of non-zero entries up to which dense X is taken as sparse
MIN_SPARSE_ENTRIES = 1 << 16  # entries of X below which that saves nothing
MAX_ONE_THREAD_FEATURES = 400  # dimensions below which BLAS threads do not pay
COLUMNS_AT_ONCE = 256  # columns that are brought back to the coordinates of X at a time
PART_ENTRIES = 1 << 20  # entries of X that are copied to double precision at a time
FAR_ROW = 30.0  # distance of a row from the mean, in medians of all, that makes it an outlier
MAX_DOUBLE_ENTRIES = 1 << 24  # entries of X up to which it is kept in double precision


@dataclass(frozen=True)
class Design:
    """X as the solver sees it, with the way back to the coefficients of X."""

    matrix: Array  # (n, p), or csr_array; the last column is 1 where there is an intercept
    weight: Any  # (n, 1), of the rows, or None
    mean: Any  # (d,), centre of the rows, subtracted from dense X, kept aside for sparse X; or None
    # (d, p - 1 or p), orthonormal columns, None for the identity; for sparse X, the columns of the
    # identity, as csr_array, of features that are not zero on every row
    rotation: Any
    intercept: bool  # whether the last coordinate is an intercept
    max_abs: float  # the largest absolute value of a feature
    dtype: Any  # floating type of X; that of `matrix` may be more precise

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

        An ``intercept`` is not penalised. Dense X is rotated to orthogonal scores if ``rotate``. A
        ``complete`` design keeps coordinates in which no row, but perhaps others, has a component.
        """
        max_abs, dtype, sparse = 0.0, X.dtype, sp.issparse(X)
        values = X.data if sparse else X
        xp = array_namespace(values)
        if 0 not in values.shape:
            max_abs = float(xp.max(xp.abs(values)))
            check_squares(max_abs, float(xp.finfo(dtype).max), X.shape)
        if isinstance(X, np.ndarray) and X.size >= MIN_SPARSE_ENTRIES:
            sparse = np.count_nonzero(X) <= MAX_DENSITY * X.size
        if sparse:
            return cls._of_sparse(X, weight, intercept, max_abs, complete)
        if X.shape[0] * X.shape[1] <= MAX_DOUBLE_ENTRIES:
            # what centring and rotation round is no more than what X itself does not hold
            X = astype(xp, X, xp.float64)
        there = {"dtype": X.dtype, "device": X.device}
        column = None if weight is None else xp.asarray(weight, **there)[:, None]
        mean = rotation = None
        if intercept:
            weighted = column is not None
            mean = xp.sum(X * column, axis=0) / xp.sum(column) if weighted else xp.mean(X, axis=0)
            X = X - mean
        if rotate and min(X.shape) <= MAX_ROTATED and not (complete and X.shape[0] < X.shape[1]):
            with one_blas_thread(min(X.shape) < MAX_ONE_THREAD_FEATURES):
                X, rotation = orthogonal_scores(xp, X, column, complete)
        if intercept:
            X = xp.concat([X, xp.ones((X.shape[0], 1), **there)], axis=1)
        return cls(X, column, mean, rotation, intercept, max_abs, dtype)

    @classmethod
    def _of_sparse(
        cls, X: Any, weight: Array | None, intercept: bool, max_abs: float, complete: bool
    ) -> Design:
        dtype, X = X.dtype, sp.csr_array(X) if sp.issparse(X) else dense_to_csr(X)
        X, selection = (X, None) if complete else _used_columns(X)
        column = None if weight is None else weight.astype(X.dtype)[:, None]
        mean = None
        if intercept:
            total = X.shape[0] if column is None else column.sum(dtype=np.float64)
            mean = _sparse_sums(X, column, 1) / total
            X = _append_ones(X)
        return cls(X, column, mean, selection, intercept, max_abs, dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and the coordinates, (n, p)."""
        n, p = self.matrix.shape
        return int(n), int(p)

    @property
    def xp(self) -> Any:
        """The array namespace of the dense state."""
        return np if sp.issparse(self.matrix) else array_namespace(self.matrix)

    @property
    def device(self) -> Any:
        """Where the arrays are."""
        return self.penalised.device

    @cached_property
    def penalised(self) -> Array:
        """1 in the penalty and 0 for the intercept, (p, 1), in double precision."""
        xp, sparse = self.xp, sp.issparse(self.matrix)
        out = np.ones((self.shape[1], 1))
        out[self.shape[1] - self.intercept :] = 0
        return out if sparse else xp.asarray(out, device=self.matrix.device)

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
        return replace(self, matrix=astype(self.xp, self.matrix, dtype), weight=weight)

    def holds_in(self, dtype: Any) -> bool:
        """Tell whether entries and sums of their squares are finite in a type."""
        n, p = self.shape
        # centring and rotation make no entry larger than this
        largest = 2 * self.max_abs * (1 + p) ** 0.5
        return bool(largest <= (float(self.xp.finfo(dtype).max) / max(1, n * p)) ** 0.5)

    def take(self, rows: Array) -> Design:
        """Return the design of some rows, in the same coordinates."""
        xp = self.xp
        as_given = xp is np or isinstance(rows, slice)
        index = rows if as_given else xp.asarray(rows, device=self.device)
        matrix, weight = (
            a if a is None else a[index] if xp is np else take_rows(xp, a, index)
            for a in (self.matrix, self.weight)
        )
        return replace(self, matrix=matrix, weight=weight)

    @cached_property
    def orthogonal(self) -> tuple[Design, Array]:
        """The rows in double precision with orthogonal columns, and V that leads there, (p, q)."""
        xp = self.xp
        matrix = astype(xp, self.matrix, xp.float64)
        matrix = matrix.toarray() if sp.issparse(matrix) else matrix
        ones = matrix[:, -1:] if self.intercept else matrix[:, :0]
        matrix = matrix[:, :-1] if self.intercept else matrix
        weight = None if self.weight is None else xp.astype(self.weight, xp.float64)
        Z, V = orthogonal_scores(xp, matrix - self.mean if self.shifted else matrix, weight)
        matrix = xp.concat([Z, ones], axis=1)
        return replace(self, matrix=matrix, weight=weight, mean=None), V

    def rotate(self, W: Array, *, to: bool) -> Array:
        """Bring coefficients, (p, m), to the coordinates of :attr:`orthogonal`, or back."""
        V, last = self.orthogonal[1], -1 if self.intercept else W.shape[0]
        return self.xp.concat([(V.T if to else V) @ W[:last, :], W[last:, :]], axis=0)

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """The weighted means of the columns of ``matrix`` and of their squares, (p, 1) each."""
        xp, X, weight = self.xp, self.matrix, self.weight
        if sp.issparse(X):
            sums = [_sparse_sums(X, weight, power) for power in (1, 2)]
        else:
            sums = [xp.zeros(X.shape[1], dtype=xp.float64, device=self.device)] * 2
            for part in _row_parts(X, PART_ENTRIES):
                tile = weighted = astype(xp, X[part, :], xp.float64)
                if weight is not None:
                    weighted = tile * xp.astype(weight[part, :], xp.float64)
                # sums and not products: the threads of BLAS would outlast them
                both = (weighted, tile * weighted)
                sums = [a + xp.sum(b, axis=0) for a, b in zip(sums, both, strict=True)]
        once, twice = (a[:, None] / self.total_weight for a in sums)
        return once, twice

    @cached_property
    def spread(self) -> Array:
        """The weighted variance of each coordinate, (p, 1)."""
        mean, square = self.moments
        return self.xp.clip(square - mean * mean, 0.0, None)

    @cached_property
    def distances(self) -> tuple[Array, Array, float]:
        """A centre of the rows, (p, 1), their distances from it, (n, 1), and their median.

        In penalised coordinates. The centre is 0, or where an intercept absorbs any shift and some
        rows are far from the others, the mean of those others.
        """
        xp, n = self.xp, self.matrix.shape[0]
        centre = xp.zeros_like(self.penalised)
        size = self._distances_from(centre)
        middle = float(xp.sort(size[:, 0])[n // 2]) if n else 0.0
        if n and self.intercept and bool(xp.max(size) > FAR_ROW * middle):
            near = self.take(xp.nonzero(size[:, 0] <= 2 * middle)[0])
            centre = near.moments[0] * self.penalised
            if self.shifted:
                centre[:-1, 0] -= self.mean
            size = self._distances_from(centre)
            middle = float(xp.sort(size[:, 0])[n // 2])
        return centre, size, middle

    def _distances_from(self, centre: Array) -> Array:
        xp, matrix, last = self.xp, self.matrix, self.shape[1] - int(self.intercept)
        if sp.issparse(matrix):
            at = centre + (np.append(self.mean, 0.0)[:, None] if self.shifted else 0.0)
            data, size = matrix.data.astype(np.float64), float(np.sum(at * at))
            squares = np.where(matrix.indices < last, data * data, 0.0)
            ones = np.ones((self.shape[1], 1))
            own = sp.csr_array((squares, matrix.indices, matrix.indptr), matrix.shape) @ ones
            error = 16 * np.finfo(np.float64).eps * (own + size)
            return np.sqrt(np.clip(own - 2 * (matrix @ at) + size, 0.0, None) + error)
        shifted, parts = bool(xp.any(centre != 0)), []
        for rows in _row_parts(matrix, PART_ENTRIES):
            part = astype(xp, matrix[rows, :last], xp.float64)
            part = part - centre[:last, :].T if shifted else part
            parts.append(xp.vecdot(part, part))
        return xp.sqrt(xp.concat(parts))[:, None]

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
        return W if self.rotation is None else astype(xp, self.rotation, W.dtype) @ W, offset

    def from_centred(self, gradient: Array, total: Array) -> Array:
        """Apply the transpose of :meth:`centred_coefficients`, to (d, m) and (m,): (p, m)."""
        if self.rotation is not None:
            gradient = astype(self.xp, self.rotation, gradient.dtype).T @ gradient
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
        """Return a ``complete`` design of other rows, (n, d), without weights."""
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


def check_squares(max_abs: float, limit: float, shape: tuple[int, int]) -> None:
    """Refuse X, of (n, d) values up to ``max_abs``, if a sum of their squares may reach a limit."""
    if max_abs > (limit / max(1, shape[0] * shape[1])) ** 0.5:
        raise ValueError(f"X has values up to {max_abs:.1g}, whose squares overflow: scale X")


def _used_columns(X: Any) -> tuple[Any, Any]:
    """Return X without features that are zero on every row, and what puts coefficients back."""
    used = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    if len(used) == X.shape[1]:
        return X, None
    return X[:, used], sp.eye_array(X.shape[1], dtype=X.dtype, format="csr")[:, used]


def _append_ones(X: Any) -> Any:
    """Return sparse X with a last column of ones; sp.hstack takes several times as long."""
    (n, d), count = X.shape, X.nnz + X.shape[0]
    others = np.ones(count, dtype=np.bool_)
    others[X.indptr[1:] + np.arange(n)] = False
    data, indices = np.ones(count, dtype=X.dtype), np.full(count, d, dtype=X.indices.dtype)
    data[others], indices[others] = X.data, X.indices
    return sp.csr_array((data, indices, X.indptr + np.arange(n + 1)), shape=(n, d + 1))


def _sparse_sums(X: Any, weight: Array | None, power: int) -> Array:
    """Return the weighted sums of the columns of sparse X, or of their squares, (p,)."""
    values = X.data.astype(np.float64)
    weighted = values if weight is None else values * np.repeat(weight[:, 0], np.diff(X.indptr))
    weighted = weighted * values if power == 2 else weighted
    return np.bincount(X.indices, weighted, minlength=X.shape[1])


def rotation_pays(shape: tuple[int, int], problems: float = np.inf) -> bool:
    """Tell whether a rotation of dense X, (n, d), that ``problems`` solves share saves time."""
    n, d = shape
    if min(n, d) <= ALWAYS_ROTATED:
        return True
    if max(n, d) < 2 * min(n, d):  # Hessians are far from diagonal in any coordinates
        return False
    return bool(problems * n * max(1, d // max(n, 1)) >= min(n, d) ** 2)


def orthogonal_scores(
    xp: Any, X: Array, column: Array | None, complete: bool = False
) -> tuple[Array, Array]:
    """Return ``Z = X V`` with V orthonormal and the columns of Z orthogonal under the weights.

    The products are in double precision, or features of a large scale would leave their rounding
    errors in the coordinates of the others.
    """
    basis, dtype = None, X.dtype
    if X.shape[0] < X.shape[1]:  # orthonormal coordinates of the row space first
        basis, R = xp.linalg.qr(astype(xp, X, xp.float64).T, mode="reduced")
        X = R.T
    entries = X.shape[0] * X.shape[1] if X.dtype == xp.float64 else PART_ENTRIES
    parts = list(_row_parts(X, entries))
    tiles = (astype(xp, X[part, :], xp.float64) for part in parts)
    if column is None:
        gram = sum(tile.T @ tile for tile in tiles)
    else:
        weights = (astype(xp, column[part, :], xp.float64) for part in parts)
        gram = sum((tile * c).T @ tile for tile, c in zip(tiles, weights, strict=True))
    (_, V), size, scores = xp.linalg.eigh(gram), 0.0, []
    for part in parts:
        Z = astype(xp, X[part, :], xp.float64) @ V
        size = size + xp.sum(Z * Z, axis=0)
        scores.append(astype(xp, Z, dtype))
    Z, size = xp.concat(scores, axis=0), xp.sqrt(size)
    keep = size > xp.finfo(xp.float64).eps * xp.max(size)
    if not complete and not bool(xp.all(keep)) and bool(xp.any(keep)):
        # directions in which no row has a component: their coefficients are zero
        index = xp.nonzero(keep)[0]
        Z, V = xp.take(Z, index, axis=1), xp.take(V, index, axis=1)
    return Z, V if basis is None else basis @ V


def _row_parts(X: Array, entries: int) -> Iterator[slice]:
    """Split the rows, at least one, into parts of so many entries."""
    n, size = X.shape[0], max(1, entries // max(X.shape[1], 1))
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))
