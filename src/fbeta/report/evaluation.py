"""All the numbers that are reported of a model and its predictions, at one beta or at many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import precision_recall_curve

from fbeta.datasets import TableEncoder
from fbeta.datasets.table_encoder import TextColumn
from fbeta.decoding.exact import decode
from fbeta.labels.forms import common_indicators
from fbeta.metrics import fbeta_of_counts, fbeta_per_instance, fbeta_score
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.storage.model_files import StoredModel

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
        "precision": fbeta_of_counts(h, p, p).mean(),
        "recall": fbeta_of_counts(h, t, t).mean(),
        "micro_fbeta": fbeta_of_counts(h.sum(), t.sum(), p.sum(), beta),
        "macro_fbeta": fbeta_of_counts(labels[0], labels[1], labels[2], beta).mean(),
        "hamming": wrong.mean(),
        "subset_accuracy": (~wrong.any(axis=1)).mean(),
    }
    return {key: float(value) for key, value in scores.items()}, fbeta


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
    wanted, got = f"{expected.mean():.3f}", f"{expected.mean() - mean:.3f}"
    off = f"{abs(mean):.3f} too {'much' if mean > 0 else 'little'}"
    off = "the two agree" if wanted == got else off
    rows = "this row" if n == 1 else "these rows"
    words = f"The model expects F_{beta:g} = {wanted} of {rows} and gets {got}: {off}. "
    if n == 1:
        words += "One row does not show whether that is chance."
    elif wanted == got:
        words += f"The standard error is {error:.3f}."
    elif abs(mean) <= 2 * error:
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
    """Measure each label of 0/1 arrays (n, s) by itself, with 0/0 = 1; by name arrays (s,)."""
    Y, predicted = (np.asarray(A, dtype=np.int64) for A in (Y, predicted))
    hits, true, pred = (A.sum(axis=0) for A in (Y * predicted, Y, predicted))
    return {
        "true": true,
        "predicted": pred,
        "precision": fbeta_of_counts(hits, pred, pred),
        "recall": fbeta_of_counts(hits, true, true),
        "fbeta": fbeta_of_counts(hits, true, pred, beta),
    }


def scores_by_beta(model: Any, X: Any, Y: NDArray[Any]) -> dict[str, float]:
    """Measure one model for those of ``BETAS`` that it accepts; it misses further columns of Y."""
    labels = model.decide(X, BETAS, expected=False, skip_refused=True).labels
    scores = {}
    for beta, sets in labels.items():
        padding = ((0, 0), (0, Y.shape[1] - np.shape(sets)[1]))
        scores[f"{beta:g}"] = fbeta_score(Y, np.pad(np.asarray(sets), padding), beta)
    return scores


#: Eighths of an octave from 1/8 to 8: close enough that neighbours hardly differ.
BETA_GRID = tuple(float(2.0 ** (step / 8)) for step in range(-24, 25))
# bytes of dense label sets at all betas that are held at the same time
_CHUNK_BYTES = 2**26
_MAX_CONFUSIONS = 12
_MAX_FEATURES_SHOWN = 8
# features x labels whose correlations are held at the same time
_MAX_CORRELATIONS = 2**22


@dataclass(frozen=True)
class RowView:
    """A row of the data: number from 0, expected and actual F_beta, indices of its labels."""

    row: int
    expected: float
    actual: float
    true: list[int]
    predicted: list[int]


@dataclass(frozen=True)
class BetaView:
    """What a model does at one beta.

    Attributes
    ----------
    beta : float
        The measure that was predicted for.
    scores : mapping
        Of :func:`fbeta.report.evaluation.measure`.
    standard_error : float
        Of the mean F_beta over the rows; 0 for one row.
    baselines : mapping
        Mean F_beta of ``"constant"``, the constant set that is best on these rows, and ``"half"``,
        the labels whose probability is above 1/2, where the model has probabilities.
    mean_size : float
        Mean size of the predicted sets.
    predicted, hits : ndarray of shape (s,)
        Number of rows with the label in the prediction, and in prediction and truth.
    confusions : list of (int, int, int)
        Missed label, wrong label, and the number of rows with both; the most frequent first.
    bins : list of dict, or None
        Of :func:`fbeta.report.evaluation.calibration_bins`, where the model expects an F_beta.
    rows : mapping from str to list of RowView
        ``"surest"``, ``"unsurest"`` and ``"overconfident"`` (expected minus actual F_beta is
        largest); empty where the model expects no F_beta.
    """

    beta: float
    scores: Mapping[str, float]
    standard_error: float
    baselines: Mapping[str, float]
    mean_size: float
    predicted: NDArray[np.int64]
    hits: NDArray[np.int64]
    confusions: list[tuple[int, int, int]]
    bins: list[dict[str, float]] | None
    rows: Mapping[str, list[RowView]]


def inspect_betas(
    stored: StoredModel,
    features: Any,
    Y: NDArray[Any],
    *,
    beta: float | None = None,
    grid: Sequence[float] = BETA_GRID,
    n_rows: int = 8,
) -> tuple[list[BetaView], NDArray[np.float64] | None]:
    """Predict and measure for every beta of a grid that a model accepts; the model is run once.

    Parameters
    ----------
    stored : StoredModel
        The model.
    features, Y : arrays of shape (n, d) and (n, s)
        Features as the classifier takes them, and labels as 0/1. Columns of Y beyond those of the
        model are labels that the model does not know: they count, and are never predicted.
    beta : float, optional
        A beta to inspect besides the grid; that of the model by default.
    grid : sequence of float
        Betas to try; methods that are fitted for one beta accept only that one.
    n_rows : int
        Number of rows in each group of :class:`RowView`.

    Returns
    -------
    views : list of BetaView
        In the order of beta.
    marginals : ndarray of shape (n, s) or None
        Probabilities of the labels, 0 for labels that the model does not know.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([[1, 0], [1, 0], [1, 1], [1, 1]])
    >>> stored = StoredModel(FBetaClassifier().fit(X, Y), ("a", "b"))
    >>> views, _ = inspect_betas(stored, X, Y, grid=[0.5, 2.0])
    >>> [(view.beta, view.mean_size) for view in views]
    [(0.5, 1.25), (1.0, 1.5), (2.0, 1.75)]
    """
    true = np.asarray(Y, dtype=bool)
    own = float(stored.classifier.beta if beta is None else beta)
    betas = sorted({own, *grid})
    labels, expected, marginals = _decisions(stored.classifier, features, betas, own, true.shape[1])
    law = LabelStatistics.from_samples(true[None].astype(np.float64))
    half = None if marginals is None else marginals > 0.5
    views = []
    for at, found in labels.items():
        fixed = {"constant": np.broadcast_to(decode(law, at) > 0, true.shape)}
        fixed |= {} if half is None else {"half": half}
        baselines = {key: measure_sets(true, sets, at)[0]["fbeta"] for key, sets in fixed.items()}
        views.append(_view(at, true, found.toarray() > 0, expected.get(at), baselines, n_rows))
    return views, marginals


def _decisions(
    classifier: Any, features: Any, betas: Sequence[float], own: float, n_labels: int
) -> tuple[dict[float, Any], dict[float, Any], NDArray[np.float64] | None]:
    """Return label sets (n, s) and expected F_beta (n,) by those betas that are not refused."""
    parts = []
    has_marginals = hasattr(classifier, "predict_proba")
    step = max(1, _CHUNK_BYTES // (len(betas) * n_labels))
    for start in range(0, max(features.shape[0], 1), step):
        rows = features[start : start + step]
        found = classifier.decide(rows, betas, marginals=has_marginals, skip_refused=True)
        if own not in found.labels:
            classifier.decide(rows, [own])  # raises
        labels = {beta: sparse.csr_array(np.asarray(y)) for beta, y in found.labels.items()}
        parts.append((labels, found.expected, found.marginals))
    joined = {beta: sparse.csr_array(sparse.vstack([p[0][beta] for p in parts])) for beta in labels}
    for sets in joined.values():
        sets.resize((sets.shape[0], n_labels))
    means = {beta: np.concatenate([p[1][beta] for p in parts]) for beta in found.expected}
    if not has_marginals:
        return joined, means, None
    known = np.concatenate([p[2] for p in parts])
    return joined, means, np.pad(known, ((0, 0), (0, n_labels - known.shape[1])))


def _view(
    beta: float,
    true: NDArray[np.bool_],
    predicted: NDArray[np.bool_],
    expected: NDArray[np.float64] | None,
    baselines: Mapping[str, float],
    n_rows: int,
) -> BetaView:
    """Measure predictions of shape (n, s) at one beta."""
    scores, actual = measure_sets(true, predicted, beta)
    groups: dict[str, list[RowView]] = {"surest": [], "unsurest": [], "overconfident": []}
    if expected is not None:
        for group, keys in zip(groups, (-expected, expected, actual - expected), strict=True):
            groups[group] = [
                RowView(
                    int(row),
                    float(expected[row]),
                    float(actual[row]),
                    np.flatnonzero(true[row]).tolist(),
                    np.flatnonzero(predicted[row]).tolist(),
                )
                for row in np.argsort(keys, kind="stable")[:n_rows]
            ]
    return BetaView(
        beta=beta,
        scores=scores,
        standard_error=float(actual.std(ddof=1) / np.sqrt(len(actual))) if len(actual) > 1 else 0.0,
        baselines=baselines,
        mean_size=float(predicted.sum(axis=1).mean()),
        predicted=predicted.sum(axis=0),
        hits=(true & predicted).sum(axis=0),
        confusions=_confusions(true & ~predicted, predicted & ~true),
        bins=None if expected is None else calibration_bins(expected, actual),
        rows=groups,
    )


def _confusions(missed: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return the pairs of a missed and a wrong label that most rows have, with their numbers."""
    left, right = (sparse.csr_array(part.astype(np.int64)) for part in (missed, wrong))
    pairs = (left.T @ right).tocoo()
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:_MAX_CONFUSIONS]
    return [(int(pairs.row[i]), int(pairs.col[i]), int(pairs.data[i])) for i in order]


