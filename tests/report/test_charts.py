"""One chart, two renderers: both have to show what the data says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fbeta.report.charts import (
    Bar,
    BarChart,
    LineChart,
    Range,
    Series,
    beta_chart,
    calibration_chart,
)
from fbeta.report.picture import save_picture
from fbeta.report.svg import to_html

LINES = LineChart(
    "t", "x", "y",
    [Series("a <b>", [(1, 1), (100, 2)], 3), Series("", [(10, 1.5)], 3, loose=True),
     Series("ref", [(1, 1), (100, 1)], None)],
    x_log=True,
)  # fmt: skip
BARS = BarChart("t", "F_1", [Bar("a", 0.2, colour=2), Bar("b", 0.4, 0.5)])


@pytest.mark.parametrize(
    ("values", "log"),
    [([0.1, 0.9], False), ([3.0, 3.0], False), ([100, 30000], True), ([0.0, 0.0], False),
     ([2.0, 4.0], True), ([0.25, 4.0], True), ([1e-5, 3.0], True)],
)  # fmt: skip
def test_ranges_cover_their_values_with_round_ticks(values: list[float], log: bool) -> None:
    extent = Range.around(values, log)
    ticks = extent.ticks()
    assert 2 <= len(ticks) <= 9
    assert all(0 <= extent.share(v) <= 1 for v in [*values, *ticks])
    for tick, words in ticks.items():
        assert float(words.replace(",", "")) == tick


def test_svg_puts_points_where_they_belong() -> None:
    chart = to_html(LINES)
    points = re.findall(r'<circle class="(\w+)" cx="([\d.]+)" cy="([\d.]+)"', chart)
    assert [style for style, _, _ in points] == ["c3"] * 3
    (x0, y0), (x1, y1), (x2, y2) = ((float(x), float(y)) for _, x, y in points)
    # on a logarithmic axis 10 is half way from 1 to 100
    assert x2 == pytest.approx((x0 + x1) / 2, abs=0.1)
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert x0 < x1
    assert y0 > y1
    assert chart.count("<polyline") == 2
    assert chart.count('<span class="key') == 2
    assert "<b>" not in chart


def test_svg_bars_have_their_lengths() -> None:
    chart = to_html(BARS)
    first, second = (float(w) for w in re.findall(r'width="([\d.]+)"', chart))
    assert second == pytest.approx(2 * first, rel=0.01)
    (mark,) = re.findall(r'<line class="mark" x1="([\d.]+)"', chart)
    left = float(re.findall(r'<rect class="c0" x="([\d.]+)"', chart)[0])
    assert float(mark) - left == pytest.approx(2.5 * first, rel=0.01)
    assert "<title>paper: 0.5000</title>" in chart


def test_the_picture_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    drawn = []

    class Kept(figure_module.Figure):  # type: ignore[misc, name-defined]
        def savefig(self, *args: object, **options: object) -> None:
            drawn.append(self)
            super().savefig(*args, **options)

    monkeypatch.setattr(figure_module, "Figure", Kept)
    save_picture([LINES, BARS], tmp_path / "a.png")
    lines, bars = drawn[0].axes
    assert [tuple(map(tuple, line.get_xydata())) for line in lines.get_lines()] == [
        ((1, 1), (100, 2)), ((10, 1.5),), ((1, 1), (100, 1))
    ]  # fmt: skip
    assert lines.get_xscale() == "log"
    x_range, y_range = LINES.ranges
    assert lines.get_xlim() == pytest.approx((x_range.low, x_range.high))
    assert [text.get_text() for text in lines.get_yticklabels()] == list(y_range.ticks().values())
    assert [text.get_text() for text in lines.get_legend().get_texts()] == ["a <b>", "ref"]
    assert [patch.get_width() for patch in bars.patches] == [0.2, 0.4]
    (mark,) = bars.collections[0].get_segments()
    assert mark[:, 0].tolist() == [0.5, 0.5]
    assert mark[:, 1].mean() == 1
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["paper"]
    assert bars.get_xlabel() == r"F$_{\mathrm{1}}$"
    # the same colours as on the page, on its light ground
    from matplotlib.colors import to_hex

    from fbeta.report.charts import PALETTE

    assert to_hex(bars.patches[0].get_facecolor()) == PALETTE[2][0]
    assert to_hex(lines.get_lines()[0].get_color()) == PALETTE[3][0]


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_formats_of_pictures(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    charts = [
        beta_chart("a $ b", {"br": {"0.5": 0.4, "2": 0.6}}),
        calibration_chart("", {"br": [{"expected": 0.2, "actual": 0.3}]}, [0]),
    ]
    save_picture([*charts, BARS, LINES], tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 500


def test_a_failed_drawing_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError):
        save_picture([BARS], tmp_path / "x.nonsense")
    assert list(tmp_path.iterdir()) == []
