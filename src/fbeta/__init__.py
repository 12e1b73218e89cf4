"""Multi-label classification that is optimal for the F_beta-measure."""

from fbeta.decoding import decode
from fbeta.encoding import LabelStatistics
from fbeta.metrics import fbeta_score, make_fbeta_scorer
from fbeta.models import (
    CardinalityClassifier,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    SizedClassifier,
)
from fbeta.selection import AlphaSearchCV

__version__ = "0.1.0"

__all__ = [
    "AlphaSearchCV",
    "CardinalityClassifier",
    "FBetaClassifier",
    "FBetaClassifierCV",
    "FBetaDecoder",
    "FBetaForest",
    "FBetaReduction",
    "LabelSetClassifier",
    "LabelStatistics",
    "SizedClassifier",
    "decode",
    "fbeta_score",
    "make_fbeta_scorer",
]
