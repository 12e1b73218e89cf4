"""Multi-label classification that is optimal for the F_beta-measure."""

from fbeta.decoding import decode
from fbeta.estimators import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    SizedClassifier,
)
from fbeta.metrics import fbeta_score, make_fbeta_scorer
from fbeta.statistics import LabelStatistics

__version__ = "0.1.0"

__all__ = [
    "AlphaSearchCV",
    "CardinalityClassifier",
    "FBetaAuto",
    "FBetaClassifier",
    "FBetaClassifierCV",
    "FBetaDecoder",
    "FBetaEnsemble",
    "FBetaForest",
    "FBetaReduction",
    "LabelSetClassifier",
    "LabelStatistics",
    "SizedClassifier",
    "decode",
    "fbeta_score",
    "make_fbeta_scorer",
]
