"""Products of many small polynomials, by a tree of pairs: log2 s levels and not s steps.

A label that is present with probability p is the polynomial ``(1 - p) + p x``; the product over all
labels has ``P(k labels)`` as its coefficients. Only sums of non-negative numbers occur, so that
nothing cancels. Arrays have the coefficients in their first axis and the instances in the last.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def product_tree(absent: Tensor, present: Tensor, largest: int) -> list[Tensor]:
    """Return the products of ever more labels, from the single labels to all of them.

    Shapes: ``absent, present`` (s, n); returns (1 + degree, nodes, n).
    """
    levels = [torch.stack([absent, present])]
    while levels[-1].shape[1] > 1:
        below = levels[-1] = _make_even(levels[-1])
        half = below.shape[1] // 2
        levels.append(multiply(below[:, :half], below[:, half:], largest))
    return levels


def multiply(a: Tensor, b: Tensor, largest: int) -> Tensor:
    """Return the products of pairs of polynomials, without the powers above the largest.

    Shapes: ``a, b`` (1 + degree, ...); returns (1 + degree, ...).
    """
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    length = min(a.shape[0] + b.shape[0] - 2, largest) + 1
    if _in_place(a):
        out = _zeros(length, a, b)
        for i in range(min(a.shape[0], length)):
            width = min(b.shape[0], length - i)
            out[i : i + width].addcmul_(a[i], b[:width])
        return out
    before = a.shape[0] - 1
    after = max(0, length - b.shape[0])
    widened = pad(b, (0, 0) * (b.ndim - 1) + (before, after))
    powers = torch.arange(length, device=b.device)[:, None]
    places = before + powers - torch.arange(a.shape[0], device=b.device)
    return (widened[places] * a).sum(1)


def correlate(a: Tensor, b: Tensor, length: int) -> Tensor:
    """Return ``sum_i a_i b_{c + i}`` for c below a length: the transpose of :func:`multiply`.

    Shapes: ``a, b`` (1 + degree, ...); returns (length, ...).
    """
    if _in_place(a):
        out = a[0] * b[:length] if b.shape[0] >= length else _zeros(length, a, b)
        for i in range(int(b.shape[0] >= length), min(a.shape[0], b.shape[0])):
            width = min(length, b.shape[0] - i)
            out[:width].addcmul_(a[i], b[i : i + width])
        return out
    after = max(0, a.shape[0] + length - 1 - b.shape[0])
    widened = pad(b, (0, 0) * (b.ndim - 1) + (0, after))
    first = torch.arange(length, device=b.device)[:, None]
    return (widened[first + torch.arange(a.shape[0], device=b.device)] * a).sum(1)


def without_each(levels: list[Tensor], largest: int) -> Tensor:
    """Return, for every label, the product over all the others.

    Returns shape (1 + degree, nodes, n).
    """
    others = torch.ones_like(levels[-1][:1])
    for level in reversed(levels[:-1]):
        siblings = _siblings(level)
        others = multiply(_parents(others, siblings), siblings, largest).flatten(1, 2)
    return others


def pull_back(levels: list[Tensor], weights: Tensor) -> Tensor:
    """Return the derivatives of ``sum_k weights_k P(k labels)`` in the single labels.

    Shapes: ``weights`` (1 + degree, n); returns (nodes, n). All levels but the first are taken off
    the list, which frees their memory.
    """
    outside = weights[:, None]
    if len(levels) == 1:
        return outside[1]
    levels.pop()
    while len(levels) > 1:
        siblings = _siblings(levels.pop())
        outside = correlate(siblings, _parents(outside, siblings), len(siblings)).flatten(1, 2)
    siblings = _siblings(levels[0])
    return correlate(siblings, _parents(outside, siblings)[1:], 1).flatten(0, 2)


def _make_even(level: Tensor) -> Tensor:
    """Return an even number of nodes: the last may be the polynomial 1."""
    if level.shape[1] % 2 == 0:
        return level
    one = torch.ones_like(level[:1, :1])
    none = torch.zeros_like(level[1:, :1])
    return torch.cat([level, torch.cat([one, none])], dim=1)


def _siblings(level: Tensor) -> Tensor:
    """Return for each node the other one of its pair, of shape (1 + degree, 2, pairs, n)."""
    return level.reshape(level.shape[0], 2, -1, level.shape[2]).flip(1)


def _parents(values: Tensor, siblings: Tensor) -> Tensor:
    """Return the values of the pairs, for both nodes, without that of a factor of 1."""
    return values[:, None, : siblings.shape[2]]


def _in_place(a: Tensor) -> bool:
    """Tell whether a loop over the powers is better than one operation with a larger memory."""
    return a.device.type == "cpu" and not torch.compiler.is_compiling()


def _zeros(length: int, a: Tensor, b: Tensor) -> Tensor:
    shape: torch.Size = torch.broadcast_shapes(a.shape[1:], b.shape[1:])  # type: ignore[no-untyped-call]
    return a.new_zeros((length, *shape))
