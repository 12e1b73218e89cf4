"""Files as training data, read as the options say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from fbeta.datasets.column_kinds import KINDS, ColumnKind
from fbeta.datasets.dataset import Dataset
from fbeta.datasets.files import DatasetError, quoted
from fbeta.datasets.label_columns import LabelColumns, TableLabels
from fbeta.datasets.mulan import Nominal, read_meka, read_mulan
from fbeta.datasets.svmlight import read_svmlight
from fbeta.datasets.table_encoder import TableEncoder
from fbeta.datasets.table_files import TABLE_FORMATS, FileFormat, Table, refuse
from fbeta.datasets.tables import column_kinds

__all__ = ["TrainingData", "TrainingOptions", "read_training"]


@dataclass(frozen=True)
class TrainingOptions:
    """How a training file is to be read.

    ``labels_xml``, ``n_labels`` and ``nominal`` are for ARFF files of Mulan and MEKA; ``labels``,
    ``drop`` and ``kinds`` (by column, ``"id"`` among them) are for tables. None is the default of
    the format.
    """

    source: FileFormat = field(default_factory=FileFormat)
    labels_xml: Path | None = None
    n_labels: int | None = None
    labels: LabelColumns = field(default_factory=LabelColumns)
    drop: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    nominal: Nominal | None = None

    @property
    def inputs(self) -> list[Path]:
        """The files that are read besides the training file."""
        return [] if self.labels_xml is None else [self.labels_xml]

    def check(self, path: Path) -> str:
        """Return the format of a file; refuse options that do not apply to it."""
        kind = self.source.of(path)
        self.source.check(path)
        of_arff = {
            "--labels": self.labels_xml,
            "--n-labels": self.n_labels,
            "--nominal": self.nominal,
        }
        labels = self.labels
        of_tables = {
            "--label-columns": labels.columns,
            "--label-prefix": labels.prefix,
            "--label-column": labels.column,
            "--delimiter": labels.delimiter,
            "--join-labels": labels.join,
            "--drop": self.drop,
            **{f"--{kind}": name for name, kind in self.kinds.items()},
        }
        if kind in TABLE_FORMATS:
            refuse(path, kind, of_arff)
            self._check_labels(path)
        else:
            refuse(path, kind, of_tables)
        if kind == "svmlight":
            refuse(path, kind, {**of_arff, "--missing": self.missing})
        return kind

    def _check_labels(self, path: Path) -> None:
        if not self.labels.is_given:
            raise DatasetError(
                f"{path}: give exactly one of --label-columns, --label-prefix and --label-column"
            )
        useless = {"--delimiter": self.labels.delimiter, "--join-labels": self.labels.join or None}
        given = [name for name, value in useless.items() if value is not None]
        if given and self.labels.column is None:
            raise DatasetError(f"{path}: {', '.join(given)} goes with --label-column")


@dataclass(frozen=True)
class TrainingData:
    """Labelled data, and what is stored with a model for reading later files alike.

    Attributes
    ----------
    data : Dataset
        Features as the classifier takes them, and labels.
    remembered : dict
        How the file was read.
    encoder : TableEncoder or None
        From the columns of a table to ``data.X``.
    columns : tuple of ColumnKind
        What the columns of a table were found to hold.
    notes : tuple of str
        What a user should know.
    """

    data: Dataset
    remembered: dict[str, Any]
    encoder: TableEncoder | None = None
    columns: tuple[ColumnKind, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of what the model reads from files."""
        if self.encoder is None:
            return self.data.feature_names
        return tuple(map(str, self.encoder.feature_names_in_))

    def whole(self, model: Any) -> Any:
        """Return a fitted model with what turns the columns of a table into its features."""
        return with_encoder(self.encoder, model)


def with_encoder(encoder: TableEncoder | None, model: Any) -> Any:
    """Return a pipeline of an encoder, if there is one, and a fitted model."""
    if encoder is None:
        return model
    return Pipeline([("columns", encoder), ("classifier", model)])


