"""The exact decode as a graph, which has the size of the bodies of its loops for any labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.measures import TIE_UNITS
from fbeta.statistics.conditional_bernoulli import margin
from fbeta.storage.onnx_graph import Value

RELATIVE_TIE = TIE_UNITS * np.finfo(np.float64).eps

# label sets, (n, s), expected values, (n, 1), and marginals, (n, s)
Decoded: TypeAlias = tuple[Value, Value, Value]
# makes of the direction, a state, (n, s), and the values of a size k, the last of which is k, a new
# state and P(|y| = k, y_j = 1), (n, s); and values to scan over, upwards and downwards
Steps: TypeAlias = tuple[Callable[..., tuple[Value, Value]], list[list[Value]]]
# the law of the number of labels: sizes, (C,), increasing, 0 perhaps among them; values, (n, C);
# whether these are potentials, which may also be (1, C), or log-probabilities up to a constant
SizeNodes: TypeAlias = tuple[NDArray[np.intp], Value, bool]


def decode_joint(empty: Value, joint: Value, cardinalities: NDArray[np.intp], s: int) -> Decoded:
    """Find the best sets under statistics of shape (n, 1) and (n, K, s) for K sizes."""
    g = joint.graph
    k, by_label = g.constant(cardinalities), joint.Transpose(perm=[0, 2, 1])

    def body(_: list[Value], parts: list[Value]) -> list[Value]:
        # in onnxruntime products of 0 rows have a matrix at the right
        scores = (by_label @ _weight(k, parts[0])[:, None]).Squeeze([2])
        return [scores.top(parts[0].cast(int))[0].ReduceSum([1], keepdims=0)]

    (hits,) = g.scan(body, [], [g.constant(np.arange(1.0, s + 1)[:, None])], 1)
    size, value = _choose(empty, hits.Transpose(perm=[1, 0]), s)
    weights = _weight(k, size.Max(1).cast(float))[:, :, None]
    scores = (weights * joint).ReduceSum([1], keepdims=0)
    low, high = _tie(scores.top([s])[0], size)
    marginals = joint.ReduceSum([1], keepdims=0).Min(1.0)
    return _largest(scores, low, high, size), value, marginals


def decode_independent(scores: Value, s: int) -> Decoded:
    """Find the best sets of independent labels with log-odds of shape (n, s).

    ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)`` upwards for labels with p <= 1/2, and downwards for the
    absence of the others, as in ``statistics.conditional_bernoulli``: no exponential by size, in
    less than half the time of :func:`decode_sized`.
    """
    g, ranked = scores.graph, scores.top([s])
    (present, absent), high = sigmoids(ranked[0]), ranked[0] > 0.0
    is_high = high.cast(float)
    odds = [
        high.Where(0.0, present / high.Where(1.0, absent)),
        high.Where(absent / high.Where(present, 1.0), 0.0),
    ]

    def add_label(states: list[Value], parts: list[Value]) -> list[Value]:
        return [states[0] * parts[1] + states[0].pad(0, 1, 0, -1) * parts[0]]

    def step(backwards: bool, other: Value, parts: list[Value]) -> tuple[Value, Value]:
        rest = (parts[0] - other) * odds[backwards]
        return rest, (is_high * parts[0] - other if backwards else rest).Max(0.0)

    start = present[:, :1] * np.zeros((1, s + 1)) + np.eye(1, s + 1)
    (law,) = g.scan(add_label, [start], [present.columns(), absent.columns()])
    sizes = g.constant(np.arange(1.0, s + 1)[:, None])
    steps = step, [[law[:, i : s + i].columns(), sizes] for i in (0, 1)]
    return _decode_sorted(scores, ranked, law[:, :1], steps, s, [present])


def decode_sized(scores: Value, law: SizeNodes, s: int) -> Decoded:
    """Find the best sets of labels that are independent given their number; scores are (n, s)."""
    ranked = scores.top([s])
    return _decode_sorted(scores, ranked, *_steps_by_size(ranked[0], law, s), s, [])


def _decode_sorted(
    scores: Value, ranked: Any, empty: Value, steps: Steps, s: int, known: list[Value]
) -> Decoded:
    """Find the best sets where one order of the labels serves all sizes.

    ``ranked`` are the scores in falling order and where they were, ``known`` the marginals of the
    labels in that order, if there are any.
    """
    descending, order = ranked
    sizes, nothing = scores.graph.constant(np.arange(1.0, s + 1)), descending * 0.0

    def add(totals: list[Value], present: Value, k: Value) -> list[Value]:
        hits = present.CumSum(1) * _weight(k, sizes)
        return [totals[0] + hits, *(total + present for total in totals[1:])]

    hits, *found = _sum_over_sizes(nothing, steps, [nothing] * (1 if known else 2), add)
    (means,) = known or found
    size, value = _choose(empty, hits, s)
    low, high = _tie_of_shares(size, descending, means, steps, s)
    return _largest(scores, low, high, size), value, nothing.ScatterElements(order, means)


def _tie_of_shares(
    size: Value, descending: Value, means: Value, steps: Steps, s: int
) -> tuple[Value, Value]:
    """Return the ends, (n, 1) each, of the scores whose labels tie with the last of a set.

    Scores are in falling order, marginals in that order, (n, s). Labels tie where their shares of
    the value do, as those of dense statistics do. Shares fall with the scores, by at least the fall
    of the marginals over s, relatively: most rows need none.
    """

    def by_shares() -> list[Value]:
        own, nothing = size.Max(1).cast(float), descending * 0.0

        def add_share(totals: list[Value], present: Value, k: Value) -> list[Value]:
            return [totals[0] + present * _weight(k, own)]

        (shares,) = _sum_over_sizes(nothing, steps, [nothing], add_share)
        low, high = _tie(shares, size)
        places = (_count(shares >= low) - 1, _count(shares > high))
        return [descending.GatherElements(place) for place in places]

    before = (size - 1).Max(0)
    last, after = means.GatherElements(before), means.GatherElements(size.Min(s - 1))
    close = (last - after <= last * (4 * s * RELATIVE_TIE)) & (size > 0) & (size < s)
    some = (close.cast(int).ReduceSum([0], keepdims=0) > 0).Squeeze()
    edge = descending.GatherElements(before)
    low, high = size.graph.choose(some, by_shares, lambda: [edge, edge], results=2)
    return low, high


def _count(found: Value) -> Value:
    """Return how many entries of each row are true, (n, 1)."""
    return found.cast(int).ReduceSum([1])


def sigmoids(logits: Value) -> tuple[Value, Value]:
    """Return p and 1 - p, both to the last digits, which Sigmoid is not where it is small."""
    small = logits.Abs().Neg().Exp()
    large = 1.0 / (small + 1.0)
    parts, high = (large, small * large), logits > 0.0
    return high.Where(*parts), high.Where(*parts[::-1])


def sized_statistics(scores: Value, law: SizeNodes, s: int) -> tuple[Value, Value]:
    """Return P(no labels), (n, 1), and the statistics of the sizes 1..largest, (n, largest, s)."""
    empty, steps = _steps_by_size(scores, law, s)
    largest = int(law[0][-1])
    index = scores.graph.constant(np.arange(1.0, largest + 1)[None, :, None])

    def add(totals: list[Value], present: Value, k: Value) -> list[Value]:
        return [totals[0] + present[:, None] * index.Equal(k).cast(float)]

    start = scores[:, None] * np.zeros((1, largest, 1))
    (joint,) = _sum_over_sizes(scores * 0.0, steps, [start], add)
    return empty, joint


def _steps_by_size(scores: Value, law: SizeNodes, s: int) -> tuple[Value, Steps]:
    """Return ``P(no labels)``, (n, 1), and how ``P(|y| = k, y_j = 1)`` follows from size to size.

    A label with the score z makes of the ratios ``r_k = ln R_k - ln R_{k-1}`` of the elementary
    symmetric polynomials R_k of the odds ``max(r_k, min(z, r_{k-1})) + f(r_k) - f(r_{k-1})`` with
    ``f(r) = ln(1 + exp(-|r - z|))``, because ratios fall with k: accurate for any finite scores.
    Given the size, ``P_k(j) = (1 - P_{k-1}(j)) w_j R_{k-1} / R_k``: upwards for the sizes whose
    ratio is above the odds of a label, and downwards for the others, so that no error grows. The
    way down begins at sizes beyond the largest, whose probability is 0.
    """
    g, (sizes, values, are_potentials) = scores.graph, law
    largest = int(sizes[-1])
    top = max(largest + margin(largest, s), 1)

    def add_label(states: list[Value], parts: list[Value]) -> list[Value]:
        (ratio,), (z,) = states, parts
        below = ratio.pad(0, 1, 0, -1, fill=np.inf)
        more = ((ratio - z).Abs().Neg().Exp() + 1.0).Log()
        return [ratio.Max(below.Min(z)) + (more - more.pad(0, 1, 0, -1))]

    def step(backwards: bool, state: Value, parts: list[Value]) -> tuple[Value, Value]:
        gap = scores - parts[0]
        own = gap > 0.0 if backwards else gap <= 0.0
        rest = own.Where(1.0 - state, 0.0)
        change = rest * gap.Abs().Neg().Exp()
        return change, (rest if backwards else change) * parts[1]

    start = scores[:, :1] * np.zeros((1, top)) - np.inf
    (ratios,) = g.scan(add_label, [start], [scores.columns()])
    if are_potentials:
        values = values + ratios.pad(0, 1, 0, 0).CumSum(1).Gather(sizes)
    places = np.full(largest + 1, len(sizes))  # of the sizes 0..largest, the last for unknown ones
    places[sizes] = np.arange(len(sizes))
    probabilities = values.Softmax().pad(0, 0, 0, 1).Gather(places)
    shares = probabilities[:, 1 : top + 1].pad(0, 0, 0, top - largest)
    parts = [ratios.columns(), shares.columns(), g.constant(np.arange(1.0, top + 1)[:, None])]
    known = [part[: max(largest, 1)] for part in parts]
    return probabilities[:, :1], (step, [known, parts])


def _sum_over_sizes(
    nothing: Value,
    steps: Steps,
    totals: list[Value],
    add: Callable[[list[Value], Value, Value], list[Value]],
) -> list[Value]:
    """Add to totals what follows from ``P(|y| = k, y_j = 1)``, (n, s); ``nothing`` is zeros."""
    step, parts = steps
    for backwards in (False, True):

        def body(states: list[Value], parts: list[Value], down: bool = backwards) -> list[Value]:
            state, found = step(down, states[0], parts)
            return [state, *add(states[1:], found, parts[-1])]

        scanned = nothing.graph.scan(
            body, [nothing, *totals], parts[backwards], backwards=backwards
        )
        totals = scanned[1:]
    return totals


def _weight(k: Value, size: Value) -> Value:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, by the square of beta or of 1 / beta."""
    beta = k.graph.beta
    inverse = 1.0 / beta
    square, turned = beta * beta, inverse * inverse
    small = (square + 1.0) / (square * k + size)
    large = (turned + 1.0) / (k + turned * size)
    return (beta <= 1.0).Where(small, large)


