"""Ratios of the elementary symmetric polynomials of the odds of labels.

``R_k`` is the sum over all sets of k labels of the product of their odds: up to a factor, how
likely k independent labels are. ``R_k / R_{k-1}`` lies between ``w_(k) / k`` and ``(s - k + 1)
w_(k)``, with ``w_(k)`` the k-th largest of the odds. So the ratio divided by ``w_(k)`` is in range
whatever the odds are, and only differences of log-odds are needed to compute it. Arrays have the
instances in their last axis; any library of the array API standard will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbeta._array import Array, cumulative_sum

# log-odds further apart than this are compared by their differences: their odds may overflow
MAX_LOG_ODDS_SPREAD = 600.0
# stands for infinite log-odds, beyond all others and equal among themselves
INFINITE_LOG_ODDS = 1e300


def scaled_odds(xp: Any, P: Array) -> Array:
    """Return ``p / (1 - p)`` times a constant that leaves room at both ends.

    Only ratios of odds matter. Certain labels get odds beyond all others, impossible ones below;
    no sum of the odds overflows.
    """
    info = xp.finfo(P.dtype)
    least, most = float(info.smallest_normal) * 2**20, float(info.max) / 2**20
    inside = (P > 0) & (P < 1)
    safe = xp.where(inside, P, xp.full_like(P, 0.5))
    outside = xp.where(P > 0, xp.full_like(P, most), xp.full_like(P, least))
    return xp.where(inside, safe * float(info.max) ** 0.5 / (1 - safe), outside)


def size_ratios(xp: Any, odds: Array, K: int) -> Array:
    """Return ``R_k / R_{k-1}`` for k in 1..K, of shape (K, n), of positive odds of shape (s, n)."""
    ratios = xp.zeros((K, odds.shape[1]), dtype=odds.dtype, device=odds.device)
    # with one more label R_k' = R_k + w R_{k-1}: only sums and ratios of positive numbers
    for j in range(odds.shape[0] if K else 0):
        width = min(j + 1, K)
        raised = ratios[:width, :] + odds[j, :]
        ratios[1:width, :] = ratios[: width - 1, :] * (raised[1:, :] / raised[:-1, :])
        ratios[0, :] = raised[0, :]
    return ratios


def relative_size_ratios(xp: Any, descending: Array, K: int) -> Array:
    """Return ``R_k / (R_{k-1} w_(k))`` for k in 1..K, of shape (K, n), of any finite log-odds.

    With ``e_k(i)`` the polynomial of the first i labels over the product of the k largest odds,
    ``e_k(i) = e_k(i - 1) + w_(i) / w_(k) e_{k-1}(i - 1)``: sums of non-negative numbers.

    Shapes: ``descending`` (s, n).
    """
    apart = descending[:1, :] - descending[-1:, :]
    if xp is np and (apart < MAX_LOG_ODDS_SPREAD).all():
        odds = np.exp(descending - (descending[0, :] + descending[-1, :]) / 2)
        return size_ratios(np, odds, K) / odds[:K, :]
    ratios, before = [], xp.ones_like(descending)
    for k in range(K):
        terms = xp.exp(descending[k:, :] - descending[k, :]) * before
        # a device sums along the last axis in parallel
        sums = sums_of_first(xp, terms) if xp is np else cumulative_sum(xp, terms.T, axis=1).T
        ratios.append(sums[-1, :])
        before = sums[:-1, :] / sums[-1, :]
    return xp.stack(ratios, axis=0) if K else descending[:0, :]


def sums_of_first(xp: Any, values: Array) -> Array:
    """Return the sums of the first 1, 2, ... entries along the first axis; NumPy's in place."""
    if xp is not np:
        return cumulative_sum(xp, values, axis=0)
    # numpy.cumsum along the first axis takes ten times as long
    for j in range(1, values.shape[0]):
        values[j, ...] += values[j - 1, ...]
    return values
