"""Multi-label classification that is optimal for the F_beta-measure."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fbeta._public import *

__version__ = "0.1.0"

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


def __getattr__(name: str) -> Any:
    """Load the public names when the first of them is used: the command line needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fbeta import _public

    globals().update({public: getattr(_public, public) for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
