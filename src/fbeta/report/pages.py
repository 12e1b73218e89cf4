"""HTML pages of one file each: the frame that all share, and its elements."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from fbeta.report.charts import PALETTE, Chart
from fbeta.report.drawing import to_svg

_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src "
)


def resource(name: str) -> str:
    """Return the text of a style sheet or script of this package."""
    return (files("fbeta.report") / name).read_text(encoding="utf-8")


def page(title: str, content: str, *, style: str = "", script: str = "") -> str:
    """Put content into a page of its own, with styles for light and dark, phones and desks."""
    light, dark = (
        f":root {{ {' '.join(f'--c{n}: {colour};' for n, colour in enumerate(colours))} }}"
        for colours in zip(*PALETTE, strict=True)
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {dark} }}"
    digest = b64encode(sha256(script.encode()).digest()).decode()
    # values are filled in once: a title with a placeholder in it stays as it is
    text = Template(resource("page.html")).substitute(
        title=escape(title),
        policy=_POLICY + (f"'sha256-{digest}'" if script else "'none'"),
        style="\n".join([light, dark, resource("page.css"), style]),
        content=content,
        script=f"<script>{script}</script>" if script else "",
    )
    # names from files may have lone surrogates, which UTF-8 cannot encode
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def section(title: str, text: str, content: str = "") -> str:
    """Make a section of a heading and a paragraph, both plain text, and HTML below them."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def figures(charts: Sequence[Chart]) -> str:
    """Draw charts beside each other, as many as there is room for."""
    drawn = (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{to_svg(chart)}</figure>"
        for chart in charts
    )
    return f'<div class="charts">{"".join(drawn)}</div>'


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, name: str = "table", words: bool = False
) -> str:
    """Put cells of HTML into a table that scrolls on a phone; columns are numbers, or words."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll{" words" if words else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(name)}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
