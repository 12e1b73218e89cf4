"""Independent pieces of work on threads: as many as the BLAS library would use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from fbeta._array import Array

Task = TypeVar("Task")
Result = TypeVar("Result")

# numbers that are worked on at once: what the caches of a core hold, and what keeps a device busy
CHUNK, CHUNK_ON_DEVICE = 1 << 19, 1 << 23
# numbers that one operation of a recurrence takes: enough to outweigh the call
TILE, TILE_ON_DEVICE = 1 << 13, 1 << 18
# rows that are unfolded together even where they are more than a chunk, and how many numbers these
# may be: the recurrences of a few rows cost as much as those of one
FEW, MANY = 128, 1 << 21


@cache
def _controller() -> Any:
    return ThreadpoolController()


def n_threads() -> int:
    """Return the number of threads that BLAS is allowed now.

    So the usual ways of limiting threads (``OMP_NUM_THREADS``, ``threadpool_limits``, joblib's
    workers) limit this library too.

    Examples
    --------
    >>> n_threads() >= 1
    True
    """
    counts = [lib.num_threads for lib in _controller().lib_controllers if lib.user_api == "blas"]
    return max(counts, default=1)


class _OneThread:
    """Keeps BLAS to one thread as long as anybody asks for it.

    The setting belongs to the process: the first to come changes it and the last to go puts it
    back, whatever threads they are on.
    """

    def __init__(self) -> None:
        self.lock, self.users, self.limit = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            if not self.users:
                self.limit = _controller().limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limit.restore_original_limits()  # type: ignore[attr-defined]


_one_thread = _OneThread()


def one_blas_thread(only_if: bool = True) -> AbstractContextManager[Any]:
    """Keep BLAS to one thread for a while.

    On small matrices its threads bring nothing, and where other processes keep the cores busy,
    waiting for each other costs them a hundred times the work.
    """
    return _one_thread if only_if else nullcontext()


class Scope:
    """The work of some threads, which can be called off together."""

    def __init__(self) -> None:
        self.lock, self.cancelled = threading.Lock(), False
        self.stops: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """Make every piece of :func:`stoppable` work leave off, and let no other begin."""
        with self.lock:
            self.cancelled = True
            stops = list(self.stops)
        for stop in stops:
            stop()


_local = threading.local()


@contextmanager
def stoppable(stop: Callable[[], object]) -> Iterator[None]:
    """Let long work on a thread be called off by what started the thread.

    Parameters
    ----------
    stop : callable
        Makes the work leave off soon.

    Raises
    ------
    CancelledError
        If it was called off.
    """
    scope: Scope | None = getattr(_local, "scope", None)
    if scope is None:
        yield
        return
    with scope.lock:
        if scope.cancelled:
            raise CancelledError
        scope.stops.append(stop)
    try:
        yield
    finally:
        with scope.lock:
            scope.stops.remove(stop)
    if scope.cancelled:
        raise CancelledError


@contextmanager
def checked(check: Callable[[], object] | None) -> Iterator[None]:
    """Have a function called now and then by long work, which ends if it raises an error."""
    before = current_check()
    _local.check = check
    try:
        yield
    finally:
        _local.check = before


def current_check() -> Callable[[], object] | None:
    """Return what long work on this thread calls now and then."""
    check: Callable[[], object] | None = getattr(_local, "check", None)
    return check


def breathe() -> None:
    """Let the work on this thread be ended, by an error of :func:`checked` or by who started it."""
    scope: Scope | None = getattr(_local, "scope", None)
    if scope is not None and scope.cancelled:
        raise CancelledError
    check = current_check()
    if check is not None:
        check()


def run_threaded(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    small: bool = False,
    workers: int | None = None,
) -> list[Result]:
    """Return ``[work(task) for task in tasks]``, computed on threads with BLAS on one each.

    Elementwise array code runs on one core however many there are, so several threads that call
    BLAS with one thread each keep the cores busy throughout.

    Parameters
    ----------
    work : callable
        Spends its time in code that releases the interpreter lock.
    tasks : sequence
        Independent of each other. The first error, or an interruption by the user, stops those that
        have not started, and those under way where they are :func:`stoppable`.
    small : bool
        Whether a single task is too small for several BLAS threads.
    workers : int, optional
        How many threads; by default as many as BLAS has.

    Returns
    -------
    list

    Examples
    --------
    >>> run_threaded(abs, [-1, 2])
    [1, 2]
    """
    workers = min(workers or n_threads(), len(tasks)) if len(tasks) > 1 else 1
    if workers == 1:
        with one_blas_thread(small):
            return [work(task) for task in tasks]
    scope, check = Scope(), current_check()

    def run(task: Task) -> Result:
        _local.scope = scope
        with checked(check):
            return work(task)

    with one_blas_thread():
        pool = ThreadPoolExecutor(workers)
        try:
            return list(pool.map(run, tasks))
        except BaseException as error:
            scope.cancel()
            if isinstance(error, RuntimeError) and "start new thread" in str(error):
                raise MemoryError(str(error)) from error  # there is no room for its stack
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_evenly(
    walk: Callable[[Task], Iterable[Result]], tasks: Sequence[Task]
) -> list[list[Result]]:
    """Return ``[list(walk(task)) for task in tasks]`` for walks that are much alike.

    As many as keep every thread busy go side by side on one thread each, which wastes nothing. The
    last ones, whose number the threads do not divide, take turns on them. Where there are fewer
    walks than half of the threads they go one after the other, each with all threads to itself.

    Parameters
    ----------
    walk : callable
        Goes in steps that spend their time in code that releases the interpreter lock, and may be
        continued on another thread.
    tasks : sequence
        Independent of each other.

    Returns
    -------
    list of list

    Examples
    --------
    >>> run_evenly(range, [1, 2, 3])
    [[0], [0, 1], [0, 1, 2]]
    """
    threads = n_threads()
    if 2 * len(tasks) <= threads or threads == 1:
        return [list(walk(task)) for task in tasks]
    rest = len(tasks) % threads
    turns = min(len(tasks), threads + rest) if rest else 0
    whole = len(tasks) - turns
    found = run_threaded(lambda task: list(walk(task)), tasks[:whole])
    return found + _take_turns([iter(walk(task)) for task in tasks[whole:]], threads)


def _take_turns(walks: Sequence[Iterator[Result]], workers: int) -> list[list[Result]]:
    """Let walks go on step by step, always one that has come least far."""
    found: list[list[Result]] = [[] for _ in walks]
    waiting, lock = set(range(len(walks))), threading.Lock()

    def work(_: int) -> None:
        while True:
            with lock:
                if not waiting:  # each one left has a thread of its own
                    return
                own = min(waiting, key=lambda i: (len(found[i]), i))
                waiting.remove(own)
            breathe()
            try:
                found[own].append(next(walks[own]))
            except StopIteration:
                continue
            with lock:
                waiting.add(own)

    run_threaded(work, range(min(workers, len(walks))))
    return found


def on_host(device: Any) -> bool:
    """Tell whether a device is the processor, with its caches, and not beside it.

    Examples
    --------
    >>> on_host(np.zeros(1).device), on_host(None), on_host("cuda:0")
    (True, True, False)
    """
    return device is None or "cpu" in str(device).lower()


def chunk_elements(device: Any) -> int:
    """Return how many numbers are worked on at once."""
    return CHUNK if on_host(device) else CHUNK_ON_DEVICE


def tile_elements(device: Any) -> int:
    """Return how many numbers one step of a recurrence takes."""
    return TILE if on_host(device) else TILE_ON_DEVICE


def rows_at_once(place: tuple[Any, Any], n: int, row_bytes: int) -> int:
    """Return how many of n rows are worked on at once: few enough to occupy every thread.

    Parameters
    ----------
    place : pair
        Namespace and device of the arrays.
    n : int
        Number of rows.
    row_bytes : int
        What a row counts for.

    Returns
    -------
    int

    Examples
    --------
    >>> rows_at_once((np, None), 10, 1 << 30)
    1
    """
    rows = max(1, 8 * chunk_elements(place[1]) // row_bytes)
    if place[0] is not np:
        return rows
    return max(1, rows // 8, min(rows, -(-n // (2 * n_threads()))))


def row_tasks(
    place: tuple[Any, Any], n: int, row_bytes: int, *, unfolding: bool = False
) -> list[slice]:
    """Return slices of n rows, to be worked on one after the other or by several threads.

    Parameters
    ----------
    place, n, row_bytes
        As for :func:`rows_at_once`.
    unfolding : bool
        Whether the rows have to be unfolded first.

    Returns
    -------
    list of slice
        At least one, also where there are no rows.
    """
    rows = rows_at_once(place, n, row_bytes)
    if unfolding:
        rows = max(rows, min(FEW, 8 * MANY // row_bytes))
    return [slice(start, min(start + rows, n)) for start in range(0, max(n, 1), rows)]


def map_rows(
    xp: Any, work: Callable[[Any], tuple[Array, ...]], tasks: list[Any]
) -> tuple[Array, ...]:
    """Do work on some rows at a time, on threads where the arrays are NumPy's.

    Parameters
    ----------
    xp : module
        The namespace.
    work : callable
        From some rows to a tuple of arrays, with one entry for each row in their first axis.
    tasks : list
        Rows that go together: slices, or arrays of integers.

    Returns
    -------
    tuple of array
        What ``work`` returned for all tasks, joined.
    """
    results = run_threaded(work, tasks, small=True) if xp is np else [work(t) for t in tasks]
    return tuple(xp.concat(list(parts), axis=0) for parts in zip(*results, strict=True))
