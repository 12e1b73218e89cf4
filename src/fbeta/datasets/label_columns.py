"""Where the labels of a table are, and how they are written."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta.datasets.cells import Cells, is_arrow, is_gap, is_list, missing, numbers, without_gaps
from fbeta.datasets.dataset import Labels
from fbeta.datasets.files import DatasetError, PathLike, fail, quoted

__all__ = ["DELIMITERS", "LabelColumns", "TableLabels", "TagForm", "find_tag_form", "read_tags"]

#: What is looked for between tags where the user does not say.
DELIMITERS = (";", "|", ",", "\t")
_MAX_LIST_CHARACTERS = 1_000_000
_YES, _NO = ("yes", "y", "x", "on", "t", "\u2713", "\u2714"), ("no", "n", "off", "f")


@dataclass(frozen=True)
class TagForm:
    """How the tags of a cell are written: as a list, or with a delimiter between them."""

    is_list: bool = False
    delimiter: str = ";"

    def __post_init__(self) -> None:
        if not isinstance(self.delimiter, str) or not self.delimiter:
            raise ValueError("the delimiter of tags must not be empty")

    def __str__(self) -> str:
        return (
            "lists of label names"
            if self.is_list
            else (f"label names separated by {self.delimiter!r}")
        )


def find_tag_form(cells: Iterable[Any], delimiter: str | None = None) -> TagForm:
    """Find how the tags of a column are written.

    Parameters
    ----------
    cells : iterable
        Of the column.
    delimiter : str, optional
        What is between the tags, where the user says so.

    Returns
    -------
    TagForm

    Raises
    ------
    ValueError
        If several would do, with what was seen.

    Examples
    --------
    >>> find_tag_form(["sea, sky", "", "sun"])
    TagForm(is_list=False, delimiter=',')
    >>> find_tag_form(["['sea', 'sky']", "[]"]).is_list
    True
    >>> find_tag_form(["sea; sky", "sun, sky"])
    Traceback (most recent call last):
    ...
    ValueError: found ';' in 1 cells and ',' in 1 cells: say which is between the names
    """
    if delimiter is not None:
        return TagForm(delimiter=delimiter)
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and not is_gap(cell)]
    lists = sum(_is_list_text(text) for text in texts)
    if lists:
        if lists < len(texts):
            other = next(text for text in texts if not _is_list_text(text))
            raise ValueError(
                f"found lists in {lists} cells and other text in {len(texts) - lists}, "
                f"such as {other[:40]!r}"
            )
        return TagForm(is_list=True)
    seen = {d: sum(d in text for text in texts) for d in DELIMITERS}
    seen = {d: count for d, count in seen.items() if count}
    if len(seen) > 1:
        words = " and ".join(f"{d!r} in {count} cells" for d, count in seen.items())
        raise ValueError(f"found {words}: say which is between the names")
    return TagForm(delimiter=next(iter(seen), DELIMITERS[0]))


def read_tags(cell: Any, form: TagForm) -> list[str]:
    """Return the names of the tags in a cell.

    Raises ``ValueError`` where the cell is not written like that.

    Examples
    --------
    >>> read_tags("sea; sky;", TagForm()), read_tags('["sea", 7]', TagForm(is_list=True))
    (['sea', 'sky'], ['sea', '7'])
    """
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, list | tuple | set | frozenset):
        return [_name(tag) for tag in cell]
    if cell is None or cell != cell or (isinstance(cell, str) and not cell.strip()):
        return []
    if not isinstance(cell, str):
        return [_name(cell)]
    if form.is_list or _is_list_text(cell.strip()):
        return [_name(tag) for tag in _parse_list(cell.strip())]
    names = [name.strip() for name in cell.split(form.delimiter)]
    # a delimiter at either end is a habit of some programs; one in between is a mistake
    while names and not names[-1]:
        names.pop()
    names = names[1:] if names and not names[0] else names
    return [_name(name) for name in names]


def _is_list_text(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def _parse_list(text: str) -> list[Any]:
    if len(text) > _MAX_LIST_CHARACTERS:
        raise ValueError(f"a list of more than {_MAX_LIST_CHARACTERS} characters")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            # of Python, as str() of a list writes it; only literals
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError("not a list of names") from error
    if not isinstance(found, list):
        raise ValueError("not a list of names")
    return found


def _name(tag: Any) -> str:
    whole = isinstance(tag, int | np.integer) and not isinstance(tag, bool)
    whole = whole or (isinstance(tag, float) and tag.is_integer())
    name = str(int(tag) if isinstance(tag, float) and whole else tag).strip()
    if not (whole or isinstance(tag, str)) or not name:
        raise ValueError(f"expected the name of a label, found {tag!r}")
    return name


@dataclass(frozen=True)
class TableLabels:
    """Labels of a table.

    Attributes
    ----------
    Y : int8 ndarray of shape (n, s)
    names : tuple of str, length s
    form : TagForm or None
        Of a column of tags.
    unknown : mapping from str to int
        How many rows have a label that is not among those that may occur.
    extra : int8 ndarray of shape (n, len(unknown))
        Where these are.
    notes : tuple of str
        What a user should know.
    """

    Y: Labels
    names: tuple[str, ...]
    form: TagForm | None = None
    unknown: Mapping[str, int] = field(default_factory=dict)
    extra: Any = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelColumns:
    """Where the labels of a table are: 0/1 columns by name or prefix, or one column of tags.

    Attributes
    ----------
    columns : sequence of str, optional
        Names of 0/1 columns.
    prefix : str, optional
        What the names of 0/1 columns begin with.
    column : str, optional
        The column that lists the labels of each row by name.
    delimiter : str, optional
        What separates the names in ``column``; inferred by default.
    names : sequence of str, optional
        The labels that may occur in ``column``; by default those that do, sorted.
    words : bool
        Whether ``yes``, ``x`` and blanks are read in 0/1 columns, and ``NA`` is no tag.
    join : bool
        Whether tags that differ in case or blanks only are one label.
    """

    columns: Sequence[str] | None = None
    prefix: str | None = None
    column: str | None = None
    delimiter: str | None = None
    names: Sequence[str] | None = None
    words: bool = True
    join: bool = False

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
            if not found:
                expected = f"a column whose name begins with {self.prefix!r}"
                raise DatasetError(f"{fail(path, None, expected)}, found {quoted(header, 20)}")
            return found
        wanted = list(self.columns or ()) if self.column is None else [self.column]
        for name in wanted:
            if name not in header:
                expected = f"a label column {name!r}"
                raise DatasetError(f"{fail(path, None, expected)}, found {quoted(header, 20)}")
        return wanted

    def read(self, table: Any, known: Sequence[str] | None = None) -> TableLabels:
        """Read the labels of a table; ``known`` are those of a model, others are counted apart."""
        if self.column is not None:
            return self._tags(table, known)
        columns = self.find(table.header, table.path)
        Y, notes = _zero_one(table, columns, self.words)
        if known is None:
            return TableLabels(Y, tuple(columns), notes=notes)
        place = {name: j for j, name in enumerate(columns)}
        others = [name for name in columns if name not in set(known) and Y[:, place[name]].any()]
        extra = Y[:, [place[name] for name in others]]
        counts = dict(zip(others, extra.sum(axis=0, dtype=int).tolist(), strict=True))
        own = Y[:, [place[name] for name in known]]
        return TableLabels(own, tuple(known), None, counts, extra, notes)

    def sets(self, table: Any) -> list[list[str]]:
        """Return the names of the labels of each row of a column of tags."""
        self.find(table.header, table.path)
        tags, _ = self._lists(table, table.columns[self.column])
        names = np.array([*tags.names, ""], dtype=object)[tags.codes]
        ends = np.cumsum(np.bincount(tags.rows, minlength=tags.n_rows))
        return [part.tolist() for part in np.split(names, ends[:-1])]

    def _tags(self, table: Any, known: Sequence[str] | None) -> TableLabels:
        assert self.column is not None
        self.find(table.header, table.path)
        lists, form = self._lists(table, table.columns[self.column])
        tags, notes = _joined(lists, self.join)
        names = self.names if known is None else known
        if names is None:
            names = sorted(set(tags.names))
        if not names:
            raise fail(table.path, None, f"at least one label in the column {self.column!r}")
        if self.names is not None and known is None:
            self._refuse_others(table, tags)
        Y, counts, extra = tags.indicator(names)
        return TableLabels(Y, tuple(names), form, counts, extra, notes)

    def _refuse_others(self, table: Any, tags: Tags) -> None:
        allowed = np.isin(np.array(tags.names, dtype=object), np.array(self.names, dtype=object))
        bad = np.flatnonzero(~allowed[tags.codes]) if tags.codes.size else np.zeros(0, int)
        if bad.size:
            place = table.place(int(tags.rows[bad[0]]))
            found = tags.names[tags.codes[bad[0]]]
            raise fail(table.path, place, f"labels among {list(self.names or ())}", found)

    def _lists(self, table: Any, cells: Cells) -> tuple[Tags, TagForm]:
        """Return the tags of all rows, each distinct cell being parsed once."""
        if is_list(cells):
            return Tags.of_lists(table, self.column or "", cells), TagForm(True)
        values: list[Any] = cells.tolist() if isinstance(cells, np.ndarray) else list(cells)
        index = np.arange(len(values))
        if is_arrow(cells):
            # what stands for a missing value elsewhere may be the name of a label
            coded = (without_gaps(cells) if self.words else cells).dictionary_encode()
            values = [*coded.dictionary.to_pylist(), None]
            index = np.asarray(coded.indices.fill_null(len(values) - 1))
        try:
            form = find_tag_form(values if self.delimiter is None else (), self.delimiter)
        except ValueError as error:
            raise DatasetError(
                f"{table.path}: the column {self.column!r}: {error} (--delimiter)"
            ) from error
        parsed: list[list[str]] = []
        for place, value in enumerate(values):
            try:
                parsed.append(read_tags(value, form))
            except ValueError as error:
                row = int(np.argmax(index == place))
                found = fail(table.path, table.place(row), f"{form} in {self.column!r}", value)
                raise DatasetError(f"{found} ({error})") from error
        return Tags.of(parsed, index), form


@dataclass(frozen=True)
class Tags:
    """Tags of rows: for each tag its row, and its place among the names."""

    rows: NDArray[np.intp]
    codes: NDArray[np.intp]
    names: list[str]
    n_rows: int

    @classmethod
    def of(cls, parsed: list[list[str]], index: NDArray[Any]) -> Tags:
        """Gather lists of names; row i has the list ``parsed[index[i]]``."""
        codes: dict[str, int] = {}
        flat = [codes.setdefault(name, len(codes)) for names in parsed for name in names]
        sizes = np.array([len(names) for names in parsed], dtype=np.intp)
        begins = np.concatenate([[0], np.cumsum(sizes)])[:-1]
        counts = sizes[index]
        rows = np.repeat(np.arange(len(index)), counts)
        starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        within = np.arange(rows.size) - np.repeat(starts, counts)
        return cls(
            rows,
            np.array(flat, dtype=np.intp)[begins[index][rows] + within],
            list(codes),
            len(index),
        )

    @classmethod
    def of_lists(cls, table: Any, column: str, cells: Any) -> Tags:
        """Gather the tags of an Arrow array of lists."""
        compute = optional_import("pyarrow.compute", "data", "reading tables")
        names = compute.utf8_trim_whitespace(cells.flatten())
        rows = np.asarray(compute.list_parent_indices(cells), dtype=np.intp)
        blank = np.flatnonzero(np.asarray(compute.fill_null(compute.equal(names, ""), True)))
        if blank.size:
            place = table.place(int(rows[blank[0]]))
            raise fail(table.path, place, f"lists of label names in {column!r}", "an empty name")
        coded = names.dictionary_encode()
        codes = np.asarray(coded.indices, dtype=np.intp)
        return cls(rows, codes, coded.dictionary.to_pylist(), len(cells))

    def indicator(self, names: Sequence[str]) -> tuple[Labels, dict[str, int], Labels]:
        """Return 0/1 for some names, and the counts and 0/1 of all others."""
        others = sorted(set(self.names) - set(names))
        place = {name: j for j, name in enumerate([*names, *others])}
        found = np.zeros((self.n_rows, len(place)), dtype=np.int8)
        columns = np.array([place[name] for name in self.names], dtype=np.intp)
        if self.codes.size:
            found[self.rows, columns[self.codes]] = 1
        Y, extra = found[:, : len(names)], found[:, len(names) :]
        counts = dict(zip(others, extra.sum(axis=0, dtype=int).tolist(), strict=True))
        counts = {name: count for name, count in counts.items() if count}
        return np.ascontiguousarray(Y), counts, extra[:, [others.index(name) for name in counts]]


def _joined(tags: Tags, join: bool) -> tuple[Tags, tuple[str, ...]]:
    """Find names that differ in case or blanks only, and join them if wanted."""
    counts = Counter(dict.fromkeys(tags.names, 0))
    counts.update(
        dict(
            zip(
                tags.names, np.bincount(tags.codes, minlength=len(tags.names)).tolist(), strict=True
            )
        )
        if tags.names
        else {}
    )
    groups: dict[str, list[str]] = {}
    for name, _ in counts.most_common():
        groups.setdefault(" ".join(name.split()).casefold(), []).append(name)
    twins = [group for group in groups.values() if len(group) > 1]
    if not twins:
        return tags, ()
    shown = "; ".join(
        " and ".join(f"{name!r} ({counts[name]})" for name in group) for group in twins[:5]
    )
    what = "are joined" if join else "are different labels (--join-labels makes them one)"
    notes = (f"Labels that differ in case or blanks only {what}: {shown}",)
    if not join:
        return tags, notes
    first = {name: group[0] for group in groups.values() for name in group}
    names = [group[0] for group in groups.values()]
    place = np.array([names.index(first[name]) for name in tags.names], dtype=np.intp)
    return Tags(tags.rows, place[tags.codes], names, tags.n_rows), notes


def _zero_one(table: Any, names: Sequence[str], words: bool) -> tuple[Labels, tuple[str, ...]]:
    """Read 0/1 columns, of shape (n, len(names)); the first bad cell is named."""
    Y = np.zeros((table.n_rows, len(names)), dtype=np.int8)
    bad: dict[str, int] = {}
    blanks = 0
    for j, name in enumerate(names):
        cells = table.columns[name]
        values, gaps = numbers(cells, plain=True), missing(cells)
        if words and is_arrow(cells) and not is_list(cells):
            compute = optional_import("pyarrow.compute", "data", "reading tables")
            lower = compute.utf8_lower(without_gaps(cells))
            for value, known in ((1.0, _YES), (0.0, _NO)):
                values[np.asarray(compute.is_in(lower, value_set=_strings(known)))] = value
        if words and gaps.any() and not (values == 0).any():
            # where only what is there is marked, a blank is the answer no
            values[gaps] = 0
            blanks += int(gaps.sum())
        wrong = np.flatnonzero((values != 0) & (values != 1))
        if wrong.size:
            bad[name] = int(wrong[0])
        else:
            Y[:, j] = values
    if bad:
        name, row = next(iter(bad.items()))
        found = table.columns[name][row : row + 1]
        cell = found.to_pylist()[0] if is_arrow(found) else next(iter(found))
        cell = "a missing value" if is_gap(cell) else cell
        also = f" (and in {quoted(list(bad)[1:])})" if len(bad) > 1 else ""
        expected = f"0 or 1 in label column {name!r}{also}"
        raise fail(table.path, table.place(row), expected, cell)
    notes = (f"{blanks:,} blank cells of the label columns count as 0",) if blanks else ()
    return Y, notes


def _strings(words: Sequence[str]) -> Any:
    return optional_import("pyarrow", "data", "reading tables").array(words)
