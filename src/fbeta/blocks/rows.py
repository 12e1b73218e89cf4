"""Rows in blocks that are read again and again, ahead of what is done with them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _num_samples

from fbeta._array import check_unmasked
from fbeta.labels.containers import column_names, column_order, is_table, sorted_names
from fbeta.labels.forms import LabelForm, form_of

Item = TypeVar("Item")
#: X, Y and weight of some rows; Y and weight may be None.
Arrays: TypeAlias = tuple[Any, Any, Any]
#: Rows that are read together, such as a file: what they are called in messages, and a function
#: from a number of rows to arrays of at most as many, in order.
Part: TypeAlias = tuple[str, Callable[[int], Iterator[Arrays]]]

MEMORY = 1 << 30  # bytes that a fit may use, besides the interpreter's own and the model
BLOCK_BYTES = 1 << 24  # of X in a block at most: more would save nothing
MAX_IN_FLIGHT = 24  # blocks of that kind that would fill the memory
MAX_AHEAD = 2  # blocks that wait to be used
_SPARSE_ARRAYS = ("data", "indices", "indptr")
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def parse_memory(memory: int | str) -> int:
    """Return a number of bytes, from a number or from text such as ``"1.5GB"``."""
    try:
        text = str(memory).strip().lower().removesuffix("b").removesuffix("i")
        unit = _UNITS.get(text[-1:], 0)
        number = float(text[:-1] if unit else text) * (1 << unit)
        if not 1 <= number < 2**63:
            raise ValueError
    except ValueError:
        raise ValueError(f"memory must be a size such as 2GB or 500MB, got {memory!r}") from None
    return int(number)


@dataclass(frozen=True)
class Block:
    """Rows as they were read: rows ``start``, ... of a part, with labels where there are any."""

    part: str
    start: int
    X: Any
    Y: Any = None
    weight: Any = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def place(self, row: int) -> str:
        """Return what to call a row in a message."""
        return f"{self.part}, row {self.start + row}"


class RowBlocks:
    """Labelled rows that need not fit into memory.

    Estimators are fitted to them in place of X and y: ``clf.fit(RowBlocks(...))``. Each pass reads
    all blocks again, on a thread of its own that is ahead of what is done with them, and checks
    them. Where all rows fit into ``memory`` they are read once, and the fit is that of arrays.

    Parameters
    ----------
    source : array, sparse matrix, path, or iterable or callable of blocks
        X, with its labels in ``y``, for example an ``np.memmap``; blocks ``(X, Y)`` or
        ``(X, Y, weight)`` in a container that can be iterated again and again, or a function that
        returns an iterator of them. For files see :meth:`read`.
    y : labels, optional
        Of the rows of an array, in any form that estimators take; None where there are none, or
        the blocks have them.
    sample_weight : array of shape (n,), optional
        Weights of the rows of an array.
    classes : sequence, optional
        Names of the labels, where blocks hold label sets: without them a pass is made to find them.
    memory : int or str
        Bytes that a fit may use besides the interpreter's own and the model, such as ``"4GB"``.
    rows : int, optional
        Rows of a block that is cut from an array or a file; by default what suits the memory.
    checkpoint : path, optional
        File to which a fit writes its state after each pass, and from which a fit that was killed
        goes on. It is removed at the end.
    progress : callable, optional
        Called with a dict after each block: ``"passes"``, ``"rows"`` of this pass, ``"n_rows"`` (of
        a pass, None in the first), ``"open"`` problems.

    Attributes
    ----------
    passes : int
        How often all rows were read.
    bytes_read : int
        The size of what was read, as arrays.
    n_rows, n_features : int or None
        Known after the first pass.
    feature_names, label_names : ndarray or None
        Names of the columns of features and of 0/1 labels, of files that have them.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> Y = np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
    >>> blocks = RowBlocks([(X[:3], Y[:3]), (X[3:], Y[3:])])
    >>> FBetaClassifier(alpha=0.1).fit(blocks).predict([[0.5], [2.5]]).tolist()
    [[1, 0], [1, 1]]
    >>> blocks.passes, blocks.n_rows
    (1, 4)
    """

    def __init__(
        self,
        source: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        classes: Sequence[Any] | None = None,
        memory: int | str = MEMORY,
        rows: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.memory, self.rows = parse_memory(memory), rows
        self.classes, self.checkpoint, self.progress = classes, checkpoint, progress
        self.passes, self.bytes_read = 0, 0
        self.n_rows: int | None = None
        self.n_features: int | None = None
        self.feature_names: NDArray[Any] | None = None
        self.label_names: NDArray[Any] | None = None
        self._form: LabelForm | None = None
        self._parts = _parts_of(source, y, sample_weight)

    @classmethod
    def read(cls, path: Any, **options: Any) -> RowBlocks:
        """Read the files of a folder, or one file.

        Parameters
        ----------
        path : path, or sequence of paths
            A folder of Parquet, CSV, JSON Lines, Excel or SVMlight files, or of pairs ``X*.npy``
            and ``Y*.npy`` (or ``.npz`` as SciPy saves sparse matrices), with ``weight*.npy`` where
            rows have weights, of one format and taken in the order of their names; or such files.
        **options
            Those of :class:`RowBlocks`. For tables ``labels``, ``label_prefix`` or ``label_column``
            with a ``delimiter``, as in :func:`fbeta.datasets.read_table`, but blank labels need
            ``blank_labels=True``, and names such as ``NA``, elsewhere missing values, need
            ``gap_labels``; the ``features`` to be read, by default all other columns of the first
            file but those to ``drop``; a fitted ``encoder`` of columns that are no numbers; and
            ``sep`` and ``encoding``. Columns are matched by name. For SVMlight files
            ``n_features``, ``zero_based`` (false by default) and ``label_names``: numbers as text.

        Returns
        -------
        RowBlocks

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "X-0.npy"), np.eye(3))
        ...     np.save(Path(folder, "Y-0.npy"), np.ones((3, 2), np.int8))
        ...     [(X.shape, Y.shape) for X, Y in RowBlocks.read(folder, rows=2)]
        [((2, 3), (2, 2)), ((1, 3), (1, 2))]
        """
        from fbeta.blocks.files import open_files  # not at the top: it loads fbeta.datasets

        own = {k: options.pop(k) for k in list(options) if k in _SETTINGS}
        parts, described = open_files(path, **options)
        blocks = cls((), **{"classes": described.get("classes"), **own})
        blocks._parts = lambda: parts
        blocks.feature_names = described.get("feature_names")
        blocks.label_names = described.get("label_names")
        return blocks

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for block in self.blocks():
            values = (block.X, block.Y, block.weight)
            yield tuple(v for v in values if v is not None)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks, in the same order each time, and count the pass."""
        count = 0
        for block in read_ahead(self._blocks(), MAX_AHEAD):
            for values in (block.X, block.Y, block.weight):
                names = _SPARSE_ARRAYS if sp.issparse(values) else ()
                parts = [getattr(values, name, None) for name in names] or [values]
                self.bytes_read += sum(int(getattr(part, "nbytes", 0)) for part in parts)
            count += len(block)
            yield block
        if self.n_rows is not None and count != self.n_rows:
            raise ValueError(
                f"a pass found {count} rows where there were {self.n_rows} before: the blocks must "
                "be the same each time they are read (a generator can be read only once)"
            )
        if not count:
            raise ValueError("there are no rows: at least one is required")
        self.passes, self.n_rows = self.passes + 1, count

    def _blocks(self) -> Iterator[Block]:
        for name, read in self._parts():
            start, n_features = 0, 100 if self.n_features is None else max(1, self.n_features)
            rows = min(BLOCK_BYTES, self.memory // MAX_IN_FLIGHT) // (8 * n_features)
            rows = max(16, rows) if self.rows is None else max(1, int(self.rows))
            for X, Y, weight in read(rows):
                block = Block(name, start, self._by_name(X, name), Y, weight)
                start += len(block)
                if len(block):
                    yield block

    def _by_name(self, X: Any, part: str) -> Any:
        """Return a data frame with its columns in the order of the first one, by their names."""
        names = column_names(X, part) if is_table(X) else [0]
        if not all(isinstance(name, str) for name in names):
            return X
        if self.feature_names is None:
            self.feature_names = _names(names)
        own = list(self.feature_names)
        if column_order(names, own, part, "the first block") is None:
            return X
        return X[own] if hasattr(X, "iloc") else X.select(own)

    def label_form(self) -> LabelForm:
        """Return the form of the labels; label sets and 1-D targets may need a pass to find it."""
        if self._form is not None:
            return self._form
        first = next(self._blocks(), None)
        if first is None:
            raise ValueError("there are no rows: at least one is required")
        if first.Y is None:
            raise ValueError("the blocks have no labels: requires y to be passed")
        if self.n_features is None and len(np.shape(first.X)) == 2:
            self.n_features = int(first.X.shape[1])  # from now on blocks have the same rows
        found = form_of_block(first)
        if found.kind in ("sets", "single") and self.classes is not None:
            found = replace(found, classes=_names(self.classes))
        elif found.kind in ("sets", "single"):
            found = joint_form(found, map(form_of_block, self.blocks()))
        self._form = found
        return found


_SETTINGS = ("classes", "memory", "rows", "checkpoint", "progress")


def _names(names: Sequence[Any]) -> NDArray[Any]:
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return out


def form_of_block(block: Block) -> LabelForm:
    """Return the form of the labels of a block, without names if all its label sets are empty."""
    try:
        return form_of(block.Y, "y")
    except ValueError as error:
        if "names no label" in str(error):
            return LabelForm("sets", _names([]), type(next(iter(block.Y))))
        raise ValueError(f"{block.part}: {error}") from error


def joint_form(first: LabelForm, forms: Iterable[LabelForm]) -> LabelForm:
    """Return the form of all label sets or 1-D targets; other forms are checked in a pass."""
    alike = ("sets", "frame") if first.kind == "sets" else ("single",)
    names = {name for form in forms if form.kind in alike for name in form.classes.tolist()}
    ordered = sorted_names(names, "y").tolist() if str in map(type, names) else sorted(names)
    if first.kind == "single":
        return replace(form_of(np.array(ordered), "y"), container=first.container)
    if not names:
        raise ValueError("y names no label: every label set in it is empty")
    return replace(first, classes=_names(ordered))


def _parts_of(source: Any, y: Any, weight: Any) -> Callable[[], Iterable[Part]]:
    """Return what makes the parts of a pass."""
    if isinstance(source, str | PathLike):
        raise TypeError(f"files are read by RowBlocks.read({str(source)!r}, ...)")
    if getattr(source, "ndim", 0) == 2 or sp.issparse(source) or is_table(source):
        return lambda: [("X", partial(_slices, source, y, weight))]
    if y is not None or weight is not None:
        raise TypeError("y and sample_weight go with an array; blocks hold their own labels")
    if isinstance(source, Iterator):
        raise TypeError(
            "a generator can be read only once: pass a list of blocks, or the function that makes "
            "the generator"
        )
    return lambda: _own_blocks(source() if callable(source) else source)


def _own_blocks(blocks: Iterable[Any]) -> Iterator[Part]:
    for number, block in enumerate(blocks):
        parts = block if isinstance(block, tuple) else (block,)
        if not 1 <= len(parts) <= 3:
            raise ValueError(f"block {number}: expected (X, Y) or (X, Y, weight)")
        X, Y, weight = (*parts, None, None)[:3]
        X = X if hasattr(X, "shape") else np.asarray(X)
        yield f"block {number}", partial(_slices, X, Y, weight, whole=True)


def _slices(X: Any, Y: Any, weight: Any, rows: int, whole: bool = False) -> Iterator[Arrays]:
    """Cut arrays into blocks of some rows, or check them as one block."""
    n = X.shape[0]
    for name, values in (("y", Y), ("sample_weight", weight), ("X", X)):
        check_unmasked(name, values)
        length = n if values is None else _num_samples(values)
        if length != n:
            raise ValueError(f"X has {n} rows and {name} has {length}")
    rows = max(1, n) if whole else rows
    for start in range(0, n, rows):
        part = slice(start, min(start + rows, n))
        own = None if weight is None else np.asarray(weight[part])
        yield _cut(X, part, n), _cut(Y, part, n), own


def _cut(values: Any, part: slice, n: int) -> Any:
    """Return some of n rows; those of a memory map are read, on the thread that reads ahead."""
    if isinstance(values, np.memmap) and values.filename is not None:
        # a read beyond the end of a file that was truncated kills the process
        size = os.stat(values.filename).st_size
        if size < values.offset + values.nbytes:
            raise ValueError(
                f"{values.filename} was truncated: it has {size} bytes where "
                f"{values.offset + values.nbytes} are mapped"
            )
    if values is not None and part != slice(0, n):
        values = values.iloc[part] if hasattr(values, "iloc") else values[part]
    return np.array(values) if isinstance(values, np.memmap) else values


def read_ahead(items: Iterator[Item], depth: int) -> Iterator[Item]:
    """Yield items that a thread makes ahead of their use, ``depth`` of them at most."""
    end: Any = object()
    pool = ThreadPoolExecutor(1, "fbeta-read-ahead")
    waiting = deque(pool.submit(next, items, end) for _ in range(depth + 1))
    try:
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, items, end))
            yield item
            del item
    finally:
        pool.shutdown(cancel_futures=True)
