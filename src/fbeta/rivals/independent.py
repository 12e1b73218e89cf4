"""The F_beta-optimal label set of independent labels, in O(s^2) for each instance.

With independent labels the best set of each size k holds the k labels with the largest marginals
``p_1 >= p_2 >= ...``. With ``beta^2 = q / r`` its expected F_beta is ``(q + r) sum_i i C_k(i)
S_k(q i + r k)``, where ``C_k(i)`` is the probability that i of the first k labels are present and
``S_k(a)`` the expectation of ``1 / (a + q N)`` for the number N of the other labels that are:
``S_s(a) = 1 / a`` and ``S_{k-1}(a) = p_k S_k(a + q) + (1 - p_k) S_k(a)``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._threads import run_threaded
from fbeta._validation import check_beta
from fbeta.decoding import TIE, decode
from fbeta.encoding import LabelStatistics

__all__ = ["decode_independent"]

LARGEST = 32  # of q + r: beyond, the tables over a cost more than the general decoder
MEMORY = 1 << 24  # bytes of the tables of the instances that are decoded together


def decode_independent(P: ArrayLike, beta: float = 1.0) -> NDArray[np.int8]:
    """Find the label set with the highest expected F_beta when labels are independent.

    Exact over all 2^s sets. Ties go to the smaller set and, within a size, to the labels that
    come first. Where ``beta^2`` is not a ratio of small integers, the general decoder does it.

    Parameters
    ----------
    P : array-like of shape (n, s)
        ``P(y_j = 1 | x_i)``.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    int8 ndarray of shape (n, s)
        Predicted label sets, 0/1.

    Examples
    --------
    >>> decode_independent([[0.9, 0.5, 0.1], [0.1, 0.1, 0.1]]).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    beta = check_beta(beta)
    P = np.asarray(P, dtype=np.float64)
    if P.ndim != 2 or P.shape[1] == 0:
        raise ValueError(f"P must have shape (n, s) with s >= 1, got {P.shape}")
    if not ((P >= 0) & (P <= 1)).all():
        raise ValueError("P must hold probabilities in [0, 1]")
    ratio = _small_ratio(beta**2)
    n, s = P.shape
    rows = max(1, MEMORY // (8 * (s + 1) ** 2))
    chunks = [slice(start, start + rows) for start in range(0, n, rows)]
    labels = np.zeros((n, s), dtype=np.int8)

    def run(chunk: slice) -> None:
        if ratio is None:
            labels[chunk] = decode(LabelStatistics.from_marginals(P[chunk]), beta)
        else:
            labels[chunk] = _decode_chunk(P[chunk], *ratio)

    run_threaded(run, chunks)
    return labels


def _small_ratio(beta2: float) -> tuple[int, int] | None:
    """Return the integers q, r with ``beta2 = q / r`` to rounding, or None if they are large."""
    fraction = Fraction(beta2).limit_denominator(LARGEST)
    q, r = fraction.numerator, fraction.denominator
    close = abs(q / r - beta2) <= 4 * np.finfo(np.float64).eps * beta2
    return (q, r) if close and q > 0 and q + r <= LARGEST else None


def _decode_chunk(P: NDArray[np.float64], q: int, r: int) -> NDArray[np.int8]:
    n, s = P.shape
    order = np.argsort(-P, axis=1, kind="stable")
    value = expected_of_prefixes(np.take_along_axis(P, order, axis=1), q, r)
    # the first size that no larger one beats by more than rounding
    best, size = value[:, 0].copy(), np.zeros(n, dtype=np.intp)
    for k in range(1, s + 1):
        better = value[:, k] > best * (1 + TIE)
        best[better], size[better] = value[better, k], k
    labels = np.zeros((n, s), dtype=np.int8)
    chosen = np.arange(s)[None, :] < size[:, None]
    np.put_along_axis(labels, order, chosen.astype(np.int8), axis=1)
    return labels


def expected_of_prefixes(P: NDArray[np.float64], q: int, r: int) -> NDArray[np.float64]:
    """Compute the expected F_beta of predicting the first k labels, for each k.

    P holds marginals of independent labels, of shape (n, s), and ``beta^2 = q / r``. Returns shape
    (n, s + 1).

    Examples
    --------
    >>> expected_of_prefixes(np.array([[0.5]]), 1, 1).tolist()
    [[0.5, 0.5]]
    """
    n, s = P.shape
    present = _prefix_counts(P)
    value = np.empty((n, s + 1))
    value[:, 0] = np.prod(1 - P, axis=1)
    inverse = np.tile(1 / np.arange(1, (q + r) * s + 1, dtype=np.float64), (n, 1))
    for k in range(s, 0, -1):
        counts = np.arange(1, k + 1)
        weights = counts * inverse[:, q * counts + r * k - 1]
        value[:, k] = (q + r) * np.einsum("ni,ni->n", present[k, :, 1 : k + 1], weights)
        # entry a - 1 holds S_k(a); sets of k - 1 labels need no a beyond r s + q (k - 1)
        p = P[:, k - 1, None]
        inverse = p * inverse[:, q:] + (1 - p) * inverse[:, : inverse.shape[1] - q]
    return value


def _prefix_counts(P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``C[k, n, i]``, the probability of i among the first k labels: (s + 1, n, s + 1)."""
    n, s = P.shape
    C = np.zeros((s + 1, n, s + 1))
    C[0, :, 0] = 1
    for k in range(1, s + 1):
        p = P[:, k - 1, None]
        C[k, :, :k] = (1 - p) * C[k - 1, :, :k]
        C[k, :, 1 : k + 1] += p * C[k - 1, :, :k]
    return C
