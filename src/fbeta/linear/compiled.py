"""The solver of ``newton`` in C++, where it was built and the work is worth its while.

A column of coefficients is on each lane of the processor's vector registers (see ``newton.hpp``).
It runs in single precision first, and then in double precision from what it found: that certifies
what has converged, and goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import cancellable, n_threads, run_threaded
from fbeta.linear import conjugate, newton
from fbeta.linear.design import Design
from fbeta.losses import LOSSES, Loss

try:
    from fbeta.linear import _compiled
except ImportError:  # built without a compiler
    _compiled = None  # type: ignore[assignment]

__all__ = ["Compiled", "is_compiled"]

AIM = 0.4  # share of the tolerance that single precision aims at
FINEST = 1e-8  # relative decrease that single precision can see
LARGEST = 2**31 - 1  # entries of a sparse matrix
WORK = 1 << 30  # operations between two looks at whether the user wants to stop
PARALLEL = 1 << 22  # operations of a pass below which a second thread costs more than it brings
REGISTER = 64  # bytes of columns that are worked on together
SMALLEST = 1 << 16  # operations of a pass for all problems below which there is nothing to save
CERTIFIED, HARD = 1, 2


def is_compiled() -> bool:
    """Tell whether the compiled solver was built."""
    return _compiled is not None


@dataclass(frozen=True)
class Compiled:
    """Problems in the arrays that the compiled solver reads.

    Attributes
    ----------
    design : Design
        With n rows and p columns.
    loss : str
        Name of the objective.
    counts : ndarray of shape (m,)
        Columns of each problem.
    entries : int
        Of the matrix that a pass reads.
    arrays : dict of str to ndarray
        By their names in the structure of newton.hpp.
    """

    design: Design
    loss: str
    counts: NDArray[np.intp]
    entries: int
    arrays: dict[str, Any]

    @classmethod
    def binary(
        cls, design: Design, light: Design, targets: sp.csc_array, loss: Loss, solved: int
    ) -> Compiled | None:
        """Prepare binary problems, of which some have to be solved; None where that is not to be.

        Parameters
        ----------
        design : Design
        light : Design
            The same in single precision, or the design itself.
        targets : csc_array of shape (n, m)
            In [0, 1].
        loss : Loss
            One of the library's own.
        solved : int
            How many of the problems will be solved.

        Returns
        -------
        Compiled or None
        """
        if LOSSES.get(loss.name) != loss:
            return None
        arrays = {
            "target_start": _integers(targets.indptr),
            "target_index": _integers(targets.indices),
            "target_value": _doubles(targets.data),
        }
        counts = np.ones(targets.shape[1], dtype=np.intp)
        return cls._of(design, light, loss.name, counts, solved, arrays)

    @classmethod
    def multinomial(
        cls, design: Design, light: Design, classes: NDArray[np.intp], first: NDArray[np.intp]
    ) -> Compiled | None:
        """Prepare multinomial problems with classes (n, m), whose columns begin at ``first``."""
        arrays = {"classes": _integers(classes.T).reshape(-1), "first": _integers(first)}
        return cls._of(design, light, "softmax", np.diff(first), int(first[-1]), arrays)

    @classmethod
    def _of(
        cls,
        design: Design,
        light: Design,
        loss: str,
        counts: NDArray[np.intp],
        columns: int,
        arrays: dict[str, Any],
    ) -> Compiled | None:
        matrix = light.matrix
        if _compiled is None or not isinstance(design.penalised, np.ndarray):
            return None
        entries = int(matrix.nnz if sp.issparse(matrix) else np.prod(matrix.shape))
        if not entries or not columns or 4 * entries * columns < SMALLEST or entries > LARGEST:
            return None
        arrays["spread"], arrays["raw"] = _doubles(design.spread), _doubles(design.moments[1])
        if sp.issparse(matrix):
            by_columns = sp.csc_array(design.matrix)
            for name, form in (("row", matrix), ("column", by_columns)):
                arrays[f"{name}_start"] = _integers(form.indptr)
                arrays[f"{name}_index"] = _integers(form.indices)
            arrays["column_double"] = _doubles(by_columns.data)
            arrays["column_float"] = _floats(by_columns.data)
        values = design.matrix.data if sp.issparse(matrix) else design.matrix
        arrays["float"] = _floats(matrix.data if sp.issparse(matrix) else matrix)
        if values.dtype == np.float64:
            arrays["double"] = _doubles(values)
        if design.shifted:
            arrays["mean"] = _doubles(design.mean)
        if design.weight is not None:
            arrays["weight"] = _doubles(design.weight)
        return cls(design, loss, counts, entries, arrays)

    def solve(
        self,
        problems: NDArray[np.intp],
        W: NDArray[np.float64],
        n_iter: NDArray[np.intp],
        alpha: float,
        *,
        tol: float,
        max_iter: int,
        floor: float,
        cold: bool,
        max_steps: Callable[[int], int],
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Solve some problems, those that take longest first, where they fit the lanes.

        Parameters
        ----------
        problems : ndarray of int
        W : ndarray of shape (p, M)
            Where to start; overwritten with what was found.
        n_iter : ndarray of shape (m,)
            Iterations, which are added to.
        alpha : float >= 0
            Strength of the penalty.
        tol, floor, cold
            As for :func:`fbeta.linear.newton.minimise`.
        max_steps : callable
            The same, for problems with so many columns.
        max_iter : int
            Largest number of iterations.

        Returns
        -------
        converged : bool ndarray of shape (m,)
            True for problems that are certified, and for those that were not to be solved.
        hard : bool ndarray of shape (m,)
            Those that were given up because of what their directions cost.
        """
        points = np.asfortranarray(W)
        used, status = np.zeros((2, len(self.counts)), dtype=np.intc)
        converged = np.ones(len(self.counts), dtype=np.bool_)
        converged[problems] = False
        width = 2 ** np.ceil(np.log2(np.maximum(self.counts, 1))).astype(np.intp)
        for single in (True, False):
            for lanes in np.unique(width[problems]):
                queue = problems[(width[problems] == lanes) & (status[problems] != HARD)]
                queue = queue[np.argsort(-used[queue], kind="stable")]  # what was slow first
                if lanes <= _compiled.WIDEST and len(queue):
                    self._run(
                        _integers(queue), points, used, status, alpha, single=single,
                        width=int(lanes), tol=tol, floor=floor, max_iter=max_iter,
                        max_steps=max_steps(int(lanes)), cold=cold and single,
                    )  # fmt: skip
        if points is not W:
            W[...] = points
        n_iter += used
        done = (status == CERTIFIED) & (width <= _compiled.WIDEST)
        return converged | done, status == HARD

    def _run(
        self,
        queue: NDArray[np.intc],
        W: NDArray[np.float64],
        n_iter: NDArray[np.intc],
        status: NDArray[np.intc],
        alpha: float,
        *,
        single: bool,
        tol: float,
        width: int,
        **settings: Any,
    ) -> None:
        """Let as many threads as are worth it work through the queue, and wait for them."""
        n, p = self.design.matrix.shape
        arrays = {"penalty": _doubles(alpha * self.design.penalised), "queue": queue}
        aim = max(AIM, FINEST / tol) if single else 1.0
        problems = _compiled.Problems(
            n, p, self.arrays | arrays, W, n_iter, status, self.loss, single=single,
            intercept=self.design.intercept, width=width,
            tol=max(tol, 32 * float(np.finfo(np.float64).eps)), aim=aim, forcing=conjugate.FORCING,
            loose=conjugate.LOOSE, far=newton.FAR, flat_before=newton.FLAT[0],
            flat_beyond=newton.FLAT[1], max_trials=newton.MAX_TRIALS, **settings,
        )  # fmt: skip
        columns, lanes = len(queue) * width, max(width, REGISTER // (4 if single else 8))
        flops = 4 * lanes * self.entries
        threads = 1 if flops * columns < lanes * PARALLEL else n_threads()
        threads = max(1, min(threads, columns // lanes))

        def work(passes: int) -> None:
            with cancellable(problems.stop):
                problems.work(passes)

        run_threaded(work, [max(1, WORK // flops)] * threads)


def _floats(values: Any) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is left to double precision
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _doubles(values: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def _integers(values: Any) -> NDArray[np.intc]:
    return np.ascontiguousarray(values, dtype=np.intc)
