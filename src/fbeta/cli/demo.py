"""``fbeta demo``: the paper's Figure 1 in small, and a table of text and tags from file to page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbeta.cli.app import app, run
from fbeta.cli.console import mendable, print_table, progress_bar

N_TRAIN, N_TEST = 1_500, 500  # tickets
NEXT = """Next, with a table of your own, whose column "tags" holds names such as a;b;c:
  fbeta fit yours.csv --label-column tags -o model.skops
  fbeta evaluate model.skops test.csv --report page.html
  fbeta predict model.skops new.csv -o predicted.csv"""


@app.command(epilog="Example: [bold]fbeta demo --output demo[/bold]")
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figure, tables, model and page.")
    ] = Path("fbeta-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
) -> None:
    """Watch F_1 converge to the Bayes optimum, and fit a table of text and tags."""
    from fbeta._files import make_folder

    with mendable():
        make_folder(output)
    _draw_convergence(output, seed)
    _fit_tickets(output, seed)
    typer.echo(NEXT)


def _draw_convergence(output: Path, seed: int) -> None:
    from fbeta._files import to_csv, write_text
    from fbeta.experiments.cells import Record
    from fbeta.experiments.charts import convergence_charts
    from fbeta.experiments.convergence import compute_convergence, convergence_cells
    from fbeta.report.drawing import save_picture

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


def _fit_tickets(output: Path, seed: int) -> None:
    """Write made-up support tickets, and run the commands that fit and evaluate them."""
    from fbeta._files import to_csv, write_text
    from fbeta.experiments.tickets import make_tickets

    header, *rows = make_tickets(N_TRAIN + N_TEST, seed)
    train, test, model, page = (
        output / name
        for name in ("tickets.csv", "tickets-test.csv", "tickets.skops", "tickets.html")
    )
    with mendable():
        write_text(train, to_csv([header, *rows[:N_TRAIN]]))
        write_text(test, to_csv([header, *rows[N_TRAIN:]]))
    for command in (
        ["fit", str(train), "--label-column", "tags", "--method", "fbeta", "-o", str(model)],
        ["evaluate", str(model), str(test), "--report", str(page)],
    ):
        typer.echo(f"\n$ fbeta {' '.join(command)}")
        code = run(command)
        if code:
            raise typer.Exit(code)
    typer.echo(f"wrote {page}: open it in a browser")
