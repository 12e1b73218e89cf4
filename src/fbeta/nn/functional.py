"""Losses over logits in the conventions of :mod:`torch.nn.functional`, and label statistics.

Both losses take the labels as they are, 0/1 of shape (n, s), and no targets of their own. The
computation is in single or double precision whatever the logits are in, and the result has the type
of the logits, or single precision under autocast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from fbeta._validation import check_choice
from fbeta.nn._kernels import fused_loss
from fbeta.nn._law import expectations
from fbeta.nn._sizes import Sizes, check_width, read_sizes, size_tensor
from fbeta.nn.decoding import decode, decode_cardinality
from fbeta.nn.statistics import (
    Statistics,
    cardinality_statistics,
    independent_statistics,
    joint_statistics,
)

__all__ = [
    "Statistics",
    "cardinality_loss",
    "cardinality_statistics",
    "decode",
    "decode_cardinality",
    "independent_statistics",
    "joint_loss",
    "joint_statistics",
]


def joint_loss(
    logits: Tensor, target: Tensor, cardinalities: Sizes, *, reduction: str = "mean"
) -> Tensor:
    """Compute the paper's surrogate: a logistic loss for each component of the code.

    The targets - whether a row has no labels, and for each size k and label j whether it has k
    labels and j among them - are never made: the loss is the sum of ``softplus(z)`` over all
    logits, less those of the few components that are present.

    Parameters
    ----------
    logits : tensor of shape (n, 1 + K s)
        For "no labels", then for all labels with the first size, with the second, and so on.
    target : tensor of shape (n, s)
        Labels, 0/1, of any type.
    cardinalities : int or sequence of K int
        The sizes that the logits are for, increasing in 1..s; a number K stands for 1..K. A row
        of another size has none of the components.
    reduction : {"mean", "sum", "none"}
        Over the n instances.

    Returns
    -------
    tensor
        A scalar, or of shape (n,).

    Examples
    --------
    >>> round(float(joint_loss(torch.zeros(1, 5), torch.tensor([[1, 0]]), 2)), 4)
    3.4657
    """
    _check_target(logits, target)
    s = target.shape[1]
    sizes = read_sizes(cardinalities, s)
    check_width(logits, 1 + len(sizes) * s, f"1 + {len(sizes)} sizes times {s} labels")
    z = _at_least_single(logits)
    count, known, slot = _slots(target, sizes)
    loss = softplus(z).sum(1) - z[:, 0] * (count == 0)
    if sizes:
        joint = z[:, 1:].reshape(len(z), len(sizes), s)
        own = joint.gather(1, slot[:, None, None].expand(-1, 1, s))[:, 0]
        loss = loss - (own * target.to(z.dtype)).sum(1) * known
    return _reduce(loss, logits, reduction)


def cardinality_loss(
    logits: Tensor, target: Tensor, cardinalities: Sizes, *, reduction: str = "mean"
) -> Tensor:
    """Compute the negative log-likelihood of the cardinality model.

    ``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``: the labels have scores z, the number of labels has
    potentials v. Its normaliser Z over all label sets of the given sizes is exact, by a tree of
    products over the labels.

    Parameters
    ----------
    logits : tensor of shape (n, s + 1 + K)
        Scores of the labels, the potential of "no labels", potentials of the sizes.
    target : tensor of shape (n, s)
        Labels, 0/1, of any type.
    cardinalities : int or sequence of K int
        The sizes that label sets may have beside 0, increasing in 1..s; a number K stands for
        1..K. A row of another size is impossible: its loss is infinite, and its gradient that of
        the labels alone.
    reduction : {"mean", "sum", "none"}
        Over the n instances.

    Returns
    -------
    tensor
        A scalar, or of shape (n,).

    Notes
    -----
    The gradient is what is expected less what is observed: ``P(y_j = 1) - y_j`` and ``P(|y| = k)
    - 1(|y| = k)``. It is computed with the value, and cannot be differentiated again.

    Examples
    --------
    All four sets of two labels are equally likely:

    >>> round(float(cardinality_loss(torch.zeros(1, 5), torch.tensor([[1, 0]]), 2)), 4)
    1.3863
    """
    _check_target(logits, target)
    s = target.shape[1]
    sizes = read_sizes(cardinalities, s)
    check_width(logits, s + 1 + len(sizes), f"{s} labels and 1 + {len(sizes)} sizes")
    loss: Tensor = _CardinalityLoss.apply(logits, target, sizes)  # type: ignore[no-untyped-call]
    return _reduce(loss, logits, reduction)


class _CardinalityLoss(torch.autograd.Function):
    """The loss of each instance; what is expected less what is observed is kept as gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, sizes: tuple[int, ...]) -> Tensor:
        compute = fused_loss(logits, target.shape[1]) or _loss_and_residual
        loss, residual = compute(logits, target, sizes)
        ctx.save_for_backward(residual)
        ctx.dtype = logits.dtype
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (residual,) = ctx.saved_tensors
        return (residual * gradient[:, None].to(residual.dtype)).to(ctx.dtype), None, None


def _loss_and_residual(
    logits: Tensor, target: Tensor, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return the cardinality loss of each instance, and what is expected less what is observed."""
    s = target.shape[1]
    scores, potentials = logits[:, :s], logits[:, s:]
    found = expectations(scores, potentials, sizes)
    dtype = found.log_partition.dtype
    y = target.to(dtype)
    count, known, slot = _slots(target, sizes)
    place = torch.where(known, slot + 1, torch.zeros_like(slot))
    own = potentials.to(dtype).gather(1, place[:, None])[:, 0]
    observed = (y * scores.to(dtype)).sum(1) + own
    seen = known | (count == 0)
    # of a probability, which rounding must not bring above 1
    loss = torch.where(seen, (found.log_partition - observed).clamp(min=0.0), torch.inf)
    at_place = torch.arange(len(sizes) + 1, device=logits.device) == place[:, None]
    at_place = (at_place & seen[:, None]).to(dtype)
    residual = torch.cat([found.marginals - y, found.sizes - at_place], dim=1)
    return loss, residual.to(torch.promote_types(logits.dtype, torch.float32))


def _slots(target: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of labels of each row, whether it is a known size, and its place."""
    count = target.to(torch.int64).sum(1)
    if not sizes:
        return count, torch.zeros_like(count, dtype=torch.bool), torch.zeros_like(count)
    if len(sizes) == sizes[-1]:
        slot, known = count - 1, (count > 0) & (count <= sizes[-1])
        return count, known, slot.clamp(0, sizes[-1] - 1)
    match = count[:, None] == size_tensor(sizes, target.device)
    return count, match.any(1), match.to(torch.int8).argmax(1)


def _check_target(logits: Tensor, target: Tensor) -> None:
    if target.ndim != 2 or not target.shape[1] or len(target) != len(logits):
        raise ValueError(
            f"target must have shape ({len(logits)}, s), one row for each of the logits, "
            f"got {tuple(target.shape)}"
        )


def _at_least_single(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _reduce(loss: Tensor, logits: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of the instances, and return them in the type of the logits."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if reduction != "none":
        loss = loss.mean() if reduction == "mean" else loss.sum()
    half = torch.finfo(logits.dtype).bits < 32
    wide = half and torch.is_autocast_enabled(logits.device.type)
    return loss.to(torch.float32 if wide else logits.dtype)
