"""Figures as files, drawn from stored results alone."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fbeta.experiments.cells import Record, ResultError
from fbeta.experiments.tables import ScoreTable, method_title
from fbeta.storage import write_atomically

__all__ = ["draw_betas", "draw_calibration", "draw_convergence", "draw_scores"]


def _new_figure(width: float = 5.0, height: float = 3.6, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes, without a window and without global state."""
    try:
        figure_module = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "fbeta[plot]"') from error
    figure = figure_module.Figure(figsize=(width * columns, height), layout="constrained")
    return figure, figure.subplots(1, columns)


def _save(figure: Any, path: Path) -> None:
    with write_atomically(path) as part:
        figure.savefig(part, dpi=160)


def draw_convergence(records: Sequence[Record], path: Path) -> None:
    """Draw F_beta and regret against the size of the training sample.

    Parameters
    ----------
    records : sequence of Record
        Of the experiment ``figure1``.
    path : Path
        Of the image; the suffix decides the format.
    """
    if not records:
        raise ResultError("there are no results of figure1 to draw")
    by_size: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        by_size[record.cell.parameters["n_train"]].append(record)
    sizes = sorted(by_size)
    figure, (left, right) = _new_figure(columns=2)
    bayes = records[0].result["bayes"]
    beta = records[0].cell.parameters["beta"]
    left.axhline(bayes, color="0.4", linestyle="--", label="Bayes optimum")
    for axes, field in ((left, "expected"), (right, "regret")):
        means = []
        for n in sizes:
            values = [record.result[field] for record in by_size[n]]
            axes.plot([n] * len(values), values, "o", color="C0", alpha=0.35, markersize=4)
            means.append(sum(values) / len(values))
        axes.plot(sizes, means, "-", color="C0", label="FBetaClassifier")
        axes.set_xscale("log")
        axes.set_xlabel("training instances")
        axes.grid(alpha=0.3)
    left.set_ylabel(f"expected F$_{{{beta:g}}}$ on test points")
    left.legend()
    if all(record.result["regret"] > 0 for record in records):
        right.set_yscale("log")
    right.set_ylabel(f"F$_{{{beta:g}}}$-regret")
    _save(figure, path)


def draw_scores(table: ScoreTable, path: Path) -> None:
    """Draw the scores of every data set as bars, with marks for the numbers of the paper.

    Parameters
    ----------
    table : ScoreTable
        Data sets x methods.
    path : Path
        Of the image; the suffix decides the format.
    """
    figure, axes = _new_figure(width=max(5.0, 1.4 * len(table.rows)))
    width = 0.8 / len(table.columns)
    for j, column in enumerate(table.columns):
        places, scores, marks = [], [], []
        for i, row in enumerate(table.rows):
            entry = table.entries.get((*row, column))
            if entry is None:
                continue
            places.append(i + (j - (len(table.columns) - 1) / 2) * width)
            scores.append(entry.score)
            if entry.paper is not None:
                marks.append((places[-1], entry.paper))
        axes.bar(places, scores, width=0.9 * width, color=f"C{j}", label=method_title(column))
        axes.plot(*zip(*marks, strict=True), "_", color="black") if marks else None
    axes.plot([], [], "_", color="black", label="paper")
    axes.set_xticks(range(len(table.rows)), [table.row_title(row) for row in table.rows])
    axes.tick_params(axis="x", labelrotation=20)
    axes.set_ylabel(f"F$_{{{table.protocol['beta']:g}}}$ on the test set")
    axes.legend(ncols=2, fontsize="small")
    _save(figure, path)


def draw_betas(scores: Mapping[str, Mapping[float, float]], path: Path) -> None:
    """Draw F_beta against beta.

    Parameters
    ----------
    scores : mapping from name to mapping from beta to F_beta
        One line for each name.
    path : Path
        Of the image; the suffix decides the format.
    """
    figure, axes = _new_figure()
    for name, by_beta in scores.items():
        axes.plot(sorted(by_beta), [by_beta[beta] for beta in sorted(by_beta)], "o-", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("beta")
    axes.set_ylabel("F$_{beta}$")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


def draw_calibration(bins: Mapping[str, Sequence[Mapping[str, float]]], path: Path) -> None:
    """Draw the F_beta that models got against what they expected.

    Parameters
    ----------
    bins : mapping from name to groups of instances
        As :func:`fbeta.experiments.measures.calibration_bins` returns them.
    path : Path
        Of the image; the suffix decides the format.
    """
    figure, axes = _new_figure()
    for name, groups in bins.items():
        expected = [group["expected"] for group in groups]
        axes.plot(expected, [group["actual"] for group in groups], "o-", label=name)
    axes.plot([0, 1], [0, 1], "--", color="0.4", label="expected = actual")
    axes.set_xlabel("expected F-measure")
    axes.set_ylabel("actual F-measure")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)
