"""All problems over one X: which of them need solving, by what, and in which batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, device_memory, is_accelerator, to_numpy
from fbeta._threads import n_threads, one_blas_thread, run_threaded
from fbeta.linear.batch import ProblemBatch
from fbeta.linear.compiled import AIM
from fbeta.linear.design import Design
from fbeta.linear.driver import objective_floor, warn_if_not_converged
from fbeta.linear.in_memory import solve_batch
from fbeta.linear.models import MIN_PARALLEL_SCORES, LinearModel, LinearProbabilities, take_along
from fbeta.linear.objectives import Binary, Objective
from fbeta.linear.preconditioners import PRECONDITIONERS
from fbeta.losses import LogisticLoss, Loss
from fbeta.statistics.encoding import constant_values, distinct_columns

__all__ = ["LinearProblems", "Problems", "Solution", "independent_start"]

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


@dataclass(frozen=True)
class Solution:
    """W, (p, M), in the coordinates of the design; iterations and whether certified, (m,) each."""

    W: Array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    problems: Problems = field(repr=False)

    def probabilities(self, design: Design) -> Array:
        """Return the probabilities of the targets for n rows in the same coordinates, (n, M)."""
        return self.problems.probabilities(self, design)

    def log_odds(self, design: Design) -> Array:
        """Return the log-odds of the targets, (n, M), of problems with logistic loss."""
        return take_along(self.problems.scores(self, design), self.problems.problem, axis=1)


class Problems:
    """m problems over one design, with one or more columns of coefficients each.

    Parameters
    ----------
    design : Design
        With n rows and p columns.
    objective : Objective
        Of all problems.
    targets : array of shape (n, ...)
        As the objective takes them.
    memory : int
        Bytes of working memory.
    """

    def __init__(
        self, design: Design, objective: Objective, targets: Any, *, memory: int = MEMORY_BYTES
    ) -> None:
        self.objective, self.targets, self.memory = objective, targets, memory
        self.bound, design = objective.bind(design)
        self.design, (n, p), xp = design, design.shape, design.xp
        mixed = PRECONDITIONERS[objective.preconditioners[0]].mixed_precision
        single = mixed and n * p >= MIN_SINGLE_ENTRIES and design.holds_in(xp.float32)
        self.light = design.astype(xp.float32 if single else xp.float64)
        self.first = np.concatenate([[0], np.cumsum(self.bound.counts)]).astype(np.intp)
        self.problem = np.arange(len(self))  # that each column of the targets belongs to
        self.unsolved = objective.order(targets)
        self.compiled = objective.compiled(design, self.light, targets)

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def floor(self) -> float:
        """What is added to an objective that decreases are compared with."""
        return objective_floor(self.design.total_weight, self.objective.null_loss)

    @property
    def _factorises(self) -> bool:
        return "factorised" in self.objective.preconditioners

    def solve(
        self, alpha: float, start: Array | None = None, *, tol: float = 1e-6, max_iter: int = 100
    ) -> Solution:
        """Solve every problem that has to be.

        Parameters
        ----------
        alpha : float >= 0
            Regularisation strength.
        start : array of shape (p, M), optional
            Where to start.
        tol : float
            A problem has converged once what there is left to gain is certified to be at most
            ``tol`` times its objective plus :attr:`floor`.
        max_iter : int
            Largest number of Newton iterations.

        Returns
        -------
        Solution
        """
        xp, cold = self.design.xp, start is None
        W = (
            self.bound.start(self.design, self.targets, alpha)
            if cold
            else xp.asarray(start, copy=True)
        )
        W = xp.astype(W, xp.float64, copy=False)
        run = _Run(self, W, alpha, tol, max_iter, cold)
        left = self.unsolved if self.design.shape[1] else self.unsolved[:0]
        if self.compiled is not None and len(left):
            settings: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "floor": self.floor}
            run.converged, run.abandoned = self.compiled.solve(
                left, W, run.n_iter, alpha, cold=cold, max_steps=self.max_steps, **settings
            )
            left, run.cold_start = left[~run.converged[left]], False
        run.abandoned = run.abandoned & self._inverts
        for factorised in (False, True) if self._factorises else (False,):
            run.solve(left[run.abandoned[left] == factorised], factorised)
            left, run.cold_start = left[~run.converged[left]], False
        return Solution(W, run.n_iter, run.converged & self._resolved(W), self)

    def _resolved(self, W: Array) -> NDArray[np.bool_]:
        """Tell for each problem whether the rounding of X hardly changes its scores, (m,)."""
        matrix, xp = self.design.matrix, self.design.xp
        if sp.issparse(matrix) or matrix.dtype == xp.float64 or not len(self):
            return np.ones(len(self), np.bool_)
        # large X in single precision was centred or rotated
        largest = xp.maximum(xp.max(matrix, axis=0), -xp.min(matrix, axis=0))
        change = to_numpy(xp.astype(largest, xp.float64) @ xp.abs(W))
        change = change * float(xp.finfo(matrix.dtype).eps)
        return np.maximum.reduceat(change, self.first[:-1]) <= MAX_X_ROUNDING

    def max_steps(self, width: int, factorised: bool = False) -> int:
        """Return the steps of a direction at which a factorisation would have been cheaper."""
        n, order = self.design.shape[0], self.design.shape[1] * width
        early = is_accelerator(self.design.device) and self._factorises and not factorised
        if early and order <= MAX_FACTORISED:
            return max(MIN_CG_STEPS_ACCELERATOR, int(len(self) * n * order**2 / LAUNCH_FLOPS))
        if order > MAX_FACTORISED:
            return 2 * order
        # making a Hessian costs order / 8 products with it, factorising it order / 12 n times that
        return max(MIN_CG_STEPS, order // 4 + order**2 // max(6 * n, 1))

    @property
    def _rotates(self) -> bool:
        """Whether X is small enough to be rotated for problems that need factorisation."""
        n, p = self.design.shape
        return min(n, p) <= MAX_FACTORISED and n * p <= MAX_ROTATED_ENTRIES

    @property
    def _inverts(self) -> NDArray[np.bool_]:
        """The problems whose Hessians are small enough to be inverted, (m,)."""
        n, p = self.design.shape
        order = (min(n, p) if self._rotates else p) * np.diff(self.first)
        return np.asarray(order <= MAX_INVERTED)

    def is_small(self) -> bool:
        """Tell whether a second thread does not pay."""
        return self.design.shape[0] * len(self.unsolved) < MIN_PARALLEL_SCORES

    def _batches(self, problems: NDArray[np.intp], factorised: bool) -> list[NDArray[np.intp]]:
        """Deal problems into batches of like composition, which take about as long."""
        if not len(problems):
            return []
        n, p = self.design.shape
        threads = 1 if self.is_small() else n_threads()
        width = int(np.diff(self.first)[problems].max())
        # scores, their changes, targets, curvatures and a share of the tiles, for each column
        per_problem = 8 * width * (6 * n + 16 * p) + 24 * factorised * (p * width) ** 2
        room, most = self.memory, BATCH_COLUMNS // width
        if is_accelerator(self.design.device):
            threads, most = 1, len(problems)
            free = device_memory(self.design.xp, self.design.device)
            room = int(FREE_MEMORY_SHARE * (free or room))
        size = max(1, min(most, room // (threads * per_problem)))
        count = min(len(problems), threads * -(-len(problems) // (threads * size)))
        return [problems[i::count] for i in range(count)]

    def warn_if_not_converged(
        self,
        solution: Solution,
        alpha: float,
        max_iter: int,
        describe: Callable[[int], str] = str,
    ) -> None:
        """Warn of problems that did not converge, by the first column that each of them is."""
        warn_if_not_converged(
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
        return np.asarray(to_numpy(solution.W))

    def scores(self, solution: Solution, design: Design) -> Array:
        """Return the scores of n rows in the same coordinates, by W."""
        with one_blas_thread(design.shape[0] * len(self) < MIN_PARALLEL_SCORES):
            return self.objective.bind(design)[1].scores(solution.W)

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return what the objective makes of the scores of n rows in the same coordinates."""
        return self.objective.probabilities(self.scores(solution, design))

    def coefficients(self, solution: Solution) -> tuple[Array, Array]:
        """Return coefficients (M, d) and intercepts (M,) in the coordinates of X."""
        with one_blas_thread(self.is_small()):
            return self.design.rounded_coefficients(solution.W)

    def model(self, solution: Solution) -> Any:
        """Return the model in the coordinates of X."""
        coef, intercept = self.coefficients(solution)
        return LinearModel(coef, intercept, solution.n_iter, solution.converged, self.objective)


