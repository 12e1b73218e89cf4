"""What inner estimators are given and checked for; columns by name, blocks of rows, data frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from fbeta._array import check_unmasked, optional_import, to_numpy
from fbeta.linear.learner import Weight

__all__ = [
    "answer_blocks",
    "as_frame",
    "check_classifier",
    "check_takes_weight",
    "column_order",
    "fit_router",
    "fit_weights",
    "pass_features_on",
]


def pass_features_on(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X unchanged: an inner estimator, which may take text or categories, checks it."""
    check_unmasked("X", X)
    if getattr(X, "ndim", 2) == 1 and X.dtype.kind in "biuf":
        check_array(X)  # says how to reshape one row or one column of numbers
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return indexable(X)[0]


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
    if not [name for name in methods if hasattr(estimator, name)]:
        name = type(estimator).__name__
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


def column_order(given: Any, expected: Any, what: str) -> NDArray[np.intp] | None:
    """Return where the expected columns are among the given names, None if they are in order.

    Raises ValueError, which names a column, where the names are not the same ones.
    """
    given, expected = ([str(name) for name in names] for names in (given, expected))
    if given == expected:
        return None
    strange = [n for n in given if n not in expected] + [n for n in expected if n not in given]
    if strange or len(given) != len(expected):
        raise ValueError(
            f"the columns of {what} are not those of fit: {strange[0] if strange else given[0]!r} "
            "is in only one of the two"
        )
    return np.array([given.index(name) for name in expected], dtype=np.intp)


def answer_blocks(estimator: Any, method: str, X: Any, kind: str, **options: Any) -> Any:
    """Return the result of a method for blocks of rows: lazily, block by block."""
    from fbeta.blocks.distributed import answer

    check_is_fitted(estimator)
    work = partial(getattr(estimator, method), **options)
    names, own = getattr(X, "feature_names", None), getattr(estimator, "feature_names_in_", None)
    if names is not None and own is not None:
        work = partial(_by_name, work, column_order(names, own, "X"))
    return answer(work, X, kind, estimator.label_form)


def _by_name(work: Callable[[Any], Any], order: Any, X: Any) -> Any:
    """Call a method with the columns of a block in the order of fit; they have no names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return work(X if order is None or hasattr(X, "iloc") else X[:, order])


def as_frame(values: Any, library: str, classes: NDArray[Any], X: Any) -> Any:
    """Return probabilities (n, s) as a data frame of pandas, with the index of X, or of Polars."""
    name = library.replace("polars", "Polars")
    module = optional_import(library, library, f"data frames of {name}")
    if library == "polars":
        return module.DataFrame(to_numpy(values), schema=[str(name) for name in classes])
    index = X.index if hasattr(X, "iloc") else None
    return module.DataFrame(to_numpy(values), index=index, columns=classes)
