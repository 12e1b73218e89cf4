"""The automatic classifier against every simple method, on generated data of many kinds.

``python -m benchmarks.auto [--kinds text,dense] [--limits 30,60,120] [--seeds 1] [--data FOLDER]``
prints, for every kind, the F_1 of test rows of each method, and the regret of FBetaAuto to the best
of the others with its standard error by paired test rows. With several seeds the mean regret to the
method that is best in the mean comes last. With a folder, the Mulan sets in it are there too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaForest,
    SizedClassifier,
)
from fbeta.datasets import load
from fbeta.metrics import fbeta_per_instance
from fbeta.rivals import BinaryRelevance, ThresholdedRelevance

MULAN = ("scene", "yeast", "birds", "medical", "enron", "bibtex")
TEST_ROWS = 3000
LARGE_ELEMENTS = 4_000_000  # of X, from which simple methods use one split and fewer alphas
MAX_REGRET = 0.003

Sample = tuple[Any, Any]
Generator = Callable[[np.random.Generator, int], Sample]


def draw(rng: np.random.Generator, logits: Any) -> Any:
    """Draw independent labels by their logits."""
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int8)


def text(kind: str, labels: int = 20, words: int = 1500) -> Callable[[np.random.Generator], Any]:
    """Return a law of counts of words, and tags: independent, exclusive or in pairs."""

    def law(rng: np.random.Generator) -> Generator:
        topics = rng.normal(size=(words, labels)) * (rng.random((words, labels)) < 0.03) * 2.2
        rate = rng.gamma(0.3, 1.0, size=words) * 0.15

        def sample(rng: np.random.Generator, n: int) -> Sample:
            counts = rng.poisson(rate, size=(n, words))
            logits = (counts > 0) @ topics - 2.0
            if kind == "exclusive":
                Y = np.eye(labels, dtype=np.int8)[
                    (logits + rng.gumbel(size=logits.shape)).argmax(1)
                ]
            else:
                Y = draw(rng, logits)
            if kind == "pairs":
                half = labels // 2
                Y[:, half:] = Y[:, :half] ^ (rng.random((n, half)) < 0.1)
            return sp.csr_array(counts.astype(float)), Y

        return sample

    return law


def dense(
    labels: int = 8, features: int = 20, nonlinear: bool = False, shift: float = -1.0,
    scale: float = 1.5, gaps: float = 0.0, spread: float = 0.0, single: bool = False,
) -> Callable[[np.random.Generator], Any]:  # fmt: skip
    """Return a law of numbers and tags."""

    def law(rng: np.random.Generator) -> Generator:
        hidden = 40
        W = rng.normal(size=(features, hidden if nonlinear else labels)) / np.sqrt(features)
        V = rng.normal(size=(hidden, labels)) * 2 / np.sqrt(hidden)
        offsets = shift - spread * rng.random(labels)

        def sample(rng: np.random.Generator, n: int) -> Sample:
            X = rng.normal(size=(n, features))
            inner = np.sin(2 * X @ W) @ V * 1.5 if nonlinear else X @ W
            logits = scale * inner + offsets
            if single:
                logits = scale * inner + rng.gumbel(size=inner.shape)
                Y = np.eye(labels, dtype=np.int8)[logits.argmax(axis=1)]
            else:
                Y = draw(rng, logits)
            return np.where(rng.random(X.shape) < gaps, np.nan, X), Y

        return sample

    return law


def rules(labels: int = 10, features: int = 15) -> Callable[[np.random.Generator], Any]:
    """Return a law of numbers, some of them whole, some skewed, and tags by rules of two each."""

    def law(rng: np.random.Generator) -> Generator:
        columns = np.stack([rng.permuted(np.arange(features))[:2] for _ in range(6 * labels)])
        cut, side = 0.7 * rng.normal(size=columns.shape), rng.choice([-1, 1], size=columns.shape)
        worth = 2.5 * rng.normal(size=(labels, 6))

        def sample(rng: np.random.Generator, n: int) -> Sample:
            X = rng.normal(size=(n, features))
            X[:, ::3] = np.round(X[:, ::3])
            holds = ((X[:, columns] - cut) * side > 0).all(axis=2).reshape(n, labels, 6)
            X[:, 1::3] = np.exp(X[:, 1::3])
            return X, draw(rng, (holds * worth).sum(axis=2) - 1.5)

        return sample

    return law


def embeddings(labels: int, nonlinear: bool) -> Callable[[np.random.Generator], Any]:
    """Return a law of embeddings in 256 dimensions, of single precision."""

    def law(rng: np.random.Generator) -> Generator:
        mixing = rng.normal(size=(32, 256)) / 6
        W = rng.normal(size=(32, 64)) / 4
        V = rng.normal(size=(64, labels)) / 4

        def sample(rng: np.random.Generator, n: int) -> Sample:
            Z = rng.normal(size=(n, 32))
            X = np.tanh(Z @ mixing) + 0.1 * rng.normal(size=(n, 256))
            inner = np.maximum(Z @ W, 0) if nonlinear else Z @ W
            return X.astype(np.float32), draw(rng, 2.5 * inner @ V - 2.5)

        return sample

    return law


#: By name: the law, and the number of training rows.
KINDS: dict[str, tuple[Callable[[np.random.Generator], Any], int]] = {
    "text, independent tags": (text("independent"), 1500),
    "text, exclusive tags": (text("exclusive"), 1500),
    "text, pairs of tags": (text("pairs"), 1500),
    "dense, linear": (dense(), 1500),
    "dense, not linear": (dense(nonlinear=True, features=8), 2000),
    "few rows": (dense(features=30), 80),
    "many labels": (dense(labels=150, features=40, shift=-3.0), 2000),
    "many gaps": (dense(gaps=0.4), 1500),
    "rare labels": (dense(labels=20, shift=-4.5), 2000),
    "single-label rows": (dense(single=True), 1500),
    "no signal": (dense(scale=0.0), 800),
    "imbalance": (dense(labels=15, shift=1.0, spread=6.0), 1500),
    "rules": (rules(), 1500),
    "rules 6,000": (rules(), 6000),
    "embeddings 5,000": (embeddings(20, False), 5000),
    "embeddings 5,000, not linear": (embeddings(20, True), 5000),
    "embeddings 20,000": (embeddings(60, False), 20_000),
    "embeddings 20,000, not linear": (embeddings(60, True), 20_000),
    "embeddings 100,000": (embeddings(300, False), 100_000),
}


def simple_methods(X: Any) -> dict[str, Any]:
    """Return every simple method, with its alpha chosen on held-out rows."""
    steps = [] if sp.issparse(X) else [SimpleImputer(strategy="median"), StandardScaler()]
    large = not sp.issparse(X) and X.size > LARGE_ELEMENTS
    cv = ShuffleSplit(1, test_size=0.2, random_state=0) if large else 5

    def search(estimator: Any, *more: Any) -> Any:
        return make_pipeline(*steps, *more, AlphaSearchCV(estimator, cv=cv))

    rows = X.shape[0]
    kernel = Nystroem(n_components=min(1000, rows), random_state=0)
    methods = {
        "independent": search(BinaryRelevance(decode="independent")),
        "cut at 1/2": search(BinaryRelevance()),
        "sized": search(SizedClassifier()),
        "independent, RBF": search(BinaryRelevance(decode="independent"), kernel),
    }
    if not large:
        methods |= {
            "the paper's": search(FBetaClassifier()),
            "thresholds": search(ThresholdedRelevance(random_state=0)),
            "cardinality": search(CardinalityClassifier()),
            "forest": make_pipeline(*steps[:1], FBetaForest(n_estimators=100, random_state=0)),
        }
        boosting = HistGradientBoostingClassifier(max_leaf_nodes=7, random_state=0)
        if not sp.issparse(X):
            methods["boosting"] = SizedClassifier(estimator=boosting)
            methods["boosting, independent"] = SizedClassifier(
                estimator=boosting, sizes="independent"
            )
    return methods


def data_of(name: str, seed: int, folder: Path | None) -> tuple[Sample, Sample]:
    """Return the training and the test rows."""
    if name not in KINDS:
        X, Y, X_test, Y_test = load(name, data_home=folder).split
        return (X, Y), (X_test, Y_test)
    law, n = KINDS[name]
    rng = np.random.default_rng(seed)
    sample = law(rng)
    return sample(rng, n), sample(rng, TEST_ROWS)


def compare(name: str, seed: int, limits: list[float], folder: Path | None) -> dict[str, float]:
    """Print the F_1 of every method, and the regret of the automatic one; return the F_1."""
    train, (X_test, Y_test) = data_of(name, seed, folder)
    scores, seconds = {}, {}
    methods = simple_methods(train[0])
    methods |= {
        f"auto, {limit:g} s": FBetaAuto(time_limit=limit, random_state=0) for limit in limits
    }
    for method, model in methods.items():
        begin = time.perf_counter()
        predicted = model.fit(*train).predict(X_test)
        seconds[method] = time.perf_counter() - begin
        scores[method] = fbeta_per_instance(Y_test, predicted, 1.0)
    simple = [method for method in methods if not method.startswith("auto")]
    best = max(simple, key=lambda method: scores[method].mean())
    print(f"{name}, seed {seed}: {train[0].shape[0]} x {train[0].shape[1]}")
    for method in methods:
        line = f"  {scores[method].mean():.4f}  {seconds[method]:7.1f} s  {method}"
        if method not in simple:
            gap = scores[best] - scores[method]
            error = gap.std() / np.sqrt(len(gap))
            verdict = "" if gap.mean() <= MAX_REGRET else "  above the limit"
            line += f"  regret to {best}: {gap.mean():+.4f} +- {error:.4f}{verdict}"
        print(line, flush=True)
    return {method: float(score.mean()) for method, score in scores.items()}


def summarise(name: str, found: list[dict[str, float]]) -> None:
    """Print the mean regret over several draws, and its standard error."""
    mean = {method: np.mean([scores[method] for scores in found]) for method in found[0]}
    best = max((m for m in mean if not m.startswith("auto")), key=lambda method: mean[method])
    for method in (m for m in mean if m.startswith("auto")):
        gaps = np.array([scores[best] - scores[method] for scores in found])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        verdict = "" if gaps.mean() <= MAX_REGRET else "  above the limit"
        print(
            f"{name}, {len(found)} seeds: {method}, mean regret to {best}: "
            f"{gaps.mean():+.4f} +- {error:.4f}{verdict}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="", help="parts of names of kinds, with commas")
    parser.add_argument("--limits", default="60", help="seconds, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, help="folder with the Mulan sets")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [*KINDS, *(MULAN if options.data is not None else ())]
    wanted = [part for part in options.kinds.split(",") if part]
    for name in names:
        if not wanted or any(part in name for part in wanted):
            limits = [float(limit) for limit in options.limits.split(",")]
            found = [compare(name, seed, limits, options.data) for seed in range(options.seeds)]
            if options.seeds > 1:
                summarise(name, found)


if __name__ == "__main__":
    main()
