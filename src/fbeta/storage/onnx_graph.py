"""Graphs under construction, and the exact decode as a graph, in double precision.

Values are names, operations add nodes. The decode has the size of the bodies of its loops, whatever
the number of labels. ``beta``, ``min_labels`` and ``max_labels`` are inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import optional_import
from fbeta.decoding.measures import TIE_UNITS
from fbeta.statistics.conditional_bernoulli import margin

# versions of the operators and of the format, which onnxruntime 1.17 and later read
OPSET, IR_VERSION = 18, 10
RELATIVE_TIE = TIE_UNITS * np.finfo(np.float64).eps
# stands for an infinite logarithm, whose differences are no numbers
IMPOSSIBLE = 1e300

# label sets, (n, s), expected values, (n, 1), and marginals, (n, s)
Decoded: TypeAlias = tuple[str, str, str]
# makes of a graph, the direction, a state, (n, s), and the values of a size k, the last of which is
# k, a new state and P(|y| = k, y_j = 1), (n, s); and values to scan over, upwards and downwards
Steps: TypeAlias = tuple[Callable[..., tuple[str, str]], list[list[str]]]


class Graph:
    """Nodes and constants of a graph, or of the body of a scan within an outer one."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.onnx = optional_import("onnx", "onnx", "the export to ONNX")
        self.nodes: list[Any] = []
        self.root: Graph = self if outer is None else outer.root
        self.constants: dict[tuple[Any, ...], str] = {}
        self.initializers: list[Any] = []
        self.count = 0

    def name(self, hint: str) -> str:
        """Return a name that no other value has."""
        self.root.count += 1
        return f"{hint}_{self.root.count}"

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Return a constant; equal ones are kept once."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.root.constants:
            name = self.root.constants[key] = self.name("constant")
            self.root.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return self.root.constants[key]

    def integer(self, value: Any) -> str:
        """Return a constant of integers."""
        return self.constant(value, np.int64)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation, and return its first result."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operation with several results."""
        outputs = [self.name(kind) for _ in range(results)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs

    def sum(self, value: str, axis: int, *, keep: bool = False) -> str:
        """Return the sum along an axis."""
        return self.op("ReduceSum", value, self.integer([axis]), keepdims=int(keep))

    def cut(self, value: str, axis: int, start: int, stop: int) -> str:
        """Return a part of an axis."""
        places = (self.integer([i]) for i in (start, stop, axis))
        return self.op("Slice", value, *places)

    def unsqueeze(self, value: str, axis: int) -> str:
        """Return the value with one more axis."""
        return self.op("Unsqueeze", value, self.integer([axis]))

    def descending(self, value: str, count: str) -> str:
        """Return the largest numbers of each row, the largest first."""
        return self.ops("TopK", 2, value, count, axis=1)[0]

    def scan(
        self,
        body: Callable[[Graph, list[str], list[str]], tuple[list[str], list[str]]],
        states: Sequence[str],
        over: Sequence[str],
        results: int = 0,
        *,
        backwards: bool = False,
    ) -> tuple[list[str], list[str]]:
        """Scan over the first axis of values in double precision; return last states and results.

        The body makes new states and results of a graph, the states and the parts of ``over``.
        """
        inner = Graph(self)
        before = [inner.name("state") for _ in states]
        parts = [inner.name("part") for _ in over]
        after, found = body(inner, before, parts)
        subgraph = inner._finished([*before, *parts], [*after, *found])
        attributes: dict[str, Any] = {"body": subgraph, "num_scan_inputs": len(over)}
        if backwards:
            attributes["scan_input_directions"] = [1] * len(over)
            if results:  # an attribute cannot be an empty list
                attributes["scan_output_directions"] = [1] * results
        out = self.ops("Scan", len(states) + results, *states, *over, **attributes)
        return out[: len(states)], out[len(states) :]

    def choose(
        self, condition: str, *branches: Callable[[Graph], list[str]], results: int
    ) -> list[str]:
        """Return what one of two graphs makes, in double precision: the first if the condition."""
        inner = [Graph(self), Graph(self)]
        made = [b._finished([], make(b)) for b, make in zip(inner, branches, strict=True)]
        return self.ops("If", results, condition, then_branch=made[0], else_branch=made[1])

    def _finished(self, inputs: list[str], outputs: list[str]) -> Any:
        """Return the graph within another; the names of its results are its own."""
        helper, double = self.onnx.helper, self.onnx.TensorProto.DOUBLE
        outputs = [self.op("Identity", name) for name in outputs]
        given, made = (
            [helper.make_tensor_value_info(name, double, None) for name in names]
            for names in (inputs, outputs)
        )
        return helper.make_graph(self.nodes, self.name("body"), given, made)


def decode_joint(
    g: Graph, s: int, empty: str, joint: str, cardinalities: NDArray[np.intp]
) -> Decoded:
    """Find the best sets under statistics of shape (n, 1) and (n, K, s) for K sizes."""
    k = g.constant(cardinalities)

    def body(b: Graph, _: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        scores = b.op("MatMul", _weight(b, k, parts[0]), joint)
        count = b.op("Cast", parts[0], to=b.onnx.TensorProto.INT64)
        return [], [b.sum(b.descending(scores, count), 1)]

    sizes = g.constant(np.arange(1.0, s + 1)[:, None])
    _, (hits,) = g.scan(body, [], [sizes], 1)
    size, value = _choose(g, s, empty, g.op("Transpose", hits, perm=[1, 0]))
    own = g.op("Cast", g.op("Max", size, g.integer(1)), to=g.onnx.TensorProto.DOUBLE)
    weights = g.unsqueeze(_weight(g, k, own), 2)
    scores = g.sum(g.op("Mul", weights, joint), 1)
    low, high = _tie(g, g.descending(scores, g.integer([s])), size)
    marginals = g.op("Min", g.sum(joint, 1), g.constant(1.0))
    return _largest(g, scores, low, high, size), value, marginals


def decode_independent(g: Graph, s: int, scores: str) -> Decoded:
    """Find the best sets of independent labels with log-odds of shape (n, s).

    ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)`` upwards for labels with p <= 1/2, and downwards for the
    absence of the others, as in ``statistics.conditional_bernoulli``: no exponential by size.
    """
    descending, order = g.ops("TopK", 2, scores, g.integer([s]), axis=1)
    one, zero = g.constant(1.0), g.constant(0.0)
    present, absent = sigmoids(g, descending)
    law = _law_of_number(g, s, present, absent)
    high = g.op("Greater", descending, zero)
    below = g.op("Div", present, g.op("Where", high, one, absent))
    above = g.op("Div", absent, g.op("Where", high, present, one))
    odds = {False: g.op("Where", high, zero, below), True: g.op("Where", high, above, zero)}
    is_high = g.op("Cast", high, to=g.onnx.TensorProto.DOUBLE)

    def step(b: Graph, backwards: bool, other: str, parts: list[str]) -> tuple[str, str]:
        rest = b.op("Mul", b.op("Sub", parts[0], other), odds[backwards])
        q = b.op("Sub", b.op("Mul", is_high, parts[0]), other) if backwards else rest
        return rest, b.op("Max", q, zero)

    sizes = g.constant(np.arange(1.0, s + 1)[:, None])
    parts = [[_columns(g, g.cut(law, 1, i, s + i)), sizes] for i in (0, 1)]
    ranked, empty = [descending, order], g.cut(law, 1, 0, 1)
    return _decode_sorted(g, s, scores, ranked, empty, (step, parts), present)


def decode_sized(g: Graph, s: int, scores: str, law: SizeNodes) -> Decoded:
    """Find the best sets of labels that are independent given their number; scores are (n, s)."""
    ranked = g.ops("TopK", 2, scores, g.integer([s]), axis=1)
    empty, steps = _steps_by_size(g, s, ranked[0], law)
    return _decode_sorted(g, s, scores, ranked, empty, steps)


def _decode_sorted(
    g: Graph, s: int, scores: str, ranked: list[str], empty: str, steps: Steps, means: str = ""
) -> Decoded:
    """Find the best sets where one order of the labels serves all sizes.

    ``ranked`` are the scores in falling order and where they were, ``means`` the marginals of the
    labels in that order, if they are known.
    """
    descending, order = ranked
    sizes, nothing = g.constant(np.arange(1.0, s + 1)), g.op("Mul", descending, g.constant(0.0))

    def add(b: Graph, totals: list[str], present: str, k: str) -> list[str]:
        gain = b.op("Mul", b.op("CumSum", present, b.integer(1)), _weight(b, k, sizes))
        return [b.op("Add", totals[0], gain), *(b.op("Add", sum_, present) for sum_ in totals[1:])]

    start = [nothing] if means else [nothing, nothing]
    hits, *more = _sum_over_sizes(g, nothing, steps, start, add)
    means = means or more[0]
    size, value = _choose(g, s, empty, hits)

    def by_shares(b: Graph) -> list[str]:
        own = b.op("Cast", b.op("Max", size, b.integer(1)), to=b.onnx.TensorProto.DOUBLE)

        def add_share(c: Graph, totals: list[str], present: str, k: str) -> list[str]:
            return [c.op("Add", totals[0], c.op("Mul", present, _weight(c, k, own)))]

        (shares,) = _sum_over_sizes(b, nothing, steps, [nothing], add_share)
        low, high = _tie(b, shares, size)
        final = b.op("Sub", _count(b, "GreaterOrEqual", shares, low), b.integer(1))
        places = (final, _count(b, "Greater", shares, high))
        return [b.op("GatherElements", descending, place, axis=1) for place in places]

    # Labels tie where their shares of the value do, as those of dense statistics do. Shares fall
    # with the scores, by at least the fall of the marginals over s, relatively: most rows need none
    before = g.op("Max", g.op("Sub", size, g.integer(1)), g.integer(0))
    places = (before, g.op("Min", size, g.integer(s - 1)))
    last, after = (g.op("GatherElements", means, place, axis=1) for place in places)
    fall = g.op("Mul", last, g.constant(4 * s * RELATIVE_TIE))
    inside = g.op("And", g.op("Greater", size, g.integer(0)), g.op("Less", size, g.integer(s)))
    close = g.op("And", g.op("LessOrEqual", g.op("Sub", last, after), fall), inside)
    some = g.op("Greater", g.sum(g.op("Cast", close, to=g.onnx.TensorProto.INT64), 0), g.integer(0))
    edge = g.op("GatherElements", descending, before, axis=1)
    low, high = g.choose(g.op("Squeeze", some), by_shares, lambda _: [edge, edge], results=2)
    marginals = g.op("ScatterElements", nothing, order, means, axis=1)
    return _largest(g, scores, low, high, size), value, marginals


def _count(g: Graph, kind: str, values: str, limit: str) -> str:
    """Return how many values of each row compare so with the limit, (n, 1)."""
    return g.sum(g.op("Cast", g.op(kind, values, limit), to=g.onnx.TensorProto.INT64), 1, keep=True)


def sigmoids(g: Graph, logits: str) -> tuple[str, str]:
    """Return p and 1 - p, both to the last digits, which Sigmoid is not where it is small."""
    one = g.constant(1.0)
    small = g.op("Exp", g.op("Neg", g.op("Abs", logits)))
    large = g.op("Div", one, g.op("Add", one, small))
    parts, high = (large, g.op("Mul", small, large)), g.op("Greater", logits, g.constant(0.0))
    return g.op("Where", high, *parts), g.op("Where", high, *parts[::-1])


def _law_of_number(g: Graph, s: int, present: str, absent: str) -> str:
    """Return ``P(k labels)`` of independent labels, of shape (n, 1 + s)."""
    zeros = g.op("Mul", g.cut(present, 1, 0, 1), g.constant(np.zeros((1, s + 1))))
    start = g.op("Add", zeros, g.constant(np.eye(1, s + 1)))
    shift = g.integer([0, 1, 0, -1])

    def add_label(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        (law,), (p, q) = states, parts
        more = b.op("Mul", b.op("Pad", law, shift), p)
        return [b.op("Add", b.op("Mul", law, q), more)], []

    return g.scan(add_label, [start], [_columns(g, present), _columns(g, absent)])[0][0]


@dataclass(frozen=True)
class SizeNodes:
    """The law of the number of labels, of n instances."""

    sizes: NDArray[np.intp]  # (C,), increasing, 0 perhaps among them
    values: str  # (n, C), potentials, or log-probabilities up to a constant
    potentials: bool  # which of the two; potentials may also be (1, C)

    def probabilities(self, g: Graph, log_ratios: str) -> str:
        """Return ``P(|y| = k)`` for k in 0..largest, of shape (n, 1 + largest)."""
        values = self.values
        if self.potentials:
            first = g.op("CumSum", g.op("Pad", log_ratios, g.integer([0, 1, 0, 0])), g.integer(1))
            values = g.op("Add", values, g.op("Gather", first, g.integer(self.sizes), axis=1))
        law = g.op("Softmax", values, axis=1)
        places = np.full(int(self.sizes[-1]) + 1, len(self.sizes))
        places[self.sizes] = np.arange(len(self.sizes))
        padded = g.op("Pad", law, g.integer([0, 0, 0, 1]))
        return g.op("Gather", padded, g.integer(places), axis=1)


def sized_statistics(g: Graph, s: int, scores: str, law: SizeNodes) -> tuple[str, str]:
    """Return P(no labels), (n, 1), and the statistics of the sizes 1..largest, (n, largest, s)."""
    empty, steps = _steps_by_size(g, s, scores, law)
    largest, zero = int(law.sizes[-1]), g.constant(0.0)
    start = g.op("Mul", g.unsqueeze(scores, 1), g.constant(np.zeros((1, largest, 1))))
    index = g.constant(np.arange(1.0, largest + 1)[None, :, None])

    def add(b: Graph, totals: list[str], present: str, k: str) -> list[str]:
        own = b.op("Cast", b.op("Equal", index, k), to=b.onnx.TensorProto.DOUBLE)
        return [b.op("Add", totals[0], b.op("Mul", b.unsqueeze(present, 1), own))]

    (joint,) = _sum_over_sizes(g, g.op("Mul", scores, zero), steps, [start], add)
    return empty, joint


def _steps_by_size(g: Graph, s: int, scores: str, law: SizeNodes) -> tuple[str, Steps]:
    """Return ``P(no labels)``, (n, 1), and how ``P(|y| = k, y_j = 1)`` follows from size to size.

    A label with the score z makes of the ratios ``r_k = ln R_k - ln R_{k-1}`` of the elementary
    symmetric polynomials R_k of the odds ``max(r_k, min(z, r_{k-1})) + f(r_k) - f(r_{k-1})`` with
    ``f(r) = ln(1 + exp(-|r - z|))``, because ratios fall with k: accurate for any finite scores.
    Given the size, ``P_k(j) = (1 - P_{k-1}(j)) w_j R_{k-1} / R_k``: upwards for the sizes whose
    ratio is above the odds of a label, and downwards for the others, so that no error grows. The
    way down begins at sizes beyond the largest, whose probability is 0.
    """
    largest = int(law.sizes[-1])
    top = max(largest + margin(largest, s), 1)
    zeros = g.op("Mul", g.cut(scores, 1, 0, 1), g.constant(np.zeros((1, top))))
    start = g.op("Add", zeros, g.constant(-IMPOSSIBLE))
    shift, one, zero = g.integer([0, 1, 0, -1]), g.constant(1.0), g.constant(0.0)

    def add_label(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        (ratio,), (z,) = states, parts
        below = b.op("Pad", ratio, shift, b.constant(IMPOSSIBLE))
        far = b.op("Neg", b.op("Abs", b.op("Sub", ratio, z)))
        more = b.op("Log", b.op("Add", one, b.op("Exp", far)))
        change = b.op("Sub", more, b.op("Pad", more, shift))
        return [b.op("Add", b.op("Max", ratio, b.op("Min", z, below)), change)], []

    def step(b: Graph, backwards: bool, state: str, parts: list[str]) -> tuple[str, str]:
        gap = b.op("Sub", scores, parts[0])
        own = b.op("Greater" if backwards else "LessOrEqual", gap, zero)
        rest = b.op("Where", own, b.op("Sub", one, state), zero)
        change = b.op("Mul", rest, b.op("Exp", b.op("Neg", b.op("Abs", gap))))
        return change, b.op("Mul", rest if backwards else change, parts[1])

    (ratios,), _ = g.scan(add_label, [start], [_columns(g, scores)])
    probabilities = law.probabilities(g, ratios)
    beyond = g.integer([0, 0, 0, top - largest])
    shares = g.op("Pad", g.cut(probabilities, 1, 1, top + 1), beyond)
    parts = [_columns(g, ratios), _columns(g, shares), g.constant(np.arange(1.0, top + 1)[:, None])]
    known = [g.cut(part, 0, 0, max(largest, 1)) for part in parts]
    return g.cut(probabilities, 1, 0, 1), (step, [known, parts])


def _columns(g: Graph, values: str) -> str:
    """Return the columns of a value to scan over, of shape (columns, n, 1)."""
    return g.unsqueeze(g.op("Transpose", values, perm=[1, 0]), 2)


def _sum_over_sizes(
    g: Graph,
    nothing: str,
    steps: Steps,
    totals: list[str],
    add: Callable[[Graph, list[str], str, str], list[str]],
) -> list[str]:
    """Add to totals what follows from ``P(|y| = k, y_j = 1)``, (n, s), upwards and then downwards.

    ``nothing`` is the state before the first size, (n, s) zeros.
    """
    step, parts = steps
    for backwards in (False, True):

        def body(
            b: Graph, states: list[str], parts: list[str], down: bool = backwards
        ) -> tuple[list[str], list[str]]:
            state, found = step(b, down, states[0], parts)
            return [state, *add(b, states[1:], found, parts[-1])], []

        over = parts[backwards]
        totals = g.scan(body, [nothing, *totals], over, backwards=backwards)[0][1:]
    return totals


def _weight(g: Graph, k: str, size: str) -> str:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, by the square of beta or of 1 / beta."""
    one = g.constant(1.0)
    inverse = g.op("Div", one, "beta")
    square, turned = (g.op("Mul", value, value) for value in ("beta", inverse))
    small = g.op("Div", g.op("Add", one, square), g.op("Add", g.op("Mul", square, k), size))
    large = g.op("Div", g.op("Add", one, turned), g.op("Add", k, g.op("Mul", turned, size)))
    return g.op("Where", g.op("LessOrEqual", "beta", one), small, large)


def _choose(g: Graph, s: int, empty: str, hits: str) -> tuple[str, str]:
    """Return the best size, the smallest of those that tie, and its value: (n, 1) each."""
    values = g.op("Concat", empty, hits, axis=1)
    most, zero = g.integer(s), g.integer(0)
    low = g.op("Min", g.op("Max", "min_labels", zero), most)
    high = g.op("Max", g.op("Min", "max_labels", most), low)
    place = g.integer(np.arange(s + 1))
    allowed = g.op("And", g.op("GreaterOrEqual", place, low), g.op("LessOrEqual", place, high))
    axis = g.integer([1])
    top = g.op("ReduceMax", g.op("Where", allowed, values, g.constant(-np.inf)), axis, keepdims=1)
    scale = g.op("Max", g.op("Abs", values), g.op("Abs", top))
    limit = g.op("Sub", top, g.op("Mul", scale, g.constant(RELATIVE_TIE)))
    near = g.op("And", allowed, g.op("GreaterOrEqual", values, limit))
    size = g.op("ReduceMin", g.op("Where", near, place, most), axis, keepdims=1)
    return size, g.op("GatherElements", values, size, axis=1)


def _tie(g: Graph, descending: str, size: str) -> tuple[str, str]:
    """Return the ends, (n, 1) each, between which numbers tie with the last of so many."""
    before = g.op("Max", g.op("Sub", size, g.integer(1)), g.integer(0))
    last = g.op("GatherElements", descending, before, axis=1)
    near = g.op("Mul", g.op("Abs", last), g.constant(RELATIVE_TIE))
    return g.op("Sub", last, near), g.op("Add", last, near)


def _largest(g: Graph, scores: str, low: str, high: str, size: str) -> str:
    """Return the sets of so many labels with the largest scores, the first of those that tie."""
    some = g.op("Greater", size, g.integer(0))
    above = g.op("Greater", scores, high)
    equal = g.op("And", g.op("GreaterOrEqual", scores, low), g.op("Not", above))
    taken = _count(g, "Greater", scores, high)
    order = g.op("CumSum", g.op("Cast", equal, to=g.onnx.TensorProto.INT64), g.integer(1))
    fits = g.op("LessOrEqual", order, g.op("Sub", size, taken))
    chosen = g.op("And", g.op("Or", above, g.op("And", equal, fits)), some)
    return g.op("Cast", chosen, to=g.onnx.TensorProto.INT8)
