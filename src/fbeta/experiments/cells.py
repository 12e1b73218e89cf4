"""Cells of experiments, their records on disk, and runs that compute what is not there yet."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from fbeta._files import remove_stale, try_lock, write_text
from fbeta.storage.model_files import library_versions

RECORD_FORMAT = 1
_POLL_SECONDS = 0.5  # between two looks at cells that another run is working on
# fields that tables and charts need, by experiment; a blank is between names of levels
_NUMBER, _NOTHING = (int, float), type(None)
_NEEDED: dict[str, dict[str, dict[str, Any]]] = {
    "figure1": {
        "parameters": dict.fromkeys(("beta", "n_train", "seed"), _NUMBER),
        "result": dict.fromkeys(("score", "expected", "regret", "bayes"), _NUMBER),
    },
    "table2": {
        "parameters": {**dict.fromkeys(("beta", "cv", "seed"), _NUMBER), "alphas": list},
        "result": {
            **dict.fromkeys(("scores fbeta", "seconds fit"), _NUMBER),
            "betas": dict,
            "alpha": (*_NUMBER, _NOTHING),
            "calibration": (list, _NOTHING),
        },
    },
}

# called with a cell and whether it has ended
Progress = Callable[["Cell", bool], None]


@dataclass(frozen=True)
class Cell:
    """Data set x method x parameters: what is to be run, without the result."""

    experiment: str  # "figure1", "table2" and so on
    dataset: str
    method: str
    parameters: Mapping[str, Any]  # all else that the result depends on, as JSON

    @property
    def key(self) -> str:
        """Name of the cell within its experiment, fit for a file name; other cells differ."""
        identity = [self.experiment, self.dataset, self.method, dict(self.parameters)]
        text = json.dumps(identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        words = [re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in (self.dataset, self.method)]
        return "-".join([*words, digest])


def grid(
    experiment: str,
    datasets: Iterable[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    **parameters: Any,
) -> list[Cell]:
    """List the cells of data sets x methods x seeds, data set by data set."""
    return [
        Cell(experiment, dataset, method, {**parameters, "seed": int(seed)})
        for dataset, method, seed in product(datasets, methods, seeds)
    ]


@dataclass(frozen=True)
class Record:
    """A finished cell: its result, wall time, end in UTC, versions of libraries and machine."""

    cell: Cell
    result: Mapping[str, Any]
    seconds: float
    finished: str
    versions: Mapping[str, str]
    machine: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def now(cls, cell: Cell, result: Mapping[str, Any], seconds: float) -> Record:
        """Make the record of a cell that has just finished."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(cell, result, seconds, moment, library_versions(), describe_machine())

    def to_json(self) -> str:
        """Write the record as JSON text; a number that is not finite is a ValueError."""
        content = {"format": RECORD_FORMAT, **asdict(self.cell), **asdict(self)}
        del content["cell"]
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str) -> Record:
        """Read what :meth:`to_json` wrote; `source` is named in errors."""
        try:
            content = json.loads(text)
            found = content.pop("format")
            if found == RECORD_FORMAT:
                names = {key: str(content[key]) for key in ("experiment", "dataset", "method")}
                for part, needed in _NEEDED.get(names["experiment"], {}).items():
                    for words, kinds in needed.items():
                        value = content[part]
                        for key in words.split():
                            if not isinstance(value, dict) or key not in value:
                                raise ValueError(f"its {part} lacks {words!r}")
                            value = value[key]
                        if not isinstance(value, kinds):
                            raise ValueError(f"its {part} has {value!r} for {words!r}")
                return cls(
                    Cell(**names, parameters=dict(content["parameters"])),
                    dict(content["result"]),
                    float(content["seconds"]),
                    str(content["finished"]),
                    dict(content["versions"]),
                    dict(content.get("machine", {})),  # the first results do not have it
                )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{source}: not a stored result ({type(error).__name__}: {error}); "
                "remove the file to run this cell again"
            ) from error
        raise ValueError(f"{source}: expected results of format {RECORD_FORMAT}, found {found!r}")


def describe_machine(cpuinfo: str = "/proc/cpuinfo") -> dict[str, str]:
    """Return processor, usable cores, memory and system, as far as the system tells them."""
    processor, memory = platform.processor(), ""
    with suppress(OSError):
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
        names = re.findall(r"^model name\s*:\s*(.*)$", text, flags=re.MULTILINE)
        processor = names[0] if names else processor
    with suppress(AttributeError, ValueError, OSError):  # not on Windows
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}".strip()
    found = {"processor": processor, "cores": str(cores or ""), "memory": memory, "system": system}
    return {key: words for key, words in found.items() if words}


