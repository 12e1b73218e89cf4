"""Files as training data, read as the options say, and as a stored model takes them later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline

from fbeta.datasets.cells import MICROSECONDS_PER_DAY, arrow, categories, cell_at, is_list, is_text
from fbeta.datasets.column_kinds import KINDS, ColumnKind, is_ambiguous
from fbeta.datasets.dataset import Dataset, DatasetError, quoted
from fbeta.datasets.label_columns import DELIMITERS, LabelColumns, TableLabels
from fbeta.datasets.matrix_files import read_svmlight
from fbeta.datasets.mulan import Nominal, fill_gaps, read_arff, read_meka, read_mulan
from fbeta.datasets.table_encoder import (
    ORDER_WORDS,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    TableEncoder,
)
from fbeta.datasets.table_files import TABLE_FORMATS, FileFormat, Table, refuse
from fbeta.datasets.tables import column_kinds


@dataclass(frozen=True)
class TrainingOptions:
    """How a training file is to be read; None is the default of its format."""

    source: FileFormat = field(default_factory=FileFormat)
    labels_xml: Path | None = None  # of Mulan
    n_labels: int | None = None  # of ARFF files of MEKA
    labels: LabelColumns = field(default_factory=LabelColumns)  # of tables
    drop: tuple[str, ...] = ()  # of tables
    kinds: Mapping[str, str] = field(default_factory=dict)  # by column, "id" among them
    missing: str | None = None
    nominal: Nominal | None = None  # of ARFF files

    def check(self, path: Path) -> str:
        """Return the format of a file; refuse options that do not apply to it."""
        kind, labels = self.source.check(path), self.labels
        of_tags = {"--delimiter": labels.delimiter, "--join-labels": labels.join}
        given: dict[str, Any] = {
            "--label-columns": labels.columns,
            "--label-prefix": labels.prefix,
            "--label-column": labels.column,
            **of_tags,
            "--drop": self.drop,
            **{f"--{kind}": name for name, kind in self.kinds.items()},
            "--labels": self.labels_xml,
            "--n-labels": self.n_labels,
            "--nominal": self.nominal,
            "--missing": self.missing,
        }
        refuse(path, kind, given)
        if kind in TABLE_FORMATS and not labels.is_given:
            raise DatasetError(
                f"{path}: say where the labels are by exactly one of --label-columns a,b,c (0/1), "
                "--label-prefix (0/1 columns that begin so) and --label-column (lists of names)"
            )
        of_tags = {name: value for name, value in of_tags.items() if value not in (None, False)}
        if of_tags and labels.column is None:
            raise DatasetError(f"{path}: {', '.join(of_tags)} goes with --label-column")
        return kind


@dataclass(frozen=True)
class TrainingData:
    """Labelled data, and what is stored with a model for reading later files alike."""

    data: Dataset  # features as the classifier takes them, and labels
    remembered: dict[str, Any]  # how the file was read
    encoder: TableEncoder | None = None  # from the columns of a table to ``data.X``
    columns: tuple[ColumnKind, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of what the model reads from files."""
        if self.encoder is None:
            return self.data.feature_names
        return tuple(map(str, self.encoder.feature_names_in_))


def with_encoder(encoder: TableEncoder | None, model: Any) -> Any:
    """Return a pipeline of an encoder, if there is one, and a fitted model."""
    if encoder is None:
        return model
    return Pipeline([("columns", encoder), ("classifier", model)])


def read_training(path: Path, options: TrainingOptions) -> TrainingData:
    """Read labelled data."""
    kind = options.check(path)
    if kind == "svmlight":
        # whether the first index is 0 or 1 is stored: later files may not show it
        try:
            return TrainingData(read_svmlight(path, zero_based=False), {"zero_based": False})
        except DatasetError:
            if str(path) == "-":
                raise
            # a file with an index 0, or a broken one, of which the second reading will speak
            return TrainingData(read_svmlight(path, zero_based=True), {"zero_based": True})
    if kind == "arff":
        return _read_arff(path, options)
    table = options.source.read(path)
    found = options.labels.read(table)
    columns = column_kinds(table, options.labels, options.kinds, options.drop)
    encoder = fit_encoder(table, columns, options.missing)
    features = encoder.encode([table.columns[name] for name in encoder.feature_names_in_])
    if features.shape[1] == 0:
        used = encoder.feature_names_in_
        raise DatasetError(f"{table.path}: no value of {quoted(used)} is there twice")
    data = Dataset(features, found.Y, found.names, name=Path(path).stem)
    remembered = remember(options, found, columns)
    return TrainingData(data, remembered, encoder, tuple(columns), found.notes)


