"""Files as the options describe them: format, separator and encoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fbeta.datasets import DatasetError
from fbeta.datasets.jsonlines import scan_jsonl
from fbeta.datasets.tabular import Table, scan_csv, scan_parquet

Format = Literal["arff", "csv", "jsonl", "parquet", "svmlight", "tsv"]
#: Formats that have named columns of any kind.
TABLES = ("csv", "jsonl", "parquet", "tsv")

_SUFFIXES: dict[str, Format] = {
    ".arff": "arff",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
}
_TAB = ("tab", "\\t")


@dataclass(frozen=True)
class Source:
    """How a file is to be read, where its name and a look at it do not say so."""

    format: Format | None = None
    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep in _TAB:
            object.__setattr__(self, "sep", "\t")
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise DatasetError(f"--sep {self.sep!r}: expected one character, or tab")

    def format_of(self, path: Path) -> Format:
        """Tell the format of a file: the option, or the suffix; the standard input is CSV."""
        if self.format is not None:
            return self.format
        if str(path) == "-":
            return "csv"
        bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
        found = _SUFFIXES.get(bare.suffix.lower())
        if found is None:
            raise DatasetError(
                f"{path}: expected a file name that ends with one of {', '.join(_SUFFIXES)}, "
                "with or without .gz, or --format"
            )
        return found

    def scan(self, path: Path) -> Table:
        """Read the columns of a table; columns without a name are numbered."""
        kind = self.format_of(path)
        self.check(path)
        if kind == "parquet":
            table = scan_parquet(path)
        elif kind == "jsonl":
            table = scan_jsonl(path, encoding=self.encoding)
        else:
            sep = "\t" if kind == "tsv" and self.sep is None else self.sep
            table = scan_csv(path, sep=sep, encoding=self.encoding, least=1)
        header = [name or f"Unnamed: {j}" for j, name in enumerate(table.header)]
        double = sorted(name for name, count in Counter(header).items() if count > 1)
        if double:
            raise DatasetError(f"{path}: has several columns of the name {words(double)}")
        if not table.columns or not len(table.columns[0]):
            raise DatasetError(f"{path}: has no rows")
        return Table(table.path, header, table.columns, table.place)

    def check(self, path: Path) -> None:
        """Refuse options that say nothing of a file."""
        kind = self.format_of(path)
        given: dict[str, Any] = {} if kind in ("csv", "tsv") else {"--sep": self.sep}
        if kind not in ("csv", "tsv", "jsonl"):
            given["--encoding"] = self.encoding
        refuse(path, kind, given)


def refuse(path: Path, kind: str, given: Mapping[str, Any]) -> None:
    """Raise where options are given that do not apply to a file."""
    useless = [name for name, value in given.items() if value not in (None, ())]
    if useless:
        raise DatasetError(f"{path}: {', '.join(useless)} does not apply to {kind} files")


def words(names: Any, most: int = 5) -> str:
    """Return names in quotes, not all of them if there are many."""
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(map(repr, shown[:most])) + more
