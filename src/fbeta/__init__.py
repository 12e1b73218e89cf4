"""Multi-label classification that is optimal for the F_beta-measure."""

from fbeta.decoding import decode
from fbeta.encoding import LabelStatistics
from fbeta.ensemble import FBetaEnsemble
from fbeta.metrics import fbeta_score, make_fbeta_scorer
from fbeta.models import (
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaForest,
    FBetaReduction,
    SizedClassifier,
)
from fbeta.selection import AlphaSearchCV

__version__ = "0.1.0"

__all__ = [
    "AlphaSearchCV",
    "FBetaClassifier",
    "FBetaClassifierCV",
    "FBetaEnsemble",
    "FBetaForest",
    "FBetaReduction",
    "LabelStatistics",
    "SizedClassifier",
    "decode",
    "fbeta_score",
    "make_fbeta_scorer",
]
