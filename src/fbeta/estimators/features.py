"""Features as estimators take them: checks of X, rows of weight zero, rows in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, indexable
from sklearn.utils.validation import validate_data

from fbeta._array import array_namespace, check_unmasked, is_tensor
from fbeta.labels.containers import is_table
from fbeta.linear.learner import Weight, take_rows

__all__ = ["all_or_nothing", "column_order", "drop_weightless", "encode_table", "in_blocks",
           "needs_encoding", "pass_features_on", "validate_features"]  # fmt: skip

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


def needs_encoding(X: Any, allow_gaps: bool = False) -> bool:
    """Return whether X is a data frame with columns that are no numbers, or with gaps."""
    if not is_table(X) or in_blocks(X):
        return False
    table = X if hasattr(X, "iloc") else X.to_pandas()
    if any(getattr(dtype, "kind", "O") not in "biuf" for dtype in table.dtypes):
        return True
    return not allow_gaps and bool(table.isna().any().any())


def encode_table(estimator: Any, X: Any, *, reset: bool, allow_gaps: bool = False) -> Any:
    """Return X, or the features of a data frame by the ``table_encoder_`` of the estimator.

    Fitting sets ``table_encoder_`` where the columns are not all numbers, and only then.
    """
    if reset:
        vars(estimator).pop("table_encoder_", None)
        if needs_encoding(X, allow_gaps):
            from fbeta.datasets import TableEncoder

            estimator.table_encoder_ = TableEncoder().fit(
                X if hasattr(X, "iloc") else X.to_pandas()
            )
    encoder = getattr(estimator, "table_encoder_", None)
    if encoder is None:
        return X
    return encoder.transform(X.to_pandas() if hasattr(X, "to_pandas") else X)


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


def in_blocks(X: Any) -> bool:
    """Return whether rows come in blocks, from :mod:`fbeta.blocks` or Dask.

    The names of modules are compared, so that arrays do not load :mod:`fbeta.blocks`.
    """
    modules = {base.__module__ for base in type(X).__mro__}
    ours = any(module.startswith("fbeta.blocks") for module in modules)
    return ours or (type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "__dask_graph__"))
