"""The exact decode: seconds, and against the same decode without the stopping bound."""

from __future__ import annotations

import time
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


def run() -> list[dict[str, Any]]:
    rows = []
    for n, s, largest, mean, few in ((13_000, 101, 18, 4.4, 300), (3_200, 983, 25, 19, 20)):
        q = make_statistics(n, s, largest, mean)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            _, expected = decode(q, return_expected=True)
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        plain = plain_decode(q[:few])
        plain_s = (time.perf_counter() - start) * n / few
        rows.append(
            {
                "n": n,
                "labels": s,
                "cardinalities": largest,
                "seconds": median(times),
                "plain_s": plain_s,
                "plain_sample": few,
                "ratio": plain_s / median(times),
                "same_values": bool(np.allclose(plain, expected[:few], rtol=1e-12)),
            }
        )
    return rows
