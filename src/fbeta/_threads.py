"""Independent pieces of work on threads: as many as the BLAS library would use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_info, threadpool_limits

Task = TypeVar("Task")
Result = TypeVar("Result")


def n_threads() -> int:
    """Return the number of threads that BLAS is allowed now.

    So the usual ways of limiting threads (``OMP_NUM_THREADS``, ``threadpool_limits``, joblib's
    workers) limit this library too.

    Examples
    --------
    >>> n_threads() >= 1
    True
    """
    counts = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(counts, default=1)


def run_threaded(work: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Return ``[work(task) for task in tasks]``, computed on threads with BLAS on one each.

    Elementwise array code runs on one core however many there are, so several threads that call
    BLAS with one thread each keep the cores busy throughout.

    Parameters
    ----------
    work : callable
        Spends its time in code that releases the interpreter lock.
    tasks : sequence
        Independent of each other; the first error stops those that have not started.

    Returns
    -------
    list

    Examples
    --------
    >>> run_threaded(abs, [-1, 2])
    [1, 2]
    """
    workers = min(n_threads(), len(tasks)) if len(tasks) > 1 else 1
    if workers == 1:
        return [work(task) for task in tasks]
    with threadpool_limits(1, user_api="blas"):
        pool = ThreadPoolExecutor(workers)
        try:
            return list(pool.map(work, tasks))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
