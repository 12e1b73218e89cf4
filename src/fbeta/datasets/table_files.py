"""The one reader of tables: CSV, JSON Lines, Parquet and Excel files, whole or in blocks."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fbeta._array import optional_import
from fbeta.datasets.cells import (
    Cells,
    arrow_cells,
    columns_of,
    is_arrow,
    numbers,
    object_cells,
)
from fbeta.datasets.cells import missing as missing_cells
from fbeta.datasets.csv_text import CsvRows, guess_separator, records, split_header
from fbeta.datasets.files import (
    DatasetError,
    PathLike,
    decode_text,
    fail,
    guess_encoding,
    is_plain,
    quoted,
    read_bytes,
    read_lines,
)

__all__ = ["TABLE_FORMATS", "FileFormat", "Table", "frame_table"]

Format = Literal["arff", "csv", "jsonl", "parquet", "svmlight", "tsv", "xlsx"]
#: Formats that have named columns of any kind.
TABLE_FORMATS = ("csv", "jsonl", "parquet", "tsv", "xlsx")
_SUFFIXES: dict[str, Format] = {
    ".arff": "arff",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
    ".xlsx": "xlsx",
}
#: What the names of columns begin with that have none in their file.
UNNAMED = "Unnamed: "
_TAB_WORDS = ("tab", "\\t")
# What a Parquet or Excel file may unpack to: 1 GiB, and 64 bytes for each of its own
_MAX_UNPACKED_BYTES, _MAX_UNPACKING = 2**30, 64
_SAMPLE_BYTES = 2**20  # of a file in blocks, from which separator and encoding are inferred


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of a file or a data frame.

    Attributes
    ----------
    path : path
        For messages.
    columns : mapping from str to cells
        As :mod:`fbeta.datasets.cells` has them.
    place : callable
        From the number of a row, counted from 0, to its line in the file or other words.
    """

    path: PathLike
    columns: Mapping[str, Cells]
    place: Callable[[int], int | str]

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def where(self, row: int) -> str:
        """Return words for the place of a row."""
        place = self.place(row)
        return f"line {place}" if isinstance(place, int) else place

    def numbers(self, names: Sequence[str], missing: str) -> Any:
        """Return columns of plain numbers, of shape (n, len(names)).

        Missing ones are refused, NaN or the mean of their column: ``"error"``, ``"nan"`` or
        ``"mean"``.
        """
        found = [self._numbers(name, missing) for name in names]
        return np.column_stack(found) if found else np.zeros((self.n_rows, 0))

    def _numbers(self, name: str, missing: str) -> Any:
        cells = self.columns[name]
        values, gaps = numbers(cells, plain=True), missing_cells(cells)
        bad = np.flatnonzero(np.isnan(values) & ~gaps)
        if bad.size:
            row = int(bad[0])
            cell = cells[row].as_py() if is_arrow(cells) else cells[row]
            kind = "a number"
            if not isinstance(cell, str) or is_plain(cell):
                with suppress(TypeError, ValueError, OverflowError):
                    kind, cell = "a finite number", float(cell)
            raise fail(self.path, self.place(row), f"{kind} in column {name!r}", cell)
        if missing == "nan" or not gaps.any():
            return values
        if missing == "error":
            expected = f"a value in column {name!r} (the option 'missing' fills gaps)"
            raise fail(self.path, self.place(int(np.argmax(gaps))), expected, "a missing value")
        if gaps.all():
            expected = f"at least one value in column {name!r} to take the mean of"
            raise fail(self.path, None, expected)
        return np.where(gaps, values[~gaps].mean(), values)


def frame_table(frame: Any) -> Table:
    """Return the columns of a data frame of pandas, Polars or Arrow, or of an array."""
    names, columns = columns_of(frame)
    return _named("the table", names, columns, lambda row: f"row {row + 1}")


def _row_words(row: int) -> str:
    return f"row {row + 1}"


def _named(path: PathLike, header: Sequence[str], columns: Sequence[Cells], place: Any) -> Table:
    """Make a table; columns without a name are numbered."""
    names = [name if name.strip() else f"{UNNAMED}{j}" for j, name in enumerate(header)]
    double = sorted(name for name, count in Counter(names).items() if count > 1)
    if double:
        raise DatasetError(f"{path}: has several columns of the name {quoted(double)}")
    return Table(path, dict(zip(names, columns, strict=True)), place)


