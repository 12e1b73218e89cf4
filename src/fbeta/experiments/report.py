"""One HTML page with all tables and charts, from stored results alone.

The page is one file: style and charts are in it, it has no scripts and asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.charts import (
    beta_charts,
    calibration_charts,
    convergence_charts,
    score_charts,
    scores_of_betas,
)
from fbeta.experiments.paper import PAPER_DATASETS
from fbeta.experiments.store import ResultStore
from fbeta.experiments.tables import (
    CLOSE,
    Entry,
    ScoreTable,
    convergence_rows,
    score_tables,
)
from fbeta.methods import method_title
from fbeta.report.charts import CALIBRATION
from fbeta.report.pages import figures, html_table, page, section

__all__ = ["html_report"]

_SCORES = "Our scores as bars; a vertical mark is the number of the paper."
_CALIBRATION = (
    f"{CALIBRATION} Once by the statistics of the models alone, and once after calibration on "
    "held-out training rows. A method has one colour everywhere on this page."
)
_BETAS = (
    "The same fitted models, asked for predictions that are optimal for another beta: above 1 "
    "recall counts more, below 1 precision. Only methods whose predictions follow beta are here; "
    "the others are fitted for one beta, or know none."
)


def html_report(store: ResultStore) -> str:
    """Write the report of all results in a folder as a whole HTML page."""
    figure1, table2 = store.records("figure1"), store.records("table2")
    if not figure1 and not table2:
        raise ResultError(f"{store.folder}: there are no results to report")
    sections = [_convergence_section(figure1)] if figure1 else []
    for table in score_tables(table2):
        sections.append(_table_section(table))
        sections.append(section("Data set by data set", _SCORES, figures(score_charts(table))))
        sections += _beta_sections(table)
        calibration = calibration_charts(table)
        if calibration:
            title = "Calibration of the expected F_beta"
            sections.append(section(title, _CALIBRATION, figures(calibration)))
    if table2:
        sections += _left_out_sections(table2, store.left_out())
    sections.append(_origin_section([*figure1, *table2]))
    return page("Results of fbeta", "\n".join(sections))


def _convergence_section(records: Sequence[Record]) -> str:
    _, *rows = convergence_rows(records)
    cells = [[f"{row[0]:,}", str(row[1]), *(f"{v:.5f}" for v in row[2:])] for row in rows]
    head = ["n", "seeds", "on test labels", "expected", "regret", "Bayes optimum"]
    return section(
        "Convergence to the Bayes optimum",
        "Synthetic data whose law is known and for which linear models suffice: the expected "
        "F-measure of the predictions is computed exactly, as the mean over the seeds.",
        figures(convergence_charts(records)) + html_table(head, cells),
    )


def _table_section(table: ScoreTable) -> str:
    rows = [[escape(title), *cells] for title, *cells in table.lines(_entry)]
    head = list(map(escape, table.head))
    return section(
        f"F_{table.protocol['beta']:g} by data set and method",
        f"{table.caption}. Small: the number of the paper; = within {CLOSE:g} of it, ▲ ours is "
        "above, ▼ ours is below. Bold is the best of ours.",
        html_table(head, rows),
    )


def _entry(entry: Entry, is_best: bool) -> str:
    ours = f"<b>{entry.score:.4f}</b>" if is_best else f"{entry.score:.4f}"
    if entry.paper is None:
        return ours
    sign = {"=": "=", "+": "▲", "-": "▼"}[entry.mark]
    return f"{ours} <small>{entry.paper:.4f} {sign}</small>"


def _beta_sections(table: ScoreTable) -> list[str]:
    """Draw F_beta against beta, and write every point of the charts in a table."""
    charts = beta_charts(table)
    if not charts:
        return []
    rows = []
    betas = sorted({beta for chart in charts for beta in chart.x_ticks})
    for row in table.rows:
        for method, by_beta in scores_of_betas(table, row).items():
            found = {float(beta): score for beta, score in by_beta.items()}
            cells = (f"{found[beta]:.4f}" if beta in found else "" for beta in betas)
            rows.append([escape(table.row_title(row)), escape(method_title(method)), *cells])
    head = ["Data set", "method", *(f"F<sub>{beta:g}</sub>" for beta in betas)]
    content = figures(charts) + html_table(head, rows, name="F_beta against beta")
    return [section("F_beta against beta", _BETAS, content)]


def _left_out_sections(records: Sequence[Record], reasons: Mapping[str, str]) -> list[str]:
    """Say which data sets of the paper are not here, and why."""
    absent = [name for name in PAPER_DATASETS if name not in {r.cell.dataset for r in records}]
    if not absent:
        return []
    rows = [
        [escape(name.capitalize()), escape(reasons.get(name, "was not asked for"))]
        for name in absent
    ]
    table = html_table(["Data set of the paper", "why"], rows, name="what was left out", words=True)
    return [section("What was left out", "Not in the tables above:", table)]


def _origin_section(records: Sequence[Record]) -> str:
    versions = sorted({tuple(sorted(record.versions.items())) for record in records})
    used = "; ".join(", ".join(f"{k} {v}" for k, v in version) for version in versions)
    machines = sorted({tuple(record.machine.items()) for record in records if record.machine})
    where = "; ".join(", ".join(f"{k} {v}" for k, v in machine) for machine in machines)
    moments = sorted(record.finished for record in records)
    total = sum(record.seconds for record in records)
    return section(
        "Where the numbers come from",
        f"{len(records)} cells, {total:,.0f} seconds of computation, finished from {moments[0]} "
        f"to {moments[-1]}. Run with {used}. Hardware: {where or 'not recorded'}.",
    )
