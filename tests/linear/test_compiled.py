"""The compiled solver against the one on arrays, what it certifies, and what it refuses."""

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

from fbeta.linear import Cardinality, Design, Multinomial, Problems, compiled
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.objectives import Binary
from fbeta.linear.preconditioners import Factorised
from fbeta.losses import LOSSES, LogisticLoss
from tests.linear.fits import linear_problems

from ..cases import slow
from ..children import INTERRUPTIBLE, child

if not compiled.is_compiled():
    pytest.skip("fbeta was built without a compiler", allow_module_level=True)


@pytest.fixture
def stage(monkeypatch):
    """Only the compiled part is tested here."""
    monkeypatch.setattr(compiled, "SMALLEST", 0)


@pytest.fixture(params=[False, True], ids=["32 bytes", "64 bytes"])
def registers(request, monkeypatch):
    """Run a test with registers of either size, where the processor has them."""
    if request.param and not compiled._engine.WIDE_REGISTERS:
        pytest.skip("the processor has no registers of 64 bytes (AVX-512)")
    monkeypatch.setattr(compiled._engine, "WIDE_REGISTERS", request.param)


def make(n, d, m, seed=0, *, sparse=False, weighted=False, soft=False, intercept=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.uniform(size=(n, d)) < (0.3 if sparse else 1))
    T = (rng.uniform(size=(n, m)) < rng.uniform(0.05, 0.6, m)) * 1.0
    if soft:
        T = T * rng.uniform(size=(n, m))
    weight = rng.uniform(0.5, 2, n) if weighted else None
    design = Design.of(sp.csr_array(X) if sparse else X, weight, intercept=intercept)
    return design, sp.csc_array(T)


def objectives(design, targets, W, loss, alpha):
    f = loss.value(targets.toarray(), np.asarray(design.scores(W)))
    f = f if design.weight is None else design.weight * f
    return f.sum(axis=0) + alpha / 2 * (design.penalised * W**2).sum(axis=0)


def run(design, targets, loss, alpha, start=None, *, tol=1e-6, max_iter=100, cold=True):
    """Run the compiled solver alone; returns what it found, iterations and certificates."""
    problems = linear_problems(design, targets, loss)
    m = targets.shape[1]
    W = np.zeros((design.matrix.shape[1], m)) if start is None else start.copy()
    n_iter = np.zeros(m, dtype=np.intp)
    certified, hard = problems.compiled.solve(
        np.arange(m),
        W,
        n_iter,
        alpha,
        tol=tol,
        max_iter=max_iter,
        floor=problems.floor,
        cold=cold,
        max_steps=lambda width: 200,
    )
    assert not (certified & hard).any()
    return W, n_iter, certified


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.usefixtures("registers")
def test_solutions_are_those_of_the_array_solver(name, sparse, weighted, intercept):
    """More problems than lanes, and row counts that no block size divides."""
    loss = LOSSES[name]
    design, T = make(203, 11, 37, sparse=sparse, weighted=weighted, soft=True, intercept=intercept)
    W, _, certified = run(design, T, loss, 0.7)
    assert certified.all()
    problems = linear_problems(design, T, loss)
    problems.compiled = None
    other = problems.solve(0.7, tol=1e-13).W
    best = objectives(design, T, other, loss, 0.7)
    assert (objectives(design, T, W, loss, 0.7) <= best * (1 + 3e-6)).all()
    assert np.allclose(W, other, atol=2e-2)


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.usefixtures("registers")
def test_what_is_certified_has_converged(name, sparse):
    """By Newton decrements with factorised Hessians, computed on arrays."""
    loss, alpha, tol = LOSSES[name], 0.3, 1e-6
    design, T = make(150, 9, 20, 3, sparse=sparse, weighted=True)
    W, _, certified = run(design, T, loss, alpha, tol=tol)
    assert certified.mean() > 0.9
    block = ProblemBatch(design, design, Binary(loss), T.toarray(), alpha)
    point = block.evaluate(W)
    _, decrement, _ = Factorised.build(block, point, None, None).apply(point.gradient)
    floor = linear_problems(design, T, loss).floor
    assert (0.5 * decrement <= 1.001 * tol * (point.value + floor))[certified].all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 0.3, 30.0])
