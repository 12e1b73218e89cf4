"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli.console import UserError, mendable
from fbeta.cli.data import Reading
from fbeta.cli.sources import Source
from fbeta.cli.tables import Choice
from fbeta.datasets.cells import to_number
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


_TABLE = "Columns of CSV, Parquet and JSON Lines files"
_ARFF = "ARFF files"
_FILE = "How files are written"

Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels", help="XML file of Mulan that names the labels.", rich_help_panel=_ARFF
    ),
]
NLabels = Annotated[
    int | None,
    typer.Option(
        "--n-labels", parser=whole(-(2**30)), metavar="INTEGER", rich_help_panel=_ARFF,
        help="Number of labels of a MEKA file, negative if they come last.",
    ),
]  # fmt: skip
LabelColumns = Annotated[
    str | None,
    typer.Option("--label-columns", help="0/1 columns: a,b,c", rich_help_panel=_TABLE),
]
LabelPrefix = Annotated[
    str | None,
    typer.Option(
        "--label-prefix", help="Begin of the names of 0/1 columns.", rich_help_panel=_TABLE
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column", help="The column that lists labels by name.", rich_help_panel=_TABLE
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", help="Between the names in it; found by default.", rich_help_panel=_TABLE
    ),
]


def _columns(name: str, words: str) -> Any:
    return typer.Option(name, help=words, rich_help_panel=_TABLE)


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
    typer.Option(
        "--missing",
        help="A missing number is an error, or the mean (default: mean in tables, error in ARFF).",
    ),
]
NominalOption = Annotated[
    Nominal | None,
    typer.Option("--nominal", help="Nominal features (default: codes).", rich_help_panel=_ARFF),
]
FormatOption = Annotated[
    FormatName | None,
    typer.Option(
        "--format", rich_help_panel=_FILE,
        help="By default from the suffix, csv for the standard input (-).",
    ),
]  # fmt: skip
Sep = Annotated[
    str | None,
    typer.Option("--sep", help="Between cells; found by default.", rich_help_panel=_FILE),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding", help="Of text; UTF-8, UTF-16 and Windows-1252 are found.",
        rich_help_panel=_FILE,
    ),
]  # fmt: skip
_BETA = {"parser": beta_number, "metavar": "NUMBER"}
Beta = Annotated[
    float, typer.Option("--beta", help="Above 1 recall counts more, below precision.", **_BETA)
]
Cv = Annotated[
    int | None,
    typer.Option(
        "--cv", parser=whole(2), metavar="INTEGER",
        help="Number of folds for the choice of alpha (default: 5).",
    ),
]  # fmt: skip
Alphas = Annotated[
    str | None,
    typer.Option("--alphas", help="Strengths to choose from: 0.1,1,10 (default: 1e-4 to 1e3)"),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", parser=whole(-(2**30)), metavar="INTEGER",
        help="Folds that are run at the same time.",
    ),
]  # fmt: skip
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit", parser=strength, metavar="NUMBER",
        help="Seconds that the method auto may take, about (default: 120).",
    ),
]  # fmt: skip
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", help="Read the file in blocks and stay inside this: 2GB. For files or folders."
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", help="Read in blocks; go on from this file after an interruption."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
ModelPath = Annotated[Path, typer.Argument(help="A model of [bold]fbeta fit[/bold].")]
OtherBeta = Annotated[
    float | None,
    typer.Option("--beta", help="Another beta instead of that of the model.", **_BETA),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        help=f"One of {', '.join(METHODS)}; auto by default, fbeta with --alpha or --alphas.",
        autocompletion=completing(_method_names),
    ),
]
MethodList = Annotated[
    str,
    typer.Option(
        "--methods", help=f"Some of {', '.join(METHODS)}.",
        autocompletion=completing(_method_names),
    ),
]  # fmt: skip
BelongsToFit = Annotated[str | None, typer.Option("--missing", hidden=True)]


def refuse_missing(missing: str | None) -> None:
    """Say where an option belongs that people look for here."""
    if missing is not None:
        raise UserError(
            "--missing belongs to fbeta fit: the model remembers what becomes of missing values"
        )


def _source(format: FormatOption = None, sep: Sep = None, encoding: Encoding = None) -> Source:
    """Gather the options of any file."""
    with mendable():
        kind: Any = None if format is None else format.value
        return Source(kind, sep, encoding)


def _reading(
    labels: Labels = None,
    n_labels: NLabels = None,
    nominal: NominalOption = None,
    label_columns: LabelColumns = None,
    label_prefix: LabelPrefix = None,
    label_column: LabelColumn = None,
    delimiter: Delimiter = None,
    text: Text = None,
    categorical: Categorical = None,
    numeric: Numeric = None,
    date: Date = None,
    id: Id = None,
    drop: Drop = None,
    missing: MissingOption = None,
    format: FormatOption = None,
    sep: Sep = None,
    encoding: Encoding = None,
) -> Reading:
    """Gather the options of a training file."""
    given = {
        "text": text, "categorical": categorical, "numeric": numeric, "date": date, "id": id
    }  # fmt: skip
    kinds: dict[str, str] = {}
    for kind, listed in given.items():
        for column in words(listed):
            if kinds.setdefault(column, kind) != kind:
                raise UserError(f"--{kind} {column}: it is in --{kinds[column]}, too")
    choice = Choice(words(label_columns), label_prefix, label_column, delimiter, words(drop), kinds)
    return Reading(
        source=_source(format, sep, encoding),
        labels_xml=labels,
        n_labels=n_labels,
        choice=choice,
        missing=None if missing is None else missing.value,
        nominal=None if nominal is None else ("onehot" if nominal == "onehot" else "codes"),
    )


_GATHERED: dict[str, Callable[..., Any]] = {"reading": _reading, "source": _source}


def gathers_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of files in place of its argument ``reading`` or ``source``."""
    signature = inspect.signature(command, eval_str=True)
    gather = {name: _GATHERED[name] for name in signature.parameters if name in _GATHERED}
    options = {
        name: inspect.signature(make, eval_str=True).parameters for name, make in gather.items()
    }
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options.get(parameter.name, {parameter.name: parameter}).values()
    # by name only, as typer passes them: then those without a default may come later
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

    @wraps(command)
    def run(**values: Any) -> None:
        made = {
            name: make(**{option: values.pop(option) for option in options[name]})
            for name, make in gather.items()
        }
        command(**made, **values)

    # typer takes the options of a command from its signature
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
