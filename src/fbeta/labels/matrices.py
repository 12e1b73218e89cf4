"""0/1 matrices: the one check that labels are 0 or 1, for dense, sparse and device arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, check_unmasked

Indicator: TypeAlias = sp.csr_array


def read_matrix(Y: Any, name: str) -> NDArray[np.bool_] | Indicator:
    """Return a 0/1 matrix of shape (n, s), n, s >= 1: dense as booleans, sparse as CSR of int8."""
    if sp.issparse(Y):
        indicator = sp.csr_array(Y, copy=True)
        indicator.sum_duplicates()
        check_unmasked(name, indicator.data)
        _check_not_empty(indicator.shape, name)
        check_binary(indicator.data, name, indicator)
        indicator.eliminate_zeros()
        return indicator.astype(np.int8)
    array = _as_numbers(as_array(Y, name), name)
    if array.ndim == 1:
        raise ValueError(f"{name} must have two dimensions (rows, labels), got 1")
    _check_not_empty(array.shape, name)
    check_binary(array, name)
    return array.astype(np.bool_)


def as_array(Y: Any, name: str) -> NDArray[Any]:
    """Return an array of one or two dimensions whose values are not complex and not masked."""
    check_unmasked(name, Y)
    try:
        array = np.asarray(Y)
    except ValueError as error:
        raise ValueError(f"{name} is neither a 0/1 matrix nor a sequence of label sets") from error
    check_unmasked(name, array)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have two dimensions (rows, labels), got {array.ndim}")
    return array


def _as_numbers(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return numbers of a type that scipy.sparse takes; the strings "0" and "1" are numbers."""
    if array.dtype.kind in "biu" or array.dtype in (np.float32, np.float64):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "USO":
        texts = {v for v in array.ravel().tolist() if isinstance(v, str | bytes)}
        other = sorted(map(repr, texts - {"0", "1", b"0", b"1"}))
        if other:
            raise ValueError(f"Unknown label type: {name} must hold 0 and 1, found {other[0]}")
    elif array.dtype.kind != "f":
        raise ValueError(f"Unknown label type: {name} must hold 0 and 1, found {array.dtype}")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Unknown label type: {name} must hold 0 and 1: {error}") from error


def _check_not_empty(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        what = "rows" if shape[0] == 0 else "labels"
        raise ValueError(f"{name} has no {what} (shape {shape}): at least one is required")


def check_binary(values: Array, name: str, sparse: Indicator | None = None) -> None:
    """Raise where an array of any library has a value besides 0 and 1, and say where.

    The values are those of a matrix of shape (n, s), or the data of a sparse one.
    """
    xp = array_namespace(values)
    if xp.isdtype(values.dtype, "bool"):
        return
    wrong = (values != 0) & (values != 1)
    if not bool(xp.any(wrong)):
        return
    first = int(xp.argmax(xp.astype(xp.reshape(wrong, (-1,)), xp.int8)))
    value = xp.reshape(values, (-1,))[first]
    if sparse is None:
        *place, column = (int(i) for i in np.unravel_index(first, tuple(values.shape)))
        row = place[0] if len(place) == 1 else tuple(place)
    else:
        row = int(np.searchsorted(sparse.indptr, first, side="right") - 1)
        column = int(sparse.indices[first])
    if not np.isfinite(float(value)):
        what = "NaN" if np.isnan(float(value)) else "infinity"
        raise ValueError(f"Input {name} contains {what} (first at row {row}, column {column}).")
    raise ValueError(
        f"Unknown label type: {name} must hold only 0 and 1, found {value!s} at row {row}, column "
        f"{column}; label sets of numbers are Python sets: [set(row) for row in {name}]"
    )
