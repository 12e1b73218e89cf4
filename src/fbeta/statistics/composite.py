"""Statistics of rows that list few labels, averages of statistics, and joined rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from fbeta._array import (
    Array,
    as_real,
    astype,
    check_count,
    check_unmasked,
    concat,
    namespace_and_device,
    to_numpy,
    widest_float,
)
from fbeta._threads import row_tasks
from fbeta.statistics.conditional_bernoulli import NEGLIGIBLE_LOG_PROBABILITY, distance_from_mean
from fbeta.statistics.encoding import read_matrix, read_sizes
from fbeta.statistics.storage import (
    Cardinalities,
    Dense,
    Factored,
    Rows,
    Storage,
    add_block,
    law_bytes,
    union,
    zeros,
)


@dataclass(frozen=True)
class Mixture(Storage):
    """The average of several statistics of the same rows, with weights that sum to 1."""

    parts: tuple[Dense | Factored | Mixture, ...]
    weights: tuple[float, ...]

    @property
    def cardinalities(self) -> Cardinalities:
        """The union of those of the parts."""
        return union(self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        return self.parts[0].shape

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays."""
        return self.parts[0].place

    @property
    def row_bytes(self) -> int:
        """Bytes of the unfolded statistics of one instance, and of a part of it."""
        return 2 * max(part.row_bytes for part in self.parts)

    def tasks(self) -> list[slice]:
        """Return rows to be unfolded together."""
        return row_tasks(self.place, self.shape[0], self.row_bytes, unfolding=True)

    def map_arrays(self, work: Callable[[Array], Array]) -> Mixture:
        """Return the statistics with each array of rows replaced by a function of it."""
        return replace(self, parts=tuple(part.map_arrays(work) for part in self.parts))

    def block(self, rows: Rows) -> Dense:
        """Return some rows unfolded, without the sizes that have no weight in them."""
        blocks = [part.block(rows) for part in self.parts]
        out = zeros(self, union(blocks), n=blocks[0].shape[0])
        for block, weight in zip(blocks, self.weights, strict=True):
            add_block(out, slice(None), block, weight)
        return out

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        return self._average([part.empty_probability() for part in self.parts])

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self._average([part.marginals() for part in self.parts])

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        out = zeros(self, self.cardinalities, s=1)
        for part, weight in zip(self.parts, self.weights, strict=True):
            of_sizes = part.size_probabilities()[:, :, None]
            add_block(out, slice(None), Dense(out.empty, of_sizes, part.cardinalities), weight)
        return out.joint[:, :, 0]

    def _average(self, arrays: list[Array]) -> Array:
        terms = [weight * array for array, weight in zip(arrays, self.weights, strict=True)]
        return sum(terms[1:], start=terms[0])


@dataclass(frozen=True)
class Sparse(Storage):
    """Marginals of the listed labels, perhaps with the law of the number of labels."""

    per_row = ("P", "sizes", "unlisted")
    P: Any  # csr_array (n, s), canonical: marginals in (0, 1], or log-odds above -inf
    sizes: NDArray[np.float64] | None  # (n, m + 1), P(k of the listed labels), k in 0..m
    # (n,), the expected number of labels that are not listed, which share it equally; they are
    # independent of the others and of each other
    unlisted: NDArray[np.float64]
    log_odds: bool  # what P holds

    @property
    def cardinalities(self) -> Cardinalities:
        """1..m, or up to the largest number of listed labels; larger with unlisted labels."""
        others = self._unlisted_law()
        largest = self.listed().max(initial=0) if self.sizes is None else self.sizes.shape[1] - 1
        largest += 0 if others is None else others.shape[1] - 1
        return np.arange(1, min(int(largest), self.shape[1]) + 1)

    def listed(self) -> Array:
        """Return the number of listed labels of each row, (n,)."""
        return np.diff(self.P.indptr)

    def tasks(self) -> list[slice]:
        """Return rows whose laws are computed together."""
        width = max(1, int(self.listed().max(initial=0)))
        largest = width if self.sizes is None else self.sizes.shape[1]
        return row_tasks(self.place, self.shape[0], law_bytes(width, largest))

    def take(self, rows: Rows) -> Sparse:
        """Return some rows."""
        return self.map_arrays(lambda array: array[rows])

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
        P = np.full(used.shape, -np.inf if self.log_odds else 0.0)
        P[used] = self.P.data
        return Factored(P, self.sizes, self.log_odds, self._unlisted_law()), used

    def _unlisted_law(self) -> NDArray[np.float64] | None:
        """Return ``P(k unlisted labels)`` of independent ones, (n, 1 + sizes)."""
        if not self.unlisted.any():
            return None
        count = self.shape[1] - self.listed()
        p = self.unlisted / np.maximum(count, 1)
        likely = self.unlisted + distance_from_mean(np, self.unlisted)
        largest = min(int(count.max()), int(likely.max()) + 1)
        law: NDArray[np.float64] = binom.pmf(np.arange(largest + 1), count[:, None], p[:, None])
        kept = np.flatnonzero((law > exp(-NEGLIGIBLE_LOG_PROBABILITY)).any(axis=0))
        return law[:, : kept[-1] + 1]

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        return self.padded()[0].empty_probability()

    def marginals(self) -> Any:
        """Return the marginals of the listed labels, a csr_array of shape (n, s)."""
        lists, used = self.padded()
        values = lists.marginals()[used]
        return sp.csr_array((values, self.P.indices, self.P.indptr), shape=self.shape, copy=True)

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        return self.padded()[0].size_probabilities()[:, : len(self.cardinalities)]


