"""Blocks of rows as they are read, ahead of their use, and checks that name part and row."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._validation import MAX_LARGEST_WEIGHT
from fbeta.labels.forms import Indicator, LabelForm

__all__ = ["Block", "check_features", "check_labels", "check_weight", "read_ahead"]

Item = TypeVar("Item")


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
    """Return the features of a block as floats, dense or CSR, (n, d), or name the row at fault.

    ``n_features`` is their number in other blocks; ``finite`` says whether to check for NaN.
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
    bad = np.flatnonzero(~((weight >= 0) & (weight <= MAX_LARGEST_WEIGHT)))
    if len(bad):
        raise ValueError(f"{block.place(int(bad[0]))}: the weight is {weight[bad[0]]}")
    return weight


def read_ahead(items: Iterator[Item], depth: int) -> Iterator[Item]:
    """Yield items that a thread makes ahead of their use, ``depth`` of them at most."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    stop = threading.Event()

    def put(kind: str, value: Any) -> bool:
        while not stop.is_set():
            try:
                waiting.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="fbeta-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = waiting.get()
            if kind == "item":
                yield value
            elif kind == "error":
                raise value
            else:
                return
    finally:
        stop.set()
        thread.join()
