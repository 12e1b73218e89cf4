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

from fbeta._threads import n_threads, run_threaded, stoppable
from fbeta.linear import newton
from fbeta.linear.design import Design
from fbeta.losses import ExponentialLoss, LogisticLoss, Loss, SquaredLoss

try:
    from fbeta.linear import _compiled
except ImportError:  # built without a compiler
    _compiled = None  # type: ignore[assignment]

__all__ = ["Lanes", "compiled", "knows"]

LANES = 16
KINDS: dict[type[Loss], int] = {LogisticLoss: 0, ExponentialLoss: 1, SquaredLoss: 2}
SOFTMAX = 3
FINEST = 1e-8  # the relative decrease of an objective that single precision can promise
AIMS = (0.95, 0.05)  # shares of the tolerance to aim at: at first, and where that was not enough
LARGEST = 2**31 - 1  # entries of a sparse matrix
WORK = 1 << 30  # operations between two looks at whether the user wants to stop
PARALLEL = 1 << 22  # operations of a pass below which a second thread costs more than it brings
SMALLEST = 1 << 16  # operations of a pass for all problems below which there is nothing to save


def compiled() -> bool:
    """Tell whether the compiled solver was built."""
    return _compiled is not None


def knows(loss: Loss) -> bool:
    """Tell whether the compiled solver knows a loss."""
    return type(loss) in KINDS


