"""One cell of an experiment, the record of its result, and the machine that computed it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fbeta.storage.model_files import library_versions

__all__ = ["Cell", "Record", "ResultError", "describe_machine"]

RECORD_FORMAT = 1
# fields that tables and charts need, by experiment; a blank is between names of levels
_NUMBER, _NOTHING = (int, float), type(None)
_NEEDED: dict[str, dict[str, Any]] = {
    "figure1": {
        **dict.fromkeys(("parameters beta", "parameters n_train", "parameters seed"), _NUMBER),
        **dict.fromkeys(("result score", "result expected"), _NUMBER),
        **dict.fromkeys(("result regret", "result bayes"), _NUMBER),
    },
    "table2": {
        **dict.fromkeys(("parameters beta", "parameters cv", "parameters seed"), _NUMBER),
        **dict.fromkeys(("result scores fbeta", "result seconds fit"), _NUMBER),
        "parameters alphas": list,
        "result betas": dict,
        "result alpha": (*_NUMBER, _NOTHING),
        "result calibration": (list, _NOTHING),
    },
}


class ResultError(ValueError):
    """A stored result that cannot be read, or results that do not fit together."""


@dataclass(frozen=True)
class Cell:
    """Data set x method x parameters: what is to be run, without the result.

    ``experiment`` is ``"figure1"``, ``"table2"`` and so on; ``parameters`` has everything else that
    the result depends on, as JSON.
    """

    experiment: str
    dataset: str
    method: str
    parameters: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Name of the cell within its experiment, fit for a file name; other cells differ."""
        identity = [self.experiment, self.dataset, self.method, dict(self.parameters)]
        text = json.dumps(identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        words = [re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in (self.dataset, self.method)]
        return "-".join([*words, digest])


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
                experiment, dataset, method = (
                    str(content[key]) for key in ("experiment", "dataset", "method")
                )
                _check_fields(content, _NEEDED.get(experiment, {}))
                return cls(
                    Cell(experiment, dataset, method, dict(content["parameters"])),
                    dict(content["result"]),
                    float(content["seconds"]),
                    str(content["finished"]),
                    dict(content["versions"]),
                    dict(content.get("machine", {})),  # the first results do not have it
                )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ResultError(
                f"{source}: not a stored result ({type(error).__name__}: {error}); "
                "remove the file to run this cell again"
            ) from error
        raise ResultError(f"{source}: expected results of format {RECORD_FORMAT}, found {found!r}")


def _check_fields(content: Any, needed: Mapping[str, Any]) -> None:
    """Raise where a field is absent or of another kind."""
    for path, kinds in needed.items():
        value: Any = content
        name, _, words = path.partition(" ")
        for key in path.split():
            if not isinstance(value, dict) or key not in value:
                raise ValueError(f"its {name} lacks {words!r}")
            value = value[key]
        if not isinstance(value, kinds):
            raise ValueError(f"its {name} has {value!r} for {words!r}")


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
    found = {
        "processor": processor,
        "cores": str(cores or ""),
        "memory": memory,
        "system": system,
    }
    return {key: words for key, words in found.items() if words}
