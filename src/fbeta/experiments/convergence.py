"""Synthetic data: Figure 1 of the paper, whose truth is known, and tickets for ``fbeta demo``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np

from fbeta.datasets import CalibratedLaw
from fbeta.estimators import FBetaClassifier
from fbeta.experiments.cells import Cell
from fbeta.metrics import fbeta_score

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
    beta: float = 1.0,
    alpha: float = 1.0,
    n_labels: int = 6,
    n_features: int = 100,
    n_test: int = N_TEST,
) -> list[Cell]:
    """List one fit for each sample size and seed; law and test set stay the same."""
    shared = {"alpha": float(alpha), "beta": float(beta), "n_test": n_test}
    shared |= {"n_labels": n_labels, "n_features": n_features}
    return [
        Cell("figure1", "calibrated", "fbeta", {**shared, "n_train": int(n), "seed": int(seed)})
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


def make_tickets(n: int, seed: int) -> list[list[object]]:
    """Make n tickets: a header, then rows of id, date, channel, amount, message and tags.

    Tags share words and come in pairs more often than chance; some tickets have none.
    """
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
