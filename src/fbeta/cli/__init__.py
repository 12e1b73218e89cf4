"""The command line ``fbeta``: arguments, progress and what is printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from fbeta import __version__

__all__ = ["main", "version_line"]


def version_line() -> str:
    """Return the version, and whether the compiled solver is there; imports nothing else."""
    folder = Path(__file__).resolve().parents[1] / "linear"
    if PathFinder.find_spec("_engine", [str(folder)]) is not None:
        return f"fbeta {__version__} (with the compiled solver)"
    return (
        f"fbeta {__version__} (without the compiled solver: it was installed without a C++ "
        "compiler, GCC or Clang, and fits large data more slowly)"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on arguments, by default those of the process.

    Returns 0 if all went well, 2 for what the user can mend, 1 for a bug.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    fbeta ...
    0
    """
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(version_line())
        return 0
    try:
        from fbeta.cli.app import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        needed = f'fbeta: the command line needs {error.name}: pip install "fbeta[cli]"'
        print(needed, file=sys.stderr)
        return 2
    return run(arguments)
