"""Fused kernels for CUDA, where Triton is there; they are operations of compiled graphs too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

# labels up to which an instance is a program of its own
MOST_LABELS = 4096


HAS_TRITON = find_spec("triton") is not None


def fuses(tensor: Tensor, n_labels: int) -> bool:
    """Tell whether there are kernels for a tensor."""
    return tensor.device.type == "cuda" and n_labels <= MOST_LABELS and HAS_TRITON


def fused_loss(logits: Tensor, n_labels: int) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Return the fused form of the cardinality loss with its gradient, if there is one.

    It takes logits, target and the sizes, and returns the losses and the gradients of the rows.
    """
    return _run(_loss) if fuses(logits, n_labels) else None


def fused_search(joint: Tensor) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Return the fused search of dense statistics, if there is one.

    It takes the statistics, the weights of sizes, of shape (s, K), and the limits, and returns
    label sets and their values.
    """
    if not joint.shape[1] or not fuses(joint, joint.shape[2]):
        return None
    return partial(_search_statistics, _run(_search))


def _search_statistics(
    run: Callable[..., Any], q: Any, weights: Tensor, low: Any, high: Any
) -> tuple[Tensor, Tensor]:
    limits = (_scalar(value, q.joint.device) for value in (low, high))
    labels, value = run(q.empty, q.joint, weights, *limits)
    return labels, value


def _scalar(value: Any, device: torch.device) -> Tensor:
    """Return a number on the device, in double precision and without a copy from the host."""
    if isinstance(value, Tensor) and value.device == device:
        return value.to(torch.float64)
    return torch.full((), float(value), dtype=torch.float64, device=device)


def _search(
    empty: Tensor, joint: Tensor, weights: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    from fbeta.nn._triton import search

    return search(empty, joint, weights, low, high)


def _loss(logits: Tensor, target: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    from fbeta.nn._triton import cardinality_loss

    return cardinality_loss(logits, target, sizes)


def _search_shapes(empty: Tensor, joint: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    labels = joint.new_empty((joint.shape[0], joint.shape[2]), dtype=torch.int8)
    return labels, joint.new_empty(joint.shape[0], dtype=torch.float64)


def _loss_shapes(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(logits.dtype, torch.float32)
    loss = logits.new_empty(logits.shape[0], dtype=torch.float64)
    return loss, logits.new_empty(logits.shape, dtype=wide)


# what a compiler sees of them: names, and the shapes of their results
_SCHEMAS: dict[Any, tuple[str, str, Any]] = {
    _search: (
        "fbeta::search",
        "(Tensor empty, Tensor joint, Tensor weights, Tensor low, Tensor high) -> (Tensor, Tensor)",
        _search_shapes,
    ),
    _loss: (
        "fbeta::cardinality_loss",
        "(Tensor logits, Tensor target, int[] sizes) -> (Tensor, Tensor)",
        _loss_shapes,
    ),
}


def _register(function: Callable[..., Any]) -> Any:
    name, schema, shapes = _SCHEMAS[function]
    made = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
    made.register_fake(shapes)
    return made


_OPERATIONS = {function: _register(function) for function in _SCHEMAS}


def _run(function: Callable[..., Any]) -> Any:
    """Return a function, or the operation of it where a graph is compiled.

    Outside of graphs the way through the registry of operations would cost more than the kernel.
    """
    return _OPERATIONS[function] if torch.compiler.is_compiling() else function
