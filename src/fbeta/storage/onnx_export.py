"""Fitted models as ONNX graphs, with their exact decode, for any runtime of that standard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fbeta import __version__
from fbeta._array import check_beta, to_numpy
from fbeta.datasets import TableEncoder
from fbeta.decoding.expected import cut_at_half
from fbeta.estimators.average import AverageModel
from fbeta.estimators.boosting import BoostedModel
from fbeta.estimators.decoder import LARGEST_LOGIT, FBetaDecoder
from fbeta.estimators.features import split_fitted
from fbeta.estimators.forest import ForestModel, NeighboursModel, SizedSetsCode, Trees
from fbeta.estimators.recalibration import Recalibration
from fbeta.linear import LinearModel, LinearProbabilities
from fbeta.losses import ExponentialLoss, LogisticLoss, SquaredLoss
from fbeta.statistics.codes import CardinalityCode, JointCode, LabelSetCode, MarginalCode, SizedCode
from fbeta.statistics.encoding import encode
from fbeta.storage import onnx_decode, onnx_graph
from fbeta.storage.onnx_graph import Graph, Value, transform

# a label that is always or never there has an infinite score: this one is as good, because no
# score of a fitted model is near, and is small enough to be added to others without much rounding
CERTAIN_SCORE = 1e3
# the models of a code that have a graph, besides averages and recalibrated scores
_MODELS: dict[type, tuple[type, ...]] = {
    **dict.fromkeys((JointCode, MarginalCode), (LinearProbabilities,)),
    SizedCode: (LinearProbabilities, BoostedModel),
    **dict.fromkeys(
        (CardinalityCode, LabelSetCode, SizedSetsCode), (LinearModel, ForestModel, NeighboursModel)
    ),
}


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
        :class:`fbeta.CardinalityClassifier`, :class:`fbeta.LabelSetClassifier`,
        :class:`fbeta.FBetaForest`, :class:`fbeta.FBetaDecoder` or
        :class:`fbeta.rivals.BinaryRelevance`, one of these with its alpha chosen by
        cross-validation, an average of these (:class:`fbeta.FBetaEnsemble`,
        :class:`fbeta.FBetaAuto`), or a pipeline of scalers that ends with one. What was fitted to a
        table, as by ``fbeta fit``, may have numbers, categories and dates.
    label_names, feature_names : sequence of str, optional
        For the metadata; by default those of the estimator.
    features : {"float64", "float32"}
        Type of X in the graph. It computes in double precision in any case.

    Returns
    -------
    onnx.ModelProto
        Its inputs are ``X`` of shape (n, d), and ``beta``, ``min_labels`` and ``max_labels``,
        which need not be given: by default they are the beta of the estimator, 0 and s. Of a
        table, ``X`` has the columns of numbers, and of dates as days since 1970, with NaN for
        gaps, and ``categories`` those of categories, as text, with ``""`` for gaps. Its outputs
        are ``labels``, int8 of shape (n, s), ``expected_fbeta`` of shape (n,), by the model's own
        statistics, and ``probabilities`` of the labels, of shape (n, s). The metadata has
        ``label_names``, ``feature_names`` (of ``X``) and ``category_names`` as JSON. A graph cannot
        refuse numbers: ``beta`` has to be positive and finite and X finite, limits are cut to what
        is possible, and probabilities as X to [0, 1].

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
    steps, classifier = split_fitted(estimator)
    _check(classifier)
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    columns: dict[str, Any] = {"X": feature_names}
    known = (p.n_features_in_ for p in [*steps, classifier] if hasattr(p, "n_features_in_"))
    widths = {"X": next(known)}
    # a table is read from the inputs of the graph, so its encoder comes first
    encoder = steps.pop(0) if steps and isinstance(steps[0], TableEncoder) else None
    if encoder is not None:
        own = encoder.feature_names_in_ if feature_names is None else feature_names
        columns = onnx_graph.table_inputs(encoder, own)
        widths = {name: len(part) for name, part in columns.items() if part}
    X = Value(g, "X")
    if features == "float32" and "X" in widths:
        X = X.cast(float)
    X = X if encoder is None else onnx_graph.encode_table(encoder, X)
    labels, value, marginals = _decode(classifier, transform(steps, X))
    make = g.onnx.helper.make_node
    g.nodes += [
        make("Identity", [labels.name], ["labels"]),
        # statistics of separate estimates may promise more
        make("Squeeze", [value.Min(1.0).name, g.constant([1], int).name], ["expected_fbeta"]),
        make("Identity", [marginals.name], ["probabilities"]),
    ]
    s = classifier.n_labels_
    metadata = {
        "label_names": classifier.classes_[-s:] if label_names is None else label_names,
        "feature_names": columns["X"],
        "category_names": columns.get("categories") or None,
    }
    return _model(g, classifier, widths, features, metadata)


def _check(classifier: Any) -> None:
    """Raise where a classifier has no graph."""
    model = getattr(classifier, "model", None)  # FBetaDecoderCV has none
    by_code = _MODELS.get(type(getattr(classifier, "code", None)), ())
    graphs, lists = (AverageModel, Recalibration, *by_code), getattr(model, "list_length", None)
    if not isinstance(model, graphs) or lists is not None:
        raise TypeError(
            f"{type(classifier).__name__} cannot be exported: expected a linear, a cardinality or "
            "a forest model, a decoder that was fitted to dense scores, or an average of these"
        )
    if classifier.rule is cut_at_half:
        raise TypeError(
            'BinaryRelevance with decode="half" does not depend on beta or limits, and has no '
            'decode to export: expected decode="independent"'
        )


def _decode(classifier: Any, X: Value) -> onnx_decode.Decoded:
    """Add the model and the decode."""
    s = classifier.n_labels_
    if not _is_sized(classifier):
        return onnx_decode.decode_joint(*_statistics(classifier, X), s)
    scores, law = _sized_law(classifier, X)
    if type(classifier.code) is MarginalCode:
        return onnx_decode.decode_independent(scores, s)
    return onnx_decode.decode_sized(scores, law, s)


def _is_sized(classifier: Any) -> bool:
    """Tell whether labels are independent given their number."""
    sized = (MarginalCode, SizedCode, CardinalityCode, SizedSetsCode)
    return not isinstance(classifier.model, AverageModel) and type(classifier.code) in sized


def _sized_law(classifier: Any, X: Value) -> tuple[Value, onnx_decode.SizeNodes]:
    """Return scores of the labels, (n, s), and the law of their number."""
    code, model, s = classifier.code, classifier.model, classifier.n_labels_
    if isinstance(model, Recalibration):
        scores, potentials = _recalibrate(classifier, X)
        return scores, (model.sizes, potentials, True)
    if isinstance(code, SizedSetsCode):
        P, counts = _set_probabilities(classifier, X), np.diff(code.sets.indptr)
        sizes = np.arange(counts.max(initial=0) + 1)
        law = (P @ (counts[:, None] == sizes)).Log()
        return _log_odds((P @ code.sets.toarray()).Clip(0.0, 1.0)), (sizes, law, False)
    scores = _scores(model, X)
    if isinstance(code, MarginalCode) or getattr(code, "independent", False):
        if type(getattr(model, "loss", None)) not in (LogisticLoss, type(None)):
            scores = _log_odds(_probabilities(model.loss, scores))
        return scores[:, :s], (np.arange(s + 1), X.graph.constant(np.zeros((1, s + 1))), True)
    labels, z = scores[:, :s], scores[:, s : s + len(code.sizes)]
    if isinstance(code, CardinalityCode):
        return labels, (code.sizes, z, True)
    # the logarithm of the sigmoid of z, which may underflow itself
    p, rest = onnx_decode.sigmoids(z)
    return labels, (code.sizes, z.Min(0.0) + p.Max(rest).Log(), False)


def _statistics(classifier: Any, X: Value) -> tuple[Value, Value, Any]:
    """Return P(no labels), (n, 1), the statistics, (n, K, s), and their sizes, (K,)."""
    model, s = classifier.model, classifier.n_labels_
    if isinstance(model, AverageModel):
        return _average(model, X)
    if _is_sized(classifier):
        scores, law = _sized_law(classifier, X)
        sizes = np.arange(1, int(law[0][-1]) + 1)
        empty, joint = onnx_decode.sized_statistics(scores, law, s)
    else:
        sizes = classifier.cardinalities_
        if isinstance(classifier.code, LabelSetCode):
            P = _set_probabilities(classifier, X) @ encode(classifier.code.sets, sizes).toarray()
        else:
            P = _probabilities(model.loss, _scores(model, X))
        K, empty = len(sizes), P[:, :1]
        joint = P[:, 1 : 1 + K * s].Reshape([0, K, s])
    if len(sizes):
        return empty, joint, sizes
    # All training rows were empty. One size of probability 0: products of matrices without columns
    # are undefined in some runtimes.
    return empty, empty[:, :, None] * np.zeros((1, 1, s)), np.ones(1, dtype=np.intp)


def _average(model: AverageModel, X: Value) -> tuple[Value, Value, Any]:
    """Return the weighted mean of the statistics of all members, as :func:`_statistics`."""
    seen = [transform(mapping, X) for mapping in model.maps]
    parts = []
    for member, place in zip(model.members, model.places, strict=True):
        steps, classifier = split_fitted(member)
        _check(classifier)
        parts.append(_statistics(classifier, transform(steps, seen[place])))
    cardinalities = np.unique(np.concatenate([sizes for *_, sizes in parts]))
    totals: list[Any] = []
    for (empty, joint, sizes), weight in zip(parts, model.weights, strict=True):
        # the sizes of a member among those of all; the last place has zeros
        slots = np.full(len(cardinalities), len(sizes))
        slots[np.searchsorted(cardinalities, sizes)] = np.arange(len(sizes))
        shares = [empty * weight, joint.pad(0, 0, 0, 0, 1, 0).Gather(slots) * weight]
        totals = [a + b for a, b in zip(totals, shares, strict=True)] if totals else shares
    return totals[0], totals[1], cardinalities


def _recalibrate(decoder: FBetaDecoder, X: Value) -> tuple[Value, Value]:
    """Return the scores of labels, (n, s), and potentials of sizes, (n, C), of a decoder."""
    model = decoder.model
    if decoder.inputs_ == "probabilities":
        P = X.Clip(decoder.probability_floor, 1 - decoder.probability_floor)
        z = (P / (1.0 - P)).Log()
    else:
        z = X.Clip(-LARGEST_LOGIT, LARGEST_LOGIT)
    z = z.Clip(float(model.knots[0]) - 1, float(model.knots[-1]) + 1) if model.rest < 0 else z
    widths = np.diff(model.knots)
    within = (z[:, :, None] - model.knots[:-1]).Max(0.0).Min(widths)
    rise = (np.diff(model.values) / widths)[:, None]
    curve = (within @ rise).Squeeze([2]) + model.values[0]
    number = (curve.Sigmoid().ReduceSum([1]) - model.centre) * (1 / model.scale)
    scores = curve * model.slope + (z - curve) * model.rest + model.offset
    return scores, number * model.potential[1] + model.potential[0]


def _set_probabilities(classifier: Any, X: Value) -> Any:
    """Return the probabilities of the label sets of a code, (n, L)."""
    model, sets = classifier.model, classifier.code.sets
    if isinstance(model, LinearModel):
        scores = X @ to_numpy(model.coef).T @ sets.toarray().T + to_numpy(model.intercept)
        return scores.Softmax()
    places, values = (_forest_sets if isinstance(model, ForestModel) else _neighbours)(model, X)
    zeros = values[:, :1] * np.zeros((1, sets.shape[0]))
    return zeros.ScatterElements(places, values, reduction="add")


def _neighbours(model: NeighboursModel, X: Value) -> tuple[Value, Value]:
    """Return the label sets of the nearest training rows and their weights, (n, k)."""
    g, k = X.graph, min(model.n_neighbours, model.X.shape[0])
    squares, rows = onnx_graph.squared_distances(X, model.X).top([k], largest=0)
    distance = squares.Sqrt()
    least = (distance.ReduceMax([1]) * 1e-3).Max(1e-12)
    share = g.constant(model.weight).Gather(rows, axis=0) / distance.Max(least)
    return g.constant(model.which, int).Gather(rows, axis=0), share / share.ReduceSum([1])


def _leaves(model: Trees, X: Value) -> Value:
    """Return the leaf of each tree that a row ends in, (n, T)."""
    # the trees were grown on single precision; what exceeds it is above every split
    most = float(np.finfo(np.float32).max)
    g, single = X.graph, X.Clip(-most, most).cast(np.float32).cast(float)
    feature, left, right = (g.constant(a, int) for a in (model.feature, model.left, model.right))
    threshold = g.constant(model.threshold)

    def step(states: list[Value], _: list[Value]) -> list[Value]:
        node = states[0].cast(int)
        feature_of, bound, yes, no = (
            table.Gather(node, axis=0) for table in (feature, threshold, left, right)
        )
        return [(single.GatherElements(feature_of) <= bound).Where(yes, no).cast(float)]

    roots = single[:, :1] * 0.0 + model.roots[None, :]
    depth, nodes = 0, model.roots
    while len(inner := nodes[model.left[nodes] != nodes]):
        depth, nodes = depth + 1, np.concatenate([model.left[inner], model.right[inner]])
    (leaves,) = g.scan(step, [roots], [g.constant(np.zeros((max(depth, 1), 1)))])
    return leaves.cast(int)


def _boosted_scores(model: BoostedModel, X: Value) -> Any:
    """Return the log-odds of all targets."""
    baseline = np.clip(model.baseline, -CERTAIN_SCORE, CERTAIN_SCORE)[None, :]
    if not len(model.roots):
        return X[:, :1] * 0.0 + baseline
    # a table of trees by targets would be larger than the trees
    leaves, zeros = _leaves(model, X), X[:, :1] * 0.0 + np.zeros_like(baseline)
    places = leaves * X.graph.constant([0], int) + X.graph.constant(model.target, int)
    values: Value = X.graph.constant(model.value).Gather(leaves, axis=0)
    return zeros.ScatterElements(places, values, reduction="add") + baseline


def _forest_sets(model: ForestModel, X: Value) -> tuple[Value, Value]:
    """Return the label sets in the leaves of all trees and their weights."""
    counts = np.diff(model.shares.indptr)
    width = max(1, int(counts.max(initial=0)))
    rows = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(rows)) - np.repeat(model.shares.indptr[:-1], counts)
    sets, shares = np.zeros((len(counts), width), np.int64), np.zeros((len(counts), width))
    sets[rows, column], shares[rows, column] = model.shares.indices, model.shares.data
    g, leaf = X.graph, _leaves(model, X)
    tables, shape = (g.constant(sets, int), g.constant(shares)), [0, len(model.roots) * width]
    places, values = (table.Gather(leaf, axis=0).Reshape(shape) for table in tables)
    return places, values


def _scores(model: Any, X: Value) -> Any:
    """Return the scores of all targets."""
    if isinstance(model, BoostedModel):
        return _boosted_scores(model, X)
    coef, intercept = (np.asarray(to_numpy(a), float) for a in (model.coef, model.intercept))
    scores = X @ coef.T + np.clip(intercept, -CERTAIN_SCORE, CERTAIN_SCORE)
    problem = getattr(model, "problem", None)
    if problem is None or np.array_equal(problem, np.arange(len(coef))):
        return scores
    return scores.Gather(problem)


def _probabilities(loss: Any, scores: Value) -> Value:
    """Return what the link of a loss makes of scores."""
    if type(loss) is LogisticLoss:
        return onnx_decode.sigmoids(scores)[0]
    if type(loss) is ExponentialLoss:
        return onnx_decode.sigmoids(scores * 2.0)[0]
    if type(loss) is SquaredLoss:
        return (scores * 0.5 + 0.5).Clip(0.0, 1.0)
    raise TypeError(f"a model with the loss {type(loss).__name__} cannot be exported")


def _log_odds(P: Value) -> Value:
    """Return the log-odds of probabilities, finite."""
    return (P.Log() - (1.0 - P).Log()).Clip(-CERTAIN_SCORE, CERTAIN_SCORE)


def _model(
    g: Graph, classifier: Any, widths: dict[str, int], features: str, metadata: dict[str, Any]
) -> Any:
    """Put the graph together, and check it."""
    helper, s = g.onnx.helper, classifier.n_labels_
    info = helper.make_tensor_value_info
    kinds = {"X": g.type_code(np.dtype(features).type), "categories": g.onnx.TensorProto.STRING}
    defaults = {"beta": np.float64(check_beta(classifier.beta)), "min_labels": np.int64(0)}
    defaults["max_labels"] = np.int64(s)
    given = [g.onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in defaults.items()]
    inputs = [info(name, kinds[name], ["n", width]) for name, width in widths.items()]
    inputs += [info(value.name, value.data_type, []) for value in given]
    outputs = [
        info("labels", g.type_code(np.int8), ["n", s]),
        info("expected_fbeta", g.type_code(float), ["n"]),
        info("probabilities", g.type_code(float), ["n", s]),
    ]
    model = helper.make_model(
        helper.make_graph(g.nodes, "fbeta", inputs, outputs, [*given, *g.initializers]),
        opset_imports=[helper.make_opsetid(*domain) for domain in onnx_graph.OPSETS],
        ir_version=onnx_graph.IR_VERSION,
        producer_name="fbeta",
        producer_version=__version__,
    )
    texts = {
        key: json.dumps([str(name) for name in names], ensure_ascii=False)
        for key, names in metadata.items()
        if names is not None
    }
    helper.set_model_props(model, {"estimator": type(classifier).__name__, **texts})
    g.onnx.checker.check_model(model)
    return model
