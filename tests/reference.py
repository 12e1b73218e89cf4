"""Slow oracles, written without the code under test: plain loops and all 2^s sets."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import log

import numpy as np


def label_sets(s):
    """All the 2^s label sets, by size and then in order."""
    return sorted(product((0, 1), repeat=s), key=lambda y: (sum(y), tuple(-v for v in y)))


def all_sets(s):
    """All the 2^s label sets as rows, in the order of binary numbers."""
    return np.array(list(product((0, 1), repeat=s)))


def set_features(s, sizes):
    """What the scores multiply, for each label set of these sizes: labels, and its size."""
    sets = np.array([y for y in label_sets(s) if sum(y) in sizes])
    return np.concatenate([sets, sets.sum(axis=1)[:, None] == sizes], axis=1).astype(float)


def fbeta(y, yhat, beta):
    both = sum(a and b for a, b in zip(y, yhat, strict=True))
    denominator = beta**2 * sum(y) + sum(yhat)
    return 1.0 if denominator == 0 else (1 + beta**2) * both / denominator


def expected_fbeta(p, sets, yhat, beta):
    """Expected F_beta of yhat under the probabilities p of the label sets."""
    return sum(q * fbeta(y, yhat, beta) for q, y in zip(p, sets, strict=True))


def statistics_of(p, sets):
    """q_0 and q[k-1][j] of a distribution, by summing over the label sets."""
    s = len(sets[0])
    empty, joint = 0.0, np.zeros((s, s))
    for q, y in zip(p, sets, strict=True):
        if sum(y) == 0:
            empty += q
        for j in range(s):
            if y[j]:
                joint[sum(y) - 1, j] += q
    return empty, joint


def value_of(empty, joint, cardinalities, yhat, beta):
    """The decoder's objective of one label set: a plain double loop."""
    size = sum(yhat)
    if size == 0:
        return empty
    total = 0.0
    for k, row in zip(cardinalities, joint, strict=True):
        for j, on in enumerate(yhat):
            if on:
                total += (1 + beta**2) * row[j] / (beta**2 * k + size)
    return total


def best_value(empty, joint, cardinalities, beta):
    s = joint.shape[1]
    return max(value_of(empty, joint, cardinalities, y, beta) for y in label_sets(s))


def best_set(empty, joint, cardinalities, beta, slack=1e-12):
    """The smallest and then first label set among those of the highest value."""
    sets = label_sets(joint.shape[1])
    values = [value_of(empty, joint, cardinalities, y, beta) for y in sets]
    top = max(values)
    return next(y for y, v in zip(sets, values, strict=True) if v >= top * (1 - slack))


def measure(name, y, yhat, beta=1.0):
    """A measure of one prediction, from the four counts; a ratio with nothing below counts as 1."""
    s, k, size = len(y), sum(y), sum(yhat)
    hits = sum(a and b for a, b in zip(y, yhat, strict=True))
    left_out = sum(not a and not b for a, b in zip(y, yhat, strict=True))

    def ratio(above, below):
        return above / below if below else 1.0

    if name == "fbeta":
        return fbeta(y, yhat, beta)
    if name == "hamming":
        return (hits + left_out) / s
    precision, recall = ratio(hits, size), ratio(hits, k)
    return {
        "precision": precision,
        "recall": recall,
        "informedness": recall + ratio(left_out, s - k) - 1,
        "markedness": precision + ratio(left_out, s - size) - 1,
    }[name]


def best_prediction(p, sets, value, allowed=None, slack=1e-12):
    """The best value over all allowed sets, and the smallest and then first set that has it."""
    allowed = sets if allowed is None else allowed
    values = [sum(q * value(y, yhat) for q, y in zip(p, sets, strict=True)) for yhat in allowed]
    top = max(values)
    return top, next(y for y, v in zip(allowed, values, strict=True) if v >= top - slack)


def product_law(P, sets):
    """The probabilities of the sets under independent labels."""
    return [np.prod([q if on else 1 - q for q, on in zip(P, y, strict=True)]) for y in sets]


def sized_law(P, sizes, sets, near=Fraction(1, 10**700)):
    """The probabilities of the sets given the law of their size, in exact arithmetic.

    Where p is 0 or 1 it is moved inside by next to nothing, so that every size is possible.
    """
    P = [min(max(Fraction(p), near), 1 - near) for p in P]
    out = []
    for y in sets:
        k = sum(y)
        if k >= len(sizes) or not sizes[k]:
            out.append(Fraction(0))
            continue
        total = sum(_weight(P, chosen) for chosen in combinations(range(len(P)), k))
        share = _weight(P, [j for j, on in enumerate(y) if on]) / total
        out.append(Fraction(sizes[k]) * share)
    return out


def _weight(P, chosen):
    weight = Fraction(1)
    for j, p in enumerate(P):
        weight *= p if j in chosen else 1 - p
    return weight


def conditional_marginals(P, largest):
    """P(y_j = 1 | |y| = k) as [k - 1][j], by exact polynomials in the odds without label j."""
    odds = [Fraction(p) / (1 - Fraction(p)) for p in P]

    def polynomials(factors):
        R = [Fraction(1)] + [Fraction(0)] * largest
        for w in factors:
            for k in range(largest, 0, -1):
                R[k] += w * R[k - 1]
        return R

    R = polynomials(odds)
    others = [polynomials(odds[:j] + odds[j + 1 :]) for j in range(len(odds))]
    return [
        [w * rest[k - 1] / R[k] for w, rest in zip(odds, others, strict=True)]
        for k in range(1, largest + 1)
    ]


def expected_of_prefixes(P, q, r):
    """The expected F_beta, beta^2 = q / r, of predicting the first k labels, for each k.

    The recurrence over the labels left out, in exact integers a: S_k(a) = E[1 / (a + q N)] for the
    number N of labels beyond the first k. It needs no statistics q_jk.
    """
    s = len(P)
    present = np.zeros((s + 1, s + 1))
    present[0, 0] = 1
    for k in range(1, s + 1):
        present[k, :k] = (1 - P[k - 1]) * present[k - 1, :k]
        present[k, 1 : k + 1] += P[k - 1] * present[k - 1, :k]
    value = np.empty(s + 1)
    value[0] = np.prod(1 - P)
    inverse = 1 / np.arange(1, (q + r) * s + 1)
    for k in range(s, 0, -1):
        counts = np.arange(1, k + 1)
        value[k] = (q + r) * (
            present[k, 1 : k + 1] * counts * inverse[q * counts + r * k - 1]
        ).sum()
        inverse = P[k - 1] * inverse[q:] + (1 - P[k - 1]) * inverse[: len(inverse) - q]
    return value


def logistic_objective(X, y, w, b, alpha, weight=None):
    """Sum of logistic losses plus the penalty, row by row."""
    total = alpha / 2 * float(np.dot(w, w))
    for i in range(len(y)):
        u = float(np.dot(X[i], w) + b)
        loss = max(u, 0) - y[i] * u + log(1 + np.exp(-abs(u)))
        total += loss * (1 if weight is None else weight[i])
    return total