def read_lists(P: Any) -> Any:
    """Return a copy of a sparse matrix as CSR of floats, sorted; raise where a place is twice."""
    lists = sp.csr_array(P, dtype=np.float64, copy=True)
    lists.sort_indices()
    if (P.format == "coo" and lists.nnz < P.nnz) or not lists.has_canonical_format:
        raise ValueError("a row of P lists a label twice")
    return lists


def read_factors(P: Any, sizes: Any, unlisted: Any, log_odds: bool = False) -> Factored | Sparse:
    """Return statistics by marginals or log-odds of labels, checked; a sparse P lists labels."""
    name, listed = "Z" if log_odds else "P", sp.issparse(P)
    if listed:
        P = read_lists(P)
    else:
        P = read_matrix(P)
        if unlisted is not None:
            raise ValueError(f"unlisted is for sparse {name}: a dense {name} lists all labels")
    values = P.data if listed else P
    xp, device = namespace_and_device(P=values)
    if log_odds and bool(xp.any(xp.isnan(values))):
        raise ValueError("Z contains NaN")
    if not log_odds and not bool(xp.all((values >= 0) & (values <= 1))):
        raise ValueError("P must hold probabilities in [0, 1], one for each row and label")
    if not listed:
        P = astype(xp, P, widest_float(xp, device)) if log_odds else P
        return Factored(P, None if sizes is None else read_sizes(sizes, P), log_odds)
    (n, s), kept = P.shape, values > (-np.inf if log_odds else 0.0)
    starts = np.concatenate([[0], np.cumsum(kept)])[P.indptr]
    P = sp.csr_array((values[kept], P.indices[kept], starts), shape=(n, s))
    unlisted = np.broadcast_to(as_real("unlisted", 0.0 if unlisted is None else unlisted), (n,))
    if not np.all((unlisted >= 0) & (unlisted <= s - np.diff(starts))):
        raise ValueError("unlisted must lie between 0 and the number of labels not listed")
    return Sparse(P, None if sizes is None else read_sizes(sizes, P), unlisted, log_odds)


def lists_to_csr(indices: Any, values: Any, n_labels: int) -> Any:
    """Return lists of labels (negative for none) and values, (n, L) each, as csr_array (n, s)."""
    check_unmasked("indices", indices)
    indices, values = to_numpy(indices), as_real("values", values)
    n_labels = check_count("n_labels", n_labels)
    if indices.ndim != 2 or indices.shape != values.shape:
        raise ValueError(
            f"indices and values must have one shape (n, L), got {indices.shape} and {values.shape}"
        )
    if indices.size and indices.dtype.kind not in "iu":
        raise ValueError(f"indices must be integers, got {indices.dtype}")
    if indices.size and indices.max() >= n_labels:
        raise ValueError(f"indices must lie below n_labels={n_labels}, got {indices.max()}")
    rows, places = np.nonzero(indices >= 0)
    cells = (values[rows, places], (rows, indices[rows, places]))
    out = sp.coo_array(cells, shape=(len(indices), n_labels)).tocsr()
    if out.nnz < len(rows):
        raise ValueError("a row lists a label twice")
    return out


