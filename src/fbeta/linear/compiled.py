"""The solver of ``driver`` in C++, where it was built and the work is large enough.

A column of coefficients is on each lane of the processor's vector registers (see ``newton.cpp``).
It runs in single precision first, and then in double precision from what it found: that certifies
what has converged, and continues with the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import cancellable, n_threads, run_threaded
from fbeta.linear import batch, conjugate, driver, in_memory, objectives, preconditioners
from fbeta.linear.design import Design
from fbeta.losses import LOSSES

try:
    from fbeta.linear import _engine
except ImportError:  # built without a compiler
    _engine = None  # type: ignore[assignment]

# from this tolerance on, single precision estimates what is left to gain, and nothing certifies it
UNCERTIFIED_TOL = 1e-3
FINEST = 1e-8  # relative decrease that single precision can resolve
MAX_ENTRIES = 2**31 - 1  # of a sparse matrix
CHECK_OPERATIONS = 1 << 30  # between two checks for an interruption by the user
MIN_THREAD_OPERATIONS = 1 << 22  # of a pass, below which a second thread does not pay
SMALLEST = 1 << 16  # operations of a pass for all problems below which there is nothing to save
REGISTER_BYTES = 64  # of columns that are worked on together
WARNED_OPERATIONS = 1 << 32  # of a pass: seconds of a fit that the compiled solver would save
MISSING = (
    "fbeta was installed without its compiled solver, which needs a C++ compiler (GCC or Clang): "
    "this fit takes several times as long as with it"
)
CERTIFIED, HARD = 1, 2

# Constants of the algorithm, by their names in engine.hpp.
CONSTANTS = {
    "forcing": conjugate.FORCING,
    "max_forcing": conjugate.MAX_FORCING,
    "dropped_curvature": conjugate.DROPPED_CURVATURE,
    "goal_slope": conjugate.GOAL_SLOPE,
    "goal_factor": conjugate.GOAL_FACTOR,
    "max_lowered": conjugate.MAX_LOWERED,
    "max_tentative": conjugate.MAX_TENTATIVE,
    "residual_share": conjugate.LIMIT_SHARE,
    "far_decrease": driver.FAR_DECREASE,
    "slope_before": in_memory.STEP_RULE.slope_before,
    "slope_beyond": in_memory.STEP_RULE.slope_beyond,
    "first_step": 0.5,
    "secant_margin": in_memory.STEP_RULE.shortest,
    "step_growth": float(in_memory.STEP_EXPANSION),
    "value_rounding": float(in_memory.OBJECTIVE_ERROR_ULPS),
    "stall_rounding": float(driver.VISIBLE_DECREASE_ULPS),
    "product_rounding": preconditioners.PRODUCT_ERROR_ULPS,
    "rounding_margin": preconditioners.MAX_ERROR_SHARE,
    "smallest_pivot": batch.TINY,
    "cautious_loss": objectives.CAUTIOUS_LOSS,
    "max_trials": in_memory.MAX_LINE_SEARCH_TRIALS,
    "max_stalled": driver.Oracle.max_stalled,
    "few_steps": 2,
}


def is_compiled() -> bool:
    """Tell whether the compiled solver was built."""
    return _engine is not None


def size_sweep(name: str, n_labels: int, sizes: NDArray[np.intp]) -> Any:
    """Return a compiled sweep over labels and sizes, or None where it was not built."""
    sweep = getattr(_engine, f"{name}_sizes", None)
    return None if sweep is None else partial(sweep, n_labels, _flat(sizes, np.intc))


@dataclass(frozen=True)
class Compiled:
    """Problems in the arrays that the compiled solver reads."""

    design: Design  # with n rows and p columns
    loss: str  # name of the objective
    counts: NDArray[np.intp]  # (m,), columns of each problem
    entries: int  # of the matrix that a pass reads
    arrays: dict[str, Any]  # by their names in engine.hpp
    values: dict[str, dict[str, Any]]  # entries of the matrix by the type that they are read in

    @classmethod
    def of(
        cls,
        design: Design,
        light: Design,
        counts: NDArray[np.intp],
        loss: str,
        columns: int,
        targets: dict[str, NDArray[Any]],
    ) -> Compiled | None:
        """Prepare problems, or return None where the array solver has to do.

        ``light`` is the design in single precision, or the design itself; the others as in
        :meth:`Objective.compiled_targets`.
        """
        matrix = light.matrix
        if design.xp is not np:
            return None
        entries = int(matrix.nnz if sp.issparse(matrix) else np.prod(matrix.shape))
        operations = 4 * entries * columns
        if not is_compiled():
            if operations >= WARNED_OPERATIONS:
                warnings.warn(MISSING, RuntimeWarning, stacklevel=2)
            return None
        if not operations or operations < SMALLEST or entries > MAX_ENTRIES:
            return None
        arrays = {
            name: _flat(part, np.float64 if part.dtype.kind == "f" else np.intc)
            for name, part in targets.items()
        }
        for name, part in zip(("centre", "distance", "middle"), design.distances, strict=True):
            arrays[name] = _flat(part)
        arrays["variance"] = _flat(design.spread)
        arrays["mean_square"] = _flat(design.moments[1])
        if sp.issparse(matrix):
            by_columns = sp.csc_array(design.matrix)
            for name, form in (("row", matrix), ("column", by_columns)):
                arrays[f"{name}_start"] = _flat(form.indptr, np.intc)
                arrays[f"{name}_index"] = _flat(form.indices, np.intc)
            parts = {"row_value": design.matrix.data, "column_value": by_columns.data}
            light_parts = parts | {"row_value": matrix.data}
        else:
            parts, light_parts = {"dense": design.matrix}, {"dense": matrix}
        values: dict[str, Any] = {
            "float": {k: _flat(part, np.float32) for k, part in light_parts.items()}
        }
        if design.matrix.dtype == np.float64:
            values["double"] = {k: _flat(part) for k, part in parts.items()}
        if design.shifted:
            arrays["mean"] = _flat(design.mean)
        if design.weight is not None:
            arrays["weight"] = _flat(design.weight)
        return cls(design, loss, counts, entries, arrays, values)

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
        """Solve problems from W, (p, M); return which are certified, and hard, (m,)."""
        points = np.asfortranarray(W)
        used, status = np.zeros((2, len(self.counts)), dtype=np.intc)
        converged = np.ones(len(self.counts), dtype=np.bool_)
        converged[problems] = False
        width = 2 ** np.ceil(np.log2(np.maximum(self.counts, 1))).astype(np.intp)
        outputs = {"W": points.T, "n_iter": used, "status": status}
        least = max(tol, driver.MIN_TOL_ULPS * float(np.finfo(np.float64).eps))
        numbers = {
            "tol": least,
            "unchecked_decrease": in_memory.MIXED_PRECISION_RADIUS * least**0.5,
            "objective_floor": floor,
            "max_iter": max_iter,
        }
        for single in (True,) if tol >= UNCERTIFIED_TOL else (True, False):
            aim = conjugate.CERTIFIED_SHARE
            if single:
                aim = max(in_memory.SINGLE_SHARE, FINEST / tol)
            numbers |= {"single": single, "tol_share": aim, "cold": cold and single}
            for lanes in np.unique(width[problems]):
                queue = problems[(width[problems] == lanes) & (status[problems] != HARD)]
                queue = queue[np.argsort(-used[queue], kind="stable")]  # what was slow first
                if lanes <= _engine.WIDEST and len(queue):
                    numbers |= {"width": int(lanes), "max_steps": max_steps(int(lanes))}
                    self._run(numbers, outputs | {"queue": _flat(queue, np.intc)}, alpha)
        if points is not W:
            W[...] = points
        n_iter += used
        done = (status == CERTIFIED) & (width <= _engine.WIDEST)
        return converged | done, status == HARD

    def _run(self, numbers: dict[str, Any], arrays: dict[str, Any], alpha: float) -> None:
        """Work through the queue on as many threads as pay, and wait for them."""
        (n, p), single, width = self.design.matrix.shape, numbers["single"], numbers["width"]
        double_entries = not single and "double" in self.values
        shape = {"n_rows": n, "n_columns": p, "n_problems": len(self.counts)}
        concordance = LOSSES[self.loss].self_concordance if self.loss in LOSSES else 1.0
        kind = {
            "loss": _engine.LOSSES[self.loss],
            "certified_radius": conjugate.CERTIFIED_RADIUS / concordance if concordance else np.inf,
            "intercept": self.design.intercept,
            "double_entries": double_entries,
            "wide": _engine.WIDE_REGISTERS,
        }
        penalty = {"penalty": _flat(alpha * self.design.penalised)}
        values = self.values["double" if double_entries else "float"]
        problems = _engine.Problems(
            CONSTANTS | shape | kind | numbers, self.arrays | values | penalty | arrays
        )
        lanes = max(width, REGISTER_BYTES // (4 if single else 8))
        columns, operations = len(arrays["queue"]) * width, 4 * lanes * self.entries
        pays = operations * columns >= lanes * MIN_THREAD_OPERATIONS
        threads = max(1, min(n_threads() if pays else 1, columns // lanes))

        def work(passes: int) -> None:
            with cancellable(problems.stop):
                problems.work(passes)

        run_threaded(work, [max(1, CHECK_OPERATIONS // operations)] * threads)


def _flat(values: Any, dtype: Any = np.float64) -> Any:
    """Return a flat array that is aligned: those that another process sent may not be."""
    with np.errstate(over="ignore"):  # what overflows is left to double precision
        return np.require(values, dtype, ["C", "ALIGNED"]).reshape(-1)
