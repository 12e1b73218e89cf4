"""The library and the device of an array, and operations that the array API standard lacks.

Tensors of other libraries than NumPy go through ``array_api_compat``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

Array: TypeAlias = Any
_NAMESPACES: dict[type, ModuleType] = {}  # cache, by the type of an array


def is_tensor(array: Any) -> bool:
    """Return whether this is an array of another library than NumPy, on any device."""
    if isinstance(array, (np.ndarray, np.generic)):
        return False
    return hasattr(array, "__array_namespace__") or hasattr(array, "device")


def array_namespace(*arrays: Any) -> ModuleType:
    """Return the array API namespace of arrays of one library."""
    if all(isinstance(a, (np.ndarray, np.generic, float, int)) for a in arrays):
        return np
    kinds = {type(a) for a in arrays}
    kind = kinds.pop()
    if kinds or kind not in _NAMESPACES:
        compat = optional_import("array_api_compat", "array-api", "computing with tensors")
        namespace: ModuleType = compat.array_namespace(*arrays)
        if kinds:
            return namespace
        _NAMESPACES[kind] = namespace
    return _NAMESPACES[kind]


def check_unmasked(name: str, value: Any) -> None:
    """Raise where NumPy would drop a mask silently, or the imaginary parts of complex numbers."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = np.ma.getmaskarray(value)
        first = tuple(int(i) for i in np.argwhere(masked)[0])
        raise ValueError(
            f"{name} is a masked array with {int(masked.sum())} masked entries (first at "
            f"{first}): leave these rows out, or fill the entries with {name}.filled(...)"
        )
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} holds complex numbers")


def namespace_and_device(**arrays: Any) -> tuple[ModuleType, Any]:
    """Return the namespace of the arguments and their device, which is None for NumPy.

    Lists and numbers belong to no library. Arrays of several libraries or devices are a ValueError.
    """
    for name, array in arrays.items():
        check_unmasked(name, array)
    tensors = {name: a for name, a in arrays.items() if is_tensor(a)}
    if not tensors:
        return np, None
    compat = optional_import("array_api_compat", "array-api", "computing with tensors")
    places = {n: (compat.array_namespace(a), compat.device(a)) for n, a in tensors.items()}
    places |= {n: (np, None) for n, a in arrays.items() if isinstance(a, np.ndarray)}
    first, place = next(iter(places.items()))
    for name, other in places.items():
        if other != place:
            raise ValueError(
                f"{first} and {name} must be arrays of one library on one device, got "
                f"{_describe(place)} and {_describe(other)}"
            )
    return place


def _describe(place: tuple[ModuleType, Any]) -> str:
    name = place[0].__name__.removeprefix("array_api_compat.")
    return name if place[1] is None else f"{name} on {place[1]}"


def widest_float(xp: Any, device: Any) -> Any:
    """Return the floating type to compute in: double precision wherever the device has it."""
    if xp is np:
        return np.float64
    found = xp.__array_namespace_info__().dtypes(device=device, kind="real floating")
    return found.get("float64", found["float32"])


def without_gradients(xp: Any) -> AbstractContextManager[Any]:
    """Return a context in which PyTorch records no operations, which would hold every array."""
    return xp.no_grad() if hasattr(xp, "no_grad") else nullcontext()


def is_accelerator(device: Any) -> bool:
    """Return whether a device is something else than a processor; None is NumPy's."""
    return device is not None and "cpu" not in str(device).lower()


def device_memory(xp: Any, device: Any) -> int | None:
    """Return the free bytes of a CUDA device, or None for other devices."""
    if not is_accelerator(device) or getattr(device, "type", None) != "cuda":
        return None
    free = xp.cuda.mem_get_info(device)[0]
    # memory that PyTorch reserved for earlier arrays can be used again
    return int(free + xp.cuda.memory_reserved(device) - xp.cuda.memory_allocated(device))


@contextmanager
def product_precision(xp: Any, device: Any, *, full: bool) -> Iterator[None]:
    """Multiply float32 matrices with full precision, or with rounded inputs (TF32) where faster.

    Only PyTorch on an accelerator has the choice; its setting is restored.
    """
    if not is_accelerator(device) or not hasattr(xp, "set_float32_matmul_precision"):
        yield
        return
    before = xp.get_float32_matmul_precision()
    xp.set_float32_matmul_precision("highest" if full else "high")
    try:
        yield
    finally:
        xp.set_float32_matmul_precision(before)


