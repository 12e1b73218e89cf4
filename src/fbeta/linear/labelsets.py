"""One softmax over label sets whose scores are sums of linear scores of their labels.

``ln P(y | x) = sum_j y_j w_j.x + b_y - ln Z(x)`` over L label sets y. The penalty ``alpha / 2`` is
on all w; the b have one that no score feels. The coefficients are s columns of p numbers and L
single ones, which are kept in further columns of p numbers each, filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, to_numpy
from fbeta.linear.binary import LinearProblems
from fbeta.linear.design import Design, Rows
from fbeta.linear.multinomial import softmax
from fbeta.linear.objectives import Multinomial
from fbeta.linear.problems import Problems, Solution
from fbeta.losses import LogisticLoss

__all__ = ["LabelSetModel", "LabelSetProblems"]

ROUGH = 1e-2  # relative accuracy of the independent labels that a solve starts from
SMALL = 1e-10  # share of the largest eigenvalue below which sets do not tell labels apart


@dataclass(frozen=True)
class LabelSetModel:
    """Scores ``X @ coef.T`` of the labels, of which each set has the sum plus its own.

    Attributes
    ----------
    coef : ndarray of shape (s, d)
    offset : ndarray of shape (L,)
    sets : csr_array of shape (L, s)
    n_iter : ndarray of shape (1,)
        Newton iterations.
    converged : bool ndarray of shape (1,)
    """

    coef: Array
    offset: Array
    sets: sp.csr_array
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]

    def probabilities(self, X: Any) -> Array:
        """Return the probability of each set, of shape (n, L)."""
        return _share(np.asarray(X @ self.coef.T), self.sets, self.offset)

    @property
    def most_iter(self) -> int:
        """Newton iterations."""
        return int(self.n_iter.max(initial=0))


@dataclass(frozen=True)
class SetDesign(Design):
    """A design whose scores are those of label sets.

    Attributes
    ----------
    sets : csr_array of shape (L, s)
    """

    sets: Any

    @classmethod
    def over(cls, design: Design, sets: sp.csr_array) -> SetDesign:
        """Add label sets to a design."""
        return cls(**{f.name: getattr(design, f.name) for f in fields(Design)}, sets=sets)

    def rows(self, size: int, dtype: Any) -> SetRows:
        """Return the rows in blocks of a size."""
        return SetRows(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many columns of coefficients there are."""
        L, s = self.sets.shape
        return int(s + (-(-L // self.matrix.shape[1]) if self.intercept else 0))

    def penalty(self, alpha: float, ridge: float) -> Array:
        """Return the penalties of all coefficients, (p, M)."""
        (_, s), p = self.sets.shape, self.matrix.shape[1]
        own = self.xp.broadcast_to(super().penalty(alpha, ridge), (p, s))
        rest = self.xp.full((p, self.columns(0) - s), ridge, dtype=own.dtype, device=self.device)
        return self.xp.concat([own, rest], axis=1)

    def pack(self, labels: Array, offsets: Array) -> Array:
        """Put coefficients of labels, (p, s), and offsets of sets, (L,), together: (p, M)."""
        xp, p, s = self.xp, self.matrix.shape[1], self.sets.shape[1]
        missing = p * (self.columns(0) - s) - (offsets.shape[0] if self.intercept else 0)
        flat = (
            xp.concat([offsets, xp.zeros(missing, dtype=offsets.dtype, device=self.device)])
            if self.intercept
            else offsets[:0]
        )
        return xp.concat([labels, xp.reshape(flat, (p, -1))], axis=1) if self.intercept else labels

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
        return np.asarray(vectors[:, values > SMALL * max(values[-1], SMALL)])


class SetRows(Rows):
    """The rows of such a design: Z, the label sets and the offsets as one operator."""

    design: SetDesign

    def __init__(self, design: SetDesign, size: int, dtype: Any) -> None:
        super().__init__(design, size, dtype)
        xp = design.xp
        self.sets: Any = design.sets.astype(np.float64)
        if xp is not np:
            self.sets = xp.asarray(self.sets.toarray(), device=design.device)

    def product(self, W: Array) -> list[Array]:
        """Return the scores of the sets, block by block."""
        labels, offsets = self.design.unpack(W)
        return [_set_scores(u, self.sets) + offsets for u in super().product(labels)]

    def adjoint(self, blocks: list[Array]) -> Array:
        """Multiply the transpose with (rows, L) blocks: (p, M)."""
        labels = super().adjoint([block @ self.sets for block in blocks])
        return self.design.pack(labels, sum(self.design.xp.sum(b, axis=0) for b in blocks))

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with what each block responds to its scores of W: (p, M)."""
        labels, offsets = self.design.unpack(W)
        total = [self.design.xp.zeros_like(offsets)]

        def inner(at: int, u: Array) -> Array:
            answer = respond(at, _set_scores(u, self.sets) + offsets)
            total[0] = total[0] + self.design.xp.sum(answer, axis=0)
            return answer @ self.sets

        labels = super().round_trip(labels, inner)
        return self.design.pack(labels, total[0])

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of the Hessian if it did not depend on Z, nor sets on each other."""
        labels = super().diagonal(_set_scores(total[None, :], self.sets.T)[0, :])
        return self.design.pack(labels, total)

    def least_ratio(self, penalty: Array, D: Array) -> Array:
        """Return a lower bound of ``penalty / D``: labels by features, all offsets together."""
        xp, s = self.design.xp, self.design.sets.shape[1]
        labels = super().least_ratio(penalty[:, :s], D[:, :s])
        if D.shape[1] == s:
            return labels
        return xp.minimum(labels, xp.min(penalty[:, s:]) / xp.max(D[:, s:]))


class LabelSets(Multinomial):
    """The softmax over label sets; y holds the number of the set, (rows, 1)."""

    joint = True
    ridge, least = 1e-5, 1e-7

    def __init__(self, design: SetDesign) -> None:
        super().__init__(np.array([design.sets.shape[0]]))
        self.design = design

    def project(self, values: Array) -> Array:
        """Remove what no probability depends on.

        That are scores of labels that all sets share, the intercepts of labels, which the offsets
        of the sets stand for, and a shift of all these.
        """
        xp = array_namespace(values)
        basis = xp.asarray(self.design.basis, device=values.device)
        labels, offsets = self.design.unpack(values)
        labels = (labels @ basis) @ basis.T
        if self.design.intercept:
            labels = xp.concat([labels[:-1, :], xp.zeros_like(labels[-1:, :])], axis=0)
        return self.design.pack(labels, offsets - xp.mean(offsets))


class LabelSetProblems(Problems):
    """The one problem of label sets.

    Parameters
    ----------
    design : Design
        With n rows.
    which : ndarray of shape (n,)
        The set of each row.
    sets : csr_array of shape (L, s)
        0/1.
    """

    kind = "label set"
    factorises = False

    def __init__(self, design: Design, which: NDArray[np.intp], sets: sp.csr_array) -> None:
        super().__init__(SetDesign.over(design, sets))
        self.light = self.design.astype(design.xp.float64)
        self.which, self.sets = which, sets
        self.first = np.array([0, self.design.columns(0)])
        self.open, self.compiled = np.zeros(1, np.intp), None
        self.labels = LinearProblems(design, sp.csc_array(sets[which]), LogisticLoss())

    design: SetDesign

    @property
    def floor(self) -> float:
        """A share of the objective of two equally probable sets."""
        return 1e-4 * self.design.total_weight * float(np.log(2))

    def objective(self, problems: NDArray[np.intp]) -> LabelSets:
        """Return the objective."""
        return LabelSets(self.design)

    def targets(self, problems: NDArray[np.intp]) -> Array:
        """Return the set of each row."""
        return self.design.xp.asarray(self.which[:, None], device=self.design.device)

    def null_solution(self, alpha: float) -> Array:
        """Return where to start, of shape (p, M): at independent labels."""
        xp, problems = self.design.xp, self.labels
        W = to_numpy(problems.solve(alpha, tol=ROUGH).W)[:, problems.problem]
        offsets = np.zeros(self.sets.shape[0])
        if self.design.intercept:
            offsets = self.sets @ W[-1]
        there = {"device": self.design.device}
        W = self.design.pack(xp.asarray(W, **there), xp.asarray(offsets, **there))
        return self.objective(self.open).project(W)

    def probabilities(self, solution: Solution, design: Design) -> Array:
        """Return the probability of each set for the rows of a design, of shape (n, L)."""
        labels, offsets = self.design.unpack(solution.W)
        return _share(to_numpy(design.scores(labels)), self.sets, to_numpy(offsets))

    def model(self, solution: Solution) -> LabelSetModel:
        """Return the model in the coordinates of X."""
        labels, offsets = self.design.unpack(solution.W)
        coef, intercept = self.coefficients(Solution(labels, solution.n_iter, solution.converged))
        offsets = to_numpy(offsets) + self.sets @ to_numpy(intercept)
        return LabelSetModel(
            to_numpy(coef), offsets, self.sets, solution.n_iter, solution.converged
        )


def _set_scores(labels: Array, sets: Any) -> Array:
    """Return the sum over the labels of each set, (rows, L)."""
    # sparse @ dense, because the product of an ndarray with a sparse array is a loop
    return np.ascontiguousarray((sets @ labels.T).T) if sp.issparse(sets) else labels @ sets.T


def _share(labels: Array, sets: sp.csr_array, offsets: Array) -> Array:
    scores = _set_scores(labels.astype(np.float64, copy=False), sets.astype(np.float64))
    return softmax(scores + offsets, np.array([0, sets.shape[0]]))
