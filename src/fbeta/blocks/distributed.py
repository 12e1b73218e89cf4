"""Collections of Dask: fits in which rows stay where they are, and lazy predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta._threads import n_threads, one_blas_thread
from fbeta.blocks.files import BlockResults
from fbeta.blocks.held import HeldRows
from fbeta.blocks.passes import MAX_CHUNK_ROWS, RowSource, Streamed, set_folds, set_summary_folds
from fbeta.blocks.rows import MEMORY, Block, RowBlocks, form_of_block, joint_form, parse_memory
from fbeta.blocks.summary import CheckedRows, check_block
from fbeta.labels.forms import LabelForm
from fbeta.statistics.label_statistics import LabelStatistics

Found = TypeVar("Found")
Item = TypeVar("Item")
FAN_IN = 8  # results that one task of a tree of sums adds up


def is_dask(X: Any) -> bool:
    """Tell a collection of Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__")


def open_source(X: Any, y: Any = None, sample_weight: Any = None) -> RowSource | None:
    """Return where rows come from, or None for arrays; y and sample_weight are for X without."""
    if isinstance(X, RowBlocks):
        if y is not None or sample_weight is not None:
            raise TypeError("the blocks hold labels and weights themselves: pass X alone")
        return Streamed(X)
    if is_dask(X):
        return Distributed(X, y, sample_weight)
    if isinstance(X, np.memmap) and X.ndim == 2 and y is not None:
        return Streamed(RowBlocks(X, y, sample_weight))
    return X if isinstance(X, RowSource) else None


def _chunks(values: Any, name: str = "X") -> list[Any]:
    """Return the chunks of rows of a collection, as delayed values."""
    if hasattr(values, "rechunk"):
        if values.ndim == 2 and values.numblocks[1] > 1:
            values = values.rechunk({1: -1})
        return list(np.asarray(values.to_delayed(), dtype=object).ravel())
    if hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    raise TypeError(f"{name} must be an array or a frame of Dask, got {type(values).__name__}")


def _lengths(X: Any) -> list[int] | None:
    """Return the rows of each chunk, where they are known."""
    chunks = getattr(X, "chunks", None)
    if chunks is None or any(np.isnan(length) for length in chunks[0]):
        return None
    return [int(length) for length in chunks[0]]


