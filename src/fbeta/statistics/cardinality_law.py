"""Labels with scores of their own and potentials of their number: an exact log-linear law.

``P(y) = exp(sum_j y_j u_j + g_|y|) / Z``. Given the number of labels they are independent labels of
which so many happen to be present; so the law of the number is ``R_k exp(g_k) / Z`` with the
elementary symmetric polynomials R_k of ``exp(u_j)``, and everything else follows by sweeps over
the labels, forward and backward, that count how many there are. A constant added to all u_j tilts
the laws of single labels but, given their number, nothing: sweeps use a tilt at which the labels,
were they independent, would be about as many as the law says, so that no path that matters
underflows.

Arrays have the instances in their last axis; any library of the array API standard will do.
"""

from __future__ import annotations

from typing import Any

from fbeta._array import Array, cumulative_sum
from fbeta.statistics.symmetric_polynomials import size_ratios

FAR = -650.0  # a score that far below the largest counts for no more


def size_law(xp: Any, u: Array, g: Array) -> tuple[Array, Array, Array]:
    """Return the law of the number of labels.

    Parameters
    ----------
    xp : module
        The namespace.
    u : array of shape (s, n)
        Scores of the labels.
    g : array of shape (1 + K, n)
        Potentials of the sizes 0..K, -inf for those that are impossible.

    Returns
    -------
    log_total : array of shape (n,)
        ``ln Z``.
    z : array of shape (1 + K, n)
        ``P(|y| = k)``.
    steps : array of shape (K, n)
        ``ln R_k - ln R_{k-1}`` for k in 1..K.

    Examples
    --------
    >>> import numpy as np
    >>> size_law(np, np.zeros((2, 1)), np.zeros((3, 1)))[1][:, 0].round(3).tolist()
    [0.25, 0.5, 0.25]
    """
    K = g.shape[0] - 1
    top = xp.max(u, axis=0)
    ratios = size_ratios(xp, xp.exp(xp.clip(u - top, FAR, None)), K)
    steps = xp.log(ratios) + top
    logs = cumulative_sum(xp, steps, axis=0)
    weights = g + xp.concat([xp.zeros_like(g[:1, :]), logs], axis=0)
    peak = xp.max(weights, axis=0)
    z = xp.exp(weights - peak)
    total = xp.sum(z, axis=0)
    return peak + xp.log(total), z / total, steps


def tilted(xp: Any, u: Array, z: Array, steps: Array) -> tuple[Array, Array]:
    """Return probabilities of independent labels that are about as many as a law says.

    With ``-steps[k - 1]`` added to all scores, k - 1 and k are the most probable numbers.

    Parameters
    ----------
    xp : module
        The namespace.
    u : array of shape (s, n)
        Scores of the labels.
    z : array of shape (1 + K, n)
        ``P(|y| = k)`` for k in 0..K.
    steps : array of shape (K, n)
        ``ln R_k - ln R_{k-1}`` for k in 1..K.

    Returns
    -------
    present, absent : array of shape (s, n)
        ``P(y_j = 1)`` and ``P(y_j = 0)``, both accurate however small.

    Examples
    --------
    >>> import numpy as np
    >>> u, g = np.array([[5.0], [5.0]]), np.array([[-np.inf], [0.0]])
    >>> _, z, steps = size_law(np, u, g)
    >>> tilted(np, u, z, steps)[0][:, 0].round(3).tolist()
    [0.333, 0.333]
    """
    K = steps.shape[0]
    if not K:
        return xp.zeros_like(u), xp.ones_like(u)
    sizes = xp.arange(K + 1, dtype=z.dtype, device=z.device)[:, None]
    number = xp.clip(xp.ceil(xp.sum(sizes * z, axis=0)), 1.0, float(K))
    tilt = -xp.sum(xp.where(sizes[1:, :] == number, steps, xp.zeros_like(steps)), axis=0)
    odds = xp.exp(xp.clip(u + tilt, FAR, -FAR))
    return odds / (1 + odds), 1 / (1 + odds)


