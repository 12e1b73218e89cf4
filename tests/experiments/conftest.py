from __future__ import annotations

from pathlib import Path

import pytest

from fbeta.experiments.cells import Cell, Record, ResultStore

PARAMETERS = {
    "beta": 1.0,
    "alphas": [0.1, 1.0],
    "intercepts": [True, False],
    "cv": 2,
    "options": {},
}


def score_record(
    dataset: str, method: str, score: float, seed: int = 0, **changes: object
) -> Record:
    """A finished cell of table2 with made-up numbers."""
    cell = Cell("table2", dataset, method, {**PARAMETERS, **changes, "seed": seed})
    result = {
        "alpha": 1.0,
        "fit_intercept": True,
        "cv": None,
        "scores": {"fbeta": score},
        "betas": {"0.5": score - 0.1, "1": score, "2": score + 0.1},
        "calibration": [
            {"expected": 0.3, "actual": 0.4, "count": 5},
            {"expected": 0.7, "actual": 0.6, "count": 5},
        ],
        "seconds": {"fit": 2.0, "predict": 0.1},
    }
    return Record(cell, result, 2.5, "2024-01-02T03:04:05+00:00", {"fbeta": "0", "numpy": "2"})


def convergence_record(n: int, seed: int, regret: float) -> Record:
    """A finished cell of figure1 with made-up numbers."""
    cell = Cell("figure1", "calibrated", "fbeta", {"n_train": n, "seed": seed, "beta": 1.0})
    result = {"score": 0.6, "expected": 0.625 - regret, "regret": regret, "bayes": 0.625}
    return Record(cell, result, 0.5, "2024-01-02T03:04:06+00:00", {"fbeta": "0", "numpy": "2"})


@pytest.fixture
def filled_store(tmp_path: Path) -> ResultStore:
    """A folder with results of both experiments."""
    return fill_store(tmp_path)


def fill_store(folder: Path) -> ResultStore:
    """Write results of both experiments."""
    store = ResultStore(folder / "results")
    scores = {
        ("scene", "fbeta"): 0.7435,
        ("scene", "br"): 0.55,
        ("birds", "fbeta"): 0.58,
        ("birds", "fbeta-all"): 0.6,
        ("toy & <co>", "fbeta"): 0.5,
    }
    for (dataset, method), score in scores.items():
        store.write(score_record(dataset, method, score))
    for n, regret in ((100, 0.04), (1000, 0.003), (10_000, 0.0003)):
        for seed in (0, 1):
            store.write(convergence_record(n, seed, regret * (1 + seed)))
    return store