@dataclass(frozen=True)
class Lanes:
    """A design in the arrays that the compiled solver reads.

    Attributes
    ----------
    design : Design
        With n rows and p columns.
    entries : int
        Of the matrix that a pass reads.
    arrays : dict of str to ndarray
        Most of them in single precision.
    """

    design: Design
    entries: int
    arrays: dict[str, Any]

    @classmethod
    def of(cls, design: Design, light: Design, problems: int) -> Lanes | None:
        """Prepare a design, if the compiled solver is there and the work is worth its while.

        Parameters
        ----------
        design : Design
        light : Design
            The same in single precision, or the design itself.
        problems : int
            How many columns will be solved.

        Returns
        -------
        Lanes or None
        """
        matrix = light.matrix
        if _compiled is None or not isinstance(design.penalised, np.ndarray):
            return None
        entries = int(matrix.nnz if sp.issparse(matrix) else np.prod(matrix.shape))
        if not entries or not problems or 4 * entries * problems < SMALLEST:
            return None
        if sp.issparse(matrix) and entries > LARGEST:
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
        return cls(design, entries, arrays)

    def solve(
        self,
        targets: sp.csc_array,
        queue: NDArray[np.intp],
        W: NDArray[Any],
        loss: Loss,
        alpha: float,
        *,
        tol: float,
        max_iter: int,
        cold: bool,
        trust: NDArray[np.float64],
    ) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.bool_]]:
        """Solve binary problems.

        Parameters
        ----------
        targets : csc_array of shape (n, m)
            In [0, 1].
        queue : ndarray of int
            The problems to solve, those that take longest first.
        W : ndarray of shape (p, m)
            Where to start.
        loss : Loss
            The binary loss phi, one that it :func:`knows`.
        alpha : float >= 0
            Strength of the penalty.
        tol, max_iter, cold
            As for :func:`fbeta.linear.newton.solve_block`.
        trust : ndarray of shape (m,)
            How much too low a promise of the preconditioner at the start may be; changed to what
            was found.

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
        arrays = {
            "target_start": _integers(targets.indptr),
            "target_index": _integers(targets.indices),
            "target_value": _doubles(targets.data),
        }
        total = np.zeros(len(n_iter), dtype=np.intp)
        for aim in AIMS:
            queue = queue[(certified[queue] == 0) & (total[queue] < _share(max_iter))]
            if not len(queue):
                break
            n_iter[:] = 0
            self._run(
                arrays | {"queue": _integers(queue)}, W, n_iter, certified, trust, alpha,
                loss=KINDS[type(loss)], tol=tol, aim=aim,
                floor=newton.value_floor(self.design, loss), forcing=newton.FORCING,
                loose=newton.LOOSE, far=newton.FAR, armijo=newton.ARMIJO,
                max_iter=_share(max_iter), cold=cold,
            )  # fmt: skip
            total += n_iter
            cold = False
        return W.astype(self.design.dtype), total, certified.astype(np.bool_)

    def solve_softmax(
        self,
        classes: NDArray[np.intp],
        counts: NDArray[np.intp],
        W: NDArray[Any],
        alpha: float,
        *,
        tol: float,
        max_iter: int,
        floor: float,
        forcing: float,
        flat: float,
        trust: NDArray[np.float64],
    ) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.bool_]]:
        """Solve multinomial problems of 2 to 16 classes; others stay as they are.

        Parameters
        ----------
        classes : int ndarray of shape (n, m)
            Class of each row in each problem, counted from 0.
        counts : ndarray of shape (m,)
            Number of classes of each problem.
        W : ndarray of shape (p, M)
            Where to start: the weights of all classes of all problems.
        alpha : float >= 0
            Strength of the penalty.
        tol, max_iter, floor, forcing, flat
            As for the solver on arrays.
        trust : ndarray of shape (m,)
            As for :meth:`solve`.

        Returns
        -------
        W : ndarray of shape (p, M)
            The solutions; the start where none was found that is better.
        n_iter : ndarray of shape (m,)
        good : bool ndarray of shape (m,)
            Which of them have converged, as far as single precision can tell.
        """
        W = np.array(W, dtype=np.float64, order="F")
        n_iter, good = np.zeros((2, len(counts)), dtype=np.intc)
        arrays = {
            "classes": _integers(classes.T).reshape(-1),
            "first": _integers(np.concatenate([[0], np.cumsum(counts)])),
        }
        longest = np.argsort(-(classes > 0).sum(axis=0), kind="stable")
        for width in (16, 8, 4, 2):
            queue = longest[(counts[longest] <= width) & (2 * counts[longest] > width)]
            if len(queue):
                self._run(
                    arrays | {"queue": _integers(queue)}, W, n_iter, good, trust, alpha,
                    loss=SOFTMAX, tol=tol, aim=AIMS[0], floor=floor, forcing=forcing, flat=flat,
                    max_iter=_share(max_iter), width=width,
                )  # fmt: skip
        return W.astype(self.design.dtype), n_iter.astype(np.intp), good.astype(np.bool_)

    def _run(
        self,
        arrays: dict[str, Any],
        W: NDArray[np.float64],
        n_iter: NDArray[np.intc],
        certified: NDArray[np.intc],
        trust: NDArray[np.float64],
        alpha: float,
        *,
        loss: int,
        width: int = 1,
        **settings: Any,
    ) -> None:
        """Let as many threads as are worth it work through the queue, and wait for them."""
        n, p = self.design.matrix.shape
        penalty = _doubles(alpha * self.design.penalised)
        problems = _compiled.Problems(
            n, p, self.arrays | arrays | {"penalty": penalty}, W, n_iter, certified, trust, loss,
            finest=FINEST, max_steps=min(2 * p, newton.MAX_STEPS), width=width, **settings,
        )  # fmt: skip
        columns, flops = len(arrays["queue"]) * width, 4 * LANES * self.entries
        threads = 1 if flops * columns < LANES * PARALLEL else n_threads()
        threads = max(1, min(threads, columns // LANES))

        def work(passes: int) -> None:
            with stoppable(problems.stop):
                problems.work(passes)

        run_threaded(work, [max(1, WORK // flops)] * threads)


def _share(max_iter: int) -> int:
    """Return the iterations that may be spent here: some are left for the solver on arrays."""
    return max(1, max_iter // 2)


def _floats(values: Any) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what overflows is left to the solver in full precision
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _doubles(values: Any) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def _integers(values: Any) -> NDArray[np.intc]:
    return np.ascontiguousarray(values, dtype=np.intc)
