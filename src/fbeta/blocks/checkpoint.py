"""The state of a fit in a file, from which a fit that was killed is resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fbeta._files import write_atomically
from fbeta.blocks.held import GroupState

__all__ = ["Checkpoint", "CheckpointError"]

VERSION = 2
# pairs belong to the Hessians of rows that may not be held after a resume
_NOT_STORED = ("pairs", "finished")


class CheckpointError(ValueError):
    """A file that is not the checkpoint of this fit."""


class Checkpoint:
    """A file that is written whole after each pass, and read if it exists at the start.

    ``fingerprint`` has digests of data and parameters by what they are of: the file of a fit in
    which one differs is refused. There is no file without a path.
    """

    def __init__(self, path: str | PathLike[str] | None, fingerprint: Mapping[str, str]) -> None:
        self.path, self.fingerprint = None if path is None else Path(path), dict(fingerprint)

    def load(self) -> tuple[list[GroupState], int] | None:
        """Return states and passes of a fit that was killed; None where there is no file."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                head = json.loads(str(file["head"]))
                if head.get("version") != VERSION:
                    raise ValueError(f"its version is {head.get('version')!r}")
                states = [_read(file, number) for number in range(head["groups"])]
                differs = [
                    name
                    for name, own in self.fingerprint.items()
                    if head["fingerprint"][name] != own
                ]
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise CheckpointError(f"{self.path} is no checkpoint of a fit: {error}") from error
        if differs:
            raise CheckpointError(
                f"{self.path} is the checkpoint of a fit to other data or with other settings "
                f"({', '.join(differs)} differ): remove it, or give another path"
            )
        return states, head["used"]

    def save(self, states: Sequence[GroupState], used: int) -> None:
        """Write the states, all at once."""
        if self.path is None:
            return
        head = {
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "groups": len(states),
            "used": used,
        }
        arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
        for number, state in enumerate(states):
            arrays |= {f"{number}/{name}": value for name, value in _write(state).items()}
        with write_atomically(self.path) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    def remove(self) -> None:
        """Remove the file of a fit that is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _write(state: GroupState) -> dict[str, Any]:
    stored = {f.name: getattr(state, f.name) for f in fields(state) if f.name not in _NOT_STORED}
    stored["pieces"] = len(state.finished)
    for number, piece in enumerate(state.finished):
        stored |= {f"finished{number}/{place}": part for place, part in enumerate(piece)}
    return stored


def _read(file: Any, number: int) -> GroupState:
    own = {
        f.name: file[f"{number}/{f.name}"] for f in fields(GroupState) if f.name not in _NOT_STORED
    }
    for name in ("floor", "alpha", "fold"):
        own[name] = own[name].item()
    finished = [
        tuple(file[f"{number}/finished{at}/{place}"] for place in range(5))
        for at in range(int(file[f"{number}/pieces"]))
    ]
    state = GroupState(**own, finished=finished)
    state.forget_pairs()
    return state
