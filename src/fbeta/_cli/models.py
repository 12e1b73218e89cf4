"""``fbeta fit``, ``predict`` and ``evaluate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from fbeta._cli import options as o
from fbeta._cli.app import app
from fbeta._cli.console import UserError, mendable, print_table
from fbeta._cli.data import Reading, read_features, read_labelled, read_training
from fbeta._cli.fitting import fit_method
from fbeta._cli.streaming import stream_fit, stream_predict
from fbeta.charts import beta_chart, calibration_chart, colour_of
from fbeta.charts.picture import save_picture
from fbeta.datasets import Dataset
from fbeta.evaluation import MEASURES, calibration_bins, measure, scores_by_beta
from fbeta.files import to_csv, write_text
from fbeta.methods import make_method
from fbeta.selection import ALPHAS
from fbeta.storage import StoredModel, load_model, save_model

ModelPath = Annotated[Path, typer.Argument(help="A model of [bold]fbeta fit[/bold].")]


def _check_output(path: Path) -> None:
    """Refuse a place that cannot be written to before the work begins, not after it."""
    with mendable():
        if path.is_dir():
            raise UserError(f"{path}: is a folder, expected the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)


@app.command(
    epilog="Example: [bold]fbeta fit scene-train.arff --labels scene.xml -o model.skops[/bold]"
)
@o.reads_training
def fit(
    data: Annotated[Path, typer.Argument(help="ARFF, CSV, Parquet or SVMlight file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the model.")],
    method: Annotated[str, typer.Option(help="Name of a method.")] = "fbeta",
    beta: o.Beta = 1.0,
    cv: o.Cv = 5,
    alphas: o.Alphas = None,
    alpha: Annotated[
        float | None, typer.Option(help="A fixed strength of regularisation, without folds.")
    ] = None,
    jobs: o.Jobs = None,
    memory: o.Memory = None,
    checkpoint: o.Checkpoint = None,
    *,
    reading: Reading,
    as_json: o.Json = False,
) -> None:
    """Fit a model to labelled data and store it."""
    _check_output(output)
    strengths = o.numbers(alphas, ALPHAS)
    if memory is not None or checkpoint is not None:
        with mendable():
            model = make_method(method, beta)
            columns = {
                "labels": reading.label_columns or None, "label_prefix": reading.label_prefix,
                "label_column": reading.label_column, "delimiter": reading.delimiter,
                "drop": reading.drop,
            }  # fmt: skip
            found = stream_fit(
                data, output, model, columns, reading.remembered(), memory=memory,
                checkpoint=checkpoint, alpha=alpha, alphas=strengths, cv=cv,
            )  # fmt: skip
        summary = {"model": str(output), "method": method, "beta": beta, **found}
        _print_summary(f"Fitted to {data}", summary, as_json)
        return
    with mendable():
        model = make_method(method, beta)
        train, remembered = read_training(data, reading)
        model, found = fit_method(model, train, alpha=alpha, alphas=strengths, cv=cv, jobs=jobs)
        save_model(
            output, model, label_names=train.label_names, feature_names=train.feature_names,
            reading=remembered,
        )  # fmt: skip
    shape = {"rows": train.n_samples, "features": train.n_features, "labels": train.n_labels}
    summary = {"model": str(output), "method": method, "beta": beta, **shape, **found}
    _print_summary(f"Fitted to {data}", summary, as_json)


def _print_summary(title: str, summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary))
        return
    rows = [[key.replace("_", " "), _shown(value)] for key, value in summary.items()]
    print_table(title, ["", "value"], [row for row in rows if row[1]])


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) and not value.is_integer() else f"{value}"


@app.command(epilog="Example: [bold]fbeta predict model.skops new.csv -o out.csv --beta 2[/bold]")
def predict(
    model: ModelPath,
    data: Annotated[Path, typer.Argument(help="File with the features of the model.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file; by default it is printed.")
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Predict for this beta instead of that of the model.")
    ] = None,
    form: Annotated[
        o.Form, typer.Option(help="One 0/1 column for each label, or a column of names.")
    ] = o.Form.columns,
    delimiter: Annotated[str, typer.Option(help="Between the names.")] = ";",
    expected: Annotated[
        bool, typer.Option("--expected", help="Add the F_beta to be expected of each row.")
    ] = False,
    memory: o.Memory = None,
    as_json: o.Json = False,
) -> None:
    """Predict the label sets of new data."""
    if output is not None:
        _check_output(output)
    if memory is not None:
        if output is None or as_json:
            raise UserError("--memory writes a CSV file: give --output, and no --json")
        rows_of = partial(_prediction_rows, form=form.value, delimiter=delimiter)
        with mendable():
            stored = load_model(model)
            count = stream_predict(
                data, output, stored, rows_of, memory=memory, beta=beta, expected=expected
            )
        typer.echo(f"wrote {count} predictions to {output}", err=True)
        return
    with mendable():
        stored = load_model(model)
        X = read_features(data, stored)
        predicted = stored.predict(X, beta)
        sure = stored.expected_fbeta(X, beta) if expected else None
        rows = _prediction_rows(predicted, sure, stored.label_names, form.value, delimiter)
        if as_json:
            text = json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]) + "\n"
        else:
            text = to_csv(rows)
        if output is not None:
            write_text(output, text)
    if output is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"wrote {len(predicted)} predictions to {output}", err=True)


def _prediction_rows(
    predicted: NDArray[Any],
    expected: NDArray[Any] | None,
    label_names: Sequence[str],
    form: str,
    delimiter: str,
) -> list[list[Any]]:
    """Return predictions, and what is expected of them, as rows of a CSV file, a header first."""
    if form == "sets":
        clash = [name for name in label_names if delimiter in name]
        if clash:
            raise ValueError(f"label {clash[0]!r} contains the delimiter {delimiter!r}")
        head: list[str] = ["labels"]
        rows: list[list[Any]] = [
            [delimiter.join(label_names[j] for j in np.flatnonzero(row).tolist())]
            for row in predicted
        ]
    else:
        head, rows = list(label_names), predicted.astype(int).tolist()
    if expected is not None:
        head = [*head, "expected_fbeta"]
        rows = [[*row, float(value)] for row, value in zip(rows, expected, strict=True)]
    return [head, *rows]


@app.command(epilog="Example: [bold]fbeta evaluate model.skops scene-test.arff --json[/bold]")
def evaluate(
    model: ModelPath,
    data: Annotated[Path, typer.Argument(help="File with the features and labels of the model.")],
    beta: Annotated[float | None, typer.Option(help="Predict and measure for this beta.")] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for plots of F_beta and its calibration.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Measure predictions on labelled data; 0/0 counts as 1 in every measure."""
    with mendable():
        stored = load_model(model)
        test = read_labelled(data, stored)
        measured_for = float(stored.classifier.beta if beta is None else beta)
        predicted = stored.predict(test.X, beta)
        scores = measure(test.Y, predicted, measured_for)
        if plots is not None:
            _draw(stored, test, predicted, measured_for, plots)
    if as_json:
        typer.echo(json.dumps({"beta": measured_for, "rows": test.n_samples, **scores}))
        return
    print_table(
        f"{model} on {test.n_samples} rows of {data}, beta = {measured_for:g}",
        ["measure", "value"],
        [[MEASURES[key], f"{value:.4f}"] for key, value in scores.items()],
    )


def _draw(
    stored: StoredModel, test: Dataset, predicted: NDArray[Any], beta: float, folder: Path
) -> None:
    name = type(stored.classifier).__name__
    by_beta = scores_by_beta(stored, test.X, test.Y)
    save_picture([beta_chart("", {name: by_beta})], folder / "betas.png")
    if hasattr(stored.classifier, "expected_fbeta"):
        expected = stored.expected_fbeta(test.X, beta)
        bins = calibration_bins(expected, test.Y, predicted, beta)
        chart = calibration_chart("", {name: bins}, [colour_of(name)])
        save_picture([chart], folder / "calibration.png")
