"""Sizes, logits, targets and masks as :mod:`fbeta.nn` takes them, and which kernels serve them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fbeta._array import check_beta
from fbeta.decoding.measures import read_limits
from fbeta.statistics.label_statistics import LabelStatistics

Sizes: TypeAlias = int | Sequence[int]
Limit: TypeAlias = int | Tensor | None
Moments: TypeAlias = tuple[Tensor, Tensor]

# how far the score of a forbidden label is below all others, beside a share of the lowest one:
# exp(-60) is below the rounding error
FORBIDDEN_GAP, FORBIDDEN_SHARE = 60.0, 1 / 256
MAX_FUSED_LABELS = 4096  # one program of a kernel holds all labels of an instance
HAS_TRITON = find_spec("triton") is not None


class Statistics(NamedTuple):
    """What the decoder needs, of n instances, as tensors on one device.

    Attributes
    ----------
    empty : tensor of shape (n,)
        ``P(no labels)``.
    joint : tensor of shape (n, K, s)
        ``P(|y| = cardinalities[k], y_j = 1)``.
    cardinalities : tuple of K int
        Increasing sizes in 1..s.
    """

    empty: Tensor
    joint: Tensor
    cardinalities: tuple[int, ...]

    def marginals(self) -> Tensor:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self.joint.sum(1)

    def label_statistics(self) -> LabelStatistics:
        """Return them as :class:`fbeta.LabelStatistics`, over the same tensors."""
        return LabelStatistics(self.empty, self.joint, self.cardinalities)


def read_sizes(cardinalities: Sizes, n_labels: int) -> tuple[int, ...]:
    """Return increasing sizes in 1..s; a number K stands for 1..K."""
    if isinstance(cardinalities, Integral):
        sizes = tuple(range(1, int(cardinalities) + 1))
    else:
        sizes = tuple(int(k) for k in cardinalities)  # type: ignore[union-attr]
        if any(a != b for a, b in zip(sizes, cardinalities, strict=True)):  # type: ignore[arg-type]
            raise ValueError(f"cardinalities must be whole numbers, got {cardinalities!r}")
    increasing = all(a < b for a, b in pairwise(sizes))
    if not increasing or (sizes and (sizes[0] < 1 or sizes[-1] > n_labels)):
        raise ValueError(
            f"cardinalities must be increasing sizes in 1..{n_labels}, got {cardinalities!r}"
        )
    return sizes


def size_tensor(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return sizes as integers on a device, made there: a copy from the host would wait for it."""
    known = set(sizes)
    starts = [k for k in sizes if k - 1 not in known]
    stops = [k + 1 for k in sizes if k + 1 not in known]
    runs = [torch.arange(*run, device=device) for run in zip(starts, stops, strict=True)]
    return runs[0] if len(runs) == 1 else torch.cat([torch.arange(0, device=device), *runs])


def read_logits(logits: Any, width: int, meaning: str, *, rows: bool = False) -> Tensor:
    """Return logits of shape (..., width), or (n, width), as a tensor of floats, or raise."""
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"logits must be a torch.Tensor, got {type(logits).__name__}: use torch.as_tensor"
        )
    if logits.ndim < 1 or logits.shape[-1] != width or (rows and logits.ndim != 2):
        raise ValueError(
            f"logits must have shape (n, {width}), {meaning}, got {tuple(logits.shape)}"
        )
    return logits if logits.is_floating_point() else logits.to(torch.get_default_dtype())


def n_logits(s: int, K: int, joint: bool) -> int:
    """Return the number of logits of the paper's code, or of the cardinality model."""
    return 1 + K * s if joint else s + 1 + K


def read_code(
    logits: Any, s: int, cardinalities: Sizes, *, joint: bool, rows: bool = False
) -> tuple[Tensor, tuple[int, ...]]:
    """Return logits of the paper's code or of the cardinality model, and their sizes."""
    sizes = read_sizes(cardinalities, s)
    K = len(sizes)
    meaning = f"1 + {K} sizes times {s} labels" if joint else f"{s} labels and 1 + {K} sizes"
    return read_logits(logits, n_logits(s, K, joint), meaning, rows=rows), sizes


def read_goal(
    beta: Any, low: Limit, high: Limit, s: int, device: torch.device
) -> tuple[Any, Any, Any]:
    """Return beta and the limits on the number of labels: checked, or cut if they are tensors."""
    if not isinstance(beta, Tensor):
        beta = check_beta(beta)
    elif beta.device.type not in ("cpu", device.type):  # a number on the host costs no copy
        beta = beta.to(device)
    least = 0 if isinstance(low, Tensor) else low
    known = read_limits(least, None if isinstance(high, Tensor) else high, s)
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return beta, *known
    low = low.clamp(0, s) if isinstance(low, Tensor) else known[0]
    most = high if isinstance(high, Tensor) else known[1]
    return beta, low, torch.maximum(torch.as_tensor(low), torch.as_tensor(most)).clamp(max=s)


