"""Files as a stored model takes them: read as its training file was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from fbeta.datasets.cells import is_arrow, is_list, read_numbers
from fbeta.datasets.column_encoders import DateColumn, NumberColumn
from fbeta.datasets.dates import read_days
from fbeta.datasets.files import DatasetError, quoted
from fbeta.datasets.label_columns import LabelColumns, TableLabels
from fbeta.datasets.mulan import read_arff
from fbeta.datasets.svmlight import read_svmlight
from fbeta.datasets.table_encoder import TableEncoder
from fbeta.datasets.table_files import TABLE_FORMATS, FileFormat, Table
from fbeta.datasets.tables import to_frame
from fbeta.datasets.training import fill_gaps, refuse_problems

__all__ = ["InputRows", "ModelInput"]


@dataclass(frozen=True)
class InputRows:
    """Rows of a file for a model.

    Attributes
    ----------
    X : array, sparse matrix or DataFrame of n rows
        As the model takes them.
    labels : TableLabels or None
        With the labels of the model; others are counted apart.
    kept : mapping from str to sequence
        Columns to be written with predictions.
    notes : tuple of str
        What a user should know.
    """

    X: Any
    labels: TableLabels | None = None
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def Y(self) -> Any:
        """Labels of the model, of shape (n, s)."""
        return None if self.labels is None else self.labels.Y

    @property
    def unseen(self) -> Mapping[str, int]:
        """How many rows have a label that the model has never seen."""
        return {} if self.labels is None else self.labels.unknown

    def with_unseen(self, predicted: Any) -> tuple[Any, Any]:
        """Return truth and predictions over all labels of the file: unseen ones are missed."""
        if self.labels is None or not self.unseen:
            return self.Y, predicted
        extra = self.labels.extra
        return np.hstack([self.Y, extra]), np.hstack([predicted, np.zeros_like(extra)])


@dataclass(frozen=True)
class ModelInput:
    """How files are read for a stored model: as its training file was.

    ``stored`` is a :class:`fbeta.storage.model_files.StoredModel`; ``errors`` is ``"raise"`` to
    refuse cells that cannot be read, which count as missing by default.
    """

    stored: Any
    source: FileFormat = field(default_factory=FileFormat)
    errors: str = "missing"

    def __post_init__(self) -> None:
        # the model may come from anybody
        reading, d = self.stored.reading, self.stored.estimator.n_features_in_
        means, ids = reading.get("means", [0.0] * min(d, 1)), reading.get("ids", [])
        sound = (
            all(isinstance(reading.get(k), str | None) for k in ("label_column", "label_prefix"))
            and isinstance(reading.get("delimiter", ";"), str)
            and reading.get("delimiter", ";") != ""
            and reading.get("nominal", "codes") in ("codes", "onehot")
            and isinstance(means, list)
            and ("means" not in reading or len(means) == d)
            and all(isinstance(mean, float) for mean in means)
            and isinstance(ids, list)
            and all(isinstance(name, str) for name in ids)
        )
        if not sound:
            raise DatasetError("the model does not say how its training file was read")

    @property
    def encoder(self) -> TableEncoder | None:
        """What turns the columns of a table into features, if the model has it."""
        model = self.stored.estimator
        first = model[0] if isinstance(model, Pipeline) else None
        return first if isinstance(first, TableEncoder) else None

    def rows(self, path: Path, *, labelled: bool, keep: Sequence[str] | None = None) -> InputRows:
        """Read rows with the features of the model, in its order, and with labels if wanted.

        Columns that the model does not know are left out, but for those to ``keep`` and those that
        name the rows; an empty ``keep`` leaves these out, too.
        """
        kind = self.source.of(path)
        self.source.check(path)
        if kind not in TABLE_FORMATS:
            if keep:
                raise DatasetError(f"{path}: --keep does not apply to {kind} files")
            return self._svmlight(path) if kind == "svmlight" else self._arff(path, labelled)
        return self.table_rows(self.source.read(path), labelled=labelled, keep=keep)

    def table_rows(
        self, table: Table, *, labelled: bool, keep: Sequence[str] | None = None
    ) -> InputRows:
        """Return the rows of a table."""
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
        names, encoder = self.stored.feature_names, self.encoder
        if names is None:
            labels = {*self.stored.label_names, self.stored.reading.get("label_column")}
            names = tuple(column for column in table.header if column not in labels)
        _check_names(table.header, names, table.path)
        if encoder is None:
            missing = "nan" if "means" in self.stored.reading else "error"
            return self._align(table.numbers(names, missing), None, table.path), []
        cells = [table.columns[name] for name in names]
        strict = self.stored.reading.get("missing") == "error"
        if strict or self.errors == "raise":
            refuse_problems(table, encoder, cells, gaps=strict)
        parsed, notes = {}, []
        for name, part in zip(names, encoder.parts_, strict=True):
            parsed[name], note = _parse_cells(table, name, part)
            notes += [note] if note else []
        return to_frame(Table(table.path, parsed, table.place), names), notes

    def _labels(self, table: Table) -> TableLabels:
        """Read the labels; those that the model has not seen are counted apart."""
        reading, names = self.stored.reading, list(self.stored.label_names)
        column, prefix = reading.get("label_column"), reading.get("label_prefix")
        if column:
            _check_names(table.header, [column], table.path, "label column")
            delimiter = None if reading.get("is_list") else reading.get("delimiter", ";")
            if is_list(table.columns[column]):
                delimiter = None
            join = bool(reading.get("join_labels"))
            return LabelColumns(column=column, delimiter=delimiter, join=join).read(table, names)
        _check_names(table.header, names, table.path, "label")
        if prefix:
            return LabelColumns(prefix=prefix).read(table, names)
        return LabelColumns(names).read(table, names)

    def _svmlight(self, path: Path) -> InputRows:
        zero_based = bool(self.stored.reading.get("zero_based", False))
        n_features = self.stored.estimator.n_features_in_
        data = read_svmlight(path, n_features=n_features, zero_based=zero_based)
        known, place = self.stored.label_names, {c: j for j, c in enumerate(data.label_names)}
        blank = np.zeros(data.n_samples, dtype=np.int8)
        Y = np.column_stack([data.Y[:, place[c]] if c in place else blank for c in known])
        others = [name for name in data.label_names if name not in known]
        extra = data.Y[:, [place[name] for name in others]]
        counts = dict(zip(others, extra.sum(axis=0, dtype=int).tolist(), strict=True))
        return InputRows(data.X, TableLabels(Y, tuple(known), None, counts, extra))

    def _arff(self, path: Path, labelled: bool) -> InputRows:
        names = list(self.stored.label_names)
        reading = self.stored.reading
        # the values of the labels may be missing: they may be what is to be predicted
        data = read_arff(
            path,
            names if labelled else (),
            drop=() if labelled else names,
            missing="nan" if "means" in reading else "error",
            nominal=reading.get("nominal", "codes"),
        )
        X = self._align(data.X, data.feature_names, path)
        return InputRows(X, TableLabels(data.Y, tuple(names)) if labelled else None)

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


def _parse_cells(table: Table, name: str, part: Any) -> tuple[Any, str]:
    """Return cells as the part of an encoder takes them, and a note where some cannot be read."""
    cells = table.columns[name]
    if isinstance(part, NumberColumn):
        how, values, unread = read_numbers(cells, part.decimal)
        what, other = "number", f"a decimal {how!r}" if how != part.decimal else ""
    elif isinstance(part, DateColumn):
        how, days, unread = read_days(cells, part.order)
        micro = np.where(np.isnan(days), 0, np.nan_to_num(days) * 86_400e6).round()
        values = micro.astype(np.int64).astype("datetime64[us]")
        values[np.isnan(days)] = np.datetime64("NaT")
        what, other = "date", f"dates in the order {how}" if how != part.order else ""
    else:
        return cells, ""
    notes = []
    if other and is_arrow(cells):
        notes.append(f"column {name!r} is written with {other} here")
    if unread.any():
        row = int(np.argmax(unread))
        cell = cells[row].as_py() if is_arrow(cells) else cells[row]
        notes.append(
            f"column {name!r}: {unread.sum():,} cells are no {what}s and count as missing, "
            f"the first in {table.where(row)}: {str(cell)[:40]!r}"
        )
    return values, "; ".join(notes)


def _check_names(
    found: Sequence[str], wanted: Sequence[str], path: Any, what: str = "feature"
) -> None:
    absent = [name for name in wanted if name not in set(found)]
    if absent:
        raise DatasetError(f"{path}: lacks the {what} {quoted(absent)} of the model")
