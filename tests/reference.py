"""Slow oracles, written without the code under test: plain loops and all 2^s sets."""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np


def label_sets(s):
    """All the 2^s label sets, by size and then in order."""
    return sorted(product((0, 1), repeat=s), key=lambda y: (sum(y), tuple(-v for v in y)))


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


def logistic_objective(X, y, w, b, alpha, weight=None):
    """Sum of logistic losses plus the penalty, row by row."""
    total = alpha / 2 * float(np.dot(w, w))
    for i in range(len(y)):
        u = float(np.dot(X[i], w) + b)
        loss = max(u, 0) - y[i] * u + log(1 + np.exp(-abs(u)))
        total += loss * (1 if weight is None else weight[i])
    return total
