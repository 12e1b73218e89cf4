"""Sources of rows: what a fit asks of them, and the answer for blocks that are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import n_threads, one_blas_thread, run_threaded
from fbeta.blocks.held import HeldRows
from fbeta.blocks.reading import Block, check_features, check_labels, check_weight
from fbeta.blocks.rows import RowBlocks
from fbeta.blocks.summary import MAX_OVERFULL, CheckedRows, Summary, Tally, random_bits
from fbeta.blocks.sums import BlockTargets, Draw, Sums, TrialPoint, add_up
from fbeta.labels.forms import LabelForm
from fbeta.statistics.codes import Code

__all__ = ["Layout", "Pass", "RowSource", "Streamed", "folds_of", "row_capacity"]

Found = TypeVar("Found")
Item = TypeVar("Item")
Drawn = tuple[CheckedRows, NDArray[np.float64]]  # rows, and the probabilities they were drawn with
HELD_SHARE = 0.5  # of the memory that is for the held rows, with the copies that are made of them
ENTRY_BYTES = 32  # of an entry of a held row and of its copies
MAX_CHUNK_ROWS = 1 << 40  # numbers of rows that a chunk has to itself


def row_capacity(memory: int, X: Any) -> int:
    """Return how many rows like those of a block can be held in some memory."""
    numbers = X.shape[1] + 1
    if sp.issparse(X):
        # beside values there are indices, and the same once more by columns
        numbers = 2 + 2 * X.nnz / max(1, X.shape[0])
    return max(1, int(HELD_SHARE * memory / (ENTRY_BYTES * numbers)))


@dataclass(frozen=True)
class Layout:
    """The targets of a code that differ from each other, (m,), of a block of label sets."""

    code: Code
    distinct: NDArray[np.intp]

    def targets(self, Y: Any) -> sp.csr_array:
        """Return the distinct targets of label sets, of shape (n, m)."""
        found = self.code.targets(Y)
        targets = getattr(found, "values", found)
        if len(self.distinct) < targets.shape[1]:
            targets = targets[:, self.distinct]
        return sp.csr_array(targets)

    def rows(self, rows: CheckedRows, folds: NDArray[Any] | None) -> BlockTargets:
        """Return rows with their targets and the folds that hold them out."""
        fold = None if folds is None else folds_of(folds, rows.ids)
        return BlockTargets(rows.X, self.targets(rows.Y), rows.weight, fold)


@dataclass(frozen=True)
class Pass:
    """What a pass evaluates, in which floating type, and which rows it draws to be held."""

    layout: Layout
    points: Sequence[TrialPoint]
    dtype: Any
    draw: Draw | None = None


class RowSource(ABC):
    """Rows somewhere, of which sums are asked for.

    The held rows and the work with them may use ``memory`` bytes; ``passes`` counts how often all
    rows were gone through.
    """

    memory: int
    checkpoint: Any
    passes: int
    feature_names: NDArray[Any] | None = None
    local = True  # whether rows may come here
    n_workers: int  # pieces of work at the same time

    @abstractmethod
    def form(self) -> LabelForm:
        """Return the form of the labels."""

    @abstractmethod
    def scan(self, *, by_size: bool) -> Summary:
        """Go through all rows for the first time, and check them."""

    @abstractmethod
    def tallies(self, folds: NDArray[Any]) -> list[Tally]:
        """Return the tally of the rows that each fold holds out."""

    @abstractmethod
    def evaluate(self, task: Pass, folds: NDArray[Any] | None) -> list[Sums]:
        """Return sums over all rows at some points; rows that are drawn replace those held."""

    @abstractmethod
    def over(self, work: Callable[[CheckedRows, Any], Found], folds: NDArray[Any]) -> list[Found]:
        """Return what some work gives on each block of rows and the folds that hold them out."""

    @abstractmethod
    def n_rows(self) -> int:
        """Return how many rows there are, with those of weight zero."""

    @abstractmethod
    def all_rows(self) -> CheckedRows:
        """Return all rows, where the first pass held them."""

    @abstractmethod
    def hold(self, build: Callable[..., HeldRows], folds: NDArray[Any] | None = None) -> Any:
        """Build the held rows; return their design without rows, and the scale of the features."""

    @abstractmethod
    def each(self, work: Callable[[HeldRows, Item], Found], items: Sequence[Item]) -> list[Found]:
        """Return what some work with the held rows gives for each item."""

    def report(self, **news: Any) -> None:  # noqa: B027 - reports are optional
        """Take what is reported with the next block."""


class Streamed(RowSource):
    """Blocks that are read again in each pass, and worked on by as many threads as BLAS has."""

    def __init__(self, blocks: RowBlocks) -> None:
        self.blocks = blocks
        self.memory, self.checkpoint = blocks.memory, blocks.checkpoint
        self.feature_names, self.n_workers = blocks.feature_names, n_threads()
        self._held: HeldRows | None = None
        self._summary: Summary | None = None
        self._news: dict[str, Any] = {"open": None}
        self._checksums: dict[int, tuple[int, ...]] = {}  # of the blocks of the first pass

    @property
    def passes(self) -> int:  # type: ignore[override]
        """How often all rows were read."""
        return self.blocks.passes

    def form(self) -> LabelForm:
        """Return the form of the labels."""
        return self.blocks.label_form()

    def _run(self, work: Callable[[CheckedRows], Found], *, first: bool = False) -> Iterator[Found]:
        """Work on all blocks, a few at the same time, and yield the results in order."""
        form, threads = self.form(), n_threads()
        waiting: deque[tuple[Future[Found], int]] = deque()
        at = done = 0

        def run(block: Block, number: int, start: int, width: int | None) -> Found:
            rows = checked(block, form, start, width, first=first)
            own = rows.checksum()
            if self._checksums.setdefault(number, own) != own:
                raise ValueError(
                    f"{block.place(0)} and after: the rows, labels or weights of this block have "
                    "changed since the first pass of this fit"
                )
            return work(rows)

        pool = ThreadPoolExecutor(threads)
        try:
            with one_blas_thread():
                for number, block in enumerate(self.blocks.blocks()):
                    if self.blocks.n_features is None and len(np.shape(block.X)) == 2:
                        self.blocks.n_features = int(block.X.shape[1])
                    task = pool.submit(run, block, number, at, self.blocks.n_features)
                    waiting.append((task, len(block)))
                    at += len(block)
                    del block
                    if len(waiting) > threads:
                        task, count = waiting.popleft()
                        yield task.result()
                        done += count
                        self._report_block(done)
                while waiting:
                    task, count = waiting.popleft()
                    yield task.result()
                    done += count
                    self._report_block(done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def report(self, **news: Any) -> None:
        """Keep what is reported with the next block."""
        self._news |= news

    def _report_block(self, done: int) -> None:
        if self.blocks.progress is not None:
            before = {"passes": self.passes, "rows": done, "n_rows": self.blocks.n_rows}
            self.blocks.progress(before | self._news)

    def scan(self, *, by_size: bool) -> Summary:
        """Read all rows, check them, and hold some."""
        total: Summary | None = None

        def summarise(rows: CheckedRows) -> Summary:
            return Summary.of(rows, row_capacity(self.memory, rows.X), by_size=by_size)

        for found in self._run(summarise, first=True):
            if total is None:
                total = found
            else:
                total.capacity = min(total.capacity, found.capacity)
                total.add(found)
        assert total is not None  # a pass without rows is an error
        if not total.n:
            raise ValueError("sample_weight is zero on every row: nothing is left")
        self._summary = total
        return total

    def tallies(self, folds: NDArray[Any]) -> list[Tally]:
        """Count the labels of each fold, in a pass."""
        count = int(folds.max()) + 1
        return _add_tallies(self._run(lambda rows: tally_folds(rows, folds, count)))

    def evaluate(self, task: Pass, folds: NDArray[Any] | None) -> list[Sums]:
        """Add up over all rows, in a pass."""
        total: list[Sums] = []
        pieces: list[Drawn] = []
        for found, drawn in self._run(lambda rows: evaluate_rows(rows, task, folds)):
            total = [a + b for a, b in zip(total, found, strict=True)] if total else found
            pieces += [] if drawn is None else [drawn]
        if task.draw is not None:
            assert self._held is not None
            self._held = renewed(self._held, task, pieces, folds)
        return total

    def over(self, work: Callable[[CheckedRows, Any], Found], folds: NDArray[Any]) -> list[Found]:
        """Work on each block, in a pass."""
        return list(self._run(lambda rows: work(rows, folds_of(folds, rows.ids))))

    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self.blocks.n_rows or 0)

    def all_rows(self) -> CheckedRows:
        """Return all rows."""
        assert self._summary is not None
        return self._summary.rows()

    def hold(self, build: Callable[..., HeldRows], folds: NDArray[Any] | None = None) -> Any:
        """Build the held rows."""
        assert self._summary is not None
        self._held = build(self._summary.rows(), folds=folds)
        self._summary.pieces = []
        return self._held.coordinates

    def each(self, work: Callable[[HeldRows, Item], Found], items: Sequence[Item]) -> list[Found]:
        """Work with the held rows, on threads."""
        held = self._held
        assert held is not None
        return run_threaded(lambda item: work(held, item), items)


def checked(
    block: Block, form: LabelForm, start: int, width: int | None, *, first: bool
) -> CheckedRows:
    """Check a block and number its rows; those of weight zero are left out."""
    X = check_features(block, width, finite=first)
    n = X.shape[0]
    Y, weight = check_labels(block, form, n), check_weight(block, n)
    rows = CheckedRows(X, Y, weight, np.arange(start, start + n, dtype=np.uint64))
    if weight is not None and (weight == 0).any():
        rows = rows.take(np.flatnonzero(weight))
    return rows


def evaluate_rows(
    rows: CheckedRows, task: Pass, folds: NDArray[Any] | None
) -> tuple[list[Sums], Drawn | None]:
    """Add up over some rows; return sums, and the rows that were drawn."""
    draw = task.draw
    sums, chance = add_up(task.layout.rows(rows, folds), task.points, task.dtype, draw)
    if draw is None or chance is None:
        return sums, None
    own = np.flatnonzero(random_bits(rows.ids, draw.seed) / 2.0**64 < chance)
    return sums, (rows.take(own), chance[own])


def thinned(pieces: Sequence[Drawn], draw: Draw) -> Drawn:
    """Join the rows that were drawn; where they are too many, some of them."""
    chance = np.concatenate([own for _, own in pieces])
    excess = MAX_OVERFULL * 2 * draw.wanted / max(1.0, float(len(chance)))
    if excess < 1:
        less = []
        for rows, own in pieces:
            kept = np.flatnonzero(random_bits(rows.ids, draw.seed) / 2.0**64 < excess * own)
            less.append((rows.take(kept), excess * own[kept]))
        pieces, chance = less, np.concatenate([own for _, own in less])
    ids = np.concatenate([rows.ids for rows, _ in pieces])
    return CheckedRows.join([rows for rows, _ in pieces]), chance[np.argsort(ids, kind="stable")]


def renewed(held: HeldRows, task: Pass, pieces: Sequence[Drawn], folds: Any) -> HeldRows:
    """Return the rows that a pass has drawn, to be held from now on."""
    assert task.draw is not None
    rows, chance = thinned(pieces, task.draw)
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    fold = None if not folds_known(folds) else folds_of(folds, rows.ids)
    return held.renew(rows.X, task.layout.targets(rows.Y), weight, chance, fold)


def folds_known(folds: Any) -> bool:
    """Tell whether there are folds."""
    return folds is not None and (isinstance(folds, np.ndarray) or bool(folds))


def folds_of(folds: Any, ids: NDArray[np.uint64]) -> NDArray[Any]:
    """Return the fold of each row, by its number in its part."""
    if hasattr(folds, "of"):
        return np.asarray(folds.of(ids))
    return np.asarray(folds[(ids % np.uint64(MAX_CHUNK_ROWS)).astype(np.intp)])


def tally_folds(rows: CheckedRows, folds: NDArray[Any], count: int) -> list[Tally]:
    """Count the labels of the rows that each fold holds out."""
    own, out = folds_of(folds, rows.ids), []
    for fold in range(count):
        part = rows.take(np.flatnonzero(own == fold))
        out.append(Tally.of(part.Y, part.ids, part.weight))
    return out


def _add_tallies(found: Iterator[list[Tally]]) -> list[Tally]:
    total: list[Tally] = []
    for tallies in found:
        total = [a + b for a, b in zip(total, tallies, strict=True)] if total else tallies
    return total
