"""Estimators of the label statistics: a code, a model of its targets, and the exact decode."""

from fbeta.models.cardinality import CardinalityClassifier
from fbeta.models.decoder import FBetaDecoder
from fbeta.models.forest import FBetaForest
from fbeta.models.labelsets import LabelSetClassifier
from fbeta.models.linear import FBetaClassifier, FBetaClassifierCV
from fbeta.models.reduction import FBetaReduction
from fbeta.models.sized import SizedClassifier

__all__ = [
    "CardinalityClassifier",
    "FBetaClassifier",
    "FBetaClassifierCV",
    "FBetaDecoder",
    "FBetaForest",
    "FBetaReduction",
    "LabelSetClassifier",
    "SizedClassifier",
]
