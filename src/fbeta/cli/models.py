"""``fbeta fit`` and ``evaluate``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from fbeta._files import STDOUT, check_output, make_folder, write_text
from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, mendable, print_table, print_tried, stderr
from fbeta.cli.data import Later, Reading, Rows, read_training
from fbeta.cli.fitting import check_folds, default_method, fit_method
from fbeta.cli.reports import (
    by_label,
    print_by_label,
    print_summary,
    print_training,
    training_json,
    unseen_words,
)
from fbeta.cli.sources import Source
from fbeta.cli.streaming import stream_fit
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import make_method
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
from fbeta.storage.model_files import StoredModel, load_model, save_model


@app.command(
    epilog="Example: [bold]fbeta fit scene-train.arff --labels scene.xml -o model.skops[/bold]"
)
@o.gathers_options
def fit(
    data: Annotated[
        Path, typer.Argument(help="CSV, Parquet, JSON Lines, ARFF or SVMlight file, or -.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the model, or -.")],
    method: o.Method = None,
    beta: o.Beta = 1.0,
    cv: o.Cv = None,
    alphas: o.Alphas = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            parser=o.strength,
            metavar="NUMBER",
            help="A fixed strength of regularisation, no folds.",
        ),
    ] = None,
    jobs: o.Jobs = None,
    time_limit: o.TimeLimit = None,
    memory: o.Memory = None,
    checkpoint: o.Checkpoint = None,
    *,
    reading: Reading,
    as_json: o.Json = False,
) -> None:
    """Fit a model to labelled data and store it."""
    printed = str(output) in ("-", STDOUT)
    strengths = o.numbers(alphas, ALPHAS, "--alphas")
    method = default_method(method, alpha, alphas, memory, checkpoint)
    if memory is not None or checkpoint is not None:
        with mendable():
            if printed:
                raise UserError("--memory and --checkpoint: the model goes into a file")
            check_output(output, [data])
            found = stream_fit(
                data, output, make_method(method, beta), reading, memory=memory,
                checkpoint=checkpoint, alpha=alpha, alphas=strengths, cv=cv or 5,
            )  # fmt: skip
        summary = {"model": str(output), "method": method, "beta": beta, **found}
        print_summary(f"Fitted to {data}", summary, as_json)
        return
    with mendable():
        check_output(STDOUT if printed else output, [data, *reading.inputs])
        model = make_method(method, beta)
        _check_strength(model, method, alpha, {"--cv": cv, "--alphas": alphas, "--jobs": jobs})
        train = read_training(data, reading)
        check_folds(cv, train.data.n_samples)
    if not as_json:
        print_training(train, err=printed)
    with mendable():
        model, found = fit_method(
            model,
            train.data,
            alpha=alpha,
            alphas=strengths,
            cv=cv or 5,
            jobs=jobs,
            time_limit=time_limit,
        )
        save_model(
            STDOUT if printed else output, train.whole(model), label_names=train.data.label_names,
            feature_names=train.feature_names, reading=train.remembered,
            training={"method": method, "rows": train.data.n_samples, **found},
        )  # fmt: skip
    shape = {"rows": train.data.n_samples, "features": train.data.n_features}
    summary = {
        "model": str(output), "method": method, "beta": beta, **shape,
        "labels": train.data.n_labels, **found, **training_json(train),
    }  # fmt: skip
    tried = getattr(model, "leaderboard_", [])
    if as_json and tried:
        summary["leaderboard"] = tried
    print_summary(f"Fitted to {data}", summary, as_json, err=printed)
    if tried and not as_json:
        print_tried(tried, err=printed)


def _check_strength(model: Any, method: str, alpha: float | None, others: dict[str, Any]) -> None:
    """Refuse options for the choice of alpha where there is nothing to choose."""
    given = [name for name, value in others.items() if value is not None]
    known = model.get_params(deep=False)
    if "alpha" not in known:
        given = ["--alpha", *given] if alpha is not None else given
        own = {"--cv": "cv", "--jobs": "n_jobs"}  # of a method that has a search of its own
        given = [name for name in given if own.get(name) not in known]
        if given:
            raise UserError(f"{', '.join(given)}: the method {method} has no alpha")
    elif alpha is not None and given:
        raise UserError(f"{', '.join(given)}: with --alpha there is nothing to choose")


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
    missing: o.BelongsToFit = None,
    *,
    source: Source,
    as_json: o.Json = False,
) -> None:
    """Measure predictions on labelled data; 0/0 counts as 1 in every measure."""
    o.refuse_missing(missing)
    with mendable():
        if report is not None:
            check_output(report, [model, data])
        if plots is not None:
            make_folder(plots)
            for name in ("betas.png", "calibration.png"):
                check_output(plots / name, [model, data])
        stored = load_model(model)
        test = Later(stored, source).rows(data, labelled=True)
        measured_for = float(stored.classifier.beta if beta is None else beta)
        predicted = stored.predict(test.X, beta)
        truth, padded = test.with_unseen(predicted)
        scores = measure(truth, padded, measured_for)
        labels = by_label([*stored.label_names, *test.unseen], truth, padded, measured_for)
        words = None
        if hasattr(stored.classifier, "expected_fbeta"):
            expected = stored.expected_fbeta(test.X, beta)
            words = calibration_words(expected, truth, padded, measured_for)
        if plots is not None:
            _draw(stored, test, predicted, measured_for, plots)
        if report is not None:
            html = evaluation_page(
                stored, test.X, truth, title=f"{model.name} on {data.name}", beta=measured_for,
                unseen=list(test.unseen), ids=test.kept,
            )  # fmt: skip
            write_text(report, html)
    if test.unseen:
        stderr(f"fbeta: {unseen_words(test)}")
    if as_json:
        found = {"beta": measured_for, "rows": test.n_samples, **scores, "by_label": labels}
        typer.echo(json.dumps({**found, "unseen": dict(test.unseen), "calibration": words}))
        return
    print_by_label(labels, measured_for)
    print_table(
        f"{model} on {test.n_samples} rows of {data}, beta = {measured_for:g}",
        ["measure", "value"],
        [[MEASURES[key], f"{value:.4f}"] for key, value in scores.items()],
    )
    if words is not None:
        typer.echo("\n".join(textwrap.wrap(words, 100)))


def _draw(
    stored: StoredModel, test: Rows, predicted: NDArray[Any], beta: float, folder: Path
) -> None:
    classifier = stored.classifier
    name = type(getattr(classifier, "best_estimator_", classifier)).__name__
    by_beta = scores_by_beta(stored, test.X, test.Y)
    save_picture([beta_chart("", {name: by_beta})], folder / "betas.png")
    if hasattr(classifier, "expected_fbeta"):
        lines = {name: stored.expected_fbeta(test.X, beta)}
        if getattr(classifier, "calibration_", None) is not None:
            lines["by its statistics alone"] = stored.expected_fbeta(test.X, beta, calibrated=False)
        bins = {n: calibration_bins(e, test.Y, predicted, beta) for n, e in lines.items()}
        chart = calibration_chart("", bins, [colour_of(n) for n in lines])
        save_picture([chart], folder / "calibration.png")