def _aligned(values: Any, X: Any, chunks: int, name: str) -> list[Any]:
    """Return labels or weights in chunks that go with those of X."""
    if values is None:
        return [None] * chunks
    lengths = _lengths(X)
    if not is_dask(values):
        if lengths is None:
            raise ValueError(f"the chunk sizes of X are unknown: give {name} as a Dask array")
        ends = np.cumsum(lengths)
        if len(values) != ends[-1]:
            raise ValueError(f"X has {ends[-1]} rows and {name} has {len(values)}")
        return [values[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    own = _lengths(values)
    if own is not None and lengths is not None and own != lengths:
        if sum(own) != sum(lengths):
            raise ValueError(f"X has {sum(lengths)} rows and {name} has {sum(own)}")
        values = values.rechunk({0: tuple(lengths)})
    parts = _chunks(values, name)
    if len(parts) != chunks:
        raise ValueError(f"X has {chunks} chunks of rows and {name} has {len(parts)}")
    return parts


class Distributed(RowSource):
    """The chunks of arrays or frames of Dask, on whatever scheduler is active.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask dataframe
        With dense or CSR chunks, of known or unknown sizes.
    y : dask array of shape (n, s) or (n,), dask dataframe, or labels in memory
    sample_weight : dask array of shape (n,), or array in memory, optional
    memory : int or str, optional
        Bytes that the rows held may use on a worker; by default a quarter of a worker's limit, and
        no more than 1 GiB.
    checkpoint : path, optional
        As for :class:`fbeta.blocks.RowBlocks`.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        memory: int | str | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        self.dask = optional_import("dask", "dask", "fits to collections of Dask")
        self.checkpoint, self.passes = checkpoint, 0
        limit, self.n_workers = _cluster()
        self.memory = min(MEMORY, limit // 4) if memory is None else parse_memory(memory)
        parts = _chunks(X)
        weights = _aligned(sample_weight, X, len(parts), "sample_weight")
        if hasattr(X, "columns"):
            names = np.asarray(X.columns, dtype=object)
            self.feature_names = names if all(isinstance(n, str) for n in names) else None
        self._n_features = len(X.columns) if hasattr(X, "columns") else int(X.shape[1])
        labels = _aligned(y, X, len(parts), "y")
        self._parts = list(zip(range(len(parts)), parts, labels, weights, strict=True))
        self._form: LabelForm | None = None
        self._rows: list[Any] = []

    def _call(self, work: Callable[..., Any], *values: Any) -> Any:
        """Return a task; no more than one thread of BLAS works on it."""
        return self.dask.delayed(_run, pure=False, traverse=False)(work, *values)

    def _on_each(self, work: Callable[..., Any], values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return a task for each tuple of values; the work, which may be large, is sent once."""
        shared = self.dask.delayed(_identity, pure=False, traverse=False)(work)
        return [self._call(shared, *own) for own in values]

    def form(self) -> LabelForm:
        """Return the form of the labels, for which each chunk is asked."""
        if self._form is None:

            def find(number: int, Y: Any) -> LabelForm | None:
                some = Y.shape[0] if hasattr(Y, "shape") else len(Y)
                return form_of_block(Block(f"chunk {number}", 0, None, Y)) if some else None

            labels = [(number, Y) for number, _, Y, _ in self._parts]
            found = self.dask.compute(*self._on_each(find, labels))
            forms = [form for form in found if form is not None]
            if not forms:
                raise ValueError("X has no rows: at least one is required")
            by_name = forms[0].kind in ("sets", "single")
            self._form = joint_form(forms[0], forms) if by_name else forms[0]
        return self._form

    def scan(self, *, by_size: bool) -> None:
        """Check the chunks, count their labels, and pick the rows to be held."""
        form, d = self.form(), self._n_features  # the source is not sent to the rows

        def check(number: int, X: Any, Y: Any, weight: Any) -> CheckedRows:
            if not X.shape[0]:
                none = sp.csr_array((0, form.n_labels), dtype=np.int8)
                return CheckedRows(np.zeros((0, d)), none, None, np.zeros(0, np.uint64))
            weight = weight.to_numpy() if hasattr(weight, "to_numpy") else weight
            block = Block(f"chunk {number}", 0, X, Y, weight)
            return check_block(block, form, number * MAX_CHUNK_ROWS, d, finite=True)

        self._rows = list(self.dask.persist(*self._on_each(check, self._parts)))
        self._parts = []
        super().scan(by_size=by_size)

    def total(self, work: Callable[[CheckedRows], Any], add: Callable[[Any, Any], Any]) -> Any:
        """Add up over all chunks in a tree of tasks: a graph of its own, which does not grow."""
        level = self._on_each(work, [(rows,) for rows in self._rows])
        join = partial(reduce, add)
        while len(level) > 1:
            level = [self._call(join, level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        self.passes += 1
        [out] = self.dask.persist(level[0])
        return out

    def apply(self, work: Callable[..., Any], *values: Any) -> Any:
        """Return what some work makes of results on the workers; it stays there."""
        [out] = self.dask.persist(self._call(work, *values))
        return out

    def fetch(self, work: Callable[[Any], Any], value: Any) -> Any:
        """Return here what some work makes of a result on the workers."""
        return self.dask.compute(self._call(work, value))[0]

    def _chunk_lengths(self) -> list[int]:
        """Return the rows of each chunk, with those of weight zero that come before the last."""

        def length(rows: CheckedRows) -> int:
            return int(rows.ids[-1] % np.uint64(MAX_CHUNK_ROWS)) + 1 if len(rows) else 0

        return list(self.dask.compute(*self._on_each(length, [(rows,) for rows in self._rows])))

    def n_rows(self) -> int:
        """Return how many rows there are."""
        return sum(self._chunk_lengths())

    def set_folds(self, folds: NDArray[Any]) -> None:
        """Set the fold that holds each row out, (n,), from now on."""
        pieces = np.split(folds, np.cumsum(self._chunk_lengths())[:-1])
        tasks = self.dask.persist(*[self._call(_identity, piece) for piece in pieces])
        own = [(rows, [piece]) for rows, piece in zip(self._rows, tasks, strict=True)]
        self._rows = list(self.dask.persist(*self._on_each(set_folds, own)))
        self._summary = self.apply(set_summary_folds, self._summary, list(tasks))

    def each(self, work: Callable[[HeldRows, Item], Found], items: Sequence[Item]) -> list[Found]:
        """Work with the held rows, in a task for each item."""
        _spread(self._held)  # each time: Dask takes copies away that nobody waits for
        return list(self.dask.compute(*self._on_each(work, [(self._held, own) for own in items])))


def _identity(value: Any) -> Any:
    return value


def _run(work: Callable[..., Any], *values: Any) -> Any:
    with one_blas_thread():
        return work(*values)


def _client() -> Any:
    """Return the active client of Dask's distributed scheduler, or None."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _spread(value: Any) -> None:
    """Copy a result to every worker: a scheduler would rather let others wait than move it."""
    client = _client()
    if client is not None and not client.asynchronous:
        from distributed import futures_of

        if futures := futures_of(value):
            client.replicate(futures)


def _cluster() -> tuple[int, int]:
    """Return the memory of the smallest worker of the active client, and the threads of all."""
    client = _client()
    if client is None:
        return 4 * MEMORY, n_threads()
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [worker["memory_limit"] or 4 * MEMORY for worker in workers]
    threads = sum(worker["nthreads"] for worker in workers)
    return min(limits, default=4 * MEMORY), max(1, threads)


def answer(work: Callable[[Any], Any], X: Any, kind: str, form: LabelForm) -> Any:
    """Return what a fitted estimator says of each block of X, computed when it is asked for.

    ``work`` goes from rows of X to the answer; ``kind`` is "labels", "matrix", "vector" or
    "statistics": label sets, (n, s) or (n,) numbers, or label statistics.
    """
    if isinstance(X, RowBlocks):
        return BlockResults(work, X)
    dask = optional_import("dask", "dask", "predictions for collections of Dask")
    ask = dask.delayed(partial(_ask, work), pure=False, traverse=False)
    parts = [ask(part) for part in _chunks(X)]
    if kind == "statistics":
        return dask.delayed(_join_statistics, pure=False)(parts)
    meta: Any = np.zeros((0, form.n_labels))
    if kind == "vector":
        meta = np.zeros(0)
    elif kind == "matrix" and form.kind == "single":
        meta = np.zeros((0, len(form.classes)))
    elif kind == "labels" and form.kind == "sets":
        return optional_import("dask.bag", "dask", "label sets in Dask").from_delayed(parts)
    elif kind == "labels":
        meta = form.write(np.zeros((0, form.n_labels), np.bool_))
        if form.kind == "frame":
            frames = optional_import("dask.dataframe", "dask", "frames of Dask")
            return frames.from_delayed(parts, meta=meta, verify_meta=False)
    arrays = optional_import("dask.array", "dask", "arrays of Dask")
    lengths = X.chunks[0] if hasattr(X, "chunks") else (np.nan,) * len(parts)
    pieces = [
        arrays.from_delayed(part, shape=(length, *meta.shape[1:]), meta=meta)
        for part, length in zip(parts, lengths, strict=True)
    ]
    return arrays.concatenate(pieces, axis=0, allow_unknown_chunksizes=True)


def _ask(work: Callable[[Any], Any], X: Any) -> Any:
    """Ask about a chunk, which may have no rows: then about one that is left out again."""
    if X.shape[0]:
        return work(X)
    found = work(X.reindex([0], fill_value=0) if hasattr(X, "iloc") else np.zeros((1, X.shape[1])))
    if isinstance(found, LabelStatistics):
        return None
    return found.iloc[:0] if hasattr(found, "iloc") else found[:0]


def _join_statistics(parts: Sequence[LabelStatistics | None]) -> LabelStatistics:
    return LabelStatistics.concatenate([q for q in parts if q is not None])
