"""Lists of scored labels, and label sets, in files: JSON Lines, pairs of text, sparse npz."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp

from fbeta._files import write_atomically, write_text
from fbeta.datasets.dataset import fail


def read_lists(paths: Sequence[Path]) -> tuple[tuple[str, ...] | None, list[sp.csr_array]]:
    """Read files of scores or label sets, with one row on each line, or of sparse matrices.

    JSON Lines have an object from labels to scores or a list of labels, alone or under ``scores``
    or ``labels``. Text has ``label:score`` pairs with blanks between, or labels with commas.
    Returns the names of the labels, None where these are numbers, and the rows of each file, (n, s)
    each; a label of a set has the score 1.
    """
    packed = {path.suffix == ".npz" for path in paths}
    if len(packed) > 1:
        raise ValueError(f"{', '.join(map(str, paths))}: all of them .npz, or none")
    if True in packed:
        matrices = []
        for path in paths:
            try:
                with path.open("rb") as content:
                    matrices.append(sp.csr_array(sp.load_npz(content), dtype=np.float64))
            except (ValueError, KeyError, EOFError, BadZipFile) as error:
                expected = "a sparse matrix of scipy.sparse.save_npz"
                raise fail(path, None, expected, str(error)) from error
        for matrix in matrices:
            matrix.resize((matrix.shape[0], max(other.shape[1] for other in matrices)))
        return None, matrices
    place: dict[str, int] = {}
    read = []
    for path in paths:
        parse = _parse_json if path.suffix in (".jsonl", ".ndjson") else _parse_pairs
        data, columns, ends = [], [], [0]
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                for name, score in parse(path, number, line.strip()).items():
                    columns.append(place.setdefault(name, len(place)))
                    data.append(score)
                ends.append(len(columns))
        read.append((data, columns, ends))
    rank = np.argsort(np.argsort(list(place)) if place else [])
    found = []
    for data, columns, ends in read:
        shape = (len(ends) - 1, len(place))
        rows = sp.csr_array((np.array(data, float), rank[columns], ends), shape)
        rows.sort_indices()
        found.append(rows)
    return tuple(sorted(place)), found


def _parse_json(path: Path, number: int, line: str) -> dict[str, float]:
    expected = "an object from labels to scores, or a list of labels"
    try:
        found = json.loads(line or "[]")
    except json.JSONDecodeError as error:
        raise fail(path, number, expected, line) from error
    if isinstance(found, dict):
        inner = [found[key] for key in ("scores", "labels") if key in found]
        found = next((part for part in inner if isinstance(part, list | dict)), found)
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
    lines = []
    for row, value in zip(np.split(found.indices, found.indptr[1:-1]), values, strict=True):
        labels: list[Any] = row.tolist() if names is None else [names[j] for j in row]
        shown = {"labels": labels, "expected_fbeta": round(float(value), 6)}
        as_json = path.suffix in (".jsonl", ".ndjson")
        lines.append(
            json.dumps(shown, ensure_ascii=False) if as_json else ",".join(map(str, labels))
        )
    write_text(path, "".join(f"{line}\n" for line in lines))
