"""CSV text as columns: Arrow reads well-formed text, the csv module finds the line of an error."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from fbeta._array import optional_import
from fbeta.datasets.cells import arrow, arrow_cells
from fbeta.datasets.dataset import PathLike, decode_text, fail

_SEPARATORS = (",", ";", "\t", "|")
_SEPARATOR_HINT = re.compile(r"sep=(.)\s*")  # the first line of files for Excel
_SEPARATOR_SAMPLE_LINES = 200
# Arrow reads blocks of this size in parallel; one that is too small for a record is enlarged
_ARROW_BLOCK_BYTES, _MAX_ARROW_BLOCK_BYTES = 2**22, 2**31 - 1
_SCAN_BYTES = 2**18


def guess_separator(lines: Iterable[str]) -> str:
    """Return the separator with which most lines have the same number of cells."""
    sample = list(islice(lines, _SEPARATOR_SAMPLE_LINES))
    hint = _SEPARATOR_HINT.fullmatch(sample[0]) if sample else None
    if hint:
        return hint[1]
    sample = [line.rstrip("\r\n") + "\n" for line in sample if line.strip()]

    def agreement(sep: str) -> tuple[float, int]:
        widths: Counter[int] = Counter()
        with suppress(csv.Error), _any_field_size():
            widths = Counter(len(row) for row in csv.reader(sample, delimiter=sep))
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        return (count / widths.total(), width) if width > 1 else (0.0, 0)

    return max(_SEPARATORS, key=agreement)


@contextmanager
def _any_field_size() -> Iterator[None]:
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

            with _any_field_size():
                next(csv.reader(feed(), delimiter=sep), None)
        yield len(taken), "".join(taken)


def read_header(
    path: PathLike, records: Iterator[tuple[int, str]], sep: str, least: int
) -> tuple[list[str], int, int]:
    """Return the names in the first record, the line after it and the bytes before that line."""
    line, size = 1, 0
    header: list[str] = []
    for count, record in records:
        first, line = line, line + count
        data = record.encode("utf-8", "surrogateescape")
        size += len(data)
        if not record.strip() or (first == 1 and _SEPARATOR_HINT.fullmatch(record)):
            continue
        header = [name.strip() for name in next(_parse_rows(path, data, sep, None, first))[1]]
        break
    if len(header) < least:
        expected = "two or more names" if least > 1 else "names"
        raise fail(path, 1, f"a header of {expected} separated by {sep!r}", header)
    return header, line, size


def _parse_rows(
    path: PathLike, data: Any, sep: str, width: int | None, first_line: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row; if ``width`` is given, all have so many cells."""
    text = decode_text(path, bytes(data), "utf-8", first_line)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=sep, strict=True)
    start = first_line
    with _any_field_size():
        try:
            for row in lines:
                # a blank line; where there is one column, it may be an empty cell in quotes
                if width is None or (row and (width == 1 or len(row) > 1 or row[0].strip())):
                    if width not in (None, len(row)):
                        raise fail(path, start, f"{width} cells instead of {len(row)}", row)
                    yield start, row
                start = first_line + lines.line_num
        except csv.Error as error:
            expected, found = f"cells separated by {sep!r}", str(error)
            if found == "unexpected end of data" or "expected after" in found:
                expected += ', and a quote (") at the end of one that begins with a quote'
                found = text.splitlines()[start - first_line]
            raise fail(path, start, expected, found) from error


def csv_columns(
    path: PathLike, data: Any, sep: str, width: int, first_line: int
) -> tuple[list[Any], Callable[[int], int]]:
    """Return the columns of records as Arrow strings, and a function from rows to lines."""
    optional_import("pyarrow", "data", "reading CSV files")
    csv_module = optional_import("pyarrow.csv", "data", "reading CSV files")
    rows = partial(_parse_rows, path, data, sep, width, first_line)
    names = [str(j) for j in range(width)]
    enlarged = min(len(data) + 1, _MAX_ARROW_BLOCK_BYTES)
    is_strict, breaks = _check_quotes(data, sep)
    # Arrow loses a line feed in a cell that is the first byte of a block
    sizes = (enlarged,) if "\r" in breaks else (_ARROW_BLOCK_BYTES, enlarged)
    for size in sizes if is_strict else ():
        with suppress(arrow.ArrowInvalid, ValueError):
            table = csv_module.read_csv(
                arrow.BufferReader(data),
                csv_module.ReadOptions(column_names=names, block_size=size),
                csv_module.ParseOptions(delimiter=sep, newlines_in_values=bool(breaks)),
                csv_module.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
            )
            columns = [arrow_cells(column) for column in table.columns]
            break
    else:
        found = zip(*(row for _, row in rows()), strict=True)
        columns = [arrow.array(cells, arrow.string()) for cells in found]
        columns = columns or [arrow.array([], arrow.string())] * width
    return columns, lambda row: next(islice(rows(), row, None))[0]


def _check_quotes(data: Any, sep: str) -> tuple[bool, str]:
    """Return whether each quote begins or ends a cell or is doubled, and line ends in quotes."""
    text = np.frombuffer(data, dtype=np.uint8)
    is_end = np.zeros(256, dtype=np.bool_)
    is_end[list(f'{sep}\r\n"'.encode())] = True
    is_strict, is_open, breaks = len(sep.encode()) == 1, 0, b""
    for start in range(0, len(text), _SCAN_BYTES):  # parts of the text that stay in the cache
        part = text[start : start + _SCAN_BYTES]
        quotes = np.flatnonzero(part == ord('"'))
        if not is_open and not len(quotes):
            continue
        # quotes open and close in turn; two in a cell close it and open it again
        before = (quotes[is_open::2] + start - 1).clip(0)
        after = (quotes[1 - is_open :: 2] + start + 1).clip(max=len(text) - 1)
        is_strict = is_strict and bool(is_end[text[before]].all() and is_end[text[after]].all())
        ends = np.flatnonzero(part - ord("\n") <= ord("\r") - ord("\n"))
        breaks += part[ends[(np.searchsorted(quotes, ends) + is_open) % 2 == 1]].tobytes()
        is_open = (is_open + len(quotes)) % 2
    return is_strict and not is_open, "".join(end for end in "\n\r" if end.encode() in breaks)
