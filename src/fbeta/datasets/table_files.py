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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fbeta._array import optional_import
from fbeta.datasets.cells import Cells, arrow, arrow_cells, cell_at, columns_of, object_cells
from fbeta.datasets.cells import missing as missing_cells
from fbeta.datasets.column_kinds import numbers
from fbeta.datasets.csv_text import csv_columns, guess_separator, read_header, records
from fbeta.datasets.dataset import (
    DatasetError,
    PathLike,
    decode_text,
    fail,
    guess_encoding,
    gzip_errors,
    quoted,
    read_bytes,
)

Format = Literal["arff", "csv", "jsonl", "parquet", "svmlight", "tsv", "xlsx"]
#: Formats that have named columns of any kind.
TABLE_FORMATS = ("csv", "jsonl", "parquet", "tsv", "xlsx")
#: Formats of tables by the ends of file names.
TABLE_SUFFIXES: dict[str, Any] = {f".{name}": name for name in TABLE_FORMATS}
TABLE_SUFFIXES |= {".ndjson": "jsonl", ".pq": "parquet"}
_SUFFIXES: dict[str, Any] = {".arff": "arff", **TABLE_SUFFIXES}
_SUFFIXES |= dict.fromkeys((".svm", ".svmlight", ".libsvm", ".txt"), "svmlight")
# formats that options of files apply to; the other options are of tables
_FORMATS_OF = {
    "--sep": ("csv", "tsv"),
    "--encoding": ("csv", "jsonl", "tsv"),
    "--missing": ("arff", *TABLE_FORMATS),
    **dict.fromkeys(("--labels", "--n-labels", "--nominal"), ("arff",)),
}
#: What the names of columns begin with that have none in their file.
UNNAMED = "Unnamed: "
_TAB_WORDS = ("tab", "\\t")
# What a Parquet or Excel file may unpack to: 1 GiB, and 64 bytes for each of its own
_MAX_UNPACKED_BYTES, _MAX_UNPACKING = 2**30, 64
# what files that are not text begin with
_SIGNATURES = {
    b"PK\x03\x04": "an Excel file (or another zip archive): rename it to .xlsx",
    b"PAR1\x15": "a Parquet file: rename it to .parquet",
    b"\x1f\x8b": "a gzip file: add .gz to its name",
}
_ENCODING_SAMPLE_BYTES = 2**20  # of a file in blocks, from which its encoding is inferred


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of a file or a data frame."""

    path: PathLike  # for messages
    columns: Mapping[str, Cells]  # as :mod:`fbeta.datasets.cells` has them
    place: Callable[[int], int | str]  # from the number of a row to its line, or words

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

    def frame(self, names: Sequence[str]) -> Any:
        """Return columns as a pandas DataFrame, text as Arrow strings without a copy."""
        pandas = optional_import("pandas", "data", "reading tables")
        if not names:
            return pandas.DataFrame(index=range(self.n_rows))
        found = arrow.table({name: self.columns[name] for name in names})
        return found.to_pandas(
            types_mapper=lambda t: pandas.ArrowDtype(t) if "string" in str(t) else None,
            split_blocks=True,
        )

    def numbers(self, names: Sequence[str], missing: str) -> Any:
        """Return columns of plain numbers, (n, len(names)); missing is "error", "nan" or "mean"."""
        found = np.empty((self.n_rows, len(names)))
        for j, name in enumerate(names):
            cells = self.columns[name]
            found[:, j] = values = numbers(cells)
            gaps = missing_cells(cells) if np.isnan(values).any() else np.zeros(0, dtype=bool)
            bad = np.flatnonzero(np.isnan(values) & ~gaps) if gaps.size else gaps
            if bad.size:
                row, kind = int(bad[0]), "a number"
                cell = cell_at(cells, row)
                # Python reads other digits than ASCII, and underscores, as parts of numbers
                if not isinstance(cell, str) or (cell.isascii() and "_" not in cell):
                    with suppress(TypeError, ValueError, OverflowError):
                        kind, cell = "a finite number", float(cell)
                raise fail(self.path, self.place(row), f"{kind} in column {name!r}", cell)
            if missing == "error" and gaps.any():
                expected = f"a value in column {name!r} (the option 'missing' fills gaps)"
                raise fail(self.path, self.place(int(np.argmax(gaps))), expected, "a missing value")
            if missing == "mean" and gaps.any():
                if gaps.all():
                    expected = f"at least one value in column {name!r} to take the mean of"
                    raise fail(self.path, None, expected)
                found[gaps, j] = values[~gaps].mean()
        return found


def frame_table(frame: Any) -> Table:
    """Return the columns of a data frame of pandas, Polars or Arrow, or of an array."""
    return _named("the table", *columns_of(frame), lambda row: f"row {row + 1}")


def _named(path: PathLike, header: Sequence[str], columns: Sequence[Cells], place: Any) -> Table:
    """Make a table; columns without a name are numbered."""
    names = [name if name.strip() else f"{UNNAMED}{j}" for j, name in enumerate(header)]
    double = sorted(name for name, count in Counter(names).items() if count > 1)
    if double:
        raise DatasetError(f"{path}: has several columns of the name {quoted(double)}")
    return Table(path, dict(zip(names, columns, strict=True)), place)


@dataclass(frozen=True)
class FileFormat:
    """How a file is written, where its name and its content do not say so."""

    format: Format | None = None  # by default that of the suffix
    sep: str | None = None  # between the cells of CSV
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep in _TAB_WORDS:
            object.__setattr__(self, "sep", "\t")
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise DatasetError(f"--sep {self.sep!r}: expected one character, or tab")

    def of(self, path: PathLike) -> Format:
        """Return the format of a file; the standard input is CSV."""
        if self.format is not None or os.fspath(path) == "-":
            return self.format or "csv"
        bare = Path(path)
        bare = bare.with_suffix("") if bare.suffix.lower() == ".gz" else bare
        found: Format | None = _SUFFIXES.get(bare.suffix.lower())
        if found is None:
            raise DatasetError(
                f"{path}: expected a file name that ends with one of {', '.join(_SUFFIXES)}, "
                "with or without .gz, or --format"
            )
        return found

    def check(self, path: PathLike) -> Format:
        """Return the format of a file; refuse options that say nothing of it."""
        kind = self.of(path)
        refuse(path, kind, {"--sep": self.sep, "--encoding": self.encoding})
        return kind

    def read(self, path: PathLike, least: int = 1) -> Table:
        """Read all columns of a table; a CSV file has at least ``least`` of them."""
        table = next(self._tables(path, None, least), None)
        if table is None or not table.n_rows:
            raise fail(path, None, "at least one row")
        return table

    def blocks(self, path: PathLike, rows: int) -> Iterator[Table]:
        """Yield tables of at most ``rows`` rows."""
        return (table for table in self._tables(path, rows) if table.n_rows)

    def names(self, path: PathLike) -> list[str]:
        """Return the names of the columns of a table."""
        if self.of(path) == "parquet":
            return _without_index(_parquet().ParquetFile(path).schema_arrow.names)
        return next((table.header for table in self.blocks(path, 100)), [])

    def _tables(self, path: PathLike, rows: int | None, least: int = 1) -> Iterator[Table]:
        """Yield tables of at most ``rows`` rows, one of all rows if it is None."""
        kind = self.check(path)
        if kind == "parquet":
            return _read_parquet(path, rows)
        if kind == "xlsx":
            return _slices(_read_excel(path), rows)
        if kind == "jsonl":
            return self._read_json(path, rows)
        return self._read_csv(path, kind, rows, least)

    def _read_csv(self, path: PathLike, kind: str, rows: int | None, least: int) -> Iterator[Table]:
        with self.open_text(path, rows is None) as lines:
            sep = self.sep or ("\t" if kind == "tsv" else guess_separator(lines))
            lines.seek(0)
            found = records(lines, sep)
            header, line, size = read_header(path, found, sep, least)

            def take() -> tuple[int, bytes]:
                some = list(islice(found, rows))
                text = "".join(record for _, record in some)
                return sum(count for count, _ in some), text.encode("utf-8", "surrogateescape")

            parts: Any = iter(take, (0, b""))
            if not rows:  # the whole of a file is UTF-8 here, and need not be decoded
                data = memoryview(lines.buffer.getvalue())
                parts = [(0, data[size + 3 * (bytes(data[:3]) == codecs.BOM_UTF8) :])]
            for count, part in parts:
                columns, place = csv_columns(path, part, sep, len(header), line)
                if not rows and not len(columns[0]):
                    last = line + bytes(part).count(b"\n")
                    raise fail(path, last, "at least one row after the header")
                yield _named(path, header, columns, place)
                line += count

    def _read_json(self, path: PathLike, rows: int | None) -> Iterator[Table]:
        with self.open_text(path, rows is None) as lines:
            numbered = enumerate(lines, start=1)
            while some := list(islice(numbered, rows)):
                if rows is None or any(line.strip() for _, line in some):
                    yield _json_table(path, some)

    @contextmanager
    def open_text(self, path: PathLike, whole: bool) -> Iterator[Any]:
        """Open text whose encoding may be inferred from the whole; odd bytes of UTF-8 are kept."""
        opened: Any = gzip.open if Path(path).suffix.lower() == ".gz" else open
        with (
            gzip_errors(path),
            io.BytesIO(read_bytes(path)) if whole else opened(path, "rb") as raw,
        ):
            sample = raw.read(-1 if whole else _ENCODING_SAMPLE_BYTES)
            raw.seek(0)
            if found := [name for begin, name in _SIGNATURES.items() if sample.startswith(begin)]:
                raise DatasetError(f"{path}: the content is that of {found[0]}")
            encoding = guess_encoding(sample, whole) if self.encoding is None else self.encoding
            try:
                is_utf8 = codecs.lookup(encoding).name in ("utf-8", "ascii")
            except LookupError as error:
                raise fail(path, None, "the name of an encoding", encoding) from error
            if whole and not is_utf8:
                raw, is_utf8 = io.BytesIO(decode_text(path, sample, encoding).encode()), True
            encoding, errors = ("utf-8-sig", "surrogateescape") if is_utf8 else (encoding, "strict")
            yield io.TextIOWrapper(raw, encoding, errors=errors, newline="")


def refuse(path: PathLike, kind: str, given: Mapping[str, Any]) -> None:
    """Raise where options are given that do not apply to files of a kind."""
    names = [name for name, value in given.items() if value not in (None, (), False)]
    useless = [name for name in names if kind not in _FORMATS_OF.get(name, TABLE_FORMATS)]
    if useless:
        # the name that most people try first
        remedy = ": --label-column, --label-columns or --label-prefix says where the labels are"
        table = "--labels" in useless and kind in TABLE_FORMATS
        message = f"{path}: {', '.join(useless)} does not apply to {kind} files"
        raise DatasetError(message + remedy if table else message)


def _slices(table: Table, rows: int | None) -> Iterator[Table]:
    size = rows or max(table.n_rows, 1)
    for start in range(0, table.n_rows, size):
        part = {name: cells[start : start + size] for name, cells in table.columns.items()}
        place: Any = lambda row, at=start: table.place(at + row)  # noqa: E731
        yield Table(table.path, part, place)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; one that has a key twice is an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise KeyError(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return found


parse_json = json.JSONDecoder(object_pairs_hook=_unique_keys).decode


def _json_table(path: PathLike, lines: Any) -> Table:
    """Read an object on each line; a field that an object lacks is a missing value."""
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    for number, line in lines:
        if not line.strip():
            continue
        expected = "a JSON object"
        try:
            line.encode()  # may have bytes that are no UTF-8
            row = parse_json(line.removeprefix("\ufeff"))
        except KeyError as error:
            raise fail(path, number, f"the key {error} once", line.rstrip("\r\n")) from error
        except (ValueError, RecursionError) as error:
            row = None
            expected = "utf-8 text" if isinstance(error, UnicodeEncodeError) else expected
        if not isinstance(row, dict):
            raise fail(path, number, expected, line.rstrip("\r\n"))
        rows.append(row)
        places.append(number)
    header = list(dict.fromkeys(key for row in rows for key in row))
    if not header:
        raise fail(path, None, "at least one object with a field")
    columns = [object_cells([row.get(key) for row in rows]) for key in header]
    return _named(path, header, columns, places.__getitem__)


def _parquet() -> Any:
    for name in ("pandas", "pyarrow"):
        optional_import(name, "data", "reading Parquet files")
    return optional_import("pyarrow.parquet", "data", "reading Parquet files")


def _without_index(names: Sequence[str]) -> list[str]:
    """Leave out the columns that are an index of pandas."""
    return [name for name in names if not name.startswith("__index_level_")]


def _read_parquet(path: PathLike, rows: int | None) -> Iterator[Table]:
    parquet = _parquet()
    source = path if rows else io.BytesIO(read_bytes(path))
    start = 0
    try:
        with parquet.ParquetFile(source) as file:
            if isinstance(source, io.BytesIO):
                # columns that claim to be too large for the file
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                cells = file.metadata.num_rows * file.metadata.num_columns
                found = max(sum(group.total_byte_size for group in groups), 8 * cells)
                if found > _MAX_UNPACKED_BYTES + _MAX_UNPACKING * len(source.getbuffer()):
                    message = f"{found:,} bytes after unpacking, too many for a file of its size"
                    raise ValueError(message)
            for part in file.iter_batches(batch_size=rows) if rows else [file.read()]:
                part.validate(full=True)
                names = _without_index(part.column_names)
                cells = [arrow_cells(part.column(name)) for name in names]
                yield _named(path, names, cells, lambda row, at=start: f"row {at + row + 1}")
                start += len(part)
    except (DatasetError, FileNotFoundError):
        raise
    # A damaged file surfaces as ValueError, OSError or others, depending on the damage.
    except Exception as error:
        raise fail(path, None, "a Parquet file", str(error)) from error


def _read_excel(path: PathLike) -> Table:
    openpyxl = optional_import("openpyxl", "data", "reading Excel files")
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > _MAX_UNPACKED_BYTES:
            raise ValueError(f"{size:,} bytes after unpacking, too many")
        book = openpyxl.load_workbook(
            io.BytesIO(data), read_only=True, data_only=True, keep_links=False
        )
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # a file may state others than it has
        # pandas would make gaps of errors such as #REF!, which are text here
        rows = [[_excel_cell(value) for value in row] for row in sheet.values]
    except Exception as error:
        raise fail(path, None, "an Excel file", str(error)) from error
    while rows and not any(cell != "" for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise fail(path, None, "a row of names in the first sheet")
    columns = [list(cells) for cells in zip_longest(*rows, fillvalue="")]
    while not any(cell != "" for cell in columns[-1]):
        columns.pop()
    header = [str(cells[0]).strip() for cells in columns]
    cells = [object_cells(column[1:]) for column in columns]
    return _named(path, header, cells, lambda row: f"row {row + 2}")


def _excel_cell(value: Any) -> Any:
    """Return a value of a sheet, an empty one as text, and a whole number as an integer."""
    if value is None:
        return ""
    return int(value) if isinstance(value, float) and value.is_integer() else value
