"""HTML pages that are one file: style, charts and script are in them, and they ask for nothing else."""
