"""Files to arrays: as the options say for training, as the model remembers for all later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline

from fbeta.cli import tables as t
from fbeta.cli.sources import TABLES, Source, refuse, words
from fbeta.datasets import Dataset, DatasetError, TableEncoder, read_meka, read_mulan, read_svmlight
from fbeta.datasets.column_kinds import KINDS, Look
from fbeta.datasets.mulan import Nominal, read_arff
from fbeta.datasets.tabular import Table
from fbeta.datasets.tags import TagForm
from fbeta.storage.model_files import StoredModel

# A dense array, a csr_array, or cells of a table
Matrix: TypeAlias = Any


@dataclass(frozen=True)
class Reading:
    """How a training file is to be read: the options of the command line.

    ``labels_xml``, ``n_labels`` and ``nominal`` are for ARFF files of Mulan and MEKA, ``choice`` is
    for tables. None is what a file of its format is read with where nobody says.
    """

    source: Source = field(default_factory=Source)
    labels_xml: Path | None = None
    n_labels: int | None = None
    choice: t.Choice = field(default_factory=t.Choice)
    missing: str | None = None
    nominal: Nominal | None = None

    @property
    def inputs(self) -> list[Path]:
        """The files that are read besides the training file."""
        return [] if self.labels_xml is None else [self.labels_xml]


@dataclass(frozen=True)
class Training:
    """Labelled data, and what is to be kept for reading later files alike."""

    data: Dataset
    remembered: dict[str, Any]
    encoder: TableEncoder | None = None
    looks: tuple[Look, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of what the model reads from files."""
        if self.encoder is None:
            return self.data.feature_names
        return tuple(map(str, self.encoder.feature_names_in_))

    def whole(self, model: Any) -> Any:
        """Return a fitted model with what turns the columns of a table into its features."""
        if self.encoder is None:
            return model
        return Pipeline([("columns", self.encoder), ("classifier", model)])

    def stored(self, model: Any) -> StoredModel:
        """Return a fitted model with what is needed to use it on files."""
        names = self.data.label_names
        return StoredModel(self.whole(model), names, self.feature_names, self.remembered)


@dataclass(frozen=True)
class Rows:
    """Rows of a later file: X as the model takes it, and Y where it has labels.

    ``Y`` has the labels of the model, and ``extra`` those in ``unseen``, which it has never seen.
    """

    X: Matrix
    Y: Any = None
    unseen: Mapping[str, int] = field(default_factory=dict)
    extra: Any = None
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def with_unseen(self, predicted: Any) -> tuple[Any, Any]:
        """Return truth and predictions over all labels of the file: unseen ones are missed."""
        if self.extra is None:
            return self.Y, predicted
        return np.hstack([self.Y, self.extra]), np.hstack([predicted, np.zeros_like(self.extra)])


def read_training(path: Path, reading: Reading) -> Training:
    """Read labelled data."""
    kind = reading.source.format_of(path)
    reading.source.check(path)
    of_arff = {
        "--labels": reading.labels_xml, "--n-labels": reading.n_labels, "--nominal": reading.nominal
    }  # fmt: skip
    if kind in TABLES:
        refuse(path, kind, of_arff)
        return _read_table(path, reading)
    choice = reading.choice
    of_tables = {
        "--label-columns": choice.label_columns, "--label-prefix": choice.label_prefix,
        "--label-column": choice.label_column, "--delimiter": choice.delimiter,
        "--drop": choice.drop, **{f"--{kind}": name for name, kind in (choice.kinds or {}).items()},
    }  # fmt: skip
    refuse(path, kind, of_tables)
    if kind == "svmlight":
        refuse(path, kind, {**of_arff, "--missing": reading.missing})
        data, zero_based = _read_svmlight(path)
        return Training(data, {"zero_based": zero_based})
    return _read_arff(path, reading)


