"""Solutions along a path of alphas, each started from those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fbeta._array import Array
from fbeta.linear.problems import Problems, Solution

__all__ = ["solve_path"]

# share of the second-order term in an extrapolation: all of it overshoots where the path bends
SECOND_ORDER_SHARE = 0.5


def solve_path(
    problems: Problems, alphas: Sequence[float], *, tol: float = 1e-6, max_iter: int = 100
) -> Iterator[tuple[float, Solution]]:
    """Solve the problems for each alpha, from the strongest to the weakest, and yield both.

    Each solve starts where the solutions before it lead, as a function of ``ln alpha``: the
    coefficients of separable problems grow like ``ln(1 / alpha)``.
    """
    known: list[tuple[float, Array]] = []
    for alpha in sorted(set(alphas), reverse=True):
        start = extrapolate(known, alpha)
        solution = problems.solve(alpha, start, tol=tol, max_iter=max_iter)
        known = [*known[-2:], (alpha, solution.W)]
        yield alpha, solution


def extrapolate(known: list[tuple[float, Array]], alpha: float) -> Array | None:
    """Continue up to three solutions (alpha, W), the strongest first, to ``alpha``.

    By divided differences in ``ln alpha``; None where no solution is known.

    Examples
    --------
    >>> extrapolate([(100.0, 1.0), (10.0, 2.0)], 1.0)
    3.0
    """
    if not known:
        return None
    if len(known) == 1 or alpha == 0:
        return known[-1][1]
    t = [float(np.log(a)) for a, _ in known]
    W = [w for _, w in known]
    ahead = float(np.log(alpha)) - t[-1]
    slope = (W[-1] - W[-2]) / (t[-1] - t[-2])
    out = W[-1] + ahead * slope
    if len(known) == 3:
        before = (W[-2] - W[-3]) / (t[-2] - t[-3])
        bend = (slope - before) / (t[-1] - t[-3])
        out = out + SECOND_ORDER_SHARE * ahead * (float(np.log(alpha)) - t[-2]) * bend
    return out
