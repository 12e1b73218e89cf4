"""``fbeta reproduce``: the table and the figure of the paper, and the report on both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta._cli import options as o
from fbeta._cli.app import app
from fbeta._cli.console import UserError, mendable, print_table, progress_bar, stderr
from fbeta.charts.picture import save_picture
from fbeta.files import to_csv, write_text
from fbeta.methods import make_method, method_title
from fbeta.selection import ALPHAS

group = typer.Typer(
    no_args_is_help=True,
    help="Run the experiments of the paper, and draw their tables and figures.",
    epilog="Example: [bold]fbeta reproduce table2 --datasets scene,yeast --output results[/bold]",
)
app.add_typer(group, name="reproduce")

Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="Folder of the results; what it has is not run again."),
]

DataFolder = Annotated[
    Path | None,
    typer.Option(help="Folder with the files of the data sets; others are downloaded."),
]


class _Bar:
    """Tells a progress bar how a run goes on, as a ``Watcher`` of the experiments."""

    def __init__(self, progress: Any) -> None:
        self._progress, self._bar = progress, progress.task_ids[0]

    def started(self, cell: Any) -> None:
        words = f"{cell.dataset}, {cell.method}"
        self._progress.update(self._bar, description=words)

    def finished(self, cell: Any, record: Any) -> None:
        self._progress.advance(self._bar)


def _run(cells: list[Any], compute: Any, output: Path) -> Any:
    """Run cells under a bar; what fails is told at the end, and the rest is kept."""
    from fbeta.experiments.runner import run_cells
    from fbeta.experiments.store import ResultStore

    with mendable():
        output.mkdir(parents=True, exist_ok=True)
    with mendable(), progress_bar(len(cells), "cells") as progress:
        watcher: Any = _Bar(progress)
        report = run_cells(cells, compute, ResultStore(output), watcher)
    for key, words in report.failures.items():
        stderr(f"fbeta: {key} failed: {words}")
    return report


def _finish(
    report: Any, output: Path, files: list[Path], as_json: bool, rows: Any, *, page: bool = True
) -> None:
    """Tell what was done, on the page of results too, and fail where a cell failed."""
    summary = {
        "cells": len(report.records), "computed": report.computed, "failures": report.failures,
        "rows": rows,
    }  # fmt: skip
    if page:
        files = [*files, _write_page(output)]
    _tell(output, files, summary, as_json)
    if report.failures:
        raise typer.Exit(1)


def _write_page(output: Path) -> Path:
    """Write the report of all results in a folder."""
    from fbeta.experiments.report import html_report
    from fbeta.experiments.store import ResultStore

    page = output / "report.html"
    with mendable():
        write_text(page, html_report(ResultStore(output)))
    return page


def _tell(output: Path, files: list[Path], summary: dict[str, Any], as_json: bool) -> None:
    """Tell what was written."""
    if as_json:
        typer.echo(json.dumps({**summary, "files": [str(file) for file in files]}))
    else:
        typer.echo(f"wrote {', '.join(file.name for file in files)} in {output}")


@group.command(epilog="Example: [bold]fbeta reproduce figure1 --seeds 5 --output results[/bold]")
def figure1(
    output: Output = Path("results"),
    seeds: Annotated[int, typer.Option(min=1, help="Training samples of each size.")] = 5,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of the training samples: 100,1000")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Convergence to the Bayes-optimal F_1 on synthetic data (Figure 1 of the paper)."""
    from fbeta.experiments.convergence import SIZES, compute_convergence, convergence_cells

    chosen = [int(n) for n in o.numbers(sizes, SIZES)]
    if min(chosen) < 1:
        raise UserError("--sizes must be positive")
    report = _run(convergence_cells(chosen, range(seeds)), compute_convergence, output)
    files, rows = _write_convergence(report.records, output, as_json)
    _finish(report, output, files, as_json, rows)


def _write_convergence(records: Any, output: Path, quiet: bool) -> tuple[list[Path], Any]:
    from fbeta.experiments.charts import convergence_charts
    from fbeta.experiments.tables import convergence_rows

    files = [output / "figure1.csv", output / "figure1.png"]
    head, *rows = convergence_rows(records)
    with mendable():
        write_text(files[0], to_csv([head, *rows]))
        save_picture(convergence_charts(records), files[1])
    if not quiet:
        shown = [[f"{row[0]:,}", str(row[1]), *(f"{v:.5f}" for v in row[2:])] for row in rows]
        print_table("Convergence to the Bayes optimum", head, shown)
    return files, [dict(zip(head, row, strict=True)) for row in rows]


@group.command(
    epilog="Example: [bold]fbeta reproduce table2 --data mulan --datasets scene,yeast "
    "--methods fbeta,br --output results[/bold]"
)
def table2(
    output: Output = Path("results"),
    data: DataFolder = None,
    datasets: Annotated[str | None, typer.Option(help="Names, by default the paper's six.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names, by default the paper's four.")] = None,
    beta: o.Beta = 1.0,
    cv: o.Cv = 5,
    alphas: o.Alphas = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often, each time with other folds.")] = 1,
    jobs: o.Jobs = None,
    as_json: o.Json = False,
) -> None:
    """F_1 of several methods on several data sets (Table 2 of the paper)."""
    from fbeta.experiments.benchmark import benchmark_cells, compute_benchmark

    chosen = _methods(o.words(methods))
    names = _datasets(o.words(datasets), data)
    cells = benchmark_cells(
        names, chosen, seeds=range(seeds), beta=beta,
        alphas=o.numbers(alphas, ALPHAS), cv=cv,
    )  # fmt: skip
    report = _run(cells, partial(compute_benchmark, data_home=data, n_jobs=jobs), output)
    files, rows = _write_scores(report.records, output, as_json)
    _finish(report, output, files, as_json, rows)


