"""A Markdown extension: formulas as MathML at build time, so that pages need no script."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

# what pymdownx.arithmatex makes of $...$ and $$...$$
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# docstrings have the roles of Sphinx
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=<code>)")


class Formulas(Postprocessor):
    """Replaces formulas and roles in the HTML of a page."""

    def run(self, text: str) -> str:
        """Return the HTML with MathML in it."""
        return ROLE.sub("", FORMULA.sub(_mathml, text))


class FbetaExtension(Extension):
    """Comes after everything that writes HTML."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the replacement."""
        md.postprocessors.register(Formulas(md), "fbeta", -1)


def makeExtension(**options: Any) -> FbetaExtension:
    """Make the extension, as Markdown asks for it."""
    return FbetaExtension(**options)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return str(convert(html.unescape(match[3]).strip(), display=display))
