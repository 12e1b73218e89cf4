"""What is printed of training data, models and measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fbeta.cli.console import UserError, print_table, printable
from fbeta.datasets import Dataset
from fbeta.datasets.files import quoted
from fbeta.datasets.model_input import InputRows
from fbeta.datasets.training import TrainingData
from fbeta.report.evaluation import label_scores
from fbeta.storage import model_files
from fbeta.storage.model_files import ModelFileError, StoredModel

# more would scroll the rest away
_MAX_ROWS_SHOWN = 40
# a label that is there less often cannot be learned, nor be in every fold
_MIN_ROWS_OF_LABEL = 2


def print_training(train: TrainingData, err: bool) -> None:
    """Show what the columns of a table are taken for, and how often each label is there."""
    if train.columns:
        rows = [
            [column.name, column.kind, f"{column.gaps:,}", f"{column.distinct:,}", column.note]
            for column in train.columns[:_MAX_ROWS_SHOWN]
        ]
        title = (
            f"Columns{_of(len(train.columns))}: change what they are by --numeric, --categorical,"
        )
        print_table(
            f"{title} --text, --date, --id, --drop",
            ["column", "is", "missing", "values", "note"],
            rows,
            texts=(0, 1, 4),
            err=err,
        )
    _print_labels(train.data, err)
    for note in train.notes:
        typer.echo(printable(note), err=err)


def _print_labels(data: Dataset, err: bool) -> None:
    counts = data.Y.sum(axis=0, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    rows = [
        [data.label_names[j], f"{counts[j]:,}", f"{100 * counts[j] / data.n_samples:.1f} %"]
        for j in order[:_MAX_ROWS_SHOWN]
    ]
    print_table(
        f"Labels{_of(data.n_labels)}, {data.cardinality:.2f} in a row on average",
        ["label", "rows", "share"],
        rows,
        err=err,
    )
    always = [data.label_names[j] for j in order if counts[j] == data.n_samples]
    if always:
        typer.echo(
            f"In every row, so that there is nothing to learn: {printable(quoted(always))}", err=err
        )
    if data.n_labels > 1 and (data.Y.sum(axis=1) == 1).all():
        typer.echo(
            "Each row has exactly one label: methods for one label of several may do, too", err=err
        )
    rare = [data.label_names[j] for j in order if counts[j] < _MIN_ROWS_OF_LABEL]
    if rare:
        which = printable(quoted(rare, 10))
        typer.echo(
            f"In fewer than {_MIN_ROWS_OF_LABEL} rows, too few to learn from: {which}", err=err
        )


def _of(count: int) -> str:
    return f" (the first {_MAX_ROWS_SHOWN} of {count:,})" if count > _MAX_ROWS_SHOWN else ""


def training_json(train: TrainingData) -> dict[str, Any]:
    """Return the same for scripts."""
    counts = train.data.Y.sum(axis=0, dtype=np.int64).tolist()
    columns = [
        {
            "name": column.name,
            "kind": column.kind,
            "missing": column.gaps,
            "values": column.distinct,
        }
        for column in train.columns
    ]
    return {"columns": columns, "counts": dict(zip(train.data.label_names, counts, strict=True))}


def print_summary(title: str, summary: dict[str, Any], as_json: bool, err: bool = False) -> None:
    """Show what was fitted."""
    if as_json:
        typer.echo(json.dumps(summary), err=err)
        return
    rows = [[key.replace("_", " "), _shown(value)] for key, value in summary.items()]
    print_table(title, ["", "value"], [row for row in rows if row[1]], err=err)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    return f"{value:.4f}" if isinstance(value, float) and not value.is_integer() else f"{value}"


def by_label(names: list[str], Y: Any, predicted: Any, beta: float) -> list[dict[str, Any]]:
    """Measure each label by itself."""
    scores = label_scores(Y, predicted, beta)
    whole = {key: [int(v) for v in scores.pop(key)] for key in ("true", "predicted")}
    return [
        {
            "label": name,
            **{key: values[j] for key, values in whole.items()},
            **{key: float(values[j]) for key, values in scores.items()},
        }
        for j, name in enumerate(names)
    ]


def print_by_label(found: list[dict[str, Any]], beta: float) -> None:
    """Show the measures of each label, the most frequent first."""
    found = sorted(found, key=lambda row: -row["true"])
    numbers = ("precision", "recall", "fbeta")
    rows = [
        [row["label"], str(row["true"]), str(row["predicted"]), *(f"{row[k]:.4f}" for k in numbers)]
        for row in found[:_MAX_ROWS_SHOWN]
    ]
    head = ["label", "true", "predicted", "precision", "recall", f"F_{beta:g}"]
    print_table(f"By label{_of(len(found))}", head, rows)


def unseen_words(rows: InputRows) -> str:
    """Say which labels of a file a model has never seen."""
    listed = ", ".join(f"{name!r} ({count})" for name, count in list(rows.unseen.items())[:10])
    more = f" and {len(rows.unseen) - 10} more" if len(rows.unseen) > 10 else ""
    affected = int(np.any(rows.labels.extra, axis=1).sum()) if rows.labels else 0
    return (
        f"{affected} rows have labels that the model has never seen, which count as missed: "
        f"{listed}{more}"
    )


def load_model(path: Path, data: Path) -> StoredModel:
    """Load the model of a command; say so where the two files are swapped."""
    try:
        return model_files.load_model(path)
    except ModelFileError as error:
        if data.suffix == ".skops" and path.suffix != ".skops":
            words = f"{path}: expected a model: the model comes first, then the data ({data})"
            raise UserError(words) from error
        raise
