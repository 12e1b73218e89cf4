"""All binary problems at once against scikit-learn's LogisticRegression in a loop."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from benchmarks.cases import Case, mediamill_shaped, problems_of
from fbeta._threads import run_evenly
from fbeta.estimators.folds import ALPHAS
from fbeta.linear import Binary, Design, LinearLearner, Problems, solve_path
from fbeta.linear.design import rotation_pays
from fbeta.losses import LogisticLoss

ALPHA = 1.0
WITHIN = 1e-6
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "liblinear")
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
LOSS = LogisticLoss()
SLOW = 5_000_000  # entries of X beyond which only the solvers that can be fast are tried


def settle() -> None:
    """Wait until the threads of BLAS are asleep: they go on for a while after each call."""
    time.sleep(0.1)


def objective(X: Any, target: np.ndarray, w: np.ndarray, b: float, alpha: float) -> float:
    u = np.asarray(X @ w).ravel() + b
    return float(LOSS.value(target, u).sum() + alpha / 2 * w @ w)


def objectives(
    X: Any, targets: sp.csc_array, alpha: float = ALPHA, **settings: Any
) -> tuple[float, np.ndarray]:
    """Return our seconds and the objective of each problem."""
    settle()
    start = time.perf_counter()
    model = LinearLearner(loss=LOSS, **settings).fit(X, targets, None, alpha)
    seconds = time.perf_counter() - start
    dense = targets.toarray()
    pairs = zip(model.coef[model.problem], model.intercept[model.problem], strict=True)
    values = [objective(X, dense[:, m], w, b, alpha) for m, (w, b) in enumerate(pairs)]
    return seconds, np.array(values)


def peer(
    X: Any, targets: np.ndarray, solver: str, tol: float, alpha: float = ALPHA
) -> tuple[float, np.ndarray]:
    """Return the seconds and the objective of each problem, fitted in a loop."""
    extra = {"intercept_scaling": 100.0} if solver == "liblinear" else {}
    seconds, values = 0.0, []
    settle()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for target in targets.T:
            model = LogisticRegression(
                C=1 / alpha, solver=solver, tol=tol, max_iter=10_000, **extra
            )
            start = time.perf_counter()
            model.fit(X, target)
            seconds += time.perf_counter() - start
            values.append(objective(X, target, model.coef_[0], model.intercept_[0], alpha))
    return seconds, np.array(values)


def best_peer(
    X: Any, targets: np.ndarray, optimum: np.ndarray, alpha: float, solvers: Sequence[str]
) -> tuple[str, float]:
    """Find the fastest solver, each at the loosest tolerance that reaches the optimum.

    On a few problems; a solver that is ten times slower than the best so far is left out.
    """
    best, record = ("lbfgs", 1e-6), np.inf
    for solver in solvers:
        for tol in TOLERANCES if len(solvers) > 2 else TOLERANCES[::2]:
            seconds, values = peer(X, targets, solver, tol, alpha)
            if values.sum() <= optimum.sum() * (1 + WITHIN):
                if seconds < record:
                    best, record = (solver, tol), seconds
                break
            if seconds > 10 * record:
                break
    return best


def run_case(case: Case) -> dict[str, Any]:
    """Time both sides, interleaved, and return the medians and the ratio."""
    n, d = case.X.shape
    M = case.targets.shape[1]
    rng = np.random.default_rng(0)
    optimum = objectives(case.X, case.targets, case.alpha, tol=1e-11, max_iter=300)[1]
    dense = case.targets.toarray().astype(np.float64)
    slow = case.X.shape[0] * case.X.shape[1] > SLOW
    few = rng.choice(M, min(M, 1 if slow else 12), replace=False)
    solvers = SOLVERS if not slow else ("newton-cholesky", "lbfgs")
    solvers = SOLVERS if "mediamill" in case.name else solvers
    solver, tol = best_peer(case.X, dense[:, few], optimum[few], case.alpha, solvers)
    sample = np.sort(rng.choice(M, case.sample, replace=False)) if case.sample else np.arange(M)
    sample = sample if len(sample) < M else np.arange(M)
    our_times: list[float] = []
    peer_times: list[float] = []
    repeats = 2 if slow else 3
    while len(our_times) < repeats or (len(our_times) < 11 and sum(peer_times) < 6):
        seconds, our_values = objectives(case.X, case.targets, case.alpha)
        our_times.append(seconds)
        seconds, peer_values = peer(case.X, dense[:, sample], solver, tol, case.alpha)
        peer_times.append(seconds * M / len(sample))
    product = time_product(case.X, M)
    row = {
        "case": case.name,
        "n": n,
        "d": d,
        "problems": M,
        "goal": case.goal,
        "ours_s": median(our_times),
        "peer_s": median(peer_times),
        "peer": f"{solver}, tol {tol:g}",
        "peer_sample": len(sample),
        "ratio": median(peer_times) / median(our_times),
        "ours_gap": float(our_values.sum() / optimum.sum() - 1),
        "peer_gap": float(peer_values.sum() / optimum[sample].sum() - 1),
        "products": median(our_times) / product,
    }
    if our_values[sample].sum() > peer_values.sum() * (1 + WITHIN):
        raise AssertionError(f"{case.name}: our objective is worse than the peer's")
    return row


def time_product(X: Any, M: int, repeats: int = 5) -> float:
    """Return the seconds of one product X @ W with a column for each problem."""
    W = np.random.default_rng(0).standard_normal((X.shape[1], M))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        X @ W
        times.append(time.perf_counter() - start)
    return min(times)


def run_path(case: Case, repeats: int = 3) -> dict[str, Any]:
    """Time the paths of all folds against a separate fit for each fold and strength."""
    folds = [train for train, _ in KFold(5, shuffle=True, random_state=0).split(case.X)]
    T = sp.csr_array(case.targets)
    path_times, fit_times = [], []

    def walk(train: np.ndarray) -> Iterator[Any]:
        problems = Problems(shared.take(train), Binary(LOSS), sp.csc_array(T[train]))
        yield from solve_path(problems, ALPHAS)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats):
            settle()
            start = time.perf_counter()
            shared = Design.of(case.X, rotate=rotation_pays(case.X.shape))
            run_evenly(walk, folds)
            path_times.append(time.perf_counter() - start)
            settle()
            start = time.perf_counter()
            for train in folds:
                for alpha in ALPHAS:
                    LinearLearner(loss=LOSS).fit(case.X[train], sp.csc_array(T[train]), None, alpha)
            fit_times.append(time.perf_counter() - start)
    return {
        "case": case.name,
        "path_s": median(path_times),
        "fits_s": median(fit_times),
        "ratio": median(fit_times) / median(path_times),
        "goal": 3,
    }


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of all cases one after the other."""
    path, fits = (sum(row[key] for row in rows) for key in ("path_s", "fits_s"))
    return {"case": "together", "path_s": path, "fits_s": fits, "ratio": fits / path, "goal": 3}


