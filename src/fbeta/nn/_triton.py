"""Kernels in Triton: one program for each instance, which decides for itself when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from fbeta.decoding.measures import TIE_UNITS
from fbeta.nn._inputs import size_tensor
from fbeta.statistics.conditional_bernoulli import margin

# numbers that a row keeps between the kernels: the shift, what it takes out of the partition
# function, the score of the observed labels, their number, the largest absolute score, and whether
# the row needs the careful kernel
ROW = constexpr(6)
HALVINGS = constexpr(8)  # of the interval in which the shift of the scores is searched
INFINITY = constexpr(float("inf"))


@triton.jit
def _scores(joint, weights, j, K, s, stride_k, stride_j):
    """Return the scores of the labels for predictions of one size."""
    scores = tl.zeros_like(j).to(tl.float64)
    for i in range(K):
        q = tl.load(joint + i * stride_k + j * stride_j, mask=j < s, other=0.0).to(tl.float64)
        scores += q * tl.load(weights + i)
    return scores


@triton.jit
def _first_labels(scores, number, tie, j):
    """Return which of the scores (-inf for no label) are the largest, the first among equals."""
    descending = tl.sort(scores, descending=True)
    last = tl.max(tl.where(j == number - 1, descending, -INFINITY))
    near = tie * tl.abs(last)
    above = (scores > last + near) & (number > 0)
    equal = ((scores >= last - near) & (scores <= last + near) & (number > 0)).to(tl.int32)
    missing = number - tl.sum(above.to(tl.int32))
    return above | ((equal > 0) & (tl.cumsum(equal) <= missing))


@triton.jit
def _search_kernel(
    empty_ptr,
    joint_ptr,
    weights_ptr,
    low_ptr,
    high_ptr,
    labels_ptr,
    value_ptr,
    K,
    s,
    tie,
    stride_empty,
    stride_row,
    stride_k,
    stride_j,
    WIDTH: constexpr,
):
    """Try sizes one after the other until no larger one can be better.

    The bounds on larger sizes are those of :mod:`fbeta.decoding.exact`.
    """
    row = tl.program_id(0).to(tl.int64)
    joint = joint_ptr + row * stride_row
    j = tl.arange(0, WIDTH)
    low = tl.load(low_ptr).to(tl.int32)
    high = tl.load(high_ptr).to(tl.int32)
    empty = tl.load(empty_ptr + row * stride_empty).to(tl.float64)
    best = tl.where(low <= 0, empty, -INFINITY)
    values = tl.where((j == 0) & (low <= 0), empty, -INFINITY)
    last_weight = weights_ptr + K - 1
    end = tl.load(last_weight + (tl.maximum(high, 1) - 1) * K)
    size = tl.maximum(low, 1)
    scores = _scores(joint, weights_ptr + (size - 1) * K, j, K, s, stride_k, stride_j)
    go = size <= high
    while go:
        descending = tl.sort(tl.where(j < s, scores, -INFINITY), descending=True)
        value = tl.sum(tl.where(j < size, descending, 0.0))
        after = tl.maximum(tl.sum(tl.where(j == size, descending, 0.0)), 0.0)
        values = tl.where(j == size, value, values)
        best = tl.maximum(best, value)
        following = tl.minimum(size, s - 1)
        here = 1.0 / tl.load(last_weight + (size - 1) * K)
        near = (value + after) * (here * tl.load(last_weight + following * K))
        far = (value + (high - size).to(tl.float64) * after) * (here * end)
        scores = _scores(joint, weights_ptr + following * K, j, K, s, stride_k, stride_j)
        bound = tl.minimum(tl.maximum(near, far), tl.sum(scores))
        go = (size < high) & (bound > best * (1.0 + tie))
        size += 1
    tried = values > -INFINITY
    scale = tl.maximum(tl.where(tried, tl.abs(values), 0.0), tl.abs(best))
    chosen = tl.min(tl.where(tried & (values >= best - tie * scale), j, WIDTH))
    tl.store(value_ptr + row, tl.sum(tl.where(j == chosen, values, 0.0)))
    weights = weights_ptr + (tl.maximum(chosen, 1) - 1) * K
    scores = _scores(joint, weights, j, K, s, stride_k, stride_j)
    taken = _first_labels(tl.where(j < s, scores, -INFINITY), chosen, tie, j)
    tl.store(labels_ptr + row * s + j, taken.to(tl.int8), mask=j < s)


@triton.jit
def _prepare_kernel(logits, target, labels, rows, s, K, goal, logit, LABELS: constexpr):
    """Shift the scores of an instance, and sum up what its labels say.

    ``labels`` gets the probabilities of presence and of absence with shifted scores, ``rows`` the
    first five of the row's numbers.
    """
    row = tl.program_id(0).to(tl.int64)
    rows += row * ROW
    j = tl.arange(0, LABELS)
    own = j < s
    z = tl.load(logits + row * (s + K + 1) + j, mask=own, other=0.0).to(tl.float64)
    y = tl.load(target + row * s + j, mask=own, other=0).to(tl.float64)
    # the shift need not be found exactly
    z32 = z.to(tl.float32)
    low = logit - tl.max(tl.where(own, z32, -INFINITY))
    high = logit - tl.min(tl.where(own, z32, INFINITY))
    for _ in tl.static_range(HALVINGS):
        middle = (low + high) * 0.5
        mean = tl.sum(tl.where(own, 1.0 / (1.0 + tl.exp(-(z32 + middle))), 0.0))
        low, high = tl.where(mean > goal, low, middle), tl.where(mean > goal, middle, high)
    shift = ((low + high) * 0.5).to(tl.float64)
    x = z + shift
    small = tl.exp(-tl.abs(x))
    inverse = 1.0 / (1.0 + small)
    present = labels + row * (2 * s) + j
    tl.store(present, tl.where(x >= 0.0, inverse, small * inverse), mask=own)
    tl.store(present + s, tl.where(x >= 0.0, small * inverse, inverse), mask=own)
    scale = tl.sum(tl.where(own, tl.maximum(x, 0.0) - tl.log(inverse), 0.0))
    tl.store(rows, shift)
    tl.store(rows + 1, scale)
    tl.store(rows + 2, tl.sum(y * z))
    tl.store(rows + 3, tl.sum(y))
    tl.store(rows + 4, tl.max(tl.where(own, tl.abs(z), 0.0)))


@triton.jit
def _law_kernel(
    logits, labels, rows, slots, loss, grad, sizes, s, K, largest, top, SIZES: constexpr
):
    """Compute the law of the number of labels, label by label: the sizes lie in one warp.

    ``sizes`` gets, for each size c, ``R_c / R_{c-1}``, its inverse, and ``P(|y| = c)``. A row is
    marked in ``rows`` where a size is out of the range of double precision, or logits are so large
    that differences of sums of them are not accurate.
    """
    row = tl.program_id(0).to(tl.int64)
    rows += row * ROW
    i = tl.arange(0, SIZES)
    before = tl.maximum(i - 1, 0)
    law = tl.where(i == 0, 1.0, 0.0).to(tl.float64)
    present = labels + row * (2 * s)
    for j in range(s):
        p = tl.load(present + j)
        q = tl.load(present + s + j)
        law = q * law + tl.where(i > 0, p * tl.gather(law, before, 0), 0.0)
    shift = tl.load(rows)
    # labels may be shares of a row of another size, whose sum is rounded
    count = (tl.load(rows + 3) + 0.5).to(tl.int32)
    slot = tl.load(slots + i, mask=i <= largest, other=-1)
    place = logits + row * (s + K + 1) + s + slot
    potential = tl.load(place, mask=slot >= 0, other=0.0).to(tl.float64)
    size_scale = tl.max(tl.where((slot >= 0) & (potential > -INFINITY), tl.abs(potential), 0.0))
    scale_of_row = tl.maximum(tl.load(rows + 4), size_scale)
    least = tl.min(tl.where(i <= top, law, 1.0))
    marked = (least < 1e-280) | (scale_of_row > 1e4)
    tl.store(rows + 5, marked.to(tl.float64))
    known = (slot >= 0) & (law > 0.0)
    weight = tl.where(known, potential - shift * i, -INFINITY)
    weight += tl.log(tl.where(known, law, 1.0))
    highest = tl.max(weight)
    total = highest + tl.log(tl.sum(tl.exp(weight - highest)))
    share = tl.exp(weight - total)
    # beyond what double precision has, the side decides
    below = tl.gather(law, before, 0)
    edge = tl.where((law > 0.0) | (2 * i < tl.maximum(largest, 1)), 1e300, 0.0)
    ratio = tl.where(below > 0.0, law / tl.where(below > 0.0, below, 1.0), edge)
    by_size = sizes + row * (3 * SIZES) + i
    tl.store(by_size, ratio)
    tl.store(by_size + SIZES, 1.0 / tl.maximum(ratio, 1e-300))
    tl.store(by_size + 2 * SIZES, share)
    own = tl.sum(tl.where((i == count) & (slot >= 0), potential, 0.0))
    found = tl.maximum(total + tl.load(rows + 1) - tl.load(rows + 2) - own, 0.0)
    _store_sizes(loss, grad, row, found, share, count, slot, s, K, i)


@triton.jit
def _store_sizes(loss, grad, row, found, share, count, slot, s, K, i):
    """Write the loss of a row, infinite for an unknown size, and the gradient of its potentials."""
    place = tl.max(tl.where(i == count, slot, -1))
    tl.store(loss + row, tl.where(place >= 0, found, INFINITY))
    out = grad + row * (s + K + 1) + s + slot
    tl.store(out, share - tl.where(i == count, 1.0, 0.0), mask=slot >= 0)


@triton.jit
def _marginals_kernel(
    logits, target, rows, sizes, grad, s, K, largest, top, LABELS: constexpr, SIZES: constexpr
):
    """Compute the marginals of an instance from the ratios of its sizes.

    As in ``fbeta.statistics.conditional_bernoulli``: upwards for the sizes whose ratio is above the
    odds of a label, and downwards for the others, so that no error grows.
    """
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, LABELS)
    own = j < s
    z = tl.load(logits + row * (s + K + 1) + j, mask=own, other=0.0).to(tl.float64)
    y = tl.load(target + row * s + j, mask=own, other=0).to(tl.float64)
    x = z + tl.load(rows + row * ROW)
    x = tl.minimum(tl.maximum(x, -600.0), 600.0)
    odds, against = tl.where(own, tl.exp(x), 0.0), tl.where(own, tl.exp(-x), 0.0)
    by_size = sizes + row * (3 * SIZES)
    marginal, state = odds * 0.0, odds * 0.0
    for c in range(1, largest + 1):
        ratio, inverse = tl.load(by_size + c), tl.load(by_size + SIZES + c)
        state = tl.where(odds <= ratio, (1.0 - state) * (odds * inverse), 0.0)
        marginal += state * tl.load(by_size + 2 * SIZES + c)
    state = odds * 0.0
    for step in range(top):
        c = top - step
        ratio = tl.load(by_size + c)
        there = tl.where(odds > ratio, 1.0 - state, 0.0)
        state = there * (ratio * against)
        # the share of sizes beyond the largest is 0
        marginal += there * tl.load(by_size + 2 * SIZES + c)
    tl.store(grad + row * (s + K + 1) + j, tl.minimum(marginal, 1.0) - y, mask=own)


@triton.jit
def _at(values, places, place):
    """Return one of some numbers."""
    return tl.sum(tl.where(places == place, values, 0.0))


@triton.jit
def _two_sum(a, b):
    """Return a + b, and what rounding took off it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@triton.jit
