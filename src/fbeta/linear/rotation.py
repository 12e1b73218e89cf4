"""The rotation of dense X to coordinates in which its columns are orthogonal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from fbeta._array import Array, array_namespace

__all__ = ["PART_ENTRIES", "cast", "orthogonal_scores", "rotation_pays"]

PART_ENTRIES = 1 << 20  # entries of X that are copied to double precision at a time


def rotation_pays(shape: tuple[int, int], problems: float = np.inf) -> bool:
    """Tell whether a rotation of dense X, (n, d), that ``problems`` solves share saves time.

    With about as many features as rows the Hessians are far from diagonal in any coordinates.
    Otherwise the scores need about half the products, or have far fewer columns, against the cost
    of the eigendecomposition.
    """
    n, d = shape
    if max(n, d) < 2 * min(n, d):
        return False
    return bool(problems * n * max(1, d // max(n, 1)) >= min(n, d) ** 2)


def cast(xp: Any, matrix: Array, dtype: Any) -> Array:
    """Return a dense or sparse matrix in a floating type, where overflows are infinite."""
    if matrix.dtype == dtype:
        return matrix
    with np.errstate(over="ignore"):
        return matrix.astype(dtype) if sp.issparse(matrix) else xp.astype(matrix, dtype)


def orthogonal_scores(
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
        basis, R = xp.linalg.qr(cast(xp, X, xp.float64).T, mode="reduced")
        X = R.T
    parts = list(_row_parts(X))
    tiles = (cast(xp, X[part, :], xp.float64) for part in parts)
    if column is None:
        gram = sum(tile.T @ tile for tile in tiles)
    else:
        weights = (cast(xp, column[part, :], xp.float64) for part in parts)
        gram = sum((tile * c).T @ tile for tile, c in zip(tiles, weights, strict=True))
    _, V = xp.linalg.eigh(gram)
    size, scores = 0.0, []
    for part in parts:
        Z = cast(xp, X[part, :], xp.float64) @ V
        size = size + xp.sum(Z * Z, axis=0)
        scores.append(cast(xp, Z, dtype))
    Z, size = xp.concat(scores, axis=0), xp.sqrt(size)
    keep = size > xp.finfo(xp.float64).eps * xp.max(size)
    if not complete and not bool(xp.all(keep)) and bool(xp.any(keep)):
        # directions in which no row has a component: their coefficients are zero
        index = xp.nonzero(keep)[0]
        Z, V = xp.take(Z, index, axis=1), xp.take(V, index, axis=1)
    return Z, V if basis is None else basis @ V


def _row_parts(X: Array) -> Iterator[slice]:
    """Split the rows into parts that are small enough for a copy in double precision."""
    size = (
        X.shape[0] if X.dtype == array_namespace(X).float64 else PART_ENTRIES // max(X.shape[1], 1)
    )
    n, size = X.shape[0], max(size, 1)
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))
