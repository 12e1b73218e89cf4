from __future__ import annotations

import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fbeta.experiments.report import html_report
from fbeta.experiments.store import ResultStore

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
VOID = {"meta", "link", "br", "polyline", "rect", "line"}


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
        if tag not in VOID or tag == "line":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_for_nothing(filled_store: ResultStore) -> None:
    page = html_report(filled_store)
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert outline.addresses == ["data:,"]
    assert "script" not in outline.tags
    assert not re.search(r"https?://|@import|url\(", page)
    # convergence and regret; four rows as bars and as F against beta; calibration of two methods
    assert outline.tags.count("svg") == 2 + 4 + 4 + 2
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_the_page_has_the_numbers(filled_store: ResultStore) -> None:
    page = html_report(filled_store)
    assert "<b>0.7435</b> <small>0.7445 =</small>" in page
    assert "<b>0.6000</b> <small>0.5836 ▲</small>" in page
    assert "0.5500 <small>0.6009 ▼</small>" in page
    assert "Toy &amp; &lt;co&gt;" in page
    assert "<co>" not in page
    assert "11 cells" in page


def chromium(page: Path, profile: Path, *options: str) -> str:
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={profile}", *options, page.as_uri(),
    ]  # fmt: skip
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(profile)},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


PROBE = """<script>addEventListener("load", () => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("svg, p, h1, h2, figure, .scroll")]
    .filter(e => e.getBoundingClientRect().right > root.clientWidth + 1).length;
  root.dataset.probe = [innerWidth, root.scrollWidth <= root.clientWidth, wide,
    performance.getEntriesByType("resource").length,
    getComputedStyle(document.body).backgroundColor].join("|");
});</script></body>"""


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_on_a_phone(
    filled_store: ResultStore, tmp_path: Path, dark: bool
) -> None:
    # the window of a headless browser has a least width; a frame can be as narrow as a phone
    inner = html_report(filled_store).replace("</body>", PROBE)
    (tmp_path / "inner.html").write_text(inner, encoding="utf-8")
    frame = """<!DOCTYPE html><iframe id="f" src="inner.html" width="360" height="740"></iframe>
    <script>addEventListener("load", () => { document.title =
    document.getElementById("f").contentDocument.documentElement.dataset.probe; });</script>"""
    (tmp_path / "page.html").write_text(frame, encoding="utf-8")
    options = ["--allow-file-access-from-files", "--virtual-time-budget=3000"]
    options += ["--force-dark-mode", "--enable-features=WebContentsForceDark:0"] if dark else []
    dom = chromium(tmp_path / "page.html", tmp_path / "profile", *options, "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title is not None, dom[:2000]
    width, fits, wide, requests, colour = title[1].split("|")
    assert (width, fits, wide, requests) == ("360", "true", "0", "0")
    assert colour == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    shot = tmp_path / "shot.png"
    chromium(tmp_path / "page.html", tmp_path / "profile2", *options, f"--screenshot={shot}",
             "--window-size=400,760")  # fmt: skip
    assert shot.stat().st_size > 10_000
