"""Data frames, columns and sequences of label sets: told apart, read and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fbeta._array import optional_import

#: The libraries besides pandas whose data frames and columns are read, and their extras.
LIBRARIES = {"polars": "polars", "pyarrow": "data"}
_SETS = (set, frozenset, list, tuple, np.ndarray)  # types that a label set may have
# between names where label sets are kept as strings; a comma may also belong to a name
_DELIMITERS = ";|,"


def library_of(data: Any) -> str:
    """Return which of ``LIBRARIES`` an object is of, or an empty string."""
    modules = (base.__module__.partition(".")[0] for base in type(data).__mro__)
    return next((module for module in modules if module in LIBRARIES), "")


def _module(library: str) -> Any:
    if not library:
        return optional_import("pandas", "pandas", "labels in a DataFrame")
    what = f"labels from {'Polars' if library == 'polars' else 'Arrow'}"
    return optional_import(library, LIBRARIES[library], what)


def is_table(data: Any) -> bool:
    """Return whether this is a data frame, and not a column, array or list."""
    # asked of the type: the names of a lazy frame have to be computed
    return hasattr(type(data), "columns") and (hasattr(data, "iloc") or bool(library_of(data)))


def column_names(data: Any, name: str) -> list[Any]:
    """Return the names of the columns of a data frame, ``name`` in messages; they are unique."""
    if hasattr(data, "collect"):
        raise ValueError(f"{name} is a {type(data).__name__}: pass {name}.collect()")
    names = list(data.column_names if library_of(data) == "pyarrow" else data.columns)
    twice = next((n for n, times in Counter(map(name_key, names)).items() if times > 1), None)
    if twice is not None:
        raise ValueError(
            f"{name} has several columns named {twice!r}: give every column a name of its own, or "
            "leave columns out (frame.loc[:, ~frame.columns.duplicated()] in pandas)"
        )
    return names


def column_order(given: Any, expected: Any, what: str, of: str = "fit") -> NDArray[np.intp] | None:
    """Return where the expected columns are among the given names, None if they are in order."""
    given, expected = ([str(name) for name in names] for names in (given, expected))
    if given == expected:
        return None
    place, known = {name: j for j, name in enumerate(given)}, set(expected)
    strange = [n for n in given if n not in known] + [n for n in expected if n not in place]
    if strange or len(given) != len(expected):
        raise ValueError(
            f"the columns of {what} are not those of {of}: {strange[0] if strange else given[0]!r} "
            "is in only one of the two"
        )
    return np.array([place[name] for name in expected], dtype=np.intp)


def as_table(data: Any, name: str) -> tuple[NDArray[Any], NDArray[Any], tuple[Any, ...], str]:
    """Return names (s,), values (n, s), types and library of a data frame, ``name`` in messages.

    Names must be unique. Types are NumPy's where NumPy has them; an empty library is pandas.
    """
    library, names = library_of(data), column_names(data, name)
    if not library:
        values = np.asarray(data)
        pairs = zip(data.dtypes, values.T, strict=True)
        types = (text_type(cells) if dtype is np.dtype(object) else dtype for dtype, cells in pairs)
        return np.asarray(data.columns), values, tuple(types), library
    polars = library == "polars"
    series, attribute = (data.get_columns(), "dtype") if polars else (data.columns, "type")
    columns = [np.asarray(column.to_numpy()) for column in series]
    types = (
        cells.dtype if cells.dtype.kind in "biuf" else getattr(column, attribute)
        for cells, column in zip(columns, series, strict=True)
    )
    values = np.column_stack(columns) if columns else np.zeros((len(data), 0))
    return np.array(names, dtype=object), values, tuple(types), library


def text_type(cells: NDArray[Any], otherwise: Any = object) -> np.dtype[Any]:
    """Return the type to write cells in that are kept as objects: strings, or another type."""
    text = any(isinstance(cell, str) for cell in cells.ravel().tolist())
    return np.dtype("U1" if text else otherwise)


def name_key(name: Any) -> Any:
    """Return what a label name is compared by; a NaN of a pickle is another object than before."""
    return "NaN, no string" if isinstance(name, float) and name != name else name


def column_type(column: Any) -> Any:
    """Return the type of a Polars or Arrow column; None for Python objects in one, and others."""
    attribute = {"polars": "dtype", "pyarrow": "type"}.get(library_of(column), "")
    found = getattr(column, attribute, None)
    return None if str(found) == "Object" else found


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
    if not hasattr(dtype, "categories"):
        return module.array(column).astype(dtype)
    # a category that was never seen is added
    categories = list(dtype.categories)
    unseen = sorted(set(column.tolist()) - set(map(int, categories)))
    if unseen:
        categories += [type(categories[0])(value) for value in unseen]
        dtype = module.CategoricalDtype(categories, ordered=dtype.ordered)
    place = {int(category): code for code, category in enumerate(categories)}
    codes = np.array([place.get(0, -1), place.get(1, -1)])[column]
    return module.Categorical.from_codes(codes, dtype=dtype)


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


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the like, which does not equal itself."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        # NA of pandas has no truth; nor have arrays, whose rows are not missing
        return np.ndim(value) == 0


def holds_sets(Y: Any, name: str, fitted_labels: int | None = None) -> bool:
    """Return whether Y, which is no data frame, holds label sets; raise where rows are neither.

    Label sets are Python sets, nested sequences with a string in them, or nested sequences of
    numbers of different lengths, which cannot be the rows of a matrix. After a fit to sets of
    ``fitted_labels`` labels, nested sequences of numbers of another length are label sets, too.
    """
    if isinstance(Y, (str, bytes)) or not isinstance(Y, Iterable):
        return False
    if isinstance(Y, np.ndarray) and (Y.ndim != 1 or Y.dtype.kind != "O"):
        return False
    rows = list(Y)
    once = next((i for i, row in enumerate(rows) if isinstance(row, Iterator)), None)
    if once is not None:
        raise ValueError(f"row {once} of {name} can be read only once: write list(row)")
    if not any(isinstance(row, _SETS) for row in rows):
        return False
    _check_rows(rows, name)
    if any(isinstance(row, (set, frozenset)) for row in rows):
        return True
    if any(isinstance(tag, str) for row in rows for tag in row) or not any(map(len, rows)):
        return True
    if len(set(map(len, rows))) > 1:
        if _is_binary(rows):
            raise ValueError(
                f"the rows of {name} hold only 0 and 1 but have different lengths: pass a 0/1 "
                "matrix, or Python sets if 0 and 1 are names of labels: "
                f"[set(row) for row in {name}]"
            )
        return True
    if fitted_labels is None or len(rows[0]) != fitted_labels:
        return fitted_labels is not None
    repeated = any(len(set(row)) < len(row) for row in rows)
    if not repeated and _is_binary(rows):
        raise ValueError(
            f"the rows of {name} may be label sets or rows of a 0/1 matrix: pass Python sets, "
            f"[set(row) for row in {name}], or an array"
        )
    return not repeated


def _is_binary(rows: list[Any]) -> bool:
    return {tag for row in rows for tag in row} <= {0, 1}


def _check_rows(rows: list[Any], name: str) -> None:
    """Refuse rows without a label set among others that have one."""
    for number, row in enumerate(rows):
        if isinstance(row, _SETS):
            continue
        if is_missing(row):
            raise ValueError(
                f"row {number} of {name} is {row}: an empty label set is [], and rows whose labels "
                "are not known have to be left out"
            )
        if isinstance(row, str):
            raise ValueError(f"row {number} of {name} is a string among lists: write [{row!r}]")
        raise ValueError(f"row {number} of {name} is not a set of labels: {row!r}")


def sorted_names(names: set[Any], name: str) -> NDArray[Any]:
    """Return the names of labels in order, as objects; they have to be of one type."""
    kinds = sorted({type(n).__name__ for n in names})
    if len(kinds) > 1:
        raise ValueError(f"the label names in {name} are of several types: {', '.join(kinds)}")
    ordered = np.empty(len(names), dtype=object)
    ordered[:] = sorted(names)
    return ordered


def binary_classes(y: NDArray[Any], name: str) -> NDArray[Any]:
    """Return the one or two classes of a 1-D target of shape (n,), n >= 1."""
    if len(y) == 0:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity"
        raise ValueError(f"Input {name} contains {what} (at {int(np.argmin(np.isfinite(y)))}).")
    named = y.dtype.kind in "UO"
    texts = {text for text in y.tolist() if isinstance(text, str)} if named else set()
    for delimiter in _DELIMITERS:
        if not any(delimiter in text for text in texts):
            continue
        # the names of two classes may have a comma in them
        parts = [part.strip() for text in texts for part in text.split(delimiter)]
        if delimiter != "," or len(texts) > 2 or len(set(parts)) < len(parts):
            raise ValueError(
                f"{name} holds strings with {delimiter!r} between names: split them into label "
                f"sets first, [text.split({delimiter!r}) for text in {name}], or "
                f"{name}.str.split({delimiter!r}) in pandas"
            )
    check_classification_targets(y)
    classes: NDArray[Any] = np.unique(y)
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y)}: for sets of labels in {name} pass a 0/1 matrix or a sequence of "
            "sets"
        )
    return classes
