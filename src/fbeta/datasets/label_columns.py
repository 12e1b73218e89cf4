"""Where the labels of a table are, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fbeta._array import optional_import
from fbeta.datasets.cells import Cells, is_arrow, is_gap, is_list, missing, numbers, without_gaps
from fbeta.datasets.dataset import Labels
from fbeta.datasets.files import DatasetError, PathLike, fail, quoted
from fbeta.datasets.tags import TagForm, Tags, find_tag_form, joined_tags, read_tags

__all__ = ["LabelColumns", "TableLabels"]

_YES, _NO = ("yes", "y", "x", "on", "t", "\u2713", "\u2714"), ("no", "n", "off", "f")


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
        tags, notes = joined_tags(lists, self.join)
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
