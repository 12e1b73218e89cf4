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
from fbeta.datasets import TableEncoder
from fbeta.datasets.table_encoder import NumberColumn
from fbeta.decoding.expected import CutAtHalf
from fbeta.estimators.average import AverageModel
from fbeta.estimators.decoder import LARGEST_LOGIT, FBetaDecoder
from fbeta.estimators.forest import ForestModel
from fbeta.estimators.recalibration import Recalibration
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.linear import LinearProbabilities
from fbeta.losses import ExponentialLoss, LogisticLoss, SquaredLoss
from fbeta.statistics.codes import CardinalityCode, JointCode, MarginalCode, SizedCode
from fbeta.statistics.encoding import encode
from fbeta.storage.onnx_graph import (
    IR_VERSION,
    OPSET,
    Decoded,
    Graph,
    SizeNodes,
    decode_independent,
    decode_joint,
    decode_sized,
    sigmoids,
    sized_statistics,
)

__all__ = ["to_onnx"]

# a label that is always or never there has an infinite score: this one is as good, because no
# score of a fitted model is near, and is small enough to be added to others without much rounding
CERTAIN_SCORE = 1e3


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
        :class:`fbeta.CardinalityClassifier`, :class:`fbeta.FBetaForest`,
        :class:`fbeta.FBetaDecoder` or :class:`fbeta.rivals.BinaryRelevance`, one of these with its
        alpha chosen by cross-validation, an average of these (:class:`fbeta.FBetaEnsemble`,
        :class:`fbeta.FBetaAuto`), or a pipeline of scalers that ends with one; also with a table of
        numbers before it, in which NaN is a gap.
    label_names, feature_names : sequence of str, optional
        For the metadata; by default those of the estimator.
    features : {"float64", "float32"}
        Type of X in the graph. It computes in double precision in any case.

    Returns
    -------
    onnx.ModelProto
        Its inputs are ``X`` of shape (n, d), and ``beta``, ``min_labels`` and ``max_labels``,
        which need not be given: by default they are the beta of the estimator, 0 and s. Its
        outputs are ``labels``, int8 of shape (n, s), ``expected_fbeta`` of shape (n,), by the
        model's own statistics, and ``probabilities`` of the labels, of shape (n, s). The metadata
        has ``label_names`` and ``feature_names`` as JSON.

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
    if features not in ("float64", "float32"):
        raise ValueError(f"features must be 'float64' or 'float32', got {features!r}")
    check_is_fitted(estimator)
    g = Graph()
    X = "X" if features == "float64" else g.op("Cast", "X", to=g.onnx.TensorProto.DOUBLE)
    X, classifier = _transform(g, estimator, X)
    s = classifier.n_labels_
    labels, value, marginals = _decode(g, classifier, X)
    make = g.onnx.helper.make_node
    g.nodes += [
        make("Identity", [labels], ["labels"]),
        make("Squeeze", [value, g.integer([1])], ["expected_fbeta"]),
        make("Identity", [marginals], ["probabilities"]),
    ]
    names = classifier.classes_[-s:] if label_names is None else label_names
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    metadata = {"label_names": names, "feature_names": feature_names}
    return _model(g, estimator, classifier, features, metadata)


def _transform(g: Graph, estimator: Any, X: str) -> tuple[str, Any]:
    """Add what comes before the classifier of a pipeline, and return X and the classifier."""
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else []
    *before, last = [*steps] or [estimator]
    for step in before:
        if step not in (None, "passthrough"):
            X = _scale(g, step, X)
    return X, getattr(last, "best_estimator_", last)


def _scale(g: Graph, scaler: Any, X: str) -> str:
    """Return scaled features; every scaler is ``x a + b``."""
    if isinstance(scaler, TableEncoder) and all(isinstance(p, NumberColumn) for p in scaler.parts_):
        return _encode_numbers(g, scaler.parts_, X)
    if isinstance(scaler, StandardScaler):
        ones = np.ones(scaler.n_features_in_)
        scale = ones if scaler.scale_ is None else 1 / scaler.scale_
        shift = -(0 * ones if not scaler.with_mean else scaler.mean_) * scale
    elif isinstance(scaler, MinMaxScaler):
        scale, shift = scaler.scale_, scaler.min_
    elif isinstance(scaler, MaxAbsScaler):
        scale, shift = 1 / scaler.scale_, np.zeros(scaler.n_features_in_)
    else:
        raise TypeError(
            f"a pipeline with {type(scaler).__name__} cannot be exported: expected StandardScaler, "
            "MaxAbsScaler or MinMaxScaler before the classifier, or a table of numbers alone"
        )
    scaled = g.op("Add", g.op("Mul", X, g.constant(scale)), g.constant(shift))
    if getattr(scaler, "clip", False):
        low, high = scaler.feature_range
        return g.op("Clip", scaled, g.constant(low), g.constant(high))
    return scaled


