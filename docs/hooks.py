"""Formulas as MathML at build time, so that pages need no script; the list of the rivals."""

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

RIVALS = Path(__file__).resolve().parent.parent / "src" / "fbeta" / "rivals"
# what pymdownx.arithmatex makes of $...$ and $$...$$
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# docstrings have the roles of Sphinx
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=<code>)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put every public name of the rivals on their page."""
    if page.file.src_uri != "reference/rivals.md":
        return markdown
    return markdown + "".join(f"\n::: {name}\n" for name in public_names(RIVALS))


def public_names(package: Path) -> Iterator[str]:
    """Yield the names in ``__all__`` of the public modules of a package, with their modules."""
    for path in sorted(package.glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                for name in ast.literal_eval(node.value):
                    yield f"fbeta.{package.name}.{path.stem}.{name}"


def on_page_content(content: str, **_: Any) -> str:
    """Replace formulas and roles in the HTML of a page."""
    return ROLE.sub("", FORMULA.sub(_mathml, content))


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return str(convert(html.unescape(match[3]).strip(), display=display))
