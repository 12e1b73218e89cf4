"""Lists of tags in one cell: how they are written, and their names."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta.datasets.cells import is_gap

__all__ = ["DELIMITERS", "TagForm", "find_tag_form", "read_tags"]

#: What is looked for between tags where nobody says.
DELIMITERS = (";", "|", ",", "\t")
_LONGEST = 1_000_000


@dataclass(frozen=True)
class TagForm:
    """How the tags of a cell are written: as a list, or with a delimiter between them."""

    is_list: bool = False
    delimiter: str = ";"

    def __post_init__(self) -> None:
        if not isinstance(self.delimiter, str) or not self.delimiter:
            raise ValueError("the delimiter of tags must not be empty")

    def __str__(self) -> str:
        return "lists" if self.is_list else f"names separated by {self.delimiter!r}"


def find_tag_form(cells: Sequence[Any], delimiter: str | None = None) -> TagForm:
    """Find how the tags of a column are written.

    Parameters
    ----------
    cells : sequence
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
    lists = sum(_looks_like_list(text) for text in texts)
    if lists:
        if lists < len(texts):
            other = next(text for text in texts if not _looks_like_list(text))
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
    if is_gap(cell):
        return []
    if not isinstance(cell, str):
        return [_name(cell)]
    if form.is_list or _looks_like_list(cell.strip()):
        return [_name(tag) for tag in _parse_list(cell.strip())]
    names = [name.strip() for name in cell.split(form.delimiter)]
    # a delimiter at either end is a habit of some programs; one in between is a mistake
    while names and not names[-1]:
        names.pop()
    names = names[1:] if names and not names[0] else names
    return [_name(name) for name in names]


def _looks_like_list(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def _parse_list(text: str) -> list[Any]:
    if len(text) > _LONGEST:
        raise ValueError(f"a list of more than {_LONGEST} characters")
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
    name = str(tag).strip() if whole or isinstance(tag, str) else ""
    if not name:
        raise ValueError(f"expected the name of a label, found {tag!r}")
    return name
