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
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<run><!-- run -->\n)?^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# what mkdocs.yml needs
MODULES = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers.python", "latex2mathml")


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


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_marked_blocks_run(page, tmp_path, monkeypatch):
    for file in (DOCS / "files").glob("*.csv"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__page__"}
    for line, language, code, marked in blocks(page, "python", "console"):
        if not marked:
            continue
        if language == "console":
            run_commands(code)
            continue
        with threadpool_limits(1):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


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
    from typer.main import get_command

    from fbeta._cli.app import app

    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    commands = get_command(app).commands
    for name, command in commands.items():
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
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def importable(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


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


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for tag, link in Links(page.read_text(encoding="utf-8")).links:
            if tag in ("script", "img", "link"):
                assert not urlsplit(link).netloc, f"{page.relative_to(site)}: {link}"


def test_formulas_and_roles_are_rendered(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text, page
        assert not re.search(r":(class|func|meth|mod|attr):", text), page
        assert "--8&lt;--" not in text, page
    assert (site / "theory" / "index.html").read_text(encoding="utf-8").count("<math") > 20


def test_every_public_name_is_in_the_reference(site):
    text = "".join(p.read_text(encoding="utf-8") for p in (site / "reference").rglob("*.html"))
    for module in ("", ".datasets", ".linear", ".losses", ".metrics", ".surrogate"):
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
