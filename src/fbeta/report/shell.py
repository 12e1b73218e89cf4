"""The shell of a page - style for light and dark, from a phone to a desk - and its elements."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from fbeta.report.charts import PALETTE, Chart
from fbeta.report.svg import to_html


def page(title: str, content: str, *, style: str = "", script: str = "") -> str:
    """Put content, which is HTML, into a page of its own.

    Parameters
    ----------
    title : str
        Plain text, of the window and of the first heading.
    content : str
        HTML, escaped where it comes from others.
    style, script : str
        More of both. No other script can run, whatever the content is: the page says so.

    Returns
    -------
    str
        The whole page.

    Examples
    --------
    >>> page("A & B", "<p>c</p>").count("<h1>A &amp; B</h1>")
    1
    """
    light, dark = (
        " ".join(f".c{number} {{ --c: {colour}; }}" for number, colour in enumerate(colours))
        for colours in zip(*PALETTE, strict=True)
    )
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    parts = {
        "%LIGHT%": light,
        "%DARK%": dark,
        "%STYLE%": style,
        "%POLICY%": _POLICY + (f"'sha256-{allowed}'" if script else "'none'"),
        "%SCRIPT%": f"<script>{script}</script>\n" if script else "",
        "%TITLE%": escape(title),
        # the last, for what it holds is not to be filled in
        "%CONTENT%": content,
    }
    text = _PAGE
    for place, words in parts.items():
        text = text.replace(place, words)
    # names from files may have half a character, which no page can have
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    "style-src 'unsafe-inline'; script-src "
)


def section(title: str, text: str, content: str = "") -> str:
    """Make a section with a heading and some words, which are escaped, above its HTML."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def figures(charts: Sequence[Chart]) -> str:
    """Draw charts beside each other, as many as there is room for."""
    drawn = (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{to_html(chart)}</figure>"
        for chart in charts
    )
    return f'<div class="charts">{"".join(drawn)}</div>'


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, name: str = "table", words: bool = False
) -> str:
    """Put cells, which are HTML already, into a table that scrolls by itself on a phone.

    Columns after the first hold numbers, or words that may take several lines.
    """
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll{" words" if words else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(name)}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<meta http-equiv="Content-Security-Policy" content="%POLICY%">
<title>%TITLE%</title>
<style>
:root {
  --ground: #ffffff; --text: #1c1f23; --soft: #5c646d; --rule: #d8dce1;
}
%LIGHT%
.ref { --c: var(--soft); }
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --text: #e6e8eb; --soft: #9aa3ad; --rule: #363c43;
  }
  %DARK%
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.4rem; }
p { max-width: 46rem; overflow-wrap: anywhere; }
.charts {
  display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr));
}
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: 0.2rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg text.label { fill: var(--text); }
svg polyline { fill: none; stroke: var(--c); stroke-width: 2; }
svg :is(circle, rect) { fill: var(--c); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--text); stroke-width: 2; }
svg .ref { stroke-dasharray: 5 4; stroke-width: 1.5; }
.legend { margin: 0.2rem 0; font-size: 0.85rem; display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; }
.key::before {
  content: ""; display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.35em;
  vertical-align: -0.1em; border-radius: 2px; background: var(--c);
}
.key.ref::before { height: 2px; vertical-align: 0.25em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.6rem 0; }
th, td {
  padding: 0.25rem 0.7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule);
}
th:first-child, td:first-child { text-align: left; }
.words :is(th, td) { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.words :is(th, td):first-child { min-width: 8rem; }
small { color: var(--soft); }
:focus-visible { outline: 2px solid var(--c, #0b62b0); outline-offset: 2px; }
%STYLE%</style>
</head>
<body>
<h1>%TITLE%</h1>
%CONTENT%
%SCRIPT%</body>
</html>
"""