def _read_arff(path: Path, options: TrainingOptions) -> TrainingData:
    nominal: Nominal = options.nominal or "codes"
    fills = options.missing == "mean"
    given: dict[str, Any] = {"missing": "nan" if fills else "error", "nominal": nominal}
    if options.labels_xml is not None:
        refuse(path, "Mulan's", {"--n-labels": options.n_labels})
        data = read_mulan(path, options.labels_xml, **given)
    else:
        data = read_meka(path, n_labels=options.n_labels, **given)
    remembered = {"nominal": nominal, "declared": dict(data.declared or {})}
    if not fills:
        return TrainingData(data, remembered)
    means = SimpleImputer().fit(data.X).statistics_
    if np.isnan(means).any():
        raise DatasetError(f"{path}: a column has no value to take the mean of")
    data = replace(data, X=fill_gaps(data.X, means))
    return TrainingData(data, {**remembered, "means": means.tolist()})


def fit_encoder(
    table: Table, columns: Sequence[ColumnKind], missing: str | None = None
) -> TableEncoder:
    """Fit an encoder to the columns of a table that become features; refuse bad cells."""
    used = [column for column in columns if column.kind in KINDS]
    if not used:
        seen = ", ".join(f"{column.name!r} ({column.kind})" for column in columns) or "none"
        raise DatasetError(
            f"{table.path}: no column is left for features; besides the labels there are: {seen}"
        )
    cells = [table.columns[column.name] for column in used]
    encoder = TableEncoder().fit_kinds(used, cells)
    refuse_problems(table, encoder, cells, gaps=missing == "error")
    return encoder


def refuse_problems(
    table: Table, encoder: TableEncoder, cells: list[Any], gaps: bool = False
) -> None:
    """Raise where cells cannot be read, naming the first of each column in one message."""
    problems = encoder.problems(cells, table.where, gaps)
    if problems:
        hint = " (--missing mean fills gaps)" if gaps else ""
        raise DatasetError(f"{table.path}: {problems}{hint}")


def remember(
    options: TrainingOptions, labels: TableLabels, columns: Sequence[ColumnKind]
) -> dict[str, Any]:
    """Return what is stored of a table with a model."""
    return {
        "label_column": options.labels.column,
        "label_prefix": options.labels.prefix,
        "missing": options.missing or "mean",
        "ids": [column.name for column in columns if column.kind == "id"],
        **labels.tags,
        **({"join_labels": True} if options.labels.join else {}),
    }


