"""The compiled solver in lanes.c, as Python sees it."""

from cpython.exc cimport PyErr_CheckSignals


cdef extern from "lanes.h" nogil:
    ctypedef enum loss_kind "enum loss":
        pass

    ctypedef struct problems:
        int n, p
        const float *dense
        const int *row_start
        const int *row_index
        const float *row_value
        const int *column_start
        const int *column_index
        const float *column_value
        const double *exact
        const double *mean
        const double *weight
        const double *penalty
        const double *mean_squares
        loss_kind loss
        const int *target_start
        const int *target_index
        const double *target_value
        const int *classes
        const int *first
        int width
        const int *queue
        int queued
        int *next
        int *stop
        double *W
        int *n_iter
        int *certified
        double *trust
        double tol, floor, forcing, loose, far, armijo, flat, aim, finest
        int max_iter, max_steps, cold

    ctypedef struct workspace:
        pass

    workspace *lanes_open(const problems *q)
    void lanes_close(workspace *s)
    int lanes_run(const problems *q, workspace *s, int passes)

    ctypedef struct softmax_workspace:
        pass

    softmax_workspace *softmax_open(const problems *q)
    void softmax_close(softmax_workspace *s)
    int softmax_run(const problems *q, softmax_workspace *s, int passes)


cdef const float *floats(const float[::1] values):
    return &values[0] if values is not None and values.shape[0] else NULL


cdef const double *doubles(const double[::1] values):
    return &values[0] if values is not None and values.shape[0] else NULL


cdef const int *integers(const int[::1] values):
    return &values[0] if values is not None and values.shape[0] else NULL


cdef class Problems:
    """Problems that any number of threads :meth:`work` on.

    ``arrays`` and the settings are those of the structure in lanes.h; ``W``, with p rows and in
    Fortran order, holds the start of each problem and then its solution. With ``classes`` among
    the arrays the problems are multinomial, otherwise binary.
    """

    cdef problems q
    cdef int[::1] control
    cdef object kept

    def __init__(
        self, int n, int p, dict arrays, double[::1, :] W, int[::1] n_iter, int[::1] certified,
        double[::1] trust, int loss, *,
        double tol, double floor, double forcing, double aim, double finest,
        int max_iter, int max_steps,
        double loose=0, double far=0, double armijo=0, double flat=0,
        bint cold=False, int width=1,
    ):
        self.kept = (arrays, W, n_iter, certified, trust)
        self.control = memoryview(bytearray(8)).cast("i")
        self.q.n, self.q.p, self.q.loss = n, p, <loss_kind>loss
        self.q.dense = floats(arrays.get("dense"))
        self.q.row_start = integers(arrays.get("row_start"))
        self.q.row_index = integers(arrays.get("row_index"))
        self.q.row_value = floats(arrays.get("row_value"))
        self.q.column_start = integers(arrays.get("column_start"))
        self.q.column_index = integers(arrays.get("column_index"))
        self.q.column_value = floats(arrays.get("column_value"))
        self.q.exact = doubles(arrays.get("exact"))
        self.q.mean = doubles(arrays.get("mean"))
        self.q.weight = doubles(arrays.get("weight"))
        self.q.penalty = doubles(arrays["penalty"])
        self.q.mean_squares = doubles(arrays["mean_squares"])
        self.q.target_start = integers(arrays.get("target_start"))
        self.q.target_index = integers(arrays.get("target_index"))
        self.q.target_value = doubles(arrays.get("target_value"))
        self.q.classes, self.q.first = integers(arrays.get("classes")), integers(arrays.get("first"))
        self.q.width = width
        self.q.queue, self.q.queued = integers(arrays["queue"]), len(arrays["queue"])
        self.q.next, self.q.stop = &self.control[0], &self.control[1]
        self.q.W, self.q.n_iter, self.q.certified = &W[0, 0], &n_iter[0], &certified[0]
        self.q.trust = &trust[0]
        self.q.tol, self.q.floor, self.q.forcing, self.q.loose = tol, floor, forcing, loose
        self.q.far, self.q.armijo, self.q.flat = far, armijo, flat
        self.q.aim, self.q.finest = aim, finest
        self.q.max_iter, self.q.max_steps, self.q.cold = max_iter, max_steps, cold

    def work(self, int passes):
        """Solve problems of the queue until it is empty, and look up after each so many passes."""
        if self.q.classes == NULL:
            self._work_binary(passes)
        else:
            self._work_multinomial(passes)

    cdef _work_binary(self, int passes):
        cdef workspace *space
        cdef int more = 1
        with nogil:
            space = lanes_open(&self.q)
        if space == NULL:
            raise MemoryError("no memory for the vectors of the solver")
        try:
            while more:
                with nogil:
                    more = lanes_run(&self.q, space, passes)
                PyErr_CheckSignals()
        finally:
            lanes_close(space)

    cdef _work_multinomial(self, int passes):
        cdef softmax_workspace *space
        cdef int more = 1
        with nogil:
            space = softmax_open(&self.q)
        if space == NULL:
            raise MemoryError("no memory for the vectors of the solver")
        try:
            while more:
                with nogil:
                    more = softmax_run(&self.q, space, passes)
                PyErr_CheckSignals()
        finally:
            softmax_close(space)

    def stop(self):
        """Make every thread leave off."""
        self.control[1] = 1
