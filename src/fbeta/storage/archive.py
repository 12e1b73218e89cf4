"""Archives of model files: what they hold, and how much memory that may take.

A model file is a ZIP archive without compression. ``model.json`` has the state of the estimator and
a list of its leaves: arrays are members ``N.npy`` or, if sparse, ``N.npz``; objects of scikit-learn
are in one member ``parts.skops``, an archive of skops. Files of format 2 are archives of skops as a
whole, whose ``schema.json`` refers to arrays in the same way.

A small file can claim much: arrays with a shape that their bytes do not have, one array that is
used a thousand times, overlapping members, a compressed sparse matrix. All claims are added up
before anything of that size is allocated, and refused where their sum is over a bound.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["json_objects", "read_archive", "read_leaves", "unfolded_bound", "write_archive"]

MODEL, SCHEMA, PARTS = "model.json", "schema.json", "parts.skops"
_BASE_BYTES, _BYTES_PER_FILE_BYTE = 2**30, 8
# bytes of objects for one byte of JSON, at most: "[]," becomes a list and then an object
_BYTES_PER_JSON_BYTE = 64
# an array takes its bytes as read, and the array made of them
_COPIES_OF_ARRAY = 2
_MAX_HEADER_BYTES = 16_384
# kinds of NumPy types: no structured types and no pickled objects
_KINDS = "biufUS"


def unfolded_bound(size: int) -> int:
    """Return the most bytes that a model file of some size may take when it is loaded.

    Examples
    --------
    >>> unfolded_bound(10_000_000) // 2**20
    1100
    """
    return _BASE_BYTES + _BYTES_PER_FILE_BYTE * size


def read_archive(data: bytes) -> dict[str, Any]:
    """Check the claims of a model file, and return its JSON members.

    These are ``"model.json"`` in files of format 3, and ``"schema.json"`` of skops where there is
    one. Raises ValueError if the file would unfold to more than :func:`unfolded_bound`, or an array
    in it is not what its header says; a damaged archive raises other errors, too.
    """
    found: dict[str, Any] = {}
    _check(data, found, unfolded_bound(len(data)) - len(data))
    return found


def _check(data: bytes, found: dict[str, Any], left: int) -> int:
    """Add the JSON of an archive to `found`, and return the bytes that are left for others."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = _members(archive)
        if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
            # nothing is compressed by us: what claims to be small is small
            raise ValueError("it has compressed parts")
        if sum(info.file_size for info in members.values()) > len(data):
            raise ValueError("its parts lie over each other")
        name = SCHEMA if found or MODEL not in members else MODEL
        if name not in members:
            raise ValueError("it has no schema")
        left = _spend(left, _BYTES_PER_JSON_BYTE * members[name].file_size)
        found[name] = json.loads(archive.read(name))
        costs: dict[str, int] = {}
        for file in _references(found[name]):
            if file not in members:
                raise ValueError(f"it lacks its part {file!r}")
            if file == PARTS and name == MODEL:
                if SCHEMA in found:
                    raise ValueError(f"it refers to {PARTS} twice")
                left = _check(archive.read(file), found, left)
                continue
            if file not in costs:
                costs[file] = _cost(archive.read(file), file, left)
            left = _spend(left, costs[file])
    return left


def _spend(left: int, bytes_: int) -> int:
    if bytes_ > left:
        raise ValueError("it would unfold to more than 1 GiB and eight times its size")
    return left - bytes_


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of an archive by name, each of which is there once."""
    members = {info.filename: info for info in archive.infolist()}
    if len(members) < len(archive.infolist()):
        raise ValueError("it has two parts of the same name")
    return members


def json_objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a tree of JSON, whatever its depth."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            yield node
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node


def _references(schema: Any) -> Iterator[str]:
    """Yield the member for each object that is loaded from one; equal identities load once."""
    seen: set[tuple[str, str]] = set()
    for node in json_objects(schema):
        key = (str(node.get("__id__")), str(node.get("file")))
        if "file" in node and (node.get("__id__") is None or key not in seen):
            seen.add(key)
            yield key[1]


def _cost(content: bytes, name: str, left: int) -> int:
    """Return the bytes that an array or a sparse matrix takes, after checking its headers."""
    if not content.startswith(b"PK"):
        _check_array(content, len(content), name)
        return _COPIES_OF_ARRAY * len(content)
    cost = len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for inner, info in _members(archive).items():
            known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not inner.endswith(".npy") or info.compress_type not in known:
                raise ValueError(f"its part {name!r} has {inner!r} in it, which is no array")
            cost += _COPIES_OF_ARRAY * info.file_size
            _spend(left, cost)
            with archive.open(info) as file:
                _check_array(file.read(_MAX_HEADER_BYTES), info.file_size, f"{name}/{inner}")
    # products with a matrix trust its indices
    matrix = sparse.load_npz(io.BytesIO(content))
    if matrix.format != "csr":
        raise ValueError(f"its part {name!r} is a sparse matrix in the format {matrix.format}")
    matrix.check_format(full_check=True)
    return cost


def _check_array(start: bytes, size: int, name: str) -> None:
    """Compare the shape and the type in the header of an array with its bytes."""
    stream = io.BytesIO(start)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):  # later versions are for structured types
        raise ValueError(f"its array {name!r} has version {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"its array {name!r} is of {dtype}, and loaded with allow_pickle=False")
    if math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise ValueError(f"its array {name!r} does not have the shape {shape}")


def write_archive(
    path: str | os.PathLike[str],
    content: dict[str, Any],
    leaves: Sequence[Any],
    dump: Callable[[list[Any]], bytes],
) -> None:
    """Write a model file: JSON, arrays, and what else the leaves are as `dump` writes it."""
    parts: list[Any] = []
    entries: list[dict[str, Any]] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for number, leaf in enumerate(leaves):
            stream = io.BytesIO()
            if isinstance(leaf, np.ndarray):
                entries.append({"file": f"{number}.npy"})
                np.save(stream, leaf, allow_pickle=False)
            elif sparse.issparse(leaf) and leaf.format == "csr":
                entries.append({"file": f"{number}.npz"})
                sparse.save_npz(stream, leaf)
            else:
                entries.append({"part": len(parts)})
                parts.append(leaf)
                continue
            archive.writestr(entries[-1]["file"], stream.getvalue())
        if parts:
            archive.writestr(PARTS, dump(parts))
        more = {"leaves": entries, "parts": {"file": PARTS} if parts else None}
        # numbers of NumPy among the values become those of Python
        archive.writestr(MODEL, json.dumps({**content, **more}, default=lambda v: v.item()))


def read_leaves(data: bytes, content: Any, load: Callable[[bytes], list[Any]]) -> list[Any]:
    """Load the leaves of a model file whose claims were checked; `load` reads what `dump` wrote."""
    leaves = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [] if content["parts"] is None else load(archive.read(PARTS))
        for entry in content["leaves"]:
            if "part" in entry:
                leaves.append(parts[entry["part"]])
                continue
            array = archive.read(entry["file"])
            is_sparse = array.startswith(b"PK")
            leaves.append((sparse.load_npz if is_sparse else np.load)(io.BytesIO(array)))
    return leaves
