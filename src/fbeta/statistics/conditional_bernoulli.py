"""Independent labels, and independent labels given how many there are.

For n instances with marginals p_j the number of labels is Poisson-binomial. With odds ``w_j = p_j
/ (1 - p_j)`` and the elementary symmetric polynomials R_k of the odds, ``P(y_j = 1 | |y| = k) =
w_j R_{k-1}(others) / R_k``: the conditional Bernoulli law, which is sampling k labels without
replacement. In both laws ``q_jk`` grows with ``p_j`` for every k, because exchanging the labels i
and j multiplies the probability of a set that has i and not j by ``w_j / w_i``.

Labels are given by their marginals or by their log-odds. Arrays have the instances in their last
axis, so that the recurrences over labels and sizes work on contiguous memory; any library of the
array API standard will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, TypeAlias

import numpy as np

from fbeta._array import Array, astype, cumulative_sum, host_integers
from fbeta.statistics.symmetric_polynomials import (
    MAX_LOG_ODDS_SPREAD,
    relative_size_ratios,
    scaled_odds,
    size_ratios,
)

# what is left out of a Poisson-binomial distribution at each end, and for each label, is below
# exp(-58) = 6e-26: the best expected F_beta of s labels is at least 1 / (s + 1), so that not even
# rounding shows it
NEGLIGIBLE_LOG_PROBABILITY = 58.0
# labels that share one window of sizes
LABELS_PER_WINDOW = 16


@dataclass(frozen=True)
class IndependentLaw:
    """Labels that are independent, of n instances.

    Attributes
    ----------
    xp : module
        The namespace of the arrays.
    first : int
        The smallest size above 0 that is kept.
    pmf : array of shape (1 + K, n)
        ``P(|y| = k)`` for k in first - 1, ..., first - 1 + K; beyond, it is negligible.
    empty : array of shape (n,)
        ``P(no labels)``.
    log_odds : bool
        Whether labels are given by their log-odds, not by their marginals.
    """

    xp: Any
    first: int
    pmf: Array
    empty: Array
    log_odds: bool = False

    @property
    def weights(self) -> Array:
        """``P(|y| = k)`` for the sizes first, first + 1, ..., of shape (K, n)."""
        return self.pmf[1:, :]

    def joint(self, labels: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``q_jk = P(|y| = k, y_j = 1)`` for some labels, at most ``at_once`` sizes a piece.

        ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)``, run from the end at which it damps its own
        rounding errors: upwards for p <= 1/2, and downwards, for the label's absence, for p > 1/2.
        ``labels`` has the shape (C, n). A piece is a slice of the K sizes and an array of shape
        (C, sizes, n), zero for the labels that another piece has: all pieces add up.
        """
        xp, pmf, K = self.xp, self.pmf, self.pmf.shape[0] - 1
        P, absence = probabilities(xp, labels, self.log_odds)
        low = P <= 0.5
        zero, one = xp.zeros_like(P), xp.ones_like(P)
        if bool(xp.any(low)):
            odds, present = xp.where(low, P / xp.where(low, absence, one), zero), zero
            for sizes in _pieces(K, at_once):
                q, slots = _empty(xp, P, sizes)
                for i in range(sizes.start, sizes.stop):
                    present = _product(xp, pmf[i, :] - present, odds)
                    slots[i - sizes.start] = present
                yield sizes, _joined(xp, q, slots)
        if not bool(xp.all(low)):
            odds, absent = xp.where(low, zero, absence / xp.where(low, one, P)), zero
            high = xp.where(low, zero, one)
            for sizes in reversed(_pieces(K, at_once)):
                q, slots = _empty(xp, P, sizes)
                for i in reversed(range(sizes.start, sizes.stop)):
                    slots[i - sizes.start] = high * pmf[i + 1, :] - absent
                    absent = _product(xp, pmf[i + 1, :] - absent, odds)
                yield sizes, _joined(xp, q, slots)


