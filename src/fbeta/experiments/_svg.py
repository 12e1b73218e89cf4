"""Charts as inline SVG, coloured by the style sheet of the page around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 400, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 44
COLOURS = 8
_BAR = 18


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes
    ----------
    name : str
        For the legend.
    points : sequence of (float, float)
        In the order in which they are joined.
    colour : int or None
        Number of its colour; None for a line to compare with, dashed and without dots.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = 0

    @property
    def style(self) -> str:
        """Name of the class in the style sheet."""
        return "ref" if self.colour is None else f"c{self.colour % COLOURS}"


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Attributes
    ----------
    name : str
        What stands beside it.
    value : float
        Its length.
    mark : float or None
        Where to put a mark to compare with.
    colour : int
        Number of its colour.
    """

    name: str
    value: float
    mark: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: a range of values on a range of pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def fit(cls, values: Sequence[float], start: float, end: float, log: bool) -> Axis:
        """Make an axis with a little room around the values."""
        low, high = min(values), max(values)
        if log:
            low, high = math.log10(low), math.log10(high)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
        return cls(low - room, high + room, start, end, log)

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        value = math.log10(value) if self.log else value
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values, about five of them."""
        if self.log and self.high - self.low >= 0.7:
            exponents = range(math.floor(self.low), math.floor(self.high) + 1)
            for digits in ((1,), (1, 2, 5)):
                ticks = [float(f"{d}e{e}") for e in exponents for d in digits]
                ticks = [t for t in ticks if self.low <= math.log10(t) <= self.high]
                if len(ticks) > 2:
                    break
            return ticks
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        step = 10.0 ** math.floor(math.log10((high - low) / 4))
        step *= min((1, 2, 5, 10), key=lambda m: abs((high - low) / (m * step) - 4))
        first, last = math.ceil(low / step), math.floor(high / step)
        return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    x_log: bool = False,
    y_log: bool = False,
) -> str:
    """Draw lines over two axes, with a legend.

    Parameters
    ----------
    series : sequence of Series
        What to draw.
    x_label, y_label : str
        What the axes show.
    x_log, y_log : bool
        Whether an axis is logarithmic; a logarithmic one holds positive values only.

    Returns
    -------
    str
        HTML: an ``svg`` element and its legend.

    Examples
    --------
    >>> line_chart([Series("a", [(1, 2), (3, 4)])], "x", "y").count("<circle")
    2
    """
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points]
    x_axis = Axis.fit(xs, LEFT, WIDTH - RIGHT, x_log)
    y_axis = Axis.fit(ys, HEIGHT - BOTTOM, TOP, y_log)
    parts = [_grid(x_axis, y_axis, x_label, y_label)]
    for s in series:
        path = " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in s.points)
        parts.append(f'<polyline class="{s.style}" points="{path}"/>')
        if s.colour is not None:
            parts += [
                f'<circle class="{s.style}" cx="{x_axis.place(x):.1f}" '
                f'cy="{y_axis.place(y):.1f}" r="3"><title>{escape(s.name)}: {x:g}, {y:.4g}'
                "</title></circle>"
                for x, y in s.points
            ]
    keys = [(s.name, s.style) for s in series]
    return _svg(f"{y_label} against {x_label}", HEIGHT, parts) + legend(keys)


def bar_chart(bars: Sequence[Bar], x_label: str, low: float = 0.0) -> str:
    """Draw horizontal bars, each with a mark for the number to compare with.

    Parameters
    ----------
    bars : sequence of Bar
        From the top down.
    x_label : str
        What the bars show.
    low : float
        Where they begin.

    Returns
    -------
    str
        HTML: an ``svg`` element.

    Examples
    --------
    >>> bar_chart([Bar("a", 0.5, 0.4), Bar("b", 0.25)], "score").count("<rect")
    2
    """
    left, height = 130, TOP + len(bars) * (_BAR + 8) + 22
    high = max(max(bar.value, bar.mark or 0.0) for bar in bars)
    axis = Axis(low, high * 1.02 or 1.0, left, WIDTH - 60, False)
    parts = [
        f'<text class="label" x="{(left + WIDTH - 60) / 2}" y="{height - 6}" '
        f'text-anchor="middle">{escape(x_label)}</text>'
    ]
    for place, bar in enumerate(bars):
        y = TOP + place * (_BAR + 8)
        width = axis.place(bar.value) - left
        parts.append(
            f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>'
            f'<rect class="c{bar.colour % COLOURS}" x="{left}" y="{y}" width="{max(width, 0):.1f}" '
            f'height="{_BAR}"/>'
            f'<text x="{WIDTH - 54}" y="{y + 13}">{bar.value:.4f}</text>'
        )
        if bar.mark is not None:
            x = axis.place(bar.mark)
            parts.append(
                f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{y + _BAR + 3}">'
                f"<title>paper: {bar.mark:.4f}</title></line>"
            )
    return _svg(x_label, height, parts)


def legend(keys: Sequence[tuple[str, str]]) -> str:
    """Return the names of lines beside their colours."""
    items = (f'<span class="key {colour}">{escape(name)}</span>' for name, colour in keys)
    return f'<p class="legend">{"".join(items)}</p>'


def _grid(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in x_axis.ticks():
        x = x_axis.place(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{_number(value)}</text>'
        )
    for value in y_axis.ticks():
        y = y_axis.place(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        )
    parts.append(
        f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f'{escape(x_label)}</text><text class="label" transform="translate(12 '
        f'{(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _number(value: float) -> str:
    if value >= 1000 and value == int(value):
        return f"{int(value):,}"
    return f"{value:g}"


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
