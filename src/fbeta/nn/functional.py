"""Losses over logits in the conventions of :mod:`torch.nn.functional`, and label statistics.

Both losses take the labels as they are, of shape (..., s), and no targets of their own. They are
computed in single or double precision whatever the logits are in, and the result has the type of
the logits, or single precision where that is a half precision.

**Targets.** 0/1 in any type, or floats in between for label smoothing and mixup. A row with such
numbers stands for independent labels with these probabilities, given that their number is one of
the cardinalities, and its loss is the expected one. By default (``check=True``) targets outside
[0, 1], NaN, a number of labels that is not among the cardinalities, labels that ``label_mask``
forbids, and logits of sizes that are +inf raise a ValueError that names the first such row, after
one wait for the device. In compiled graphs and under ``torch.func`` nothing is checked.

**Options of both losses**

reduction : {"mean", "sum", "none"}
    Over the rows; the mean of no rows is 0.
weight : tensor of shape (...,), optional
    Weights of the rows, by which their losses are multiplied.
label_mask : bool tensor that broadcasts to (..., s), optional
    Labels that a row may have; the others are impossible for it.
logit_adjustment : tensor of shape (s,), optional
    Added to the logits of the labels in the loss alone, such as the logarithms of the frequencies
    of the labels (Menon et al. 2021): rare labels then get higher logits.
soft : bool, optional
    Whether targets may be between 0 and 1. By default the values are inspected; where they cannot
    be, as in compiled graphs, floats are taken for such, which costs a second normaliser:
    ``soft=False`` says that they are 0/1.
overflow : bool
    Whether rows with a number of labels that is not among the cardinalities are taken. Such a row
    counts as a random subset of its labels, of the largest known size below: its loss is finite.
check : bool
    Whether to check targets and logits. Without, targets are taken for 0/1 unless ``soft=True``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, softplus

from fbeta._array import check_choice
from fbeta.nn import _inputs, _law
from fbeta.nn._inputs import Sizes, Statistics, hard_moments, widest
from fbeta.nn.decoding import (
    cardinality_statistics,
    decode,
    decode_cardinality,
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

# labels of rows that are worked on at once on the processor, more where rows are short, and the
# number of parts that many rows are divided into: intermediate results take 12 times their memory
CHUNK_LABELS, SHORT_CHUNK_LABELS, SHORT_ROW, MIN_CHUNKS = 5 << 13, 5 << 16, 500, 32
# sizes, whether targets are soft, and whether all are known to be 0/1 of a known size
Kind: TypeAlias = tuple[tuple[int, ...], bool, bool]
# logits that stand for the probabilities 0 and 1 within a row of targets that has others as well
SURE_LOGIT = 45.0


def joint_loss(
    logits: Tensor,
    target: Tensor,
    cardinalities: Sizes,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    label_mask: Tensor | None = None,
    logit_adjustment: Tensor | None = None,
    soft: bool | None = None,
    overflow: bool = False,
    check: bool = True,
) -> Tensor:
    """Compute the paper's surrogate: a logistic loss for each component of the code.

    These are whether a row has no labels, and for each size k and label j whether it has k labels
    and j among them.

    Parameters
    ----------
    logits : tensor of shape (..., 1 + K s)
        For "no labels", then for all labels with the first size, with the second, and so on.
    target : tensor of shape (..., s)
        Labels: 0/1, or probabilities.
    cardinalities : int or sequence of K int
        The sizes that the logits are for, increasing in 1..s; a number K stands for 1..K.
    reduction, weight, label_mask, logit_adjustment, soft, overflow, check
        See :mod:`fbeta.nn.functional`.

    Returns
    -------
    tensor
        A scalar, or of shape (...,).

    Examples
    --------
    >>> round(float(joint_loss(torch.zeros(1, 5), torch.tensor([[1, 0]]), 2)), 4)
    3.4657
    """
    z, y, leading, (sizes, found_soft, exact) = _read(
        True, logits, target, cardinalities, label_mask, logit_adjustment, soft, overflow, check
    )
    s = y.shape[1]
    joint = z[:, 1:].reshape(len(z), len(sizes), s)
    loss = softplus(z[:, 0]) + softplus(joint).sum((1, 2))
    if found_soft:
        with torch.no_grad():
            code = _joint_moments(y, sizes).to(z.dtype)
        loss = loss - code[:, 0] * z[:, 0] - (code[:, 1:] * joint.flatten(1)).sum(1)
    else:
        place = _inputs.place_sizes(y, sizes)[1]
        loss = loss - z[:, 0] * (place == 0)
        labels = y.to(z.dtype) if exact else _inputs.hard_labels(y, sizes, z.dtype)
        if sizes:
            own = (place - 1).clamp(min=0)[:, None, None].expand(-1, 1, s)
            present = (joint.gather(1, own)[:, 0] * labels).sum(1)
            loss = loss - present * (place > 0)
    return _reduce(loss, leading, logits, weight, reduction)


def cardinality_loss(
    logits: Tensor,
    target: Tensor,
    cardinalities: Sizes,
    *,
    reduction: str = "mean",
    weight: Tensor | None = None,
    label_mask: Tensor | None = None,
    observed: Tensor | None = None,
    logit_adjustment: Tensor | None = None,
    soft: bool | None = None,
    overflow: bool = False,
    check: bool = True,
) -> Tensor:
    """Compute the negative log-likelihood of the cardinality model.

    ``p(y) = exp(sum_j y_j z_j + v_|y|) / Z``: the labels have scores z, the number of labels has
    potentials v. Its normaliser Z over all label sets of the given sizes is exact.

    Parameters
    ----------
    logits : tensor of shape (..., s + 1 + K)
        Scores of the labels, the potential of "no labels", potentials of the sizes.
    target : tensor of shape (..., s)
        Labels: 0/1, or probabilities.
    cardinalities : int or sequence of K int
        The sizes that label sets may have beside 0, increasing in 1..s; a number K stands for 1..K.
    observed : bool tensor that broadcasts to (..., s), optional
        Which labels are known. The loss is that of what is known: the negative logarithm of the
        sum of the probabilities of all label sets that agree with it. Targets are 0/1 then.
    reduction, weight, label_mask, logit_adjustment, soft, overflow, check
        See :mod:`fbeta.nn.functional`.

    Returns
    -------
    tensor
        A scalar, or of shape (...,).

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
    if observed is not None:
        target = torch.where(observed, target, torch.zeros_like(target))
        soft, overflow = False, True
        # a label that is impossible is known to be absent
        observed = observed if label_mask is None else observed | ~label_mask
    z, y, leading, kind = _read(
        False, logits, target, cardinalities, label_mask, logit_adjustment, soft, overflow, check
    )
    if observed is not None:
        observed = observed.expand(target.shape).reshape(y.shape)
    loss: Tensor = _CardinalityLoss.apply(z, y, observed, kind)[0]  # type: ignore[no-untyped-call]
    return _reduce(loss, leading, logits, weight, reduction)


