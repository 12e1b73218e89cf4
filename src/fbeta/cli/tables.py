"""Tables of any columns: labels, features and what else there is, for training and later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.cli.sources import words
from fbeta.datasets import DatasetError, TableEncoder
from fbeta.datasets.cells import is_gap, to_number
from fbeta.datasets.column_kinds import KINDS, Look, look_at
from fbeta.datasets.tabular import Table
from fbeta.datasets.tags import TagForm, find_tag_form, read_tags

Labels = NDArray[np.int8]


@dataclass(frozen=True)
class Choice:
    """What the user says of the columns of a training file."""

    label_columns: tuple[str, ...] = ()
    label_prefix: str | None = None
    label_column: str | None = None
    delimiter: str | None = None
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] | None = None  # by column, "id" among them

    def check(self, table: Table) -> None:
        """Raise where columns are named that are not there, or that are two things at once."""
        kinds = dict(self.kinds or {})
        wanted = [*self.label_columns, *([self.label_column] if self.label_column else [])]
        absent = [c for c in (*wanted, *self.drop, *kinds) if c not in table.header]
        if absent:
            raise DatasetError(
                f"{table.path}: has no column {words(absent)}; its columns are "
                f"{words(table.header, 20)}"
            )
        twice = [c for c in (*self.drop, *kinds) if c in wanted or (c in kinds and c in self.drop)]
        if twice:
            raise DatasetError(f"{table.path}: the options give {words(twice)} two uses")


def by_name(table: Table) -> dict[str, Any]:
    """Return the cells of the columns by their names."""
    return dict(zip(table.header, table.columns, strict=True))


def cells_of(table: Table, name: str) -> Any:
    """Return the cells of a column by name."""
    return by_name(table)[name]


def label_columns(table: Table, choice: Choice) -> list[str]:
    """Return the names of the columns that hold labels."""
    if choice.label_column is not None:
        return [choice.label_column]
    if choice.label_prefix is None:
        return list(choice.label_columns)
    found = [name for name in table.header if name.startswith(choice.label_prefix)]
    if not found:
        raise DatasetError(
            f"{table.path}: no column has a name that begins with {choice.label_prefix!r}; "
            f"its columns are {words(table.header, 20)}"
        )
    return found


def zero_one(table: Table, names: Sequence[str]) -> Labels:
    """Read label columns of 0 and 1; all that are something else are named together."""
    Y = np.zeros((len(table.columns[0]), len(names)), dtype=np.int8)
    bad, columns = [], by_name(table)
    for j, name in enumerate(names):
        numbers = [None if is_gap(cell) else to_number(cell) for cell in columns[name]]
        wrong = next((i for i, number in enumerate(numbers) if number not in (0.0, 1.0)), None)
        if wrong is None:
            Y[:, j] = np.array(numbers, dtype=np.int8)
        else:
            found = str(columns[name][wrong])[:40]
            bad.append(f"{name!r} ({place(table, wrong)}: {found!r})")
    if bad:
        raise DatasetError(f"{table.path}: expected 0 or 1 in the label columns {', '.join(bad)}")
    return Y


def place(table: Table, row: int) -> str:
    """Return words for where a row stands in its file."""
    where = table.place(row)
    return f"line {where}" if isinstance(where, int) else where


def tag_sets(table: Table, column: str, form: TagForm) -> list[list[str]]:
    """Read the tags of every row."""
    sets = []
    for row, cell in enumerate(cells_of(table, column)):
        try:
            sets.append(read_tags(cell, form))
        except ValueError as error:
            raise DatasetError(
                f"{table.path}, {place(table, row)}: expected {form} in {column!r}, "
                f"found {str(cell)[:60]!r} ({error})"
            ) from error
    return sets


def tag_form(table: Table, column: str, delimiter: str | None) -> TagForm:
    """Find how tags are written."""
    try:
        return find_tag_form(cells_of(table, column), delimiter)
    except ValueError as error:
        raise DatasetError(f"{table.path}: the column {column!r}: {error} (--delimiter)") from error


def indicator(sets: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[Labels, Counter[str]]:
    """Return 0/1 for label sets, and how often there are labels that have no column."""
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(sets), len(names)), dtype=np.int8)
    unseen: Counter[str] = Counter()
    for i, labels in enumerate(sets):
        unseen.update(label for label in set(labels) if label not in column)
        Y[i, [column[label] for label in labels if label in column]] = 1
    return Y, unseen


def looks_of(table: Table, choice: Choice, labels: Sequence[str]) -> list[Look]:
    """Look at the columns that are neither labels nor dropped; refuse all bad ones at once."""
    kinds, apart = dict(choice.kinds or {}), {*labels, *choice.drop}
    columns = {name: cells for name, cells in by_name(table).items() if name not in apart}
    looks = [look_at(name, cells, kinds.get(name)) for name, cells in columns.items()]
    bad = [f"{look.name!r} {look.note}" for look in looks if look.kind == "other"]
    if bad:
        raise DatasetError(f"{table.path}: columns that are no features: {', '.join(bad)} (--drop)")
    if not any(look.kind in KINDS for look in looks):
        seen = ", ".join(f"{look.name!r} ({look.kind})" for look in looks) or "none"
        raise DatasetError(
            f"{table.path}: no column is left for features; besides the labels there are: {seen}"
        )
    return looks


def cell_array(table: Table, names: Sequence[str]) -> NDArray[Any]:
    """Return the cells of some columns as an array of objects, of shape (n, c)."""
    X = np.empty((len(table.columns[0]), len(names)), dtype=object)
    columns = by_name(table)
    for j, name in enumerate(names):
        X[:, j] = [*columns[name]]
    return X


def check_cells(table: Table, encoder: TableEncoder, X: NDArray[Any], gaps: bool) -> None:
    """Raise where cells cannot be read, naming the first of each column in one message."""
    problems = encoder.problems([list(column) for column in X.T], gaps)
    if problems:
        found = "; ".join(
            f"column {name!r}, {place(table, row)}: {what}" for name, row, what in problems
        )
        hint = " (--missing mean fills gaps)" if gaps else ""
        raise DatasetError(f"{table.path}: {found}{hint}")
