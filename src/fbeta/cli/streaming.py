"""Files larger than memory: fitted to and predicted block by block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fbeta._files import write_atomically
from fbeta.blocks import RowBlocks
from fbeta.blocks.parts import open_parts
from fbeta.blocks.rows import MEMORY, parse_memory
from fbeta.cli.console import printable, stderr
from fbeta.cli.fitting import Strategy
from fbeta.datasets import TableEncoder
from fbeta.datasets.model_input import InputRows, ModelInput
from fbeta.datasets.table_files import TABLE_FORMATS
from fbeta.datasets.table_writing import table_text
from fbeta.datasets.tables import column_kinds
from fbeta.datasets.training import (
    TrainingOptions,
    fit_encoder,
    remember,
    with_encoder,
)
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.storage.model_files import save_model

_SAMPLE_ROWS = 20_000  # from which the kinds of columns and their encoder are found
_BLOCK_ROWS_PER_BYTE = 1 / 20_000  # of predictions, which need little memory


def stream_fit(
    path: Path,
    output: Path,
    model: Any,
    options: TrainingOptions,
    strategy: Strategy,
    memory: str | None,
    checkpoint: Path | None,
) -> dict[str, Any]:
    """Fit a model to a file or a folder in blocks, and store it; return what a summary says."""
    begin = time.perf_counter()
    useless = {"--join-labels": options.labels.join, "--missing error": options.missing == "error"}
    for name, is_given in useless.items():
        if is_given:
            raise ValueError(f"{name}: not with --memory and --checkpoint, which read in blocks")
    first = _first_file(path)
    if options.check(first) in TABLE_FORMATS:
        encoder, remembered, given = _table_options(first, options)
    else:
        encoder, remembered = None, {"zero_based": _has_index_zero(path)}
        given = remembered
    opened = open_parts(path, **given)
    blocks = RowBlocks(
        opened.parts, classes=opened.classes, memory=MEMORY if memory is None else memory
    )
    names = opened.label_names or [str(name) for name in blocks.label_form().classes]
    with _progress() as watch:
        blocks.checkpoint, blocks.progress = checkpoint, watch
        model, found = _fit_blocks(model, blocks, strategy)
    features = None if opened.feature_names is None else opened.feature_names.tolist()
    save_model(
        output,
        with_encoder(encoder, model),
        label_names=list(names),
        feature_names=features,
        reading=remembered,
    )
    return {
        "rows": blocks.n_rows,
        "features": model.n_features_in_,
        "labels": len(names),
        **found,
        "passes": blocks.passes,
        "gigabytes_read": blocks.bytes_read / 1e9,
        "seconds": time.perf_counter() - begin,
    }


def _fit_blocks(model: Any, blocks: RowBlocks, strategy: Strategy) -> tuple[Any, dict[str, Any]]:
    if strategy.alpha is None and "alpha" in model.get_params(deep=False):
        search = AlphaSearchCV(model, alphas=strategy.alphas, cv=strategy.cv).fit(blocks)
        found = {"alpha": search.alpha_, "cv_score": search.best_score_}
        return search.best_estimator_, found
    if strategy.alpha is not None:
        model.set_params(alpha=strategy.alpha)
    return model.fit(blocks), {"alpha": strategy.alpha, "cv_score": None}


def _table_options(
    first: Path, options: TrainingOptions
) -> tuple[TableEncoder | None, dict[str, Any], dict[str, Any]]:
    """Fit an encoder to the first rows; return it, what is stored and the options of blocks."""
    sample = next(options.source.blocks(first, _SAMPLE_ROWS))
    columns = column_kinds(sample, options.labels, options.kinds, options.drop)
    encoder = fit_encoder(sample, columns, options.missing)
    labels = options.labels.read(sample)
    shown = ", ".join(f"{printable(c.name)} {c.kind}" for c in columns)
    stderr(f"fbeta: columns, by the first {sample.n_rows:,} rows: {shown}")
    given: dict[str, Any] = {
        "label_prefix": options.labels.prefix,
        "labels": options.labels.columns,
        "label_column": options.labels.column,
        "delimiter": (labels.form.delimiter if labels.form else None) or ";",
        "encoder": encoder,
        "sep": options.source.sep,
        "encoding": options.source.encoding,
    }
    return encoder, remember(options, labels, columns), given


def stream_predict(
    path: Path,
    output: Path,
    reader: ModelInput,
    made: Any,
    keep: Sequence[str] | None,
    memory: str,
    safe: bool,
) -> int:
    """Predict a file or a folder in blocks, and write a text file; return the number of rows.

    ``made`` has a method ``columns`` that makes the columns to be written of some rows.
    """
    count = 0
    with write_atomically(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        for rows in _input_blocks(path, reader, keep, memory):
            text = table_text(made.columns(rows), made.kind, delimiter=made.delimiter, safe=safe)
            if count and made.kind != "jsonl":
                text = text.partition("\n")[2]
            file.write(text)
            count += rows.n_samples
            for note in rows.notes:
                stderr(f"fbeta: {note}")
    return count


def _input_blocks(
    path: Path, reader: ModelInput, keep: Sequence[str] | None, memory: str
) -> Iterator[InputRows]:
    size = max(100, int(parse_memory(memory) * _BLOCK_ROWS_PER_BYTE))
    if reader.source.of(_first_file(path)) in TABLE_FORMATS:
        for file in _files(path):
            for table in reader.source.blocks(file, size):
                yield reader.table_rows(table, labelled=False, keep=keep)
        return
    zero_based = bool(reader.stored.reading.get("zero_based", False))
    width = reader.stored.estimator.n_features_in_
    opened = open_parts(path, n_features=width, zero_based=zero_based, label_names=())
    for block in RowBlocks(opened.parts, memory=memory).blocks():
        yield InputRows(block.X)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.name[0] not in "._")


def _first_file(path: Path) -> Path:
    files = _files(path)
    if not files:
        raise ValueError(f"{path}: there are no files")
    return files[0]


def _has_index_zero(path: Path) -> bool:
    """Return whether the features of SVMlight files are counted from 0."""
    for file in _files(path):
        with file.open("rb") as lines:
            if any(b" 0:" in line or line.startswith(b"0:") for line in lines):
                return True
    return False


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
