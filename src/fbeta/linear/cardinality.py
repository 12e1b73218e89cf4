"""Labels with linear scores, and linear potentials of how many there are.

``ln P(y | x) = sum_j y_j (w_j.x + b_j) + v_|y|.x + c_|y| - ln Z(x)`` over the sizes |y| seen.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from fbeta._array import Array, array_namespace, namespace_and_device, to_numpy
from fbeta._threads import map_rows, n_threads, row_tasks, run_threaded
from fbeta.linear.compiled import size_sweep
from fbeta.linear.design import Design
from fbeta.linear.objectives import LinearModel, Objective
from fbeta.linear.problems import independent_start
from fbeta.statistics.cardinality_law import (
    MIN_REACHED,
    NEGLIGIBLE_SIZE,
    backward,
    forward,
    is_far_apart,
    mean_of_labels,
    size_law,
    tilted,
)
from fbeta.statistics.encoding import Targets
from fbeta.statistics.storage import labels_first

MIN_THREAD_CELLS = 1 << 18  # pairs of a label and a size below which a second thread does not pay
COMPILED_ROWS = 8  # that the compiled sweeps work on together
START_STEPS = 10  # of iterative proportional fitting of constant potentials
MIN_SIZE_COUNT = 0.5  # rows that a size is taken to have at the start
CONSTANT_SCORE = 12.0  # score, above ln n, that a constant label starts with


class Cardinality(Objective):
    """The exact log-linear law of labels with scores, and potentials of their number.

    The first s scores are those of the labels, the others those of the C increasing ``sizes``; y
    holds 0/1 for both, (rows, s + C). Each row's Hessian is the covariance of y under its law,
    and kept as the labels' probabilities of presence and absence under a tilt, the potentials as
    factors, and the expectations of y.
    """

    kind = "cardinality"
    preconditioners = ("diagonal",)
    intercept_penalty, min_alpha = 1e-5, 1e-7
    exact_steps = True

    def __init__(self, n_labels: int, sizes: NDArray[np.intp]) -> None:
        self.n_labels, self.sizes, self.width = n_labels, sizes, n_labels + len(sizes)

    @classmethod
    def of(cls, targets: Targets) -> Self:
        """Return the objective of labels and sizes, (n, s + C), and what the sizes are, (C,)."""
        return cls(targets.values.shape[1] - len(targets.structure), targets.structure)

    def batch_targets(self, design: Design, targets: Any, problems: NDArray[np.intp]) -> Array:
        """Return the labels and the sizes of the rows, (n, s + C)."""
        dense = targets.toarray().astype(np.float64)
        return design.xp.asarray(dense, device=design.device)

    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Start at independent labels, and at the shortest coefficients with the same law."""
        xp, there = design.xp, {"device": design.device}
        W, constant = independent_start(design, targets[:, : self.n_labels], alpha)
        if design.intercept:
            certain = CONSTANT_SCORE + np.log(design.total_weight)
            W[-1] = np.where(np.isnan(constant), W[-1], (2 * constant - 1) * certain)
        W = np.concatenate([W, np.zeros((len(W), len(self.sizes)))], axis=1)
        if not design.intercept:
            return self.project(xp.asarray(W, **there))
        u = to_numpy(design.scores(xp.asarray(W[:, : self.n_labels], **there)))
        potentials = W[-1, self.n_labels :]

        def work(rows: slice) -> tuple[Array]:
            none = np.zeros((int(self.sizes[-1]) + 1, len(u[rows])))
            steps = size_law(np, labels_first(np, u[rows]), none)[2]
            return (np.concatenate([none[:1], steps]).cumsum(axis=0)[self.sizes].T,)

        # constant potentials at which sizes are as frequent as in the targets
        logs = map_rows(np, work, self._tasks(u))[0]
        weight = np.ones((len(u), 1)) if design.weight is None else to_numpy(design.weight)
        count = np.maximum(targets[:, self.n_labels :].T @ weight[:, 0], MIN_SIZE_COUNT)
        for _ in range(START_STEPS):
            law = log_softmax(logs + potentials, axis=1) + np.log(weight)
            potentials += np.log(count) - logsumexp(law, axis=0)
        return self.project(xp.asarray(W, **there))

    @cached_property
    def _null_space(self) -> NDArray[np.float64]:
        """What no law depends on, (s + C, 2), orthonormal: shifts of potentials, and of labels."""
        labels = np.arange(self.width) < self.n_labels
        number = np.concatenate([np.ones(self.n_labels), -self.sizes])
        return np.asarray(np.linalg.qr(np.stack([~labels, number], axis=1))[0])

    def project(self, values: Array) -> Array:
        """Remove what no law depends on."""
        null = array_namespace(values).asarray(self._null_space, device=values.device)
        return values - (values @ null) @ null.T

    def _tasks(self, u: Array) -> list[slice]:
        row_bytes = 8 * (self.n_labels + 1) * (int(self.sizes[-1]) + 1)
        return row_tasks(namespace_and_device(u=u), u.shape[0], row_bytes)

    def _spread(self, potentials: Array, fill: float) -> Array:
        """Return what belongs to the possible sizes for all sizes up to the largest."""
        xp = array_namespace(potentials)
        places = np.full(int(self.sizes[-1]) + 1, len(self.sizes))
        places[self.sizes] = np.arange(len(self.sizes))
        padded = xp.concat([potentials, xp.full_like(potentials[:1, :], fill)], axis=0)
        return xp.take(padded, xp.asarray(places, device=potentials.device), axis=0)

    def _gather(self, values: Array) -> Array:
        xp = array_namespace(values)
        return xp.take(values, xp.asarray(self.sizes, device=values.device), axis=0)

    def _split(self, u: Array) -> tuple[Array, Array]:
        """Return scores of labels, (s, n), and potentials of all sizes, (1 + K, n)."""
        return u[: self.n_labels, :], self._spread(u[self.n_labels :, :], -float("inf"))

    def probabilities(self, scores: Array) -> Array:
        """Return the log-odds of labels, given their number, and the law of sizes, (n, s + C).

        Examples
        --------
        >>> law = Cardinality(2, np.array([0, 1]))
        >>> law.probabilities(np.array([[0.0, 0.0, -1.0, 1.0]])).round(2).tolist()
        [[0.0, 0.0, 0.06, 0.94]]
        """
        xp = array_namespace(scores)
        u = xp.astype(scores, xp.float64, copy=False)

        def work(rows: slice) -> tuple[Array]:
            of_labels, of_sizes = self._split(labels_first(xp, u[rows, :]))
            z = size_law(xp, of_labels, of_sizes)[1]
            return (labels_first(xp, xp.concat([of_labels, self._gather(z)], axis=0)),)

        return map_rows(xp, work, self._tasks(u))[0]

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return the negative log-likelihood, its gradient and what the Hessian consists of."""
        xp, K = array_namespace(u), int(self.sizes[-1])

        def work(rows: slice) -> tuple[Array, ...]:
            of_labels, of_sizes = self._split(labels_first(xp, u[rows, :]))
            log_total, z, steps = size_law(xp, of_labels, of_sizes)
            p, q = tilted(xp, of_labels, z, steps)
            A = forward(xp, p, q, K)
            reached = A[-1, 0, :, :]
            found = reached > MIN_REACHED
            factors = xp.where(found, z / xp.where(found, reached, 1.0), 0 * z)
            lost = bool(xp.any((z > NEGLIGIBLE_SIZE) & ~found))
            labels = backward(xp, p, q, A, factors[None, :, :])
            mean = xp.concat([labels, self._gather(z)], axis=0)
            kept = xp.concat([p, q, self._gather(factors), mean], axis=0)
            if lost or is_far_apart(xp, of_labels):
                # sweeps lose what underflows; curvatures may, gradients may not
                labels = mean_of_labels(xp, of_labels, of_sizes)
                mean = xp.concat([labels, self._gather(z)], axis=0)
            return log_total, labels_first(xp, mean), labels_first(xp, kept)

        n, kept_width = u.shape[0], self.width + 2 * self.n_labels + len(self.sizes)
        log_total, kept = np.empty(n), np.empty((n, kept_width))
        mean = kept[:, -self.width :]
        # where numbers are out of range, logarithms of Z are NaN
        if not (self.sweep("evaluate", u, log_total, kept) and np.isfinite(log_total).all()):
            log_total, mean, kept = map_rows(xp, work, self._tasks(u))
        loss = log_total - xp.sum(xp.where(y > 0, u, xp.zeros_like(u)), axis=1)
        return loss[:, None], mean - y, kept

    def sweep(self, name: str, *arrays: Array) -> bool:
        """Run a compiled sweep over the rows of arrays, on threads where that pays, if it can."""
        sweep = size_sweep(name, self.n_labels, self.sizes)
        if sweep is None or not all(isinstance(a, np.ndarray) for a in arrays):
            return False
        n = len(arrays[0])
        own = [np.ascontiguousarray(a, np.float64) for a in arrays]
        parts = n * self.n_labels * (int(self.sizes[-1]) + 1) // MIN_THREAD_CELLS
        rows = -(-max(n, 1) // max(1, min(n_threads(), parts)))
        rows += -rows % COMPILED_ROWS
        tasks = [slice(start, min(start + rows, n)) for start in range(0, n, rows)]
        run_threaded(lambda t: sweep(t.stop - t.start, *(a[t] for a in own)), tasks)
        return True

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply with the covariance of y, by a derivative of the sweeps."""
        xp, s, C = array_namespace(v), self.n_labels, len(self.sizes)
        K = int(self.sizes[-1])

        def work(rows: slice) -> tuple[Array]:
            kept, change = labels_first(xp, curvature[rows, :]), labels_first(xp, v[rows, :])
            p, q, factors, mean = (
                kept[a:b, :] for a, b in ((0, s), (s, 2 * s), (2 * s, 2 * s + C), (2 * s + C, None))
            )
            of_labels = change[:s, :]
            of_sizes = change[s:, :] - xp.sum(mean * change, axis=0)
            A = forward(xp, p, q, K, of_labels)
            both = xp.stack([factors, factors * of_sizes], axis=0)
            B = xp.stack([self._spread(both[i, :, :], 0.0) for i in (0, 1)], axis=0)
            of_all = self._gather(A[-1, 1, :, :]) * factors
            of_all = of_all + self._gather(A[-1, 0, :, :]) * both[1, :, :]
            out = xp.concat([backward(xp, p, q, A, B, of_labels), of_all], axis=0)
            return (labels_first(xp, out),)

        out = np.empty(v.shape)
        done = v.dtype == xp.float64 and self.sweep("multiply", curvature, v, out)
        return out if done else map_rows(xp, work, self._tasks(v))[0]

    def diagonal(self, curvature: Array) -> Array:
        """Return the variances of y."""
        mean = curvature[:, -self.width :]
        return mean * (1 - mean)


def CardinalityModel(
    coef: Any, intercept: Any, sizes: Any, n_iter: Any, converged: Any
) -> LinearModel:
    """Return the model of a file with this name, of labels and sizes."""
    law = Cardinality(len(coef) - len(sizes), sizes)
    return LinearModel(coef, intercept, n_iter, converged, law)
