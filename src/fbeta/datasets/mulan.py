"""Multi-label ARFF files: Mulan (labels named in XML) and MEKA (counted in the header)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.impute import SimpleImputer

from fbeta._array import check_choice
from fbeta.datasets.dataset import (
    Dataset,
    Declared,
    Labels,
    Missing,
    PathLike,
    fail,
    join_split,
)
from fbeta.datasets.matrix_files import ArffFile, read_arff_file

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
        ARFF file of the test part, with the same attributes; the result holds both and the split.
    nominal : {"codes", "onehot"}
        A nominal feature as one column of the positions of its values in the declaration, from 0,
        or, if it has more than two values, as one 0/1 column ``attribute=value`` for each.
    missing : {"error", "nan", "mean"}
        What becomes of a missing feature (``?`` or an empty cell): an error, NaN, or the mean (the
        most frequent value of a nominal one) in the training part. A missing label is an error.
    encoding : str
        Text encoding of the ARFF files; the XML file states its own.
    name : str, optional
        Name of the data set; the stem of `arff` by default.

    Returns
    -------
    Dataset
        Labels and features in the order of the ARFF attributes; `X` is CSR if the file is sparse.

    Raises
    ------
    DatasetError
        If a file is broken, or the files do not fit together.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arff, xml = Path(folder, "toy.arff"), Path(folder, "toy.xml")
    ...     _ = arff.write_text(
    ...         "@relation toy\n@attribute size numeric\n@attribute cat {0,1}\n"
    ...         "@attribute dog {0,1}\n@data\n2.5,1,0\n3,1,1\n"
    ...     )
    ...     _ = xml.write_text('<labels><label name="dog"/><label name="cat"/></labels>')
    ...     data = read_mulan(arff, xml)
    >>> data, data.label_names, data.Y.tolist()
    (Dataset('toy', 2 samples, 1 features, 2 labels, no split), ('cat', 'dog'), [[1, 0], [1, 1]])
    """
    named = _read_label_names(xml)

    def find(table: ArffFile) -> list[str]:
        for label, line in named.items():
            if label not in table.attributes:
                raise fail(xml, line, f"the name of an attribute of {table.path}", label)
        return [name for name in table.attributes if name in named]

    return _read((arff, test), find, nominal, missing, name, encoding)


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
    n_labels : int, optional
        Overrules the number in the header, with the same meaning of its sign.
    test, nominal, missing, encoding, name
        As in `read_mulan`.

    Returns
    -------
    Dataset
        Labels and features in the order of the ARFF attributes.

    Examples
    --------
    >>> import tempfile
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

    def find(table: ArffFile) -> list[str]:
        match = _LABEL_COUNT.search(table.relation)
        if match is None and n_labels is None:
            expected = (
                "the number of labels as -C in @relation "
                "(or as an option; Mulan's files come with an XML file of labels)"
            )
            raise fail(table.path, table.relation_line, expected, table.relation)
        count = int(match[1]) if match and n_labels is None else n_labels or 0
        names = list(table.attributes)
        if not 0 < abs(count) < len(names):
            expected = f"a number of labels from 1 to {len(names) - 1} (negative if they come last)"
            raise fail(table.path, table.relation_line, expected, count)
        return names[:count] if count > 0 else names[count:]

    return _read((path, test), find, nominal, missing, name, encoding)


def read_arff(
    path: PathLike,
    labels: Sequence[str],
    *,
    drop: Sequence[str] = (),
    nominal: Nominal = "codes",
    missing: Missing = "error",
    declared: Declared | None = None,
) -> Dataset:
    """Read an ARFF file whose labels are known by name, as a training file ``declared`` features.

    Attributes to `drop` need not be there.
    """

    def find(table: ArffFile) -> Sequence[str]:
        for label in labels:
            if label not in table.attributes:
                raise fail(path, table.data_line, f"an attribute {label!r}", list(table.attributes))
        return labels

    return _read((path, None), find, nominal, missing, None, drop=drop, declared=declared)


def _read(
    paths: tuple[PathLike, PathLike | None],
    find: Callable[[ArffFile], Sequence[str]],
    nominal: Nominal,
    missing: Missing,
    name: str | None,
    encoding: str = "utf-8",
    drop: Sequence[str] = (),
    declared: Declared | None = None,
) -> Dataset:
    """Read one file, or a train and a test file with the same attributes."""
    check_choice("nominal", nominal, get_args(Nominal))
    check_choice("missing", missing, get_args(Missing))
    tables = [read_arff_file(path, encoding, drop, declared) for path in paths if path is not None]
    first = tables[0]
    labels = find(first)
    others = [attribute for attribute in first.attributes if attribute not in set(labels)]
    if not others:
        raise fail(first.path, None, "at least one attribute that is not a label")
    for other in tables[1:]:
        _check_same(first, other)
    truth = [_label_sets(table.take(labels)) for table in tables]
    features = [table.take(others) for table in tables]
    for table in features if missing == "error" else ():
        bad = table.first(np.isnan)
        if bad is not None:
            expected = f"a value for attribute {bad[0]!r} (the option 'missing' fills gaps)"
            raise fail(table.path, bad[1], expected, "?")
    fills = _fills(features[0]) if missing == "mean" else None
    stem = Path(first.path).stem if name is None else name
    sets = []
    for table, Y in zip(features, truth, strict=True):
        X = table.matrix if fills is None else fill_gaps(table.matrix, fills)
        X, names = _expand(X, table.attributes, nominal)
        values = {attribute: found for attribute, (found, _) in table.attributes.items()}
        sets.append(Dataset(X, Y, tuple(labels), names, stem, declared=values))
    return sets[0] if len(sets) == 1 else join_split(sets[0], sets[1])


