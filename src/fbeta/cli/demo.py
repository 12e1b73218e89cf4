"""``fbeta demo``: the paper's Figure 1 in small."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbeta._files import make_folder, to_csv, write_text
from fbeta.cli.app import app
from fbeta.cli.console import mendable, print_table, progress_bar
from fbeta.report.drawing import save_picture


@app.command(epilog="Example: [bold]fbeta demo --output demo[/bold]")
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the plot and the numbers.")
    ] = Path("fbeta-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the training samples.")] = 0,
) -> None:
    """Watch F_1 converge to the Bayes optimum on synthetic data whose law is known."""
    from fbeta.experiments.cells import Record
    from fbeta.experiments.charts import convergence_charts
    from fbeta.experiments.convergence import compute_convergence, convergence_cells

    with mendable():
        make_folder(output)
    cells = convergence_cells(seeds=[seed])
    records = []
    with progress_bar(len(cells), "fits") as progress:
        bar = progress.task_ids[0]
        for cell in cells:
            progress.update(bar, description=f"n = {cell.parameters['n_train']:,}")
            records.append(Record.now(cell, compute_convergence(cell), 0.0))
            progress.advance(bar)
    fields = ("score", "expected", "regret", "bayes")
    rows = [[r.cell.parameters["n_train"], *(r.result[f] for f in fields)] for r in records]
    print_table(
        "Convergence to the Bayes-optimal F_1 (6 labels, 100 features, 15,000 test points)",
        ["n", "F_1 on test labels", "F_1 expected", "exact regret", "Bayes optimum"],
        [[f"{n:,}", *(f"{value:.5f}" for value in values)] for n, *values in rows],
    )
    with mendable():
        write_text(output / "convergence.csv", to_csv([["n", *fields], *rows]))
        save_picture(convergence_charts(records), output / "convergence.png")
    typer.echo(f"wrote {output / 'convergence.png'} and {output / 'convergence.csv'}")
