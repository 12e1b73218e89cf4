"""The header of an ARFF file: relation and attribute declarations.

liac-arff reads data sections well, but leaves the escapes in quoted attribute names
and cannot say what was wrong with a declaration; so the header is read here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fbeta.datasets.files import PathLike, fail

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NAME = re.compile(rf"({_QUOTED}|[^\s'\"{{}}%][^\s{{}}]*)\s*")
_VALUE = re.compile(rf"\s*({_QUOTED}|[^\s'\"{{}},]+)\s*")
_ESCAPE = re.compile(r"\\(.)")
_MEANING = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\", "%": "%"}
_NUMERIC_TYPES = frozenset({"numeric", "real", "integer"})


@dataclass(frozen=True)
class Attribute:
    """One declared column.

    Parameters
    ----------
    name : str
        Its name, without quotes and escapes.
    values : tuple of str or None
        The declared values of a nominal column; None for a numeric one.
    line : int
        Where it is declared, counted from 1.
    """

    name: str
    values: tuple[str, ...] | None
    line: int


@dataclass(frozen=True)
class Header:
    """What stands before the data.

    Parameters
    ----------
    relation : str
        Text after ``@relation``, without quotes and escapes; empty if there is none.
    relation_line : int
        Where that stands, or 1.
    attributes : tuple of Attribute
        The columns, in order.
    data_line : int
        Where ``@data`` stands, counted from 1.
    """

    relation: str
    relation_line: int
    attributes: tuple[Attribute, ...]
    data_line: int


def parse_header(path: PathLike, lines: list[str]) -> Header:
    r"""Read the lines up to and including ``@data``.

    Parameters
    ----------
    path : path
        For error messages.
    lines : list of str
        The whole file.

    Returns
    -------
    Header
        The declarations.

    Raises
    ------
    DatasetError
        At the first line that is not a declaration.

    Examples
    --------
    >>> header = parse_header("a.arff", [r"@attribute 'Swainson\'s Thrush' {0,1}", "@data"])
    >>> header.attributes[0].name
    "Swainson's Thrush"
    """
    relation, relation_line = "", 1
    attributes: dict[str, Attribute] = {}
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        keyword, *words = line.split(maxsplit=1)
        rest = words[0] if words else ""
        match keyword.lower():
            case "@relation":
                relation, relation_line = unquote(rest), number
            case "@attribute":
                attribute = _parse_attribute(path, number, rest)
                if attribute.name in attributes:
                    first = attributes[attribute.name].line
                    expected = f"a name other than that of line {first}"
                    raise fail(path, number, expected, attribute.name)
                attributes[attribute.name] = attribute
            case "@data":
                if not attributes:
                    raise fail(path, number, "an @attribute before @data")
                return Header(relation, relation_line, tuple(attributes.values()), number)
            case _:
                raise fail(path, number, "@relation, @attribute or @data", line)
    raise fail(path, len(lines), "@data before the end of the file")


def unquote(text: str) -> str:
    r"""Drop the quotes around a word, and the escapes inside them.

    A word without quotes is left alone, backslashes included, and so is a backslash
    before a character that needs none: label files repeat both as they are.

    Parameters
    ----------
    text : str
        One word as it stands in the file.

    Returns
    -------
    str
        The word it stands for.

    Examples
    --------
    >>> unquote(r"'Stellar\'s Jay'"), unquote(r"TAG_m\'usica")
    ("Stellar's Jay", "TAG_m\\'usica")
    """
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    return _ESCAPE.sub(lambda match: _MEANING.get(match[1], match[0]), text[1:-1])


def _parse_attribute(path: PathLike, number: int, text: str) -> Attribute:
    match = _NAME.match(text)
    if match is None:
        raise fail(path, number, "an attribute name, in quotes if it has spaces", text)
    name, kind = unquote(match[1]), text[match.end() :].strip()
    if kind.startswith("{"):
        return Attribute(name, _parse_values(path, number, kind), number)
    word = kind.partition("%")[0].strip()
    if word.lower() in _NUMERIC_TYPES:
        return Attribute(name, None, number)
    expected = f"type numeric, real, integer or {{value,...}} for attribute {name!r}"
    raise fail(path, number, expected, word)


def _parse_values(path: PathLike, number: int, kind: str) -> tuple[str, ...]:
    values: list[str] = []
    position = 1
    while True:
        match = _VALUE.match(kind, position)
        if match is None or match.end() >= len(kind) or kind[match.end()] not in ",}":
            raise fail(path, number, "nominal values as {value,value,...}", kind)
        values.append(unquote(match[1]))
        position = match.end() + 1
        if kind[match.end()] == "}":
            break
    rest = kind[position:].strip()
    if rest and not rest.startswith("%"):
        raise fail(path, number, "nothing after the nominal values", rest)
    if len(set(values)) < len(values):
        raise fail(path, number, "each nominal value once", kind)
    return tuple(values)
