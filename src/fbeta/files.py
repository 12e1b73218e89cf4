"""Files on disk: written whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path whose file takes the place of `path` at the end, all at once.

    Readers see the old file or the new one, never a part, and neither an error nor a kill in
    between leaves a broken file at `path`.

    Parameters
    ----------
    path : path
        File to be written; its folder is made where it is absent.

    Yields
    ------
    Path
        To be written to, in the same folder and with the same suffix.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.txt")
    ...     with write_atomically(file) as part:
    ...         _ = part.write_text("whole")
    ...     file.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        prefix=f".{path.stem[:60]}-", suffix=path.suffix, dir=path.parent
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; results are to be shared
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with write_atomically(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def to_csv(rows: Iterable[Sequence[Any]]) -> str:
    r"""Write rows as CSV text.

    Examples
    --------
    >>> to_csv([["a", "b"], [1, None]])
    'a,b\n1,\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _umask() -> int:
    # the only way to read the mask is to set it
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
