"""Running cells: only those that have not finished, and beside other runs of the same folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fbeta.experiments.cells import Cell, Record
from fbeta.experiments.store import ResultStore

__all__ = ["Run", "run_cells"]

_POLL_SECONDS = 0.5  # between two looks at cells that another run is working on
Compute = Callable[[Cell], dict[str, Any]]
# called with a cell and whether it has ended
Progress = Callable[[Cell, bool], None]


@dataclass(frozen=True)
class Run:
    """A finished run: records in the order of the cells, how many are new, failures by key."""

    records: list[Record]
    computed: int
    failures: dict[str, str]


def run_cells(
    cells: Sequence[Cell],
    compute: Compute,
    store: ResultStore,
    progress: Progress = lambda cell, ended: None,
) -> Run:
    """Compute the cells that have no result yet, and store each as it finishes.

    Cells that another run of the same folder is working on are left to it; where that run ends
    without a result, this one takes them over. A cell whose computation raises an error does not
    stop the others; nothing is stored for it, so that the next run tries again.
    """
    found: dict[str, Record] = {}
    failures: dict[str, str] = {}
    by_key = {cell.key: cell for cell in cells}
    computed, pending = 0, list(by_key)
    while pending:
        waiting = []
        for key in pending:
            outcome = _attempt(by_key[key], compute, store, progress)
            if outcome is None:
                waiting.append(key)
                continue
            progress(by_key[key], True)
            if isinstance(outcome, str):
                failures[key] = outcome
            else:
                found[key], new = outcome
                computed += new
        if len(waiting) == len(pending):
            time.sleep(_POLL_SECONDS)
        pending = waiting
    return Run([found[key] for key in by_key if key in found], computed, failures)


def _attempt(
    cell: Cell, compute: Compute, store: ResultStore, progress: Progress
) -> tuple[Record, bool] | str | None:
    """Return the record and whether it is new, the failure, or None while others are at it."""
    record = store.find(cell)
    if record is not None:
        return record, False
    with store.claim(cell) as ours:
        if not ours:
            return None
        record = store.find(cell)
        if record is not None:
            return record, False
        progress(cell, False)
        begin = time.perf_counter()
        try:
            result = compute(cell)
            record = Record.now(cell, result, time.perf_counter() - begin)
            record.to_json()  # a result that is not finite is a failure of this cell, too
        except Exception as error:
            # one method that fails on one data set must not cost the rest of the table
            return f"{type(error).__name__}: {error}"
        store.write(record)
        return record, True
