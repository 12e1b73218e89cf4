"""The automatic classifier on named data sets: F, seconds and calibration, beside the paper's."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.estimators import FBetaAuto, FBetaClassifierCV
from fbeta.experiments.benchmark import load_dataset
from fbeta.experiments.cells import Cell, Record
from fbeta.metrics import fbeta_per_instance, fbeta_score
from fbeta.report.evaluation import calibration_bins

__all__ = ["AUTO_SECONDS", "auto_cells", "auto_rows", "compute_auto"]

EXPERIMENT = "auto"
#: Data sets with a prescribed split, and the seconds that a fit to each may take.
AUTO_SECONDS = {
    **dict.fromkeys(("scene", "yeast", "birds", "medical", "enron"), 300.0),
    "bibtex": 900.0,
}
_DEFAULT_SECONDS = 300.0
# on data sets with more statistics the paper's method is not run
_MAX_STATISTICS_OF_PAPER = 4000


def auto_cells(
    datasets: Sequence[str] = tuple(AUTO_SECONDS),
    *,
    seeds: Sequence[int] = (0,),
    time_limit: float | None = None,
    beta: float = 1.0,
    cv: int = 5,
) -> list[Cell]:
    """List one fit for each data set and seed; limits are those of ``AUTO_SECONDS`` by default."""
    shared = {"beta": float(beta), "cv": cv}
    limits = {
        name: float(time_limit or AUTO_SECONDS.get(name, _DEFAULT_SECONDS)) for name in datasets
    }
    return [
        Cell(EXPERIMENT, name, "auto", {**shared, "seed": int(seed), "time_limit": limits[name]})
        for name in datasets
        for seed in seeds
    ]


def compute_auto(cell: Cell, *, data_home: Path | None = None) -> dict[str, Any]:
    """Fit to the training rows of a data set, and measure on its test rows.

    Returns ``score`` and ``cv_score``; ``paper``, the score of :class:`fbeta.FBetaClassifierCV` on
    the raw features, None where that is too large; ``seconds`` of fit and predict; ``calibrated``
    and ``raw``, ten groups of test rows by their expected F_beta; and ``leaderboard``.
    """
    X, Y, X_test, Y_test = load_dataset(cell.dataset, data_home).split
    p = cell.parameters
    model = FBetaAuto(p["beta"], time_limit=p["time_limit"], cv=p["cv"], random_state=p["seed"])
    begin = time.perf_counter()
    model.fit(X, Y)
    fitted = time.perf_counter()
    predicted = np.asarray(model.predict(X_test))
    done = time.perf_counter()

    def bins(calibrated: bool) -> list[dict[str, float]]:
        expected = model.expected_fbeta(X_test, calibrated=calibrated)
        return calibration_bins(expected, fbeta_per_instance(Y_test, predicted, p["beta"]))

    return {
        "score": fbeta_score(Y_test, predicted, p["beta"]),
        "cv_score": model.best_score_,
        "paper": _paper_score(X, Y, X_test, Y_test, p["beta"], p["cv"]),
        "seconds": {"fit": fitted - begin, "predict": done - fitted},
        "calibrated": bins(True),
        "raw": bins(False),
        "leaderboard": model.leaderboard_,
    }


def _paper_score(
    X: Any, Y: NDArray[Any], X_test: Any, Y_test: NDArray[Any], beta: float, cv: int
) -> float | None:
    """Return the score of the paper's method alone, on features as they are."""
    sizes = np.unique(Y.sum(axis=1))
    if Y.shape[1] * len(sizes) > _MAX_STATISTICS_OF_PAPER:
        return None
    with warnings.catch_warnings():
        # on scales, edges of the grid and convergence: the plain method is what is compared with
        warnings.simplefilter("ignore")
        return float(FBetaClassifierCV(cv=cv, beta=beta).fit(X, Y).score(X_test, Y_test))


def calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Return the mean over the groups of |expected - actual|."""
    return fmean(abs(group["expected"] - group["actual"]) for group in bins)


def auto_rows(records: Iterable[Record]) -> list[list[Any]]:
    """Return the table of the experiment, a header first."""
    head = ["data set", "seed", "paper's method", "FBetaAuto", "F in cross-validation"]
    head += ["seconds", "calibration error", "without calibration"]
    rows: list[list[Any]] = [head]
    for record in records:
        result = record.result
        row = [record.cell.dataset, record.cell.parameters["seed"], result["paper"]]
        row += [result["score"], result["cv_score"], result["seconds"]["fit"]]
        row += [calibration_error(result[key]) for key in ("calibrated", "raw")]
        rows.append(row)
    return rows
