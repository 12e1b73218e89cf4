"""ARFF files as one matrix of numbers, dense or sparse as the file is.

liac-arff splits the rows into words. It leaves the escapes in quoted attribute names and cannot say
what is wrong with a declaration, so the header is read here.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fbeta._array import optional_import
from fbeta.datasets.files import DatasetError, PathLike, fail, is_plain, read_lines

# rows converted together: the words of a large file never all lie in memory at once
_BLOCK_ROWS = 4096
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_IN_QUOTES = re.compile(_QUOTED)
_NAME = re.compile(rf"({_QUOTED}|[^\s'\"{{}}%][^\s{{}}]*)\s*")
_VALUE = re.compile(rf"\s*({_QUOTED}|[^\s'\"{{}},]+)\s*")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\", "%": "%"}
_NUMERIC_TYPES = ("numeric", "real", "integer")


@dataclass(frozen=True)
class Attribute:
    """A declared column: its name, the values of a nominal one (None: numeric), and its line."""

    name: str
    values: tuple[str, ...] | None
    line: int


@dataclass(frozen=True, eq=False)
class ArffFile:
    """A whole ARFF file.

    Attributes
    ----------
    path : path
    relation, relation_line : str, int
        Text after ``@relation``, empty if there is none, and its line, or 1.
    attributes : tuple of Attribute, length c
    data_line : int
        Line of ``@data``, counted from 1.
    matrix : ndarray or csr_array of shape (n, c)
        Numbers, and places of nominal values in their declarations, from 0. A missing value is NaN.
        In a sparse file what a row does not list is 0: the number, or the first declared value.
    lines : ndarray of shape (n,)
        Line of each row.
    """

    path: PathLike
    relation: str
    relation_line: int
    attributes: tuple[Attribute, ...]
    data_line: int
    matrix: Any = None
    lines: Any = None

    def first(self, columns: Sequence[int], bad: Callable[[Any], Any]) -> tuple[int, Any] | None:
        """Return place among ``columns`` and line of the first bad entry, by row, if any."""
        matrix = self.matrix[:, list(columns)]
        if sparse.issparse(matrix):
            entries = matrix.tocoo()
            hits = np.flatnonzero(bad(entries.data))
            rows, places = entries.row[hits], entries.col[hits]
        else:
            rows, places = np.nonzero(bad(matrix))
        if not rows.size:
            return None
        return int(places[0]), (int(self.lines[rows[0]]), matrix[rows[0], places[0]])


def read_arff_file(path: PathLike, encoding: str = "utf-8") -> ArffFile:
    r"""Read a dense or sparse ARFF file of numeric and nominal attributes."""
    text = read_lines(path, encoding)
    header = parse_header(path, text)
    body = [
        (number, line)
        for number, raw in enumerate(text[header.data_line :], start=header.data_line + 1)
        if (line := raw.strip()) and not line.startswith("%")
    ]
    if not body:
        raise fail(path, len(text), "at least one row after @data")
    lines = np.array([number for number, _ in body], dtype=np.int64)
    rows = [line for _, line in body]
    matrix = _Rows(path, header.attributes, lines, rows[0].startswith("{")).matrix(rows)
    kept = (header.relation, header.relation_line, header.attributes, header.data_line)
    return ArffFile(path, *kept, matrix, lines)


def parse_header(path: PathLike, lines: list[str]) -> ArffFile:
    r"""Read the lines up to and including ``@data``; raise at the first that is no declaration."""
    relation, relation_line = "", 1
    attributes: dict[str, Attribute] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        keyword, *words = line.split(maxsplit=1)
        rest = words[0] if words else ""
        match keyword.lower():
            case "@relation":
                relation, relation_line = _unquote(rest), number
            case "@attribute":
                attribute = _parse_attribute(path, number, rest)
                if attribute.name in attributes:
                    first = attributes[attribute.name].line
                    expected = f"a name other than that of line {first}"
                    raise fail(path, number, expected, attribute.name)
                attributes[attribute.name] = attribute
            case "@data":
                if not attributes:
                    raise fail(path, number, "an @attribute before @data")
                return ArffFile(path, relation, relation_line, tuple(attributes.values()), number)
            case _:
                raise fail(path, number, "@relation, @attribute or @data", line)
    raise fail(path, len(lines), "@data before the end of the file")


def _unquote(text: str) -> str:
    """Drop the quotes around a word, and the escapes inside them; label files repeat others."""
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text[1:-1])


def _parse_attribute(path: PathLike, number: int, text: str) -> Attribute:
    match = _NAME.match(text)
    if match is None:
        raise fail(path, number, "an attribute name, in quotes if it has spaces", text)
    name, kind = _unquote(match[1]), text[match.end() :].strip()
    if kind.startswith("{"):
        return Attribute(name, _parse_values(path, number, kind), number)
    word = kind.partition("%")[0].strip()
    if word.lower() in _NUMERIC_TYPES:
        return Attribute(name, None, number)
    expected = f"type numeric, real, integer or {{value,...}} for attribute {name!r}"
    raise fail(path, number, expected, word)


def _parse_values(path: PathLike, number: int, kind: str) -> tuple[str, ...]:
    values: list[str] = []
    position = 1
    while position == 1 or kind[position - 1] == ",":
        match = _VALUE.match(kind, position)
        if match is None or match.end() >= len(kind) or kind[match.end()] not in ",}":
            raise fail(path, number, "nominal values as {value,value,...}", kind)
        values.append(_unquote(match[1]))
        position = match.end() + 1
    rest = kind[position:].strip()
    if rest and not rest.startswith("%"):
        raise fail(path, number, "nothing after the nominal values", rest)
    if len(set(values)) < len(values):
        raise fail(path, number, "each nominal value once", kind)
    return tuple(values)


class _Rows:
    """The data section: words, which become numbers here."""

    def __init__(
        self, path: PathLike, attributes: Sequence[Attribute], lines: Any, is_sparse: bool
    ) -> None:
        self.path, self.attributes, self.lines = path, attributes, lines
        self.is_sparse = is_sparse
        # Attributes of one kind (often hundreds declared {0,1}) are converted together.
        self.kinds = list(dict.fromkeys(attribute.values for attribute in attributes))
        self.kind_of = np.array([self.kinds.index(a.values) for a in attributes])

    def matrix(self, rows: list[str]) -> Any:
        """Return the numbers of all rows."""
        width = len(self.attributes)
        words = self._words(rows)
        values, columns, sizes = [], [], []
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = list(islice(words, _BLOCK_ROWS))
            length = np.array([len(row) for row in block])
            where = np.repeat(np.arange(start, start + len(block)), length)
            keys = np.fromiter(chain.from_iterable(block), np.int64, count=length.sum())
            flat = list(chain.from_iterable(row.values() for row in block))
            values.append(self._convert(flat, keys, where))
            columns.append(keys)
            sizes.append(length)
        if not self.is_sparse:
            return np.concatenate(values).reshape(len(rows), width)
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        entries = (np.concatenate(values), np.concatenate(columns), indptr)
        found = sparse.csr_array(entries, shape=(len(rows), width))
        found.sort_indices()
        found.eliminate_zeros()
        return found

    def _words(self, rows: list[str]) -> Iterator[dict[int, str | None]]:
        """Yield each row as a dict from column to word."""
        arff: Any = optional_import("arff", "data", "reading ARFF files")
        declared = [f"@attribute {column} string" for column in range(len(self.attributes))]
        style = arff.LOD_GEN if self.is_sparse else arff.DENSE_GEN
        lines = chain(["@relation r", *declared, "@data"], rows)
        parsed = arff.ArffDecoder().decode(lines, return_type=style)["data"]
        for row, line in enumerate(rows):
            if line.startswith("{") != self.is_sparse:
                kind = "a sparse row {column value, ...}" if self.is_sparse else "a dense row"
                raise fail(self.path, int(self.lines[row]), f"{kind} like the first", line)
            try:
                words = next(parsed)
            except (arff.ArffException, csv.Error, ValueError, IndexError) as error:
                raise self._bad_row(row, line) from error
            if not self.is_sparse:
                yield dict(enumerate(words))
                continue
            # liac-arff lets a column out of range pass where the value is missing.
            if max(words, default=0) >= len(self.attributes):
                raise self._bad_row(row, line)
            bare = _IN_QUOTES.sub("q", line)
            if len(words) != (bare.count(",") + 1 if bare.strip("{}").strip() else 0):
                raise fail(self.path, int(self.lines[row]), "each column once in a row", line)
            yield words

    def _bad_row(self, row: int, line: str) -> DatasetError:
        width = len(self.attributes)
        expected = f"{width} values separated by commas"
        if self.is_sparse:
            expected = f"{{column value, ...}} with columns from 0 to {width - 1}"
        return fail(self.path, int(self.lines[row]), expected, line)

    def _convert(self, words: list[str | None], columns: Any, rows: Any) -> NDArray[np.float64]:
        """Turn words into numbers, given the column and the row of each."""
        result = np.empty(len(words))
        of_word = self.kind_of[columns]
        for kind, values in enumerate(self.kinds):
            places = np.flatnonzero(of_word == kind)
            chosen = words if places.size == len(words) else [words[i] for i in places]
            numbers, bad = _numbers(chosen) if values is None else _positions(chosen, values)
            if bad is not None:
                place = places[bad]
                name = self.attributes[columns[place]].name
                expected = "a finite number" if values is None else f"one of {list(values)}"
                expected += f" for attribute {name!r}"
                raise fail(self.path, int(self.lines[rows[place]]), expected, words[place])
            result[places] = numbers
        return result


def _numbers(words: list[str | None]) -> tuple[NDArray[np.float64], int | None]:
    """Convert numbers, and return the place of the first word that is none."""
    known = [word for word in words if word is not None]
    try:
        numbers = np.array([np.nan if word is None else float(word) for word in words])
    except ValueError:
        numbers = np.full(len(words), np.nan)
    if np.isfinite(numbers).sum() == len(known) and is_plain("".join(known)):
        return numbers, None
    return numbers, next(i for i, word in enumerate(words) if not _is_number(word))


def _is_number(word: str | None) -> bool:
    try:
        # float() takes "nan", "inf" and "1_0", none of which ARFF knows.
        return word is None or (bool(np.isfinite(float(word))) and is_plain(word))
    except ValueError:
        return False


def _positions(
    words: list[str | None], values: Sequence[str]
) -> tuple[NDArray[np.float64], int | None]:
    """Convert nominal values, and return the place of the first that is not declared."""
    code: dict[str | None, float] = {value: float(i) for i, value in enumerate(values)}
    code[None] = np.nan
    numbers = np.array([code.get(word, -1.0) for word in words])
    bad = np.flatnonzero(numbers < 0)
    return numbers, int(bad[0]) if bad.size else None
