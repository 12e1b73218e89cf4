"""Arrays of any library: device, operations that the standard lacks; checks of parameters.

Tensors of other libraries than NumPy go through ``array_api_compat``. Errors name the offender.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from io import BytesIO
from numbers import Integral, Real
from threading import RLock
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config

Array: TypeAlias = Any
_NAMESPACES: dict[frozenset[type], ModuleType] = {}  # cache, by the types of arrays
# the largest weight of a row for which sums over rows and their squares are normal numbers
MIN_LARGEST_WEIGHT, MAX_LARGEST_WEIGHT = 1e-100, 1e100


def is_tensor(array: Any) -> bool:
    """Return whether this is an array of another library than NumPy, on any device."""
    if isinstance(array, (np.ndarray, np.generic)):
        return False
    return hasattr(array, "__array_namespace__") or hasattr(array, "device")


def array_namespace(*arrays: Any) -> ModuleType:
    """Return the array API namespace of arrays of one library."""
    if all(isinstance(a, (np.ndarray, np.generic, float, int)) for a in arrays):
        return np
    kinds = frozenset(map(type, arrays))
    if kinds not in _NAMESPACES:
        compat = optional_import("array_api_compat", "array-api", "computing with tensors")
        _NAMESPACES[kinds] = compat.array_namespace(*arrays)
    return _NAMESPACES[kinds]


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
    """Return the namespace and the device, None for NumPy, that arrays share; lists have none."""
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
                f"{first} and {name} must use the same namespace, arrays of one library on one "
                f"device, got {_describe(place)} and {_describe(other)}"
            )
    return place


def _describe(place: tuple[ModuleType, Any]) -> str:
    name = place[0].__name__.removeprefix("array_api_compat.")
    return name if place[1] is None else f"{name} on {place[1]}"


def check_library(coef: Any, X: Any, name: str, method: str) -> None:
    """Raise where X has another library or device than the coefficients of a fitted model."""
    if get_config()["array_api_dispatch"]:
        own = {f"X of {name}.{method}()": X if is_tensor(X) else np.empty(0)}
        namespace_and_device(coef_=coef, **own)
    elif is_tensor(coef):
        raise ValueError(f"{name} was fitted to tensors: set_config(array_api_dispatch=True) first")


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


_PRECISION = RLock()  # PyTorch's setting is that of all threads


@contextmanager
def product_precision(xp: Any, device: Any, *, full: bool) -> Iterator[None]:
    """Multiply PyTorch's float32 matrices with full precision, or with rounded inputs (TF32)."""
    if not is_accelerator(device) or not hasattr(xp, "set_float32_matmul_precision"):
        yield
        return
    with _PRECISION:
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
    """Return a sparse array of the host as a dense one on a device; only its entries are sent."""
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


def dense_to_csr(X: NDArray[Any]) -> sparse.csr_array:
    """Return dense X, (n, d), as csr_array; SciPy takes several times as long."""
    (n, d), places = X.shape, np.flatnonzero(X != 0)
    small = max(len(places), d) <= np.iinfo(np.intc).max
    start, indices = np.searchsorted(places, d * np.arange(n + 1)), places % d
    parts = (own.astype(np.intc) if small else own for own in (indices, start))
    return sparse.csr_array((X.reshape(-1)[places], *parts), shape=(n, d))


def host_integers(array: Any) -> list[int]:
    """Return a 1-D array of any library as Python integers, rounded towards 0."""
    return [int(number) for number in to_numpy(array).tolist()]


def to_numpy(array: Any) -> Any:
    """Return an array of any library and device as one of NumPy; sparse matrices stay."""
    if not is_tensor(array):
        return array if sparse.issparse(array) else np.asarray(array)
    if hasattr(array, "detach"):  # a tensor of PyTorch may have a gradient record
        return np.asarray(array.detach().cpu())
    if hasattr(array, "get"):  # an array of CuPy
        return np.asarray(array.get())
    info = array_namespace(array).__array_namespace_info__()
    return np.asarray(np.from_dlpack(array.to_device(info.devices()[0])))


class _HostPickler(pickle.Pickler):
    """Pickler that writes tensors as arrays of NumPy."""

    def reducer_override(self, obj: Any) -> Any:
        moves = not isinstance(obj, type) and is_tensor(obj)
        return (np.array, (to_numpy(obj),)) if moves else NotImplemented


