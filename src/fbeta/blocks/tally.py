"""Sums over rows, by the size of the label set and by label: what a code needs of all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.labels.forms import Indicator

__all__ = ["Tally", "random_bits"]

_KEYS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)


def random_bits(ids: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Return 64 bits for each row that look random and depend on its number only.

    The finaliser of SplitMix64: rows have the same bits however they are dealt into blocks.

    Parameters
    ----------
    ids : uint64 ndarray of shape (n,)
        Numbers of rows.
    seed : int
        Bits of different seeds have nothing to do with each other.

    Returns
    -------
    uint64 ndarray of shape (n,)

    Examples
    --------
    >>> bits = random_bits(np.arange(10_000, dtype=np.uint64))
    >>> bool(abs((bits / 2.0**64).mean() - 0.5) < 0.01)
    True
    """
    with np.errstate(over="ignore"):
        z = (ids + np.uint64(1)) * np.uint64(_KEYS[0]) + np.uint64(seed) * np.uint64(_KEYS[1])
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Tally:
    """Counts, weights and fingerprints of the rows that have a label, for each size of label set.

    Attributes
    ----------
    sizes : ndarray of shape (K,)
        Sizes of label sets that occur, increasing; 0 may be one of them.
    rows : int64 ndarray of shape (K,)
        Rows of each size.
    counts : int64 ndarray of shape (K, s)
        Rows of a size that have a label; for size 0, in the first column, rows without labels.
    weights : float64 ndarray of shape (K, s)
        Their total weights.
    keys : uint64 ndarray of shape (2, K, s)
        Sums of bits that stand for the rows: where two agree, the rows are the same.
    """

    sizes: NDArray[np.intp]
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]
    keys: NDArray[np.uint64]

    @classmethod
    def of(
        cls, Y: Indicator, ids: NDArray[np.uint64], weight: NDArray[np.float64] | None = None
    ) -> Tally:
        """Count a block of label sets, (n, s), of rows with these numbers."""
        n, s = Y.shape
        lengths = np.diff(Y.indptr)
        sizes, place = np.unique(lengths, return_inverse=True)
        # a row without labels stands in the first column of its size
        empty = np.flatnonzero(lengths == 0)
        owner = np.concatenate([np.repeat(np.arange(n), lengths), empty])
        column = np.concatenate([Y.indices, np.zeros(len(empty), Y.indices.dtype)])
        flat, shape = place[owner] * s + column, (len(sizes), s)
        own = np.ones(n) if weight is None else weight
        count = np.bincount(flat, minlength=len(sizes) * s).reshape(shape)
        weights = np.bincount(flat, own[owner], minlength=len(sizes) * s).reshape(shape)
        keys = np.zeros((2, len(sizes) * s), np.uint64)
        for seed in (0, 1):
            np.add.at(keys[seed], flat, random_bits(ids, seed + 1)[owner])
        rows = np.bincount(place, minlength=len(sizes)).astype(np.int64)
        keys = keys.reshape(2, *shape)
        return cls(sizes.astype(np.intp), rows, count.astype(np.int64), weights, keys)

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return int(self.counts.shape[1])

    def spread(self, sizes: NDArray[np.intp]) -> Tally:
        """Return the tally for more sizes."""
        places = np.searchsorted(sizes, self.sizes)

        def widen(values: NDArray[Any], axis: int = 0) -> NDArray[Any]:
            shape = list(values.shape)
            shape[axis] = len(sizes)
            out = np.zeros(shape, values.dtype)
            out[(slice(None),) * axis + (places,)] = values
            return out

        return replace(
            self, sizes=sizes, rows=widen(self.rows), counts=widen(self.counts),
            weights=widen(self.weights), keys=widen(self.keys, 1),
        )  # fmt: skip

    def __add__(self, other: Tally) -> Tally:
        sizes = np.union1d(self.sizes, other.sizes)
        a, b = self.spread(sizes), other.spread(sizes)
        return Tally(
            sizes, a.rows + b.rows, a.counts + b.counts, a.weights + b.weights, a.keys + b.keys
        )

    def __sub__(self, other: Tally) -> Tally:
        b = other.spread(self.sizes)
        return replace(
            self, rows=self.rows - b.rows, counts=self.counts - b.counts,
            weights=self.weights - b.weights, keys=self.keys - b.keys,
        )  # fmt: skip

    def rarest(self, Y: Indicator, *, by_size: bool) -> NDArray[np.int64]:
        """Return the count of the rarest target of each row of Y, which is part of the tally.

        Parameters
        ----------
        Y : csr_array of shape (n, s)
        by_size : bool
            Whether targets are pairs of a size and a label, or labels.

        Returns
        -------
        ndarray of shape (n,)
        """
        lengths = np.diff(Y.indptr)
        counts = self.counts if by_size else np.where(
            self.sizes[:, None] > 0, self.counts[self.sizes > 0].sum(axis=0), self.counts
        )  # fmt: skip
        place = np.searchsorted(self.sizes, lengths)
        out: NDArray[np.int64] = counts[place, 0].copy()
        some = np.flatnonzero(lengths)
        if len(some):
            found = counts[np.repeat(place, lengths), Y.indices]
            out[some] = np.minimum.reduceat(found, Y.indptr[some])
        return out
