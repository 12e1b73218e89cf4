"""The problems of all folds of a search, solved together over one X.

On accelerators a step of few problems takes as long as the launch of its kernels. Problems of
several folds share a batch there: targets of rows that a fold holds out are NaN, and such rows have
no loss in its problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from fbeta._array import is_accelerator, to_numpy
from fbeta.linear.design import Design
from fbeta.linear.learner import Alphas, Path, Rows, solve_path
from fbeta.linear.objectives import Binary
from fbeta.linear.problems import Problems, Solution
from fbeta.losses import Loss

MAX_FOLDED_SCORES = 1 << 29  # scores beyond which kernels take longer than their launches


def folded_problems(
    design: Design, targets: Sequence[sp.csc_array], rows: Sequence[Rows], loss: Loss
) -> tuple[Problems, list[Binary]]:
    """Return the binary problems of several folds, those of a fold side by side.

    ``targets`` has a matrix for each fold, (rows, M); ``rows`` are their places in the design. The
    objectives of the folds are the second result.
    """
    weight = np.ones((design.shape[0], 1)) if design.weight is None else to_numpy(design.weight)
    parts, objectives = [], list[Binary]()
    for own, columns in zip(rows, targets, strict=True):
        objective, matrix = Binary(loss).of_distinct(columns, weight[own], design.intercept)
        entries = (matrix.data, own[matrix.indices], matrix.indptr)
        parts.append(sp.csc_array(entries, shape=(design.shape[0], matrix.shape[1])))
        objectives.append(objective)
    every = Binary(loss, rows)
    every.mean, every.constant, every.problem = (
        np.concatenate([getattr(own, name) for own in objectives])
        for name in ("mean", "constant", "problem")
    )
    every.fold = np.repeat(np.arange(len(rows)), [len(own.mean) for own in objectives])
    problems = Problems(design, every, sp.hstack(parts, format="csc"))
    problems.floor = every.floor(min(float(weight[own].sum()) for own in rows))
    return problems, objectives


def folded_paths(
    shared: Any,
    targets: Sequence[sp.csc_array],
    rows: Sequence[Rows],
    alphas: Alphas,
    loss: Loss,
    **settings: Any,
) -> list[Path] | None:
    """Return the paths of folds, which advance together, where that is faster; None elsewhere."""
    columns = sum(own.shape[1] for own in targets)
    many = shared.shape[0] * columns > MAX_FOLDED_SCORES
    if not is_accelerator(shared.device) or many or len(rows) < 2 or not columns:
        return None
    problems, objectives = folded_problems(shared, targets, rows, loss)
    fold_of = cast(Binary, problems.objective).fold
    steps, known = solve_path(problems, alphas, **settings), dict[float, Solution]()

    def path(fold: int) -> Iterator[tuple[float, Any]]:
        part = slice(*np.searchsorted(fold_of, [fold, fold + 1]).tolist())
        own = copy(problems)  # all that solutions of the fold need
        own.objective = own.bound = objectives[fold]
        try:
            for alpha in sorted(set(alphas), reverse=True):
                if alpha not in known:
                    known[alpha] = next(steps)[1]
                every = known[alpha]
                results = every.W[:, part], every.n_iter[part], every.converged[part]
                solution = Solution(*results, own)
                own.warn_if_not_converged(solution, alpha, settings["max_iter"])
                yield alpha, solution
        finally:
            problems.unsolved = problems.unsolved[fold_of[problems.unsolved] != fold]

    return [path(fold) for fold in range(len(rows))]
