"""``fbeta predict``, ``evaluate``, ``explain`` and ``export``: what is done with a model."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from fbeta._files import STDOUT, check_output, make_folder, write_atomically, write_text
from fbeta.blocks import RowBlocks
from fbeta.blocks.files import list_files
from fbeta.blocks.rows import parse_memory
from fbeta.cli import options as o
from fbeta.cli.app import MAX_ROWS_SHOWN, command, echo_data, first_of, print_table, stderr
from fbeta.datasets.dataset import fail, quoted
from fbeta.datasets.model_data import InputRows, ModelInput
from fbeta.datasets.table_files import TABLE_FORMATS, TABLE_SUFFIXES
from fbeta.datasets.tables import plain_values, save_table, table_text
from fbeta.estimators.features import label_importances
from fbeta.metrics import fbeta_per_instance
from fbeta.report import evaluation
from fbeta.report.charts import beta_chart, calibration_chart, colour_of, save_picture
from fbeta.report.pages import evaluation_page
from fbeta.storage.model_files import StoredModel, load_model
from fbeta.storage.onnx_export import to_onnx

Form = StrEnum("Form", ["columns", "sets"])
_TYPED_FORMATS = ("json", "jsonl", "parquet", "xlsx")
_COUNT = re.compile(r"[\d,]+(?= cells (?:cannot|has a) )")  # in a note on the rows of a file
_MAX_ROWS_EXPLAINED = 1_000  # that effects are measured on
_BLOCK_ROWS_PER_BYTE = 1 / 20_000  # of predictions, which need little memory


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """What is written of predictions."""

    beta: float | None = o.OTHER_BETA
    form: Form | None = o.option(
        "One 0/1 column for each label, or a column of names (default: as the training file)."
    )
    delimiter: str | None = o.option(
        "Between the names of --form sets (default: as the training file, ;)."
    )
    proba: bool = o.option("Add the probability of each label.", "--proba", default=False)
    expected: bool = o.option(
        "Add the F_beta to be expected of each row.", "--expected", default=False
    )
    min_labels: int | None = o.option("Predict at least so many.", **o.integer(0))
    max_labels: int | None = o.option("Predict at most so many.", **o.integer(0))

    def between(self, stored: StoredModel) -> str:
        """Return the delimiter of names: as given, or as the training file of a model has it."""
        return self.delimiter or stored.reading.get("delimiter") or ";"

    def columns(self, stored: StoredModel, rows: InputRows, kind: str) -> dict[str, Sequence[Any]]:
        """Predict, and return the columns to be written to a file of some kind."""
        typed = kind in _TYPED_FORMATS
        kept: Any = {name: plain_values(cells, typed) for name, cells in rows.kept.items()}
        limits = (self.min_labels, self.max_labels)
        found = stored.decide(
            rows.X,
            None if self.beta is None else [self.beta],
            expected=self.expected,
            marginals=self.proba,
            limits=None if limits == (None, None) else (limits[0] or 0, limits[1]),
        )
        if self.expected and not found.expected:
            name = type(stored.classifier).__name__
            raise ValueError(f"a model of {name} does not estimate its own F_beta")
        ((used, labels),) = found.labels.items()
        predicted, names = np.asarray(labels), stored.label_names
        if self.in_sets(stored, kind)[0]:  # called as in training
            column = stored.reading.get("label_column")
            column = "labels" if not column or column in kept else column
            parts = [kept, {column: [[names[j] for j in np.flatnonzero(row)] for row in predicted]}]
        else:
            parts = [kept, dict(zip(names, predicted.T.astype(int).tolist(), strict=True))]
        if self.proba:
            columns = [f"proba_{name}" for name in names]
            parts.append(dict(zip(columns, np.asarray(found.marginals).T.tolist(), strict=True)))
        if self.expected:
            parts.append({"expected_fbeta": np.asarray(found.expected[used]).tolist()})
        counts = Counter(name for part in parts for name in part)
        clash = quoted([name for name, count in counts.items() if count > 1])
        if clash:
            raise ValueError(f"two columns would have the name {clash}: choose others to --keep")
        return {name: cells for part in parts for name, cells in part.items()}

    def in_sets(self, stored: StoredModel, kind: str) -> tuple[bool, list[str]]:
        """Return whether labels become one column of names, and a note if not as in training."""
        if not (self.form == "sets" if self.form else stored.reading.get("label_column")):
            if self.delimiter is not None:
                raise ValueError("--delimiter goes with --form sets")
            return False, []
        between, is_text = self.between(stored), kind not in ("json", "jsonl", "parquet")
        clash = [name for name in stored.label_names if is_text and between in name]
        words = f"label {clash[0]!r} contains the delimiter {between!r}" if clash else ""
        if clash and (self.form or self.delimiter):
            raise ValueError(f"{words}: choose another --delimiter")
        words += ": labels are written as 0/1 columns (or choose another --delimiter)"
        return not clash, [words] if clash else []


@command("fbeta predict model.skops new.csv -o out.csv --beta 2")
def predict(
    model: Path = o.MODEL,
    data: Path = o.argument("File with the features of the model, or -."),
    output: Path | None = o.option(
        "CSV, TSV, JSON Lines, Parquet or Excel file, by its suffix; printed by default.",
        "--output",
        "-o",
    ),
    open_model: Any = o.OPEN_MODEL,
    *,
    options: PredictionOptions,
    keep: str | None = o.option(
        "Columns of the file to write besides those of --id: a,b; '' for none."
    ),
    safe_csv: bool = o.option(
        "Write ' before text that a spreadsheet would run.", "--safe-csv", default=False
    ),
    memory: str | None = o.MEMORY,
    as_json: bool = o.JSON,
) -> None:
    """Predict the label sets of new data."""
    target = None if output is None or str(output) in ("-", STDOUT) else output
    if target is not None:
        check_output(target, [model, data])
    kind = _format(target, as_json, safe_csv)
    reader = open_model(model, data)
    stored = reader.stored
    kept = None if keep is None else o.words(keep)
    text: dict[str, Any] = {"delimiter": options.between(stored), "safe": safe_csv}
    notes, count, first = options.in_sets(stored, kind)[1], 0, list[str]()
    if memory is None:
        rows = reader.rows(data, labelled=False, keep=kept)
        table, count = options.columns(stored, rows, kind), rows.X.shape[0]
        notes += rows.notes
        if target is None:
            echo_data(table_text(table, kind, **text))
        else:
            save_table(target, table, kind, **text)
    else:
        if target is None or kind not in ("csv", "tsv", "jsonl"):
            raise ValueError("--memory writes a CSV or JSON Lines file: give its name, --output")
        with write_atomically(target) as part, part.open("w", encoding="utf-8", newline="") as file:
            for rows in _blocks(data, reader, kept, memory):
                table = options.columns(stored, rows, kind)
                first = first or list(table)
                if apart := sorted(set(first) ^ set(table)):
                    place = f"{data}: the first {count:,} rows and the next"
                    raise ValueError(f"{place} must have the same columns: {quoted(apart)}")
                lines = table_text(table, kind, **text)
                head = table_text(dict.fromkeys(table, ()), kind, **text)
                file.write(lines.removeprefix(head) if count else lines)
                count += rows.X.shape[0]
                notes += rows.notes
            if not count:
                raise fail(data, None, "at least one row")
    for note in _summed(notes):
        stderr(f"fbeta: {note}")
    if target is not None:
        stderr(f"wrote {count} predictions to {target}")


def _format(target: Path | None, as_json: bool, safe: bool) -> str:
    """Return how predictions are written; refuse options that say nothing then."""
    suffix = ".csv" if target is None else target.suffix.lower()
    if suffix and suffix not in TABLE_SUFFIXES and not (as_json and suffix == ".json"):
        raise ValueError(f"{target}: predictions are written as one of {', '.join(TABLE_SUFFIXES)}")
    kind: str = TABLE_SUFFIXES.get(suffix, "csv")
    if as_json:
        if kind in ("parquet", "tsv", "xlsx"):
            raise ValueError(f"--json: {target} is to be a file of another format")
        kind = "jsonl" if kind == "jsonl" else "json"
    if safe and kind not in ("csv", "tsv"):
        raise ValueError("--safe-csv goes with CSV and TSV: other files have no formulas")
    return kind


def _blocks(
    path: Path, reader: ModelInput, keep: Sequence[str] | None, memory: str
) -> Iterator[InputRows]:
    """Read a file or a folder for a model, as many rows at a time as fit into memory."""
    size = max(100, int(parse_memory(memory) * _BLOCK_ROWS_PER_BYTE))
    files = list_files(path)
    if reader.source.of(files[0]) in TABLE_FORMATS:
        for file in files:
            for table in reader.source.blocks(file, size):
                yield reader.table_rows(table, labelled=False, keep=keep)
        return
    options: dict[str, Any] = {"n_features": reader.stored.estimator.n_features_in_}
    options |= {"zero_based": bool(reader.stored.reading.get("zero_based")), "label_names": ()}
    for block in RowBlocks.read(path, memory=memory, **options).blocks():
        yield InputRows(block.X)


def _summed(notes: Iterable[str]) -> list[str]:
    """Return notes on blocks as notes on their file: counts are added, the first place is kept."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for note in notes:
        found = _COUNT.search(note)
        key = note[: found.start()] if found else note
        first.setdefault(key, note)
        counts[key] += int(found[0].replace(",", "")) if found else 0
    return [_COUNT.sub(f"{counts[key]:,}", note, count=1) for key, note in first.items()]


