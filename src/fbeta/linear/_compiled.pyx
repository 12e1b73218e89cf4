# distutils: language = c++
# cython: freethreading_compatible = True
"""The compiled solver in newton.hpp, as Python sees it."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.atomic cimport atomic


cdef extern from "engine.hpp" namespace "fbeta" nogil:
    cdef enum class Loss:
        LOGISTIC
        EXPONENTIAL
        SQUARED
        SOFTMAX

    cdef cppclass Matrix[T]:
        int n, p
        const T *dense
        const int *row_start
        const int *row_index
        const T *row_value
        const int *column_start
        const int *column_index
        const T *column_value

    cdef cppclass CProblems "fbeta::Problems":
        int n, p, m
        cbool intercept
        const double *mean
        const double *weight
        const double *penalty
        const double *spread
        const double *raw
        const int *target_start
        const int *target_index
        const double *target_value
        const int *classes
        const int *first
        int width
        const int *queue
        int queued
        double *W
        int *n_iter
        int *status
        double tol, aim, floor, forcing, loose, far, flat_before, flat_beyond
        int max_iter, max_steps, max_trials
        cbool cold
        atomic[int] next
        atomic[int] stop

    cdef cppclass Solver:
        cbool run(int passes)

    Solver *make_solver[S, T](CProblems &problems, const Matrix[T] &matrix, Loss loss) except +


LOSSES = {"logistic": 0, "exponential": 1, "squared": 2, "softmax": 3}
WIDEST = 16  # columns of a problem

ctypedef fused entry:
    float
    double


cdef int check_length(str name, Py_ssize_t found, Py_ssize_t expected) except -1:
    if found != expected:
        raise ValueError(f"{name} has {found} entries, expected {expected}")
    return 0


cdef const double *doubles(dict arrays, str name, Py_ssize_t count) except? NULL:
    cdef const double[::1] values = arrays.get(name)
    if values is None:
        return NULL
    check_length(name, values.shape[0], count)
    return &values[0] if count else NULL


cdef const int *integers(dict arrays, str name, Py_ssize_t count, int low, int64_t high) except? NULL:
    """Integers of which each must lie in [low, high)."""
    cdef const int[::1] values = arrays.get(name)
    cdef Py_ssize_t i
    if values is None:
        return NULL
    check_length(name, values.shape[0], count)
    for i in range(count):
        if values[i] < low or values[i] >= high:
            raise ValueError(f"{name} has {values[i]} at {i}, outside [{low}, {high})")
    return &values[0] if count else NULL


cdef const int *starts(dict arrays, str name, Py_ssize_t count, Py_ssize_t entries) except? NULL:
    """Places where rows or columns begin: from 0 to the number of entries, never falling."""
    cdef const int *out = integers(arrays, name, count + 1, 0, <int64_t>entries + 1)
    cdef Py_ssize_t i
    if out == NULL:
        return out
    for i in range(count):
        if out[i] > out[i + 1]:
            raise ValueError(f"{name} falls at {i}")
    if out[0] != 0 or out[count] != entries:
        raise ValueError(f"{name} does not lead from 0 to {entries}")
    return out


cdef int fill(Matrix[entry] *matrix, dict arrays, const entry[::1] values) except -1:
    """Point a matrix to its arrays, after a look at their sizes."""
    cdef Py_ssize_t entries = values.shape[0]
    cdef const entry[::1] columns
    if "row_start" not in arrays:
        check_length("dense", entries, <Py_ssize_t>matrix.n * matrix.p)
        matrix.dense = &values[0] if entries else NULL
        return 0
    matrix.dense = NULL
    matrix.row_start = starts(arrays, "row_start", matrix.n, entries)
    matrix.row_index = integers(arrays, "row_index", entries, 0, matrix.p)
    matrix.row_value = &values[0]
    matrix.column_start = starts(arrays, "column_start", matrix.p, entries)
    matrix.column_index = integers(arrays, "column_index", entries, 0, matrix.n)
    columns = arrays["column_double" if entry is double else "column_float"]
    check_length("columns", columns.shape[0], entries)
    matrix.column_value = &columns[0]
    return 0


cdef class Problems:
    """Problems that any number of threads :meth:`work` on.

    ``arrays`` and the settings are those of the structure in newton.hpp; ``W``, with p rows and in
    Fortran order, holds the start of each problem and then its solution. ``single`` tells in which
    precision to work, ``loss`` the name of the objective.
    """

    cdef CProblems q
    cdef Matrix[float] lighter
    cdef Matrix[double] heavier
    cdef Loss loss
    cdef bint single, exact
    cdef object kept

    def __init__(
        self, int n, int p, dict arrays, double[::1, :] W, int[::1] n_iter, int[::1] status,
        str loss, *, bint single, bint intercept, int width, bint cold,
        double tol, double aim, double floor, double forcing, double loose, double far,
        double flat_before, double flat_beyond, int max_iter, int max_steps, int max_trials,
    ):
        cdef Py_ssize_t m = n_iter.shape[0], entries
        if n < 1 or p < 1 or m < 1:
            raise ValueError(f"nothing to solve: {n} rows, {p} columns, {m} problems")
        if width not in (1, 2, 4, 8, 16):
            raise ValueError(f"width must be a power of 2 up to {WIDEST}, got {width}")
        check_length("status", status.shape[0], m)
        self.kept = (arrays, W, n_iter, status)
        self.loss, self.single = <Loss><int>LOSSES[loss], single
        self.exact = "double" in arrays
        q = &self.q
        q.n, q.p, q.m, q.intercept, q.width, q.cold = n, p, m, intercept, width, cold
        self.lighter.n, self.lighter.p, self.heavier.n, self.heavier.p = n, p, n, p
        if single or not self.exact:
            fill[float](&self.lighter, arrays, arrays["float"])
        else:
            fill[double](&self.heavier, arrays, arrays["double"])
        q.mean = doubles(arrays, "mean", p - 1)
        q.weight = doubles(arrays, "weight", n)
        q.penalty = doubles(arrays, "penalty", p)
        q.spread, q.raw = doubles(arrays, "spread", p), doubles(arrays, "raw", p)
        if q.penalty == NULL or q.spread == NULL or q.raw == NULL:
            raise ValueError("penalty, spread and raw are missing")
        self._point_to_targets(arrays, W.shape[1])
        if W.shape[0] != p:
            raise ValueError(f"W has {W.shape[0]} rows, expected {p}")
        q.queue = integers(arrays, "queue", len(arrays["queue"]), 0, m)
        q.queued = len(arrays["queue"])
        q.W, q.n_iter, q.status = &W[0, 0], &n_iter[0], &status[0]
        q.tol, q.aim, q.floor, q.forcing, q.loose = tol, aim, floor, forcing, loose
        q.far, q.flat_before, q.flat_beyond = far, flat_before, flat_beyond
        q.max_iter, q.max_steps, q.max_trials = max_iter, max_steps, max_trials
        q.next.store(0)
        q.stop.store(0)

    cdef int _point_to_targets(self, dict arrays, Py_ssize_t columns) except -1:
        q = &self.q
        cdef Py_ssize_t entries, k
        if self.loss != Loss.SOFTMAX:
            check_length("W", columns, q.m)
            entries = len(arrays["target_index"])
            q.target_start = starts(arrays, "target_start", q.m, entries)
            q.target_index = integers(arrays, "target_index", entries, 0, q.n)
            q.target_value = doubles(arrays, "target_value", entries)
            return 0
        q.first = starts(arrays, "first", q.m, columns)
        q.classes = integers(arrays, "classes", <Py_ssize_t>q.n * q.m, 0, columns)
        for k in arrays["queue"]:
            if q.first[k + 1] - q.first[k] > q.width:
                raise ValueError(f"problem {k} is wider than {q.width}")
        return 0

    def work(self, int passes):
        """Solve problems of the queue until it is empty, and look up after each so many passes."""
        cdef Solver *solver
        cdef cbool more = True
        if self.single:
            solver = make_solver[float, float](self.q, self.lighter, self.loss)
        elif self.exact:
            solver = make_solver[double, double](self.q, self.heavier, self.loss)
        else:
            solver = make_solver[double, float](self.q, self.lighter, self.loss)
        try:
            while more:
                with nogil:
                    more = solver.run(passes)
                PyErr_CheckSignals()
        finally:
            del solver

    def stop(self):
        """Make every thread leave off."""
        self.q.stop.store(1)
