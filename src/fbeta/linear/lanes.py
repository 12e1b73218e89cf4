"""The first part of a solve, in single precision and compiled, where it can be had.

Newton's method with conjugate gradients as in ``newton``, with a problem on each lane of the
processor's vector registers (see ``lanes.c``). It finds solutions as good as single precision
makes them, and certifies those whose gradient in double precision is small enough (see
``certify.c``). Where one is not, the solver in the precision of X goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import n_threads, run_threaded
from fbeta.linear import newton
from fbeta.linear.design import Design
from fbeta.losses import ExponentialLoss, LogisticLoss, Loss, SquaredLoss

try:
    from fbeta.linear import _compiled
except ImportError:  # built without a compiler
    _compiled = None  # type: ignore[assignment]

__all__ = ["Lanes"]

LANES = 16
KINDS: dict[type[Loss], int] = {LogisticLoss: 0, ExponentialLoss: 1, SquaredLoss: 2}
FINEST = 5e-7  # the relative decrease of an objective that single precision can promise
LARGEST = 2**31 - 1  # entries of a sparse matrix
WORK = 1 << 30  # operations between two looks at whether the user wants to stop
PARALLEL = 1 << 22  # operations of a pass below which a second thread costs more than it brings
SMALLEST = 1 << 16  # operations of a pass for all problems below which there is nothing to save


@dataclass(frozen=True)
class Lanes:
    """A design in the arrays that the compiled solver reads.

    Attributes
    ----------
    shape : tuple of int
        Rows n and columns p of the design.
    entries : int
        Of the matrix that a pass reads.
    arrays : dict of str to ndarray
        In single precision.
    kind : int
        The loss.
    """

    shape: tuple[int, int]
    entries: int
    arrays: dict[str, Any]
    kind: int

    @classmethod
    def of(cls, design: Design, light: Design, loss: Loss, problems: int) -> Lanes | None:
        """Prepare a design, if the compiled solver is there and knows its arrays and the loss.

        Parameters
        ----------
        design : Design
        light : Design
            The same in single precision, or the design itself.
        loss : Loss
        problems : int
            How many will be solved.

        Returns
        -------
        Lanes or None
        """
        known = isinstance(design.penalised, np.ndarray) and type(loss) in KINDS
        if _compiled is None or not known:
            return None
        matrix = light.matrix
        entries = int(matrix.nnz if sp.issparse(matrix) else np.prod(matrix.shape))
        if 4 * entries * problems < SMALLEST or (sp.issparse(matrix) and entries > LARGEST):
            return None
        arrays: dict[str, Any] = {"mean_squares": _doubles(design.mean_squares)}
        if sp.issparse(matrix):
            by_columns = sp.csc_array(matrix)
            for name, form in (("row", matrix), ("column", by_columns)):
                arrays[f"{name}_start"] = _integers(form.indptr)
                arrays[f"{name}_index"] = _integers(form.indices)
                arrays[f"{name}_value"] = _floats(form.data)
        else:
            arrays["dense"] = _floats(matrix)
        if design.dtype == np.float64:
            exact = design.matrix.data if sp.issparse(matrix) else design.matrix
            arrays["exact"] = _doubles(exact)
        if design.shifted:
            arrays["mean"] = _doubles(design.mean)
        if design.weight is not None:
            arrays["weight"] = _doubles(design.weight)
        return cls(design.matrix.shape, entries, arrays, KINDS[type(loss)])

    def solve(
        self,
        design: Design,
        targets: sp.csc_array,
        queue: NDArray[np.intp],
        W: NDArray[Any],
        loss: Loss,
        alpha: float,
        *,
        tol: float,
        max_iter: int,
        cold: bool,
    ) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.bool_]]:
        """Solve some of the problems.

        Parameters
        ----------
        design : Design
            The one that was prepared.
        targets : csc_array of shape (n, m)
            In [0, 1].
        queue : ndarray of int
            The problems to solve, those that take longest first.
        W : ndarray of shape (p, m)
            Where to start.
        loss : Loss
            The binary loss phi.
        alpha : float >= 0
            Strength of the penalty.
        tol, max_iter, cold
            As for :func:`fbeta.linear.newton.solve_block`.

        Returns
        -------
        W : ndarray of shape (p, m)
            The solutions; the start where none was found that is better.
        n_iter : ndarray of shape (m,)
        certified : bool ndarray of shape (m,)
            Which of them have converged, by a gradient in double precision.
        """
        W = np.array(W, dtype=np.float64, order="F")
        n_iter, certified = np.zeros((2, W.shape[1]), dtype=np.intc)
        arrays = self.arrays | {
            "penalty": _doubles(alpha * design.penalised),
            "target_start": _integers(targets.indptr),
            "target_index": _integers(targets.indices),
            "target_value": _doubles(targets.data),
            "queue": _integers(queue),
        }
        problems = _compiled.Problems(
            *self.shape, arrays, W, n_iter, certified, self.kind,
            tol=tol, finest=FINEST, floor=newton.value_floor(design, loss),
            forcing=newton.FORCING, loose=newton.LOOSE, far=newton.FAR, armijo=newton.ARMIJO,
            max_iter=max_iter,
            max_steps=min(2 * self.shape[1], newton.MAX_STEPS), cold=cold,
        )  # fmt: skip
        flops = 4 * LANES * self.entries
        threads = 1 if flops * len(queue) < LANES * PARALLEL else n_threads()
        threads = max(1, min(threads, len(queue) // LANES))
        try:
            run_threaded(problems.work, [max(1, WORK // flops)] * threads)
        finally:
            problems.stop()
        return W.astype(design.dtype), n_iter.astype(np.intp), certified.astype(np.bool_)


def _floats(values: Any) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is left to the solver in full precision
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _doubles(values: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def _integers(values: Any) -> NDArray[np.intc]:
    return np.ascontiguousarray(values, dtype=np.intc)