@group.command(
    epilog="Example: [bold]fbeta reproduce networks --data mulan --seeds 5 --output results[/bold]"
)
def networks(
    output: Output = Path("results"),
    data: DataFolder = None,
    datasets: Annotated[str | None, typer.Option(help="Names, by default six of Mulan.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names, by default all six.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Rows in a step.")] = 32,
    epochs: Annotated[int, typer.Option(min=1, help="Most passes over the rows.")] = 200,
    patience: Annotated[int, typer.Option(min=1, help="Passes without gain to stop after.")] = 25,
    device: Annotated[str, typer.Option(help="Where to train, such as cuda.")] = "cpu",
    as_json: o.Json = False,
) -> None:
    """One two-layer network under six losses and rules, mean and spread over seeds."""
    from fbeta.experiments.benchmark import load_dataset
    from fbeta.experiments.networks import (
        DATASETS,
        NETWORKS,
        compute_network,
        network_cells,
        network_rows,
    )

    names = _datasets(o.words(datasets), data, DATASETS)
    with mendable():
        cells = network_cells(
            names, o.words(methods) or NETWORKS, range(seeds), batch=batch, epochs=epochs,
            patience=patience,
        )  # fmt: skip

    def compute(cell: Any) -> dict[str, Any]:
        return compute_network(cell, load_dataset(cell.dataset, data), device)

    report = _run(cells, compute, output)
    head, *rows = network_rows(report.records)
    with mendable():
        write_text(output / "networks.csv", to_csv([head, *rows]))
    if not as_json:
        shown = [[row[0], NETWORKS[row[1]], str(row[2]), *(f"{v:.4f}" for v in row[3:])]
                 for row in rows]  # fmt: skip
        print_table("A two-layer network", head, shown)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    _finish(report, output, [output / "networks.csv"], as_json, found, page=False)


def _datasets(
    chosen: tuple[str, ...], data: Path | None, default: Sequence[str] | None = None
) -> list[str]:
    """Check that the data sets can be had; only those nobody asked for may be absent."""
    from fbeta.experiments.benchmark import known_datasets, load_dataset
    from fbeta.experiments.paper import PAPER_DATASETS

    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: there is no such folder")
    unknown = [name for name in chosen if name not in known_datasets()]
    if unknown:
        known = ", ".join(known_datasets())
        raise UserError(f"unknown data set {unknown[0]!r}: expected one of {known}")
    if chosen:
        with mendable():
            for name in chosen:
                load_dataset(name, data)
        return list(chosen)
    found = []
    for name in default or PAPER_DATASETS:
        try:
            load_dataset(name, data)
        except (ValueError, OSError, ImportError) as error:
            stderr(f"fbeta: {name} is left out: {' '.join(str(error).split())}")
        else:
            found.append(name)
    if not found:
        raise UserError("there is no data set: give their folder with --data")
    return found


def _methods(chosen: tuple[str, ...]) -> tuple[str, ...] | None:
    with mendable():
        for name in chosen:
            make_method(name)
    return chosen or None


def _write_scores(records: Any, output: Path, quiet: bool) -> tuple[list[Path], Any]:
    """Write tables and figure of the cells that were asked for."""
    from fbeta.experiments.charts import score_charts
    from fbeta.experiments.tables import score_tables

    files: list[Path] = []
    rows: list[dict[str, Any]] = []
    with mendable():
        for number, table in enumerate(score_tables(records), start=1):
            # results of another protocol make another table, never a mixed one
            stem = "table2" if number == 1 else f"table2-{number}"
            texts = {"md": table.to_markdown(), "tex": table.to_latex(), "csv": table.to_csv()}
            for suffix, text in texts.items():
                files.append(output / f"{stem}.{suffix}")
                write_text(files[-1], text)
            files.append(output / f"{stem}.png")
            save_picture(score_charts(table), files[-1])
            rows += [
                {"dataset": d, "variant": v, "method": m, "score": e.score, "paper": e.paper}
                for (d, v, m), e in table.entries.items()
            ]
            if not quiet:
                head = ["data set", *(method_title(column) for column in table.columns)]
                print_table(table.caption, head, _shown(table))
    return files, rows


def _shown(table: Any) -> list[list[str]]:
    shown = []
    for row, entries in zip(table.rows, table.cells(), strict=True):
        words = [table.row_title(row)]
        for entry in entries:
            theirs = f" ({entry.paper:.4f} {entry.mark})" if entry and entry.paper else ""
            words.append(f"{entry.score:.4f}{theirs}" if entry else "")
        shown.append(words)
    return shown


@group.command(epilog="Example: [bold]fbeta reproduce report --output results[/bold]")
def report(output: Output = Path("results"), as_json: o.Json = False) -> None:
    """Draw every table and figure again, from the stored results alone."""
    from fbeta.experiments.store import ResultStore

    store = ResultStore(output)
    with mendable():
        figure1_records, table2_records = store.records("figure1"), store.records("table2")
    if not figure1_records and not table2_records:
        raise UserError(f"{output}: there are no results to report")
    files: list[Path] = []
    if figure1_records:
        files += _write_convergence(figure1_records, output, as_json)[0]
    if table2_records:
        files += _write_scores(table2_records, output, as_json)[0]
    _tell(output, [*files, _write_page(output)], {}, as_json)