def _choose(empty: Value, hits: Value, s: int) -> tuple[Value, Value]:
    """Return the best size, the smallest of those that tie, and its value: (n, 1) each."""
    g, values = hits.graph, empty.Concat(hits)
    place = g.constant(np.arange(s + 1), int)
    low = Value(g, "min_labels", int).Max(0).Min(s)
    high = Value(g, "max_labels", int).Min(s).Max(low)
    allowed = (place >= low) & (place <= high)
    top = allowed.Where(values, -np.inf).ReduceMax([1])
    scale = values.Abs().Max(top.Abs())
    near = allowed & (values >= top - scale * RELATIVE_TIE)
    size = near.Where(place, s).ReduceMin([1])
    return size, values.GatherElements(size)


def _tie(descending: Value, size: Value) -> tuple[Value, Value]:
    """Return the ends, (n, 1) each, between which numbers tie with the last of so many."""
    last = descending.GatherElements((size - 1).Max(0))
    near = last.Abs() * RELATIVE_TIE
    return last - near, last + near


def _largest(scores: Value, low: Value, high: Value, size: Value) -> Value:
    """Return the sets of so many labels with the largest scores, the first of those that tie."""
    above = scores > high
    equal = (scores >= low) & above.Not()
    fits = equal & (equal.cast(int).CumSum(1) <= size - _count(above))
    return (above.Or(fits) & (size > 0)).cast(np.int8)
