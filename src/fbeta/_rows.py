"""Rows that are worked on together: as many as suit the caches, the threads, or a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fbeta._array import Array
from fbeta._threads import n_threads, run_threaded

# numbers that are worked on at once: what the caches of a core hold, and what keeps a device busy
CHUNK, CHUNK_ON_DEVICE = 1 << 19, 1 << 23
# numbers that one operation of a recurrence takes: enough to outweigh the call
TILE, TILE_ON_DEVICE = 1 << 13, 1 << 18
# rows that are unfolded together even where they are more than a chunk, and how many numbers these
# may be: the recurrences of a few rows cost as much as those of one
FEW, MANY = 128, 1 << 21


def on_host(device: Any) -> bool:
    """Tell whether a device is the processor, with its caches, and not beside it.

    Examples
    --------
    >>> on_host(np.zeros(1).device), on_host(None), on_host("cuda:0")
    (True, True, False)
    """
    return device is None or "cpu" in str(device).lower()


def chunk_elements(device: Any) -> int:
    """Return how many numbers are worked on at once."""
    return CHUNK if on_host(device) else CHUNK_ON_DEVICE


def tile_elements(device: Any) -> int:
    """Return how many numbers one step of a recurrence takes."""
    return TILE if on_host(device) else TILE_ON_DEVICE


def rows_at_once(place: tuple[Any, Any], n: int, row_bytes: int) -> int:
    """Return how many of n rows are worked on at once: few enough to occupy every thread.

    Parameters
    ----------
    place : pair
        Namespace and device of the arrays.
    n : int
        Number of rows.
    row_bytes : int
        What a row counts for.

    Returns
    -------
    int

    Examples
    --------
    >>> rows_at_once((np, None), 10, 1 << 30)
    1
    """
    rows = max(1, 8 * chunk_elements(place[1]) // row_bytes)
    if place[0] is not np:
        return rows
    return max(1, rows // 8, min(rows, -(-n // (2 * n_threads()))))


def row_tasks(
    place: tuple[Any, Any], n: int, row_bytes: int, *, unfolding: bool = False
) -> list[slice]:
    """Return slices of n rows, to be worked on one after the other or by several threads.

    Parameters
    ----------
    place, n, row_bytes
        As for :func:`rows_at_once`.
    unfolding : bool
        Whether the rows have to be unfolded first.

    Returns
    -------
    list of slice
        At least one, also where there are no rows.
    """
    rows = rows_at_once(place, n, row_bytes)
    if unfolding:
        rows = max(rows, min(FEW, 8 * MANY // row_bytes))
    return [slice(start, min(start + rows, n)) for start in range(0, max(n, 1), rows)]


def map_rows(
    xp: Any, work: Callable[[Any], tuple[Array, ...]], tasks: list[Any]
) -> tuple[Array, ...]:
    """Do work on some rows at a time, on threads where the arrays are NumPy's.

    Parameters
    ----------
    xp : module
        The namespace.
    work : callable
        From some rows to a tuple of arrays, with one entry for each row in their first axis.
    tasks : list
        Rows that go together: slices, or arrays of integers.

    Returns
    -------
    tuple of array
        What ``work`` returned for all tasks, joined.
    """
    results = run_threaded(work, tasks, small=True) if xp is np else [work(t) for t in tasks]
    return tuple(xp.concat(list(parts), axis=0) for parts in zip(*results, strict=True))
