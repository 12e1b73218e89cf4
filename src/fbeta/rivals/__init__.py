"""Other methods for multi-label classification, with the API of the library's own.

Each follows the scikit-learn API; those with parameters ``beta`` and ``alpha`` can be searched by
:class:`fbeta.AlphaSearchCV`.
"""

from fbeta.rivals.chain import ProbabilisticChain
from fbeta.rivals.held_out import CostSensitiveRelevance, ThresholdedRelevance
from fbeta.rivals.limo import Limo, limo_path
from fbeta.rivals.low_rank import LowRankClassifier
from fbeta.rivals.plug_in import BinaryRelevance, ExactFPlugIn, decode_independent
from fbeta.rivals.structured import MacroFSvm, ReverseMultiLabel
from fbeta.rivals.submodular import SubmodularMultiLabel

__all__ = [
    "BinaryRelevance",
    "CostSensitiveRelevance",
    "ExactFPlugIn",
    "Limo",
    "LowRankClassifier",
    "MacroFSvm",
    "ProbabilisticChain",
    "ReverseMultiLabel",
    "SubmodularMultiLabel",
    "ThresholdedRelevance",
    "decode_independent",
    "limo_path",
]
