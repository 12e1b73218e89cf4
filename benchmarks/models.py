"""Models of the statistics at scale, and the decoder over probabilities of others.

``python -m benchmarks.models METHOD`` fits a method to many labels; prints seconds and memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.cases import data_folder
from benchmarks.solver import peak_kib
from fbeta import FBetaDecoder, LabelStatistics, decode, fbeta_score
from fbeta.datasets import load
from fbeta.methods import make_method

WIDE = ("fbeta", "sized")


def tagged_texts(n: int = 20_000, d: int = 30_000, s: int = 2_000, words: int = 60) -> Any:
    """Make sparse texts with tags: rare words, rare tags, about three tags for each text.

    It stands in for the shape, never for results.
    """
    rng = np.random.default_rng(0)
    often = 1 / np.arange(10, s + 10)
    own = [rng.choice(d, size=30, replace=False) for _ in range(s)]
    common = 1 / np.arange(5, d + 5)
    common /= common.sum()
    rows, columns, tags = [], [], []
    for i in range(n):
        size = min(1 + rng.poisson(2), 12)
        chosen = rng.choice(s, size=size, replace=False, p=often / often.sum())
        said = [rng.choice(own[j], size=8) for j in chosen]
        said.append(rng.choice(d, size=words - 8 * min(size, 6), p=common))
        found = np.unique(np.concatenate(said))
        rows.append(np.full(len(found), i))
        columns.append(found)
        tags.append((np.full(size, i), chosen))
    place = np.concatenate(rows), np.concatenate(columns)
    X = sp.csr_array((np.ones(len(place[0]), dtype=np.float32), place), shape=(n, d))
    of_row, label = (np.concatenate(part) for part in zip(*tags, strict=True))
    Y = sp.csr_array((np.ones(len(label), dtype=np.int8), (of_row, label)), shape=(n, s))
    return X, Y


def measure(method: str, rows: int = 1000) -> dict[str, Any]:
    """Fit one method to many labels, and predict for some rows."""
    X, Y = tagged_texts()
    train, test = slice(0, X.shape[0] - rows), slice(X.shape[0] - rows, None)
    before, start = peak_kib(), perf_counter()
    model = make_method(method).fit(X[train], Y[train])
    fitted = perf_counter()
    score = model.score(X[test], Y[test])
    return {
        "method": method,
        "fit_s": fitted - start,
        "predict_s": perf_counter() - fitted,
        "peak_gib": peak_kib() / 2**20,
        "added_gib": (peak_kib() - before) / 2**20,
        "F_1": score,
    }


def run_wide() -> list[dict[str, Any]]:
    """Measure each method in a process of its own."""
    found = []
    for method in WIDE:
        command = [sys.executable, "-m", "benchmarks.models", method]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(found[-1], flush=True)
    return found


def run_decoder(names: tuple[str, ...] = ("yeast", "enron", "bibtex")) -> Any:
    """Compare the decoder with a threshold and with independence, over one-against-rest models."""
    folder = data_folder()
    if folder is None:
        return {"skipped": "the Mulan data sets are not here: set FBETA_DATA to their folder"}
    found = []
    for name in names:
        data = load(name, data_home=folder)
        train, test = data.X_train, data.X_test
        if not sp.issparse(train):
            scaler = StandardScaler().fit(train)
            train, test = scaler.transform(train), scaler.transform(test)
        # int8 would not hold the numbers of 159 labels, which scikit-learn puts there
        sets = (data.Y_train, data.Y_test)
        truth, unseen = (sp.csr_array(part).toarray().astype(int) for part in sets)
        model = OneVsRestClassifier(LogisticRegression(max_iter=300), n_jobs=-1)
        folds = KFold(5, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # labels that a fold does not have
            held_out = cross_val_predict(model, train, truth, cv=folds, method="predict_proba")
            P = model.fit(train, truth).predict_proba(test)
        cuts = np.unique(np.quantile(held_out, np.linspace(0.5, 1, 200)))
        best = max(cuts, key=lambda cut: fbeta_score(truth, held_out > cut))
        start = perf_counter()
        decoder = FBetaDecoder().fit(held_out, truth)
        seconds = perf_counter() - start
        found.append({
            "set": name,
            "threshold": fbeta_score(unseen, best < P),
            "independent": fbeta_score(unseen, decode(LabelStatistics.from_marginals(P))),
            "decoder": decoder.score(P, unseen),
            "fit_s": seconds,
        })  # fmt: skip
        print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
