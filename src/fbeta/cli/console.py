"""What commands print: tables, bars and one-line errors; plain text where nobody watches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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

# what steers a terminal or turns the direction of text: controls, bidirectional marks, separators
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class UserError(Exception):
    """Something that the user can mend; its message is one line."""

    def __init__(self, message: object) -> None:
        super().__init__(printable(" ".join(str(message).split())))


def printable(text: str) -> str:
    r"""Show what steers a terminal as text: names come from files, and files from anybody.

    Examples
    --------
    >>> print(printable("red \x1b[31m, end\n"))
    red \x1b[31m, end\n
    """
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo_data(text: str) -> None:
    """Print data as files have it, in UTF-8; on a terminal, with nothing in it that steers that."""
    if sys.stdout.isatty():
        encoding = sys.stdout.encoding or "utf-8"
        shown = "\n".join(map(printable, text.split("\n")))
        print(shown.encode(encoding, "backslashreplace").decode(encoding), end="")
        return
    sys.stdout.flush()
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    while left:
        # a stream without a buffer may write less than it is given, and would drop the rest
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.flush()


@contextmanager
def mendable() -> Iterator[None]:
    """Turn the errors that bad input raises into a :class:`UserError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file or folder") from error
    except BrokenPipeError:
        raise  # not of the input: who reads the output has gone
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise UserError(f"{where}{error.strerror or error}") from error
    except (ValueError, ImportError) as error:
        raise UserError(error) from error


def stderr(line: str) -> None:
    """Write a line to stderr, whatever its characters."""
    encoding = sys.stderr.encoding or "utf-8"
    text = printable(line).encode(encoding, "backslashreplace").decode(encoding)
    print(text, file=sys.stderr)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: Sequence[int] = (0,),
    err: bool = False,
) -> None:
    """Print a table: numbers, but for the columns of text, whose places are given."""
    table = Table()
    for place, column in enumerate(columns):
        justify: Any = "left" if place in texts else "right"
        table.add_column(escape(printable(column)), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    console = Console(stderr=err)
    if not console.is_terminal:
        # a pipe has no width: never cut a number because of a default
        width = console.measure(table, options=_unbounded(console)).maximum
        console = Console(width=width, stderr=err)
    console.print(printable(title), markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def _unbounded(console: Console) -> ConsoleOptions:
    return console.options.update(width=100_000)


@contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Progress]:
    """Show a bar with the count and the time left on stderr, if that is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
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
    )
    progress.add_task("", total=total)
    # where nobody watches it is not even started: at its end it would write an empty line
    with progress if console.is_terminal else nullcontext():
        yield progress


@contextmanager
def search_status() -> Iterator[Callable[[Any], None]]:
    """Show what a search tries, the best F so far and the time left, if stderr is a terminal."""
    console = Console(stderr=True)

    def tell(event: Any) -> None:
        if event.event == "stopped":
            stderr("fbeta: interrupted: the best average so far is kept; Ctrl-C again ends all")
        elif status is not None:
            status.update(printable(search_words(event)))

    if not console.is_terminal:
        status = None
        yield tell
        return
    with console.status("reading the rows") as status:
        yield tell


def search_words(event: Any) -> str:
    """Return a line on how far a search is.

    Examples
    --------
    >>> from fbeta.estimators.average import Progress
    >>> search_words(Progress("raw: sized", "begin", None, 0.71234, 12.0, 120.0))
    'raw: sized; best F so far 0.7123; 12 s, at most 108 s left'
    """
    words = "fitting the best to all rows" if event.event == "fit" else f"{event.name}"
    words += f"; best F so far {event.best:.4f}" if event.best is not None else ""
    words += f"; {event.elapsed:.0f} s"
    if event.limit is None:
        return words
    return f"{words}, at most {max(0.0, event.limit - event.elapsed):.0f} s left"


def print_tried(rows: Sequence[Mapping[str, Any]], *, err: bool = False) -> None:
    """Print what a search has tried, and what has a weight in its average."""
    shown = [
        [
            str(row["name"]),
            f"{row['score']:.4f}",
            f"{row['seconds']:.1f}",
            f"{row['weight']:.2f}" if row["weight"] else "",
        ]
        for row in rows
    ]
    head = ["features: model", "F", "seconds", "weight"]
    print_table("What was tried, by cross-validation", head, shown, err=err)
