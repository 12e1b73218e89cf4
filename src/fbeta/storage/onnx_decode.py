"""The exact decode as a graph: sets of labels from statistics or from marginals.

The graphs have the size of their loops' bodies, whatever the number of labels; all numbers are in
double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.dense_search import TIE_UNITS
from fbeta.storage.onnx_graph import Graph

RELATIVE_TIE = TIE_UNITS * np.finfo(np.float64).eps
# stands for an infinite logarithm, whose differences are no numbers
IMPOSSIBLE = 1e300
# bits to which the way down from sizes beyond the largest has to forget where it began
FORGOTTEN_BITS = 56


class Decoded(NamedTuple):
    """Results of a graph: label sets, (n, s), expected values, (n, 1), and marginals, (n, s)."""

    labels: str
    value: str
    marginals: str


@dataclass(frozen=True)
class GraphGoal:
    """What a graph is to find: its inputs beta and the limits, and the number of labels s."""

    beta: str
    low: str
    high: str
    s: int


def decode_joint(
    g: Graph, goal: GraphGoal, empty: str, joint: str, cardinalities: NDArray[np.intp]
) -> Decoded:
    """Find the best sets under statistics of shape (n, 1) and (n, K, s) for K sizes."""
    k = g.constant(cardinalities)

    def body(b: Graph, _: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        scores = b.op("MatMul", _weight(b, goal.beta, k, parts[0]), joint)
        count = b.op("Cast", parts[0], to=b.onnx.TensorProto.INT64)
        return [], [b.sum(b.descending(scores, count), 1)]

    sizes = g.constant(np.arange(1.0, goal.s + 1)[:, None])
    _, (hits,) = g.scan(body, [], [sizes], 1)
    size, value = _choose(g, goal, empty, g.op("Transpose", hits, perm=[1, 0]))
    own = g.op("Cast", g.op("Max", size, g.integer(1)), to=g.onnx.TensorProto.DOUBLE)
    weights = g.unsqueeze(_weight(g, goal.beta, k, own), 2)
    scores = g.sum(g.op("Mul", weights, joint), 1)
    descending = g.descending(scores, g.integer([goal.s]))
    marginals = g.op("Min", g.sum(joint, 1), g.constant(1.0))
    return Decoded(_largest(g, scores, descending, size), value, marginals)


@dataclass(frozen=True)
class SizeNodes:
    """The law of the number of labels, of n instances."""

    sizes: NDArray[np.intp]  # (C,), increasing, 0 perhaps among them
    values: (
        str  # (n, C): probabilities up to a factor, or logarithms of potentials, then also (1, C)
    )
    potentials: bool  # which of the two

    def probabilities(self, g: Graph, log_ratios: str) -> str:
        """Return ``P(|y| = k)`` for k in 0..largest, of shape (n, 1 + largest)."""
        if self.potentials:
            first = g.op("CumSum", g.op("Pad", log_ratios, g.integer([0, 1, 0, 0])), g.integer(1))
            own = g.op("Gather", first, g.integer(self.sizes), axis=1)
            law = g.op("Softmax", g.op("Add", self.values, own), axis=1)
        else:
            total = g.sum(self.values, 1, keep=True)
            some = g.op("Greater", total, g.constant(0.0))
            # where no size is thought possible, all are equally likely
            share = g.op("Where", some, self.values, g.constant(1.0))
            law = g.op("Div", share, g.sum(share, 1, keep=True))
        places = np.full(int(self.sizes[-1]) + 1, len(self.sizes))
        places[self.sizes] = np.arange(len(self.sizes))
        padded = g.op("Pad", law, g.integer([0, 0, 0, 1]))
        return g.op("Gather", padded, g.integer(places), axis=1)


def decode_sized(g: Graph, goal: GraphGoal, scores: str, law: SizeNodes) -> Decoded:
    """Find the best sets of labels that are independent given their number; scores are (n, s)."""
    descending, order = g.ops("TopK", 2, scores, g.integer([goal.s]), axis=1)
    probabilities, by_size = _laws(g, goal.s, descending, law)
    sizes = g.constant(np.arange(1.0, goal.s + 1))
    nothing = g.op("Mul", descending, g.constant(0.0))

    def add(b: Graph, totals: list[str], present: str, k: str) -> list[str]:
        hits = b.op("CumSum", present, b.integer(1))
        gain = b.op("Mul", hits, _weight(b, goal.beta, k, sizes))
        return [b.op("Add", totals[0], gain), b.op("Add", totals[1], present)]

    start = [nothing, nothing]
    hits, marginals = _sum_over_sizes(g, descending, by_size, int(law.sizes[-1]), start, add)
    size, value = _choose(g, goal, g.cut(probabilities, 1, 0, 1), hits)
    marginals = g.op("ScatterElements", nothing, order, marginals, axis=1)
    return Decoded(_largest(g, scores, descending, size), value, marginals)


def decode_independent(g: Graph, goal: GraphGoal, scores: str) -> Decoded:
    """Find the best sets of independent labels with log-odds of shape (n, s).

    ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)`` upwards for labels with p <= 1/2, and downwards for the
    absence of the others, as in ``statistics.conditional_bernoulli``: no exponential by size.
    """
    descending = g.descending(scores, g.integer([goal.s]))
    one, zero = g.constant(1.0), g.constant(0.0)
    present, absent = _probabilities(g, descending)
    law = _law_of_number(g, goal.s, present, absent)
    high = g.op("Greater", descending, zero)
    below = g.op("Div", present, g.op("Where", high, one, absent))
    above = g.op("Div", absent, g.op("Where", high, present, one))
    odds = {False: g.op("Where", high, zero, below), True: g.op("Where", high, above, zero)}
    is_high = g.op("Cast", high, to=g.onnx.TensorProto.DOUBLE)
    sizes, nothing = g.constant(np.arange(1.0, goal.s + 1)), g.op("Mul", present, zero)

    def sweep(value: str, backwards: bool) -> str:
        def body(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
            (other, value), (weight, k) = states, parts
            rest = b.op("Mul", b.op("Sub", weight, other), odds[backwards])
            q = b.op("Sub", b.op("Mul", is_high, weight), other) if backwards else rest
            hits = b.op("CumSum", b.op("Max", q, zero), b.integer(1))
            gain = b.op("Mul", hits, _weight(b, goal.beta, k, sizes))
            return [rest, b.op("Add", value, gain)], []

        first = int(backwards)
        parts = [_columns(g, g.cut(law, 1, first, goal.s + first)), g.unsqueeze(sizes, 1)]
        return g.scan(body, [nothing, value], parts, backwards=backwards)[0][1]

    hits = sweep(sweep(nothing, False), True)
    size, value = _choose(g, goal, g.cut(law, 1, 0, 1), hits)
    return Decoded(_largest(g, scores, descending, size), value, _probabilities(g, scores)[0])


def _probabilities(g: Graph, logits: str) -> tuple[str, str]:
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


def sized_statistics(g: Graph, s: int, scores: str, law: SizeNodes) -> tuple[str, str]:
    """Return P(no labels), (n, 1), and the statistics of the sizes 1..largest, (n, largest, s)."""
    probabilities, by_size = _laws(g, s, scores, law)
    largest = int(law.sizes[-1])
    shape = g.constant(np.zeros((1, largest, 1)))
    nothing = g.op("Mul", g.unsqueeze(scores, 1), shape)
    index = g.constant(np.arange(1.0, largest + 1)[None, :, None])

    def add(b: Graph, totals: list[str], present: str, k: str) -> list[str]:
        own = b.op("Cast", b.op("Equal", index, k), to=b.onnx.TensorProto.DOUBLE)
        return [b.op("Add", totals[0], b.op("Mul", b.unsqueeze(present, 1), own))]

    (joint,) = _sum_over_sizes(g, scores, by_size, largest, [nothing], add)
    return g.cut(probabilities, 1, 0, 1), joint


def _laws(g: Graph, s: int, scores: str, law: SizeNodes) -> tuple[str, list[str]]:
    """Return ``P(|y| = k)``, (n, 1 + largest), and what to scan over by size: (top, n or 1, 1).

    These are ratios ``r_k = ln R_k - ln R_{k-1}`` of the elementary symmetric polynomials R_k of
    the odds, probabilities, and sizes k. A label with the score z makes of a ratio ``max(r_k,
    min(z, r_{k-1})) + f(r_k) - f(r_{k-1})`` with ``f(r) = ln(1 + exp(-|r - z|))``, because ratios
    fall with k: accurate for finite scores of any size.
    """
    top = _top(int(law.sizes[-1]), s)
    zeros = g.op("Mul", g.cut(scores, 1, 0, 1), g.constant(np.zeros((1, top))))
    start = g.op("Add", zeros, g.constant(-IMPOSSIBLE))
    shift = g.integer([0, 1, 0, -1])

    def add_label(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        (ratio,), (z,) = states, parts
        below = b.op("Pad", ratio, shift, b.constant(IMPOSSIBLE))
        far = b.op("Neg", b.op("Abs", b.op("Sub", ratio, z)))
        more = b.op("Log", b.op("Add", b.constant(1.0), b.op("Exp", far)))
        change = b.op("Sub", more, b.op("Pad", more, shift))
        return [b.op("Add", b.op("Max", ratio, b.op("Min", z, below)), change)], []

    (ratios,), _ = g.scan(add_label, [start], [_columns(g, scores)])
    probabilities = law.probabilities(g, ratios)
    beyond = g.integer([0, 0, 0, top - int(law.sizes[-1])])
    shares = g.op("Pad", g.cut(probabilities, 1, 1, top + 1), beyond)
    sizes = g.constant(np.arange(1.0, top + 1)[:, None])
    return probabilities, [_columns(g, ratios), _columns(g, shares), sizes]


def _columns(g: Graph, values: str) -> str:
    """Return the columns of a value to scan over, of shape (columns, n, 1)."""
    return g.unsqueeze(g.op("Transpose", values, perm=[1, 0]), 2)


def _top(largest: int, s: int) -> int:
    """Return the size from which the way down begins: see ``statistics.conditional_bernoulli``."""
    error, top = 0.0, largest
    while largest > 0 and top < s and error > -FORGOTTEN_BITS * np.log(2.0):
        top += 1
        error += np.log(largest / top * (s - top + 1) / (s - largest + 1))
    return max(top, 1)


def _sum_over_sizes(
    g: Graph,
    scores: str,
    by_size: list[str],
    largest: int,
    start: list[str],
    add: Callable[[Graph, list[str], str, str], list[str]],
) -> list[str]:
    """Add up what follows from ``P(|y| = k, y_j = 1)``, (n, s), over the sizes k = 1, 2, ...

    Given the size, ``P_k(j) = (1 - P_{k-1}(j)) w_j R_{k-1} / R_k``: upwards for the sizes whose
    ratio is above the odds of a label, and downwards for the others, so that no error grows. The
    way down begins at sizes beyond the largest, whose probability is 0.
    """
    one, zero = g.constant(1.0), g.constant(0.0)
    nothing = g.op("Mul", scores, zero)

    def sweep(totals: list[str], parts: list[str], backwards: bool) -> list[str]:
        def body(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
            (state, *totals), (ratio, share, k) = states, parts
            gap = b.op("Sub", scores, ratio)
            own = b.op("Greater" if backwards else "LessOrEqual", gap, zero)
            rest = b.op("Where", own, b.op("Sub", one, state), zero)
            change = b.op("Mul", rest, b.op("Exp", b.op("Neg", b.op("Abs", gap))))
            found = b.op("Mul", rest if backwards else change, share)
            return [change, *add(b, totals, found, k)], []

        return g.scan(body, [nothing, *totals], parts, backwards=backwards)[0][1:]

    known = [g.cut(part, 0, 0, max(largest, 1)) for part in by_size]
    return sweep(sweep(start, known, False), by_size, True)


def _weight(g: Graph, beta: str, k: str, size: str) -> str:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, by the square of beta or of 1 / beta."""
    one = g.constant(1.0)
    inverse = g.op("Div", one, beta)
    square, turned = (g.op("Mul", value, value) for value in (beta, inverse))
    small = g.op("Div", g.op("Add", one, square), g.op("Add", g.op("Mul", square, k), size))
    large = g.op("Div", g.op("Add", one, turned), g.op("Add", k, g.op("Mul", turned, size)))
    return g.op("Where", g.op("LessOrEqual", beta, one), small, large)


