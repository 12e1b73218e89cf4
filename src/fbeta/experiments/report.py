"""One HTML page with all tables and charts, from stored results alone.

The page is one file: style and charts are in it, it has no scripts and asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import Any

from fbeta.experiments._page import PAGE
from fbeta.experiments._svg import Bar, Series, bar_chart, line_chart
from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.store import ResultStore
from fbeta.experiments.tables import (
    CLOSE,
    Entry,
    ScoreTable,
    convergence_rows,
    method_title,
    score_tables,
)

__all__ = ["html_report"]


def html_report(store: ResultStore) -> str:
    """Write the report of all results in a folder.

    Parameters
    ----------
    store : ResultStore
        The results.

    Returns
    -------
    str
        A whole HTML page.

    Raises
    ------
    ResultError
        If there are no results.
    """
    figure1, table2 = store.records("figure1"), store.records("table2")
    if not figure1 and not table2:
        raise ResultError(f"{store.folder}: there are no results to report")
    sections = [_convergence_section(figure1)] if figure1 else []
    for table in score_tables(table2):
        sections.append(_table_section(table))
        sections.append(_bars_section(table))
        sections.append(_beta_section(table))
        sections.append(_calibration_section(table))
    sections.append(_origin_section([*figure1, *table2]))
    return PAGE.replace("%CONTENT%", "\n".join(filter(None, sections)))


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def _charts(charts: Sequence[tuple[str, str]]) -> str:
    figures = (
        f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>"
        for title, chart in charts
    )
    return f'<div class="charts">{"".join(figures)}</div>'


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Put cells, which are HTML already, into a table that scrolls by itself on a phone."""
    heads = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _convergence_section(records: Sequence[Record]) -> str:
    _, *rows = convergence_rows(records)
    beta = records[0].cell.parameters["beta"]
    bayes = [(row[0], row[5]) for row in rows]
    charts = [
        (
            f"F_{beta:g} and the Bayes optimum",
            line_chart(
                [
                    Series("FBetaClassifier", [(row[0], row[3]) for row in rows]),
                    Series("Bayes optimum", bayes, None),
                ],
                "training instances",
                f"expected F_{beta:g}",
                x_log=True,
            ),
        )
    ]
    if all(row[4] > 0 for row in rows):
        regret = [Series("regret", [(row[0], row[4]) for row in rows])]
        chart = line_chart(regret, "training instances", "regret", x_log=True, y_log=True)
        charts.append(("Exact regret", chart))
    cells = [[f"{row[0]:,}", str(row[1]), *(f"{v:.5f}" for v in row[2:])] for row in rows]
    head = ["n", "seeds", "on test labels", "expected", "regret", "Bayes optimum"]
    return _section(
        "Convergence to the Bayes optimum",
        "Synthetic data whose law is known and for which linear models suffice: the expected "
        "F-measure of the predictions is computed exactly, as the mean over the seeds.",
        _charts(charts) + _html_table(head, cells),
    )


def _table_section(table: ScoreTable) -> str:
    rows = []
    for row, entries in zip(table.rows, table.cells(), strict=True):
        best = table.best(row)
        rows.append([escape(table.row_title(row)), *(_entry(e, best) for e in entries)])
    head = ["Data set", *(escape(method_title(column)) for column in table.columns)]
    return _section(
        f"F_{table.protocol['beta']:g} by data set and method",
        f"{table.caption}. Small: the number of the paper; = within {CLOSE:g} of it, ▲ ours is "
        "above, ▼ ours is below. Bold is the best of ours.",
        _html_table(head, rows),
    )


def _entry(entry: Entry | None, best: float) -> str:
    if entry is None:
        return ""
    ours = f"{entry.score:.4f}"
    ours = f"<b>{ours}</b>" if round(entry.score, 4) == best else ours
    if entry.paper is None:
        return ours
    sign = {"=": "=", "+": "▲", "-": "▼"}[entry.mark]
    return f"{ours} <small>{entry.paper:.4f} {sign}</small>"


def _bars_section(table: ScoreTable) -> str:
    charts = []
    for row, entries in zip(table.rows, table.cells(), strict=True):
        bars = [
            Bar(method_title(column), entry.score, entry.paper, number)
            for number, (column, entry) in enumerate(zip(table.columns, entries, strict=True))
            if entry is not None
        ]
        label = f"F_{table.protocol['beta']:g} on the test set"
        charts.append((table.row_title(row), bar_chart(bars, label)))
    text = "Our scores as bars; a vertical mark is the number of the paper."
    return _section("Data set by data set", text, _charts(charts))


def _beta_section(table: ScoreTable) -> str:
    charts = []
    for row, entries in zip(table.rows, table.cells(), strict=True):
        lines = []
        for number, (column, entry) in enumerate(zip(table.columns, entries, strict=True)):
            points = [] if entry is None else _beta_points(entry)
            if len(points) > 1:
                lines.append(Series(method_title(column), points, number))
        if lines:
            charts.append((table.row_title(row), line_chart(lines, "beta", "F_beta", x_log=True)))
    if not charts:
        return ""
    text = (
        "The same fitted models, asked for predictions that are optimal for another beta: "
        "above 1 recall counts more, below 1 precision."
    )
    return _section("F_beta against beta", text, _charts(charts))


def _beta_points(entry: Entry) -> list[tuple[float, float]]:
    tables = [record.result["betas"] for record in entry.records]
    shared = set(tables[0]).intersection(*tables)
    return sorted((float(beta), fmean(t[beta] for t in tables)) for beta in shared)


def _calibration_section(table: ScoreTable) -> str:
    charts = []
    for column in table.columns:
        lines = []
        for number, row in enumerate(table.rows):
            entry = table.entries.get((*row, column))
            bins: list[dict[str, Any]] = []
            if entry is not None:
                bins = entry.records[0].result["calibration"] or []
            if bins:
                points = [(b["expected"], b["actual"]) for b in bins]
                lines.append(Series(table.row_title(row), points, number))
        if lines:
            ends = [value for line in lines for point in line.points for value in point]
            diagonal = [(min(ends), min(ends)), (max(ends), max(ends))]
            lines.append(Series("expected = actual", diagonal, None))
            charts.append((method_title(column), line_chart(lines, "expected", "actual")))
    if not charts:
        return ""
    text = (
        "Test instances in ten groups of the same size, by the F-measure that the model expects "
        "of its own prediction, against what the predictions got."
    )
    return _section("Calibration of the expected F-measure", text, _charts(charts))


def _origin_section(records: Sequence[Record]) -> str:
    versions = sorted({tuple(sorted(record.versions.items())) for record in records})
    used = "; ".join(", ".join(f"{k} {v}" for k, v in version) for version in versions)
    moments = sorted(record.finished for record in records)
    total = sum(record.seconds for record in records)
    return _section(
        "Where the numbers come from",
        f"{len(records)} cells, {total:,.0f} seconds of computation, finished from {moments[0]} "
        f"to {moments[-1]}. Run with {used}.",
        "",
    )
