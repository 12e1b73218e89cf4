"""The exact decode as a graph.

It has the size of the bodies of its loops, whatever the number of labels. ``beta``, ``min_labels``
and ``max_labels`` are inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.measures import TIE_UNITS
from fbeta.statistics.conditional_bernoulli import margin
from fbeta.storage.onnx_graph import Graph, Value

RELATIVE_TIE = TIE_UNITS * np.finfo(np.float64).eps
# stands for an infinite logarithm, whose differences are no numbers
IMPOSSIBLE = 1e300

# label sets, (n, s), expected values, (n, 1), and marginals, (n, s)
Decoded: TypeAlias = tuple[Value, Value, Value]
# makes of the direction, a state, (n, s), and the values of a size k, the last of which is k, a new
# state and P(|y| = k, y_j = 1), (n, s); and values to scan over, upwards and downwards
Steps: TypeAlias = tuple[Callable[..., tuple[Value, Value]], list[list[Value]]]
# the law of the number of labels: sizes, (C,), increasing, 0 perhaps among them; values, (n, C);
# whether these are potentials, which may also be (1, C), or log-probabilities up to a constant
SizeNodes: TypeAlias = tuple[NDArray[np.intp], Value, bool]


def decode_joint(
    g: Graph, s: int, empty: Value, joint: Value, cardinalities: NDArray[np.intp]
) -> Decoded:
    """Find the best sets under statistics of shape (n, 1) and (n, K, s) for K sizes."""
    k = g.constant(cardinalities)

    def body(_: list[Value], parts: list[Value]) -> list[Value]:
        scores = _weight(k, parts[0]) @ joint
        return [scores.top(parts[0].cast(int))[0].sum(1)]

    (hits,) = g.scan(body, [], [g.constant(np.arange(1.0, s + 1)[:, None])], 1)
    size, value = _choose(g, s, empty, g.op("Transpose", hits, perm=[1, 0]))
    weights = _weight(k, size.at_least(1).cast(float)).unsqueeze(2)
    scores = (weights * joint).sum(1)
    low, high = _tie(scores.top(g.integer([s]))[0], size)
    return _largest(scores, low, high, size), value, joint.sum(1).at_most(1.0)


def decode_independent(g: Graph, s: int, scores: Value) -> Decoded:
    """Find the best sets of independent labels with log-odds of shape (n, s).

    ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)`` upwards for labels with p <= 1/2, and downwards for the
    absence of the others, as in ``statistics.conditional_bernoulli``: no exponential by size, in
    less than half the time of :func:`decode_sized`.
    """
    ranked = scores.top(g.integer([s]))
    (present, absent), high = sigmoids(ranked[0]), ranked[0] > 0.0
    is_high, odds = (
        high.cast(float),
        [
            g.where(high, 0.0, present / g.where(high, 1.0, absent)),
            g.where(high, absent / g.where(high, present, 1.0), 0.0),
        ],
    )

    def add_label(states: list[Value], parts: list[Value]) -> list[Value]:
        return [states[0] * parts[1] + states[0].pad(0, 1, 0, -1) * parts[0]]

    def step(backwards: bool, other: Value, parts: list[Value]) -> tuple[Value, Value]:
        rest = (parts[0] - other) * odds[backwards]
        return rest, (is_high * parts[0] - other if backwards else rest).at_least(0.0)

    start = present.cut(1, 0, 1) * np.zeros((1, s + 1)) + np.eye(1, s + 1)
    (law,) = g.scan(add_label, [start], [present.columns(), absent.columns()])
    sizes = g.constant(np.arange(1.0, s + 1)[:, None])
    steps = step, [[law.cut(1, i, s + i).columns(), sizes] for i in (0, 1)]
    return _decode_sorted(g, s, scores, ranked, law.cut(1, 0, 1), steps, [present])


def decode_sized(g: Graph, s: int, scores: Value, law: SizeNodes) -> Decoded:
    """Find the best sets of labels that are independent given their number; scores are (n, s)."""
    ranked = scores.top(g.integer([s]))
    return _decode_sorted(g, s, scores, ranked, *_steps_by_size(g, s, ranked[0], law), [])


def _decode_sorted(
    g: Graph, s: int, scores: Value, ranked: Any, empty: Value, steps: Steps, known: list[Value]
) -> Decoded:
    """Find the best sets where one order of the labels serves all sizes.

    ``ranked`` are the scores in falling order and where they were, ``known`` the marginals of the
    labels in that order, if there are any.
    """
    descending, order = ranked
    sizes, nothing = g.constant(np.arange(1.0, s + 1)), descending * 0.0

    def add(totals: list[Value], present: Value, k: Value) -> list[Value]:
        hits = g.op("CumSum", present, g.integer(1))
        sums = [total + present for total in totals[1:]]
        return [totals[0] + hits * _weight(k, sizes), *sums]

    totals = [nothing] * (1 if known else 2)
    hits, *found = _sum_over_sizes(g, nothing, steps, totals, add)
    (means,) = known or found
    size, value = _choose(g, s, empty, hits)
    low, high = _tie_of_shares(g, s, size, [descending, means, nothing], steps)
    marginals = g.op("ScatterElements", nothing, order, means, axis=1)
    return _largest(scores, low, high, size), value, marginals


def _tie_of_shares(
    g: Graph, s: int, size: Value, ranked: list[Value], steps: Steps
) -> tuple[Value, Value]:
    """Return the ends, (n, 1) each, of the scores whose labels tie with the last of a set.

    ``ranked`` are scores in falling order, marginals in that order, and zeros, (n, s). Labels tie
    where their shares of the value do, as those of dense statistics do. Shares fall with the
    scores, by at least the fall of the marginals over s, relatively: most rows need none.
    """
    descending, means, nothing = ranked

    def by_shares() -> list[Value]:
        own = size.at_least(1).cast(float)

        def add_share(totals: list[Value], present: Value, k: Value) -> list[Value]:
            return [totals[0] + present * _weight(k, own)]

        (shares,) = _sum_over_sizes(g, nothing, steps, [nothing], add_share)
        low, high = _tie(shares, size)
        places = (_count(shares >= low) - 1, _count(shares > high))
        return [descending.at(place) for place in places]

    before = (size - 1).at_least(0)
    last, after = means.at(before), means.at(size.at_most(s - 1))
    close = (last - after <= last * (4 * s * RELATIVE_TIE)) & (size > 0) & (size < s)
    some = g.op("Squeeze", close.cast(int).sum(0) > 0)
    edge = descending.at(before)
    low, high = g.choose(some, by_shares, lambda: [edge, edge], results=2)
    return low, high


def _count(found: Value) -> Value:
    """Return how many entries of each row are true, (n, 1)."""
    return found.cast(int).sum(1, keep=True)


def sigmoids(logits: Value) -> tuple[Value, Value]:
    """Return p and 1 - p, both to the last digits, which Sigmoid is not where it is small."""
    g = logits.graph
    small = g.op("Exp", -g.op("Abs", logits))
    large = 1.0 / (small + 1.0)
    parts, high = (large, small * large), logits > 0.0
    return g.where(high, *parts), g.where(high, *parts[::-1])


def sized_statistics(g: Graph, s: int, scores: Value, law: SizeNodes) -> tuple[Value, Value]:
    """Return P(no labels), (n, 1), and the statistics of the sizes 1..largest, (n, largest, s)."""
    empty, steps = _steps_by_size(g, s, scores, law)
    largest = int(law[0][-1])
    index = g.constant(np.arange(1.0, largest + 1)[None, :, None])

    def add(totals: list[Value], present: Value, k: Value) -> list[Value]:
        return [totals[0] + present.unsqueeze(1) * index.equals(k).cast(float)]

    start = scores.unsqueeze(1) * np.zeros((1, largest, 1))
    (joint,) = _sum_over_sizes(g, scores * 0.0, steps, [start], add)
    return empty, joint


def _steps_by_size(g: Graph, s: int, scores: Value, law: SizeNodes) -> tuple[Value, Steps]:
    """Return ``P(no labels)``, (n, 1), and how ``P(|y| = k, y_j = 1)`` follows from size to size.

    A label with the score z makes of the ratios ``r_k = ln R_k - ln R_{k-1}`` of the elementary
    symmetric polynomials R_k of the odds ``max(r_k, min(z, r_{k-1})) + f(r_k) - f(r_{k-1})`` with
    ``f(r) = ln(1 + exp(-|r - z|))``, because ratios fall with k: accurate for any finite scores.
    Given the size, ``P_k(j) = (1 - P_{k-1}(j)) w_j R_{k-1} / R_k``: upwards for the sizes whose
    ratio is above the odds of a label, and downwards for the others, so that no error grows. The
    way down begins at sizes beyond the largest, whose probability is 0.
    """
    sizes, values, are_potentials = law
    largest = int(sizes[-1])
    top = max(largest + margin(largest, s), 1)

    def add_label(states: list[Value], parts: list[Value]) -> list[Value]:
        (ratio,), (z,) = states, parts
        below = ratio.pad(0, 1, 0, -1, fill=IMPOSSIBLE)
        more = g.op("Log", g.op("Exp", -g.op("Abs", ratio - z)) + 1.0)
        return [ratio.at_least(below.at_most(z)) + (more - more.pad(0, 1, 0, -1))]

    def step(backwards: bool, state: Value, parts: list[Value]) -> tuple[Value, Value]:
        gap = scores - parts[0]
        own = gap > 0.0 if backwards else gap <= 0.0
        rest = g.where(own, 1.0 - state, 0.0)
        change = rest * g.op("Exp", -g.op("Abs", gap))
        return change, (rest if backwards else change) * parts[1]

    start = scores.cut(1, 0, 1) * np.zeros((1, top)) - IMPOSSIBLE
    (ratios,) = g.scan(add_label, [start], [scores.columns()])
    if are_potentials:
        first = g.op("CumSum", ratios.pad(0, 1, 0, 0), g.integer(1))
        values = values + first.take(sizes)
    places = np.full(largest + 1, len(sizes))  # of the sizes 0..largest, the last for unknown ones
    places[sizes] = np.arange(len(sizes))
    probabilities = g.op("Softmax", values, axis=1).pad(0, 0, 0, 1).take(places)
    shares = probabilities.cut(1, 1, top + 1).pad(0, 0, 0, top - largest)
    parts = [ratios.columns(), shares.columns(), g.constant(np.arange(1.0, top + 1)[:, None])]
    known = [part.cut(0, 0, max(largest, 1)) for part in parts]
    return probabilities.cut(1, 0, 1), (step, [known, parts])


def _sum_over_sizes(
    g: Graph,
    nothing: Value,
    steps: Steps,
    totals: list[Value],
    add: Callable[[list[Value], Value, Value], list[Value]],
) -> list[Value]:
    """Add to totals what follows from ``P(|y| = k, y_j = 1)``, (n, s), upwards and then downwards.

    ``nothing`` is the state before the first size, (n, s) zeros.
    """
    step, parts = steps
    for backwards in (False, True):

        def body(states: list[Value], parts: list[Value], down: bool = backwards) -> list[Value]:
            state, found = step(down, states[0], parts)
            return [state, *add(states[1:], found, parts[-1])]

        totals = g.scan(body, [nothing, *totals], parts[backwards], backwards=backwards)[1:]
    return totals


def _weight(k: Value, size: Value) -> Value:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, by the square of beta or of 1 / beta."""
    g, beta = k.graph, k.graph.beta
    inverse = 1.0 / beta
    square, turned = beta * beta, inverse * inverse
    small = (square + 1.0) / (square * k + size)
    large = (turned + 1.0) / (k + turned * size)
    return g.where(beta <= 1.0, small, large)