def _largest_scores(u, i, j, top):
    """Return the k-th largest score at place k, and the sum of the first k in three parts.

    ``u`` has the scores in falling order; the second and third part are what rounding took off.
    """
    base = tl.zeros_like(i).to(tl.float64)
    high, middle, low = base, base, base
    zero = tl.sum(base)
    a, b, c = zero, zero, zero
    for k in range(1, top + 1):
        score = _at(u, j, k - 1)
        base = tl.where(i == k, score, base)
        a, error = _two_sum(a, score)
        b, error = _two_sum(b, error)
        c += error
        high, middle = tl.where(i == k, a, high), tl.where(i == k, b, middle)
        low = tl.where(i == k, c, low)
    return base, high, middle, low


@triton.jit
def _relative_ratios(u, base, i, j, s, top):
    """Return ratios of sizes relative to the odds of the k-th label, ``base`` in logarithms."""
    before = tl.maximum(i - 1, 0)
    ratio = tl.zeros_like(base)
    for label in range(s):
        active = (i >= 1) & (i <= label + 1) & (i <= top)
        apart = tl.minimum(_at(u, j, label) - base, 0.0)
        raised = tl.where(active, ratio + tl.exp(apart), 1.0)
        kept = tl.where(i == 0, 1.0, ratio / raised)
        ratio = tl.where(active, raised * tl.gather(kept, before, 0), 0.0)
    return ratio


