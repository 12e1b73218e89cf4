"""Newton's method for many problems at once, with a certificate, over an oracle.

The driver decides which points are accepted, which problems have converged, and what is given up.
A function evaluates objectives and gradients at trial points; an oracle says which of these points
to accept, and gives Newton directions with bounds of the decrement. For rows in memory both are of
:class:`fbeta.linear.in_memory.ArrayOracle`; for streamed rows and rows on Dask evaluations are
passes over all rows, and directions come from the rows that are held (:mod:`fbeta.blocks`).

A problem has converged when its Newton decrement ``g' H^-1 g / 2``, which is what there is left to
gain, is certified to be at most ``tol`` times its objective plus a floor.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import Array, array_namespace
from fbeta.linear.batch import Evaluation, PerProblem, join_results, take_problems
from fbeta.linear.conjugate import Directions

__all__ = [
    "Oracle",
    "State",
    "StepRule",
    "effective_tol",
    "minimise",
    "warn_not_converged",
]

# decrease that the decrement promises, relative to the objective, beyond which a problem is far
# from its optimum: then curvatures are cautious, and nothing is certified
FAR_DECREASE = 0.3
VISIBLE_DECREASE_ULPS = 4  # decrease of an objective, in units of rounding, that counts
MIN_TOL_ULPS = 32  # tolerance, in units of rounding, that objectives can resolve
MAX_SHORTENED = 30  # trials along one direction


def effective_tol(tol: float) -> float:
    """Return a tolerance that double precision can resolve."""
    return max(tol, MIN_TOL_ULPS * float(np.finfo(np.float64).eps))


@dataclass(frozen=True)
class StepRule:
    """Which steps along a direction are accepted, and which is tried next.

    A step is accepted where the slope has all but vanished - shares ``slope_before`` and
    ``slope_beyond`` of it may be left before and beyond the minimum - and the objective has not
    risen, or where the objective has fallen by the share ``armijo`` of what the slope promises. The
    next step is within ``shortest`` and ``longest``, as a share of the way between two steps.
    """

    slope_before: float
    slope_beyond: float
    armijo: float
    shortest: float
    longest: float

    def accepts(
        self, first: Array, now: Array, change: Array, step: Array, rounding_error: Array
    ) -> Array:
        """Tell which steps to accept, (m,), by the slopes at the start and at the step."""
        flat = now <= -self.slope_beyond * first
        if self.slope_before < float("inf"):
            flat = flat & (now >= self.slope_before * first)
        # a convex function has only fallen where it still falls
        fallen = (now <= 0) | (change <= rounding_error)
        return flat & fallen | (change <= self.armijo * step * first)

    def share(self, low: Array, high: Array) -> Array:
        """Return where a straight line between two slopes vanishes, within the limits."""
        xp = array_namespace(low)
        secant = low / (low - high)
        secant = xp.where(xp.isfinite(secant), secant, xp.full_like(secant, 0.1))
        return xp.clip(secant, self.shortest, self.longest)


@dataclass
class State(PerProblem):
    """Where m active problems are, with M columns of coefficients, and those that have ended.

    ``step`` and ``slope`` are those of the next trial; ``n_iter`` counts accepted points,
    ``budget`` evaluations that are left, ``stalled`` points without a visible decrease,
    ``shortened`` trials along this direction. ``cautious`` problems are far from their optimum.
    ``finished`` lists names, W, n_iter, converged and abandoned of problems that have ended.
    """

    names: Array
    W: Array
    value: Array
    gradient: Array
    direction: Array
    step: Array
    slope: Array
    n_iter: Array
    budget: Array
    stalled: Array
    shortened: Array
    cautious: Array
    floor: float
    finished: list[tuple[Array, ...]]

    @classmethod
    def start(
        cls,
        names: Array,
        W: Array,
        budget: Array,
        *,
        cautious: bool,
        floor: float,
        n_iter: int,
        **more: Any,
    ) -> Self:
        """Return the state before the first evaluation, at W; ``n_iter`` is counted up there."""
        xp, m = array_namespace(W), budget.shape[0]
        real = {"dtype": W.dtype, "device": W.device}
        none, zero, empty = xp.full(m, xp.inf, **real), xp.zeros_like(budget), xp.zeros_like(W)
        far = xp.full(m, cautious, dtype=xp.bool, device=W.device)
        real_parts = (none, empty, empty, xp.ones(m, **real), xp.zeros(m, **real))
        counts = (xp.full_like(budget, n_iter), budget, zero, zero)
        return cls(names, W, *real_parts, *counts, far, floor, [], **more)

    @property
    def trial(self) -> Array:
        """The next point, (p, M)."""
        return self.W + self.spread(self.step) * self.direction

    @property
    def fresh(self) -> Array:
        """The problems without an accepted point, (m,)."""
        return array_namespace(self.value).isinf(self.value)

    def spread(self, values: Array) -> Array:
        """Repeat the value of each problem for its columns: (m,) to (M,)."""
        c = self.W.shape[1] // max(1, len(self))
        return values if c == 1 else array_namespace(values).repeat(values, c)

    def dot(self, a: Array, b: Array) -> Array:
        """Return the inner products of columns, (p, M) each, by problem: (m,)."""
        xp, m = array_namespace(a), len(self)
        products = xp.sum(a * b, axis=0)
        return (
            products if products.shape[0] == m else xp.sum(xp.reshape(products, (m, -1)), axis=-1)
        )

    def end(self, ended: Array, converged: Array, abandoned: Array) -> tuple[Self, Array | None]:
        """Store results of problems that have ended; return the others, and where, if some have."""
        xp, m = array_namespace(self.value), len(self)
        left = xp.nonzero(~ended)[0]
        if left.shape[0] == m:
            return self, None
        results = (self.names, self.W, self.n_iter, converged, abandoned)
        if left.shape[0]:
            results = take_problems(results, xp.nonzero(ended)[0], m)
        self.finished.append(results)
        return self.take(left), left

    def results(self) -> tuple[Array, ...]:
        """Return W, n_iter, converged and abandoned of all problems, once all have ended."""
        return join_results(self.finished)


class Oracle(ABC):
    """Judges trial points and gives directions, a group of problems at a time."""

    rule: ClassVar[StepRule]
    max_stalled: ClassVar[int] = 2  # accepted points without a visible decrease
    eps: float = float(np.finfo(np.float64).eps)  # of the arithmetic of objectives
    # where the decrement is below so many limits, steps are accepted without another evaluation
    unseen_radius: float = 0.0

    @abstractmethod
    def accept(self, state: Any, found: Any) -> tuple[Evaluation, Array | None]:
        """Return the evaluation of a group, and which trials to accept: None for all of them."""

    @abstractmethod
    def direction(self, state: Any, at: Evaluation, limit: Array) -> Directions:
        """Return directions at accepted points; the state is still that of the points before."""

    def keep(self, problems: Array) -> None:  # noqa: B027 - not every oracle holds problems
        """Drop all problems but these."""

    def each(self, work: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return ``work(oracle, item)`` for each item."""
        return [work(self, item) for item in items]


