"""Conjugate gradients for many problems at once, which say how far each of them is from its end.

They bound ``g' H^-1 g`` from below by Gauss quadrature and, since no eigenvalue of the
preconditioned Hessian is below a number that is known, from above by Gauss-Radau quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from fbeta._array import Array
from fbeta._threads import check_cancelled
from fbeta.linear.block import Block, Leaving, Point
from fbeta.linear.fused import advance, fuses_steps, prepare
from fbeta.linear.preconditioners import Preconditioner

__all__ = ["Search", "conjugate_gradients"]

FORCING = 0.01  # share of the Newton decrement that a direction may leave
LOOSE = 0.2  # the same where less than that is left to gain
RESIDUE = 10.0  # what single precision takes the inverse of a preconditioned Hessian for, at most
TAIL = 0.1  # share of a block that single precision does not wait for


@dataclass
class Search:
    """Directions (p, M); for each problem bounds of ``g' H^-1 g`` and the steps taken."""

    direction: Array
    lower: Array
    upper: Array
    steps: Array


def conjugate_gradients(
    block: Block,
    point: Point,
    preconditioner: Preconditioner,
    limit: Array,
    far: Array,
    max_steps: int,
    reach: float = 0.0,
    forcing: float = FORCING,
) -> Search:
    """Solve ``H x = -g`` until x is accurate enough, or ``g' H^-1 g`` is known to be below a limit.

    Parameters
    ----------
    block : Block
        For products with the Hessians.
    point : Point
        Gradient and curvature.
    preconditioner : Preconditioner
        With a lower bound of the spectrum.
    limit : array of shape (m,)
        What the upper bound is compared with.
    far : bool array of shape (m,)
        Problems that do not end here.
    max_steps : int
        The largest number of steps.
    reach : float
        Where ``g' H^-1 g`` is below ``reach`` limits, the direction is followed unseen, and has to
        be accurate. With a reach there are estimates in place of bounds.
    forcing : float
        Share of the Newton decrement that a direction may leave.

    Returns
    -------
    Search
    """
    xp = block.xp
    z, size, most = preconditioner.apply(-point.gradient)
    scale = xp.sqrt(xp.where(size > 0, size, xp.ones_like(size)))
    limit = xp.where(far, xp.zeros_like(limit), limit / scale**2)
    wide, size, most = block.spread(scale), size / scale**2, most / scale**2
    at = Iterates.at(
        block, point, preconditioner, -point.gradient / wide, z / wide, size, most, limit, reach,
        forcing,
    )  # fmt: skip
    leaving = Leaving(block, scale.shape[0])
    few = int(TAIL * scale.shape[0]) if reach else 0
    steps = 0
    while True:
        left = xp.nonzero(at.active)[0]
        over = steps >= max_steps or left.shape[0] <= few
        left = left[:0] if over else left
        if left.shape[0] <= block.shrink * at.active.shape[0]:
            gone = xp.nonzero(xp.ones_like(at.active) if over else ~at.active)[0]
            leaving.drop(gone, left, at.x, at.bounds.lower, at.bounds.upper, steps)
            if left.shape[0] == 0:
                break
            at = at.take(left)
        check_cancelled()
        at.advance()
        steps += 1
    x, lower, upper, taken = leaving.collect()
    x = block.objective.project(xp.astype(x, xp.float64) * block.spread(scale))
    # rounding may spoil a direction, never the descent
    uphill = block.total(xp.sum(x * point.gradient, axis=0)) >= 0
    return Search(
        xp.where(block.spread(uphill), -point.gradient, x), lower * scale**2, upper * scale**2,
        taken,
    )  # fmt: skip


