"""The exact decode as a graph: sets of labels from statistics or from marginals.

The graphs have the size of their loops' bodies, whatever the number of labels; all numbers are in
double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.dense_search import TIE_UNITS
from fbeta.storage.onnx_graph import Graph

TIE = TIE_UNITS * np.finfo(np.float64).eps
# halvings of an interval of scores; the result need not be exact
HALVINGS = 12


@dataclass(frozen=True)
class Goal:
    """What a graph is to find: its inputs beta and the limits, and the number of labels s."""

    beta: str
    low: str
    high: str
    s: int


def decode_joint(
    g: Graph, goal: Goal, empty: str, joint: str, cardinalities: NDArray[np.intp]
) -> tuple[str, str]:
    """Find the best sets under any statistics: the largest sum of scores of every size.

    Parameters
    ----------
    g : Graph
        To add to.
    goal : Goal
        What to find.
    empty, joint : str
        Statistics of shape (n, 1) and (n, K, s).
    cardinalities : ndarray of shape (K,)
        The sizes.

    Returns
    -------
    labels, value : str
        Of shape (n, s) and (n, 1).
    """
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
    return _largest(g, scores, descending, size), value


def decode_independent(g: Graph, goal: Goal, P: str) -> tuple[str, str]:
    """Find the best sets of independent labels with marginals P, of shape (n, s).

    ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)`` upwards for p <= 1/2, and downwards for the absence of
    the others, as in :mod:`fbeta.statistics.conditional_bernoulli`. Returns as
    :func:`decode_joint`.
    """
    descending = g.descending(P, g.integer([goal.s]))
    empty, law = _count_law(g, descending, goal.s)
    k = g.constant(np.arange(1.0, goal.s + 1)[:, None])
    high = g.op("Greater", descending, g.constant(0.5))
    one, zero = g.constant(1.0), g.constant(0.0)
    absent = g.op("Sub", one, descending)
    below = g.op("Div", descending, g.op("Where", high, one, absent))
    above = g.op("Div", absent, g.op("Where", high, descending, one))
    odds = {False: g.op("Where", high, zero, below), True: g.op("Where", high, above, zero)}
    is_high = g.op("Cast", high, to=g.onnx.TensorProto.DOUBLE)
    nothing = g.op("Mul", descending, zero)

    def step(backwards: bool, value: str) -> str:
        def body(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
            (other, value), (weight, size) = states, parts
            rest = b.op("Mul", b.op("Sub", weight, other), odds[backwards])
            q = b.op("Sub", b.op("Mul", is_high, weight), other) if backwards else rest
            hits = b.op("CumSum", b.op("Max", q, zero), b.integer(1))
            gain = b.op("Mul", hits, _weight(b, goal.beta, size, sizes))
            return [rest, b.op("Add", value, gain)], []

        part = g.cut(law, 0, 1, goal.s + 1) if backwards else g.cut(law, 0, 0, goal.s)
        return g.scan(body, [nothing, value], [part, k], backwards=backwards)[0][1]

    sizes = g.constant(np.arange(1.0, goal.s + 1))
    hits = step(True, step(False, nothing))
    return _decide(g, goal, P, descending, empty, hits)


def decode_sized(g: Graph, goal: Goal, scores: str, law: SizeLaw) -> tuple[str, str]:
    """Find the best sets of labels that are independent given their number.

    With the labels sorted, ``a_l`` the law of the number of the first l of them and ``b_l`` that of
    the others, predicting the first l has the expected value ``sum_h h a_l(h) sum_r b_l(r) u_{h +
    r} A(h + r, l)``: sums of positive numbers only.

    Parameters
    ----------
    g : Graph
        To add to.
    goal : Goal
        What to find.
    scores : str
        Of the labels, of shape (n, s), finite.
    law : SizeLaw
        Of their number.

    Returns
    -------
    labels, value : str
        As :func:`decode_joint`.
    """
    largest = int(law.sizes[-1])
    move = _find_move(g, scores, goal.s, max(largest, 1) / 2)
    P = g.op("Sigmoid", g.op("Add", scores, move))
    descending = g.descending(P, g.integer([goal.s]))
    labels, nobody = _labels_first(g, descending), _nobody(g, descending, largest)

    def before(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        return [_add_label(b, states[0], parts[0])], [b.op("Identity", states[0])]

    (all_,), (others,) = g.scan(before, [nobody], [labels], 1, backwards=True)
    probabilities = law.probabilities(g, all_, move)
    # P(|y| = k) over P(k independent labels), 0 where these cannot be so many
    possible = g.op("Greater", all_, g.constant(0.0))
    u = g.op("Div", probabilities, g.op("Where", possible, all_, g.constant(1.0)))
    u = g.op("Where", possible, u, g.constant(0.0))
    k = g.constant(np.arange(largest + 1.0))
    sums = np.add.outer(np.arange(largest + 1), np.arange(largest + 1))
    places = g.integer(np.minimum(sums, largest + 1))

    def value_of(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        p, rest, size = parts
        own = _add_label(b, states[0], p)
        weights = b.op("Mul", u, _weight(b, goal.beta, k, size))
        weights = b.op("Gather", b.op("Pad", weights, b.integer([0, 0, 0, 1])), places, axis=1)
        rest = b.op("MatMul", weights, b.unsqueeze(rest, 2))
        hits = b.op("MatMul", b.unsqueeze(b.op("Mul", own, k), 1), rest)
        return [own], [b.sum(hits, 2)]

    sizes = g.constant(np.arange(1.0, goal.s + 1)[:, None])
    _, (hits,) = g.scan(value_of, [nobody], [labels, others, sizes], 1)
    hits = g.op("Transpose", g.op("Squeeze", hits, g.integer([2])), perm=[1, 0])
    empty = g.cut(probabilities, 1, 0, 1)
    return _decide(g, goal, P, descending, empty, hits)


@dataclass(frozen=True)
class SizeLaw:
    """The law of the number of labels, of n instances.

    Attributes
    ----------
    sizes : ndarray of shape (C,)
        Increasing, 0 perhaps among them.
    values : str
        Of shape (n, C): probabilities up to a factor, or logarithms of potentials.
    potentials : bool
        Which of the two.
    """

    sizes: NDArray[np.intp]
    values: str
    potentials: bool

    def probabilities(self, g: Graph, counts: str, move: str) -> str:
        """Return ``P(|y| = k)`` for k in 0..largest, of shape (n, 1 + largest).

        ``counts`` is that of independent labels whose scores were moved.
        """
        if self.potentials:
            sizes = g.op("Mul", move, g.constant(self.sizes[None, :]))
            own = g.op("Log", g.op("Gather", counts, g.integer(self.sizes), axis=1))
            law = g.op("Softmax", g.op("Add", g.op("Sub", self.values, sizes), own), axis=1)
        else:
            total = g.sum(self.values, 1, keep=True)
            some = g.op("Greater", total, g.constant(0.0))
            # what no model thinks possible is a tie
            share = g.op("Where", some, self.values, g.constant(1.0))
            law = g.op("Div", share, g.sum(share, 1, keep=True))
        places = np.full(int(self.sizes[-1]) + 1, len(self.sizes))
        places[self.sizes] = np.arange(len(self.sizes))
        padded = g.op("Pad", law, g.integer([0, 0, 0, 1]))
        return g.op("Gather", padded, g.integer(places), axis=1)


def _find_move(g: Graph, scores: str, s: int, target: float) -> str:
    """Return what to add to scores so that independent labels would be about so many: (n, 1).

    It changes nothing, because the labels are independent only given their number, but keeps all
    numbers in range.
    """
    share = target / s
    logit = g.constant(np.log(share / (1 - share)) if share < 1 else 0.0)
    axis, half = g.integer([1]), g.constant(0.5)
    low = g.op("Sub", logit, g.op("ReduceMax", scores, axis, keepdims=1))
    high = g.op("Sub", logit, g.op("ReduceMin", scores, axis, keepdims=1))
    for _ in range(HALVINGS):
        middle = g.op("Mul", g.op("Add", low, high), half)
        total = g.sum(g.op("Sigmoid", g.op("Add", scores, middle)), 1, keep=True)
        above = g.op("Greater", total, g.constant(target))
        low = g.op("Where", above, low, middle)
        high = g.op("Where", above, middle, high)
    return g.op("Mul", g.op("Add", low, high), half)


def _count_law(g: Graph, P: str, s: int) -> tuple[str, str]:
    """Return P(no labels), (n, 1), and ``P(k labels)`` of independent ones, (s + 1, n, 1)."""

    def body(b: Graph, states: list[str], parts: list[str]) -> tuple[list[str], list[str]]:
        return [_add_label(b, states[0], parts[0])], []

    (law,), _ = g.scan(body, [_nobody(g, P, s)], [_labels_first(g, P)])
    return g.cut(law, 1, 0, 1), _labels_first(g, law)


def _labels_first(g: Graph, values: str) -> str:
    """Return the columns of a value to go through, of shape (s, n, 1)."""
    return g.unsqueeze(g.op("Transpose", values, perm=[1, 0]), 2)


def _nobody(g: Graph, like: str, largest: int) -> str:
    """Return the law of the number of no labels at all, of shape (n, 1 + largest)."""
    zeros = g.op("Mul", g.cut(like, 1, 0, 1), g.constant(np.zeros((1, largest + 1))))
    return g.op("Add", zeros, g.constant(np.eye(1, largest + 1)))


def _add_label(g: Graph, law: str, p: str) -> str:
    """Return the law of the number of labels with one more label."""
    stay = g.op("Mul", law, g.op("Sub", g.constant(1.0), p))
    return g.op("Add", stay, g.op("Mul", g.shifted(law), p))


def _weight(g: Graph, beta: str, k: str, size: str) -> str:
    """Return ``(1 + beta^2) / (beta^2 k + size)``, by the square of beta or of 1 / beta."""
    one = g.constant(1.0)
    inverse = g.op("Div", one, beta)
    square, turned = (g.op("Mul", value, value) for value in (beta, inverse))
    small = g.op("Div", g.op("Add", one, square), g.op("Add", g.op("Mul", square, k), size))
    large = g.op("Div", g.op("Add", one, turned), g.op("Add", k, g.op("Mul", turned, size)))
    return g.op("Where", g.op("LessOrEqual", beta, one), small, large)


def _decide(
    g: Graph, goal: Goal, scores: str, descending: str, empty: str, hits: str
) -> tuple[str, str]:
    """Choose the size, and the labels with the largest scores."""
    size, value = _choose(g, goal, empty, hits)
    return _largest(g, scores, descending, size), value


def _choose(g: Graph, goal: Goal, empty: str, hits: str) -> tuple[str, str]:
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
    limit = g.op("Sub", top, g.op("Mul", scale, g.constant(TIE)))
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