def read_training(path: Path, options: TrainingOptions) -> TrainingData:
    """Read labelled data."""
    kind = options.check(path)
    if kind in TABLE_FORMATS:
        return _read_table(options.source.read(path), options)
    if kind == "svmlight":
        data, zero_based = _read_svmlight(path)
        return TrainingData(data, {"zero_based": zero_based})
    return _read_arff(path, options)


def _read_arff(path: Path, options: TrainingOptions) -> TrainingData:
    nominal: Nominal = options.nominal or "codes"
    fills = options.missing == "mean"
    given: dict[str, Any] = {"missing": "nan" if fills else "error", "nominal": nominal}
    if options.labels_xml is not None:
        refuse(path, "Mulan's", {"--n-labels": options.n_labels})
        data = read_mulan(path, options.labels_xml, **given)
    else:
        data = read_meka(path, n_labels=options.n_labels, **given)
    if not fills:
        return TrainingData(data, {"nominal": nominal})
    means = _column_means(data.X, path)
    data = replace(data, X=fill_gaps(data.X, means))
    return TrainingData(data, {"nominal": nominal, "means": means.tolist()})


def _read_table(table: Table, options: TrainingOptions) -> TrainingData:
    found = options.labels.read(table)
    columns = column_kinds(table, options.labels, options.kinds, options.drop)
    encoder = fit_encoder(table, columns, options.missing)
    features = encoder.encode([table.columns[name] for name in encoder.feature_names_in_])
    if features.shape[1] == 0:
        used = encoder.feature_names_in_
        raise DatasetError(f"{table.path}: no value of {quoted(used)} is there twice")
    data = Dataset(features, found.Y, found.names, name=Path(table.path).stem)
    remembered = remember(options, found, columns)
    return TrainingData(data, remembered, encoder, tuple(columns), found.notes)


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
    problems = encoder.problems(cells, gaps)
    if problems:
        found = "; ".join(
            f"column {name!r}, {table.where(row)}: {what}" for name, row, what in problems
        )
        hint = " (--missing mean fills gaps)" if gaps else ""
        raise DatasetError(f"{table.path}: {found}{hint}")


def remember(
    options: TrainingOptions, labels: TableLabels, columns: Sequence[ColumnKind]
) -> dict[str, Any]:
    """Return what is stored of a table with a model."""
    form = labels.form
    tags = {} if form is None else {"is_list": form.is_list, "delimiter": form.delimiter}
    return {
        "label_column": options.labels.column,
        "label_prefix": options.labels.prefix,
        "missing": options.missing or "mean",
        "ids": [column.name for column in columns if column.kind == "id"],
        **tags,
        **({"join_labels": True} if options.labels.join else {}),
    }


def _read_svmlight(path: Path) -> tuple[Dataset, bool]:
    """Read a file whose first index is 0 or 1, and tell which: later files may not show it."""
    try:
        return read_svmlight(path, zero_based=False), False
    except DatasetError:
        if str(path) == "-":
            raise
        # a file with an index 0, or a broken one, of which the second reading will speak
        return read_svmlight(path, zero_based=True), True


def _column_means(X: Any, path: Path) -> Any:
    """Average each column over the values that it has."""
    dense = X.toarray() if sparse.issparse(X) else X
    known = ~np.isnan(dense)
    if not known.any(axis=0).all():
        raise DatasetError(f"{path}: a column has no value to take the mean of")
    return np.asarray(np.where(known, dense, 0).sum(axis=0) / known.sum(axis=0))


def fill_gaps(X: Any, means: Any) -> Any:
    """Replace NaN by the mean of its column."""
    means = np.asarray(means, dtype=np.float64)
    if not sparse.issparse(X):
        return np.where(np.isnan(X), means, X)
    X = X.copy()
    gaps = np.isnan(X.data)
    X.data[gaps] = means[X.indices[gaps]]
    return X