def host_copy(part: Any) -> Any:
    """Return a copy of any object with arrays of NumPy in place of the tensors in it."""
    file = BytesIO()
    _HostPickler(file).dump(part)
    return pickle.loads(file.getvalue())


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
    if xp is not np:
        return xp.astype(array, dtype)
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def cumulative_sum(xp: Any, array: Array, axis: int) -> Array:
    """Return the sums of the first 1, 2, ... entries along an axis."""
    return xp.cumsum(array, axis) if hasattr(xp, "cumsum") else xp.cumulative_sum(array, axis=axis)


def sort_descending(xp: Any, array: Array) -> Array:
    """Return the array sorted along its last axis, the largest first."""
    if xp is np:
        return np.sort(array, axis=-1)[..., ::-1]
    return xp.sort(array, axis=-1, descending=True)


def take(xp: Any, array: Array, index: Array, axis: int = 0) -> Array:
    """Return what is at indices that are not negative, which PyTorch's form need not check."""
    if hasattr(xp, "index_select"):
        return xp.index_select(array, axis, index)
    return xp.take(array, index, axis=axis)


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


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_beta(beta: Any) -> float:
    """Return ``beta`` as a float, or raise where it is not a positive finite number."""
    return check_number("beta", beta, strict=True)


def check_number(name: str, value: Any, *, strict: bool = False) -> float:
    """Return ``value`` as a float, or raise where it is not finite and >= 0, or > 0 if strict."""
    if not _is_number(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not (0 < value < np.inf or (value == 0 and not strict)):
        expected = "positive and finite" if strict else "finite and >= 0"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any, *, low: int = 1, high: float = np.inf) -> int:
    """Return ``value`` as an int, or raise where it is not an integer from ``low`` to ``high``."""
    if not _is_number(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not low <= value <= high:
        limit = f"at least {low}" if value < low else f"at most {high}"
        raise ValueError(f"{name} must be {limit}, got {value!r}")
    return int(value)


def check_solver(fit_intercept: Any, tol: Any, max_iter: Any) -> None:
    """Raise where a parameter of a solver is wrong; iterations are counted in 32 bits."""
    if not isinstance(fit_intercept, bool | np.bool_):  # strings such as "no" are truthy
        raise TypeError(f"fit_intercept must be True or False, got {fit_intercept!r}")
    check_number("tol", tol, strict=True)
    check_count("max_iter", max_iter, high=2**31 - 1)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value``, or raise where it is not one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def as_real(name: str, value: Any) -> NDArray[np.float64]:
    """Return an array of float64; masked entries and complex numbers are an error."""
    check_unmasked(name, value)
    array = to_numpy(value)
    check_unmasked(name, array)
    return np.asarray(array, dtype=np.float64)


def check_sample_weight(
    sample_weight: ArrayLike | None, n: int, *, averaging: bool = False
) -> NDArray[np.float64] | None:
    """Return non-negative weights of shape (n,), from a scalar too; None stays None.

    Averages do not depend on the scale of the weights, which is changed where sums would overflow
    or vanish; a fit, in which the weights are compared with alpha, is refused.
    """
    if sample_weight is None:
        return None
    weight = as_real("sample_weight", sample_weight)
    if weight.ndim == 0:
        weight = np.full(n, weight)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}, expected ({n},)")
    if not np.isfinite(weight).all():
        raise ValueError("Input sample_weight contains NaN or infinity")
    if (weight < 0).any():
        raise ValueError(f"sample_weight is negative at row {int(np.argmax(weight < 0))}")
    if n and not weight.any():
        raise ValueError("sample_weight is zero on every row: nothing is left")
    largest = float(weight.max()) if n else 1.0
    if MIN_LARGEST_WEIGHT <= largest <= MAX_LARGEST_WEIGHT:
        return weight
    if averaging:
        return np.asarray(np.ldexp(weight, -int(np.frexp(largest)[1])))  # exact: a power of 2
    raise ValueError(
        f"sample_weight has a largest value of {largest:.3g}, expected {MIN_LARGEST_WEIGHT:g} to "
        f"{MAX_LARGEST_WEIGHT:g}: scale the weights, and alpha with them"
    )
