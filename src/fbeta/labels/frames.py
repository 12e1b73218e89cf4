"""Tables and columns of pandas, Polars and Arrow, told apart without importing any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import

#: The libraries besides pandas whose tables and columns are read, and the extra that brings them.
LIBRARIES = {"polars": "polars", "pyarrow": "data"}


@dataclass(frozen=True)
class Table:
    """The names, values and types of the columns of a table.

    Attributes
    ----------
    names : ndarray of shape (s,)
        Unique.
    values : ndarray of shape (n, s)
        As NumPy has them.
    dtypes : tuple of length s
        Of NumPy, or of pandas.
    library : str
        One of ``LIBRARIES``, or empty for pandas.
    """

    names: NDArray[Any]
    values: NDArray[Any]
    dtypes: tuple[Any, ...]
    library: str = ""

    def select(self, names: Iterable[Any]) -> Table:
        """Return some of the columns, in this order."""
        place = {name: j for j, name in enumerate(self.names)}
        at = [place[name] for name in names]
        dtypes = tuple(self.dtypes[j] for j in at)
        return Table(self.names[at], self.values[:, at], dtypes, self.library)


def library_of(data: Any) -> str:
    """Return which of ``LIBRARIES`` an object is of, or an empty string.

    Examples
    --------
    >>> library_of([[0, 1]])
    ''
    """
    modules = (base.__module__.partition(".")[0] for base in type(data).__mro__)
    return next((module for module in modules if module in LIBRARIES), "")


def is_table(data: Any) -> bool:
    """Tell tables from columns, arrays and lists."""
    # asked of the type: the names of a lazy frame have to be computed
    return hasattr(type(data), "columns") and (hasattr(data, "iloc") or bool(library_of(data)))


def as_table(data: Any, name: str) -> Table:
    """Read a table, whose columns must have names of their own; call it ``name`` in messages."""
    library = library_of(data)
    if hasattr(data, "collect"):
        raise ValueError(f"{name} is a {type(data).__name__}: pass {name}.collect()")
    if not library:
        _check_unique(list(data.columns), name)
        return Table(np.asarray(data.columns), np.asarray(data), tuple(data.dtypes))
    labels = list(data.columns if library == "polars" else data.column_names)
    _check_unique(labels, name)
    series = data.get_columns() if library == "polars" else data.columns
    columns = [np.asarray(column.to_numpy()) for column in series]
    names = np.array(labels, dtype=object)
    values = np.column_stack(columns) if columns else np.zeros((len(data), 0))
    return Table(names, values, tuple(column.dtype for column in columns), library)


def _check_unique(names: list[Any], name: str) -> None:
    twice = next((n for n, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise ValueError(
            f"{name} has several columns named {twice!r}: give every label a name of its own, or "
            f"leave columns out ({name}.loc[:, ~{name}.columns.duplicated()] in pandas)"
        )


def as_rows(data: Any) -> Any:
    """Return a column of Polars or Arrow as a list, and everything else as it is."""
    library = library_of(data)
    if not library:
        return data
    return data.to_list() if library == "polars" else data.to_pylist()


def write_table(
    library: str, names: NDArray[Any], dtypes: Sequence[Any], values: NDArray[np.bool_], index: Any
) -> Any:
    """Write a 0/1 array of shape (n, s) as a table of a library, pandas by default."""
    if not library:
        pandas = optional_import("pandas", "pandas", "labels in a DataFrame")
        frame = pandas.DataFrame(values.astype(np.int8), columns=names, index=index)
        return frame.astype(dict(zip(names, dtypes, strict=True)))
    module = _module(library)
    columns = {
        name: column.astype(dtype)
        for name, column, dtype in zip(names, values.T, dtypes, strict=True)
    }
    return module.DataFrame(columns) if library == "polars" else module.table(columns)


def write_column(library: str, rows: Any, index: Any = None, names: type | None = None) -> Any:
    """Write rows as a column of a library, pandas by default.

    Rows are values, or lists of values of the type ``names``: empty lists do not show theirs.
    """
    if not library:
        pandas = optional_import("pandas", "pandas", "labels in a Series")
        return pandas.Series(rows, index=index, name=None)
    module = _module(library)
    if library == "polars":
        inner = {str: module.String, int: module.Int64}.get(names or object)
        return module.Series(rows, dtype=inner and module.List(inner))
    inner = {str: module.string(), int: module.int64()}.get(names or object)
    return module.array(rows, type=inner and module.list_(inner))


def _module(library: str) -> Any:
    what = f"labels from {'Polars' if library == 'polars' else 'Arrow'}"
    return optional_import(library, LIBRARIES[library], what)
