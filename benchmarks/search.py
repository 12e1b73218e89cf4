"""The search for alpha with and without what it leaves out: python -m benchmarks.search [ROWS]."""

from __future__ import annotations

import sys
import time

import numpy as np

from fbeta import FBetaClassifierCV


def make_rows(n: int, d: int = 500, s: int = 22, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw dense features, and labels that depend on them linearly, two or three in a row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, s)) / np.sqrt(d) + rng.normal(size=(n, s)) - 1.6
    return X, (scores > 0).astype(np.int8)


def main(n: int) -> None:
    X, Y = make_rows(n)
    for prune in (True, False):
        begin = time.perf_counter()
        clf = FBetaClassifierCV(prune=prune).fit(X, Y)
        left_out = int(np.isnan(clf.cv_results_["mean_test_score"]).sum())
        print(
            f"prune={prune}: {time.perf_counter() - begin:.1f} s, alpha {clf.alpha_:g}, "
            f"F_1 {clf.best_score_:.4f}, {left_out} of {len(clf.alphas)} strengths left out",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21_500)
