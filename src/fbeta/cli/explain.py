"""``fbeta explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, mendable, print_table, stderr
from fbeta.cli.reports import load_model
from fbeta.datasets.files import quoted
from fbeta.datasets.model_input import ModelInput
from fbeta.report.inspection import speaking_features


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
        X, marginals = rows.X, stored.predict_proba(rows.X)
        names: Any = stored.feature_names
        for step in stored.steps:
            X = step.transform(X)
            names = step.get_feature_names_out(names) if hasattr(step, "parts_") else names
        if names is None or len(names) != X.shape[1]:
            names = [f"feature {j + 1}" for j in range(X.shape[1])]
        found = dict(zip(labels, speaking_features(X, marginals, names), strict=True))
    for note in rows.notes:
        stderr(f"fbeta: {note}")
    if as_json:
        typer.echo(json.dumps({name: dict(found[name]) for name in wanted}))
        return
    shown = [[n, ", ".join(f"{f} ({v:.2f})" for f, v in found[n]) or "none"] for n in wanted]
    title = (
        f"Features that go with a high probability of a label on {rows.n_samples} rows of {data}"
    )
    print_table(f"{title}, by correlation", ["label", "features"], shown, texts=(0, 1))