def _read_arff(path: Path, reading: Reading) -> Training:
    nominal: Nominal = reading.nominal or "codes"
    fills = reading.missing == "mean"
    options: dict[str, Any] = {"missing": "nan" if fills else "error", "nominal": nominal}
    if reading.labels_xml is not None:
        refuse(path, "Mulan's", {"--n-labels": reading.n_labels})
        data = read_mulan(path, reading.labels_xml, **options)
    else:
        data = read_meka(path, n_labels=reading.n_labels, **options)
    if not fills:
        return Training(data, {"nominal": nominal})
    means = _column_means(data.X, path)
    data = replace(data, X=fill_gaps(data.X, means))
    return Training(data, {"nominal": nominal, "means": means.tolist()})


def _read_table(path: Path, reading: Reading) -> Training:
    choice = reading.choice
    chosen = [choice.label_columns, choice.label_prefix, choice.label_column]
    if sum(bool(option) for option in chosen) != 1:
        raise DatasetError(
            f"{path}: give exactly one of --label-columns, --label-prefix and --label-column"
        )
    if choice.delimiter is not None and choice.label_column is None:
        raise DatasetError(f"{path}: --delimiter goes with --label-column")
    table = reading.source.scan(path)
    choice.check(table)
    labels = t.label_columns(table, choice)
    remembered: dict[str, Any] = {
        "label_column": choice.label_column, "label_prefix": choice.label_prefix,
        "missing": reading.missing or "mean",
    }  # fmt: skip
    if choice.label_column is None:
        Y, names = t.zero_one(table, labels), tuple(labels)
    else:
        form = t.tag_form(table, choice.label_column, choice.delimiter)
        sets = t.tag_sets(table, choice.label_column, form)
        names = tuple(sorted({name for row in sets for name in row}))
        if not names:
            raise DatasetError(f"{path}: the column {choice.label_column!r} names no label")
        Y = t.indicator(sets, names)[0]
        remembered |= {"is_list": form.is_list, "delimiter": form.delimiter}
    looks = t.looks_of(table, choice, labels)
    remembered["ids"] = [look.name for look in looks if look.kind == "id"]
    used = [look for look in looks if look.kind in KINDS]
    X = t.cell_array(table, [look.name for look in used])
    encoder = TableEncoder().fit_looks(used, [list(column) for column in X.T])
    t.check_cells(table, encoder, X, gaps=reading.missing == "error")
    features = encoder.transform(X)
    if features.shape[1] == 0:
        raise DatasetError(
            f"{path}: no value of {words(look.name for look in used)} is there twice"
        )
    data = Dataset(features, Y, names, name=path.stem)
    return Training(data, remembered, encoder, tuple(looks))


def _read_svmlight(path: Path) -> tuple[Dataset, bool]:
    """Read a file whose first index is 0 or 1, and tell which: later files may not show it."""
    try:
        return read_svmlight(path, zero_based=False), False
    except DatasetError:
        if str(path) == "-":
            raise
        # a file with an index 0, or a broken one, of which the second reading will speak
        return read_svmlight(path, zero_based=True), True


