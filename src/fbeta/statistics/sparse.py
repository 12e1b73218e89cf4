"""Label statistics of a few listed labels of each row, out of any number of labels.

What tools for thousands of labels give: a short list of likely labels for each row. Nothing of the
shape (n, s) is made; rows are padded to lists of one length, some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import binom

from fbeta._validation import as_real
from fbeta.statistics.conditional_bernoulli import (
    NEGLIGIBLE_LOG_PROBABILITY,
    ConditionalLaw,
    conditional_law,
    independent_law,
)
from fbeta.statistics.dense import Cardinalities, Dense, Rows


@dataclass(frozen=True)
class LawWithOthers:
    """Listed labels that are independent given their number, and independent others."""

    listed: ConditionalLaw
    others: NDArray[np.float64]  # (1 + U, n), the law of the number of the others
    xp = np
    first = 1

    @property
    def empty(self) -> NDArray[np.float64]:
        """``P(no labels)``, of shape (n,)."""
        out: NDArray[np.float64] = self.listed.empty * self.others[0]
        return out

    @property
    def weights(self) -> NDArray[np.float64]:
        """``P(|y| = k)`` for the sizes 1, 2, ..., of shape (K + U, n)."""
        return self._added(np.concatenate([self.listed.empty[None], self.listed.weights]))[1:]

    def joint(self, labels: NDArray[np.float64], at_once: int) -> Iterator[tuple[slice, Any]]:
        """Yield ``P(|y| = k, y_j = 1)`` of listed labels (C, n), in one piece (C, K + U, n)."""
        K = len(self.listed.weights)
        q = np.zeros((len(labels), K, labels.shape[1]))
        for sizes, piece in self.listed.joint(labels, max(K, 1)):
            q[:, sizes] += piece
        yield slice(0, K + len(self.others) - 1), self._added(q)

    def _added(self, of_listed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the law of the number of all labels, from that of the listed ones (..., K, n)."""
        K, n = of_listed.shape[-2:]
        out = np.zeros((*of_listed.shape[:-2], K + len(self.others) - 1, n))
        for number, share in enumerate(self.others):
            out[..., number : number + K, :] += of_listed * share
        return out


