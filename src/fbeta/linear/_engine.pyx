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
    cbool c_has_wide "fbeta::has_wide_registers"()
    void c_evaluate "fbeta::evaluate_sizes"(int s, int C, const int *size, int n, const double *u,
                                            double *log_total, double *kept) except +
    void c_multiply "fbeta::multiply_sizes"(int s, int C, const int *size, int n, const double *kept,
                                            const double *v, double *out) except +


LOSSES = {"logistic": 0, "exponential": 1, "squared": 2, "softmax": 3}
WIDEST = 16  # columns of a problem
WIDE_REGISTERS = c_has_wide()  # whether the processor has registers of 64 bytes


cdef void *address(str name, values, str format, Py_ssize_t length, list views) except NULL:
    """Return the address of an array that a list keeps, after checks of its type and size."""
    view, written = memoryview(values), name in ("W", "n_iter", "status")
    if view.format != format or not view.c_contiguous or written and view.readonly:
        raise ValueError(f"{name} must be contiguous, of type {format!r}, got {view.format!r}")
    if view.nbytes != length * view.itemsize:
        raise ValueError(f"{name} has {view.nbytes // view.itemsize} entries, expected {length}")
    views.append(view)
    return PyMemoryView_GET_BUFFER(view).buf


cdef class Problems:
    """Problems that any number of threads :meth:`work` on.

    ``numbers`` are the fields ``FBETA_NUMBERS`` of engine.hpp, of which none may be missing, and
    ``arrays`` those of ``FBETA_ARRAYS``, contiguous. ``W``, ``n_iter`` and ``status`` are written to.
    """

    cdef CProblems q
    cdef list views  # they keep the memory that the solver points to

    def __init__(self, dict numbers, dict arrays):
        self.views = []
        n, p, m, width = (numbers[k] for k in ("n_rows", "n_columns", "n_problems", "width"))
        if n < 1 or p < 1 or m < 1:
            raise ValueError(f"nothing to solve: {n} rows, {p} columns, {m} problems")
        if width not in (1, 2, 4, 8, 16):
            raise ValueError(f"width must be a power of 2 up to {WIDEST}, got {width}")
        for name, value in numbers.items():
            if not set_number(self.q, name.encode(), value):
                raise ValueError(f"there is no setting {name!r}")
        if len(numbers) != count_numbers:
            raise ValueError(f"expected {count_numbers} settings, got {len(numbers)}")
        softmax, entry = numbers["loss"] == LOSSES["softmax"], "fd"[numbers["double_entries"]]
        columns, self.q.queued = len(arrays["W"]) if softmax else m, len(arrays["queue"])
        # the type and the length of each array, and the end of the range of integers
        known = {"dense": (entry, n * p)} if "dense" in arrays else {}
        known |= {"W": ("d", columns * p), "n_iter": ("i", m), "status": ("i", m), "middle": ("d", 1)}
        known |= {k: ("d", p) for k in ("penalty", "variance", "mean_square", "centre")}
        known |= {"distance": ("d", n), "queue": ("i", self.q.queued, m)}
        known |= {k: ("d", own) for k, own in (("mean", p - 1), ("weight", n)) if k in arrays}
        sparse = [] if "dense" in arrays else [("row", n, p, entry), ("column", p, n, entry)]
        if softmax:
            known |= {"first": ("i", m + 1, columns + 1), "classes": ("i", n * m, columns)}
        else:
            sparse.append(("target", m, n, "d"))
        for name, count, end, format in sparse:
            entries = len(arrays[f"{name}_index"])
            known |= {f"{name}_start": ("i", count + 1, entries + 1)}
            known |= {f"{name}_index": ("i", entries, end), f"{name}_value": (format, entries)}
        for name, (format, length, *end) in known.items():
            self._point_to(name, arrays[name], format, length, end[0] if end else -1)
        for k in arrays["queue"] if softmax else ():
            if arrays["first"][k + 1] - arrays["first"][k] > width:
                raise ValueError(f"problem {k} is wider than {width}")

    cdef int _point_to(self, str name, values, str format, Py_ssize_t length,
                       Py_ssize_t end) except -1:
        """Point to an array; places where rows or columns begin lead from 0 to the end."""
        cdef void *place = address(name, values, format, length, self.views)
        cdef const int *number = <const int *>place
        cdef cbool starts = name == "first" or name.endswith("_start")
        cdef Py_ssize_t i
        for i in range(length if end >= 0 else 0):
            if number[i] < 0 or number[i] >= end:
                raise ValueError(f"{name} has {number[i]} at {i}, outside [0, {end})")
            if starts and i and number[i] < number[i - 1]:
                raise ValueError(f"{name} falls at {i}")
        if starts and (number[0] != 0 or number[length - 1] != end - 1):
            raise ValueError(f"{name} does not lead from 0 to {end - 1}")
        set_array(self.q, name.encode(), place)
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


cdef const int *increasing(object sizes, int s, list views) except NULL:
    cdef const int *size = <const int *>address("sizes", sizes, "i", len(sizes), views)
    cdef int i, before = -1
    for i in range(len(sizes)):
        if not before < size[i] <= s:
            raise ValueError(f"sizes must increase within [0, {s}], got {list(sizes)}")
        before = size[i]
    return size


def evaluate_sizes(int s, sizes, int n, u, log_total, kept):
    """Write ln Z, (n,), and what Hessians consist of, (n, 3 s + 2 C), at scores u, (n, s + C)."""
    cdef int C = len(sizes)
    cdef Py_ssize_t rows = n
    cdef list views = []
    cdef const int *size = increasing(sizes, s, views)
    cdef double *given = <double *>address("u", u, "d", rows * (s + C), views)
    cdef double *first = <double *>address("log_total", log_total, "d", rows, views)
    cdef double *second = <double *>address("kept", kept, "d", rows * (3 * s + 2 * C), views)
    with nogil:
        c_evaluate(s, C, size, n, given, first, second)


def multiply_sizes(int s, sizes, int n, kept, v, out):
    """Write the products of Hessians with changes of scores v, (n, s + C)."""
    cdef int C = len(sizes)
    cdef Py_ssize_t rows = n
    cdef list views = []
    cdef const int *size = increasing(sizes, s, views)
    cdef double *hessians = <double *>address("kept", kept, "d", rows * (3 * s + 2 * C), views)
    cdef double *changes = <double *>address("v", v, "d", rows * (s + C), views)
    cdef double *found = <double *>address("out", out, "d", rows * (s + C), views)
    with nogil:
        c_multiply(s, C, size, n, hessians, changes, found)
