"""Results on disk: one file per finished cell, safe against kills and against other runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fbeta._files import remove_stale, try_lock, write_text
from fbeta.experiments.cells import Cell, Record

__all__ = ["ResultStore"]


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
        """Yield whether this run may compute a cell: no other run holds its lock.

        The cell may have finished in the meantime, so look for its record after the claim.
        """
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
