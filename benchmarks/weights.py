"""Ways to choose the weights of an average, on rows on which they were not chosen.

``python -m benchmarks.weights --data FOLDER [--datasets birds,yeast]``: every candidate of the
automatic classifier gives statistics of the training rows, each by a fit to the other folds.
Weights are chosen on half of the rows and judged by the F_1 of the other half, again and again.
Test rows are not looked at.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fbeta import LabelStatistics, decode
from fbeta.datasets import load
from fbeta.estimators.auto import auto_models, feature_maps
from fbeta.estimators.auto_search import Search
from fbeta.estimators.average import Clock
from fbeta.estimators.folds import make_folds
from fbeta.estimators.members import Trial, decoder_products, stacked_weights
from fbeta.labels.forms import form_of
from fbeta.metrics import fbeta_per_instance

DATASETS = ("scene", "yeast", "birds", "medical", "enron")
BAGS = 8  # bootstrap samples
TOP = 5


def candidates(X: Any, Y: Any, limit: float) -> tuple[list[LabelStatistics], Any]:
    """Return out-of-fold statistics of all candidates, and the labels of their rows."""
    indicator = form_of(Y).read(Y)
    folds = make_folds(5, X, indicator)
    trial = Trial(indicator, None, folds, 1.0)
    models = auto_models(1.0, 0, X)
    clock = Clock(limit=limit)
    maps = feature_maps(X, 0)
    search = Search(X, trial, clock, print, maps, models, kinds=True, refine=True)
    search.run()
    rows, _ = trial.kept_rows()
    return [c.statistics for c in search.candidates], indicator[rows]


def greedy_counts(parts: Any, value: Any, gain: float = 1e-4, most: int = 40) -> Any:
    """Add, again and again, the part with which the average scores best (Caruana et al. 2004)."""
    counts, total, best = np.zeros(len(parts), dtype=int), None, -np.inf
    while counts.sum() < most:
        m = int(counts.sum())
        averages = [
            part if total is None else LabelStatistics.mixture([total, part], [m, 1])
            for part in parts
        ]
        scores = [value(average) for average in averages]
        i = int(np.argmax(scores))
        if not scores[i] >= best + gain:
            break
        counts[i] += 1
        total, best = averages[i].unfolded().astype(np.float32), scores[i]
    return counts


def score(parts: Any, weights: Any, Y: Any, rows: Any) -> float:
    """Return the mean F_1 of an average on some rows."""
    average = LabelStatistics.mixture([part[rows] for part in parts], weights)
    return float(fbeta_per_instance(Y[rows], decode(average), 1.0).mean())


def choose(parts: Any, Y: Any, rows: Any, rng: Any) -> dict[str, Any]:
    """Return weights by every way, chosen on some rows."""
    own, truth = [part[rows] for part in parts], Y[rows]
    single = np.array([fbeta_per_instance(truth, decode(q), 1.0).mean() for q in own])
    best = np.argsort(-single)

    def greedy(counts: Any) -> Any:
        share = counts / counts.sum()
        found = greedy_counts(
            own, lambda q: float(fbeta_per_instance(truth, decode(q), 1.0) @ share)
        )
        return found / found.sum()

    known = LabelStatistics.from_labels(truth.toarray())
    share, largest = np.full(len(rows), 1 / len(rows)), int(known.cardinalities.max(initial=1))
    gram = decoder_products([known, *own], 1.0, share, largest)
    bags = [rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows))) for _ in range(BAGS)]
    return {
        "the best alone": np.eye(len(parts))[best[0]],
        f"the best {TOP} alike": np.isin(np.arange(len(parts)), best[:TOP]) / TOP,
        "greedy": greedy(np.ones(len(rows))),
        f"greedy, {BAGS} bootstrap samples": np.mean([greedy(bag) for bag in bags], axis=0),
        "least squares": stacked_weights(gram),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the files of the data sets")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--repeats", type=int, default=4, help="times that rows are halved")
    parser.add_argument("--time-limit", type=float, default=300.0, help="for the candidates")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.datasets.split(","):
        X, Y, _, _ = load(name, data_home=options.data).split
        parts, truth = candidates(X, Y, options.time_limit)
        rng, found = np.random.default_rng(0), {}
        for _ in range(options.repeats):
            order = rng.permutation(truth.shape[0])
            halves = np.array_split(order, 2)
            for here, there in (halves, halves[::-1]):
                for way, weights in choose(parts, truth, here, rng).items():
                    found.setdefault(way, []).append(score(parts, weights, truth, there))
        print(f"{name}, {len(parts)} candidates")
        for way, scores in found.items():
            print(f"  {np.mean(scores):.4f}  {way}", flush=True)


if __name__ == "__main__":
    main()
