"""Estimators of the label statistics: a code, a model of its targets, and the exact decode."""

from fbeta.models.linear import FBetaClassifier, FBetaClassifierCV
from fbeta.models.reduction import FBetaReduction

__all__ = ["FBetaClassifier", "FBetaClassifierCV", "FBetaReduction"]