@dataclass(frozen=True)
class FileFormat:
    """How a file is written, where its name and its content do not say so.

    Attributes
    ----------
    format : str, optional
        By default from the suffix; the standard input is CSV.
    sep : str, optional
        Between the cells of CSV; inferred by default.
    encoding : str, optional
        Of text; inferred by default.
    """

    format: Format | None = None
    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep in _TAB_WORDS:
            object.__setattr__(self, "sep", "\t")
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise DatasetError(f"--sep {self.sep!r}: expected one character, or tab")

    def of(self, path: PathLike) -> Format:
        """Return the format of a file."""
        if self.format is not None:
            return self.format
        if os.fspath(path) == "-":
            return "csv"
        bare = Path(path)
        bare = bare.with_suffix("") if bare.suffix.lower() == ".gz" else bare
        found = _SUFFIXES.get(bare.suffix.lower())
        if found is None:
            raise DatasetError(
                f"{path}: expected a file name that ends with one of {', '.join(_SUFFIXES)}, "
                "with or without .gz, or --format"
            )
        return found

    def check(self, path: PathLike) -> None:
        """Refuse options that say nothing of a file."""
        kind = self.of(path)
        given: dict[str, Any] = {} if kind in ("csv", "tsv") else {"--sep": self.sep}
        if kind not in ("csv", "tsv", "jsonl"):
            given["--encoding"] = self.encoding
        refuse(path, kind, given)

    def read(self, path: PathLike, least: int = 1) -> Table:
        """Read all columns of a table; a CSV file has at least ``least`` of them."""
        kind = self.of(path)
        self.check(path)
        if kind == "parquet":
            table = _read_parquet(path)
        elif kind == "xlsx":
            table = _read_excel(path)
        elif kind == "jsonl":
            table = _json_table(path, enumerate(read_lines(path, self.encoding), start=1))
        else:
            table = self._read_csv(path, kind, least)
        if not table.n_rows:
            raise fail(path, None, "at least one row")
        return table

    def _read_csv(self, path: PathLike, kind: str, least: int) -> Table:
        data = read_bytes(path)
        encoding = guess_encoding(data) if self.encoding is None else self.encoding
        if encoding.lower() not in ("utf-8", "utf8"):
            data = decode_text(path, data, encoding).encode()
        data = data.removeprefix(codecs.BOM_UTF8)
        # more than the header only if that is long: a copy of all text takes its time
        for size in (_SAMPLE_BYTES // 16, len(data)):
            head = data[:size].decode("utf-8", "surrogateescape")
            sep = self._separator(kind, io.StringIO(head, newline=""))
            header, start, line = split_header(path, head, sep, least)
            if start < size:
                break
        rows = CsvRows(path, data[start:], sep, len(header), line)
        table = _named(path, header, rows.columns(), rows.line)
        if not table.n_rows:
            last = data.count(b"\n") + 1
            raise fail(path, last, "at least one row after the header")
        return table

    def _separator(self, kind: str, lines: Iterator[str]) -> str:
        if self.sep is not None:
            return self.sep
        return "\t" if kind == "tsv" else guess_separator(lines)

    def blocks(self, path: PathLike, rows: int, columns: Sequence[str] | None = None) -> Any:
        """Yield tables of at most ``rows`` rows, of some columns where they are given."""
        kind = self.of(path)
        self.check(path)
        if kind == "parquet":
            yield from _parquet_blocks(path, rows, columns)
        elif kind == "xlsx":
            yield from _slices(_read_excel(path), rows)
        elif kind == "jsonl":
            with _open_text(path, self.encoding) as lines:
                numbered = enumerate(lines, start=1)
                while some := list(islice(numbered, rows)):
                    if any(line.strip() for _, line in some):
                        yield _json_table(path, some)
        else:
            yield from self._csv_blocks(path, kind, rows)

    def _csv_blocks(self, path: PathLike, kind: str, rows: int) -> Iterator[Table]:
        with _open_text(path, self.encoding) as lines:
            sample = list(islice(lines, 200))
            sep = self._separator(kind, iter(sample))
            found = records(chain(sample, lines), sep)
            text, line = "", 1
            for count, record in found:
                text, line = text + record, line + count
                if record.strip() and not record.startswith("sep="):
                    break
            header, _, _ = split_header(path, text, sep, 1)
            while some := list(islice(found, rows)):
                data = "".join(record for _, record in some).encode("utf-8", "surrogateescape")
                parsed = CsvRows(path, data, sep, len(header), line)
                table = _named(path, header, parsed.columns(), parsed.line)
                line += sum(count for count, _ in some)
                if table.n_rows:
                    yield table

    def names(self, path: PathLike) -> list[str]:
        """Return the names of the columns of a table."""
        if self.of(path) == "parquet":
            return list(_parquet().ParquetFile(path).schema_arrow.names)
        return next(self.blocks(path, 100), Table(path, {}, _row_words)).header


def _open_text(path: PathLike, encoding: str | None) -> Any:
    """Open a text file for reading in blocks; bytes that are no UTF-8 are told by their block."""
    opened = gzip.open if Path(path).suffix.lower() == ".gz" else open
    if encoding is None:
        with opened(path, "rb") as file:
            encoding = guess_encoding(file.read(_SAMPLE_BYTES), whole=False)
    try:
        utf8 = codecs.lookup(encoding).name in ("utf-8", "ascii")
    except LookupError as error:
        raise fail(path, None, "the name of an encoding", encoding) from error
    errors = "surrogateescape" if utf8 else "strict"
    encoding = "utf-8-sig" if utf8 else encoding
    return opened(path, "rt", encoding=encoding, errors=errors, newline="")


def _slices(table: Table, rows: int) -> Iterator[Table]:
    for start in range(0, table.n_rows, rows):
        part = {name: cells[start : start + rows] for name, cells in table.columns.items()}

        def place(row: int, start: int = start) -> int | str:
            return table.place(start + row)

        yield Table(table.path, part, place)


def refuse(path: PathLike, kind: str, given: Mapping[str, Any]) -> None:
    """Raise where options are given that do not apply to a file."""
    useless = [name for name, value in given.items() if value not in (None, (), False)]
    if useless:
        raise DatasetError(f"{path}: {', '.join(useless)} does not apply to {kind} files")


def _json_table(path: PathLike, lines: Any) -> Table:
    """Read an object on each line; a field that an object lacks is a missing value."""
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fail(path, number, "a JSON object", line) from error
        if not isinstance(row, dict):
            raise fail(path, number, "a JSON object", line)
        rows.append(row)
        places.append(number)
    header = list(dict.fromkeys(key for row in rows for key in row))
    if not header:
        raise fail(path, None, "at least one object with a field")
    columns = [_json_cells([row.get(key) for row in rows]) for key in header]
    return _named(path, header, columns, places.__getitem__)


def _json_cells(values: list[Any]) -> Cells:
    if any(isinstance(value, list) for value in values):
        arrow = optional_import("pyarrow", "data", "reading tables")
        try:
            return arrow_cells(arrow.array(values))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, UnicodeEncodeError, OverflowError):
            return values
    return object_cells(values)


