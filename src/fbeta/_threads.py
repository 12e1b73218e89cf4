"""Independent tasks on threads, as many as BLAS may use, and their cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from fbeta._array import Array, is_accelerator

Task = TypeVar("Task")
Result = TypeVar("Result")

# array elements of one chunk of rows: what fits the caches of a core, what keeps a GPU busy
CHUNK_ELEMENTS, CHUNK_ELEMENTS_GPU = 1 << 19, 1 << 23
# array elements of one step of a recurrence: enough to outweigh the call
TILE_ELEMENTS, TILE_ELEMENTS_GPU = 1 << 13, 1 << 18
# rows that are unfolded together although they exceed a chunk, as a recurrence over a few rows
# costs as much as over one; and the most elements that these rows may have
MIN_UNFOLDED_ROWS, MAX_UNFOLDED_ELEMENTS = 128, 1 << 21


@cache
def _controller() -> Any:
    return ThreadpoolController()


def n_threads() -> int:
    """Return the threads that BLAS may use now, by ``OMP_NUM_THREADS``, joblib and the like."""
    counts = [lib.num_threads for lib in _controller().lib_controllers if lib.user_api == "blas"]
    return max(counts, default=1)


_blas = SimpleNamespace(lock=threading.Lock(), users=0, limit=None)


@contextmanager
def one_blas_thread(only_if: bool = True) -> Iterator[None]:
    """Keep BLAS to one thread: on small matrices its threads cost more than they save.

    The limit is a setting of the process: the first user sets it and the last one restores it.
    """
    if not only_if:
        yield
        return
    with _blas.lock:
        if not _blas.users:
            _blas.limit = _controller().limit(limits=1, user_api="blas")
        _blas.users += 1
    try:
        yield
    finally:
        with _blas.lock:
            _blas.users -= 1
            if not _blas.users:
                _blas.limit.restore_original_limits()


def one_openmp_thread() -> Any:
    """Return a context in which OpenMP has one thread, for regions that begin on this thread."""
    return _controller().limit(limits=1, user_api="openmp")


# of a thread: ``check`` has to be called now and then; ``stops`` end its cancellable work under way
_local = threading.local()


@contextmanager
def cancellable(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` if the task on this thread is cancelled, then raise CancelledError."""
    stops = getattr(_local, "stops", [])
    stops.append(stop)
    try:
        check_cancelled()  # who cancels later finds ``stop`` in the list
        yield
    finally:
        stops.remove(stop)
    check_cancelled()


@contextmanager
def periodic_check(check: Callable[[], object] | None) -> Iterator[None]:
    """Have long work call ``check`` now and then; the work ends if ``check`` raises an error."""
    before, _local.check = getattr(_local, "check", None), check
    try:
        yield
    finally:
        _local.check = before


def check_cancelled() -> None:
    """Raise if the task on this thread is cancelled, or if its :func:`periodic_check` raises."""
    if (check := getattr(_local, "check", None)) is not None:
        check()


def run_threaded(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    small: bool = False,
    workers: int | None = None,
) -> list[Result]:
    """Return ``[work(task) for task in tasks]``, computed on threads with BLAS on one each.

    The first error, or an interruption by the user, stops the tasks that have not started, and
    those under way where they are :func:`cancellable`. There are as many ``workers`` as BLAS has
    threads by default. ``small`` says that a single task is too small for several BLAS threads.
    """
    workers = min(workers or n_threads(), len(tasks)) if len(tasks) > 1 else 1
    if workers == 1:
        with one_blas_thread(small):
            return [work(task) for task in tasks]
    cancelled, stops = threading.Event(), list[Callable[[], object]]()
    outer = getattr(_local, "check", None)

    def check() -> None:
        if cancelled.is_set():
            raise CancelledError
        if outer is not None:
            outer()

    def run(task: Task) -> Result:
        _local.stops = stops
        with periodic_check(check):
            return work(task)

    with one_blas_thread():
        pool = ThreadPoolExecutor(workers)
        try:
            return list(pool.map(run, tasks))
        except BaseException as error:
            cancelled.set()
            for stop in list(stops):
                stop()
            if isinstance(error, RuntimeError) and "start new thread" in str(error):
                raise MemoryError(str(error)) from error  # no memory for the thread's stack
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_evenly(
    walk: Callable[[Task], Iterable[Result]], tasks: Sequence[Task]
) -> list[list[Result]]:
    """Return ``[list(walk(task)) for task in tasks]`` for walks of about equal length.

    A multiple of the number of threads is walked on one thread each; the others take turns, step
    by step. Fewer walks than half of the threads go one after the other, each on all threads.
    """
    threads = n_threads()
    if 2 * len(tasks) <= threads or threads == 1:
        return [list(walk(task)) for task in tasks]
    rest = len(tasks) % threads
    turns = min(len(tasks), threads + rest) if rest else 0
    whole = len(tasks) - turns
    found = run_threaded(lambda task: list(walk(task)), tasks[:whole])
    return found + take_turns([iter(walk(task)) for task in tasks[whole:]], threads)


def take_turns(walks: Sequence[Iterator[Result]], workers: int) -> list[list[Result]]:
    """Advance the walks step by step, always one with the fewest steps so far."""
    found: list[list[Result]] = [[] for _ in walks]
    waiting, lock = set(range(len(walks))), threading.Lock()

    def work(_: int) -> None:
        while True:
            with lock:
                if not waiting:  # each walk that is not finished has a thread
                    return
                own = min(waiting, key=lambda i: (len(found[i]), i))
                waiting.remove(own)
            check_cancelled()
            try:
                found[own].append(next(walks[own]))
            except StopIteration:
                continue
            with lock:
                waiting.add(own)

    run_threaded(work, range(min(workers, len(walks))))
    return found


def chunk_and_tile(device: Any) -> tuple[int, int]:
    """Return how many array elements a chunk of rows and one step of a recurrence have."""
    if is_accelerator(device):
        return CHUNK_ELEMENTS_GPU, TILE_ELEMENTS_GPU
    return CHUNK_ELEMENTS, TILE_ELEMENTS


def rows_at_once(place: tuple[Any, Any], n: int, row_bytes: int) -> int:
    """Return the rows of one chunk of n rows in a place (namespace, device), at least 1."""
    rows = max(1, 8 * chunk_and_tile(place[1])[0] // row_bytes)
    if place[0] is not np:
        return rows
    # enough chunks to occupy every thread
    return max(1, rows // 8, min(rows, -(-n // (2 * n_threads()))))


def row_tasks(
    place: tuple[Any, Any], n: int, row_bytes: int, *, unfolding: bool = False
) -> list[slice]:
    """Return n rows as slices of :func:`rows_at_once`, at least one; ``unfolding`` makes dense."""
    rows = rows_at_once(place, n, row_bytes)
    if unfolding:
        rows = max(rows, min(MIN_UNFOLDED_ROWS, 8 * MAX_UNFOLDED_ELEMENTS // row_bytes))
    return [slice(start, min(start + rows, n)) for start in range(0, max(n, 1), rows)]


def map_rows(
    xp: Any, work: Callable[[Any], tuple[Array, ...]], tasks: list[Any]
) -> tuple[Array, ...]:
    """Apply ``work`` to rows (slices or integer arrays), on threads for NumPy; join the arrays."""
    results = run_threaded(work, tasks, small=True) if xp is np else [work(t) for t in tasks]
    return tuple(xp.concat(list(parts), axis=0) for parts in zip(*results, strict=True))
