"""Files of results: tables, figures and the report, from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fbeta._files import make_folder, to_csv, write_text
from fbeta.experiments import benchmark
from fbeta.experiments.auto import auto_rows
from fbeta.experiments.cells import Cell, Record, ResultError
from fbeta.experiments.charts import convergence_charts, score_charts
from fbeta.experiments.networks import NETWORKS, network_rows
from fbeta.experiments.report import html_report
from fbeta.experiments.runner import Compute, Progress, Run, run_cells
from fbeta.experiments.store import ResultStore
from fbeta.experiments.tables import convergence_rows, score_tables
from fbeta.report.drawing import save_picture

__all__ = ["Output", "available_datasets", "run_and_write", "write_report"]


@dataclass(frozen=True)
class Output:
    """Files that were written, tables to print (title, head, rows), and the rows as data."""

    files: list[Path] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __add__(self, other: Output) -> Output:
        return Output(self.files + other.files, self.tables + other.tables, self.rows + other.rows)


def available_datasets(
    chosen: Sequence[str], default: Sequence[str], data: Path | None, folder: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the data sets that can be loaded, and why others cannot, for the report as well.

    Only data sets that were not asked for by name may be absent.
    """
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data}: there is no such folder")
    left_out: dict[str, str] = {}
    for name in chosen or default:
        try:
            benchmark.load_dataset(name, data)
        except (ValueError, OSError, ImportError) as error:
            if chosen:
                raise
            left_out[name] = " ".join(str(error).split())
    found = [name for name in chosen or default if name not in left_out]
    if found and left_out:
        ResultStore(folder).note_left_out(left_out)
    return found, left_out


def run_and_write(
    cells: Sequence[Cell], compute: Compute, folder: Path, progress: Progress, *, page: bool
) -> tuple[Run, Output]:
    """Run the cells of one experiment, and write its tables and figures, and the report."""
    run = run_cells(cells, compute, ResultStore(make_folder(folder)), progress)
    if not run.records:
        return run, Output()
    output = write_all(cells[0].experiment, run.records, folder)
    return run, output + (write_report(folder) if page else Output())


def write_all(experiment: str, records: Sequence[Record], folder: Path) -> Output:
    """Write the tables and figures of an experiment."""
    writers = {
        "figure1": _write_convergence,
        "table2": _write_scores,
        "networks": _write_networks,
        "auto": _write_auto,
    }
    return writers[experiment](records, folder)


def write_report(folder: Path, *, draw: bool = False) -> Output:
    """Write the HTML page of all results in a folder, and their tables and figures if `draw`."""
    store, output = ResultStore(folder), Output()
    if draw:
        found = {name: store.records(name) for name in ("figure1", "table2")}
        if not any(found.values()):
            raise ResultError(f"{folder}: there are no results to report")
        for name, records in found.items():
            output += write_all(name, records, folder) if records else Output()
    write_text(folder / "report.html", html_report(store))
    return output + Output([folder / "report.html"])


def _write_table(
    folder: Path, stem: str, title: str, table: list[list[Any]], shown: list[list[str]]
) -> Output:
    """Write a table with a header as CSV."""
    head, *rows = table
    write_text(folder / f"{stem}.csv", to_csv(table))
    data = [dict(zip(head, row, strict=True)) for row in rows]
    return Output([folder / f"{stem}.csv"], [(title, head, shown)], data)


def _write_convergence(records: Sequence[Record], folder: Path) -> Output:
    table = convergence_rows(records)
    shown = [[f"{row[0]:,}", str(row[1]), *(f"{v:.5f}" for v in row[2:])] for row in table[1:]]
    title = "Convergence to the Bayes optimum"
    output = _write_table(folder, "figure1", title, table, shown)
    save_picture(convergence_charts(records), folder / "figure1.png")
    return output + Output([folder / "figure1.png"])


def _write_networks(records: Sequence[Record], folder: Path) -> Output:
    table = network_rows(records)
    shown = [
        [row[0], NETWORKS[row[1]], str(row[2]), *(f"{value:.4f}" for value in row[3:])]
        for row in table[1:]
    ]
    return _write_table(folder, "networks", "A two-layer network", table, shown)


def _write_auto(records: Sequence[Record], folder: Path) -> Output:
    table = auto_rows(records)
    shown = [
        [*map(str, row[:2]), *("" if value is None else f"{value:.4f}" for value in row[2:])]
        for row in table[1:]
    ]
    return _write_table(folder, "auto", "The automatic classifier on the test sets", table, shown)


def _write_scores(records: Sequence[Record], folder: Path) -> Output:
    output = Output()
    for number, table in enumerate(score_tables(records), start=1):
        # results of another protocol are another table, never a mixed one
        stem = "table2" if number == 1 else f"table2-{number}"
        texts = {"md": table.to_markdown(), "tex": table.to_latex(), "csv": table.to_csv()}
        for suffix, text in texts.items():
            write_text(folder / f"{stem}.{suffix}", text)
        save_picture(score_charts(table), folder / f"{stem}.png")
        output += Output(
            [folder / f"{stem}.{suffix}" for suffix in (*texts, "png")],
            [(table.caption, table.head, table.plain_lines())],
            [
                {"dataset": d, "variant": v, "method": m, "score": e.score, "paper": e.paper}
                for (d, v, m), e in table.entries.items()
            ],
        )
    return output
