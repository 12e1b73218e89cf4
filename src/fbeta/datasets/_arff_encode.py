"""From ARFF tables to features and label sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from fbeta.datasets._arff import Table
from fbeta.datasets._arff_header import Attribute
from fbeta.datasets.dataset import Dataset, FloatArray, Labels, join_split
from fbeta.datasets.files import Missing, fail

Nominal = Literal["codes", "onehot"]
# A dense array or a csr_array: scipy ships no types that mypy could tell them apart by.
Matrix: TypeAlias = Any


def encode(
    tables: Sequence[Table],
    labels: Sequence[int],
    *,
    nominal: Nominal,
    missing: Missing,
    name: str | None,
) -> Dataset:
    """Build the data set of one table, or of a train and a test table.

    Parameters
    ----------
    tables : sequence of Table
        One table, or train and test with the same attributes.
    labels : sequence of int
        Which attributes are labels.
    nominal : {"codes", "onehot"}
        What becomes of nominal features.
    missing : {"error", "nan", "mean"}
        What becomes of missing features; means are those of the first table.
    name : str, optional
        Name of the result; the stem of the first file by default.

    Returns
    -------
    Dataset
        With a split if two tables were given.

    Raises
    ------
    DatasetError
        If the tables disagree, or hold values that the options do not allow.
    """
    attributes = tables[0].header.attributes
    for other in tables[1:]:
        _check_same(tables[0], other)
    chosen = set(labels)
    features = [j for j in range(len(attributes)) if j not in chosen]
    if not features:
        raise fail(tables[0].path, None, "at least one attribute that is not a label")
    _check_declared(tables[0], labels)
    columns = [attributes[j] for j in features]
    parts = [_features(table, features, missing) for table in tables]
    if missing == "mean":
        _fill(parts, columns, tables[0])
    sets = [
        Dataset(
            X=_expand(part, columns, nominal),
            Y=_label_sets(table, labels),
            label_names=tuple(attributes[j].name for j in labels),
            feature_names=_feature_names(columns, nominal),
            name=Path(tables[0].path).stem if name is None else name,
        )
        for table, part in zip(tables, parts, strict=True)
    ]
    return sets[0] if len(sets) == 1 else join_split(sets[0], sets[1])


def _check_same(train: Table, test: Table) -> None:
    mine, its = train.header.attributes, test.header.attributes
    for a, b in zip(mine, its, strict=False):
        if (a.name, a.values) != (b.name, b.values):
            expected = f"attribute {a.name!r} declared as in line {a.line} of {train.path}"
            raise fail(test.path, b.line, expected, b.name)
    if len(mine) != len(its):
        expected = f"{len(mine)} attributes as in {train.path}"
        raise fail(test.path, test.header.data_line, expected, len(its))


def _check_declared(table: Table, labels: Sequence[int]) -> None:
    for j in labels:
        attribute = table.header.attributes[j]
        if attribute.values is not None and not set(attribute.values) <= {"0", "1"}:
            expected = f"label {attribute.name!r} declared as {{0,1}}"
            raise fail(table.path, attribute.line, expected, list(attribute.values))


def _first(matrix: Matrix, bad: Callable[[FloatArray], Any]) -> tuple[int, int] | None:
    """Find the first entry, by row, that is bad; what a sparse row leaves out is not."""
    if sparse.issparse(matrix):
        entries = matrix.tocoo()
        hits = np.flatnonzero(bad(entries.data))
        rows, columns = entries.row[hits], entries.col[hits]
    else:
        rows, columns = np.nonzero(bad(matrix))
    return (int(rows[0]), int(columns[0])) if rows.size else None


def _label_sets(table: Table, labels: Sequence[int]) -> Labels:
    attributes = [table.header.attributes[j] for j in labels]
    matrix: Matrix = table.matrix[:, list(labels)]
    place = _first(matrix, lambda values: (values != 0) & (values != 1))
    if place is not None:
        row, column = place
        found = matrix[row, column]
        expected = f"0 or 1 for label {attributes[column].name!r}"
        raise fail(
            table.path, int(table.lines[row]), expected, "?" if np.isnan(found) else float(found)
        )
    dense: Matrix = matrix.astype(np.int8)
    result: Labels = dense.toarray() if sparse.issparse(dense) else dense
    # A label declared {1,0} is stored as a position, which is the wrong way round.
    flipped = [j for j, a in enumerate(attributes) if a.values is not None and a.values[0] == "1"]
    result[:, flipped] = 1 - result[:, flipped]
    return result


def _features(table: Table, columns: Sequence[int], missing: Missing) -> Matrix:
    matrix = table.matrix[:, list(columns)]
    place = _first(matrix, np.isnan) if missing == "error" else None
    if place is not None:
        row, column = place
        attribute = table.header.attributes[columns[column]]
        expected = f"a value for attribute {attribute.name!r} (the option 'missing' fills gaps)"
        raise fail(table.path, int(table.lines[row]), expected, "?")
    return matrix


def _fill(parts: Sequence[Matrix], attributes: Sequence[Attribute], train: Table) -> None:
    """Replace NaN in place by the mean, or the most frequent value, of the first part."""
    fills = np.zeros(len(attributes))
    for j in sorted({int(j) for part in parts for j in _missing_columns(part)}):
        column = parts[0][:, [j]]
        values = (column.toarray() if sparse.issparse(column) else column).ravel()
        seen = values[~np.isnan(values)]
        if not seen.size:
            attribute = attributes[j]
            expected = f"at least one value of attribute {attribute.name!r} to take the mean of"
            raise fail(train.path, attribute.line, expected)
        nominal = attributes[j].values is not None
        fills[j] = np.bincount(seen.astype(np.intp)).argmax() if nominal else seen.mean()
    for part in parts:
        if sparse.issparse(part):
            gaps = np.flatnonzero(np.isnan(part.data))
            part.data[gaps] = fills[part.indices[gaps]]
        else:
            rows, columns = np.nonzero(np.isnan(part))
            part[rows, columns] = fills[columns]


def _missing_columns(part: Matrix) -> Any:
    if sparse.issparse(part):
        return part.indices[np.isnan(part.data)]
    return np.flatnonzero(np.isnan(part).any(axis=0))


def _is_wide(attribute: Attribute, nominal: Nominal) -> bool:
    """Tell whether an attribute needs a column per value; with two values one will do."""
    return nominal == "onehot" and attribute.values is not None and len(attribute.values) > 2


def _feature_names(attributes: Sequence[Attribute], nominal: Nominal) -> tuple[str, ...]:
    names: list[str] = []
    for attribute in attributes:
        if _is_wide(attribute, nominal):
            names += [f"{attribute.name}={value}" for value in attribute.values or ()]
        else:
            names.append(attribute.name)
    return tuple(names)


def _expand(matrix: Matrix, attributes: Sequence[Attribute], nominal: Nominal) -> Matrix:
    """Spread the columns of many-valued nominal attributes over one column per value."""
    wide = [j for j, attribute in enumerate(attributes) if _is_wide(attribute, nominal)]
    if not wide:
        return matrix
    pieces: list[Any] = []
    start = 0
    for j in wide:
        pieces += [matrix[:, start:j], _one_hot(matrix[:, [j]], len(attributes[j].values or ()))]
        start = j + 1
    pieces.append(matrix[:, start:])
    if sparse.issparse(matrix):
        return sparse.hstack(pieces, format="csr")
    return np.hstack(pieces)


def _one_hot(column: Matrix, n_values: int) -> FloatArray:
    """Give the indicators of one column of positions; a missing value is NaN throughout."""
    codes = column.toarray() if sparse.issparse(column) else np.asarray(column)
    indicators: FloatArray = (codes == np.arange(n_values)).astype(np.float64)
    indicators[np.isnan(codes[:, 0])] = np.nan
    return indicators
