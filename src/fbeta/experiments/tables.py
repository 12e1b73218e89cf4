"""Tables in Markdown, LaTeX and CSV, from stored results alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fbeta._files import to_csv
from fbeta.experiments.cells import Record
from fbeta.experiments.paper import PAPER_DATASETS, paper_score
from fbeta.methods import METHODS, method_title

__all__ = ["Entry", "ScoreTable", "convergence_rows", "score_tables"]

#: Differences from the paper that the folds and the solver may account for.
CLOSE = 0.005
_VARIANTS = {"all": "all sizes", "origin": "all sizes, no intercept"}


@dataclass(frozen=True)
class Entry:
    """One method on one data set.

    Attributes
    ----------
    score : float
        Our F_beta on the test set, the mean over the seeds.
    paper : float or None
        That of the paper, if it has one.
    records : tuple of Record
        One for each seed.
    """

    score: float
    paper: float | None
    records: tuple[Record, ...]

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None else self.score - self.paper

    @property
    def mark(self) -> str:
        """``"="`` near the paper, ``"+"`` above, ``"-"`` below, empty where it has no number."""
        if self.difference is None:
            return ""
        if abs(self.difference) <= CLOSE:
            return "="
        return "+" if self.difference > 0 else "-"


@dataclass(frozen=True)
class ScoreTable:
    """Data sets x methods under one protocol.

    Attributes
    ----------
    protocol : dict
        The parameters that all cells share.
    rows : tuple of (dataset, variant)
        Variants are estimations that the paper has for some data sets only.
    columns : tuple of str
        Names of methods.
    entries : dict from (dataset, variant, method) to Entry
        The cells that have results.
    """

    protocol: dict[str, Any]
    rows: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    entries: dict[tuple[str, str, str], Entry]

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

    def best(self, row: tuple[str, str]) -> float:
        """Return the highest of our scores in a row, to the digits that are shown."""
        return max(round(entry.score, 4) for entry in self.row_entries(row).values())

    def row_entries(self, row: tuple[str, str]) -> dict[str, Entry]:
        """Return the entries of a row by method."""
        keys = {method: (*row, method) for method in self.columns}
        return {method: self.entries[key] for method, key in keys.items() if key in self.entries}

    def cells(self) -> list[list[Entry | None]]:
        """Return the entries as a matrix, row by row."""
        return [[self.entries.get((*row, method)) for method in self.columns] for row in self.rows]

    def to_markdown(self) -> str:
        """Write the table in Markdown: ours, the paper's in brackets, and the mark."""
        head = ["Data set", *(method_title(column) for column in self.columns)]
        lines = [_pipe(head), _pipe(["---"] + ["---:"] * len(self.columns))]
        for row, entries in zip(self.rows, self.cells(), strict=True):
            best = self.best(row)
            lines.append(_pipe([self.row_title(row), *(_markdown(e, best) for e in entries)]))
        note = (
            f"{self.caption}. In brackets the number of the paper, and whether ours is within "
            f"{CLOSE:g} of it (=), above (+) or below (-); bold is the best of ours."
        )
        return "\n".join([*lines, "", note, ""])

    def to_latex(self) -> str:
        """Write the table as a LaTeX tabular, ours above the paper's."""
        head = " & ".join(["Data set", *(_escape(method_title(c)) for c in self.columns)])
        lines = [f"% {self.caption}", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}"]
        lines += [r"\hline", rf"{head} \\", r"\hline"]
        for row, entries in zip(self.rows, self.cells(), strict=True):
            best = self.best(row)
            ours = " & ".join(_latex(entry, best) for entry in entries)
            lines.append(rf"{_escape(self.row_title(row))} & {ours} \\")
            if any(entry is not None and entry.paper is not None for entry in entries):
                theirs = " & ".join(_latex_paper(entry) for entry in entries)
                lines.append(rf"\quad paper & {theirs} \\")
        return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])

    def to_csv(self) -> str:
        """Write one line for each entry, with everything that a later analysis may want."""
        head = ["dataset", "variant", "method", "score", "paper", "difference", "mark"]
        head += ["alpha", "fit_intercept", "seeds", "fit_seconds"]
        rows: list[Sequence[Any]] = [head]
        for (dataset, variant, method), entry in self.entries.items():
            results = [record.result for record in entry.records]
            seeds = [record.cell.parameters["seed"] for record in entry.records]
            rows.append([
                dataset, variant, method, entry.score, entry.paper, entry.difference, entry.mark,
                " ".join(f"{r['alpha']:g}" for r in results if r["alpha"] is not None),
                " ".join(str(r.get("fit_intercept")) for r in results if r["alpha"] is not None),
                " ".join(map(str, seeds)), fmean(r["seconds"]["fit"] for r in results),
            ])  # fmt: skip
        return to_csv(rows)