def precision_recall_curves(
    Y: NDArray[Any], marginals: NDArray[np.float64], n_points: int = 33
) -> list[list[tuple[float, float]]]:
    """Return for each label of (n, s) arrays (recall, precision) over all thresholds, if any."""
    curves: list[list[tuple[float, float]]] = []
    for truth, p in zip(np.asarray(Y).T, marginals.T, strict=True):
        if not truth.any():
            curves.append([])
            continue
        precision, recall, _ = precision_recall_curve(truth, p)
        kept = np.unique(np.linspace(0, len(recall) - 1, n_points).astype(int))
        points = zip(recall[kept].round(4).tolist(), precision[kept].round(4).tolist(), strict=True)
        curves.append(list(points))
    return curves


def speaking_features(
    features: Any, marginals: NDArray[np.float64], names: Sequence[str]
) -> list[list[tuple[str, float]]]:
    """Return for each label the features (n, d) that go with a high probability (n, s) of it."""
    n, d = features.shape
    X = sparse.csr_array(features).astype(np.float64)
    spread = np.sqrt(np.maximum((X * X).mean(axis=0) - X.mean(axis=0) ** 2, 0))
    found: list[list[tuple[str, float]]] = []
    step = max(1, _MAX_CORRELATIONS // max(d, 1))
    for start in range(0, marginals.shape[1], step):
        P = marginals[:, start : start + step]
        scale = n * spread[:, None] * P.std(axis=0)
        products = X.T @ (P - P.mean(axis=0))
        by_label = np.divide(products, scale, out=np.zeros_like(products), where=scale > 1e-12).T
        for row in by_label:
            best = np.argsort(-row, kind="stable")[:_MAX_FEATURES_SHOWN]
            strong = [j for j in best if row[j] > 2 / np.sqrt(n)]
            found.append([(str(names[j]), round(float(row[j]), 3)) for j in strong])
    return found


def named_features(stored: StoredModel, features: Any) -> tuple[Any, list[str]]:
    """Return the features (n, d) as numbers, with names, of what the classifier takes."""
    names: Any = stored.names_of_features()
    encoder = _frame_encoder(stored)
    if encoder is not None:
        features, names = encoder.transform(features), encoder.get_feature_names_out()
    if names is None or len(names) != features.shape[1]:
        names = [f"feature {j + 1}" for j in range(features.shape[1])]
    return features, [str(name) for name in names]


def _frame_encoder(stored: StoredModel) -> Any:
    """Return the encoder of a classifier that was fitted to data frames, or None."""
    classifier = getattr(stored.classifier, "best_estimator_", stored.classifier)
    return getattr(classifier, "table_encoder_", None)


def text_cells(stored: StoredModel, X: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the name and the n cells of each text column of a table that a model encodes."""
    encoder = next(iter(stored.steps), _frame_encoder(stored))
    if not isinstance(encoder, TableEncoder) or len(np.shape(X)) != 2:
        return
    for j, (name, part) in enumerate(zip(encoder.feature_names_in_, encoder.parts_, strict=True)):
        if isinstance(part, TextColumn):
            yield str(name), X[name].tolist() if hasattr(X, "iloc") else X[:, j]


def alpha_scores(classifier: Any) -> tuple[list[float], list[float], int] | None:
    """Return alphas, their mean F_beta and the number of folds of a search; None without one."""
    results = getattr(classifier, "cv_results_", {})
    if "alpha" not in results:
        return None
    kept = np.isfinite(results["mean_test_score"])  # alphas that were left out have no score
    alphas, scores = (results[key][kept].tolist() for key in ("alpha", "mean_test_score"))
    return alphas, scores, sum(key.startswith("split") for key in results)


def leaderboard(classifier: Any) -> list[tuple[str, float, float]]:
    """Return name, score and weight of the candidates of a classifier, which a file may forge."""
    found = []
    for row in getattr(classifier, "leaderboard_", ()):
        name, score, weight = (row.get(key) for key in ("name", "score", "weight"))
        if isinstance(score, float) and isinstance(weight, (float, int)):
            found.append((str(name), score, float(weight)))
    return found