class LinearProblems(Problems):
    """The problems whose targets are the columns of a matrix.

    Columns with equal targets are one problem. With an intercept, a constant target q has the
    solution ``w = 0``, intercept ``link(q)``, and is not solved.
    The targets, (n, M), lie in [0, 1].

    Attributes
    ----------
    problem : ndarray of shape (M,)
        The distinct problem that each column belongs to.
    constant : ndarray of shape (m,)
        The value of a constant target that is not solved, NaN elsewhere.
    """

    def __init__(
        self, design: Design, targets: sp.csc_array, loss: Loss, *, memory: int = MEMORY_BYTES
    ) -> None:
        self.loss = loss
        problem, first = distinct_columns(targets)
        alone = len(first) == targets.shape[1]
        matrix = sp.csc_array(targets if alone else targets[:, first])
        if design.weight is None:
            mean = np.asarray(matrix.sum(axis=0) / matrix.shape[0], dtype=np.float64)
        else:
            weight = to_numpy(design.weight).astype(np.float64)[:, 0]
            mean = np.asarray(matrix.T @ weight / weight.sum())
        constant = constant_values(matrix)
        self.constant = constant if design.intercept else np.full_like(constant, np.nan)
        super().__init__(design, Binary(loss, mean, self.constant), matrix, memory=memory)
        self.problem = problem

    def expanded(self, solution: Solution, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return finite coefficients of every column; constant ones have the link of the mean."""
        W = np.asarray(to_numpy(solution.W))[:, self.problem]
        unknown = ~np.isnan(self.constant[self.problem])
        W[:, unknown] = 0.0
        if self.design.intercept:
            W[-1, unknown] = self.loss.link(mean[unknown])
        return np.where(np.isfinite(W), W, 0.0)

    def scores(self, solution: Solution, design: Design) -> Array:
        """Return the scores of the distinct problems, (n, m), infinite for constant targets."""
        return self._with_constants(super().scores(solution, design))

    def _with_constants(self, scores: Array) -> Array:
        """Return scores, (..., m), with the link of the value in place of constant targets."""
        xp, device = self.design.xp, self.design.device
        constant = xp.asarray(self.constant, dtype=scores.dtype, device=device)
        return xp.where(xp.isnan(constant), scores, self.loss.link(constant))

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probabilities of all columns of the targets for n rows of a design, (n, M)."""
        return take_along(super().probabilities(solution, design), self.problem, axis=1)

    def model(self, solution: Solution) -> LinearProbabilities:
        """Return the models in the coordinates of X."""
        coef, intercept = self.coefficients(solution)
        fitted = coef, self._with_constants(intercept), self.problem
        return LinearProbabilities(*fitted, solution.n_iter, solution.converged, self.loss)


def independent_start(
    design: Design, targets: Any, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a logistic regression to each column of targets, (n, M), roughly.

    Returns the coefficients, (p, M), and the values of constant columns, NaN elsewhere.
    """
    problems = LinearProblems(design, sp.csc_array(targets), LogisticLoss())
    W = to_numpy(problems.solve(alpha, tol=START_TOL).W)[:, problems.problem]
    return W, problems.constant[problems.problem]


@dataclass
class _Run:
    """One solve of all problems, and what is known of each so far."""

    problems: Problems
    W: Array  # is written to
    alpha: float
    tol: float
    max_iter: int
    cold_start: bool  # whether W is far from the optimum

    def __post_init__(self) -> None:
        m = len(self.problems)
        self.n_iter, self.converged = np.zeros(m, np.intp), np.ones(m, np.bool_)
        self.abandoned = np.zeros(m, np.bool_)  # problems that need their Hessians factorised

    def solve(self, names: NDArray[np.intp], factorised: bool) -> None:
        """Solve some problems on arrays, in batches, and store the results."""
        own = self.problems
        batches = own._batches(names, factorised)
        rotate = factorised and bool(batches) and own._rotates

        def run(batch: NDArray[np.intp]) -> tuple[Array, ...]:
            with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
                return self._solve_batch(batch, factorised, rotate)

        results = run_threaded(run, batches, small=own.is_small())
        for batch, (W, n_iter, converged, abandoned) in zip(batches, results, strict=True):
            self.W[...] = self._scatter(batch, W)
            self.n_iter[batch] += to_numpy(n_iter)
            self.converged[batch] = to_numpy(converged)
            self.abandoned[batch] = to_numpy(abandoned) & own._inverts[batch]

    def _solve_batch(
        self, names: NDArray[np.intp], factorised: bool, rotate: bool
    ) -> tuple[Array, ...]:
        """Solve a batch, on accelerators in single precision first."""
        own, xp = self.problems, self.problems.design.xp
        design, light = own.design, own.light
        objective = own.bound.take(names, narrow=True)
        targets = objective.batch_targets(design, own.targets, names)
        start = self._gather(names, objective)
        if rotate:
            light = design = own.design.orthogonal[0]
            start = self._rotate(start, to=True)
        budget = xp.asarray(self.max_iter - self.n_iter[names], device=own.design.device)
        max_steps = own.max_steps(objective.width, factorised)
        settings: dict[str, Any] = {"floor": own.floor, "max_steps": max_steps}
        settings["factorised"] = factorised
        cold, taken = self.cold_start, 0 * budget
        # on processors the compiled part runs in single precision first
        single = light.matrix.dtype == xp.float32 and is_accelerator(design.device)
        if single and not factorised:
            batch = ProblemBatch(light, light, objective, targets, self.alpha, light.matrix.dtype)
            start, taken, *_ = solve_batch(
                batch, start, tol=AIM * self.tol, budget=budget, cold_start=cold, **settings
            )
            cold = cold and not bool(xp.any(taken > 0))
        batch = ProblemBatch(design, light, objective, targets, self.alpha)
        W, n_iter, converged, abandoned = solve_batch(
            batch, start, tol=self.tol, budget=budget - taken, cold_start=cold, **settings
        )
        W = self._rotate(W, to=False) if rotate else W
        return W, n_iter + taken, converged, abandoned

    def _rotate(self, W: Array, *, to: bool) -> Array:
        """Bring coefficients to the orthogonal coordinates, or back."""
        design = self.problems.design
        V, last = design.orthogonal[1], -1 if design.intercept else W.shape[0]
        turned = (V.T if to else V) @ W[:last, :]
        return design.xp.concat([turned, W[last:, :]], axis=0)

    def _places(self, names: NDArray[np.intp], width: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the columns of some problems, filled up to a width, and which of them exist."""
        own, place = self.problems, np.arange(width)
        used = place < np.diff(own.first)[names, None]
        return (own.first[names, None] + place).ravel(), used.ravel()

    def _gather(self, names: NDArray[np.intp], objective: Objective) -> Array:
        """Return the columns of some problems, filled up with zeros to the same width."""
        W, design = self.W, self.problems.design
        xp, there = design.xp, {"device": design.device}
        places, used = self._places(names, design.columns(objective.width))
        index = xp.asarray(np.minimum(places, W.shape[1] - 1), **there)
        columns = xp.take(W, index, axis=1)
        # a stage before that diverged leaves nothing to start from
        usable = xp.isfinite(columns) & xp.asarray(used, **there)
        return xp.where(usable, columns, xp.zeros_like(columns))

    def _scatter(self, names: NDArray[np.intp], columns: Array) -> Array:
        """Return W with the columns of some problems replaced: the inverse of ``_gather``."""
        W, xp = self.W, self.problems.design.xp
        places, used = self._places(names, columns.shape[1] // len(names))
        source = np.arange(W.shape[1])
        source[places[used]] = W.shape[1] + np.flatnonzero(used)
        index = xp.asarray(source, device=self.problems.design.device)
        return xp.take(xp.concat([W, columns], axis=1), index, axis=1)
