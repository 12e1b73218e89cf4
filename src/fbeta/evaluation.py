"""All the numbers that are reported of a model and its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import fbeta_score as label_fbeta_score

from fbeta.metrics import fbeta_per_instance, fbeta_score, precision_score, recall_score

__all__ = ["BETAS", "MEASURES", "calibration_bins", "measure", "scores_by_beta"]

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
#: Where F_beta is measured besides the beta of a protocol: one model serves them all.
BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)


def measure(Y: NDArray[Any], predicted: NDArray[Any], beta: float = 1.0) -> dict[str, float]:
    """Compute every measure, with 0/0 = 1 throughout.

    Parameters
    ----------
    Y, predicted : 0/1 ndarray of shape (n, s)
        The truth and the predictions.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    dict
        With the keys of ``MEASURES``.

    Examples
    --------
    >>> scores = measure(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 0]]))
    >>> scores["precision"], scores["recall"], scores["hamming"], scores["subset_accuracy"]
    (1.0, 0.75, 0.25, 0.5)
    """
    # two columns keep scikit-learn from taking a single label for a binary target
    wide = [np.pad(np.asarray(A, dtype=np.int8), ((0, 0), (0, 1))) for A in (Y, predicted)]
    labels = list(range(np.shape(Y)[1]))
    by_label = {
        average: float(
            label_fbeta_score(*wide, beta=beta, labels=labels, average=average, zero_division=1)
        )
        for average in ("micro", "macro")
    }
    wrong = np.asarray(Y, dtype=bool) != np.asarray(predicted, dtype=bool)
    return {
        "fbeta": fbeta_score(Y, predicted, beta),
        "precision": precision_score(Y, predicted),
        "recall": recall_score(Y, predicted),
        "micro_fbeta": by_label["micro"],
        "macro_fbeta": by_label["macro"],
        "hamming": float(wrong.mean()),
        "subset_accuracy": float((~wrong.any(axis=1)).mean()),
    }


def calibration_bins(
    expected: NDArray[np.float64],
    Y: NDArray[Any],
    predicted: NDArray[Any],
    beta: float = 1.0,
    n_bins: int = 10,
) -> list[dict[str, float]]:
    """Compare the F_beta that a model expects of its predictions with what it gets.

    Parameters
    ----------
    expected : ndarray of shape (n,)
        What the model expects of each prediction.
    Y, predicted : 0/1 ndarray of shape (n, s)
        The truth and the predictions.
    beta : float > 0
        The measure.
    n_bins : int
        Instances are sorted by `expected` and cut into this many groups of the same size.

    Returns
    -------
    list of dict
        ``expected`` and ``actual`` mean F_beta and the ``count`` of each group.

    Examples
    --------
    >>> calibration_bins(np.array([0.9, 0.4]), np.eye(2), np.array([[1, 0], [1, 0]]), n_bins=2)
    [{'expected': 0.4, 'actual': 0.0, 'count': 1}, {'expected': 0.9, 'actual': 1.0, 'count': 1}]
    """
    actual = fbeta_per_instance(Y, predicted, beta)
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


def scores_by_beta(model: Any, X: Any, Y: NDArray[Any]) -> dict[str, float]:
    """Measure the predictions of one model for those of ``BETAS`` that it can predict for.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
    >>> list(scores_by_beta(FBetaClassifier().fit(X, Y), X, Y))
    ['0.25', '0.5', '1', '2', '4']
    """
    scores = {}
    for beta in BETAS:
        try:
            scores[f"{beta:g}"] = fbeta_score(Y, model.predict(X, beta=beta), beta)
        except ValueError:
            # some methods are fitted for one beta and refuse the others
            continue
    return scores