@dataclass
class Iterates:
    """Where conjugate gradients are with each problem.

    Attributes
    ----------
    x, r, p : array of shape (p, M)
        Solution, residual and direction.
    rz : array of shape (m,)
        Squared norm of the residual, by the preconditioner.
    limit, share : array of shape (m,)
        What the upper bound is compared with, and how much of the decrement may be left.
    active : bool array of shape (m,)
        Problems that need another step.
    bounds : Bounds
        Of ``g' H^-1 g``.
    """

    block: Block
    preconditioner: Preconditioner
    curvature: list[Array]
    x: Array
    r: Array
    p: Array
    rz: Array
    limit: Array
    share: Array
    active: Array
    bounds: Bounds
    reach: float
    forcing: float
    fused: bool = False

    @classmethod
    def at(
        cls,
        block: Block,
        point: Point,
        preconditioner: Preconditioner,
        r: Array,
        z: Array,
        rz: Array,
        most: Array,
        limit: Array,
        reach: float,
        forcing: float,
    ) -> Iterates:
        """Begin with a residual, (p, M), and what the preconditioner makes of it."""
        xp = block.xp
        rows = block.light if preconditioner.single else block.heavy
        r, p = (xp.astype(a, rows.dtype) for a in (r, z))
        bounds = (Estimate if reach else Bounds).before(xp, rz, most, preconditioner.smallest)
        # what may be left: a share of the decrease, or of the tolerance where that is more
        share = xp.clip(0.3 * limit, forcing, LOOSE)
        out = cls(
            block, preconditioner.astype(rows.dtype), point.curvature, xp.zeros_like(r), r, p, rz,
            limit, share, rz > 0, bounds, reach, forcing,
        )  # fmt: skip
        if not reach:  # estimates need a step to go by
            # nothing may be left at all
            none = block.total(xp.sum(xp.abs(r), axis=0)) == 0
            bounds.upper = xp.where(none, bounds.lower, bounds.upper)
            out.look()
        out.fused = fuses_steps(out)
        if out.fused:
            prepare(out)
        return out

    def take(self, problems: Array) -> Self:
        """Return those of some problems."""
        take, columns = self.block.xp.take, self.block.columns(problems)
        x, r, p = (take(a, columns, axis=1) for a in (self.x, self.r, self.p))
        rz, limit, share, active = (
            take(a, problems) for a in (self.rz, self.limit, self.share, self.active)
        )
        return replace(
            self, x=x, r=r, p=p, rz=rz, limit=limit, share=share, active=active,
            bounds=self.bounds.take(problems),
            curvature=[take(h, columns, axis=1) for h in self.curvature],
            preconditioner=self.preconditioner.take(problems, columns),
        )  # fmt: skip

    def advance(self) -> None:
        """Take a step, and see which problems need another."""
        block, xp = self.block, self.block.xp
        rows = block.light if self.preconditioner.single else block.heavy
        if self.fused:
            advance(self, block.response(rows, self.curvature, self.p), RESIDUE)
            return
        q = block.hessian_product(rows, self.curvature, self.p)
        bend = block.total(xp.sum(self.p * q, axis=0))
        # a direction without curvature is the end: rounding has the last word
        going = self.active & (bend > 0)
        nothing = xp.zeros_like(self.rz)
        length = xp.where(going, self.rz / bend, nothing)
        wide = xp.astype(block.spread(length), rows.dtype)
        self.x, self.r = self.x + wide * self.p, self.r - wide * q
        z, size, most = self.preconditioner.apply(self.r)
        new, most = (xp.astype(a, xp.float64) for a in (size, most))
        ratio = xp.where(going, new / self.rz, nothing)
        self.p = z + xp.astype(block.spread(ratio), rows.dtype) * self.p
        self.bounds.update(self.rz, new, most, length, ratio, going)
        self.rz = xp.where(going, new, nothing)
        self.look()

    def look(self) -> None:
        """See which problems need another step."""
        rz, limit, bounds = self.rz, self.limit, self.bounds
        accurate = (rz <= self.share) & (bounds.lower > limit)
        if self.reach:
            accurate = accurate & ((rz <= 0.3 * limit) | (bounds.lower > self.reach * limit))
        done = accurate | bounds.tight(self.forcing)
        self.active = (bounds.upper > limit) & (rz > 0) & ~done


@dataclass
class Bounds:
    """Bounds of ``g' H^-1 g``, (m,) each, as conjugate gradients go on.

    Gauss: the sum of length times residual. Gauss-Radau, with the lower end ``smallest`` of the
    spectrum prescribed: plus ``factor`` times the residual, by the recurrence of Meurant and Tichy,
    or plus what the preconditioner says of the residual, if that is less. Where the recurrence
    breaks down the lower end was none for the products as they are computed, and there is no bound.
    """

    xp: Any
    smallest: Array
    factor: Array
    lower: Array
    upper: Array

    @classmethod
    def before(cls, xp: Any, rz: Array, most: Array, smallest: Array) -> Bounds:
        """Return what is known before any step."""
        known = (smallest > 0) & (rz > 0)
        none = xp.full_like(smallest, xp.inf)
        factor = xp.where(known, 1 / xp.where(known, smallest, xp.ones_like(smallest)), none)
        upper = xp.where(known, xp.minimum(factor * rz, most), none)
        return cls(xp, smallest, factor, xp.zeros_like(smallest), upper)

    def tight(self, forcing: float) -> Array:
        """Tell where the bounds have met, up to a share, (m,)."""
        return self.upper <= (1 + forcing) * self.lower

    def take(self, problems: Array) -> Bounds:
        """Return those of some problems."""
        arrays = (self.smallest, self.factor, self.lower, self.upper)
        return type(self)(self.xp, *(self.xp.take(a, problems) for a in arrays))

    def update(
        self, rz: Array, new: Array, most: Array, length: Array, ratio: Array, going: Array
    ) -> None:
        """Account for a step, of the problems that took one."""
        xp = self.xp
        rest = self.factor - length
        sound = (rest > 0) & (rest < xp.inf) & (new >= 0)
        none = xp.full_like(rest, xp.inf)
        self.factor = xp.where(sound, rest / (self.smallest * rest + ratio), none)
        self.lower = self.lower + length * rz
        upper = xp.where(sound, self.lower + xp.minimum(self.factor * new, most), none)
        self.upper = xp.where(going, upper, self.upper)


class Estimate(Bounds):
    """The same without a promise, where double precision has the last word.

    What is left is taken for ``RESIDUE`` times the residual.
    """

    @classmethod
    def before(cls, xp: Any, rz: Array, most: Array, smallest: Array) -> Estimate:
        """Return what is known before any step."""
        return cls(xp, smallest, smallest, xp.zeros_like(rz), RESIDUE * rz)

    def update(
        self, rz: Array, new: Array, most: Array, length: Array, ratio: Array, going: Array
    ) -> None:
        """Account for a step."""
        self.lower = self.lower + length * rz
        self.upper = self.lower + RESIDUE * self.xp.where(going, new, self.xp.zeros_like(new))
