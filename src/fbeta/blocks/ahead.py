"""Items that a thread makes ahead of their use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["read_ahead"]

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item], depth: int) -> Iterator[Item]:
    """Yield items that a thread makes ahead of their use.

    Parameters
    ----------
    items : iterator
        Its errors are raised here.
    depth : int
        How many wait at most.

    Examples
    --------
    >>> list(read_ahead(iter([1, 2, 3]), 2))
    [1, 2, 3]
    """
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