def minimise(
    evaluate: Callable[[Sequence[Any]], list[Any]],
    each: Callable[[Callable[[Any, Any], Any], Sequence[Any]], list[Any]],
    states: Sequence[Any],
    tol: float,
    after_round: Callable[[list[Any]], None] | None = None,
) -> list[Any]:
    """Advance groups of problems, one state each, all in each round, until every problem has ended.

    ``evaluate`` goes from states to what :meth:`Oracle.accept` takes of each; ``each`` is as
    :meth:`Oracle.each`. ``after_round`` is called with all states after each round.
    """
    states, work = list(states), partial(advance, tol=effective_tol(tol))
    while places := [at for at, state in enumerate(states) if len(state)]:
        found = evaluate([states[at] for at in places])
        items = [(states[at], own) for at, own in zip(places, found, strict=True)]
        for at, state in zip(places, each(work, items), strict=True):
            states[at] = state
        if after_round is not None:
            after_round(states)
    return states


def advance(oracle: Oracle, item: tuple[Any, Any], tol: float) -> Any:
    """Take in what was found at the trial points of a group, and choose the next ones."""
    state, found = item
    state = replace(state, budget=state.budget - 1)
    at, accepted = oracle.accept(state, found)
    xp = array_namespace(state.value)
    if accepted is None or bool(xp.all(accepted)):
        return _turn(oracle, state, at, tol)
    own, others = (xp.nonzero(chosen)[0] for chosen in (accepted, ~accepted))
    short = _shorten(oracle, state.take(others), take_problems(at.gradient, others, len(state)))
    if not own.shape[0]:
        return short
    turned = _turn(oracle, state.take(own), at.take(own), tol)
    return turned.join(short, xp.concat([turned.names, short.names]))


