"""Methods and their parts by name: the one list that storage, command line and experiments read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["METHODS", "PARTS", "Method", "load_part", "make_method", "method_title", "part_name"]

# the classes that a model file may consist of, by the module that has them today
_PLACES = {
    "fbeta": (
        "FBetaAuto FBetaClassifier FBetaClassifierCV CardinalityClassifier FBetaDecoder "
        "FBetaDecoderCV FBetaForest FBetaEnsemble FBetaReduction LabelSetClassifier "
        "SizedClassifier AlphaSearchCV"
    ),
    "fbeta.rivals": (
        "BinaryRelevance CostSensitiveRelevance ExactFPlugIn Limo LowRankClassifier MacroFSvm "
        "ProbabilisticChain ReverseMultiLabel SubmodularMultiLabel ThresholdedRelevance"
    ),
    # what estimators hold
    "fbeta.estimators.average": "AverageModel",
    "fbeta.estimators.boosting": "BoostedClassifier BoostedModel",
    "fbeta.estimators.folds": "Calibration",
    "fbeta.estimators.forest": "ForestModel NeighboursClassifier NeighboursModel SizedSetsCode",
    "fbeta.estimators.linear": "ListedLinearModel",
    "fbeta.estimators.recalibration": "ListedRecalibration Recalibration",
    "fbeta.estimators.reduction": "ClassifierModel SizedModel",
    "fbeta.labels.forms": "LabelForm",
    "fbeta.statistics.codes": "JointCode CardinalityCode LabelSetCode MarginalCode SizedCode",
    "fbeta.linear": (
        "LinearModel LinearProbabilities LinearScores Cardinality LabelSets Multinomial"
    ),
    "fbeta.linear.cardinality": "CardinalityModel",
    "fbeta.linear.multinomial": "LabelSetModel SoftmaxModel",
    "fbeta.decoding.expected": "ScoreThresholds",
    "fbeta.rivals.chain": "ChainCode ChainModel",
    "fbeta.rivals.held_out": "CostedModel CostedLogistic HeldOutThresholds",
    "fbeta.rivals.plug_in": "PlugInCode PlugInModel",
    "fbeta.rivals.structured": "BundleModel",
    "fbeta.losses": "ExponentialLoss LogisticLoss SquaredLoss",
    # what may be around them, or around the classifiers of a reduction
    "sklearn.pipeline": "Pipeline",
    # the columns of a table
    "fbeta.datasets": "TableEncoder",
    "fbeta.datasets.table_encoder": "NumberColumn CategoryColumn TextColumn DateColumn",
}
#: What a model file may consist of: the name that it has in files, which never changes, and where
#: the class is today. A class that moves needs a change here, and files written before still load.
PARTS: dict[str, str] = {
    name: f"{module}:{name}" for module, names in _PLACES.items() for name in names.split()
}
# names in earlier files that are not written any more
PARTS |= {
    "AverageCode": "types:SimpleNamespace",
    "HighestScore": PARTS["ScoreThresholds"],
    "PairwiseModel": PARTS["BundleModel"],
    "SignOfScores": PARTS["ScoreThresholds"],
}


@dataclass(frozen=True)
class Method:
    """A title for tables, the name of the class among ``PARTS``, and what differs from defaults."""

    title: str
    estimator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    follows_beta: bool = True  # whether its predictions depend on beta at all


#: Every method that experiments and the command line know by name.
METHODS: dict[str, Method] = {
    "fbeta": Method("FBeta", "FBetaClassifier"),
    "fbeta-all": Method("FBeta, all sizes", "FBetaClassifier", {"cardinalities": "all"}),
    "fbeta-origin": Method(
        "FBeta, all sizes, no intercept",
        "FBetaClassifier",
        {"cardinalities": "all", "fit_intercept": False},
    ),
    "efp": Method("EFP", "ExactFPlugIn"),
    "limo": Method("LIMO", "Limo"),
    "br": Method("BR", "BinaryRelevance", follows_beta=False),
    "chain": Method("Probabilistic chain", "ProbabilisticChain"),
    "threshold": Method("Thresholded BR", "ThresholdedRelevance"),
    "cost": Method("Cost-sensitive BR", "CostSensitiveRelevance"),
    "rml": Method("RML", "ReverseMultiLabel"),
    "sml": Method("SML", "SubmodularMultiLabel"),
    "macrof": Method("Macro-F SVM", "MacroFSvm"),
    "sized": Method("Sized", "SizedClassifier"),
    "cardinality": Method("Cardinality", "CardinalityClassifier"),
    "labelsets": Method("Label sets", "LabelSetClassifier"),
    "forest": Method("Forest", "FBetaForest", {"random_state": 0}),
    "auto": Method("FBetaAuto", "FBetaAuto"),
}


def load_part(name: str) -> Any:
    """Import the class that a name in ``PARTS`` stands for."""
    module, _, attribute = PARTS[name].partition(":")
    return getattr(import_module(module), attribute)


def part_name(class_: type) -> str | None:
    """Return the name of a class among ``PARTS``, or None."""
    for name, place in PARTS.items():
        # only classes of that name are imported for the comparison
        if place.endswith(f":{class_.__name__}") and load_part(name) is class_:
            return name
    return None


def method_title(name: str) -> str:
    """Return what a method is called in tables; another name is its own title."""
    return METHODS[name].title if name in METHODS else name


def make_method(name: str, beta: float = 1.0) -> Any:
    """Make the estimator of a method."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: expected one of {', '.join(METHODS)}")
    method = METHODS[name]
    return load_part(method.estimator)(beta=beta, **method.parameters)
