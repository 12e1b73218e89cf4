"""Odds of labels, and the elementary symmetric polynomials R_k of them.

``R_k`` is the sum over all sets of k labels of the product of their odds: up to a factor, how
likely k independent labels are. Arrays have the instances in their last axis; any library of the
array API standard will do.
"""

from __future__ import annotations

from typing import Any

from fbeta._array import Array


def scaled_odds(xp: Any, P: Array) -> Array:
    """Return ``p / (1 - p)`` times a constant that leaves room at both ends.

    Only ratios of odds matter. Certain labels get odds beyond all others, impossible ones below.

    Parameters
    ----------
    xp : module
        The namespace.
    P : array
        Probabilities.

    Returns
    -------
    array
        Positive numbers whose sums do not overflow.
    """
    info = xp.finfo(P.dtype)
    least, most = float(info.smallest_normal) * 2**20, float(info.max) / 2**20
    inside = (P > 0) & (P < 1)
    safe = xp.where(inside, P, xp.full_like(P, 0.5))
    outside = xp.where(P > 0, xp.full_like(P, most), xp.full_like(P, least))
    return xp.where(inside, safe * float(info.max) ** 0.5 / (1 - safe), outside)


def size_ratios(xp: Any, odds: Array, K: int) -> Array:
    """Return the ratios of the elementary symmetric polynomials of the odds.

    Parameters
    ----------
    xp : module
        The namespace.
    odds : array of shape (s, n)
        Positive numbers.
    K : int
        The largest size, at most s.

    Returns
    -------
    array of shape (K, n)
        ``R_k / R_{k-1}`` for k in 1..K.

    Examples
    --------
    >>> import numpy as np
    >>> size_ratios(np, np.array([[1.0], [2.0]]), 2)[:, 0].round(3).tolist()
    [3.0, 0.667]
    """
    ratios = xp.zeros((K, odds.shape[1]), dtype=odds.dtype, device=odds.device)
    # with one more label R_k' = R_k + w R_{k-1}: only sums and ratios of positive numbers
    for j in range(odds.shape[0] if K else 0):
        width = min(j + 1, K)
        raised = ratios[:width, :] + odds[j, :]
        ratios[1:width, :] = ratios[: width - 1, :] * (raised[1:, :] / raised[:-1, :])
        ratios[0, :] = raised[0, :]
    return ratios
