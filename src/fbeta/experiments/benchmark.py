"""Experiments on data: Table 2 and the automatic classifier, Figure 1 of the paper, tickets."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold

from fbeta.datasets import CalibratedLaw, Dataset, join_split, list_datasets, load
from fbeta.estimators import AlphaSearchCV, FBetaAuto, FBetaClassifier, FBetaClassifierCV
from fbeta.estimators.folds import ALPHAS
from fbeta.experiments.cells import Cell, grid
from fbeta.methods import METHODS, make_method
from fbeta.metrics import fbeta_per_instance, fbeta_score
from fbeta.report.evaluation import calibration_bins, measure, scores_by_beta

PAPER_DATASETS = ("scene", "yeast", "birds", "medical", "enron", "mediamill")
PAPER_METHODS = ("fbeta", "efp", "limo", "br")

# Table 2: instance-averaged F_1 on the test sets, in the order of PAPER_METHODS
_TABLE2 = {
    "scene": (0.7445, 0.7426, 0.6325, 0.6009),
    "yeast": (0.6571, 0.6558, 0.4914, 0.6065),
    "birds": (0.5836, 0.5293, 0.5463, 0.5510),
    "medical": (0.7557, 0.7685, 0.7237, 0.6507),
    "enron": (0.5868, 0.6204, 0.5764, 0.5455),
    "mediamill": (0.5642, 0.5600, 0.5135, 0.5229),
}
#: Data sets with a prescribed split, and the seconds that a fit to each may take.
AUTO_SECONDS = {
    **dict.fromkeys(("scene", "yeast", "birds", "medical", "enron"), 300.0),
    "bibtex": 900.0,
}
_DEFAULT_SECONDS = 300.0
# on data sets with more statistics the paper's method is not run
_MAX_STATISTICS_OF_PAPER = 4000


def _calibrated() -> Dataset:
    """Draw data for which linear models are optimal: a benchmark that needs no files."""
    law, names = CalibratedLaw(4, 50, 0), tuple(f"label{j}" for j in range(4))
    parts = [law.sample(n, seed) for n, seed in ((1000, 1), (2000, 2))]
    train, test = (Dataset(part.X, part.Y, names) for part in parts)
    return join_split(train, test, "calibrated")


_LOADERS: dict[str, Callable[[], Dataset]] = {"calibrated": _calibrated}


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
    """List the cells of the table, by default of the paper's methods; Birds has variants there."""
    # some methods do better without intercepts, and each is to be at its best
    fixed = {
        "beta": float(beta),
        "alphas": [float(alpha) for alpha in alphas],
        "intercepts": [bool(intercept) for intercept in intercepts],
        "cv": cv,
    }
    cells = []
    for dataset in datasets:
        sizes = ("", "-all") if dataset == "birds" else ("",)
        paper = [f"{name}{all_}" for name in PAPER_METHODS for all_ in sizes]
        for method in methods or [name for name in paper if name in METHODS]:
            options = dict(METHODS[method].parameters) if method in METHODS else {}
            cells += grid("table2", [dataset], [method], seeds, **fixed, options=options)
    return cells


def compute_benchmark(
    cell: Cell, *, data_home: Path | None = None, n_jobs: int | None = None
) -> dict[str, Any]:
    """Run one method on one data set: choose alpha by cross-validation, fit, test."""
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
    model = make_method(cell.method, p["beta"]).set_params(**p["options"])
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


def paper_score(dataset: str, method: str, beta: float = 1.0) -> float | None:
    """Return the F_1 that the paper reports, None where it has no number."""
    base, _, variant = method.partition("-")
    starred = dataset == "birds" and base == "fbeta"  # by the estimation of all label set sizes
    if beta != 1 or dataset not in _TABLE2 or base not in PAPER_METHODS:
        return None
    if variant != ("all" if starred else ""):
        return None
    return _TABLE2[dataset][PAPER_METHODS.index(base)]


def auto_cells(
    datasets: Sequence[str] = tuple(AUTO_SECONDS),
    *,
    seeds: Sequence[int] = (0,),
    time_limit: float | None = None,
    cv: int = 5,
) -> list[Cell]:
    """List one fit for each data set and seed; limits are those of ``AUTO_SECONDS`` by default."""
    cells = []
    for name in datasets:
        limit = float(time_limit or AUTO_SECONDS.get(name, _DEFAULT_SECONDS))
        cells += grid("auto", [name], ["auto"], seeds, beta=1.0, cv=cv, time_limit=limit)
    return cells


