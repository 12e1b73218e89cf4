"""Files to arrays: as the options say for training, as the model remembers for all later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from fbeta.datasets import Dataset, DatasetError, read_meka, read_mulan, read_svmlight
from fbeta.datasets.mulan import Nominal, read_arff
from fbeta.datasets.tabular import LabelColumns, Table, scan_csv, scan_parquet
from fbeta.storage import StoredModel

Format = Literal["arff", "csv", "parquet", "svmlight"]
# A dense array or a csr_array
Matrix: TypeAlias = Any

_SUFFIXES: dict[str, Format] = {
    ".arff": "arff",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "svmlight",
}


@dataclass(frozen=True)
class Reading:
    """How a training file is to be read: the options of the command line.

    ``labels_xml`` and ``n_labels`` are for ARFF files of Mulan and MEKA. For tables, one of the
    next three says where the labels are, ``delimiter`` is between the names in ``label_column``,
    and the columns in ``drop`` are left out.
    """

    labels_xml: Path | None = None
    n_labels: int | None = None
    label_columns: tuple[str, ...] = ()
    label_prefix: str | None = None
    label_column: str | None = None
    delimiter: str = ";"
    drop: tuple[str, ...] = ()
    missing: str = "error"
    nominal: Nominal = "codes"

    def remembered(self) -> dict[str, Any]:
        """Return what later files of the same kind are read with."""
        chosen = asdict(self)
        return {k: chosen[k] for k in ("label_column", "delimiter", "missing", "nominal")}


def _remembered(stored: StoredModel) -> Mapping[str, Any]:
    """Return how the training file of a model was read; the model may come from anybody."""
    reading = stored.reading
    means = reading.get("means", [0.0] * stored.estimator.n_features_in_)
    sound = (
        isinstance(reading.get("label_column"), str | None)
        and isinstance(reading.get("delimiter", ";"), str)
        and reading.get("nominal", "codes") in ("codes", "onehot")
        and isinstance(means, list)
        and len(means) == stored.estimator.n_features_in_
        and all(isinstance(mean, float) for mean in means)
    )
    if not sound:
        raise DatasetError("the model does not say how its training file was read")
    return reading


def format_of(path: Path) -> Format:
    """Tell the format of a file from its suffix."""
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise DatasetError(
            f"{path}: expected a file name that ends with one of {', '.join(_SUFFIXES)}"
        )
    return found


def _scan(path: Path) -> Table:
    if format_of(path) == "parquet":
        return scan_parquet(path)
    return scan_csv(path, sep="\t" if path.suffix.lower() == ".tsv" else ",")


def read_training(path: Path, reading: Reading) -> tuple[Dataset, dict[str, Any]]:
    """Read labelled data, and return what is to be remembered for reading later files, too."""
    kind = format_of(path)
    remembered = reading.remembered()
    missing: Any = "nan" if reading.missing == "mean" else "error"
    if kind == "svmlight":
        data, zero_based = _read_svmlight(path)
        return data, {**remembered, "zero_based": zero_based}
    if kind == "arff":
        _refuse_table_options(path, reading)
        options: dict[str, Any] = {"missing": missing, "nominal": reading.nominal}
        if reading.labels_xml is not None:
            data = read_mulan(path, reading.labels_xml, **options)
        else:
            data = read_meka(path, n_labels=reading.n_labels, **options)
    else:
        _check_label_options(path, reading)
        chosen = (reading.label_columns or None, reading.label_prefix, reading.label_column)
        columns = LabelColumns(*chosen, reading.delimiter)
        data = _scan(path).dataset(columns, reading.drop, missing)
    if reading.missing != "mean":
        return data, remembered
    means = _column_means(data.X, path)
    return replace(data, X=fill_gaps(data.X, means)), {**remembered, "means": means.tolist()}


def _check_label_options(path: Path, reading: Reading) -> None:
    """See that exactly one option says where the labels of a table are."""
    chosen = [reading.label_columns, reading.label_prefix, reading.label_column]
    if sum(bool(option) for option in chosen) != 1:
        hint = "; --labels is for the XML file of Mulan" if reading.labels_xml else ""
        raise DatasetError(
            f"{path}: give exactly one of --label-columns, --label-prefix and --label-column{hint}"
        )


def _refuse_table_options(path: Path, reading: Reading) -> None:
    if reading.label_columns or reading.label_prefix or reading.label_column or reading.drop:
        raise DatasetError(f"{path}: options for columns are for CSV and Parquet; see --labels")


def _read_svmlight(path: Path) -> tuple[Dataset, bool]:
    """Read a file whose first index is 0 or 1, and tell which: later files may not show it."""
    try:
        return read_svmlight(path, zero_based=False), False
    except DatasetError:
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


def read_labelled(path: Path, stored: StoredModel) -> Dataset:
    """Read data with the features and labels of a model, in its order."""
    kind, reading = format_of(path), _remembered(stored)
    names = list(stored.label_names)
    missing = _missing(reading)
    if kind == "svmlight":
        return read_svmlight(
            path,
            n_features=stored.estimator.n_features_in_,
            label_names=tuple(names),
            zero_based=bool(reading.get("zero_based", False)),
        )
    if kind == "arff":
        data = read_arff(path, names, missing=missing, nominal=reading.get("nominal", "codes"))
    else:
        table, column = _scan(path), reading.get("label_column")
        wanted = {*(stored.feature_names or table.header), *([column] if column else names)}
        columns = LabelColumns(names)
        if column:
            delimiter = reading.get("delimiter", ";")
            columns = LabelColumns(column=column, delimiter=delimiter, names=names)
        drop = [name for name in table.header if name not in wanted]
        data = table.dataset(columns, drop, missing)
    X = _align(data.X, data.feature_names, stored, path)
    return replace(data, X=X, feature_names=stored.feature_names)


def read_features(path: Path, stored: StoredModel) -> Matrix:
    """Read the features of a model from a file with or without labels.

    Columns that the model does not know are left out.
    """
    kind, reading = format_of(path), _remembered(stored)
    if kind == "svmlight":
        zero_based = bool(reading.get("zero_based", False))
        n_features = stored.estimator.n_features_in_
        return read_svmlight(path, n_features=n_features, zero_based=zero_based).X
    if kind == "arff":
        # the values of the labels may be missing: that is what is to be predicted
        data = read_arff(
            path, (), drop=stored.label_names, missing=_missing(reading),
            nominal=reading.get("nominal", "codes"),
        )  # fmt: skip
        return _align(data.X, data.feature_names, stored, path)
    table, names = _scan(path), stored.feature_names
    if names is None:
        labels = {*stored.label_names, reading.get("label_column")}
        names = tuple(column for column in table.header if column not in labels)
    _check_names(table.header, names, path)
    return _align(table.features(names, _missing(reading)), None, stored, path)


def _missing(reading: Mapping[str, Any]) -> Any:
    return "nan" if "means" in reading else "error"


def _align(X: Matrix, names: Sequence[str] | None, stored: StoredModel, path: Path) -> Matrix:
    """Bring columns into the order of the model, by name where both have names; fill gaps."""
    if names is not None and stored.feature_names is not None:
        _check_names(names, stored.feature_names, path)
        position = {name: j for j, name in enumerate(names)}
        X = X[:, [position[name] for name in stored.feature_names]]
    expected = stored.estimator.n_features_in_
    if X.shape[1] != expected:
        raise DatasetError(f"{path}: expected {expected} features, found {X.shape[1]}")
    return fill_gaps(X, stored.reading["means"]) if "means" in stored.reading else X


def _check_names(found: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    absent = sorted(set(wanted) - set(found))
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        listed = ", ".join(map(repr, absent[:3]))
        raise DatasetError(f"{path}: lacks the feature {listed}{more} of the model")