@triton.jit
def _log_shares(high, middle, low, possible, i):
    """Return the logarithms of the shares of sizes, whose weights are given in three parts."""
    for _ in tl.static_range(3):
        total = tl.where(possible, high + (middle + low), -INFINITY)
        is_top = i == tl.argmax(total, 0)
        high -= tl.sum(tl.where(is_top, high, 0.0))
        middle -= tl.sum(tl.where(is_top, middle, 0.0))
        low -= tl.sum(tl.where(is_top, low, 0.0))
    total = tl.where(possible, high + (middle + low), -INFINITY)
    return total - tl.log(tl.sum(tl.exp(total)))


@triton.jit
def _missed_scores(z, y, u, j, own, count):
    """Return what the observed labels score less than as many with the largest scores."""
    observed = tl.sort(tl.where(own & (y > 0.0), z, -INFINITY), descending=True)
    missed = tl.sum(tl.where((j < count) & (observed > -INFINITY), u - observed, 0.0))
    shares = tl.sum(tl.where(own & (y != 0.0) & (y != 1.0), 1, 0)) > 0
    plain = tl.sum(tl.where(j < count, u, 0.0)) - tl.sum(tl.where(own, y * z, 0.0))
    return tl.where(shares, plain, missed)


@triton.jit
def _careful_marginals(z, base, ratio, share, i, largest, top):
    """Return the marginals as :func:`_marginals_kernel` does, from relative ratios of sizes."""
    marginal, state = z * 0.0, z * 0.0
    for k in range(1, largest + 1):
        apart = tl.minimum(z - _at(base, i, k), 700.0)
        odds = tl.exp(apart) / _at(ratio, i, k)
        state = tl.where(odds <= 1.0, (1.0 - state) * odds, 0.0)
        marginal += state * _at(share, i, k)
    state = z * 0.0
    for step in range(top):
        k = top - step
        apart = tl.minimum(z - _at(base, i, k), 700.0)
        odds = tl.exp(apart) / _at(ratio, i, k)
        there = tl.where(odds > 1.0, 1.0 - state, 0.0)
        state = there / tl.maximum(odds, 1.0)
        marginal += there * _at(share, i, k)
    return marginal