@command("fbeta export model.skops -o model.onnx")
def export(
    model: Path = o.argument("A linear or cardinality model."),
    output: Path = o.option("File of the graph, .onnx.", "--output", "-o", default=...),
    single: bool = o.option("Take features in single precision.", "--float32", default=False),
) -> None:
    """Write a model with its exact decode as an ONNX graph."""
    check_output(output, [model])
    stored = load_model(model)
    try:
        graph = to_onnx(
            stored.estimator,
            label_names=stored.label_names,
            feature_names=stored.feature_names,
            features="float32" if single else "float64",
        )
    except TypeError as error:
        raise ValueError(f"{model}: {error}") from error
    with write_atomically(output) as place:
        place.write_bytes(graph.SerializeToString())
    typer.echo(f"wrote {output}: {len(stored.label_names)} labels", err=True)


@command("fbeta evaluate model.skops scene-test.arff --json")
def evaluate(
    model: Path = o.MODEL,
    data: Path = o.argument("File with the features and labels of the model."),
    open_model: Any = o.OPEN_MODEL,
    beta: float | None = o.OTHER_BETA,
    plots: Path | None = o.option("Folder for plots of F_beta and its calibration."),
    report: Path | None = o.option("HTML file to look at: a slider for beta, labels, rows."),
    as_json: bool = o.JSON,
) -> None:
    """Measure predictions on labelled data; 0/0 counts as 1 in every measure."""
    outputs = [] if report is None else [report]
    if plots is not None:
        outputs += [make_folder(plots) / name for name in ("betas.png", "calibration.png")]
    for path in outputs:
        check_output(path, [model, data])
    reader = open_model(model, data)
    stored = reader.stored
    test = reader.rows(data, labelled=True)
    used = float(stored.classifier.beta if beta is None else beta)
    found = stored.decide(test.X, [used])
    predicted, expected = np.asarray(found.labels[used]).astype(np.int8), found.expected.get(used)
    truth, padded = test.labels.with_unknown(predicted)
    scores = evaluation.measure(truth, padded, used)
    n_rows, unseen = len(truth), dict(test.labels.unknown)
    measured = evaluation.label_scores(truth, padded, used)
    columns = ([*stored.label_names, *unseen], *(values.tolist() for values in measured.values()))
    labels = [
        dict(zip(("label", *measured), row, strict=True)) for row in zip(*columns, strict=True)
    ]
    words = None
    if expected is not None:
        words = evaluation.calibration_words(expected, truth, padded, used)
    if plots is not None:
        _draw(stored, test, predicted, expected, used, plots)
    if report is not None:
        ids = {name: plain_values(cells, False) for name, cells in test.kept.items()}
        more: dict[str, Any] = {"beta": used, "unseen": list(unseen), "ids": ids}
        title = f"{model.name} on {data.name}"
        write_text(report, evaluation_page(stored, test.X, truth, title=title, **more))
    for note in (*test.notes, *test.labels.unknown_note()):
        stderr(f"fbeta: {note}")
    if as_json:
        shown = {"beta": used, "rows": n_rows, **scores, "by_label": labels}
        typer.echo(json.dumps({**shown, "unseen": unseen, "calibration": words}))
        return
    _print_by_label(labels, used)
    rows = [[evaluation.MEASURES[key], f"{value:.4f}"] for key, value in scores.items()]
    title = f"{model} on {n_rows} rows of {data}, beta = {used:g}"
    print_table(title, ["measure", "value"], rows)
    if words is not None:
        typer.echo("\n".join(textwrap.wrap(words, 100)))


