"""Charts as matplotlib draws them: in files, and as SVG on pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fbeta.report.charts import (
    PALETTE,
    BarChart,
    LineChart,
    Series,
    beta_chart,
    calibration_chart,
    save_picture,
    to_svg,
)

from ..cases import slow

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")

LINES = LineChart(
    "t",
    "x",
    "y",
    [
        Series("a <b>", [(1, 1), (100, 2)], 3, errors=[0.1, 0.2]),
        Series("", [(10, 1.5)], 3, loose=True),
        Series("ref", [(1, 1), (100, 1)], None),
    ],
    x_log=True,
)
BARS = BarChart("t", "F_1", ["a", "b"], [0.2, 0.4], [None, 0.5], [2, 0])
CALIBRATION = calibration_chart("", {"br": [{"expected": 0.2, "actual": 0.9}]}, [0])


def drawn(charts: list[LineChart | BarChart], path: Path, monkeypatch: pytest.MonkeyPatch) -> list:
    """The figures that are drawn while charts are saved."""
    module = pytest.importorskip("matplotlib.figure")
    kept = []

    class Kept(module.Figure):  # type: ignore[misc, name-defined]
        def savefig(self, *args: object, **options: object) -> None:
            kept.append(self)
            super().savefig(*args, **options)

    monkeypatch.setattr(module, "Figure", Kept)
    save_picture(charts, path)
    return kept


def test_a_picture_shows_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.colors import to_hex

    (figure,) = drawn([LINES, BARS], tmp_path / "a.png", monkeypatch)
    lines, bars = figure.axes
    points = [tuple(map(tuple, line.get_xydata())) for line in lines.get_lines()[:3]]
    assert points == [((1, 1), (100, 2)), ((10, 1.5),), ((1, 1), (100, 1))]
    (error_bars,) = lines.collections
    heights = [segment[1][1] - segment[0][1] for segment in error_bars.get_segments()]
    assert heights == pytest.approx([0.2, 0.4])
    assert lines.get_xscale() == "log"
    assert [text.get_text() for text in lines.get_legend().get_texts()] == ["a <b>", "ref"]
    assert [patch.get_width() for patch in bars.patches] == [0.2, 0.4]
    (mark,) = bars.collections[0].get_segments()
    assert mark[:, 0].tolist() == [0.5, 0.5]
    assert mark[:, 1].mean() == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["paper"]
    assert bars.get_xlabel() == r"F$_{\mathrm{1}}$"
    assert to_hex(bars.patches[0].get_facecolor()) == PALETTE[2][0]
    assert to_hex(lines.get_lines()[0].get_color()) == PALETTE[3][0]


def test_calibration_has_equal_axes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (figure,) = drawn([CALIBRATION], tmp_path / "a.png", monkeypatch)
    (axes,) = figure.axes
    assert axes.get_aspect() == 1


def test_beta_charts_have_a_tick_for_each_beta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = beta_chart("a $ b", {"br": {"0.5": 0.4, "2": 0.6, "4": 0.7}})
    (figure,) = drawn([chart], tmp_path / "a.png", monkeypatch)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.5", "2", "4"]
    assert axes.get_xticks().tolist() == [0.5, 2, 4]


def test_svg_has_text_the_colours_of_the_page_and_no_ids_twice() -> None:
    lines, bars, calibration = map(to_svg, (LINES, BARS, CALIBRATION))
    for chart, text in ((LINES, lines), (BARS, bars), (CALIBRATION, calibration)):
        root = ElementTree.fromstring(text)
        assert root.get("role") == "img"
        assert not re.search("#(?:000000|ffffff)", text)
        assert text == to_svg(chart)
        assert not re.search(r'id="(?:figure|axes|patch|text|line2d)_\d', text)
    assert "a &lt;b&gt;" in lines
    assert "<b>" not in lines
    assert "stroke: var(--c3)" in lines
    assert "fill: var(--c2)" in bars
    assert not set(re.findall("#[0-9a-f]{6}", bars)) & {light for light, _ in PALETTE}


@pytest.mark.parametrize("suffix", ["png", slow("svg"), slow("pdf")])
def test_formats_of_pictures(tmp_path: Path, suffix: str) -> None:
    save_picture([CALIBRATION, BARS, LINES, LINES], tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 500


def test_a_failed_drawing_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        save_picture([BARS], tmp_path / "x.nonsense")
    assert list(tmp_path.iterdir()) == []
