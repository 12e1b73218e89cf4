"""Labels in every form that users keep them in: one reader, and predictions in the same form."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, ValuesView
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from fbeta._array import (
    Array,
    array_namespace,
    check_unmasked,
    dense_to_csr,
    is_tensor,
    to_numpy,
)
from fbeta.labels.containers import (
    LIBRARIES,
    as_table,
    binary_classes,
    column_type,
    holds_sets,
    is_missing,
    is_table,
    library_of,
    name_key,
    sorted_names,
    text_type,
    write_column,
    write_table,
)

Indicator: TypeAlias = sp.csr_array
Kind = Literal["array", "sparse", "frame", "sets", "single"]
#: Sparse containers by name.
SPARSE = {
    f"{format_}_{kind}": getattr(sp, f"{format_}_{kind}")
    for format_ in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
}


@dataclass(frozen=True)
class LabelForm:
    """The form in which a user keeps labels: read one way, written back the same way."""

    kind: Kind  # "single" is a 1-D binary target: one label, present or not
    classes: NDArray[Any]  # (s,) names, numbers from 0 for matrices; "single": one or two classes
    # of the array, or one per column for a data frame; the type of a column of Polars or Arrow; the
    # type of label sets; else None
    dtype: Any = None
    # "Series" for a Series of pandas, a name of LIBRARIES for data frames and columns of these, one
    # of SPARSE for sparse matrices, else empty
    container: str = ""

    def __post_init__(self) -> None:
        # a form may come from a file of unknown origin: no name in it is imported
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        if self.kind not in get_args(Kind) or any(isinstance(dtype, str) for dtype in dtypes):
            raise ValueError(f"there is no form of labels {self.kind!r} of {self.dtype!r}")
        if self.container not in ("", "Series", *LIBRARIES, *SPARSE):
            raise ValueError(f"there are no labels in a {self.container!r}")

    def storable(self) -> LabelForm:
        """Return the form with types that model files have: int8 for text, categories, decimals."""
        if self.kind == "frame":
            small = np.dtype(np.int8)
            types = (t if getattr(t, "kind", "O") in "biuf" else small for t in self.dtype)
            return replace(self, dtype=tuple(types))
        if self.kind == "sets":
            return replace(self, dtype=self.dtype if isinstance(self.dtype, type) else list)
        return replace(self, dtype=None) if self.kind == "single" else self

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return 1 if self.kind == "single" else len(self.classes)

    def __str__(self) -> str:
        names = list(map(repr, self.classes.tolist()))
        listed = ", ".join([*names[:5], "..."] if len(names) > 6 else names)
        return {
            "sets": f"label sets ({listed})",
            "single": f"a 1-D target with the classes {listed}",
            "frame": f"a data frame with the columns {listed}",
        }.get(self.kind, f"a 0/1 matrix with {self.n_labels} columns")

    def read(
        self, Y: Any, name: str = "Y", *, unseen: bool = False, known: str = "seen in fit"
    ) -> Indicator:
        """Read labels as a 0/1 CSR matrix of int8, of shape (n, s), or wider with ``unseen``."""
        return self.match(*_parse(Y, name, self), name, unseen=unseen, known=known)

    def match(
        self, other: LabelForm, values: Any, name: str, *, unseen: bool = False, known: str = ""
    ) -> Indicator:
        """Return the parsed values of another form, as an indicator with the labels of this one."""
        if "single" in (self.kind, other.kind):
            if self.kind != other.kind:
                raise ValueError(
                    f"{name} is {other}, which does not match {self} ({known}): they must agree"
                )
            # compared as Python objects: NumPy would take the number 1 for the string "1"
            strange = sorted(set(values.tolist()) - set(self.classes.tolist()), key=str)
            if strange and not (unseen and len(self.classes) == 1):
                raise ValueError(f"{name} has classes that were not {known}: {strange}")
            columns = [values == own for own in (self.classes[-1], *strange)]
            return sp.csr_array(np.stack(columns, axis=1).astype(np.int8))
        unseen = unseen and self.kind == "sets"
        if other.kind == "sets":
            classes = self.classes.tolist()
            unknown = set().union(*values) - set(classes)
            if unknown and not unseen:
                raise ValueError(
                    f"{name} has label names that were not {known}: {sorted(map(str, unknown))}"
                )
            sorted_names({*classes[:1], *unknown}, name)
            binarizer = MultiLabelBinarizer(classes=[*classes, *unknown], sparse_output=True)
            return sp.csr_array(binarizer.fit_transform(values)).astype(np.int8)
        if self.kind == "sets" or self._by_name(other):
            values = sp.csc_array(values)[:, self._columns(other, name, unseen, known)]
        elif other.n_labels != self.n_labels:
            raise ValueError(
                f"{name} has {other.n_labels} labels, but {self.n_labels} were {known}: they "
                f"must agree (shape {values.shape})"
            )
        if isinstance(values, np.ndarray):
            return dense_to_csr(values.view(np.int8))
        return sp.csr_array(values).astype(np.int8)

    def _by_name(self, other: LabelForm) -> bool:
        """Return whether the columns of two matrices or data frames are matched by name."""
        if other.kind != "frame" or self.kind == "frame":
            return other.kind == "frame"
        numbered = all(isinstance(name, int) for name in other.classes.tolist())
        return numbered or set(map(name_key, other.classes)) == set(map(name_key, self.classes))

    def _columns(self, other: LabelForm, name: str, unseen: bool, known: str) -> list[int]:
        """Return which columns have the names of this form, and unseen ones after these."""
        place = {name_key(label): j for j, label in enumerate(other.classes)}
        own = set(map(name_key, self.classes))
        missing = [label for label in self.classes.tolist() if name_key(label) not in place]
        unknown = [label for label in other.classes.tolist() if name_key(label) not in own]
        if other.kind != "frame" and missing:
            raise ValueError(
                f"{name} is {other}, but {self} were {known}: the columns have no names to match "
                f"them by; pass label sets, or a data frame with these names"
            )
        if missing or (unknown and not unseen):
            raise ValueError(
                f"the label columns of {name} differ from those {known}: "
                f"missing {missing}, unknown {unknown}"
            )
        return [place[name_key(label)] for label in (*self.classes, *unknown)]

    def write(self, predicted: Any, index: Any = None) -> Any:
        """Write predictions, booleans or a csr_array of shape (n, s), in this form.

        ``index`` is the pandas Index of the rows, for DataFrame and Series. Numbers stay on the
        device of a tensor, names do not.
        """
        if is_tensor(predicted):
            xp = array_namespace(predicted)
            if self.kind == "array" and np.dtype(self.dtype).kind in "biuf":
                return xp.astype(predicted, getattr(xp, np.dtype(self.dtype).name))
            out = self.write(to_numpy(predicted))
            numbers = isinstance(out, np.ndarray) and out.dtype.kind in "biuf"
            return xp.asarray(out, device=predicted.device) if numbers else out
        rows: Any = predicted
        if sp.issparse(predicted):
            rows = np.split(predicted.indices, predicted.indptr[1:-1])
            predicted = predicted if self.kind in ("sparse", "sets") else predicted.toarray()
        if self.kind == "array":
            return predicted.astype(np.int8).astype(self.dtype)
        if self.kind == "sparse":
            return SPARSE[self.container](predicted.astype(self.dtype))
        if self.kind == "frame":
            return write_table(self.container, self.classes, self.dtype, predicted, index)
        names, dtype = None, self.dtype
        if self.kind == "sets":
            make, dtype = (dtype, None) if isinstance(dtype, type) else (list, dtype)
            out = [make(self.classes[row].tolist()) for row in rows]
            names = type(self.classes[0])
        else:
            # with one class seen, it is the class of every row
            out = self.classes[predicted[:, 0] * (len(self.classes) - 1)]
        if not self.container:
            return out
        return write_column(self.container.removeprefix("Series"), out, index, names, dtype)


def form_of(Y: Any, name: str = "Y") -> LabelForm:
    """Return the form of labels: what they are kept in, and the names of the labels."""
    return read_labels(Y, name)[0]


def read_labels(Y: Any, name: str = "Y") -> tuple[LabelForm, Indicator]:
    """Return the form of labels, and the labels as a 0/1 CSR matrix of int8, of shape (n, s)."""
    if Y is None:
        raise ValueError(f"{name} is None: requires y to be passed, but the target y is None")
    form, values = _parse(Y, name)
    if form.kind == "sets" and not len(form.classes):
        raise ValueError(f"{name} names no label: every label set in it is empty")
    return form, form.match(form, values, name)


def read_dense(Y: Any, n_labels: int, name: str) -> NDArray[np.bool_]:
    """Return labels that have no names, in any form that can be matched, as booleans (n, s)."""
    form = LabelForm("array", np.arange(n_labels))
    return np.asarray(form.read(Y, name, known="expected").toarray(), dtype=np.bool_)


def common_indicators(Y_true: Any, Y_pred: Any) -> tuple[Indicator, Indicator]:
    """Read two label arrays over the same labels, each as a csr_array of shape (n, s)."""
    (form, true), (other, pred) = _parse(Y_true, "Y_true"), _parse(Y_pred, "Y_pred")
    reference, known = form, "in Y_true"
    if form.kind == other.kind == "sets":
        reference = LabelForm("sets", sorted_names(set().union(*true, *pred), "Y_true"))
    elif form.kind == other.kind == "single":
        if (true.dtype.kind in "biuf") != (pred.dtype.kind in "biuf"):
            raise ValueError(
                "the classes of Y_true and Y_pred are of several types: "
                f"{true.dtype} and {pred.dtype}"
            )
        reference = LabelForm("single", binary_classes(np.concatenate([true, pred]), "Y_true"))
    elif form.kind == "sets":  # a matrix has all labels, label sets only some
        reference, known = other, "in Y_pred"
    true = reference.match(form, true, "Y_true", known=known)
    pred = reference.match(other, pred, "Y_pred", known=known)
    if true.shape != pred.shape:
        raise ValueError(
            f"Y_true has shape {true.shape} and Y_pred has shape {pred.shape}: they must agree"
        )
    return true, pred


def materialise(Y: Any) -> Any:
    """Return a tensor as a NumPy array, and an iterable that has no rows to index as a list."""
    if is_tensor(Y):
        return to_numpy(Y)
    return list(Y) if isinstance(Y, (Iterator, KeysView, ValuesView)) else Y


def _parse(Y: Any, name: str, fitted: LabelForm | None = None) -> tuple[LabelForm, Any]:
    """Return the form of labels, and values: Python sets, classes, or a 0/1 matrix or CSR."""
    Y, kind = materialise(Y), "" if fitted is None else fitted.kind
    if kind == "single":
        Y = _one_column(Y)
    if sp.issparse(Y):
        container = f"{Y.format}_{'array' if isinstance(Y, sp.sparray) else 'matrix'}"
        form = LabelForm("sparse", np.arange(Y.shape[1]), Y.dtype, container)
        return form, _read_sparse(Y, name)
    if isinstance(Y, np.ndarray) and Y.ndim == 2:
        return _parse_matrix(Y, name)
    if is_table(Y):
        return _parse_frame(Y, name)
    rows, container = Y, "Series" if hasattr(Y, "iloc") else library_of(Y)
    if container in LIBRARIES:
        rows = Y.to_list() if container == "polars" else Y.to_pylist()
    if holds_sets(rows, name, fitted.n_labels if fitted and kind == "sets" else None):
        return _parse_sets(list(rows), name, column_type(Y), container)
    check_unmasked(name, rows)
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise ValueError(f"{name} is neither a 0/1 matrix nor a sequence of label sets") from error
    if array.ndim != 1:
        return _parse_matrix(array, name)
    check_unmasked(name, array)
    if kind != "sets":
        classes = binary_classes(array, name)
    else:  # refused by a message that names both
        classes = np.array(list(dict.fromkeys(array.tolist())), dtype=object)
    return LabelForm("single", classes, column_type(Y), container), array


def _parse_matrix(array: NDArray[Any], name: str) -> tuple[LabelForm, NDArray[np.bool_]]:
    if array.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (rows, labels), got {array.ndim}")
    dtype = array.dtype if array.dtype.kind != "O" else text_type(array, np.float64)
    return LabelForm("array", np.arange(array.shape[1]), dtype), _as_binary(array, name)


def _parse_frame(Y: Any, name: str) -> tuple[LabelForm, NDArray[np.bool_]]:
    names, values, dtypes, library = as_table(Y, name)
    if values.dtype.kind == "O" and len(values):
        for label, cell in zip(names, values[0], strict=True):
            if np.ndim(cell) or isinstance(cell, (list, tuple, set, frozenset)):
                raise ValueError(
                    f"the column {label!r} of {name} holds label sets, not 0 and 1: pass the "
                    f"column alone, {name}[{label!r}]"
                )
    return LabelForm("frame", names, dtypes, library), _as_binary(values, name)


def _parse_sets(
    rows: list[Any], name: str, dtype: Any, container: str
) -> tuple[LabelForm, list[set[Any]]]:
    """Return the names in label sets with the type of the column or of the sets, and the sets."""
    try:  # NumPy's numbers and strings are names like Python's
        sets = [{t.item() if isinstance(t, np.generic) else t for t in row} for row in rows]
    except TypeError as error:
        raise ValueError(f"{name} is not a sequence of label sets: {error}") from error
    for number, labels in enumerate(sets):
        if any(map(is_missing, labels)):
            raise ValueError(f"row {number} of {name} has a label that is missing: leave it out")
    names = set().union(*sets)
    if names and names <= {"0", "1"} and any(len(row) > len(set(row)) for row in rows):
        raise ValueError(f"{name} is a 0/1 matrix of strings ('0' and '1'): convert it to numbers")
    kind = type(rows[0]) if type(rows[0]) in (set, frozenset, tuple) else list
    return LabelForm("sets", sorted_names(names, name), dtype or kind, container), sets


def _one_column(Y: Any) -> Any:
    """Return the column of a matrix, data frame or nested list that has only one."""
    values = Y.toarray() if sp.issparse(Y) else Y
    if not isinstance(Y, np.ndarray) and is_table(Y):
        values = as_table(Y, "y")[1]
    if isinstance(values, np.ndarray):
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else Y
    nested = isinstance(Y, list | tuple) and Y
    one = nested and all(isinstance(row, list | tuple) and len(row) == 1 for row in Y)
    return [row[0] for row in Y] if one else Y


def _read_sparse(Y: Any, name: str) -> Indicator:
    """Return a sparse 0/1 matrix of shape (n, s), n, s >= 1, as CSR of int8."""
    indicator = sp.csr_array(Y, copy=True)
    indicator.sum_duplicates()
    check_unmasked(name, indicator.data)
    _check_not_empty(indicator.shape, name)
    check_binary(indicator.data, name, indicator)
    indicator.eliminate_zeros()
    return indicator.astype(np.int8)


def _as_binary(array: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Return a 0/1 matrix of shape (n, s), n, s >= 1; the strings "0" and "1" are numbers."""
    check_unmasked(name, array)
    if array.dtype.kind in "USO":
        texts = {v for v in array.ravel().tolist() if isinstance(v, str | bytes)}
        other = sorted(map(repr, texts - {"0", "1", b"0", b"1"}))
        if other:
            raise ValueError(f"Unknown label type: {name} must hold 0 and 1, found {other[0]}")
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Unknown label type: {name} must hold 0 and 1: {error}") from error
    elif array.dtype.kind not in "biuf":
        raise ValueError(f"Unknown label type: {name} must hold 0 and 1, found {array.dtype}")
    _check_not_empty(array.shape, name)
    check_binary(array, name)
    return array.astype(np.bool_)


