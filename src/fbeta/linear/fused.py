"""Steps of the solver that are one kernel on CUDA where Triton is installed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fbeta._array import Array
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
    """Select the device of a tensor for kernel launches."""
    if tensor.device.type != "cuda":  # Triton's interpreter
        return nullcontext()
    import torch

    return torch.cuda.device(tensor.device)


def fuses_steps(at: Iterates) -> bool:
    """Tell whether there is a kernel for the steps of conjugate gradients.

    It is for estimates only, and for problems with one column and an intercept, whose
    preconditioner eliminates it.
    """
    if not _there_are_kernels(at.x):
        return False
    from fbeta.linear import _triton

    plain = at.batch.width == 1 and at.batch.design.intercept and not at.batch.design.shifted
    return bool(at.unseen_radius) and plain and at.x.shape[0] <= _triton.MAX_FEATURES


def prepare(at: Iterates) -> None:
    """Make the arrays contiguous: the kernel writes to them."""
    at.x, at.r, at.p = (a.contiguous() for a in (at.x, at.r, at.p))


def advance(at: Iterates, q: Array, inverse_norm: float) -> None:
    """Take a step, in place, given the product of the Hessians without the penalty with at.p."""
    from fbeta.linear import _triton

    kept: Any = at.preconditioner
    xp = at.batch.xp
    penalty = xp.astype(at.batch.penalty, q.dtype, copy=False)
    fixed = (penalty, kept.inverse, kept.means[0, :, :], kept.small[:, 0, 0])
    state = (at.rz, at.bounds.lower, at.bounds.upper, at.active.view(xp.int8))
    numbers = (inverse_norm, at.forcing, at.unseen_radius)
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
