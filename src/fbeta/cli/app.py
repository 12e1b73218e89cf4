"""The application: its commands, what they print, and what becomes of errors."""

from __future__ import annotations

import errno
import importlib
import inspect
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from operator import itemgetter
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from fbeta import __version__
from fbeta.cli import version_line

# what steers a terminal or turns the direction of text: controls, bidirectional marks, separators
_HARMFUL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
#: Rows of a table that are printed: more would scroll the rest away.
MAX_ROWS_SHOWN = 40
_INTERRUPTED = 130  # exit status
_UNBOUNDED_WIDTH = 100_000  # characters; a pipe has no width
# commands in the order of the help, with the first lines of their help
COMMANDS = {
    "fit": "Fit a model to labelled data and store it.",
    "predict": "Predict the label sets of new data.",
    "evaluate": "Measure predictions on labelled data; 0/0 counts as 1 in every measure.",
    "decode": "Decode label sets from lists of scores of another tool.",
    "explain": "Show which features speak for each label: words, categories and numbers.",
    "export": "Write a model with its exact decode as an ONNX graph.",
    "compare": "Fit several methods to one file, rank them by its folds, "
    "and measure them on another.",
    "demo": "Watch F_1 converge to the Bayes optimum, and fit a table of text and tags.",
    "reproduce": "Run the experiments of the paper, and draw their tables and figures.",
}
# commands that are not in a module of their own name
MODULES = dict.fromkeys(("predict", "evaluate", "explain", "export"), "models")
MODULES |= {"compare": "fit", "demo": "reproduce"}


class CommandGroup(TyperGroup):
    """The commands, of which only the one that is run is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; before it is loaded, one that has no more than its help."""
        if cmd_name in self.commands or cmd_name not in COMMANDS:
            return self.commands.get(cmd_name)
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is to be run."""
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}
        self.commands |= load_commands(name for name in args[:1] if name in COMMANDS)
        return super().resolve_command(ctx, args)


def load_commands(names: Iterable[str] = COMMANDS) -> dict[str, Any]:
    """Import the modules of some commands; return all commands that are there, in their order."""
    for name in names:
        importlib.import_module(f"fbeta.cli.{MODULES.get(name, name)}")
    found = typer.main.get_group(app).commands
    return {name: found[name] for name in COMMANDS if name in found}


app = typer.Typer(
    name="fbeta",
    cls=CommandGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Multi-label classification that is optimal for the F_beta-measure.",
)


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands where none was chosen: a question, not a mistake."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


_VERSION = typer.Option(False, "--version", help="Show version.")


@app.callback()
def _root(context: typer.Context, version: bool = _VERSION) -> None:
    if version:
        typer.echo(version_line())
        raise typer.Exit
    show_help(context)


def _options_of(
    function: Callable[..., Any],
) -> tuple[dict[str, inspect.Parameter], Callable[[dict[str, Any]], Any]]:
    """Return the options of a function or dataclass, and what calls it with their values.

    A parameter whose default is a function, or whose type is a dataclass, is made by that, of the
    options that the function or dataclass has in turn.
    """
    shown: dict[str, inspect.Parameter] = {}
    parts: dict[str, Callable[[dict[str, Any]], Any]] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        make: Any = parameter.default
        if not inspect.isfunction(make):
            make = parameter.annotation if is_dataclass(parameter.annotation) else None
        more, parts[name] = _options_of(make) if make else ({name: parameter}, itemgetter(name))
        shown |= more
    return shown, lambda values: function(**{name: of(values) for name, of in parts.items()})


def command(
    example: str, group: typer.Typer = app, without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command with an example; options in ``without`` have their defaults."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        shown, call = _options_of(function)
        fixed = {name: shown.pop(name).default.default for name in without}

        def run(**values: Any) -> None:
            call(values | fixed)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        # by name only, as typer passes them: then those without a default may come later
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown.values()]
        run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        group.command(epilog=f"Example: [bold]{example}[/bold]")(run)
        return function

    return register


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the application on arguments, by default those of the process; return 0, 1, 2 or 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # names of any script in a terminal of any
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ending_on_signals(arguments is None):
            code: Any = app(
                args=None if arguments is None else list(arguments),
                prog_name="fbeta",
                standalone_mode=False,
            )
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        ended = isinstance(error, SystemExit) and error.code == _INTERRUPTED
        if ended or isinstance(error, KeyboardInterrupt | typer.Abort):
            stderr("fbeta: interrupted")
            return _INTERRUPTED
        # typer brings its own copy of click or uses the installed one: know its errors by shape
        message = getattr(error, "format_message", None)
        words = _error_text(error) if message is None else message()
        if words is None:
            traceback.print_exc()
            stderr(f"fbeta: this is a bug in fbeta {__version__}; please report the lines above")
            return 1
        stderr(f"fbeta: {' '.join(words.split())}")
        _let_go_of_stdout()
        return int(getattr(error, "exit_code", 2))
    return code if isinstance(code, int) else 0


def _error_text(error: BaseException) -> str | None:
    """Return one line on what is wrong with the input or the machine; None for a bug."""
    if isinstance(error, BrokenPipeError | SystemExit):
        # typer and rich exit when the reader of their output has gone
        return "the reader of the output has gone (broken pipe)"
    if isinstance(error, BrokenExecutor):
        return "a worker was killed, as happens when memory runs out: fewer --jobs need less"
    # a library cannot be loaded where there is no memory for it
    if isinstance(error, MemoryError) or "failed to map segment" in str(error):
        return f"out of memory{f': {error}' if str(error) else ''}"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        if isinstance(error, FileNotFoundError) and where:
            return f"{where}no such file or folder"
        if not where and error.errno == errno.ENOSPC:
            where = "the standard output: "  # files are named by the functions that write them
        return f"{where}{error.strerror or error}"
    return str(error) if isinstance(error, ValueError | ImportError) else None


def _let_go_of_stdout() -> None:
    """Drop what cannot be printed: Python would try once more at the end, and complain."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _ending_on_signals(wanted: bool) -> Iterator[None]:
    """End at a signal, so that temporary files are removed; a search keeps nothing then."""

    def end(number: int, frame: Any) -> None:
        sys.exit(_INTERRUPTED)

    numbers = [getattr(signal, n) for n in ("SIGTERM", "SIGHUP") if wanted and hasattr(signal, n)]
    before = {n: signal.signal(n, end) for n in numbers if signal.getsignal(n) == signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def printable(text: str) -> str:
    """Show what steers a terminal as text: names come from files, and files from anybody."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def echo_data(text: str) -> None:
    """Print data as files have it, in UTF-8; on a terminal, with nothing in it that steers that."""
    if sys.stdout.isatty():
        print("\n".join(map(printable, text.split("\n"))), end="")
        return
    sys.stdout.flush()
    left = memoryview(text.encode("utf-8", "backslashreplace"))
    while left:
        # a stream without a buffer may write less than it is given, and would drop the rest
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.flush()


def stderr(line: str) -> None:
    """Write a line to stderr, whatever its characters."""
    print(printable(line), file=sys.stderr)


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
