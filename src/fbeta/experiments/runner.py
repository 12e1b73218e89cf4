"""Running cells: only those that have not finished, and beside other runs of the same folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fbeta.experiments.cells import Cell, Record
from fbeta.experiments.store import ResultStore

__all__ = ["RunReport", "Watcher", "run_cells"]

# seconds between two looks at cells that another run is working on
_PATIENCE = 0.5


class Watcher:
    """Somebody who is told how a run goes on; this one does not mind."""

    def started(self, cell: Cell) -> None:
        """Hear that a cell is being computed."""

    def finished(self, cell: Cell, record: Record | None) -> None:
        """Hear that a cell has a record, or failed if it is None."""


@dataclass(frozen=True)
class RunReport:
    """How a run ended.

    Attributes
    ----------
    records : list of Record
        Of the cells that have a result, in the order of the cells.
    computed : int
        How many of them this run computed.
    failures : dict from Cell key to str
        What went wrong with the others.
    """

    records: list[Record]
    computed: int
    failures: dict[str, str]


def run_cells(
    cells: Sequence[Cell],
    compute: Callable[[Cell], dict[str, Any]],
    store: ResultStore,
    watcher: Watcher | None = None,
) -> RunReport:
    """Compute the cells that have no result yet, and store each as it finishes.

    Cells that another run of the same folder is working on are left to it; where that run ends
    without a result, this one takes them over. A cell whose computation raises an error does not
    stop the others; nothing is stored for it, so that the next run tries again.

    Parameters
    ----------
    cells : sequence of Cell
        What is to be run.
    compute : callable
        ``compute(cell)`` returns the result.
    store : ResultStore
        Where the results are and go.
    watcher : Watcher, optional
        Is told of each cell that starts and ends.

    Returns
    -------
    RunReport

    Examples
    --------
    >>> import tempfile
    >>> cells = [Cell("toy", "data", "method", {"seed": seed}) for seed in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run_cells(cells[:2], lambda cell: {"score": 0.5}, ResultStore(folder))
    ...     second = run_cells(cells, lambda cell: {"score": 0.6}, ResultStore(folder))
    >>> second.computed, [record.result["score"] for record in second.records]
    (1, [0.5, 0.5, 0.6])
    """
    watcher = watcher or Watcher()
    found: dict[str, Record] = {}
    failures: dict[str, str] = {}
    computed, pending = 0, list(dict.fromkeys(cell.key for cell in cells))
    by_key = {cell.key: cell for cell in cells}
    while pending:
        waiting = []
        for key in pending:
            state = _attempt(by_key[key], compute, store, watcher)
            if state is None:
                waiting.append(key)
            elif isinstance(state, str):
                failures[key] = state
            else:
                found[key], new = state
                computed += new
        if len(waiting) == len(pending):
            time.sleep(_PATIENCE)
        pending = waiting
    records = [found[key] for key in by_key if key in found]
    return RunReport(records, computed, failures)


def _attempt(
    cell: Cell, compute: Callable[[Cell], dict[str, Any]], store: ResultStore, watcher: Watcher
) -> tuple[Record, bool] | str | None:
    """Return the record and whether it is new, the failure, or None while others are at it."""
    record = store.find(cell)
    if record is not None:
        watcher.finished(cell, record)
        return record, False
    with store.claim(cell) as ours:
        if not ours:
            return None
        record = store.find(cell)
        if record is not None:
            watcher.finished(cell, record)
            return record, False
        watcher.started(cell)
        begin = time.perf_counter()
        try:
            result = compute(cell)
            record = Record.now(cell, result, time.perf_counter() - begin)
            # a result that is not a number is the failure of this cell, too
            record.to_json()
        except Exception as error:
            # one method that cannot cope with one data set must not cost the rest of the table
            watcher.finished(cell, None)
            return f"{type(error).__name__}: {error}"
        store.write(record)
        watcher.finished(cell, record)
        return record, True
