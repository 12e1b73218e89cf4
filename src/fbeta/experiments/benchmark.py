"""Table 2 of the paper: data sets x methods under one protocol."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold

from fbeta.datasets import CalibratedLaw, Dataset, join_split, list_datasets, load
from fbeta.estimators.alpha_search import ALPHAS, AlphaSearchCV
from fbeta.experiments.cells import Cell
from fbeta.experiments.paper import PAPER_DATASETS, PAPER_METHODS
from fbeta.methods import METHODS, make_method
from fbeta.metrics import fbeta_per_instance
from fbeta.report.evaluation import calibration_bins, measure, scores_by_beta

__all__ = [
    "benchmark_cells",
    "compute_benchmark",
    "known_datasets",
    "load_dataset",
    "register_dataset",
]

EXPERIMENT = "table2"

_LOADERS: dict[str, Callable[[], Dataset]] = {}


def register_dataset(name: str, loader: Callable[[], Dataset]) -> None:
    """Make a data set with a prescribed split known by name, besides :mod:`fbeta.datasets`."""
    _LOADERS[name] = loader
    load_dataset.cache_clear()


def known_datasets() -> tuple[str, ...]:
    """Return the names of all data sets."""
    return (*list_datasets(), *_LOADERS)


# a data set of the paper is read once, to see whether it is there and for all its cells
@lru_cache(maxsize=8)
def load_dataset(name: str, data_home: Path | None = None) -> Dataset:
    """Load a data set by name; `data_home` is that of :func:`fbeta.datasets.load`."""
    return _LOADERS[name]() if name in _LOADERS else load(name, data_home=data_home)


def _calibrated() -> Dataset:
    """Draw data for which linear models are optimal: a benchmark that needs no files."""
    law, names = CalibratedLaw(4, 50, 0), tuple(f"label{j}" for j in range(4))
    parts = [law.sample(n, seed) for n, seed in ((1000, 1), (2000, 2))]
    train, test = (Dataset(part.X, part.Y, names) for part in parts)
    return join_split(train, test, "calibrated")


register_dataset("calibrated", _calibrated)


def benchmark_cells(
    datasets: Sequence[str] = PAPER_DATASETS,
    methods: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    beta: float = 1.0,
    alphas: Sequence[float] = ALPHAS,
    intercepts: Sequence[bool] = (True, False),
    cv: int = 5,
) -> list[Cell]:
    """List the cells of the table, data set by data set.

    By default the methods are those of the paper; on Birds also with the statistics of all label
    set sizes, as in the paper. Methods with intercepts choose whether to have them: some rivals do
    better without on some data, and each is to be at its best. Seeds are those of the folds, and of
    methods that draw random numbers.
    """
    cells = []
    for dataset in datasets:
        for method in methods or _methods_of_paper(dataset):
            fixed = {
                "beta": float(beta),
                "alphas": [float(alpha) for alpha in alphas],
                "intercepts": [bool(intercept) for intercept in intercepts],
                "cv": cv,
                "options": dict(METHODS[method].parameters) if method in METHODS else {},
            }
            cells += [Cell(EXPERIMENT, dataset, method, {**fixed, "seed": s}) for s in seeds]
    return cells


def _methods_of_paper(dataset: str) -> Iterable[str]:
    for method in PAPER_METHODS:
        yield method
        if dataset == "birds" and f"{method}-all" in METHODS:
            yield f"{method}-all"


def compute_benchmark(
    cell: Cell, *, data_home: Path | None = None, n_jobs: int | None = None
) -> dict[str, Any]:
    """Run one method on one data set: choose alpha by cross-validation, fit, test.

    Returns ``alpha`` and ``fit_intercept`` (None where the method has none, or one of its own),
    ``cv`` (scores by alpha and fold), ``scores`` on the test set, ``betas`` (F_beta of the same
    model for several beta), ``calibration`` of the expected F_beta where the method has one and
    ``calibrated``, the same after calibration on held-out rows, ``seconds``, ``shape`` and
    ``warnings``.
    """
    data = load_dataset(cell.dataset, data_home)
    X, Y, X_test, Y_test = data.split
    beta = cell.parameters["beta"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        search, model, found = _fit(cell, X, Y, n_jobs)
        fitted = time.perf_counter()
        predicted = np.asarray(model.predict(X_test))
        done = time.perf_counter()
        by_beta = scores_by_beta(model, X_test, Y_test)
        calibration = calibrated = None
        actual = fbeta_per_instance(Y_test, predicted, beta)
        if hasattr(model, "expected_fbeta"):
            raw = model.decide(X_test, [beta], calibrated=False).expected[beta]
            calibration = calibration_bins(np.asarray(raw), actual)
            if search.calibration_ is not None:
                expected = search.expected_fbeta(X_test)
                calibrated = calibration_bins(expected, actual)
    return {
        **found,
        "scores": measure(Y_test, predicted, beta),
        "betas": by_beta,
        "calibration": calibration,
        "calibrated": calibrated,
        "predicted_cardinality": float(predicted.sum(axis=1).mean()),
        "seconds": {"fit": fitted - begin, "predict": done - fitted},
        "shape": {
            "n_train": len(Y),
            "n_test": len(Y_test),
            "n_features": data.n_features,
            "n_labels": data.n_labels,
        },
        "warnings": sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
    }


def _fit(
    cell: Cell, X: Any, Y: NDArray[np.int8], n_jobs: int | None
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the search, the estimator that it chose, and what it found."""
    p = cell.parameters
    model = make_method(cell.method, p["beta"])
    names = model.get_params(deep=False)
    if "random_state" in names:
        model.set_params(random_state=p["seed"])
    if "alpha" not in names:
        model.fit(X, Y)
        return model, model, {"alpha": None, "fit_intercept": None, "cv": None}
    folds = KFold(p["cv"], shuffle=True, random_state=p["seed"])
    has_choice = "fit_intercept" in names and "fit_intercept" not in p["options"]
    searches = []
    for intercept in p["intercepts"] if has_choice else [None]:
        options = {} if intercept is None else {"fit_intercept": intercept}
        candidate = clone(model).set_params(**options)
        # every alpha on every fold, as in the paper
        search = AlphaSearchCV(candidate, alphas=p["alphas"], cv=folds, n_jobs=n_jobs, prune=False)
        searches.append((intercept, search.fit(X, Y)))
    chosen, best = max(searches, key=lambda pair: pair[1].best_score_)
    results = best.cv_results_
    scores = [results[f"split{i}_test_score"].tolist() for i in range(p["cv"])]
    cv = {
        "alphas": results["alpha"].tolist(),
        "fold_scores": scores,
        "mean": results["mean_test_score"].tolist(),
    }
    found = {"alpha": best.alpha_, "fit_intercept": chosen, "cv": cv}
    return best, best.best_estimator_, found
