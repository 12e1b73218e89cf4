"""The multinomial regressions of exact F-measure plug-in: all labels at once against one by one.

All sides minimise the same objectives on Enron (1123 x 1001, sparse, 53 labels), to within 1e-6 of
their sum. scikit-learn runs with its default solver and with the one that is fastest here, each
with the largest power of ten as tolerance that gets there. BLAS has one thread: on a busy machine
more of them wait for each other, which slows the many small products of scikit-learn most.

    FBETA_DATA=folder python benchmarks/bench_efp.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fbeta.datasets import load
from fbeta.linear import LinearLearner, Multinomial

ALPHA = 1.0


def problems() -> tuple[Any, np.ndarray]:
    """Return Enron's features and, for each label that occurs, the classes of the rows."""
    data = load("enron")
    X, Y = data.X_train, np.asarray(data.Y_train)
    sizes = Y.sum(axis=1)
    occurs = np.flatnonzero(Y.any(axis=0))
    values = [np.unique(Y[:, j] * sizes, return_inverse=True)[1] for j in occurs]
    return X, np.stack(values, axis=1)


def objective(scores: np.ndarray, y: np.ndarray, coef: np.ndarray) -> float:
    """Compute the sum of the log losses plus the penalty on all classes' weights."""
    losses = -log_softmax(scores, axis=1)[np.arange(len(y)), y]
    return float(losses.sum() + ALPHA / 2 * (coef**2).sum())


def one_by_one(X: Any, classes: np.ndarray, solver: str, tol: float) -> np.ndarray:
    """Fit scikit-learn's estimator to each label and return the objectives."""
    values = []
    for y in classes.T:
        # two classes are one weight vector there: w / 2 and -w / 2 here, with half the penalty
        C = (2 if y.max() == 1 else 1) / ALPHA
        model = LogisticRegression(C=C, solver=solver, tol=tol, max_iter=10_000).fit(X, y)
        scores, coef = model.decision_function(X), model.coef_
        if scores.ndim == 1:
            scores, coef = (
                np.stack([-scores, scores], axis=1) / 2,
                np.concatenate([coef, -coef]) / 2,
            )
        values.append(objective(scores, y, coef))
    return np.array(values)


def all_at_once(X: Any, classes: np.ndarray, tol: float) -> np.ndarray:
    """Fit all labels together and return the objectives."""
    model = LinearLearner(tol=tol, objective=Multinomial).fit(X, classes, None, ALPHA)
    scores = np.asarray(X @ model.coef.T) + model.intercept
    parts = np.split(np.arange(len(model.coef)), np.cumsum(model.objective.counts)[:-1])
    return np.array(
        [objective(scores[:, p], y, model.coef[p]) for p, y in zip(parts, classes.T, strict=True)]
    )


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    values = work()
    return time.perf_counter() - start, values


@threadpool_limits.wrap(limits=1)
def run(repeats: int = 3) -> dict[str, float]:
    """Time all sides in turns; print and return gaps, median times and ratios.

    ``ratio`` is against the fastest solver of scikit-learn, ``ratio_default`` against its default.
    """
    X, classes = problems()
    best = all_at_once(X, classes, 1e-12)
    sides: dict[str, Callable[[], np.ndarray]] = {
        "fbeta": lambda: all_at_once(X, classes, 1e-6),
        "newton-cg": lambda: one_by_one(X, classes, "newton-cg", 1e-6),
        "lbfgs": lambda: one_by_one(X, classes, "lbfgs", 1e-6),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    result: dict[str, float] = {}
    for _ in range(repeats):
        for name, side in sides.items():
            elapsed, values = timed(side)
            seconds[name].append(elapsed)
            result[f"gap {name}"] = float((values.sum() - best.sum()) / best.sum())
            result[f"worst gap {name}"] = float((values / best).max() - 1)
    for name, times in seconds.items():
        result[f"seconds {name}"] = float(np.median(times))
    result["ratio"] = result["seconds newton-cg"] / result["seconds fbeta"]
    result["ratio_default"] = result["seconds lbfgs"] / result["seconds fbeta"]
    for key, value in result.items():
        print(f"{key:>20} {value:.3g}")
    return result


if __name__ == "__main__":
    run()