@triton.jit
def _careful_kernel(
    logits, target, rows, slots, loss, grad, s, K, largest, top, LABELS: constexpr, SIZES: constexpr
):
    """Compute loss and gradient of the rows that are marked, right at any finite logits.

    As in ``fbeta.statistics.cardinality_law``: labels are sorted, ratios of sizes are relative to
    the odds of the k-th label, and sums of scores keep what rounding takes off.
    """
    row = tl.program_id(0).to(tl.int64)
    if tl.load(rows + row * ROW + 5) > 0.0:
        i, j = tl.arange(0, SIZES), tl.arange(0, LABELS)
        own = j < s
        z = tl.load(logits + row * (s + K + 1) + j, mask=own, other=0.0).to(tl.float64)
        z = tl.minimum(tl.maximum(z, -1e300), 1e300)
        y = tl.load(target + row * s + j, mask=own, other=0).to(tl.float64)
        u = tl.sort(tl.where(own, z, -INFINITY), descending=True)
        base, high, middle, low = _largest_scores(u, i, j, top)
        ratio = _relative_ratios(u, base, i, j, s, top)
        some = (i >= 1) & (i <= top)
        logs = tl.cumsum(tl.where(some, tl.log(tl.where(some, ratio, 1.0)), 0.0))
        slot = tl.load(slots + i, mask=i <= largest, other=-1)
        place = logits + row * (s + K + 1) + s + slot
        potential = tl.load(place, mask=slot >= 0, other=-INFINITY).to(tl.float64)
        possible = potential > -INFINITY
        high, error = _two_sum(tl.where(possible, potential, 0.0), high)
        middle, error = _two_sum(middle, error)
        total = _log_shares(high, middle, low + (error + logs), possible, i)
        share = tl.exp(total)
        count = (tl.sum(y) + 0.5).to(tl.int32)
        found = _at(tl.where(possible, logs - total, 0.0), i, count)
        found = tl.maximum(found + _missed_scores(z, y, u, j, own, count), 0.0)
        _store_sizes(loss, grad, row, found, share, count, slot, s, K, i)
        marginal = _careful_marginals(z, base, ratio, share, i, largest, top)
        tl.store(grad + row * (s + K + 1) + j, tl.minimum(marginal, 1.0) - y, mask=own)