def widest(device: torch.device) -> torch.dtype:
    """Return double precision, or single on devices that lack it."""
    return torch.float32 if device.type == "mps" else torch.float64


def is_exporting() -> bool:
    """Tell whether the operations are recorded for another runtime."""
    # PyTorch 2.6 knows the second only
    exporting = getattr(torch.compiler, "is_exporting", torch.onnx.is_in_onnx_export)
    return bool(exporting()) or torch.onnx.is_in_onnx_export()


def is_tracing() -> bool:
    """Tell whether the operations are recorded, and not carried out."""
    if torch._C._get_tracing_state() is not None and not is_exporting():
        raise RuntimeError(
            "torch.jit.trace would keep the label sets of the example: use torch.export"
        )
    return torch.compiler.is_compiling() or is_exporting()


def place_sizes(target: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the number of labels of each row, and the place of the largest known size not above.

    Places are among 0 and the sizes; both results have shape (n,).
    """
    count = target.sum(-1, dtype=torch.float32).to(torch.int64)
    largest = max(sizes, default=0)
    if len(sizes) == largest:
        return count, count.clamp(0, largest)
    return count, (size_tensor(sizes, target.device) <= count[..., None]).sum(-1)


def hard_labels(target: Tensor, sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return the expected labels, (n, s), of 0/1 rows, which may be random subsets."""
    count, kept = place_sizes(target, sizes)
    if len(sizes) < max(sizes, default=0):
        kept = size_tensor((0, *sizes), target.device)[kept]
    return target.to(dtype) * (kept.to(dtype) / count.clamp(min=1).to(dtype))[:, None]


def hard_moments(target: Tensor, sizes: tuple[int, ...], dtype: torch.dtype) -> Moments:
    """Return the expected labels, (n, s), and laws of the size, (n, 1 + K), of 0/1 rows."""
    places = torch.arange(len(sizes) + 1, device=target.device)
    law = (places == place_sizes(target, sizes)[1][:, None]).to(dtype)
    return hard_labels(target, sizes, dtype), law


def check_rows(
    target: Tensor,
    sizes: tuple[int, ...],
    *,
    overflow: bool,
    forbidden: Tensor | None = None,
    soft: bool | None = None,
    what: str = "target",
    potentials: Tensor | None = None,
) -> bool:
    """Raise where a row of targets is wrong, and return whether targets may be fractional.

    The values are inspected once: one wait for the device. In compiled graphs and under
    ``torch.func.vmap``, which cannot branch on data, they are not. Logits of sizes, ``potentials``,
    must not be +inf: the loss would be NaN.
    """
    if target.is_complex() or target.layout != torch.strided:
        kind = f"{target.dtype} and {target.layout}"
        raise ValueError(f"{what} must be a dense tensor of real numbers, got {kind}")
    floats = target.is_floating_point() and soft is not False
    if torch.compiler.is_compiling():
        return floats
    if forbidden is None and _are_whole(target, sizes, overflow, potentials):
        return soft is True
    if potentials is not None:
        text = "those of sizes must not be inf"
        refuse_rows(potentials, "logits", {text: (potentials == torch.inf).any(-1)})
    wrong = ~((target >= 0) & (target <= 1)) if floats else (target != 0) & (target != 1)
    between = (target != 0) & (target != 1) & ~wrong
    problems = {f"values must be {'in [0, 1]' if floats else '0 or 1'}": wrong.any(-1)}
    if forbidden is not None:
        problems["a label is present that label_mask forbids"] = (forbidden & (target > 0)).any(-1)
    if not overflow:
        count = target.to(torch.int64).sum(-1, keepdim=True)
        unknown = (size_tensor((0, *sizes), target.device) != count).all(-1)
        text = f"the number of labels is not among cardinalities={_short(sizes)}"
        problems[f"{text}, and overflow=False"] = unknown & ~between.any(-1)
    found = refuse_rows(target, what, {**problems, "": between})  # fractions are no problem
    return floats if found is None else found or soft is True


def refuse_rows(values: Tensor, what: str, problems: dict[str, Tensor]) -> bool | None:
    """Raise for the first row with a problem, a text and its flags; return if the last has any."""
    if torch.compiler.is_compiling():
        return None  # nothing is inspected
    try:
        found = torch.stack([part.any() for part in problems.values()]).tolist()
    except RuntimeError:  # under vmap
        return None
    for (text, rows), is_wrong in zip(problems.items(), found, strict=True):
        if is_wrong and text:
            row = int(rows.reshape(-1).to(torch.int8).argmax())
            own = values.reshape(-1, values.shape[-1])[row].tolist()
            raise ValueError(f"row {row} of {what}: {text}: {_short(own)}")
    return bool(found[-1])


def _are_whole(target: Tensor, sizes: Sequence[int], overflow: bool, z: Tensor | None) -> bool:
    """Tell whether all rows are 0/1 and not too large; False where the sizes are not 1, 2, ..."""
    largest = max(sizes, default=0)
    if not target.numel() or (len(sizes) < largest and not overflow):
        return False
    y = target if target.is_floating_point() else target.float()
    # only 0 and 1 are their own squares; infinity less infinity is NaN
    found = [(y * y).sub_(y).abs_().amax(), y.sum(-1, dtype=torch.float32).amax()]
    found += [] if z is None else [z.amax() == torch.inf]
    try:
        wrong, most, *infinite = torch.stack([part.float() for part in found]).tolist()
    except RuntimeError:  # under vmap
        return False
    return wrong == 0 and not any(infinite) and (overflow or most <= largest)


def _short(values: Any) -> str:
    text = str(values)
    return text if len(text) <= 60 else f"{text[:57]}..."


def forbid(
    logits: Tensor,
    allowed: Tensor,
    sizes: tuple[int, ...],
    *,
    joint: bool,
    lowest_logit: float = -FORBIDDEN_GAP,
) -> Tensor:
    """Return logits under which forbidden labels, and more labels than are allowed, do not occur.

    Shapes: ``logits`` (..., 1 + K s) of the paper's code, where ``lowest_logit`` is that of what
    cannot be, or (..., s + 1 + K).
    """
    s, last = allowed.shape[-1], logits.ndim - 1  # not -1: see DecoderHead.forward
    allowed = allowed.expand(*logits.shape[:-1], s)
    possible = size_tensor((0, *sizes), logits.device) <= allowed.sum(last, keepdim=True)
    if joint:
        pairs = (possible[..., 1:, None] & allowed[..., None, :]).flatten(-2)
        components = torch.where(pairs, logits[..., 1:], lowest_logit)
        return torch.cat([logits[..., :1], components], dim=-1)
    scores = logits[..., :s]
    with torch.no_grad():
        lowest = torch.where(allowed, scores, torch.inf).amin(last, keepdim=True)
        lowest = torch.where(torch.isfinite(lowest), lowest, 0.0).clamp(max=0.0)
        below = lowest * (1 + FORBIDDEN_SHARE) - FORBIDDEN_GAP
        below = below.clamp(min=torch.finfo(scores.dtype).min)
    scores = torch.where(allowed, scores, below)
    return torch.cat([scores, torch.where(possible, logits[..., s:], -torch.inf)], dim=-1)


def only_allowed(labels: Tensor, allowed: Tensor) -> Tensor:
    """Return label sets, (n, s), with allowed labels in place of forbidden ones, if there are any.

    Forbidden labels are in them only where no allowed one has a probability above 0.
    """
    kept = (labels > 0) & allowed
    others = allowed & ~kept
    missing = (labels > 0).sum(1, keepdim=True) - kept.sum(1, keepdim=True)
    return (kept | (others & (others.cumsum(1) <= missing))).to(labels.dtype)


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


def fuses(tensor: Tensor, n_labels: int) -> bool:
    """Tell whether there are kernels for a tensor."""
    return tensor.device.type == "cuda" and n_labels <= MAX_FUSED_LABELS and HAS_TRITON


def _operation(name: str, inputs: str, shapes: Any) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function of ``_triton``: in compiled graphs an operation, which costs more."""

    def run(*arguments: Any) -> tuple[Tensor, Tensor]:
        from fbeta.nn import _triton  # Triton is imported where a kernel is called

        kernel: Callable[..., tuple[Tensor, Tensor]] = getattr(_triton, name)
        return kernel(*arguments)

    schema = f"({inputs}) -> (Tensor, Tensor)"
    made: Any = torch.library.custom_op(f"fbeta::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(shapes)
    return lambda *arguments: (made if torch.compiler.is_compiling() else run)(*arguments)


fused_loss = _operation(
    "cardinality_loss",
    "Tensor logits, Tensor target, int[] sizes",
    lambda logits, *_: (
        logits.new_empty(logits.shape[0], dtype=torch.float64),
        logits.new_empty(logits.shape, dtype=torch.promote_types(logits.dtype, torch.float32)),
    ),
)
fused_search = _operation(
    "search",
    "Tensor empty, Tensor joint, Tensor weights, Tensor low, Tensor high",
    lambda _, joint, *__: (
        joint.new_empty((joint.shape[0], joint.shape[2]), dtype=torch.int8),
        joint.new_empty(joint.shape[0], dtype=torch.float64),
    ),
)
