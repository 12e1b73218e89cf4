"""Arguments of label statistics: label sets as the code y -> a_y, and arrays of probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import (
    Array,
    as_array,
    astype,
    check_choice,
    host_integers,
    is_tensor,
    namespace_and_device,
    widest_float,
)
from fbeta.labels.forms import Indicator, check_binary, read_labels
from fbeta.statistics.storage import check_statistics


def observed_cardinalities(Y: Indicator, which: str = "seen") -> NDArray[np.intp]:
    """Return the sizes k for which statistics are kept: (K,), increasing, without 0.

    Parameters
    ----------
    Y : csr_array of shape (n, s)
        0/1 indicator.
    which : {"seen", "all"}
        The sizes that occur in ``Y``, or all of 1..s.
    """
    check_choice("cardinalities", which, ("seen", "all"))
    _check_indicator(Y)
    if which == "all":
        return np.arange(1, Y.shape[1] + 1)
    sizes = np.unique(np.diff(Y.indptr)).astype(np.intp)
    return sizes[sizes > 0]


def _check_indicator(Y: Any) -> None:
    if getattr(Y, "format", "") != "csr" or not (Y.data == 1).all():
        raise ValueError(
            "Y must be a csr_array of 0 and 1 without explicit zeros; encode_labels takes others"
        )


def encode(Y: Indicator, cardinalities: NDArray[np.intp]) -> sp.csc_array:
    """Return the targets of every binary problem: a_y for each row.

    Column 0 is ``1(|y| = 0)``; column ``1 + k s + j`` is ``1(|y| = cardinalities[k]) y_j``.

    Parameters
    ----------
    Y : csr_array of shape (n, s)
        0/1 indicator without explicit zeros.
    cardinalities : ndarray of shape (K,)
        Increasing sizes; rows of other sizes are in no column.

    Returns
    -------
    csc_array of shape (n, 1 + K s)
        0/1 targets, int8.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [0, 0]], dtype=np.int8))
    >>> encode(Y, np.array([1, 2])).toarray().tolist()
    [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]
    """
    _check_indicator(Y)
    n, s = Y.shape
    sizes = np.diff(Y.indptr)
    slot = np.full(s + 1, -1)
    slot[cardinalities] = np.arange(len(cardinalities))
    row = np.repeat(np.arange(n), sizes)
    k = slot[sizes[row]]
    row, column = row[k >= 0], (1 + k * s + Y.indices)[k >= 0]
    empty = np.flatnonzero(sizes == 0)
    rows = np.concatenate([empty, row])
    columns = np.concatenate([np.zeros(len(empty), dtype=np.intp), column])
    ones = np.ones(len(rows), dtype=np.int8)
    return sp.csc_array((ones, (rows, columns)), shape=(n, 1 + len(cardinalities) * s))


def encode_labels(
    Y: Any, cardinalities: Any = None, *, like: Array = None, name: str = "Y"
) -> tuple[Array, NDArray[np.intp], int]:
    """Return the code of label sets as an array of any library.

    Parameters
    ----------
    Y : labels of n instances
        0/1 array of any library, sparse matrix, DataFrame, or sequence of label sets.
    cardinalities : array-like of shape (K,), optional
        Increasing sizes; those that occur in ``Y`` by default.
    like : array, optional
        Of the library, device and floating type that the code is to have.
    name : str
        What to call ``Y`` in messages.

    Returns
    -------
    code : array of shape (n, 1 + K s)
        In the order of :func:`encode`.
    cardinalities : ndarray of shape (K,)
    n_labels : int
        The number of labels s.

    Examples
    --------
    >>> encode_labels([[1, 1], [0, 0]])[0].tolist()
    [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """
    own = {name: Y} if is_tensor(Y) else {}
    xp, device = namespace_and_device(**own, scores=like)
    dtype = widest_float(xp, device) if like is None else like.dtype
    if not own:
        indicator = read_labels(Y, name)[1]
        sizes = observed_cardinalities(indicator) if cardinalities is None else cardinalities
        sizes = np.asarray(sizes, dtype=np.intp)
        code = encode(indicator, sizes).toarray()
        return xp.asarray(code, dtype=dtype, device=device), sizes, int(indicator.shape[1])
    if Y.ndim != 2 or 0 in Y.shape:
        raise ValueError(f"{name} must have shape (n, s) with n, s >= 1, got {tuple(Y.shape)}")
    check_binary(Y, name)
    labels = astype(xp, Y, dtype)
    number = xp.sum(labels, axis=1)
    if cardinalities is None:
        cardinalities = [k for k in host_integers(xp.unique_values(number)) if k > 0]
    parts = [astype(xp, number == 0, dtype)[:, None]]
    parts += [labels * astype(xp, number == int(k), dtype)[:, None] for k in cardinalities]
    sizes = np.asarray([int(k) for k in cardinalities], dtype=np.intp)
    return xp.concat(parts, axis=1), sizes, int(Y.shape[1])


@dataclass(frozen=True)
class Targets:
    """Targets of n rows, and what all rows share: constants that an objective is made of."""

    values: Any
    structure: Any


def distinct_columns(matrix: sp.csc_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the distinct column that each column equals, (M,), and where each is first, (m,)."""
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = sp.csc_array(matrix, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    seen: dict[tuple[bytes, bytes], int] = {}
    several = bool((matrix.data != matrix.data[:1]).any())
    which = np.empty(matrix.shape[1], dtype=np.intp)
    first: list[int] = []
    for m, (start, stop) in enumerate(pairwise(matrix.indptr.tolist())):
        values = matrix.data[start:stop].tobytes() if several else b""
        key = matrix.indices[start:stop].tobytes(), values
        which[m] = seen.setdefault(key, len(first))
        if which[m] == len(first):
            first.append(m)
    return which, np.array(first, dtype=np.intp)


def constant_values(targets: sp.csc_array) -> NDArray[np.float64]:
    """Return the value of each column that has only one, NaN for the others."""
    counts = np.diff(targets.indptr)
    out = np.where(counts == 0, 0.0, np.nan)
    for column in np.flatnonzero(counts == targets.shape[0]):
        values = targets.data[targets.indptr[column] : targets.indptr[column + 1]]
        if len(values) and (values == values[0]).all():
            out[column] = values[0]
    return out


def as_floats(name: str, values: Any) -> Array:
    """Return an array in a floating type, NumPy's in double precision."""
    xp, device = namespace_and_device(**{name: values})
    if xp is np:
        return np.asarray(values, dtype=np.float64)
    floating = xp.isdtype(values.dtype, "real floating")
    return values if floating else astype(xp, values, widest_float(xp, device))


def read_matrix(P: Any) -> Array:
    """Return probabilities or logits, (n, s), as floats; scikit-learn's lists of (n, 2) too."""
    if isinstance(P, (list, tuple)) and P and all(getattr(p, "ndim", 0) == 2 for p in P):
        for j, p in enumerate(P):
            if p.shape[1] != 2:
                raise ValueError(
                    f"P[{j}] must have shape (n, 2), the probabilities that label {j} is absent "
                    f"and present, got {tuple(p.shape)}"
                )
            if p.shape[0] != P[0].shape[0]:
                raise ValueError(f"P[{j}] has {p.shape[0]} rows, but P[0] has {P[0].shape[0]}")
        xp, _ = namespace_and_device(**{f"P[{j}]": p for j, p in enumerate(P)})
        P = xp.stack([p[:, 1] for p in P], axis=1)
    P = as_floats("P", P)
    if P.ndim != 2 or P.shape[1] == 0:
        raise ValueError(f"P must have shape (n, s) with s >= 1, got {tuple(P.shape)}")
    return P


def read_sizes(sizes: Any, P: Any) -> Array:
    """Return the law of the number of labels, (n, m + 1), in the place and type of P, (n, s)."""
    xp, device = namespace_and_device(P=P, sizes=sizes)
    sizes = astype(xp, as_array(xp, device, sizes), P.dtype)
    n, s = P.shape
    if sizes.ndim != 2 or sizes.shape[0] != n or not 1 <= sizes.shape[1] <= s + 1:
        raise ValueError(
            f"sizes must have shape ({n}, m + 1) with m <= {s}, one column for each number of "
            f"labels 0..m, got {tuple(sizes.shape)}"
        )
    check_statistics("sizes", sizes)
    return sizes


def row_numbers(rows: Any, n: int, place: tuple[Any, Any]) -> Any:
    """Return a slice, or an array of numbers of n rows in a place, from a mask or numbers."""
    if isinstance(rows, slice):
        return rows
    xp, device = place
    if is_tensor(rows):
        if xp.isdtype(rows.dtype, "bool"):
            return xp.nonzero(rows)[0]
        return xp.where(rows < 0, rows + n, rows)
    chosen = np.atleast_1d(np.asarray(rows))
    if chosen.dtype == np.bool_:
        if chosen.shape != (n,):
            raise IndexError(f"the mask of rows has shape {chosen.shape}, expected ({n},)")
        chosen = np.flatnonzero(chosen)
    chosen = chosen.astype(np.intp, casting="same_kind") if chosen.size else np.arange(0)
    if ((chosen < -n) | (chosen >= n)).any():
        raise IndexError(f"rows must lie in 0..{n - 1}")
    return xp.asarray(np.where(chosen < 0, chosen + n, chosen), device=device)