def forward(xp: Any, p: Array, q: Array, K: int, change: Array | None = None) -> Array:
    """Sweep forward over independent labels.

    Parameters
    ----------
    xp : module
        The namespace.
    p, q : array of shape (s, n)
        ``P(y_j = 1)`` and ``P(y_j = 0)``.
    K : int
        The largest size.
    change : array of shape (s, n), optional
        Of the scores of the labels.

    Returns
    -------
    array of shape (s + 1, 1 or 2, 1 + K, n)
        The probability of c labels among the first j; with a change also the sum over these sets of
        their probability times the sum of the changes of their labels.
    """
    (s, n), kinds = p.shape, 1 if change is None else 2
    A = xp.zeros((s + 1, kinds, K + 1, n), dtype=p.dtype, device=p.device)
    A[0, 0, 0, :] = xp.ones_like(p[0, :])
    for j in range(s):
        width = min(j + 1, K)
        moved = p[j, :] * A[j, :, :width, :]
        A[j + 1, :, : width + 1, :] = q[j, :] * A[j, :, : width + 1, :]
        A[j + 1, :, 1 : width + 1, :] += moved
        if change is not None:
            A[j + 1, 1, 1 : width + 1, :] += change[j, :] * moved[0, :, :]
    return A


def backward(xp: Any, p: Array, q: Array, A: Array, B: Array, change: Array | None = None) -> Array:
    """Sweep backward, and return what a forward sweep and potentials say of each label.

    Parameters
    ----------
    xp, p, q, change
        As for :func:`forward`.
    A : array of shape (s + 1, 1 or 2, 1 + K, n)
        From :func:`forward`.
    B : array of shape (1 or 2, 1 + K, n)
        Potentials of the sizes, as factors; with a change also those times their own change.

    Returns
    -------
    array of shape (s, n)
        The sum over the sets with label j of their weight; with a change, of their weight times
        their change.
    """
    out, K = [], B.shape[1] - 1
    for j in reversed(range(p.shape[0])):
        count = min(j, K - 1) + 1  # prefixes to which a label can be added
        a, above = A[j, :, :count, :], B[:, 1 : count + 1, :]
        moved = p[j, :] * above
        if change is None:
            out.append(xp.sum(a[0, :, :] * moved[0, :, :], axis=0))
        else:
            moved[1, :, :] += change[j, :] * moved[0, :, :]
            out.append(xp.sum(a[1, :, :] * moved[0, :, :] + a[0, :, :] * moved[1, :, :], axis=0))
        B = q[j, :] * B[:, : min(j, K) + 1, :]
        B[:, :count, :] += moved
    return xp.stack(out[::-1], axis=0)


def second_moments(xp: Any, p: Array, q: Array, factors: Array) -> tuple[Array, Array, Array]:
    """Return the expectations of labels, and of their products with each other and with sizes.

    Parameters
    ----------
    xp, p, q
        As for :func:`forward`.
    factors : array of shape (1 + K, n)
        Potentials of the sizes, as factors that make the weights of all sets sum to 1.

    Returns
    -------
    mean : array of shape (s, n)
        ``P(y_j = 1)``.
    pairs : array of shape (s, s, n)
        ``P(y_i = y_j = 1)``.
    joint : array of shape (s, 1 + K, n)
        ``P(|y| = k, y_j = 1)``.
    """
    (s, n), K = p.shape, factors.shape[0] - 1
    there = {"dtype": p.dtype, "device": p.device}
    B = xp.zeros((s + 1, K + 1, n), **there)
    B[s, :, :] = factors
    for j in reversed(range(s)):
        B[j, :, :] = q[j, :] * B[j + 1, :, :]
        B[j, :K, :] += p[j, :] * B[j + 1, 1:, :]
    pairs = xp.zeros((s, s, n), **there)
    # the probability of c labels so far, and of those among them that have a given label
    S = xp.zeros((s + 1, K + 1, n), **there)
    S[0, 0, :] = xp.ones_like(p[0, :])
    for j in range(s):
        width = min(j + 1, K)
        moved = p[j, :] * S[: j + 1, :width, :]
        both = xp.sum(moved * B[j + 1, 1 : width + 1, :], axis=1)
        pairs[j, j, :] = both[0, :]
        pairs[j, :j, :] = both[1:, :]
        pairs[:j, j, :] = both[1:, :]
        S[: j + 1, :, :] *= q[j, :]
        S[: j + 1, 1 : width + 1, :] += moved
        S[j + 1, 1 : width + 1, :] = moved[0, :, :]
    mean = xp.stack([pairs[j, j, :] for j in range(s)], axis=0)
    return mean, pairs, S[1:, :, :] * factors
