"""Kernels in Triton: one program for each instance, which decides for itself when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from fbeta._search import TIE_UNITS
from fbeta.nn._sizes import size_tensor

__all__ = ["cardinality_loss", "margin", "search"]


@triton.jit
def _scores(joint, k_ptr, weight_k, weight_l, size, j, K, s, stride_k, stride_j):
    """Return the scores of the labels for predictions of a size, up to a factor."""
    scores = tl.zeros_like(j).to(tl.float64)
    for i in range(K):
        k = tl.load(k_ptr + i).to(tl.float64)
        q = tl.load(joint + i * stride_k + j * stride_j, mask=j < s, other=0.0).to(tl.float64)
        scores += q / (weight_k * k + weight_l * size)
    return scores


@triton.jit
def _search_kernel(
    empty_ptr, joint_ptr, k_ptr, beta_ptr, low_ptr, high_ptr, labels_ptr, value_ptr,
    K, s, tie, stride_empty, stride_row, stride_k, stride_j, WIDTH: tl.constexpr,
):  # fmt: skip
    """Try sizes one after the other until no larger one can be better.

    The bounds are those of ``fbeta._search._IntervalSearch``: with V the value at size l and tau
    the next score, no set of m > l labels is worth more than ``g(m) (V + (m - l) tau)``, which is
    largest at one of the ends, nor than ``sum_k A(k, m) S_k``.
    """
    row = tl.program_id(0).to(tl.int64)
    joint = joint_ptr + row * stride_row
    j = tl.arange(0, WIDTH)
    beta = tl.load(beta_ptr).to(tl.float64)
    low = tl.load(low_ptr).to(tl.int32)
    high = tl.load(high_ptr).to(tl.int32)
    # the square of beta, or that of its inverse, is in range
    weight_k = tl.where(beta <= 1.0, beta * beta, 1.0)
    weight_l = tl.where(beta <= 1.0, 1.0, (1.0 / beta) * (1.0 / beta))
    factor = weight_k + weight_l
    infinity = float("inf")
    empty = tl.load(empty_ptr + row * stride_empty).to(tl.float64)
    best = tl.where(low <= 0, empty, -infinity)
    values = tl.where((j == 0) & (low <= 0), empty, -infinity)
    largest = tl.load(k_ptr + K - 1).to(tl.float64)
    size = tl.maximum(low, 1)
    scores = factor * _scores(
        joint, k_ptr, weight_k, weight_l, size.to(tl.float64), j, K, s, stride_k, stride_j
    )
    go = size <= high
    while go:
        length = size.to(tl.float64)
        descending = tl.sort(tl.where(j < s, scores, -infinity), descending=True)
        value = tl.sum(tl.where(j < size, descending, 0.0))
        after = tl.maximum(tl.sum(tl.where(j == size, descending, 0.0)), 0.0)
        values = tl.where(j == size, value, values)
        best = tl.maximum(best, value)
        rest = (high - size).to(tl.float64)
        base = weight_k * largest + weight_l * length
        near = (value + after) * (base / (base + weight_l))
        far = (value + rest * after) * (base / (base + weight_l * rest))
        scores = factor * _scores(
            joint, k_ptr, weight_k, weight_l, length + 1.0, j, K, s, stride_k, stride_j
        )
        bound = tl.minimum(tl.maximum(near, far), tl.sum(scores))
        go = (size < high) & (bound > best * (1.0 + tie))
        size += 1
    tried = values > -infinity
    scale = tl.maximum(tl.where(tried, tl.abs(values), 0.0), tl.abs(best))
    chosen = tl.min(tl.where(tried & (values >= best - tie * scale), j, WIDTH))
    tl.store(value_ptr + row, tl.sum(tl.where(j == chosen, values, 0.0)))
    length = tl.maximum(chosen, 1).to(tl.float64)
    scores = _scores(joint, k_ptr, weight_k, weight_l, length, j, K, s, stride_k, stride_j)
    scores = tl.where(j < s, scores, -infinity)
    descending = tl.sort(scores, descending=True)
    last = tl.max(tl.where(j == chosen - 1, descending, -infinity))
    above = (scores > last) & (chosen > 0)
    equal = ((scores == last) & (chosen > 0)).to(tl.int32)
    missing = chosen - tl.sum(above.to(tl.int32))
    order = tl.cumsum(equal)
    taken = above | ((equal > 0) & (order <= missing))
    tl.store(labels_ptr + row * s + j, taken.to(tl.int8), mask=j < s)


@triton.jit
def _compose(a1, b1, c1, d1, a2, b2, c2, d2):
    """Join the steps ``x -> a x + b`` of two runs of labels, and ``c x + d`` without their last."""
    return a1 * a2, a2 * b1 + b2, c2 * a1, c2 * b1 + d2


@triton.jit
def _ratio(law, i, c, target):
    """Return ``R_c / R_{c-1}``; beyond what double precision has, the side decides."""
    above = tl.sum(tl.where(i == c, law, 0.0))
    below = tl.sum(tl.where(i == c - 1, law, 0.0))
    edge = tl.where((above > 0.0) | (c < target), 1e300, 0.0)
    return tl.where(below > 0.0, above / tl.where(below > 0.0, below, 1.0), edge)


@triton.jit
def _cardinality_kernel(
    logits_ptr, target_ptr, slot_ptr, loss_ptr, residual_ptr, s, K, largest, top, goal, logit,
    stride_logits, stride_target, HALVINGS: tl.constexpr, LABELS: tl.constexpr,
    SIZES: tl.constexpr,
):  # fmt: skip
    """Compute the loss of an instance, and what is expected less what is observed.

    Sizes come one after the other, and for each of them the recurrence over labels is a scan. The
    marginals follow from the ratios of the elementary symmetric polynomials alone, as in
    ``fbeta._bernoulli.ConditionalLaw``.
    """
    row = tl.program_id(0).to(tl.int64)
    j, i = tl.arange(0, LABELS), tl.arange(0, SIZES)
    infinity = float("inf")
    logits = logits_ptr + row * stride_logits
    z = tl.load(logits + j, mask=j < s, other=0.0).to(tl.float64)
    y = tl.load(target_ptr + row * stride_target + j, mask=j < s, other=0).to(tl.float64)
    # the move of the scores, which need not be found exactly
    z32 = z.to(tl.float32)
    low = logit - tl.max(tl.where(j < s, z32, -infinity))
    high = logit - tl.min(tl.where(j < s, z32, infinity))
    for _ in tl.static_range(HALVINGS):
        middle = (low + high) * 0.5
        mean = tl.sum(tl.where(j < s, 1.0 / (1.0 + tl.exp(-(z32 + middle))), 0.0))
        low, high = tl.where(mean > goal, low, middle), tl.where(mean > goal, middle, high)
    move = ((low + high) * 0.5).to(tl.float64)
    x = z + move
    small = tl.exp(-tl.abs(x))
    present = tl.where(j < s, tl.where(x >= 0.0, 1.0, small) / (1.0 + small), 0.0)
    absent = tl.where(j < s, tl.where(x >= 0.0, small, 1.0) / (1.0 + small), 1.0)
    scale = tl.sum(tl.where(j < s, tl.maximum(x, 0.0) + tl.log(1.0 + small), 0.0))
    # the law of the number of labels
    zero, one = present * 0.0, present * 0.0 + 1.0
    product, _b, before, _d = tl.associative_scan((absent, zero, one, zero), 0, _compose)
    law = tl.where(i == 0, tl.sum(tl.where(j == LABELS - 1, product, 0.0)), 0.0)
    for c in range(1, top + 1):
        _a, added, _c, before = tl.associative_scan(
            (absent, present * before, one, zero), 0, _compose
        )
        law = tl.where(i == c, tl.sum(tl.where(j == LABELS - 1, added, 0.0)), law)
    # the law of the model
    slot = tl.load(slot_ptr + i, mask=i <= largest, other=-1)
    potential = tl.load(logits + s + slot, mask=slot >= 0, other=0.0).to(tl.float64)
    known = (slot >= 0) & (law > 0.0)
    weight = tl.where(known, potential - move * i, -infinity)
    weight += tl.log(tl.where(known, law, 1.0))
    highest = tl.max(weight)
    total = highest + tl.log(tl.sum(tl.exp(weight - highest)))
    share = tl.exp(weight - total)
    # the marginals: upwards for sizes with odds below the ratio, downwards for the others
    odds = tl.where(j < s, tl.exp(tl.minimum(tl.maximum(x, -600.0), 600.0)), 0.0)
    marginal, state = zero, zero
    for c in range(1, largest + 1):
        ratio = _ratio(law, i, c, goal)
        state = (1.0 - state) * tl.where(odds <= ratio, odds / tl.maximum(ratio, 1e-300), 0.0)
        marginal += state * tl.sum(tl.where(i == c, share, 0.0))
    state = zero
    for step in range(top):
        c = top - step
        ratio = _ratio(law, i, c, goal)
        down = odds > ratio
        there = tl.where(down, 1.0 - state, 0.0)
        state = there * tl.where(down, ratio / odds, 0.0)
        marginal += there * tl.sum(tl.where((i == c) & (i <= largest), share, 0.0))
    # what is observed
    count = tl.sum(y).to(tl.int32)
    own = tl.max(tl.where(i == count, slot, -1))
    seen = tl.sum(tl.where(i == count, tl.where(slot >= 0, potential, 0.0), 0.0))
    loss = total + scale - tl.sum(y * z) - seen
    tl.store(loss_ptr + row, tl.where(own >= 0, tl.maximum(loss, 0.0), infinity))
    residual = residual_ptr + row * (s + K + 1)
    tl.store(residual + j, tl.minimum(marginal, 1.0) - y, mask=j < s)
    tl.store(residual + s + slot, share - tl.where(i == count, 1.0, 0.0), mask=slot >= 0)


def cardinality_loss(
    logits: Tensor, target: Tensor, sizes: Sequence[int], halvings: int
) -> tuple[Tensor, Tensor]:
    """Compute the cardinality loss of each instance and its gradient.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        Scores and potentials.
    target : tensor of shape (n, s)
        Labels.
    sizes : sequence of K int
        Increasing sizes.
    halvings : int
        Of the interval in which the move of the scores is looked for.

    Returns
    -------
    loss : tensor of shape (n,)
        In double precision.
    residual : tensor of shape (n, s + 1 + K)
        In double precision for such logits, else in single.
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
    if n:
        _cardinality_kernel[(n,)](
            logits, target, slot, loss, residual, s, len(sizes), largest, top, goal,
            log(share) - log(1 - share) if share < 1 else 0.0, logits.stride(0),
            target.stride(0), HALVINGS=halvings, LABELS=labels,
            SIZES=triton.next_power_of_2(top + 1), num_warps=max(1, min(8, labels // 256)),
        )  # fmt: skip
    return loss, residual


def search(
    empty: Tensor,
    joint: Tensor,
    cardinalities: Sequence[int],
    beta: Tensor,
    low: Tensor,
    high: Tensor,
) -> tuple[Tensor, Tensor]:
    """Find the best sets of dense statistics, as the decode of :mod:`fbeta.nn.decoding` does.

    Parameters
    ----------
    empty : tensor of shape (n,)
    joint : tensor of shape (n, K, s)
        Statistics, with K > 0.
    cardinalities : sequence of K int
        The sizes.
    beta, low, high : tensor without axes
        On the device.

    Returns
    -------
    labels : int8 tensor of shape (n, s)
    value : tensor of shape (n,)
    """
    device, (n, K, s) = joint.device, joint.shape
    labels = torch.empty((n, s), dtype=torch.int8, device=device)
    value = torch.empty(n, dtype=torch.float64, device=device)
    width = triton.next_power_of_2(s + 1)
    if n:
        _search_kernel[(n,)](
            empty, joint, size_tensor(cardinalities, device), beta, low, high, labels, value,
            K, s, TIE_UNITS * torch.finfo(torch.float64).eps, empty.stride(0), *joint.stride(),
            WIDTH=width, num_warps=max(1, min(8, width // 256)),
        )  # fmt: skip
    return labels, value


def margin(largest: int, s: int, bits: int) -> int:
    """Return how many sizes beyond the largest the way down needs to forget where it started.

    As ``fbeta._bernoulli`` has it: ratios fall at least so fast, by Newton's inequality.

    Examples
    --------
    >>> margin(3, 100, 24) < margin(3, 100, 56)
    True
    """
    error, steps = 0.0, 0
    while 0 < largest < s - steps and error > -bits * log(2.0):
        steps += 1
        error += log(largest / (largest + steps) * (s - largest - steps + 1) / (s - largest + 1))
    return steps
