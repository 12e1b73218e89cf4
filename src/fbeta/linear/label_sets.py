"""One softmax over label sets whose scores are sums of linear scores of their labels.

``ln P(y | x) = sum_j y_j w_j.x + b_y - ln Z(x)`` over L label sets y. The penalty ``alpha / 2`` is
on all w; that of the b hardly changes a score. The coefficients are s columns of p numbers and L
single ones, which are kept in further columns of p numbers each, filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, to_numpy
from fbeta.linear.binary import independent_start
from fbeta.linear.design import Design
from fbeta.linear.multinomial import Multinomial
from fbeta.linear.tiles import RowTiles

__all__ = ["LabelSets"]

MIN_EIGENVALUE = 1e-10  # relative to the largest, below which sets do not tell labels apart


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

    def rows(self, size: int, dtype: Any) -> SetTiles:
        """Return the rows in tiles of a size."""
        return SetTiles(self, size, dtype)

    def columns(self, width: int) -> int:
        """Return how many columns of coefficients there are."""
        L, s = self.sets.shape
        return int(s + (-(-L // self.matrix.shape[1]) if self.intercept else 0))

    @property
    def plain(self) -> Design:
        """The design without the label sets."""
        return Design(**{f.name: getattr(self, f.name) for f in fields(Design)})

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

    def least_ratio(self, penalty: Array, D: Array) -> Array:
        """Return a lower bound of ``penalty / D``: labels by features, all offsets together."""
        xp, s = self.design.xp, self.design.sets.shape[1]
        labels = super().least_ratio(penalty[:, :s], D[:, :s])
        if D.shape[1] == s:
            return labels
        return xp.minimum(labels, xp.min(penalty[:, s:]) / xp.max(D[:, s:]))


class LabelSets(Multinomial):
    """The softmax over label sets; y holds the number of the set, (rows, 1).

    Parameters
    ----------
    sets : csr_array of shape (L, s)
        0/1.
    """

    kind = "label set"
    preconditioners = ("diagonal",)
    always_rotates = False
    intercept_penalty, min_alpha = 1e-5, 1e-7

    def __init__(self, sets: sp.csr_array) -> None:
        super().__init__(np.array([sets.shape[0]]))
        self.sets = sets
        self.design: SetDesign | None = None

    @classmethod
    def of(cls, targets: Any) -> Self:
        """Return the objective of the label sets that rows have."""
        return cls(targets.structure)

    @property
    def counts(self) -> NDArray[np.intp]:
        """One problem, whose columns are those of the design."""
        width = self.width if self.design is None else self.design.columns(self.width)
        return np.array([width])

    @property
    def n_linear(self) -> int:
        """The number of labels."""
        return int(self.sets.shape[1])

    def extend(self, design: Design) -> SetDesign:
        """Return a design whose scores are those of the sets."""
        return SetDesign.over(design, self.sets)

    def bind(self, design: Design) -> LabelSets:
        """Return the objective of coefficients over a design."""
        out = copy(self)
        out.design = cast(SetDesign, design)
        return out

    def order(self, targets: Any) -> NDArray[np.intp]:
        """Return the one problem."""
        return np.zeros(1, np.intp)

    def take(self, problems: Array) -> LabelSets:
        """Return itself: there is one problem only."""
        return self

    def select(self, problems: NDArray[np.intp]) -> LabelSets:
        """Return itself: there is one problem only."""
        return self

    def compiled(self, design: Design, light: Design, targets: Any) -> None:
        """Return None: the compiled solver has no sets."""

    def project(self, values: Array) -> Array:
        """Remove what no probability depends on.

        These are scores of labels that all sets share; the intercepts of labels, which the offsets
        of the sets replace; and a shift of all offsets.
        """
        assert self.design is not None
        xp, design = array_namespace(values), self.design
        basis = xp.asarray(design.basis, device=values.device)
        labels, offsets = design.unpack(values)
        labels = (labels @ basis) @ basis.T
        if design.intercept:
            labels = xp.concat([labels[:-1, :], xp.zeros_like(labels[-1:, :])], axis=0)
        return design.pack(labels, offsets - xp.mean(offsets))

    def start(self, design: Design, targets: Any, alpha: float) -> Array:
        """Start at independent labels, (p, M)."""
        assert isinstance(design, SetDesign)
        xp, there = design.xp, {"device": design.device}
        W, _ = independent_start(design.plain, self.sets[targets[:, 0]], alpha)
        offsets = self.sets @ W[-1] if design.intercept else np.zeros(self.sets.shape[0])
        return self.project(design.pack(xp.asarray(W, **there), xp.asarray(offsets, **there)))

    def model_scores(self, X: Any, coef: Array, intercept: Array) -> Array:
        """Return the scores of the sets: sums over their labels, plus their offsets, (n, L)."""
        labels = np.asarray(X @ coef.T).astype(np.float64, copy=False)
        return set_scores(labels, self.sets.astype(np.float64)) + intercept


def set_scores(labels: Array, sets: Any) -> Array:
    """Return the sum over the labels of each set, (rows, L)."""
    # sparse @ dense, because the product of an ndarray with a sparse array is a loop
    return np.ascontiguousarray((sets @ labels.T).T) if sp.issparse(sets) else labels @ sets.T