@dataclass(frozen=True)
class InputRows:
    """Rows of a file for a model."""

    X: Any  # array, sparse matrix or DataFrame of n rows
    labels: Any = None  # TableLabels of the model, where they were asked for
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # written with predictions
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelInput:
    """How files are read for a stored model: as its training file was."""

    stored: Any  # fbeta.storage.model_files.StoredModel
    source: FileFormat = field(default_factory=FileFormat)
    errors: str = "missing"  # "raise" refuses cells that cannot be read
    ways: dict[str, str] = field(default_factory=dict, compare=False)  # of the blocks, by column

    def __post_init__(self) -> None:
        # the model may come from anybody
        reading = self.stored.reading
        ids, means = reading.get("ids", []), reading.get("means", [])
        delimiter = reading.get("delimiter", ";")
        width = self.stored.estimator.n_features_in_ if "means" in reading else 0
        sound = (
            all(isinstance(reading.get(k), str | None) for k in ("label_column", "label_prefix"))
            and isinstance(delimiter, str)
            and delimiter != ""
            and reading.get("nominal", "codes") in ("codes", "onehot")
            and _is_declared(reading.get("declared", {}))
            and isinstance(means, list)
            and len(means) == width
            and all(isinstance(mean, float) for mean in means)
            and isinstance(ids, list)
            and all(isinstance(name, str) for name in ids)
        )
        if not sound:
            raise DatasetError("the model does not say how its training file was read")

    def rows(self, path: Path, *, labelled: bool, keep: Sequence[str] | None = None) -> InputRows:
        """Read rows for the model, with columns to ``keep`` and those that name the rows if any."""
        kind = self.source.check(path)
        if kind in TABLE_FORMATS:
            whole = replace(self, ways={})
            return whole.table_rows(self.source.read(path), labelled=labelled, keep=keep)
        refuse(path, kind, {"--keep": keep or None})
        names, reading = tuple(self.stored.label_names), self.stored.reading
        if kind == "svmlight":
            n_features = self.stored.estimator.n_features_in_
            zero_based = bool(reading.get("zero_based", False))
            data = read_svmlight(path, n_features=n_features, zero_based=zero_based)
            return InputRows(data.X, TableLabels.split(data.Y, data.label_names, names))
        # the values of the labels may be missing: they may be what is to be predicted
        data = read_arff(
            path,
            names if labelled else (),
            drop=() if labelled else names,
            missing="nan" if "means" in reading else "error",
            nominal=reading.get("nominal", "codes"),
            declared=reading.get("declared"),  # older models have none
        )
        X = self._align(data.X, data.feature_names, path)
        return InputRows(X, TableLabels(data.Y, names) if labelled else None)

    def table_rows(
        self, table: Table, *, labelled: bool, keep: Sequence[str] | None = None
    ) -> InputRows:
        """Return the rows of a table, one block of many."""
        absent = [name for name in keep or () if name not in table.columns]
        if absent:
            raise DatasetError(f"{table.path}: has no column {quoted(absent)} to keep")
        ids = [name for name in self.stored.reading.get("ids", []) if name in table.columns]
        # no column at all only if that is asked for
        names = ids if keep is None else [*ids, *keep] if keep else []
        kept = {name: table.columns[name] for name in names}
        labels = self._labels(table) if labelled else None
        X, notes = self._features(table)
        return InputRows(X, labels, kept, (*notes, *(labels.notes if labels else ())))

    def _features(self, table: Table) -> tuple[Any, list[str]]:
        stored, reading = self.stored, self.stored.reading
        names, model = stored.feature_names, stored.estimator
        if names is None:
            labels = {*stored.label_names, reading.get("label_column")}
            names = tuple(column for column in table.header if column not in labels)
        _check_names(table.header, names, table.path)
        encoder = model[0] if isinstance(model, Pipeline) else None
        if not isinstance(encoder, TableEncoder):
            missing = "nan" if "means" in reading else "error"
            return self._align(table.numbers(names, missing), None, table.path), []
        strict = reading.get("missing") == "error"
        if strict or self.errors == "raise":
            refuse_problems(table, encoder, [table.columns[name] for name in names], gaps=strict)
        parsed, notes = {}, []
        for name, part in zip(names, encoder.parts_, strict=True):
            parsed[name], note = parse_cells(table, name, part, self.ways)
            notes += [note] if note else []
        return Table(table.path, parsed, table.place).frame(names), notes

    def _labels(self, table: Table) -> TableLabels:
        """Read the labels; those that the model has not seen are counted apart."""
        reading, names = self.stored.reading, list(self.stored.label_names)
        column, prefix = reading.get("label_column"), reading.get("label_prefix")
        if not column:
            _check_names(table.header, names, table.path, "label")
            place = LabelColumns(prefix=prefix) if prefix else LabelColumns(names)
            return place.read(table, names)
        _check_names(table.header, [column], table.path, "label column")
        lists = reading.get("is_list") or is_list(table.columns[column])
        delimiter = None if lists else reading.get("delimiter", ";")
        place = LabelColumns(None, None, column, delimiter, join=bool(reading.get("join_labels")))
        found = place.read(table, names)
        for other in DELIMITERS if found.unknown and not lists else ():
            with suppress(DatasetError):  # a name between two of these may be blank
                again = replace(place, delimiter=other).read(table, names)
                if again.Y.sum() > found.Y.sum():
                    note = f"column {column!r} is written with {other!r} between labels here"
                    found = replace(again, notes=(*again.notes, note))
        return found

    def _align(self, X: Any, names: Sequence[str] | None, path: Any) -> Any:
        """Bring columns into the order of the model, by name where both have names; fill gaps."""
        stored = self.stored
        if names is not None and stored.feature_names is not None:
            _check_names(names, stored.feature_names, path)
            position = {name: j for j, name in enumerate(names)}
            X = X[:, [position[name] for name in stored.feature_names]]
        expected = stored.estimator.n_features_in_
        if X.shape[1] != expected:
            raise DatasetError(f"{path}: expected {expected} features, found {X.shape[1]}")
        return fill_gaps(X, stored.reading["means"]) if "means" in stored.reading else X


