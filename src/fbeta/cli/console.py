"""What commands print: tables, progress and single lines; plain text where nobody watches."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

# what steers a terminal or turns the direction of text: controls, bidirectional marks, separators
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
#: Rows of a table that are printed: more would scroll the rest away.
MAX_ROWS_SHOWN = 40
_UNBOUNDED_WIDTH = 100_000  # characters; a pipe has no width


def printable(text: str) -> str:
    """Show what steers a terminal as text: names come from files, and files from anybody."""
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
        # never cut a number because of a default width
        unbounded = console.options.update(width=_UNBOUNDED_WIDTH)
        console = Console(width=console.measure(table, options=unbounded).maximum, stderr=err)
    console.print(printable(title), markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def first_of(count: int) -> str:
    """Return what a title says where a table has more rows than are printed."""
    return f" (the first {MAX_ROWS_SHOWN} of {count:,})" if count > MAX_ROWS_SHOWN else ""


@contextmanager
def progress_bar(total: int, unit: str) -> Iterator[Progress]:
    """Show a bar with the count and the time left on stderr, if that is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        TextColumn(unit),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    progress.add_task("", total=total)
    # where nobody watches it is not even started: at its end it would write an empty line
    with progress if console.is_terminal else nullcontext():
        yield progress


@contextmanager
def status_line(first: str) -> Iterator[Callable[[str], None]]:
    """Yield what shows one line of text on stderr in place of the last, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: None
        return
    with console.status(first) as status:
        yield lambda line: status.update(printable(line))


def search_words(event: Any) -> str:
    """Return a line on how far a search is."""
    words = "fitting the best to all rows" if event.event == "fit" else f"{event.name}"
    words += f"; best F so far {event.best:.4f}" if event.best is not None else ""
    words += f"; {event.elapsed:.0f} s"
    if event.limit is None:
        return words
    return f"{words}, at most {max(0.0, event.limit - event.elapsed):.0f} s left"


def pass_words(news: Mapping[str, Any], seconds: float) -> str:
    """Return a line on how far a fit to blocks of rows is."""
    words = f"pass {news['passes'] + 1}"
    if not news["n_rows"]:
        return f"{words}, {news['rows']} rows"
    share = news["rows"] / news["n_rows"]
    left = seconds / (news["passes"] + share) * (1 - share)
    still = f"; {news['open']} problems open" if news["open"] else ""
    return f"{words}, {100 * share:.0f} %{still}; {left:.0f} s left in this pass"
