"""Which features speak for a label: coefficients, or the effect of shuffled features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from fbeta.estimators.base import MultiLabelClassifier
from fbeta.statistics.codes import MarginalCode, SizedCode

__all__ = ["FeatureEffect", "label_importances"]

MAX_SHUFFLED = 60  # features that are shuffled: those that go along most with any label


@dataclass(frozen=True)
class FeatureEffect:
    """A feature and its effect on a label: positive where large values speak for the label."""

    feature: str
    effect: float


def label_importances(
    model: Any,
    X: Any,
    *,
    n_features: int = 10,
    feature_names: Sequence[str] | None = None,
    random_state: int = 0,
) -> dict[Any, list[FeatureEffect]]:
    """Return the features with the largest effects on the probability of each label.

    A linear model of each label has coefficients: the effect is the change of the logit by one
    standard deviation of the feature in X. For any other model it is the mean absolute change of
    the probability of the label when the feature is shuffled among the rows of X, with the sign of
    their correlation; of many features those are shuffled that correlate most.

    Parameters
    ----------
    model : estimator or pipeline
        Fitted, with ``predict_proba``.
    X : features of n rows
        As the model takes them; some hundred rows are enough.
    n_features : int
        How many to return for each label, the largest effects first.
    feature_names : sequence of str, optional
        Of the features that the classifier sees; by default those of X or of the encoder.
    random_state : int
        Of the shuffling.

    Returns
    -------
    dict
        From the name of a label to a list of ``FeatureEffect``.

    Examples
    --------
    >>> from fbeta import SizedClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> clf = SizedClassifier().fit(X, (X[:, :2] > 0).astype(int))
    >>> label_importances(clf, X, n_features=1, feature_names=["a", "b", "c"])[1][0].feature
    'b'
    """
    X, names, classifier = _features(model, X)
    if feature_names is not None:
        names = list(feature_names)
    if len(names) != X.shape[1]:
        raise ValueError(f"there are {len(names)} feature_names for {X.shape[1]} features")
    effects = _coefficients(classifier, X)
    if effects is None:
        effects = _shuffled(classifier, X, np.random.default_rng(random_state))
    labels = classifier.classes_[-len(effects) :]
    return {
        label: [
            FeatureEffect(names[j], float(row[j]))
            for j in np.argsort(-np.abs(row), kind="stable")[:n_features]
            if row[j]
        ]
        for label, row in zip(labels.tolist(), effects, strict=True)
    }


def _features(model: Any, X: Any) -> tuple[Any, list[str], Any]:
    """Return the features that the classifier sees, their names, and the classifier."""
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    *encoders, classifier = [step for _, step in getattr(model, "steps", [("", model)])]
    encoders = [step for step in encoders if step not in (None, "passthrough")]
    classifier = getattr(classifier, "best_estimator_", classifier)
    if getattr(classifier, "table_encoder_", None) is not None:
        encoders.append(classifier.table_encoder_)
    for step in encoders:
        X = step.transform(X)
        same = names is not None and len(names) == X.shape[1]
        if hasattr(step, "get_feature_names_out") and not same:
            names = [str(name) for name in step.get_feature_names_out()]
    if not sp.issparse(X):
        X = np.asarray(X)
    return X, names or [f"x{j}" for j in range(X.shape[1])], classifier


def _coefficients(classifier: MultiLabelClassifier, X: Any) -> NDArray[np.float64] | None:
    """Return the effects of one standard deviation in linear models of labels, (s, d), or None."""
    code: Any = getattr(classifier, "code", None)
    coef = getattr(classifier, "coef_", None)
    # the scores of labels in a cardinality model are not their logits
    if coef is None or type(code) not in (MarginalCode, SizedCode):
        return None
    place = getattr(classifier.model, "problem", np.arange(len(coef)))
    own = np.asarray(coef, dtype=np.float64)[np.asarray(place)[: code.n_labels]]
    return np.asarray(own * _deviations(X))


def _deviations(X: Any) -> NDArray[np.float64]:
    if sp.issparse(X):
        return np.asarray(np.sqrt(mean_variance_axis(sp.csr_array(X), axis=0)[1]))
    return np.asarray(np.nanstd(X, axis=0))


def _shuffled(classifier: Any, X: Any, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the effects of shuffled features on the probabilities of the labels, (s, d)."""
    found = classifier.decide(X, expected=False, marginals=True, checked=False)
    P = np.asarray(found.marginals, dtype=np.float64)
    centred = P - P.mean(axis=0)
    filled: Any = X if sp.issparse(X) else np.where(np.isfinite(X), X, 0.0)
    means = np.asarray(filled.mean(axis=0)).ravel()
    scale = np.maximum(_deviations(filled), 1e-300)
    # sums over rows of (x - mean) (p - mean), without centring a sparse X
    along = np.asarray(filled.T @ centred).T - centred.sum(axis=0)[:, None] * means
    along /= scale * np.maximum(P.std(axis=0), 1e-300)[:, None] * len(P)
    chosen = np.argsort(-np.abs(along).max(axis=0), kind="stable")[:MAX_SHUFFLED]
    out = np.zeros_like(along)
    columns = filled.tocsc() if sp.issparse(filled) else None
    for j in chosen[scale[chosen] > 1e-300].tolist():
        order = rng.permutation(len(P))
        if columns is None:
            moved = X.copy()
            moved[:, j] = X[order, j]
        else:
            parts = columns[:, :j], columns[order][:, [j]], columns[:, j + 1 :]
            moved = sp.csr_array(sp.hstack(parts))
        after = classifier.decide(moved, expected=False, marginals=True).marginals
        out[:, j] = np.abs(np.asarray(after) - P).mean(axis=0) * np.sign(along[:, j])
    return np.asarray(out)
