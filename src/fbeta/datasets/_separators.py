"""What is between the cells of a text file."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

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


def skip_hint(text: list[str]) -> list[str]:
    """Blank the line that names the separator, so that lines keep their numbers."""
    return ["", *text[1:]] if text and _HINT.fullmatch(text[0]) else text
