"""What is drawn and written of results: charts, files, and one HTML page without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from fbeta._files import to_csv, write_text
from fbeta.experiments import benchmark
from fbeta.experiments.cells import Record, ResultStore
from fbeta.experiments.tables import (
    NETWORKS,
    PAPER_TOLERANCE,
    Entry,
    ScoreTable,
    auto_rows,
    convergence_rows,
    network_rows,
    score_tables,
)
from fbeta.methods import METHODS, method_title
from fbeta.report import charts
from fbeta.report.pages import figures, html_table, page, section

_MARKS = (
    f"Small: the number of the paper; = within {PAPER_TOLERANCE:g} of it, ▲ ours is above, ▼ ours "
    "is below. Bold is the best of ours."
)
_CONVERGENCE = (
    "Synthetic data whose law is known and for which linear models suffice: the expected "
    "F-measure of the predictions is computed exactly, as the mean over the seeds."
)
_SCORES = "Our scores as bars; a vertical mark is the number of the paper."
_CALIBRATION = (
    f"{charts.CALIBRATION} Once by the statistics of the models alone, and once after calibration "
    "on held-out training rows. A method has one colour everywhere on this page."
)
_BETAS = (
    "The same fitted models, asked for predictions that are optimal for another beta: above 1 "
    "recall counts more, below 1 precision. Only methods whose predictions follow beta are here; "
    "the others are fitted for one beta, or know none."
)
#: Experiments whose results are on the HTML page.
ON_PAGE = frozenset(("figure1", "table2"))
# of experiments with one table: its title, the function that makes it, and digits after the point
_TABLES: dict[str, tuple[str, Callable[..., list[list[Any]]], int]] = {
    "figure1": ("F_1 on test labels, expected F_1, regret, Bayes optimum", convergence_rows, 5),
    "networks": ("A two-layer network", network_rows, 4),
    "auto": ("The automatic classifier on the test sets", auto_rows, 4),
}


def write_results(folder: Path, results: Mapping[str, Sequence[Record]]) -> list[Path]:
    """Write tables and figures of experiments, and the HTML page if they are on it."""
    content: dict[str, str | Sequence[charts.Chart]] = {}  # text, or what is drawn
    for experiment, records in results.items():
        if experiment == "table2":
            # results of another protocol are another table, never a mixed one
            for number, table in enumerate(score_tables(records), start=1):
                stem = "table2" if number == 1 else f"table2-{number}"
                content |= {f"{stem}.md": table.to_markdown(), f"{stem}.tex": table.to_latex()}
                content |= {f"{stem}.csv": table.to_csv(), f"{stem}.png": score_charts(table)}
        elif records:
            content[f"{experiment}.csv"] = to_csv(_TABLES[experiment][1](records))
            if experiment == "figure1":
                content["figure1.png"] = convergence_charts(records)
    if ON_PAGE.intersection(results):
        content["report.html"] = html_report(ResultStore(folder))
    for name, found in content.items():
        if isinstance(found, str):
            write_text(folder / name, found)
        else:
            charts.save_picture(found, folder / name)
    return [folder / name for name in content]


def printed_tables(
    results: Mapping[str, Sequence[Record]],
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, the head and the rows of each table, as text."""
    for experiment, records in results.items():
        if experiment == "table2":
            for table in score_tables(records):
                yield table.caption, table.head, table.lines(lambda entry, _: entry.text())
        elif records:
            title, make, digits = _TABLES[experiment]
            head, *rows = make(records)
            yield title, head, [[NETWORKS.get(v) or as_text(v, digits) for v in r] for r in rows]


