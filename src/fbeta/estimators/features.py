"""Features as estimators take them: checks of X, rows of weight zero, rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, indexable
from sklearn.utils.validation import validate_data

from fbeta._array import array_namespace, check_unmasked, is_tensor
from fbeta.linear.learner import Weight, take_rows

__all__ = ["all_or_nothing", "drop_weightless", "in_blocks", "pass_features_on",
           "validate_features"]  # fmt: skip

Estimator = TypeVar("Estimator", bound=BaseEstimator)


@contextmanager
def all_or_nothing(estimator: Estimator) -> Iterator[Estimator]:
    """Give a copy of an estimator to be fitted, whose state the estimator takes at the end.

    It does so in one assignment: whatever stops the fit, and whenever, the estimator is left with
    the state that it had, and no other thread sees a part of the new one.
    """
    draft = copy(estimator)
    yield draft
    estimator.__dict__ = draft.__dict__


def validate_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as an array or CSR matrix of float64 or float32 that agrees with the one of fit."""
    check_unmasked("X", X)
    xp = array_namespace(X) if is_tensor(X) and get_config()["array_api_dispatch"] else np
    return validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=[xp.float64, xp.float32]
    )


def pass_features_on(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X unchanged: an inner estimator, which may take text or categories, checks it."""
    check_unmasked("X", X)
    if getattr(X, "ndim", 2) == 1 and X.dtype.kind in "biuf":
        check_array(X)  # says how to reshape one row or one column of numbers
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return indexable(X)[0]


def drop_weightless(X: Any, Y: Any, weight: Weight) -> tuple[Any, Any, Weight]:
    """Leave out the rows of weight zero."""
    if weight is None:
        return X, Y, None
    rows = np.flatnonzero(weight)
    return take_rows(X, rows), Y[rows], weight[rows]


def in_blocks(X: Any) -> bool:
    """Return whether rows come in blocks, from :mod:`fbeta.blocks` or Dask.

    The names of modules are compared, so that arrays do not load :mod:`fbeta.blocks`.

    Examples
    --------
    >>> in_blocks(np.zeros((2, 2)))
    False
    """
    modules = {base.__module__ for base in type(X).__mro__}
    ours = any(module.startswith("fbeta.blocks") for module in modules)
    return ours or (type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__"))
