"""``fbeta compare``: several methods on one pair of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import mendable, print_table, progress_bar, stderr
from fbeta.cli.data import Later, Reading, read_training
from fbeta.cli.fitting import check_folds, fit_method
from fbeta.cli.reports import print_training, unseen_words
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import METHODS, make_method, method_title
from fbeta.report.evaluation import MEASURES, measure


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
    reading: Reading,
    as_json: o.Json = False,
) -> None:
    """Fit several methods to one file, rank them by its folds, and measure them on another."""
    strengths = o.numbers(alphas, ALPHAS, "--alphas")
    names = o.names(methods, list(METHODS), "--methods")
    with mendable():
        models = {name: make_method(name, beta) for name in names}
        training = read_training(train, reading)
        check_folds(cv, training.data.n_samples)
    if not as_json:
        print_training(training, err=False)
    rows, held_out = [], None
    with progress_bar(len(models), "methods") as progress, mendable():
        bar = progress.task_ids[0]
        for name, model in models.items():
            progress.update(bar, description=name)
            fitted, found = fit_method(
                model,
                training.data,
                alphas=strengths,
                cv=cv or 5,
                jobs=jobs,
                time_limit=time_limit,
                always_score=True,
            )
            stored = training.stored(fitted)
            if held_out is None:
                held_out = Later(stored, reading.source).rows(test, labelled=True)
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
