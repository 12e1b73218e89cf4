"""All problems over one X: which of them need solving, by what, and in which blocks."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from fbeta._array import Array, array_namespace, device_memory, is_accelerator, to_numpy
from fbeta._threads import n_threads, one_blas_thread, run_threaded
from fbeta.linear.block import Block
from fbeta.linear.compiled import AIM, Compiled
from fbeta.linear.design import Design
from fbeta.linear.newton import Result, minimise
from fbeta.linear.objectives import Objective

__all__ = ["Problems", "Solution", "round_coefficients"]

MEMORY = 1 << 30  # bytes of working memory for the blocks that are solved at the same time
TOGETHER = 256  # columns that are brought back to the coordinates of X at a time
WIDTH = 160  # columns of a block: enough for matrix products at full speed
SINGLE = 1 << 16  # entries of X below which single precision saves nothing
PARALLEL = 1 << 17  # scores below which a second thread costs more than it brings
MAX_FACTORED = 2500  # order of a Hessian beyond which it is not factorised
MAX_INVERTED = 5000  # the same where nothing else will do
MAX_TURNED = 1 << 26  # entries of X beyond which it is not turned for the sake of a few problems
HELD = 1e-2  # change of a score by the rounding of X that an objective does not feel
ROUNDED = 1e-4  # change of a score by rounding coefficients that no objective feels
SHARE = 0.8  # of the memory that is free on an accelerator
LEAST_STEPS = 12  # the same on accelerators
LAUNCHED = 6e10  # operations that an accelerator does while the kernels of a step are launched
FEW_STEPS = 48  # conjugate gradient steps that no problem is given up for


@dataclass(frozen=True)
class Solution:
    """Solutions of the problems, in the coordinates of the design.

    Attributes
    ----------
    W : array of shape (p, M)
        In double precision.
    n_iter : ndarray of shape (m,)
    converged : bool ndarray of shape (m,)
    """

    W: Array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]


class Problems(ABC):
    """m problems over one design, with one or more columns of coefficients each.

    Attributes
    ----------
    design : Design
        With n rows and p columns.
    first : ndarray of shape (m + 1,)
        Where the columns of each problem begin, and the number of all.
    open : ndarray
        The problems that have to be solved, those that take longest first.
    """

    kind: str  # what to call a problem in a warning
    first: NDArray[np.intp]
    open: NDArray[np.intp]
    compiled: Compiled | None
    factorises = True  # whether hard problems are solved with factorised Hessians

    def __init__(self, design: Design, *, memory: int = MEMORY) -> None:
        self.design, self.memory = design, memory
        xp = design.xp
        large = design.matrix.shape[0] * design.matrix.shape[1] >= SINGLE
        light = large and design.holds_in(xp.float32)
        self.light = design.astype(xp.float32 if light else xp.float64)

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    @abstractmethod
    def floor(self) -> float:
        """What is added to an objective that decreases are compared with.

        It is a small share of the objective of a model that knows nothing: where everything is
        predicted with certainty, a decrease of next to nothing need not be pursued.
        """

    @abstractmethod
    def null_solution(self, alpha: float) -> Array:
        """Return where a cold solve starts, (p, M)."""

    @abstractmethod
    def objective(self, problems: NDArray[np.intp]) -> Objective:
        """Return the objective of some problems, which are as wide as the widest of them."""

    @abstractmethod
    def targets(self, problems: NDArray[np.intp]) -> Array:
        """Return the targets of some problems, (n, number of problems), on the device."""

    def columns(self, problems: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the columns of some problems."""
        starts, counts = self.first[problems], np.diff(self.first)[problems]
        before = np.cumsum(counts) - counts
        return np.asarray(np.repeat(starts - before, counts) + np.arange(counts.sum()))

    def solve(
        self, alpha: float, start: Array | None = None, *, tol: float = 1e-6, max_iter: int = 100
    ) -> Solution:
        """Solve every problem that has to be.

        Parameters
        ----------
        alpha : float >= 0
            Strength of the penalty.
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
        xp = self.design.xp
        cold = start is None
        # that of a cold start is nobody else's
        W = self.null_solution(alpha) if start is None else xp.asarray(start, copy=True)
        W = xp.astype(W, xp.float64, copy=False)
        n_iter, converged = np.zeros(len(self), np.intp), np.ones(len(self), np.bool_)
        left = self.open if self.design.matrix.shape[1] else self.open[:0]
        hard = np.zeros(len(self), np.bool_)
        if self.compiled is not None and len(left):
            converged, hard = self.compiled.solve(
                left, W, n_iter, alpha, tol=tol, max_iter=max_iter, floor=self.floor, cold=cold,
                max_steps=self._max_steps,
            )  # fmt: skip
            left, cold = left[~converged[left]], False
        hard = hard & self._inverts
        for direct in (False, True) if self.factorises else (False,):
            now = left[hard[left] == direct]
            self._run(now, W, n_iter, converged, hard, alpha, tol, max_iter, cold, direct)
            left, cold = left[~converged[left]], False
        return Solution(W, n_iter, converged & self._holds(W))

    def _holds(self, W: Array) -> NDArray[np.bool_]:
        """Tell for each problem whether its scores are none the worse for the rounding of X.

        That can only be where dense X in single precision is large, and was centred or rotated.
        """
        matrix, xp = self.design.matrix, self.design.xp
        if sp.issparse(matrix) or matrix.dtype == xp.float64 or not len(self):
            return np.ones(len(self), np.bool_)
        reach = xp.astype(xp.maximum(xp.max(matrix, axis=0), -xp.min(matrix, axis=0)), xp.float64)
        change = to_numpy(reach @ xp.abs(W)) * float(xp.finfo(matrix.dtype).eps)
        return np.maximum.reduceat(change, self.first[:-1]) <= HELD

    def _max_steps(self, width: int, direct: bool = False) -> int:
        """Return the steps of a direction at which a factorisation would have been cheaper."""
        n, order = int(self.design.matrix.shape[0]), int(self.design.matrix.shape[1]) * width
        early = is_accelerator(self.design.device) and self.factorises and not direct
        if early and order <= MAX_FACTORED:
            return max(LEAST_STEPS, int(len(self) * n * order**2 / LAUNCHED))
        if order > MAX_FACTORED:
            return 2 * order
        # making a Hessian costs order / 8 products with it, factorising it order / 12 n times that
        return max(FEW_STEPS, order // 4 + order**2 // max(6 * n, 1))

    def _run(
        self,
        problems: NDArray[np.intp],
        W: Array,
        n_iter: NDArray[np.intp],
        converged: NDArray[np.bool_],
        hard: NDArray[np.bool_],
        alpha: float,
        tol: float,
        max_iter: int,
        cold: bool,
        direct: bool,
    ) -> None:
        """Solve some problems on arrays, in blocks, and write down what comes out."""
        xp, there = self.design.xp, {"device": self.design.device}
        blocks = self._blocks(problems, direct)
        design, light = self.design, self.light
        turn = direct and bool(blocks) and self._turns
        if turn:
            light = design = design.orthogonal[0]

        def run(names: NDArray[np.intp]) -> Result:
            objective, targets = self.objective(names), self.targets(names)
            start = W if objective.joint else self._gather(W, names, objective.width)
            budget = xp.asarray(max_iter - n_iter[names], **there)
            result = Result(self._turn(start, to=True) if turn else start, 0 * budget)
            settings: dict[str, Any] = {"floor": self.floor}
            settings["max_steps"] = self._max_steps(objective.width, direct)
            with np.errstate(all="ignore"):  # trial points may overflow; they are not accepted
                if self._in_single(light) and not direct:
                    block = Block(light, light, objective, targets, alpha, light.matrix.dtype)
                    result = minimise(
                        block, result.W, tol=AIM * tol, budget=budget, cold=cold, **settings
                    )
                taken = result.n_iter
                block = Block(design, light, objective, targets, alpha)
                result = minimise(
                    block, result.W, tol=tol, budget=budget - taken, direct=direct,
                    cold=cold and not bool(xp.any(taken > 0)), **settings,
                )  # fmt: skip
            result.n_iter = result.n_iter + taken
            result.W = self._turn(result.W, to=False) if turn else result.W
            return result

        results = run_threaded(run, blocks, small=self._is_small())
        for names, result in zip(blocks, results, strict=True):
            W[...] = self._scatter(W, names, result.W)
            n_iter[names] += to_numpy(result.n_iter)
            converged[names] = to_numpy(result.converged)
            hard[names] = to_numpy(result.hard) & self._inverts[names]

    @property
    def _turns(self) -> bool:
        """Whether X is small enough to be turned to orthogonal coordinates for hard problems."""
        n, p = self.design.matrix.shape
        return bool(min(n, p) <= MAX_FACTORED and n * p <= MAX_TURNED)

    @property
    def _inverts(self) -> NDArray[np.bool_]:
        """The problems whose Hessians are small enough to be inverted, (m,)."""
        n, p = self.design.matrix.shape
        order = (min(n, p) if self._turns else p) * np.diff(self.first)
        return np.asarray(order <= MAX_INVERTED)

    def _in_single(self, light: Design) -> bool:
        """Tell whether problems are solved in single precision before they are in double.

        On processors the compiled part does that.
        """
        single: bool = light.matrix.dtype == self.design.xp.float32
        return single and is_accelerator(self.design.device)

    def _turn(self, W: Array, *, to: bool) -> Array:
        """Bring coefficients to the orthogonal coordinates, or back."""
        V, last = self.design.orthogonal[1], -1 if self.design.intercept else W.shape[0]
        turned = (V.T if to else V) @ W[:last, :]
        return self.design.xp.concat([turned, W[last:, :]], axis=0)

    def _gather(self, W: Array, names: NDArray[np.intp], width: int) -> Array:
        """Return the columns of some problems, filled up with zeros to the same width."""
        xp = self.design.xp
        index = xp.asarray(self.columns(names), device=self.design.device)
        own = xp.take(W, index, axis=1)
        counts = np.diff(self.first)[names]
        if (counts == width).all():
            return own
        places = (np.arange(width)[None, :] < counts[:, None]).ravel()
        source = np.where(places, np.cumsum(places) - 1, len(index))
        own = xp.concat([own, xp.zeros_like(own[:, :1])], axis=1)
        return xp.take(own, xp.asarray(source, device=self.design.device), axis=1)

    def _scatter(self, W: Array, names: NDArray[np.intp], own: Array) -> Array:
        """Return W with the columns of some problems replaced: the inverse of ``_gather``."""
        width, columns = own.shape[1] // len(names), self.columns(names)
        counts = np.diff(self.first)[names]
        source = np.arange(W.shape[1])
        source[columns] = W.shape[1] + np.flatnonzero(
            (np.arange(width)[None, :] < counts[:, None]).ravel()
        )
        xp = self.design.xp
        index = xp.asarray(source, device=self.design.device)
        return xp.take(xp.concat([W, own], axis=1), index, axis=1)

    def _is_small(self) -> bool:
        return bool(self.design.matrix.shape[0] * len(self.open) < PARALLEL)

    def _blocks(self, problems: NDArray[np.intp], direct: bool) -> list[NDArray[np.intp]]:
        """Deal problems into blocks of like composition, which take about as long."""
        if not len(problems):
            return []
        n, p = self.design.matrix.shape
        threads = 1 if self._is_small() else n_threads()
        width = int(np.diff(self.first)[problems].max())
        # scores, their changes, targets, curvatures and a share of the tiles, for each column
        per_problem = 8 * width * (6 * n + 16 * p) + 24 * direct * (p * width) ** 2
        room, most = self.memory, WIDTH // width
        if is_accelerator(self.design.device):
            threads, most = 1, len(problems)
            room = int(SHARE * (device_memory(self.design.xp, self.design.device) or room))
        size = max(1, min(most, room // (threads * per_problem)))
        count = min(len(problems), threads * -(-len(problems) // (threads * size)))
        return [problems[i::count] for i in range(count)]

    def solve_and_warn(
        self,
        alpha: float,
        *,
        tol: float = 1e-6,
        max_iter: int = 100,
        describe: Callable[[int], str] = str,
    ) -> Solution:
        """Solve from scratch, and say what did not converge."""
        solution = self.solve(alpha, tol=tol, max_iter=max_iter)
        self.warn_if_not_converged(solution, alpha, max_iter, describe)
        return solution

    def warn_if_not_converged(
        self,
        solution: Solution,
        alpha: float,
        max_iter: int,
        describe: Callable[[int], str] = str,
    ) -> None:
        """Say which problems did not converge, and what to do about it."""
        failed = np.flatnonzero(~solution.converged)
        if not len(failed):
            return
        names = ", ".join(describe(m) for m in failed[:10]) + (", ..." if len(failed) > 10 else "")
        warnings.warn(
            f"{len(failed)} of {len(self)} {self.kind} problems did not converge in {max_iter} "
            f"iterations at alpha = {alpha:g} ({names}): increase max_iter or alpha, or scale X",
            ConvergenceWarning,
            stacklevel=4,
        )

    def scores(self, solution: Solution, design: Design) -> Array:
        """Return the scores of all columns, (n, M), for the rows of a design.

        The design has to be in the coordinates of the problems' own.
        """
        with one_blas_thread(design.matrix.shape[0] * len(self) < PARALLEL):
            return design.scores(solution.W)

    def coefficients(self, solution: Solution) -> tuple[Array, Array]:
        """Return coefficients (M, d) and intercepts (M,) in the coordinates of X.

        They have the type of X, unless the scores would feel that they were rounded to it.
        """
        design, W = self.design, solution.W
        # some columns at a time: of many features and problems there is no room for copies
        size = TOGETHER if design.xp is np else max(1, W.shape[1])
        found = []
        with one_blas_thread(self._is_small()):
            for at in range(0, max(1, W.shape[1]), size):
                part = design.coefficients(W[:, at : at + size])
                found.append(round_coefficients(*part, design.dtype, design.reach))
        if len(found) == 1:
            return found[0]
        coef, intercept = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return coef, intercept


def round_coefficients(coef: Array, intercept: Array, dtype: Any, reach: float) -> tuple[Any, Any]:
    """Return coefficients (m, d) and intercepts (m,) in a type, if the scores do not feel it.

    Parameters
    ----------
    coef, intercept : array of shape (d, m), array of shape (m,)
        In double precision, which they keep otherwise.
    dtype : floating type
        That of X.
    reach : float
        The largest absolute value in X.

    Returns
    -------
    coef, intercept : array of shape (m, d), array of shape (m,)
    """
    xp = array_namespace(coef)
    if dtype != xp.float64:
        sizes = xp.sum(xp.abs(coef), axis=0)
        felt = reach * float(xp.max(sizes)) if sizes.shape[0] else 0.0
        dtype = dtype if felt * float(xp.finfo(dtype).eps) <= ROUNDED else xp.float64
    coef = xp.astype(coef.T, dtype, copy=True)
    if isinstance(coef, np.ndarray):
        coef = np.ascontiguousarray(coef)
    return coef, xp.astype(intercept, dtype)