def _choose(g: Graph, s: int, empty: Value, hits: Value) -> tuple[Value, Value]:
    """Return the best size, the smallest of those that tie, and its value: (n, 1) each."""
    values, place = g.concat(empty, hits), g.integer(np.arange(s + 1))
    low = Value(g, "min_labels", int).at_least(0).at_most(s)
    high = Value(g, "max_labels", int).at_most(s).at_least(low)
    allowed = (place >= low) & (place <= high)
    top = g.where(allowed, values, -np.inf).sum(1, keep=True, kind="ReduceMax")
    scale = g.op("Abs", values).at_least(g.op("Abs", top))
    near = allowed & (values >= top - scale * RELATIVE_TIE)
    size = g.where(near, place, s).sum(1, keep=True, kind="ReduceMin")
    return size, values.at(size)


def _tie(descending: Value, size: Value) -> tuple[Value, Value]:
    """Return the ends, (n, 1) each, between which numbers tie with the last of so many."""
    last = descending.at((size - 1).at_least(0))
    near = descending.graph.op("Abs", last) * RELATIVE_TIE
    return last - near, last + near


def _largest(scores: Value, low: Value, high: Value, size: Value) -> Value:
    """Return the sets of so many labels with the largest scores, the first of those that tie."""
    g, above = scores.graph, scores > high
    equal = (scores >= low) & g.op("Not", above)
    order = g.op("CumSum", equal.cast(int), g.integer(1))
    fits = equal & (order <= size - _count(above))
    chosen = g.op("Or", above, fits) & (size > 0)
    return g.op("Cast", chosen, to=g.onnx.TensorProto.INT8)
