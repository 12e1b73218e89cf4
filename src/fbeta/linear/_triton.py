"""Kernels in Triton: a step of conjugate gradients, and logistic losses, in one launch each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ENTRIES = 2048  # of each matrix, for a program
ROWS_PER_PROGRAM = 64  # rows of scores that a program goes through


@triton.jit(do_not_specialize=["n", "m"])
def _advance_kernel(
    x_ptr,
    r_ptr,
    p_ptr,
    q_ptr,
    penalty_ptr,
    inverse_ptr,
    means_ptr,
    small_ptr,
    rz_ptr,
    lower_ptr,
    upper_ptr,
    active_ptr,
    limit_ptr,
    share_ptr,
    n,
    m,
    inverse_norm,
    forcing,
    unseen_radius,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Do what ``Iterates.advance`` does after the product with the Hessians."""
    i = tl.arange(0, HEIGHT)[:, None]
    # one number for each problem is a row, too: all tensors have two axes
    j = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    mine = j < m
    inside = (i < n) & mine
    at = i * m + j
    p = tl.load(p_ptr + at, mask=inside, other=0.0)
    q = tl.load(q_ptr + at, mask=inside, other=0.0)
    q += tl.load(penalty_ptr + i, mask=i < n, other=0.0) * p
    bend = tl.sum(p * q, axis=0, keep_dims=True).to(tl.float64)
    rz = tl.load(rz_ptr + j, mask=mine, other=0.0)
    # a direction without curvature ends the iteration: the rest is rounding error
    going = (tl.load(active_ptr + j, mask=mine, other=0) != 0) & (bend > 0)
    length = tl.where(going, rz / tl.where(going, bend, 1.0), 0.0)
    wide = length.to(p.dtype)
    x = tl.load(x_ptr + at, mask=inside, other=0.0) + wide * p
    tl.store(x_ptr + at, x, mask=inside)
    r = tl.load(r_ptr + at, mask=inside, other=0.0) - wide * q
    tl.store(r_ptr + at, r, mask=inside)
    # the preconditioner: the intercept, which is the last row, is eliminated exactly
    means = tl.load(means_ptr + at, mask=inside, other=0.0)
    small = tl.load(small_ptr + j, mask=mine, other=0.0)
    last = tl.sum(tl.where(i == n - 1, r, 0.0), axis=0, keep_dims=True)
    own = small * last
    rest = r - means * own
    z = tl.load(inverse_ptr + at, mask=inside, other=0.0) * rest
    offset = own - small * tl.sum(means * z, axis=0, keep_dims=True)
    new = (tl.sum(rest * z, axis=0, keep_dims=True) + last * own).to(tl.float64)
    z = tl.where(i == n - 1, offset, z)
    ratio = tl.where(going, new / tl.where(going, rz, 1.0), 0.0)
    tl.store(p_ptr + at, z + ratio.to(p.dtype) * p, mask=inside)
    # the estimates, and which problems need another step
    lower = tl.load(lower_ptr + j, mask=mine, other=0.0) + length * rz
    after = tl.where(going, new, 0.0)
    upper = lower + inverse_norm * after
    limit = tl.load(limit_ptr + j, mask=mine, other=0.0)
    accurate = (after <= tl.load(share_ptr + j, mask=mine, other=0.0)) & (lower > limit)
    accurate &= (after <= 0.3 * limit) | (lower > unseen_radius * limit)
    active = (upper > limit) & (after > 0) & ~(accurate | (upper <= (1 + forcing) * lower))
    tl.store(rz_ptr + j, after, mask=mine)
    tl.store(lower_ptr + j, lower, mask=mine)
    tl.store(upper_ptr + j, upper, mask=mine)
    tl.store(active_ptr + j, active.to(tl.int8), mask=mine)


