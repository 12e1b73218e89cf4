"""CSV text as columns: Arrow reads well-formed text, the csv module finds the line of an error."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from fbeta._array import optional_import
from fbeta.datasets.files import PathLike, decode_text, fail

SEPARATORS = (",", ";", "\t", "|")
# the first line of files for Excel
_SEPARATOR_HINT = re.compile(r"sep=(.)\s*")
_SEPARATOR_SAMPLE_LINES = 200
# Arrow reads blocks of this size in parallel; one that is too small for a record is enlarged
_ARROW_BLOCK_BYTES = 2**20
_MAX_ARROW_BLOCK_BYTES = 2**31 - 1


def guess_separator(lines: Iterable[str]) -> str:
    """Return the separator with which most lines have the same number of cells."""
    sample = list(islice(lines, _SEPARATOR_SAMPLE_LINES))
    hint = _SEPARATOR_HINT.fullmatch(sample[0]) if sample else None
    if hint:
        return hint[1]
    sample = [line.rstrip("\r\n") + "\n" for line in sample if line.strip()]

    def agreement(sep: str) -> tuple[float, int]:
        try:
            with any_field_size():
                widths = Counter(len(row) for row in csv.reader(sample, delimiter=sep))
        except csv.Error:
            return 0.0, 0
        if not widths:
            return 0.0, 0
        width, count = widths.most_common(1)[0]
        return (count / widths.total(), width) if width > 1 else (0.0, 0)

    return max(SEPARATORS, key=agreement)


@contextmanager
def any_field_size() -> Iterator[None]:
    """Let the csv module read cells of any length."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def records(lines: Iterator[str], sep: str) -> Iterator[tuple[int, str]]:
    """Yield each record with its number of lines; lines keep their ends."""
    for line in lines:
        taken = [line]
        if line.count('"') % 2:  # it may go on in the next line

            def feed(taken: list[str] = taken) -> Iterator[str]:
                yield taken[0]
                for more in lines:
                    taken.append(more)
                    yield more

            with any_field_size():
                next(csv.reader(feed(), delimiter=sep), None)
        yield len(taken), "".join(taken)


def split_header(path: PathLike, text: str, sep: str, least: int) -> tuple[list[str], int, int]:
    """Return the names in the first record, and the bytes and lines that it ends after."""
    start, line = 0, 1
    header: list[str] = []
    for count, record in records(io.StringIO(text, newline=""), sep):
        data = record.encode("utf-8", "surrogateescape")
        start, line = start + len(data), line + count
        hint = line == 2 and _SEPARATOR_HINT.fullmatch(record)
        if hint or not record.strip():
            continue
        record = decode_text(path, data, "utf-8", line - count)
        header = [name.strip() for name in _parse_record(path, record, sep, line - count)]
        if len(header) >= least:
            return header, start, line
        break
    expected = "two or more names" if least > 1 else "names"
    raise fail(path, 1, f"a header of {expected} separated by {sep!r}", header)


def _parse_record(path: PathLike, record: str, sep: str, line: int) -> list[str]:
    try:
        with any_field_size():
            rows = csv.reader(io.StringIO(record, newline=""), delimiter=sep, strict=True)
            return next(rows, [])
    except csv.Error as error:
        raise fail(path, line, f"cells separated by {sep!r}", str(error)) from error


class CsvRows:
    """The rows of CSV text below its header.

    Parameters
    ----------
    path : path
        For messages.
    data : bytes
        Records in UTF-8, with or without blank lines between them.
    sep : str
    width : int
        Number of cells of each row.
    first_line : int
        Where the text begins in its file, counted from 1.
    """

    def __init__(self, path: PathLike, data: bytes, sep: str, width: int, first_line: int) -> None:
        self.path, self.data, self.sep, self.width = path, data, sep, width
        self.first_line = first_line

    def columns(self) -> list[Any]:
        """Return the cells of each column, as Arrow arrays of strings."""
        arrow = optional_import("pyarrow", "data", "reading CSV files")
        if _is_strict(self.data, self.sep):
            found = self._by_arrow(arrow, self.data)
            if found is not None:
                return found
        rows = [row for _, row in self._parsed()]
        if not rows:
            return [arrow.array([], arrow.string()) for _ in range(self.width)]
        return [arrow.array(column, arrow.string()) for column in zip(*rows, strict=True)]

    def _by_arrow(self, arrow: Any, data: bytes) -> list[Any] | None:
        """Return the columns, or None where Arrow refuses the text."""
        csv_module = optional_import("pyarrow.csv", "data", "reading CSV files")
        names = [str(j) for j in range(self.width)]
        for size in (_ARROW_BLOCK_BYTES, min(len(data) + 1, _MAX_ARROW_BLOCK_BYTES)):
            try:
                table = csv_module.read_csv(
                    arrow.BufferReader(data),
                    csv_module.ReadOptions(column_names=names, block_size=size),
                    csv_module.ParseOptions(delimiter=self.sep, newlines_in_values=b'"' in data),
                    csv_module.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
                )
            except (arrow.ArrowInvalid, ValueError):
                continue
            return [_one_chunk(arrow, column) for column in table.columns]
        return None

    def _parsed(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the cells of each row; raise at the first that is broken."""
        text = decode_text(self.path, self.data, "utf-8", self.first_line)
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=self.sep, strict=True)
        start = self.first_line
        with any_field_size():
            try:
                for row in reader:
                    # a blank line; where there is one column, it may be an empty cell in quotes
                    blank = len(row) < 2 and not "".join(row).strip() and self.width > 1
                    if row and not blank:
                        if len(row) != self.width:
                            raise fail(self.path, start, f"{self.width} cells", row)
                        yield start, row
                    start = self.first_line + reader.line_num
            except csv.Error as error:
                expected = f"cells separated by {self.sep!r}"
                raise fail(self.path, start, expected, str(error)) from error

    def line(self, row: int) -> int:
        """Return the line of a row, counted from 1 in the file."""
        return next(islice(self._parsed(), row, None))[0]


def _one_chunk(arrow: Any, column: Any) -> Any:
    whole = column.combine_chunks()
    return arrow.concat_arrays(whole.chunks) if isinstance(whole, arrow.ChunkedArray) else whole


def _is_strict(data: bytes, sep: str) -> bool:
    """Return whether each quote in the text begins or ends a cell, or is one of two in one."""
    if len(sep.encode()) != 1:
        return False
    if b'"' not in data:
        return True
    ends = np.frombuffer(f'{sep}\r\n"'.encode(), dtype=np.uint8)
    text = np.frombuffer(b"\n" + data + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    # quotes open and close in turn; two in a cell close it and open it again
    before, after = text[quotes[::2] - 1], text[quotes[1::2] + 1]
    return quotes.size % 2 == 0 and bool(np.isin(before, ends).all() and np.isin(after, ends).all())
