"""Lists of scored labels, and label sets, in files: JSON Lines, tables, pairs, sparse npz."""

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
from fbeta.datasets.table_files import TABLE_SUFFIXES, FileFormat, parse_json
from fbeta.datasets.tables import save_table

_KINDS = {**TABLE_SUFFIXES, ".npz": "npz"}  # of files, by suffix; all others are text


def read_lists(paths: Sequence[Path]) -> tuple[tuple[str, ...] | None, list[sp.csr_array]]:
    """Read files of scores or label sets, with one row on each line, or of sparse matrices.

    JSON Lines have an object from labels to scores or a list of labels, alone or under ``scores``
    or ``labels``. Tables have a column for each label; a label with an empty cell is not listed.
    Text has ``label:score`` pairs with blanks between, or labels with commas.
    Returns the names of the labels, None where these are numbers, and the rows of each file, (n, s)
    each; a label of a set has the score 1.
    """
    bare = [Path(path.stem) if path.suffix.lower() == ".gz" else path for path in paths]
    kinds = [_KINDS.get(path.suffix.lower(), "text") for path in bare]
    if "npz" in kinds:
        if len(set(kinds)) > 1:
            raise ValueError(f"{', '.join(map(str, paths))}: all of them .npz, or none")
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
    readers = {"jsonl": _parse_json, "text": _parse_pairs}
    read = []
    for path, kind in zip(paths, kinds, strict=True):
        if kind not in readers:
            read.append(_table_lists(path, place))
            continue
        data, columns, ends = [], [], [0]
        with FileFormat().open_text(path, False) as file:
            for number, line in enumerate(file, 1):
                for name, score in readers[kind](path, number, line.strip()).items():
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


def _table_lists(path: Path, place: dict[str, int]) -> tuple[Any, Any, list[int]]:
    """Return scores, their columns and the ends of rows; new labels are added to ``place``."""
    table = FileFormat().read(path)
    values = table.numbers(table.header, "nan")
    listed = ~np.isnan(values)
    places = [place.setdefault(name, len(place)) for name in table.header]
    columns = np.broadcast_to(places, listed.shape)[listed]
    return values[listed], columns, [0, *np.cumsum(listed.sum(axis=1)).tolist()]


def _parse_json(path: Path, number: int, line: str) -> dict[str, float]:
    expected = "an object from labels to scores, or a list of labels"
    try:
        found = parse_json(line or "[]")
    except KeyError as error:
        raise fail(path, number, f"the key {error} once", line) from error
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
            found = _score(float(score)) if colon else 1.0
        except ValueError as error:
            raise fail(path, number, "label:score pairs, or labels with commas", word) from error
        name = name if colon else word
        if out.setdefault(name, found) != found:
            raise fail(path, number, f"one score of the label {name!r}", line)
    return out


def _score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(value)
    return float(value)


def write_sets(path: Path, found: sp.csr_array, names: Sequence[str] | None, values: Any) -> None:
    """Write label sets (n, s) and their expected F_beta (n,): a table, text, or sparse npz."""
    kind = _KINDS.get(path.suffix.lower(), "text")
    if kind == "npz":
        with write_atomically(path) as part, part.open("wb") as file:
            sp.save_npz(file, sp.csr_array(found, dtype=np.int8))
        return
    known: Any = range(found.shape[1]) if names is None else names
    known = known if kind == "jsonl" else list(map(str, known))
    between = {"jsonl": None, "parquet": None, "text": ","}.get(kind, ";")
    if clash := [name for name in known if between and between in name]:
        raise ValueError(f"{path}: label {clash[0]!r} contains {between!r}: choose a .jsonl file")
    sets = [[known[j] for j in row] for row in np.split(found.indices, found.indptr[1:-1])]
    if kind == "text":
        write_text(path, "".join(",".join(labels) + "\n" for labels in sets))
        return
    expected = [round(float(value), 6) for value in values]
    save_table(path, {"labels": sets, "expected_fbeta": expected}, kind)
