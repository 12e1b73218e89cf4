"""JSON Lines: one object for each row, with a list of tags or 0/1 fields."""

from __future__ import annotations

import json
from typing import Any

from fbeta.datasets._common import PathLike, fail, read_lines
from fbeta.datasets.tabular import Table

__all__ = ["scan_jsonl"]


def scan_jsonl(path: PathLike, *, encoding: str | None = "utf-8") -> Table:
    r"""Read the columns of a file of JSON Lines, whatever they hold.

    Parameters
    ----------
    path : path
        File with an object on each line. A field that an object lacks is a missing value.
    encoding : str or None
        Text encoding of the file; None for what it looks like.

    Returns
    -------
    Table
        Its columns are in the order in which the fields come up.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.jsonl")
    ...     _ = file.write_text('{"size": 1, "tags": ["sea"]}\n{"tags": [], "age": 2}\n')
    ...     table = scan_jsonl(file)
    >>> table.header, table.columns
    (['size', 'tags', 'age'], [[1, None], [['sea'], []], [None, 2]])
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(read_lines(path, encoding), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fail(path, number, "a JSON object", line) from error
        if not isinstance(row, dict):
            raise fail(path, number, "a JSON object", line)
        rows.append(row)
        lines.append(number)
    header = list(dict.fromkeys(key for row in rows for key in row))
    if not header:
        raise fail(path, None, "at least one object with a field")
    columns: list[Any] = [[row.get(key) for row in rows] for key in header]
    return Table(path, header, columns, lines.__getitem__)
