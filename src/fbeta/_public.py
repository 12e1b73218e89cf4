"""The public names of ``fbeta``, which its ``__init__`` loads when one of them is used."""

from fbeta.decoding import decode
from fbeta.estimators import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoder,
    FBetaDecoderCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    SizedClassifier,
)
from fbeta.metrics import fbeta_score, make_fbeta_scorer
from fbeta.statistics import LabelStatistics

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
    "LabelStatistics",
    "SizedClassifier",
    "decode",
    "fbeta_score",
    "make_fbeta_scorer",
]
