"""Label statistics of a few listed labels of each row, out of any number of labels.

Nothing of the shape (n, s) is made; rows are padded to lists of one length, some rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import binom

from fbeta._threads import row_tasks
from fbeta._validation import as_real
from fbeta.statistics.conditional_bernoulli import NEGLIGIBLE_LOG_PROBABILITY, distance_from_mean
from fbeta.statistics.storage import Cardinalities, Dense, Factored, Rows, join_sizes, law_bytes
from fbeta.statistics.validation import read_sizes


@dataclass(frozen=True)
class Sparse:
    """Marginals of the listed labels, perhaps with the law of the number of labels."""

    P: Any  # csr_array (n, s), marginals in (0, 1], with sorted indices and without duplicates
    sizes: NDArray[np.float64] | None = None  # (n, m + 1), P(k of the listed labels), k in 0..m
    # (n,), the expected number of labels that are not listed, which share it equally; they are
    # independent of the others and of each other
    unlisted: NDArray[np.float64] | None = None
    place = (np, None)  # namespace and device of the arrays

    @property
    def cardinalities(self) -> Cardinalities:
        """1..m, or up to the largest number of listed labels; larger with unlisted labels."""
        largest = int(self.listed().max(initial=0))
        if self.sizes is not None:
            others = self._unlisted_law()
            largest = self.sizes.shape[1] - 1 + (0 if others is None else others.shape[1] - 1)
        return np.arange(1, largest + 1)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        return int(self.P.shape[0]), int(self.P.shape[1])

    def listed(self) -> NDArray[np.intp]:
        """Return the number of listed labels of each row, (n,)."""
        listed: NDArray[np.intp] = np.diff(self.P.indptr)
        return listed

    def tasks(self) -> list[slice]:
        """Return rows whose laws are computed together."""
        width = max(1, int(self.listed().max(initial=0)))
        return row_tasks(self.place, self.shape[0], law_bytes(width, len(self.cardinalities)))

    def take(self, rows: Rows) -> Sparse:
        """Return some rows."""
        sizes, unlisted = (None if a is None else a[rows] for a in (self.sizes, self.unlisted))
        return Sparse(self.P[rows], sizes, unlisted)

    def astype(self, dtype: Any) -> Sparse:
        """Return the statistics themselves: they stay in double precision."""
        return self

    def unfold(self) -> Dense:
        """Refuse: the table of shape (n, K, s) is what this form avoids."""
        raise TypeError(
            "statistics of listed labels are not unfolded: they have no joint, and are not averaged"
            " with others. Decode them, or make dense statistics of dense marginals"
        )

    def padded(self) -> tuple[Factored, NDArray[np.bool_]]:
        """Return the labels in lists of one length, (n, L), and where a label is listed."""
        listed = self.listed()
        # with sizes, as many places as the largest: sizes beyond the list need labels that are not
        sized = 0 if self.sizes is None else self.sizes.shape[1] - 1
        used = np.arange(max(1, int(listed.max(initial=0)), sized)) < listed[:, None]
        P = np.zeros(used.shape)
        P[used] = self.P.data
        return Factored(P, self.sizes, others=self._unlisted_law()), used

    def _unlisted_law(self) -> NDArray[np.float64] | None:
        """Return ``P(k unlisted labels)`` of independent ones, (n, 1 + sizes)."""
        if self.unlisted is None or not self.unlisted.any():
            return None
        count = self.shape[1] - self.listed()
        p = self.unlisted / np.maximum(count, 1)
        likely = self.unlisted + distance_from_mean(np, self.unlisted)
        largest = min(int(count.max()), int(likely.max()) + 1)
        law: NDArray[np.float64] = binom.pmf(np.arange(largest + 1), count[:, None], p[:, None])
        kept = np.flatnonzero((law > exp(-NEGLIGIBLE_LOG_PROBABILITY)).any(axis=0))
        return law[:, : kept[-1] + 1]

    def empty_probability(self) -> NDArray[np.float64]:
        """Return ``P(no labels)``, of shape (n,)."""
        empty: NDArray[np.float64] = self.padded()[0].empty_probability()
        return empty

    def marginals(self) -> Any:
        """Return the marginals of the listed labels, a csr_array of shape (n, s)."""
        if self.sizes is None:
            return self.P.copy()
        lists, used = self.padded()
        values = lists.marginals()[used]
        return sp.csr_array((values, self.P.indices, self.P.indptr), shape=self.shape)

    def size_probabilities(self) -> NDArray[np.float64]:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        of_sizes: NDArray[np.float64] = self.padded()[0].size_probabilities()
        return of_sizes[:, : len(self.cardinalities)]


def read_listed(P: Any, sizes: Any, unlisted: Any) -> Sparse:
    """Return statistics of listed labels, checked; P is any sparse matrix of shape (n, s)."""
    P = sp.csr_array(P, dtype=np.float64, copy=True)
    P.sum_duplicates()
    if not np.all((P.data >= 0) & (P.data <= 1)):
        raise ValueError("P must hold probabilities in [0, 1], one for each row and label")
    P.eliminate_zeros()
    n, s = P.shape
    if unlisted is not None:
        unlisted = np.broadcast_to(as_real("unlisted", unlisted), (n,))
        most = s - np.diff(P.indptr)
        if not np.all((unlisted >= 0) & (unlisted <= most)):
            raise ValueError("unlisted must lie between 0 and the number of labels not listed")
    return Sparse(P, None if sizes is None else read_sizes(sizes, P), unlisted)


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
    rows, places = np.nonzero(indices >= 0)
    cells = (values[rows, places], (rows, indices[rows, places]))
    out = sp.coo_array(cells, shape=(len(indices), n_labels)).tocsr()
    if out.nnz < len(rows):
        raise ValueError("a row lists a label twice")
    return out


def join_rows(forms: list[Sparse]) -> Sparse:
    """Return the rows of several statistics of listed labels as one."""
    sizes = unlisted = None
    parts = [form.sizes for form in forms if form.sizes is not None]
    if parts:
        sizes = join_sizes(np, parts)
    if any(form.unlisted is not None for form in forms):
        zeros = (
            np.zeros(form.shape[0]) if form.unlisted is None else form.unlisted for form in forms
        )
        unlisted = np.concatenate(list(zeros))
    return Sparse(sp.csr_array(sp.vstack([form.P for form in forms])), sizes, unlisted)
