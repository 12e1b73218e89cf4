"""Labels with scores and potentials of their number: ``P(y) = exp(sum_j y_j u_j + g_|y|) / Z``.

Arrays of any library, with the instances in their last axis; scores may be any finite numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fbeta._array import Array, cumulative_sum, sort_descending
from fbeta.statistics.conditional_bernoulli import (
    MAX_LOG_ODDS_SPREAD,
    ConditionalLaw,
    far_apart_law,
    margin,
    relative_size_ratios,
    size_ratios,
)

# the largest of numbers that rounding makes equal shows after the difference to one of them
REFERENCE_CHANGES = 3
MAX_TILTED_SCORE = 650.0  # beyond it a tilted label is taken for certain or impossible
NEGLIGIBLE_SIZE = 1e-30  # probability of a number of labels below which sweeps may lose it
MIN_REACHED = 1e-290  # probability of a number of labels below which it is lost


class SizeLaw(NamedTuple):
    """The law of the number of labels of n instances."""

    log_probabilities: Array  # (1 + K, n), ln P(|y| = k) for k in 0..K, -inf for impossible sizes
    log_ratios: Array  # (1 + K, n), ln R_k, less the sum of the k largest scores
    log_partition: Array  # (n,), ln Z
    ratios: Array  # (K', n), relative ratios of sizes, for the law of the labels given their number

    def probabilities(self, xp: Any) -> Array:
        """Return ``P(|y| = k)``."""
        return xp.exp(self.log_probabilities)


def law_of_sizes(
    xp: Any, descending: Array, potentials: Array, *, only_sizes: bool = False
) -> SizeLaw:
    """Return the law of sizes by any finite ``descending`` (s, n), ``potentials`` (1 + K, n)."""
    K = potentials.shape[0] - 1
    nothing = xp.zeros_like(potentials[:1, :])
    beyond = 0 if only_sizes else margin(K, descending.shape[0])
    relative = relative_size_ratios(xp, descending, K + beyond)
    ratios = cumulative_sum(xp, xp.log(relative[:K, :]), axis=0)
    ratios = xp.concat([nothing, ratios], axis=0)
    possible = potentials != -xp.inf  # NaN stays
    own = xp.where(possible, potentials, xp.zeros_like(potentials))
    # scores may cancel potentials of any size: sums are kept with two orders of what rounding lost
    high, lost = _sums_of_first(xp, descending[:K, :])
    middle, lost = _sums_of_first(xp, lost)
    low = cumulative_sum(xp, lost, axis=0)
    high, middle, low = (xp.concat([nothing, part], axis=0) for part in (high, middle, low))
    high, error = _two_sum(own, high)
    middle, error = _two_sum(middle, error)
    parts: tuple[Array, ...] = (high, middle, low + error + ratios)
    top, places = nothing[0, :], xp.arange(K + 1, device=potentials.device)[:, None]
    for _ in range(REFERENCE_CHANGES):  # subtract the largest
        is_top = places == xp.argmax(_total(xp, parts, possible), axis=0)[None, :]
        own = [xp.sum(xp.where(is_top, part, xp.zeros_like(part)), axis=0) for part in parts]
        parts = tuple(part - off for part, off in zip(parts, own, strict=True))
        top = top + (own[0] + (own[1] + own[2]))
    logs = _total(xp, parts, possible)
    log_total = xp.log(xp.sum(xp.exp(logs), axis=0))
    return SizeLaw(logs - log_total, ratios, top + log_total, relative)


def _total(xp: Any, parts: tuple[Array, ...], possible: Array) -> Array:
    total = parts[0] + (parts[1] + parts[2])
    return xp.where(possible, total, xp.full_like(total, -xp.inf))


def _sums_of_first(xp: Any, terms: Array) -> tuple[Array, Array]:
    """Return the sums of the first 1, 2, ... terms, and what rounding took off each addition."""
    sums = cumulative_sum(xp, terms, axis=0)
    before = xp.concat([xp.zeros_like(terms[:1, :]), sums], axis=0)[:-1, :]
    rounded, error = _two_sum(before, terms)
    return sums, (rounded - sums) + error


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b, and what rounding took off it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def log_likelihood(xp: Any, descending: Array, observed: Array, law: SizeLaw) -> Array:
    """Return ``ln P(y)``, (n,), of labels ``observed`` (s, n) with scores ``descending`` (s, n)."""
    K = law.log_ratios.shape[0] - 1
    so_far = cumulative_sum(xp, observed, axis=0)
    number = so_far[-1, :]
    counts = xp.arange(1, descending.shape[0] + 1, dtype=number.dtype, device=number.device)
    # the labels of y against as many with the largest scores: a sum of what is not negative
    missing = xp.minimum(counts[:, None], number) - so_far
    lost = xp.sum((descending[:-1, :] - descending[1:, :]) * missing[:-1, :], axis=0)
    sizes = xp.arange(K + 1, dtype=number.dtype, device=number.device)[:, None]
    own = law.log_probabilities - law.log_ratios
    of_size = xp.sum(xp.where(sizes == number, own, xp.zeros_like(own)), axis=0)
    return xp.where(number <= K, of_size, xp.full_like(of_size, -xp.inf)) - lost


def expected_labels(xp: Any, descending: Array, law: SizeLaw, *, traced: bool = False) -> Array:
    """Return ``P(y_j = 1)`` of labels in falling order of their scores, of shape (s, n)."""
    out = xp.zeros_like(descending)
    largest = max(1, law.log_ratios.shape[0] - 1)
    for _, q in given_number(xp, descending, law, traced=traced).joint(descending, largest):
        out = out + xp.sum(q, axis=1)
    return out


def given_number(xp: Any, descending: Array, law: SizeLaw, *, traced: bool) -> ConditionalLaw:
    """Return the law of labels in falling order of their scores, given their number."""
    z = law.probabilities(xp)
    return far_apart_law(xp, descending, z[0, :], z[1:, :], ratios=law.ratios, traced=traced)


def size_law(xp: Any, u: Array, g: Array) -> tuple[Array, Array, Array]:
    """Return ``ln Z``, the law of the number of labels, and logarithms of ``R_k / R_{k-1}``.

    Shapes: ``u`` (s, n), ``g`` (1 + K, n); returns (n,), (1 + K, n), (K, n).
    """
    K = g.shape[0] - 1
    if is_far_apart(xp, u):
        descending = _descending(xp, u)
        law = law_of_sizes(xp, descending, g, only_sizes=True)
        return law.log_partition, law.probabilities(xp), xp.log(law.ratios) + descending[:K, :]
    top = xp.max(u, axis=0)
    steps = xp.log(size_ratios(xp, xp.exp(u - top), K)) + top
    logs = cumulative_sum(xp, steps, axis=0)
    weights = g + xp.concat([xp.zeros_like(g[:1, :]), logs], axis=0)
    peak = xp.max(weights, axis=0)
    z = xp.exp(weights - peak)
    total = xp.sum(z, axis=0)
    return peak + xp.log(total), z / total, steps


def is_far_apart(xp: Any, u: Array) -> bool:
    """Tell whether scores of shape (s, n) are too far apart for their odds to be in range."""
    spread = xp.max(u, axis=0) - xp.min(u, axis=0)
    return not bool(xp.all(spread < MAX_LOG_ODDS_SPREAD))


def mean_of_labels(xp: Any, u: Array, g: Array) -> Array:
    """Return ``P(y_j = 1)``, of shape (s, n), right at any finite scores u and potentials g."""
    descending = _descending(xp, u)
    mean = expected_labels(xp, descending, law_of_sizes(xp, descending, g))
    rank = xp.argsort(xp.argsort(-u, axis=0, stable=True), axis=0)
    s, n = u.shape
    place = rank * n + xp.arange(n, device=rank.device)[None, :]
    return xp.reshape(xp.take(xp.reshape(mean, (-1,)), xp.reshape(place, (-1,))), (s, n))


def _descending(xp: Any, u: Array) -> Array:
    """Return scores of shape (s, n) in falling order."""
    turned = sort_descending(xp, xp.permute_dims(u, (1, 0)))
    return xp.permute_dims(turned, (1, 0))


def tilted(xp: Any, u: Array, z: Array, steps: Array) -> tuple[Array, Array]:
    """Return probabilities of presence and absence of independent labels.

    A constant added to all scores changes nothing given the number of labels. This one makes the
    smallest and the largest number that z does not exclude equally likely: what lies between is
    more likely, and the sweeps below do not underflow. Shapes: ``u`` (s, n), ``z`` (1 + K, n),
    ``steps`` (K, n).
    """
    K = steps.shape[0]
    if not K:
        return xp.zeros_like(u), xp.ones_like(u)
    sizes = xp.arange(K + 1, dtype=z.dtype, device=z.device)[:, None]
    likely = z > NEGLIGIBLE_SIZE
    high = xp.clip(xp.max(xp.where(likely, sizes, 0 * z), axis=0), 1.0, None)
    low = xp.minimum(xp.min(xp.where(likely, sizes, K + 0 * z), axis=0), high - 1)
    between = (sizes[1:, :] > low) & (sizes[1:, :] <= high)
    tilt = xp.sum(xp.where(between, steps, xp.zeros_like(steps)), axis=0) / (low - high)
    odds = xp.exp(xp.clip(u + tilt, -MAX_TILTED_SCORE, MAX_TILTED_SCORE))
    return odds / (1 + odds), 1 / (1 + odds)


def forward(xp: Any, p: Array, q: Array, K: int, change: Array | None = None) -> Array:
    """Return the law of the number of the first labels, and its derivative along a ``change``.

    Shapes: ``p, q, change`` (s, n); returns (s + 1, 1 or 2, 1 + K, n).
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
    """Return the expectation of each label, (s, n), or its derivative along a ``change``.

    Shapes: ``A``, of :func:`forward`, (s + 1, 1 or 2, 1 + K, n), ``B`` (1 or 2, 1 + K, n).
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