def _print_by_label(found: list[dict[str, Any]], beta: float) -> None:
    """Show the measures of each label, the most frequent first."""
    rows = [
        [f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()]
        for row in sorted(found, key=lambda row: -row["true"])[:MAX_ROWS_SHOWN]
    ]
    head = ["label", "true", "predicted", "precision", "recall", f"F_{beta:g}"]
    print_table(f"By label{first_of(len(found))}", head, rows)


def _draw(
    stored: StoredModel,
    test: InputRows,
    predicted: NDArray[Any],
    expected: NDArray[Any] | None,
    beta: float,
    folder: Path,
) -> None:
    """Draw F_beta against beta, and actual against expected F_beta."""
    classifier = stored.classifier
    name = type(getattr(classifier, "best_estimator_", classifier)).__name__
    truth, predicted = test.labels.with_unknown(predicted)
    by_beta = evaluation.scores_by_beta(stored, test.X, truth)
    save_picture([beta_chart("", {name: by_beta})], folder / "betas.png")
    if expected is not None:
        lines = {name: expected}
        if getattr(classifier, "calibration_", None) is not None:
            lines["by its statistics alone"] = stored.expected_fbeta(test.X, beta, calibrated=False)
        actual = fbeta_per_instance(truth, predicted, beta)
        bins = {n: evaluation.calibration_bins(e, actual) for n, e in lines.items()}
        chart = calibration_chart("", bins, [colour_of(n) for n in lines])
        save_picture([chart], folder / "calibration.png")