class _CardinalityLoss(torch.autograd.Function):
    """The loss of each row; what is expected less what is observed is kept as gradient."""

    @staticmethod
    def forward(
        logits: Tensor, target: Tensor, observed: Tensor | None, kind: Kind
    ) -> tuple[Tensor, Tensor]:
        (n, s), (sizes, soft, exact) = target.shape, kind
        if observed is None and not soft and _inputs.fuses(logits, s):
            labels = target if exact else _inputs.hard_labels(target, sizes, torch.float64)
            return _inputs.fused_loss(logits, labels, sizes)
        labels_at_once = CHUNK_LABELS if s > SHORT_ROW else SHORT_CHUNK_LABELS
        rows = max(1, labels_at_once // s, n // MIN_CHUNKS)
        if n <= rows or logits.device.type != "cpu" or torch.compiler.is_compiling():
            return _loss_and_residual(logits, target, observed, kind)
        loss, residual = torch.empty(n, dtype=widest(logits.device)), torch.empty_like(logits)
        for i in range(0, n, rows):
            at = slice(i, i + rows)
            seen = None if observed is None else observed[at]
            loss[at], residual[at] = _loss_and_residual(logits[at], target[at], seen, kind)
        return loss, residual

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.dtype = inputs[0].dtype

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
        (residual,) = ctx.saved_tensors
        found = (residual * gradient[:, None].to(residual.dtype)).to(ctx.dtype)
        return found, None, None, None

    @staticmethod
    def vmap(info: Any, dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        flat = []
        for tensor, dim in zip(inputs[:3], dims, strict=False):
            if tensor is not None:
                if dim is None:
                    tensor, dim = tensor.expand(info.batch_size, *tensor.shape), 0
                tensor = tensor.movedim(dim, 0).flatten(0, 1)
            flat.append(tensor)
        found = _CardinalityLoss.apply(*flat, *inputs[3:])  # type: ignore[no-untyped-call]
        parts = tuple(part.reshape(info.batch_size, -1, *part.shape[1:]) for part in found)
        return parts, (0, 0)


def _loss_and_residual(
    logits: Tensor, target: Tensor, observed: Tensor | None, kind: Kind
) -> tuple[Tensor, Tensor]:
    """Return the cardinality loss of each row, (n,), and its gradient, (n, s + 1 + K)."""
    sizes, soft, exact = kind
    of_sets, s = not soft and observed is None, target.shape[1]
    dtype = torch.promote_types(logits.dtype, torch.float32)
    if of_sets or not _inputs.fuses(logits, s):
        own = target if of_sets else None
        of_set, log_partition, expected = _law.expectations(logits, sizes, own)
    else:  # by a kernel, for which no labels are observed
        of_set, less = _inputs.fused_loss(logits, torch.zeros_like(target, dtype=torch.int8), sizes)
        empty = torch.arange(logits.shape[1], device=logits.device) == s
        log_partition = of_set + logits[:, s].to(of_set.dtype)
        expected = less.to(of_set.dtype) + empty.to(of_set.dtype)
    if of_sets and exact:
        residual = expected.to(dtype)
        residual[:, :s].sub_(target.to(dtype))
        place = s + _inputs.place_sizes(target, sizes)[1][:, None]
        return of_set, residual.scatter_add_(1, place, -torch.ones_like(residual[:, :1]))
    z = logits.to(log_partition.dtype)
    if observed is None:
        seen = torch.cat(hard_moments(target, sizes, z.dtype), 1)
        if soft:
            seen = _by_row(target, seen, _law.expectations(_soft_logits(target, sizes), sizes)[2])
        # the potential of a size that cannot be is infinite
        value = torch.where(seen > 0, seen * z, 0.0).sum(1)
    else:
        known, offset = _inputs.fix_observed(z, target, observed, sizes)
        _, own_partition, seen = _law.expectations(known, sizes)
        value = own_partition - offset
    # of a probability, which rounding must not bring above 1
    loss = (log_partition - value).clamp(min=0.0)
    if of_sets:
        # a difference of large numbers is left to rows of sizes that are not known
        loss = torch.where(torch.isfinite(of_set), of_set, loss)
    return loss, (expected - seen).to(dtype)


def _joint_moments(target: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the expected code of any rows, (n, 1 + K s): "no labels", then labels by size."""
    law, joint = _law.leave_one_out(_soft_logits(target, sizes), sizes)
    soft = torch.cat([law[0][:, None], joint.permute(2, 0, 1).flatten(1)], dim=1)
    labels, places = hard_moments(target, sizes, soft.dtype)
    hard = torch.cat([places[:, :1], (places[:, 1:, None] * labels[:, None]).flatten(1)], dim=1)
    return _by_row(target, hard, soft)


def _soft_logits(target: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return logits, (n, s + 1 + K), of independent labels with the probabilities of targets."""
    p = target.to(widest(target.device))
    z = torch.logit(p).clamp(-SURE_LOGIT, SURE_LOGIT)
    return torch.cat([z, z.new_zeros((len(z), len(sizes) + 1))], dim=1)


def _by_row(target: Tensor, hard: Tensor, soft: Tensor) -> Tensor:
    """Return the first of two results for rows of 0/1, and the second for others."""
    return torch.where(((target == 0) | (target == 1)).all(-1, keepdim=True), hard, soft)


def _read(
    joint: bool,
    logits: Any,
    target: Any,
    cardinalities: Sizes,
    label_mask: Tensor | None,
    logit_adjustment: Tensor | None,
    soft: bool | None,
    overflow: bool,
    check: bool,
) -> tuple[Tensor, Tensor, torch.Size, Kind]:
    """Return logits, (n, width), adjusted and masked, targets, (n, s), and their leading axes."""
    if not isinstance(target, Tensor) or target.ndim < 1 or not target.shape[-1]:
        got = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be a tensor of shape (n, s) with s > 0, got {got}")
    s = target.shape[-1]
    z, sizes = _inputs.read_code(logits, s, cardinalities, joint=joint)
    leading = z.shape[:-1]
    if target.shape[:-1] != leading:
        raise ValueError(
            f"target must have shape {(*leading, s)}, one row for each of the logits, "
            f"got {tuple(target.shape)}"
        )
    if label_mask is not None and label_mask.dtype != torch.bool:
        raise TypeError(f"label_mask must be bool, got {label_mask.dtype}")
    found = bool(soft)
    if check:
        forbidden = None if label_mask is None else ~label_mask
        options: Any = {"forbidden": forbidden, "potentials": z if joint else z[..., s:]}
        found = _inputs.check_rows(target, sizes, overflow=overflow, soft=soft, **options)
    wide = z.to(torch.promote_types(z.dtype, torch.float32)).reshape(-1, z.shape[-1])
    if logit_adjustment is not None:
        K = len(sizes)
        ends = (logit_adjustment.repeat(K), (1, 0)) if joint else (logit_adjustment, (0, 1 + K))
        wide = wide + pad(*ends)
    if label_mask is not None:
        allowed = label_mask.expand(*leading, s).reshape(-1, s)
        wide = _inputs.forbid(wide, allowed, sizes, joint=joint)
    exact = not found and check and not overflow
    return wide, target.reshape(-1, s), leading, (sizes, found, exact)


def _reduce(
    loss: Tensor, leading: torch.Size, logits: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    """Weight and reduce the losses of the rows, in single precision at least."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    loss = loss.reshape(leading)
    if weight is not None:
        if weight.shape != leading:
            raise ValueError(f"weight must have shape {tuple(leading)}, got {tuple(weight.shape)}")
        loss = torch.where(weight != 0, loss * weight, torch.zeros_like(loss))
    if reduction != "none":
        loss = loss.sum() if reduction == "sum" else loss.sum() / max(1, leading.numel())
    dtype = logits.dtype if logits.is_floating_point() else torch.get_default_dtype()
    return loss.to(torch.promote_types(dtype, torch.float32))
