"""The one place that knows which array library an array belongs to."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np


def array_namespace(*arrays: Any) -> ModuleType:
    """Return the array API namespace of the arguments.

    NumPy 2 implements the array API standard itself, so NumPy arrays need nothing else;
    tensors of other libraries go through ``array_api_compat``.

    Parameters
    ----------
    *arrays : array
        Arrays of one library.

    Returns
    -------
    module
        A namespace that follows the array API standard.

    Examples
    --------
    >>> array_namespace(np.zeros(3)).__name__
    'numpy'
    """
    if all(isinstance(a, (np.ndarray, np.generic, float, int)) for a in arrays):
        return np
    compat = optional_import("array_api_compat", "array-api", "computing with tensors")
    namespace: ModuleType = compat.array_namespace(*arrays)
    return namespace


def optional_import(name: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say in one line how to get it.

    Parameters
    ----------
    name : str
        Module to import.
    extra : str
        The extra of ``fbeta`` that installs it.
    purpose : str
        What needs it, for the message.

    Returns
    -------
    module
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the package {name.split('.')[0]!r}, which is not installed: "
            f'pip install "fbeta[{extra}]"'
        ) from error