@command("fbeta explain model.skops train.csv --only sea,sky")
def explain(
    model: Path = o.MODEL,
    data: Path = o.argument("File with the features of the model."),
    open_model: Any = o.OPEN_MODEL,
    only: str | None = o.option("Labels to explain: a,b (default: all)"),
    as_json: bool = o.JSON,
) -> None:
    """Show which features speak for each label: words, categories and numbers."""
    reader = open_model(model, data)
    stored = reader.stored
    rows = reader.rows(data, labelled=False)
    labels = list(stored.label_names)
    wanted = labels if only is None else list(o.words(only))
    unknown = [name for name in wanted if name not in labels]
    if unknown:
        raise ValueError(f"--only: the model has no label {quoted(unknown)}")
    names, n = None if stored.steps else stored.feature_names, _MAX_ROWS_EXPLAINED
    X = rows.X.iloc[:n] if hasattr(rows.X, "iloc") else rows.X[:n]
    effects = label_importances(stored.estimator, X, feature_names=names).values()
    found = dict(zip(labels, effects, strict=True))
    for note in rows.notes:
        stderr(f"fbeta: {note}")
    if as_json:
        shown = {name: {f.feature: f.effect for f in found[name]} for name in wanted}
        typer.echo(json.dumps(shown))
        return
    table = [
        [name, ", ".join(f"{f.feature} ({f.effect:+.2f})" for f in found[name]) or "none"]
        for name in wanted
    ]
    title = f"Features with the largest effects on the labels, by {X.shape[0]} rows"
    print_table(f"{title} of {data}", ["label", "features"], table, texts=(0, 1))