def test_a_loose_tolerance_is_reached_in_single_precision(sparse, alpha, monkeypatch):
    """Against the array solver; the certificate would take a solution that is far more accurate."""
    precisions, plain = [], compiled.Compiled._run

    def count(own, numbers, *args):
        precisions.append(numbers["single"])
        plain(own, numbers, *args)

    monkeypatch.setattr(compiled.Compiled, "_run", count)
    loss, tol = LogisticLoss(), compiled.UNCERTIFIED_TOL
    design, T = make(403, 11, 37, sparse=sparse, weighted=True)
    W, _, done = run(design, T, loss, alpha, tol=tol)
    assert done.all()
    assert precisions == [True]
    problems = Problems(design, Binary(loss), T)
    problems.compiled = None
    best = objectives(design, T, problems.solve(alpha, tol=1e-12).W, loss, alpha)
    gap = objectives(design, T, W, loss, alpha) - best
    assert (gap <= tol * (best + problems.floor)).all()
    run(design, T, loss, alpha, tol=0.9 * tol)
    assert precisions == [True, True, False]


def test_nothing_is_certified_before_it_has_converged():
    design, T = make(150, 9, 20)
    _, n_iter, certified = run(design, T, LogisticLoss(), 1e-3, max_iter=1)
    assert (n_iter <= 1).all()
    assert not certified.any()


def test_a_solution_is_kept_bit_for_bit():
    design, T = make(150, 9, 20)
    start = linear_problems(design, T, LogisticLoss()).solve(0.5, tol=1e-13).W
    W, n_iter, certified = run(design, T, LogisticLoss(), 0.5, start, cold=False)
    assert certified.all()
    assert (n_iter == 0).all()
    assert np.array_equal(W, start)


def test_what_single_precision_cannot_hold_is_left_to_double_precision():
    design, T = make(60, 5, 4)
    huge = Design.of(np.asarray(design.matrix[:, :5]) * 1e100, rotate=False)
    W, n_iter, certified = run(huge, T, LogisticLoss(), 1e200)
    assert certified.all()
    assert n_iter.all()
    plain = Design.of(np.asarray(design.matrix[:, :5]), rotate=False)
    assert np.allclose(W[:-1] * 1e100, run(plain, T, LogisticLoss(), 1.0)[0][:-1], atol=1e-3)


def test_other_losses_and_arrays_are_left_to_the_array_solver():
    class Mine(LogisticLoss):
        name = "mine"

    assert linear_problems(*make(30, 3, 2), Mine()).compiled is None
    assert linear_problems(*make(30, 3, 2), LogisticLoss()).compiled is not None


def test_a_large_fit_without_the_compiled_solver_says_so(monkeypatch):
    monkeypatch.setattr(compiled, "_engine", None)
    assert linear_problems(*make(30, 3, 2), LogisticLoss()).compiled is None
    monkeypatch.setattr(compiled, "WARNED_OPERATIONS", 4 * 30 * 4 * 2)
    with pytest.warns(RuntimeWarning, match="without its compiled solver"):
        assert linear_problems(*make(30, 3, 2), LogisticLoss()).compiled is None


