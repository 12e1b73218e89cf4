"""Lists of scored labels, and label sets, in files: JSON Lines, pairs of text, sparse npz."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp

from fbeta._files import write_atomically, write_text
from fbeta.datasets.dataset import fail

__all__ = ["Lists", "read_lists", "write_sets"]


@dataclass(frozen=True)
class Lists:
    """Scores or labels of n rows, by the names of labels; a set has the score 1."""

    rows: Any  # csr_array of shape (n, s)
    names: tuple[str, ...] | None  # of the s columns; None where these are numbers

    def with_names(self, names: Sequence[str] | int) -> sp.csr_array:
        """Return the rows with columns for other names, or for more numbers."""
        out = self.rows.copy()
        if isinstance(names, int):
            out.resize((out.shape[0], names))
            return out
        place = {name: j for j, name in enumerate(names)}
        columns = np.array([place[name] for name in self.names or ()], dtype=np.intp)
        shape = (out.shape[0], len(names))
        found = sp.csr_array((out.data, columns[out.indices], out.indptr), shape=shape)
        found.sort_indices()
        return found


def read_lists(path: Path) -> Lists:
    """Read scores or label sets, one row on each line, or a sparse matrix.

    JSON Lines have an object from labels to scores or a list of labels, alone or under ``scores``
    or ``labels``. Text has ``label:score`` pairs with blanks between, or labels with commas.
    """
    if path.suffix == ".npz":
        try:
            with path.open("rb") as content:
                return Lists(sp.csr_array(sp.load_npz(content), dtype=np.float64), None)
        except (ValueError, KeyError, EOFError, BadZipFile) as error:
            raise fail(
                path, None, "a sparse matrix of scipy.sparse.save_npz", str(error)
            ) from error
    parse = _parse_json if path.suffix in (".jsonl", ".ndjson") else _parse_pairs
    place: dict[str, int] = {}
    data, indices, indptr = [], [], [0]
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            row = parse(path, number, line.strip())
            for name, score in row.items():
                indices.append(place.setdefault(name, len(place)))
                data.append(score)
            indptr.append(len(indices))
    rows = sp.csr_array((np.array(data, float), indices, indptr), (len(indptr) - 1, len(place)))
    return Lists(rows, tuple(place))


def _parse_json(path: Path, number: int, line: str) -> dict[str, float]:
    expected = "an object from labels to scores, or a list of labels"
    try:
        found = json.loads(line or "[]")
    except json.JSONDecodeError as error:
        raise fail(path, number, expected, line) from error
    if isinstance(found, dict):
        inner = [
            found[key] for key in ("scores", "labels") if isinstance(found.get(key), list | dict)
        ]
        found = inner[0] if inner else found
    try:
        pairs = found.items() if isinstance(found, dict) else ((name, 1.0) for name in found)
        return {str(name): _score(score) for name, score in pairs}
    except (TypeError, ValueError) as error:
        raise fail(path, number, expected, line) from error


def _parse_pairs(path: Path, number: int, line: str) -> dict[str, float]:
    words = line.split() if ":" in line else [word.strip() for word in line.split(",")]
    out: dict[str, float] = {}
    for word in filter(None, words):
        name, colon, score = word.rpartition(":")
        try:
            out[name if colon else word] = _score(float(score)) if colon else 1.0
        except ValueError as error:
            raise fail(path, number, "label:score pairs, or labels with commas", word) from error
    return out


def _score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(value)
    return float(value)


def write_sets(path: Path, found: sp.csr_array, names: Sequence[str] | None, values: Any) -> None:
    """Write label sets (n, s) and their expected F_beta (n,): JSON Lines, text, or sparse npz."""
    if path.suffix == ".npz":
        with write_atomically(path) as part, part.open("wb") as file:
            sp.save_npz(file, sp.csr_array(found, dtype=np.int8))
        return
    as_json = path.suffix in (".jsonl", ".ndjson")
    write_text(path, "".join(f"{line}\n" for line in _lines(found, names, values, as_json)))


def _lines(
    found: sp.csr_array, names: Sequence[str] | None, values: Any, as_json: bool
) -> Iterator[str]:
    for row, value in zip(np.split(found.indices, found.indptr[1:-1]), values, strict=True):
        labels: list[Any] = row.tolist() if names is None else [names[j] for j in row]
        shown: Mapping[str, Any] = {"labels": labels, "expected_fbeta": round(float(value), 6)}
        yield json.dumps(shown, ensure_ascii=False) if as_json else ",".join(map(str, labels))
