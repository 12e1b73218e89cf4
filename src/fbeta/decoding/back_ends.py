"""Registry of searches for statistics that are on a device, by the type of the device.

:mod:`fbeta.nn` registers its kernels when it is imported. Without them statistics on a device are
decoded by the operations of the array API standard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fbeta._array import Array
from fbeta.decoding.dense_search import Goal
from fbeta.statistics.dense import Dense

__all__ = ["register_search", "search_on_device"]

# from statistics, beta and a goal to label sets, (n, s), and expected values, (n,)
Search: TypeAlias = Callable[[Dense, float, Goal], tuple[Array, Array]]
_SEARCHES: dict[str, Search] = {}


def register_search(device_type: str, search: Search) -> None:
    """Register the decode of dense statistics on devices of a type, such as "cuda"."""
    _SEARCHES[device_type] = search


def search_on_device(form: Dense, beta: float, goal: Goal) -> tuple[Array, Array] | None:
    """Return label sets and expected values, or None where no search is registered."""
    search = _SEARCHES.get(getattr(form.place[1], "type", ""))
    return None if search is None else search(form, beta, goal)