def is_present(lists: sp.csr_array, Y: Any) -> NDArray[np.bool_]:
    """Return whether Y has each of the listed labels, (nnz,), of the same shape (n, s)."""
    numbers = np.arange(1, lists.nnz + 1)
    numbered = sp.csr_array((numbers, lists.indices, lists.indptr), shape=lists.shape)
    found = np.zeros(lists.nnz, dtype=np.bool_)
    found[numbered.multiply(Y > 0).data - 1] = True
    return found


Form: TypeAlias = Dense | Factored | Mixture | Sparse


def average(forms: Sequence[Any], weights: ArrayLike | None) -> Form:
    """Return the average of statistics of the same rows; weights are divided by their sum."""
    _check_alike(forms, same_rows=True)
    given = np.ones(len(forms)) if weights is None else as_real("weights", weights)
    if given.shape != (len(forms),):
        raise ValueError(f"weights must have shape ({len(forms)},), got {given.shape}")
    if not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise ValueError(f"weights must be finite, not negative and not all 0, got {weights!r}")
    given = given / given.max()  # a sum of large weights overflows
    kept = np.flatnonzero(given).tolist()
    if len(kept) == 1:
        return cast(Form, forms[kept[0]])
    if any(isinstance(form, Sparse) for form in forms):
        raise TypeError("parts with listed labels cannot be averaged: average their marginals")
    return Mixture(tuple(forms[i] for i in kept), tuple((given / given.sum())[kept].tolist()))


def concatenate(forms: Sequence[Any]) -> Form:
    """Join the rows of several forms; factors and lists stay so where all of them are."""
    _check_alike(forms, same_rows=False)
    first, xp = forms[0], forms[0].place[0]
    if len(forms) == 1:
        return cast(Form, first)
    kinds = {
        (type(form), getattr(form, "log_odds", False), getattr(form, "sizes", None) is None)
        for form in forms
    }
    if len(kinds) == 1 and isinstance(first, Factored | Sparse):
        parts = {name: [getattr(form, name) for form in forms] for name in first.per_row}
        known = {name: own for name, own in parts.items() if own[0] is not None}
        return replace(first, **{name: _join_rows(xp, own) for name, own in known.items()})
    dense = [form.joint.dtype for form in forms if isinstance(form, Dense)]
    dtype = xp.result_type(*dense) if len(dense) == len(forms) else None
    out = zeros(first, union(forms), n=sum(form.shape[0] for form in forms), dtype=dtype)
    start = 0
    for form in forms:
        add_block(out, slice(start, start + form.shape[0]), form.unfold())
        start += form.shape[0]
    return out


def _join_rows(xp: Any, parts: list[Array]) -> Array:
    """Join the rows of arrays of one or two axes; narrow ones get columns of zeros."""
    width = max(part.shape[-1] for part in parts)
    for i, part in enumerate(parts):
        if part.ndim == 2 and part.shape[1] < width:
            shape = (part.shape[0], width - part.shape[1])
            none = xp.zeros(shape, dtype=part.dtype, device=part.device)
            parts[i] = xp.concat([part, none], axis=1)
    return concat(parts)


def _check_alike(forms: Sequence[Any], same_rows: bool) -> None:
    """Raise where statistics differ in labels, library, device, or rows if these are to agree."""
    if not forms:
        raise ValueError("parts must hold at least one LabelStatistics")
    (n, s), place = forms[0].shape, forms[0].place
    for i, form in enumerate(forms):
        if form.shape[1] != s:
            raise ValueError(f"parts[{i}] has {form.shape[1]} labels, but parts[0] has {s}")
        if same_rows and form.shape[0] != n:
            raise ValueError(f"parts[{i}] has {form.shape[0]} rows, but parts[0] has {n}")
        if form.place != place:
            raise ValueError(f"parts[{i}] is of another library or on another device than parts[0]")
