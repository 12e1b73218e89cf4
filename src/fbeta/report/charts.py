"""Charts as data, which matplotlib or the script of the evaluation page draws."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from fbeta._array import optional_import
from fbeta._files import write_atomically
from fbeta.methods import METHODS, method_title

_LIGHT = (
    "#0b62b0 #b34700 #1a7a4c #8a3ea8 #a3700a #0a7d8c #b0255f #7a4a2b "
    "#5c6b00 #3f4bb0 #8c1d18 #2f6f8f #6b2f6b #3d6b1f #00584f #555b63"
)
_DARK = (
    "#6cb2f5 #f79a5b #63cf98 #cf94e8 #e3b85c #5cc9d8 #f285b1 #c9a07c "
    "#b6c957 #9ba6f7 #f2928c #8fc7e3 #d79ad7 #9fd47c #4fd1c0 #a9b0b8"
)
#: Colours by number, each on a light and on a dark background.
PALETTE = tuple(zip(_LIGHT.split(), _DARK.split(), strict=True))
_PANEL_INCHES = (5.0, 3.6)
_MAX_COLUMNS = 3
# colours in the SVG of matplotlib, and the custom properties of the page that replace them
_REFERENCE = "#666666"
_PAGE_COLOURS = {light: f"var(--c{number})" for number, (light, _) in enumerate(PALETTE)}
_PAGE_COLOURS |= {_REFERENCE: "var(--soft)", "#000000": "currentColor"}
# text stays text, and equal charts have equal ids
_SVG_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "fbeta", "font.family": "sans-serif"}


def colour_of(name: str) -> int:
    """Return the number of the colour of a method, by name or class; the last one for others."""
    classes = list(dict.fromkeys(method.estimator for method in METHODS.values()))
    class_ = METHODS[name].estimator if name in METHODS else name
    return classes.index(class_) if class_ in classes else len(PALETTE) - 1


@dataclass(frozen=True)
class Series:
    """Points of a line chart in the order in which they are joined.

    An empty name is not in the legend; a colour is a number in ``PALETTE``, None draws a dashed
    reference line; loose points are faint and not joined; errors are half widths, or none.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = 0
    loose: bool = False
    errors: Sequence[float] = ()


@dataclass(frozen=True)
class LineChart:
    """Series over two axes; ``equal`` axes have the same range and the same scale."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    x_ticks: Sequence[float] = ()
    equal: bool = False


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from the top down: names, values, marks for comparison, and colours.

    There is one of each for every bar; a bar without a mark has None. ``mark`` names the marks.
    """

    title: str
    label: str
    names: Sequence[str]
    values: Sequence[float]
    marks: Sequence[float | None]
    colours: Sequence[int]
    mark: str = "paper"


Chart: TypeAlias = LineChart | BarChart

#: Explains a :func:`calibration_chart`.
CALIBRATION = (
    "A model can predict the F_beta of each of its predictions. Here the rows are sorted by this "
    "expected F_beta and cut into ten groups of equal size. Each point is a group: across, the "
    "expected F_beta; upwards, the F_beta that the predictions got. On the dashed line both are "
    "equal; below it the model is too sure of itself, above it too modest."
)


def beta_chart(title: str, scores: Mapping[str, Mapping[str, float]]) -> LineChart:
    """Show F_beta against beta, with a line for each method or class and a tick for each beta."""
    lines = []
    for name, by_beta in scores.items():
        points = sorted((float(beta), score) for beta, score in by_beta.items())
        lines.append(Series(method_title(name), points, colour_of(name)))
    betas = sorted({x for line in lines for x, _ in line.points})
    return LineChart(title, "beta", "F_beta", lines, x_log=True, x_ticks=betas)


def calibration_chart(
    title: str, bins: Mapping[str, Sequence[Mapping[str, float]]], colours: Sequence[int]
) -> LineChart:
    """Show actual against expected F_beta on equal axes, with a line for each name."""
    lines = [
        Series(name, [(group["expected"], group["actual"]) for group in groups], number)
        for (name, groups), number in zip(bins.items(), colours, strict=True)
    ]
    ends = [value for line in lines for point in line.points for value in point]
    lines.append(Series("expected = actual", [(end, end) for end in (min(ends), max(ends))], None))
    return LineChart(title, "expected F_beta", "actual F_beta", lines, equal=True)


def save_picture(charts: Sequence[Chart], path: str | os.PathLike[str]) -> None:
    """Draw charts beside each other, row by row; the suffix of the path decides the format."""
    figure = _figure(charts, titles=True)
    with write_atomically(path) as part:
        figure.savefig(part, dpi=160)