def _check_not_empty(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        what = "rows" if shape[0] == 0 else "labels"
        raise ValueError(f"{name} has no {what} (shape {shape}): at least one is required")


def check_binary(values: Array, name: str, sparse: Indicator | None = None) -> None:
    """Raise where values, (n, s) or the data of a sparse matrix, are not 0 or 1, and say where."""
    xp = array_namespace(values)
    if xp.isdtype(values.dtype, "bool"):
        return
    wrong = (values != 0) & (values != 1)
    if not bool(xp.any(wrong)):
        return
    first = int(xp.argmax(xp.astype(xp.reshape(wrong, (-1,)), xp.int8)))
    value = xp.reshape(values, (-1,))[first]
    if sparse is None:
        *place, column = (int(i) for i in np.unravel_index(first, tuple(values.shape)))
        row = place[0] if len(place) == 1 else tuple(place)
    else:
        row = int(np.searchsorted(sparse.indptr, first, side="right") - 1)
        column = int(sparse.indices[first])
    if not np.isfinite(float(value)):
        what = "NaN" if np.isnan(float(value)) else "infinity"
        raise ValueError(f"Input {name} contains {what} (first at row {row}, column {column}).")
    raise ValueError(
        f"Unknown label type: {name} must hold only 0 and 1, found {value!s} at row {row}, column "
        f"{column}; label sets of numbers are Python sets: [set(row) for row in {name}]"
    )
