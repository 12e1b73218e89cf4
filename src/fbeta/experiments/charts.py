"""The charts of the experiments, from stored results alone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.tables import Entry, ScoreTable, convergence_rows
from fbeta.methods import METHODS, method_title
from fbeta.report.charts import (
    Bar,
    BarChart,
    LineChart,
    Series,
    beta_chart,
    calibration_chart,
    colour_of,
)


def convergence_charts(records: Sequence[Record]) -> list[LineChart]:
    """Show F_beta and regret against the size of the training sample: means over the seeds."""
    if not records:
        raise ResultError("there are no results of figure1 to draw")
    head, *rows = convergence_rows(records)
    beta = f"F_{records[0].cell.parameters['beta']:g}"

    def points(field: str) -> list[tuple[float, float]]:
        return [(row[0], row[head.index(field)]) for row in rows]

    def lines(field: str, name: str) -> list[Series]:
        runs = [(float(r.cell.parameters["n_train"]), r.result[field]) for r in records]
        return [Series("", runs, loose=True), Series(name, points(field))]

    bayes = Series("Bayes optimum", points("bayes"), None)
    scores = [*lines("expected", "FBetaClassifier"), bayes]
    title, x, y = f"{beta} and the Bayes optimum", "training instances", f"expected {beta}"
    positive = all(record.result["regret"] > 0 for record in records)
    regret = lines("regret", "regret")
    return [
        LineChart(title, x, y, scores, x_log=True),
        LineChart("Exact regret", x, f"{beta}-regret", regret, x_log=True, y_log=positive),
    ]


def score_charts(table: ScoreTable) -> list[BarChart]:
    """Show the scores of every data set, with marks for the numbers of the paper."""
    label = f"F_{table.protocol['beta']:g} on the test set"
    charts = []
    for row in table.rows:
        bars = [
            Bar(method_title(method), entry.score, entry.paper, colour_of(method))
            for method, entry in table.row_entries(row).items()
        ]
        charts.append(BarChart(table.row_title(row), label, bars))
    return charts


def beta_charts(table: ScoreTable) -> list[LineChart]:
    """Show F_beta against beta for every data set, of methods that take beta after the fit."""
    scores = {row: scores_of_betas(table, row) for row in table.rows}
    return [beta_chart(table.row_title(row), found) for row, found in scores.items() if found]


def scores_of_betas(table: ScoreTable, row: tuple[str, str]) -> dict[str, dict[str, float]]:
    """Return F_beta by method and beta, of methods whose predictions follow beta."""
    scores = {method: _by_beta(entry) for method, entry in table.row_entries(row).items()}
    follow = (m for m in scores if m not in METHODS or METHODS[m].follows_beta)
    return {method: scores[method] for method in follow if len(scores[method]) > 1}


def _by_beta(entry: Entry) -> dict[str, float]:
    tables = [record.result["betas"] for record in entry.records]
    shared = set(tables[0]).intersection(*tables)
    return {beta: fmean(table[beta] for table in tables) for beta in shared}


def calibration_charts(table: ScoreTable) -> list[LineChart]:
    """Show actual against expected F_beta for every data set.

    Once by the statistics alone, and once after calibration on held-out rows.
    """
    charts = []
    for row in table.rows:
        for key, words in (("calibration", ""), ("calibrated", ", calibrated on held-out rows")):
            found = {
                method: entry.records[0].result[key]
                for method, entry in table.row_entries(row).items()
                if entry.records[0].result.get(key)
            }
            bins = {method_title(method): groups for method, groups in found.items()}
            colours = [colour_of(method) for method in found]
            title = table.row_title(row) + words
            charts += [calibration_chart(title, bins, colours)] if bins else []
    return charts
