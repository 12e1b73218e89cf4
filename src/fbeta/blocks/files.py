"""Files whose rows are read a block at a time, and predictions that are written so."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from fbeta._array import optional_import
from fbeta._files import make_folder, write_atomically
from fbeta.blocks.rows import Arrays, Part, RowBlocks
from fbeta.blocks.summary import check_features
from fbeta.datasets import DatasetError, TableEncoder
from fbeta.datasets.dataset import fail
from fbeta.datasets.label_columns import LabelColumns
from fbeta.datasets.model_data import parse_cells, refuse_problems
from fbeta.datasets.table_files import FileFormat, Table
from fbeta.labels.containers import column_order, is_table

_NUMPY_SUFFIXES = (".npy", ".npz")
_EXTENT_ROWS = 4096  # of a block in the pass that finds the features and labels of SVMlight files


def open_files(path: Any, **options: Any) -> tuple[list[Part], dict[str, Any]]:
    """Return the parts of :meth:`RowBlocks.read`, and names of features, labels or classes."""
    files = list_files(path)
    if all(file.suffix.lower() in _NUMPY_SUFFIXES for file in files):
        return _numpy(files, **options), {}
    kinds = {None if f.suffix.lower() in _NUMPY_SUFFIXES else FileFormat().of(f) for f in files}
    if len(kinds) != 1 or kinds == {"arff"}:
        found = ", ".join(sorted({file.suffix or "none" for file in files}))
        raise ValueError(f"{path}: expected files of one format, and no ARFF; found {found}")
    return _svmlight(files, **options) if kinds == {"svmlight"} else _tables(files, **options)


def list_files(path: Any) -> list[Path]:
    """Return a file, or the files of a folder in the order of their names."""
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


def _numpy(files: list[Path]) -> list[Part]:
    """Pair files of features with files of labels and of weights, whose names end alike."""
    found: dict[str, dict[str, Path]] = {"weight": {}, "Y": {}, "X": {}}
    for file in files:
        kind = next((k for k in found if file.stem.lower().startswith(k.lower())), None)
        key = file.stem[len(kind or "") :]
        if kind is None or found[kind].setdefault(key, file) != file:
            raise ValueError(f"{file}: expected pairs of files X*.npy and Y*.npy, and weight*.npy")
    files_by_key = {key: file for own in found.values() for key, file in own.items()}
    for kind, own in found.items():
        for key in sorted(files_by_key.keys() - own.keys()) if own or kind == "X" else ():
            raise ValueError(f"{files_by_key[key]}: there is no file {kind}{key}.npy beside it")
    labels, weights = found["Y"].get, found["weight"].get
    return [
        (file.name, partial(_numpy_blocks, (file, labels(key), weights(key))))
        for key, file in found["X"].items()
    ]


def _numpy_blocks(files: tuple[Path, Path | None, Path | None], rows: int) -> Iterator[Arrays]:
    streams = [iter(()) if file is None else _checked_blocks(file, rows) for file in files]
    for X, Y, weight in zip_longest(*streams):
        n = 0 if X is None else X.shape[0]
        for file, own in zip(files[1:], (Y, weight), strict=True):
            if file is not None and (0 if own is None else own.shape[0]) != n:
                raise ValueError(f"{file} does not have as many rows as {files[0]}")
        yield X, Y, weight


def _checked_blocks(path: Path, rows: int) -> Iterator[Any]:
    """Read an array a few rows at a time; errors name its file."""
    try:
        yield from _array_blocks(path, rows)
    except (BadZipFile, EOFError, KeyError, ValueError, zlib.error) as error:
        raise ValueError(f"{path}: expected an array of numbers: {error}") from error


def _array_blocks(path: Path, rows: int) -> Iterator[Any]:
    """Read an array a few rows at a time, without mapping it: a map counts as memory in use."""
    with path.open("rb") as file:
        if path.suffix.lower() == ".npz":
            matrix = sp.csr_array(sp.load_npz(file))
            yield from (matrix[at : at + rows] for at in range(0, matrix.shape[0], rows))
            return
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
                raise ValueError(f"the file ends in row {at + block.size // max(width, 1)}")
            yield block.reshape(count, *shape[1:])


def _tables(
    files: list[Path],
    labels: Sequence[str] | None = None,
    label_prefix: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    gap_labels: Sequence[str] = (),
    blank_labels: bool = False,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    encoder: TableEncoder | None = None,
    sep: str | None = None,
    encoding: str | None = None,
) -> tuple[list[Part], dict[str, Any]]:
    """Read CSV, JSON Lines, Parquet or Excel files."""
    source = FileFormat(None, sep, encoding)
    where = labels, label_prefix, label_column, delimiter
    place = LabelColumns(*where, blanks=blank_labels, gap_labels=gap_labels)
    header = source.names(files[0])
    chosen = place.find(header, files[0]) if place.is_given else []
    if encoder is not None:
        features = [str(name) for name in encoder.feature_names_in_]
    elif features is None:
        features = [name for name in header if name not in chosen and name not in drop]
    described = {"feature_names": np.array(features, dtype=object)}
    if label_column is None and chosen:
        described["label_names"] = np.array(chosen, dtype=object)

    def read(path: Path, rows: int) -> Iterator[Arrays]:
        for table in source.blocks(path, rows):
            Y: Any = None
            if place.column is not None:
                Y = place.sets(table)
            elif place.is_given:
                own = place.read(table)
                order = column_order(own.names, chosen, f"labels in {path}", files[0].name)
                Y = own.Y if order is None else own.Y[:, order]
            yield _features(table, features, encoder), Y, None

    return [(file.name, partial(read, file)) for file in files], described


def _features(table: Table, names: Sequence[str], encoder: TableEncoder | None) -> Any:
    """Return the features of a block; single precision stays."""
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise DatasetError(f"{table.path}: there is no column {absent[0]!r}")
    cells = [table.columns[name] for name in names]
    if encoder is not None:
        refuse_problems(table, encoder, cells)
        pairs = zip(names, encoder.parts_, strict=True)
        return encoder.encode([parse_cells(table, name, part)[0] for name, part in pairs])
    if all(str(getattr(column, "type", "")) == "float" for column in cells):
        return np.column_stack(cells)
    return table.numbers(list(names), "nan")


def _svmlight(
    files: list[Path],
    n_features: int | None = None,
    zero_based: bool = False,
    label_names: Sequence[str] | None = None,
) -> tuple[list[Part], dict[str, Any]]:
    """Read text with ``label,label index:value ...`` in each line."""
    if n_features is None or label_names is None:
        width, labels = 0, set[str]()
        for file in files:  # once, for the number of features and the names of labels
            for X, sets, _ in _svmlight_blocks(file, _EXTENT_ROWS, None, zero_based):
                width, labels = max(width, X.shape[1]), labels.union(*sets)
        n_features = width if n_features is None else n_features
        label_names = sorted(labels, key=int) if label_names is None else label_names
    read = partial(_svmlight_blocks, n_features=n_features, zero_based=zero_based)
    return [(file.name, partial(read, file)) for file in files], {"classes": tuple(label_names)}


def _svmlight_blocks(
    path: Path, rows: int, n_features: int | None, zero_based: bool
) -> Iterator[Arrays]:
    with path.open("rb") as file:
        texts = ((number, line.partition(b"#")[0].rstrip()) for number, line in enumerate(file, 1))
        lines = (pair for pair in texts if pair[1])
        while some := list(islice(lines, rows)):
            try:
                X, sets = load_svmlight_file(
                    io.BytesIO(b"\n".join(row for _, row in some)),
                    multilabel=True,
                    n_features=n_features,
                    zero_based=zero_based,
                )
            except ValueError as error:
                raise ValueError(f"{path}, line {some[0][0]} and after: {error}") from error
            for (number, row), labels in zip(some, sets, strict=True):
                if any(label % 1 != 0 for label in labels):
                    raise fail(path, number, "integer labels", row.split()[0].decode())
            yield sp.csr_array(X), [[str(int(label)) for label in own] for own in sets], None


class BlockResults:
    """Answers of a fitted estimator for :class:`RowBlocks`: made block by block, when iterated.

    Parameters
    ----------
    work : callable
        From rows of X to the answer.
    blocks : RowBlocks
        With or without labels.
    """

    def __init__(self, work: Callable[[Any], Any], blocks: RowBlocks) -> None:
        self.work, self.blocks = work, blocks

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks.blocks():
            X = block.X if is_table(block.X) else check_features(block, None)
            yield self.work(X)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write each block to a file of its own, and return the paths.

        Arrays become ``part-000000.npy``, sparse matrices ``.npz``, frames ``.parquet`` and label
        sets ``.jsonl``. The folder is made, or has no such file; each is written whole or not.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        make_folder(folder)
        if old := sorted(Path(folder).glob("part-*")):
            raise ValueError(f"{old[0]}: is there already: remove it, or give another folder")
        paths: list[Path] = []
        write: Callable[[Path], Any]
        for at, values in enumerate(self):
            if hasattr(values, "to_parquet"):
                suffix, write = "parquet", values.to_parquet
            elif sp.issparse(values):
                suffix, write = "npz", partial(sp.save_npz, matrix=values)
            elif isinstance(values, np.ndarray):
                suffix, write = "npy", partial(np.save, arr=values, allow_pickle=False)
            elif isinstance(values, list):
                text = "".join(json.dumps(sorted(row)) + "\n" for row in values)
                suffix, write = "jsonl", partial(Path.write_text, data=text, encoding="utf-8")
            else:
                raise TypeError(f"there is no format for blocks of {type(values).__name__}")
            paths.append(Path(folder, f"part-{at:06d}.{suffix}"))
            with write_atomically(paths[-1]) as part:
                write(part)
        return paths

    def to_parquet(self, path: str | PathLike[str]) -> Path:
        """Write all blocks to one Parquet file, whole or not at all, and return its path.

        The folder is made. Columns of arrays are called by their numbers, lists of names are the
        column ``labels``.
        """
        arrow = optional_import("pyarrow", "data", "writing Parquet files")
        parquet = optional_import("pyarrow.parquet", "data", "writing Parquet files")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as part:
            writer = None
            for values in self:
                if hasattr(values, "iloc"):
                    table = arrow.Table.from_pandas(values, preserve_index=False)
                elif isinstance(values, list):
                    table = arrow.table({"labels": arrow.array([sorted(row) for row in values])})
                else:
                    dense = values.toarray() if sp.issparse(values) else values
                    columns = enumerate(np.atleast_2d(dense.T))
                    table = arrow.table({str(j): column for j, column in columns})
                if writer is None:
                    writer = parquet.ParquetWriter(part, table.schema)
                writer.write_table(table.cast(writer.schema))
            if writer is not None:
                writer.close()
        return Path(path)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the answers for all rows as one array."""
        blocks = [v.toarray() if sp.issparse(v) else np.asarray(v) for v in self]
        return np.concatenate(blocks).astype(dtype) if dtype else np.concatenate(blocks)
