"""What model files hold: objects of the library as JSON, arrays, and the memory they may take."""

from __future__ import annotations

import inspect
import io
import json
import math
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from fbeta._array import is_tensor, optional_import, to_numpy
from fbeta.methods import PARTS, load_part, part_name

MODEL, SCHEMA, SKOPS = "model.json", "schema.json", "parts.skops"
_BASE_BYTES, _BYTES_PER_FILE_BYTE = 2**30, 8
# bytes of objects for one byte of JSON, at most: "[]," becomes a list and then an object
_BYTES_PER_JSON_BYTE = 64
# an array takes its bytes as read, and the array made of them
_COPIES_OF_ARRAY = 2
_MAX_HEADER_BYTES = 16_384
# kinds of NumPy types: no structured types and no pickled objects
_KINDS = "biufUS"
_BITS = (8, 16, 32, 64)
# types of labels that a file may name; no others are looked up
_NUMBER_NAMES = ["bool", "float16", "float32", "float64"]
_NUMBER_NAMES += [f"{u}int{b}" for u in ("", "u") for b in _BITS]
_LABEL_TYPES: dict[str, Any] = {name: np.dtype(name) for name in _NUMBER_NAMES}
_LABEL_TYPES |= {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_PANDAS_TYPES = {"boolean", "Float32", "Float64", *(f"{u}Int{b}" for u in ("", "U") for b in _BITS)}


# classes of scikit-learn whose state is numbers and arrays and nothing that could crash or call a
# function: no trees, whose indices are not checked, and no FunctionTransformer
_SKLEARN = {
    "calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "decomposition._pca": "PCA",
    "decomposition._truncated_svd": "TruncatedSVD",
    "discriminant_analysis": "LinearDiscriminantAnalysis",
    "feature_extraction.text": "TfidfTransformer",
    "impute._base": "MissingIndicator SimpleImputer",
    "kernel_approximation": "Nystroem",
    "linear_model._logistic": "LogisticRegression",
    "model_selection._split": "GroupKFold KFold RepeatedKFold ShuffleSplit",
    "naive_bayes": "BernoulliNB ComplementNB GaussianNB MultinomialNB",
    "preprocessing._data": (
        "MaxAbsScaler MinMaxScaler Normalizer QuantileTransformer RobustScaler StandardScaler"
    ),
    "preprocessing._label": "LabelEncoder",
    "svm._classes": "LinearSVC",
}
_NUMBERS = tuple(f"numpy.{name}" for name in ("bool_", *_NUMBER_NAMES) if name != "float16")

#: The types that a model file may have, by the way in which skops makes them.
TRUSTED: dict[str, tuple[str, ...]] = {
    "ObjectNode": tuple(
        f"sklearn.{m}.{name}" for m, names in _SKLEARN.items() for name in names.split()
    ),
    "JsonNode": ("builtins.str",),
    "DictNode": ("builtins.dict",),
    "ListNode": ("builtins.list",),
    "SetNode": ("builtins.set",),
    "TupleNode": ("builtins.tuple",),
    "TypeNode": tuple(f"builtins.{name}" for name in ("bool", "float", "int", "str")) + _NUMBERS,
    "NdArrayNode": ("numpy.ndarray", *_NUMBERS),
    "DTypeNode": ("numpy.dtype",),
    "SparseMatrixNode": ("scipy.sparse._csr.csr_array", "scipy.sparse._csr.csr_matrix"),
}


def load_skops() -> Any:
    """Import what reads and writes parts of scikit-learn.

    skops imports every package of scikit-learn; those for PyTorch and Dask, which would take
    seconds, are hidden from it.
    """
    names = (f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch"))
    hidden = [] if "skops.io" in sys.modules else [n for n in names if n not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        return optional_import("skops.io", "cli", "storing models with parts of scikit-learn")
    finally:
        for name in hidden:
            del sys.modules[name]


def unfolded_bound(size: int) -> int:
    """Return the most bytes that a model file of some size may take when it is loaded."""
    return _BASE_BYTES + _BYTES_PER_FILE_BYTE * size


def read_archive(data: bytes) -> dict[str, Any]:
    """Check the claims of a model file, and return its JSON members ``MODEL`` and ``SCHEMA``.

    Raises ValueError if the file would unfold to more than :func:`unfolded_bound`, or an array in
    it is not what its header says; a damaged archive raises other errors, too.
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
            if file == SKOPS and name == MODEL:
                if SCHEMA in found:
                    raise ValueError(f"it refers to {SKOPS} twice")
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
    path: str | os.PathLike[str], content: dict[str, Any], leaves: Sequence[Any]
) -> None:
    """Write a model file: JSON, arrays, and what else the leaves are as skops writes it."""
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
            archive.writestr(SKOPS, load_skops().dumps(parts))
        more = {"leaves": entries, "parts": {"file": SKOPS} if parts else None}
        # numbers of NumPy among the values become those of Python
        archive.writestr(MODEL, json.dumps({**content, **more}, default=lambda v: v.item()))


def read_leaves(data: bytes, content: Any, types: Sequence[str]) -> list[Any]:
    """Load the leaves of a model file whose claims were checked; skops makes some types."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts: Any = content["parts"]
        if parts is not None:  # what the file says is read, because that was checked
            parts = load_skops().loads(archive.read(parts["file"]), trusted=types)

        def leaf(entry: Any) -> Any:
            if "part" in entry:
                return parts[entry["part"]]
            array = archive.read(entry["file"])
            return (sparse.load_npz if array.startswith(b"PK") else np.load)(io.BytesIO(array))

        return [leaf(entry) for entry in content["leaves"]]


class ModelFileError(ValueError):
    """A file that is not a stored model, or one with types that are not trusted."""


def to_state(value: Any, leaves: list[Any]) -> Any:
    """Write an object as JSON; what JSON and the library do not know is appended to `leaves`.

    An object of the library becomes its name in ``PARTS``, the ``state_version`` of its class (1 by
    default; ``upgrade_state`` reads earlier ones), its parameters, and what ``fit`` added.
    """

    def write(parts: Iterable[Any]) -> list[Any]:
        return [to_state(part, leaves) for part in parts]

    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return write(value)
    if kind is tuple:
        return {"tuple": write(value)}
    if kind is dict:
        return {"dict": [write(item) for item in value.items()]}
    if kind is np.ndarray and value.dtype == object and value.ndim == 1:
        return {"objects": write(value.tolist())}
    name = part_name(kind)
    if name == "LabelForm":
        value = value.storable()
    if name is not None:
        params = {key: getattr(value, key) for key in inspect.signature(kind).parameters}
        # only estimators have more than what makes them: what their fit has added
        more = vars(value) if isinstance(value, BaseEstimator) else {}
        state = {key: part for key, part in more.items() if key not in params}
        params, state = (dict(zip(p, write(p.values()), strict=True)) for p in (params, state))
        return {"fbeta": name, "version": _version(kind), "params": params, "state": state}
    known = _type_name(value)
    if known is not None:
        return {"type": known}
    leaf = to_numpy(value) if is_tensor(value) else value
    # an array that several objects share is stored once
    number = next((i for i, other in enumerate(leaves) if other is leaf), len(leaves))
    if number == len(leaves):
        leaves.append(leaf)
    return {"leaf": number}


def from_state(data: Any, leaves: Sequence[Any]) -> Any:
    """Make objects of what :func:`to_state` wrote; ModelFileError for unknown parts."""

    def read(parts: Iterable[Any]) -> list[Any]:
        return [from_state(part, leaves) for part in parts]

    match data:
        case list():
            return read(data)
        case {"tuple": parts}:
            return tuple(read(parts))
        case {"dict": items}:
            return dict(map(read, items))
        case {"objects": list(parts)}:
            made = np.empty(len(parts), dtype=object)
            made[:] = read(parts)
            return made
        case {"type": name}:
            if name in _PANDAS_TYPES:
                pandas = optional_import("pandas", "pandas", "labels in a DataFrame")
                return pandas.api.types.pandas_dtype(name)
            if name not in _LABEL_TYPES:
                raise ModelFileError(f"it has labels of type {name!r}, which is not on the list")
            return _LABEL_TYPES[name]
        case {"leaf": number}:
            return leaves[number]
        case {"fbeta": name, "version": version, "params": params, "state": state}:
            both = (dict(zip(part, read(part.values()), strict=True)) for part in (params, state))
            return _put_together(name, version, *both)
        case dict():
            raise ValueError(f"expected a part, found {list(data)}")
    return data


def _put_together(name: Any, version: Any, params: dict[str, Any], state: dict[str, Any]) -> Any:
    if name not in PARTS:
        raise ModelFileError(f"it has a part {name!r}, which this version of fbeta does not know")
    class_ = load_part(name)
    latest = _version(class_)
    if version not in range(1, latest + 1):
        raise ModelFileError(
            f"its {name} has version {version!r}, and this version of fbeta knows 1 to {latest}"
        )
    if version < latest:
        params, state = class_.upgrade_state(version, params, state)
    if any(callable(getattr(class_, key, None)) for key in state):
        raise ValueError(f"the state of {name} has the name of a method")
    value = class_(**params)
    # not by setattr, which would run the code of properties
    if state:
        vars(value).update(state)
    return value


def _version(class_: type) -> int:
    return int(getattr(class_, "state_version", 1))


def _type_name(value: Any) -> str | None:
    """Return the name of a type of labels, if it is one of those that files may have."""
    if isinstance(value, np.dtype):
        return value.name if value.name in _LABEL_TYPES else None
    if isinstance(value, type):
        return next((name for name, known in _LABEL_TYPES.items() if known is value), None)
    from_pandas = type(value).__module__.partition(".")[0] == "pandas"
    return str(value) if from_pandas and str(value) in _PANDAS_TYPES else None
