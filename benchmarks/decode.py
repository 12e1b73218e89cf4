"""The exact decode: seconds and memory, and against the same decode done plainly."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from fbeta import LabelStatistics, decode


def make_statistics(n: int, s: int, largest: int, mean: float, seed: int = 0) -> LabelStatistics:
    """Make estimates like those of a model: a few likely labels, sizes around a mean, noise."""
    rng = np.random.default_rng(seed)
    sizes = np.arange(1, largest + 1)
    shape = 0.02 + 8 * np.exp(-0.5 * ((sizes - mean) / (0.35 * mean)) ** 2)
    size = rng.dirichlet(shape, size=n)[:, :, None]
    label = rng.gamma(0.15, size=(n, 1, s))
    label /= label.sum(axis=2, keepdims=True)
    joint = np.minimum(size * sizes[None, :, None] * label, size)
    joint *= rng.uniform(0.5, 1.5, size=joint.shape)
    return LabelStatistics(np.full(n, 0.02), joint, sizes)


def plain_decode(q: LabelStatistics, beta: float = 1.0) -> np.ndarray:
    """Return the best value of each instance, over all sizes: the O(s^3) procedure as printed."""
    s = q.n_labels
    weights = (1 + beta**2) / (beta**2 * q.cardinalities + np.arange(1, s + 1)[:, None])
    best = q.empty.copy()
    for i in range(len(q)):
        scores = weights @ q.joint[i]
        for size in range(1, s + 1):
            row = np.partition(scores[size - 1], s - size)
            best[i] = max(best[i], row[s - size :].sum())
    return best


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median time of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def peak_mb(work: Callable[[], Any]) -> float:
    """Return the memory that is in use at most beyond what was there before."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def run() -> list[dict[str, Any]]:
    """Decode dense statistics."""
    rows = []
    for n, s, largest, mean, few in ((13_000, 101, 18, 4.4, 300), (3_200, 983, 25, 19, 20)):
        q = make_statistics(n, s, largest, mean)
        _, expected = decode(q, return_expected=True)
        ours = seconds(lambda q=q: decode(q))
        start = time.perf_counter()
        plain = plain_decode(q[:few])
        plain_s = (time.perf_counter() - start) * n / few
        rows.append(
            {
                "n": n,
                "labels": s,
                "cardinalities": largest,
                "seconds": ours,
                "plain_s": plain_s,
                "plain_sample": few,
                "ratio": plain_s / ours,
                "same_values": bool(np.allclose(plain, expected[:few], rtol=1e-12)),
            }
        )
    return rows


def factored_cases() -> list[tuple[str, LabelStatistics, int]]:
    """Return statistics from marginals, with how many rows to unfold for comparison."""
    rng = np.random.default_rng(0)
    cases = []
    for n, s, few in ((200, 2_000, 2), (20_000, 100, 500), (3_185, 983, 8)):
        sparse = rng.beta(0.05, 0.05 * s / 20, size=(n, s))
        sizes = rng.dirichlet(np.ones(26), size=n)
        cases += [
            ("uniform", LabelStatistics.from_marginals(rng.uniform(size=(n, s))), few),
            ("about 20 labels", LabelStatistics.from_marginals(sparse), few),
            ("sizes up to 25", LabelStatistics.from_marginals(sparse, sizes), few),
        ]
    return cases


def run_factored() -> list[dict[str, Any]]:
    """Decode statistics from marginals, and some of them unfolded."""
    rows = []
    for name, q, few in factored_cases():
        some = q[:few]
        dense = LabelStatistics(some.empty, some.joint, some.cardinalities)
        dense_s = seconds(lambda dense=dense: decode(dense), 1) * len(q) / few
        value, plain = (decode(form, return_expected=True)[1] for form in (some, dense))
        ours = seconds(lambda q=q: decode(q))
        rows.append(
            {
                "n": len(q),
                "labels": q.n_labels,
                "marginals": name,
                "seconds": ours,
                "mb": peak_mb(lambda q=q: decode(q)),
                "dense_s": dense_s,
                "dense_mb": 8 * len(q) * len(q.cardinalities) * q.n_labels / 2**20,
                "ratio": dense_s / ours,
                "same_values": bool(np.allclose(value, plain, rtol=1e-12)),
            }
        )
    return rows
