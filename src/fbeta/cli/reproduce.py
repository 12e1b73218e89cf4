"""``fbeta reproduce``: the table and the figure of the paper, and the report on both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta.cli import options as o
from fbeta.cli.app import app, show_help
from fbeta.cli.console import UserError, mendable, print_table, progress_bar, stderr
from fbeta.datasets import list_datasets
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import METHODS

group = typer.Typer(
    invoke_without_command=True,
    callback=show_help,
    help="Run the experiments of the paper, and draw their tables and figures.",
    epilog="Example: [bold]fbeta reproduce table2 --datasets scene,yeast --output results[/bold]",
)
app.add_typer(group, name="reproduce")


def _dataset_names() -> Sequence[str]:
    from fbeta.experiments.benchmark import known_datasets

    return known_datasets()


def _count(words: str) -> Any:
    """Make the option of a positive whole number."""
    return typer.Option(parser=o.whole(1), metavar="INTEGER", help=words)


Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="Folder of the results; what it has is not run again."),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(help="Folder with the files of the data sets; others are downloaded."),
]
DatasetList = Annotated[
    str | None,
    typer.Option(
        help=f"Some of {', '.join(['calibrated', *list_datasets()])}; the paper's six by default.",
        autocompletion=o.completing(_dataset_names),
    ),
]
MethodList = Annotated[
    str | None,
    typer.Option(
        help=f"Some of {', '.join(METHODS)}; the paper's four by default.",
        autocompletion=o.completing(lambda: list(METHODS)),
    ),
]


def _run(cells: list[Any], compute: Any, folder: Path, as_json: bool, page: bool = True) -> None:
    """Run cells under a progress bar, write and print their tables; fail where a cell failed."""
    from fbeta.experiments.outputs import run_and_write

    with mendable(), progress_bar(len(cells), "cells") as bar:
        task = bar.task_ids[0]

        def progress(cell: Any, ended: bool) -> None:
            if ended:
                bar.advance(task)
            else:
                bar.update(task, description=f"{cell.dataset}, {cell.method}")

        run, written = run_and_write(cells, compute, folder, progress, page=page)
    for key, words in run.failures.items():
        stderr(f"fbeta: {key} failed: {words}")
    counts = {"cells": len(run.records), "computed": run.computed, "failures": run.failures}
    _print(written, folder, as_json, {**counts, "rows": written.rows})
    if run.failures:
        raise typer.Exit(1)


def _print(written: Any, folder: Path, as_json: bool, summary: dict[str, Any]) -> None:
    """Print what was written."""
    if as_json:
        typer.echo(json.dumps({**summary, "files": [str(file) for file in written.files]}))
        return
    for table in written.tables:
        print_table(*table)
    if written.files:
        typer.echo(f"wrote {', '.join(file.name for file in written.files)} in {folder}")


def _datasets(
    chosen: str | None, data: Path | None, folder: Path, default: Sequence[str]
) -> list[str]:
    """Return the data sets that can be loaded; others are reported where nobody asked for them."""
    from fbeta.experiments.outputs import available_datasets

    # None is the default; no name at all is a mistake
    wanted = () if chosen is None else o.names(chosen, _dataset_names(), "--datasets")
    with mendable():
        found, left_out = available_datasets(wanted, default, data, folder)
    for name, why in left_out.items():
        stderr(f"fbeta: {name} is left out: {why}")
    if not found:
        raise UserError("there is no data set: give their folder with --data")
    return found


@group.command(epilog="Example: [bold]fbeta reproduce figure1 --seeds 5 --output results[/bold]")
def figure1(
    output: Output = Path("results"),
    seeds: Annotated[int, _count("Training samples of each size.")] = 5,
    sizes: Annotated[str | None, typer.Option(help="Sizes of the samples: 100,1000")] = None,
    as_json: o.Json = False,
) -> None:
    """Convergence to the Bayes-optimal F_1 on synthetic data (Figure 1 of the paper)."""
    from fbeta.experiments.convergence import SIZES, compute_convergence, convergence_cells

    chosen = o.numbers(sizes, SIZES, "--sizes")
    if min(chosen) < 1 or any(n != int(n) for n in chosen):
        raise UserError(f"--sizes: expected whole positive numbers, found {sizes!r}")
    cells = convergence_cells([int(n) for n in chosen], range(seeds))
    _run(cells, compute_convergence, output, as_json)


@group.command(
    epilog="Example: [bold]fbeta reproduce table2 --data mulan --datasets scene,yeast "
    "--methods fbeta,br --output results[/bold]"
)
def table2(
    output: Output = Path("results"),
    data: DataFolder = None,
    datasets: DatasetList = None,
    methods: MethodList = None,
    beta: o.Beta = 1.0,
    cv: o.Cv = None,
    alphas: o.Alphas = None,
    seeds: Annotated[int, _count("How often, each time with other folds.")] = 1,
    jobs: o.Jobs = None,
    as_json: o.Json = False,
) -> None:
    """F_1 of several methods on several data sets (Table 2 of the paper)."""
    from fbeta.experiments.benchmark import benchmark_cells, compute_benchmark
    from fbeta.experiments.paper import PAPER_DATASETS

    chosen = None if methods is None else o.names(methods, list(METHODS), "--methods")
    names = _datasets(datasets, data, output, PAPER_DATASETS)
    grid = o.numbers(alphas, ALPHAS, "--alphas")
    cells = benchmark_cells(names, chosen, seeds=range(seeds), beta=beta, alphas=grid, cv=cv or 5)
    _run(cells, partial(compute_benchmark, data_home=data, n_jobs=jobs), output, as_json)


@group.command(
    epilog="Example: [bold]fbeta reproduce networks --data mulan --seeds 5 --output results[/bold]"
)
def networks(
    output: Output = Path("results"),
    data: DataFolder = None,
    datasets: DatasetList = None,
    methods: Annotated[str | None, typer.Option(help="Names, by default all six.")] = None,
    seeds: Annotated[int, _count("Networks of each kind.")] = 5,
    batch: Annotated[int, _count("Rows in a step.")] = 32,
    epochs: Annotated[int, _count("Most passes over the rows.")] = 200,
    patience: Annotated[int, _count("Passes without gain to stop after.")] = 25,
    device: Annotated[str, typer.Option(help="Where to train, such as cuda.")] = "cpu",
    as_json: o.Json = False,
) -> None:
    """One two-layer network under six losses and rules, mean and spread over seeds."""
    from fbeta.experiments.benchmark import load_dataset
    from fbeta.experiments.networks import DATASETS, NETWORKS, compute_network, network_cells

    names = _datasets(datasets, data, output, DATASETS)
    kinds = NETWORKS if methods is None else o.names(methods, list(NETWORKS), "--methods")
    limits = {"batch": batch, "epochs": epochs, "patience": patience}
    cells = network_cells(names, kinds, range(seeds), **limits)

    def compute(cell: Any) -> dict[str, Any]:
        return compute_network(cell, load_dataset(cell.dataset, data), device)

    _run(cells, compute, output, as_json, page=False)


@group.command(epilog="Example: [bold]fbeta reproduce auto --data mulan --output results[/bold]")
def auto(
    output: Output = Path("results"),
    data: DataFolder = None,
    datasets: Annotated[str | None, typer.Option(help="Names, by default six.")] = None,
    seeds: Annotated[int, _count("How often, with other seeds.")] = 1,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for a fit, 300 or 900.")] = None,
    as_json: o.Json = False,
) -> None:
    """F, seconds and calibration of the automatic classifier."""
    from fbeta.experiments.auto import AUTO_SECONDS, auto_cells, compute_auto

    names = o.words(datasets) or tuple(AUTO_SECONDS)
    cells = auto_cells(names, seeds=range(seeds), time_limit=time_limit)
    _run(cells, partial(compute_auto, data_home=data), output, as_json, page=False)


@group.command(epilog="Example: [bold]fbeta reproduce report --output results[/bold]")
def report(output: Output = Path("results"), as_json: o.Json = False) -> None:
    """Draw every table and figure again, from the stored results alone."""
    from fbeta.experiments.outputs import write_report

    with mendable():
        written = write_report(output, draw=True)
    _print(written, output, as_json, {})