@pytest.mark.parametrize("sparse", [False, True])
def test_matrices_in_single_precision(sparse, monkeypatch):
    """A large X in single precision is read as it is, and computed with in double precision."""
    monkeypatch.setattr("fbeta.linear.design.MAX_DOUBLE_ENTRIES", 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 9)).astype(np.float32)
    _, T = make(200, 9, 20)
    design = Design.of(sp.csr_array(X) if sparse else X)
    assert design.matrix.dtype == np.float32
    W, _, certified = run(design, T, LogisticLoss(), 0.5)
    assert certified.all()
    exact, _, _ = run(Design.of(X.astype(np.float64)), T, LogisticLoss(), 0.5)
    value = objectives(design.astype(np.float64), T, W, LogisticLoss(), 0.5)
    best = objectives(Design.of(X.astype(np.float64)), T, exact, LogisticLoss(), 0.5)
    assert np.allclose(value, best, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.usefixtures("registers")
def test_multinomial_problems_reach_their_optimum(sparse, intercept):
    """Classes of every width of a slot, one that is too wide, and more than the slots hold."""
    rng = np.random.default_rng(0)
    counts = np.array([2, 3, 4, 5, 8, 9, 16, 17, 2, 3, 7, 12])
    X = rng.normal(size=(301, 9)) * (rng.uniform(size=(301, 9)) < (0.5 if sparse else 1))
    logits = [X @ rng.normal(size=(9, c)) + rng.gumbel(size=(301, c)) for c in counts]
    classes = np.stack([np.argmax(u, axis=1) for u in logits], axis=1)
    weight = np.linspace(0.5, 2, 301)
    design = Design.of(sp.csr_array(X) if sparse else X, weight, intercept=intercept)
    problems = Problems(design, Multinomial.of(classes), classes)
    assert np.array_equal(problems.objective.counts, counts)
    W, n_iter = problems.bound.start(design, classes, 0.7), np.zeros(len(counts), dtype=np.intp)
    certified, hard = problems.compiled.solve(
        problems.unsolved,
        W,
        n_iter,
        0.7,
        tol=1e-6,
        max_iter=100,
        floor=problems.floor,
        cold=True,
        max_steps=lambda width: 200,
    )
    problems.compiled = None
    best = problems.solve(0.7, tol=1e-12).W
    assert np.array_equal(certified, counts <= 16)
    assert not hard.any()
    assert (n_iter[counts <= 16] > 0).all()
    for m in np.flatnonzero(counts <= 16):
        names = np.array([m])
        block = ProblemBatch(design, design, problems.objective.take(names), classes[:, names], 0.7)
        own = slice(*problems.first[m : m + 2])
        found, least = (block.evaluate(w[:, own]).value for w in (W, best))
        assert found <= least * (1 + 1e-5)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 20),
    st.integers(0, 10**6),
    st.floats(-8, 4),
    st.floats(-6, 6),
    st.sampled_from(sorted(LOSSES)),
    st.booleans(),
)
def test_never_worse_than_the_start_and_never_nan(n, d, m, seed, log_alpha, scale, name, sparse):
    loss, alpha = LOSSES[name], 10**log_alpha
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10**scale
    T = sp.csc_array(rng.integers(0, 2, (n, m)).astype(float))
    design = Design.of(sp.csr_array(X) if sparse else X, intercept=False)
    start = rng.normal(size=(design.matrix.shape[1], m)) * 10**-scale
    problems = linear_problems(design, T, loss)
    before = objectives(
        design,
        T[:, np.unique(problems.problem, return_index=True)[1]],
        start[:, : len(problems)],
        loss,
        alpha,
    )
    W = problems.solve(alpha, start[:, : len(problems)], max_iter=50).W
    assert np.isfinite(W).all()
    after = objectives(design, problems.targets, W, loss, alpha)
    assert (after <= before * (1 + 1e-4) + 1e-4).all()


def raw(n=3000, p=61, m=400, **changes):
    """Return what the compiled part is given, with some of it changed: work without an end."""
    design, T = make(n, p - 1, m)
    problems = linear_problems(design, T, LogisticLoss()).compiled
    arrays = (
        problems.arrays
        | problems.values["float"]
        | {
            "penalty": 1e-6 * design.penalised[:, 0],
            "queue": np.arange(m, dtype=np.intc),
            "W": np.zeros((m, p)),
            "n_iter": np.zeros(m, dtype=np.intc),
            "status": np.zeros(m, dtype=np.intc),
        }
    )
    numbers = compiled.CONSTANTS | {
        "n_rows": n,
        "n_columns": p,
        "n_problems": m,
        "loss": 0,
        "single": 1,
        "wide": 0,
        "double_entries": 0,
        "intercept": 1,
        "width": 1,
        "cold": 1,
        "tol": 1e-12,
        "tol_share": 0.0,
        "objective_floor": 0.0,
        "certified_radius": 0.4,
        "unchecked_decrease": 0.0,
        "forcing": 1e-6,
        "max_forcing": 1e-6,
        "max_iter": 10**6,
        "max_steps": 10**6,
    }
    for name, value in changes.items():
        (arrays if isinstance(value, np.ndarray) else numbers)[name] = value
    return compiled._engine.Problems(numbers, arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_rows": 4_000_000}, "dense has"),
        ({"n_columns": 60}, "dense has"),
        ({"n_rows": 0}, "nothing to solve"),
        ({"penalty": np.zeros(3)}, "penalty has 3 entries, expected 61"),
        ({"variance": np.zeros(60)}, "variance has"),
        ({"W": np.zeros((400, 60))}, "W has 24000 entries, expected 24400"),
        ({"W": np.zeros((61, 400)).T}, "W must be contiguous"),
        ({"weight": np.zeros(3000, dtype=np.float32)}, "weight must be contiguous, of type 'd'"),
        ({"queue": np.array([400], dtype=np.intc)}, "queue has 400"),
        ({"target_index": np.zeros(3, dtype=np.intc)}, "target_start"),
        ({"dense": np.zeros(5, dtype=np.float32)}, "dense has 5"),
        ({"dense": np.zeros((3000, 61))}, "dense must be contiguous, of type 'f', got 'd'"),
        ({"width": 3}, "power of 2"),
        ({"width": 32}, "power of 2 up to 16"),
        ({"max_iters": 3}, "there is no setting 'max_iters'"),
    ],
)
def test_sizes_are_checked_before_anything_is_read(change, message):
    with pytest.raises(ValueError, match=message):
        raw(**change)


