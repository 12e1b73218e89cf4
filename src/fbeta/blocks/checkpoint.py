"""The state of a fit in a file, from which one that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fbeta._files import write_atomically
from fbeta.blocks.steps import Group, State

__all__ = ["Checkpoint", "CheckpointError"]

VERSION = 1


class CheckpointError(ValueError):
    """A file that is not the checkpoint of this fit."""


class Checkpoint:
    """A file that is written whole after each pass, and read where it is there at the start.

    Parameters
    ----------
    path : path, or None
        None for no file.
    fingerprint : str
        Of data and settings; the file of a fit with another one is refused.
    """

    def __init__(self, path: str | PathLike[str] | None, fingerprint: str) -> None:
        self.path, self.fingerprint = None if path is None else Path(path), fingerprint

    def load(self) -> tuple[list[State], dict[str, Any]] | None:
        """Return states and notes of a fit that was killed; None where there is no file."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                head = json.loads(str(file["head"]))
                if head.get("version") != VERSION:
                    raise ValueError(f"its version is {head.get('version')!r}")
                states = [_read(file, number) for number in range(head["groups"])]
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise CheckpointError(f"{self.path} is no checkpoint of a fit: {error}") from error
        if head["fingerprint"] != self.fingerprint:
            raise CheckpointError(
                f"{self.path} is the checkpoint of a fit to other data or with other settings: "
                "remove it, or give another path"
            )
        return states, head["notes"]

    def save(self, states: Sequence[State], notes: dict[str, Any]) -> None:
        """Write the states, all at once."""
        if self.path is None:
            return
        head = {
            "version": VERSION, "fingerprint": self.fingerprint, "groups": len(states),
            "notes": notes,
        }  # fmt: skip
        arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
        for number, state in enumerate(states):
            arrays |= {f"{number}/{name}": value for name, value in _write(state).items()}
        with write_atomically(self.path) as part, part.open("wb") as file:
            np.savez(file, **arrays)

    def remove(self) -> None:
        """Remove the file of a fit that is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _write(state: State) -> dict[str, Any]:
    group = state.group
    arrays = {"fold": group.fold, "alpha": group.alpha, "names": group.names}
    arrays |= {f.name: getattr(state, f.name) for f in fields(State) if f.name not in _OTHER}
    arrays["pairs"] = np.array(state.pairs).reshape(-1, 3, *state.W.shape)
    return arrays


_OTHER = ("group", "pairs")


def _read(file: Any, number: int) -> State:
    group = Group(
        int(file[f"{number}/fold"]), float(file[f"{number}/alpha"]), file[f"{number}/names"]
    )
    own = {f.name: file[f"{number}/{f.name}"] for f in fields(State) if f.name not in _OTHER}
    pairs = [(s, y, v) for s, y, v in file[f"{number}/pairs"]]
    return State(group, pairs=pairs, **own)
