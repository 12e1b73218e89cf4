"""Independent labels, and independent labels given how many there are.

docs/theory.md has the recurrences. Arrays of any library, with the instances in their last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log
from typing import Any, TypeAlias

import numpy as np

from fbeta._array import Array, astype, cumulative_sum, host_integers

# log-odds further apart than this are compared by their differences: their odds may overflow
MAX_LOG_ODDS_SPREAD = 600.0
# stands for infinite log-odds, beyond all others and equal among themselves
INFINITE_LOG_ODDS = 1e300
LOG_ODDS_RANGE = (-INFINITE_LOG_ODDS, INFINITE_LOG_ODDS)
MAX_LOG_RATIO = 700.0  # the exponential of more overflows
# what is left out of a Poisson-binomial distribution at each end, and for each label, is below
# exp(-58) = 6e-26: the best expected F_beta of s labels is at least 1 / (s + 1), so that not even
# rounding shows it
NEGLIGIBLE_LOG_PROBABILITY = 58.0
LABELS_PER_WINDOW = 16  # labels that share one window of sizes


def size_ratios(xp: Any, odds: Array, K: int) -> Array:
    """Return ``R_k / R_{k-1}`` for k in 1..K, of shape (K, n), of positive odds of shape (s, n).

    ``R_k``, an elementary symmetric polynomial, is the sum over all sets of k labels of the product
    of their odds: up to a factor, how likely k independent labels are.
    """
    ratios = xp.zeros((K, odds.shape[1]), dtype=odds.dtype, device=odds.device)
    # with one more label R_k' = R_k + w R_{k-1}: only sums and ratios of positive numbers
    for j in range(odds.shape[0] if K else 0):
        width = min(j + 1, K)
        raised = ratios[:width, :] + odds[j, :]
        ratios[1:width, :] = ratios[: width - 1, :] * (raised[1:, :] / raised[:-1, :])
        ratios[0, :] = raised[0, :]
    return ratios


def relative_size_ratios(xp: Any, descending: Array, K: int) -> Array:
    """Return ``R_k / (R_{k-1} w_(k))`` for k in 1..K, (K, n), of any finite log-odds, (s, n).

    It lies between ``1 / k`` and ``s - k + 1``, whatever the odds are.
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


def _sweep(
    xp: Any, like: Array, K: int, at_once: int, step: Callable[[int], Array], *, down: bool = False
) -> Iterator[tuple[slice, Array]]:
    """Yield slices of K sizes in one order, with results (C, n) of steps as (C, sizes, n)."""
    pieces = [slice(start, min(start + at_once, K)) for start in range(0, K, at_once)]
    for sizes in reversed(pieces) if down else pieces:
        numbers = range(sizes.start, sizes.stop)
        q: Any = None
        slots: Any = [None] * len(numbers)
        if xp is np:
            q = np.empty((like.shape[0], len(numbers), like.shape[1]), dtype=like.dtype)
            slots = q.transpose(1, 0, 2)
        for i in reversed(numbers) if down else numbers:
            slots[i - sizes.start] = step(i)
        yield sizes, xp.stack(slots, axis=1) if q is None else q


def _product(xp: Any, new: Array, factor: Array) -> Array:
    """Return a product; NumPy's is in the place of the first array."""
    return np.multiply(new, factor, out=new) if xp is np else new * factor