def compute_auto(cell: Cell, *, data_home: Path | None = None) -> dict[str, Any]:
    """Fit to the training rows of a data set, and measure on its test rows."""
    X, Y, X_test, Y_test = load_dataset(cell.dataset, data_home).split
    p = cell.parameters
    model = FBetaAuto(p["beta"], time_limit=p["time_limit"], cv=p["cv"], random_state=p["seed"])
    begin = time.perf_counter()
    model.fit(X, Y)
    fitted = time.perf_counter()
    predicted = np.asarray(model.predict(X_test))
    done, paper = time.perf_counter(), None
    if Y.shape[1] * len(np.unique(Y.sum(axis=1))) <= _MAX_STATISTICS_OF_PAPER:
        with warnings.catch_warnings():
            # on scales, edges of the grid and convergence: the plain method is what is compared
            warnings.simplefilter("ignore")
            plain = FBetaClassifierCV(cv=p["cv"], beta=p["beta"]).fit(X, Y)
        paper = float(plain.score(X_test, Y_test))

    def bins(calibrated: bool) -> list[dict[str, float]]:
        expected = model.expected_fbeta(X_test, calibrated=calibrated)
        return calibration_bins(expected, fbeta_per_instance(Y_test, predicted, p["beta"]))

    return {
        "score": fbeta_score(Y_test, predicted, p["beta"]),
        "cv_score": model.best_score_,
        "paper": paper,
        "seconds": {"fit": fitted - begin, "predict": done - fitted},
        "calibrated": bins(True),
        "raw": bins(False),
        "leaderboard": model.leaderboard_,
    }


#: Sizes of the training samples.
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000)
#: Test points of the paper.
N_TEST = 15_000
# random streams that must differ from each other: one law, one test set, many samples
_LAW_SEED, _TEST_SEED, _TRAIN_SEED = 0, 1, 2
# of made-up support tickets: what each tag is written with, and words of any ticket
WORDS = {
    "billing": "invoice charged payment card twice amount bank statement",
    "refund": "refund money back return cancel charged order",
    "delivery": "parcel delivery late courier address tracking order",
    "damaged": "broken damaged box scratched parcel photo return",
    "account": "password login email account locked reset profile",
    "app": "app crash screen update phone version login slow",
    "warranty": "warranty repair broken serial receipt months replace",
    "feedback": "thanks great suggestion improve love service idea",
}
FILLER = "hello please the my is was and again since yesterday can you help with i have not"
CHANNELS = ("email", "chat", "phone")
WORDS_PER_TAG, FILLER_WORDS = 3, 7


def convergence_cells(
    sizes: Sequence[int] = SIZES,
    seeds: Sequence[int] = (0,),
    *,
    n_labels: int = 6,
    n_features: int = 100,
    n_test: int = N_TEST,
) -> list[Cell]:
    """List one fit for each sample size and seed; law and test set stay the same."""
    shared = {"alpha": 1.0, "beta": 1.0, "n_test": n_test}
    shared |= {"n_labels": n_labels, "n_features": n_features}
    runs = ({**shared, "n_train": int(n), "seed": int(seed)} for seed in seeds for n in sizes)
    return [Cell("figure1", "calibrated", "fbeta", run) for run in runs]


def compute_convergence(cell: Cell) -> dict[str, Any]:
    """Fit to one training sample, and measure by drawn labels and by the law of the labels."""
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


def make_tickets(n: int, seed: int) -> list[list[object]]:
    """Make a header and n tickets, whose tags share words and often come in pairs."""
    rng = np.random.default_rng(seed)
    names = list(WORDS)
    likely = rng.dirichlet(np.full(len(names), 0.4), size=12)  # kinds of tickets
    rows: list[list[object]] = [["ticket", "opened", "channel", "amount", "message", "tags"]]
    for number in range(n):
        kind = rng.integers(len(likely))
        count = rng.choice(4, p=[0.06, 0.44, 0.38, 0.12])
        tags = sorted({names[k] for k in rng.choice(len(names), size=count, p=likely[kind])})
        words = list(rng.choice(FILLER.split(), size=rng.integers(3, FILLER_WORDS + 1)))
        for tag in tags:
            words += list(rng.choice(WORDS[tag].split(), size=rng.integers(1, WORDS_PER_TAG + 1)))
        rng.shuffle(words)
        opened = date(2024, 1, 1) + timedelta(days=int(rng.integers(730)))
        paid = rng.gamma(2.0, 60.0 if {"warranty", "damaged"} & set(tags) else 20.0)
        amount = "" if rng.uniform() < 0.1 else f"{paid:.2f}"
        channel = CHANNELS[kind % 3] if rng.uniform() < 0.7 else str(rng.choice(CHANNELS))
        rows.append([number, opened.isoformat(), channel, amount, " ".join(words), ";".join(tags)])
    return rows
