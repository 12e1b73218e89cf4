"""The application: its commands, and what becomes of errors."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fbeta import __version__
from fbeta.cli import version_line
from fbeta.cli.console import UserError, stderr

# commands, each in the module of its name, with the first lines of their help, in its order
COMMANDS = {
    "fit": "Fit a model to labelled data and store it.",
    "predict": "Predict the label sets of new data.",
    "evaluate": "Measure predictions on labelled data; 0/0 counts as 1 in every measure.",
    "explain": "Show which features speak for each label: words, categories and numbers.",
    "export": "Write a model with its exact decode as an ONNX graph.",
    "compare": "Fit several methods to one file, rank them by its folds, "
    "and measure them on another.",
    "demo": "Watch F_1 converge to the Bayes optimum, and fit a table of text and tags.",
    "reproduce": "Run the experiments of the paper, and draw their tables and figures.",
}


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
    """Import the modules of some commands, which register themselves; return all that are there."""
    for name in names:
        importlib.import_module(f"fbeta.cli.{name}")
    return dict(typer.main.get_group(app).commands)


app = typer.Typer(
    name="fbeta",
    cls=CommandGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Multi-label classification that is optimal for the F_beta-measure.",
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(version_line())
        raise typer.Exit


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands where none was chosen: a question, not a mistake."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    show_help(context)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the application and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    int
        0, 1 or 2.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names of any script in a terminal of any
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _ending_on_signals(arguments is None):
            code: Any = app(
                args=None if arguments is None else list(arguments),
                prog_name="fbeta",
                standalone_mode=False,
            )
            sys.stdout.flush()
    except UserError as error:
        stderr(f"fbeta: {error}")
        return 2
    except (KeyboardInterrupt, _Ended, typer.Abort):
        stderr("fbeta: interrupted")
        return 130
    except SystemExit:
        # how typer and rich end when the reader of their output has gone
        stderr(f"fbeta: {_trouble(BrokenPipeError())}")
        _let_go_of_stdout()
        return 2
    except (OSError, MemoryError, BrokenExecutor) as error:
        # of the machine, and not of the program: a full disk, a reader that has gone
        stderr(f"fbeta: {_trouble(error)}")
        _let_go_of_stdout()
        return 2
    except Exception as error:
        # typer brings its own copy of click or uses the installed one: know its errors by shape
        message = getattr(error, "format_message", None)
        if message is not None:
            stderr(f"fbeta: {message()}")
            return int(getattr(error, "exit_code", 2))
        traceback.print_exc()
        stderr(f"fbeta: this is a bug in fbeta {__version__}; please report the lines above")
        return 1
    return code if isinstance(code, int) else 0


def _trouble(error: BaseException) -> str:
    """Return one line for what the operating system refused."""
    if isinstance(error, BrokenPipeError):
        return "the reader of the output has gone (broken pipe)"
    if isinstance(error, BrokenExecutor):
        return "a worker was killed, as happens when memory runs out: fewer --jobs need less"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        if not where and error.errno == errno.ENOSPC:
            where = "the standard output: "  # files are named by the functions that write them
        return f"{where}{error.strerror or error}"
    return f"out of memory{f': {error}' if str(error) else ''}"


def _let_go_of_stdout() -> None:
    """Drop what cannot be printed: Python would try once more at the end, and complain."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Ended(BaseException):
    """The process was told to end; unlike at the first Ctrl-C, a search keeps nothing."""


@contextmanager
def _ending_on_signals(wanted: bool) -> Iterator[None]:
    """End as on Ctrl-C when asked to by a signal, so that temporary files are removed."""

    def end(number: int, frame: Any) -> None:
        raise _Ended

    names = ("SIGTERM", "SIGHUP") if wanted else ()
    before = {
        number: signal.signal(number, end)
        for number in (getattr(signal, name, None) for name in names)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
