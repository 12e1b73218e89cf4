"""One HTML page with all tables and charts, from stored results alone.

The page is one file: style and charts are in it, it has no scripts and asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from fbeta.charts import Chart
from fbeta.charts.svg import to_html
from fbeta.experiments._page import page
from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.charts import (
    beta_charts,
    calibration_charts,
    convergence_charts,
    score_charts,
)
from fbeta.experiments.store import ResultStore
from fbeta.experiments.tables import (
    CLOSE,
    Entry,
    ScoreTable,
    convergence_rows,
    score_tables,
)
from fbeta.methods import method_title

__all__ = ["html_report"]

_CHARTS: tuple[tuple[str, str, Callable[[ScoreTable], Sequence[Chart]]], ...] = (
    (
        "Data set by data set",
        "Our scores as bars; a vertical mark is the number of the paper.",
        score_charts,
    ),
    (
        "F_beta against beta",
        "The same fitted models, asked for predictions that are optimal for another beta: "
        "above 1 recall counts more, below 1 precision.",
        beta_charts,
    ),
    (
        "Calibration of the expected F-measure",
        "Test instances in ten groups of the same size, by the F-measure that the model expects "
        "of its own prediction, against what the predictions got: by its statistics alone, and "
        "after what it achieved on held-out training rows has put that right.",
        calibration_charts,
    ),
)


def html_report(store: ResultStore) -> str:
    """Write the report of all results in a folder as a whole HTML page."""
    figure1, table2 = store.records("figure1"), store.records("table2")
    if not figure1 and not table2:
        raise ResultError(f"{store.folder}: there are no results to report")
    sections = [_convergence_section(figure1)] if figure1 else []
    for table in score_tables(table2):
        sections.append(_table_section(table))
        for title, text, build in _CHARTS:
            charts = build(table)
            if charts:
                sections.append(_section(title, text, _figures(charts)))
    sections.append(_origin_section([*figure1, *table2]))
    return page("\n".join(sections))


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def _figures(charts: Sequence[Chart]) -> str:
    figures = (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{to_html(chart)}</figure>"
        for chart in charts
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
    cells = [[f"{row[0]:,}", str(row[1]), *(f"{v:.5f}" for v in row[2:])] for row in rows]
    head = ["n", "seeds", "on test labels", "expected", "regret", "Bayes optimum"]
    return _section(
        "Convergence to the Bayes optimum",
        "Synthetic data whose law is known and for which linear models suffice: the expected "
        "F-measure of the predictions is computed exactly, as the mean over the seeds.",
        _figures(convergence_charts(records)) + _html_table(head, cells),
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
