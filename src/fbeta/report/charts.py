"""Charts as data: what is shown, without a word on how it is drawn.

:mod:`fbeta.report.picture` draws a chart with matplotlib, :mod:`fbeta.report.svg` as a part of an
HTML page. Both take ranges, ticks and colours from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fbeta.methods import METHODS, method_title

#: Colours by number, each on a light and on a dark ground.
PALETTE = (
    ("#0b62b0", "#6cb2f5"), ("#b34700", "#f79a5b"), ("#1a7a4c", "#63cf98"),
    ("#8a3ea8", "#cf94e8"), ("#a3700a", "#e3b85c"), ("#0a7d8c", "#5cc9d8"),
    ("#b0255f", "#f285b1"), ("#7a4a2b", "#c9a07c"), ("#5c6b00", "#b6c957"),
    ("#3f4bb0", "#9ba6f7"), ("#8c1d18", "#f2928c"), ("#2f6f8f", "#8fc7e3"),
    ("#6b2f6b", "#d79ad7"), ("#3d6b1f", "#9fd47c"), ("#00584f", "#4fd1c0"),
    ("#555b63", "#a9b0b8"),
)  # fmt: skip


def colour_of(name: str) -> int:
    """Return the number of the colour that a method, by its name or class, has in every chart.

    Variants of a method share its colour; what is no method has the last of ``PALETTE``.

    Examples
    --------
    >>> colour_of("fbeta-all"), colour_of("br"), colour_of("BinaryRelevance"), colour_of("mine")
    (0, 3, 3, 15)
    """
    classes = list(dict.fromkeys(method.estimator for method in METHODS.values()))
    class_ = METHODS[name].estimator if name in METHODS else name
    return classes.index(class_) if class_ in classes else len(PALETTE) - 1


@dataclass(frozen=True)
class Range:
    """The values that an axis covers, from ``low`` to ``high``; positive ones if logarithmic."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], log: bool = False) -> Range:
        """Leave a little room around values."""
        ends = [math.log10(value) if log else value for value in values]
        low, high = min(ends), max(ends)
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
        low, high = low - room, high + room
        return cls(10**low, 10**high, True) if log else cls(low, high)

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, from 0 to 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return (value - low) / (high - low)

    def ticks(self) -> dict[float, str]:
        """Return round values, about five of them, and how they are written."""
        ticks = self._decades() if self.log and self.high / self.low >= 5 else self._steps()
        whole = {tick: tick >= 1000 and tick == int(tick) for tick in ticks}
        return {tick: f"{int(tick):,}" if whole[tick] else f"{tick:g}" for tick in ticks}

    def _decades(self) -> list[float]:
        exponents = range(math.floor(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        ticks: list[float] = []
        for digits in ((1,), (1, 2, 5)):
            ticks = [float(f"{digit}e{e}") for e in exponents for digit in digits]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(ticks) > 2:
                break
        return ticks

    def _steps(self) -> list[float]:
        width = self.high - self.low
        step = 10.0 ** math.floor(math.log10(width / 4))
        step *= min((1, 2, 5, 10), key=lambda m: abs(width / (m * step) - 4))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(i * step, 12) for i in range(first, last + 1)]


@dataclass(frozen=True)
class Series:
    """Points in the order in which they are joined, of a colour by number.

    Without a colour it is a line to compare with, dashed and without dots; loose points are faint
    and not joined: the runs behind a mean, without a name for the legend.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = 0
    loose: bool = False


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes, each of them linear or logarithmic.

    Ticks are at round values, or across where ``x_ticks`` says.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    x_ticks: Sequence[float] = ()

    @property
    def ticks(self) -> tuple[dict[float, str], dict[float, str]]:
        """The ticks of both axes, and how they are written."""
        across, up = (extent.ticks() for extent in self.ranges)
        return {x: f"{x:g}" for x in self.x_ticks} or across, up

    @property
    def ranges(self) -> tuple[Range, Range]:
        """The ranges of both axes, with room around all points."""
        xs, ys = zip(*(point for series in self.series for point in series.points), strict=True)
        return Range.around(xs, self.x_log), Range.around(ys, self.y_log)


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, and where to put a mark to compare with."""

    name: str
    value: float
    mark: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from the top down, from 0 to a little above the longest."""

    title: str
    label: str
    bars: Sequence[Bar]
    mark: str = "paper"

    @property
    def range(self) -> Range:
        """The range of the bars and marks."""
        return Range(0, 1.02 * max(max(bar.value, bar.mark or 0.0) for bar in self.bars) or 1.0)


Chart: TypeAlias = LineChart | BarChart

#: What a :func:`calibration_chart` shows, for those who see one for the first time.
CALIBRATION = (
    "A model can say of each of its predictions which F_beta it expects. Here the rows are in ten "
    "groups of one size, from those it expects least of to those it expects most of: each point "
    "is a group, across what the model expected, upwards what the predictions got. On the dashed "
    "line both are equal; below it the model is too sure of itself, above it too modest."
)


def beta_chart(title: str, scores: Mapping[str, Mapping[str, float]]) -> LineChart:
    """Show F_beta against beta, with a line for each method or class and a tick for each beta.

    Examples
    --------
    >>> beta_chart("Scene", {"br": {"1": 0.5, "0.5": 0.4}}).series[0].points
    [(0.5, 0.4), (1.0, 0.5)]
    """
    lines = []
    for name, by_beta in scores.items():
        points = sorted((float(beta), score) for beta, score in by_beta.items())
        lines.append(Series(method_title(name), points, colour_of(name)))
    betas = sorted({x for line in lines for x, _ in line.points})
    return LineChart(title, "beta", "F_beta", lines, x_log=True, x_ticks=betas)


def calibration_chart(
    title: str, bins: Mapping[str, Sequence[Mapping[str, float]]], colours: Sequence[int]
) -> LineChart:
    """Show the F_beta that models got against what they expected, with a line for each name.

    Examples
    --------
    >>> chart = calibration_chart("BR", {"Scene": [{"expected": 0.4, "actual": 0.5}]}, [0])
    >>> [(series.name, series.points) for series in chart.series]
    [('Scene', [(0.4, 0.5)]), ('expected = actual', [(0.4, 0.4), (0.5, 0.5)])]
    """
    lines = [
        Series(name, [(group["expected"], group["actual"]) for group in groups], number)
        for (name, groups), number in zip(bins.items(), colours, strict=True)
    ]
    ends = [value for line in lines for point in line.points for value in point]
    lines.append(Series("expected = actual", [(end, end) for end in (min(ends), max(ends))], None))
    return LineChart(title, "expected F-measure", "actual F-measure", lines)
