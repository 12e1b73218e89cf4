"""Reading of sizes and logits, as all functions of :mod:`fbeta.nn` take them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any, TypeAlias

import torch
from torch import Tensor

Sizes: TypeAlias = int | Sequence[int]


def read_sizes(cardinalities: Sizes, n_labels: int) -> tuple[int, ...]:
    """Return increasing sizes in 1..s; a number K stands for 1..K."""
    if isinstance(cardinalities, Integral):
        sizes = tuple(range(1, int(cardinalities) + 1))
    else:
        sizes = tuple(int(k) for k in cardinalities)  # type: ignore[union-attr]
    increasing = all(a < b for a, b in pairwise(sizes))
    if not increasing or (sizes and (sizes[0] < 1 or sizes[-1] > n_labels)):
        raise ValueError(
            f"cardinalities must be increasing sizes in 1..{n_labels}, got {cardinalities!r}"
        )
    return sizes


def size_tensor(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return sizes as integers on a device, made there: a copy from the host would wait for it."""
    runs: list[list[int]] = []
    for k in sizes:
        if runs and runs[-1][1] == k:
            runs[-1][1] = k + 1
        else:
            runs.append([k, k + 1])
    parts = [torch.arange(start, stop, device=device) for start, stop in runs]
    if not parts:
        return torch.arange(0, device=device)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def read_logits(logits: Any, width: int, meaning: str) -> Tensor:
    """Return logits of shape (..., width) as a tensor of floats, or raise."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"logits must be a torch.Tensor, got {type(logits).__name__}: use torch.as_tensor"
        )
    if logits.ndim < 1 or logits.shape[-1] != width:
        raise ValueError(
            f"logits must have shape (n, {width}), {meaning}, got {tuple(logits.shape)}"
        )
    return logits if logits.is_floating_point() else logits.to(torch.get_default_dtype())


def read_rows(logits: Any, width: int, meaning: str) -> Tensor:
    """Return logits of shape (n, width) as a tensor of floats, or raise."""
    rows = read_logits(logits, width, meaning)
    if rows.ndim != 2:
        raise ValueError(f"logits must have shape (n, {width}), {meaning}, got {tuple(rows.shape)}")
    return rows


def widest(device: torch.device) -> torch.dtype:
    """Return double precision, or single on devices that lack it."""
    return torch.float32 if device.type == "mps" else torch.float64