def _is_declared(found: Any) -> bool:
    """Return whether each feature has None, or a list of at least one nominal value."""
    values = found.values() if isinstance(found, dict) else [()]
    return all(
        v is None or (isinstance(v, list | tuple) and v and all(isinstance(w, str) for w in v))
        for v in values
    )


def parse_cells(
    table: Table, name: str, part: Any, ways: dict[str, str] | None = None
) -> tuple[Any, str]:
    """Return cells as the part of an encoder takes them, and a note where it knows too few.

    ``ways`` has the decimal mark or the order of dates of the blocks before, by column; by default
    it is that of the training. A block that needs another is an error.
    """
    cells = table.columns[name]
    if isinstance(part, CategoryColumn) and any(part.values):
        words = categories(cells)
        different = [word for word in words.unique().to_pylist() if word]
        if different and not {*different} & {*part.values}:
            filled = sum(map(bool, words.to_pylist()))
            count = f"none of {filled:,} cells has a value that the model knows"
            return cells, f"column {name!r}: {count}, the first is {different[0][:40]!r}"
    if not isinstance(part, NumberColumn | DateColumn):
        return cells, ""
    trained = part.decimal if isinstance(part, NumberColumn) else part.order
    ways = {name: trained} if ways is None else ways
    before = ways.get(name, "")
    how, values, unread = part.read(cells, before)
    if how != before and is_ambiguous(cells, how):
        if before:
            words = f"dates{ORDER_WORDS[how]}" if how in ORDER_WORDS else f"a decimal {how!r}"
            raise DatasetError(
                f"{table.path}: column {name!r} is written with {words} from {table.where(0)} on, "
                "and otherwise before: read the file without --memory, or write the whole column "
                "as in the training file"
            )
        ways[name] = how
    if isinstance(part, NumberColumn):
        what, other = "numbers", f"a decimal {how!r}" if how != trained else ""
        parsed = arrow.array(values)
    else:
        order = ORDER_WORDS.get(how, "")
        what = f"dates{order}"
        example = cell_at(cells, int(np.argmax(~np.isnan(values)))) if len(values) else ""
        other = f"dates such as {example!r}{order}" if how != trained else ""
        micro = np.nan_to_num(values * MICROSECONDS_PER_DAY).round().astype("datetime64[us]")
        parsed = arrow.array(micro, mask=np.isnan(values))
    notes = [f"column {name!r} is written with {other} here"] if other and is_text(cells) else []
    if unread.any():
        row = int(np.argmax(unread))
        notes.append(
            f"column {name!r}: {unread.sum():,} cells cannot be read as {what} and count as "
            f"missing, the first in {table.where(row)}: {str(cell_at(cells, row))[:40]!r}"
        )
    return parsed, "; ".join(notes)


def _check_names(
    found: Sequence[str], wanted: Sequence[str], path: Any, what: str = "feature"
) -> None:
    known = set(found)
    absent = [name for name in wanted if name not in known]
    if absent:
        words = f"{path}: lacks the {what}{'s' * (len(absent) > 1)} {quoted(absent)} of the model"
        raise DatasetError(f"{words}; its columns are {quoted(found, 20)}")
