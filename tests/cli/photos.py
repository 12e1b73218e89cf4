"""A made-up table of photos with tags, written as people write such tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from .toys import Run

FIT = ("--alpha", 1)
TAGS = ("--label-column", "tags", *FIT)
COLOURS = ("red", "blue", "green")


def rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows whose tags follow from a number, a category, a word and a date."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        size, colour = round(float(rng.normal(3, 2)), 2), COLOURS[rng.integers(3)]
        words = ["boat", "tree"][rng.integers(2)], ["storm", "calm"][rng.integers(2)]
        month = 1 + int(rng.integers(12))
        tags = [
            name
            for name, on in (
                ("big", size > 3),
                ("red", colour == "red"),
                ("sea", words[0] == "boat"),
                ("winter", month in (12, 1, 2)),
            )
            if on
        ]
        found.append(
            {
                "photo": f"img{seed}{i:04d}",
                "size": size if i % 9 else None,
                "colour": colour,
                "note": f"a {words[0]} in the {words[1]} of {1900 + i}, seen from there",
                "taken": f"2023-{month:02d}-{1 + i % 28:02d}",
                "unit": "cm",
                "tags": tags,
            }
        )
    return found


def write(
    path: Path, data: list[dict[str, Any]], sep: str = ",", tags: str = ";", code: str = "utf-8"
) -> Path:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=sep, lineterminator="\n")
    writer.writerow(list(data[0]))
    for row in data:
        cells = {**row, "tags": tags.join(row["tags"]) if tags else str(row["tags"])}
        writer.writerow(["" if cell is None else cell for cell in cells.values()])
    content = out.getvalue().encode(code)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


TRAIN, TEST = rows(150), rows(60, 1)


def score(run: Run, model: Path, data: Path, *options: object) -> float:
    code, out, err = run("evaluate", model, data, "--json", *options)
    assert (code, err) == (0, "")
    return float(json.loads(out)["fbeta"])
