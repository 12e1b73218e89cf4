"""``fbeta predict``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta._files import STDOUT, check_output, to_csv, write_atomically, write_text
from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, echo_data, mendable, stderr
from fbeta.cli.data import Later
from fbeta.cli.sources import Source, words
from fbeta.cli.streaming import stream_predict
from fbeta.estimators.base import Decisions
from fbeta.storage.model_files import StoredModel, load_model

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
Column = Sequence[Any]


Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o",
        help="CSV, TSV, JSON Lines or Parquet file, by its suffix; printed by default.",
    ),
]  # fmt: skip
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
    typer.Option("--keep", help="Columns of the file to write, too: a,b (default: those of --id)."),
]
_COUNT: dict[str, Any] = {"parser": o.whole(0), "metavar": "INTEGER"}
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
    missing: o.BelongsToFit = None,
    *,
    source: Source,
    as_json: o.Json = False,
) -> None:
    """Predict the label sets of new data."""
    o.refuse_missing(missing)
    target = None if output is None or str(output) in ("-", STDOUT) else output
    kind = _format(target, as_json, safe_csv)
    if delimiter is not None and form is not o.Form.sets:
        raise UserError("--delimiter goes with --form sets")
    with mendable():
        if target is not None:
            check_output(target, [model, data])
        stored = load_model(model)
        if memory is not None:
            if (
                target is None
                or kind != "csv"
                or safe_csv
                or proba
                or keep
                or min_labels
                or max_labels
            ):
                raise UserError("--memory writes a CSV file of labels: give --output, nothing else")

            def rows_of(predicted: Any, sure: Any, names: Sequence[str]) -> list[list[Any]]:
                table = dict(_label_columns(predicted, names, form.value, delimiter or ";"))
                if sure is not None:
                    table["expected_fbeta"] = sure.tolist()
                return [list(table), *map(list, zip(*table.values(), strict=True))]

            count = stream_predict(
                data, target, stored, rows_of, memory=memory, beta=beta, expected=expected
            )
            stderr(f"wrote {count} predictions to {target}")
            return
        kept = None if keep is None else o.words(keep)
        rows = Later(stored, source).rows(data, labelled=False, keep=kept)
        found = _decided(stored, rows.X, beta, (min_labels, max_labels), proba, expected)
        ((used, labels),) = found.labels.items()
        predicted = np.asarray(labels, dtype=np.int8)
        table: dict[str, Column] = {name: _plain_cells(c) for name, c in rows.kept.items()}
        _add(table, _label_columns(predicted, stored.label_names, form.value, delimiter or ";"))
        if proba:
            names = [f"proba_{name}" for name in stored.label_names]
            columns = np.asarray(found.marginals).T.tolist()
            _add(table, dict(zip(names, columns, strict=True)))
        if expected:
            _add(table, {"expected_fbeta": np.asarray(found.expected[used]).tolist()})
        _write(table, target, kind, safe_csv)
    if target is not None:
        stderr(f"wrote {len(predicted)} predictions to {target}")


def _write(table: Mapping[str, Column], target: Path | None, kind: str, safe: bool) -> None:
    if target is None:
        echo_data(_text(table, kind, safe))
    elif kind == "parquet":
        _write_parquet(target, table)
    else:
        write_text(target, _text(table, kind, safe))


def _format(target: Path | None, as_json: bool, safe: bool) -> str:
    """Return how predictions are written; refuse options that say nothing then."""
    suffix = "" if target is None else target.suffix.lower()
    if suffix == ".gz":
        raise UserError(f"{target}: predictions are not compressed: choose a name without .gz")
    kind = "tsv" if suffix == ".tsv" else _FORMATS.get(suffix, "csv")
    if as_json:
        if kind in ("parquet", "tsv"):
            raise UserError(f"--json: {target} is to be a file of another format")
        kind = "jsonl" if kind == "jsonl" else "json"
    if safe and kind not in ("csv", "tsv"):
        raise UserError("--safe-csv goes with CSV and TSV: other files have no formulas")
    return kind


def _decided(
    stored: StoredModel,
    X: Any,
    beta: float | None,
    limits: tuple[int | None, int | None],
    proba: bool,
    expected: bool,
) -> Decisions:
    """Return label sets, and what else is asked for, from one run of the model."""
    betas = None if beta is None else [beta]
    bounds = None if limits == (None, None) else (limits[0] or 0, limits[1])
    found = stored.decide(X, betas, expected=expected, marginals=proba, limits=bounds)
    if expected and not found.expected:
        name = type(stored.classifier).__name__
        raise ValueError(f"a model of {name} does not estimate its own F_beta")
    return found


def _add(table: dict[str, Column], columns: Mapping[str, Column]) -> None:
    clash = [name for name in columns if name in table]
    if clash:
        raise UserError(f"two columns would have the name {words(clash)}: choose others to --keep")
    table.update(columns)


def _label_columns(
    predicted: NDArray[Any], label_names: Sequence[str], form: str, delimiter: str
) -> dict[str, Column]:
    """Return predictions as 0/1 columns, or as one column of names."""
    if form == "columns":
        return dict(zip(label_names, predicted.T.astype(int).tolist(), strict=True))
    clash = [name for name in label_names if delimiter in name]
    if clash:
        raise ValueError(f"label {clash[0]!r} contains the delimiter {delimiter!r}")
    chosen = (np.flatnonzero(row).tolist() for row in predicted)
    return {"labels": [delimiter.join(label_names[j] for j in row) for row in chosen]}


def _plain_cells(cells: Column) -> list[Any]:
    """Return cells as JSON has them; whole numbers of a data frame come as floats."""
    plain = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
    plain = [None if isinstance(c, float) and c != c else c for c in plain]
    if all(c is None or (isinstance(c, float) and c.is_integer()) for c in plain):
        return [None if c is None else int(c) for c in plain]
    kinds = {type(c) for c in plain if c is not None}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return plain
    return [None if c is None else str(c) for c in plain]


def _text(table: Mapping[str, Column], kind: str, safe: bool) -> str:
    rows = zip(*table.values(), strict=True)
    if kind in ("csv", "tsv"):
        return to_csv([list(table), *rows], sep="\t" if kind == "tsv" else ",", safe=safe)
    found = [dict(zip(table, row, strict=True)) for row in rows]
    if kind == "json":
        return json.dumps(found) + "\n"
    return "".join(json.dumps(row) + "\n" for row in found)


def _write_parquet(target: Path, table: Mapping[str, Column]) -> None:
    pandas: Any = optional_import("pandas", "data", "writing Parquet files")
    optional_import("pyarrow", "data", "writing Parquet files")
    with write_atomically(target) as part:
        pandas.DataFrame(dict(table)).to_parquet(part, engine="pyarrow", index=False)
