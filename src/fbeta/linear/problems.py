"""The problems of a learner over one X: which of them need solving, by what; and its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, check_number, check_solver, device_memory, is_accelerator, to_numpy
from fbeta._threads import n_threads, one_blas_thread
from fbeta.linear.compiled import Compiled
from fbeta.linear.design import Design, rotation_pays
from fbeta.linear.driver import warn_not_converged
from fbeta.linear.in_memory import solve_on_arrays
from fbeta.linear.learner import Alphas, Learner, Names, Path, Rows, Weight, solve_path
from fbeta.linear.objectives import Binary, Objective
from fbeta.linear.preconditioners import PRECONDITIONERS
from fbeta.losses import MIN_PARALLEL_SCORES, LogisticLoss, Loss, take_along

MEMORY_BYTES = 1 << 30  # of working memory, for the batches that are solved at the same time
BATCH_COLUMNS = 160  # columns of a batch: enough for matrix products at full speed
MIN_SINGLE_ENTRIES = 1 << 16  # entries of X below which single precision saves nothing
MAX_FACTORISED = 2500  # order of a Hessian beyond which it is not factorised
MAX_INVERTED = 5000  # the same for problems that nothing else solves
MAX_ROTATED_ENTRIES = 1 << 26  # entries of X beyond which it is not rotated for a few problems
MAX_X_ROUNDING = 1e-2  # change of a score by the rounding of X beyond which nothing is certified
FREE_MEMORY_SHARE = 0.8  # of the memory that is free on an accelerator
MIN_CG_STEPS = 48  # conjugate gradient steps before a problem is abandoned
MIN_CG_STEPS_ACCELERATOR = 12
LAUNCH_FLOPS = 6e10  # operations of an accelerator in the time that the kernels of a step launch
START_TOL = 1e-2  # of the binary problems that other ones start from
MAX_FOLDED_SCORES = 1 << 29  # scores beyond which kernels take longer than their launches


@dataclass(frozen=True)
class Solution:
    """W, (p, M), in the coordinates of the design; iterations and whether certified, (m,) each."""

    W: Array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    problems: Problems = field(repr=False)

    def scores(self, design: Design) -> Array:
        """Return the scores of n rows in the same coordinates; of constant targets, infinite."""
        own = self.problems
        with one_blas_thread(design.shape[0] * len(own) < MIN_PARALLEL_SCORES):
            scores = own.objective.bind(design)[1].scores(self.W)
        return own.objective.with_constants(scores)

    def probabilities(self, design: Design) -> Array:
        """Return the probabilities of the targets for n rows in the same coordinates, (n, M)."""
        return self.problems.objective.probabilities(self.scores(design))

    def log_odds(self, design: Design) -> Array:
        """Return the log-odds of the targets, (n, M), of problems with logistic loss."""
        return take_along(self.scores(design), self.problems.problem, axis=1)


class Problems:
    """m problems over one design, (n, p), with one or more columns of coefficients each.

    ``targets``, (n, ...), are as the objective takes them; ``memory`` is in bytes.
    """

    def __init__(
        self, design: Design, objective: Objective, targets: Any, *, memory: int = MEMORY_BYTES
    ) -> None:
        own = (targets, design.weight, design.intercept)
        self.objective, self.targets = objective.of_distinct(*own)
        self.bound, self.design = self.objective.bind(design)
        self.memory, (n, p), xp = memory, self.design.shape, design.xp
        mixed = PRECONDITIONERS[objective.preconditioners[0]].mixed_precision
        single = mixed and n * p >= MIN_SINGLE_ENTRIES and design.holds_in(xp.float32)
        self.light = self.design.astype(xp.float32 if single else xp.float64)
        self.first = np.concatenate([[0], np.cumsum(self.bound.counts)]).astype(np.intp)
        self.unsolved = self.objective.order(self.targets)
        self.floor = self.objective.floor(self.design.total_weight)
        self.factorises = "factorised" in objective.preconditioners
        # whether X is small enough to be rotated for problems that need factorisation
        self.rotates = min(n, p) <= MAX_FACTORISED and n * p <= MAX_ROTATED_ENTRIES
        order = (min(n, p) if self.rotates else p) * self.bound.counts
        self.inverts = order <= MAX_INVERTED  # problems with Hessians so small, (m,)
        self.compiled, given = None, self.objective.compiled_targets(self.targets)
        if given is not None:
            self.compiled = Compiled.of(self.design, self.light, self.bound.counts, *given)

    def __len__(self) -> int:
        return len(self.bound.counts)

    @property
    def problem(self) -> NDArray[np.intp]:
        """That each column of the targets belongs to."""
        own = getattr(self.objective, "problem", None)
        return np.arange(len(self)) if own is None else own

    def solve(
        self, alpha: float, start: Array | None = None, *, tol: float = 1e-6, max_iter: int = 100
    ) -> Solution:
        """Solve every problem that has to be, perhaps from a start, (p, M).

        A problem has converged once what there is left to gain is certified to be at most ``tol``
        times its objective plus ``floor``, in at most ``max_iter`` Newton iterations.
        """
        xp, cold = self.design.xp, start is None
        W = (
            self.bound.start(self.design, self.targets, alpha)
            if cold
            else xp.asarray(start, copy=True)
        )
        W = xp.astype(W, xp.float64, copy=False)
        n_iter, converged = np.zeros(len(self), np.intp), np.ones(len(self), np.bool_)
        abandoned = np.zeros(len(self), np.bool_)  # problems that need their Hessians factorised
        left = self.unsolved if self.design.shape[1] else self.unsolved[:0]
        if self.compiled is not None and len(left):
            settings: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "floor": self.floor}
            converged, abandoned = self.compiled.solve(
                left, W, n_iter, alpha, cold=cold, max_steps=self.max_steps, **settings
            )
            left, cold = left[~converged[left]], False
        if len(left):
            results = n_iter, converged, abandoned & self.inverts
            own: dict[str, Any] = {"alpha": alpha, "tol": tol, "max_iter": max_iter, "cold": cold}
            solve_on_arrays(self, left, W, results, **own)
        matrix = self.design.matrix
        if not sp.issparse(matrix) and matrix.dtype != xp.float64 and len(self):
            # large X in single precision was centred or rotated: that must hardly change scores
            largest = xp.maximum(xp.max(matrix, axis=0), -xp.min(matrix, axis=0))
            change = to_numpy(xp.astype(largest, xp.float64) @ xp.abs(W))
            change = change * float(xp.finfo(matrix.dtype).eps)
            converged &= np.maximum.reduceat(change, self.first[:-1]) <= MAX_X_ROUNDING
        return Solution(W, n_iter, converged, self)

    def max_steps(self, width: int, factorised: bool = False) -> int:
        """Return the steps of a direction at which a factorisation would have been cheaper."""
        n, order = self.design.shape[0], self.design.shape[1] * width
        early = is_accelerator(self.design.device) and self.factorises and not factorised
        if early and order <= MAX_FACTORISED:
            return max(MIN_CG_STEPS_ACCELERATOR, int(len(self) * n * order**2 / LAUNCH_FLOPS))
        if order > MAX_FACTORISED:
            return 2 * order
        # making a Hessian costs order / 8 products with it, factorising it order / 12 n times that
        return max(MIN_CG_STEPS, order // 4 + order**2 // max(6 * n, 1))

    def is_small(self) -> bool:
        """Tell whether a second thread does not pay."""
        return self.design.shape[0] * len(self.unsolved) < MIN_PARALLEL_SCORES

    def columns_of(self, problems: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the columns of problems that have as many each, side by side."""
        width = np.arange(self.bound.counts[problems[0]])
        return np.asarray(self.first[problems, None] + width).ravel()

    def batches(self, problems: NDArray[np.intp], factorised: bool) -> list[NDArray[np.intp]]:
        """Deal problems with as many columns into batches that take about as long."""
        n, p = self.design.shape
        threads, out = 1 if self.is_small() else n_threads(), []
        counts = self.bound.counts[problems]
        for width in np.unique(counts).tolist():
            own = problems[counts == width]
            # scores, their changes, targets, curvatures and a share of the tiles, for each column
            per_problem = 8 * width * (6 * n + 16 * p) + 24 * factorised * (p * width) ** 2
            room, most = self.memory, BATCH_COLUMNS // width
            if is_accelerator(self.design.device):
                threads, most = 1, len(own)
                free = device_memory(self.design.xp, self.design.device)
                room = int(FREE_MEMORY_SHARE * (free or room))
            size = max(1, min(most, room // (threads * per_problem)))
            count = min(len(own), threads * -(-len(own) // (threads * size)))
            out += [own[i::count] for i in range(count)]
        return out

    def warn_if_not_converged(
        self, solution: Solution, alpha: float, max_iter: int, describe: Callable[[int], str] = str
    ) -> None:
        """Warn of problems that did not converge, by the first column that each of them is."""
        if not solution.converged.all():
            warn_not_converged(
                solution.converged,
                lambda m: describe(int(np.argmax(self.problem == m))),
                f"{self.objective.kind} problems",
                f"{max_iter} iterations at alpha = {alpha:g}",
                "max_iter or alpha",
                stacklevel=4,
            )

    def expanded(self, solution: Solution, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return finite coefficients of every column of the targets, (p, M), as arrays of NumPy.

        ``mean``, (M,), is over more rows, for columns that are constant on those of the design.
        """
        W, own = np.asarray(to_numpy(solution.W)), self.objective
        if not isinstance(own, Binary):
            return W
        W, unknown = W[:, own.problem], ~np.isnan(own.constant[own.problem])
        W[:, unknown] = 0.0
        if self.design.intercept:
            W[-1, unknown] = own.loss.link(mean[unknown])
        return np.where(np.isfinite(W), W, 0.0)

    def model(self, solution: Solution) -> Any:
        """Return the model in the coordinates of X."""
        with one_blas_thread(self.is_small()):
            coef, intercept = self.design.rounded_coefficients(solution.W)
        return self.objective.model(coef, intercept, solution.n_iter, solution.converged)


def independent_start(
    design: Design, targets: Any, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rough logistic regressions, (p, M), of targets, and the constant ones or NaN, (M,)."""
    problems = Problems(design, Binary(LogisticLoss()), sp.csc_array(targets))
    W = to_numpy(problems.solve(alpha, tol=START_TOL).W)[:, problems.problem]
    return W, cast(Binary, problems.objective).constant[problems.problem]


@dataclass(frozen=True)
class LinearLearner(Learner):
    """Models that :mod:`fbeta.linear` solves for: by default one for each column of 0/1 targets.

    ``objective`` is a type of :class:`Objective` with a class method ``of`` from targets to it. The
    binary one has a ``loss``; with ``unfold``, coefficients are kept for each target, also where
    targets are equal.

    Examples
    --------
    >>> X, targets = np.array([[-1.0], [0.0], [1.0], [2.0]]), sp.csc_array([[0], [1], [0], [1]])
    >>> model = LinearLearner().fit(X, targets, None, alpha=1.0)
    >>> model.probabilities(X).ravel().round(2).tolist()
    [0.34, 0.44, 0.56, 0.66]
    """

    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    loss: Loss = LogisticLoss()  # noqa: RUF009 - it has no state
    unfold: bool = False
    objective: Any = field(default=Binary, kw_only=True)

    def __post_init__(self) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)

    def make_objective(self, targets: Any) -> Objective:
        """Return the objective of targets as a code makes them."""
        made: Objective = Binary(self.loss)
        return made if self.objective is Binary else self.objective.of(targets)

    def fit(self, X: Any, targets: Any, weight: Weight, alpha: float, name: Names = str) -> Any:
        """Fit to the targets of n rows."""
        alpha, objective = check_number("alpha", alpha), self.make_objective(targets)
        columns = targets.shape[1] if objective.separates_columns else objective.n_linear
        model = self.fit_design(self._design(X, weight, columns), targets, alpha, name)
        return model.unfold() if self.unfold else model

    def fit_design(self, design: Design, targets: Any, alpha: float, name: Names = str) -> Any:
        """Fit to the targets of the rows of a design."""
        problems = self._problems(design, targets)
        solution = problems.solve(alpha, tol=self.tol, max_iter=self.max_iter)
        problems.warn_if_not_converged(solution, alpha, self.max_iter, name)
        return problems.model(solution)

    def _problems(self, design: Design, targets: Any) -> Problems:
        values = getattr(targets, "values", targets)
        return Problems(design, self.make_objective(targets), values)

    def share(self, X: Any, weight: Weight) -> Design:
        """Return X in coordinates in which the problems are easy."""
        return self._design(X, weight, np.inf)

    def _design(self, X: Any, weight: Weight, columns: float) -> Design:
        """Return X, rotated if that pays for so many columns of scores."""
        rotate = self.objective.always_rotates or rotation_pays(X.shape, columns)
        return Design.of(X, weight, intercept=self.fit_intercept, rotate=rotate)

    def path(self, shared: Any, targets: Any, weight: Weight, rows: Rows, alphas: Alphas) -> Path:
        """Solve from the strongest alpha to the weakest, each from the solutions before."""
        problems = self._problems(shared.take(rows), targets)
        for alpha, solution in solve_path(problems, alphas, tol=self.tol, max_iter=self.max_iter):
            problems.warn_if_not_converged(solution, alpha, self.max_iter)
            yield alpha, solution

    def paths(
        self, shared: Any, targets: Sequence[Any], rows: Sequence[Rows], alphas: Alphas
    ) -> list[Path] | None:
        """Solve the binary problems of all folds together, on accelerators."""
        settings = {"tol": self.tol, "max_iter": self.max_iter}
        if self.objective is not Binary:
            return None
        return folded_paths(shared, targets, rows, alphas, self.loss, **settings)


def folded_problems(
    design: Design, targets: Sequence[sp.csc_array], rows: Sequence[Rows], loss: Loss
) -> tuple[Problems, list[Binary]]:
    """Return the binary problems of several folds, those of a fold side by side.

    On accelerators a step of few problems takes as long as the launch of its kernels, so folds
    share a batch: targets of rows that a fold holds out are NaN, and have no loss in its problems.
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
