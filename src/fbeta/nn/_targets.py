"""Targets of the losses: checked by row, and as expected labels and sizes.

A row of 0/1 labels whose size the logits know is itself. A row of another size counts as a random
subset of it, of the largest known size below, all subsets equally likely. A row with numbers
between 0 and 1 (label smoothing, mixup) stands for independent labels with these probabilities,
given that their number is a known size. In each case the loss is the expected loss.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fbeta.nn._law import expectations, leave_one_out
from fbeta.nn._sizes import size_tensor, widest

# logits that stand for the probabilities 0 and 1 within a row that has others as well; also how far
# the score of a forbidden label is below all others: exp(-60) is below the rounding of a sum
SURE_LOGIT, FORBIDDEN_GAP = 45.0, 60.0


class Places(NamedTuple):
    """Where the sizes of n rows of 0/1 labels are among the known sizes."""

    size: Tensor  # (n,), int64, the number of labels
    place: Tensor  # (n,), among 0 and the known sizes, of the largest that is not above the number
    known: Tensor  # (n,), bool, whether the number itself is known


def place_sizes(target: Tensor, sizes: tuple[int, ...]) -> Places:
    """Return the number of labels of each row, and its place among the known sizes."""
    count = target.to(torch.int64).sum(-1)
    largest = max(sizes, default=0)
    capped = count.clamp(0, largest)
    if len(sizes) == largest:
        return Places(count, capped, capped == count)
    known = size_tensor((0, *sizes), target.device)
    place = (known[1:] <= count[..., None]).sum(-1)
    return Places(count, place, known[place] == count)


def check_rows(
    target: Tensor,
    sizes: tuple[int, ...],
    *,
    overflow: bool,
    forbidden: Tensor | None = None,
    soft: bool | None = None,
    what: str = "target",
) -> bool:
    """Raise where a row of targets is wrong, and return whether targets may be fractional.

    The values are inspected once: one wait for the device. In compiled graphs and under
    ``torch.func.vmap``, which cannot branch on data, they are not.
    """
    floats = target.is_floating_point() and soft is not False
    if torch.compiler.is_compiling():
        return floats
    if forbidden is None and _are_whole(target, sizes, overflow):
        return soft is True
    wrong = ~((target >= 0) & (target <= 1)) if floats else (target != 0) & (target != 1)
    between = (target != 0) & (target != 1) & ~wrong
    problems = {
        f"values must be {'in [0, 1]' if floats else '0 or 1'}": wrong.any(-1),
    }
    if forbidden is not None:
        problems["a label is present that label_mask forbids"] = (forbidden & (target > 0)).any(-1)
    if not overflow:
        unknown = ~(place_sizes(target, sizes).known | between.any(-1))
        problems[
            f"the number of labels is not among cardinalities={_short(sizes)}, and overflow=False"
        ] = unknown
    flags = torch.stack([part.any() for part in (*problems.values(), between)])
    try:
        found = flags.tolist()
    except RuntimeError:  # under vmap
        return floats
    for (text, rows), is_wrong in zip(problems.items(), found, strict=False):
        if is_wrong:
            row = int(rows.reshape(-1).to(torch.int8).argmax())
            values = target.reshape(-1, target.shape[-1])[row].tolist()
            raise ValueError(f"row {row} of {what}: {text}: {_short(values)}")
    return bool(found[-1]) or soft is True


def _are_whole(target: Tensor, sizes: tuple[int, ...], overflow: bool) -> bool:
    """Tell whether all rows are 0/1 and not too large, by few operations and one wait.

    False where the sizes are not 1, 2, ...: these take more.
    """
    largest = max(sizes, default=0)
    if not target.numel() or (len(sizes) < largest and not overflow):
        return False
    if target.dtype != torch.bool:
        # only 0 and 1 are their own squares, and infinity, which is too large for a size
        target = torch.where(target * target == target, target, torch.inf)
    try:
        most = float(target.sum(-1, dtype=torch.float32).amax())
    except RuntimeError:  # under vmap
        return False
    return most < torch.inf if overflow else most <= largest


def _short(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 60 else f"{text[:57]}..."


def hard_moments(
    target: Tensor, sizes: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the expected labels, (n, s), and laws of the size, (n, 1 + K), of 0/1 rows."""
    count, place, _ = place_sizes(target, sizes)
    kept = size_tensor((0, *sizes), target.device)[place]
    share = kept.to(dtype) / count.clamp(min=1).to(dtype)
    law = torch.arange(len(sizes) + 1, device=target.device) == place[:, None]
    return target.to(dtype) * share[:, None], law.to(dtype)


