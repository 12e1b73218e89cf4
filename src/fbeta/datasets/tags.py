"""Tags in cells: lists of label names, and how they are written."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta.datasets.cells import is_gap
from fbeta.datasets.dataset import Labels
from fbeta.datasets.files import fail

__all__ = ["DELIMITERS", "TagForm", "Tags", "find_tag_form", "joined_tags", "read_tags"]

#: What is looked for between tags where the user does not say.
DELIMITERS = (";", "|", ",", "\t")
_MAX_LIST_CHARACTERS = 1_000_000


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


def joined_tags(tags: Tags, join: bool) -> tuple[Tags, tuple[str, ...]]:
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
