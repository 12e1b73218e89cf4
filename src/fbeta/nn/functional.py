"""Losses over logits in the conventions of :mod:`torch.nn.functional`, and label statistics.

Both losses take the labels as they are, of shape (..., s), and no targets of their own. They are
computed in single or double precision whatever the logits are in, and the result has the type of
the logits, or single precision where that is a half precision.

**Targets.** 0/1 in any type, or floats in between for label smoothing and mixup. A row with such
numbers stands for independent labels with these probabilities, given that their number is one of
the cardinalities, and its loss is the expected one. By default (``check=True``) targets outside
[0, 1], NaN, a number of labels that is not among the cardinalities, and labels that ``label_mask``
forbids raise a ValueError that names the first such row. That takes one wait for the device. In
compiled graphs and under ``torch.func`` nothing is checked and nothing waits.

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
    Whether to check the targets. Without, they are taken for 0/1 unless ``soft=True``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from fbeta._validation import check_choice
from fbeta.nn._kernels import fused_loss
from fbeta.nn._law import Expectations, expectations, loss_and_expectations
from fbeta.nn._sizes import Sizes, read_logits, read_sizes, widest
from fbeta.nn._targets import (
    check_rows,
    fix_observed,
    forbid,
    forbid_components,
    hard_labels,
    hard_moments,
    joint_moments,
    moments,
    place_sizes,
)
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

# labels of rows that are worked on at once on the processor, and the number of parts that many rows
# are divided into: intermediate results take about 40 times the memory of their logits
CHUNK_LABELS, MIN_CHUNKS = 3 << 15, 32


class _Batch(NamedTuple):
    """What a loss is computed of, with all leading axes as one."""

    logits: Tensor  # (n, width), at least in single precision
    target: Tensor  # (n, s)
    soft: bool
    exact: bool  # whether all rows are known to be 0/1 of a known size
    leading: torch.Size


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

    The targets - whether a row has no labels, and for each size k and label j whether it has k
    labels and j among them - are not made for 0/1 labels: the loss is the sum of ``softplus(z)``
    over all logits, less those of the few components that are present.

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
    s = _count_labels(target)
    sizes = read_sizes(cardinalities, s)
    meaning = f"1 + {len(sizes)} sizes times {s} labels"
    z = read_logits(logits, 1 + len(sizes) * s, meaning)
    batch = _read(z, target, sizes, label_mask, soft, overflow, check)
    z = batch.logits
    joint = z[:, 1:].reshape(len(z), len(sizes), s)
    if logit_adjustment is not None:
        joint = joint + logit_adjustment
    if label_mask is not None:
        allowed = label_mask.expand(*batch.leading, s).reshape(-1, s)
        joint = forbid_components(joint, allowed, sizes)
    loss = softplus(z[:, 0]) + softplus(joint).sum((1, 2))
    if batch.soft:
        with torch.no_grad():
            code = joint_moments(batch.target, sizes).to(z.dtype)
        loss = loss - code[:, 0] * z[:, 0] - (code[:, 1:] * joint.flatten(1)).sum(1)
    else:
        placed = place_sizes(batch.target, sizes)
        loss = loss - z[:, 0] * (placed.place == 0)
        labels = batch.target.to(z.dtype)
        if not batch.exact:
            labels = hard_labels(batch.target, sizes, z.dtype)
        if sizes:
            own = (placed.place - 1).clamp(min=0)[:, None, None].expand(-1, 1, s)
            present = (joint.gather(1, own)[:, 0] * labels).sum(1)
            loss = loss - present * (placed.place > 0)
    return _reduce(loss, batch.leading, logits, weight, reduction)


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
    s = _count_labels(target)
    sizes = read_sizes(cardinalities, s)
    z = read_logits(logits, s + 1 + len(sizes), f"{s} labels and 1 + {len(sizes)} sizes")
    if observed is not None:
        target = torch.where(observed, target, torch.zeros_like(target))
        soft, overflow = False, True
    batch = _read(z, target, sizes, label_mask, soft, overflow, check)
    z = batch.logits
    if logit_adjustment is not None:
        z = torch.cat([z[:, :s] + logit_adjustment, z[:, s:]], dim=1)
    if label_mask is not None:
        z = forbid(z, label_mask.expand(*batch.leading, s).reshape(-1, s), sizes)
    if observed is not None:
        observed = observed.expand(target.shape).reshape(-1, s)
    loss: Tensor = _CardinalityLoss.apply(  # type: ignore[no-untyped-call]
        z, batch.target, observed, sizes, batch.soft, batch.exact
    )[0]
    return _reduce(loss, batch.leading, logits, weight, reduction)


class _CardinalityLoss(torch.autograd.Function):
    """The loss of each row; what is expected less what is observed is kept as gradient."""

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        observed: Tensor | None,
        sizes: tuple[int, ...],
        soft: bool,
        exact: bool,
    ) -> tuple[Tensor, Tensor]:
        fused = fused_loss(logits, target.shape[1])
        if fused is not None and not soft and observed is None:
            labels = target if exact else hard_labels(target, sizes, torch.float64)
            loss, residual = fused(logits, labels, sizes)
            return loss, residual
        tensors = (logits, target) if observed is None else (logits, target, observed)
        n = len(logits)
        if not n:
            return logits.new_zeros(0), torch.zeros_like(logits)
        rows = max(1, CHUNK_LABELS // target.shape[1], n // MIN_CHUNKS)
        if logits.device.type != "cpu" or torch.compiler.is_compiling() or n <= rows:
            return _loss_and_residual(*tensors, sizes=sizes, soft=soft)
        loss = torch.empty(n, dtype=widest(logits.device))
        residual = torch.empty_like(logits)
        for i in range(0, n, rows):
            chunk = slice(i, i + rows)
            parts = (part[chunk] for part in tensors)
            loss[chunk], residual[chunk] = _loss_and_residual(*parts, sizes=sizes, soft=soft)
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
        return found, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        flat = []
        for tensor, dim in zip(inputs[:3], dims, strict=False):
            if tensor is not None:
                whole = (
                    tensor.movedim(dim, 0)
                    if dim is not None
                    else tensor.expand(info.batch_size, *tensor.shape)
                )
                tensor = whole.reshape(-1, whole.shape[-1])
            flat.append(tensor)
        found = _CardinalityLoss.apply(*flat, *inputs[3:])  # type: ignore[no-untyped-call]
        parts = tuple(part.reshape(info.batch_size, -1, *part.shape[1:]) for part in found)
        return parts, (0, 0)


def _loss_and_residual(
    logits: Tensor,
    target: Tensor,
    observed: Tensor | None = None,
    *,
    sizes: tuple[int, ...],
    soft: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the cardinality loss of each row, (n,), and its gradient, (n, s + 1 + K)."""
    s = target.shape[1]
    if soft or observed is not None:
        exact, found = None, _expectations(logits, s, sizes)
    else:
        exact, found = loss_and_expectations(logits[:, :s], logits[:, s:], target, sizes)
    z = logits.to(found.log_partition.dtype)
    if observed is None:
        seen = moments(target, sizes) if soft else hard_moments(target, sizes, z.dtype)
        means = torch.cat(seen, dim=1)
        # the potential of a size that cannot be is infinite
        value = torch.where(means > 0, means * z, 0.0).sum(1)
    else:
        known, offset = fix_observed(z, target, observed, sizes)
        given = expectations(known[:, :s], known[:, s:], sizes)
        means, value = torch.cat(given[1:], dim=1), given.log_partition - offset
    # of a probability, which rounding must not bring above 1
    loss = (found.log_partition - value).clamp(min=0.0)
    if exact is not None:
        # a difference of large numbers is left to rows of sizes that are not known
        loss = torch.where(torch.isfinite(exact), exact, loss)
    residual = torch.cat(found[1:], dim=1) - means
    return loss, residual.to(torch.promote_types(logits.dtype, torch.float32))