def _shorten(oracle: Oracle, state: Any, gradient: Array) -> Any:
    """Shorten the steps of trials that went too far, to where the slope may vanish."""
    slope = state.dot(gradient, state.direction)
    step = state.step * oracle.rule.share(state.slope, slope)
    state = replace(state, step=step, shortened=state.shortened + 1)
    diverged = (state.shortened > MAX_SHORTENED) | state.fresh | (state.budget < 0)
    return state.end(diverged, diverged & False, diverged & False)[0]


def _turn(oracle: Oracle, state: Any, at: Evaluation, tol: float) -> Any:
    """Move to accepted points, end the problems that are done, and choose new directions."""
    xp = array_namespace(at.value)
    fell = at.value < state.value - VISIBLE_DECREASE_ULPS * oracle.eps * xp.abs(at.value)
    stalled = xp.where(fell, xp.zeros_like(state.stalled), state.stalled + 1)
    limit = 2 * tol * (at.value + state.floor)
    found = oracle.direction(state, at, limit)
    converged = (found.upper <= limit) & ~state.cautious
    diverged = ~xp.isfinite(at.value) | (stalled >= oracle.max_stalled)
    ended = converged | diverged | (state.budget < 0)
    abandoned = xp.zeros_like(ended) if found.abandoned is None else found.abandoned
    ended, W, n_iter = ended | abandoned, at.W, state.n_iter + 1
    if oracle.unseen_radius > 0:
        close = (found.lower > 0) & (found.lower <= oracle.unseen_radius * limit)
        unseen = (~ended | converged) & ~state.cautious & close & (state.budget >= 0)
        W = W + xp.where(state.spread(unseen), found.direction, xp.zeros_like(W))
        ended, n_iter = ended | unseen, n_iter + xp.astype(unseen, n_iter.dtype)
    moved = replace(
        state,
        W=W,
        value=at.value,
        gradient=at.gradient,
        direction=found.direction,
        step=xp.ones_like(at.value),
        slope=state.dot(at.gradient, found.direction),
        n_iter=n_iter,
        stalled=stalled,
        shortened=xp.zeros_like(stalled),
        cautious=found.lower > FAR_DECREASE * (at.value + state.floor),
    )
    moved, left = moved.end(ended, converged, abandoned)
    if left is not None and left.shape[0]:
        oracle.keep(left)
    return moved


def warn_not_converged(
    converged: NDArray[np.bool_],
    describe: Callable[[int], str],
    what: str,
    where: str,
    advice: str,
    stacklevel: int,
) -> None:
    """Warn of problems that did not converge, by name; ``stacklevel`` counts from the caller."""
    failed = np.flatnonzero(~converged)
    names = ", ".join(describe(int(m)) for m in failed[:10]) + (", ..." if len(failed) > 10 else "")
    warnings.warn(
        f"{len(failed)} of {len(converged)} {what} did not converge in {where} ({names}): increase "
        f"{advice}, or scale X",
        ConvergenceWarning,
        stacklevel=stacklevel + 1,
    )