def score_tables(records: Iterable[Record]) -> list[ScoreTable]:
    """Sort results into tables, one for each protocol.

    Parameters
    ----------
    records : iterable of Record
        Of the experiment ``table2``.

    Returns
    -------
    list of ScoreTable
        Results with other grids, folds or beta never share a table; seeds are averaged.
    """
    protocols: dict[str, dict[tuple[str, str, str], list[Record]]] = {}
    for record in records:
        # results of the first versions, which had no choice of intercepts
        parameters = {"intercepts": [True], **record.cell.parameters}
        shared = {k: parameters[k] for k in ("beta", "alphas", "intercepts", "cv")}
        base, _, variant = record.cell.method.partition("-")
        group = protocols.setdefault(json.dumps(shared), defaultdict(list))
        group[record.cell.dataset, variant, base].append(record)
    return [_table(json.loads(text), group) for text, group in protocols.items()]


def _table(protocol: dict[str, Any], group: dict[tuple[str, str, str], list[Record]]) -> ScoreTable:
    methods, datasets = list(METHODS), [*PAPER_DATASETS]
    datasets += sorted({key[0] for key in group} - set(datasets))
    keys = sorted(group, key=lambda key: (datasets.index(key[0]), key[1], _place(methods, key[2])))
    entries = {}
    for dataset, variant, base in keys:
        records = group[dataset, variant, base]
        method = f"{base}-{variant}" if variant else base
        entries[dataset, variant, base] = Entry(
            fmean(record.result["scores"]["fbeta"] for record in records),
            paper_score(dataset, method, protocol["beta"]),
            tuple(records),
        )
    columns = sorted({key[2] for key in keys}, key=lambda name: _place(methods, name))
    return ScoreTable(protocol, tuple(dict.fromkeys(k[:2] for k in keys)), tuple(columns), entries)


def _place(names: Sequence[str], name: str) -> tuple[int, str]:
    return (names.index(name) if name in names else len(names), name)


def convergence_rows(records: Iterable[Record]) -> list[list[Any]]:
    """Make the rows of the convergence table, a header first.

    Parameters
    ----------
    records : iterable of Record
        Of the experiment ``figure1``.

    Returns
    -------
    list of list
        Sample size, number of seeds, and the means over the seeds.
    """
    fields = ("score", "expected", "regret", "bayes")
    by_size: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_size[record.cell.parameters["n_train"]].append(record)
    rows: list[list[Any]] = [["n", "seeds", *fields]]
    for n in sorted(by_size):
        means = [fmean(record.result[field] for record in by_size[n]) for field in fields]
        rows.append([n, len(by_size[n]), *means])
    return rows


def _pipe(words: Iterable[str]) -> str:
    return f"| {' | '.join(word.replace('|', chr(92) + '|') for word in words)} |"


def _markdown(entry: Entry | None, best: float) -> str:
    if entry is None:
        return ""
    ours = f"{entry.score:.4f}"
    ours = f"**{ours}**" if round(entry.score, 4) == best else ours
    return ours if entry.paper is None else f"{ours} ({entry.paper:.4f} {entry.mark})"


def _latex(entry: Entry | None, best: float) -> str:
    if entry is None:
        return ""
    ours = f"{entry.score:.4f}"
    return rf"\textbf{{{ours}}}" if round(entry.score, 4) == best else ours


def _latex_paper(entry: Entry | None) -> str:
    if entry is None or entry.paper is None:
        return ""
    return rf"\textit{{{entry.paper:.4f}}} (${entry.mark}$)"


def _escape(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
