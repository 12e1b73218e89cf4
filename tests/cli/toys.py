"""Small data, written in every format that the command line reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[..., tuple[int, str, str]]
LABELS = ("sea", "sky", "sun")


def toy(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).round(3)
    Y = (X[:, :3] + 0.5 * rng.normal(size=(n, 3)) > 0).astype(int)
    return X, Y


TRAIN, TEST = toy(80, 0), toy(30, 1)


def write_csv(path: Path, X: Any, Y: Any = None, prefix: str = "is_", sep: str = ",") -> Path:
    head = [f"x{j}" for j in range(X.shape[1])]
    rows = X.tolist()
    if Y is not None:
        head = [*(prefix + name for name in LABELS), *head]
        rows = [[*y, *x] for x, y in zip(rows, Y.tolist(), strict=True)]
    path.write_text("\n".join(sep.join(map(str, row)) for row in [head, *rows]) + "\n")
    return path


def write_sets(path: Path, X: Any, Y: Any) -> Path:
    lines = ["id,x0,x1,x2,x3,tags"]
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        tags = "|".join(name for name, on in zip(LABELS, y, strict=True) if on)
        lines.append(",".join([f"row{i}", *map(str, x), tags]))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_arff(path: Path, X: Any, Y: Any, relation: str = "toy") -> Path:
    lines = [f"@relation '{relation}'", *(f"@attribute {name} {{0,1}}" for name in LABELS)]
    lines += [f"@attribute x{j} numeric" for j in range(4)]
    lines += ["@data", *(",".join(map(str, [*y, *x])) for x, y in zip(X, Y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_svmlight(path: Path, X: Any, Y: Any) -> Path:
    lines = []
    for x, y in zip(X, Y, strict=True):
        labels = ",".join(str(j) for j in np.flatnonzero(y))
        lines.append(f"{labels} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(x)))
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))
