"""``fbeta predict``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fbeta._files import STDOUT, check_output
from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, echo_data, mendable, stderr
from fbeta.cli.reports import load_model
from fbeta.cli.streaming import stream_predict
from fbeta.datasets.files import quoted
from fbeta.datasets.model_input import InputRows, ModelInput
from fbeta.datasets.table_writing import OUTPUT_FORMATS, plain_values, save_table, table_text
from fbeta.storage.model_files import StoredModel

_TYPED_FORMATS = ("json", "jsonl", "parquet", "xlsx")
_COUNT: dict[str, Any] = {"parser": o.whole(0), "metavar": "INTEGER"}
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="CSV, TSV, JSON Lines, Parquet or Excel file, by its suffix; printed by default.",
    ),
]
FormOption = Annotated[
    o.Form, typer.Option("--form", help="One 0/1 column for each label, or a column of names.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Between the names of --form sets (default: ;).")
]
Proba = Annotated[bool, typer.Option("--proba", help="Add the probability of each label.")]
Expected = Annotated[
    bool, typer.Option("--expected", help="Add the F_beta to be expected of each row.")
]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep", help="Columns of the file to write besides those of --id: a,b; '' for none."
    ),
]
MinLabels = Annotated[
    int | None, typer.Option("--min-labels", help="Predict at least so many.", **_COUNT)
]
MaxLabels = Annotated[
    int | None, typer.Option("--max-labels", help="Predict at most so many.", **_COUNT)
]
SafeCsv = Annotated[
    bool, typer.Option("--safe-csv", help="Write ' before text that a spreadsheet would run.")
]


@app.command(epilog="Example: [bold]fbeta predict model.skops new.csv -o out.csv --beta 2[/bold]")
@o.gathers_options
def predict(
    model: o.ModelPath,
    data: Annotated[Path, typer.Argument(help="File with the features of the model, or -.")],
    output: Output = None,
    beta: o.OtherBeta = None,
    form: FormOption = o.Form.columns,
    delimiter: Delimiter = None,
    proba: Proba = False,
    expected: Expected = False,
    keep: Keep = None,
    min_labels: MinLabels = None,
    max_labels: MaxLabels = None,
    safe_csv: SafeCsv = False,
    memory: o.Memory = None,
    errors: o.Errors = o.UnreadCells.missing,
    missing: o.BelongsToFit = None,
    *,
    files: o.FileOptions,
    as_json: o.Json = False,
) -> None:
    """Predict the label sets of new data."""
    o.refuse_missing(missing)
    target = None if output is None or str(output) in ("-", STDOUT) else output
    kind = _format(target, as_json, safe_csv)
    if delimiter is not None and form is not o.Form.sets:
        raise UserError("--delimiter goes with --form sets")
    limits = None if min_labels is None and max_labels is None else (min_labels or 0, max_labels)
    with mendable():
        if target is not None:
            check_output(target, [model, data])
        stored = load_model(model, data)
        made = Predictions(stored, beta, form, delimiter or ";", proba, expected, limits, kind)
        reader = ModelInput(stored, files.source, errors.value)
        kept = None if keep is None else o.words(keep)
        if memory is not None:
            if target is None or kind not in ("csv", "tsv", "jsonl"):
                raise UserError("--memory writes a CSV or JSON Lines file: give its name, --output")
            count = stream_predict(data, target, reader, made, kept, memory, safe_csv)
        else:
            rows = reader.rows(data, labelled=False, keep=kept)
            table, count = made.columns(rows), rows.n_samples
            text: dict[str, Any] = {"delimiter": made.delimiter, "safe": safe_csv}
            if target is None:
                echo_data(table_text(table, kind, **text))
            else:
                save_table(target, table, kind, **text)
            for note in rows.notes:
                stderr(f"fbeta: {note}")
    if target is not None:
        stderr(f"wrote {count} predictions to {target}")


def _format(target: Path | None, as_json: bool, safe: bool) -> str:
    """Return how predictions are written; refuse options that say nothing then."""
    suffix = ".csv" if target is None else target.suffix.lower()
    if suffix == ".gz":
        raise UserError(f"{target}: predictions are not compressed: choose a name without .gz")
    if suffix in (".xls", ".ods", ".arff", ".svm"):
        known = ", ".join(OUTPUT_FORMATS)
        raise UserError(f"{target}: predictions are written as one of {known}")
    kind = OUTPUT_FORMATS.get(suffix, "csv")
    if as_json:
        if kind in ("parquet", "tsv", "xlsx"):
            raise UserError(f"--json: {target} is to be a file of another format")
        kind = "jsonl" if kind == "jsonl" else "json"
    if safe and kind not in ("csv", "tsv"):
        raise UserError("--safe-csv goes with CSV and TSV: other files have no formulas")
    return kind


@dataclass(frozen=True)
class Predictions:
    """What is written of predictions, and how."""

    stored: StoredModel
    beta: float | None
    form: o.Form
    delimiter: str
    proba: bool
    expected: bool
    limits: tuple[int, int | None] | None
    kind: str

    def columns(self, rows: InputRows) -> dict[str, Sequence[Any]]:
        """Predict, and return the columns to be written."""
        typed = self.kind in _TYPED_FORMATS
        table: dict[str, Sequence[Any]] = {
            name: plain_values(cells, typed) for name, cells in rows.kept.items()
        }
        found = self.stored.decide(
            rows.X,
            None if self.beta is None else [self.beta],
            expected=self.expected,
            marginals=self.proba,
            limits=self.limits,
        )
        if self.expected and not found.expected:
            name = type(self.stored.classifier).__name__
            raise ValueError(f"a model of {name} does not estimate its own F_beta")
        ((used, labels),) = found.labels.items()
        _add(table, self._labels(np.asarray(labels), table))
        if self.proba:
            names = [f"proba_{name}" for name in self.stored.label_names]
            _add(table, dict(zip(names, np.asarray(found.marginals).T.tolist(), strict=True)))
        if self.expected:
            _add(table, {"expected_fbeta": np.asarray(found.expected[used]).tolist()})
        return table

    def _labels(self, predicted: Any, table: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        """Return predictions as 0/1 columns, or as one column of names, called as in training."""
        names = self.stored.label_names
        if self.form is o.Form.columns:
            return dict(zip(names, predicted.T.astype(int).tolist(), strict=True))
        clash = [name for name in names if self.delimiter in name]
        if clash and self.kind not in ("json", "jsonl", "parquet"):
            raise ValueError(f"label {clash[0]!r} contains the delimiter {self.delimiter!r}")
        column = self.stored.reading.get("label_column") or "labels"
        column = "labels" if column in table else column
        return {column: [[names[j] for j in np.flatnonzero(row)] for row in predicted]}


def _add(table: dict[str, Sequence[Any]], columns: Mapping[str, Sequence[Any]]) -> None:
    clash = [name for name in columns if name in table]
    if clash:
        raise UserError(f"two columns would have the name {quoted(clash)}: choose others to --keep")
    table.update(columns)