def run_scaling() -> list[dict[str, Any]]:
    """Time fits that are twice as large in one direction at a time."""
    base = {"n": 4000, "d": 60, "s": 20, "largest": 6}
    rows = []
    for change in ({}, {"n": 8000}, {"n": 16_000}, {"d": 120}, {"d": 240}, {"s": 40}, {"s": 80},
                   {"largest": 3}, {"largest": 12}):  # fmt: skip
        size = base | change
        X, Y = mediamill_shaped(**size)
        targets = problems_of(Y)
        seconds = median(objectives(X, targets)[0] for _ in range(3))
        rows.append({**size, "problems": targets.shape[1], "seconds": seconds,
                     "products": seconds / time_product(X, targets.shape[1])})  # fmt: skip
    return rows


def run_memory() -> dict[str, Any]:
    """Measure the peak of the Mediamill-shaped fit in a process that does nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        X, Y = mediamill_shaped()
        np.save(f"{folder}/X.npy", X)
        sp.save_npz(f"{folder}/targets.npz", problems_of(Y))
        command = [sys.executable, "-m", "benchmarks.solver", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = (int(v) / 2**20 for v in done.stdout.split())
    return {"before_gib": before, "peak_gib": after, "fit_gib": after - before}


def peak_kib() -> int:
    """Return the peak of this process's memory.

    Not ``ru_maxrss`` where there is better: that of a new process starts at its parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    X_ = np.load(f"{sys.argv[1]}/X.npy")
    targets_ = sp.csc_array(sp.load_npz(f"{sys.argv[1]}/targets.npz"))
    before_ = peak_kib()
    LinearLearner(loss=LOSS).fit(X_, targets_, None, ALPHA)
    print(before_, peak_kib())
