"""CSV and Parquet files, with labels in 0/1 columns or in one column of names."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fbeta._array import optional_import
from fbeta._validation import check_choice
from fbeta.datasets._common import Missing, PathLike, fail, is_plain, read_bytes, read_lines
from fbeta.datasets._dataset import Dataset, FloatArray, Labels
from fbeta.datasets._indicators import indicators
from fbeta.datasets._separators import guess_separator, split_rows

_WORDS = dict.fromkeys(("", "?", "NA", "N/A", "NaN", "nan", "null"), np.nan)
_WORDS |= {"True": 1.0, "true": 1.0, "False": 0.0, "false": 0.0}

# What a Parquet file may unfold to: 1 GiB, and 64 bytes for each of its own
_MOST_UNFOLDED, _UNFOLDING = 2**30, 64

Column = FloatArray | list[Any]

__all__ = ["LabelColumns", "Table", "read_csv", "read_parquet", "scan_csv", "scan_parquet"]


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

    Exactly one of `labels`, `label_prefix` and `label_column` says where the labels are.

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
        What becomes of a missing feature (an empty cell, ``?``, ``NA``, ``N/A``, ``nan`` or
        ``null``): an error, NaN or the mean of the column. A missing label is an error.
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
    choice = LabelColumns(labels, label_prefix, label_column, delimiter, label_names)
    check_choice("missing", missing, get_args(Missing))
    return scan_csv(path, sep=sep, encoding=encoding).dataset(choice, drop, missing, name)


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
    choice = LabelColumns(labels, label_prefix, label_column, delimiter, label_names)
    check_choice("missing", missing, get_args(Missing))
    return scan_parquet(path).dataset(choice, drop, missing, name)


def scan_csv(
    path: PathLike, *, sep: str | None = ",", encoding: str | None = "utf-8", least: int = 2
) -> Table:
    r"""Read the columns of a CSV file, whatever they hold; arguments are those of `read_csv`.

    None for `sep` or `encoding` is what the file looks like; `least` columns are expected.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.csv")
    ...     _ = file.write_text("size,age,note\n1.5,2,?!\n3,4,\n")
    ...     table = scan_csv(file)
    >>> table.header, table.features(["age", "size"], "error").tolist()
    (['size', 'age', 'note'], [[2.0, 1.5], [4.0, 3.0]])
    """
    text = read_lines(path, encoding)
    header, rows, lines = split_rows(
        path, text, guess_separator(text) if sep is None else sep, least
    )
    columns = [list(column) for column in zip(*rows, strict=True)]
    return Table(path, header, columns, lines.__getitem__)


def scan_parquet(path: PathLike) -> Table:
    """Read the columns of a Parquet file, whatever they hold."""
    pandas: Any = optional_import("pandas", "data", "reading Parquet files")
    optional_import("pyarrow", "data", "reading Parquet files")
    parquet: Any = import_module("pyarrow.parquet")
    data = read_bytes(path)
    content = io.BytesIO(data)
    try:
        size = _unfolded(parquet.read_metadata(content))
        if size > _MOST_UNFOLDED + _UNFOLDING * len(data):
            raise ValueError(f"{size:,} bytes after unpacking, too many for a file of its size")
        content.seek(0)
        frame = pandas.read_parquet(content, engine="pyarrow")
        columns = [_cells(frame.iloc[:, j]) for j in range(frame.shape[1])]
    # A damaged file surfaces as ValueError, OSError or others, depending on the damage;
    # the file has been read by now, so every one of them speaks of its content.
    except Exception as error:
        raise fail(path, None, "a Parquet file", str(error)) from error
    return Table(path, [str(c) for c in frame.columns], columns, lambda row: f"row {row + 1}")


def _unfolded(metadata: Any) -> int:
    """Return how large the columns of a Parquet file claim to be."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    packed = sum(group.total_byte_size for group in groups)
    return int(max(packed, 8 * metadata.num_rows * metadata.num_columns))


def _cells(series: Any) -> Column:
    """Take a pandas column apart: an array if it is numeric, else its cells, None for gaps."""
    if series.dtype.kind in "biuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    gaps = series.isna()
    return [None if gap else cell for cell, gap in zip(series.tolist(), gaps, strict=True)]


