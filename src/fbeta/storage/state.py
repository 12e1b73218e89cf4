"""Objects of the library as JSON and back, under names that stay when classes move.

An object becomes ``{"fbeta": name in PARTS, "version": n, "params": {...}, "state": {...}}``:
``params`` are the parameters of an estimator, the fields of a dataclass, or the arguments of any
other class; ``state`` is what ``fit`` added. JSON values stay; tuples, dicts, arrays of objects and
types of labels are objects with one key. Other arrays and objects of scikit-learn are leaves, which
are numbered and stored beside the JSON.

A class whose state has changed has an attribute ``state_version``, 1 by default, and a class method
``upgrade_state(version, params, state)`` that returns both as they are today.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fbeta._array import is_tensor, optional_import, to_numpy
from fbeta.methods import PARTS, load_part, part_name

__all__ = ["StateError", "from_state", "to_state"]

_BITS = (8, 16, 32, 64)
# types of labels that a file may name; no others are looked up
_NUMBER_NAMES = ["bool", "float16", "float32", "float64"]
_NUMBER_NAMES += [f"{u}int{b}" for u in ("", "u") for b in _BITS]
_LABEL_TYPES: dict[str, Any] = {name: np.dtype(name) for name in _NUMBER_NAMES}
_LABEL_TYPES |= {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_PANDAS_TYPES = {"boolean", "Float32", "Float64", *(f"{u}Int{b}" for u in ("", "U") for b in _BITS)}


class StateError(ValueError):
    """Data that names a part which this version of the library does not know."""


def to_state(value: Any, leaves: list[Any]) -> Any:
    """Write an object as JSON; what JSON and the library do not know is appended to `leaves`."""

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
        params, state = (
            dict(zip(part, write(part.values()), strict=True)) for part in _take_apart(value)
        )
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
    """Make objects of what :func:`to_state` wrote; StateError for unknown parts and versions."""

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
            return _known_type(name)
        case {"leaf": number}:
            return leaves[number]
        case {"fbeta": name, "version": version, "params": params, "state": state}:
            both = (dict(zip(part, read(part.values()), strict=True)) for part in (params, state))
            return _put_together(name, version, *both)
        case dict():
            raise ValueError(f"expected a part, found {list(data)}")
    return data


def _take_apart(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments that make an object, and the attributes that were added later."""
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False)
        return params, {key: part for key, part in vars(value).items() if key not in params}
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.init]
    else:
        names = list(inspect.signature(type(value)).parameters)
    return {name: getattr(value, name) for name in names}, {}


def _put_together(name: Any, version: Any, params: dict[str, Any], state: dict[str, Any]) -> Any:
    if name not in PARTS:
        raise StateError(f"it has a part {name!r}, which this version of fbeta does not know")
    class_ = load_part(name)
    latest = _version(class_)
    if version not in range(1, latest + 1):
        raise StateError(
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


def _known_type(name: Any) -> Any:
    if name in _PANDAS_TYPES:
        pandas = optional_import("pandas", "pandas", "labels in a DataFrame")
        return pandas.api.types.pandas_dtype(name)
    if name not in _LABEL_TYPES:
        raise StateError(f"it has labels of type {name!r}, which is not on the list")
    return _LABEL_TYPES[name]
