"""Work on threads: limits, errors, and how it is ended."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbeta import _threads
from fbeta._threads import check_cancelled, periodic_check, run_evenly, run_threaded


def test_as_many_workers_as_are_asked_for():
    seen, together = set(), threading.Barrier(3, timeout=30)

    def work(task):
        together.wait()  # only if there are three at the same time
        seen.add(threading.get_ident())
        return -task

    assert run_threaded(work, [1, 2, 3], workers=3) == [-1, -2, -3]
    assert len(seen) == 3


def test_what_is_called_now_and_then_ends_work_on_every_thread():
    class OverError(Exception):
        pass

    def over():
        raise OverError

    with periodic_check(over):
        with pytest.raises(OverError):
            check_cancelled()
        for workers in (1, 2):
            with pytest.raises(OverError):
                run_threaded(lambda task: check_cancelled(), [1, 2, 3], workers=workers)
        with periodic_check(None):
            check_cancelled()
    check_cancelled()


def test_an_error_ends_the_others():
    begun, ended = threading.Event(), []

    def work(task):
        if task:
            begun.wait(30)
            raise ValueError("no")
        begun.set()
        try:
            while True:
                check_cancelled()
        except CancelledError:
            ended.append(task)
            raise

    with pytest.raises((ValueError, CancelledError)):
        run_threaded(work, [1, 0], workers=2)
    assert ended == [0]


def test_no_room_for_a_thread_is_no_room(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_threads.threading.Thread, "start", start)
    with pytest.raises(MemoryError, match="new thread"):
        run_threaded(abs, [1, 2], workers=2)


@given(st.lists(st.integers(0, 5), max_size=9), st.integers(1, 5))
def test_walks_that_take_turns_are_those_that_go_alone(lengths, threads):
    """Each in its order, and no more are under way than need be."""
    lock, under_way, most = threading.Lock(), set(), 0

    def walk(task):
        nonlocal most
        name, length = task
        with lock:
            under_way.add(name)
            most = max(most, len(under_way))
        for step in range(length):
            yield name, step
        with lock:
            under_way.discard(name)

    tasks = list(enumerate(lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_threads, "n_threads", lambda: threads)
        found = run_evenly(walk, tasks)
    assert found == [[(name, step) for step in range(length)] for name, length in tasks]
    assert most < max(2 * threads, 2)


def test_an_odd_walk_takes_turns_with_the_others(monkeypatch):
    """Three walks of two steps on two threads: no thread has four steps to do."""
    monkeypatch.setattr(_threads, "n_threads", lambda: 2)
    pair = threading.Barrier(2, timeout=30)

    def walk(name):
        for _ in range(2):
            pair.wait()  # six steps are three pairs: none is left over
            yield name

    assert run_evenly(walk, "abc") == [["a"] * 2, ["b"] * 2, ["c"] * 2]


def test_an_error_of_a_walk_ends_the_others(monkeypatch):
    monkeypatch.setattr(_threads, "n_threads", lambda: 2)

    def walk(name):
        while name != "c":
            yield name
        raise ValueError(name)

    with pytest.raises((ValueError, CancelledError)):
        run_evenly(walk, "abc")
