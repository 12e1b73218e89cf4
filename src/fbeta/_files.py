"""Files on disk: written whole or not at all, and never over something else.

What a path leads to is written, and not replaced by a regular file: the target of a symbolic link,
a pipe, a device, the standard output. A regular file keeps its mode.
"""

from __future__ import annotations

import csv
import glob
import importlib
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = [
    "STDOUT",
    "OutputError",
    "check_output",
    "make_folder",
    "remove_stale",
    "to_csv",
    "try_lock",
    "write_atomically",
    "write_text",
]

PathLike = str | os.PathLike[str]

#: The standard output as a path, on every system.
STDOUT = "/dev/stdout"
# in the names of temporary files, so that those of a run that was killed are known
_MARK = "fbeta-part"
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|(?:/dev/fd|/proc/self/fd)/(\d{1,9})")
_MOST_LINKS = 40
# what a spreadsheet takes for the begin of a formula, OWASP's list
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class OutputError(ValueError):
    """A place that must not or cannot be written to."""


def check_output(path: PathLike, inputs: Iterable[PathLike] = ()) -> None:
    """Raise where a file cannot be written, or is one of those that are read.

    Call it before the work whose result is to be written.

    Parameters
    ----------
    path : path
        File to be written, later, by :func:`write_atomically`.
    inputs : iterable of paths
        Files that are read; ``"-"`` is the standard input. None of them is written over, whatever
        names lead to it.

    Raises
    ------
    OutputError
        If `path` is an input or a folder, or its folder is absent or cannot be written to.
    OSError
        If the operating system does not let us look.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.csv")
    ...     _ = file.write_text("x,y")
    ...     check_output(file, [file])
    Traceback (most recent call last):
    ...
    fbeta._files.OutputError: ...train.csv: is an input of the same command: ...
    """
    if _descriptor(path) is not None:
        return
    for source in inputs:
        if _same_file(path, source):
            raise OutputError(
                f"{path}: is an input of the same command: choose another name for the output"
            )
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path}: is a folder, expected the name of a file")
    if mode and not os.access(path, os.W_OK):
        raise OutputError(f"{path}: is there, and must not be written to")
    if not mode or stat.S_ISREG(mode):
        _check_folder(Path(os.path.realpath(path)).parent, path)


def make_folder(path: PathLike) -> Path:
    """Make a folder for output where it is absent; the folder around it has to be there.

    Raises ``OutputError`` where it cannot be made or written to.
    """
    folder = Path(path)
    if not folder.is_dir():
        if folder.exists() or folder.is_symlink():
            raise OutputError(f"{path}: is a file, expected a folder")
        _check_folder(folder.absolute().parent, path)
        folder.mkdir(exist_ok=True)
    _check_folder(folder, path)
    return folder


def _check_folder(folder: Path, path: PathLike) -> None:
    if not folder.is_dir():
        raise OutputError(f"{path}: there is no folder {folder}: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: the folder {folder} cannot be written to")


def _same_file(path: PathLike, source: PathLike) -> bool:
    """Tell whether a regular file to be written is one that is read, by whatever link."""
    try:
        read = os.fstat(0) if os.fspath(source) == "-" else os.stat(source)
        return stat.S_ISREG(read.st_mode) and os.path.samestat(os.stat(path), read)
    except OSError:
        # what is absent is told by those who open it
        return False


def _descriptor(path: PathLike) -> int | None:
    """Return the number of the open file that a path stands for, through links, if it does.

    To open such a path again would cut off what a file has that others are writing to, too.
    """
    name = os.fspath(path)
    for _ in range(_MOST_LINKS):
        found = _DESCRIPTOR.fullmatch(name)
        if found:
            return {"stdout": 1, "stderr": 2}[found[1]] if found[1] else int(found[2])
        if not os.path.islink(name):
            return None
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return None


