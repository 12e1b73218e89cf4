"""Columns written as CSV, TSV, JSON Lines, Parquet or Excel files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbeta._array import optional_import
from fbeta._files import to_csv, write_atomically, write_text
from fbeta.datasets.cells import Cells, is_arrow, is_gap

__all__ = ["OUTPUT_FORMATS", "plain_values", "save_table", "table_text"]

#: Formats by suffix.
OUTPUT_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
}
Columns = Mapping[str, Sequence[Any]]
# leading zeros are part of a name, not of a number
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?", re.ASCII)


def plain_values(cells: Cells, typed: bool) -> list[Any]:
    """Return cells as values of Python; text that holds numbers only as numbers if ``typed``."""
    values = cells.to_pylist() if is_arrow(cells) else list(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        values = [str(value.astype("datetime64[s]")).removesuffix("T00:00:00") for value in cells]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not typed and is_arrow(cells):
        return values
    values = [None if isinstance(v, str | float) and is_gap(v) else v for v in values]
    known = [value for value in values if value is not None]
    if known and all(isinstance(v, str) and _NUMBER.fullmatch(v.strip()) for v in known):
        read = int if all("." not in value for value in known) else float
        return [None if value is None else read(value) for value in values]
    if known and all(isinstance(v, float) and v.is_integer() for v in known):
        return [None if value is None else int(value) for value in values]
    kinds = {type(value) for value in known}
    if len(kinds) < 2 and kinds <= {str, int, float, bool, list}:
        return values
    return [None if value is None else str(value) for value in values]


def table_text(columns: Columns, kind: str, *, delimiter: str = ";", safe: bool = False) -> str:
    """Return columns as text: ``"csv"``, ``"tsv"``, ``"jsonl"`` or ``"json"``."""
    if kind in ("csv", "tsv"):
        rows = zip(*_joined(columns, delimiter).values(), strict=True)
        return to_csv([list(columns), *rows], sep="\t" if kind == "tsv" else ",", safe=safe)
    found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "json":
        return json.dumps(found) + "\n"
    return "".join(json.dumps(row) + "\n" for row in found)


def _joined(columns: Columns, delimiter: str) -> Columns:
    """Return columns with text in place of lists."""
    return {
        name: [delimiter.join(v) if isinstance(v, list) else v for v in values]
        for name, values in columns.items()
    }


def save_table(
    path: Path, columns: Columns, kind: str, *, delimiter: str = ";", safe: bool = False
) -> None:
    """Write columns to a file, whole or not at all."""
    if kind == "parquet":
        arrow = optional_import("pyarrow", "data", "writing Parquet files")
        parquet = optional_import("pyarrow.parquet", "data", "writing Parquet files")
        with write_atomically(path) as part:
            parquet.write_table(arrow.table(dict(columns)), part)
    elif kind == "xlsx":
        _save_excel(path, _joined(columns, delimiter))
    else:
        write_text(path, table_text(columns, kind, delimiter=delimiter, safe=safe))


def _save_excel(path: Path, columns: Columns) -> None:
    openpyxl = optional_import("openpyxl", "data", "writing Excel files")
    cells = optional_import("openpyxl.cell", "data", "writing Excel files")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    illegal = cells.cell.ILLEGAL_CHARACTERS_RE

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        made = cells.WriteOnlyCell(sheet, illegal.sub("", value))
        made.data_type = "s"  # text stays text: a formula would be run
        return made

    sheet.append([cell(name) for name in columns])
    for row in zip(*columns.values(), strict=True):
        sheet.append([cell(value) for value in row])
    with write_atomically(path) as part:
        book.save(part)
