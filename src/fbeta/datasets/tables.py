"""Tables as features and labels: ``read_table``, ``read_csv`` and ``read_parquet``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fbeta._array import optional_import
from fbeta._validation import check_choice
from fbeta.datasets.cells import is_arrow
from fbeta.datasets.column_kinds import KINDS, ColumnKind, infer_kind
from fbeta.datasets.dataset import Dataset
from fbeta.datasets.files import DatasetError, Missing, PathLike, fail, quoted
from fbeta.datasets.label_columns import LabelColumns, TableLabels
from fbeta.datasets.table_files import UNNAMED, FileFormat, Table, frame_table

__all__ = ["TableData", "read_csv", "read_parquet", "read_table"]


@dataclass(frozen=True, eq=False)
class TableData:
    """Features, labels and ids of a table, and what was found in it.

    Attributes
    ----------
    features : pandas.DataFrame of shape (n, c)
        The columns that become features, as :class:`TableEncoder` takes them.
    labels : pandas.DataFrame of shape (n, s), or None
        0/1 columns.
    ids : pandas.DataFrame of shape (n, i)
        Columns that name the rows.
    columns : tuple of ColumnKind
        What each column besides the labels was found to hold.
    notes : tuple of str
        What a user should know of the labels.
    """

    features: Any
    labels: Any
    ids: Any
    columns: tuple[ColumnKind, ...]
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of the columns of ``features``, by name, as :class:`TableEncoder` takes them."""
        return {column.name: column.kind for column in self.columns if column.kind in KINDS}


def read_table(
    source: Any,
    *,
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    join_labels: bool = False,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    format: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
) -> TableData:
    r"""Read a table of numbers, categories, text and dates, as ``fbeta fit`` does.

    At most one of `labels`, `label_prefix` and `label_column` says where the labels are.

    Parameters
    ----------
    source : path, or data frame
        A CSV, JSON Lines, Parquet or Excel file (``.gz`` too), or a frame of pandas, Polars or
        Arrow.
    labels, label_prefix, label_column
        As in `read_csv`; columns may hold ``yes`` and ``no``, or ``x`` and blanks, too.
    delimiter : str, optional
        What separates the names in `label_column`; inferred by default.
    join_labels : bool
        Whether names that differ in case or blanks only are one label.
    kinds : mapping from str to str, optional
        ``"numeric"``, ``"categorical"``, ``"text"``, ``"date"`` or ``"id"`` by column; the others
        are inferred.
    drop : sequence of str
        Columns to leave out.
    format, sep, encoding : str, optional
        Of the file; inferred by default.

    Returns
    -------
    TableData

    Raises
    ------
    DatasetError
        If the file is broken or lacks a column, with the line.

    Examples
    --------
    >>> import tempfile
    >>> from fbeta.datasets import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.csv")
    ...     _ = file.write_text("price;colour;tags\n1,5;red;a, b\n2,5;blue;\n3,0;red;b\n")
    ...     data = read_table(file, label_column="tags")
    >>> data.kinds
    {'price': 'numeric', 'colour': 'categorical'}
    >>> data.labels.to_numpy().tolist()
    [[1, 1], [0, 0], [0, 1]]
    """
    place = LabelColumns(labels, label_prefix, label_column, delimiter, join=join_labels)
    kind: Any = format
    is_path = isinstance(source, str) or hasattr(source, "__fspath__")
    table = FileFormat(kind, sep, encoding).read(source) if is_path else frame_table(source)
    found = place.read(table) if place.is_given else None
    columns = column_kinds(table, place, kinds or {}, drop)
    pandas = optional_import("pandas", "data", "reading tables")
    used = [column.name for column in columns if column.kind in KINDS]
    ids = [column.name for column in columns if column.kind == "id"]
    return TableData(
        to_frame(table, used),
        None if found is None else pandas.DataFrame(found.Y, columns=list(found.names)),
        to_frame(table, ids),
        tuple(columns),
        () if found is None else found.notes,
    )


def to_frame(table: Table, names: Sequence[str]) -> Any:
    """Return columns of a table as a pandas DataFrame, text as Arrow strings without a copy."""
    pandas = optional_import("pandas", "data", "reading tables")
    columns = {}
    for name in names:
        cells = table.columns[name]
        dtype = pandas.ArrowDtype(cells.type) if is_arrow(cells) else None
        columns[name] = pandas.Series(cells, dtype=dtype)
    return pandas.DataFrame(columns, index=range(table.n_rows))


def column_kinds(
    table: Table, labels: LabelColumns, kinds: Mapping[str, str], drop: Sequence[str]
) -> list[ColumnKind]:
    """Infer the kinds of the columns that are neither labels nor dropped; check the options."""
    chosen = labels.find(table.header, table.path) if labels.is_given else []
    absent = [name for name in (*drop, *kinds) if name not in table.columns]
    if absent:
        raise DatasetError(
            f"{table.path}: has no column {quoted(absent)}; its columns are "
            f"{quoted(table.header, 20)}"
        )
    twice = [c for c in (*drop, *kinds) if c in chosen or (c in kinds and c in drop)]
    if twice:
        raise DatasetError(f"{table.path}: the options give {quoted(twice)} two uses")
    apart = {*chosen, *drop}
    names = [name for name in table.columns if name not in apart]
    with ThreadPoolExecutor() as pool:  # Arrow computes without the interpreter's lock
        found = list(pool.map(lambda n: infer_kind(n, table.columns[n], kinds.get(n)), names))
    bad = [f"{column.name!r} {column.note}" for column in found if column.kind == "other"]
    if bad:
        raise DatasetError(f"{table.path}: columns that are no features: {', '.join(bad)} (--drop)")
    return found