class ResultStore:
    """The finished cells of a folder, which is made when the first is written.

    A cell is the file ``cells/EXPERIMENT/KEY.json``, which appears all at once when the cell has
    finished. While a run works on a cell it holds a lock of the operating system on
    ``cells/EXPERIMENT/KEY.lock``: however the run ends, the lock ends with it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def _path(self, cell: Cell, suffix: str) -> Path:
        return self.folder / "cells" / cell.experiment / f"{cell.key}{suffix}"

    def find(self, cell: Cell) -> Record | None:
        """Return the record of a cell, or None if it has not finished."""
        path = self._path(cell, ".json")
        try:
            return Record.from_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        """Keep the record of a finished cell."""
        path = self._path(record.cell, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, record.to_json())

    def records(self, experiment: str) -> list[Record]:
        """Return all records of an experiment, in the order of their file names."""
        paths = sorted((self.folder / "cells" / experiment).glob("[!.]*.json"))
        return [Record.from_json(path.read_text(encoding="utf-8"), str(path)) for path in paths]

    def note_left_out(self, reasons: Mapping[str, str]) -> None:
        """Keep why data sets were left out, for the report."""
        text = json.dumps({**self.left_out(), **reasons}, indent=1) + "\n"
        (self.folder / "cells").mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "cells" / "left-out.json", text)

    def left_out(self) -> dict[str, str]:
        """Return why data sets were left out, by name; nothing if the file is damaged."""
        try:
            text = (self.folder / "cells" / "left-out.json").read_text(encoding="utf-8")
            return {str(name): str(why) for name, why in json.loads(text).items()}
        except (FileNotFoundError, AttributeError, ValueError, RecursionError):
            return {}

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Yield whether no other run holds the lock of a cell; it may have finished before."""
        path = self._path(cell, ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if not try_lock(file):
                yield False
                return
            remove_stale(self._path(cell, ".json"))
            yield True
            # Other runs may hold the removed file open, or make it anew: whoever gets its lock
            # looks for the result first, and finds it.
            if self._path(cell, ".json").exists():
                path.unlink(missing_ok=True)


def run_cells(
    cells: Sequence[Cell],
    compute: Callable[[Cell], dict[str, Any]],
    store: ResultStore,
    progress: Progress = lambda cell, ended: None,
) -> tuple[list[Record], int, dict[str, str]]:
    """Compute the cells that have no result yet, and store each as it finishes.

    Returns records in the order of the cells, how many of them are new, and failures by key.
    Cells that another run of the same folder is working on are left to it; where that run ends
    without a result, this one takes them over.
    """
    by_key = {cell.key: cell for cell in cells}
    found: dict[str, Record | str] = {}
    computed, pending = 0, list(by_key)
    while pending:
        for key in pending:
            cell = by_key[key]
            outcome: Record | str | None = store.find(cell)
            if outcome is None:
                with store.claim(cell) as ours:
                    if not ours:
                        continue
                    # another run may have finished it before it was claimed
                    outcome = store.find(cell)
                    if outcome is None:
                        progress(cell, False)
                        outcome = _compute(cell, compute, store)
                        computed += isinstance(outcome, Record)
            progress(cell, True)
            found[key] = outcome
        left = [key for key in pending if key not in found]
        if len(left) == len(pending):
            time.sleep(_POLL_SECONDS)
        pending = left
    records = [found[key] for key in by_key]
    failures = {key: words for key, words in found.items() if isinstance(words, str)}
    return [record for record in records if isinstance(record, Record)], computed, failures


def _compute(
    cell: Cell, compute: Callable[[Cell], dict[str, Any]], store: ResultStore
) -> Record | str:
    """Return the record of a cell, which is stored, or its failure, so that the next run tries."""
    begin = time.perf_counter()
    try:
        record = Record.now(cell, compute(cell), time.perf_counter() - begin)
        record.to_json()  # a result that is not finite is a failure of this cell, too
    except Exception as error:
        # one method that fails on one data set must not cost the rest of the table
        return f"{type(error).__name__}: {error}"
    store.write(record)
    return record
