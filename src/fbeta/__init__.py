"""Multi-label classification that is optimal for the F_beta-measure."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fbeta.decoding import decode
    from fbeta.estimators import *
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
    from fbeta import decoding, estimators, metrics, statistics
    from fbeta.decoding.measures import register_search

    register_search("cuda", _search_on_cuda)
    for room in (decoding, estimators, metrics, statistics):
        globals().update({key: getattr(room, key) for key in __all__ if hasattr(room, key)})
    return globals()[name]


def _search_on_cuda(form: Any, beta: float, goal: Any) -> Any:
    """Load the kernels of :mod:`fbeta.nn`, which register themselves, when they are needed."""
    try:
        from fbeta.nn.decoding import search_label_statistics
    except ImportError:  # statistics of another library than PyTorch
        return None
    return search_label_statistics(form, beta, goal)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
