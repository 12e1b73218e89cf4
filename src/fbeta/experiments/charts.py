"""The charts of the experiments, from stored results alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fbeta.charts import (
    Axis,
    Bar,
    BarChart,
    LineChart,
    Series,
    beta_chart,
    calibration_chart,
    colour_of,
)
from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.tables import Entry, ScoreTable, convergence_rows
from fbeta.methods import method_title

__all__ = ["beta_charts", "calibration_charts", "convergence_charts", "score_charts"]


def convergence_charts(records: Sequence[Record]) -> list[LineChart]:
    """Show F_beta and regret against the size of the training sample.

    Parameters
    ----------
    records : sequence of Record
        Of the experiment ``figure1``.

    Returns
    -------
    list of LineChart
        Means over the seeds, each seed as a point.

    Raises
    ------
    ResultError
        If there are no results.
    """
    if not records:
        raise ResultError("there are no results of figure1 to draw")
    head, *rows = convergence_rows(records)
    beta = f"F_{records[0].cell.parameters['beta']:g}"

    def points(field: str) -> list[tuple[float, float]]:
        return [(row[0], row[head.index(field)]) for row in rows]

    def series(field: str, name: str) -> list[Series]:
        runs = [(float(r.cell.parameters["n_train"]), r.result[field]) for r in records]
        return [Series("", runs, loose=True), Series(name, points(field))]

    x = Axis("training instances", log=True)
    bayes = Series("Bayes optimum", points("bayes"), None)
    positive = all(record.result["regret"] > 0 for record in records)
    return [
        LineChart(
            f"{beta} and the Bayes optimum",
            x,
            Axis(f"expected {beta}"),
            [*series("expected", "FBetaClassifier"), bayes],
        ),
        LineChart("Exact regret", x, Axis(f"{beta}-regret", positive), series("regret", "regret")),
    ]


def score_charts(table: ScoreTable) -> list[BarChart]:
    """Show the scores of every data set, with marks for the numbers of the paper.

    Parameters
    ----------
    table : ScoreTable
        Data sets x methods.

    Returns
    -------
    list of BarChart
        One for each row of the table.
    """
    label = f"F_{table.protocol['beta']:g} on the test set"
    return [
        BarChart(
            table.row_title(row),
            label,
            [
                Bar(method_title(method), entry.score, entry.paper, colour_of(method))
                for method, entry in table.row_entries(row).items()
            ],
        )
        for row in table.rows
    ]


def beta_charts(table: ScoreTable) -> list[LineChart]:
    """Show F_beta against beta for every data set.

    Parameters
    ----------
    table : ScoreTable
        Data sets x methods.

    Returns
    -------
    list of LineChart
        One for each row of the table with a method that was measured for several beta.
    """
    charts = []
    for row in table.rows:
        scores = {method: _by_beta(entry) for method, entry in table.row_entries(row).items()}
        scores = {method: by_beta for method, by_beta in scores.items() if len(by_beta) > 1}
        if scores:
            charts.append(beta_chart(table.row_title(row), scores))
    return charts


def _by_beta(entry: Entry) -> dict[str, float]:
    tables = [record.result["betas"] for record in entry.records]
    shared = set(tables[0]).intersection(*tables)
    return {beta: fmean(table[beta] for table in tables) for beta in shared}


def calibration_charts(table: ScoreTable) -> list[LineChart]:
    """Show the F_beta that predictions got against what the model expected.

    Parameters
    ----------
    table : ScoreTable
        Data sets x methods.

    Returns
    -------
    list of LineChart
        One for each method that expects something, with a line for each data set.
    """
    charts = []
    for method in table.columns:
        bins, colours = {}, []
        for number, row in enumerate(table.rows):
            entry = table.entries.get((*row, method))
            if entry is not None and entry.records[0].result["calibration"]:
                bins[table.row_title(row)] = entry.records[0].result["calibration"]
                colours.append(number)
        if bins:
            charts.append(calibration_chart(method_title(method), bins, colours))
    return charts