@dataclass(frozen=True)
class IndependentLaw:
    """Labels that are independent, of n instances."""

    xp: Any  # namespace of the arrays
    first: int  # the smallest size above 0 that is kept
    pmf: Array  # (1 + K, n), P(|y| = k) for k in first - 1, ..., first - 1 + K; else negligible
    empty: Array  # (n,), P(no labels)
    log_odds: bool = False  # whether labels are given by their log-odds, not by their marginals

    @property
    def weights(self) -> Array:
        """``P(|y| = k)`` for the sizes first, first + 1, ..., of shape (K, n)."""
        return self.pmf[1:, :]

    def joint(self, labels: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``q_jk = P(|y| = k, y_j = 1)`` for some labels, at most ``at_once`` sizes a piece.

        ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)``, run from the end at which it damps its own
        rounding errors: upwards for p <= 1/2, and downwards, for the label's absence, for p > 1/2.
        ``labels`` (C, n) become slices of the K sizes with arrays (C, sizes, n) that add up.
        """
        xp, pmf, K = self.xp, self.pmf, self.pmf.shape[0] - 1
        P, absence = probabilities(xp, labels, self.log_odds)
        low = P <= 0.5
        zero, one = xp.zeros_like(P), xp.ones_like(P)
        odds, high, last = zero, zero, zero

        def present(i: int) -> Array:
            nonlocal last
            last = _product(xp, pmf[i, :] - last, odds)
            return last

        def present_less_absent(i: int) -> Array:
            nonlocal last
            found = high * pmf[i + 1, :] - last
            last = _product(xp, pmf[i + 1, :] - last, odds)
            return found

        if bool(xp.any(low)):
            odds = xp.where(low, P / xp.where(low, absence, one), zero)
            yield from _sweep(xp, P, K, at_once, present)
        if not bool(xp.all(low)):
            odds, last = xp.where(low, zero, absence / xp.where(low, one, P)), zero
            high = xp.where(low, zero, one)
            yield from _sweep(xp, P, K, at_once, present_less_absent, down=True)


@dataclass(frozen=True)
class ConditionalLaw:
    """Labels that are independent given their number, whose distribution is given.

    There may be ``others``, which are independent of them.
    """

    xp: Any  # namespace of the arrays
    given: Array  # (K, n), P(k of the labels) for k in 1..K
    none: Array  # (n,), P(none of the labels)
    inverses: Array  # (K' >= K, n), R_{k-1} / R_k, times w_(k) where `base` is there
    # (K', n), the k-th largest log-odds, where labels are given by log-odds that are far apart
    base: Array | None = None
    # (n,), what to take off the log-odds, where labels are given by these and they are not
    shift: Array | None = None
    # (n,), the number of labels with p = 1, and with p > 0, where labels have p = 0 or p = 1
    certain: Array | None = None
    possible: Array | None = None
    traced: bool = False  # whether no decision may depend on the numbers
    others: Array | None = None  # (1 + U, n), P(k of the others)
    first = 1

    @property
    def empty(self) -> Array:
        """``P(no labels)``, of shape (n,)."""
        return self.none if self.others is None else self.none * self.others[0, :]

    @cached_property
    def weights(self) -> Array:
        """``P(|y| = k)`` for the sizes 1, 2, ..., of shape (K + U, n)."""
        if self.others is None:
            return self.given
        pmf = self.xp.concat([self.none[None, :], self.given], axis=0)
        return _convolved(self.xp, pmf, self.others)[1:, :]

    def joint(self, labels: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``P(|y| = k, y_j = 1)`` as :meth:`IndependentLaw.joint`; in one piece with others.

        ``q_jk = P(|y| = k) P(y_j = 1 | |y| = k)``, and the sum of it over the number of others.
        """
        if self.others is None:
            yield from self._own_joint(labels, at_once)
            return
        parts = [q for _, q in self._own_joint(labels, max(self.given.shape[0], 1))]
        if parts:
            yield slice(0, len(self.weights)), _convolved(self.xp, sum(parts), self.others)

    def _own_joint(self, labels: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield as :meth:`joint`, without others.

        With ``c_k = w R_{k-1} / R_k``, which grows with k, ``pi_k = c_k (1 - pi_{k-1})``: upwards
        for the sizes with ``c_k <= 1``, and downwards for the others, errors shrink.
        """
        xp, K = self.xp, self.given.shape[0]
        if not K:
            return
        given = self.odds(labels) if self.base is None else labels
        zero, one = xp.zeros_like(given), xp.ones_like(given)
        mixed = self.traced or bool(xp.any(self._c(given, K - 1) > 1))
        last = zero

        def up(i: int) -> Array:
            nonlocal last
            c = self._c(given, i)
            last = _product(xp, 1 - last, xp.where(c <= 1, c, zero) if mixed else c)
            return last * self.given[i, :]

        def down(i: int) -> Array:
            nonlocal last
            c = self._c(given, i)
            present = xp.where(c > 1, 1 - last, zero)
            last = present / xp.where(c > 1, c, one)
            return present * self.given[i, :] if i < K else zero

        for sizes, q in _sweep(xp, given, K, at_once, up):
            yield sizes, self._possible(labels, sizes, q)
        if mixed:
            last = zero
            for i in reversed(range(K, self.inverses.shape[0])):
                down(i)
            for sizes, q in _sweep(xp, given, K, at_once, down, down=True):
                yield sizes, self._possible(labels, sizes, q)

    def odds(self, labels: Array) -> Array:
        """Return odds of labels not far apart, times what keeps p = 0, p = 1 and sums in range."""
        xp, info = self.xp, self.xp.finfo(labels.dtype)
        if self.shift is None:
            least, most = float(info.smallest_normal) * 2**20, float(info.max) / 2**20
            inside = (labels > 0) & (labels < 1)
            safe = xp.where(inside, labels, xp.full_like(labels, 0.5))
            ends = (xp.full_like(labels, end) for end in (most, least))
            odds = safe * float(info.max) ** 0.5 / (1 - safe)
            return xp.where(inside, odds, xp.where(labels > 0, *ends))
        z = labels - self.shift
        if self.certain is not None:  # infinite ones are beyond the others, and stay in range
            z = xp.clip(z, -MAX_LOG_ODDS_SPREAD, MAX_LOG_ODDS_SPREAD)
        return xp.exp(z)

    def _c(self, given: Array, i: int) -> Array:
        """Return ``w R_k / R_{k+1}`` of labels for k = i, of shape (C, n)."""
        if self.base is None:
            with np.errstate(over="ignore"):
                return given * self.inverses[i, :]
        apart = given - self.base[i, :]
        apart = self.xp.where(apart < MAX_LOG_RATIO, apart, self.xp.full_like(apart, MAX_LOG_RATIO))
        return self.xp.exp(apart) * self.inverses[i, :]

    def _possible(self, P: Array, sizes: slice, q: Array) -> Array:
        """Return q with zeros where rounding leaves almost 0: certain labels come first."""
        if self.certain is None or self.possible is None:
            return q
        xp, out = self.xp, []
        least, most = (0.0, 1.0) if self.shift is None else LOG_ODDS_RANGE
        for i in range(sizes.start, sizes.stop):
            allowed = xp.where(self.certain > i, most <= P, (self.possible <= i) | (least < P))
            piece = q[:, i - sizes.start, :]
            out.append(xp.where(allowed, piece, xp.zeros_like(piece)))
        return xp.stack(out, axis=1)


def _convolved(xp: Any, law: Array, others: Array) -> Array:
    """Return the law of all numbers of labels, (..., K + U, n), from that of some, (..., K, n)."""
    K, n = law.shape[-2:]
    shape = (*law.shape[:-2], K + others.shape[0] - 1, n)
    out = xp.zeros(shape, dtype=law.dtype, device=law.device)
    for i in range(others.shape[0]):
        out[..., i : i + K, :] += law * others[i, :]
    return out


Law: TypeAlias = IndependentLaw | ConditionalLaw


def probabilities(xp: Any, labels: Array, log_odds: bool) -> tuple[Array, Array]:
    """Return the probabilities of presence and of absence, from marginals or log-odds."""
    if not log_odds:
        return labels, 1 - labels
    small = xp.exp(-xp.abs(labels))
    likely, unlikely = 1 / (1 + small), small / (1 + small)
    return xp.where(labels > 0, likely, unlikely), xp.where(labels > 0, unlikely, likely)


def independent_law(
    xp: Any, ascending: Array, log_odds: bool = False, others: Array | None = None
) -> IndependentLaw:
    """Return the law of independent labels, (s, n), with the law (1 + m, n) of how many others."""
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
        pmf, first, empty = _convolved(xp, pmf, others), 1, empty * others[0, :]
    # what was found may be less than the bounds of the windows say
    above = sums_of_first(xp, 1.0 * xp.flip(pmf, axis=0))
    left_out = xp.all(above < exp(-NEGLIGIBLE_LOG_PROBABILITY), axis=1)
    last = int(pmf.shape[0]) - 1 - int(xp.sum(astype(xp, left_out, pmf.dtype)))
    return IndependentLaw(xp, first, pmf[first - 1 : max(first, last) + 1, :], empty, log_odds)


def _windows(xp: Any, ascending: Array) -> tuple[list[int], list[int]]:
    """Return the sizes that carry weight among the first labels, for each window of labels."""
    s, n = ascending.shape
    starts = range(0, s, LABELS_PER_WINDOW)
    if not n:
        return [0] * len(starts), [s] * len(starts)
    # a window keeps the lower end of its first label and the upper end of its last
    first, last = [], []
    for values in (ascending, ascending * (1 - ascending)):
        filler = xp.zeros((-s % LABELS_PER_WINDOW, n), dtype=values.dtype, device=values.device)
        windows = xp.reshape(xp.concat([values, filler]), (-1, LABELS_PER_WINDOW, n))
        sums = xp.sum(windows, axis=1)
        last.append(cumulative_sum(xp, sums, axis=0))
        first.append(last[-1] - sums + windows[:, 0, :])
    above = host_integers(xp.max(last[0] + distance_from_mean(xp, last[1]), axis=1))
    below = host_integers(xp.min(first[0] - distance_from_mean(xp, first[1]), axis=1))
    high, low = [min(size + 1, s) for size in above], [max(size, 0) for size in below]
    # sizes that were left out stay out: the lower ends must not fall again
    for i in reversed(range(len(low) - 1)):
        low[i] = min(low[i], low[i + 1])
    return low, high


def largest_sizes(xp: Any, P: Array, log_odds: bool = False) -> Array:
    """Return sizes, (n,), that the number of independent labels hardly exceeds."""
    P, absence = probabilities(xp, P, log_odds)
    above = xp.sum(P, axis=1) + distance_from_mean(xp, xp.sum(P * absence, axis=1))
    s = xp.full_like(above, float(P.shape[1]))
    return xp.minimum(xp.floor(above) + 1, s)


def distance_from_mean(xp: Any, variance: Array) -> Array:
    """Return how far from its mean a sum of independent indicators hardly ever is.

    By Bernstein's inequality it is further than ``L / 3 + sqrt(L^2 / 9 + 2 L variance)``, on
    either side, with a probability below ``exp(-L)``.
    """
    third = NEGLIGIBLE_LOG_PROBABILITY / 3
    return third + xp.sqrt(third * third + 2 * NEGLIGIBLE_LOG_PROBABILITY * variance)


def conditional_law(
    xp: Any, P: Array, empty: Array, weights: Array, log_odds: bool = False
) -> ConditionalLaw:
    """Return the law of labels P (s, n), rising, given the sizes: empty (n,), weights (K, n)."""
    s, K = P.shape[0], weights.shape[0]
    width = K + margin(K, s) if K else 0
    least, most = LOG_ODDS_RANGE if log_odds else (0.0, 1.0)
    certain = possible = shift = None
    low, high = P[0, :], P[-1, :]
    if bool(xp.any((low <= least) | (high >= most))):
        masks = most <= P, least < P
        certain, possible = (xp.sum(astype(xp, mask, P.dtype), axis=0) for mask in masks)
        if log_odds:  # the range of the finite ones
            low = xp.min(xp.where(masks[1], P, xp.full_like(P, most)), axis=0)
            high = xp.max(xp.where(masks[0], xp.full_like(P, least), P), axis=0)
    if log_odds:
        if not bool(xp.all(high - low < MAX_LOG_ODDS_SPREAD)):
            return far_apart_law(xp, xp.flip(P, axis=0), empty, weights)
        shift = (low + high) / 2
    law = ConditionalLaw(xp, weights, empty, weights, None, shift, certain, possible)
    return replace(law, inverses=1 / size_ratios(xp, law.odds(P), width))


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

    By Newton's inequality ``k r_k / (s - k + 1)`` falls with k: that bounds how errors shrink.
    """
    error, steps = 0.0, 0
    while 0 < K < s - steps and error > -bits * log(2.0):
        steps += 1
        error += log(K / (K + steps) * ((s - K - steps + 1) / (s - K + 1)))
    return steps
