"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli.console import UserError, mendable
from fbeta.datasets.cells import to_number
from fbeta.datasets.label_columns import LabelColumns
from fbeta.datasets.table_files import FileFormat
from fbeta.datasets.training import TrainingOptions
from fbeta.methods import METHODS


class Missing(StrEnum):
    """What becomes of missing features."""

    error = "error"
    mean = "mean"


class Nominal(StrEnum):
    """What becomes of nominal features."""

    codes = "codes"
    onehot = "onehot"


class Form(StrEnum):
    """How predictions are written."""

    columns = "columns"
    sets = "sets"


class FormatName(StrEnum):
    """Formats of files."""

    arff = "arff"
    csv = "csv"
    jsonl = "jsonl"
    parquet = "parquet"
    svmlight = "svmlight"
    tsv = "tsv"
    xlsx = "xlsx"


class Preset(StrEnum):
    """How long the automatic method searches, in words."""

    quick = "quick"
    best = "best"


class UnreadCells(StrEnum):
    """What becomes of cells that cannot be read."""

    missing = "missing"
    error = "raise"


# beyond these, the square of beta is no number any more
LOWEST_BETA, HIGHEST_BETA = 1e-150, 1e150


def words(text: str | None) -> tuple[str, ...]:
    """Split the value of an option at its commas."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def number(text: Any) -> float:
    """Read a finite number, with the usual digits only."""
    if not isinstance(text, str):
        return float(text)
    found = to_number(text)
    if found is None or text.strip().lower() in ("true", "false"):
        raise typer.BadParameter(f"expected a finite number, found {text!r}")
    return found


def strength(text: Any) -> float:
    """Read a strength of regularisation."""
    alpha = number(text)
    if alpha < 0:
        raise typer.BadParameter(f"expected a number that is not negative, found {text!r}")
    return alpha


def beta_number(text: Any) -> float:
    """Read a value for beta."""
    beta = number(text)
    if not LOWEST_BETA <= beta <= HIGHEST_BETA:
        raise typer.BadParameter(
            f"expected a number from {LOWEST_BETA:g} to {HIGHEST_BETA:g}, found {text!r}"
        )
    return beta


def whole(low: int) -> Callable[[Any], int]:
    """Return what reads an integer that is not below some other."""

    def read(text: Any) -> int:
        value = number(text)
        if not value.is_integer() or not low <= value < 2**31:
            raise typer.BadParameter(f"expected an integer of at least {low}, found {text!r}")
        return int(value)

    return read


def numbers(text: str | None, default: tuple[float, ...], name: str) -> tuple[float, ...]:
    """Read the numbers of an option, none of them negative."""
    if text is None:
        return default
    try:
        found = tuple(strength(word) for word in words(text))
        if not found:
            raise typer.BadParameter("none")
        return found
    except typer.BadParameter as error:
        raise UserError(f"{name}: expected numbers with commas between, found {text!r}") from error


def names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Read the names of an option; none, and one that is not known, are errors."""
    found = words(text)
    listed = ", ".join(known)
    if not found:
        raise UserError(f"{option}: expected one or more of {listed}")
    unknown = [name for name in found if name not in known]
    if unknown:
        raise UserError(f"{option}: unknown {', '.join(map(repr, unknown))}: expected {listed}")
    return tuple(dict.fromkeys(found))


