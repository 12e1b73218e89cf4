"""The compiled solver against the one on arrays, and what it certifies against gradients."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fbeta.linear import Design, LinearProblems, lanes, newton
from fbeta.linear.lanes import Lanes
from fbeta.linear.newton import squared
from fbeta.losses import LOSSES, LogisticLoss
from fbeta.rivals._softmax import SoftmaxProblems
from fbeta.rivals._softmax_newton import Block

from ..children import INTERRUPTIBLE, child

if lanes._compiled is None:
    pytest.skip("fbeta was built without a compiler", allow_module_level=True)


@pytest.fixture
def stage(monkeypatch):
    """Only the compiled part is tested here."""
    monkeypatch.setattr(lanes, "SMALLEST", 0)


def make(n, d, m, seed=0, *, sparse=False, weighted=False, soft=False, intercept=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.uniform(size=(n, d)) < (0.3 if sparse else 1))
    T = (rng.uniform(size=(n, m)) < rng.uniform(0.05, 0.6, m)) * 1.0
    if soft:
        T = T * rng.uniform(size=(n, m))
    weight = rng.uniform(0.5, 2, n) if weighted else None
    design = Design.of(sp.csr_array(X) if sparse else X, weight, intercept=intercept)
    return design, sp.csc_array(T)


def gradients(design, targets, W, loss, alpha):
    """The gradients at W, by their definition."""
    u = design.matrix @ design.forward(W)
    g = loss.derivative(targets.toarray(), np.asarray(u))
    if design.weight is not None:
        g = design.weight * g
    return design.backward(design.matrix.T @ g) + alpha * design.penalised * W


def objectives(design, targets, W, loss, alpha):
    f = loss.value(targets.toarray(), np.asarray(design.matrix @ design.forward(W)))
    f = f if design.weight is None else design.weight * f
    return f.sum(axis=0) + alpha / 2 * (design.penalised * W**2).sum(axis=0)


def run(design, targets, loss, alpha, start=None, *, tol=1e-6, max_iter=100, cold=True):
    p, m = design.matrix.shape[1], targets.shape[1]
    W = np.zeros((p, m)) if start is None else start
    prepared = Lanes.of(design, design, m)
    return prepared.solve(
        targets, np.arange(m), W, loss, alpha, tol=tol, max_iter=max_iter, cold=cold,
        trust=np.full(m, newton.DOUBT),
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_solutions_are_those_of_the_array_solver(name, sparse, weighted, intercept):
    """More problems than lanes, and row counts that no block size divides."""
    loss = LOSSES[name]
    design, T = make(203, 11, 37, sparse=sparse, weighted=weighted, soft=True, intercept=intercept)
    W, n_iter, certified = run(design, T, loss, 0.7)
    other = newton.solve_block(
        design, design, T.toarray(), loss, 0.7, np.zeros_like(W), tol=1e-13, max_iter=200
    )
    assert certified.mean() > 0.9
    assert (n_iter > 0).all()
    best = objectives(design, T, other.W, loss, 0.7)
    assert (objectives(design, T, W, loss, 0.7) <= best * (1 + 3e-6)).all()
    assert np.allclose(W, other.W, atol=2e-2)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_certified_has_converged_in_double_precision(name, sparse):
    """By the rule of the array solver, with gradients computed here."""
    loss, alpha, tol = LOSSES[name], 0.3, 1e-6
    design, T = make(150, 9, 40, 3, sparse=sparse, weighted=True)
    W, _, certified = run(design, T, loss, alpha, tol=tol)
    assert certified.mean() > 0.9
    g = gradients(design, T, W, loss, alpha)
    value = objectives(design, T, W, loss, alpha)
    u = np.asarray(design.matrix @ design.forward(W))
    h = design.weight * loss.second_derivative(T.toarray(), u)
    Z = design.matrix.toarray() if sparse else design.matrix
    Z = Z - np.append(design.mean, 0) if sparse else Z
    promise = 0.5 * (g**2 / (alpha * design.penalised + (Z**2).T @ h)).sum(axis=0)
    enough = promise <= 1.001 * tol * (value + newton.value_floor(design, loss))
    assert enough[certified].all()


def test_nothing_is_certified_before_it_has_converged():
    design, T = make(150, 9, 20)
    _, n_iter, certified = run(design, T, LogisticLoss(), 1e-3, max_iter=1)
    assert (n_iter <= 1).all()
    assert not certified.any()
    _, _, certified = run(design, T, LogisticLoss(), 1e-3, tol=1e-15)
    assert not certified.any()


def test_a_solution_is_kept_bit_for_bit():
    design, T = make(150, 9, 20)
    start = LinearProblems(design, T, LogisticLoss()).solve(0.5, tol=1e-13).W
    W, n_iter, certified = run(design, T, LogisticLoss(), 0.5, start, cold=False)
    assert certified.all()
    assert (n_iter == 0).all()
    assert np.array_equal(W, start)


def test_what_single_precision_cannot_hold_is_left_alone():
    design, T = make(60, 5, 4)
    huge = Design.of(np.asarray(design.matrix[:, :5]) * 1e100, rotate=False)
    start = np.zeros((huge.matrix.shape[1], 4))
    W, n_iter, certified = run(huge, T, LogisticLoss(), 1.0, start)
    assert np.array_equal(W, start)
    assert not n_iter.any()
    assert not certified.any()


def test_multinomial_problems_that_single_precision_cannot_hold_are_left_alone():
    rng = np.random.default_rng(0)
    design = Design.of(rng.normal(size=(60, 4)) * 1e60, rotate=False)
    classes = rng.integers(0, 3, size=(60, 5))
    problems = SoftmaxProblems(design, classes)
    start = rng.normal(size=(5, 15)) * 1e-60
    W, n_iter, good = problems.lanes.solve_softmax(
        classes, problems.groups.counts, start, 1.0, tol=1e-6, max_iter=20, floor=0.0, forcing=0.3,
        flat=0.3, trust=np.full(5, newton.DOUBT),
    )  # fmt: skip
    assert np.array_equal(W, start)
    assert not n_iter.any()
    assert not good.any()


def test_other_losses_and_arrays_are_left_to_the_array_solver():
    class Mine(LogisticLoss):
        pass

    assert LinearProblems(*make(30, 3, 2), Mine()).lanes is None
    assert LinearProblems(*make(30, 3, 2), LogisticLoss()).lanes is not None
    single, T = make(200, 9, 20)
    single = single.astype(np.float32)
    prepared = Lanes.of(single, single, 20)
    assert "exact" not in prepared.arrays
    W, n_iter, certified = run(single, T, LogisticLoss(), 0.5)
    assert W.dtype == np.float32
    assert n_iter.any()
    assert not certified.any()


@pytest.mark.parametrize("sparse", [False, True])
def test_multinomial_problems_reach_their_optimum(sparse):
    """Classes of every width of a slot, one that is too wide, and more than the slots hold."""
    rng = np.random.default_rng(0)
    counts = np.array([2, 3, 4, 5, 8, 9, 16, 17, 2, 3, 7, 12])
    X = rng.normal(size=(301, 9)) * (rng.uniform(size=(301, 9)) < (0.5 if sparse else 1))
    logits = [X @ rng.normal(size=(9, c)) + rng.gumbel(size=(301, c)) for c in counts]
    classes = np.stack([np.argmax(u, axis=1) for u in logits], axis=1)
    design = Design.of(sp.csr_array(X) if sparse else X, np.linspace(0.5, 2, 301))
    problems = SoftmaxProblems(design, classes)
    assert np.array_equal(problems.groups.counts, counts)
    best = problems.solve(0.7, tol=1e-12).W
    start = np.zeros_like(best)
    W, n_iter, good = problems.lanes.solve_softmax(
        classes, counts, start, 0.7, tol=1e-6, max_iter=100, floor=0.0, forcing=0.3, flat=0.3,
        trust=np.full(len(counts), newton.DOUBT),
    )  # fmt: skip
    block = Block(design, design, squared(design.matrix), classes, counts, 0.7)
    found, least, first = (block.evaluate(w, block.scores(w)).value for w in (W, best, start))
    assert (n_iter[counts <= 16] > 0).all()
    assert np.array_equal(good, counts <= 16)
    assert (found <= least * (1 + 1e-5))[counts <= 16].all()
    assert np.array_equal(found[counts > 16], first[counts > 16])


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 20), st.integers(0, 10**6),
    st.floats(-8, 4), st.floats(-6, 6), st.sampled_from(sorted(LOSSES)), st.booleans(),
)  # fmt: skip
def test_never_worse_than_the_start_and_never_nan(n, d, m, seed, log_alpha, scale, name, sparse):
    loss, alpha = LOSSES[name], 10**log_alpha
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10**scale
    T = sp.csc_array(rng.integers(0, 2, (n, m)).astype(float))
    design = Design.of(sp.csr_array(X) if sparse else X, intercept=False)
    start = rng.normal(size=(design.matrix.shape[1], m)) * 10**-scale

    W, _, _ = run(design, T, loss, alpha, start, max_iter=50)
    assert np.isfinite(W).all()
    before = objectives(design, T, start, loss, alpha)
    assert (objectives(design, T, W, loss, alpha) <= before * (1 + 1e-4) + 1e-4).all()


def test_threads_stop_when_told():
    """An interrupted solve ends within a pass, whatever is left to do."""
    design, T = make(3000, 60, 400, sparse=False)
    prepared = Lanes.of(design, design.astype(np.float32), 400)
    W = np.zeros((61, 400), order="F")
    counts = np.zeros((2, 400), dtype=np.intc)
    arrays = prepared.arrays | {
        "penalty": 1e-6 * design.penalised[:, 0],
        "target_start": T.indptr,
        "target_index": T.indices,
        "target_value": T.data,
        "queue": np.arange(400, dtype=np.intc),
    }
    problems = lanes._compiled.Problems(
        3000, 61, arrays, W, *counts, np.ones(400), 0, tol=1e-12, aim=1.0, finest=0.0,
        floor=0.0, forcing=1e-6, loose=1e-6, far=0.1, armijo=1e-4, max_iter=10**6,
        max_steps=10**6, cold=True,
    )  # fmt: skip
    worker = threading.Thread(target=problems.work, args=(10**6,))
    worker.start()
    time.sleep(0.05)
    problems.stop()
    worker.join(timeout=20)
    assert not worker.is_alive()


PROGRAM = """
import numpy as np, scipy.sparse as sp
from threadpoolctl import threadpool_limits
from fbeta import FBetaClassifierCV
from fbeta.linear import fit_linear
from fbeta.losses import LogisticLoss
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 200))
Y = (rng.uniform(size=(20_000, 600)) < 0.3).astype(np.int8)
Z = (rng.uniform(size=(20_000, 60)) < 0.3).astype(np.int8)
def fit():
    fit_linear(X, sp.csc_array(Y), LogisticLoss(), 1e-6, tol=1e-12)
def search():
    FBetaClassifierCV(cv=4).fit(X, Z)
print("ready", flush=True)
with threadpool_limits({threads}):
    while True:
        {work}()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize("work", ["fit", "search"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_user_can_interrupt(work, threads):
    """Work that would never end."""
    program = INTERRUPTIBLE + PROGRAM.format(work=work, threads=threads)
    with child("-c", program, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 20
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in errors
