"""The command ``fbeta``: entry point only, so that a plain install can say what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        What follows the name of the command; that of the process by default.

    Returns
    -------
    int
        0 if all went well, 2 for what the user can mend, 1 for a bug.

    Examples
    --------
    >>> main(["--version"])  # doctest: +ELLIPSIS
    fbeta ...
    0
    """
    try:
        import rich
        import typer
    except ImportError as error:
        # imported only to see whether they are there: everything below needs both
        print(
            f'fbeta: the command line needs {error.name}: pip install "fbeta[cli]"',
            file=sys.stderr,
        )
        return 2
    del rich, typer
    from fbeta.cli.app import run

    return run(arguments)
