"""The documentation builds, its links lead somewhere, and its code runs.

A code block after the line ``<!-- run -->`` is run, in a folder with the files of ``docs/files``;
the marked blocks of a page share their names. ``console`` blocks are commands after ``$``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from threadpoolctl import threadpool_limits

from .cases import slow_but
from .children import child

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<run><!-- run -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# what mkdocs.yml needs
MODULES = ("zensical", "mkdocstrings", "mkdocstrings_handlers.python", "latex2mathml")


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def blocks(page, *languages):
    """Yield the line, the code and the mark of the blocks of a page in some languages."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["language"] in languages:
            line = text.count("\n", 0, match.start("code")) + 1
            yield line, match["language"], match["code"], match["run"] is not None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_compile(page):
    for line, _, code, _ in blocks(page, "python", "py"):
        if "--8<--" not in code:
            compile("\n" * (line - 1) + code, str(page), "exec")


RUNNABLE = [p for p in PAGES if any(run for *_, run in blocks(p, "python", "console"))]


def test_there_are_runnable_blocks():
    assert len(RUNNABLE) >= 4


@pytest.mark.parametrize(
    "page",
    slow_but({ROOT / "README.md", DOCS / "command-line.md"}, RUNNABLE),
    ids=name_of,
)
def test_marked_blocks_run(page, tmp_path, monkeypatch):
    for file in (DOCS / "files").glob("*.csv"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fbeta.cli.options.TIME_LIMIT", 1.0)
    names = {"__name__": "__page__"}
    for line, language, code, marked in blocks(page, "python", "console"):
        if not marked:
            continue
        if language == "console":
            run_commands(code)
            continue
        try:
            with threadpool_limits(1):
                exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
        except ImportError as error:
            missing = str(error.name or error)
            if any(name in missing for name in ("torch", "onnx", "skorch")):
                pytest.skip(f"the page needs an extra: {error}")
            raise


def run_commands(code):
    for name in ("typer", "rich", "skops"):
        pytest.importorskip(name, reason="the command line needs the extra cli")
    from fbeta.cli import main

    for line in code.splitlines():
        prompt, program, *arguments = shlex.split(line)
        assert (prompt, program) == ("$", "fbeta")
        with threadpool_limits(1):
            assert main(arguments) == 0, line


def test_tests_that_are_named_exist():
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8")))
    assert len(named) > 20
    for file, name in sorted(named):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_every_method_is_in_the_tables():
    from fbeta.methods import METHODS

    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    guarantees, costs = text.split("## What each costs")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|", guarantees, re.MULTILINE))
    assert rows == {name: method.estimator for name, method in METHODS.items()}
    first = " ".join(re.findall(r"^\| ([^|]*) \|", costs, re.MULTILINE))
    assert not [name for name in METHODS if f"`{name}`" not in first]


def test_every_command_is_on_the_page():
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    pytest.importorskip("rich", reason="the command line needs the extra cli")
    from fbeta.cli.app import load_commands

    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    for name, command in load_commands().items():
        assert f"`fbeta {name}" in text, name
        if name in ("fit", "predict", "evaluate"):
            section = text.split(f"## {name}\n")[1].split("\n## ")[0]
            options = {option for p in command.params for option in p.opts if option[:2] == "--"}
            missing = sorted(o for o in options - {"--help", "--json"} if f"`{o}" not in section)
            assert not missing, f"{name}: {missing}"


class Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.anchors.add(attributes["id"])
        for key in ("href", "src"):
            if attributes.get(key):
                self.links.append((tag, attributes[key]))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site, built with warnings as errors."""
    missing = [name for name in MODULES if not importable(name)]
    if missing:
        pytest.skip(f"building the documentation needs the extra docs: no {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("documentation")
    copy_sources(folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder,
        env={**os.environ, "PYTHONPATH": "docs"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def copy_sources(folder):
    """Copy what the site is built from, which is not to be written to."""
    for name in ("docs", "examples", "src"):
        shutil.copytree(ROOT / name, folder / name,
                        ignore=shutil.ignore_patterns("__pycache__", "*.so"))  # fmt: skip
    shutil.copy(ROOT / "mkdocs.yml", folder)


def importable(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.slow
def test_links_lead_somewhere(site):
    parsed = {p: Links(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}
    assert len(parsed) > 15
    broken = []
    for page, content in parsed.items():
        if page.name == "404.html":  # its links are absolute, whatever the address of the site
            continue
        for _, link in content.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            known = parsed.get(target)
            if not target.exists() or (
                parts.fragment and known and unquote(parts.fragment) not in known.anchors
            ):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert not broken


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for tag, link in Links(page.read_text(encoding="utf-8")).links:
            if tag in ("script", "img", "link"):
                assert not urlsplit(link).netloc, f"{page.relative_to(site)}: {link}"


@pytest.mark.slow
def test_formulas_and_roles_are_rendered(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text, page
        assert not re.search(r":(class|func|meth|mod|attr):", text), page
        assert "--8&lt;--" not in text, page
    assert (site / "theory.html").read_text(encoding="utf-8").count("<math") > 20


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").rglob("*.html"))
    for path in sorted((ROOT / "src" / "fbeta" / "rivals").glob("[!_]*.py")):
        for name in getattr(importlib.import_module(f"fbeta.rivals.{path.stem}"), "__all__", ()):
            assert f'id="fbeta.rivals.{path.stem}.{name}"' in text, name
    for module in ("", ".datasets", ".linear", ".losses", ".metrics", ".statistics.surrogate"):
        source = importlib.import_module(f"fbeta{module}")
        for name in source.__all__:
            if not callable(getattr(source, name)):  # a constant, which has no docstring
                continue
            ids = (f'id="fbeta{module}.{name}"', f'id="fbeta.{name}"')
            assert any(i in text for i in ids), f"fbeta{module}.{name}"


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        assert parts.scheme or (ROOT / parts.path).exists(), link


@pytest.mark.slow
def test_the_site_opens_from_the_disk(site, browser):
    browser.open((site / "index.html").as_uri())
    for place in ("Methods", "Reference", "Estimators"):
        link = f"""[...document.querySelectorAll(".md-nav--primary a")]
            .find(a => a.textContent.trim() === {place!r}).href"""
        address = browser.run(link)
        # a file, not a folder that only a server would look into
        assert address.endswith(".html")
        browser.open(address)
        assert browser.run("document.querySelector('h1').textContent").startswith(place)
    asked = [a for a in browser.requests() if not a.startswith("data:")]
    assert all(a.startswith("file://") for a in asked)


NAMES = """[...document.querySelectorAll(".md-content code, .md-content .doc-object-name")]
    .filter(e => !e.closest("pre") && /^[A-Za-z_]\\w*$/.test(e.textContent.trim()))
    .filter(e => e.getClientRects().length > 1).map(e => e.textContent)"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 768, 360])
@pytest.mark.parametrize(
    "page", ["methods", "when-not", "reference/estimators", "reference/rivals"]
)
def test_names_do_not_break_in_the_middle(site, browser, page, width):
    browser.open((site / f"{page}.html").as_uri(), width=width)
    assert browser.run("document.querySelectorAll('.md-content code').length") > 10
    assert browser.run(NAMES) == []
    assert browser.fits()


@pytest.mark.slow
def test_the_quick_start_is_not_cut_off(site, browser):
    browser.open((site / "index.html").as_uri(), width=1280)
    cut = """[...document.querySelectorAll("pre > code")].filter(
        e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"""
    assert browser.run("document.querySelectorAll('pre > code').length") > 5
    assert browser.run(cut) == []


@pytest.mark.slow
def test_the_sidebar_works_on_a_phone(site, browser):
    browser.open((site / "index.html").as_uri(), width=360)
    drawer = "document.querySelector('.md-sidebar--primary').getBoundingClientRect().right"
    assert browser.run(drawer) <= 0
    place = """(e => { const b = e.getBoundingClientRect();
               return [b.left + b.width / 2, b.top + b.height / 2]; })"""
    browser.click(
        *browser.run(f"{place}(document.querySelector('.md-header label[for=__drawer]'))")
    )
    browser.run("new Promise(done => setTimeout(done, 500))")  # it slides in
    assert browser.run(drawer) > 200
    link = """[...document.querySelectorAll(".md-nav--primary a")]
        .find(a => a.textContent.trim() === "Methods")"""
    browser.click(*browser.run(f"{place}({link})"))
    browser.wait((site / "methods.html").as_uri())
    assert browser.run("document.querySelector('h1').textContent").startswith("Methods")


@pytest.mark.slow
def test_make_serve_serves_the_site(tmp_path):
    missing = [name for name in MODULES if not importable(name)]
    if missing:
        pytest.skip(f"serving the documentation needs the extra docs: no {', '.join(missing)}")
    assert "\nserve: $(STAMP)\n\t$(SITE) serve\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    copy_sources(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with child("-m", "zensical", "serve", "--dev-addr", address, cwd=tmp_path,
               env={**os.environ, "PYTHONPATH": "docs"}):  # fmt: skip
        for _ in range(300):
            time.sleep(0.1)
            try:
                with urllib.request.urlopen(f"http://{address}/index.html", timeout=5) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            if "<h1" in text:
                break
        assert "Quick start" in text
