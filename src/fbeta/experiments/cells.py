"""One cell of an experiment, and the record of its result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from fbeta.experiments.machine import describe_machine
from fbeta.storage.model_files import library_versions

__all__ = ["Cell", "Record", "ResultError"]

FORMAT = 1
# what tables and charts are made of, for the experiments that have them
_NUMBER, _LIST, _DICT = (int, float), (list,), (dict,)
_PARAMETERS: dict[str, dict[str, tuple[type, ...]]] = {
    "figure1": {"beta": _NUMBER, "n_train": _NUMBER, "seed": _NUMBER},
    "table2": {"beta": _NUMBER, "alphas": _LIST, "cv": _NUMBER, "seed": _NUMBER},
}
_RESULTS: dict[str, dict[str, tuple[type, ...]]] = {
    "figure1": dict.fromkeys(("score", "expected", "regret", "bayes"), _NUMBER),
    "table2": {
        "scores fbeta": _NUMBER, "seconds fit": _NUMBER, "betas": _DICT,
        "alpha": (*_NUMBER, type(None)), "calibration": (*_LIST, type(None)),
    },
}  # fmt: skip


class ResultError(ValueError):
    """A stored result that cannot be read, or results that do not fit together."""


@dataclass(frozen=True)
class Cell:
    """Data set x method x parameters: what is to be run, without the result.

    Attributes
    ----------
    experiment : str
        ``"figure1"``, ``"table2"`` and so on: results of different experiments are kept apart.
    dataset, method : str
        Names.
    parameters : mapping
        Everything else that the result depends on, as JSON has it.

    Examples
    --------
    >>> Cell("table2", "scene", "fbeta", {"beta": 1.0}).key
    'scene-fbeta-e96f10fc'
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
    """A finished cell.

    Attributes
    ----------
    cell : Cell
        What was run.
    result : mapping
        What came out; its fields depend on the experiment.
    seconds : float
        Wall time of the run.
    finished : str
        Moment of the end, ISO 8601 in UTC.
    versions : mapping
        Of Python and the libraries.
    machine : mapping
        Processor, cores, memory and system; empty in results of the first versions.
    """

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
        """Write the record as JSON text."""
        content = {"format": FORMAT, **asdict(self.cell), **asdict(self)}
        del content["cell"]
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str) -> Record:
        """Read what :meth:`to_json` wrote; the source is where it is from, for messages."""
        try:
            content = json.loads(text)
            found = content.pop("format")
            if found == FORMAT:
                names = [str(content[key]) for key in ("experiment", "dataset", "method")]
                cell = Cell(names[0], names[1], names[2], dict(content["parameters"]))
                result, versions = dict(content["result"]), dict(content["versions"])
                seconds, finished = float(content["seconds"]), str(content["finished"])
                _check_fields(
                    "parameters", dict(cell.parameters), _PARAMETERS.get(cell.experiment, {})
                )
                _check_fields("result", result, _RESULTS.get(cell.experiment, {}))
                machine = dict(content.get("machine", {}))
                return cls(cell, result, seconds, finished, versions, machine)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ResultError(
                f"{source}: not a stored result ({type(error).__name__}: {error}); "
                "remove the file to run this cell again"
            ) from error
        raise ResultError(f"{source}: expected results of format {FORMAT}, found {found!r}")


def _check_fields(name: str, found: Any, needed: Mapping[str, tuple[type, ...]]) -> None:
    """Raise where a field is absent or of another kind; blanks are between names of levels."""
    for path, kinds in needed.items():
        value: Any = found
        for key in path.split():
            if not isinstance(value, dict) or key not in value:
                raise ValueError(f"its {name} lacks {path!r}")
            value = value[key]
        if not isinstance(value, kinds):
            raise ValueError(f"its {name} has {value!r} for {path!r}")
