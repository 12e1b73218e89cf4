"""The data that the benchmarks run on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from fbeta.datasets import load
from fbeta.statistics import encode, observed_cardinalities
from fbeta.statistics.encoding import constant_values, distinct_columns


@dataclass
class Case:
    """Features and the targets of the distinct binary problems that have to be solved."""

    name: str
    X: Any
    targets: sp.csc_array
    goal: float
    sample: int | None = None
    alpha: float = 1.0


def data_folder() -> Path | None:
    places = [Path(p) for p in [os.environ.get("FBETA_DATA", "")] if p]
    places.append(Path(__file__).resolve().parents[2] / "shared" / "data" / "mulan")
    return next((p for p in places if (p / "yeast-train.arff").exists()), None)


def problems_of(Y: Any) -> sp.csc_array:
    """Return the targets without constant and repeated columns: the same work for both sides."""
    indicator = sp.csr_array(Y)
    targets = encode(indicator, observed_cardinalities(indicator))
    targets = targets[:, distinct_columns(targets)[1]]
    return sp.csc_array(targets[:, np.flatnonzero(np.isnan(constant_values(targets)))])


def mediamill_shaped(n: int = 31_000, d: int = 120, s: int = 101, largest: int = 18) -> Any:
    """Make data of Mediamill's shape: decaying spectrum, rare labels, sizes up to 18.

    It stands in for the shape, never for results.
    """
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.5 @ basis
    W, b = 1.5 * rng.standard_normal((d, s)), -5.3 - 3 * rng.uniform(size=s)
    Y = (rng.uniform(size=(n, s)) < 1 / (1 + np.exp(-(X @ W + b)))).astype(np.int8)
    for i in np.flatnonzero(Y.sum(axis=1) > largest):
        on = np.flatnonzero(Y[i])
        Y[i, rng.permutation(on)[largest:]] = 0
    return X, Y


def word_indicators(n: int = 21_519, d: int = 500, s: int = 22) -> Any:
    """Make standardised indicators of words: rare ones, and phrases whose words go together.

    Of the shape of a collection of reports with 22 tags; it stands in for the shape, never for
    results.
    """
    rng = np.random.default_rng(0)
    share = np.array([0.42, 0.25, 0.14, 0.08, 0.05, 0.025, 0.015, 0.01, 0.006, 0.004])
    size = rng.choice(np.arange(1, 11), size=n, p=share)
    score = np.log(rng.dirichlet(np.full(s, 0.6)) + 1e-4) + rng.gumbel(size=(n, s))
    rank = np.argsort(np.argsort(-score, axis=1), axis=1)
    Y = (rank < size[:, None]).astype(np.int8)
    phrases = d // 3
    base = 0.2 - 0.8 * np.log(np.arange(3, phrases + 3))
    effect = 1.5 * rng.standard_normal((s, phrases)) * (rng.uniform(size=(s, phrases)) < 0.2)
    said = rng.uniform(size=(n, phrases)) < 1 / (1 + np.exp(-(base + Y @ effect)))
    owner = np.concatenate([np.arange(phrases), rng.integers(0, phrases, d - phrases)])
    words = said[:, owner] & (rng.uniform(size=(n, d)) < rng.uniform(0.6, 0.99, d))
    words |= rng.uniform(size=(n, d)) < 0.004
    return StandardScaler().fit_transform(words.astype(np.float64)), Y


def solver_cases() -> list[Case]:
    """Return the cases of the solver's table; those on real data only where it is."""
    cases = []
    folder = data_folder()
    if folder is not None:
        for name in ("scene", "yeast", "birds", "medical", "enron"):
            data = load(name, data_home=folder)
            X, targets = data.X_train, problems_of(data.Y_train)
            goal = 20 if name == "enron" else 10
            if name == "birds":
                name, X = "birds, standardised", StandardScaler().fit_transform(X)
            if sp.issparse(X):
                cases.append(Case(f"{name}, sparse X", sp.csr_array(X), targets, goal))
                cases.append(Case(f"{name}, dense X", X.toarray(), targets, goal, sample=30))
            else:
                cases.append(Case(name, X, targets, goal))
    X, Y = mediamill_shaped()
    cases.append(Case("mediamill-shaped", X, problems_of(Y), 15, sample=24))
    X, Y = word_indicators()
    targets = problems_of(Y)
    for alpha, goal in ((10.0, 15), (0.1, 10), (0.001, 8)):
        name = f"word indicators, alpha {alpha:g}"
        cases.append(Case(name, X, targets, goal, sample=6, alpha=alpha))
    return cases