def completing(known: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Return what completes the last of several names with commas between."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = words(before)
        return [
            f"{before}{comma}{name}"
            for name in known()
            if name.startswith(last) and name not in taken
        ]

    return complete


def _method_names() -> Sequence[str]:
    return list(METHODS)


_TABLE = "Columns of tables (CSV, Excel, Parquet, JSON Lines)"
_ARFF = "ARFF files"
_FILE = "How files are written"


def _option(*names: str, help: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


_INTEGER: dict[str, Any] = {"metavar": "INTEGER"}
Labels = Annotated[
    Path | None, _option("--labels", help="XML file of Mulan that names the labels.", panel=_ARFF)
]
NLabels = Annotated[
    int | None,
    _option(
        "--n-labels",
        help="Number of labels of a MEKA file, negative if they come last.",
        panel=_ARFF,
        parser=whole(-(2**30)),
        **_INTEGER,
    ),
]
NominalOption = Annotated[
    Nominal | None, _option("--nominal", help="Nominal features (default: codes).", panel=_ARFF)
]


def _columns(name: str, words: str) -> Any:
    return _option(name, help=words, panel=_TABLE)


LabelColumnsOption = Annotated[str | None, _columns("--label-columns", "0/1 columns: a,b,c")]
LabelPrefix = Annotated[
    str | None, _columns("--label-prefix", "Begin of the names of 0/1 columns.")
]
LabelColumn = Annotated[
    str | None, _columns("--label-column", "The column that lists labels by name.")
]
Delimiter = Annotated[
    str | None, _columns("--delimiter", "Between the names in it; found by default.")
]
JoinLabels = Annotated[
    bool, _columns("--join-labels", "Names that differ in case or blanks only are one label.")
]
Drop = Annotated[str | None, _columns("--drop", "Columns to leave out: a,b")]
Id = Annotated[
    str | None,
    _columns("--id", "Columns that name the rows: no features, but written with predictions."),
]
Text = Annotated[str | None, _columns("--text", "Columns of text.")]
Categorical = Annotated[str | None, _columns("--categorical", "Columns of categories.")]
Numeric = Annotated[str | None, _columns("--numeric", "Columns of numbers.")]
Date = Annotated[str | None, _columns("--date", "Columns of dates.")]
MissingOption = Annotated[
    Missing | None,
    _option(
        "--missing",
        help="A missing number is an error, or the mean (default: mean in tables, error in ARFF).",
    ),
]
FormatOption = Annotated[
    FormatName | None,
    _option(
        "--format",
        help="By default from the suffix, csv for the standard input (-).",
        panel=_FILE,
    ),
]
Sep = Annotated[str | None, _option("--sep", help="Between cells; found by default.", panel=_FILE)]
Encoding = Annotated[
    str | None,
    _option("--encoding", help="Of text; UTF-8, UTF-16 and Windows-1252 are found.", panel=_FILE),
]
_BETA: dict[str, Any] = {"parser": beta_number, "metavar": "NUMBER"}
Beta = Annotated[
    float, _option("--beta", help="Above 1 recall counts more, below precision.", **_BETA)
]
OtherBeta = Annotated[
    float | None, _option("--beta", help="Another beta instead of that of the model.", **_BETA)
]
Cv = Annotated[
    int | None,
    _option(
        "--cv",
        help="Number of folds for the choice of alpha (default: 5).",
        parser=whole(2),
        **_INTEGER,
    ),
]
Alpha = Annotated[
    float | None,
    _option(
        "--alpha",
        help="A fixed strength of regularisation, no folds.",
        parser=strength,
        metavar="NUMBER",
    ),
]
Alphas = Annotated[
    str | None,
    _option("--alphas", help="Strengths to choose from: 0.1,1,10 (default: 1e-4 to 1e3)"),
]
Jobs = Annotated[
    int | None,
    _option(
        "--jobs",
        "-j",
        help="Folds that are run at the same time.",
        parser=whole(-(2**30)),
        **_INTEGER,
    ),
]
TimeLimit = Annotated[
    float | None,
    _option(
        "--time-limit",
        help="Seconds that the method auto may take, about (default: 120).",
        parser=strength,
        metavar="NUMBER",
    ),
]
PresetOption = Annotated[
    Preset | None,
    _option("--preset", help="Search for 20 seconds (quick), or half an hour at most (best)."),
]
Memory = Annotated[
    str | None,
    _option(
        "--memory", help="Read the file in blocks and stay inside this: 2GB. For files or folders."
    ),
]
Checkpoint = Annotated[
    Path | None,
    _option("--checkpoint", help="Read in blocks; go on from this file after an interruption."),
]
Json = Annotated[bool, _option("--json", help="Print JSON for scripts.")]
ModelPath = Annotated[Path, typer.Argument(help="A model of [bold]fbeta fit[/bold].")]
Method = Annotated[
    str | None,
    _option(
        "--method",
        help=f"One of {', '.join(METHODS)}; auto by default, fbeta with --alpha or --alphas.",
        autocompletion=completing(_method_names),
    ),
]
MethodList = Annotated[
    str,
    _option(
        "--methods",
        help=f"Some of {', '.join(METHODS)}.",
        autocompletion=completing(_method_names),
    ),
]
Errors = Annotated[
    UnreadCells,
    _option("--errors", help="Cells that cannot be read count as missing, or are an error."),
]
BelongsToFit = Annotated[str | None, typer.Option("--missing", hidden=True)]


def refuse_missing(missing: str | None) -> None:
    """Say where an option belongs that people look for here."""
    if missing is not None:
        raise UserError(
            "--missing belongs to fbeta fit: the model remembers what becomes of missing values"
        )


@dataclass(frozen=True)
class FileOptions:
    """Options of any file."""

    format: FormatOption = None
    sep: Sep = None
    encoding: Encoding = None

    @property
    def source(self) -> FileFormat:
        """How the file is written."""
        with mendable():
            kind: Any = self.format and self.format.value
            return FileFormat(kind, self.sep, self.encoding)


@dataclass(frozen=True)
class DataOptions:
    """Options of a training file."""

    labels: Labels = None
    n_labels: NLabels = None
    nominal: NominalOption = None
    label_columns: LabelColumnsOption = None
    label_prefix: LabelPrefix = None
    label_column: LabelColumn = None
    delimiter: Delimiter = None
    join_labels: JoinLabels = False
    text: Text = None
    categorical: Categorical = None
    numeric: Numeric = None
    date: Date = None
    id: Id = None
    drop: Drop = None
    missing: MissingOption = None
    format: FormatOption = None
    sep: Sep = None
    encoding: Encoding = None

    @property
    def training(self) -> TrainingOptions:
        """How the file is read."""
        kinds: dict[str, str] = {}
        for kind in ("text", "categorical", "numeric", "date", "id"):
            for column in words(getattr(self, kind)):
                if kinds.setdefault(column, kind) != kind:
                    raise UserError(f"--{kind} {column}: it is in --{kinds[column]}, too")
        with mendable():
            place = LabelColumns(
                words(self.label_columns) or None,
                self.label_prefix or None,
                self.label_column or None,
                self.delimiter,
                join=self.join_labels,
            )
        nominal: Any = self.nominal and self.nominal.value
        return TrainingOptions(
            FileOptions(self.format, self.sep, self.encoding).source,
            self.labels,
            self.n_labels,
            place,
            words(self.drop),
            kinds,
            self.missing and self.missing.value,
            nominal,
        )


def gathers_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its argument of a dataclass of options as options.

    typer takes the options of a command from its signature, and knows no dataclasses.
    """
    signature = inspect.signature(command, eval_str=True)
    (name, made) = next(
        (n, p.annotation)
        for n, p in signature.parameters.items()
        if p.annotation in (FileOptions, DataOptions)
    )
    fields = inspect.signature(made, eval_str=True).parameters
    own = [p for n, p in signature.parameters.items() if n != name]
    # by name only, as typer passes them: then those without a default may come later
    merged = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *fields.values())]

    @wraps(command)
    def run(**values: Any) -> None:
        command(**{name: made(**{field: values.pop(field) for field in fields})}, **values)

    run.__signature__ = signature.replace(parameters=merged)  # type: ignore[attr-defined]
    return run
