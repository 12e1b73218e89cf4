"""A block of rows as it was read, and the checks that say which part and row is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta.labels.forms import Indicator, LabelForm

__all__ = ["Block", "check_features", "check_labels", "check_weight"]


@dataclass(frozen=True)
class Block:
    """Rows as they were read: rows ``start``, ... of a part, with labels where there are any."""

    part: str
    start: int
    X: Any
    Y: Any = None
    weight: Any = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def place(self, row: int) -> str:
        """Return what to call a row in a message."""
        return f"{self.part}, row {self.start + row}"


def check_features(block: Block, n_features: int | None, *, finite: bool = True) -> Any:
    """Return the features of a block as floats, dense or CSR, or say which row is wrong.

    Parameters
    ----------
    block : Block
    n_features : int, optional
        Their number in other blocks.
    finite : bool
        Whether to look for NaN and infinity.

    Returns
    -------
    ndarray or csr_array of shape (n, d)
    """
    X = block.X
    if sp.issparse(X):
        X = sp.csr_array(X)
    elif hasattr(X, "iloc"):
        X = X.to_numpy()
    else:
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"{block.part}: X must have two dimensions (rows, features), got {X.ndim}")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"{block.place(0)}: found {X.shape[1]} features where other blocks have {n_features}"
        )
    if X.dtype not in (np.float32, np.float64):
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{block.place(0)}: X must hold numbers: {error}") from error
    if finite:
        _check_finite(block, X)
    return X


def _check_finite(block: Block, X: Any) -> None:
    values = X.data if sp.issparse(X) else X
    # a sum of finite numbers in double precision is finite, and much quicker than a look at each
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    bad = np.flatnonzero(~np.isfinite(values).ravel())[0]
    if sp.issparse(X):
        row, column = int(np.searchsorted(X.indptr, bad, side="right")) - 1, int(X.indices[bad])
    else:
        row, column = (int(i) for i in np.unravel_index(bad, X.shape))
    what = "NaN" if np.isnan(values.ravel()[bad]) else "infinity"
    raise ValueError(f"{block.place(row)}: Input X contains {what} (feature {column})")


def check_labels(block: Block, form: LabelForm, n: int) -> Indicator:
    """Return the labels of a block as an indicator, or say which part is wrong."""
    if block.Y is None:
        raise ValueError(f"{block.part}: there are no labels")
    try:
        Y = form.read(block.Y, "y")
    except ValueError as error:
        where = f"{block.part}, rows {block.start} to {block.start + n - 1}"
        raise ValueError(f"{where}: {error}") from error
    if Y.shape[0] != n:
        raise ValueError(f"{block.part}: X has {n} rows and y has {Y.shape[0]}")
    return Y


def check_weight(block: Block, n: int) -> NDArray[np.float64] | None:
    """Return the weights of a block, or say which row is wrong; they may all be 0 here."""
    if block.weight is None:
        return None
    weight = np.asarray(block.weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"{block.part}: X has {n} rows and the weights have {weight.shape}")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        raise ValueError(f"{block.place(int(bad[0]))}: the weight is {weight[bad[0]]}")
    return weight
