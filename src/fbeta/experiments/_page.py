"""The HTML page around a report: style for light and dark, from a phone to a desk."""

PAGE = """<!DOCTYPE html>
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
  --c0: #0b62b0; --c1: #b34700; --c2: #1a7a4c; --c3: #8a3ea8;
  --c4: #a3700a; --c5: #0a7d8c; --c6: #b0255f; --c7: #555b63;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --text: #e6e8eb; --soft: #9aa3ad; --rule: #363c43;
    --c0: #6cb2f5; --c1: #f79a5b; --c2: #63cf98; --c3: #cf94e8;
    --c4: #e3b85c; --c5: #5cc9d8; --c6: #f285b1; --c7: #a9b0b8;
  }
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
svg polyline { fill: none; stroke-width: 2; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--text); stroke-width: 2; }
svg .ref { stroke: var(--soft); stroke-dasharray: 5 4; stroke-width: 1.5; }
svg polyline.c0 { stroke: var(--c0); } svg polyline.c1 { stroke: var(--c1); }
svg polyline.c2 { stroke: var(--c2); } svg polyline.c3 { stroke: var(--c3); }
svg polyline.c4 { stroke: var(--c4); } svg polyline.c5 { stroke: var(--c5); }
svg polyline.c6 { stroke: var(--c6); } svg polyline.c7 { stroke: var(--c7); }
svg :is(circle, rect).c0 { fill: var(--c0); } svg :is(circle, rect).c1 { fill: var(--c1); }
svg :is(circle, rect).c2 { fill: var(--c2); } svg :is(circle, rect).c3 { fill: var(--c3); }
svg :is(circle, rect).c4 { fill: var(--c4); } svg :is(circle, rect).c5 { fill: var(--c5); }
svg :is(circle, rect).c6 { fill: var(--c6); } svg :is(circle, rect).c7 { fill: var(--c7); }
.legend { margin: 0.2rem 0; font-size: 0.85rem; display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; }
.key::before {
  content: ""; display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.35em;
  vertical-align: -0.1em; border-radius: 2px; background: var(--soft);
}
.key.c0::before { background: var(--c0); } .key.c1::before { background: var(--c1); }
.key.c2::before { background: var(--c2); } .key.c3::before { background: var(--c3); }
.key.c4::before { background: var(--c4); } .key.c5::before { background: var(--c5); }
.key.c6::before { background: var(--c6); } .key.c7::before { background: var(--c7); }
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
