"""Targets of a model: with the constants that its objective needs, equal and constant columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Targets", "constant_values", "distinct_columns"]


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
    seen: dict[tuple[int, int], list[int]] = {}
    which = np.empty(matrix.shape[1], dtype=np.intp)
    first: list[int] = []
    keys = zip(np.diff(matrix.indptr).tolist(), _hashes(matrix).tolist(), strict=True)
    for m, key in enumerate(keys):
        alike = seen.setdefault(key, [])
        which[m] = next((k for k in alike if _equal(matrix, first[k], m)), len(first))
        if which[m] == len(first):
            alike.append(len(first))
            first.append(m)
    return which, np.array(first, dtype=np.intp)


def _hashes(matrix: sp.csc_array) -> NDArray[np.uint64]:
    """Return a number for each column, equal for equal columns."""
    rows = np.random.default_rng(0).integers(0, 2**64, size=matrix.shape[0], dtype=np.uint64)
    terms, data = rows[matrix.indices], matrix.data
    if len(data) and (data != data[0]).any():
        terms = terms * (data.astype(np.float64).view(np.uint64) | np.uint64(1))
    out = np.zeros(matrix.shape[1], np.uint64)
    some = np.flatnonzero(np.diff(matrix.indptr))
    if len(some):
        out[some] = np.add.reduceat(terms, matrix.indptr[some])
    return out


def _equal(matrix: sp.csc_array, one: int, other: int) -> bool:
    a, b = (slice(*matrix.indptr[m : m + 2]) for m in (one, other))
    same = np.array_equal(matrix.indices[a], matrix.indices[b])
    return same and np.array_equal(matrix.data[a], matrix.data[b])


def constant_values(targets: sp.csc_array) -> NDArray[np.float64]:
    """Return the value of each column that has only one, NaN for the others."""
    counts = np.diff(targets.indptr)
    out = np.where(counts == 0, 0.0, np.nan)
    for column in np.flatnonzero(counts == targets.shape[0]):
        values = targets.data[targets.indptr[column] : targets.indptr[column + 1]]
        if len(values) and (values == values[0]).all():
            out[column] = values[0]
    return out
