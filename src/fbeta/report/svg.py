"""Charts as inline SVG, coloured by the style sheet of the page around them.

Each colour is a class ``c0``, ``c1`` and so on, and ``ref`` for lines to compare with; the style
sheet gives it a custom property ``--c``.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fbeta.report.charts import PALETTE, Bar, BarChart, Chart, LineChart, Range

_WIDTH, _HEIGHT = 400, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 388, 12, 236
_BAR, _BAR_STEP = 18, 26
_BARS_LEFT, _BARS_RIGHT = 130, 340


def to_html(chart: Chart, *, with_cursor: bool = False) -> str:
    """Draw a chart as an ``svg`` element with the legend of its lines; the page has the title.

    With a cursor, lines have an upright one besides, for a script to move: see :func:`cursor`.

    Examples
    --------
    >>> from fbeta.report.charts import Series
    >>> to_html(LineChart("t", "x", "y", [Series("a", [(1, 2), (3, 4)])])).count("<circle")
    2
    >>> to_html(BarChart("t", "score", [Bar("a", 0.5, 0.4), Bar("b", 0.25)])).count("<rect")
    2
    """
    return _bars(chart) if isinstance(chart, BarChart) else _lines(chart, with_cursor)


def cursor(chart: LineChart, values: Sequence[float]) -> list[float]:
    """Return where values of x are across the picture of a chart, for a line that follows them.

    Examples
    --------
    >>> from fbeta.report.charts import Series
    >>> chart = LineChart("", "x", "y", [Series("", [(1, 0), (9, 1)])])
    >>> cursor(chart, [1, 5, 9])
    [67.27, 220.0, 372.73]
    """
    return [round(_across(chart.ranges[0], value), 2) for value in values]


def _lines(chart: LineChart, with_cursor: bool) -> str:
    x_range, y_range = chart.ranges
    parts = [_grid(chart, x_range, y_range)]
    if with_cursor:
        parts.append(f'<line class="cursor" x1="0" x2="0" y1="{_TOP}" y2="{_BOTTOM}"/>')
    for series in chart.series:
        style = _style(series.colour)
        places = [(_across(x_range, x), _up(y_range, y)) for x, y in series.points]
        if not series.loose:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline class="{style}" points="{path}"/>')
        if series.colour is not None:
            size = 'r="2" opacity="0.4"' if series.loose else 'r="3"'
            words = f"{escape(series.name)}: " if series.name else ""
            parts += [
                f'<circle class="{style}" cx="{px:.1f}" cy="{py:.1f}" {size}>'
                f"<title>{words}{x:g}, {y:.4g}</title></circle>"
                for (px, py), (x, y) in zip(places, series.points, strict=True)
            ]
    named = [series for series in chart.series if series.name]
    keys = (f'<span class="key {_style(s.colour)}">{escape(s.name)}</span>' for s in named)
    legend = f'<p class="legend">{"".join(keys)}</p>'
    return _svg(f"{chart.y_label} against {chart.x_label}", _HEIGHT, parts) + legend


def _bars(chart: BarChart) -> str:
    height = _TOP + len(chart.bars) * _BAR_STEP + 22
    middle = (_BARS_LEFT + _BARS_RIGHT) / 2
    parts = [_text(middle, height - 6, chart.label, "middle", "label")]
    parts += [_bar(bar, _TOP + i * _BAR_STEP, chart) for i, bar in enumerate(chart.bars)]
    return _svg(chart.label, height, parts)


def _bar(bar: Bar, y: float, chart: BarChart) -> str:
    def along(value: float) -> float:
        return chart.range.share(value) * (_BARS_RIGHT - _BARS_LEFT)

    mark = ""
    if bar.mark is not None:
        x = f"{_BARS_LEFT + along(bar.mark):.1f}"
        mark = (
            f'<line class="mark" x1="{x}" x2="{x}" y1="{y - 3}" y2="{y + _BAR + 3}">'
            f"<title>{escape(chart.mark)}: {bar.mark:.4f}</title></line>"
        )
    return (
        _text(_BARS_LEFT - 6, y + 13, bar.name, "end")
        + f'<rect class="{_style(bar.colour)}" x="{_BARS_LEFT}" y="{y}" '
        + f'width="{max(along(bar.value), 0):.1f}" height="{_BAR}"/>'
        + _text(_BARS_RIGHT + 6, y + 13, f"{bar.value:.4f}")
        + mark
    )


def _grid(chart: LineChart, x_range: Range, y_range: Range) -> str:
    parts = []
    x_ticks, y_ticks = chart.ticks
    for tick, words in x_ticks.items():
        x = _across(x_range, tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>')
        parts.append(_text(x, _BOTTOM + 15, words, "middle"))
    for tick, words in y_ticks.items():
        y = _up(y_range, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 5, y + 4, words, "end"))
    parts.append(_text((_LEFT + _RIGHT) / 2, _HEIGHT - 8, chart.x_label, "middle", "label"))
    turn = f'transform="translate(12 {(_TOP + _BOTTOM) / 2}) rotate(-90)"'
    parts.append(f"<g {turn}>{_text(0, 0, chart.y_label, 'middle', 'label')}</g>")
    return "".join(parts)


def _across(extent: Range, value: float) -> float:
    return _LEFT + extent.share(value) * (_RIGHT - _LEFT)


def _up(extent: Range, value: float) -> float:
    return _BOTTOM + extent.share(value) * (_TOP - _BOTTOM)


def _style(colour: int | None) -> str:
    return "ref" if colour is None else f"c{colour % len(PALETTE)}"


def _text(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> str:
    named = f'class="{style}" ' if style else ""
    return f'<text {named}x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
