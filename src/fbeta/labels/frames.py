"""Data frames and columns of pandas, Polars and Arrow, told apart without importing any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import

#: The libraries besides pandas whose data frames and columns are read, and their extras.
LIBRARIES = {"polars": "polars", "pyarrow": "data"}


@dataclass(frozen=True)
class FrameColumns:
    """The names (s,), values (n, s) and types of the columns of a data frame.

    ``values`` are those of NumPy. A type is NumPy's where NumPy has it, else that of the library.
    ``library`` is one of ``LIBRARIES``, or empty for pandas.
    """

    names: NDArray[Any]
    values: NDArray[Any]
    dtypes: tuple[Any, ...]
    library: str = ""


def library_of(data: Any) -> str:
    """Return which of ``LIBRARIES`` an object is of, or an empty string."""
    modules = (base.__module__.partition(".")[0] for base in type(data).__mro__)
    return next((module for module in modules if module in LIBRARIES), "")


def is_table(data: Any) -> bool:
    """Return whether this is a data frame, and not a column, array or list."""
    # asked of the type: the names of a lazy frame have to be computed
    return hasattr(type(data), "columns") and (hasattr(data, "iloc") or bool(library_of(data)))


def as_table(data: Any, name: str) -> FrameColumns:
    """Read a data frame, whose columns must have unique names; messages call it ``name``."""
    library = library_of(data)
    if hasattr(data, "collect"):
        raise ValueError(f"{name} is a {type(data).__name__}: pass {name}.collect()")
    if not library:
        _check_unique(list(data.columns), name)
        values = np.asarray(data)
        pairs = zip(data.dtypes, values.T, strict=True)
        dtypes = (
            text_type(cells) if dtype is np.dtype(object) else dtype for dtype, cells in pairs
        )
        return FrameColumns(np.asarray(data.columns), values, tuple(dtypes))
    labels = list(data.columns if library == "polars" else data.column_names)
    _check_unique(labels, name)
    series = data.get_columns() if library == "polars" else data.columns
    columns = [np.asarray(column.to_numpy()) for column in series]
    types = tuple(
        column.dtype
        if column.dtype.kind in "biuf"
        else (original.dtype if library == "polars" else original.type)
        for column, original in zip(columns, series, strict=True)
    )
    names = np.array(labels, dtype=object)
    values = np.column_stack(columns) if columns else np.zeros((len(data), 0))
    return FrameColumns(names, values, types, library)


def text_type(cells: NDArray[Any], otherwise: Any = object) -> np.dtype[Any]:
    """Return the type to write cells in that are kept as objects: strings, or another type."""
    text = any(isinstance(cell, str) for cell in cells.ravel().tolist())
    return np.dtype("U1" if text else otherwise)


def _check_unique(names: list[Any], name: str) -> None:
    twice = next((n for n, times in Counter(map(name_key, names)).items() if times > 1), None)
    if twice is not None:
        raise ValueError(
            f"{name} has several columns named {twice!r}: give every label a name of its own, or "
            f"leave columns out ({name}.loc[:, ~{name}.columns.duplicated()] in pandas)"
        )


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the like, which does not equal itself."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        # NA of pandas has no truth; nor have arrays, whose rows are not missing
        return np.ndim(value) == 0


def name_key(name: Any) -> Any:
    """Return what a label name is compared by; a NaN of a pickle is another object than before."""
    return "NaN, no string" if isinstance(name, float) and name != name else name


def as_rows(data: Any) -> Any:
    """Return a column of Polars or Arrow as a list, and everything else as it is."""
    library = library_of(data)
    if not library:
        return data
    return data.to_list() if library == "polars" else data.to_pylist()


def write_table(
    library: str, names: NDArray[Any], dtypes: Sequence[Any], values: NDArray[np.bool_], index: Any
) -> Any:
    """Write a 0/1 array of shape (n, s) as a data frame of a library, pandas by default."""
    module = _module(library)
    columns = [
        _write_cells(library, module, column.astype(np.int8), dtype)
        for column, dtype in zip(values.T, dtypes, strict=True)
    ]
    if not library:
        frame = module.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)
        return frame if index is None else frame.set_axis(index, axis=0)
    named = dict(zip(names, columns, strict=True))
    return module.DataFrame(named) if library == "polars" else module.table(named)


def _write_cells(library: str, module: Any, column: NDArray[np.int8], dtype: Any) -> Any:
    """Return a 0/1 column of shape (n,) in a type of NumPy or of the library."""
    if isinstance(dtype, np.dtype) and dtype.kind != "U":
        return column.astype(dtype)
    if library == "polars":
        written, text = module.Series(column), dtype in (module.Categorical, module.Enum)
        return (written.cast(module.String) if text else written).cast(dtype)
    if library:
        text = module.types.is_dictionary(dtype)
        return module.array(column).cast(dtype.value_type if text else dtype).cast(dtype)
    if isinstance(dtype, np.dtype):
        return module.Series(np.array(["0", "1"], dtype=object)[column], dtype=object)
    if hasattr(dtype, "categories"):
        return _write_categories(module, column, dtype)
    return module.array(column).astype(dtype)


def _write_categories(pandas: Any, column: NDArray[np.int8], dtype: Any) -> Any:
    """Return a 0/1 column as categories of pandas; a value that was never seen is added."""
    categories = list(dtype.categories)
    for value in sorted(set(column.tolist()) - set(map(int, categories))):
        categories.append(type(categories[0])(value))
        dtype = pandas.CategoricalDtype(categories, ordered=dtype.ordered)
    place = {int(category): code for code, category in enumerate(categories)}
    codes = np.array([place.get(0, -1), place.get(1, -1)])[column]
    return pandas.Categorical.from_codes(codes, dtype=dtype)


def column_type(column: Any) -> Any:
    """Return the type of a Polars or Arrow column that its rows do not show; else None."""
    library = library_of(column)
    if not library:
        return None
    module = _module(library)
    dtype = column.dtype if library == "polars" else column.type
    if library == "polars":
        inner = getattr(dtype, "inner", dtype)
        return dtype if inner in (module.Categorical, module.Enum, module.Decimal) else None
    inner = dtype.value_type if module.types.is_list(dtype) else dtype
    coded = module.types.is_dictionary(inner) or module.types.is_decimal(inner)
    return dtype if coded else None


def write_column(
    library: str, rows: Any, index: Any = None, names: type | None = None, dtype: Any = None
) -> Any:
    """Write rows as a column of a library, pandas by default, in its type where that is given.

    Rows are values, or lists of values of the type ``names``: empty lists do not show theirs.
    """
    module = _module(library)
    if not library:
        return module.Series(rows, index=index, name=None)
    if dtype is not None:
        rows = list(rows)
    elif names in (str, int) and library == "polars":
        dtype = module.List({str: module.String, int: module.Int64}[names])
    elif names in (str, int):
        dtype = module.list_({str: module.string(), int: module.int64()}[names])
    return module.Series(rows, dtype=dtype) if library == "polars" else module.array(rows, dtype)


def _module(library: str) -> Any:
    if not library:
        return optional_import("pandas", "pandas", "labels in a DataFrame")
    what = f"labels from {'Polars' if library == 'polars' else 'Arrow'}"
    return optional_import(library, LIBRARIES[library], what)
