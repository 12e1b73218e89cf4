"""Charts as image files, drawn with matplotlib."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

from fbeta._array import optional_import
from fbeta._files import write_atomically
from fbeta.report.charts import PALETTE, BarChart, Chart, LineChart

_PANEL = (5.0, 3.6)
_COLUMNS = 3


def save_picture(charts: Sequence[Chart], path: str | os.PathLike[str]) -> None:
    """Draw charts beside each other, row by row; the suffix of the path decides the format."""
    module = optional_import("matplotlib.figure", "plot", "drawing figures")
    columns = min(len(charts), _COLUMNS)
    rows = math.ceil(len(charts) / columns)
    size = (_PANEL[0] * columns, _PANEL[1] * rows)
    # without a window and without global state
    figure = module.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, chart in zip(panels, charts, strict=False):
        axes.set_title(_text(chart.title), fontsize="medium")
        if isinstance(chart, BarChart):
            _draw_bars(axes, chart)
        else:
            _draw_lines(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_axis_off()
    # one legend for the marks of all bars; lines have their own
    marks = {h.get_label(): h for axes in panels for h in axes.collections}
    if marks:
        figure.legend(handles=list(marks.values()), loc="outside lower right", fontsize="small")
    with write_atomically(path) as part:
        figure.savefig(part, dpi=160)


def _draw_lines(axes: Any, chart: LineChart) -> None:
    for series in chart.series:
        xs, ys = zip(*series.points, strict=True)
        if series.colour is None:
            axes.plot(xs, ys, "--", color="0.4", label=series.name)
        elif series.loose:
            axes.plot(xs, ys, "o", color=_colour(series.colour), alpha=0.35, markersize=3)
        else:
            axes.plot(xs, ys, "o-", color=_colour(series.colour), label=series.name, markersize=5)
    axes.set(xlabel=_text(chart.x_label), ylabel=_text(chart.y_label))
    for side, extent, ticks in zip("xy", chart.ranges, chart.ticks, strict=True):
        axes.set(**{f"{side}scale": "log" if extent.log else "linear"})
        axes.set(**{f"{side}lim": (extent.low, extent.high)})
        getattr(axes, f"set_{side}ticks")(list(ticks), labels=list(ticks.values()))
        getattr(axes, f"set_{side}ticks")([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _draw_bars(axes: Any, chart: BarChart) -> None:
    places = range(len(chart.bars))
    colours = [_colour(bar.colour) for bar in chart.bars]
    drawn = axes.barh(places, [bar.value for bar in chart.bars], color=colours)
    axes.bar_label(drawn, [f"{bar.value:.4f}" for bar in chart.bars], padding=4, fontsize="small")
    marks = [(bar.mark, i - 0.48, i + 0.48) for i, bar in enumerate(chart.bars) if bar.mark]
    if marks:
        axes.vlines(*zip(*marks, strict=True), color="black", linewidth=2, label=chart.mark)
    axes.set_yticks(places, labels=[_text(bar.name) for bar in chart.bars])
    # room for the numbers beside the bars; few bars are not wider than many
    axes.set(ylim=(max(len(chart.bars), 4) - 0.5, -0.5), xlim=(0, 1.2 * chart.range.high))
    axes.set_xlabel(_text(chart.label))


def _colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)][0]


def _text(words: str) -> str:
    """Set the beta of F_beta lower; everything else is plain text for matplotlib, too."""
    return re.sub(r"\bF_([\w.]+)", r"F$_{\\mathrm{\1}}$", words.replace("$", r"\$"))