def read_csv(
    path: PathLike,
    *,
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_column: str | None = None,
    delimiter: str = ";",
    label_names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    missing: Missing = "error",
    sep: str = ",",
    encoding: str = "utf-8",
    name: str | None = None,
) -> Dataset:
    r"""Read a CSV file with a header row and numeric features (``True`` and ``False`` will do).

    Exactly one of `labels`, `label_prefix` and `label_column` says where the labels are. For
    columns of text, categories and dates see `read_table`.

    Parameters
    ----------
    path : path
        File to read.
    labels : sequence of str, optional
        Names of the label columns, which hold 0 and 1; their order is that of `Y`.
    label_prefix : str, optional
        Columns whose names begin like this are label columns, in file order.
    label_column : str, optional
        The one column that lists the labels of each row by name.
    delimiter : str
        What separates the names in `label_column`. An empty cell is an empty label set.
    label_names : sequence of str, optional
        With `label_column`: the labels that may occur, in the order of `Y`; by default
        those that do occur, sorted.
    drop : sequence of str
        Columns to leave out, such as identifiers.
    missing : {"error", "nan", "mean"}
        What becomes of a missing feature (an empty cell, ``?``, ``NA``, ``N/A``, ``nan``,
        ``null`` and the like): an error, NaN or the mean of the column. A missing label is an
        error.
    sep : str
        What separates the cells.
    encoding : str
        Text encoding of the file.
    name : str, optional
        Name of the data set; the stem of `path` by default.

    Returns
    -------
    Dataset
        With dense features, in file order.

    Raises
    ------
    DatasetError
        If the file is broken or lacks a column.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fbeta.datasets import read_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.csv")
    ...     _ = file.write_text("size,age,tags\n1.5,2,cat;dog\n3,4,\n")
    ...     data = read_csv(file, label_column="tags")
    >>> data.label_names, data.Y.tolist(), data.feature_names
    (('cat', 'dog'), [[1, 1], [0, 0]], ('size', 'age'))
    """
    place = LabelColumns(labels, label_prefix, label_column, delimiter, label_names, words=False)
    return _numeric_dataset(path, FileFormat("csv", sep, encoding), place, drop, missing, name)


def read_parquet(
    path: PathLike,
    *,
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_column: str | None = None,
    delimiter: str = ";",
    label_names: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    missing: Missing = "error",
    name: str | None = None,
) -> Dataset:
    """Read a Parquet file with numeric features.

    Exactly one of `labels`, `label_prefix` and `label_column` says where the labels are.

    Parameters
    ----------
    path : path
        File to read.
    labels, label_prefix, label_column, delimiter, label_names, drop, missing, name
        As in `read_csv`; `label_column` may also hold lists of names instead of text.

    Returns
    -------
    Dataset
        With dense features, in file order. Error messages count rows from 1.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas
    >>> from fbeta.datasets import read_parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.parquet")
    ...     pandas.DataFrame({"size": [1.5, 3.0], "is_cat": [True, False]}).to_parquet(file)
    ...     data = read_parquet(file, label_prefix="is_")
    >>> data.label_names, data.Y.tolist(), data.X.tolist()
    (('is_cat',), [[1], [0]], [[1.5], [3.0]])
    """
    place = LabelColumns(labels, label_prefix, label_column, delimiter, label_names, words=False)
    return _numeric_dataset(path, FileFormat("parquet"), place, drop, missing, name)


def _numeric_dataset(
    path: PathLike,
    source: FileFormat,
    labels: LabelColumns,
    drop: Sequence[str],
    missing: Missing,
    name: str | None,
) -> Dataset:
    if not labels.is_given:
        raise ValueError("give exactly one of labels, label_prefix and label_column")
    check_choice("missing", missing, get_args(Missing))
    table = source.read(path, least=2)
    unnamed = [column for column in table.header if column.startswith(UNNAMED)]
    for column in drop:
        if column not in table.columns and not (column == "" and unnamed):
            raise fail(path, None, f"a column {column!r} to drop", table.header)
    if unnamed and "" not in drop:
        number = table.header.index(unnamed[0]) + 1
        raise fail(path, None, f"a name for column {number} (or drop=[''])")
    drop = [*drop, *unnamed]
    kept = Table(path, {n: c for n, c in table.columns.items() if n not in drop}, table.place)
    chosen = labels.find(kept.header, path)
    features = [column for column in kept.header if column not in chosen]
    if not features:
        raise fail(path, None, "at least one feature column besides the labels")
    found: TableLabels = labels.read(kept)
    return Dataset(
        X=np.asarray(kept.numbers(features, missing)),
        Y=found.Y,
        label_names=found.names,
        feature_names=tuple(features),
        name=Path(path).stem if name is None else name,
    )