def hard_labels(target: Tensor, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return the expected labels, (n, s), of 0/1 rows."""
    largest = max(sizes, default=0)
    if len(sizes) < largest:
        return hard_moments(target, sizes, dtype)[0]
    count = target.sum(-1, keepdim=True, dtype=dtype)
    return (target * (count.clamp(max=largest) / count.clamp(min=1.0))).to(dtype)


def soft_logits(target: Tensor) -> Tensor:
    """Return the logits of the probabilities that targets are."""
    p = target.to(widest(target.device))
    return torch.logit(p).clamp(-SURE_LOGIT, SURE_LOGIT)


def moments(target: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return expected labels, (n, s), and laws of the size, (n, 1 + K), of any rows."""
    dtype = widest(target.device)
    zeros = torch.zeros((len(target), len(sizes) + 1), dtype=dtype, device=target.device)
    found = expectations(soft_logits(target), zeros, sizes)
    hard = hard_moments(target, sizes, dtype)
    labels, law = _by_row(target, hard, (found.marginals, found.sizes))
    return labels, law


def joint_moments(target: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the expected code of any rows, (n, 1 + K s): "no labels", then labels by size."""
    dtype = widest(target.device)
    zeros = torch.zeros((len(target), len(sizes) + 1), dtype=dtype, device=target.device)
    law, joint = leave_one_out(soft_logits(target), zeros, sizes)
    soft = torch.cat([law[0][:, None], joint.permute(2, 0, 1).flatten(1)], dim=1)
    labels, places = hard_moments(target, sizes, dtype)
    hard = torch.cat([places[:, :1], (places[:, 1:, None] * labels[:, None]).flatten(1)], dim=1)
    return _by_row(target, (hard,), (soft,))[0]


def _by_row(
    target: Tensor, hard: tuple[Tensor, ...], soft: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Return the first of two results for rows of 0/1, and the second for others."""
    whole = ((target == 0) | (target == 1)).all(-1, keepdim=True)
    return tuple(torch.where(whole, a, b) for a, b in zip(hard, soft, strict=True))


def forbid(logits: Tensor, allowed: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
    """Return logits under which forbidden labels, and more labels than are allowed, do not occur.

    Shapes: ``logits`` (..., s + 1 + K).
    """
    s = allowed.shape[-1]
    scores = logits[..., :s]
    allowed = allowed.expand(scores.shape)
    with torch.no_grad():
        lowest = torch.where(allowed, scores, torch.inf).amin(-1, keepdim=True)
        lowest = torch.where(torch.isfinite(lowest), lowest, 0.0).clamp(max=0.0)
    scores = torch.where(allowed, scores, lowest - FORBIDDEN_GAP)
    if sizes is None:
        return scores
    k = size_tensor((0, *sizes), logits.device)
    possible = k <= allowed.sum(-1, keepdim=True)
    return torch.cat([scores, torch.where(possible, logits[..., s:], -torch.inf)], dim=-1)


def forbid_components(joint: Tensor, allowed: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return logits of the paper's code, (..., K, s), with forbidden labels and sizes ruled out."""
    allowed = allowed.expand(*joint.shape[:-2], joint.shape[-1])
    k = size_tensor(sizes, joint.device)
    possible = (k <= allowed.sum(-1, keepdim=True))[..., None] & allowed[..., None, :]
    return torch.where(possible, joint, -FORBIDDEN_GAP)


def fix_observed(
    logits: Tensor, target: Tensor, observed: Tensor, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return logits of the model given what is observed, and what to take off its normaliser.

    Shapes: ``logits`` (n, s + 1 + K), ``target, observed`` (n, s).
    """
    s = target.shape[1]
    scores, present = logits[:, :s], observed & (target > 0)
    low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    sure = torch.where(present, high + FORBIDDEN_GAP, low - FORBIDDEN_GAP)
    k = size_tensor((0, *sizes), logits.device)
    least = present.sum(1, keepdim=True)
    possible = (k >= least) & (k <= least + (~observed).sum(1, keepdim=True))
    # a row that has no possible size keeps all: its loss is large, and finite
    possible = possible | ~possible.any(1, keepdim=True)
    potentials = torch.where(possible, logits[:, s:], -torch.inf)
    offset = torch.where(present, sure - scores, 0.0).sum(1)
    return torch.cat([torch.where(observed, sure, scores), potentials], dim=1), offset
