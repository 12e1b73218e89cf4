"""Charts as data: what is shown, without a word on how it is drawn.

:mod:`fbeta.charts.picture` draws a chart with matplotlib, :mod:`fbeta.charts.svg` as a part of an
HTML page. Both take ranges, ticks and colours from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fbeta.methods import METHODS, method_title

__all__ = [
    "PALETTE",
    "Axis",
    "Bar",
    "BarChart",
    "Chart",
    "LineChart",
    "Range",
    "Series",
    "beta_chart",
    "calibration_chart",
    "colour_of",
]

#: Colours by number, each on a light and on a dark ground.
PALETTE = (
    ("#0b62b0", "#6cb2f5"),
    ("#b34700", "#f79a5b"),
    ("#1a7a4c", "#63cf98"),
    ("#8a3ea8", "#cf94e8"),
    ("#a3700a", "#e3b85c"),
    ("#0a7d8c", "#5cc9d8"),
    ("#b0255f", "#f285b1"),
    ("#7a4a2b", "#c9a07c"),
    ("#5c6b00", "#b6c957"),
    ("#3f4bb0", "#9ba6f7"),
    ("#555b63", "#a9b0b8"),
)


def colour_of(name: str) -> int:
    """Return the number of the colour that a method has in every chart.

    Parameters
    ----------
    name : str
        Of a method, or of its class; variants of a method share its colour.

    Returns
    -------
    int
        The last of ``PALETTE`` for all names that are no methods.

    Examples
    --------
    >>> colour_of("fbeta-all"), colour_of("br"), colour_of("BinaryRelevance"), colour_of("mine")
    (0, 3, 3, 10)
    """
    classes = list(dict.fromkeys(method.estimator for method in METHODS.values()))
    class_ = METHODS[name].estimator if name in METHODS else name
    return classes.index(class_) if class_ in classes else len(PALETTE) - 1


@dataclass(frozen=True)
class Range:
    """The values that an axis covers.

    Attributes
    ----------
    low, high : float
        Its ends.
    log : bool
        Whether it is logarithmic.
    """

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], log: bool = False) -> Range:
        """Leave a little room around values, which are positive on a logarithmic axis."""
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
class Axis:
    """What one direction of a chart shows.

    Attributes
    ----------
    label : str
        In words.
    log : bool
        Whether it is logarithmic; then all values are positive.
    """

    label: str
    log: bool = False


@dataclass(frozen=True)
class Series:
    """Points of a chart.

    Attributes
    ----------
    name : str
        For the legend; loose points have none.
    points : sequence of (float, float)
        In the order in which they are joined.
    colour : int or None
        Number of its colour; None for a line to compare with, dashed and without dots.
    loose : bool
        Whether they are faint points that are not joined: the runs behind a mean.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = 0
    loose: bool = False


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes.

    Attributes
    ----------
    title : str
        What stands above it.
    x, y : Axis
        The axes.
    series : sequence of Series
        What is drawn.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]

    @property
    def ranges(self) -> tuple[Range, Range]:
        """The ranges of both axes, with room around all points."""
        xs, ys = zip(*(point for series in self.series for point in series.points), strict=True)
        return Range.around(xs, self.x.log), Range.around(ys, self.y.log)


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
class BarChart:
    """Horizontal bars, each with a mark for the number to compare with.

    Attributes
    ----------
    title : str
        What stands above it.
    label : str
        What the bars show.
    bars : sequence of Bar
        From the top down.
    mark : str
        What the marks are.
    """

    title: str
    label: str
    bars: Sequence[Bar]
    mark: str = "paper"

    @property
    def range(self) -> Range:
        """From 0 to a little above the longest bar."""
        return Range(0, 1.02 * max(max(bar.value, bar.mark or 0.0) for bar in self.bars) or 1.0)


Chart: TypeAlias = LineChart | BarChart


def beta_chart(title: str, scores: Mapping[str, Mapping[str, float]]) -> LineChart:
    """Show F_beta against beta.

    Parameters
    ----------
    title : str
        Of the chart.
    scores : mapping from name to mapping from beta to F_beta
        One line for each method or class, with its colour.

    Returns
    -------
    LineChart

    Examples
    --------
    >>> beta_chart("Scene", {"br": {"1": 0.5, "0.5": 0.4}}).series[0].points
    [(0.5, 0.4), (1.0, 0.5)]
    """
    lines = [
        Series(
            method_title(name),
            sorted((float(beta), score) for beta, score in by_beta.items()),
            colour_of(name),
        )
        for name, by_beta in scores.items()
    ]
    return LineChart(title, Axis("beta", log=True), Axis("F_beta"), lines)


def calibration_chart(
    title: str, bins: Mapping[str, Sequence[Mapping[str, float]]], colours: Sequence[int] = ()
) -> LineChart:
    """Show the F_beta that models got against what they expected.

    Parameters
    ----------
    title : str
        Of the chart.
    bins : mapping from name to groups of instances
        As :func:`fbeta.evaluation.calibration_bins` returns them; one line for each name.
    colours : sequence of int, optional
        Of the lines; those of the methods by default.

    Returns
    -------
    LineChart

    Examples
    --------
    >>> chart = calibration_chart("BR", {"Scene": [{"expected": 0.4, "actual": 0.5}]})
    >>> [(series.name, series.points) for series in chart.series]
    [('Scene', [(0.4, 0.5)]), ('expected = actual', [(0.4, 0.4), (0.5, 0.5)])]
    """
    numbers = colours or [colour_of(name) for name in bins]
    lines = [
        Series(name, [(group["expected"], group["actual"]) for group in groups], number)
        for (name, groups), number in zip(bins.items(), numbers, strict=True)
    ]
    ends = [value for line in lines for point in line.points for value in point]
    low, high = min(ends), max(ends)
    lines.append(Series("expected = actual", [(low, low), (high, high)], None))
    axes = Axis("expected F-measure"), Axis("actual F-measure")
    return LineChart(title, *axes, lines)
