"""Softmax regressions: of classes, any number over one X, and of label sets that share labels.

Each class has a weight vector and the penalty is on all of them; intercepts are not penalised. The
score of a label set is the sum of the linear scores of its labels, plus an offset of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, to_numpy
from fbeta.linear.batch import TINY, RowTiles
from fbeta.linear.design import Design
from fbeta.linear.objectives import CAUTIOUS_LOSS, LinearModel, Objective
from fbeta.linear.problems import independent_start

MIN_EIGENVALUE = 1e-10  # relative to the largest, below which sets do not tell labels apart


class Multinomial(Objective):
    """The logarithm of the softmax of a problem's scores; y holds class numbers, (rows, m).

    The curvature is kept as the probabilities p of the classes: each row's Hessian is ``diag(p) - p
    p'``. ``class_counts``, (m,), are the classes of each problem; what is evaluated together has as
    many.
    """

    kind = "multinomial"
    always_rotates = True
    outcome_distance = 2.0

    def __init__(self, class_counts: NDArray[np.intp]) -> None:
        self.class_counts, self.width = class_counts, int(class_counts.max(initial=1))

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

    def evaluate(self, y: Array, u: Array, cautious: Array | None) -> tuple[Array, Array, Array]:
        """Return the negative log-likelihood, its gradient and probabilities for its curvature."""
        xp, there = array_namespace(u), {"device": u.device}
        logs = self._split(u)
        logs = logs - xp.max(logs, axis=-1, keepdims=True)
        logs = logs - xp.log(xp.sum(xp.exp(logs), axis=-1, keepdims=True))
        true = y[:, :, None] == xp.arange(self.width, dtype=y.dtype, **there)
        p, true = xp.exp(logs), xp.astype(true, u.dtype)
        loss = -xp.sum(xp.where(true > 0, logs, xp.zeros_like(logs)), axis=-1)
        curvature = p
        if cautious is not None:
            # a true class below 1/2 gets a probability with its average curvature on the way there
            wide = loss[:, :, None]
            wrong = wide > CAUTIOUS_LOSS
            safe = xp.where(wrong, wide, xp.ones_like(wide))
            own = xp.exp(-safe)
            now = 0.5 * (1 - xp.sqrt(1 - 4 * (0.5 - own) / (safe + xp.log1p(-own))))
            changed = xp.where(true > 0, now, p * ((1 - now) / (1 - own)))
            far = cautious[:: cautious.shape[0] // loss.shape[1]][None, :, None]
            curvature = xp.where(far & wrong, changed, p)
        return loss, self._join(p - true), self._join(curvature)

    def response(self, curvature: Array, v: Array) -> Array:
        """Multiply with ``diag(p) - p p'``."""
        p, v = self._split(curvature), self._split(v)
        mean = array_namespace(v).sum(p * v, axis=-1, keepdims=True)
        return self._join(p * (v - mean))

    def masses(self, curvature: Array) -> Array:
        """Return ``p / 2``: two classes with p or more differ by at most ``sqrt(2 v' H v / p)``."""
        return curvature / 2

    def diagonal(self, curvature: Array) -> Array:
        """Return ``p (1 - p)``."""
        return curvature * (1 - curvature)

    def regular(self, c: Array) -> Array:
        """Make Hessians regular along shifts of all classes."""
        xp = array_namespace(c)
        return c + (xp.sum(xp.linalg.diagonal(c), axis=-1)[:, None, None] + TINY)

    def project(self, values: Array) -> Array:
        """Make the columns of each problem sum to 0."""
        split = self._split(values)
        return self._join(split - array_namespace(values).mean(split, axis=-1, keepdims=True))

    def take(self, problems: Any) -> Multinomial:
        """Return the objective of some problems."""
        return Multinomial(self.class_counts[np.asarray(problems)])

    def order(self, targets: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the problems with two classes or more; rows of the first class tell the time."""
        order = np.argsort(-(targets > 0).sum(axis=0), kind="stable")
        return order[self.class_counts[order] > 1]

    def compiled_targets(self, targets: Any) -> tuple[str, int, dict[str, Any]] | None:
        """Return the classes of the rows, problem by problem."""
        first = np.concatenate([[0], np.cumsum(self.class_counts)]).astype(np.intp)
        return "softmax", int(first[-1]), {"classes": targets.T, "first": first}

    def start(self, design: Design, targets: NDArray[np.intp], alpha: float) -> Array:
        """Start at logistic regressions of "not class 0", and constant shares of other classes."""
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


@dataclass(frozen=True)
class SetDesign(Design):
    """A design whose scores are those of label sets.

    The coefficients are s columns of p numbers for the labels, and L offsets, which are kept in
    further columns of p numbers each, filled up with zeros.
    """

    sets: Any  # csr_array of shape (L, s)

    def rows(self, size: int, dtype: Any) -> SetTiles:
        """Return the rows in tiles of a size."""
        return SetTiles(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many columns of coefficients there are."""
        L, s = self.sets.shape
        return int(s + (-(-L // self.matrix.shape[1]) if self.intercept else 0))

    def penalty(self, alpha: float, intercept_penalty: float) -> Array:
        """Return the penalties of all coefficients, (p, M)."""
        xp, (_, s), p = self.xp, self.sets.shape, self.matrix.shape[1]
        own = xp.broadcast_to(super().penalty(alpha, intercept_penalty), (p, s))
        shape, there = (p, self.columns(0) - s), {"dtype": own.dtype, "device": self.device}
        return xp.concat([own, xp.full(shape, intercept_penalty, **there)], axis=1)

    def scores(self, W: Array) -> Array:
        """Return the scores of the sets for all rows, (n, L)."""
        labels, offsets = self.unpack(W)
        own = to_numpy(super().scores(labels)).astype(np.float64, copy=False)
        return set_scores(own, self.sets.astype(np.float64)) + to_numpy(offsets)

    def rounded_coefficients(self, W: Array) -> tuple[Array, Array]:
        """Return the coefficients of the labels, (s, d), and the offsets of the sets, (L,)."""
        labels, offsets = self.unpack(W)
        coef, intercept = super().rounded_coefficients(labels)
        return to_numpy(coef), to_numpy(offsets) + self.sets @ to_numpy(intercept)

    def pack(self, labels: Array, offsets: Array) -> Array:
        """Put coefficients of labels, (p, s), and offsets of sets, (L,), together: (p, M)."""
        if not self.intercept:
            return labels
        xp, p = self.xp, labels.shape[0]
        zeros = xp.zeros(-offsets.shape[0] % p, dtype=offsets.dtype, device=self.device)
        return xp.concat([labels, xp.reshape(xp.concat([offsets, zeros]), (p, -1))], axis=1)

    def unpack(self, W: Array) -> tuple[Array, Array]:
        """Take apart what :meth:`pack` put together."""
        L, s = self.sets.shape
        if not self.intercept:
            return W, self.xp.zeros(L, dtype=W.dtype, device=self.device)
        return W[:, :s], self.xp.reshape(W[:, s:], (-1,))[:L]

    @cached_property
    def basis(self) -> NDArray[np.float64]:
        """Orthonormal columns that span the differences of sets: (s, r)."""
        mean = np.asarray(self.sets.mean(axis=0))
        gram = (self.sets.T @ self.sets).toarray() / self.sets.shape[0] - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(gram)
        return np.asarray(vectors[:, values > MIN_EIGENVALUE * max(values[-1], MIN_EIGENVALUE)])


class SetTiles(RowTiles):
    """The rows of such a design: Z, the label sets and the offsets as one operator."""

    design: SetDesign

    def __init__(self, design: SetDesign, size: int, dtype: Any) -> None:
        super().__init__(design, size, dtype)
        xp = design.xp
        self.sets: Any = design.sets.astype(np.float64)
        if xp is not np:
            self.sets = xp.asarray(self.sets.toarray(), device=design.device)

    def product(self, W: Array) -> list[Array]:
        """Return the scores of the sets, tile by tile."""
        labels, offsets = self.design.unpack(W)
        return [set_scores(u, self.sets) + offsets for u in super().product(labels)]

    def adjoint(self, parts: list[Array]) -> Array:
        """Multiply the transpose with (rows, L) tiles: (p, M)."""
        labels = super().adjoint([part @ self.sets for part in parts])
        return self.design.pack(labels, sum(self.design.xp.sum(b, axis=0) for b in parts))

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with the response of each tile to its scores of W: (p, M)."""
        labels, offsets = self.design.unpack(W)
        total = [self.design.xp.zeros_like(offsets)]

        def inner(at: int, u: Array) -> Array:
            answer = respond(at, set_scores(u, self.sets) + offsets)
            total[0] = total[0] + self.design.xp.sum(answer, axis=0)
            return answer @ self.sets

        labels = super().round_trip(labels, inner)
        return self.design.pack(labels, total[0])

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of the Hessian if it did not depend on Z, nor sets on each other."""
        labels = super().diagonal(set_scores(total[None, :], self.sets.T)[0, :])
        return self.design.pack(labels, total)


class LabelSets(Multinomial):
    """The softmax over label sets, csr (L, s) of 0/1; y holds the number of the set, (rows, 1)."""

    kind = "label set"
    preconditioners = ("diagonal",)
    exact_steps = True
    always_rotates = False
    intercept_penalty, min_alpha = 1e-5, 1e-7

    design: SetDesign  # that of a solve
    plain: Design  # the same without the label sets

    def __init__(self, sets: sp.csr_array) -> None:
        super().__init__(np.array([sets.shape[0]]))
        self.sets = sets

    @classmethod
    def of(cls, targets: Any) -> Self:
        """Return the objective of the label sets that rows have."""
        return cls(targets.structure)

    @property
    def counts(self) -> NDArray[np.intp]:
        """One problem, whose columns are those of the design."""
        return np.array([self.design.columns(self.width)])

    @property
    def n_linear(self) -> int:
        """The number of labels."""
        return int(self.sets.shape[1])

    def bind(self, design: Design) -> tuple[LabelSets, SetDesign]:
        """Return the objective of coefficients over a design, and the design with the sets."""
        out, own = copy(self), {f.name: getattr(design, f.name) for f in fields(Design)}
        out.plain, out.design = design, SetDesign(**own, sets=self.sets)
        return out, out.design

    def order(self, targets: Any) -> NDArray[np.intp]:
        """Return the one problem."""
        return np.zeros(1, np.intp)

    def take(self, problems: Any) -> LabelSets:
        """Return itself: there is one problem only."""
        return self

    def compiled_targets(self, targets: Any) -> None:
        """Return None: the compiled solver has no sets."""

    def project(self, values: Array) -> Array:
        """Remove scores that all sets share, intercepts of labels, and a shift of all offsets."""
        xp, design = array_namespace(values), self.design
        basis = xp.asarray(design.basis, device=values.device)
        labels, offsets = design.unpack(values)
        labels = (labels @ basis) @ basis.T
        if design.intercept:
            labels = xp.concat([labels[:-1, :], xp.zeros_like(labels[-1:, :])], axis=0)
        return design.pack(labels, offsets - xp.mean(offsets))

    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Start at independent labels, (p, M)."""
        xp, there = design.xp, {"device": design.device}
        W, _ = independent_start(self.plain, self.sets[targets[:, 0]], alpha)
        offsets = self.sets @ W[-1] if design.intercept else np.zeros(self.sets.shape[0])
        packed = self.design.pack(xp.asarray(W, **there), xp.asarray(offsets, **there))
        return self.project(packed)

    def model_scores(self, X: Any, coef: Array, intercept: Array) -> Array:
        """Return the scores of the sets: sums over their labels, plus their offsets, (n, L)."""
        labels = np.asarray(X @ coef.T).astype(np.float64, copy=False)
        return set_scores(labels, self.sets.astype(np.float64)) + intercept


def set_scores(labels: Array, sets: Any) -> Array:
    """Return the sum over the labels of each set, (rows, L)."""
    # sparse @ dense, because the product of an ndarray with a sparse array is a loop
    return np.ascontiguousarray((sets @ labels.T).T) if sp.issparse(sets) else labels @ sets.T


def SoftmaxModel(coef: Any, intercept: Any, first: Any, n_iter: Any, converged: Any) -> LinearModel:
    """Return the model of a file with this name; classes of a problem begin at ``first``."""
    return LinearModel(coef, intercept, n_iter, converged, Multinomial(np.diff(first)))


def LabelSetModel(coef: Any, offset: Any, sets: Any, n_iter: Any, converged: Any) -> LinearModel:
    """Return the model of a file with this name, of label sets."""
    return LinearModel(coef, offset, n_iter, converged, LabelSets(sets))
