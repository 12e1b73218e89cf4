"""Label sets in every form that people keep them in, and back again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fbeta._array import array_namespace, is_tensor, optional_import, to_numpy

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
        0/1 array, sparse 0/1 matrix, DataFrame, sequence of label sets, or a 1-D binary target
        (one label: present or not).
    classes : ndarray of shape (s,)
        Names of the labels; for ``"single"`` the one or two classes.
    dtype : object
        Of the array, or one per column for a DataFrame; the type of label sets; else None.
    container : str
        ``"Series"`` where 1-D labels came as a pandas Series, the format of a sparse matrix
        (``"csr_array"``), else empty.
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
        if self.container not in ("", "Series", *SPARSE):
            raise ValueError(f"there are no labels in a {self.container!r}")

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return 1 if self.kind == "single" else len(self.classes)

    def read(self, Y: Any, name: str = "Y") -> Indicator:
        """Read labels of this form and with these label names.

        Parameters
        ----------
        Y : labels
            In any form; names and number of labels have to agree with this one.
        name : str
            What to call ``Y`` in messages.

        Returns
        -------
        csr_array of shape (n, s)
            0/1 indicator, int8.
        """
        Y = to_numpy(Y) if is_tensor(Y) else Y
        if self.kind == "sets":
            return _sets_to_indicator(_as_sets(Y, name), self.classes, name)
        if self.kind == "single":
            return _single_to_indicator(np.asarray(Y).ravel(), self.classes, name)
        if self.kind == "frame" and _is_frame(Y):
            _check_same_columns(Y, self.classes, name)
            Y = Y[list(self.classes)]
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
            pandas = optional_import("pandas", "pandas", "labels in a DataFrame")
            frame = pandas.DataFrame(predicted.astype(np.int8), columns=self.classes, index=index)
            return frame.astype(dict(zip(self.classes, self.dtype, strict=True)))
        if self.kind == "sets":
            out: Any = [self.dtype(self.classes[row].tolist()) for row in predicted]
        else:
            # with one class seen, it is the class of every row
            out = self.classes[predicted[:, 0] * (len(self.classes) - 1)]
        if self.container == "Series":
            pandas = optional_import("pandas", "pandas", "labels in a Series")
            return pandas.Series(out, index=index, name=None)
        return out

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
    if _is_frame(Y):
        return LabelForm("frame", np.asarray(Y.columns), tuple(Y.dtypes))
    series = "Series" if hasattr(Y, "iloc") else ""
    if _holds_sets(Y):
        sets = _as_sets(Y, name)
        names = set().union(*sets)
        if names <= {"0", "1"} and any(len(row) > len(set(row)) for row in Y):
            raise ValueError(
                f"{name} is a 0/1 matrix of strings ('0' and '1'): convert it to numbers"
            )
        if not names:
            raise ValueError(f"{name} names no label: every label set in it is empty")
        kind_ = type(next(iter(Y)))
        type_ = kind_ if kind_ in (set, frozenset, tuple) else list
        return LabelForm("sets", _sorted_names(names, name), type_, series)
    array = _as_array(Y, name)
    if array.ndim == 1:
        return LabelForm("single", _binary_classes(array, name), container=series)
    if array.dtype.kind in "USO":
        _to_indicator(array, name)
        array = array.astype(np.float64)
    return LabelForm("array", np.arange(array.shape[1]), array.dtype)


def read_predictions(Y: Any, classes: NDArray[Any]) -> Indicator:
    """Read what an estimator with these ``classes_`` predicted, as a 0/1 csr_array (n, s).

    Examples
    --------
    >>> read_predictions([["sea"], []], np.array(["sea", "sky"])).toarray().tolist()
    [[1, 0], [0, 0]]
    """
    kind: Kind = "sets"
    if not _holds_sets(Y):
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
    Y_true, Y_pred = (to_numpy(Y) if is_tensor(Y) else Y for Y in (Y_true, Y_pred))
    if _holds_sets(Y_true) or _holds_sets(Y_pred):
        pair = [_as_sets(Y, name) for Y, name in zip((Y_true, Y_pred), names, strict=True)]
        union = _sorted_names(set().union(*pair[0], *pair[1]), names[0])
        true, pred = (_sets_to_indicator(Y, union, n) for Y, n in zip(pair, names, strict=True))
    elif _is_one_dimensional(Y_true) and _is_one_dimensional(Y_pred):
        both = np.concatenate([np.asarray(Y_true), np.asarray(Y_pred)])
        classes = _binary_classes(both, names[0])
        true, pred = (
            _single_to_indicator(np.asarray(Y), classes, n)
            for Y, n in zip((Y_true, Y_pred), names, strict=True)
        )
    else:
        if _is_frame(Y_true) and _is_frame(Y_pred):
            _check_same_columns(Y_pred, np.asarray(Y_true.columns), names[1])
            Y_pred = Y_pred[list(Y_true.columns)]
        true, pred = _to_indicator(Y_true, names[0]), _to_indicator(Y_pred, names[1])
    if true.shape != pred.shape:
        raise ValueError(
            f"{names[0]} has shape {true.shape} and {names[1]} has shape {pred.shape}: "
            "they must agree"
        )
    return true, pred


def _is_frame(Y: Any) -> bool:
    return hasattr(Y, "iloc") and hasattr(Y, "columns")


def _is_one_dimensional(Y: Any) -> bool:
    return not sp.issparse(Y) and not _is_frame(Y) and np.ndim(Y) == 1


def _holds_sets(Y: Any) -> bool:
    """Tell label sets from an indicator: a Python set, or a nested sequence with a string."""
    if sp.issparse(Y) or _is_frame(Y) or isinstance(Y, (str, bytes)):
        return False
    if isinstance(Y, np.ndarray) and (Y.ndim != 1 or Y.dtype.kind != "O"):
        return False
    if not isinstance(Y, Iterable):
        return False
    rows = list(Y)
    nested = [row for row in rows if isinstance(row, (set, frozenset, list, tuple, np.ndarray))]
    if len(nested) != len(rows) or not rows:
        return False
    if any(isinstance(row, (set, frozenset)) for row in rows):
        return True
    return any(isinstance(name, str) for row in rows for name in row) or not any(map(len, rows))


def _as_sets(Y: Any, name: str) -> list[set[Any]]:
    try:
        rows = [{row} if isinstance(row, str) else set(row) for row in Y]
    except TypeError as error:
        raise ValueError(f"{name} is not a sequence of label sets: {error}") from error
    if not rows:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    return rows


def _sorted_names(names: set[Any], name: str) -> NDArray[Any]:
    kinds = sorted({type(n).__name__ for n in names})
    if len(kinds) > 1:
        raise ValueError(f"the label names in {name} are of several types: {', '.join(kinds)}")
    ordered = np.empty(len(names), dtype=object)
    ordered[:] = sorted(names)
    return ordered


def _sets_to_indicator(rows: list[set[Any]], classes: NDArray[Any], name: str) -> Indicator:
    unknown = sorted(map(str, set().union(*rows) - set(classes.tolist())))
    if unknown:
        raise ValueError(f"{name} has label names that were not seen in fit: {unknown}")
    binarizer = MultiLabelBinarizer(classes=classes, sparse_output=True)
    return sp.csr_array(binarizer.fit_transform(rows)).astype(np.int8)


def _single_to_indicator(y: NDArray[Any], classes: NDArray[Any], name: str) -> Indicator:
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"{name} has classes that were not seen in fit: {unknown.tolist()}")
    return sp.csr_array((y == classes[-1]).astype(np.int8)[:, None])


def _binary_classes(y: NDArray[Any], name: str) -> NDArray[Any]:
    if len(y) == 0:
        raise ValueError(f"{name} has no rows: at least one sample is required")
    _check_finite(y, name)
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
        f"found {values.ravel()[first]!s} at row {row}, column {column}"
    )


def _check_same_columns(Y: Any, classes: NDArray[Any], name: str) -> None:
    missing = [c for c in classes if c not in Y.columns]
    unknown = [c for c in Y.columns if c not in set(classes)]
    if missing or unknown:
        raise ValueError(
            f"the label columns of {name} differ from those seen in fit: "
            f"missing {missing}, unknown {unknown}"
        )
