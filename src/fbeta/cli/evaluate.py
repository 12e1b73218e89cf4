"""``fbeta evaluate``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from fbeta._files import check_output, make_folder, write_text
from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import mendable, print_table, stderr
from fbeta.cli.reports import by_label, load_model, print_by_label, unseen_words
from fbeta.datasets.model_input import InputRows, ModelInput
from fbeta.datasets.table_writing import plain_values
from fbeta.metrics import fbeta_per_instance
from fbeta.report.charts import beta_chart, calibration_chart, colour_of
from fbeta.report.drawing import save_picture
from fbeta.report.evaluation import (
    MEASURES,
    calibration_bins,
    calibration_words,
    measure,
    scores_by_beta,
)
from fbeta.report.evaluation_page import evaluation_page
from fbeta.storage.model_files import StoredModel


@app.command(epilog="Example: [bold]fbeta evaluate model.skops scene-test.arff --json[/bold]")
@o.gathers_options
def evaluate(
    model: o.ModelPath,
    data: Annotated[Path, typer.Argument(help="File with the features and labels of the model.")],
    beta: o.OtherBeta = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for plots of F_beta and its calibration.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML file to look at: a slider for beta, labels, rows.")
    ] = None,
    errors: o.Errors = o.UnreadCells.missing,
    missing: o.BelongsToFit = None,
    *,
    files: o.FileOptions,
    as_json: o.Json = False,
) -> None:
    """Measure predictions on labelled data; 0/0 counts as 1 in every measure."""
    o.refuse_missing(missing)
    with mendable():
        _check_outputs(report, plots, [model, data])
        stored = load_model(model, data)
        test = ModelInput(stored, files.source, errors.value).rows(data, labelled=True)
        used = float(stored.classifier.beta if beta is None else beta)
        predicted = stored.predict(test.X, beta)
        truth, padded = test.with_unseen(predicted)
        scores = measure(truth, padded, used)
        labels = by_label([*stored.label_names, *test.unseen], truth, padded, used)
        words = None
        if hasattr(stored.classifier, "expected_fbeta"):
            expected = stored.expected_fbeta(test.X, beta)
            words = calibration_words(expected, truth, padded, used)
        if plots is not None:
            _draw(stored, test, predicted, used, plots)
        if report is not None:
            page = evaluation_page(
                stored,
                test.X,
                truth,
                title=f"{model.name} on {data.name}",
                beta=used,
                unseen=list(test.unseen),
                ids={name: plain_values(cells, False) for name, cells in test.kept.items()},
            )
            write_text(report, page)
    for note in (*test.notes, *([unseen_words(test)] if test.unseen else [])):
        stderr(f"fbeta: {note}")
    if as_json:
        found = {"beta": used, "rows": test.n_samples, **scores, "by_label": labels}
        typer.echo(json.dumps({**found, "unseen": dict(test.unseen), "calibration": words}))
        return
    print_by_label(labels, used)
    print_table(
        f"{model} on {test.n_samples} rows of {data}, beta = {used:g}",
        ["measure", "value"],
        [[MEASURES[key], f"{value:.4f}"] for key, value in scores.items()],
    )
    if words is not None:
        typer.echo("\n".join(textwrap.wrap(words, 100)))


def _check_outputs(report: Path | None, plots: Path | None, inputs: list[Path]) -> None:
    if report is not None:
        check_output(report, inputs)
    if plots is not None:
        make_folder(plots)
        for name in ("betas.png", "calibration.png"):
            check_output(plots / name, inputs)


def _draw(
    stored: StoredModel, test: InputRows, predicted: NDArray[Any], beta: float, folder: Path
) -> None:
    classifier = stored.classifier
    name = type(getattr(classifier, "best_estimator_", classifier)).__name__
    by_beta = scores_by_beta(stored, test.X, test.Y)
    save_picture([beta_chart("", {name: by_beta})], folder / "betas.png")
    if hasattr(classifier, "expected_fbeta"):
        lines = {name: stored.expected_fbeta(test.X, beta)}
        if getattr(classifier, "calibration_", None) is not None:
            lines["by its statistics alone"] = stored.expected_fbeta(test.X, beta, calibrated=False)
        actual = fbeta_per_instance(test.Y, predicted, beta)
        bins = {n: calibration_bins(e, actual) for n, e in lines.items()}
        chart = calibration_chart("", bins, [colour_of(n) for n in lines])
        save_picture([chart], folder / "calibration.png")
