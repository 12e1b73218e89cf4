"""Files whose rows are read a block at a time: NumPy arrays, Parquet, SVMlight, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta.blocks.rows import Part

__all__ = ["Opened", "open_parts"]

Blocks = Iterator[tuple[Any, Any, Any]]
SUFFIXES = {
    ".npy": "numpy",
    ".npz": "numpy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
    ".csv": "csv",
    ".tsv": "csv",
}


@dataclass(frozen=True)
class Opened:
    """Files to be read, and what they say of columns and labels."""

    parts: list[Part]
    feature_names: NDArray[Any] | None = None
    classes: tuple[Any, ...] | None = None
    label_names: tuple[str, ...] | None = None  # of 0/1 columns


@dataclass(frozen=True)
class Columns:
    """Where labels and features of a table are; as in :func:`fbeta.datasets.read_csv`.

    Attributes
    ----------
    labels : sequence of str, optional
        Names of 0/1 columns.
    label_prefix : str, optional
        What their names begin with.
    label_column : str, optional
        A column of lists of label names, with ``delimiter`` between them in text.
    delimiter : str
    features : sequence of str, optional
        The columns to be read; all others but those in ``drop`` by default.
    drop : sequence of str
    """

    labels: Sequence[str] | None = None
    label_prefix: str | None = None
    label_column: str | None = None
    delimiter: str = ";"
    features: Sequence[str] | None = None
    drop: Sequence[str] = ()

    def split(self, header: Sequence[str], path: Path) -> tuple[list[str], list[str]]:
        """Return the columns of features and of labels that a file has."""
        labels = list(self.labels or ())
        if self.label_prefix is not None:
            labels = [name for name in header if name.startswith(self.label_prefix)]
        if self.label_column is not None:
            labels = [self.label_column]
        if self.label_prefix is not None and not labels:
            raise ValueError(f"{path}: no column begins with {self.label_prefix!r}")
        features = self.features
        if features is None:
            features = [n for n in header if n not in labels and n not in self.drop]
        absent = [name for name in (*features, *labels) if name not in header]
        if absent:
            raise ValueError(f"{path}: there is no column {absent[0]!r}")
        return list(features), labels

    def sets(self, cells: Sequence[Any]) -> list[list[str]]:
        """Return the label sets that cells hold."""
        return [self._names(cell) for cell in cells]

    def _names(self, cell: Any) -> list[str]:
        if cell is None or (isinstance(cell, float) and np.isnan(cell)):
            return []
        if isinstance(cell, str):
            return [word.strip() for word in cell.split(self.delimiter) if word.strip()]
        return list(cell)


def open_parts(path: Any, **options: Any) -> Opened:
    """Find the files of a folder and how to read them.

    Parameters
    ----------
    path : path, or sequence of paths
        A folder, whose files are of one format and are taken in the order of their names, or
        files.
    **options
        For Parquet and CSV files ``labels``, ``label_prefix`` or ``label_column``, ``delimiter``,
        ``features`` and ``drop``, as in :class:`Columns`. For SVMlight files ``n_features`` and
        ``zero_based`` (false by default), and ``label_names``: numbers as text.

    Returns
    -------
    Opened

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "X-0.npy"), np.eye(3))
    ...     np.save(Path(folder, "Y-0.npy"), np.ones((3, 2), np.int8))
    ...     opened = open_parts(folder)
    ...     [(block.part, block.X.shape, block.Y.shape) for block in opened.parts[0].blocks(2)]
    [('X-0.npy', (2, 3), (2, 2)), ('X-0.npy', (1, 3), (1, 2))]
    """
    files = _files(path)
    kinds = {SUFFIXES.get(file.suffix.lower()) for file in files}
    if len(kinds) != 1 or None in kinds:
        found = ", ".join(sorted({file.suffix or "none" for file in files}))
        raise ValueError(
            f"{path}: expected files of one format, of {', '.join(SUFFIXES)}; found {found}"
        )
    [kind] = kinds
    if kind == "numpy":
        return _numpy(files, path, **options)
    if kind == "svmlight":
        return _svmlight(files, **options)
    return _tables(files, kind == "parquet", Columns(**options))


def _files(path: Any) -> list[Path]:
    if not isinstance(path, str | PathLike):
        return [Path(file) for file in path]
    folder = Path(path)
    if not folder.is_dir():
        if not folder.exists():
            raise FileNotFoundError(2, "No such file or folder", str(folder))
        return [folder]
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] not in "._")
    if not files:
        raise ValueError(f"{folder}: there are no files")
    return files


def _numpy(files: list[Path], path: Any) -> Opened:
    """Pair files of features with files of labels, whose names differ in their first letter."""
    rest = {file.name[1:].rsplit(".", 1)[0]: file for file in files if file.name[0] in "yY"}
    weights = {
        file.stem.removeprefix("weight"): file for file in files if file.stem.startswith("weight")
    }
    features = [file for file in files if file.name[0] in "xX"]
    if not features:
        raise ValueError(f"{path}: expected pairs of files X*.npy and Y*.npy")
    parts = []
    for file in features:
        key = file.stem[1:]
        labels = rest.get(key)
        if rest and labels is None:
            raise ValueError(f"{file}: there is no file Y{key}.npy of its labels")
        own = (file, labels, weights.get(key))
        parts.append(Part(file.name, partial(_numpy_blocks, own)))
    return Opened(parts)


def _numpy_blocks(files: tuple[Path, Path | None, Path | None], rows: int) -> Blocks:
    streams = [None if file is None else _array_blocks(file, rows) for file in files]
    for X in streams[0] or ():
        others = [None if stream is None else next(stream, None) for stream in streams[1:]]
        yield X, others[0], others[1]


def _array_blocks(path: Path, rows: int) -> Iterator[Any]:
    """Read an array a few rows at a time, without mapping it: a map counts as memory in use."""
    if path.suffix.lower() == ".npz":
        matrix = sp.csr_array(sp.load_npz(path))
        yield from (matrix[at : at + rows] for at in range(0, matrix.shape[0], rows))
        return
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, fortran, dtype = read(file)
        if fortran and len(shape) > 1:
            mapped = np.load(path, mmap_mode="r")
            yield from (np.array(mapped[at : at + rows]) for at in range(0, shape[0], rows))
            return
        width = int(np.prod(shape[1:], dtype=np.int64))
        for at in range(0, shape[0], rows):
            count = min(rows, shape[0] - at)
            block = np.fromfile(file, dtype, count * width)
            if block.size < count * width:
                raise ValueError(f"{path}: the file ends in row {at + block.size // max(width, 1)}")
            yield block.reshape(count, *shape[1:])


def _tables(files: list[Path], parquet: bool, columns: Columns) -> Opened:
    header = (_parquet_header if parquet else _csv_header)(files[0])
    features, labels = columns.split(header, files[0])
    read = _parquet_blocks if parquet else _csv_blocks
    parts = [Part(f.name, partial(read, f, features, labels, columns)) for f in files]
    names = np.array(features, dtype=object)
    own = None if columns.label_column is not None or not labels else tuple(labels)
    return Opened(parts, names, label_names=own)


def _parquet_header(path: Path) -> list[str]:
    parquet = optional_import("pyarrow.parquet", "data", "reading Parquet files")
    return list(parquet.ParquetFile(path).schema_arrow.names)


def _parquet_blocks(
    path: Path, features: list[str], labels: list[str], columns: Columns, rows: int
) -> Blocks:
    parquet = optional_import("pyarrow.parquet", "data", "reading Parquet files")
    with parquet.ParquetFile(path) as file:
        columns.split(file.schema_arrow.names, path)
        for batch in file.iter_batches(batch_size=rows, columns=[*features, *labels]):
            X = _numbers([batch.column(name) for name in features], path)
            if columns.label_column is not None:
                yield X, columns.sets(batch.column(labels[0]).to_pylist()), None
            else:
                own = [batch.column(name) for name in labels]
                yield X, _numbers(own, path) if labels else None, None


def _numbers(columns: list[Any], path: Path) -> NDArray[Any]:
    """Return columns of Arrow as a matrix; gaps are NaN."""
    arrays = []
    for column in columns:
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biuf":
            try:
                values = values.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: a column does not hold numbers: {error}") from error
        arrays.append(values)
    single = all(values.dtype == np.float32 for values in arrays)
    return np.column_stack(arrays).astype(np.float32 if single else np.float64, copy=False)


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _csv_header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [name.strip() for name in next(csv.reader(file, delimiter=_separator(path)), [])]


def _csv_blocks(
    path: Path, features: list[str], labels: list[str], columns: Columns, rows: int
) -> Blocks:
    header = _csv_header(path)
    columns.split(header, path)
    place = {name: at for at, name in enumerate(header)}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=_separator(path))
        next(reader, None)
        while cells := list(islice(reader, rows)):
            own = [row for row in cells if row]
            short = next((row for row in own if len(row) != len(header)), None)
            if short is not None:
                raise ValueError(
                    f"{path}, line {reader.line_num} or before: expected {len(header)} cells, "
                    f"found {len(short)}"
                )
            X = _parse(own, [place[name] for name in features], path, reader.line_num)
            if columns.label_column is not None:
                yield X, columns.sets([row[place[labels[0]]] for row in own]), None
            else:
                wanted = [place[name] for name in labels]
                Y = _parse(own, wanted, path, reader.line_num) if labels else None
                yield X, Y, None


def _parse(rows: list[list[str]], places: list[int], path: Path, line: int) -> NDArray[Any]:
    text = [[row[at].strip() or "nan" for at in places] for row in rows]
    try:
        return np.array(text, dtype=object).astype(np.float64).reshape(len(rows), len(places))
    except ValueError as error:
        raise ValueError(f"{path}, line {line} or before: {error}") from error


def _svmlight(
    files: list[Path],
    n_features: int | None = None,
    zero_based: bool = False,
    label_names: Sequence[str] | None = None,
) -> Opened:
    """Read text with ``label,label index:value ...`` in each line."""
    if n_features is None or label_names is None:
        width, names = _svmlight_extent(files, zero_based)
        n_features = width if n_features is None else n_features
        label_names = names if label_names is None else label_names
    read = partial(_svmlight_blocks, n_features=n_features, zero_based=zero_based)
    return Opened([Part(f.name, partial(read, f)) for f in files], None, tuple(label_names))


def _lines(path: Path, rows: int) -> Iterator[list[bytes]]:
    with path.open("rb") as file:
        lines = (row for line in file if (row := line.partition(b"#")[0]).strip())
        while some := list(islice(lines, rows)):
            yield some


def _svmlight_extent(files: list[Path], zero_based: bool) -> tuple[int, list[str]]:
    """Go through the files once for the largest index and the names of the labels."""
    largest, labels = -1, set()
    for line in chain.from_iterable(chain.from_iterable(_lines(f, 4096) for f in files)):
        words = line.split()
        if words and b":" in words[-1]:
            largest = max(largest, int(words[-1].partition(b":")[0]))
        if words and not line[:1].isspace() and b":" not in words[0]:
            labels |= set(words[0].split(b","))
    return largest + int(zero_based), [str(label) for label in sorted(map(int, labels))]


def _svmlight_blocks(path: Path, rows: int, *, n_features: int, zero_based: bool) -> Blocks:
    from sklearn.datasets import load_svmlight_file

    for number, lines in enumerate(_lines(path, rows)):
        try:
            X, sets = load_svmlight_file(
                io.BytesIO(b"".join(line.rstrip(b"\r\n") + b"\n" for line in lines)),
                multilabel=True, n_features=n_features, zero_based=zero_based,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"{path}, rows {number * rows} and after: {error}") from error
        yield sp.csr_array(X), [[str(int(label)) for label in own] for own in sets], None