def cardinality_loss(logits: Tensor, target: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Compute the cardinality loss of each instance and its gradient.

    Shapes: ``logits`` (n, s + 1 + K), ``target`` (n, s); returns (n,), (n, s + 1 + K).
    """
    (n, s), device, K, largest = target.shape, logits.device, len(sizes), max(sizes, default=0)
    logits, target = logits.contiguous(), target.contiguous()
    target = target.view(torch.int8) if target.dtype == torch.bool else target
    wide = torch.promote_types(logits.dtype, torch.float32)
    loss = torch.empty(n, dtype=torch.float64, device=device)
    grad = torch.empty(logits.shape, dtype=wide, device=device)
    slot = torch.arange(largest + 1, device=device)
    if largest > K:
        own = size_tensor((0, *sizes), device)
        slot = torch.full_like(slot, -1).index_copy(0, own, slot[: K + 1])
    # the error at the start is at most 1, and goes down to that of the result
    bits = 56 if wide == torch.float64 else 30
    top, goal = largest + margin(largest, s, bits), max(largest, 1) / 2
    share = goal / s
    logit = log(share) - log(1 - share) if share < 1 else 0.0
    width, by_size = triton.next_power_of_2(s), triton.next_power_of_2(max(top + 1, 32))
    labels, rows, ratios = (
        torch.empty((n, m), dtype=torch.float64, device=device)
        for m in (2 * s, ROW.value, 3 * by_size)
    )
    if n:
        shape = (s, K, largest, top)
        many = {"LABELS": width, "num_warps": max(1, min(8, width // 256))}
        few = {"SIZES": by_size, "num_warps": 1}
        _prepare_kernel[(n,)](logits, target, labels, rows, s, K, goal, logit, **many)
        _law_kernel[(n,)](logits, labels, rows, slot, loss, grad, ratios, *shape, **few)
        _marginals_kernel[(n,)](logits, target, rows, ratios, grad, *shape, SIZES=by_size, **many)
        _careful_kernel[(n,)](logits, target, rows, slot, loss, grad, *shape, LABELS=width, **few)
    return loss, grad


def search(
    empty: Tensor, joint: Tensor, weights: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the best sets of dense statistics, as the decode of :mod:`fbeta.nn.decoding` does.

    Shapes: ``empty`` (n,), ``joint`` (n, K, s), ``weights`` (s, K), the limits on the number of
    labels (); returns (n, s), (n,).
    """
    device, (n, K, s) = joint.device, joint.shape
    labels = torch.empty((n, s), dtype=torch.int8, device=device)
    value = torch.empty(n, dtype=torch.float64, device=device)
    width = triton.next_power_of_2(s + 1)
    if n:
        tensors = (empty, joint, weights.contiguous(), low, high, labels, value)
        strides = (empty.stride(0), *joint.stride())
        tie, warps = TIE_UNITS * torch.finfo(torch.float64).eps, max(1, min(8, width // 256))
        _search_kernel[(n,)](*tensors, K, s, tie, *strides, WIDTH=width, num_warps=warps)
    return labels, value
