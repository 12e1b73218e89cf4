"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta._cli.console import UserError
from fbeta._cli.data import Reading


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


_TABLE = "Labels in CSV and Parquet files"

Labels = Annotated[
    Path | None,
    typer.Option("--labels", help="XML file of Mulan that names the labels of an ARFF file."),
]
NLabels = Annotated[
    int | None,
    typer.Option(
        "--n-labels", help="Number of labels of a MEKA ARFF file, negative if they come last."
    ),
]
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
    str, typer.Option("--delimiter", help="Between the names in it.", rich_help_panel=_TABLE)
]
Drop = Annotated[
    str | None,
    typer.Option("--drop", help="Columns to leave out: id,date", rich_help_panel=_TABLE),
]
MissingOption = Annotated[
    Missing, typer.Option("--missing", help="A missing feature is an error, or the mean.")
]
NominalOption = Annotated[
    Nominal, typer.Option("--nominal", help="Nominal features of ARFF files.")
]
Beta = Annotated[float, typer.Option("--beta", help="Above 1 recall counts more, below precision.")]
Cv = Annotated[int, typer.Option("--cv", min=2, help="Number of folds for the choice of alpha.")]
Alphas = Annotated[
    str | None,
    typer.Option("--alphas", help="Strengths to choose from: 0.1,1,10 (default: 1e-4 to 1e3)"),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Folds that are run at the same time.")
]
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


def words(text: str | None) -> tuple[str, ...]:
    """Split the value of an option at its commas."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def numbers(text: str | None, default: tuple[float, ...]) -> tuple[float, ...]:
    """Read the numbers of an option."""
    try:
        return tuple(float(word) for word in words(text)) or default
    except ValueError as error:
        raise UserError(f"expected numbers with commas between, found {text!r}") from error


def _reading(
    labels: Labels = None,
    n_labels: NLabels = None,
    label_columns: LabelColumns = None,
    label_prefix: LabelPrefix = None,
    label_column: LabelColumn = None,
    delimiter: Delimiter = ";",
    drop: Drop = None,
    missing: MissingOption = Missing.error,
    nominal: NominalOption = Nominal.codes,
) -> Reading:
    """Gather the options of a training file."""
    return Reading(
        labels_xml=labels,
        n_labels=n_labels,
        label_columns=words(label_columns),
        label_prefix=label_prefix,
        label_column=label_column,
        delimiter=delimiter,
        drop=words(drop),
        missing=missing.value,
        nominal="onehot" if nominal is Nominal.onehot else "codes",
    )


def reads_training(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a training file in place of its argument ``reading``."""
    options = inspect.signature(_reading, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options.values() if parameter.name == "reading" else [parameter]
    # by name only, as typer passes them: then those without a default may come later
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

    @wraps(command)
    def run(**values: Any) -> None:
        reading = _reading(**{name: values.pop(name) for name in options})
        command(reading=reading, **values)

    # typer takes the options of a command from its signature
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