def _choose(g: Graph, goal: GraphGoal, empty: str, hits: str) -> tuple[str, str]:
    """Return the best size, the smallest of those that tie, and its value: (n, 1) each."""
    values = g.op("Concat", empty, hits, axis=1)
    s, zero = g.integer(goal.s), g.integer(0)
    low = g.op("Min", g.op("Max", goal.low, zero), s)
    high = g.op("Max", g.op("Min", goal.high, s), low)
    place = g.integer(np.arange(goal.s + 1))
    allowed = g.op("And", g.op("GreaterOrEqual", place, low), g.op("LessOrEqual", place, high))
    bottom = g.constant(-np.inf)
    axis = g.integer([1])
    top = g.op("ReduceMax", g.op("Where", allowed, values, bottom), axis, keepdims=1)
    scale = g.op("Max", g.op("Abs", values), g.op("Abs", top))
    limit = g.op("Sub", top, g.op("Mul", scale, g.constant(RELATIVE_TIE)))
    near = g.op("And", allowed, g.op("GreaterOrEqual", values, limit))
    size = g.op("ReduceMin", g.op("Where", near, place, s), axis, keepdims=1)
    return size, g.op("GatherElements", values, size, axis=1)


def _largest(g: Graph, scores: str, descending: str, size: str) -> str:
    """Return the sets of so many labels with the largest scores, the first among equals."""
    before = g.op("Max", g.op("Sub", size, g.integer(1)), g.integer(0))
    last = g.op("GatherElements", descending, before, axis=1)
    some = g.op("Greater", size, g.integer(0))
    above = g.op("And", g.op("Greater", scores, last), some)
    equal = g.op("And", g.op("Equal", scores, last), some)
    as_integers = {"to": g.onnx.TensorProto.INT64}
    taken = g.sum(g.op("Cast", above, **as_integers), 1, keep=True)
    order = g.op("CumSum", g.op("Cast", equal, **as_integers), g.integer(1))
    fits = g.op("LessOrEqual", order, g.op("Sub", size, taken))
    chosen = g.op("Or", above, g.op("And", equal, fits))
    return g.op("Cast", chosen, to=g.onnx.TensorProto.INT8)
