"""``fbeta reproduce``: the table and the figure of the paper, and the report on both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta._files import make_folder, to_csv, write_text
from fbeta.cli import options as o
from fbeta.cli.app import app, show_help
from fbeta.cli.console import UserError, mendable, print_table, progress_bar, stderr
from fbeta.datasets import list_datasets
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import METHODS, method_title
from fbeta.report.drawing import save_picture

group = typer.Typer(
    invoke_without_command=True,
    callback=show_help,
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


def _dataset_names() -> Sequence[str]:
    from fbeta.experiments.benchmark import known_datasets

    return known_datasets()


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
        make_folder(output)
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
    seeds: Annotated[
        int,
        typer.Option(parser=o.whole(1), metavar="INTEGER", help="Training samples of each size."),
    ] = 5,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of the training samples: 100,1000")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Convergence to the Bayes-optimal F_1 on synthetic data (Figure 1 of the paper)."""
    from fbeta.experiments.convergence import SIZES, compute_convergence, convergence_cells

    chosen = [int(n) for n in o.numbers(sizes, SIZES, "--sizes")]
    if min(chosen) < 1 or any(n != int(n) for n in o.numbers(sizes, SIZES, "--sizes")):
        raise UserError(f"--sizes: expected whole positive numbers, found {sizes!r}")
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
    datasets: DatasetList = None,
    methods: MethodList = None,
    beta: o.Beta = 1.0,
    cv: o.Cv = None,
    alphas: o.Alphas = None,
    seeds: Annotated[
        int,
        typer.Option(
            parser=o.whole(1), metavar="INTEGER", help="How often, each time with other folds."
        ),
    ] = 1,
    jobs: o.Jobs = None,
    as_json: o.Json = False,
) -> None:
    """F_1 of several methods on several data sets (Table 2 of the paper)."""
    from fbeta.experiments.benchmark import benchmark_cells, compute_benchmark

    # None is the default; no name at all is a mistake
    chosen = None if methods is None else o.names(methods, list(METHODS), "--methods")
    wanted = () if datasets is None else o.names(datasets, _dataset_names(), "--datasets")
    names = _datasets(wanted, data, output)
    cells = benchmark_cells(
        names, chosen, seeds=range(seeds), beta=beta,
        alphas=o.numbers(alphas, ALPHAS, "--alphas"), cv=cv or 5,
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
    datasets: DatasetList = None,
    methods: Annotated[str | None, typer.Option(help="Names, by default all six.")] = None,
    seeds: Annotated[
        int, typer.Option(parser=o.whole(1), metavar="INTEGER", help="Networks of each kind.")
    ] = 5,
    batch: Annotated[
        int, typer.Option(parser=o.whole(1), metavar="INTEGER", help="Rows in a step.")
    ] = 32,
    epochs: Annotated[
        int, typer.Option(parser=o.whole(1), metavar="INTEGER", help="Most passes over the rows.")
    ] = 200,
    patience: Annotated[
        int,
        typer.Option(
            parser=o.whole(1), metavar="INTEGER", help="Passes without gain to stop after."
        ),
    ] = 25,
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

    wanted = () if datasets is None else o.names(datasets, _dataset_names(), "--datasets")
    names = _datasets(wanted, data, output, DATASETS)
    with mendable():
        cells = network_cells(
            names,
            NETWORKS if methods is None else o.names(methods, list(NETWORKS), "--methods"),
            range(seeds),
            batch=batch,
            epochs=epochs,
            patience=patience,
        )

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
    chosen: tuple[str, ...], data: Path | None, output: Path, default: Sequence[str] | None = None
) -> list[str]:
    """Check that the data sets can be had; only those nobody asked for may be absent."""
    from fbeta.experiments.benchmark import load_dataset
    from fbeta.experiments.paper import PAPER_DATASETS
    from fbeta.experiments.store import ResultStore

    if data is not None and not data.is_dir():
        raise UserError(f"--data {data}: there is no such folder")
    if chosen:
        with mendable():
            for name in chosen:
                load_dataset(name, data)
        return list(chosen)
    left_out: dict[str, str] = {}
    for name in default or PAPER_DATASETS:
        try:
            load_dataset(name, data)
        except (ValueError, OSError, ImportError) as error:
            left_out[name] = " ".join(str(error).split())
            stderr(f"fbeta: {name} is left out: {left_out[name]}")
    found = [name for name in default or PAPER_DATASETS if name not in left_out]
    if not found:
        raise UserError("there is no data set: give their folder with --data")
    if left_out:
        with mendable():
            ResultStore(output).note_left_out(left_out)
    return found


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


@group.command(epilog="Example: [bold]fbeta reproduce auto --data mulan --output results[/bold]")
def auto(
    output: Output = Path("results"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the files of the data sets.")
    ] = None,
    datasets: Annotated[str | None, typer.Option(help="Names, by default six.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How often, with other seeds.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for a fit; 300 by default, for bibtex 900.")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """F, seconds and calibration of the automatic classifier."""
    from fbeta.experiments.auto import AUTO_DATASETS, auto_cells, auto_rows, compute_auto

    names = o.words(datasets) or tuple(AUTO_DATASETS)
    cells = auto_cells(names, seeds=range(seeds), time_limit=time_limit)
    report = _run(cells, partial(compute_auto, data_home=data), output)
    head, *rows = auto_rows(report.records)
    with mendable():
        write_text(output / "auto.csv", to_csv([head, *rows]))
    if as_json:
        summary = {"computed": report.computed, "failures": report.failures}
        typer.echo(json.dumps({**summary, "rows": [dict(zip(head, r, strict=True)) for r in rows]}))
    else:
        shown = [[str(r[0]), str(r[1]), *("" if v is None else f"{v:.4f}" for v in r[2:])]
                 for r in rows]  # fmt: skip
        print_table("The automatic classifier on the test sets", head, shown)
    if report.failures:
        raise typer.Exit(1)


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
