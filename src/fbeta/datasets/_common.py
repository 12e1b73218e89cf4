"""What every reader shares: the error type and text reading."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import sys
import zlib
from pathlib import Path
from typing import Literal

PathLike = str | os.PathLike[str]
Missing = Literal["error", "nan", "mean"]

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_LONGEST_QUOTE = 60
_MOST_UNFOLDED = 2**30


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
    """Word the error for one place in one file.

    Parameters
    ----------
    path : path
        The file at fault.
    where : int, str or None
        A line number counted from 1, other words for the place, or None for the file.
    expected : str
        What the format asks for at this place.
    found : object, optional
        What stands there; long text is cut.

    Returns
    -------
    DatasetError
        Ready to be raised by the caller.

    Examples
    --------
    >>> print(fail("a.arff", 7, "a number", "x"))
    a.arff, line 7: expected a number, found 'x'
    """
    place = "" if where is None else f", {f'line {where}' if isinstance(where, int) else where}"
    message = f"{os.fspath(path)}{place}: expected {expected}"
    if found is not None:
        quoted = repr(found)
        if len(quoted) > _LONGEST_QUOTE:
            quoted = quoted[: _LONGEST_QUOTE - 3] + "..."
        message += f", found {quoted}"
    return DatasetError(message)


def is_plain(word: str) -> bool:
    """Tell whether a word that Python takes for a number has only the usual digits.

    Examples
    --------
    >>> [is_plain(word) for word in ("12", "1_2", "\N{ARABIC-INDIC DIGIT ONE}2")]
    [True, False, False]
    """
    return word.isascii() and "_" not in word


def read_bytes(path: PathLike) -> bytes:
    """Read a file, the standard input for ``"-"``, and what a file ``.gz`` unfolds to.

    Raises
    ------
    DatasetError
        If a compressed file is damaged, or unfolds to more than 1 GiB.
    OSError
        If the file cannot be read.
    """
    if os.fspath(path) == "-":
        return sys.stdin.buffer.read()
    if Path(path).suffix.lower() != ".gz":
        return Path(path).read_bytes()
    with Path(path).open("rb") as packed:
        try:
            with gzip.GzipFile(fileobj=packed) as file:
                data = file.read(_MOST_UNFOLDED + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise fail(path, None, "a file that gzip wrote", str(error)) from error
    if len(data) > _MOST_UNFOLDED:
        raise fail(path, None, "at most 1 GiB after unpacking (unpack it first)")
    return data


def read_lines(path: PathLike, encoding: str | None = "utf-8") -> list[str]:
    r"""Read a text file as lines without their ends, whichever line end it uses.

    Only ``\n``, ``\r\n`` and ``\r`` end a line (``str.splitlines`` knows more, and
    would shift the line numbers of error messages away from those of an editor).

    Parameters
    ----------
    path : path
        File to read; ``"-"`` is the standard input, and ``.gz`` is unpacked.
    encoding : str or None
        How the bytes are to be read; None for what they look like, see :func:`guess_encoding`.

    Returns
    -------
    list of str
        The lines; a leading byte-order mark is dropped.

    Raises
    ------
    DatasetError
        If the bytes do not follow the encoding.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.txt"
    ...     _ = file.write_bytes(b"one\r\ntwo")
    ...     read_lines(file)
    ['one', 'two']
    """
    data = read_bytes(path)
    encoding = guess_encoding(data) if encoding is None else encoding
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = len(_NEWLINE.split(data[: error.start]))
        found = data[error.start : error.start + 8]
        raise fail(path, line, f"{encoding} text", found) from error
    except LookupError as error:
        raise fail(path, None, "the name of an encoding", encoding) from error
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def guess_encoding(data: bytes) -> str:
    """Tell the encoding of text: by its mark, UTF-8 where it can be, else Windows-1252.

    Examples
    --------
    >>> [guess_encoding(word.encode(code)) for word, code in
    ...  (("caf\u00e9", "utf-8"), ("caf\u00e9", "latin-1"), ("a", "utf-16"))]
    ['utf-8', 'cp1252', 'utf-16']
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "latin-1"
