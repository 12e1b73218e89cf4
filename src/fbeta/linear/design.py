"""X in the coordinates in which the problems are solved.

The penalty ``alpha / 2 |w|^2`` does not change under rotations of the features, and an intercept
without penalty absorbs any shift of them. So for dense X the solver works on centred scores ``Z =
(X - mean) V`` with orthogonal columns: min(n, d) of them, and with a Hessian that is nearly
diagonal. The rotation is shared by all problems, all strengths of regularisation and all subsets
of the rows. Sparse X stays as it is, and is centred by arithmetic on the coefficients; so is dense
X that is mostly zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from fbeta._array import array_namespace
from fbeta._threads import one_blas_thread

Array: TypeAlias = Any
# beyond this many dimensions the eigendecomposition may cost more than it saves
MAX_ROTATED = 1500
MAX_DENSITY = 0.2  # share of entries that are not zero up to which dense X is taken as sparse
MIN_ENTRIES = 1 << 16  # below which that saves nothing
SMALL = 400  # dimensions below which BLAS threads bring nothing


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
        1 for the coordinates in the penalty, 0 for the intercept.
    mean : array of shape (d,), or None
        The centre of the rows of X: subtracted from dense X, kept aside for sparse X.
    rotation : array or csr_array of shape (d, p - 1 or p), or None
        Orthonormal columns; None for the identity. For sparse X, the columns of the identity that
        belong to features which are not zero on every row.
    intercept : bool
        Whether the last coordinate is an intercept.
    """

    matrix: Array
    weight: Any
    penalised: Array
    mean: Any
    rotation: Any
    intercept: bool

    @classmethod
    def of(
        cls, X: Array, weight: Array | None = None, *, intercept: bool = True, rotate: bool = True
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

        Returns
        -------
        Design
        """
        _check_size(X)
        if sp.issparse(X) or _mostly_zero(X):
            return cls._of_sparse(X, weight, intercept)
        xp = array_namespace(X)
        column = None if weight is None else xp.astype(weight, X.dtype)[:, None]
        mean = None
        if intercept:
            mean = xp.mean(X, axis=0) if column is None else _weighted_mean(xp, X, column)
            X = X - mean
        rotation = None
        if rotate and min(X.shape) <= MAX_ROTATED:
            with one_blas_thread(min(X.shape) < SMALL):
                X, rotation = _orthogonal_scores(xp, X, column)
        penalised = xp.ones((X.shape[1], 1), dtype=X.dtype)
        if intercept:
            X = xp.concat([X, xp.ones((X.shape[0], 1), dtype=X.dtype)], axis=1)
            penalised = xp.concat([penalised, xp.zeros((1, 1), dtype=X.dtype)], axis=0)
        return cls(X, column, penalised, mean, rotation, intercept)

    @classmethod
    def _of_sparse(cls, X: Any, weight: Array | None, intercept: bool) -> Design:
        X, selection = _used_columns(sp.csr_array(X))
        penalised = np.ones((X.shape[1] + intercept, 1), dtype=X.dtype)
        column = None if weight is None else weight.astype(X.dtype)[:, None]
        mean = None
        if intercept:
            share = np.full((X.shape[0], 1), 1 / X.shape[0]) if column is None else column
            mean = (X.T @ (share / share.sum()))[:, 0].astype(X.dtype)
            X = sp.hstack([X, np.ones((X.shape[0], 1), dtype=X.dtype)], format="csr")
            penalised[-1] = 0
        return cls(sp.csr_array(X), column, penalised, mean, selection, intercept)

    @property
    def xp(self) -> Any:
        """The array namespace of the dense state."""
        return array_namespace(self.penalised)

    @property
    def dtype(self) -> Any:
        """The floating type of the solver's state."""
        return self.matrix.dtype

    @property
    def shifted(self) -> bool:
        """Whether ``matrix`` is not centred although the coordinates are."""
        return self.mean is not None and sp.issparse(self.matrix)

    def forward(self, W: Array) -> Array:
        """Return what ``matrix`` has to be multiplied with to get the scores of W, (p, m)."""
        if not self.shifted:
            return W
        offset = W[-1:, :] - (self.mean @ W[:-1, :])[None, :]
        return self.xp.concat([W[:-1, :], offset], axis=0)

    def backward(self, G: Array) -> Array:
        """Apply the transpose of :meth:`forward`, to ``matrix.T @ residuals``, (p, m)."""
        if not self.shifted:
            return G
        return self.xp.concat([G[:-1, :] - self.mean[:, None] * G[-1:, :], G[-1:, :]], axis=0)

    def astype(self, dtype: Any) -> Design:
        """Return the design in another floating type."""
        xp = self.xp
        matrix = self.matrix
        matrix = matrix.astype(dtype) if sp.issparse(matrix) else xp.astype(matrix, dtype)
        arrays: dict[str, Any] = {
            name: None if value is None else xp.astype(value, dtype)
            for name, value in vars(self).items()
            if name in ("weight", "penalised", "mean")
        }
        return replace(self, matrix=matrix, **arrays)

    def single(self) -> Design:
        """Return the design in single precision, or itself where that cannot hold it."""
        xp = self.xp
        with np.errstate(over="ignore"):
            light = self.astype(xp.float32)
        values = light.matrix.data if sp.issparse(light.matrix) else light.matrix
        return light if bool(xp.all(xp.isfinite(values))) else self

    def take(self, rows: Array) -> Design:
        """Return the design of some rows, in the same coordinates."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, matrix=self.matrix[rows], weight=weight)

    @cached_property
    def mean_squares(self) -> Array:
        """The weighted mean of the squares of each column, of shape (p, 1)."""
        xp, total = self.xp, self.total_weight
        if sp.issparse(self.matrix):
            squares = self.matrix.power(2).T
            weight = xp.ones((self.matrix.shape[0], 1)) if self.weight is None else self.weight
            mean = xp.asarray(squares @ weight, dtype=self.dtype) / total
            if self.shifted:
                mean = xp.concat([mean[:-1, :] - self.mean[:, None] ** 2, mean[-1:, :]], axis=0)
            return xp.clip(mean, 0.0, None)
        squares = self.matrix * self.matrix
        if self.weight is not None:
            squares = squares * self.weight
        return xp.sum(squares, axis=0)[:, None] / total

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of the rows."""
        if self.weight is None:
            return float(self.matrix.shape[0])
        return float(self.xp.sum(self.weight))

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
        offset = xp.zeros(W.shape[1], dtype=W.dtype)
        if self.intercept:
            W, offset = W[:-1, :], W[-1, :]
        coef = W if self.rotation is None else self.rotation @ W
        if self.mean is not None:
            offset = offset - self.mean @ (W if self.shifted else coef)
        return coef, offset


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


def _check_size(X: Array) -> None:
    """Refuse features whose squares overflow."""
    values = X.data if sp.issparse(X) else X
    if 0 in values.shape:
        return
    xp = array_namespace(values)
    largest, limit = float(xp.max(xp.abs(values))), float(xp.finfo(values.dtype).max)
    if largest > (limit / max(1, X.shape[0] * X.shape[1])) ** 0.5:
        raise ValueError(f"X has values up to {largest:.1g}, whose squares overflow: scale X")


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


def _weighted_mean(xp: Any, X: Array, column: Array) -> Array:
    return xp.sum(X * column, axis=0) / xp.sum(column)


def _orthogonal_scores(xp: Any, X: Array, column: Array | None) -> tuple[Array, Array]:
    """Return ``Z = X V`` with V orthonormal and the columns of Z orthogonal under the weights.

    With more features than rows, a QR decomposition of X' gives orthonormal coordinates of the
    row space first. Errors of the eigenvectors cost preconditioning, never accuracy: V is
    orthonormal to rounding whatever they are.
    """
    basis = None
    if X.shape[0] < X.shape[1]:
        basis, R = xp.linalg.qr(X.T, mode="reduced")
        X = R.T
    weighted = X if column is None else X * column
    _, V = xp.linalg.eigh(weighted.T @ X)
    Z = X @ V
    size = xp.sqrt(xp.sum(Z * Z, axis=0))
    keep = size > xp.finfo(Z.dtype).eps * xp.max(size)
    if not bool(xp.all(keep)) and bool(xp.any(keep)):
        # directions in which no row has a component: their coefficients are zero
        index = xp.nonzero(keep)[0]
        Z, V = xp.take(Z, index, axis=1), xp.take(V, index, axis=1)
    return Z, V if basis is None else basis @ V
