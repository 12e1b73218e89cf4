"""Multi-label ARFF files: Mulan (labels named in XML) and MEKA (counted in the header)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args
from xml.parsers import expat

import numpy as np
from scipy import sparse

from fbeta._validation import check_choice
from fbeta.datasets.arff import ArffFile, Attribute, read_arff_file
from fbeta.datasets.dataset import Dataset, Labels, join_split
from fbeta.datasets.files import Missing, PathLike, fail

__all__ = ["Nominal", "read_arff", "read_meka", "read_mulan"]

Nominal = Literal["codes", "onehot"]
_LABEL_COUNT = re.compile(r"(?:^|\s)-[cC]\s+(-?\d{1,9})(?=\s|$)", re.ASCII)


def read_mulan(
    arff: PathLike,
    xml: PathLike,
    *,
    test: PathLike | None = None,
    nominal: Nominal = "codes",
    missing: Missing = "error",
    encoding: str = "utf-8",
    name: str | None = None,
) -> Dataset:
    r"""Read a Mulan data set: a dense or sparse ARFF file and an XML file naming the labels.

    Parameters
    ----------
    arff : path
        The data, or the training part of them.
    xml : path
        The names of the label attributes; nested labels are all labels.
    test : path, optional
        ARFF file of the test part. It must declare the same attributes; the result then
        holds both parts and the split.
    nominal : {"codes", "onehot"}
        What becomes of a nominal feature. "codes", the default, keeps one column per
        attribute, holding the position of the value in its declaration, from 0. "onehot"
        gives an attribute of more than two values one 0/1 column per value, named
        ``attribute=value``.
    missing : {"error", "nan", "mean"}
        What becomes of a missing feature (``?`` or an empty cell): an error, the default;
        NaN; or the mean of the column (the most frequent value of a nominal one), taken
        over the training part. A missing label is always an error.
    encoding : str
        Text encoding of the ARFF files; the XML file states its own.
    name : str, optional
        Name of the data set; the stem of `arff` by default.

    Returns
    -------
    Dataset
        Labels and features in the order of the ARFF attributes, whatever the order of
        the XML file; `X` is CSR if the ARFF file is sparse.

    Raises
    ------
    DatasetError
        If a file is broken, or the files do not fit together.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fbeta.datasets import read_mulan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arff, xml = Path(folder, "toy.arff"), Path(folder, "toy.xml")
    ...     _ = arff.write_text(
    ...         "@relation toy\n@attribute size numeric\n@attribute cat {0,1}\n"
    ...         "@attribute dog {0,1}\n@data\n2.5,1,0\n3,1,1\n"
    ...     )
    ...     _ = xml.write_text('<labels><label name="dog"/><label name="cat"/></labels>')
    ...     data = read_mulan(arff, xml)
    >>> data
    Dataset('toy', 2 samples, 1 features, 2 labels, no split)
    >>> data.label_names, data.Y.tolist()
    (('cat', 'dog'), [[1, 0], [1, 1]])
    """
    _check_options(nominal, missing)
    named = _read_label_names(xml)

    def find(table: ArffFile) -> list[int]:
        attributes = table.attributes
        missing_names = set(named) - {attribute.name for attribute in attributes}
        for label, line in named.items():
            if label in missing_names:
                raise fail(xml, line, f"the name of an attribute of {table.path}", label)
        return [j for j, attribute in enumerate(attributes) if attribute.name in named]

    return _read(arff, test, find, nominal, missing, encoding, name)


def read_meka(
    path: PathLike,
    *,
    test: PathLike | None = None,
    n_labels: int | None = None,
    nominal: Nominal = "codes",
    missing: Missing = "error",
    encoding: str = "utf-8",
    name: str | None = None,
) -> Dataset:
    r"""Read a MEKA data set: an ARFF file whose ``@relation`` tells how many labels it has.

    Parameters
    ----------
    path : path
        The data, or the training part of them. ``@relation 'name: -C 6'`` says that the
        first 6 attributes are labels, ``-C -6`` that the last 6 are.
    test : path, optional
        ARFF file of the test part, with the same attributes.
    n_labels : int, optional
        Overrules the number in the header, with the same meaning of its sign.
    nominal, missing, encoding, name
        As in `read_mulan`.

    Returns
    -------
    Dataset
        Labels and features in the order of the ARFF attributes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fbeta.datasets import read_meka
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "toy.arff")
    ...     _ = file.write_text(
    ...         "@relation 'toy: -C 1'\n@attribute cat {0,1}\n@attribute size numeric\n"
    ...         "@attribute age numeric\n@data\n{0 1, 2 4.5}\n{}\n"
    ...     )
    ...     data = read_meka(file)
    >>> data.label_names, data.feature_names, data.X.toarray().tolist()
    (('cat',), ('size', 'age'), [[0.0, 4.5], [0.0, 0.0]])
    """
    _check_options(nominal, missing)

    def find(table: ArffFile) -> Sequence[int]:
        count = _label_count(table) if n_labels is None else n_labels
        width = len(table.attributes)
        if not 0 < abs(count) < width:
            expected = f"a number of labels from 1 to {width - 1} (negative if they come last)"
            raise fail(table.path, table.relation_line, expected, count)
        return range(count) if count > 0 else range(width + count, width)

    return _read(path, test, find, nominal, missing, encoding, name)


def read_arff(
    path: PathLike,
    labels: Sequence[str],
    *,
    drop: Sequence[str] = (),
    nominal: Nominal = "codes",
    missing: Missing = "error",
) -> Dataset:
    r"""Read an ARFF file whose labels, if any, are known by name, in the order of `Y`.

    Attributes to `drop` are left out whatever their values; those that the file lacks do not
    matter. The other arguments are those of `read_mulan`.
    """
    _check_options(nominal, missing)
    table = read_arff_file(path)
    kept = [j for j, attribute in enumerate(table.attributes) if attribute.name not in drop]
    attributes = tuple(table.attributes[j] for j in kept)
    place = {attribute.name: j for j, attribute in enumerate(attributes)}
    for label in labels:
        if label not in place:
            raise fail(path, table.data_line, f"an attribute {label!r}", list(place))
    table = replace(table, attributes=attributes, matrix=table.matrix[:, kept])
    chosen = [place[label] for label in labels]
    return _encode([table], chosen, nominal=nominal, missing=missing, name=None)


def _check_options(nominal: str, missing: str) -> None:
    check_choice("nominal", nominal, get_args(Nominal))
    check_choice("missing", missing, get_args(Missing))


def _read(
    path: PathLike,
    test: PathLike | None,
    find: Callable[[ArffFile], Sequence[int]],
    nominal: Nominal,
    missing: Missing,
    encoding: str,
    name: str | None,
) -> Dataset:
    tables = [read_arff_file(part, encoding) for part in (path, test) if part is not None]
    return _encode(tables, find(tables[0]), nominal=nominal, missing=missing, name=name)


def _encode(
    tables: Sequence[ArffFile],
    labels: Sequence[int],
    *,
    nominal: Nominal,
    missing: Missing,
    name: str | None,
) -> Dataset:
    """Build the data set of one file, or of a train and a test file with the same attributes."""
    first = tables[0]
    for other in tables[1:]:
        _check_same(first, other)
    features = [j for j in range(len(first.attributes)) if j not in set(labels)]
    if not features:
        raise fail(first.path, None, "at least one attribute that is not a label")
    _check_declared(first, labels)
    columns = [first.attributes[j] for j in features]
    parts = [_features(table, features, missing) for table in tables]
    if missing == "mean":
        _fill(parts, columns, first)
    sets = []
    for table, part in zip(tables, parts, strict=True):
        X, names = _expand(part, columns, nominal)
        sets.append(
            Dataset(
                X=X,
                Y=_label_sets(table, labels),
                label_names=tuple(first.attributes[j].name for j in labels),
                feature_names=tuple(names),
                name=Path(first.path).stem if name is None else name,
            )
        )
    return sets[0] if len(sets) == 1 else join_split(sets[0], sets[1])


def _check_same(train: ArffFile, test: ArffFile) -> None:
    for a, b in zip(train.attributes, test.attributes, strict=False):
        if (a.name, a.values) != (b.name, b.values):
            expected = f"attribute {a.name!r} declared as in line {a.line} of {train.path}"
            raise fail(test.path, b.line, expected, b.name)
    if len(train.attributes) != len(test.attributes):
        expected = f"{len(train.attributes)} attributes as in {train.path}"
        raise fail(test.path, test.data_line, expected, len(test.attributes))


def _check_declared(table: ArffFile, labels: Sequence[int]) -> None:
    for attribute in (table.attributes[j] for j in labels):
        if attribute.values is not None and not set(attribute.values) <= {"0", "1"}:
            expected = f"label {attribute.name!r} declared as {{0,1}}"
            raise fail(table.path, attribute.line, expected, list(attribute.values))


def _label_sets(table: ArffFile, labels: Sequence[int]) -> Labels:
    attributes = [table.attributes[j] for j in labels]
    bad = table.first(labels, lambda values: (values != 0) & (values != 1))
    if bad is not None:
        place, (line, found) = bad
        expected = f"0 or 1 for label {attributes[place].name!r}"
        raise fail(table.path, line, expected, "?" if np.isnan(found) else float(found))
    dense: Any = table.matrix[:, list(labels)].astype(np.int8)
    result: Labels = dense.toarray() if sparse.issparse(dense) else dense
    # A label declared {1,0} is stored as a position, which is the wrong way round.
    flipped = [j for j, a in enumerate(attributes) if a.values is not None and a.values[0] == "1"]
    result[:, flipped] = 1 - result[:, flipped]
    return result


def _features(table: ArffFile, columns: Sequence[int], missing: Missing) -> Any:
    bad = table.first(columns, np.isnan) if missing == "error" else None
    if bad is not None:
        place, (line, _) = bad
        name = table.attributes[columns[place]].name
        expected = f"a value for attribute {name!r} (the option 'missing' fills gaps)"
        raise fail(table.path, line, expected, "?")
    return table.matrix[:, list(columns)]


def _fill(parts: Sequence[Any], attributes: Sequence[Attribute], train: ArffFile) -> None:
    """Replace NaN in place by the mean, or the most frequent value, of the first part."""
    entries = [sparse.coo_array(part) for part in parts]
    gaps = {int(j) for part in entries for j in part.col[np.isnan(part.data)]}
    for j in sorted(gaps):
        column = parts[0][:, [j]]
        values = (column.toarray() if sparse.issparse(column) else column).ravel()
        seen = values[~np.isnan(values)]
        if not seen.size:
            expected = f"at least one value of attribute {attributes[j].name!r} to take the mean of"
            raise fail(train.path, attributes[j].line, expected)
        nominal = attributes[j].values is not None
        fill = np.bincount(seen.astype(np.intp)).argmax() if nominal else seen.mean()
        for part in parts:
            if sparse.issparse(part):
                part.data[np.isnan(part.data) & (part.indices == j)] = fill
            else:
                part[np.isnan(part[:, j]), j] = fill


def _expand(X: Any, attributes: Sequence[Attribute], nominal: Nominal) -> tuple[Any, list[str]]:
    """Give nominal attributes of more than two values one column per value, if wanted."""
    names: list[str] = []
    pieces: list[Any] = []
    for j, attribute in enumerate(attributes):
        values, column = attribute.values or (), X[:, [j]]
        if nominal == "codes" or len(values) < 3:
            names.append(attribute.name)
            pieces.append(column)
            continue
        codes = column.toarray() if sparse.issparse(column) else column
        indicators = (codes == np.arange(len(values))).astype(np.float64)
        indicators[np.isnan(codes[:, 0])] = np.nan
        names += [f"{attribute.name}={value}" for value in values]
        pieces.append(indicators)
    if len(names) == len(attributes):
        return X, names
    return (sparse.hstack(pieces, format="csr") if sparse.issparse(X) else np.hstack(pieces)), names


def _label_count(table: ArffFile) -> int:
    match = _LABEL_COUNT.search(table.relation)
    if match is None:
        expected = (
            "the number of labels as -C in @relation "
            "(or as an option; Mulan's files come with an XML file of labels)"
        )
        raise fail(table.path, table.relation_line, expected, table.relation)
    return int(match[1])


def _read_label_names(xml: PathLike) -> dict[str, int]:
    """Give the label names of a Mulan XML file, each with its line, in file order."""
    named: dict[str, int] = {}
    depth = 0
    parser = expat.ParserCreate(namespace_separator=" ")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        line = parser.CurrentLineNumber
        tag = tag.rpartition(" ")[2]
        expected_tag = "label" if depth else "labels"
        depth += 1
        if tag != expected_tag:
            raise fail(xml, line, f"<{expected_tag}>", f"<{tag}>")
        if tag == "labels":
            return
        label = attributes.get("name")
        if not label:
            raise fail(xml, line, '<label name="...">', f"<label {attributes}>")
        if label in named:
            raise fail(xml, line, f"a name other than that of line {named[label]}", label)
        named[label] = line

    parser.StartElementHandler = start
    try:
        parser.Parse(Path(xml).read_bytes(), True)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, str(error))
        raise fail(xml, error.lineno, "well-formed XML", what) from error
    except LookupError as error:
        raise fail(xml, 1, "a known encoding", str(error)) from error
    if not named:
        raise fail(xml, None, "at least one <label>")
    return named