@contextmanager
def write_atomically(path: PathLike) -> Iterator[Path]:
    """Give a temporary path whose file takes the place of `path` at the end, all at once.

    Readers see the old file or the new one, never a part, and neither an error nor a kill in
    between leaves a broken file at `path`. Symbolic links stay, and so does the mode of the file
    that they lead to. Pipes and devices are written to at the end. What a run that was killed has
    left beside `path` is removed.

    Parameters
    ----------
    path : path
        File to be written, in a folder that is there.

    Yields
    ------
    Path
        To be written to, with the same suffix.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.txt")
    ...     with write_atomically(file) as part:
    ...         _ = part.write_text("whole")
    ...     file.read_text()
    'whole'
    """
    check_output(path)
    descriptor = _descriptor(path)
    real = Path(path if descriptor is not None else os.path.realpath(path))
    if descriptor is None and (real.is_file() or not real.exists()):
        with _part_of(real) as (part, file):
            yield part
            with part.open("rb+") as written:
                os.fsync(written.fileno())
            _take_over_mode(real, part)
            if os.name == "nt":
                file.close()  # what is open cannot be moved there
            part.replace(real)
        return
    with _part_of(Path(tempfile.gettempdir(), f"fbeta{real.suffix}")) as (part, _):
        yield part
        if descriptor in (1, 2):
            (sys.stdout if descriptor == 1 else sys.stderr).flush()
        # no new file: os.open without O_CREAT
        handle = os.open(real, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
        with os.fdopen(handle, "wb") as stream:
            stream.write(part.read_bytes())


@contextmanager
def _part_of(real: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make a locked temporary file beside another; remove it at the end if it is still there."""
    remove_stale(real)
    while True:
        handle, name = tempfile.mkstemp(
            prefix=f".{real.stem[:60]}-", suffix=f".{_MARK}{real.suffix}", dir=real.parent
        )
        file, part = os.fdopen(handle, "rb+"), Path(name)
        # between making and locking, another run may take it for one that was left behind
        if os.name == "nt" or (try_lock(file) and part.exists()):
            break
        file.close()
    try:
        yield part, file
    finally:
        file.close()
        part.unlink(missing_ok=True)


def remove_stale(path: PathLike) -> None:
    """Remove the temporary files that runs which were killed left for a file.

    Those of runs that are alive are locked, and stay.
    """
    path = Path(path)
    pattern = f".{glob.escape(path.stem[:60])}-*.{_MARK}{glob.escape(path.suffix)}"
    for part in path.parent.glob(pattern):
        with suppress(OSError), part.open("rb+") as file:
            if os.name == "nt" or try_lock(file):
                part.unlink()


def try_lock(file: IO[Any]) -> bool:
    """Take the lock of an open file without waiting; it goes when the file is closed."""
    try:
        if os.name == "nt":
            msvcrt: Any = importlib.import_module("msvcrt")
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl: Any = importlib.import_module("fcntl")
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _take_over_mode(old: Path, new: Path) -> None:
    """Give a new file the mode of the one that it replaces, and its owner where that may be."""
    try:
        found = old.stat()
    except FileNotFoundError:
        # mkstemp makes files that only their owner can read; results are to be shared
        new.chmod(0o666 & ~_umask())
        return
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(new, found.st_uid, found.st_gid)
    new.chmod(stat.S_IMODE(found.st_mode))


def write_text(path: PathLike, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with write_atomically(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def to_csv(rows: Iterable[Sequence[Any]], *, sep: str = ",", safe: bool = False) -> str:
    r"""Write rows as CSV text.

    Parameters
    ----------
    rows : iterable of sequences
        Their cells.
    sep : str
        Between them.
    safe : bool
        Put an apostrophe before every text that a spreadsheet would run as a formula.

    Examples
    --------
    >>> to_csv([["a", "b"], [1, None]])
    'a,b\n1,\n'
    >>> to_csv([["=1+1", -1.5]], safe=True)
    "'=1+1,-1.5\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sep, lineterminator="\n")
    writer.writerows([_harmless(cell) for cell in row] if safe else row for row in rows)
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    formula = isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA)
    return f"'{cell}" if formula else cell


def _umask() -> int:
    # the only way to read the mask is to set it
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
