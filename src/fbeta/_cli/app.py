"""The application: its commands, and what becomes of errors."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fbeta import __version__
from fbeta._cli.console import UserError, stderr

app = typer.Typer(
    name="fbeta",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Multi-label classification that is optimal for the F_beta-measure.",
)


def _show_version(value: bool) -> None:
    if value:
        from fbeta.linear.compiled import is_compiled

        how = "with" if is_compiled() else "without"
        typer.echo(f"fbeta {__version__} ({how} the compiled solver)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


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
    try:
        code: Any = app(
            args=None if arguments is None else list(arguments),
            prog_name="fbeta",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except UserError as error:
        stderr(f"fbeta: {error}")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        stderr("fbeta: interrupted")
        return 130
    except BrokenPipeError:
        # the reader of our output, such as head, has seen enough; Python flushes once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
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


def _register() -> None:
    """Import the commands: each registers itself with ``app``, in the order of the help."""
    for name in ("models", "export", "compare", "reproduce", "demo"):
        importlib.import_module(f"fbeta._cli.{name}")


_register()