@dataclass(frozen=True)
class Sparse:
    """Marginals of the listed labels, perhaps with the law of the number of labels.

    Attributes
    ----------
    P : csr_array of shape (n, s)
        Marginals in (0, 1], with sorted indices and without duplicates.
    sizes : ndarray of shape (n, m + 1), or None
        ``P(k of the listed labels)`` for k in 0..m; None for what the marginals imply.
    unlisted : ndarray of shape (n,), or None
        The expected number of labels that are not listed, which share it equally. They are
        independent of the others and of each other.
    """

    P: Any
    sizes: NDArray[np.float64] | None = None
    unlisted: NDArray[np.float64] | None = None

    @property
    def cardinalities(self) -> Cardinalities:
        """1..m, or up to the largest number of listed labels; larger with unlisted labels."""
        largest = int(self.listed().max(initial=0))
        if self.sizes is not None:
            rest = self.unlisted_law()
            largest = self.sizes.shape[1] + (0 if rest is None else len(rest) - 1) - 1
        return np.arange(1, largest + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        return int(self.P.shape[0]), int(self.P.shape[1])

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays: NumPy's."""
        return np, None

    @property
    def row_bytes(self) -> int:
        """Bytes of the statistics of one instance, for its listed labels."""
        return 8 * max(1, int(self.listed().max(initial=0))) * max(1, len(self.cardinalities))

    def listed(self) -> NDArray[np.intp]:
        """Return the number of listed labels of each row, (n,)."""
        listed: NDArray[np.intp] = np.diff(self.P.indptr)
        return listed

    def take(self, rows: Rows) -> Sparse:
        """Return some rows."""
        sizes, unlisted = (None if a is None else a[rows] for a in (self.sizes, self.unlisted))
        return Sparse(self.P[rows], sizes, unlisted)

    def block(self, rows: Rows) -> Dense:
        """Refuse: the table of shape (n, K, s) is what this form avoids."""
        raise TypeError(
            "statistics of listed labels are not unfolded: they have no joint, and are not averaged"
            " with others. Decode them, or make dense statistics of dense marginals"
        )

    def empty_probability(self) -> NDArray[np.float64]:
        """Return ``P(no labels)``, of shape (n,)."""
        if self.sizes is not None:
            absent = self.sizes[:, 0]
        else:
            absent = np.ones(self.shape[0])
            some = np.flatnonzero(self.listed())
            absent[some] = np.multiply.reduceat(1 - self.P.data, self.P.indptr[some])
        rest = self.unlisted_law()
        return absent if rest is None else absent * rest[0]

    def marginals(self) -> Any:
        """Return the marginals of the listed labels, a csr_array of shape (n, s)."""
        if self.sizes is None:
            return self.P.copy()
        padded, used = self.padded()
        order = np.argsort(padded, axis=1)
        ascending = np.ascontiguousarray(np.take_along_axis(padded, order, axis=1).T)
        out = np.zeros_like(padded)
        law = replace(self, unlisted=None).law(ascending)
        for _, q in law.joint(ascending, max(1, len(law.weights))):
            part = np.zeros_like(padded)
            np.put_along_axis(part, order, q.sum(axis=1).T, axis=1)
            out += part
        return sp.csr_array((out[used], self.P.indices, self.P.indptr), shape=self.shape)

    def size_probabilities(self) -> NDArray[np.float64]:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        if self.sizes is not None and self.unlisted is None:
            return self.sizes[:, 1:]
        law = self.law(np.ascontiguousarray(np.sort(self.padded()[0], axis=1).T))
        out = np.zeros((self.shape[0], len(self.cardinalities)))
        stop = min(law.first - 1 + len(law.weights), out.shape[1])
        out[:, law.first - 1 : stop] = law.weights[: stop - law.first + 1].T
        return out

    def sized(self) -> bool:
        """Tell whether the law of the number of labels is given."""
        return self.sizes is not None

    def padded(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return lists of marginals of one length, (n, L), and where a label is listed."""
        listed = self.listed()
        # with sizes, as many places as the largest: sizes beyond the list need labels that are not
        width = max(1, int(listed.max(initial=0)))
        if self.sizes is not None:
            width = max(width, self.sizes.shape[1] - 1)
        used = np.arange(width) < listed[:, None]
        padded = np.zeros(used.shape)
        padded[used] = self.P.data
        return padded, used

    def unlisted_law(self) -> NDArray[np.float64] | None:
        """Return ``P(k unlisted labels)`` of independent ones, (1 + sizes, n)."""
        if self.unlisted is None or not self.unlisted.any():
            return None
        count = self.shape[1] - self.listed()
        p = self.unlisted / np.maximum(count, 1)
        third = NEGLIGIBLE_LOG_PROBABILITY / 3
        spread = np.sqrt(third**2 + 2 * NEGLIGIBLE_LOG_PROBABILITY * self.unlisted)
        largest = min(int(count.max()), int((self.unlisted + third + spread).max()) + 1)
        law: NDArray[np.float64] = binom.pmf(np.arange(largest + 1)[:, None], count, p)
        kept = np.flatnonzero((law > exp(-NEGLIGIBLE_LOG_PROBABILITY)).any(axis=1))
        return law[: kept[-1] + 1]

    def law(self, ascending: NDArray[np.float64]) -> Any:
        """Return the law of the rows, given their padded marginals, (L, n), the smallest first."""
        if self.sizes is None:
            return independent_law(np, ascending, others=self.unlisted_law())
        sizes, others = np.ascontiguousarray(self.sizes.T), self.unlisted_law()
        law = conditional_law(np, ascending, sizes[0], sizes[1:])
        return law if others is None else LawWithOthers(law, others)


def read_listed(P: Any, sizes: Any, unlisted: Any) -> Sparse:
    """Return statistics of listed labels, checked; P is any sparse matrix of shape (n, s)."""
    P = sp.csr_array(P, dtype=np.float64, copy=True)
    P.sum_duplicates()
    if not np.all((P.data >= 0) & (P.data <= 1)):
        raise ValueError("P must hold probabilities in [0, 1], one for each row and label")
    P.eliminate_zeros()
    n, s = P.shape
    if sizes is not None:
        sizes = as_real("sizes", sizes)
        if sizes.ndim != 2 or sizes.shape[0] != n or not 1 <= sizes.shape[1] <= s + 1:
            raise ValueError(f"sizes must have shape ({n}, m + 1) with m <= {s}, got {sizes.shape}")
        if not np.isfinite(sizes).all() or (sizes < 0).any():
            raise ValueError("sizes must be finite and not negative")
    if unlisted is not None:
        unlisted = np.broadcast_to(as_real("unlisted", unlisted), (n,))
        most = s - np.diff(P.indptr)
        if not np.all((unlisted >= 0) & (unlisted <= most)):
            raise ValueError("unlisted must lie between 0 and the number of labels not listed")
    return Sparse(P, sizes, unlisted)


def lists_to_csr(indices: Any, values: Any, n_labels: int) -> Any:
    """Return lists of labels and their values, (n, L) each, as a csr_array of shape (n, s).

    A negative index stands for no label.
    """
    indices, values = np.asarray(indices), as_real("values", values)
    if indices.ndim != 2 or indices.shape != values.shape:
        raise ValueError(
            f"indices and values must have one shape (n, L), got {indices.shape} and {values.shape}"
        )
    if indices.size and indices.max() >= n_labels:
        raise ValueError(f"indices must lie below n_labels={n_labels}, got {indices.max()}")
    used = indices >= 0
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    out = sp.csr_array((values[used], indices[used], indptr), shape=(len(indices), n_labels))
    out.sort_indices()
    if (np.diff(out.indices) == 0).any():
        inner = np.ones(max(len(out.indices) - 1, 0), dtype=bool)
        inner[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(out.indices))] - 1] = False
        if ((np.diff(out.indices) == 0) & inner).any():
            raise ValueError("a row lists a label twice")
    return out


def join_rows(forms: list[Sparse]) -> Sparse:
    """Return the rows of several statistics of listed labels as one."""
    P = sp.csr_array(sp.vstack([form.P for form in forms]))
    sizes = unlisted = None
    if forms[0].sizes is not None:
        width = max(form.sizes.shape[1] for form in forms if form.sizes is not None)
        parts = [form.sizes for form in forms if form.sizes is not None]
        sizes = np.vstack([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in parts])
    if any(form.unlisted is not None for form in forms):
        zeros = (
            np.zeros(form.shape[0]) if form.unlisted is None else form.unlisted for form in forms
        )
        unlisted = np.concatenate(list(zeros))
    return Sparse(P, sizes, unlisted)
