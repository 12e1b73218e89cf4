"""From one pass to the next: what is done with the sums over all rows, a group of problems at once.

A pass gives objective and gradient at a trial point. If the trial is good, the rows held give a
Newton direction there and a bound of what is left to gain, which may certify the problem. The
differences of the gradients seen so far correct the direction where the rows held mislead: it is
that of the limited-memory BFGS method, with H_S^-1 in the place of a multiple of the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array
from fbeta.blocks.kernel import Point, Sums
from fbeta.blocks.sample import Coordinates, Directions, Family, Sample, newton
from fbeta.linear.driver import FAR_DECREASE as FAR

__all__ = ["CERTIFIED", "LOST", "OPEN", "Group", "State", "advance", "trial_point"]

MAX_STALLED = 2
OPEN, CERTIFIED, LOST = 0, 1, 2
PAIRS = 6  # differences of gradients that are remembered
MAX_SHORTENED = 30  # steps along one direction
NOISE = 1e-9  # relative change of an objective that rounding may hide


@dataclass(frozen=True)
class Group:
    """Problems that are advanced together: on the rows outside a fold, with one strength."""

    fold: int
    alpha: float
    names: NDArray[np.intp]


@dataclass
class State:
    """Where the m problems of a group are, with c columns of coefficients each.

    Attributes
    ----------
    group : Group
    W, trial : ndarray of shape (p, m c)
        The last good point, and the one to be evaluated next.
    value, gradient : ndarray of shape (m,), ndarray of shape (p, m c)
        At the last good point.
    newton, direction : ndarray of shape (p, m c)
        The Newton direction by the rows held, and that of the trial.
    step, slope : ndarray of shape (m,)
        Of the trial, and of the objective along the direction.
    status, n_iter, shortened, stalled : integer ndarray of shape (m,)
        What became of a problem; good points; trials of one direction; points without a decrease.
    far, fresh : bool ndarray of shape (m,)
        Whether a problem is far from its solution, or has no good point yet.
    bound : ndarray of shape (m,)
        What is left to gain at most, in units of what may be left.
    total : ndarray of shape (m c,)
        The curvature of all rows together, by the rows held.
    pairs : list of (s, y, v)
        Steps, differences of gradients, and these multiplied with H_S^-1; (p, m c) each.
    """

    group: Group
    W: Array
    trial: Array
    value: Array
    gradient: Array
    newton: Array
    direction: Array
    step: Array
    slope: Array
    status: Array
    n_iter: Array
    shortened: Array
    stalled: Array
    far: Array
    fresh: Array
    bound: Array
    total: Array
    pairs: list[tuple[Array, Array, Array]] = field(default_factory=list)

    @classmethod
    def at(cls, group: Group, start: Array, far: Array) -> State:
        """Return the state before the first pass."""
        m = len(group.names)
        none, zero = np.full(m, np.inf), np.zeros(m, np.intp)
        empty = np.zeros_like(start)
        return cls(
            group, start, start.copy(), none, empty, empty.copy(), empty.copy(), np.ones(m),
            np.zeros(m), np.zeros(m, np.int8), zero, zero.copy(), zero.copy(), far,
            np.ones(m, np.bool_), none.copy(), np.ones(start.shape[1]),
        )  # fmt: skip

    @property
    def open(self) -> NDArray[np.intp]:
        """The places of the problems that are not done."""
        return np.flatnonzero(self.status == OPEN)


def trial_point(coordinates: Coordinates, family: Family, state: State) -> Point:
    """Return where the open problems of a group are to be evaluated."""
    open_, group = state.open, state.group
    names = group.names[open_]
    objective = family.objective(names)
    coef, offset = coordinates.outward(state.trial[:, _columns(open_, objective.width)])
    return Point(objective, names, coef, offset, coordinates.mean, group.fold)


def advance(sample: Sample, family: Family, state: State, sums: Sums, tol: float) -> State:
    """Take in what a pass found at the trial points, and choose the next ones.

    Parameters
    ----------
    sample : Sample
    family : Family
    state : State
        Changed in place.
    sums : Sums
        Of the open problems.
    tol : float
        As for :meth:`fbeta.linear.problems.Problems.solve`.

    Returns
    -------
    State
    """
    open_ = state.open
    if not len(open_):
        return state
    width = family.objective(state.group.names[open_]).width
    columns = _columns(open_, width)
    value, gradient = _whole(sample.coordinates, family, state, sums, columns, width)
    good = _is_good(state, open_, columns, width, value, gradient)
    _shorten(state, open_[~good], columns, width, gradient, good)
    own = open_[good]
    if len(own):
        chosen = _columns(np.flatnonzero(good), width)
        _accept(state, own, width, value[good], gradient[:, chosen])
        _turn(sample, family, state, own, width, tol)
    columns = _columns(open_, width)
    step = np.repeat(state.step[open_], width)
    state.trial[:, columns] = state.W[:, columns] + step * state.direction[:, columns]
    return state


def _columns(problems: NDArray[np.intp], width: int) -> NDArray[np.intp]:
    return (problems[:, None] * width + np.arange(width)).reshape(-1)


def _total(values: Array, width: int) -> Array:
    """Sum over the columns of each problem: (..., m c) to (..., m)."""
    return values.reshape(*values.shape[:-1], -1, width).sum(axis=-1)


def _dot(a: Array, b: Array, width: int) -> Array:
    return _total(np.einsum("ij,ij->j", a, b), width)


def _whole(
    coordinates: Coordinates, family: Family, state: State, sums: Sums, columns: Array, width: int
) -> tuple[Array, Array]:
    """Return objectives and gradients with the penalty, in the coordinates of the problems."""
    objective, penalised = family.objective(state.group.names), coordinates.penalised
    alpha = max(state.group.alpha, objective.min_alpha)
    penalty, W = (
        alpha * penalised + objective.intercept_penalty * (1 - penalised),
        state.trial[:, columns],
    )
    gradient = coordinates.inward(sums.gradient, sums.total) + penalty * W
    return sums.value + 0.5 * _dot(penalty * W, W, width), objective.project(gradient)


def _is_good(
    state: State, own: Array, columns: Array, width: int, value: Array, gradient: Array
) -> NDArray[np.bool_]:
    """Tell which trials are good: beyond the minimum not far, and no higher than before."""
    slope = _dot(gradient, state.direction[:, columns], width)
    before, now = state.slope[own], np.where(np.isfinite(slope), slope, np.inf)
    change = value - state.value[own]
    seen = change <= 1e-4 * state.step[own] * before
    small = (now <= -0.5 * before) & (change <= NOISE * np.abs(state.value[own]))
    # a convex function has only fallen where it still falls
    good = (now <= 0) | seen | small
    finite = np.isfinite(value) & np.isfinite(gradient).all(axis=0).reshape(-1, width).all(axis=1)
    return np.asarray(finite & (good | state.fresh[own]))


def _shorten(
    state: State, own: Array, columns: Array, width: int, gradient: Array, good: Array
) -> None:
    """Shorten the steps of trials that went too far, to where the slope may vanish."""
    if not len(own):
        return
    places = _columns(np.flatnonzero(~good), width)
    slope = _dot(gradient[:, places], state.direction[:, _columns(own, width)], width)
    before = state.slope[own]
    with np.errstate(all="ignore"):
        share = before / (before - slope)
    state.step[own] *= np.clip(np.where(np.isfinite(share), share, 0.1), 0.02, 0.6)
    state.shortened[own] += 1
    gone = own[(state.shortened[own] > MAX_SHORTENED) | state.fresh[own]]
    state.status[gone] = LOST
    state.trial[:, _columns(gone, width)] = state.W[:, _columns(gone, width)]


def _accept(state: State, own: Array, width: int, value: Array, gradient: Array) -> None:
    """Make the trials the last good points, and remember how gradients changed on the way."""
    columns = _columns(own, width)
    step = np.zeros_like(state.W)
    change = np.zeros_like(state.W)
    old = np.repeat(~state.fresh[own], width)
    step[:, columns] = old * (state.trial[:, columns] - state.W[:, columns])
    change[:, columns] = old * (gradient - state.gradient[:, columns])
    state.pairs = [*state.pairs, (step, change, np.zeros_like(change))][-PAIRS:]
    fell = value < state.value[own] - 4 * np.finfo(np.float64).eps * np.abs(value)
    state.stalled[own] = np.where(fell, 0, state.stalled[own] + 1)
    state.W[:, columns] = state.trial[:, columns]
    state.value[own], state.gradient[:, columns] = value, gradient
    state.n_iter[own] += 1
    state.shortened[own] = 0


def _turn(sample: Sample, family: Family, state: State, own: Array, width: int, tol: float) -> None:
    """Choose new directions for problems at good points, and certify those that have converged."""
    held, names = sample.held(state.group.fold), state.group.names[own]
    columns = _columns(own, width)
    floor = family.floor(held.weight)
    limit = 2 * max(tol, 32 * float(np.finfo(np.float64).eps)) * (state.value[own] + floor)
    gradient = state.gradient[:, columns]
    found = newton(
        held, family.objective(names), names, state.group.alpha, state.W[:, columns], gradient,
        limit, state.far[own],
    )  # fmt: skip
    state.bound[own], state.total[columns] = found.upper / limit, found.total
    certified = (found.upper <= limit) & ~state.far[own]
    lost = (state.stalled[own] > MAX_STALLED) | ~np.isfinite(found.direction).all(axis=0).reshape(
        -1, width
    ).all(axis=1)
    state.status[own] = np.where(certified, CERTIFIED, np.where(lost, LOST, OPEN))
    state.pairs[-1][2][:, columns] = state.newton[:, columns] - found.direction
    state.newton[:, columns] = found.direction
    state.direction[:, columns], state.slope[own] = _corrected(
        state.pairs, columns, width, gradient, found
    )
    state.far[own] = found.lower > FAR * (state.value[own] + floor)
    state.step[own], state.fresh[own] = 1.0, False


def _corrected(
    pairs: list[tuple[Array, Array, Array]],
    columns: Array,
    width: int,
    gradient: Array,
    found: Directions,
) -> tuple[Array, Array]:
    """Correct Newton directions by what is known of the gradients, and return their slopes.

    The two loops of the limited-memory BFGS method; products with H_S^-1 are linear combinations of
    those that are known.
    """
    residual, out = -gradient, found.direction.copy()
    history = []
    for s, y, v in reversed(pairs):
        s, y, v = s[:, columns], y[:, columns], v[:, columns]
        bend = _dot(s, y, width)
        usable = bend > 1e-12 * np.sqrt(_dot(s, s, width) * _dot(y, y, width))
        inverse = np.where(usable, 1 / np.where(usable, bend, 1.0), 0.0)
        a = inverse * _dot(s, residual, width)
        residual = residual - np.repeat(a, width) * y
        out = out - np.repeat(a, width) * v
        history.append((s, y, inverse, a))
    for s, y, inverse, a in reversed(history):
        out = out + np.repeat(a - inverse * _dot(y, out, width), width) * s
    slope, plain = _dot(gradient, out, width), _dot(gradient, found.direction, width)
    bad = ~(slope < 0.01 * plain)
    return np.where(np.repeat(bad, width), found.direction, out), np.where(bad, plain, slope)
