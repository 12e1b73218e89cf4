"""Label sets in every form that people keep them in, and back again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fbeta._array import array_namespace, is_tensor, to_numpy
from fbeta.labels.frames import (
    LIBRARIES,
    Table,
    as_rows,
    as_table,
    is_table,
    library_of,
    write_column,
    write_table,
)
from fbeta.labels.label_sets import (
    as_sets,
    check_not_delimited,
    holds_sets,
    sets_to_indicator,
    sorted_names,
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
    """The form in which a user keeps labels: read one way, written back the same way.

    Attributes
    ----------
    kind : {"array", "sparse", "frame", "sets", "single"}
        0/1 array, sparse 0/1 matrix, table (of pandas, Polars or Arrow), sequence of label sets, or
        a 1-D binary target (one label: present or not).
    classes : ndarray of shape (s,)
        Names of the labels; for ``"single"`` the one or two classes.
    dtype : object
        Of the array, or one per column for a table; the type of label sets; else None.
    container : str
        ``"Series"`` where 1-D labels came as a pandas Series, ``"polars"`` or ``"pyarrow"`` for
        tables and columns of these, the format of a sparse matrix (``"csr_array"``), else empty.
    """

    kind: Kind
    classes: NDArray[Any]
    dtype: Any = None
    container: str = ""

    def __post_init__(self) -> None:
        # a form may come from a file of anybody: nothing in it is a name to be looked up
        dtypes = self.dtype if isinstance(self.dtype, tuple) else (self.dtype,)
        if self.kind not in get_args(Kind) or any(isinstance(dtype, str) for dtype in dtypes):
            raise ValueError(f"there is no form of labels {self.kind!r} of {self.dtype!r}")
        if self.container not in ("", "Series", *LIBRARIES, *SPARSE):
            raise ValueError(f"there are no labels in a {self.container!r}")

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return 1 if self.kind == "single" else len(self.classes)

    def read(self, Y: Any, name: str = "Y", *, unseen: bool = False) -> Indicator:
        """Read labels of this form and with these label names.

        Parameters
        ----------
        Y : labels
            In any form; names and number of labels have to agree with this one.
        name : str
            What to call ``Y`` in messages.
        unseen : bool
            Whether label sets, and a 1-D target with one known class, may have labels of other
            names. These have columns of their own, after those of the known ones.

        Returns
        -------
        csr_array of shape (n, s), or wider
            0/1 indicator, int8.
        """
        Y = to_numpy(Y) if is_tensor(Y) else Y
        if self.kind == "sets":
            return sets_to_indicator(as_sets(Y, name), self.classes, name, unseen)
        if self.kind == "single":
            y = np.asarray(as_rows(Y)).ravel()
            return _single_to_indicator(y, self.classes, name, unseen)
        if is_table(Y):
            table = as_table(Y, name)
            if self.kind == "frame":
                _check_same_columns(table, self.classes, name)
                table = table.select(self.classes)
            _check_cells(table, name)
            Y = table.values
        indicator = _to_indicator(Y, name)
        if indicator.shape[1] != self.n_labels:
            raise ValueError(
                f"{name} has {indicator.shape[1]} labels, but {self.n_labels} were seen in fit"
            )
        return indicator

    def write(self, predicted: NDArray[np.bool_], index: Any = None) -> Any:
        """Write predictions in this form.

        Parameters
        ----------
        predicted : bool ndarray of shape (n, s)
            Predicted label sets.
        index : pandas Index, optional
            Of the rows, for DataFrame and Series.

        Returns
        -------
        object
            ``n`` label sets in the form of the labels that were read.
        """
        if is_tensor(predicted):
            return self._write_tensor(predicted)
        if self.kind == "array":
            return predicted.astype(self.dtype)
        if self.kind == "sparse":
            return SPARSE[self.container](predicted.astype(self.dtype))
        if self.kind == "frame":
            return write_table(self.container, self.classes, self.dtype, predicted, index)
        names = None
        if self.kind == "sets":
            out: Any = [self.dtype(self.classes[row].tolist()) for row in predicted]
            names = type(self.classes[0])
        else:
            # with one class seen, it is the class of every row
            out = self.classes[predicted[:, 0] * (len(self.classes) - 1)]
        if not self.container:
            return out
        return write_column(self.container.removeprefix("Series"), out, index, names)

    def _write_tensor(self, predicted: Any) -> Any:
        """Write predictions of a model on a device: numbers stay there, names do not."""
        xp = array_namespace(predicted)
        if self.kind == "array":
            return xp.astype(predicted, getattr(xp, np.dtype(self.dtype).name))
        out = self.write(to_numpy(predicted))
        numbers = isinstance(out, np.ndarray) and out.dtype.kind in "biuf"
        return xp.asarray(out, device=predicted.device) if numbers else out


def form_of(Y: Any, name: str = "Y") -> LabelForm:
    """Find the form of labels: what they are kept in, and the names of the labels.

    Parameters
    ----------
    Y : array, sparse matrix, DataFrame, sequence of label sets, or 1-D binary target
        Nested lists of numbers are an indicator matrix; label sets hold strings, or are Python
        sets.
    name : str
        What to call ``Y`` in messages.

    Returns
    -------
    LabelForm

    Examples
    --------
    >>> form = form_of([["sky", "sea"], [], ["sea"]])
    >>> form.classes.tolist(), form.read([["sea"], []]).toarray().tolist()
    (['sea', 'sky'], [[1, 0], [0, 0]])
    """
    if Y is None:
        raise ValueError(f"{name} is None: requires y to be passed, but the target y is None")
    Y = to_numpy(Y) if is_tensor(Y) else Y
    if sp.issparse(Y):
        kind = "array" if isinstance(Y, sp.sparray) else "matrix"
        return LabelForm("sparse", np.arange(Y.shape[1]), Y.dtype, f"{Y.format}_{kind}")
    if is_table(Y):
        table = as_table(Y, name)
        return LabelForm("frame", table.names, table.dtypes, table.library)
    container = "Series" if hasattr(Y, "iloc") else library_of(Y)
    if holds_sets(Y, name):
        return _form_of_sets(Y, name, container)
    array = _as_array(as_rows(Y), name)
    if array.ndim == 1:
        return LabelForm("single", _binary_classes(array, name), container=container)
    if array.dtype.kind in "USO":
        _to_indicator(array, name)
        array = array.astype(np.float64)
    return LabelForm("array", np.arange(array.shape[1]), array.dtype)


def _form_of_sets(Y: Any, name: str, container: str) -> LabelForm:
    """Find the names in label sets, and the type of the sets."""
    names = set().union(*as_sets(Y, name))
    first = next(iter(as_rows(Y)))
    if names <= {"0", "1"} and any(len(row) > len(set(row)) for row in as_rows(Y)):
        raise ValueError(f"{name} is a 0/1 matrix of strings ('0' and '1'): convert it to numbers")
    if not names:
        raise ValueError(f"{name} names no label: every label set in it is empty")
    kind = type(first) if type(first) in (set, frozenset, tuple) else list
    return LabelForm("sets", sorted_names(names, name), kind, container)


def read_predictions(Y: Any, classes: NDArray[Any]) -> Indicator:
    """Read what an estimator with these ``classes_`` predicted, as a 0/1 csr_array (n, s).

    Examples
    --------
    >>> read_predictions([["sea"], []], np.array(["sea", "sky"])).toarray().tolist()
    [[1, 0], [0, 0]]
    """
    kind: Kind = "sets"
    if not holds_sets(Y, "the prediction"):
        kind = "single" if _is_one_dimensional(Y) else "array"
    return LabelForm(kind, classes).read(Y, "the prediction")


def common_indicators(
    Y_true: Any, Y_pred: Any, names: tuple[str, str] = ("Y_true", "Y_pred")
) -> tuple[Indicator, Indicator]:
    """Read two label arrays over the same labels, as a metric needs them.

    Parameters
    ----------
    Y_true, Y_pred : labels
        Two arrays with n rows each, in forms that agree.
    names : pair of str
        What to call them in messages.

    Returns
    -------
    pair of csr_array of shape (n, s)
    """
    both = [
        (to_numpy(Y) if is_tensor(Y) else Y, name)
        for Y, name in zip((Y_true, Y_pred), names, strict=True)
    ]
    if any(holds_sets(*pair) for pair in both):
        sets = [as_sets(*pair) for pair in both]
        union = sorted_names(set().union(*sets[0], *sets[1]), names[0])
        true, pred = (sets_to_indicator(Y, union, "") for Y in sets)
    elif all(_is_one_dimensional(Y) for Y, _ in both):
        columns = [np.asarray(as_rows(Y)) for Y, _ in both]
        classes = _binary_classes(np.concatenate(columns), names[0])
        true, pred = (_single_to_indicator(y, classes, "") for y in columns)
    else:
        tables: list[Any] = [as_table(*pair) if is_table(pair[0]) else pair[0] for pair in both]
        if all(isinstance(table, Table) for table in tables):
            _check_same_columns(tables[1], tables[0].names, names[1])
            tables[1] = tables[1].select(tables[0].names)
        matrices = (t.values if isinstance(t, Table) else t for t in tables)
        true, pred = (_to_indicator(Y, name) for Y, name in zip(matrices, names, strict=True))
    if true.shape != pred.shape:
        raise ValueError(
            f"{names[0]} has shape {true.shape} and {names[1]} has shape {pred.shape}: "
            "they must agree"
        )
    return true, pred


def _is_one_dimensional(Y: Any) -> bool:
    return not sp.issparse(Y) and not is_table(Y) and np.ndim(as_rows(Y)) == 1


def _single_to_indicator(
    y: NDArray[Any], classes: NDArray[Any], name: str, unseen: bool = False
) -> Indicator:
    unknown = np.setdiff1d(y, classes)
    if len(unknown) and not (unseen and len(classes) == 1):
        raise ValueError(f"{name} has classes that were not seen in fit: {unknown.tolist()}")
    columns = [y == classes[-1], *(y == other for other in unknown)]
    return sp.csr_array(np.stack(columns, axis=1).astype(np.int8))


def _binary_classes(y: NDArray[Any], name: str) -> NDArray[Any]:
    if len(y) == 0:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    _check_finite(y, name)
    check_not_delimited(y, name)
    check_classification_targets(y)
    classes: NDArray[Any] = np.unique(y)
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y)}: for sets of labels pass a 0/1 matrix or a sequence of sets"
        )
    return classes


def _as_array(Y: Any, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(Y)
    except ValueError as error:
        raise ValueError(f"{name} is neither a 0/1 matrix nor a sequence of label sets") from error
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have two dimensions (rows, labels), got {array.ndim}")
    return array


def _check_finite(array: NDArray[Any], name: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        what = "NaN" if np.isnan(array[where]) else "infinity"
        raise ValueError(f"Input {name} contains {what} (first at {where}).")


def _to_indicator(Y: Any, name: str) -> Indicator:
    """Check that a matrix holds only 0 and 1 and return it as CSR."""
    if sp.issparse(Y):
        indicator = sp.csr_array(Y, copy=True)
        indicator.sum_duplicates()
        values = indicator.data
    else:
        array = _as_array(Y, name)
        if array.ndim == 1:
            raise ValueError(f"{name} must have two dimensions (rows, labels), got 1")
        if array.dtype.kind not in "biuf":
            try:
                array = array.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"Unknown label type: {name} must hold 0 and 1: {error}"
                ) from error
        _check_finite(array, name)
        values, indicator = array, None
    if min(Y.shape if indicator is not None else array.shape) == 0:
        shape = indicator.shape if indicator is not None else array.shape
        what = "rows" if shape[0] == 0 else "labels"
        raise ValueError(f"{name} has no {what} (shape {shape}): at least one is required")
    bad = (values != 0) & (values != 1)
    if bad.any():
        _raise_not_binary(indicator, values, bad, name)
    if indicator is None:
        indicator = sp.csr_array(array)
    indicator.eliminate_zeros()
    return indicator.astype(np.int8)


def _raise_not_binary(
    indicator: Indicator | None, values: NDArray[Any], bad: NDArray[np.bool_], name: str
) -> None:
    first = int(np.flatnonzero(bad)[0])
    if indicator is None:
        row, column = (int(i) for i in np.unravel_index(first, values.shape))
    else:
        row = int(np.searchsorted(indicator.indptr, first, side="right") - 1)
        column = int(indicator.indices[first])
    raise ValueError(
        f"Unknown label type: {name} must hold only 0 and 1, "
        f"found {values.ravel()[first]!s} at row {row}, column {column}; label sets of numbers are "
        f"Python sets: [set(row) for row in {name}]"
    )


def _check_same_columns(table: Table, classes: NDArray[Any], name: str) -> None:
    missing = [c for c in classes if c not in set(table.names)]
    unknown = [c for c in table.names if c not in set(classes)]
    if missing or unknown:
        raise ValueError(
            f"the label columns of {name} differ from those seen in fit: "
            f"missing {missing}, unknown {unknown}"
        )


def _check_cells(table: Table, name: str) -> None:
    """Refuse a table with a column that holds whole label sets, with the right words."""
    if table.values.dtype.kind != "O" or not len(table.values):
        return
    for label, cell in zip(table.names, table.values[0], strict=True):
        if np.ndim(cell) or isinstance(cell, (list, tuple, set, frozenset)):
            raise ValueError(
                f"the column {label!r} of {name} holds label sets, not 0 and 1: pass the column "
                f"alone, {name}[{label!r}]"
            )