def to_svg(chart: Chart) -> str:
    """Draw a chart without its title as an ``svg`` element in the colours of the page around it."""
    matplotlib = optional_import("matplotlib", "plot", "drawing figures")
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    buffer = io.StringIO()
    with matplotlib.rc_context(_SVG_SETTINGS):
        figure = _figure([chart], titles=False)
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    # HTML needs no namespaces, and names of groups such as "axes_1" would be in it more than once
    text = re.sub(r' (?:xmlns[:\w]*="[^"]+"|id="[a-zA-Z]\w*_\d+")', "", text[text.index("<svg") :])
    text = text.replace("xlink:href", "href")
    text = re.sub("#[0-9a-f]{6}", lambda found: _PAGE_COLOURS.get(found[0], found[0]), text)
    what = chart.label if isinstance(chart, BarChart) else f"{chart.y_label} and {chart.x_label}"
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(what)}" ', 1)


def _figure(charts: Sequence[Chart], *, titles: bool) -> Any:
    """Draw charts on a figure without a window and without global state."""
    module = optional_import("matplotlib.figure", "plot", "drawing figures")
    columns = min(len(charts), _MAX_COLUMNS)
    rows = math.ceil(len(charts) / columns)
    size = (_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows)
    figure = module.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, chart in zip(panels, charts, strict=False):
        if titles:
            axes.set_title(_math(chart.title), fontsize="medium")
        if isinstance(chart, BarChart):
            _draw_bars(axes, chart)
        else:
            _draw_lines(axes, chart)
    for axes in panels[len(charts) :]:
        axes.set_axis_off()
    # one legend for the marks of all bars; lines have their own
    marks = {h.get_label(): h for axes in panels for h in axes.collections if h.get_gid() == "mark"}
    if marks:
        style = {"loc": "outside lower right", "fontsize": "small", "framealpha": 0}
        figure.legend(handles=list(marks.values()), **style)
    return figure


def _draw_lines(axes: Any, chart: LineChart) -> None:
    for series in chart.series:
        xs, ys = zip(*series.points, strict=True)
        number = series.colour
        colour = _REFERENCE if number is None else PALETTE[number % len(PALETTE)][0]
        name = _math(series.name) or None
        if series.loose:
            axes.plot(xs, ys, "o", color=colour, alpha=0.35, markersize=3)
        elif series.colour is None:
            axes.plot(xs, ys, "--", color=colour, label=name)
        else:
            axes.plot(xs, ys, "o-", color=colour, label=name, markersize=5)
        if series.errors:
            axes.errorbar(xs, ys, yerr=series.errors, fmt="none", ecolor=colour, alpha=0.5)
    axes.set(xlabel=_math(chart.x_label), ylabel=_math(chart.y_label))
    axes.set(xscale="log" if chart.x_log else "linear", yscale="log" if chart.y_log else "linear")
    if chart.x_ticks:
        axes.set_xticks(chart.x_ticks, labels=[f"{tick:g}" for tick in chart.x_ticks])
        axes.set_xticks([], minor=True)
    if chart.equal:
        axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", framealpha=0)


def _draw_bars(axes: Any, chart: BarChart) -> None:
    places = range(len(chart.names))
    colours = [PALETTE[colour % len(PALETTE)][0] for colour in chart.colours]
    drawn = axes.barh(places, chart.values, color=colours)
    axes.bar_label(drawn, [f"{value:.4f}" for value in chart.values], padding=4, fontsize="small")
    marks = [(mark, i - 0.48, i + 0.48) for i, mark in enumerate(chart.marks) if mark]
    if marks:
        lines = axes.vlines(*zip(*marks, strict=True), color="black", linewidth=2, gid="mark")
        lines.set_label(_math(chart.mark))
    axes.set_yticks(places, labels=list(map(_math, chart.names)))
    # room for the numbers beside the bars; a chart of few bars does not widen them
    longest = max(*chart.values, *(mark for mark, *_ in marks), 0.0) or 1.0
    axes.set(ylim=(max(len(chart.names), 4) - 0.5, -0.5), xlim=(0, 1.22 * longest))
    axes.set_xlabel(_math(chart.label))


def _math(words: str) -> str:
    """Write the beta of F_beta as an index; everything else is plain text for matplotlib."""
    return re.sub(r"\bF_([\w.]+)", r"F$_{\\mathrm{\1}}$", words.replace("$", r"\$"))
