"""``fbeta evaluate`` and ``fbeta explain``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from fbeta._files import check_output, make_folder, write_text
from fbeta.cli import options as o
from fbeta.cli.app import command
from fbeta.cli.console import MAX_ROWS_SHOWN, first_of, print_table, stderr, unseen_words
from fbeta.datasets.dataset import quoted
from fbeta.datasets.model_data import InputRows
from fbeta.datasets.tables import plain_values
from fbeta.estimators.importance import label_importances
from fbeta.metrics import fbeta_per_instance
from fbeta.report import evaluation
from fbeta.report.charts import beta_chart, calibration_chart, colour_of, save_picture
from fbeta.report.pages import evaluation_page
from fbeta.storage.model_files import StoredModel

_MAX_ROWS_EXPLAINED = 1_000  # that effects are measured on


@command("fbeta evaluate model.skops scene-test.arff --json")
def evaluate(
    files: o.ModelFiles,
    data: Path = o.argument("File with the features and labels of the model."),
    beta: float | None = o.OTHER_BETA,
    plots: Path | None = o.option("Folder for plots of F_beta and its calibration."),
    report: Path | None = o.option("HTML file to look at: a slider for beta, labels, rows."),
    as_json: bool = o.JSON,
) -> None:
    """Measure predictions on labelled data; 0/0 counts as 1 in every measure."""
    outputs = [] if report is None else [report]
    if plots is not None:
        outputs += [make_folder(plots) / name for name in ("betas.png", "calibration.png")]
    for path in outputs:
        check_output(path, [files.model, data])
    stored, reader = files.open(data)
    test = reader.rows(data, labelled=True)
    used = float(stored.classifier.beta if beta is None else beta)
    found = stored.decide(test.X, [used])
    predicted, expected = np.asarray(found.labels[used]).astype(np.int8), found.expected.get(used)
    truth, padded = test.with_unseen(predicted)
    scores = evaluation.measure(truth, padded, used)
    labels = _by_label([*stored.label_names, *test.unseen], truth, padded, used)
    words = None
    if expected is not None:
        words = evaluation.calibration_words(expected, truth, padded, used)
    if plots is not None:
        _draw(stored, test, predicted, expected, used, plots)
    if report is not None:
        page = evaluation_page(
            stored,
            test.X,
            truth,
            title=f"{files.model.name} on {data.name}",
            beta=used,
            unseen=list(test.unseen),
            ids={name: plain_values(cells, False) for name, cells in test.kept.items()},
        )
        write_text(report, page)
    for note in (*test.notes, *([unseen_words(test)] if test.unseen else [])):
        stderr(f"fbeta: {note}")
    if as_json:
        shown = {"beta": used, "rows": test.n_samples, **scores, "by_label": labels}
        typer.echo(json.dumps({**shown, "unseen": dict(test.unseen), "calibration": words}))
        return
    _print_by_label(labels, used)
    print_table(
        f"{files.model} on {test.n_samples} rows of {data}, beta = {used:g}",
        ["measure", "value"],
        [[evaluation.MEASURES[key], f"{value:.4f}"] for key, value in scores.items()],
    )
    if words is not None:
        typer.echo("\n".join(textwrap.wrap(words, 100)))


def _by_label(names: list[str], Y: Any, predicted: Any, beta: float) -> list[dict[str, Any]]:
    """Measure each label by itself."""
    scores = evaluation.label_scores(Y, predicted, beta)
    columns = zip(names, *(values.tolist() for values in scores.values()), strict=True)
    return [dict(zip(("label", *scores), column, strict=True)) for column in columns]


def _print_by_label(found: list[dict[str, Any]], beta: float) -> None:
    """Show the measures of each label, the most frequent first."""
    rows = [
        [value if isinstance(value, str) else _number(value) for value in row.values()]
        for row in sorted(found, key=lambda row: -row["true"])[:MAX_ROWS_SHOWN]
    ]
    head = ["label", "true", "predicted", "precision", "recall", f"F_{beta:g}"]
    print_table(f"By label{first_of(len(found))}", head, rows)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _draw(
    stored: StoredModel,
    test: InputRows,
    predicted: NDArray[Any],
    expected: NDArray[Any] | None,
    beta: float,
    folder: Path,
) -> None:
    """Draw F_beta against beta, and actual against expected F_beta."""
    classifier = stored.classifier
    name = type(getattr(classifier, "best_estimator_", classifier)).__name__
    by_beta = evaluation.scores_by_beta(stored, test.X, test.Y)
    save_picture([beta_chart("", {name: by_beta})], folder / "betas.png")
    if expected is not None:
        lines = {name: expected}
        if getattr(classifier, "calibration_", None) is not None:
            lines["by its statistics alone"] = stored.expected_fbeta(test.X, beta, calibrated=False)
        actual = fbeta_per_instance(test.Y, predicted, beta)
        bins = {n: evaluation.calibration_bins(e, actual) for n, e in lines.items()}
        chart = calibration_chart("", bins, [colour_of(n) for n in lines])
        save_picture([chart], folder / "calibration.png")


@command("fbeta explain model.skops train.csv --only sea,sky")
def explain(
    files: o.ModelFiles,
    data: Path = o.argument("File with the features of the model."),
    only: str | None = o.option("Labels to explain: a,b (default: all)"),
    as_json: bool = o.JSON,
) -> None:
    """Show which features speak for each label: words, categories and numbers."""
    stored, reader = files.open(data)
    rows = reader.rows(data, labelled=False)
    labels = list(stored.label_names)
    wanted = labels if only is None else list(o.words(only))
    unknown = [name for name in wanted if name not in labels]
    if unknown:
        raise ValueError(f"--only: the model has no label {quoted(unknown)}")
    names, n = None if stored.steps else stored.feature_names, _MAX_ROWS_EXPLAINED
    X = rows.X.iloc[:n] if hasattr(rows.X, "iloc") else rows.X[:n]
    effects = label_importances(stored.estimator, X, feature_names=names).values()
    found = dict(zip(labels, effects, strict=True))
    for note in rows.notes:
        stderr(f"fbeta: {note}")
    if as_json:
        shown = {name: {f.feature: f.effect for f in found[name]} for name in wanted}
        typer.echo(json.dumps(shown))
        return
    table = [
        [name, ", ".join(f"{f.feature} ({f.effect:+.2f})" for f in found[name]) or "none"]
        for name in wanted
    ]
    title = f"Features with the largest effects on the labels, by {min(rows.n_samples, n)} rows"
    print_table(f"{title} of {data}", ["label", "features"], table, texts=(0, 1))
