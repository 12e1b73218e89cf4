# distutils: language = c++
# cython: freethreading_compatible = True
"""The compiled solver of engine.hpp, as Python sees it."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libcpp cimport bool as cbool
from libcpp.atomic cimport atomic


cdef extern from "engine.hpp" namespace "fbeta" nogil:
    const int count_numbers

    cdef cppclass CProblems "fbeta::Problems":
        int queued
        atomic[int] stop

    cdef cppclass Solver:
        cbool run(int passes)

    cbool set_number(CProblems &problems, const char *name, double value)
    cbool set_array(CProblems &problems, const char *name, void *address)
    Solver *make_solver(CProblems &problems) except +
    void c_evaluate "fbeta::evaluate_sizes"(int s, int C, const int *size, int n, const double *u,
                                            double *log_total, double *kept) except +
    void c_multiply "fbeta::multiply_sizes"(int s, int C, const int *size, int n, const double *kept,
                                            const double *v, double *out) except +


LOSSES = {"logistic": 0, "exponential": 1, "squared": 2, "softmax": 3}
WIDEST = 16  # columns of a problem


cdef class Problems:
    """Problems that any number of threads :meth:`work` on.

    ``numbers`` are the fields ``FBETA_NUMBERS`` of engine.hpp, of which none may be missing, and
    ``arrays`` those of ``FBETA_ARRAYS``, contiguous. ``W``, ``n_iter`` and ``status`` are written to.
    """

    cdef CProblems q
    cdef dict arrays
    cdef list views  # they keep the memory that the solver points to

    def __init__(self, dict numbers, dict arrays):
        self.arrays, self.views = arrays, []
        n, p, m = (numbers[name] for name in ("n_rows", "n_columns", "n_problems"))
        if n < 1 or p < 1 or m < 1:
            raise ValueError(f"nothing to solve: {n} rows, {p} columns, {m} problems")
        if numbers["width"] not in (1, 2, 4, 8, 16):
            raise ValueError(f"width must be a power of 2 up to {WIDEST}, got {numbers['width']}")
        for name, value in numbers.items():
            if not set_number(self.q, name.encode(), value):
                raise ValueError(f"there is no setting {name!r}")
        if len(numbers) != count_numbers:
            raise ValueError(f"expected {count_numbers} settings, got {len(numbers)}")
        self._point_to_matrix(n, p, "d" if numbers["double_entries"] else "f")
        for name, length in (("mean", p - 1), ("weight", n)):
            if name in arrays:
                self._point_to(name, "d", length)
        self._point_to("distance", "d", n)
        self._point_to("middle", "d", 1)
        for name in ("penalty", "variance", "mean_square", "centre"):
            self._point_to(name, "d", p)
        self._point_to_targets(n, p, m, numbers["loss"] == LOSSES["softmax"], numbers["width"])
        self.q.queued = len(arrays["queue"])
        self._point_to_integers("queue", self.q.queued, m)
        self._point_to("n_iter", "i", m, True)
        self._point_to("status", "i", m, True)

    cdef void *_point_to(self, str name, str format, Py_ssize_t length, bint written=False) except NULL:
        """Point to an array, after checks of its type and size."""
        view = memoryview(self.arrays[name])
        if view.format != format or not view.c_contiguous or written and view.readonly:
            raise ValueError(f"{name} must be contiguous, of type {format!r}, got {view.format!r}")
        if view.nbytes != length * view.itemsize:
            found = view.nbytes // view.itemsize
            raise ValueError(f"{name} has {found} entries, expected {length}")
        self.views.append(view)
        cdef void *address = PyMemoryView_GET_BUFFER(view).buf
        set_array(self.q, name.encode(), address)
        return address

    cdef const int *_point_to_integers(self, str name, Py_ssize_t length, Py_ssize_t end) except NULL:
        """Point to integers of which each must lie in [0, end)."""
        cdef const int *values = <const int *>self._point_to(name, "i", length)
        cdef Py_ssize_t i
        for i in range(length):
            if values[i] < 0 or values[i] >= end:
                raise ValueError(f"{name} has {values[i]} at {i}, outside [0, {end})")
        return values

    cdef const int *_point_to_starts(self, str name, Py_ssize_t count, Py_ssize_t entries) except NULL:
        """Point to the places where rows or columns begin: from 0 to ``entries``, never falling."""
        cdef const int *values = self._point_to_integers(name, count + 1, entries + 1)
        cdef Py_ssize_t i
        for i in range(count):
            if values[i] > values[i + 1]:
                raise ValueError(f"{name} falls at {i}")
        if values[0] != 0 or values[count] != entries:
            raise ValueError(f"{name} does not lead from 0 to {entries}")
        return values

    cdef int _point_to_matrix(self, Py_ssize_t n, Py_ssize_t p, str format) except -1:
        if "dense" in self.arrays:
            self._point_to("dense", format, n * p)
            return 0
        entries = len(self.arrays["row_index"])
        for name, count, end in (("row", n, p), ("column", p, n)):
            self._point_to_starts(name + "_start", count, entries)
            self._point_to_integers(name + "_index", entries, end)
            self._point_to(name + "_value", format, entries)
        return 0

    cdef int _point_to_targets(self, Py_ssize_t n, Py_ssize_t p, Py_ssize_t m, bint softmax,
                               int width) except -1:
        cdef const int *first
        if not softmax:
            self._point_to("W", "d", m * p, True)
            entries = len(self.arrays["target_index"])
            self._point_to_starts("target_start", m, entries)
            self._point_to_integers("target_index", entries, n)
            self._point_to("target_value", "d", entries)
            return 0
        columns = len(self.arrays["W"])
        self._point_to("W", "d", columns * p, True)
        first = self._point_to_starts("first", m, columns)
        self._point_to_integers("classes", n * m, columns)
        for k in self.arrays["queue"]:
            if not 0 <= k < m or first[k + 1] - first[k] > width:
                raise ValueError(f"problem {k} is wider than {width}, or none")
        return 0

    def work(self, int passes):
        """Solve problems of the queue until it is empty; handle signals every so many passes."""
        cdef Solver *solver = make_solver(self.q)
        cdef cbool more = True
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


cdef void *address(object values, str format, Py_ssize_t length) except NULL:
    """Return the address of so many numbers of a type, which the caller keeps."""
    view = memoryview(values)
    if view.format != format or not view.c_contiguous or view.nbytes != length * view.itemsize:
        raise ValueError(f"expected {length} contiguous numbers of type {format!r}")
    return PyMemoryView_GET_BUFFER(view).buf


cdef const int *increasing(object sizes, int s) except NULL:
    cdef const int *size = <const int *>address(sizes, "i", len(sizes))
    cdef int i, before = -1
    for i in range(len(sizes)):
        if not before < size[i] <= s:
            raise ValueError(f"sizes must increase within [0, {s}], got {list(sizes)}")
        before = size[i]
    return size


def evaluate_sizes(int s, sizes, int n, u, log_total, kept):
    """Write ln Z, (n,), and what Hessians consist of, (n, 3 s + 2 C), at scores u, (n, s + C)."""
    cdef int C = len(sizes)
    cdef const int *size = increasing(sizes, s)
    cdef double *given = <double *>address(u, "d", <Py_ssize_t>n * (s + C))
    cdef double *first = <double *>address(log_total, "d", n)
    cdef double *second = <double *>address(kept, "d", <Py_ssize_t>n * (3 * s + 2 * C))
    with nogil:
        c_evaluate(s, C, size, n, given, first, second)


def multiply_sizes(int s, sizes, int n, kept, v, out):
    """Write the products of Hessians with changes of scores v, (n, s + C)."""
    cdef int C = len(sizes)
    cdef const int *size = increasing(sizes, s)
    cdef double *hessians = <double *>address(kept, "d", <Py_ssize_t>n * (3 * s + 2 * C))
    cdef double *changes = <double *>address(v, "d", <Py_ssize_t>n * (s + C))
    cdef double *found = <double *>address(out, "d", <Py_ssize_t>n * (s + C))
    with nogil:
        c_multiply(s, C, size, n, hessians, changes, found)
