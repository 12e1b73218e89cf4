"""The output code y -> a_y of label sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, astype, host_integers, is_tensor, namespace_and_device, widest_float
from fbeta._validation import check_choice
from fbeta.labels.forms import Indicator, read_labels
from fbeta.statistics.validation import check_indicator


def observed_cardinalities(Y: Indicator, which: str = "seen") -> NDArray[np.intp]:
    """Return the sizes k for which statistics are kept.

    Parameters
    ----------
    Y : csr_array of shape (n, s)
        0/1 indicator.
    which : {"seen", "all"}
        The sizes that occur in ``Y``, or all of 1..s.

    Returns
    -------
    ndarray of shape (K,)
        Increasing, without 0.
    """
    check_choice("cardinalities", which, ("seen", "all"))
    if which == "all":
        return np.arange(1, Y.shape[1] + 1)
    sizes = np.unique(np.diff(Y.indptr)).astype(np.intp)
    return sizes[sizes > 0]


def encode(Y: Indicator, cardinalities: NDArray[np.intp]) -> sp.csc_array:
    """Return the targets of every binary problem: a_y for each row.

    Column 0 is ``1(|y| = 0)``; column ``1 + k s + j`` is ``1(|y| = cardinalities[k]) y_j``. Each
    label of a row is in one column only, so the targets hold as many ones as ``Y`` (and one for
    each empty row), however many problems there are.

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
    if not is_tensor(Y):
        xp, device = namespace_and_device(like=like)
        indicator = read_labels(Y, name)[1]
        sizes = observed_cardinalities(indicator) if cardinalities is None else cardinalities
        sizes = np.asarray(sizes, dtype=np.intp)
        dtype = widest_float(xp, device) if like is None else like.dtype
        code = encode(indicator, sizes).toarray()
        return xp.asarray(code, dtype=dtype, device=device), sizes, int(indicator.shape[1])
    xp, device = namespace_and_device(**{name: Y, "scores": Y if like is None else like})
    dtype = widest_float(xp, device) if like is None else like.dtype
    labels = astype(xp, check_indicator(Y, name), dtype)
    number = xp.sum(labels, axis=1)
    if cardinalities is None:
        cardinalities = [k for k in host_integers(xp.unique_values(number)) if k > 0]
    parts = [astype(xp, number == 0, dtype)[:, None]]
    parts += [labels * astype(xp, number == int(k), dtype)[:, None] for k in cardinalities]
    sizes = np.asarray([int(k) for k in cardinalities], dtype=np.intp)
    return xp.concat(parts, axis=1), sizes, int(Y.shape[1])
