"""Files larger than memory: fitted to and predicted block by block."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fbeta._files import write_atomically
from fbeta.blocks import RowBlocks
from fbeta.blocks.parts import SUFFIXES, Opened, open_parts
from fbeta.blocks.rows import MEMORY, Part
from fbeta.cli.data import Reading
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.labels.forms import LabelForm
from fbeta.storage.model_files import StoredModel, save_model


def stream_fit(
    path: Path,
    output: Path,
    model: Any,
    reading: Reading,
    *,
    memory: str | None,
    checkpoint: Path | None,
    alpha: float | None,
    alphas: Sequence[float],
    cv: int,
) -> dict[str, Any]:
    """Fit a model to a file or a folder in blocks, and store it.

    The columns of a table are taken as numbers, as they are. Returns what a summary says.
    """
    columns, remembered = _columns(reading)
    begin = time.perf_counter()
    table = _kind(path) in ("csv", "parquet")
    zero_based = False if table else _has_index_zero(path)
    opened = open_parts(path, **columns) if table else open_parts(path, zero_based=zero_based)
    names, blocks = _with_indicators(opened, memory)
    with _progress() as watch:
        blocks.checkpoint, blocks.progress = checkpoint, watch
        score = None
        if alpha is not None or "alpha" not in model.get_params(deep=False):
            if alpha is not None:
                model.set_params(alpha=alpha)
            model.fit(blocks)
        else:
            search = AlphaSearchCV(model, alphas=alphas, cv=cv).fit(blocks)
            model, alpha, score = search.best_estimator_, search.alpha_, search.best_score_
    features = None if opened.feature_names is None else opened.feature_names.tolist()
    kept = remembered if table else {**remembered, "zero_based": zero_based}
    save_model(output, model, label_names=names, feature_names=features, reading=kept)
    return {
        "rows": blocks.n_rows, "features": model.n_features_in_, "labels": len(names),
        "alpha": alpha, "cv_score": score, "passes": blocks.passes,
        "gigabytes_read": blocks.bytes_read / 1e9, "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def stream_predict(
    path: Path,
    output: Path,
    stored: StoredModel,
    rows_of: Callable[..., list[list[Any]]],
    *,
    memory: str,
    beta: float | None,
    expected: bool,
) -> int:
    """Predict a file or a folder in blocks, and write a CSV file; return the number of rows.

    ``rows_of`` makes the rows of the CSV file, a header first, of predictions, what is expected of
    them and the names of the labels.
    """
    options: dict[str, Any] = {"features": stored.feature_names}
    if _kind(path) not in ("csv", "parquet"):
        n_features = stored.estimator.n_features_in_
        zero_based = bool(stored.reading.get("zero_based", False))
        options = {"n_features": n_features, "zero_based": zero_based, "label_names": ()}
    blocks = RowBlocks(open_parts(path, **options).parts, memory=memory)
    count = 0
    with write_atomically(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for block in blocks.blocks():
            sure = stored.expected_fbeta(block.X, beta) if expected else None
            rows = rows_of(stored.predict(block.X, beta), sure, stored.label_names)
            writer.writerows(rows if not count else rows[1:])
            count += len(block)
    return count


def _columns(reading: Reading) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return where the labels of a table are, and what is kept for reading later files."""
    choice = reading.choice
    if choice.kinds or reading.missing or reading.labels_xml or reading.n_labels or reading.nominal:
        raise ValueError(
            "--memory and --checkpoint: all columns but the labels are numbers, without gaps"
        )
    delimiter = choice.delimiter or ";"
    remembered = {
        "label_column": choice.label_column, "label_prefix": choice.label_prefix,
        "delimiter": delimiter, "is_list": False, "missing": "error",
    }  # fmt: skip
    columns = {
        "labels": choice.label_columns or None, "label_prefix": choice.label_prefix,
        "label_column": choice.label_column, "delimiter": delimiter, "drop": choice.drop,
    }  # fmt: skip
    return columns, remembered


def _kind(path: Path) -> str | None:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    return SUFFIXES.get(files[0].suffix.lower()) if files else None


def _has_index_zero(path: Path) -> bool:
    """Tell whether the features of SVMlight files are counted from 0."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as lines:
            if any(b" 0:" in line or line.startswith(b"0:") for line in lines):
                return True
    return False


def _with_indicators(opened: Opened, memory: str | None) -> tuple[list[str], RowBlocks]:
    """Return the names of the labels, and blocks whose labels are 0/1 arrays."""
    size = MEMORY if memory is None else memory
    if opened.label_names is not None:
        return list(opened.label_names), RowBlocks(opened.parts, memory=size)
    named = RowBlocks(opened.parts, classes=opened.classes, memory=size)
    form = named.label_form()
    if form.kind != "sets":
        return [str(name) for name in form.classes], named
    names = [str(name) for name in form.classes]
    form = replace(form, classes=np.array(names, dtype=object))
    parts = [Part(part.name, partial(_read_indicators, part, form)) for part in opened.parts]
    return names, RowBlocks(parts, memory=size)


def _read_indicators(part: Part, form: LabelForm, rows: int) -> Iterator[tuple[Any, Any, Any]]:
    for X, sets, weight in part.read(rows):
        yield X, form.read(sets, "y").toarray(), weight


@contextmanager
def _progress() -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Say on stderr which pass it is and how long it will take, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    begin = time.perf_counter()
    with console.status("first pass") as status:

        def watch(news: dict[str, Any]) -> None:
            status.update(progress_words(news, time.perf_counter() - begin))

        yield watch


def progress_words(news: Mapping[str, Any], seconds: float) -> str:
    """Return a line on how far a fit is.

    Examples
    --------
    >>> progress_words({"passes": 2, "rows": 50, "n_rows": 100, "open": 7}, 10.0)
    'pass 3, 50 %; 7 problems open; 2 s left in this pass'
    """
    words = f"pass {news['passes'] + 1}"
    if news["n_rows"]:
        share = news["rows"] / news["n_rows"]
        left = seconds / (news["passes"] + share) * (1 - share)
        words += f", {100 * share:.0f} %"
        if news["open"]:
            words += f"; {news['open']} problems open"
        return f"{words}; {left:.0f} s left in this pass"
    return f"{words}, {news['rows']} rows"
