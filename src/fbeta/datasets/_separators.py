"""The cells of a text file, and what is between them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from fbeta.datasets._common import PathLike, fail

SEPARATORS = (",", ";", "\t", "|")
# the first line of files for Excel
_HINT = re.compile(r"sep=(.)")
_SAMPLE = 200


def guess_separator(text: Sequence[str]) -> str:
    """Tell the separator of a CSV file: the one with which most lines have as many cells.

    Examples
    --------
    >>> guess_separator(["size;note", "1,5;a, b", "2,5;c, d"])
    ';'
    """
    hint = _HINT.fullmatch(text[0]) if text else None
    if hint:
        return hint[1]
    sample = [line for line in text[:_SAMPLE] if line.strip()]

    def agreement(sep: str) -> tuple[float, int]:
        try:
            rows = csv.reader((line + "\n" for line in sample), delimiter=sep)
            widths = Counter(len(row) for row in rows)
        except csv.Error:
            return 0.0, 0
        if not widths:
            return 0.0, 0
        width, count = widths.most_common(1)[0]
        return (count / widths.total(), width) if width > 1 else (0.0, 0)

    return max(SEPARATORS, key=agreement)


def split_rows(
    path: PathLike, text: list[str], sep: str, least: int
) -> tuple[list[str], list[list[str]], list[int]]:
    """Split the text into the header and the rows, with the line of every row."""
    if text and _HINT.fullmatch(text[0]):
        # blank, so that lines keep their numbers
        text = ["", *text[1:]]
    reader = csv.reader((line + "\n" for line in text), delimiter=sep, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            # a blank line; where there is one column, it may be an empty cell in quotes
            if not row or (not "".join(row).strip() and len(row) < 2 and len(header) != 1):
                pass
            elif not header:
                header = [column.strip() for column in row]
            elif len(row) != len(header):
                raise fail(path, start, f"{len(header)} cells", row)
            else:
                rows.append(row)
                lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise fail(path, start, f"cells separated by {sep!r}", str(error)) from error
    if len(header) < least:
        most = "two or more names" if least > 1 else "names"
        raise fail(path, 1, f"a header of {most} separated by {sep!r}", header)
    if not rows:
        raise fail(path, len(text), "at least one row after the header")
    return header, rows, lines
