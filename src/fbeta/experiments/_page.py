"""The HTML page around a report: style for light and dark, from a phone to a desk."""

from __future__ import annotations

from fbeta.charts import PALETTE


def page(content: str) -> str:
    """Put content, which is HTML, into the page."""
    grounds = zip(*PALETTE, strict=True)
    light, dark = (
        " ".join(f".c{number} {{ --c: {colour}; }}" for number, colour in enumerate(colours))
        for colours in grounds
    )
    filled = _PAGE.replace("%LIGHT%", light).replace("%DARK%", dark)
    return filled.replace("%CONTENT%", content)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>fbeta: results</title>
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
small { color: var(--soft); }
</style>
</head>
<body>
<h1>Results of fbeta</h1>
%CONTENT%
</body>
</html>
"""
