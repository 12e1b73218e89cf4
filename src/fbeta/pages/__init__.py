"""HTML pages that are one file: style, charts and script are in it, and nothing else is loaded."""
