"""Charts as data: :mod:`fbeta.report.drawing` draws them, and the script of the evaluation page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fbeta.methods import METHODS, method_title

#: Colours by number, each on a light and on a dark background.
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
    ("#8c1d18", "#f2928c"),
    ("#2f6f8f", "#8fc7e3"),
    ("#6b2f6b", "#d79ad7"),
    ("#3d6b1f", "#9fd47c"),
    ("#00584f", "#4fd1c0"),
    ("#555b63", "#a9b0b8"),
)


def colour_of(name: str) -> int:
    """Return the number of the colour that a method, by its name or class, has in every chart.

    Variants of a method share its colour; other names have the last colour of ``PALETTE``.
    """
    classes = list(dict.fromkeys(method.estimator for method in METHODS.values()))
    class_ = METHODS[name].estimator if name in METHODS else name
    return classes.index(class_) if class_ in classes else len(PALETTE) - 1


@dataclass(frozen=True)
class Series:
    """Points of a line chart in the order in which they are joined.

    Attributes
    ----------
    name : str
        For the legend; empty for none.
    points : sequence of (x, y)
        At least one.
    colour : int or None
        Number in ``PALETTE``; None draws a dashed reference line without markers.
    loose : bool
        Draw faint points that are not joined, such as the runs behind a mean.
    errors : sequence of float
        Half widths of error bars, one for each point, or none.
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
class Bar:
    """A bar of a chart, and a value to mark for comparison."""

    name: str
    value: float
    mark: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars from the top down; ``mark`` names the marks."""

    title: str
    label: str
    bars: Sequence[Bar]
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
