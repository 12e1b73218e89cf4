"""Fused kernels for CUDA, where Triton is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fbeta.nn._law import Expectations


def fused_expectations(logits: Tensor) -> Callable[..., Expectations] | None:
    """Return the fused form of :func:`fbeta.nn._law.expectations` for a device, if there is one."""
    return None


def fused_search(joint: Tensor) -> Callable[..., Any] | None:
    """Return the fused search of dense statistics for a device, if there is one."""
    return None
