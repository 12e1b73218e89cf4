"""What the solver minimises: losses of scores, with their first and second derivatives.

A problem has one score for each of its columns of W: one for a binary loss, one for each class of a
multinomial regression. The solver knows an objective only through these methods; the rows it is
given may be any block of them. Arrays are of any library that follows the array API standard, of
shape (rows, m c) for m problems with c columns each, the columns of a problem side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, namespace_and_device
from fbeta._threads import map_rows, row_tasks
from fbeta.linear.fused import fuses_losses, logistic
from fbeta.losses import Loss
from fbeta.statistics.cardinality_law import backward, forward, second_moments, size_law, tilted
from fbeta.statistics.factored import labels_first

__all__ = ["Binary", "Cardinality", "Multinomial", "Objective"]

TINY = 1e-150
WRONG = 0.75  # loss of a class whose probability is somewhat below 1/2


class Objective(ABC):
    """A convex loss of each problem's scores.

    Attributes
    ----------
    width : int
        Columns c of a problem.
    joint : bool
        Whether there is one problem only, with too many columns for more than the diagonal of
        their Hessian.
    ridge, least : float
        Penalty of the intercepts, and the least penalty of anything else, where nothing else would
        bound them.
    """

    width: int = 1
    joint: bool = False
    ridge: float = 0.0
    least: float = 0.0

    @abstractmethod
    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return losses (rows, m), their gradients (rows, m c) and the curvature (rows, m c).

        ``cautious``, (m,), tells the problems for which a curvature that is too low would lead
        astray. What the curvature consists of is the objective's own affair; it is not negative,
        and Hessians grow with each of its entries.
        """

    def summed(
        self, y: Array, u: Array, cautious: Array | None, weight: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Evaluate rows with weights, (rows, 1), and sum over them.

        Returns the sums of the losses, (m,), the weighted gradients, the curvature without weights
        and the sums of its weighted diagonal, (m c,); sums are in double precision.
        """
        xp = array_namespace(u)
        f, g, h = self.evaluate(y, u, cautious)
        diagonal = self.diagonal(h)
        if weight is not None:
            f, g, diagonal = weight * f, weight * g, weight * diagonal
        value, total = (xp.astype(xp.sum(a, axis=0), xp.float64) for a in (f, diagonal))
        return value, g, h, total

    def slopes(self, y: Array, u: Array) -> tuple[Array, Array]:
        """Return losses and gradients only, where nobody asks for the curvature."""
        return self.evaluate(y, u, None)[:2]

    @abstractmethod
    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply the Hessian of each row's loss with a change of its scores, (rows, m c)."""

    @abstractmethod
    def diagonal(self, curvature: Array) -> Array:
        """Return the diagonal of each row's Hessian, (rows, m c)."""

    def regular(self, c: Array) -> Array:
        """Make Hessians in one coordinate, (m, c, c), regular without changing any solution."""
        if c.shape[-1] == 1:
            return c + TINY
        xp = array_namespace(c)
        return c + TINY * xp.eye(c.shape[-1], dtype=c.dtype, device=c.device)

    def project(self, values: Array) -> Array:
        """Remove from gradients or directions, (p, m c), what no loss depends on."""
        return values

    def take(self, problems: Array) -> Objective:
        """Return the objective of some of the problems."""
        return self


class Binary(Objective):
    """A binary loss phi(y, u); y holds targets in [0, 1]."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.middle = [float(loss.derivative(y, np.zeros(1))[0]) for y in (0.0, 1.0)]

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return value, derivative and curvature.

        A saturated loss has almost no curvature, and a Newton step for it would overshoot by far:
        where asked for caution, rows on the wrong side get their average curvature on the way to
        score 0.
        """
        f, g, h = self.loss.evaluate(y, u)
        if cautious is not None:
            xp = array_namespace(u)
            wrong = g * u > 0
            middle = self.middle[0] + (self.middle[1] - self.middle[0]) * y
            average = (g - middle) / xp.where(wrong, u, xp.ones_like(u))
            h = xp.where(wrong & cautious, average, h)
        return f, g, h

    def summed(
        self, y: Array, u: Array, cautious: Array | None, weight: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Evaluate and sum, in one kernel where there is one."""
        if weight is None and fuses_losses(self.loss, u):
            return logistic(y, u, cautious)
        return super().summed(y, u, cautious, weight)

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply."""
        return curvature * v

    def diagonal(self, curvature: Array) -> Array:
        """Return the second derivative, which is the curvature."""
        return curvature


class Multinomial(Objective):
    """The logarithm of the softmax of a problem's scores; y holds class numbers, (rows, m).

    The curvature is kept as the probabilities p of the classes: each row's Hessian is ``diag(p) -
    p p'``. Problems with fewer classes than the widest are filled up with classes of probability 0.

    Parameters
    ----------
    counts : int ndarray of shape (m,)
        Classes of each problem.
    """

    def __init__(self, counts: NDArray[np.intp]) -> None:
        self.counts = counts
        self.width = int(counts.max(initial=1))

    def _split(self, a: Array) -> Array:
        return array_namespace(a).reshape(a, (a.shape[0], -1, self.width))

    def _join(self, a: Array) -> Array:
        return array_namespace(a).reshape(a, (a.shape[0], -1))

    def _one_hot(self, y: Array, like: Array) -> Array:
        xp = array_namespace(like)
        classes = xp.arange(self.width, dtype=y.dtype, device=like.device)
        return xp.astype(y[:, :, None] == classes, like.dtype)

    def _log_probability(self, u: Array) -> Array:
        xp = array_namespace(u)
        none = xp.asarray(-xp.inf, dtype=u.dtype, device=u.device)
        u = xp.where(self._used(u) > 0, self._split(u), none)
        u = u - xp.max(u, axis=-1, keepdims=True)
        return u - xp.log(xp.sum(xp.exp(u), axis=-1, keepdims=True))

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return the negative log-likelihood, its gradient and probabilities for its curvature."""
        xp = array_namespace(u)
        logs = self._log_probability(u)
        p, true = xp.exp(logs), self._one_hot(y, u)
        loss = -xp.sum(xp.where(true > 0, logs, xp.zeros_like(logs)), axis=-1)
        curvature = p
        if cautious is not None:
            far = cautious[:: cautious.shape[0] // loss.shape[1]][None, :, None]
            curvature = xp.where(far, self._cautious(loss[:, :, None], p, true), p)
        return loss, self._join(p - true), self._join(curvature)

    def _cautious(self, loss: Array, p: Array, true: Array) -> Array:
        """Return probabilities for the curvature of rows far from the solution.

        A true class with a probability below 1/2 gets one with its average curvature on the way
        there, the others their shares of the rest: what a binary loss does, for two classes.
        """
        xp = array_namespace(p)
        wrong = loss > WRONG
        safe = xp.where(wrong, loss, xp.ones_like(loss))
        own = xp.exp(-safe)
        odds = safe + xp.log1p(-own)
        now = 0.5 * (1 - xp.sqrt(1 - 4 * (0.5 - own) / odds))
        changed = xp.where(true > 0, now, p * ((1 - now) / (1 - own)))
        return xp.where(wrong, changed, p)

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply with ``diag(p) - p p'``."""
        p, v = self._split(curvature), self._split(v)
        mean = array_namespace(v).sum(p * v, axis=-1, keepdims=True)
        return self._join(p * (v - mean))

    def diagonal(self, curvature: Array) -> Array:
        """Return ``p (1 - p)``."""
        return curvature * (1 - curvature)

    def _used(self, like: Array) -> Array:
        """Return 1 for the classes that a problem has and 0 for those that fill it up, (m, c)."""
        xp = array_namespace(like)
        counts = xp.asarray(self.counts[:, None], device=like.device)
        return xp.astype(xp.arange(self.width, device=like.device) < counts, like.dtype)

    def regular(self, c: Array) -> Array:
        """Make Hessians regular along what no probability depends on.

        That is a shift of all classes, along which gradients vanish, and classes that fill up.
        """
        xp, used = array_namespace(c), self._used(c)
        size = xp.sum(xp.linalg.diagonal(c), axis=-1)[:, None, None] + TINY
        eye = xp.eye(self.width, dtype=c.dtype, device=c.device)
        return c + size * (used[:, :, None] * used[:, None, :] + eye * (1 - used)[:, None, :])

    def project(self, values: Array) -> Array:
        """Make the columns of each problem sum to 0."""
        xp, used = array_namespace(values), self._used(values)
        split = self._split(values) * used
        mean = xp.sum(split, axis=-1, keepdims=True) / xp.sum(used, axis=-1, keepdims=True)
        return self._join(split - mean * used)

    def take(self, problems: Array) -> Multinomial:
        """Return the objective of some of the problems, as wide as this one."""
        out = Multinomial(self.counts[np.asarray(problems)])
        out.width = self.width
        return out


class Cardinality(Objective):
    """The exact log-linear law of labels with scores, and potentials of their number.

    The first s scores are those of the labels, the others those of the sizes; y holds 0/1 for
    both, (rows, s + C). Each row's Hessian is the covariance of y under its law. The curvature is
    kept as the labels' probabilities of presence and absence under a tilt, the potentials as
    factors, and the expectations of y; or, where it is small enough, as the covariance itself.

    Parameters
    ----------
    n_labels : int
        Labels s.
    sizes : int ndarray of shape (C,)
        Increasing sizes that are possible.
    dense : bool
        Whether to keep covariances: more work at each point, and less for each product.
    """

    joint = True
    ridge, least = 1e-5, 1e-7

    def __init__(self, n_labels: int, sizes: NDArray[np.intp], dense: bool = False) -> None:
        self.n_labels, self.sizes, self.dense = n_labels, sizes, dense
        self.width = n_labels + len(sizes)

    @cached_property
    def _flat(self) -> NDArray[np.float64]:
        """What no law depends on, (s + C, 2): all potentials, and all labels against their number.

        Orthonormal columns.
        """
        labels = np.arange(self.width) < self.n_labels
        number = np.concatenate([np.ones(self.n_labels), -self.sizes])
        return np.asarray(np.linalg.qr(np.stack([~labels, number], axis=1))[0])

    def project(self, values: Array) -> Array:
        """Remove what no law depends on."""
        flat = array_namespace(values).asarray(self._flat, device=values.device)
        return values - (values @ flat) @ flat.T

    def _tasks(self, u: Array) -> list[slice]:
        kinds = 1 + self.dense * self.n_labels // 8
        row_bytes = 8 * kinds * (self.n_labels + 1) * (int(self.sizes[-1]) + 1)
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

    def law(self, u: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        """Return ``ln Z``, (n,), and the laws of the sizes and of tilted labels, (1 + K or s, n).

        ``u``, (s + C, n), has the instances in its last axis.
        """
        xp, s = array_namespace(u), self.n_labels
        log_total, z, steps = size_law(xp, u[:s, :], self._spread(u[s:, :], -float("inf")))
        return log_total, z, tilted(xp, u[:s, :], z, steps)

    def probabilities(self, u: Array) -> Array:
        """Return the laws of tilted labels and of the possible sizes, (rows, s + C)."""
        xp = array_namespace(u)

        def work(rows: slice) -> tuple[Array]:
            _, z, (p, _) = self.law(labels_first(xp, u[rows, :]))
            return (labels_first(xp, xp.concat([p, self._gather(z)], axis=0)),)

        return map_rows(xp, work, self._tasks(u))[0]

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return the negative log-likelihood, its gradient and what the Hessian consists of."""
        xp, K = array_namespace(u), int(self.sizes[-1])

        def work(rows: slice) -> tuple[Array, ...]:
            scores = labels_first(xp, u[rows, :])
            log_total, z, (p, q) = self.law(scores)
            A = forward(xp, p, q, K)
            reached = A[-1, 0, :, :]
            factors = xp.where(reached > 0, z / xp.where(reached > 0, reached, 1.0), 0 * z)
            if self.dense:
                mean, kept = self._covariance(p, q, factors, z)
                return log_total, labels_first(xp, mean), labels_first(xp, kept)
            mean = xp.concat([backward(xp, p, q, A, factors[None, :, :]), self._gather(z)], axis=0)
            kept = xp.concat([p, q, self._gather(factors), mean], axis=0)
            return log_total, labels_first(xp, mean), labels_first(xp, kept)

        log_total, mean, kept = map_rows(xp, work, self._tasks(u))
        loss = log_total - xp.sum(xp.where(y > 0, u, xp.zeros_like(u)), axis=1)
        return loss[:, None], mean - y, kept

    def slopes(self, y: Array, u: Array) -> tuple[Array, Array]:
        """Return losses and gradients, without covariances."""
        plain = Cardinality(self.n_labels, self.sizes)
        return Cardinality.evaluate(plain, y, u, None)[:2]

    def _covariance(self, p: Array, q: Array, factors: Array, z: Array) -> tuple[Array, Array]:
        """Return the expectation of y, (s + C, n), and its covariance in one axis, with it."""
        xp, c, n = array_namespace(p), self.width, p.shape[1]
        labels, pairs, joint = second_moments(xp, p, q, factors)
        sizes = self._gather(z)
        mean = xp.concat([labels, sizes], axis=0)
        with_sizes = xp.stack([self._gather(joint[j, :, :]) for j in range(self.n_labels)], axis=0)
        own = xp.eye(len(self.sizes), dtype=p.dtype, device=p.device)[:, :, None] * sizes
        upper = xp.concat([pairs, with_sizes], axis=1)
        lower = xp.concat([xp.permute_dims(with_sizes, (1, 0, 2)), own], axis=1)
        covariance = xp.concat([upper, lower], axis=0) - mean[:, None, :] * mean[None, :, :]
        return mean, xp.concat([xp.reshape(covariance, (c * c, n)), mean], axis=0)

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply with the covariance of y: that of y with the change of the whole score."""
        if not self.dense:
            return self._sweep(curvature, v)
        c, xp = self.width, array_namespace(v)
        covariance = xp.reshape(curvature[:, : c * c], (-1, c, c))
        return (covariance @ v[:, :, None])[:, :, 0]

    def _sweep(self, curvature: Array, v: Array) -> Array:
        """Multiply by a derivative of the sweeps."""
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

        return map_rows(xp, work, self._tasks(v))[0]

    def diagonal(self, curvature: Array) -> Array:
        """Return the variances of y."""
        mean = curvature[:, -self.width :]
        return mean * (1 - mean)
