"""What the solver does in one kernel where there is one for it: on CUDA, if Triton is there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fbeta._array import Array
from fbeta.linear.preconditioners import Eliminating
from fbeta.losses import LogisticLoss

if TYPE_CHECKING:
    from fbeta.linear.conjugate import Iterates
    from fbeta.losses import Loss

__all__ = ["advance", "fuses_losses", "fuses_steps", "logistic", "prepare"]


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _there_are_kernels(array: Array) -> bool:
    return getattr(array.device, "type", None) == "cuda" and _has_triton()


def _device(tensor: Array) -> AbstractContextManager[Any]:
    """Make the device of a tensor the one that kernels are launched on."""
    if tensor.device.type != "cuda":  # Triton's interpreter
        return nullcontext()
    import torch

    return torch.cuda.device(tensor.device)


def fuses_steps(at: Iterates) -> bool:
    """Tell whether there is a kernel for the steps of conjugate gradients.

    It is for estimates only, and for problems with one column and an intercept.
    """
    if not _there_are_kernels(at.x) or not isinstance(at.preconditioner, Eliminating):
        return False
    from fbeta.linear import _triton

    plain = at.block.width == 1 and at.block.design.intercept and not at.block.design.shifted
    return bool(at.reach) and plain and at.x.shape[0] <= _triton.MOST_FEATURES


def prepare(at: Iterates) -> None:
    """Make the state one that the kernel can write to."""
    at.x, at.r, at.p = (a.contiguous() for a in (at.x, at.r, at.p))


def advance(at: Iterates, q: Array, residue: float) -> None:
    """Take a step, in place; ``q`` is what the Hessians without the penalty make of ``at.p``."""
    from fbeta.linear import _triton

    kept: Any = at.preconditioner
    xp = at.block.xp
    penalty = xp.astype(at.block.penalty, q.dtype, copy=False)
    fixed = (penalty, kept.inverse, kept.B[0, :, :], kept.small[:, 0, 0])
    state = (at.rz, at.bounds.lower, at.bounds.upper, at.active.view(xp.int8))
    numbers = (residue, at.forcing, at.reach)
    with _device(q):
        _triton.advance((at.x, at.r, at.p), q, fixed, state, (at.limit, at.share), numbers)


def fuses_losses(loss: Loss, u: Array) -> bool:
    """Tell whether there is a kernel for a loss of scores."""
    return type(loss) is LogisticLoss and _there_are_kernels(u)


def logistic(y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array, Array]:
    """Return the sums of the losses, derivatives, curvatures and the sums of these."""
    from fbeta.linear import _triton

    with _device(u):
        return _triton.logistic(y, u, cautious)
