"""Output files: written completely or not at all, and never over an input.

A path is followed to what it leads to: the target of a symbolic link, a pipe, a device or the
standard output is written to, not replaced by a regular file. A regular file keeps its mode.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PathLike = str | os.PathLike[str]

#: The standard output as a path, on every system.
STDOUT = "/dev/stdout"
# part of the names of temporary files, so that those of killed processes are recognised
_TEMPORARY_MARK = "fbeta-part"
_DESCRIPTOR_PATH = re.compile(r"/dev/(stdout|stderr)|(?:/dev/fd|/proc/self/fd)/(\d{1,9})")
_MAX_LINKS = 40  # as in Linux
# OWASP's list of first characters that spreadsheets take for a formula
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def check_output(path: PathLike, inputs: Iterable[PathLike] = ()) -> None:
    """Raise ``ValueError`` if a file cannot be written, or is one of the inputs under any name.

    Call it before the work whose result is to be written. The input ``"-"`` is standard input; a
    folder stands for its files, those that are there and those that would be.
    """
    if _descriptor(path) is not None:
        return
    for source in inputs:
        if _same_file(path, source):
            found = f"a file of the folder {source}, which is " if os.path.isdir(source) else ""
            found += "an input of the same command"
            raise ValueError(f"{path}: is {found}: choose another name for the output")
    if Path(path).suffix.lower() == ".gz":
        raise ValueError(f"{path}: outputs are not compressed: choose a name without .gz")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path}: is a folder, expected the name of a file")
    if mode and not os.access(path, os.W_OK):
        raise ValueError(f"{path}: is there, and must not be written to")
    if not mode or stat.S_ISREG(mode):
        _check_folder(Path(os.path.realpath(path)).parent, path)


def make_folder(path: PathLike) -> Path:
    """Make a folder for output inside one that exists; ``ValueError`` if that is impossible."""
    folder = Path(path)
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise ValueError(f"{path}: is a file, expected a folder")
        _check_folder(folder.absolute().parent, path)
        folder.mkdir(exist_ok=True)
    _check_folder(folder, path)
    return folder


def _check_folder(folder: Path, path: PathLike) -> None:
    if not folder.is_dir():
        raise ValueError(f"{path}: there is no folder {folder}: make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: the folder {folder} cannot be written to")


def _same_file(path: PathLike, source: PathLike) -> bool:
    """Whether a path leads to a regular file that is read; absent inputs are reported later."""
    if os.path.isdir(source):
        if Path(os.path.realpath(path)).parent == Path(os.path.realpath(source)):
            return True
        return any(_same_file(path, file) for file in Path(source).iterdir() if file.is_file())
    with suppress(OSError):
        found = os.fstat(0) if os.fspath(source) == "-" else os.stat(source)
        return stat.S_ISREG(found.st_mode) and os.path.samestat(os.stat(path), found)
    return False


def _descriptor(path: PathLike) -> int | None:
    """Return the number of the open file that a path stands for, through symbolic links.

    Opening such a path again would truncate a file that other processes append to.
    """
    name = os.fspath(path)
    for _ in range(_MAX_LINKS):
        found = _DESCRIPTOR_PATH.fullmatch(name)
        if found:
            return {"stdout": 1, "stderr": 2}[found[1]] if found[1] else int(found[2])
        if not os.path.islink(name):
            return None
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    return None


@contextmanager
def write_atomically(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path whose file takes the place of `path` at the end, all at once.

    Readers see the old file or the new one. Pipes, devices and open descriptors are written to at
    the end. Temporary files of killed processes beside `path` are removed. Errors name `path`.
    """
    check_output(path)
    descriptor = _descriptor(path)
    real = Path(path if descriptor is not None else os.path.realpath(path))
    in_place = descriptor is None and (real.is_file() or not real.exists())
    beside = real if in_place else Path(tempfile.gettempdir(), f"fbeta{real.suffix}")
    old = real.stat() if in_place and real.exists() else None
    try:
        with _temporary_file(beside, 0o666 if old is None else 0o600) as (part, file):
            yield part
            if in_place:
                _replace(real, part, file, old)
                return
            if descriptor in (1, 2):
                (sys.stdout if descriptor == 1 else sys.stderr).flush()
            # without O_CREAT: a pipe that was removed does not become a file
            handle = os.open(real, os.O_WRONLY) if descriptor is None else os.dup(descriptor)
            with os.fdopen(handle, "wb") as stream:
                stream.write(part.read_bytes())
    except OSError as error:
        # a full disk raises errors without a name, or with that of the temporary file
        if error.filename is None or _TEMPORARY_MARK in str(error.filename):
            error.filename, error.filename2 = os.fspath(path), None
        raise


@contextmanager
def _temporary_file(beside: Path, mode: int) -> Iterator[tuple[Path, IO[bytes]]]:
    """Make a locked temporary file beside another; remove it at the end if it is still there."""
    remove_stale(beside)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        name = f".{beside.stem[:60]}-{secrets.token_hex(6)}.{_TEMPORARY_MARK}{beside.suffix}"
        part = beside.with_name(name)
        file = os.fdopen(os.open(part, flags, mode), "rb+")
        # before it was locked, another process may have removed it as stale
        if os.name == "nt" or (try_lock(file) and part.exists()):
            break
        file.close()
    try:
        yield part, file
    finally:
        file.close()
        part.unlink(missing_ok=True)


def _replace(real: Path, part: Path, file: IO[bytes], old: os.stat_result | None) -> None:
    """Move a complete temporary file over another, whose mode and owner it takes over."""
    with part.open("rb+") as written:
        os.fsync(written.fileno())
    if old is not None:
        if hasattr(os, "chown"):
            with suppress(PermissionError):
                os.chown(part, old.st_uid, old.st_gid)
        part.chmod(stat.S_IMODE(old.st_mode))
    if os.name == "nt":
        file.close()  # Windows moves no open file
    part.replace(real)


def remove_stale(path: PathLike) -> None:
    """Remove the temporary files of killed processes for `path`; living ones hold a lock."""
    path = Path(path)
    pattern = f".{glob.escape(path.stem[:60])}-*.{_TEMPORARY_MARK}{glob.escape(path.suffix)}"
    for part in path.parent.glob(pattern):
        with suppress(OSError), part.open("rb+") as file:
            if os.name == "nt" or try_lock(file):
                part.unlink()


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file without waiting, until it is closed; return whether that succeeded."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(path: PathLike, text: str) -> None:
    """Write a text file in UTF-8, completely or not at all."""
    with write_atomically(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def to_csv(rows: Iterable[Sequence[Any]], *, sep: str = ",", safe: bool = False) -> str:
    """Write rows as CSV; `safe` puts an apostrophe before what spreadsheets run as a formula."""
    text = io.StringIO()

    def harmless(cell: Any) -> Any:
        formula = isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA_STARTS)
        return f"'{cell}" if formula and safe else cell

    writer = csv.writer(text, delimiter=sep, lineterminator="\n")
    writer.writerows([harmless(cell) for cell in row] for row in rows)
    return text.getvalue()
