"""Independent labels, and independent labels given how many there are.

For n instances with marginals p_j the number of labels is Poisson-binomial. With odds ``w_j = p_j
/ (1 - p_j)`` and the elementary symmetric polynomials R_k of the odds, ``P(y_j = 1 | |y| = k) =
w_j R_{k-1}(others) / R_k``: the conditional Bernoulli law, which is sampling k labels without
replacement. In both laws ``q_jk`` grows with ``p_j`` for every k, because exchanging the labels i
and j multiplies the probability of a set that has i and not j by ``w_j / w_i``.

Arrays here have the instances in their last axis, so that the recurrences over labels and sizes
work on contiguous memory; any library of the array API standard will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from typing import Any

from fbeta._array import Array, astype, cumulative_sum, host_integers
from fbeta.statistics.symmetric_polynomials import scaled_odds, size_ratios

# what is left out of a Poisson-binomial distribution at each end, and for each label, is below
# exp(-NEGLIGIBLE) = 6e-26: the best expected F_beta of s labels is at least 1 / (s + 1), so that
# not even rounding shows it
NEGLIGIBLE = 58.0
# labels that share one window of sizes
STRIDE = 16


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
    """

    xp: Any
    first: int
    pmf: Array
    empty: Array

    @property
    def weights(self) -> Array:
        """``P(|y| = k)`` for the sizes first, first + 1, ..., of shape (K, n)."""
        return self.pmf[1:, :]

    def joint(self, P: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``q_jk = P(|y| = k, y_j = 1)`` for some labels, piece by piece.

        ``q_{j,k+1} = w_j (P(|y| = k) - q_jk)``, run from the end at which it damps its own
        rounding errors: upwards for p <= 1/2, and downwards, for the label's absence, for p > 1/2.

        Parameters
        ----------
        P : array of shape (C, n)
            Marginals of C labels.
        at_once : int
            How many sizes a piece has at most.

        Yields
        ------
        sizes : slice
            Places among the K sizes.
        q : array of shape (C, size of the slice, n)
            Zero for the labels that another piece has; all pieces add up.
        """
        xp, pmf, K = self.xp, self.pmf, self.pmf.shape[0] - 1
        low = P <= 0.5
        zero, one = xp.zeros_like(P), xp.ones_like(P)
        if bool(xp.any(low)):
            odds, present = xp.where(low, P / (1 - xp.where(low, P, zero)), zero), zero
            for sizes in _pieces(K, at_once):
                q = _empty(xp, P, sizes)
                for i in range(sizes.start, sizes.stop):
                    present = pmf[i, :] - present
                    present *= odds
                    q[:, i - sizes.start, :] = present
                yield sizes, q
        if not bool(xp.all(low)):
            odds, absent = xp.where(low, zero, (1 - P) / xp.where(low, one, P)), zero
            high = xp.where(low, zero, one)
            for sizes in reversed(_pieces(K, at_once)):
                q = _empty(xp, P, sizes)
                for i in reversed(range(sizes.start, sizes.stop)):
                    q[:, i - sizes.start, :] = high * pmf[i + 1, :] - absent
                    absent = pmf[i + 1, :] - absent
                    absent *= odds
                yield sizes, q


@dataclass(frozen=True)
class ConditionalLaw:
    """Labels that are independent given their number, whose distribution is given.

    Attributes
    ----------
    xp : module
        The namespace of the arrays.
    first : int
        1, the first of the sizes.
    weights : array of shape (K, n)
        ``P(|y| = k)`` for k in 1..K.
    empty : array of shape (n,)
        ``P(no labels)``.
    ratios : array of shape (K', n), K' >= K
        ``R_k / R_{k-1}``, which fall with k.
    inverses : array of shape (K, n)
        ``R_{k-1} / R_k``.
    certain, possible : array of shape (n,)
        The number of labels with p = 1, and with p > 0.
    no_extremes : bool
        Whether no label is certain or impossible.
    """

    xp: Any
    first: int
    weights: Array
    empty: Array
    ratios: Array
    inverses: Array
    certain: Array
    possible: Array
    no_extremes: bool

    def joint(self, P: Array, at_once: int) -> Iterator[tuple[slice, Array]]:
        """Yield ``q_jk = P(|y| = k) P(y_j = 1 | |y| = k)`` for some labels, piece by piece.

        With ``r_k = R_k / R_{k-1}`` the conditional marginals follow ``pi_k = w / r_k (1 -
        pi_{k-1})``. An error is multiplied by ``w / r_k`` on the way up, and by its inverse on the
        way down: so up for the sizes with ``w <= r_k``, and down for the others. As r falls with
        k, those are the smaller and the larger sizes of a label.

        Parameters
        ----------
        P, at_once
            As for :meth:`IndependentLaw.joint`.

        Yields
        ------
        sizes : slice
            Places among the K sizes.
        q : array of shape (C, size of the slice, n)
            Zero for the labels that another piece has; all pieces add up.
        """
        xp, ratios, K = self.xp, self.ratios, self.weights.shape[0]
        if not K:
            return
        odds, zero = scaled_odds(xp, P), xp.zeros_like(P)
        mixed = bool(xp.any(odds > ratios[K - 1, :]))
        if bool(xp.any(odds <= ratios[0, :])):
            present = zero
            for sizes in _pieces(K, at_once):
                q = _empty(xp, P, sizes)
                for i in range(sizes.start, sizes.stop):
                    present = 1 - present
                    present *= xp.where(odds <= ratios[i, :], odds, zero) if mixed else odds
                    present *= self.inverses[i, :]
                    q[:, i - sizes.start, :] = present * self.weights[i, :]
                yield sizes, self._possible(P, sizes, q)
        if mixed:
            inverse, absent = 1 / odds, zero
            for i in reversed(range(K, ratios.shape[0])):
                absent = (1 - absent) * xp.where(odds > ratios[i, :], inverse, zero) * ratios[i, :]
            for sizes in reversed(_pieces(K, at_once)):
                q = _empty(xp, P, sizes)
                for i in reversed(range(sizes.start, sizes.stop)):
                    present = xp.where(odds > ratios[i, :], 1 - absent, zero)
                    absent = present * inverse * ratios[i, :]
                    q[:, i - sizes.start, :] = present * self.weights[i, :]
                yield sizes, self._possible(P, sizes, q)

    def _possible(self, P: Array, sizes: slice, q: Array) -> Array:
        """Return q with zeros where rounding leaves almost 0.

        Sizes that no set of these labels can have are limits: the certain labels come first, and
        the impossible ones last.
        """
        xp = self.xp
        if self.no_extremes:
            return q
        for i in range(sizes.start, sizes.stop):
            k = i + 1
            allowed = xp.where(self.certain >= k, P >= 1, (self.possible < k) | (P > 0))
            piece = q[:, i - sizes.start, :]
            q[:, i - sizes.start, :] = xp.where(allowed, piece, xp.zeros_like(piece))
        return q


def _pieces(K: int, at_once: int) -> list[slice]:
    return [slice(start, min(start + at_once, K)) for start in range(0, K, at_once)]


def _empty(xp: Any, P: Array, sizes: slice) -> Array:
    shape = (P.shape[0], sizes.stop - sizes.start, P.shape[1])
    return xp.empty(shape, dtype=P.dtype, device=P.device)


def independent_law(xp: Any, ascending: Array) -> IndependentLaw:
    """Return the law of independent labels.

    Parameters
    ----------
    xp : module
        The namespace.
    ascending : array of shape (s, n)
        Marginals, sorted for each instance.

    Returns
    -------
    IndependentLaw

    Examples
    --------
    >>> import numpy as np
    >>> law = independent_law(np, np.array([[0.5], [0.5]]))
    >>> law.pmf[:, 0].tolist()
    [0.25, 0.5, 0.25]
    >>> [q.tolist() for _, q in law.joint(np.array([[0.5]]), at_once=2)]
    [[[[0.25], [0.25]]]]
    """
    s, n = ascending.shape
    low, high = _windows(xp, ascending)
    pmf = xp.zeros((high[-1] + 1, n), dtype=ascending.dtype, device=ascending.device)
    pmf[0, :] = xp.ones_like(pmf[0, :])
    complement = 1 - ascending
    for j in range(s):
        # sizes below `start` and above `stop` had negligible weight, and are left as they were
        start, stop = max(low[j // STRIDE], 1), min(high[j // STRIDE], j + 1)
        moved = pmf[start - 1 : stop, :] * ascending[j, :]
        pmf[start - 1 : stop + 1, :] *= complement[j, :]
        pmf[start : stop + 1, :] += moved
    first = max(low[-1], 1)
    last = max(first, _last_size(xp, pmf))
    return IndependentLaw(xp, first, pmf[first - 1 : last + 1, :], xp.prod(complement, axis=0))


def _last_size(xp: Any, pmf: Array) -> int:
    """Return the last size that carries weight: what was found may be less than the bounds say."""
    above = cumulative_sum(xp, xp.flip(pmf, axis=0), axis=0)
    left_out = xp.all(above < exp(-NEGLIGIBLE), axis=1)
    return int(pmf.shape[0]) - 1 - int(xp.sum(astype(xp, left_out, pmf.dtype)))


def _windows(xp: Any, ascending: Array) -> tuple[list[int], list[int]]:
    """Return the sizes that carry weight among the first labels, for each stride of labels."""
    s, n = ascending.shape
    starts = range(0, s, STRIDE)
    if not n:
        return [0] * len(starts), [s] * len(starts)
    mean = cumulative_sum(xp, ascending, axis=0)
    distance = _distance(xp, cumulative_sum(xp, ascending * (1 - ascending), axis=0))
    above = host_integers(xp.max(mean + distance, axis=1))
    below = host_integers(xp.min(mean - distance, axis=1))
    # a stride keeps the lower end of its first label and the upper end of its last
    high = [min(above[min(start + STRIDE, s) - 1] + 1, s) for start in starts]
    low = [max(below[start], 0) for start in starts]
    # sizes that were left out stay out: the lower ends must not fall again
    for i in reversed(range(len(low) - 1)):
        low[i] = min(low[i], low[i + 1])
    return low, high


def largest_sizes(xp: Any, P: Array) -> Array:
    """Return a size for each instance that its number of independent labels hardly exceeds.

    Parameters
    ----------
    xp : module
        The namespace.
    P : array of shape (n, s)
        Marginals.

    Returns
    -------
    array of shape (n,)
        At most s.

    Examples
    --------
    >>> import numpy as np
    >>> largest_sizes(np, np.full((1, 1000), 0.01)).tolist()
    [69.0]
    """
    above = xp.sum(P, axis=1) + _distance(xp, xp.sum(P * (1 - P), axis=1))
    s = xp.full_like(above, float(P.shape[1]))
    return xp.minimum(xp.floor(above) + 1, s)


def _distance(xp: Any, variance: Array) -> Array:
    """Return how far from its mean a sum of independent indicators hardly ever is.

    By Bernstein's inequality it is further than ``L / 3 + sqrt(L^2 / 9 + 2 L variance)``, on
    either side, with a probability below ``exp(-L)``.
    """
    third = NEGLIGIBLE / 3
    return third + xp.sqrt(third * third + 2 * NEGLIGIBLE * variance)


def conditional_law(xp: Any, P: Array, empty: Array, weights: Array) -> ConditionalLaw:
    """Return the law of labels that are independent given their number.

    Parameters
    ----------
    xp : module
        The namespace.
    P : array of shape (s, n)
        Marginals of the independent labels.
    empty : array of shape (n,)
        ``P(no labels)``.
    weights : array of shape (K, n)
        ``P(|y| = k)`` for k in 1..K.

    Returns
    -------
    ConditionalLaw

    Examples
    --------
    >>> import numpy as np
    >>> P = np.array([[0.5], [0.5]])
    >>> law = conditional_law(np, P, np.array([0.0]), np.array([[0.2], [0.8]]))
    >>> [q[:, :, 0].tolist() for _, q in law.joint(P, at_once=2)]
    [[[0.1, 0.0], [0.1, 0.0]], [[0.0, 0.8], [0.0, 0.8]]]
    """
    s, K = P.shape[0], weights.shape[0]
    odds = scaled_odds(xp, P)
    ratios = size_ratios(xp, odds, K + _margin(K, s) if K else 0)
    certain, possible = (
        xp.sum(xp.where(mask, xp.ones_like(P), xp.zeros_like(P)), axis=0)
        for mask in (P >= 1, P > 0)
    )
    no_extremes = not bool(xp.any((certain > 0) | (possible < s)))
    inverses = 1 / ratios[:K, :]
    return ConditionalLaw(xp, 1, weights, empty, ratios, inverses, certain, possible, no_extremes)


def _margin(K: int, s: int) -> int:
    """Return how many sizes beyond K the recurrence downwards needs to forget where it started.

    For a label with ``w > r_K`` an error shrinks by ``r_k / w < r_k / r_K`` at every step. By
    Newton's inequality ``k r_k / (s - k + 1)`` falls with k, so these factors are bounded
    whatever the odds.
    """
    error, steps = 0.0, 0
    while 0 < K < s - steps and error > log(2.0**-56):
        steps += 1
        error += log(K / (K + steps) * ((s - K - steps + 1) / (s - K + 1)))
    return steps
