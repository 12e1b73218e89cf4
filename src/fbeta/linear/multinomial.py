"""Multinomial logistic regressions, any number of them over one X.

Each class has a weight vector and the penalty is on all of them; intercepts are not penalised.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace
from fbeta.linear.binary import independent_start
from fbeta.linear.compiled import Compiled
from fbeta.linear.design import Design
from fbeta.linear.objectives import CAUTIOUS_LOSS, TINY, Objective

__all__ = ["Multinomial", "softmax"]


class Multinomial(Objective):
    """The logarithm of the softmax of a problem's scores; y holds class numbers, (rows, m).

    The curvature is kept as the probabilities p of the classes: each row's Hessian is ``diag(p) - p
    p'``. Problems with fewer classes (``class_counts``, (m,)) than the widest are filled up with
    classes of probability 0.
    """

    kind = "multinomial"
    always_rotates = True

    def __init__(self, class_counts: NDArray[np.intp]) -> None:
        self.class_counts = class_counts
        self.width = int(class_counts.max(initial=1))

    @classmethod
    def of(cls, targets: NDArray[np.intp]) -> Self:
        """Return the objective of class numbers, (n, m)."""
        return cls(targets.max(axis=0) + 1 if targets.size else np.zeros(0, np.intp))

    @property
    def counts(self) -> NDArray[np.intp]:
        """The classes of each problem, (m,)."""
        return self.class_counts

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
            wide = cautious[:: cautious.shape[0] // loss.shape[1]][None, :, None]
            curvature = xp.where(wide, self._cautious_curvature(loss[:, :, None], p, true), p)
        return loss, self._join(p - true), self._join(curvature)

    def _cautious_curvature(self, loss: Array, p: Array, true: Array) -> Array:
        """Return probabilities for the curvature of problems far from their optimum.

        A true class with a probability below 1/2 gets one with its average curvature on the way
        there, the others their shares of the rest: what a binary loss does, for two classes.
        """
        xp = array_namespace(p)
        wrong = loss > CAUTIOUS_LOSS
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
        counts = xp.asarray(self.class_counts[:, None], device=like.device)
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
        out = Multinomial(self.class_counts[np.asarray(problems)])
        out.width = self.width
        return out

    def select(self, problems: NDArray[np.intp]) -> Objective:
        """Return the objective of some of the problems, as wide as the widest of them."""
        return Multinomial(self.class_counts[problems])

    def order(self, targets: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the problems with two classes or more; rows of the first class tell the time."""
        order = np.argsort(-(targets > 0).sum(axis=0), kind="stable")
        return order[self.class_counts[order] > 1]

    def compiled(self, design: Design, light: Design, targets: Any) -> Compiled | None:
        """Return the problems as the compiled solver takes them."""
        first = np.concatenate([[0], np.cumsum(self.class_counts)]).astype(np.intp)
        return Compiled.multinomial(design, light, targets, first)

    def start(self, design: Design, targets: NDArray[np.intp], alpha: float) -> Array:
        """Start at logistic regressions of "not class 0", with coefficients that sum to 0.

        The other classes get their shares among the rows, for all x.
        """
        solved, _ = independent_start(design, (targets > 0).astype(np.int8), alpha)
        solved = np.where(np.isfinite(solved), solved, 0.0)
        counts = self.class_counts
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        W = np.repeat(solved / counts, counts, axis=1)
        W[:, first[:-1]] = -solved * (counts - 1) / counts
        if design.intercept:
            weight = None if design.weight is None else design.weight[:, 0]
            for m, (start, stop) in enumerate(pairwise(first)):
                share = np.bincount(targets[:, m], weights=weight)[1:]
                W[-1, start + 1 : stop] += np.log(share / share.sum()) if len(share) else 0.0
                W[-1, start:stop] -= W[-1, start:stop].mean()
        return W

    def probabilities(self, scores: Array) -> Array:
        """Return the probability of each class within its problem, (n, M)."""
        return softmax(np.asarray(scores), self.class_counts)


def softmax(scores: Array, counts: NDArray[np.intp]) -> Array:
    """Return the probabilities of classes within problems of so many classes, (n, M)."""
    if not scores.shape[1]:
        return scores
    first = np.cumsum(counts) - counts
    top = np.maximum.reduceat(scores, first, axis=1)
    e = np.exp(scores - np.repeat(top, counts, axis=1))
    return np.asarray(e / np.repeat(np.add.reduceat(e, first, axis=1), counts, axis=1))