def _encode_numbers(g: Graph, parts: Sequence[Any], X: str) -> str:
    """Return the features of a table of numbers; NaN is a gap, which is the mean."""
    scale = np.array([1 / part.scale for part in parts])
    shift = -np.array([part.mean for part in parts]) * scale
    gaps = g.op("IsNaN", X)
    scaled = g.op("Add", g.op("Mul", X, g.constant(scale)), g.constant(shift))
    scaled = g.op("Where", gaps, g.constant(0.0), scaled)
    both = g.op("Concat", scaled, g.op("Cast", gaps, to=g.onnx.TensorProto.DOUBLE), axis=1)
    places = [[i, len(parts) + i][: 1 + part.gaps] for i, part in enumerate(parts)]
    return g.op("Gather", both, g.integer(np.concatenate(places)), axis=1)


def _check(classifier: Any) -> None:
    """Raise where a classifier has no graph."""
    known = isinstance(classifier, StatisticsClassifier) and (
        isinstance(classifier.model, (AverageModel, ForestModel, Recalibration))
        or type(classifier.code) is CardinalityCode
        or (
            isinstance(classifier.model, LinearProbabilities)
            and type(classifier.code) in (JointCode, MarginalCode, SizedCode)
        )
    )
    if not known:
        raise TypeError(
            f"{type(classifier).__name__} cannot be exported: expected a linear, a cardinality or "
            "a forest model, a decoder, or an average of these"
        )
    if isinstance(classifier.rule, CutAtHalf):
        raise TypeError(
            'BinaryRelevance with decode="half" does not depend on beta or limits, and has no '
            'decode to export: expected decode="independent"'
        )


def _decode(g: Graph, classifier: Any, X: str) -> Decoded:
    """Add the model and the decode."""
    _check(classifier)
    model, s = classifier.model, classifier.n_labels_
    if isinstance(model, LinearProbabilities) and type(classifier.code) is MarginalCode:
        return decode_independent(g, s, _logits(g, model.loss, _scores(g, model, X)))
    if _is_sized(classifier):
        return decode_sized(g, s, *_sized_law(g, classifier, X))
    empty, joint, cardinalities = _statistics(g, classifier, X)
    return decode_joint(g, s, empty, joint, cardinalities)


def _is_sized(classifier: Any) -> bool:
    """Tell whether labels are independent given their number."""
    if isinstance(classifier.model, (AverageModel, ForestModel)):
        return False
    return type(classifier.code) in (MarginalCode, SizedCode, CardinalityCode)


def _sized_law(g: Graph, classifier: Any, X: str) -> tuple[str, SizeNodes]:
    """Return scores of the labels, (n, s), and the law of their number."""
    code, model, s = classifier.code, classifier.model, classifier.n_labels_
    if isinstance(model, Recalibration):
        scores, potentials = _recalibrate(g, classifier, X)
        return scores, SizeNodes(model.sizes, potentials, potentials=True)
    scores = _scores(g, model, X)
    if isinstance(code, CardinalityCode):
        law = SizeNodes(code.sizes, g.cut(scores, 1, s, s + len(code.sizes)), potentials=True)
        return g.cut(scores, 1, 0, s), law
    if isinstance(code, SizedCode):
        z = g.cut(scores, 1, s, s + len(code.sizes))
        # the logarithm of the sigmoid of z, which may underflow itself
        likelier = g.op("Log", g.op("Max", *sigmoids(g, z)))
        log_shares = g.op("Add", g.op("Min", z, g.constant(0.0)), likelier)
        return g.cut(scores, 1, 0, s), SizeNodes(code.sizes, log_shares, potentials=False)
    zeros = g.constant(np.zeros((1, s + 1)))
    law = SizeNodes(np.arange(s + 1), zeros, potentials=True)
    return _logits(g, model.loss, scores), law