def advance(now: Any, q: Tensor, numbers: tuple[float, ...]) -> None:
    """Take a step of conjugate gradients in place, by products q of p and unpenalised Hessians.

    ``numbers`` are the assumed norm of the inverse, forcing and the unseen radius.
    """
    made, penalty = now.preconditioner, now.batch.penalty.to(q.dtype)
    fixed = (penalty, made.inverse, made.means[0], made.small[:, 0, 0])
    arrays, thresholds = (now.x, now.r, now.p), (now.limit, now.share)
    state = (now.rz, now.lower, now.upper, now.active.view(torch.int8))
    n, m = arrays[0].shape
    height = triton.next_power_of_2(n)
    width = min(64, max(2, TILE_ENTRIES // height))
    given = (t.contiguous() for t in (q, *fixed))
    grid = (triton.cdiv(m, width),)
    with torch.cuda.device_of(q):  # nothing in Triton's interpreter
        _advance_kernel[grid](
            *arrays, *given, *state, *thresholds, n, m, *numbers, HEIGHT=height, WIDTH=width
        )


@triton.jit(do_not_specialize=["n", "m"])
def _logistic_kernel(
    y_ptr,
    u_ptr,
    cautious_ptr,
    g_ptr,
    h_ptr,
    value_ptr,
    total_ptr,
    n,
    m,
    CAUTIOUS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Evaluate some rows of some problems, one row after the other; those with y = NaN are 0."""
    j = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    part = tl.program_id(1)
    mine = j < m
    value = tl.zeros([WIDTH], tl.float64)
    total = tl.zeros([WIDTH], tl.float64)
    careful = mine
    if CAUTIOUS:
        careful = tl.load(cautious_ptr + j, mask=mine, other=0) != 0
    for k in range(ROWS):
        row = part.to(tl.int64) * ROWS + k
        inside = mine & (row < n)
        at = row * m + j
        u = tl.load(u_ptr + at, mask=inside, other=0.0)
        y = tl.load(y_ptr + at, mask=inside, other=0.0).to(u.dtype)
        e = tl.exp(-tl.abs(u))
        w = 1 + e
        # log(1 + e) with the rounding of 1 + e undone
        log1p = tl.where(w == 1, e, tl.log(w) * e / tl.where(w == 1, 1.0, w - 1))
        f = tl.maximum(u, 0.0) - y * u + log1p
        g = tl.where(u >= 0, 1.0, e) / w - y
        h = e / (w * w)
        if CAUTIOUS:
            wrong = (g * u > 0) & careful
            h = tl.where(wrong, (g - (0.5 - y)) / tl.where(wrong, u, 1.0), h)
        own = inside & (y == y)
        tl.store(g_ptr + at, tl.where(own, g, 0.0), mask=inside)
        tl.store(h_ptr + at, tl.where(own, h, 0.0), mask=inside)
        value += tl.where(own, f, 0.0).to(tl.float64)
        total += tl.where(own, h, 0.0).to(tl.float64)
    tl.store(value_ptr + part.to(tl.int64) * m + j, value, mask=mine)
    tl.store(total_ptr + part.to(tl.int64) * m + j, total, mask=mine)


def logistic(y: Tensor, u: Tensor, cautious: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums of logistic losses (m,), derivatives and curvatures (n, m), and their sums.

    Takes targets and scores, (n, m), and the problems, (m,) or None for none, whose rows on the
    wrong side get their average curvature on the way to score 0. Rows are 0 in problems for which
    their target is NaN. Sums are in double precision.
    """
    n, m = u.shape
    y, u = y.contiguous(), u.contiguous()
    g, h = torch.empty_like(u), torch.empty_like(u)
    width = 256
    parts = triton.cdiv(n, ROWS_PER_PROGRAM)
    sums = torch.empty((2, parts, m), dtype=torch.float64, device=u.device)
    flags = u if cautious is None else cautious.to(torch.int8)
    arrays, some = (y, u, flags, g, h, sums[0], sums[1]), cautious is not None
    grid = (triton.cdiv(m, width), parts)
    with torch.cuda.device_of(u):
        _logistic_kernel[grid](*arrays, n, m, CAUTIOUS=some, ROWS=ROWS_PER_PROGRAM, WIDTH=width)
    value, total = sums.sum(dim=1)
    return value, g, h, total