@dataclass(frozen=True)
class ConditionalLaw:
    """Labels that are independent given their number, whose distribution is given.

    Attributes
    ----------
    xp : module
        The namespace of the arrays.
    weights : array of shape (K, n)
        ``P(|y| = k)`` for k in 1..K.
    empty : array of shape (n,)
        ``P(no labels)``.
    inverses : array of shape (K', n), K' >= K
        ``R_{k-1} / R_k``, times ``w_(k)`` where ``base`` is there.
    base : array of shape (K', n), or None
        The k-th largest log-odds, where labels are given by log-odds that are far apart.
    shift : array of shape (n,), or None
        What to take off the log-odds, where labels are given by these and they are not.
    certain, possible : array of shape (n,), or None
        The number of labels with p = 1, and with p > 0, where there are such labels.
    traced : bool
        Whether no decision may depend on the numbers.
    """

    xp: Any
    weights: Array
    empty: Array
    inverses: Array
    base: Array | None = None
    shift: Array | None = None
    certain: Array | None = None
    possible: Array | None = None
    traced: bool = False
    first = 1

    def joint(self, labels: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``q_jk = P(|y| = k) P(y_j = 1 | |y| = k)``, as :meth:`IndependentLaw.joint` does.

        With ``c_k = w R_{k-1} / R_k`` the conditional marginals follow ``pi_k = c_k (1 -
        pi_{k-1})``. An error is multiplied by ``c_k`` on the way up, and by its inverse on the way
        down: so up for the sizes with ``c_k <= 1``, and down for the others. As c grows with k,
        those are the smaller and the larger sizes of a label.
        """
        xp, K = self.xp, self.weights.shape[0]
        if not K:
            return
        given = self._given(labels)
        zero, one = xp.zeros_like(given), xp.ones_like(given)
        mixed = self.traced or bool(xp.any(self._c(given, K - 1) > 1))
        present = zero
        for sizes in _pieces(K, at_once):
            q, slots = _empty(xp, given, sizes)
            for i in range(sizes.start, sizes.stop):
                c = self._c(given, i)
                present = _product(xp, 1 - present, xp.where(c <= 1, c, zero) if mixed else c)
                slots[i - sizes.start] = present * self.weights[i, :]
            yield sizes, self._possible(labels, sizes, _joined(xp, q, slots))
        if mixed:
            absent = zero
            for i in reversed(range(K, self.inverses.shape[0])):
                c = self._c(given, i)
                absent = xp.where(c > 1, 1 - absent, zero) / xp.where(c > 1, c, one)
            for sizes in reversed(_pieces(K, at_once)):
                q, slots = _empty(xp, given, sizes)
                for i in reversed(range(sizes.start, sizes.stop)):
                    c = self._c(given, i)
                    present = xp.where(c > 1, 1 - absent, zero)
                    absent = present / xp.where(c > 1, c, one)
                    slots[i - sizes.start] = present * self.weights[i, :]
                yield sizes, self._possible(labels, sizes, _joined(xp, q, slots))

    def _given(self, labels: Array) -> Array:
        """Return odds, or log-odds where these are far apart."""
        if self.base is not None:
            return labels
        xp = self.xp
        return scaled_odds(xp, labels) if self.shift is None else xp.exp(labels - self.shift)

    def _c(self, given: Array, i: int) -> Array:
        """Return ``w R_k / R_{k+1}`` of labels for k = i, of shape (C, n)."""
        if self.base is None:
            with np.errstate(over="ignore"):
                return given * self.inverses[i, :]
        apart = given - self.base[i, :]
        apart = self.xp.where(apart < 700.0, apart, self.xp.full_like(apart, 700.0))
        return self.xp.exp(apart) * self.inverses[i, :]

    def _possible(self, P: Array, sizes: slice, q: Array) -> Array:
        """Return q with zeros where rounding leaves almost 0.

        Sizes that no set of these labels can have are limits: the certain labels come first, and
        the impossible ones last.
        """
        if self.certain is None or self.possible is None:
            return q
        xp, out = self.xp, []
        for i in range(sizes.start, sizes.stop):
            allowed = xp.where(self.certain > i, P >= 1, (self.possible <= i) | (P > 0))
            piece = q[:, i - sizes.start, :]
            out.append(xp.where(allowed, piece, xp.zeros_like(piece)))
        return xp.stack(out, axis=1)


Law: TypeAlias = IndependentLaw | ConditionalLaw


def probabilities(xp: Any, labels: Array, log_odds: bool) -> tuple[Array, Array]:
    """Return the probabilities of presence and of absence, from marginals or log-odds."""
    if not log_odds:
        return labels, 1 - labels
    small = xp.exp(-xp.abs(labels))
    likely, unlikely = 1 / (1 + small), small / (1 + small)
    return xp.where(labels > 0, likely, unlikely), xp.where(labels > 0, unlikely, likely)


def _pieces(K: int, at_once: int) -> list[slice]:
    return [slice(start, min(start + at_once, K)) for start in range(0, K, at_once)]


def _empty(xp: Any, like: Array, sizes: slice) -> tuple[Any, Any]:
    """Return where to put arrays of shape (C, n), one for each size, and the places for them."""
    m = sizes.stop - sizes.start
    if xp is not np:
        return None, [None] * m
    q = np.empty((like.shape[0], m, like.shape[1]), dtype=like.dtype)
    return q, q.transpose(1, 0, 2)


def _product(xp: Any, new: Array, factor: Array) -> Array:
    """Return a product; NumPy's is in the place of the first array."""
    return np.multiply(new, factor, out=new) if xp is np else new * factor


def _joined(xp: Any, q: Any, slots: Any) -> Array:
    return xp.stack(slots, axis=1) if q is None else q


def independent_law(
    xp: Any, ascending: Array, log_odds: bool = False, others: Array | None = None
) -> IndependentLaw:
    """Return the law of independent labels.

    Shapes: ``ascending`` (s, n), ``others`` (1 + m, n).
    """
    s, n = ascending.shape
    P, complement = probabilities(xp, ascending, log_odds)
    low, high = _windows(xp, P)
    pmf = xp.zeros((high[-1] + 1, n), dtype=P.dtype, device=P.device)
    pmf[0, :] = xp.ones_like(pmf[0, :])
    for j in range(s):
        # sizes below `start` and above `stop` had negligible weight, and are left as they were
        window = j // LABELS_PER_WINDOW
        start, stop = max(low[window], 1), min(high[window], j + 1)
        moved = pmf[start - 1 : stop, :] * P[j, :]
        pmf[start - 1 : stop + 1, :] *= complement[j, :]
        pmf[start : stop + 1, :] += moved
    first, empty = max(low[-1], 1), xp.prod(complement, axis=0)
    if others is not None:
        pmf, empty, first = _convolved(xp, pmf, others), empty * others[0, :], 1
    last = max(first, _last_size(xp, pmf))
    return IndependentLaw(xp, first, pmf[first - 1 : last + 1, :], empty, log_odds)


def _convolved(xp: Any, a: Array, b: Array) -> Array:
    """Return the law of the sum of two independent numbers, of shape (1 + sizes, n)."""
    out = xp.zeros((a.shape[0] + b.shape[0] - 1, a.shape[1]), dtype=a.dtype, device=a.device)
    for i in range(b.shape[0]):
        out[i : i + a.shape[0], :] += a * b[i, :]
    return out


def _last_size(xp: Any, pmf: Array) -> int:
    """Return the last size that carries weight: what was found may be less than the bounds say."""
    above = cumulative_sum(xp, xp.flip(pmf, axis=0), axis=0)
    left_out = xp.all(above < exp(-NEGLIGIBLE_LOG_PROBABILITY), axis=1)
    return int(pmf.shape[0]) - 1 - int(xp.sum(astype(xp, left_out, pmf.dtype)))


def _windows(xp: Any, ascending: Array) -> tuple[list[int], list[int]]:
    """Return the sizes that carry weight among the first labels, for each window of labels."""
    s, n = ascending.shape
    starts = range(0, s, LABELS_PER_WINDOW)
    if not n:
        return [0] * len(starts), [s] * len(starts)
    mean = cumulative_sum(xp, ascending, axis=0)
    distance = _distance(xp, cumulative_sum(xp, ascending * (1 - ascending), axis=0))
    above = host_integers(xp.max(mean + distance, axis=1))
    below = host_integers(xp.min(mean - distance, axis=1))
    # a window keeps the lower end of its first label and the upper end of its last
    high = [min(above[min(start + LABELS_PER_WINDOW, s) - 1] + 1, s) for start in starts]
    low = [max(below[start], 0) for start in starts]
    # sizes that were left out stay out: the lower ends must not fall again
    for i in reversed(range(len(low) - 1)):
        low[i] = min(low[i], low[i + 1])
    return low, high


def largest_sizes(xp: Any, P: Array, log_odds: bool = False) -> Array:
    """Return sizes, (n,), that the number of independent labels hardly exceeds."""
    P, absence = probabilities(xp, P, log_odds)
    above = xp.sum(P, axis=1) + _distance(xp, xp.sum(P * absence, axis=1))
    s = xp.full_like(above, float(P.shape[1]))
    return xp.minimum(xp.floor(above) + 1, s)


def _distance(xp: Any, variance: Array) -> Array:
    """Return how far from its mean a sum of independent indicators hardly ever is.

    By Bernstein's inequality it is further than ``L / 3 + sqrt(L^2 / 9 + 2 L variance)``, on
    either side, with a probability below ``exp(-L)``.
    """
    third = NEGLIGIBLE_LOG_PROBABILITY / 3
    return third + xp.sqrt(third * third + 2 * NEGLIGIBLE_LOG_PROBABILITY * variance)


def conditional_law(
    xp: Any, P: Array, empty: Array, weights: Array, log_odds: bool = False
) -> ConditionalLaw:
    """Return the law of labels that are independent given their number.

    Shapes: ``P`` (s, n), ``empty`` (n,), ``weights`` (K, n).
    """
    s, K = P.shape[0], weights.shape[0]
    width = K + margin(K, s) if K else 0
    if log_odds:
        shift = (P[0, :] + P[-1, :]) / 2
        if not bool(xp.all(P[-1, :] - P[0, :] < MAX_LOG_ODDS_SPREAD)):
            return far_apart_law(xp, xp.flip(P, axis=0), empty, weights)
        inverses = 1 / size_ratios(xp, xp.exp(P - shift), width)
        return ConditionalLaw(xp, weights, empty, inverses, shift=shift)
    law = ConditionalLaw(xp, weights, empty, 1 / size_ratios(xp, scaled_odds(xp, P), width))
    certain, possible = (
        xp.sum(xp.where(mask, xp.ones_like(P), xp.zeros_like(P)), axis=0)
        for mask in (P >= 1, P > 0)
    )
    if not bool(xp.any((certain > 0) | (possible < s))):
        return law
    return replace(law, certain=certain, possible=possible)


def far_apart_law(
    xp: Any,
    descending: Array,
    empty: Array,
    weights: Array,
    *,
    ratios: Array | None = None,
    traced: bool = False,
) -> ConditionalLaw:
    """Return the law of labels with any finite log-odds, (s, n), given in falling order.

    ``ratios`` are those of :func:`relative_size_ratios` for the sizes and their :func:`margin`.
    """
    s, K = descending.shape[0], weights.shape[0]
    width = K + margin(K, s) if K else 0
    if ratios is None:
        ratios = relative_size_ratios(xp, descending, width)
    return ConditionalLaw(xp, weights, empty, 1 / ratios, descending[:width, :], traced=traced)


def margin(K: int, s: int, bits: int = 56) -> int:
    """Return how many sizes beyond K the recurrence downwards needs to forget where it started.

    For a label with ``c_K > 1`` an error shrinks by ``1 / c_k`` at every step, which is below
    ``r_k / r_K`` with ``r_k = R_k / R_{k-1}``. By Newton's inequality ``k r_k / (s - k + 1)`` falls
    with k, so these factors are bounded whatever the odds.
    """
    error, steps = 0.0, 0
    while 0 < K < s - steps and error > -bits * log(2.0):
        steps += 1
        error += log(K / (K + steps) * ((s - K - steps + 1) / (s - K + 1)))
    return steps