def _statistics(g: Graph, classifier: Any, X: str) -> tuple[str, str, Any]:
    """Return P(no labels), (n, 1), the statistics, (n, K, s), and their sizes, (K,)."""
    model, s = classifier.model, classifier.n_labels_
    if isinstance(model, AverageModel):
        return _average(g, model, X, s)
    if _is_sized(classifier):
        scores, law = _sized_law(g, classifier, X)
        empty, joint = sized_statistics(g, s, scores, law)
        sizes = np.arange(1, int(law.sizes[-1]) + 1)
        return (empty, joint, sizes) if len(sizes) else _without_labels(g, empty, s)
    cardinalities = classifier.cardinalities_
    if isinstance(model, ForestModel):
        sets = _forest(g, model, X)
        P = g.op("MatMul", sets, g.constant(encode(classifier.code.sets, cardinalities).toarray()))
    else:
        P = _probabilities(g, model.loss, _scores(g, model, X))
    K, empty = len(cardinalities), g.cut(P, 1, 0, 1)
    if not K:
        return _without_labels(g, empty, s)
    joint = g.op("Reshape", g.cut(P, 1, 1, 1 + K * s), g.integer([0, K, s]))
    return empty, joint, cardinalities


def _without_labels(g: Graph, empty: str, s: int) -> tuple[str, str, Any]:
    """Return statistics, as :func:`_statistics`, where all training rows were empty.

    They have one size of probability 0: products of matrices without columns are undefined in some
    runtimes.
    """
    joint = g.op("Mul", g.unsqueeze(empty, 2), g.constant(np.zeros((1, 1, s))))
    return empty, joint, np.ones(1, dtype=np.intp)


def _average(g: Graph, model: AverageModel, X: str, s: int) -> tuple[str, str, Any]:
    """Return the weighted mean of the statistics of all members, as :func:`_statistics`."""
    seen = [X if mapping is None else _scale(g, mapping, X) for mapping in model.maps]
    parts = []
    for member, place, weight in zip(model.members, model.places, model.weights, strict=True):
        own, classifier = _transform(g, member, seen[place])
        _check(classifier)
        parts.append((*_statistics(g, classifier, own), float(weight)))
    cardinalities = np.unique(np.concatenate([part[2] for part in parts]))
    empty = joint = ""
    for own_empty, own_joint, sizes, weight in parts:
        # a matrix from the sizes of a member to those of all
        places = g.constant((cardinalities[:, None] == sizes[None, :]).astype(np.float64))
        spread = g.op("Mul", g.op("MatMul", places, own_joint), g.constant(weight))
        share = g.op("Mul", own_empty, g.constant(weight))
        joint = g.op("Add", joint, spread) if joint else spread
        empty = g.op("Add", empty, share) if empty else share
    return empty, joint, cardinalities


def _recalibrate(g: Graph, decoder: FBetaDecoder, X: str) -> tuple[str, str]:
    """Return the scores of labels, (n, s), and potentials of sizes, (n, C), of a decoder."""
    model, one = decoder.model, g.constant(1.0)
    if decoder.inputs_ == "probabilities":
        least = decoder.probability_floor
        P = g.op("Clip", X, g.constant(least), g.constant(1 - least))
        z = g.op("Log", g.op("Div", P, g.op("Sub", one, P)))
    else:
        z = g.op("Clip", X, g.constant(-LARGEST_LOGIT), g.constant(LARGEST_LOGIT))
    widths = np.diff(model.knots)
    past = g.op("Sub", g.unsqueeze(z, 2), g.constant(model.knots[:-1]))
    within = g.op("Min", g.op("Max", past, g.constant(0.0)), g.constant(widths))
    rise = g.op("MatMul", within, g.constant(np.diff(model.values) / widths))
    curve = g.op("Add", rise, g.constant(model.values[0]))
    number = g.sum(g.op("Sigmoid", curve), 1, keep=True)
    number = g.op("Mul", g.op("Sub", number, g.constant(model.centre)), g.constant(1 / model.scale))
    potentials = g.op("Mul", number, g.constant(model.potential[1]))
    rest = g.op("Mul", g.op("Sub", z, curve), g.constant(model.rest))
    scores = g.op("Add", g.op("Mul", curve, g.constant(model.slope)), rest)
    scores = g.op("Add", scores, g.constant(model.offset))
    return scores, g.op("Add", potentials, g.constant(model.potential[0]))