@dataclass(frozen=True)
class LabelColumns:
    """Where the labels of a table are, with the meaning and the checks of `read_csv`."""

    columns: Sequence[str] | None = None
    prefix: str | None = None
    column: str | None = None
    delimiter: str = ";"
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.columns, self.prefix, self.column)) != 1:
            raise ValueError("give exactly one of labels, label_prefix and label_column")
        if isinstance(self.columns, str):
            raise ValueError("labels must be a list of column names; see also label_column")
        if self.names is not None and self.column is None:
            raise ValueError("label_names goes with label_column")
        if not self.delimiter:
            raise ValueError("delimiter must not be empty")


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns, and the words that tell where in the file a row stands."""

    path: PathLike
    header: Sequence[str]
    columns: Sequence[Column]
    place: Callable[[int], int | str]

    def features(self, names: Sequence[str], missing: Missing) -> FloatArray:
        """Return some columns as numbers, of shape (n, number of names)."""
        position = {name: j for j, name in enumerate(self.header)}
        return np.column_stack([self._feature(position[name], name, missing) for name in names])

    def dataset(
        self, choice: LabelColumns, drop: Sequence[str], missing: Missing, name: str | None = None
    ) -> Dataset:
        """Take labels and features apart; arguments are those of `read_csv`."""
        position = self._positions(drop)
        if not self.columns or not len(self.columns[0]):
            raise fail(self.path, None, "at least one row")
        chosen = self._label_columns(choice, position)
        features = [column for column in position if column not in chosen]
        if not features:
            raise fail(self.path, None, "at least one feature column besides the labels")
        if choice.column is not None:
            Y, names = self._named_sets(position[choice.column], choice)
        else:
            Y, names = self._zero_one(position, chosen), tuple(chosen)
        return Dataset(
            X=self.features(features, missing),
            Y=Y,
            label_names=names,
            feature_names=tuple(features),
            name=Path(self.path).stem if name is None else name,
        )

    def _positions(self, drop: Sequence[str]) -> dict[str, int]:
        """Map the columns that stay to their positions."""
        position: dict[str, int] = {}
        for column in drop:
            if column not in self.header:
                raise fail(self.path, None, f"a column {column!r} to drop", list(self.header))
        for j, column in enumerate(self.header):
            if column in drop:
                continue
            if not column.strip():
                raise fail(self.path, None, f"a name for column {j + 1} (or drop=[''])")
            if column in position:
                raise fail(self.path, None, "different column names", column)
            position[column] = j
        return position

    def _label_columns(self, choice: LabelColumns, position: dict[str, int]) -> list[str]:
        if choice.prefix is not None:
            found = [column for column in position if column.startswith(choice.prefix)]
            if not found:
                expected = f"a column whose name begins with {choice.prefix!r}"
                raise fail(self.path, None, expected, list(position))
            return found
        wanted = list(choice.columns or ()) if choice.column is None else [choice.column]
        for column in wanted:
            if column not in position:
                raise fail(self.path, None, f"a label column {column!r}", list(position))
        if not wanted or len(set(wanted)) < len(wanted):
            raise ValueError("labels must name at least one column, and none twice")
        return wanted

    def _numbers(self, j: int, column: str) -> FloatArray:
        """Convert one column; a missing cell is NaN."""
        cells = self.columns[j]
        if isinstance(cells, np.ndarray):
            return cells
        return np.array([self._number(row, cell, column) for row, cell in enumerate(cells)])

    def _number(self, row: int, cell: Any, column: str) -> float:
        if cell is None:
            return np.nan
        value = cell
        if isinstance(cell, str):
            # the words are those that pandas and others write
            value = _WORDS.get(cell.strip(), cell if is_plain(cell.strip()) else "?")
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            expected = f"a number in column {column!r}"
            raise fail(self.path, self.place(row), expected, cell) from error

    def _feature(self, j: int, column: str, missing: Missing) -> FloatArray:
        numbers = self._numbers(j, column)
        infinite = np.flatnonzero(np.isinf(numbers))
        if infinite.size:
            row = int(infinite[0])
            expected = f"a finite number in column {column!r}"
            raise fail(self.path, self.place(row), expected, float(numbers[row]))
        gaps = np.isnan(numbers)
        if missing == "nan" or not gaps.any():
            return numbers
        row = int(np.flatnonzero(gaps)[0])
        if missing == "error":
            expected = f"a value in column {column!r} (the option 'missing' fills gaps)"
            raise fail(self.path, self.place(row), expected, "a missing value")
        if gaps.all():
            expected = f"at least one value in column {column!r} to take the mean of"
            raise fail(self.path, None, expected)
        return np.where(gaps, numbers[~gaps].mean(), numbers)

    def _zero_one(self, position: dict[str, int], columns: Sequence[str]) -> Labels:
        Y = np.empty((len(self.columns[0]), len(columns)), dtype=np.int8)
        for k, column in enumerate(columns):
            numbers = self._numbers(position[column], column)
            bad = np.flatnonzero((numbers != 0) & (numbers != 1))
            if bad.size:
                row = int(bad[0])
                expected = f"0 or 1 in label column {column!r}"
                found = "a missing value" if np.isnan(numbers[row]) else float(numbers[row])
                raise fail(self.path, self.place(row), expected, found)
            Y[:, k] = numbers
        return Y

    def _named_sets(self, j: int, choice: LabelColumns) -> tuple[Labels, tuple[str, ...]]:
        cells = self.columns[j]
        sets = [self._names(row, cell, choice) for row, cell in enumerate(cells)]
        places = [self.place(row) for row in range(len(cells))]
        return indicators(self.path, places, sets, choice.names)

    def _names(self, row: int, cell: Any, choice: LabelColumns) -> list[str]:
        if isinstance(cell, str):
            names = [word.strip() for word in cell.split(choice.delimiter)] if cell.strip() else []
        elif isinstance(cell, list | tuple | np.ndarray):
            names = list(cell)
        elif cell is None:
            names = []
        else:
            names = [cell]
        if not all(isinstance(word, str) and word for word in names):
            expected = f"label names separated by {choice.delimiter!r} in {choice.column!r}"
            raise fail(self.path, self.place(row), expected, cell)
        return names