def test_no_setting_may_be_missing(monkeypatch):
    monkeypatch.delitem(compiled.CONSTANTS, "forcing")
    monkeypatch.delitem(compiled.CONSTANTS, "max_trials")
    with pytest.raises(ValueError, match="expected 40 settings, got 39"):
        raw()


def test_threads_stop_when_told():
    """An interrupted solve ends within a pass, whatever is left to do."""
    problems = raw()
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
from fbeta.linear import LinearLearner
rng = np.random.default_rng(0)
X = rng.normal(size=(4_000, 200))
Y = (rng.uniform(size=(4_000, 300)) < 0.3).astype(np.int8)
Z = Y[:, :30]
def fit():
    LinearLearner(tol=1e-12).fit(X, sp.csc_array(Y), None, 1e-6)
def search():
    FBetaClassifierCV(cv=4).fit(X, Z)
print("ready", flush=True)
with threadpool_limits({threads}):
    while True:
        {work}()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are others there")
@pytest.mark.parametrize("work", [slow("fit"), "search"])
@pytest.mark.parametrize("threads", [slow(1), 2])
def test_the_user_can_interrupt(work, threads):
    """Work that would never end."""
    program = INTERRUPTIBLE + PROGRAM.format(work=work, threads=threads)
    with child("-c", program, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 20
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in errors


@pytest.mark.parametrize("n", [1, 8, 21])
@pytest.mark.parametrize(("s", "sizes"), [(1, [0, 1]), (7, [0]), (40, [0, 1, 3]), (90, range(91))])
def test_compiled_sweeps_are_those_of_arrays(s, sizes, n, monkeypatch):
    rng, objective = np.random.default_rng(0), Cardinality(s, np.array(sizes))
    u, v = rng.normal(size=(2, n, s + len(sizes)))
    y = rng.integers(2, size=u.shape).astype(float)
    found = objective.evaluate(y, u, None)
    product = objective.response(found[2], v)
    monkeypatch.setattr(compiled, "_engine", None)
    expected = objective.evaluate(y, u, None)
    np.testing.assert_allclose(product, objective.response(expected[2], v), atol=1e-13)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-13)


def test_sweeps_refuse_what_they_cannot_read():
    u, total, kept = np.zeros((2, 5)), np.zeros(2), np.zeros((2, 13))
    for sizes in ([-1, 0], [1, 1], [0, 4]):
        with pytest.raises(ValueError, match="must increase"):
            compiled.size_sweep("evaluate", 3, np.array(sizes))(2, u, total, kept)
    evaluate, multiply = (
        compiled.size_sweep(name, 3, np.array([0, 1])) for name in ("evaluate", "multiply")
    )
    for wrong in (u[:, :4], u.astype(np.float32), u[:, ::-1]):
        with pytest.raises(ValueError, match="must be contiguous"):
            evaluate(2, wrong, total, kept)
        with pytest.raises(ValueError, match="must be contiguous"):
            multiply(2, kept, u, wrong)
