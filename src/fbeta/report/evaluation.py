"""All the numbers that are reported of a model and its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.labels.forms import common_indicators
from fbeta.metrics import fbeta_of_counts, fbeta_per_instance, fbeta_score

#: Keys of :func:`measure`, and what they are called in tables.
MEASURES = {
    "fbeta": "F_beta (instances)",
    "precision": "precision (instances)",
    "recall": "recall (instances)",
    "micro_fbeta": "F_beta (micro)",
    "macro_fbeta": "F_beta (macro)",
    "hamming": "Hamming loss",
    "subset_accuracy": "subset accuracy",
}
#: Betas at which F_beta is measured besides that of a protocol: one model serves them all.
BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)


def measure(Y: NDArray[Any], predicted: NDArray[Any], beta: float = 1.0) -> dict[str, float]:
    """Compute the ``MEASURES`` of 0/1 arrays of shape (n, s), with 0/0 = 1 throughout."""
    true, pred = (part.toarray() > 0 for part in common_indicators(Y, predicted))
    return measure_sets(true, pred, beta)[0]


def measure_sets(
    true: NDArray[np.bool_], pred: NDArray[np.bool_], beta: float
) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Return the ``MEASURES`` of boolean arrays of shape (n, s), and F_beta of each row (n,)."""
    hits, wrong = true & pred, true != pred
    (h, t, p), labels = ([part.sum(axis=k) for part in (hits, true, pred)] for k in (1, 0))
    fbeta = fbeta_of_counts(h, t, p, beta)
    scores = {
        "fbeta": fbeta.mean(),
        "precision": _ratio(h, p).mean(),
        "recall": _ratio(h, t).mean(),
        "micro_fbeta": fbeta_of_counts(h.sum(), t.sum(), p.sum(), beta),
        "macro_fbeta": fbeta_of_counts(labels[0], labels[1], labels[2], beta).mean(),
        "hamming": wrong.mean(),
        "subset_accuracy": (~wrong.any(axis=1)).mean(),
    }
    return {key: float(value) for key, value in scores.items()}, fbeta


def _ratio(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    """Divide, with 0/0 = 1."""
    found: NDArray[np.float64] = np.ones(np.shape(totals))
    np.divide(counts, totals, out=found, where=totals > 0)
    return found


def calibration_bins(
    expected: NDArray[np.float64], actual: NDArray[np.float64], n_bins: int = 10
) -> list[dict[str, float]]:
    """Compare expected and actual F_beta (n,) in groups of equal size, by the expected one."""
    order = np.argsort(expected, kind="stable")
    return [
        {
            "expected": float(expected[rows].mean()),
            "actual": float(actual[rows].mean()),
            "count": len(rows),
        }
        for rows in np.array_split(order, n_bins)
        if len(rows)
    ]


def calibration_words(
    expected: NDArray[np.float64], Y: NDArray[Any], predicted: NDArray[Any], beta: float = 1.0
) -> str:
    """Say how expected and actual F_beta agree; two standard errors are put down to chance."""
    actual = fbeta_per_instance(Y, predicted, beta)
    difference = expected - actual
    n, mean = len(difference), float(difference.mean())
    error = float(difference.std(ddof=1) / np.sqrt(n)) if n > 1 else np.inf
    words = (
        f"The model expects F_{beta:g} = {expected.mean():.3f} of these rows and gets "
        f"{expected.mean() - mean:.3f}: {abs(mean):.3f} too {'much' if mean > 0 else 'little'}. "
    )
    if abs(mean) <= 2 * error:
        words += f"For {n:,} rows, chance can explain that (the standard error is {error:.3f})."
    else:
        sure = "too sure of its predictions" if mean > 0 else "better than it thinks"
        words += f"It is {sure}: the standard error is only {error:.3f}."
    groups = calibration_bins(expected, actual)
    if n < 10 * len(groups):
        return words
    low, high = groups[0], groups[-1]
    return words + (
        f" Of the tenth of the rows that it is least sure of it expects {low['expected']:.3f} and "
        f"gets {low['actual']:.3f}; of the tenth that it is most sure of, {high['expected']:.3f} "
        f"and {high['actual']:.3f}."
    )


def label_scores(
    Y: NDArray[Any], predicted: NDArray[Any], beta: float = 1.0
) -> dict[str, NDArray[Any]]:
    """Measure each label of 0/1 arrays (n, s) by itself, with 0/0 = 1.

    Returns arrays of shape (s,): counts ``true`` and ``predicted``, ``precision``, ``recall`` and
    ``fbeta``.
    """
    Y, predicted = (np.asarray(A, dtype=np.int64) for A in (Y, predicted))
    hits, true, pred = (A.sum(axis=0) for A in (Y * predicted, Y, predicted))
    return {
        "true": true,
        "predicted": pred,
        "precision": _ratio(hits, pred),
        "recall": _ratio(hits, true),
        "fbeta": fbeta_of_counts(hits, true, pred, beta),
    }


def scores_by_beta(model: Any, X: Any, Y: NDArray[Any]) -> dict[str, float]:
    """Measure the predictions of one model for those of ``BETAS`` that it accepts."""
    labels = model.decide(X, BETAS, expected=False, skip_refused=True).labels
    return {f"{beta:g}": fbeta_score(Y, np.asarray(sets), beta) for beta, sets in labels.items()}
