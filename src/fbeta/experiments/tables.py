"""Tables in Markdown, LaTeX and CSV, from stored results alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from fbeta._files import to_csv
from fbeta.experiments.benchmark import PAPER_DATASETS, paper_score
from fbeta.experiments.cells import Record
from fbeta.methods import METHODS, method_title

#: Largest difference from the paper that the folds and the solver may account for.
PAPER_TOLERANCE = 0.005
#: The methods of the experiment on networks by name, and their titles.
NETWORKS = {
    "bce-half": "BCE, cut at 1/2",
    "bce-best": "BCE, best threshold",
    "soft-f1": "soft F_1, cut at 1/2",
    "asymmetric": "asymmetric loss, cut at 1/2",
    "joint": "the paper's surrogate, decode",
    "cardinality": "cardinality head, decode",
}
_VARIANTS = {"all": "all sizes", "origin": "all sizes, no intercept"}


@dataclass(frozen=True)
class Entry:
    """One method on one data set: our mean F_beta over the seeds, the paper's, and the records."""

    score: float
    paper: float | None
    records: tuple[Record, ...]

    @property
    def difference(self) -> float | None:
        """Our score minus the paper's."""
        return None if self.paper is None else self.score - self.paper

    @property
    def mark(self) -> str:
        """``"="`` near the paper, ``"+"`` above, ``"-"`` below, empty where it has no number."""
        found = self.difference or 0.0
        near = "" if self.paper is None else "="
        return near if abs(found) <= PAPER_TOLERANCE else "+" if found > 0 else "-"

    def text(self, bold: str = "") -> str:
        """Return our score, between marks of bold type, the paper's in brackets, and the mark."""
        paper = "" if self.paper is None else f" ({self.paper:.4f} {self.mark})"
        return f"{bold}{self.score:.4f}{bold}{paper}"


@dataclass(frozen=True)
class ScoreTable:
    """Data sets x methods under one protocol, the parameters that all cells share.

    Rows are entries by method under (dataset, variant), where variants are estimations that the
    paper has for some data sets only.
    """

    protocol: dict[str, Any]
    rows: dict[tuple[str, str], dict[str, Entry]]

    @property
    def columns(self) -> list[str]:
        """The methods."""
        return sorted({method for row in self.rows.values() for method in row}, key=_rank(METHODS))

    @property
    def caption(self) -> str:
        """The protocol in words."""
        alphas = self.protocol["alphas"]
        choice = f"alpha = {alphas[0]:g}"
        if len(alphas) > 1:
            choice = f"alpha from {len(alphas)} values in [{min(alphas):g}, {max(alphas):g}]"
            if len(self.protocol["intercepts"]) > 1:
                choice += " and whether there are intercepts"
            choice += f", chosen by {self.protocol['cv']}-fold cross-validation"
        return f"Instance-averaged F_{self.protocol['beta']:g} on the test sets; {choice}"

    def row_title(self, row: tuple[str, str]) -> str:
        """Return what a row is called."""
        dataset, variant = row
        title = dataset[:1].upper() + dataset[1:]
        return f"{title} ({_VARIANTS.get(variant, variant)})" if variant else title

    @property
    def head(self) -> list[str]:
        """The titles of the columns."""
        return ["Data set", *map(method_title, self.columns)]

    def lines(self, write: Callable[[Entry, bool], str]) -> list[list[str]]:
        """Write the rows: their titles, and each entry by `write(entry, whether it is best)`."""
        written = []
        for row, entries in self.rows.items():
            best = max(round(entry.score, 4) for entry in entries.values())
            cells = {key: write(e, round(e.score, 4) == best) for key, e in entries.items()}
            written.append([self.row_title(row), *(cells.get(key, "") for key in self.columns)])
        return written

    def listed(self) -> Iterator[tuple[str, str, str, Entry]]:
        """Yield dataset, variant, method and entry."""
        for row, entries in self.rows.items():
            for method, entry in entries.items():
                yield (*row, method, entry)

    def to_markdown(self) -> str:
        """Write the table in Markdown: ours, the paper's in brackets, and the mark."""
        rows = self.lines(lambda entry, best: entry.text(bold="**" if best else ""))
        lines = [self.head, ["---"] + ["---:"] * len(self.columns), *rows]
        table = [" | ".join(word.replace("|", r"\|") for word in line) for line in lines]
        note = (
            f"{self.caption}. In brackets the number of the paper, and whether ours is within "
            f"{PAPER_TOLERANCE:g} of it (=), above (+) or below (-); bold is the best of ours."
        )
        return "\n".join([*(f"| {line} |" for line in table), "", note, ""])

    def to_latex(self) -> str:
        """Write the table as a LaTeX tabular, ours above the paper's."""
        ours = self.lines(
            lambda e, best: rf"\textbf{{{e.score:.4f}}}" if best else f"{e.score:.4f}"
        )
        papers = self.lines(
            lambda e, _: "" if e.paper is None else rf"\textit{{{e.paper:.4f}}} (${e.mark}$)"
        )
        lines = [f"% {self.caption}", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}"]
        lines += [r"\hline", rf"{' & '.join(map(_escape, self.head))} \\", r"\hline"]
        for (title, *scores), (_, *theirs) in zip(ours, papers, strict=True):
            lines.append(" & ".join([_escape(title), *scores]) + r" \\")
            if any(theirs):
                lines.append(" & ".join([r"\quad paper", *theirs]) + r" \\")
        return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])

    def to_csv(self) -> str:
        """Write one line for each entry, with everything that a later analysis may want."""
        head = ["dataset", "variant", "method", "score", "paper", "difference", "mark"]
        head += ["alpha", "fit_intercept", "seeds", "fit_seconds"]
        rows: list[Sequence[Any]] = [head]
        for *key, entry in self.listed():
            results = [record.result for record in entry.records]
            chosen = [result for result in results if result["alpha"] is not None]
            row = [*key, entry.score, entry.paper, entry.difference, entry.mark]
            row.append(" ".join(f"{result['alpha']:g}" for result in chosen))
            row.append(" ".join(str(result.get("fit_intercept")) for result in chosen))
            row.append(" ".join(str(r.cell.parameters["seed"]) for r in entry.records))
            rows.append([*row, fmean(result["seconds"]["fit"] for result in results)])
        return to_csv(rows)