def multiply_add(xp: Any, a: Array, b: Array, c: Array, sign: int = 1) -> Array:
    """Return ``a + b c``, or ``a - b c``, in one pass over memory where the library can."""
    if hasattr(xp, "addcmul"):
        dtype = xp.result_type(a, b, c)
        a, b, c = (xp.astype(array, dtype, copy=False) for array in (a, b, c))
        return xp.addcmul(a, b, c, value=sign)
    return a + b * c if sign > 0 else a - b * c


def dense_columns(xp: Any, device: Any, matrix: Any, dtype: Any) -> Array:
    """Return a sparse array of the host as a dense one on a device; only its entries are sent.

    The library has to write to a list of positions for that.
    """
    if not is_accelerator(device) or not hasattr(xp, "index_put"):
        return astype(xp, xp.asarray(matrix.toarray(), device=device), dtype)
    n, m = matrix.shape
    out = xp.zeros(n * m, dtype=dtype, device=device)
    counts, rows, values = (
        xp.asarray(a, device=device) for a in (np.diff(matrix.indptr), matrix.indices, matrix.data)
    )
    columns = xp.repeat(xp.arange(m, device=device), counts)
    out[xp.astype(rows, xp.int64) * m + columns] = xp.astype(values, dtype)
    return xp.reshape(out, (n, m))


def host_integers(array: Any) -> list[int]:
    """Return a 1-D array of any library as Python integers, rounded towards 0."""
    if hasattr(array, "tolist"):  # not in the standard; synchronises with the device once
        return [int(number) for number in array.tolist()]
    return [int(array[i]) for i in range(array.shape[0])]


def to_numpy(array: Any) -> Any:
    """Return an array of any library and device as one of NumPy; sparse matrices stay."""
    if not is_tensor(array):
        return array if sparse.issparse(array) else np.asarray(array)
    if hasattr(array, "detach"):  # a tensor of PyTorch may have a gradient record
        return np.asarray(array.detach().cpu())
    info = array_namespace(array).__array_namespace_info__()
    return np.asarray(np.from_dlpack(array.to_device(info.devices()[0])))


def concat(parts: Sequence[Array], axis: int = 0) -> Array:
    """Join arrays of one library, or the rows of sparse matrices."""
    if len(parts) == 1:
        return parts[0]
    if sparse.issparse(parts[0]):
        return sparse.csr_array(sparse.vstack(parts))
    return array_namespace(*parts).concat(list(parts), axis=axis)


def as_array(xp: Any, device: Any, values: Any) -> Array:
    """Return a tensor as it is, and anything else as an array of the namespace."""
    return values if is_tensor(values) else xp.asarray(values, device=device)


def astype(xp: Any, array: Array, dtype: Any) -> Array:
    """Return an array, also a sparse one, in another type, where overflows are infinite."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        return array.astype(dtype) if xp is np else xp.astype(array, dtype)


def cumulative_sum(xp: Any, array: Array, axis: int) -> Array:
    """Return the sums of the first 1, 2, ... entries along an axis."""
    return xp.cumsum(array, axis) if hasattr(xp, "cumsum") else xp.cumulative_sum(array, axis=axis)


def sort_descending(xp: Any, array: Array) -> Array:
    """Return the array sorted along its last axis, the largest first."""
    if xp is np:
        return np.sort(array, axis=-1)[..., ::-1]
    return xp.sort(array, axis=-1, descending=True)


def take_rows(xp: Any, array: Array, rows: Any) -> Array:
    """Return the rows of an array given by a slice or an integer array."""
    if isinstance(rows, slice):
        return array[rows, ...]
    return xp.take(array, rows, axis=0)


def spread_rows(xp: Any, values: Array, rows: Array, n: int, fill: float) -> Array:
    """Return n numbers: ``values`` at the increasing positions ``rows``, and ``fill`` elsewhere."""
    if rows.shape[0] == n:
        return values
    if xp is np:
        out = np.full(n, fill)
        out[rows] = values
        return out
    places = xp.arange(n, dtype=rows.dtype, device=values.device)
    found = xp.searchsorted(rows, places)
    found = xp.where(found < rows.shape[0], found, xp.zeros_like(found))
    spread = xp.take(values, found)
    return xp.where(xp.take(rows, found) == places, spread, xp.full_like(spread, fill))


def optional_import(name: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency; the error names the ``extra`` of fbeta that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the package {name.split('.')[0]!r}, which is not installed: "
            f'pip install "fbeta[{extra}]"'
        ) from error
