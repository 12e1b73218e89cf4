"""What commands print: tables, bars and one-line errors; plain text where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table


class UserError(Exception):
    """Something that the user can mend; its message is one line."""

    def __init__(self, message: object) -> None:
        super().__init__(" ".join(str(message).split()))


@contextmanager
def mendable() -> Iterator[None]:
    """Turn the errors that bad input raises into a :class:`UserError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file or folder") from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise UserError(f"{where}{error.strerror or error}") from error
    except (ValueError, ImportError) as error:
        raise UserError(error) from error


def stderr(line: str) -> None:
    """Write a line to stderr, whatever its characters."""
    encoding = sys.stderr.encoding or "utf-8"
    text = line.encode(encoding, "backslashreplace").decode(encoding)
    print(text, file=sys.stderr)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    table = Table()
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    if not console.is_terminal:
        # a pipe has no width: never cut a number because of a default
        console = Console(width=console.measure(table, options=_unbounded(console)).maximum)
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def _unbounded(console: Console) -> ConsoleOptions:
    return console.options.update(width=100_000)


@contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Progress]:
    """Show a bar with the count and the time left on stderr, if that is a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        progress.add_task("", total=total)
        yield progress


def print_tried(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what a search has tried, and what has a weight in its average."""
    shown = [
        [
            str(row["name"]), f"{row['score']:.4f}", f"{row['seconds']:.1f}",
            f"{row['weight']:.2f}" if row["weight"] else "",
        ]
        for row in rows
    ]  # fmt: skip
    head = ["features: model", "F", "seconds", "weight"]
    print_table("What was tried, by cross-validation", head, shown)