def _check_same(train: ArffFile, test: ArffFile) -> None:
    pairs = zip(train.attributes.items(), test.attributes.items(), strict=False)
    for (name, (values, line)), (other, (found, place)) in pairs:
        if (name, values) != (other, found):
            expected = f"attribute {name!r} declared as in line {line} of {train.path}"
            raise fail(test.path, place, expected, other)
    width, found_width = len(train.attributes), len(test.attributes)
    if width != found_width:
        raise fail(test.path, test.data_line, f"{width} attributes as in {train.path}", found_width)


def _label_sets(table: ArffFile) -> Labels:
    """Return 0/1 of a file of labels only, of shape (n, c)."""
    for name, (values, line) in table.attributes.items():
        if values is not None and not set(values) <= {"0", "1"}:
            raise fail(table.path, line, f"label {name!r} declared as {{0,1}}", list(values))
    bad = table.first(lambda values: (values != 0) & (values != 1))
    if bad is not None:
        found = "?" if np.isnan(bad[2]) else float(bad[2])
        raise fail(table.path, bad[1], f"0 or 1 for label {bad[0]!r}", found)
    dense = table.matrix.astype(np.int8)
    result: Labels = dense.toarray() if sparse.issparse(dense) else dense
    # A label declared {1,0} is stored as a position, which is the wrong way round.
    flipped = [(values or "0")[0] == "1" for values, _ in table.attributes.values()]
    return result ^ np.array(flipped, dtype=np.int8)


def _fills(train: ArffFile) -> NDArray[np.float64]:
    """Return the mean, or the most frequent value, of each attribute, of shape (c,)."""
    fills = np.zeros(len(train.attributes))
    is_nominal = np.array([values is not None for values, _ in train.attributes.values()])
    for chosen, strategy in ((~is_nominal, "mean"), (is_nominal, "most_frequent")):
        if chosen.any():
            imputer = SimpleImputer(strategy=strategy).fit(train.matrix[:, np.flatnonzero(chosen)])
            fills[chosen] = imputer.statistics_
    for (name, (_, line)), fill in zip(train.attributes.items(), fills, strict=True):
        if np.isnan(fill):
            expected = f"at least one value of attribute {name!r} to take the mean of"
            raise fail(train.path, line, expected)
    return fills


def fill_gaps(X: Any, fills: Any) -> Any:
    """Return X, dense or CSR, with NaN replaced by the fill of its column, of shape (c,)."""
    if not sparse.issparse(X):
        return np.where(np.isnan(X), fills, X)
    data = np.where(np.isnan(X.data), np.asarray(fills)[X.indices], X.data)
    return sparse.csr_array((data, X.indices, X.indptr), X.shape)


def _expand(X: Any, attributes: Any, nominal: Nominal) -> tuple[Any, tuple[str, ...]]:
    """Give nominal attributes of more than two values one column per value, if wanted."""
    if nominal == "codes":
        return X, tuple(attributes)
    names: list[str] = []
    pieces: list[Any] = []
    for j, (name, (values, _)) in enumerate(attributes.items()):
        column = X[:, [j]]
        if values is None or len(values) < 3:
            names.append(name)
        else:
            codes = column.toarray() if sparse.issparse(column) else column
            column = np.where(np.isnan(codes), np.nan, codes == np.arange(len(values)))
            names += [f"{name}={value}" for value in values]
        pieces.append(column)
    stack: Any = partial(sparse.hstack, format="csr") if sparse.issparse(X) else np.hstack
    return stack(pieces), tuple(names)


def _read_label_names(xml: PathLike) -> dict[str, int]:
    """Give the label names of a Mulan XML file, each with its line, in file order."""
    elements: list[tuple[int, str, dict[str, str]]] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda tag, attributes: elements.append(
        (parser.CurrentLineNumber, tag.rpartition(" ")[2], attributes)
    )
    try:
        parser.Parse(Path(xml).read_bytes(), True)
    except expat.ExpatError as error:
        what = expat.errors.messages.get(error.code, str(error))
        raise fail(xml, error.lineno, "well-formed XML", what) from error
    except LookupError as error:
        raise fail(xml, 1, "a known encoding", str(error)) from error
    (line, tag, _), *others = elements
    if tag != "labels":
        raise fail(xml, line, "<labels>", f"<{tag}>")
    named: dict[str, int] = {}
    for line, tag, attributes in others:
        label = attributes.get("name")
        if tag != "label":
            raise fail(xml, line, "<label>", f"<{tag}>")
        if not label:
            raise fail(xml, line, '<label name="...">', f"<label {attributes}>")
        if label in named:
            raise fail(xml, line, f"a name other than that of line {named[label]}", label)
        named[label] = line
    if not named:
        raise fail(xml, None, "at least one <label>")
    return named
