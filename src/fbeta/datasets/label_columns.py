"""Where the labels of a table are, and how they are written: 0/1 columns, or lists of tags."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self
from unicodedata import normalize

import numpy as np

from fbeta.datasets.cells import (
    GAPS,
    Cells,
    arrow,
    cell_at,
    compute,
    is_gap,
    is_list,
    is_text,
    missing,
    without_gaps,
)
from fbeta.datasets.column_kinds import numbers
from fbeta.datasets.dataset import DatasetError, Labels, PathLike, fail, quoted

_YES, _NO = ("yes", "y", "x", "on", "t", "\u2713", "\u2714"), ("no", "n", "off", "f")
#: What is looked for between tags where the user does not say.
DELIMITERS = (";", "|", ",", "\t")
# lists, and tuples and sets as str() of Python writes them
_LIST = re.compile(r"""\[.*\]|[({]["'].*["'],?[)}]|(?:set)?\(\)""", re.DOTALL)
_MAX_LIST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class TableLabels:
    """Labels of a table, and notes for the user."""

    Y: Labels  # of shape (n, s)
    names: tuple[str, ...]
    tags: Mapping[str, Any] = field(default_factory=dict)  # "is_list" and "delimiter"
    unknown: Mapping[str, int] = field(default_factory=dict)  # rows by label that must not occur
    extra: Any = None  # where these are, of shape (n, len(unknown))
    gap_labels: tuple[str, ...] = ()  # labels whose names stand for missing values elsewhere
    notes: tuple[str, ...] = ()

    @classmethod
    def split(cls, Y: Labels, found: Sequence[str], names: Sequence[str], **more: Any) -> Self:
        """Take the columns ``names`` of Y, whose columns are ``found``; count the others apart."""
        place, known = {name: j for j, name in enumerate(found)}, set(names)
        rows = dict(zip(found, Y.sum(axis=0, dtype=int).tolist(), strict=True))
        unknown = {name: n for name, n in rows.items() if n and name not in known}
        extra = Y[:, [place[name] for name in unknown]]
        if list(found) != list(names):
            padded = np.hstack([Y, np.zeros((len(Y), 1), dtype=np.int8)])
            Y = padded[:, [place.get(name, -1) for name in names]]
        return cls(Y, tuple(names), unknown=unknown, extra=extra, **more)

    def with_unknown(self, predicted: Any) -> tuple[Any, Any]:
        """Return truth and predictions (n, s) over all labels of the file: others are missed."""
        if not self.unknown:
            return self.Y, predicted
        return np.hstack([self.Y, self.extra]), np.hstack([predicted, np.zeros_like(self.extra)])

    def unknown_note(self) -> list[str]:
        """Say which labels a model has never seen."""
        listed = ", ".join(f"{name!r} ({n})" for name, n in list(self.unknown.items())[:10])
        more = f" and {len(self.unknown) - 10} more" if len(self.unknown) > 10 else ""
        words = "rows have labels that the model has never seen, which count as missed"
        rows = int(self.extra.any(axis=1).sum()) if self.unknown else 0
        return [f"{rows} {words}: {listed}{more}"] if rows else []


@dataclass(frozen=True)
class LabelColumns:
    """Where the labels of a table are: 0/1 columns by name or prefix, or one column of tags."""

    columns: Sequence[str] | None = None
    prefix: str | None = None
    column: str | None = None
    delimiter: str | None = None  # between the tags in ``column``; inferred by default
    names: Sequence[str] | None = None  # that may occur in ``column``; by default those that do
    words: bool = True  # whether ``yes``, ``x`` and blanks are 0/1, and ``NA`` is no tag
    join: bool = False  # whether tags that differ in case, blanks or form only are one
    gap_labels: Collection[str] = ()  # words such as ``NA`` that are tags, also alone in a cell
    blanks: bool = True  # with ``words``: whether blanks are 0 in a column that has no 0
    others: list[str] = field(default_factory=list, compare=False)  # cells of other blocks

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise ValueError("labels must be a list of column names; see also label_column")
        if self.names is not None and self.column is None:
            raise ValueError("label_names goes with label_column")
        if self.names is not None and len(set(self.names)) < len(self.names):
            raise ValueError(f"label_names must not name a label twice, got {list(self.names)}")
        if self.delimiter == "":
            raise ValueError("delimiter must not be empty")
        if self.columns is not None and len(set(self.columns)) < max(len(self.columns), 1):
            raise ValueError("labels must name at least one column, and none twice")

    @property
    def is_given(self) -> bool:
        """Whether exactly one of the three places is given."""
        return sum(option is not None for option in (self.columns, self.prefix, self.column)) == 1

    def find(self, header: Sequence[str], path: PathLike) -> list[str]:
        """Return the columns of a table that hold labels."""
        if self.prefix is not None:
            found = [name for name in header if name.startswith(self.prefix)]
            absent = [] if found else [f"a column whose name begins with {self.prefix!r}"]
        else:
            found = list(self.columns or ()) if self.column is None else [self.column]
            absent = [f"a label column {name!r}" for name in found if name not in header]
        if absent:
            raise DatasetError(f"{fail(path, None, absent[0])}, found {quoted(header, 20)}")
        return found

    def read(self, table: Any, known: Sequence[str] | None = None) -> TableLabels:
        """Read the labels of a table; ``known`` are those of a model, others are counted apart."""
        columns = self.find(table.header, table.path)
        if self.column is not None:
            return self._read_tags(table, known)
        Y, notes = _zero_one(table, columns, self)
        return TableLabels.split(Y, columns, columns if known is None else known, notes=notes)

    def sets(self, table: Any) -> list[list[str]]:
        """Return the names of the labels of each row of a column of tags in one of many blocks."""
        self.find(table.header, table.path)
        rows, codes, tags, delimiter = self._tags(table)
        counts = np.bincount(rows, minlength=table.n_rows)
        if not self.others and (counts > 1).any():  # later blocks have the same delimiter
            self.others.append("[]" if delimiter is None else f"a{delimiter}b")
        names = np.array(tags, dtype=object)[codes]
        return [part.tolist() for part in np.split(names, np.cumsum(counts)[:-1])]

    def _read_tags(self, table: Any, known: Sequence[str] | None) -> TableLabels:
        rows, codes, tags, delimiter = self._tags(table, known or ())
        # a word for missing values that is one of several tags in a cell is a tag in all cells
        several = np.bincount(rows)[rows] > 1
        gaps = [tag for j, tag in enumerate(tags) if tag in GAPS and several[codes == j].any()]
        if self.words and delimiter is not None and {*gaps} - {*self.gap_labels}:
            read = replace(self, delimiter=delimiter, gap_labels=gaps)._read_tags(table, known)
            alone = read.Y.any(axis=1).sum() - len(np.unique(rows))
            note = f"{alone:,} cells {quoted(gaps)} are labels, as in cells with several labels"
            notes = (note, *read.notes) if alone and known is None else read.notes
            return replace(read, gap_labels=tuple(gaps), notes=notes)
        names, counts = self.names if known is None else known, np.bincount(codes, None, len(tags))
        tags, notes = _joined(tags, counts.tolist(), self.join, names or ())
        found = sorted(set(tags))
        names = found if names is None else names
        if not names:
            raise fail(table.path, None, f"at least one label in the column {self.column!r}")
        if self.names is not None and known is None:
            bad = ~np.isin(tags, names)[codes]
            if bad.any():
                where, tag = table.place(int(rows[bad][0])), tags[codes[bad][0]]
                raise fail(table.path, where, f"labels among {list(names)}", tag)
        place = {name: j for j, name in enumerate(found)}
        Y = np.zeros((table.n_rows, len(found)), dtype=np.int8)
        Y[rows, np.array([place[tag] for tag in tags], dtype=np.intp)[codes]] = 1
        blanks = np.flatnonzero(np.bincount(rows, minlength=table.n_rows) == 0)
        if blanks.size and known is None:
            words = _gap_words(table.columns[self.column], blanks, delimiter)
            notes += (f"{blanks.size:,} rows have no label in the column {self.column!r}{words}",)
        form = {"is_list": delimiter is None, "delimiter": delimiter or DELIMITERS[0]}
        return TableLabels.split(Y, found, names, tags=form, notes=notes)

    def _tags(
        self, table: Any, known: Collection[str] = ()
    ) -> tuple[Any, Any, list[str], str | None]:
        """Return row and code of each tag, the names by code, and what is between names."""
        cells = table.columns[self.column]
        lists, delimiter = (cells, None) if is_list(cells) else self._parse(table, cells, known)
        rows = np.asarray(compute.list_parent_indices(lists), dtype=np.intp)
        coded = lists.flatten().dictionary_encode()
        # a null is the last of the names
        tags = [*compute.utf8_trim_whitespace(coded.dictionary).to_pylist(), ""]
        codes = np.asarray(compute.fill_null(coded.indices, len(tags) - 1), dtype=np.intp)
        blank = np.array([not tag for tag in tags])[codes]
        if blank.any():
            expected = f"lists of label names in {self.column!r}"
            raise fail(table.path, table.place(int(rows[blank][0])), expected, "an empty name")
        return rows, codes, tags[:-1], delimiter

    def _parse(self, table: Any, cells: Cells, known: Collection[str]) -> tuple[Any, str | None]:
        """Return cells as an Arrow array of lists of names, each distinct text parsed once."""
        if is_text(cells):
            # what stands for a missing value elsewhere may be the name of a label
            kept = {*self.gap_labels, *(known if self.delimiter else ())}
            coded = (without_gaps(cells, kept) if self.words else cells).dictionary_encode()
            values, index = coded.dictionary.to_pylist(), coded.indices
        else:
            values = cells if isinstance(cells, list) else cells.to_pylist()
            index = arrow.array(range(len(values)))
        try:
            delimiter = self.delimiter or find_delimiter(values, self.others)
        except ValueError as error:
            raise DatasetError(
                f"{table.path}: the column {self.column!r}: {error} (--delimiter)"
            ) from error
        parsed: list[list[str]] = []
        for place, value in enumerate(values):
            try:
                parsed.append(read_tags(value, delimiter))
            except ValueError as error:
                row = index.to_pylist().index(place)
                form = "lists of label names"
                form = form if delimiter is None else f"label names separated by {delimiter!r}"
                found = fail(table.path, table.place(row), f"{form} in {self.column!r}", value)
                raise DatasetError(f"{found} ({error})") from error
        return arrow.array(parsed, arrow.list_(arrow.string())).take(index), delimiter


def _zero_one(table: Any, names: list[str], how: LabelColumns) -> tuple[Labels, tuple[str, ...]]:
    """Read 0/1 columns, of shape (n, len(names)); the first bad cell is named."""
    Y = np.zeros((table.n_rows, len(names)), dtype=np.int8)
    bad: dict[str, int] = {}
    blanks = 0
    for j, name in enumerate(names):
        cells = table.columns[name]
        values = numbers(cells)
        if how.words and is_text(cells) and np.isnan(values).any():
            lower = compute.utf8_lower(without_gaps(cells))
            for value, known in ((1.0, _YES), (0.0, _NO)):
                values[np.asarray(compute.is_in(lower, value_set=arrow.array(known)))] = value
        if how.words and how.blanks and np.isnan(values).any() and not (values == 0).any():
            # where only what is there is marked, a blank is the answer no
            gaps = missing(cells)
            values[gaps] = 0
            blanks += int(gaps.sum())
        wrong = np.flatnonzero((values != 0) & (values != 1))
        if wrong.size:
            bad[name] = int(wrong[0])
        else:
            Y[:, j] = values
    if bad:
        name, row = next(iter(bad.items()))
        cell = cell_at(table.columns[name], row)
        also = f" (and in {quoted(list(bad)[1:])})" if len(bad) > 1 else ""
        expected = f"0 or 1 in label column {name!r}{also}"
        found = "a missing value" if is_gap(cell) else cell
        raise fail(table.path, table.place(row), expected, found)
    notes = (f"{blanks:,} blank cells of the label columns count as 0",) if blanks else ()
    return Y, notes


def _gap_words(cells: Cells, rows: Any, delimiter: str | None) -> str:
    """Say which words for missing values stand in rows without a label."""
    texts = cells.take(arrow.array(rows)).to_pylist() if is_text(cells) else []
    found = Counter(text.strip() for text in texts if text and text.strip() and is_gap(text))
    if not found:
        return ""
    listed = " and ".join(f"{count:,} cells {word!r}" for word, count in found.items())
    word = next(iter(found))
    label = f"{word}{delimiter}" if delimiter else f"[{word!r}]"
    return f": {listed} count as no label (write {label!r} for a label of the name {word!r})"


def _joined(
    tags: list[str], rows: list[int], join: bool, known: Iterable[str]
) -> tuple[list[str], tuple[str, ...]]:
    """Find names that look alike, and join them if wanted: to a known one, or the most frequent."""
    counts, own = Counter(dict.fromkeys(known, 0)), set(known)
    for tag, count in zip(tags, rows, strict=True):
        counts[tag] += count
    groups: dict[str, list[str]] = {}
    for name in sorted(counts, key=lambda name: (name in own, counts[name]), reverse=True):
        key = normalize("NFC", " ".join(name.split()).casefold())
        groups.setdefault(key, []).append(name)
    first = {name: group[0] for group in groups.values() for name in group} if join else {}
    tags = [first.get(tag, tag) for tag in tags]
    found = ([name for name in group if counts[name]] for group in groups.values())
    twins = [group for group in found if len(group) > 1]
    if not twins:
        return tags, ()
    words = (" and ".join(f"{name!r} ({counts[name]})" for name in group) for group in twins[:5])
    shown = "; ".join(words)
    what = "are joined" if join else "are different labels (--join-labels makes them one)"
    return tags, (f"Labels that differ in case, blanks or Unicode form only {what}: {shown}",)


def find_delimiter(cells: Iterable[Any], before: Sequence[str] = ()) -> str | None:
    """Return what separates the tags of a column, None for lists; raise if several would do.

    ``before`` has a cell that is written as those of other blocks.
    """
    texts = (cell.strip() for cell in cells if isinstance(cell, str) and not is_gap(cell))
    own = dict.fromkeys(texts)

    def where(found: Iterable[str]) -> str:
        count = sum(text in own for text in found)
        return f"in {count} different cells" if count else "in the blocks before"

    every = {**own, **dict.fromkeys(before)}
    lists = {text for text in every if _LIST.fullmatch(text)}
    others = [text for text in every if text not in lists]
    if lists and others:
        such = next((f", such as {text[:40]!r}" for text in others if text in own), "")
        raise ValueError(f"found lists {where(lists)} and other text {where(others)}{such}")
    if lists:
        return None
    seen = {d: [text for text in others if d in text] for d in DELIMITERS}
    seen = {d: found for d, found in seen.items() if found}
    if len(seen) > 1:
        words = " and ".join(f"{d!r} {where(found)}" for d, found in seen.items())
        raise ValueError(f"found {words}: say which is between the names")
    return next(iter(seen), DELIMITERS[0])


def read_tags(cell: Any, delimiter: str | None) -> list[str]:
    """Return the names of the tags in a cell; raise where it is not written like that."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, list | tuple | set | frozenset):
        return [_name(tag) for tag in cell]
    if cell is None or cell != cell or (isinstance(cell, str) and not cell.strip()):
        return []
    if not isinstance(cell, str):
        return [_name(cell)]
    text = cell.strip()
    if delimiter is None or _LIST.fullmatch(text):
        if len(text) > _MAX_LIST_CHARACTERS:
            raise ValueError(f"a list of more than {_MAX_LIST_CHARACTERS} characters")
        found = None
        # JSON, or as str() of a list of Python writes it: only literals
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                found = parse(text)
                break
        if not isinstance(found, list | tuple | set):
            raise ValueError("not a list of names")
        return sorted(map(_name, found)) if isinstance(found, set) else [*map(_name, found)]
    names = [name.strip() for name in cell.split(delimiter)]
    # a delimiter at either end is a habit of some programs; one in between is a mistake
    while names and not names[-1]:
        names.pop()
    names = names[1:] if names and not names[0] else names
    return [_name(name) for name in names]


def _name(tag: Any) -> str:
    whole = isinstance(tag, int | np.integer) and not isinstance(tag, bool)
    whole = whole or (isinstance(tag, float) and tag.is_integer())
    name = str(int(tag) if isinstance(tag, float) and whole else tag).strip()
    if not (whole or isinstance(tag, str)) or not name:
        raise ValueError(f"expected the name of a label, found {tag!r}")
    return name
