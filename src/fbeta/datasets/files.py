"""Files as bytes and text, and the error that names a place in one."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

PathLike = str | os.PathLike[str]
Missing = Literal["error", "nan", "mean"]

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_MAX_QUOTED_CHARACTERS = 60
_MAX_UNPACKED_BYTES = 2**30


class DatasetError(ValueError):
    """A data file that cannot be read, or a benchmark that cannot be found.

    The message names the file, the line (or row) where reading stopped, what was
    expected there and what was found instead.

    Examples
    --------
    >>> from fbeta.datasets import DatasetError
    >>> issubclass(DatasetError, ValueError)
    True
    """


def fail(
    path: PathLike, where: int | str | None, expected: str, found: object = None
) -> DatasetError:
    """Word the error for one place in one file: a line number, other words, or None."""
    place = "" if where is None else f", {f'line {where}' if isinstance(where, int) else where}"
    message = f"{os.fspath(path)}{place}: expected {expected}"
    if found is not None:
        quoted = repr(found)
        if len(quoted) > _MAX_QUOTED_CHARACTERS:
            quoted = quoted[: _MAX_QUOTED_CHARACTERS - 3] + "..."
        message += f", found {quoted}"
    return DatasetError(message)


def quoted(names: Iterable[object], most: int = 5) -> str:
    """Return names in quotes, at most ``most`` of them."""
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(map(repr, shown[:most])) + more


def is_plain(word: str) -> bool:
    """Return whether a word that Python reads as a number has ASCII digits and no underscore."""
    return word.isascii() and "_" not in word


def read_bytes(path: PathLike) -> bytes:
    """Read a file, the standard input for ``"-"``, and ``.gz`` unpacked to at most 1 GiB."""
    if os.fspath(path) == "-":
        return sys.stdin.buffer.read()
    if Path(path).suffix.lower() != ".gz":
        return Path(path).read_bytes()
    with Path(path).open("rb") as packed:
        try:
            with gzip.GzipFile(fileobj=packed) as file:
                data = file.read(_MAX_UNPACKED_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise fail(path, None, "a file that gzip wrote", str(error)) from error
    if len(data) > _MAX_UNPACKED_BYTES:
        raise fail(path, None, "at most 1 GiB after unpacking (unpack it first)")
    return data


def decode_text(path: PathLike, data: bytes, encoding: str | None, first_line: int = 1) -> str:
    """Decode bytes; None is the encoding they seem to have. A byte-order mark is dropped."""
    encoding = guess_encoding(data) if encoding is None else encoding
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = first_line - 1 + len(_NEWLINE.split(data[: error.start]))
        found = data[error.start : error.start + 8]
        raise fail(path, line, f"{encoding} text", found) from error
    except LookupError as error:
        raise fail(path, None, "the name of an encoding", encoding) from error


def read_lines(path: PathLike, encoding: str | None = "utf-8") -> list[str]:
    r"""Read a text file as lines without their ends.

    Only ``\n``, ``\r\n`` and ``\r`` end a line (``str.splitlines`` knows more, and
    would shift the line numbers of error messages away from those of an editor).
    """
    text = decode_text(path, read_bytes(path), encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def guess_encoding(data: bytes, whole: bool = True) -> str:
    """Return the encoding of text: by its mark, UTF-8 if it is valid, else Windows-1252.

    Text that is not ``whole`` may end inside a character.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(data, whole)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"