def result_rows(experiment: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the rows of the tables of an experiment as data."""
    if experiment == "table2":
        return [
            {"dataset": d, "variant": v, "method": m, "score": e.score, "paper": e.paper}
            for table in score_tables(records)
            for d, v, m, e in table.listed()
        ]
    head, *rows = _TABLES[experiment][1](records)
    return [dict(zip(head, row, strict=True)) for row in rows]


def as_text(value: Any, digits: int) -> str:
    """Write a cell of a table: text, a count, a number, or nothing for None."""
    if isinstance(value, float):
        return f"{value:.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else value or ""


def convergence_charts(records: Sequence[Record]) -> list[charts.LineChart]:
    """Show F_beta and regret against the size of the training sample: means over the seeds."""
    if not records:
        raise ValueError("there are no results of figure1 to draw")
    head, *rows = convergence_rows(records)
    beta = f"F_{records[0].cell.parameters['beta']:g}"

    def points(field: str) -> list[tuple[float, float]]:
        return [(row[0], row[head.index(field)]) for row in rows]

    def lines(field: str, name: str) -> list[charts.Series]:
        runs = [(float(r.cell.parameters["n_train"]), r.result[field]) for r in records]
        return [charts.Series("", runs, loose=True), charts.Series(name, points(field))]

    bayes = charts.Series("Bayes optimum", points("bayes"), None)
    scores = [*lines("expected", "FBetaClassifier"), bayes]
    title, x, y = f"{beta} and the Bayes optimum", "training instances", f"expected {beta}"
    positive = all(record.result["regret"] > 0 for record in records)
    regret = lines("regret", "regret")
    return [
        charts.LineChart(title, x, y, scores, x_log=True),
        charts.LineChart("Exact regret", x, f"{beta}-regret", regret, x_log=True, y_log=positive),
    ]


def score_charts(table: ScoreTable) -> list[charts.BarChart]:
    """Show the scores of every data set, with marks for the numbers of the paper."""
    label = f"F_{table.protocol['beta']:g} on the test set"
    drawn = []
    for row, entries in table.rows.items():
        values, marks = ([getattr(e, k) for e in entries.values()] for k in ("score", "paper"))
        names, colours = list(map(method_title, entries)), list(map(charts.colour_of, entries))
        drawn.append(charts.BarChart(table.row_title(row), label, names, values, marks, colours))
    return drawn


def beta_charts(table: ScoreTable) -> list[charts.LineChart]:
    """Show F_beta against beta for every data set, of methods that take beta after the fit."""
    pairs = ((table.row_title(row), _scores_of_betas(found)) for row, found in table.rows.items())
    return [charts.beta_chart(title, scores) for title, scores in pairs if scores]


def _scores_of_betas(entries: Mapping[str, Entry]) -> dict[str, dict[str, float]]:
    """Return mean F_beta by method and beta, of methods whose predictions follow beta."""
    scores = {}
    for method, entry in entries.items():
        found = [record.result["betas"] for record in entry.records]
        shared = set(found[0]).intersection(*found)
        if len(shared) > 1 and (method not in METHODS or METHODS[method].follows_beta):
            scores[method] = {beta: fmean(betas[beta] for betas in found) for beta in shared}
    return scores


def calibration_charts(table: ScoreTable) -> list[charts.LineChart]:
    """Show actual against expected F_beta, by the statistics alone and after calibration."""
    drawn = []
    for row, entries in table.rows.items():
        for key, words in (("calibration", ""), ("calibrated", ", calibrated on held-out rows")):
            found = {
                method: entry.records[0].result[key]
                for method, entry in entries.items()
                if entry.records[0].result.get(key)
            }
            bins = {method_title(method): groups for method, groups in found.items()}
            colours = [charts.colour_of(method) for method in found]
            title = table.row_title(row) + words
            drawn += [charts.calibration_chart(title, bins, colours)] if bins else []
    return drawn


def html_report(store: ResultStore) -> str:
    """Write the report of all results in a folder as a whole HTML page."""
    figure1, table2 = store.records("figure1"), store.records("table2")
    if not figure1 and not table2:
        raise ValueError(f"{store.folder}: there are no results to report")
    sections = []  # title, text and HTML, without which a section is left out
    if figure1:
        title, make, digits = _TABLES["figure1"]
        lines = [[as_text(value, digits) for value in row] for row in make(figure1)[1:]]
        head = ["n", "seeds", "on test labels", "expected", "regret", "Bayes optimum"]
        content = figures(convergence_charts(figure1)) + html_table(head, lines)
        sections.append((title, _CONVERGENCE, content))

    def write(entry: Entry, is_best: bool) -> str:
        ours = f"<b>{entry.score:.4f}</b>" if is_best else f"{entry.score:.4f}"
        sign = {"=": "=", "+": "▲", "-": "▼", "": ""}[entry.mark]
        return ours if not sign else f"{ours} <small>{entry.paper:.4f} {sign}</small>"

    for table in score_tables(table2):
        title = f"F_{table.protocol['beta']:g} by data set and method"
        rows = [[escape(name), *cells] for name, *cells in table.lines(write)]
        scores = html_table(list(map(escape, table.head)), rows)
        calibration = figures(calibration_charts(table))
        sections += [
            (title, f"{table.caption}. {_MARKS}", scores),
            ("Data set by data set", _SCORES, figures(score_charts(table))),
            ("F_beta against beta", _BETAS, _by_beta(table)),
            ("Calibration of the expected F_beta", _CALIBRATION, calibration),
        ]
    if table2:
        absent = _left_out(table2, store.left_out())
        sections.append(("What was left out", "Not in the tables above:", absent))
    content = "\n".join(section(*part) for part in sections if part[-1])
    return page("Results of fbeta", f"{content}\n{_origin_section([*figure1, *table2])}")


def _by_beta(table: ScoreTable) -> str:
    """Draw F_beta against beta, and write every point of the charts in a table."""
    drawn = beta_charts(table)
    rows = []
    betas = sorted({beta for chart in drawn for beta in chart.x_ticks})
    for row, entries in table.rows.items():
        for method, by_beta in _scores_of_betas(entries).items():
            found = {float(beta): score for beta, score in by_beta.items()}
            cells = (f"{found[beta]:.4f}" if beta in found else "" for beta in betas)
            rows.append([escape(table.row_title(row)), escape(method_title(method)), *cells])
    head = ["Data set", "method", *(f"F<sub>{beta:g}</sub>" for beta in betas)]
    return figures(drawn) + html_table(head, rows, name="F_beta against beta") if drawn else ""


def _left_out(records: Sequence[Record], reasons: Mapping[str, str]) -> str:
    """Say which data sets of the paper are not here, and why."""
    present = {record.cell.dataset for record in records}
    rows = [
        [escape(name.capitalize()), escape(reasons.get(name, "was not asked for"))]
        for name in benchmark.PAPER_DATASETS
        if name not in present
    ]
    head = ["Data set of the paper", "why"]
    return html_table(head, rows, name="what was left out", words=True) if rows else ""


def _origin_section(records: Sequence[Record]) -> str:
    versions = {tuple(sorted(record.versions.items())) for record in records}
    machines = {tuple(record.machine.items()) for record in records if record.machine}
    used, where = (
        "; ".join(", ".join(f"{k} {v}" for k, v in pairs) for pairs in sorted(found))
        for found in (versions, machines)
    )
    moments = sorted(record.finished for record in records)
    total = sum(record.seconds for record in records)
    return section(
        "Where the numbers come from",
        f"{len(records)} cells, {total:,.0f} seconds of computation, finished from {moments[0]} "
        f"to {moments[-1]}. Run with {used}. Hardware: {where or 'not recorded'}.",
    )
