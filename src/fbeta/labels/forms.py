"""Labels in every form that users keep them in: one reader, and predictions in the same form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fbeta._array import array_namespace, is_tensor, to_numpy
from fbeta.labels.frames import (
    LIBRARIES,
    FrameColumns,
    as_rows,
    as_table,
    column_type,
    is_table,
    library_of,
    name_key,
    text_type,
    write_column,
    write_table,
)
from fbeta.labels.label_sets import (
    as_sets,
    check_not_delimited,
    holds_sets,
    materialise,
    sets_to_indicator,
    sorted_names,
)
from fbeta.labels.matrices import Indicator, as_array, read_matrix

__all__ = [
    "Indicator",
    "LabelForm",
    "common_indicators",
    "form_of",
    "read_dense",
    "read_labels",
    "read_predictions",
]

Kind = Literal["array", "sparse", "frame", "sets", "single"]
#: Sparse containers by name.
SPARSE = {
    f"{format_}_{kind}": getattr(sp, f"{format_}_{kind}")
    for format_ in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
}


@dataclass(frozen=True)
class LabelForm:
    """The form in which a user keeps labels: read one way, written back the same way.

    Attributes
    ----------
    kind : {"array", "sparse", "frame", "sets", "single"}
        0/1 array, sparse 0/1 matrix, data frame (of pandas, Polars or Arrow), sequence of label
        sets, or a 1-D binary target (one label: present or not).
    classes : ndarray of shape (s,)
        Names of the labels, numbers from 0 for matrices; for ``"single"`` the one or two classes.
    dtype : object
        Of the array, or one per column for a data frame; the type of label sets; the type of a
        column of Polars or Arrow where its rows do not show it; else None.
    container : str
        ``"Series"`` where 1-D labels came as a pandas Series, ``"polars"`` or ``"pyarrow"`` for
        data frames and columns of these, the format of a sparse matrix (``"csr_array"``), else
        empty.
    """

    kind: Kind
    classes: NDArray[Any]
    dtype: Any = None
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
        Y = materialise(Y)
        if self.kind == "single":
            Y = _one_column(Y)
        other, values = _parse(Y, name, self.n_labels if self.kind == "sets" else None)
        return self.match(other, values, name, unseen=unseen, known=known)

    def match(
        self, other: LabelForm, values: Any, name: str, *, unseen: bool = False, known: str = ""
    ) -> Indicator:
        """Return the parsed values of another form, as an indicator with the labels of this one."""
        if "single" in (self.kind, other.kind):
            if self.kind != other.kind:
                raise ValueError(
                    f"{name} is {other}, which does not match {self} ({known}): they must agree"
                )
            return _single_to_indicator(values, self.classes, name, known, unseen)
        if other.kind == "sets":
            unseen = unseen and self.kind == "sets"
            return sets_to_indicator(values, self.classes, name, known, unseen)
        if self.kind != "sets" and not self._by_name(other):
            if other.n_labels != self.n_labels:
                raise ValueError(
                    f"{name} has {other.n_labels} labels, but {self.n_labels} were {known}: they "
                    f"must agree (shape {values.shape})"
                )
            return sp.csr_array(values).astype(np.int8)
        return self._select(other, values, name, unseen and self.kind == "sets", known)

    def _by_name(self, other: LabelForm) -> bool:
        """Return whether the columns of two matrices or data frames are matched by name."""
        if other.kind == "frame" and self.kind == "frame":
            return True
        numbered = all(isinstance(name, int) for name in other.classes.tolist())
        same = set(map(name_key, other.classes)) == set(map(name_key, self.classes))
        return other.kind == "frame" and (same or numbered)

    def _select(
        self, other: LabelForm, values: Any, name: str, unseen: bool, known: str
    ) -> Indicator:
        """Return the columns that have the names of this form, and unseen ones after these."""
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
        columns = [place[name_key(label)] for label in (*self.classes, *unknown)]
        return sp.csr_array(sp.csc_array(values)[:, columns]).astype(np.int8)

    def write(self, predicted: NDArray[np.bool_], index: Any = None) -> Any:
        """Write predictions, booleans of shape (n, s), in this form.

        ``index`` is the pandas Index of the rows, for DataFrame and Series.
        """
        if is_tensor(predicted):
            return self._write_tensor(predicted)
        if self.kind == "array":
            return predicted.astype(np.int8).astype(self.dtype)
        if self.kind == "sparse":
            return SPARSE[self.container](predicted.astype(self.dtype))
        if self.kind == "frame":
            return write_table(self.container, self.classes, self.dtype, predicted, index)
        names, dtype = None, self.dtype
        if self.kind == "sets":
            make, dtype = (dtype, None) if isinstance(dtype, type) else (list, dtype)
            out: Any = [make(self.classes[row].tolist()) for row in predicted]
            names = type(self.classes[0])
        else:
            # with one class seen, it is the class of every row
            out = self.classes[predicted[:, 0] * (len(self.classes) - 1)]
        if not self.container:
            return out
        return write_column(self.container.removeprefix("Series"), out, index, names, dtype)

    def _write_tensor(self, predicted: Any) -> Any:
        """Write predictions of a model on a device: numbers stay there, names do not."""
        xp = array_namespace(predicted)
        if self.kind == "array" and np.dtype(self.dtype).kind in "biuf":
            return xp.astype(predicted, getattr(xp, np.dtype(self.dtype).name))
        out = self.write(to_numpy(predicted))
        numbers = isinstance(out, np.ndarray) and out.dtype.kind in "biuf"
        return xp.asarray(out, device=predicted.device) if numbers else out


def form_of(Y: Any, name: str = "Y") -> LabelForm:
    """Return the form of labels: what they are kept in, and the names of the labels.

    Nested lists of numbers are an indicator matrix; label sets hold strings, or are Python sets.
    """
    return read_labels(Y, name)[0]


def read_labels(Y: Any, name: str = "Y") -> tuple[LabelForm, Indicator]:
    """Return the form of labels, and the labels as a 0/1 CSR matrix of int8, of shape (n, s)."""
    if Y is None:
        raise ValueError(f"{name} is None: requires y to be passed, but the target y is None")
    form, values = _parse(materialise(Y), name)
    if form.kind == "sets" and not len(form.classes):
        raise ValueError(f"{name} names no label: every label set in it is empty")
    return form, form.match(form, values, name)


def read_dense(Y: Any, n_labels: int, name: str) -> NDArray[np.bool_]:
    """Return labels that have no names, in any form that can be matched, as booleans (n, s)."""
    form = LabelForm("array", np.arange(n_labels))
    return np.asarray(form.read(Y, name, known="expected").toarray(), dtype=np.bool_)


def read_predictions(Y: Any, classes: NDArray[Any]) -> Indicator:
    """Read predictions of an estimator with these ``classes_``, as a 0/1 csr_array (n, s)."""
    other, values = _parse(materialise(Y), "the prediction")
    kind: Kind = other.kind if other.kind in ("sets", "single") else "array"
    return LabelForm(kind, classes).match(other, values, "the prediction", known="seen in fit")


def common_indicators(
    Y_true: Any, Y_pred: Any, names: tuple[str, str] = ("Y_true", "Y_pred")
) -> tuple[Indicator, Indicator]:
    """Read two label arrays over the same labels, each as a csr_array of shape (n, s)."""
    both = [_parse(materialise(Y), name) for Y, name in zip((Y_true, Y_pred), names, strict=True)]
    kinds = [form.kind for form, _ in both]
    first = 0
    if kinds == ["sets", "sets"]:
        union = sorted_names(set().union(*both[0][1], *both[1][1]), names[0])
        reference = LabelForm("sets", union)
    elif kinds == ["single", "single"]:
        reference = LabelForm("single", _common_classes(both[0][1], both[1][1], names))
    else:
        first = int(kinds[0] == "sets")  # a matrix has all labels, label sets only some
        reference = both[first][0]
    known = f"in {names[first]}"
    true, pred = (
        reference.match(form, values, name, known=known)
        for (form, values), name in zip(both, names, strict=True)
    )
    if true.shape != pred.shape:
        raise ValueError(
            f"{names[0]} has shape {true.shape} and {names[1]} has shape {pred.shape}: "
            "they must agree"
        )
    return true, pred


def _parse(Y: Any, name: str, fitted_labels: int | None = None) -> tuple[LabelForm, Any]:
    """Return the form of labels, and their values as they are.

    That is a list of Python sets, a 1-D array of classes, or a 0/1 matrix: see ``read_matrix``.
    """
    if sp.issparse(Y):
        container = f"{Y.format}_{'array' if isinstance(Y, sp.sparray) else 'matrix'}"
        form = LabelForm("sparse", np.arange(Y.shape[1]), Y.dtype, container)
        return form, read_matrix(Y, name)
    if is_table(Y):
        table = as_table(Y, name)
        _check_cells(table, name)
        form = LabelForm("frame", table.names, table.dtypes, table.library)
        return form, read_matrix(table.values, name)
    container = "Series" if hasattr(Y, "iloc") else library_of(Y)
    if holds_sets(Y, name, fitted_labels):
        return _parse_sets(Y, name, container)
    array = as_array(as_rows(Y), name)
    if array.ndim == 1:
        if fitted_labels is None:
            classes = _binary_classes(array, name)
        else:  # refused by a message that names both
            classes = np.array(list(dict.fromkeys(array.tolist())), dtype=object)
        return LabelForm("single", classes, column_type(Y), container), array
    matrix = read_matrix(array, name)
    dtype = array.dtype if array.dtype.kind != "O" else text_type(array, np.float64)
    return LabelForm("array", np.arange(array.shape[1]), dtype), matrix


def _parse_sets(Y: Any, name: str, container: str) -> tuple[LabelForm, list[set[Any]]]:
    """Return the names in label sets with the type of the sets, and the sets."""
    rows, sets = list(as_rows(Y)), as_sets(Y, name)
    names = set().union(*sets)
    if names and names <= {"0", "1"} and any(len(row) > len(set(row)) for row in rows):
        raise ValueError(f"{name} is a 0/1 matrix of strings ('0' and '1'): convert it to numbers")
    kind = type(rows[0]) if type(rows[0]) in (set, frozenset, tuple) else list
    form = LabelForm("sets", sorted_names(names, name), column_type(Y) or kind, container)
    return form, sets


def _one_column(Y: Any) -> Any:
    """Return the column of a matrix, data frame or nested list that has only one."""
    values = as_table(Y, "y").values if is_table(Y) else Y.toarray() if sp.issparse(Y) else Y
    if isinstance(values, np.ndarray):
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else Y
    nested = isinstance(Y, list | tuple) and Y
    one = nested and all(isinstance(row, list | tuple) and len(row) == 1 for row in Y)
    return [row[0] for row in Y] if one else Y


def _single_to_indicator(
    y: NDArray[Any], classes: NDArray[Any], name: str, known: str, unseen: bool = False
) -> Indicator:
    # compared as Python objects: NumPy would take the number 1 for the string "1"
    unknown = sorted(set(y.tolist()) - set(classes.tolist()), key=str)
    if unknown and not (unseen and len(classes) == 1):
        raise ValueError(f"{name} has classes that were not {known}: {unknown}")
    columns = [y == classes[-1], *(y == other for other in unknown)]
    return sp.csr_array(np.stack(columns, axis=1).astype(np.int8))


def _common_classes(true: NDArray[Any], pred: NDArray[Any], names: tuple[str, str]) -> NDArray[Any]:
    """Return the classes of two 1-D targets, which are numbers or strings in both."""
    if (true.dtype.kind in "biuf") != (pred.dtype.kind in "biuf"):
        raise ValueError(
            f"the classes of {names[0]} and {names[1]} are of several types: "
            f"{true.dtype} and {pred.dtype}"
        )
    return _binary_classes(np.concatenate([true, pred]), names[0])


def _binary_classes(y: NDArray[Any], name: str) -> NDArray[Any]:
    if len(y) == 0:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        what = "NaN" if np.isnan(y).any() else "infinity"
        raise ValueError(f"Input {name} contains {what} (at {int(np.argmin(np.isfinite(y)))}).")
    check_not_delimited(y, name)
    check_classification_targets(y)
    classes: NDArray[Any] = np.unique(y)
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y)}: for sets of labels in {name} pass a 0/1 matrix or a sequence of "
            "sets"
        )
    return classes


def _check_cells(table: FrameColumns, name: str) -> None:
    """Refuse a data frame with a column that holds whole label sets, with the right words."""
    if table.values.dtype.kind != "O" or not len(table.values):
        return
    for label, cell in zip(table.names, table.values[0], strict=True):
        if np.ndim(cell) or isinstance(cell, (list, tuple, set, frozenset)):
            raise ValueError(
                f"the column {label!r} of {name} holds label sets, not 0 and 1: pass the column "
                f"alone, {name}[{label!r}]"
            )
