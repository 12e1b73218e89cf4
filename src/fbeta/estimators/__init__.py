"""Estimators of the label statistics, the search for alpha, averages, the automatic classifier."""

from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.auto import FBetaAuto
from fbeta.estimators.cardinality import CardinalityClassifier
from fbeta.estimators.decoder import FBetaDecoder, FBetaDecoderCV
from fbeta.estimators.ensemble import FBetaEnsemble
from fbeta.estimators.forest import FBetaForest
from fbeta.estimators.label_sets import LabelSetClassifier
from fbeta.estimators.linear import FBetaClassifier, FBetaClassifierCV
from fbeta.estimators.reduction import FBetaReduction
from fbeta.estimators.sized import SizedClassifier

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
