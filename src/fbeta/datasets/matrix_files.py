"""Files of numbers: ARFF, dense or sparse, and SVMlight (``label,label index:value ...``)."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta.datasets.cells import to_number
from fbeta.datasets.dataset import Dataset, Declared, PathLike, fail, read_bytes, read_lines
from fbeta.datasets.label_columns import TableLabels

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NAME = re.compile(rf"({_QUOTED}|[^\s'\"{{}}%][^\s{{}}]*)\s*")
_WORD = rf"{_QUOTED}|[^\s'\"{{}},]+"
_VALUES = re.compile(rf"{{(\s*(?:{_WORD})\s*(?:,\s*(?:{_WORD})\s*)*)}}")
_NEEDS_SCAN = re.compile(r"[\s'\"{}]")
# an entry of a row with its comma; its column, in sparse rows; its value
_ENTRY = re.compile(rf"(,\s*(?:([0-9]+)\s+(?![\s,]|$))?({_WORD}|)\s*)")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\", "%": "%"}
_NUMERIC_TYPES = ("numeric", "real", "integer")

# labels, and entries whose index is exact as a floating-point number
_SVMLIGHT_ROW = re.compile(
    rb"\s*(-?\d{1,15}(?:,-?\d{1,15})*(?=\s|$))?"
    rb"((?:\s*\d{1,9}:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,5})?(?=\s|$))*)\s*"
)
# A file may be wide: a million features, and a thousand for each byte. One that is wider would take
# memory, in every model of it, that has nothing to do with its size.
_BASE_WIDTH, _BYTE_WIDTH = 2**20, 1_000

ZeroBased = bool | Literal["auto"]


@dataclass(frozen=True, eq=False)
class ArffFile:
    """A dense or sparse ARFF file of n rows and c attributes; lines are counted from 1."""

    path: PathLike
    relation: str  # the text after @relation, empty if there is none
    relation_line: int
    attributes: Mapping[str, tuple[Sequence[str] | None, int]]  # nominal values, and the line
    data_line: int
    matrix: Any = None  # (n, c): numbers, and places of nominal values from 0; NaN where missing
    row_lines: Sequence[int] = ()

    def take(self, names: Sequence[str]) -> ArffFile:
        """Return some of the attributes."""
        place = {name: j for j, name in enumerate(self.attributes)}
        attributes = {name: self.attributes[name] for name in names}
        matrix = self.matrix[:, [place[name] for name in names]]
        return replace(self, attributes=attributes, matrix=matrix)

    def first(self, bad: Callable[[Any], Any]) -> tuple[str, int, Any] | None:
        """Return the attribute, the line and the value of the first bad entry, by row, if any."""
        if sparse.issparse(self.matrix):
            entries = self.matrix.tocoo()
            hits = np.flatnonzero(bad(entries.data))
            rows, columns = entries.row[hits], entries.col[hits]
        else:
            rows, columns = np.nonzero(bad(self.matrix))
        if not rows.size:
            return None
        found = self.matrix[rows[0], columns[0]]
        return list(self.attributes)[columns[0]], self.row_lines[rows[0]], found


def read_arff_file(
    path: PathLike, encoding: str, drop: Sequence[str], declared: Declared | None = None
) -> ArffFile:
    """Read a dense or sparse file of numeric and nominal attributes, but for those to drop.

    Attributes named in ``declared`` have its nominal values, in its order, not those of the file.
    """
    text = read_lines(path, encoding)
    header = _parse_header(path, text)
    rows = {
        number: line
        for number, raw in enumerate(text[header.data_line :], start=header.data_line + 1)
        if (line := raw.strip()) and not line.startswith("%")
    }
    if not rows:
        raise fail(path, len(text), "at least one row after @data")
    own, known = header.attributes, declared or {}
    attributes = {name: (known.get(name, values), line) for name, (values, line) in own.items()}
    header = replace(header, attributes=attributes)
    found = replace(header, matrix=_matrix(header, rows), row_lines=list(rows))
    # a sparse row leaves out the first value that its own file declares, or 0
    for name, (values, place) in own.items() if sparse.issparse(found.matrix) else ():
        first, implied = (attributes[name][0] or "0")[0], (values or "0")[0]
        if first != implied:
            expected = f"{first!r} as first value of attribute {name!r}, as in the training file"
            raise fail(path, place, expected, implied)
    return found.take([name for name in found.attributes if name not in drop])


def _parse_header(path: PathLike, lines: list[str]) -> ArffFile:
    """Read the lines up to and including ``@data``; raise at the first that is no declaration."""
    relation, relation_line = "", 1
    declared: dict[str, tuple[tuple[str, ...] | None, int]] = {}
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
                name, values = _parse_attribute(path, number, rest)
                if name in declared:
                    expected = f"a name other than that of line {declared[name][1]}"
                    raise fail(path, number, expected, name)
                declared[name] = values, number
            case "@data":
                if not declared:
                    raise fail(path, number, "an @attribute before @data")
                return ArffFile(path, relation, relation_line, declared, number)
            case _:
                raise fail(path, number, "@relation, @attribute or @data", line)
    raise fail(path, len(lines), "@data before the end of the file")


def _unquote(text: str) -> str:
    """Drop the quotes around a word, and the known escapes inside them."""
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text[1:-1])


def _parse_attribute(path: PathLike, number: int, text: str) -> tuple[str, tuple[str, ...] | None]:
    match = _NAME.match(text)
    if match is None:
        raise fail(path, number, "an attribute name, in quotes if it has spaces", text)
    name, kind = _unquote(match[1]), text[match.end() :].strip()
    if kind.startswith("{"):
        match = _VALUES.match(kind)
        if match is None:
            raise fail(path, number, "nominal values as {value,value,...}", kind)
        values = tuple(_unquote(word) for word in re.findall(_WORD, match[1]))
        rest = kind[match.end() :].strip()
        if rest and not rest.startswith("%"):
            raise fail(path, number, "nothing after the nominal values", rest)
        if len(set(values)) < len(values):
            raise fail(path, number, "each nominal value once", kind)
        return name, values
    word = kind.partition("%")[0].strip()
    if word.lower() in _NUMERIC_TYPES:
        return name, None
    expected = f"type numeric, real, integer or {{value,...}} for attribute {name!r}"
    raise fail(path, number, expected, word)


def _matrix(header: ArffFile, rows: Mapping[int, str]) -> Any:
    """Return the numbers of all rows, by line, of shape (n, c)."""
    width, is_sparse = len(header.attributes), next(iter(rows.values())).startswith("{")
    parsers: list[Any] = [
        float if values is None else {value: float(i) for i, value in enumerate(values)}.__getitem__
        for values, _ in header.attributes.values()
    ]
    data, columns, ends = array("d"), array("q"), [0]
    for line, text in rows.items():
        try:
            places, words = _split_row(text, width, is_sparse)
        except ValueError as error:
            raise fail(header.path, line, str(error), text) from error
        try:
            found = [parsers[j](word) for j, word in zip(places, words, strict=True)]
            # float() takes "1_0", digits of other scripts, "nan" and "inf", which ARFF does not
            is_plain = text.isascii() and "_" not in text and math.isfinite(sum(found))
        except (KeyError, TypeError, ValueError):
            is_plain = False
        data.extend(found if is_plain else _convert(header, line, places, words))
        columns.extend(places)
        ends.append(len(data))
    if not is_sparse:
        return np.array(data).reshape(len(rows), width)
    entries = np.array(data), np.array(columns), np.array(ends)
    result = sparse.csr_array(entries, shape=(len(rows), width))
    result.sort_indices()
    result.eliminate_zeros()
    return result


def _convert(
    header: ArffFile, line: int, places: Sequence[int], words: Sequence[str | None]
) -> list[float]:
    """Return words of a row that may be missing or bad as numbers; raise at the first bad one."""
    names, found = list(header.attributes), []
    for j, word in zip(places, words, strict=True):
        values = header.attributes[names[j]][0]
        if values is None:
            value = to_number(word or "")
        else:
            value = float(values.index(word)) if word in values else None
        if value is None and word is not None:
            expected = "a finite number" if values is None else f"one of {list(values)}"
            raise fail(header.path, line, f"{expected} for attribute {names[j]!r}", word)
        found.append(math.nan if value is None else value)
    return found


def _split_row(text: str, width: int, is_sparse: bool) -> tuple[Sequence[int], list[str | None]]:
    """Return the columns and words of a row, None for a missing one; raise what was expected."""
    if text.startswith("{") != is_sparse:
        kind = "a sparse row {column value, ...}" if is_sparse else "a dense row"
        raise ValueError(f"{kind} like the first")
    if not is_sparse and not _NEEDS_SCAN.search(text):
        words: list[Any] = text.split(",")
        keys, sound = [], True
    else:
        inner = text[1:-1].strip() if is_sparse else text
        entries = _ENTRY.findall("," + inner) if inner else []
        keys, words = [int(key) for _, key, _ in entries if key], [word for _, _, word in entries]
        sound = "".join(entry for entry, _, _ in entries) == ("," + inner if inner else "")
        # in quotes, all escapes are known
        quoted = "".join(word for word in words if word[:1] in ("'", '"'))
        sound = sound and all(match[1] in _ESCAPED for match in _ESCAPE.finditer(quoted))
    if is_sparse:
        expected = f"{{column value, ...}} with columns from 0 to {width - 1}"
        sound = sound and text.endswith("}") and len(keys) == len(words) and all(words)
        sound = sound and max(keys, default=0) < width
    else:
        expected = f"{width} values separated by commas"
        sound = sound and not keys and len(words) == width
    if not sound:
        raise ValueError(expected)
    if len(set(keys)) < len(keys):
        raise ValueError("each column once in a row")
    is_quoted = "'" in text or '"' in text
    words = [None if w in ("?", "") else _unquote(w) if is_quoted else w for w in words]
    return keys if is_sparse else range(width), words


def read_svmlight(
    path: PathLike,
    *,
    n_features: int | None = None,
    label_names: Sequence[str] | None = None,
    zero_based: ZeroBased = "auto",
    name: str | None = None,
) -> Dataset:
    r"""Read a multi-label SVMlight file.

    Parameters
    ----------
    path : path
        Text file with one instance per line: integer labels separated by commas (none for an empty
        label set), then ``index:value`` pairs with ascending indices; ``#`` begins a comment.
    n_features : int, optional
        Number of columns of `X`, for files that `join_split` joins; by default by their indices.
    label_names : sequence of str, optional
        The labels that may occur, in the order of `Y`; by default those that do, by number.
    zero_based : bool or "auto"
        Whether the first column has index 0; "auto" looks for an index 0 in the file.
    name : str, optional
        Name of the data set; the stem of `path` by default.

    Returns
    -------
    Dataset
        With CSR features and without feature names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.svm")
    ...     _ = file.write_text("3,7 1:0.5 3:2\n 2:1\n7 1:4\n")
    ...     data = read_svmlight(file)
    >>> data.label_names, data.Y.tolist()
    (('3', '7'), [[1, 1], [0, 0], [0, 1]])
    >>> data.X.toarray().tolist()
    [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0], [4.0, 0.0, 0.0]]
    """
    if label_names is not None and len(set(label_names)) < len(label_names):
        raise ValueError(f"label_names must not name a label twice, got {list(label_names)}")
    content = read_bytes(path)
    rows, sets, parts = _svmlight_rows(path, content)
    indptr = np.cumsum([0, *(len(part) for part in parts)])
    entries = np.concatenate(parts) if parts else np.zeros((0, 2))
    indices, values = entries[:, 0].astype(np.int64), entries[:, 1]

    def refuse(bad: Any, expected: str) -> None:
        if np.any(bad):
            row = int(np.searchsorted(indptr, np.argmax(bad), side="right")) - 1
            line = list(rows)[row]
            raise fail(path, line, expected, rows[line].decode())

    ascending = np.diff(indices, prepend=-1) > 0
    ascending[indptr[:-1][np.diff(indptr) > 0]] = True
    refuse(~ascending, "ascending feature indices")
    start = int(not (zero_based if isinstance(zero_based, bool) else (indices == 0).any()))
    refuse(indices < start, "feature indices from 1")
    if n_features is None:
        widest = _BASE_WIDTH + _BYTE_WIDTH * len(content)
        expected = f"feature indices up to {widest:,} (or n_features) in a file of this size"
        refuse(indices > widest, expected)
        if not indices.size:
            raise fail(path, list(rows)[-1], "at least one feature index:value in the file")
        n_features = int(indices.max()) - start + 1
    refuse(
        indices >= start + n_features, f"feature indices from {start} to {start + n_features - 1}"
    )
    refuse(~np.isfinite(values), "finite feature values")
    binarizer = MultiLabelBinarizer()
    found = binarizer.fit_transform(sets)
    known = list(map(str, binarizer.classes_))
    labels = TableLabels.split(found, known, known if label_names is None else label_names)
    if not labels.names:
        raise fail(path, None, "at least one label in the file")
    if labels.unknown:
        line = list(rows)[int(np.argmax(labels.extra.any(axis=1)))]
        raise fail(path, line, f"labels among {list(labels.names)}", next(iter(labels.unknown)))
    X = sparse.csr_array((values, indices - start, indptr), shape=(len(rows), n_features))
    return Dataset(X, labels.Y, labels.names, name=Path(path).stem if name is None else name)


def _svmlight_rows(
    path: PathLike, content: bytes
) -> tuple[dict[int, bytes], list[list[int]], list[Any]]:
    """Return rows by line number, their labels, their indices and values, of shape (k, 2)."""
    rows: dict[int, bytes] = {}
    sets, parts = [], []
    raw = content.split(b"\n")
    for number, line in enumerate(raw, start=1):
        row = line.partition(b"#")[0]
        if not row.strip():
            continue
        found = _SVMLIGHT_ROW.fullmatch(row)
        if found is None:
            expected = "integer labels separated by commas, then index:value pairs"
            raise fail(path, number, expected, row.strip().decode("utf-8", "replace"))
        rows[number] = row
        sets.append([int(label) for label in found[1].split(b",")] if found[1] else [])
        words = found[2].replace(b":", b" ").split()
        parts.append(np.array(words, dtype=np.bytes_).astype(np.float64).reshape(-1, 2))
    if not rows:
        raise fail(path, len(raw), "at least one row")
    return rows, sets, parts