def _forest(g: Graph, model: ForestModel, X: str) -> str:
    """Return the weights of label sets, (n, L), in the leaves of all trees."""
    types = g.onnx.TensorProto
    # the trees were grown on single precision
    single = g.op("Cast", g.op("Cast", X, to=types.FLOAT), to=types.DOUBLE)
    feature, left, right = (g.integer(a) for a in (model.feature, model.left, model.right))
    threshold = g.constant(model.threshold)

    def step(b: Graph, states: list[str], _: list[str]) -> tuple[list[str], list[str]]:
        node = b.op("Cast", states[0], to=types.INT64)
        x = b.op("GatherElements", single, b.op("Gather", feature, node), axis=1)
        low = b.op("LessOrEqual", x, b.op("Gather", threshold, node))
        after = b.op("Where", low, b.op("Gather", left, node), b.op("Gather", right, node))
        return [b.op("Cast", after, to=types.DOUBLE)], []

    zeros = g.op("Mul", g.cut(single, 1, 0, 1), g.constant(0.0))
    roots = g.op("Add", zeros, g.constant(model.roots[None, :].astype(np.float64)))
    depth = g.constant(np.zeros((max(1, _depth(model)), 1)))
    (leaves,), _ = g.scan(step, [roots], [depth])
    leaves = g.op("Cast", leaves, to=types.INT64)
    counts = np.diff(model.shares.indptr)
    width = max(1, int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(rows)) - np.repeat(model.shares.indptr[:-1], counts)
    sets, shares = np.zeros((len(counts), width), np.int64), np.zeros((len(counts), width))
    sets[rows, column], shares[rows, column] = model.shares.indices, model.shares.data
    flat = g.integer([0, len(model.roots) * width])
    places, values = (
        g.op("Reshape", g.op("Gather", table, leaves), flat)
        for table in (g.integer(sets), g.constant(shares))
    )
    nothing = g.op("Mul", zeros, g.constant(np.zeros((1, model.shares.shape[1]))))
    return g.op("ScatterElements", nothing, places, values, axis=1, reduction="add")


def _depth(model: ForestModel) -> int:
    """Return the most steps from a root to a leaf; children come after their parents."""
    depth = np.zeros(len(model.feature), dtype=np.intp)
    for node in range(len(depth)):
        for child in (model.left[node], model.right[node]):
            if child != node:
                depth[child] = depth[node] + 1
    return int(depth.max(initial=0))


def _scores(g: Graph, model: Any, X: str) -> str:
    """Return the scores of all targets."""
    coef, intercept = (
        np.asarray(to_numpy(part), dtype=np.float64) for part in (model.coef, model.intercept)
    )
    intercept = np.clip(intercept, -CERTAIN_SCORE, CERTAIN_SCORE)
    scores = g.op("Add", g.op("MatMul", X, g.constant(coef.T)), g.constant(intercept))
    problem = getattr(model, "problem", None)
    if problem is None or np.array_equal(problem, np.arange(len(coef))):
        return scores
    return g.op("Gather", scores, g.integer(problem), axis=1)


def _probabilities(g: Graph, loss: Any, scores: str) -> str:
    """Return what the link of a loss makes of scores."""
    if type(loss) is LogisticLoss:
        return sigmoids(g, scores)[0]
    if type(loss) is ExponentialLoss:
        return sigmoids(g, g.op("Mul", scores, g.constant(2.0)))[0]
    if type(loss) is SquaredLoss:
        half = g.constant(0.5)
        moved = g.op("Add", g.op("Mul", scores, half), half)
        return g.op("Clip", moved, g.constant(0.0), g.constant(1.0))
    raise TypeError(f"a model with the loss {type(loss).__name__} cannot be exported")


def _logits(g: Graph, loss: Any, scores: str) -> str:
    """Return the logits of what the link of a loss makes of scores, finite."""
    if type(loss) is LogisticLoss:
        return scores
    P = _probabilities(g, loss, scores)
    logits = g.op("Sub", g.op("Log", P), g.op("Log", g.op("Sub", g.constant(1.0), P)))
    return g.op("Clip", logits, g.constant(-CERTAIN_SCORE), g.constant(CERTAIN_SCORE))


def _model(
    g: Graph, estimator: Any, classifier: Any, features: str, metadata: dict[str, Any]
) -> Any:
    """Put the graph together, and check it."""
    onnx, types = g.onnx, g.onnx.TensorProto
    info = onnx.helper.make_tensor_value_info
    d, s = estimator.n_features_in_, classifier.n_labels_
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
        info("labels", types.INT8, ["n", s]),
        info("expected_fbeta", types.DOUBLE, ["n"]),
        info("probabilities", types.DOUBLE, ["n", s]),
    ]
    graph = onnx.helper.make_graph(g.nodes, "fbeta", inputs, outputs, [*given, *g.initializers])
    model = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="fbeta",
        producer_version=__version__,
    )
    texts = {
        key: json.dumps([str(name) for name in names], ensure_ascii=False)
        for key, names in metadata.items()
        if names is not None
    }
    onnx.helper.set_model_props(model, {"estimator": type(classifier).__name__, **texts})
    onnx.checker.check_model(model)
    return model
