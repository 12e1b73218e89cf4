"""Estimators of the label statistics, the search for alpha, averages, the automatic classifier."""

from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.auto import FBetaAuto, FBetaEnsemble
from fbeta.estimators.decoder import FBetaDecoder, FBetaDecoderCV
from fbeta.estimators.forest import FBetaForest
from fbeta.estimators.linear import CardinalityClassifier, FBetaClassifierCV, LabelSetClassifier
from fbeta.estimators.reduction import FBetaReduction, SizedClassifier
from fbeta.estimators.statistics_base import FBetaClassifier

__all__ = [
    "AlphaSearchCV",
    "CardinalityClassifier",
    "FBetaAuto",
    "FBetaClassifier",
    "FBetaClassifierCV",
    "FBetaDecoder",
    "FBetaDecoderCV",
    "FBetaEnsemble",
    "FBetaForest",
    "FBetaReduction",
    "LabelSetClassifier",
    "SizedClassifier",
]
