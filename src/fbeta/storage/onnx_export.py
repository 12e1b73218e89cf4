"""Fitted models as ONNX graphs, with their exact decode, for any runtime of that standard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from fbeta import __version__
from fbeta._array import to_numpy
from fbeta._validation import check_choice
from fbeta.datasets import TableEncoder
from fbeta.datasets.column_encoders import NumberColumn
from fbeta.decoding.rules import CutAtHalf
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.linear import LinearProbabilities
from fbeta.losses import ExponentialLoss, LogisticLoss, SquaredLoss
from fbeta.statistics.codes import CardinalityCode, JointCode, MarginalCode, SizedCode
from fbeta.storage.onnx_decode import Goal, SizeLaw, decode_independent, decode_joint, decode_sized
from fbeta.storage.onnx_graph import IR_VERSION, OPSET, Graph

__all__ = ["to_onnx"]

# a label that is always or never there has an infinite score: a large one does as well, because
# no score of a fitted model is near
CERTAIN = 80.0


def to_onnx(
    estimator: BaseEstimator,
    *,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    features: str = "float64",
) -> Any:
    """Write a fitted model, with its exact decode, as an ONNX graph.

    Parameters
    ----------
    estimator : estimator
        A fitted :class:`fbeta.FBetaClassifier`, :class:`fbeta.SizedClassifier`,
        :class:`fbeta.CardinalityClassifier` or :class:`fbeta.rivals.BinaryRelevance`, one of
        these with its alpha chosen by cross-validation, or a pipeline of scalers that ends with
        one; also with a table of numbers without gaps before it.
    label_names, feature_names : sequence of str, optional
        For the metadata; by default those of the estimator.
    features : {"float64", "float32"}
        Type of X in the graph. It computes in double precision in any case.

    Returns
    -------
    onnx.ModelProto
        Its inputs are ``X`` of shape (n, d), and ``beta``, ``min_labels`` and ``max_labels``,
        which need not be given: by default they are the beta of the estimator, 0 and s. Its
        outputs are ``labels``, int8 of shape (n, s), and ``expected_fbeta`` of shape (n,). The
        metadata has ``label_names`` and ``feature_names`` as JSON.

    Raises
    ------
    TypeError
        For estimators that have no such graph.
    ImportError
        If onnx is not installed.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> clf = FBetaClassifier().fit([[0.0], [1.0]], [["sea"], ["sea", "sky"]])
    >>> model = to_onnx(clf)
    >>> [value.name for value in model.graph.input]
    ['X', 'beta', 'min_labels', 'max_labels']
    """
    check_choice("features", features, ("float64", "float32"))
    check_is_fitted(estimator)
    scalers, classifier = _take_apart(estimator)
    g = Graph()
    X = "X" if features == "float64" else g.op("Cast", "X", to=g.onnx.TensorProto.DOUBLE)
    for scaler in scalers:
        X = _scale(g, scaler, X)
    s = classifier.n_labels_
    goal = Goal("beta", "min_labels", "max_labels", s)
    labels, value = _decode(g, goal, classifier, X)
    g.nodes.append(g.onnx.helper.make_node("Identity", [labels], ["labels"]))
    axis = g.integer([1])
    g.nodes.append(g.onnx.helper.make_node("Squeeze", [value, axis], ["expected_fbeta"]))
    names = classifier.classes_[-s:] if label_names is None else label_names
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    metadata = {"label_names": names, "feature_names": feature_names}
    return _model(g, classifier, features, metadata)


def _take_apart(estimator: Any) -> tuple[list[Any], Any]:
    """Return the scalers and the classifier of an estimator, or say what cannot be exported."""
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else []
    *before, last = [*steps] or [estimator]
    last = getattr(last, "best_estimator_", last)
    before = [step for step in before if step not in (None, "passthrough")]
    for step in before:
        table = isinstance(step, TableEncoder) and all(map(_is_number, step.parts_))
        if not table and not isinstance(step, (StandardScaler, MaxAbsScaler, MinMaxScaler)):
            raise TypeError(
                f"a pipeline with {type(step).__name__} cannot be exported: expected "
                "StandardScaler, MaxAbsScaler or MinMaxScaler before the classifier, or a table of "
                "numbers without gaps"
            )
    code = getattr(last, "code", None)
    known = isinstance(last, StatisticsClassifier) and (
        type(code) is CardinalityCode or isinstance(last.model, LinearProbabilities)
    )
    if not known or type(code) not in (JointCode, MarginalCode, SizedCode, CardinalityCode):
        raise TypeError(
            f"{type(last).__name__} cannot be exported: expected a linear or a cardinality model"
        )
    return before, last


def _is_number(part: Any) -> bool:
    """Tell whether a column of a table is one feature, and a number."""
    return isinstance(part, NumberColumn) and not part.gaps


def _scale(g: Graph, scaler: Any, X: str) -> str:
    """Return scaled features; every scaler is ``x a + b``."""
    if isinstance(scaler, TableEncoder):
        parts = [part for part in scaler.parts_ if isinstance(part, NumberColumn)]
        scale = np.array([1 / part.scale for part in parts])
        shift = -np.array([part.mean for part in parts]) * scale
    elif isinstance(scaler, StandardScaler):
        ones = np.ones(scaler.n_features_in_)
        scale = ones if scaler.scale_ is None else 1 / scaler.scale_
        shift = -(0 * ones if not scaler.with_mean else scaler.mean_) * scale
    elif isinstance(scaler, MinMaxScaler):
        scale, shift = scaler.scale_, scaler.min_
    else:
        scale, shift = 1 / scaler.scale_, np.zeros(scaler.n_features_in_)
    scaled = g.op("Add", g.op("Mul", X, g.constant(scale)), g.constant(shift))
    if getattr(scaler, "clip", False):
        low, high = scaler.feature_range
        return g.op("Clip", scaled, g.constant(low), g.constant(high))
    return scaled


def _decode(g: Graph, goal: Goal, classifier: Any, X: str) -> tuple[str, str]:
    """Add the model and the decode, and return label sets and their values."""
    code, model, s = classifier.code, classifier.model, goal.s
    scores = _scores(g, model, X, CERTAIN if isinstance(code, SizedCode) else np.inf)
    if isinstance(code, CardinalityCode):
        law = SizeLaw(code.sizes, g.cut(scores, 1, s, s + len(code.sizes)), potentials=True)
        return decode_sized(g, goal, g.cut(scores, 1, 0, s), law)
    if isinstance(code, SizedCode):
        shares = _probabilities(g, model.loss, g.cut(scores, 1, s, s + len(code.sizes)))
        return decode_sized(
            g, goal, g.cut(scores, 1, 0, s), SizeLaw(code.sizes, shares, potentials=False)
        )
    P = _probabilities(g, model.loss, scores)
    if isinstance(code, JointCode):
        return _decode_joint(g, goal, P, code.cardinalities)
    if isinstance(classifier.rule, CutAtHalf):
        raise TypeError(
            'BinaryRelevance with decode="half" does not depend on beta or limits, and has no '
            'decode to export: expected decode="independent"'
        )
    return decode_independent(g, goal, P)


def _decode_joint(g: Graph, goal: Goal, P: str, cardinalities: Any) -> tuple[str, str]:
    """Add the decode of the components of the code."""
    K, empty = len(cardinalities), g.cut(P, 1, 0, 1)
    if not K:
        # all rows were empty: runtimes do not agree on products of matrices without columns
        nothing = g.op("Mul", g.unsqueeze(empty, 2), g.constant(np.zeros((1, 1, goal.s))))
        return decode_joint(g, goal, empty, nothing, np.ones(1, dtype=np.intp))
    joint = g.op("Reshape", g.cut(P, 1, 1, 1 + K * goal.s), g.integer([0, K, goal.s]))
    return decode_joint(g, goal, empty, joint, cardinalities)


def _scores(g: Graph, model: Any, X: str, most: float) -> str:
    """Return the scores of all targets."""
    coef, intercept = (
        np.asarray(to_numpy(part), dtype=np.float64) for part in (model.coef, model.intercept)
    )
    intercept = np.clip(intercept, -most, most)
    scores = g.op("Add", g.op("MatMul", X, g.constant(coef.T)), g.constant(intercept))
    problem = getattr(model, "problem", None)
    if problem is None or np.array_equal(problem, np.arange(len(coef))):
        return scores
    return g.op("Gather", scores, g.integer(problem), axis=1)


def _probabilities(g: Graph, loss: Any, scores: str) -> str:
    """Return what the link of a loss makes of scores."""
    if type(loss) is LogisticLoss:
        return g.op("Sigmoid", scores)
    if type(loss) is ExponentialLoss:
        return g.op("Sigmoid", g.op("Mul", scores, g.constant(2.0)))
    if type(loss) is SquaredLoss:
        half = g.constant(0.5)
        moved = g.op("Add", g.op("Mul", scores, half), half)
        return g.op("Clip", moved, g.constant(0.0), g.constant(1.0))
    raise TypeError(f"a model with the loss {type(loss).__name__} cannot be exported")


def _model(g: Graph, classifier: Any, features: str, metadata: dict[str, Any]) -> Any:
    """Put the graph together, and check it."""
    onnx, types = g.onnx, g.onnx.TensorProto
    info = onnx.helper.make_tensor_value_info
    d, s = classifier.n_features_in_, classifier.n_labels_
    X_type = types.DOUBLE if features == "float64" else types.FLOAT
    defaults = {
        "beta": np.asarray(classifier.beta, dtype=np.float64),
        "min_labels": np.asarray(0, dtype=np.int64),
        "max_labels": np.asarray(s, dtype=np.int64),
    }
    given = [onnx.numpy_helper.from_array(value, name) for name, value in defaults.items()]
    inputs = [info("X", X_type, ["n", d])]
    inputs += [info(value.name, value.data_type, []) for value in given]
    outputs = [
        info("labels", types.INT8, ["n", s]), info("expected_fbeta", types.DOUBLE, ["n"])
    ]  # fmt: skip
    graph = onnx.helper.make_graph(g.nodes, "fbeta", inputs, outputs, [*given, *g.initializers])
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
        producer_name="fbeta", producer_version=__version__,
    )  # fmt: skip
    texts = {
        key: json.dumps([str(name) for name in names], ensure_ascii=False)
        for key, names in metadata.items()
        if names is not None
    }
    onnx.helper.set_model_props(model, {"estimator": type(classifier).__name__, **texts})
    onnx.checker.check_model(model)
    return model
