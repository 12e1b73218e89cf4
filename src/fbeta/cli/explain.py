"""``fbeta explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, mendable, print_table, stderr
from fbeta.cli.reports import load_model
from fbeta.datasets.files import quoted
from fbeta.datasets.model_input import ModelInput
from fbeta.estimators.importance import label_importances

_MAX_ROWS = 1_000  # that effects are measured on


@app.command(epilog="Example: [bold]fbeta explain model.skops train.csv --only sea,sky[/bold]")
@o.gathers_options
def explain(
    model: o.ModelPath,
    data: Annotated[Path, typer.Argument(help="File with the features of the model.")],
    only: Annotated[str | None, typer.Option(help="Labels to explain: a,b (default: all)")] = None,
    errors: o.Errors = o.UnreadCells.missing,
    *,
    files: o.FileOptions,
    as_json: o.Json = False,
) -> None:
    """Show which features speak for each label: words, categories and numbers."""
    with mendable():
        stored = load_model(model, data)
        rows = ModelInput(stored, files.source, errors.value).rows(data, labelled=False)
        labels = list(stored.label_names)
        wanted = labels if only is None else list(o.words(only))
        unknown = [name for name in wanted if name not in labels]
        if unknown:
            raise UserError(f"--only: the model has no label {quoted(unknown)}")
        names = None if stored.steps else stored.feature_names
        X = rows.X.iloc[:_MAX_ROWS] if hasattr(rows.X, "iloc") else rows.X[:_MAX_ROWS]
        effects = label_importances(stored.estimator, X, feature_names=names).values()
        found = dict(zip(labels, effects, strict=True))
    for note in rows.notes:
        stderr(f"fbeta: {note}")
    if as_json:
        shown = {n: {f.feature: f.effect for f in found[n]} for n in wanted}
        typer.echo(json.dumps(shown))
        return
    table = [
        [n, ", ".join(f"{f.feature} ({f.effect:+.2f})" for f in found[n]) or "none"] for n in wanted
    ]
    title = (
        f"Features with the largest effects on the labels, by {min(rows.n_samples, _MAX_ROWS)} rows"
    )
    print_table(f"{title} of {data}", ["label", "features"], table, texts=(0, 1))