def _expectations(logits: Tensor, s: int, sizes: tuple[int, ...]) -> Expectations:
    """Return the normaliser and the expectations of each row, by a kernel where there is one."""
    fused = fused_loss(logits, s)
    if fused is None:
        return expectations(logits[:, :s], logits[:, s:], sizes)
    empty = torch.zeros((len(logits), s), dtype=torch.int8, device=logits.device)
    loss, residual = fused(logits, empty, sizes)
    residual = residual.to(loss.dtype)
    own = torch.arange(len(sizes) + 1, device=logits.device) == 0
    return Expectations(
        loss + logits[:, s].to(loss.dtype), residual[:, :s], residual[:, s:] + own.to(loss.dtype)
    )


def _count_labels(target: Any) -> int:
    """Return the number of labels of targets."""
    if not isinstance(target, Tensor) or target.ndim < 1 or not target.shape[-1]:
        got = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be a tensor of shape (n, s) with s > 0, got {got}")
    return target.shape[-1]


def _read(
    logits: Tensor,
    target: Tensor,
    sizes: tuple[int, ...],
    label_mask: Tensor | None,
    soft: bool | None,
    overflow: bool,
    check: bool,
) -> _Batch:
    """Check shapes and targets, and make one axis of all but the last."""
    leading, s = logits.shape[:-1], target.shape[-1]
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
        found = check_rows(target, sizes, overflow=overflow, forbidden=forbidden, soft=soft)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    exact = not found and check and not overflow
    return _Batch(wide.reshape(-1, logits.shape[-1]), target.reshape(-1, s), found, exact, leading)


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
