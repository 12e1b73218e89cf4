"""Solutions along a path of strengths of regularisation, each started from those before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fbeta.linear.problems import LinearProblems, Solution

__all__ = ["solve_path"]

Array = Any


def solve_path(
    problems: LinearProblems, alphas: Sequence[float], *, tol: float = 1e-6, max_iter: int = 100
) -> Iterator[tuple[float, Solution]]:
    """Solve the problems for each strength, from the strongest to the weakest.

    Each solve starts where the line through the last two solutions leads, in ``ln alpha``: the
    coefficients of separable problems grow like ``ln(1 / alpha)``.

    Parameters
    ----------
    problems : LinearProblems
        The binary problems over one design.
    alphas : sequence of float
        In any order.
    tol, max_iter
        As for :meth:`LinearProblems.solve`.

    Yields
    ------
    alpha : float
    solution : Solution
    """
    before: tuple[float, Array] | None = None
    last: tuple[float, Array] | None = None
    for alpha in sorted(alphas, reverse=True):
        solution = problems.solve(alpha, _predict(before, last, alpha), tol=tol, max_iter=max_iter)
        before, last = last, (alpha, solution.W)
        yield alpha, solution


def _predict(
    before: tuple[float, Array] | None, last: tuple[float, Array] | None, alpha: float
) -> Array | None:
    """Extrapolate the last two solutions to ``alpha``; None where there is nothing to go by."""
    if last is None:
        return None
    if before is None or alpha == 0 or last[0] == before[0]:
        return last[1]
    ratio = np.log(alpha / last[0]) / np.log(last[0] / before[0])
    return last[1] + min(ratio, 1.0) * (last[1] - before[1])