def score_tables(records: Iterable[Record]) -> list[ScoreTable]:
    """Sort results of ``table2`` into tables, one for each protocol; seeds are averaged."""
    groups: dict[str, dict[tuple[str, str, str], list[Record]]] = {}
    for record in records:
        # results of the first versions, which had no choice of intercepts
        parameters = {"intercepts": [True], **record.cell.parameters}
        shared = {k: parameters[k] for k in ("beta", "alphas", "intercepts", "cv")}
        base, _, variant = record.cell.method.partition("-")
        group = groups.setdefault(json.dumps(shared), defaultdict(list))
        group[record.cell.dataset, variant, base].append(record)
    tables = [ScoreTable(json.loads(text), {}) for text in groups]
    datasets, methods = _rank(PAPER_DATASETS), _rank(METHODS)
    for table, group in zip(tables, groups.values(), strict=True):
        for key in sorted(group, key=lambda k: (datasets(k[0]), k[1], methods(k[2]))):
            dataset, variant, base = key
            score = fmean(record.result["scores"]["fbeta"] for record in group[key])
            method = f"{base}-{variant}" if variant else base
            paper = paper_score(dataset, method, table.protocol["beta"])
            row = table.rows.setdefault((dataset, variant), {})
            row[base] = Entry(score, paper, tuple(group[key]))
    return tables


def _rank(known: Iterable[str]) -> Callable[[str], tuple[int, str]]:
    """Return a key that sorts known names by their order, and others by name behind them."""
    places = {name: place for place, name in enumerate(known)}
    return lambda name: (places.get(name, len(places)), name)


def convergence_rows(records: Iterable[Record]) -> list[list[Any]]:
    """Return sample sizes of ``figure1``, numbers of seeds, and means; a header first."""
    fields = ("score", "expected", "regret", "bayes")
    by_size: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_size[record.cell.parameters["n_train"]].append(record)
    rows: list[list[Any]] = [["n", "seeds", *fields]]
    for n in sorted(by_size):
        means = [fmean(record.result[field] for record in by_size[n]) for field in fields]
        rows.append([n, len(by_size[n]), *means])
    return rows


def network_rows(records: Sequence[Record]) -> list[list[Any]]:
    """Return mean and spread over the seeds of ``networks``; a header first."""
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        scores[record.cell.dataset, record.cell.method].append(float(record.result["score"]))
    rows = [[*key, len(found), fmean(found), pstdev(found)] for key, found in scores.items()]
    return [["data set", "network", "seeds", "mean F_1", "spread"], *rows]


def auto_rows(records: Iterable[Record]) -> list[list[Any]]:
    """Return F, seconds and calibration of ``auto`` beside the paper's method; a header first."""
    head = ["data set", "seed", "paper's method", "FBetaAuto", "F in cross-validation"]
    head += ["seconds", "calibration error", "without calibration"]
    rows: list[list[Any]] = [head]
    for record in records:
        result = record.result
        row = [record.cell.dataset, record.cell.parameters["seed"], result["paper"]]
        row += [result["score"], result["cv_score"], result["seconds"]["fit"]]
        rows.append([*row, *(calibration_error(result[key]) for key in ("calibrated", "raw"))])
    return rows


def calibration_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Return the mean over the groups of |expected - actual|."""
    return fmean(abs(group["expected"] - group["actual"]) for group in bins)


def _escape(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
