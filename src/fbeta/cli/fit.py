"""``fbeta fit`` and ``fbeta compare``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fbeta._files import STDOUT, check_output
from fbeta.blocks import RowBlocks
from fbeta.blocks.files import list_files
from fbeta.blocks.rows import MEMORY
from fbeta.cli import app
from fbeta.cli import options as o
from fbeta.datasets import TableEncoder
from fbeta.datasets.dataset import fail, quoted
from fbeta.datasets.model_data import (
    ModelInput,
    TrainingData,
    TrainingOptions,
    fit_encoder,
    read_training,
    remember,
    with_encoder,
)
from fbeta.datasets.table_files import TABLE_FORMATS
from fbeta.datasets.tables import column_kinds
from fbeta.estimators.members import note_on_average
from fbeta.methods import METHODS, make_method, method_title
from fbeta.report.evaluation import MEASURES, measure
from fbeta.storage.model_files import StoredModel, save_model

METHOD = o.method_option("One of {}; auto by default, fbeta with --alpha or --alphas.")
METHOD_LIST = o.method_option("Some of {}.", "auto,fbeta,br")
# a label that is there less often cannot be learned, nor be in every fold
_MIN_ROWS_OF_LABEL = 2
_SAMPLE_ROWS = 20_000  # from which the kinds of columns and their encoder are found


@app.command("fbeta fit scene-train.arff --labels scene.xml -o model.skops")
def fit(
    data: Path = o.argument("CSV, Excel, Parquet, JSON Lines, ARFF or SVMlight file, or -."),
    output: Path = o.option("File of the model, or -.", "--output", "-o", default=...),
    method: str | None = METHOD,
    beta: float = o.BETA,
    *,
    search: o.SearchOptions,
    options: TrainingOptions = o.TRAINING,
    memory: str | None = o.MEMORY,
    checkpoint: Path | None = o.option(
        "Read in blocks; go on from this file after an interruption."
    ),
    as_json: bool = o.JSON,
) -> None:
    """Fit a model to labelled data and store it."""
    choices = (search.alpha, search.alphas and search.strengths, memory, checkpoint)
    # a choice of alpha asks for the paper's method
    method = method or ("auto" if all(choice is None for choice in choices) else "fbeta")
    model = make_method(method, beta)
    search.check(model, method)
    printed = str(output) in ("-", STDOUT)
    in_blocks = memory is not None or checkpoint is not None
    if printed and in_blocks:
        raise ValueError("--memory and --checkpoint: the model goes into a file")
    target = Path(STDOUT) if printed else output
    inputs = [data, *([options.labels_xml] if options.labels_xml else [])]
    check_output(target, inputs)
    if in_blocks and not model.streams:
        able = ", ".join(name for name in METHODS if make_method(name).streams)
        raise ValueError(f"--memory and --checkpoint: the method must be {able}, not {method}")
    # a choice of alpha has a checkpoint of its own
    for file in () if checkpoint is None else (checkpoint, f"{checkpoint}.search"):
        check_output(file, inputs)
        if os.path.realpath(file) == os.path.realpath(target):
            raise ValueError(f"--checkpoint and --output both write {file}: expected two files")
    if in_blocks:
        stored, summary = _fit_blocks(data, model, options, search, memory, checkpoint)
    else:
        train = read_training(data, options)
        search.check_rows(train.data.n_samples)
        if not as_json:
            _print_training(train, err=printed)
        stored, summary = _fit_whole(train, model, search)
    # with the versions of what is installed
    save_model(target, **{**vars(stored), "versions": None})
    summary = {"model": str(output), "method": method, "beta": beta, **summary}
    if as_json:
        if not summary.get("leaderboard", True):
            del summary["leaderboard"]
        typer.echo(json.dumps(summary), err=printed)
        return
    shown = [
        [key.replace("_", " "), f"{v:.4f}" if isinstance(v, float) and v % 1 else f"{v}"]
        for key, v in summary.items()
        if v is not None and not isinstance(v, dict | list)
    ]
    app.print_table(f"Fitted to {data}", ["", "value"], shown, err=printed)
    if summary.get("leaderboard"):
        _print_tried(summary["leaderboard"], summary["cv_score"], err=printed)
    if summary.get("left_out"):
        names = quoted(summary["left_out"], 10)
        typer.echo(f"Left out, because of the --time-limit: {names}", err=printed)


def _print_tried(rows: list[dict[str, Any]], score: float, *, err: bool) -> None:
    """Print what a search has tried, and what has a weight in its average."""
    shown = [["average", f"{score:.4f}", "", "1.00"]]
    for row in rows:
        weight = f"{row['weight']:.2f}" if row["weight"] else ""
        shown.append([str(row["name"]), f"{row['score']:.4f}", f"{row['seconds']:.1f}", weight])
    head = ["features: model", "F", "seconds", "weight"]
    app.print_table("What was tried, by cross-validation", head, shown, err=err)
    if note := note_on_average(rows, score):
        typer.echo(note, err=err)


def _fit_whole(
    train: TrainingData, model: Any, search: o.SearchOptions
) -> tuple[StoredModel, dict[str, Any]]:
    """Fit to a file that was read whole; return the model and what a summary says."""
    data, left_out = train.data, []
    with app.status_line("reading the rows") as show:

        def on_event(event: Any) -> None:
            if event.event == "left out" and event.detail.endswith("too long"):
                left_out.append(event.name)
            if event.event == "stopped":
                app.stderr(
                    "fbeta: interrupted: the best average so far is kept; Ctrl-C again ends all"
                )
            else:
                show(app.search_words(event))

        model, found = search.fit(model, data.X, data.Y, progress=on_event)
    columns = [
        {"name": c.name, "kind": c.kind, "missing": c.gaps, "values": c.distinct}
        for c in train.columns
    ]
    counts = data.Y.sum(axis=0, dtype=np.int64).tolist()
    return _stored(train, model, {"rows": data.n_samples, **found}), {
        "rows": data.n_samples,
        "features": data.n_features,
        "labels": data.n_labels,
        **found,
        "columns": columns,
        "counts": dict(zip(data.label_names, counts, strict=True)),
        "leaderboard": getattr(model, "leaderboard_", []),
        "left_out": left_out,
    }


def _stored(train: TrainingData, model: Any, training: dict[str, Any]) -> StoredModel:
    """Return a fitted model with what is needed to read later files."""
    estimator, names = with_encoder(train.encoder, model), train.data.label_names
    reading = train.remembered
    return StoredModel(estimator, names, train.feature_names, reading, training=training)


def _print_training(train: TrainingData, err: bool) -> None:
    """Show what the columns of a table are taken for, and how often each label is there."""
    if train.columns:
        title = f"Columns{app.first_of(len(train.columns))}: change what they are by "
        title += "--numeric, --categorical, --text, --date, --id, --drop"
        rows = [
            [column.name, column.kind, f"{column.gaps:,}", f"{column.distinct:,}", column.note]
            for column in train.columns[: app.MAX_ROWS_SHOWN]
        ]
        head = ["column", "is", "missing", "values", "note"]
        app.print_table(title, head, rows, texts=(0, 1, 4), err=err)
    data = train.data
    counts = data.Y.sum(axis=0, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    rows = [
        [data.label_names[j], f"{counts[j]:,}", f"{100 * counts[j] / data.n_samples:.1f} %"]
        for j in order[: app.MAX_ROWS_SHOWN]
    ]
    title = f"Labels{app.first_of(data.n_labels)}, {data.cardinality:.2f} in a row on average"
    app.print_table(title, ["label", "rows", "share"], rows, err=err)
    notes = []
    always = [data.label_names[j] for j in order if counts[j] == data.n_samples]
    if always:
        notes.append(f"In every row, so that there is nothing to learn: {quoted(always)}")
    if data.n_labels > 1 and (data.Y.sum(axis=1) == 1).all():
        notes.append("Each row has exactly one label: methods for one label of several may do, too")
    rare = [data.label_names[j] for j in order if counts[j] < _MIN_ROWS_OF_LABEL]
    if rare:
        few = f"In fewer than {_MIN_ROWS_OF_LABEL} rows, too few to learn from"
        notes.append(f"{few}: {quoted(rare, 10)}")
    for note in (*notes, *train.notes):
        typer.echo(app.printable(note), err=err)


def _fit_blocks(
    path: Path,
    model: Any,
    options: TrainingOptions,
    search: o.SearchOptions,
    memory: str | None,
    checkpoint: Path | None,
) -> tuple[StoredModel, dict[str, Any]]:
    """Fit to a file or a folder in blocks; return the model and what a summary says."""
    begin = time.perf_counter()
    useless = {"--join-labels": options.labels.join, "--missing error": options.missing == "error"}
    for name, is_given in useless.items():
        if is_given:
            raise ValueError(f"{name}: not with --memory and --checkpoint, which read in blocks")
    files = list_files(path)
    if options.check(files[0]) in TABLE_FORMATS:
        encoder, remembered, given = _table_options(files[0], options)
    else:
        encoder, remembered = None, {"zero_based": any(map(_has_index_zero, files))}
        given = remembered
    blocks = RowBlocks.read(path, memory=MEMORY if memory is None else memory, **given)
    own = blocks.label_names
    names = tuple(str(name) for name in (blocks.label_form().classes if own is None else own))
    with app.status_line("first pass") as show:
        blocks.checkpoint = checkpoint
        blocks.progress = lambda news: show(app.pass_words(news, time.perf_counter() - begin))
        model, found = search.fit(model, blocks)
    features = None if blocks.feature_names is None else tuple(blocks.feature_names.tolist())
    return StoredModel(with_encoder(encoder, model), names, features, remembered), {
        "rows": blocks.n_rows,
        "features": model.n_features_in_,
        "labels": len(names),
        **found,
        "passes": blocks.passes,
        "gigabytes_read": blocks.bytes_read / 1e9,
        "seconds": time.perf_counter() - begin,
    }


def _table_options(
    first: Path, options: TrainingOptions
) -> tuple[TableEncoder | None, dict[str, Any], dict[str, Any]]:
    """Fit an encoder to the first rows; return it, what is stored and the options of blocks."""
    sample = next(options.source.blocks(first, _SAMPLE_ROWS), None)
    if sample is None:
        raise fail(first, None, "at least one row")
    columns = column_kinds(sample, options.labels, options.kinds, options.drop)
    encoder = fit_encoder(sample, columns, options.missing)
    labels = options.labels.read(sample)
    shown = ", ".join(f"{c.name} {c.kind}" for c in columns)
    app.stderr(f"fbeta: columns, by the first {sample.n_rows:,} rows: {shown}")
    for note in labels.notes:
        app.stderr(f"fbeta: labels of these rows: {note}")
    given: dict[str, Any] = {
        "label_prefix": options.labels.prefix,
        "labels": options.labels.columns,
        "label_column": options.labels.column,
        "delimiter": options.labels.delimiter,
        "gap_labels": labels.gap_labels,
        "blank_labels": bool(labels.notes),  # a note says that the first rows have blanks
        "encoder": encoder,
        "sep": options.source.sep,
        "encoding": options.source.encoding,
    }
    return encoder, remember(options, labels, columns), given


def _has_index_zero(file: Path) -> bool:
    """Return whether the features of an SVMlight file are counted from 0."""
    with file.open("rb") as lines:
        return any(b" 0:" in line or line.startswith(b"0:") for line in lines)


@app.command(
    "fbeta compare train.arff test.arff --labels labels.xml --methods fbeta,br",
    without=("alpha", "preset"),
)
def compare(
    train: Path = o.argument("Training file."),
    test: Path = o.argument("Test file of the same format."),
    methods: str = METHOD_LIST,
    beta: float = o.BETA,
    *,
    search: o.SearchOptions,
    options: TrainingOptions = o.TRAINING,
    as_json: bool = o.JSON,
) -> None:
    """Fit several methods to one file, rank them by its folds, and measure them on another."""
    names = o.names(methods, list(METHODS), "--methods")
    models = {name: make_method(name, beta) for name in names}
    training = read_training(train, options)
    data = training.data
    search.check_rows(data.n_samples)
    if not as_json:
        _print_training(training, err=False)
    rows, held_out = [], None
    with app.progress_bar(len(models), "methods") as progress:
        bar = progress.task_ids[0]
        for name, model in models.items():
            progress.update(bar, description=name)

            def on_event(event: Any, name: str = name) -> None:
                progress.update(bar, description=f"{name}, {app.search_words(event)}")

            fitted, found = search.fit(model, data.X, data.Y, always_score=True, progress=on_event)
            stored = _stored(training, fitted, found)
            if held_out is None:
                held_out = ModelInput(stored, options.source).rows(test, labelled=True)
            truth, padded = held_out.labels.with_unknown(stored.predict(held_out.X))
            rows.append({"method": name, **found, **measure(truth, padded, beta)})
            progress.advance(bar)
    for note in (*held_out.notes, *held_out.labels.unknown_note()) if held_out else ():
        app.stderr(f"fbeta: {note}")
    # the test file is for looking, not for choosing
    rows.sort(key=lambda row: -row["cv_score"])
    if as_json:
        typer.echo(json.dumps({"beta": beta, "methods": rows}))
        return
    # methods side by side: the names of the measures are too long for the head of a column
    titles = {"cv_score": "F_beta in cross-validation", **MEASURES}
    shown = [[titles[key], *(f"{row[key]:.4f}" for row in rows)] for key in titles]
    alphas = ("" if row["alpha"] is None else f"{row['alpha']:g}" for row in rows)
    shown += [["alpha", *alphas], ["seconds", *(f"{row['seconds']:.1f}" for row in rows)]]
    head = ["measure", *(method_title(row["method"]) for row in rows)]
    app.print_table(f"Fitted to {train}, measured on {test}, beta = {beta:g}", head, shown)
