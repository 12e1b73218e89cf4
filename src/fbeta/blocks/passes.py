"""Passes over all rows: the sums over a block that are added up, and where blocks come from."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta._threads import n_threads, one_blas_thread, run_threaded
from fbeta.blocks.held import Draw, Drawn, HeldRows, Sums, TrialPoint
from fbeta.blocks.rows import Block, RowBlocks
from fbeta.blocks.summary import CheckedRows, Summary, Tally, check_block
from fbeta.labels.forms import Indicator, LabelForm
from fbeta.linear.design import Design
from fbeta.linear.objectives import Binary
from fbeta.losses import LogisticLoss, Loss

Found = TypeVar("Found")
Item = TypeVar("Item")
TILE_SCORES = 1 << 17  # scores that stay in a processor's cache, with what is computed from them
TILE_ROWS = (256, 4096)  # the fewest and the most rows of a tile
MAX_EXP_SCORE = 80.0  # score up to which exp does not overflow in single precision
HELD_SHARE = 0.5  # of the memory that is for the held rows, with the copies that are made of them
ENTRY_BYTES = 32  # of an entry of a held row and of its copies
MAX_CHUNK_ROWS = 1 << 40  # numbers of rows that a chunk has to itself


def add_up(
    rows: CheckedRows, points: Sequence[TrialPoint], dtype: Any, draw: Draw | None = None
) -> tuple[list[Sums], Array | None]:
    """Return the sums of each point over a block of rows, and the chances to be drawn, (n,).

    ``rows.Y`` are targets. ``dtype`` is that of scores and residuals for dense X; sums are in
    double precision, and so is all of it for sparse X, which is centred by arithmetic.
    """
    sparse, n = sp.issparse(rows.X), rows.X.shape[0]
    dtype = np.dtype(np.float64 if sparse else dtype)
    columns = max(1, sum(point.coef.shape[1] for point in points))
    size = min(n, int(np.clip(TILE_SCORES // columns, *TILE_ROWS)))
    work = [_PointSums(point, rows, size, dtype, draw is not None) for point in points]
    mean = points[0].mean if points else None
    mean = None if mean is None or sparse else mean.astype(dtype)
    # arrays of this size, made anew for each tile, may cost more than what is done with them
    room = None if sparse else np.empty((size, rows.X.shape[1]), dtype)
    with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
        for start in range(0, n, max(1, size)):
            part = slice(start, min(start + size, n))
            tile = rows.X[part]
            if mean is not None and room is not None:
                tile = np.subtract(tile, mean, out=room[: len(tile)], dtype=dtype)
            elif tile.dtype != dtype:
                tile = tile.astype(dtype)
            for own in work:
                own.add(tile, part)
        sums = [own.sums() for own in work]
        if draw is None:
            return sums, None
        return sums, draw.chance(rows.X, points, sum((own.shares for own in work), np.zeros(n)))


class _PointSums:
    """The sums of one point over tiles of ``size`` rows; ``curved`` where rows are drawn."""

    def __init__(
        self, point: TrialPoint, rows: CheckedRows, size: int, dtype: Any, curved: bool
    ) -> None:
        self.point, self.rows = point, rows
        self.buffers = np.empty((2, size, point.coef.shape[1]), dtype)  # for scores and losses
        self.inverse = 1 / np.maximum(point.curvature_sum, 1e-300) if curved else None
        self.shares = np.zeros(rows.X.shape[0])
        self.coef = np.ascontiguousarray(point.coef, dtype=dtype)
        self.offset = point.offset.astype(dtype)
        self.shifted = sp.issparse(rows.X) and point.mean is not None
        if self.shifted:
            self.offset = self.offset - point.mean @ self.coef
        separate = point.objective.separates_columns
        every = np.array_equal(point.names, np.arange(rows.Y.shape[1]))
        self.targets = rows.Y if every or not separate else rows.Y[:, point.names]
        self.loss: Loss | None = cast(Binary, point.objective).loss if separate else None
        binary = separate and bool((self.targets.data == 1).all())
        self.quick = binary and (not curved or type(self.loss) is LogisticLoss)
        self.value = np.zeros(len(point.names))
        self.gradient = np.zeros(point.coef.shape)
        self.total = np.zeros(point.coef.shape[1])

    def add(self, tile: Any, part: slice) -> None:
        """Evaluate one tile of rows."""
        if sp.issparse(tile):
            scores = tile @ self.coef
        else:
            scores = np.matmul(tile, self.coef, out=self.buffers[0][: len(tile)])
        scores += self.offset
        rows, objective, curved = self.rows, self.point.objective, self.inverse is not None
        if self.quick:
            losses, residual = self._binary(scores, part)
            # that of the logistic loss, the only one that is quick where curvature is needed
            diagonal = np.abs(residual) - residual * residual if curved else None
        else:
            y = self.targets[part].toarray()
            losses, residual, curvature = objective.evaluate(y, scores, None)
            diagonal = objective.diagonal(curvature) if curved else None
        weight = None if rows.weight is None else rows.weight[part].astype(scores.dtype)[:, None]
        if self.point.fold >= 0 and rows.fold is not None:  # rows that are held out have none
            kept = (rows.fold[part] != self.point.fold).astype(scores.dtype)[:, None]
            weight = kept if weight is None else weight * kept
        if weight is not None:
            losses, residual = losses * weight, residual * weight
        if diagonal is not None:
            diagonal = diagonal if weight is None else diagonal * weight
            self.shares[part] += diagonal @ self.inverse
        self.value += losses.sum(axis=0, dtype=np.float64)
        self.gradient += tile.T @ residual
        self.total += residual.sum(axis=0, dtype=np.float64)

    def _binary(self, scores: Array, part: slice) -> tuple[Array, Array]:
        """Evaluate a binary loss as if no target were 1, and again for the few that are."""
        starts = self.targets.indptr[part.start : part.stop + 1]
        columns = self.targets.indices[starts[0] : starts[-1]]
        places = np.repeat(np.arange(len(scores)), np.diff(starts)) * scores.shape[1] + columns
        ones, loss = scores.ravel()[places], cast(Loss, self.loss)
        if type(loss) is LogisticLoss and scores.max(initial=0) < MAX_EXP_SCORE:
            residual = np.exp(scores, out=scores)
            losses = np.add(residual, 1, out=self.buffers[1][: len(residual)])
            residual /= losses
            np.log(losses, out=losses)
        else:
            losses, residual, _ = loss.evaluate(np.zeros((), scores.dtype), scores)
            losses, residual = np.ascontiguousarray(losses), np.ascontiguousarray(residual)
        one = np.ones((), scores.dtype)
        losses.reshape(-1)[places] = loss.value(one, ones)
        residual.reshape(-1)[places] = loss.derivative(one, ones)
        return losses, residual

    def sums(self) -> Sums:
        """Return the sums over all tiles."""
        if self.shifted:
            self.gradient -= cast(Array, self.point.mean)[:, None] * self.total
        return self.value, self.gradient, self.total


def row_capacity(memory: int, X: Any) -> int:
    """Return how many rows like those of a block can be held in some memory."""
    numbers = X.shape[1] + 1
    if sp.issparse(X):
        # beside values there are indices, and the same once more by columns
        numbers = 2 + 2 * X.nnz / max(1, X.shape[0])
    return max(1, int(HELD_SHARE * memory / (ENTRY_BYTES * numbers)))


def set_folds(rows: CheckedRows, folds: Sequence[NDArray[Any]]) -> CheckedRows:
    """Return rows with their folds, by the folds of their chunk or of all chunks."""
    chunk, row = (a.astype(np.intp) for a in np.divmod(rows.ids, np.uint64(MAX_CHUNK_ROWS)))
    if len(folds) == 1:
        return replace(rows, fold=folds[0][row])
    fold = np.zeros(len(rows), np.int16)
    for number in np.unique(chunk):
        own = chunk == number
        fold[own] = folds[number][row[own]]
    return replace(rows, fold=fold)


def set_summary_folds(summary: Summary, folds: Sequence[NDArray[Any]]) -> Summary:
    """Return a summary whose rows have their folds."""
    return replace(summary, pieces=[set_folds(piece, folds) for piece in summary.pieces])


class RowSource(ABC):
    """Rows somewhere, of which sums are asked for; results with rows stay where the rows are.

    The held rows and the work with them may use ``memory`` bytes; ``passes`` counts how often all
    rows were gone through. A source is for one fit.
    """

    memory: int
    checkpoint: Any
    passes: int
    n_workers: int  # pieces of work at the same time
    n_open: int | None = None  # problems that have not ended, for progress reports
    feature_names: NDArray[Any] | None = None
    summary: Summary  # of the first pass, without rows
    _summary: Any  # the same with the rows that are held, where the rows are
    _held: Any  # the HeldRows, where the rows are

    @abstractmethod
    def form(self) -> LabelForm:
        """Return the form of the labels."""

    @abstractmethod
    def n_rows(self) -> int:
        """Return how many rows there are, with those of weight zero."""

    @abstractmethod
    def total(self, work: Callable[[CheckedRows], Any], add: Callable[[Any, Any], Any]) -> Any:
        """Add up in a pass what some work gives on each block, and leave it where the rows are."""

    def apply(self, work: Callable[..., Any], *values: Any) -> Any:
        """Return what some work makes of results that are where the rows are; it stays there."""
        return work(*values)

    def fetch(self, work: Callable[[Any], Any], value: Any) -> Any:
        """Return here what some work makes of a result that is where the rows are."""
        return work(value)

    def each(self, work: Callable[[HeldRows, Item], Found], items: Sequence[Item]) -> list[Found]:
        """Return what some work with the held rows gives for each item."""
        return run_threaded(partial(work, self._held), items)

    @abstractmethod
    def set_folds(self, folds: NDArray[Any]) -> None:
        """Set the fold that holds each row out, (n,), from now on."""

    def rows(self) -> CheckedRows | None:
        """Return all rows, if the first pass held them here."""
        return None

    @property
    def witnesses(self) -> Indicator:
        """Label sets of every size that occurs, one of each."""
        sizes, s = self.summary.tally.sizes, self.summary.tally.counts.shape[1]
        return sp.csr_array((np.arange(s) < sizes[:, None]).astype(np.int8))

    def scan(self, *, by_size: bool) -> None:
        """Go through all rows for the first time, and check them."""
        memory = self.memory  # the work is sent to where the rows are, and the source is not

        def work(rows: CheckedRows) -> Summary:
            return Summary.of(rows, row_capacity(memory, rows.X), by_size=by_size)

        self._summary = self.total(work, operator.add)
        self.summary = self.fetch(partial(replace, pieces=[]), self._summary)
        if not self.summary.n:
            raise ValueError("sample_weight is zero on every row: nothing is left")

    def deal(self, folds: NDArray[Any]) -> list[Tally]:
        """Set the fold that holds each row out, (n,); return the tally of each fold."""
        self.set_folds(folds)
        numbers = range(int(folds.max()) + 1)

        def work(rows: CheckedRows) -> NDArray[Any]:
            own = [rows.take(np.flatnonzero(rows.fold == fold)) for fold in numbers]
            return np.array([Tally.of(some) for some in own], dtype=object)

        return list(self.fetch(list, self.total(work, operator.add)))

    def hold(self, build: Callable[[Summary], HeldRows]) -> Design:
        """Build the held rows; return their design without rows."""
        self._held = self.apply(build, self._summary)
        self._summary = None
        none = np.zeros(0, np.intp)
        return cast(Design, self.fetch(lambda held: held.design.take(none), self._held))

    def evaluate(
        self, targets: Any, points: Sequence[TrialPoint], dtype: Any, draw: Draw | None = None
    ) -> list[Sums]:
        """Return sums over all rows at some points; rows that are drawn replace those held."""

        def work(rows: CheckedRows) -> tuple[list[Sums], list[Drawn]]:
            sums, chance = add_up(replace(rows, Y=targets(rows.Y)), points, dtype, draw)
            return sums, [] if draw is None or chance is None else draw.pick(rows, chance)

        def join(a: Any, b: Any) -> Any:
            pairs = zip(a[0], b[0], strict=True)
            return [tuple(map(operator.add, *pair)) for pair in pairs], a[1] + b[1]

        found = self.total(work, join)
        if draw is not None:
            renew = partial(HeldRows.renewed, targets=targets, draw=draw)
            self._held = self.apply(renew, self._held, found)
        return list(self.fetch(operator.itemgetter(0), found))


class Streamed(RowSource):
    """Blocks that are read again in each pass, and worked on by as many threads as BLAS has."""

    def __init__(self, blocks: RowBlocks) -> None:
        self.blocks = blocks
        self.memory, self.checkpoint = blocks.memory, blocks.checkpoint
        self.n_workers = n_threads()
        self._folds: list[NDArray[Any]] = []
        self._checksums: dict[int, tuple[int, ...]] = {}  # of the blocks of the first pass

    @property
    def passes(self) -> int:  # type: ignore[override]
        """How often all rows were read."""
        return self.blocks.passes

    @property
    def feature_names(self) -> NDArray[Any] | None:  # type: ignore[override]
        """Names of the columns, which data frames show when the first of them is read."""
        return self.blocks.feature_names

    def form(self) -> LabelForm:
        """Return the form of the labels."""
        return self.blocks.label_form()

    def n_rows(self) -> int:
        """Return how many rows there are."""
        return int(self.blocks.n_rows or 0)

    def total(self, work: Callable[[CheckedRows], Any], add: Callable[[Any, Any], Any]) -> Any:
        """Add up over all blocks, a few at the same time, in their order."""
        return reduce(add, self._run(work))

    def _run(self, work: Callable[[CheckedRows], Found]) -> Iterator[Found]:
        form, first, waiting = self.form(), not self._checksums, deque[tuple[Future[Found], int]]()
        pool, at, done = ThreadPoolExecutor(self.n_workers), 0, 0

        def finish() -> Found:
            nonlocal done
            task, count = waiting.popleft()
            found, done = task.result(), done + count
            if self.blocks.progress is not None:
                news = {"passes": self.passes, "rows": done, "n_rows": self.blocks.n_rows}
                self.blocks.progress(news | {"open": self.n_open})
            return found

        def run(block: Block, number: int, start: int, n_features: int | None) -> Found:
            rows = check_block(block, form, start, n_features, finite=first)
            if self._folds:
                rows = set_folds(rows, self._folds)
            if first:
                self._checksums[number] = rows.checksum()
            try:
                return work(rows)
            finally:  # a change while the work was done is found as well
                own = rows.checksum()
                if self._checksums.get(number, own) != own:
                    raise ValueError(
                        f"{block.place(0)} and after: the rows, labels or weights of this block "
                        "have changed since the first pass of this fit"
                    )

        try:
            with one_blas_thread():
                for number, block in enumerate(self.blocks.blocks()):
                    task = pool.submit(run, block, number, at, self.blocks.n_features)
                    waiting.append((task, len(block)))
                    at += len(block)
                    del block
                    if len(waiting) > self.n_workers:
                        yield finish()
                while waiting:
                    yield finish()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def set_folds(self, folds: NDArray[Any]) -> None:
        """Set the fold that holds each row out, (n,), from now on."""
        self._folds = [folds]
        self._summary = set_summary_folds(self._summary, self._folds)

    def rows(self) -> CheckedRows | None:
        """Return all rows, if they fit into memory."""
        if not self.summary.complete:
            return None
        rows: CheckedRows = self._summary.rows()
        self._summary = replace(self._summary, pieces=[rows])
        return rows
