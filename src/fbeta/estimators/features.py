"""Features: what inner estimators are given; columns by name, blocks, frames; effects on labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import has_fit_parameter, validate_data

from fbeta._array import (
    check_unmasked,
    optional_import,
    to_numpy,
)
from fbeta.labels.containers import as_table, column_order, is_table
from fbeta.linear.learner import Weight
from fbeta.statistics.codes import MarginalCode, SizedCode

MAX_SHUFFLED = 60  # features that are shuffled: those that go along most with any label


def pass_features_on(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X unchanged: an inner estimator, which may take text or categories, checks it."""
    check_unmasked("X", X)
    if getattr(X, "ndim", 2) == 1 and X.dtype.kind in "biuf":
        check_array(X)  # says how to reshape one row or one column of numbers
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return indexable(X)[0]


def _take_numbers_only(owner: Any) -> bool:
    """Return whether inner classifiers are known to take numbers, and have no transformer."""
    own = [pair[1] for pair in getattr(owner, "estimators", ())] or [vars(owner).get("estimator")]
    parts = [p for one in own if one is not None for p in (one, *one.get_params().values())]
    fitted = [part for part in parts if hasattr(part, "fit")]
    known = all(type(part).__module__.startswith(("sklearn.", "fbeta.")) for part in fitted)
    other = {"transform", "categorical_features"}
    return known and bool(fitted) and not any(other & {*dir(part)} for part in fitted)


def encode_table(
    estimator: Any, X: Any, *, reset: bool, passes_on: bool, weight: Weight = None
) -> Any:
    """Return X, or the features of a data frame, by an encoder that fits where it is needed.

    It is fitted to the rows that have a weight.
    """
    wanted = hasattr(estimator, "table_encoder_")
    if reset and is_table(X):
        wanted = not passes_on or _take_numbers_only(estimator)
    table = X.to_pandas() if wanted and hasattr(X, "to_pandas") else X
    if reset and wanted:
        gaps = not get_tags(estimator).input_tags.allow_nan and bool(table.isna().any().any())
        if gaps or any(getattr(dtype, "kind", "O") not in "biuf" for dtype in table.dtypes):
            from fbeta.datasets import TableEncoder

            used = table if weight is None else table[weight[: len(table)] > 0]
            estimator.table_encoder_ = TableEncoder().fit(used)
    encoder = getattr(estimator, "table_encoder_", None)
    if encoder is not None and not is_table(X):  # in the words of scikit-learn
        name = f"{type(estimator).__name__} was fitted with feature names"
        warnings.warn(f"X does not have valid feature names, but {name}", stacklevel=2)
    return X if encoder is None else encoder.transform(table)


def fit_router(estimator: Any, owner: Any) -> MetadataRouter:
    """Tell scikit-learn that ``fit`` passes what it is given on to that of the classifier."""
    mapping = MethodMapping().add(caller="fit", callee="fit")
    return MetadataRouter(owner=owner).add(estimator=estimator, method_mapping=mapping)


def fit_weights(estimator: Any, weight: Weight) -> dict[str, Any]:
    """Return the weights as the ``fit`` of a classifier takes them, or raise where it cannot."""
    if weight is None:
        return {}
    given = {"sample_weight": weight}
    if not get_config()["enable_metadata_routing"]:
        if isinstance(estimator, Pipeline):
            raise ValueError(
                "a Pipeline takes sample_weight by metadata routing alone: call "
                "sklearn.set_config(enable_metadata_routing=True), and set_fit_request("
                "sample_weight=True) or False on its steps"
            )
        check_takes_weight(estimator, weight)
        return given
    router = fit_router(estimator, "FBetaReduction")
    router.validate_metadata(method="fit", params=given)
    return dict(router.route_params(caller="fit", params=given).estimator.fit)


def check_takes_weight(estimator: Any, sample_weight: Any) -> None:
    """Raise where there are weights and an estimator cannot be fitted with them."""
    if sample_weight is not None and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(f"{type(estimator).__name__} does not support sample_weight in fit")


def check_classifier(estimator: Any, *methods: str) -> None:
    """Raise unless a classifier has one of the methods, and warn of reweighted classes."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    name = type(last).__name__
    if not any(hasattr(estimator, method) for method in methods):
        raise TypeError(f"estimator needs {' or '.join(methods)}, which {name} does not have")
    for name, value in estimator.get_params().items():
        if name.rpartition("__")[2] == "class_weight" and value is not None:
            warnings.warn(
                f"the classifier has {name}={value!r}, and its probabilities are then not those of "
                "the data, which the best label sets depend on: leave it out, and choose a larger "
                "beta if recall matters more",
                UserWarning,
                stacklevel=2,
            )


def answer_blocks(estimator: Any, work: Callable[[Any], Any], X: Any, kind: str) -> Any:
    """Return what ``work`` returns for blocks of rows: lazily, with their columns by name."""
    from fbeta.blocks.distributed import answer

    names, own = getattr(X, "feature_names", None), getattr(estimator, "feature_names_in_", None)
    if names is not None and own is not None:
        work = partial(_by_name, work, column_order(names, own, "X"))
    return answer(work, X, kind, estimator.label_form)


def _by_name(work: Callable[[Any], Any], order: Any, X: Any) -> Any:
    """Call a method with the columns of a block in the order of fit; they have no names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return work(X if order is None or is_table(X) else X[:, order])


def as_frame(values: Any, library: str, classes: NDArray[Any], X: Any) -> Any:
    """Return probabilities (n, s) as a data frame of pandas, with the index of X, or of Polars."""
    name = library.replace("polars", "Polars")
    module = optional_import(library, library, f"data frames of {name}")
    if library == "polars":
        return module.DataFrame(to_numpy(values), schema=[str(name) for name in classes])
    index = X.index if hasattr(X, "iloc") else None
    return module.DataFrame(to_numpy(values), index=index, columns=classes)


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

    In a linear model of each label, the effect is the change of the logit by one standard deviation
    of the feature in X. For any other model it is the mean absolute change of the probability when
    the feature is shuffled among the rows of X, with the sign of their correlation; of many
    features those are shuffled that correlate most.

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


def split_fitted(estimator: Any) -> tuple[list[Any], Any]:
    """Return the fitted transformers before a classifier, its own encoder last, and it itself."""
    *steps, last = (step for _, step in getattr(estimator, "steps", [("", estimator)]))
    last = getattr(last, "best_estimator_", last)
    encoder = getattr(last, "table_encoder_", None)
    return steps if encoder is None else [*steps, encoder], last


def _features(model: Any, X: Any) -> tuple[Any, list[str], Any]:
    """Return the features that the classifier sees, their names, and the classifier of these."""
    names = as_table(X, "X")[0].astype(str).tolist() if is_table(X) else None
    steps, classifier = split_fitted(model)
    for step in (step for step in steps if step not in (None, "passthrough")):
        X = step.transform(X)
        if hasattr(step, "get_feature_names_out"):
            known = hasattr(step, "feature_names_in_")
            names = step.get_feature_names_out(None if known else names).astype(str).tolist()
    bare = copy(classifier)  # of arrays, with the columns of fit
    bare.__dict__.pop("table_encoder_", None)
    own = bare.__dict__.pop("feature_names_in_", None)
    X = X if sp.issparse(X) else np.asarray(X)
    if names is None or own is None:
        return X, names or [f"x{j}" for j in range(X.shape[1])], bare
    order = column_order(names, own, "X")
    return X if order is None else X[:, order], list(map(str, own)), bare


def _coefficients(classifier: Any, X: Any) -> NDArray[np.float64] | None:
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
