"""What a model file unfolds to, reckoned before anything of that size is made.

A model file is an archive of a schema in JSON and of arrays. Nothing in it is compressed but sparse
matrices, which are archives themselves. A small file can claim much: arrays with a shape that their
bytes do not have, one array that is used a thousand times, members that lie over each other, an
inner archive that unfolds. Each claim is counted here, and refused where the sum is over the bound.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["read_archive", "unfolded_bound"]

_BASE, _FACTOR = 2**30, 8
# bytes of objects for one byte of JSON, at most: "[]," becomes a list, and that a part
_JSON = 64
# of an array: the bytes as read, and the array of them
_COPIES = 2
_SCHEMA = "schema.json"
_HEADER = 16_384
# no fields, no pickled objects
_KINDS = "biufUS"


def unfolded_bound(size: int) -> int:
    """Return the most bytes that a model file of some size may take when it is loaded.

    Examples
    --------
    >>> unfolded_bound(10_000_000) // 2**20
    1100
    """
    return _BASE + _FACTOR * size


def read_archive(data: bytes) -> Any:
    """Check the claims of a model file, and return its schema.

    Parameters
    ----------
    data : bytes
        The file.

    Returns
    -------
    object
        What the schema has, as JSON gives it.

    Raises
    ------
    ValueError
        If the file would unfold to more than :func:`unfolded_bound`, or an array in it is not what
        its header says. A damaged archive raises other errors, too.
    """
    left = unfolded_bound(len(data)) - len(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = _members(archive)
        if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
            # we do not compress: what claims to be small is small
            raise ValueError("it has compressed parts")
        if sum(info.file_size for info in members.values()) > len(data):
            raise ValueError("its parts lie over each other")
        if _SCHEMA not in members:
            raise ValueError("it has no schema")
        left = _spend(left, _JSON * members[_SCHEMA].file_size)
        schema = json.loads(archive.read(_SCHEMA))
        costs: dict[str, int] = {}
        for name in _references(schema):
            if name not in members:
                raise ValueError(f"it lacks its part {name!r}")
            if name not in costs:
                costs[name] = _cost(archive.read(name), name, left)
            left = _spend(left, costs[name])
    return schema


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


def _references(schema: Any) -> Iterator[str]:
    """Yield the member for each object that is loaded from one; known objects load once."""
    seen: set[tuple[str, str]] = set()
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if "file" in node:
                name, identity = str(node["file"]), node.get("__id__")
                if identity is None or (str(identity), name) not in seen:
                    seen.add((str(identity), name))
                    yield name
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node


def _cost(content: bytes, name: str, left: int) -> int:
    """Return the bytes that a member takes, after a look at what it says of itself."""
    if not content.startswith(b"PK"):
        _check_array(content, len(content), name)
        return _COPIES * len(content)
    cost = len(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for inner, info in _members(archive).items():
            if not inner.endswith(".npy") or info.compress_type not in (
                zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
            ):  # fmt: skip
                raise ValueError(f"its part {name!r} has {inner!r} in it, which is no array")
            cost += _COPIES * info.file_size
            _spend(left, cost)
            with archive.open(info) as file:
                _check_array(file.read(_HEADER), info.file_size, f"{name}/{inner}")
    # the products of a matrix trust its indices
    matrix = sparse.load_npz(io.BytesIO(content))
    if matrix.format != "csr":
        raise ValueError(f"its part {name!r} is a sparse matrix in the format {matrix.format}")
    matrix.check_format(full_check=True)
    return cost


def _check_array(start: bytes, size: int, name: str) -> None:
    """Compare the shape and the type in the header of an array with its bytes."""
    stream = io.BytesIO(start)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"its array {name!r} has version {version}")
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(f"its array {name!r} is of {dtype}, and loaded with allow_pickle=False")
    if math.prod(shape) * dtype.itemsize != size - stream.tell():
        raise ValueError(f"its array {name!r} does not have the shape {shape}")