def _parquet() -> Any:
    optional_import("pandas", "data", "reading Parquet files")
    optional_import("pyarrow", "data", "reading Parquet files")
    return optional_import("pyarrow.parquet", "data", "reading Parquet files")


def _read_parquet(path: PathLike) -> Table:
    parquet = _parquet()
    data = read_bytes(path)
    try:
        size = _unpacked(parquet.read_metadata(io.BytesIO(data)))
        if size > _MAX_UNPACKED_BYTES + _MAX_UNPACKING * len(data):
            raise ValueError(f"{size:,} bytes after unpacking, too many for a file of its size")
        table = parquet.read_table(io.BytesIO(data))
        table.validate(full=True)
        names, columns = _without_index(table)
        cells = [arrow_cells(column) for column in columns]
    # A damaged file surfaces as ValueError, OSError or others, depending on the damage;
    # the file has been read by now, so every one of them speaks of its content.
    except Exception as error:
        raise fail(path, None, "a Parquet file", str(error)) from error
    return _named(path, names, cells, _row_words)


def _without_index(table: Any) -> tuple[list[str], list[Any]]:
    """Return the columns of an Arrow table, but for an index of pandas."""
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    return names, [table.column(name) for name in names]


def _unpacked(metadata: Any) -> int:
    """Return how large the columns of a Parquet file claim to be."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    packed = sum(group.total_byte_size for group in groups)
    return int(max(packed, 8 * metadata.num_rows * metadata.num_columns))


def _parquet_blocks(path: PathLike, rows: int, columns: Sequence[str] | None) -> Iterator[Table]:
    start = 0
    with _parquet().ParquetFile(path) as file:
        wanted = None if columns is None else list(columns)
        for batch in file.iter_batches(batch_size=rows, columns=wanted):
            names, found = _without_index(batch)
            cells = [arrow_cells(column) for column in found]
            yield _named(path, names, cells, lambda row, at=start: f"row {at + row + 1}")
            start += len(batch)


def _read_excel(path: PathLike) -> Table:
    pandas = optional_import("pandas", "data", "reading Excel files")
    optional_import("openpyxl", "data", "reading Excel files")
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > _MAX_UNPACKED_BYTES:
            raise ValueError(f"{size:,} bytes after unpacking, too many")
        frame = pandas.read_excel(
            io.BytesIO(data), engine="openpyxl", header=None, dtype=object, keep_default_na=False
        )
        frame = frame.dropna(how="all") if frame.shape[1] else frame
    except Exception as error:
        raise fail(path, None, "an Excel file", str(error)) from error
    if not len(frame):
        raise fail(path, None, "a row of names in the first sheet")
    header = ["" if cell is None else str(cell).strip() for cell in frame.iloc[0].tolist()]
    columns = [object_cells(frame.iloc[1:, j].tolist()) for j in range(len(header))]
    places = frame.index[1:].tolist()
    return _named(path, header, columns, lambda row: f"row {places[row] + 1}")
