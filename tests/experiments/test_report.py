from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fbeta.experiments.cells import Cell, Record, ResultStore, describe_machine
from fbeta.experiments.report import html_report

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from ..cases import slow
from .conftest import PARAMETERS, fill_store, score_record

if TYPE_CHECKING:
    from ..browser import Browser

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Checks that elements are closed in order, and collects addresses and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a filled folder."""
    return html_report(fill_store(tmp_path_factory.mktemp("report")))


def test_the_page_is_whole_and_asks_for_nothing(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert {a for a in outline.addresses if not a.startswith("#")} == {"data:,"}
    assert "script" not in outline.tags
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    # convergence and regret; four rows as bars, as F against beta, and with their calibration
    assert outline.tags.count("svg") == 2 + 4 + 4 + 4
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_the_page_has_the_numbers(page: str) -> None:
    assert "<b>0.7435</b> <small>0.7445 =</small>" in page
    assert "<b>0.6000</b> <small>0.5836 ▲</small>" in page
    assert "0.5500 <small>0.6009 ▼</small>" in page
    assert "Toy &amp; &lt;co&gt;" in page
    assert "<co>" not in page
    assert "11 cells" in page


@pytest.mark.parametrize(
    ("width", "dark"), [(360, False), (1280, True), slow(360, True), slow(1280, False)]
)
def test_a_browser_shows_it_from_a_phone_to_a_desk(
    browser: Browser, page: str, tmp_path: Path, width: int, dark: bool
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.open(path.as_uri(), width=width, dark=dark)
    assert browser.run("innerWidth") == width
    assert browser.fits()
    wide = """[...document.querySelectorAll("svg, p, h1, h2, figure, .scroll")].filter(
        e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"""
    assert browser.run(wide) == 0
    asked = [address for address in browser.requests() if not address.startswith("data:")]
    assert asked == [path.as_uri()]
    assert browser.complaints() == []
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert len(browser.picture()) > 10_000


def test_tables_scroll_on_a_phone(browser: Browser, page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.open(path.as_uri(), width=360)
    # every table is in a box of its own, and the wide ones can be moved in it, by keys as well
    assert browser.run("[...document.querySelectorAll('table')].every(t => t.closest('.scroll'))")
    moved = browser.run("""[...document.querySelectorAll(".scroll")]
        .filter(e => e.scrollWidth > e.clientWidth)
        .map(e => { e.scrollLeft = 1000; return e.scrollLeft > 0 && e.tabIndex === 0; })""")
    assert moved
    assert all(moved)


@pytest.mark.slow
def test_it_says_where_it_ran_and_what_was_left_out(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.write(score_record("scene", "fbeta", 0.7435))
    page = html_report(store)
    assert "Hardware: not recorded" in page
    assert "<td>Mediamill</td><td>was not asked for</td>" in page
    assert "<td>Scene</td><td>" not in page.split("What was left out")[1]
    store.note_left_out({"mediamill": "its <files> are not here"})
    store.note_left_out({"scene": "was absent before"})
    cell = Cell("table2", "yeast", "fbeta", {**PARAMETERS, "seed": 0})
    result = score_record("yeast", "fbeta", 0.6).result
    store.write(Record.now(cell, result, 1.0))
    page = html_report(store)
    assert "<td>Mediamill</td><td>its &lt;files&gt; are not here</td>" in page
    assert "was absent before" not in page  # it has results by now
    machine = describe_machine()
    assert f"cores {machine['cores']}" in page
    assert html.escape(machine["processor"]) in page
    (store.folder / "cells" / "left-out.json").write_text("[broken")
    assert "was not asked for" in html_report(store)


def test_the_processor_is_read_where_there_is_one(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nmodel name\t: other\n")
    assert describe_machine(str(info))["processor"] == "Some CPU @ 3 GHz"
    assert "cores" in describe_machine(str(tmp_path / "absent"))


def test_calibration_is_explained(page: str) -> None:
    assert "below it the model is too sure of itself" in page


def test_every_point_of_the_beta_plot_is_labelled(page: str) -> None:
    part = page.split("<h2>F_beta against beta</h2>")[1].split("</section>")[0]
    charts = re.findall(r"<svg.*?</svg>", part, flags=re.DOTALL)
    assert len(charts) == 4
    for chart in charts:
        # three points and the key of the legend, and a tick for each point
        markers = r'<use href="#m\w+" x="([\d.]+)" y="([\d.]+)" style="fill: var\(--c0\)'
        assert len(set(re.findall(markers, chart))) == 4
        assert {">0.5</text>", ">1</text>", ">2</text>"} <= set(re.findall(r">[^<]*</text>", chart))
    # and its value in the table; BR knows no beta
    assert "<td>Scene</td><td>FBeta</td><td>0.6435</td><td>0.7435</td><td>0.8435</td>" in part
    assert "BR" not in part
