"""What the solver minimises: losses of scores, with their first and second derivatives.

A problem has one score for each of its columns of W: one for a binary loss, one for each class of a
multinomial regression. The solver knows an objective only through these methods; the rows it is
given may be any block of them. Arrays are of any library that follows the array API standard, of
shape (rows, m c) for m problems with c columns each, the columns of a problem side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import array_namespace
from fbeta.losses import Loss

__all__ = ["Binary", "Multinomial", "Objective"]

Array = Any
TINY = 1e-150


class Objective(ABC):
    """A convex loss of each problem's scores.

    Attributes
    ----------
    width : int
        Columns c of a problem.
    """

    width: int = 1

    @abstractmethod
    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return losses (rows, m), their gradients (rows, m c) and the curvature (rows, m c).

        ``cautious``, (m,), tells the problems for which a curvature that is too low would lead
        astray. What the curvature consists of is the objective's own affair; it is not negative,
        and Hessians grow with each of its entries.
        """

    @abstractmethod
    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply the Hessian of each row's loss with a change of its scores, (rows, m c)."""

    @abstractmethod
    def diagonal(self, curvature: Array) -> Array:
        """Return the diagonal of each row's Hessian, (rows, m c)."""

    def regular(self, c: Array) -> Array:
        """Make Hessians in one coordinate, (m, c, c), regular without changing any solution."""
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
        """Return the negative log-likelihood, its gradient and the probabilities."""
        xp = array_namespace(u)
        logs = self._log_probability(u)
        p, true = xp.exp(logs), self._one_hot(y, u)
        loss = -xp.sum(xp.where(true > 0, logs, xp.zeros_like(logs)), axis=-1)
        return loss, self._join(p - true), self._join(p)

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
