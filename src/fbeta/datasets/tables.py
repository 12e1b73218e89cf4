"""Tables read as features and labels, and columns written as files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from fbeta._array import check_choice, optional_import
from fbeta._files import to_csv, write_atomically, write_text
from fbeta.datasets.cells import Cells, arrow, is_gap
from fbeta.datasets.column_kinds import KINDS, ColumnKind, infer_kinds
from fbeta.datasets.dataset import Dataset, DatasetError, Missing, PathLike, fail, quoted
from fbeta.datasets.label_columns import LabelColumns
from fbeta.datasets.table_files import UNNAMED, FileFormat, Table, frame_table

Columns = Mapping[str, Sequence[Any]]
_MAX_EXCEL_INTEGER = 10**15 - 1  # Excel rounds numbers to 15 digits
# leading zeros are part of a name, not of a number
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?", re.ASCII)


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

    Parameters
    ----------
    source : path, or data frame
        A CSV, JSON Lines, Parquet or Excel file (``.gz`` too), or a frame of pandas, Polars or
        Arrow.
    labels, label_prefix, label_column
        As in `read_csv`, at most one; columns may hold ``yes`` and ``no``, or ``x`` and blanks.
    delimiter : str, optional
        What separates the names in `label_column`; inferred by default.
    join_labels : bool
        Whether names that differ in case, blanks or Unicode form only are one label.
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
    return TableData(
        table.frame([column.name for column in columns if column.kind in KINDS]),
        None if found is None else pandas.DataFrame(found.Y, columns=list(found.names)),
        table.frame([column.name for column in columns if column.kind == "id"]),
        tuple(columns),
        () if found is None else found.notes,
    )


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
    columns = {name: cells for name, cells in table.columns.items() if name not in apart}
    try:
        return infer_kinds(columns, kinds)
    except ValueError as error:
        raise DatasetError(f"{table.path}: {error} (--drop)") from error


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

    For columns of text, categories and dates see `read_table`.

    Parameters
    ----------
    path : path
        File to read.
    labels : sequence of str, optional
        Names of the label columns, which hold 0 and 1, in the order of `Y`. Give exactly one of
        `labels`, `label_prefix` and `label_column`.
    label_prefix : str, optional
        What the names of label columns begin with.
    label_column : str, optional
        The one column that lists the labels of each row by name; an empty cell is an empty set.
    delimiter : str
        What separates the names in `label_column`.
    label_names : sequence of str, optional
        The labels that may occur in `label_column`, in the order of `Y`; by default those that do
        occur, sorted.
    drop : sequence of str
        Columns to leave out, such as identifiers.
    missing : {"error", "nan", "mean"}
        What becomes of a missing feature (an empty cell, ``?``, ``NA``, ``null`` and the like): an
        error, NaN or the mean of the column. A missing label is an error.
    sep, encoding : str
        What separates the cells, and the text encoding of the file.
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

    Examples
    --------
    >>> import tempfile
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

    Parameters
    ----------
    path, labels, label_prefix, label_column, delimiter, label_names, drop, missing, name
        As in `read_csv`; `label_column` may also hold lists of names instead of text.

    Returns
    -------
    Dataset
        With dense features, in file order. Error messages count rows from 1.

    Examples
    --------
    >>> import pandas, tempfile
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
    dropped = {*drop, *unnamed}
    kept = Table(path, {n: c for n, c in table.columns.items() if n not in dropped}, table.place)
    chosen = labels.find(kept.header, path)
    features = [column for column in kept.header if column not in chosen]
    if not features:
        raise fail(path, None, "at least one feature column besides the labels")
    found = labels.read(kept)
    return Dataset(
        X=kept.numbers(features, missing),
        Y=found.Y,
        label_names=found.names,
        feature_names=tuple(features),
        name=Path(path).stem if name is None else name,
    )


def plain_values(cells: Cells, typed: bool) -> list[Any]:
    """Return cells as values of Python; text that holds numbers only as numbers if ``typed``."""
    if not isinstance(cells, list) and "timestamp" in str(cells.type):
        seconds = cells.to_numpy(zero_copy_only=False).astype("datetime64[s]")
        values: list[Any] = [str(value).removesuffix("T00:00:00") for value in seconds]
    else:
        values = cells if isinstance(cells, list) else cells.to_pylist()
    if not typed and not isinstance(cells, list) and "string" in str(cells.type):
        return values
    values = [None if isinstance(v, str | float) and is_gap(v) else v for v in values]
    known = [value for value in values if value is not None]
    if known and all(isinstance(v, str) and _NUMBER.fullmatch(v.strip()) for v in known):
        read = int if all("." not in value for value in known) else float
        return [None if value is None else read(value) for value in values]
    if known and all(isinstance(v, float) and v.is_integer() for v in known):
        return [None if value is None else int(value) for value in values]
    kinds = {type(value) for value in known}
    if len(kinds) < 2 and kinds <= {str, int, float, bool, list}:
        return values
    return [None if value is None else str(value) for value in values]


def table_text(columns: Columns, kind: str, *, delimiter: str = ";", safe: bool = False) -> str:
    """Return columns as text: ``"csv"``, ``"tsv"``, ``"jsonl"`` or ``"json"``."""
    if kind in ("csv", "tsv"):
        rows = zip(*_joined(columns, delimiter).values(), strict=True)
        return to_csv([list(columns), *rows], sep="\t" if kind == "tsv" else ",", safe=safe)
    found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "json":
        return json.dumps(found) + "\n"
    return "".join(json.dumps(row) + "\n" for row in found)


def _joined(columns: Columns, delimiter: str) -> Columns:
    """Return columns with text in place of lists."""
    return {
        name: [delimiter.join(v) if isinstance(v, list) else v for v in values]
        for name, values in columns.items()
    }


def save_table(
    path: Path, columns: Columns, kind: str, *, delimiter: str = ";", safe: bool = False
) -> None:
    """Write columns to a file, whole or not at all."""
    if kind == "parquet":
        parquet = optional_import("pyarrow.parquet", "data", "writing Parquet files")
        with write_atomically(path) as part:
            parquet.write_table(arrow.table(dict(columns)), part)
    elif kind == "xlsx":
        _save_excel(path, _joined(columns, delimiter))
    else:
        write_text(path, table_text(columns, kind, delimiter=delimiter, safe=safe))


def _save_excel(path: Path, columns: Columns) -> None:
    openpyxl = optional_import("openpyxl", "data", "writing Excel files")
    cells = optional_import("openpyxl.cell", "data", "writing Excel files")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    illegal = cells.cell.ILLEGAL_CHARACTERS_RE

    def cell(value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _MAX_EXCEL_INTEGER:
            value = str(value)
        if not isinstance(value, str):
            return value
        made = cells.WriteOnlyCell(sheet, illegal.sub("", value))
        made.data_type = "s"  # text stays text: a formula would be run
        return made

    sheet.append([cell(name) for name in columns])
    for row in zip(*columns.values(), strict=True):
        sheet.append([cell(value) for value in row])
    with write_atomically(path) as part:
        book.save(part)
