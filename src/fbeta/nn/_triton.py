"""Kernels in Triton: one program for each instance, which decides for itself when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from fbeta.decoding.dense_search import TIE_UNITS
from fbeta.nn._sizes import size_tensor
from fbeta.statistics.conditional_bernoulli import margin

__all__ = ["cardinality_loss", "search"]

# halvings of the interval in which the move of the scores is looked for: it need not be exact
MOVE_HALVINGS = 8
# numbers that a row keeps between the kernels
ROW_VALUES = 6


@triton.jit
def _scores(joint, weights, j, K, s, stride_k, stride_j):
    """Return the scores of the labels for predictions of one size."""
    scores = tl.zeros_like(j).to(tl.float64)
    for i in range(K):
        q = tl.load(joint + i * stride_k + j * stride_j, mask=j < s, other=0.0).to(tl.float64)
        scores += q * tl.load(weights + i)
    return scores


@triton.jit
def _search_kernel(
    empty_ptr, joint_ptr, weights_ptr, low_ptr, high_ptr, labels_ptr, value_ptr, K, s, tie,
    stride_empty, stride_row, stride_k, stride_j, WIDTH: tl.constexpr,
):  # fmt: skip
    """Try sizes one after the other until no larger one can be better.

    The bounds are those of ``fbeta.decoding.dense_search``: with V the value at size l and tau the
    next score, no set of m > l labels is worth more than ``g(m) (V + (m - l) tau)``, which is
    largest at one of the ends, nor than ``sum_k A(k, l + 1) S_k``. As ``A(k, m) / A(k, l)`` grows
    with k, g is that ratio for the largest k.
    """
    row = tl.program_id(0).to(tl.int64)
    joint = joint_ptr + row * stride_row
    j = tl.arange(0, WIDTH)
    low = tl.load(low_ptr).to(tl.int32)
    high = tl.load(high_ptr).to(tl.int32)
    infinity = float("inf")
    empty = tl.load(empty_ptr + row * stride_empty).to(tl.float64)
    best = tl.where(low <= 0, empty, -infinity)
    values = tl.where((j == 0) & (low <= 0), empty, -infinity)
    last_weight = weights_ptr + K - 1
    end = tl.load(last_weight + (tl.maximum(high, 1) - 1) * K)
    size = tl.maximum(low, 1)
    scores = _scores(joint, weights_ptr + (size - 1) * K, j, K, s, stride_k, stride_j)
    go = size <= high
    while go:
        descending = tl.sort(tl.where(j < s, scores, -infinity), descending=True)
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
    tried = values > -infinity
    scale = tl.maximum(tl.where(tried, tl.abs(values), 0.0), tl.abs(best))
    chosen = tl.min(tl.where(tried & (values >= best - tie * scale), j, WIDTH))
    tl.store(value_ptr + row, tl.sum(tl.where(j == chosen, values, 0.0)))
    weights = weights_ptr + (tl.maximum(chosen, 1) - 1) * K
    scores = _scores(joint, weights, j, K, s, stride_k, stride_j)
    scores = tl.where(j < s, scores, -infinity)
    descending = tl.sort(scores, descending=True)
    last = tl.max(tl.where(j == chosen - 1, descending, -infinity))
    near = tie * tl.abs(last)
    above = (scores > last + near) & (chosen > 0)
    equal = ((scores >= last - near) & (scores <= last + near) & (chosen > 0)).to(tl.int32)
    missing = chosen - tl.sum(above.to(tl.int32))
    order = tl.cumsum(equal)
    taken = above | ((equal > 0) & (order <= missing))
    tl.store(labels_ptr + row * s + j, taken.to(tl.int8), mask=j < s)


@triton.jit
def _prepare_kernel(
    logits_ptr, target_ptr, present_ptr, absent_ptr, row_ptr, s, goal, logit, stride_logits,
    stride_target, ROW: tl.constexpr, HALVINGS: tl.constexpr, LABELS: tl.constexpr,
):  # fmt: skip
    """Move the scores of an instance, and sum up what its labels say.

    A row of ``row_ptr`` gets the move, what that takes out of the partition function, the score of
    the observed labels, their number, and the largest absolute score.
    """
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, LABELS)
    own = j < s
    infinity = float("inf")
    z = tl.load(logits_ptr + row * stride_logits + j, mask=own, other=0.0).to(tl.float64)
    y = tl.load(target_ptr + row * stride_target + j, mask=own, other=0).to(tl.float64)
    # the move need not be found exactly
    z32 = z.to(tl.float32)
    low = logit - tl.max(tl.where(own, z32, -infinity))
    high = logit - tl.min(tl.where(own, z32, infinity))
    for _ in tl.static_range(HALVINGS):
        middle = (low + high) * 0.5
        mean = tl.sum(tl.where(own, 1.0 / (1.0 + tl.exp(-(z32 + middle))), 0.0))
        low, high = tl.where(mean > goal, low, middle), tl.where(mean > goal, middle, high)
    move = ((low + high) * 0.5).to(tl.float64)
    x = z + move
    small = tl.exp(-tl.abs(x))
    inverse = 1.0 / (1.0 + small)
    tl.store(present_ptr + row * s + j, tl.where(x >= 0.0, inverse, small * inverse), mask=own)
    tl.store(absent_ptr + row * s + j, tl.where(x >= 0.0, small * inverse, inverse), mask=own)
    scale = tl.sum(tl.where(own, tl.maximum(x, 0.0) - tl.log(inverse), 0.0))
    tl.store(row_ptr + row * ROW, move)
    tl.store(row_ptr + row * ROW + 1, scale)
    tl.store(row_ptr + row * ROW + 2, tl.sum(y * z))
    tl.store(row_ptr + row * ROW + 3, tl.sum(y))
    tl.store(row_ptr + row * ROW + 4, tl.max(tl.where(own, tl.abs(z), 0.0)))


@triton.jit
def _law_kernel(
    logits_ptr, present_ptr, absent_ptr, row_ptr, slot_ptr, loss_ptr, residual_ptr, size_ptr,
    s, K, largest, top, goal, stride_logits, ROW: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """Compute the law of the number of labels, label by label: the sizes lie in one warp.

    ``size_ptr`` gets, for each size c, ``R_c / R_{c-1}``, its inverse, and ``P(|y| = c)``. A row is
    marked in ``row_ptr`` where a size is out of the range of double precision, or logits are so
    large that differences of sums of them are not accurate.
    """
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, SIZES)
    infinity = float("inf")
    before = tl.maximum(i - 1, 0)
    law = tl.where(i == 0, 1.0, 0.0).to(tl.float64)
    for j in range(s):
        p = tl.load(present_ptr + row * s + j)
        q = tl.load(absent_ptr + row * s + j)
        law = q * law + tl.where(i > 0, p * tl.gather(law, before, 0), 0.0)
    move = tl.load(row_ptr + row * ROW)
    scale = tl.load(row_ptr + row * ROW + 1)
    observed = tl.load(row_ptr + row * ROW + 2)
    # labels may be shares of a row of another size, whose sum is rounded
    count = (tl.load(row_ptr + row * ROW + 3) + 0.5).to(tl.int32)
    slot = tl.load(slot_ptr + i, mask=i <= largest, other=-1)
    potential = tl.load(logits_ptr + row * stride_logits + s + slot, mask=slot >= 0, other=0.0).to(
        tl.float64
    )
    size_scale = tl.max(tl.where((slot >= 0) & (potential > -infinity), tl.abs(potential), 0.0))
    scale_of_row = tl.maximum(tl.load(row_ptr + row * ROW + 4), size_scale)
    least = tl.min(tl.where(i <= top, law, 1.0))
    marked = (least < 1e-280) | (scale_of_row > 1e4)
    tl.store(row_ptr + row * ROW + 5, marked.to(tl.float64))
    known = (slot >= 0) & (law > 0.0)
    weight = tl.where(known, potential - move * i, -infinity)
    weight += tl.log(tl.where(known, law, 1.0))
    highest = tl.max(weight)
    total = highest + tl.log(tl.sum(tl.exp(weight - highest)))
    share = tl.exp(weight - total)
    # beyond what double precision has, the side decides
    below = tl.gather(law, before, 0)
    edge = tl.where((law > 0.0) | (i < goal), 1e300, 0.0)
    ratio = tl.where(below > 0.0, law / tl.where(below > 0.0, below, 1.0), edge)
    sizes = size_ptr + row * (3 * SIZES) + i
    tl.store(sizes, ratio)
    tl.store(sizes + SIZES, 1.0 / tl.maximum(ratio, 1e-300))
    tl.store(sizes + 2 * SIZES, share)
    place = tl.max(tl.where(i == count, slot, -1))
    own = tl.sum(tl.where((i == count) & (slot >= 0), potential, 0.0))
    loss = tl.maximum(total + scale - observed - own, 0.0)
    tl.store(loss_ptr + row, tl.where(place >= 0, loss, infinity))
    residual = residual_ptr + row * (s + K + 1) + s
    tl.store(residual + slot, share - tl.where(i == count, 1.0, 0.0), mask=slot >= 0)


@triton.jit
def _marginals_kernel(
    logits_ptr, target_ptr, row_ptr, size_ptr, residual_ptr, s, K, largest, top, stride_logits,
    stride_target, ROW: tl.constexpr, LABELS: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """Compute the marginals of an instance from the ratios of its sizes.

    As in ``fbeta.statistics.conditional_bernoulli``: upwards for the sizes whose ratio is above the
    odds of a label, and downwards for the others, so that no error grows.
    """
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, LABELS)
    own = j < s
    z = tl.load(logits_ptr + row * stride_logits + j, mask=own, other=0.0).to(tl.float64)
    y = tl.load(target_ptr + row * stride_target + j, mask=own, other=0).to(tl.float64)
    x = z + tl.load(row_ptr + row * ROW)
    x = tl.minimum(tl.maximum(x, -600.0), 600.0)
    odds, against = tl.where(own, tl.exp(x), 0.0), tl.where(own, tl.exp(-x), 0.0)
    sizes = size_ptr + row * (3 * SIZES)
    marginal, state = odds * 0.0, odds * 0.0
    for c in range(1, largest + 1):
        ratio, inverse = tl.load(sizes + c), tl.load(sizes + SIZES + c)
        state = tl.where(odds <= ratio, (1.0 - state) * (odds * inverse), 0.0)
        marginal += state * tl.load(sizes + 2 * SIZES + c)
    state = odds * 0.0
    for step in range(top):
        c = top - step
        ratio = tl.load(sizes + c)
        there = tl.where(odds > ratio, 1.0 - state, 0.0)
        state = there * (ratio * against)
        # the share of sizes beyond the largest is 0
        marginal += there * tl.load(sizes + 2 * SIZES + c)
    residual = residual_ptr + row * (s + K + 1)
    tl.store(residual + j, tl.minimum(marginal, 1.0) - y, mask=own)


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
def _far_apart_kernel(
    logits_ptr, target_ptr, row_ptr, slot_ptr, loss_ptr, residual_ptr, s, K, largest, top,
    stride_logits, stride_target, ROW: tl.constexpr, LABELS: tl.constexpr, SIZES: tl.constexpr,
):  # fmt: skip
    """Compute loss and gradient of the rows that are marked, right at any finite logits.

    As in ``fbeta.statistics.cardinality_law``: labels are sorted, ratios of sizes are relative to
    the odds of the k-th label, and sums of scores keep what rounding takes off.
    """
    row = tl.program_id(0).to(tl.int64)
    if tl.load(row_ptr + row * ROW + 5) > 0.0:
        i, j = tl.arange(0, SIZES), tl.arange(0, LABELS)
        own = j < s
        infinity = float("inf")
        z = tl.load(logits_ptr + row * stride_logits + j, mask=own, other=0.0).to(tl.float64)
        z = tl.minimum(tl.maximum(z, -1e300), 1e300)
        y = tl.load(target_ptr + row * stride_target + j, mask=own, other=0).to(tl.float64)
        u = tl.sort(tl.where(own, z, -infinity), descending=True)
        before = tl.maximum(i - 1, 0)
        base = tl.zeros_like(i).to(tl.float64)
        high, middle, low = base, base, base
        a, b, c = tl.sum(y) * 0.0, tl.sum(y) * 0.0, tl.sum(y) * 0.0
        for k in range(1, top + 1):
            score = _at(u, j, k - 1)
            base = tl.where(i == k, score, base)
            a, error = _two_sum(a, score)
            b, error = _two_sum(b, error)
            c += error
            high, middle = tl.where(i == k, a, high), tl.where(i == k, b, middle)
            low = tl.where(i == k, c, low)
        ratio = tl.zeros_like(base)
        for label in range(s):
            active = (i >= 1) & (i <= label + 1) & (i <= top)
            apart = tl.minimum(_at(u, j, label) - base, 0.0)
            raised = tl.where(active, ratio + tl.exp(apart), 1.0)
            kept = tl.where(i == 0, 1.0, ratio / raised)
            ratio = tl.where(active, raised * tl.gather(kept, before, 0), 0.0)
        some = (i >= 1) & (i <= top)
        logs = tl.cumsum(tl.where(some, tl.log(tl.where(some, ratio, 1.0)), 0.0))
        slot = tl.load(slot_ptr + i, mask=i <= largest, other=-1)
        place = logits_ptr + row * stride_logits + s + slot
        potential = tl.load(place, mask=slot >= 0, other=-infinity).to(tl.float64)
        possible = potential > -infinity
        high, error = _two_sum(tl.where(possible, potential, 0.0), high)
        middle, error = _two_sum(middle, error)
        low += error + logs
        for _ in tl.static_range(3):
            total = tl.where(possible, high + (middle + low), -infinity)
            is_top = i == tl.argmax(total, 0)
            high -= tl.sum(tl.where(is_top, high, 0.0))
            middle -= tl.sum(tl.where(is_top, middle, 0.0))
            low -= tl.sum(tl.where(is_top, low, 0.0))
        total = tl.where(possible, high + (middle + low), -infinity)
        total -= tl.log(tl.sum(tl.exp(total)))
        share = tl.exp(total)
        number = tl.sum(y)
        count = (number + 0.5).to(tl.int32)
        # the labels of the row against as many with the largest scores
        observed = tl.sort(tl.where(own & (y > 0.0), z, -infinity), descending=True)
        missed = tl.sum(tl.where((j < count) & (observed > -infinity), u - observed, 0.0))
        shares = tl.sum(tl.where(own & (y != 0.0) & (y != 1.0), 1, 0)) > 0
        plain = tl.sum(tl.where(j < count, u, 0.0)) - tl.sum(tl.where(own, y * z, 0.0))
        missed = tl.where(shares, plain, missed)
        place_of_row = tl.max(tl.where(i == count, slot, -1))
        loss = _at(tl.where(possible, logs - total, 0.0), i, count) + missed
        loss = tl.where(place_of_row >= 0, tl.maximum(loss, 0.0), infinity)
        tl.store(loss_ptr + row, loss)
        residual = residual_ptr + row * (s + K + 1)
        tl.store(residual + s + slot, share - tl.where(i == count, 1.0, 0.0), mask=slot >= 0)
        marginal, state = y * 0.0, y * 0.0
        for k in range(1, largest + 1):
            apart = tl.minimum(z - _at(base, i, k), 700.0)
            odds = tl.exp(apart) / _at(ratio, i, k)
            state = tl.where(odds <= 1.0, (1.0 - state) * odds, 0.0)
            marginal += state * _at(share, i, k)
        state = y * 0.0
        for step in range(top):
            k = top - step
            apart = tl.minimum(z - _at(base, i, k), 700.0)
            odds = tl.exp(apart) / _at(ratio, i, k)
            there = tl.where(odds > 1.0, 1.0 - state, 0.0)
            state = there / tl.maximum(odds, 1.0)
            marginal += there * _at(share, i, k)
        tl.store(residual + j, tl.minimum(marginal, 1.0) - y, mask=own)


def cardinality_loss(logits: Tensor, target: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Compute the cardinality loss of each instance and its gradient.

    Shapes: ``logits`` (n, s + 1 + K), ``target`` (n, s); returns (n,), (n, s + 1 + K).
    """
    (n, s), device, largest = target.shape, logits.device, max(sizes, default=0)
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    target = target if target.stride(1) == 1 else target.contiguous()
    target = target.view(torch.int8) if target.dtype == torch.bool else target
    wide = torch.promote_types(logits.dtype, torch.float32)
    loss = torch.empty(n, dtype=torch.float64, device=device)
    residual = torch.empty(logits.shape, dtype=wide, device=device)
    slot = torch.arange(largest + 1, device=device)
    if len(sizes) < largest:
        own = size_tensor((0, *sizes), device)
        slot = torch.full_like(slot, -1).index_copy(0, own, slot[: len(sizes) + 1])
    # the error at the start is at most 1, and goes down to that of the result
    bits = 56 if wide == torch.float64 else 30
    top, goal = largest + margin(largest, s, bits), max(largest, 1) / 2
    share = goal / s
    labels = triton.next_power_of_2(s)
    width, warps = triton.next_power_of_2(max(top + 1, 32)), max(1, min(8, labels // 256))
    present, absent, row, size = (
        torch.empty((n, m), dtype=torch.float64, device=device)
        for m in (s, s, ROW_VALUES, 3 * width)
    )
    strides = (logits.stride(0), target.stride(0))
    if n:
        _prepare_kernel[(n,)](
            logits, target, present, absent, row, s, goal,
            log(share) - log(1 - share) if share < 1 else 0.0, *strides,
            ROW=ROW_VALUES, HALVINGS=MOVE_HALVINGS, LABELS=labels, num_warps=warps,
        )  # fmt: skip
        _law_kernel[(n,)](
            logits, present, absent, row, slot, loss, residual, size, s, len(sizes), largest,
            top, goal, strides[0], ROW=ROW_VALUES, SIZES=width, num_warps=1,
        )  # fmt: skip
        _marginals_kernel[(n,)](
            logits, target, row, size, residual, s, len(sizes), largest, top, *strides,
            ROW=ROW_VALUES, LABELS=labels, SIZES=width, num_warps=warps,
        )  # fmt: skip
        _far_apart_kernel[(n,)](
            logits, target, row, slot, loss, residual, s, len(sizes), largest, top, *strides,
            ROW=ROW_VALUES, LABELS=labels, SIZES=width, num_warps=1,
        )  # fmt: skip
    return loss, residual


def search(
    empty: Tensor,
    joint: Tensor,
    weights: Tensor,
    low: Tensor,
    high: Tensor,
) -> tuple[Tensor, Tensor]:
    """Find the best sets of dense statistics, as the decode of :mod:`fbeta.nn.decoding` does.

    Shapes: ``empty`` (n,), ``joint`` (n, K, s), ``weights`` (s, K); returns (n, s), (n,).
    """
    device, (n, K, s) = joint.device, joint.shape
    labels = torch.empty((n, s), dtype=torch.int8, device=device)
    value = torch.empty(n, dtype=torch.float64, device=device)
    width = triton.next_power_of_2(s + 1)
    if n:
        _search_kernel[(n,)](
            empty, joint, weights.contiguous(), low, high, labels, value, K, s,
            TIE_UNITS * torch.finfo(torch.float64).eps, empty.stride(0), *joint.stride(),
            WIDTH=width, num_warps=max(1, min(8, width // 256)),
        )  # fmt: skip
    return labels, value
