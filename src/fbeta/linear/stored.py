"""Models under the names and with the fields that model files had before :class:`LinearModel`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fbeta.linear.cardinality import Cardinality
from fbeta.linear.label_sets import LabelSets
from fbeta.linear.models import LinearModel
from fbeta.linear.multinomial import Multinomial

__all__ = ["CardinalityModel", "LabelSetModel", "SoftmaxModel"]


def CardinalityModel(
    coef: Any, intercept: Any, sizes: Any, n_iter: Any, converged: Any
) -> LinearModel:
    """Return the model of labels and sizes."""
    law = Cardinality(len(coef) - len(sizes), sizes)
    return LinearModel(coef, intercept, n_iter, converged, law)


def LabelSetModel(coef: Any, offset: Any, sets: Any, n_iter: Any, converged: Any) -> LinearModel:
    """Return the model of label sets."""
    return LinearModel(coef, offset, n_iter, converged, LabelSets(sets))


def SoftmaxModel(coef: Any, intercept: Any, first: Any, n_iter: Any, converged: Any) -> LinearModel:
    """Return the model of multinomial regressions whose classes begin at ``first``."""
    return LinearModel(coef, intercept, n_iter, converged, Multinomial(np.diff(first)))
