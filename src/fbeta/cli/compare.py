"""``fbeta compare``: several methods on one pair of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import mendable, print_table, progress_bar, search_words, stderr
from fbeta.cli.fitting import Strategy
from fbeta.cli.reports import print_training, unseen_words
from fbeta.datasets.model_input import ModelInput
from fbeta.datasets.training import read_training
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import METHODS, make_method, method_title
from fbeta.report.evaluation import MEASURES, measure
from fbeta.storage.model_files import StoredModel


@app.command(
    epilog="Example: [bold]fbeta compare train.arff test.arff --labels labels.xml "
    "--methods fbeta,br[/bold]"
)
@o.gathers_options
def compare(
    train: Annotated[Path, typer.Argument(help="Training file.")],
    test: Annotated[Path, typer.Argument(help="Test file of the same format.")],
    methods: o.MethodList = "auto,fbeta,br",
    beta: o.Beta = 1.0,
    cv: o.Cv = None,
    alphas: o.Alphas = None,
    jobs: o.Jobs = None,
    time_limit: o.TimeLimit = None,
    *,
    options: o.DataOptions,
    as_json: o.Json = False,
) -> None:
    """Fit several methods to one file, rank them by its folds, and measure them on another."""
    strengths = o.numbers(alphas, ALPHAS, "--alphas")
    names = o.names(methods, list(METHODS), "--methods")
    with mendable():
        models = {name: make_method(name, beta) for name in names}
        training = read_training(train, options.training)
        strategy = Strategy(None, strengths, cv or 5, jobs, time_limit)
        strategy.check_rows(training.data.n_samples)
    if not as_json:
        print_training(training, err=False)
    rows, held_out = [], None
    with progress_bar(len(models), "methods") as progress, mendable():
        bar = progress.task_ids[0]
        for name, model in models.items():
            progress.update(bar, description=name)

            def tell(event: Any, name: str = name) -> None:
                progress.update(bar, description=f"{name}, {search_words(event)}")

            fitted, found = strategy.fit(model, training.data, always_score=True, progress=tell)
            data = training.data
            stored = StoredModel(
                training.whole(fitted),
                data.label_names,
                training.feature_names,
                training.remembered,
            )
            if held_out is None:
                source = options.training.source
                held_out = ModelInput(stored, source).rows(test, labelled=True)
            scores = measure(*held_out.with_unseen(stored.predict(held_out.X)), beta)
            rows.append({"method": name, **found, **scores})
            progress.advance(bar)
    if held_out is not None and held_out.unseen:
        stderr(f"fbeta: {unseen_words(held_out)}")
    # the test file is for looking, not for choosing
    rows.sort(key=lambda row: -row["cv_score"])
    if as_json:
        typer.echo(json.dumps({"beta": beta, "methods": rows}))
    else:
        _print(rows, train, test, beta)


def _print(rows: list[dict[str, Any]], train: Path, test: Path, beta: float) -> None:
    # methods side by side: the names of the measures are too long for the head of a column
    shown = [["F_beta in cross-validation", *(f"{row['cv_score']:.4f}" for row in rows)]]
    shown += [[MEASURES[key], *(f"{row[key]:.4f}" for row in rows)] for key in MEASURES]
    alphas = ("" if row["alpha"] is None else f"{row['alpha']:g}" for row in rows)
    shown += [["alpha", *alphas], ["seconds", *(f"{row['seconds']:.1f}" for row in rows)]]
    head = ["measure", *(method_title(row["method"]) for row in rows)]
    print_table(f"Fitted to {train}, measured on {test}, beta = {beta:g}", head, shown)
