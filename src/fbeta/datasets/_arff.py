"""ARFF files as one matrix of numbers, dense or sparse as the file is."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fbeta._array import optional_import
from fbeta.datasets._arff_header import Attribute, Header, parse_header
from fbeta.datasets.dataset import Features, FloatArray
from fbeta.datasets.files import DatasetError, PathLike, fail, is_plain, read_lines

# Rows converted together: enough to amortise numpy's overhead, while the words of a
# large dense file never all lie in memory at once.
_BLOCK = 4096
_IN_QUOTES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")

Word = str | None
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """A whole ARFF file.

    Parameters
    ----------
    path : path
        Where it was read.
    header : Header
        Relation and attributes.
    matrix : ndarray or csr_array of shape (n_rows, n_attributes)
        Numbers of numeric attributes; for a nominal one the position of the value in
        its declaration, from 0. A missing value is NaN. In a sparse file an attribute
        that a row does not list is 0: the number, or the first declared value.
    lines : ndarray of shape (n_rows,)
        Line number of each row, for error messages.
    """

    path: PathLike
    header: Header
    matrix: Features
    lines: IntArray


def read_table(path: PathLike, encoding: str = "utf-8") -> Table:
    r"""Read a dense or sparse ARFF file of numeric and nominal attributes.

    Parameters
    ----------
    path : path
        File to read.
    encoding : str
        Its text encoding.

    Returns
    -------
    Table
        The file as one matrix.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.arff"
    ...     _ = file.write_text("@attribute a real\n@attribute b {x,y}\n@data\n2.5,y\n")
    ...     read_table(file).matrix
    array([[2.5, 1. ]])
    """
    text = read_lines(path, encoding)
    header = parse_header(path, text)
    body = [
        (number, line)
        for number, raw in enumerate(text[header.data_line :], start=header.data_line + 1)
        if (line := raw.strip()) and not line.startswith("%")
    ]
    if not body:
        raise fail(path, len(text), "at least one row after @data")
    numbers = np.array([number for number, _ in body], dtype=np.int64)
    rows = [line for _, line in body]
    parser = _Parser(path, header.attributes, numbers)
    read = parser.sparse if rows[0].startswith("{") else parser.dense
    return Table(path, header, read(rows), numbers)


class _Parser:
    """The data section: liac-arff splits it into words, which become numbers here."""

    def __init__(self, path: PathLike, attributes: Sequence[Attribute], lines: IntArray) -> None:
        self.path = path
        self.attributes = attributes
        self.lines = lines
        # Attributes of one kind (often hundreds declared {0,1}) are converted together.
        kinds = list(dict.fromkeys(attribute.values for attribute in attributes))
        self.kinds = kinds
        self.kind_of = np.array([kinds.index(attribute.values) for attribute in attributes])

    def dense(self, rows: list[str]) -> FloatArray:
        width = len(self.attributes)
        words = self._words(rows, brace=False)
        matrix = np.empty((len(rows), width))
        for start in range(0, len(rows), _BLOCK):
            stop = min(start + _BLOCK, len(rows))
            block = [next(words) for _ in range(start, stop)]
            columns = np.tile(np.arange(width), stop - start)
            where = np.repeat(np.arange(start, stop), width)
            flat = list(chain.from_iterable(block))
            matrix[start:stop] = self._convert(flat, columns, where).reshape(-1, width)
        return matrix

    def sparse(self, rows: list[str]) -> sparse.csr_array:
        values, columns, sizes = [], [], []
        words = self._words(rows, brace=True)
        for start in range(0, len(rows), _BLOCK):
            stop = min(start + _BLOCK, len(rows))
            block = [next(words) for _ in range(start, stop)]
            length = np.array([len(row) for row in block])
            where = np.repeat(np.arange(start, stop), length)
            keys = np.fromiter(chain.from_iterable(block), dtype=np.int64, count=length.sum())
            flat = list(chain.from_iterable(row.values() for row in block))
            values.append(self._convert(flat, keys, where))
            columns.append(keys)
            sizes.append(length)
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        shape = (len(rows), len(self.attributes))
        matrix = sparse.csr_array(
            (np.concatenate(values), np.concatenate(columns), indptr), shape=shape
        )
        matrix.sort_indices()
        matrix.eliminate_zeros()
        return matrix

    def _words(self, rows: list[str], brace: bool) -> Iterator[Any]:
        """Yield each row as a list of words, or as a dict from column to word."""
        arff: Any = optional_import("arff", "data", "reading ARFF files")
        declared = [f"@attribute {column} string" for column in range(len(self.attributes))]
        lines = chain(["@relation r", *declared, "@data"], rows)
        style = arff.LOD_GEN if brace else arff.DENSE_GEN
        parsed = arff.ArffDecoder().decode(lines, return_type=style)["data"]
        for row, line in enumerate(rows):
            if line.startswith("{") != brace:
                expected = "a sparse row {column value, ...}" if brace else "a dense row"
                raise fail(self.path, int(self.lines[row]), f"{expected} like the first", line)
            try:
                words = next(parsed)
            except (arff.ArffException, csv.Error, ValueError, IndexError) as error:
                raise self._bad_row(row, line, brace) from error
            # liac-arff lets a column out of range pass where the value is missing.
            if brace and max(words, default=0) >= len(self.attributes):
                raise self._bad_row(row, line, brace)
            if brace and len(words) != _entries(line):
                raise fail(self.path, int(self.lines[row]), "each column once in a row", line)
            yield words

    def _bad_row(self, row: int, line: str, brace: bool) -> DatasetError:
        width = len(self.attributes)
        expected = f"{width} values separated by commas"
        if brace:
            expected = f"{{column value, ...}} with columns from 0 to {width - 1}"
        return fail(self.path, int(self.lines[row]), expected, line)

    def _convert(self, words: list[Word], columns: IntArray, rows: IntArray) -> FloatArray:
        """Turn words into numbers, given the column and the row of each."""
        result = np.empty(len(words))
        of_word = self.kind_of[columns]
        for kind, values in enumerate(self.kinds):
            places = np.flatnonzero(of_word == kind)
            chosen = words if places.size == len(words) else [words[i] for i in places]
            numbers, bad = _numbers(chosen) if values is None else _positions(chosen, values)
            if bad is not None:
                place = places[bad]
                attribute = self.attributes[columns[place]]
                line = int(self.lines[rows[place]])
                expected = "a finite number" if values is None else f"one of {list(values)}"
                expected += f" for attribute {attribute.name!r}"
                raise fail(self.path, line, expected, words[place])
            result[places] = numbers
        return result


def _entries(line: str) -> int:
    """Count the entries of a well-formed sparse row."""
    bare = _IN_QUOTES.sub("q", line)
    return bare.count(",") + 1 if bare.strip("{}").strip() else 0


def _numbers(words: list[Word]) -> tuple[FloatArray, int | None]:
    """Convert numbers, and give the place of the first word that is none."""
    known = [word for word in words if word is not None]
    try:
        numbers = np.array([np.nan if word is None else float(word) for word in words])
    except ValueError:
        numbers = np.full(len(words), np.nan)
    if np.isfinite(numbers).sum() == len(known) and is_plain("".join(known)):
        return numbers, None
    return numbers, next(i for i, word in enumerate(words) if not _is_number(word))


def _is_number(word: Word) -> bool:
    if word is None:
        return True
    try:
        # float() takes "nan", "inf" and "1_0", none of which ARFF knows.
        return bool(np.isfinite(float(word))) and is_plain(word)
    except ValueError:
        return False


def _positions(words: list[Word], values: Sequence[str]) -> tuple[FloatArray, int | None]:
    """Convert nominal values, and give the place of the first undeclared one."""
    code: dict[Word, float] = {value: float(i) for i, value in enumerate(values)}
    code[None] = np.nan
    numbers = np.array([code.get(word, -1.0) for word in words])
    bad = np.flatnonzero(numbers < 0)
    return numbers, int(bad[0]) if bad.size else None
