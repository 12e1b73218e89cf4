"""``fbeta reproduce``: the experiments of the paper and the report on them; and ``fbeta demo``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from fbeta._files import make_folder, to_csv, write_text
from fbeta.cli import options as o
from fbeta.cli.app import app, command, print_table, progress_bar, run, show_help, stderr
from fbeta.datasets import list_datasets
from fbeta.experiments import benchmark
from fbeta.experiments.cells import Cell, ResultStore, grid, run_cells
from fbeta.experiments.report import ON_PAGE, printed_tables, result_rows, write_results
from fbeta.experiments.tables import NETWORKS
from fbeta.methods import METHODS

N_TRAIN, N_TEST = 1_500, 500  # tickets of the demo
NEXT = """Next, with a table of your own, whose column "tags" holds names such as a;b;c:
  fbeta fit yours.csv --label-column tags -o model.skops
  fbeta evaluate model.skops test.csv --report page.html
  fbeta predict model.skops new.csv -o predicted.csv"""
group = typer.Typer(
    invoke_without_command=True,
    callback=show_help,
    help="Run the experiments of the paper, and draw their tables and figures.",
    epilog="Example: [bold]fbeta reproduce table2 --datasets scene,yeast --output results[/bold]",
)
app.add_typer(group, name="reproduce")


RESULTS = o.option(
    "Folder of the results; what it has is not run again.",
    "--output",
    "-o",
    default=Path("results"),
)
DATA = o.option("Folder with the files of the data sets; others are downloaded.")
DATASETS = o.option(
    f"Some of {', '.join(['calibrated', *list_datasets()])}; the paper's six by default.",
    autocompletion=o.completing(benchmark.known_datasets),
)
METHOD_LIST = o.method_option("Some of {}; the paper's four by default.")
_POSITIVE = o.integer(1)


def _run(
    cells: list[Cell], compute: Callable[[Cell], dict[str, Any]], folder: Path, as_json: bool
) -> None:
    """Run cells under a progress bar, write and print their tables; fail where a cell failed."""
    store = ResultStore(make_folder(folder))
    with progress_bar(len(cells), "cells") as bar:
        task = bar.task_ids[0]

        def progress(cell: Cell, ended: bool) -> None:
            if ended:
                bar.advance(task)
            else:
                bar.update(task, description=f"{cell.dataset}, {cell.method}")

        records, computed, failures = run_cells(cells, compute, store, progress)
    for key, words in failures.items():
        stderr(f"fbeta: {key} failed: {words}")
    experiment = cells[0].experiment
    counts = {"cells": len(records), "computed": computed, "failures": failures}
    summary = {**counts, "rows": result_rows(experiment, records)}
    _write(folder, {experiment: records} if records else {}, as_json, summary)
    if failures:
        raise typer.Exit(1)


def _write(folder: Path, results: dict[str, Any], as_json: bool, summary: dict[str, Any]) -> None:
    """Write tables and figures of results, and print the tables, or a summary as JSON."""
    files = write_results(folder, results)
    if as_json:
        typer.echo(json.dumps({**summary, "files": list(map(str, files))}))
        return
    for table in printed_tables(results):
        print_table(*table)
    if files:
        typer.echo(f"wrote {', '.join(file.name for file in files)} in {folder}")


def _datasets(
    chosen: str | None, data: Path | None, folder: Path, default: Sequence[str]
) -> list[str]:
    """Return the data sets that can be loaded; others are reported where nobody asked for them."""
    # None is the default; no name at all is a mistake
    known = benchmark.known_datasets()
    wanted = default if chosen is None else o.names(chosen, known, "--datasets")
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data}: there is no such folder")
    left_out: dict[str, str] = {}
    for name in wanted:
        try:
            benchmark.load_dataset(name, data)
        except (ValueError, OSError, ImportError) as error:
            if chosen is not None:
                raise
            left_out[name] = " ".join(str(error).split())
            stderr(f"fbeta: {name} is left out: {left_out[name]}")
    found = [name for name in wanted if name not in left_out]
    if not found:
        raise ValueError("there is no data set: give their folder with --data")
    if left_out:
        ResultStore(folder).note_left_out(left_out)
    return found


@command("fbeta reproduce figure1 --seeds 5 --output results", group)
def figure1(
    output: Path = RESULTS,
    seeds: int = o.option("Training samples of each size.", default=5, **_POSITIVE),
    sizes: str | None = o.option("Sizes of the samples: 100,1000"),
    as_json: bool = o.JSON,
) -> None:
    """Convergence to the Bayes-optimal F_1 on synthetic data (Figure 1 of the paper)."""
    chosen = o.numbers(sizes, benchmark.SIZES, "--sizes")
    if min(chosen) < 1 or any(n != int(n) for n in chosen):
        raise ValueError(f"--sizes: expected whole positive numbers, found {sizes!r}")
    cells = benchmark.convergence_cells([int(n) for n in chosen], range(seeds))
    _run(cells, benchmark.compute_convergence, output, as_json)


@command(
    "fbeta reproduce table2 --data mulan --datasets scene,yeast --methods fbeta,br "
    "--output results",
    group,
    without=("alpha", "time_limit", "preset"),
)
def table2(
    output: Path = RESULTS,
    data: Path | None = DATA,
    datasets: str | None = DATASETS,
    methods: str | None = METHOD_LIST,
    beta: float = o.BETA,
    *,
    search: o.SearchOptions,
    seeds: int = o.option("How often, each time with other folds.", default=1, **_POSITIVE),
    as_json: bool = o.JSON,
) -> None:
    """F_1 of several methods on several data sets (Table 2 of the paper)."""
    chosen = None if methods is None else o.names(methods, list(METHODS), "--methods")
    names = _datasets(datasets, data, output, benchmark.PAPER_DATASETS)
    options: dict[str, Any] = {"beta": beta, "alphas": search.strengths, "cv": search.folds}
    cells = benchmark.benchmark_cells(names, chosen, seeds=range(seeds), **options)
    compute = partial(benchmark.compute_benchmark, data_home=data, n_jobs=search.jobs)
    _run(cells, compute, output, as_json)


@command("fbeta reproduce networks --data mulan --seeds 5 --output results", group)
def networks(
    output: Path = RESULTS,
    data: Path | None = DATA,
    datasets: str | None = DATASETS,
    methods: str | None = o.option("Names, by default all six."),
    seeds: int = o.option("Networks of each kind.", default=5, **_POSITIVE),
    batch: int = o.option("Rows in a step.", default=32, **_POSITIVE),
    epochs: int = o.option("Most passes over the rows.", default=200, **_POSITIVE),
    patience: int = o.option("Passes without gain to stop after.", default=25, **_POSITIVE),
    device: str = o.option("Where to train, such as cuda.", default="cpu"),
    as_json: bool = o.JSON,
) -> None:
    """One two-layer network under six losses and rules, mean and spread over seeds."""
    from fbeta.experiments.networks import DATASETS, compute_network

    names = _datasets(datasets, data, output, DATASETS)
    kinds = NETWORKS if methods is None else o.names(methods, list(NETWORKS), "--methods")
    limits = {"batch": batch, "epochs": epochs, "patience": patience}
    cells = grid("networks", names, list(kinds), range(seeds), **limits)

    def compute(cell: Cell) -> dict[str, Any]:
        return compute_network(cell, benchmark.load_dataset(cell.dataset, data), device)

    _run(cells, compute, output, as_json)


@command("fbeta reproduce auto --data mulan --output results", group)
def auto(
    output: Path = RESULTS,
    data: Path | None = DATA,
    datasets: str | None = o.option("Names, by default six."),
    seeds: int = o.option("How often, with other seeds.", default=1, **_POSITIVE),
    time_limit: float | None = o.option("Seconds for a fit, 300 or 900."),
    as_json: bool = o.JSON,
) -> None:
    """F, seconds and calibration of the automatic classifier."""
    names = o.words(datasets) or tuple(benchmark.AUTO_SECONDS)
    cells = benchmark.auto_cells(names, seeds=range(seeds), time_limit=time_limit)
    _run(cells, partial(benchmark.compute_auto, data_home=data), output, as_json)


@command("fbeta reproduce report --output results", group)
def report(output: Path = RESULTS, as_json: bool = o.JSON) -> None:
    """Draw every table and figure again, from the stored results alone."""
    results = {name: ResultStore(output).records(name) for name in sorted(ON_PAGE)}
    _write(output, results, as_json, {})


@command("fbeta demo --output demo")
def demo(
    output: Path = o.option(
        "Folder for figure, tables, model and page.", "--output", "-o", default=Path("fbeta-demo")
    ),
    seed: int = o.option("Of the samples.", default=0, min=0),
) -> None:
    """Watch F_1 converge to the Bayes optimum, and fit a table of text and tags."""
    _run(benchmark.convergence_cells(seeds=[seed]), benchmark.compute_convergence, output, False)
    _fit_tickets(output, seed)
    typer.echo(NEXT)


def _fit_tickets(output: Path, seed: int) -> None:
    """Write made-up support tickets, and run the commands that fit and evaluate them."""
    header, *rows = benchmark.make_tickets(N_TRAIN + N_TEST, seed)
    train, test, model, page = (
        str(output / f"tickets{end}") for end in (".csv", "-test.csv", ".skops", ".html")
    )
    write_text(train, to_csv([header, *rows[:N_TRAIN]]))
    write_text(test, to_csv([header, *rows[N_TRAIN:]]))
    for words in (
        ["fit", train, "--label-column", "tags", "--method", "fbeta", "-o", model],
        ["evaluate", model, test, "--report", page],
    ):
        typer.echo(f"\n$ fbeta {' '.join(words)}")
        code = run(words)
        if code:
            raise typer.Exit(code)
    typer.echo(f"wrote {page}: open it in a browser")
