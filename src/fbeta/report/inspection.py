"""What one fitted model does for every beta, as numbers: on labelled rows that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.metrics import fbeta_per_instance
from fbeta.report.evaluation import calibration_bins, measure

__all__ = ["BETA_GRID", "AtBeta", "RowView", "Search", "inspect_betas", "search_of", "tried_by"]

#: Eighths of an octave from 1/8 to 8: close enough that neighbours hardly differ.
BETA_GRID = tuple(float(2.0 ** (step / 8)) for step in range(-24, 25))


@dataclass(frozen=True)
class RowView:
    """A row of the data: what the model expects of its prediction, and what it got.

    Attributes
    ----------
    row : int
        From 0.
    expected, actual : float
        F_beta.
    true, predicted : list of int
        Numbers of labels.
    """

    row: int
    expected: float
    actual: float
    true: list[int]
    predicted: list[int]


@dataclass(frozen=True)
class AtBeta:
    """What a model does at one beta.

    Attributes
    ----------
    beta : float
        Predicted and measured for.
    scores : mapping
        Of :func:`fbeta.report.evaluation.measure`.
    mean_size : float
        Mean size of the predicted sets.
    predicted, hits : ndarray of shape (s,)
        Rows with the label in the prediction, and in both.
    bins : list of dict, or None
        Of :func:`fbeta.report.evaluation.calibration_bins`, where the model expects an F_beta.
    surest, unsurest : list of RowView
        The rows of which it expects most and least, in this order; empty where it does not expect.
    """

    beta: float
    scores: Mapping[str, float]
    mean_size: float
    predicted: NDArray[np.int64]
    hits: NDArray[np.int64]
    bins: list[dict[str, float]] | None
    surest: list[RowView]
    unsurest: list[RowView]


def inspect_betas(
    model: Any,
    X: Any,
    Y: NDArray[Any],
    *,
    beta: float | None = None,
    grid: Sequence[float] = BETA_GRID,
    n_rows: int = 8,
) -> list[AtBeta]:
    """Predict and measure for every beta of a grid that a model can predict for.

    Parameters
    ----------
    model : StoredModel or estimator
        Fitted; its predictions are 0/1 arrays.
    X, Y : arrays of shape (n, d) and (n, s)
        Features, and labels as 0/1. Columns of Y beyond those of the model are labels that it does
        not know: they count, and are never predicted.
    beta : float, optional
        A beta to look at besides the grid; that of the model by default.
    grid : sequence of float
        What to try.
    n_rows : int
        Rows to show of the surest and of the least sure.

    Returns
    -------
    list of AtBeta
        In the order of beta; methods that are fitted for one beta have that one.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
    >>> views = inspect_betas(FBetaClassifier().fit(X, Y), X, Y, grid=[0.5, 2.0])
    >>> [(view.beta, view.mean_size) for view in views]
    [(0.5, 1.25), (1.0, 1.5), (2.0, 1.75)]
    """
    classifier = getattr(model, "classifier", model)
    own = float(classifier.beta if beta is None else beta)
    found = model.decide(X, [own, *grid], skip_refused=True)
    if own not in found.labels:
        model.decide(X, [own])  # a beta that the model refuses is an error
    views = [
        _view(value, Y, np.asarray(labels, dtype=bool), found.expected.get(value), n_rows)
        for value, labels in found.labels.items()
    ]
    return sorted(views, key=lambda view: view.beta)


def _view(
    beta: float, Y: NDArray[Any], predicted: NDArray[np.bool_], expected: Any, n_rows: int
) -> AtBeta:
    """Measure the predictions (n, s) for one beta."""
    true = np.asarray(Y, dtype=bool)
    predicted = np.pad(predicted, ((0, 0), (0, true.shape[1] - predicted.shape[1])))
    bins, surest, unsurest = None, [], []
    if expected is not None:
        expected = np.asarray(expected)
        bins = calibration_bins(expected, Y, predicted, beta)
        actual = fbeta_per_instance(true, predicted, beta)
        order = np.argsort(-expected, kind="stable")
        surest, unsurest = (
            [
                RowView(
                    int(row),
                    float(expected[row]),
                    float(actual[row]),
                    np.flatnonzero(true[row]).tolist(),
                    np.flatnonzero(predicted[row]).tolist(),
                )
                for row in rows
            ]
            for rows in (order[:n_rows], order[::-1][:n_rows])
        )
    return AtBeta(
        beta=beta,
        scores=measure(Y, predicted, beta),
        mean_size=float(predicted.sum(axis=1).mean()),
        predicted=predicted.sum(axis=0),
        hits=(true & predicted).sum(axis=0),
        bins=bins,
        surest=surest,
        unsurest=unsurest,
    )


@dataclass(frozen=True)
class Search:
    """How alpha was chosen: the mean F_beta over the folds of each strength that was tried."""

    alphas: tuple[float, ...]
    scores: tuple[float, ...]
    folds: int


def search_of(training: Mapping[str, Any], classifier: Any = None) -> Search | None:
    """Read how alpha was chosen, from what a file says of it or from a search itself.

    Parameters
    ----------
    training : mapping
        Of a stored model, which may come from anybody.
    classifier : estimator, optional
        With ``cv_results_``, where it is a search.

    Returns
    -------
    Search or None
        None where there was no search, or nothing is known of it.

    Examples
    --------
    >>> search_of({"searched": {"alphas": [0.1, 1.0], "scores": [0.5, 0.6], "folds": 5}})
    Search(alphas=(0.1, 1.0), scores=(0.5, 0.6), folds=5)
    >>> search_of({"searched": "anything"})
    """
    results = getattr(classifier, "cv_results_", {})
    if "alpha" in results:
        folds = sum(key.startswith("split") for key in results)
        # strengths that were left out have no score
        kept = np.isfinite(results["mean_test_score"])
        alphas, scores = (results[key][kept] for key in ("alpha", "mean_test_score"))
        return Search(tuple(alphas.tolist()), tuple(scores.tolist()), folds)
    found = training.get("searched")
    if not isinstance(found, dict):
        return None
    alphas, scores, folds = (found.get(key) for key in ("alphas", "scores", "folds"))
    if not (isinstance(alphas, list) and isinstance(scores, list) and isinstance(folds, int)):
        return None
    sound = len(alphas) == len(scores) > 0 and all(
        isinstance(number, float) and np.isfinite(number) for number in (*alphas, *scores)
    )
    return Search(tuple(alphas), tuple(scores), folds) if sound else None


def tried_by(classifier: Any) -> list[tuple[str, float, float]]:
    """Return the name, score and weight of what a classifier has tried, if it keeps such a list.

    Parameters
    ----------
    classifier : estimator
        Perhaps with ``leaderboard_``, a list of mappings; it may come from a file of anybody.

    Returns
    -------
    list of (str, float, float)
        Empty where there is none.

    Examples
    --------
    >>> tried_by(None)
    []
    """
    found = []
    for row in getattr(classifier, "leaderboard_", ()):
        name, score, weight = (row.get(key) for key in ("name", "score", "weight"))
        if isinstance(score, float) and isinstance(weight, (float, int)):
            found.append((str(name), score, float(weight)))
    return found