def _column_means(X: Matrix, path: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Average each column over the values that it has."""
    dense = X.toarray() if sparse.issparse(X) else X
    known = ~np.isnan(dense)
    if not known.any(axis=0).all():
        raise DatasetError(f"{path}: a column has no value to take the mean of")
    return np.asarray(np.where(known, dense, 0).sum(axis=0) / known.sum(axis=0))


def fill_gaps(X: Matrix, means: Any) -> Matrix:
    """Put the mean of its column for each NaN."""
    means = np.asarray(means, dtype=np.float64)
    if not sparse.issparse(X):
        return np.where(np.isnan(X), means, X)
    X = X.copy()
    gaps = np.isnan(X.data)
    X.data[gaps] = means[X.indices[gaps]]
    return X


@dataclass(frozen=True)
class Later:
    """How files are read for a model: as its training file was."""

    stored: StoredModel
    source: Source = field(default_factory=Source)

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

    def rows(self, path: Path, *, labelled: bool, keep: Sequence[str] | None = None) -> Rows:
        """Read rows with the features of the model, in its order, and with labels if wanted.

        Columns that the model does not know are left out, but for those to keep: by default those
        that name the rows, as far as the file has them.
        """
        kind = self.source.format_of(path)
        self.source.check(path)
        if kind not in TABLES:
            if keep:
                raise DatasetError(f"{path}: --keep does not apply to {kind} files")
            return self._svmlight(path) if kind == "svmlight" else self._arff(path, labelled)
        table = self.source.scan(path)
        absent = [name for name in keep or () if name not in table.header]
        if absent:
            raise DatasetError(f"{path}: has no column {words(absent)} to keep")
        ids = [name for name in self.stored.reading.get("ids", []) if name in table.header]
        kept = {name: t.cells_of(table, name) for name in (ids if keep is None else keep)}
        rows = self._labels(table) if labelled else Rows(None)
        return replace(rows, X=self._features(table), kept=kept)

    def _features(self, table: Table) -> Matrix:
        names, encoder = self.stored.feature_names, self.encoder
        if names is None:
            labels = {*self.stored.label_names, self.stored.reading.get("label_column")}
            names = tuple(column for column in table.header if column not in labels)
        _check_names(table.header, names, table.path)
        if encoder is None:
            missing: Any = "nan" if "means" in self.stored.reading else "error"
            return self._align(table.features(names, missing), None, table.path)
        X = t.cell_array(table, names)
        t.check_cells(table, encoder, X, gaps=self.stored.reading.get("missing") == "error")
        return X

    def _labels(self, table: Table) -> Rows:
        """Read the labels; those that the model has not seen are counted, and come last."""
        reading, names = self.stored.reading, list(self.stored.label_names)
        column, prefix = reading.get("label_column"), reading.get("label_prefix")
        if column:
            _check_names(table.header, [column], table.path, "label column")
            form = TagForm(bool(reading.get("is_list")), reading.get("delimiter", ";"))
            sets = t.tag_sets(table, column, form)
            Y, unseen = t.indicator(sets, names)
            return _rows(None, Y, unseen, t.indicator(sets, list(unseen))[0])
        _check_names(table.header, names, table.path, "label")
        other = [c for c in table.header if prefix and c.startswith(prefix) and c not in names]
        extra = t.zero_one(table, other)
        counts = dict(zip(other, extra.sum(axis=0).tolist(), strict=True))
        return _rows(None, t.zero_one(table, names), counts, extra)

    def _svmlight(self, path: Path) -> Rows:
        zero_based = bool(self.stored.reading.get("zero_based", False))
        n_features = self.stored.estimator.n_features_in_
        data = read_svmlight(path, n_features=n_features, zero_based=zero_based)
        known, place = self.stored.label_names, {c: j for j, c in enumerate(data.label_names)}
        blank = np.zeros(data.n_samples, dtype=np.int8)
        Y = np.column_stack([data.Y[:, place[c]] if c in place else blank for c in known])
        others = [name for name in data.label_names if name not in known]
        extra = data.Y[:, [place[name] for name in others]]
        counts = dict(zip(others, extra.sum(axis=0).tolist(), strict=True))
        return _rows(data.X, Y, counts, extra)

    def _arff(self, path: Path, labelled: bool) -> Rows:
        names = list(self.stored.label_names)
        reading = self.stored.reading
        # the values of the labels may be missing: they may be what is to be predicted
        data = read_arff(
            path, names if labelled else (), drop=() if labelled else names,
            missing="nan" if "means" in reading else "error",
            nominal=reading.get("nominal", "codes"),
        )  # fmt: skip
        X = self._align(data.X, data.feature_names, path)
        return Rows(X, data.Y if labelled else None)

    def _align(self, X: Matrix, names: Sequence[str] | None, path: Any) -> Matrix:
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


def _rows(X: Matrix, Y: Any, unseen: Mapping[str, int], extra: Any) -> Rows:
    """Return labelled rows; of the labels that are not known, those that are there count."""
    there = {name: j for j, name in enumerate(unseen) if unseen[name]}
    if not there:
        return Rows(X, Y)
    counts = {name: int(unseen[name]) for name in there}
    return Rows(X, Y, counts, extra[:, list(there.values())])


def _check_names(
    found: Sequence[str], wanted: Sequence[str], path: Any, what: str = "feature"
) -> None:
    absent = [name for name in wanted if name not in set(found)]
    if absent:
        raise DatasetError(f"{path}: lacks the {what} {words(absent)} of the model")
