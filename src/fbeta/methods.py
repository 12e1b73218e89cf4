"""Methods and their parts by name: the one list that storage, command line and experiments read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["METHODS", "PARTS", "Method", "load_part", "make_method", "method_title", "part_name"]

#: What a model file may consist of: the name that it has in files, which never changes, and where
#: the class is today. A class that moves needs a change here, and files written before still load.
PARTS: dict[str, str] = {
    # estimators
    "FBetaAuto": "fbeta:FBetaAuto",
    "FBetaClassifier": "fbeta:FBetaClassifier",
    "FBetaClassifierCV": "fbeta:FBetaClassifierCV",
    "CardinalityClassifier": "fbeta:CardinalityClassifier",
    "FBetaDecoder": "fbeta:FBetaDecoder",
    "FBetaDecoderCV": "fbeta:FBetaDecoderCV",
    "FBetaForest": "fbeta:FBetaForest",
    "FBetaEnsemble": "fbeta:FBetaEnsemble",
    "FBetaReduction": "fbeta:FBetaReduction",
    "NeighboursClassifier": "fbeta.estimators.neighbours:NeighboursClassifier",
    "LabelSetClassifier": "fbeta:LabelSetClassifier",
    "SizedClassifier": "fbeta:SizedClassifier",
    "AlphaSearchCV": "fbeta:AlphaSearchCV",
    "BinaryRelevance": "fbeta.rivals:BinaryRelevance",
    "CostSensitiveRelevance": "fbeta.rivals:CostSensitiveRelevance",
    "ExactFPlugIn": "fbeta.rivals:ExactFPlugIn",
    "Limo": "fbeta.rivals:Limo",
    "MacroFSvm": "fbeta.rivals:MacroFSvm",
    "ProbabilisticChain": "fbeta.rivals:ProbabilisticChain",
    "ReverseMultiLabel": "fbeta.rivals:ReverseMultiLabel",
    "SubmodularMultiLabel": "fbeta.rivals:SubmodularMultiLabel",
    "ThresholdedRelevance": "fbeta.rivals:ThresholdedRelevance",
    # what they hold
    "AverageCode": "fbeta.estimators.average:AverageCode",
    "AverageModel": "fbeta.estimators.average:AverageModel",
    "Calibration": "fbeta.estimators.calibration:Calibration",
    "LabelForm": "fbeta.labels.forms:LabelForm",
    "JointCode": "fbeta.statistics.codes:JointCode",
    "CardinalityCode": "fbeta.statistics.codes:CardinalityCode",
    "LabelSetCode": "fbeta.statistics.codes:LabelSetCode",
    "MarginalCode": "fbeta.statistics.codes:MarginalCode",
    "PlugInCode": "fbeta.statistics.codes:PlugInCode",
    "SizedCode": "fbeta.statistics.codes:SizedCode",
    "ChainCode": "fbeta.rivals.chain:ChainCode",
    "LinearModel": "fbeta.linear:LinearModel",
    "LinearProbabilities": "fbeta.linear:LinearProbabilities",
    "LinearScores": "fbeta.linear:LinearScores",
    "Cardinality": "fbeta.linear:Cardinality",
    "LabelSets": "fbeta.linear:LabelSets",
    "Multinomial": "fbeta.linear:Multinomial",
    "CardinalityModel": "fbeta.linear.cardinality:CardinalityModel",
    "LabelSetModel": "fbeta.linear.multinomial:LabelSetModel",
    "Recalibration": "fbeta.estimators.recalibration:Recalibration",
    "SoftmaxModel": "fbeta.linear.multinomial:SoftmaxModel",
    "SizedSetsCode": "fbeta.estimators.forest:SizedSetsCode",
    "ForestModel": "fbeta.estimators.forest:ForestModel",
    "NeighboursModel": "fbeta.estimators.neighbours:NeighboursModel",
    "SizedModel": "fbeta.estimators.sized:SizedModel",
    "ClassifierModel": "fbeta.estimators.reduction:ClassifierModel",
    "BundleModel": "fbeta.rivals.structured:BundleModel",
    "ChainModel": "fbeta.rivals.chain:ChainModel",
    "CostedModel": "fbeta.rivals.held_out:CostedModel",
    "PlugInModel": "fbeta.rivals.plug_in:PlugInModel",
    "PairwiseModel": "fbeta.rivals.submodular:PairwiseModel",
    "ScoreThresholds": "fbeta.rivals.limo:ScoreThresholds",
    "HighestScore": "fbeta.rivals.submodular:HighestScore",
    "HeldOutThresholds": "fbeta.rivals.held_out:HeldOutThresholds",
    "SignOfScores": "fbeta.decoding.exact:SignOfScores",
    # what may be around them, or around the classifiers of a reduction
    "Pipeline": "sklearn.pipeline:Pipeline",
    # the columns of a table
    "TableEncoder": "fbeta.datasets:TableEncoder",
    "NumberColumn": "fbeta.datasets.table_encoder:NumberColumn",
    "CategoryColumn": "fbeta.datasets.table_encoder:CategoryColumn",
    "TextColumn": "fbeta.datasets.table_encoder:TextColumn",
    "DateColumn": "fbeta.datasets.table_encoder:DateColumn",
    # losses
    "CostedLogistic": "fbeta.rivals.held_out:CostedLogistic",
    "ExponentialLoss": "fbeta.losses:ExponentialLoss",
    "LogisticLoss": "fbeta.losses:LogisticLoss",
    "SquaredLoss": "fbeta.losses:SquaredLoss",
}


@dataclass(frozen=True)
class Method:
    """A title for tables, the name of the class among ``PARTS``, and what differs from defaults.

    ``follows_beta`` says whether its predictions depend on beta at all.
    """

    title: str
    estimator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    follows_beta: bool = True


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
