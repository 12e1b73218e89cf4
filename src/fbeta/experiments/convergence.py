"""Figure 1 of the paper: convergence to the Bayes-optimal F_1 where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fbeta.datasets import CalibratedLaw
from fbeta.estimators import FBetaClassifier
from fbeta.experiments.cells import Cell
from fbeta.metrics import fbeta_score

__all__ = ["N_TEST", "SIZES", "compute_convergence", "convergence_cells"]

EXPERIMENT = "figure1"
#: Sizes of the training samples.
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000)
#: Test points of the paper.
N_TEST = 15_000
# random streams that must differ from each other: one law, one test set, many samples
_LAW_SEED, _TEST_SEED, _TRAIN_SEED = 0, 1, 2


def convergence_cells(
    sizes: Sequence[int] = SIZES,
    seeds: Sequence[int] = (0,),
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    n_labels: int = 6,
    n_features: int = 100,
    n_test: int = N_TEST,
) -> list[Cell]:
    """List one fit for each sample size and seed; law and test set stay the same."""
    shared = {
        "alpha": float(alpha),
        "beta": float(beta),
        "n_labels": n_labels,
        "n_features": n_features,
        "n_test": n_test,
    }
    return [
        Cell(EXPERIMENT, "calibrated", "fbeta", {**shared, "n_train": int(n), "seed": int(seed)})
        for seed in seeds
        for n in sizes
    ]


def compute_convergence(cell: Cell) -> dict[str, Any]:
    """Fit to one training sample, and measure by labels and by the truth.

    Returns ``score`` (F_beta on the drawn labels), ``expected`` (over all labels that the law could
    have drawn), ``bayes`` and ``regret``.
    """
    p = cell.parameters
    law = CalibratedLaw(p["n_labels"], p["n_features"], np.random.default_rng(_LAW_SEED))
    test = law.sample(p["n_test"], np.random.default_rng(_TEST_SEED))
    rng = np.random.default_rng([_TRAIN_SEED, p["seed"], p["n_train"]])
    train = law.sample(p["n_train"], rng)
    model = FBetaClassifier(p["beta"], p["alpha"], fit_intercept=False).fit(train.X, train.Y)
    predicted = model.predict(test.X)
    bayes = test.bayes_fbeta(p["beta"])
    expected = test.expected_fbeta(predicted, p["beta"])
    return {
        "score": fbeta_score(test.Y, predicted, p["beta"]),
        "expected": expected,
        "bayes": bayes,
        # both are sums of the same numbers in another order, so rounding may make this negative
        "regret": max(bayes - expected, 0.0),
    }
