"""Rows in the chunks of a Dask collection: they stay where they are, and only sums travel.

A round sends the points out and one block of sums back, added up in a tree of tasks. The rows held
are on the workers, too: the first round picks them out of the chunks and brings them together as
one task, and the problems are dealt out among tasks that work with it. Every round is a graph of
its own over chunks that persist, so that a worker may be lost at any time: Dask computes anew what
it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta._threads import n_threads
from fbeta.blocks import tasks
from fbeta.blocks.held import HeldRows
from fbeta.blocks.rows import MEMORY, parse_memory
from fbeta.blocks.source import Pass, RowSource, tally_folds
from fbeta.blocks.summary import CheckedRows, Summary, Tally
from fbeta.blocks.sums import Sums
from fbeta.labels.forms import LabelForm

__all__ = ["Distributed", "chunks_of", "is_dask"]

Found = TypeVar("Found")
Item = TypeVar("Item")
FAN_IN = 8  # results that one task of a tree of sums adds up


def is_dask(X: Any) -> bool:
    """Tell a collection of Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__")


def chunks_of(values: Any, name: str = "X") -> list[Any]:
    """Return the chunks of rows of a collection, as delayed values."""
    if hasattr(values, "to_delayed") and hasattr(values, "rechunk"):
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
    parts = chunks_of(values, name)
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

    local = False

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
        parts = chunks_of(X)
        labels = _aligned(y, X, len(parts), "y")
        weights = _aligned(sample_weight, X, len(parts), "sample_weight")
        if hasattr(X, "columns"):
            names = np.asarray(X.columns, dtype=object)
            self.feature_names = names if all(isinstance(n, str) for n in names) else None
        self.width = len(X.columns) if hasattr(X, "columns") else int(X.shape[1])
        self.labels = labels
        pack = self._delay(tasks.pack)
        packed = zip(parts, labels, weights, strict=True)
        self.parts: list[Any] = [pack(number, *own) for number, own in enumerate(packed)]
        self._form: LabelForm | None = None
        self._rows: list[Any] = []
        self._summary: Any = None
        self._held: Any = None
        self._folds: list[Any] | None = None

    def _delay(self, work: Callable[..., Any]) -> Callable[..., Any]:
        return self.dask.delayed(work, pure=False, traverse=False)  # type: ignore[no-any-return]

    def _shared(self, value: Any) -> Any:
        """Return a value as a task of its own, which many can depend on."""
        return self.dask.delayed(_identity, pure=False, traverse=False)(value)

    def _tree(self, parts: Sequence[Any], add: Callable[[list[Any]], Any]) -> Any:
        """Add up results in a tree of tasks."""
        join, level = self._delay(add), list(parts)
        while len(level) > 1:
            level = [join(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
        return level[0]

    def form(self) -> LabelForm:
        """Return the form of the labels, for which each chunk is asked."""
        if self._form is None:
            form = self._delay(tasks.form_of_chunk)
            found = self.dask.compute(*[form(at, own) for at, own in enumerate(self.labels)])
            self._form = tasks.merge_forms([form for form in found if form is not None])
        return self._form

    def scan(self, *, by_size: bool) -> Summary:
        """Check the chunks, count their labels, and pick the rows to be held."""
        form = self._shared(self.form())
        check = self._delay(tasks.check_chunk)
        checked_parts = [check(part, form, self.width) for part in self.parts]
        self._rows = list(self.dask.persist(*checked_parts))
        look = self._delay(partial(tasks.look, memory=self.memory, by_size=by_size))
        total = self._tree([look(rows) for rows in self._rows], tasks.add_summaries)
        [self._summary] = self.dask.persist(total)
        [found] = self.dask.compute(self._delay(tasks.without_rows)(self._summary))
        self.parts, self.labels, self.passes = [], [], 1
        if not found.n:
            raise ValueError("sample_weight is zero on every row: nothing is left")
        result: Summary = found
        return result

    def tallies(self, folds: NDArray[Any]) -> list[Tally]:
        """Count the labels of each fold."""
        self._deal(folds)
        count = int(folds.max()) + 1
        tally = self._delay(partial(tally_folds, count=count))
        own = [tally(rows, fold) for rows, fold in zip(self._rows, self._own_folds(), strict=True)]
        self.passes += 1
        [out] = self.dask.compute(self._tree(own, tasks.add_lists))
        return list(out)

    def lengths(self) -> list[int]:
        """Return the rows of each chunk, with those of weight zero."""
        found = self.dask.compute(*[self._delay(tasks.length)(rows) for rows in self._rows])
        return [int(length) for length in found]

    def _deal(self, folds: NDArray[Any]) -> None:
        ends = np.cumsum(self.lengths())
        pieces = np.split(folds, ends[:-1])
        self._folds = list(self.dask.persist(*[self._shared(piece) for piece in pieces]))

    def _own_folds(self) -> list[Any]:
        return self._folds if self._folds is not None else [None] * len(self._rows)

    def evaluate(self, task: Pass, folds: NDArray[Any] | None) -> list[Sums]:
        """Add up over all chunks, in a round."""
        shared = self._shared(task)
        own = self._own_folds() if folds is not None else [None] * len(self._rows)
        found = [
            self._delay(tasks.evaluate_chunk)(rows, fold, shared)
            for rows, fold in zip(self._rows, own, strict=True)
        ]
        sums = self._tree([pair[0] for pair in found], tasks.add_lists)
        self.passes += 1
        if task.draw is None:
            return list(self.dask.compute(sums)[0])
        drawn = [pair[1] for pair in found]
        held = self._delay(tasks.renew)(self._held, drawn, own, shared)
        done, self._held = self.dask.persist(sums, held)
        return list(self.dask.compute(done)[0])

    def over(self, work: Callable[[CheckedRows, Any], Found], folds: NDArray[Any]) -> list[Found]:
        """Work on each chunk."""
        run = self._delay(partial(tasks.quietly, work))
        self.passes += 1
        pairs = zip(self._rows, self._own_folds(), strict=True)
        return list(self.dask.compute(*[run(rows, fold) for rows, fold in pairs]))

    def n_rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.lengths())

    def all_rows(self) -> CheckedRows:
        """Refuse: rows stay where they are."""
        raise TypeError("the rows of a Dask collection do not come to the client")

    def hold(
        self, build: Callable[[CheckedRows], HeldRows], folds: NDArray[Any] | None = None
    ) -> Any:
        """Bring the rows held together, as a task."""
        own = None if folds is None else self._own_folds()
        held = self._delay(partial(tasks.build, build))(self._summary, own)
        [self._held] = self.dask.persist(held)
        self._summary = None
        [coordinates] = self.dask.compute(self._held.coordinates)
        return coordinates

    def each(self, work: Callable[[HeldRows, Item], Found], items: Sequence[Item]) -> list[Found]:
        """Work with the held, in a task for each item."""
        _spread(self._held)  # each time: Dask takes copies away that nobody waits for
        run = self._delay(partial(tasks.with_held, work))
        return list(self.dask.compute(*[run(self._held, item) for item in items]))


def _identity(value: Any) -> Any:
    return value


def _spread(value: Any) -> None:
    """Copy a result to every worker: a scheduler would rather let others wait than move it."""
    try:
        from distributed import default_client, futures_of

        client = default_client()
    except (ImportError, ValueError):
        return
    futures = futures_of(value)
    if futures and not client.asynchronous:
        client.replicate(futures)


def _cluster() -> tuple[int, int]:
    """Return the memory of the smallest worker of the active client, and the threads of all."""
    try:
        from distributed import default_client

        workers = default_client().scheduler_info(n_workers=-1)["workers"].values()
    except (ImportError, ValueError):
        return 4 * MEMORY, n_threads()
    limits = [worker["memory_limit"] or 4 * MEMORY for worker in workers]
    threads = sum(worker["nthreads"] for worker in workers)
    return min(limits, default=4 * MEMORY), max(1, threads)
