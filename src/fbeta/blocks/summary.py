"""The first pass: what is known of all rows, and which of them are held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta.labels.forms import Indicator

__all__ = ["CheckedRows", "Summary", "Tally", "random_bits"]

MAX_OVERFULL = 1.25  # held rows, in units of the capacity, from which some are dropped
_KEYS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)  # of SplitMix64
_POSITION_SEED = 3  # of the bits that tell where a row is


def random_bits(ids: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Return 64 pseudo-random bits for each row, (n,), which depend on its number and a seed only.

    The finaliser of SplitMix64: rows have the same bits however they are dealt into blocks.
    """
    with np.errstate(over="ignore"):
        z = (ids + np.uint64(1)) * np.uint64(_KEYS[0]) + np.uint64(seed) * np.uint64(_KEYS[1])
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Tally:
    """Counts, weights and keys of the rows that have a label, for each of K sizes of label sets.

    ``sizes`` are those that occur, increasing, with so many ``rows``; ``counts`` and ``weights``,
    (K, s), are of the rows of a size that have a label, for size 0 in the first column of all rows;
    ``keys``, (2, K, s), sums of the random bits of the rows: where two agree, the rows are the
    same.
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

        counts, weights = widen(self.counts), widen(self.weights)
        return Tally(sizes, widen(self.rows), counts, weights, widen(self.keys, 1))

    def __add__(self, other: Tally) -> Tally:
        sizes = np.union1d(self.sizes, other.sizes)
        a, b = self.spread(sizes), other.spread(sizes)
        return Tally(
            sizes, a.rows + b.rows, a.counts + b.counts, a.weights + b.weights, a.keys + b.keys
        )

    def __sub__(self, other: Tally) -> Tally:
        a, b = self, other.spread(self.sizes)
        return Tally(
            a.sizes, a.rows - b.rows, a.counts - b.counts, a.weights - b.weights, a.keys - b.keys
        )

    @property
    def total_weight(self) -> float:
        """The weight of all rows: each label of a row is counted with it."""
        return float((self.weights.sum(axis=1) / np.maximum(self.sizes, 1)).sum())

    def rarest(self, Y: Indicator, *, by_size: bool) -> NDArray[np.int64]:
        """Return the count of the rarest target of each row of Y, (n, s), which is in the tally.

        Targets are pairs of a size and a label, or labels.
        """
        lengths, counts = np.diff(Y.indptr), self.counts
        if not by_size:
            labels = counts[self.sizes > 0].sum(axis=0)
            counts = np.where(self.sizes[:, None] > 0, labels, counts)
        place = np.searchsorted(self.sizes, lengths)
        out: NDArray[np.int64] = counts[place, 0].copy()
        some = np.flatnonzero(lengths)
        if len(some):
            found = counts[np.repeat(place, lengths), Y.indices]
            out[some] = np.minimum.reduceat(found, Y.indptr[some])
        return out


@dataclass(frozen=True)
class CheckedRows:
    """Checked rows with their labels, weights, and unique numbers."""

    X: Any  # ndarray or csr_array of shape (n, d)
    Y: Indicator  # (n, s)
    weight: NDArray[np.float64] | None  # (n,), positive
    ids: NDArray[np.uint64]  # (n,)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: NDArray[Any]) -> CheckedRows:
        """Return some of them."""
        weight = None if self.weight is None else self.weight[rows]
        return CheckedRows(self.X[rows], self.Y[rows], weight, self.ids[rows])

    def checksum(self) -> tuple[int, ...]:
        """Return numbers that change if any entry does, or rows change their places.

        Sums of the bits of all entries, and of the first feature and the labels by their places.
        """
        X, Y = self.X, self.Y
        entries, placed = [Y.indptr], [Y.indices]
        entries += [X.data, X.indices] if sp.issparse(X) else [X]
        placed += [X.data] if sp.issparse(X) else [X[:, 0]]
        placed += [] if self.weight is None else [self.weight]
        return (*map(_sum_of_bits, entries), *map(_sum_by_place, placed))

    @classmethod
    def join(cls, pieces: Sequence[CheckedRows]) -> CheckedRows:
        """Join rows, in the order of their numbers."""
        if len(pieces) > 1:
            stack = sp.vstack if sp.issparse(pieces[0].X) else np.concatenate
            X = stack([piece.X for piece in pieces])
            weight = None
            if any(piece.weight is not None for piece in pieces):
                own = [np.ones(len(p)) if p.weight is None else p.weight for p in pieces]
                weight = np.concatenate(own)
            Y = sp.csr_array(sp.vstack([piece.Y for piece in pieces]))
            rows = cls(X, Y, weight, np.concatenate([piece.ids for piece in pieces]))
        else:
            [rows] = pieces
        X = sp.csr_array(rows.X) if sp.issparse(rows.X) else rows.X
        order = np.argsort(rows.ids, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return cls(X, rows.Y, rows.weight, rows.ids)
        return cls(X, rows.Y, rows.weight, rows.ids).take(order)


def _sum_of_bits(values: NDArray[Any]) -> int:
    """Return the sum of the 8-byte words of an array, and of the bytes that are left."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    end = len(flat) // 8 * 8
    words = np.add.reduce(flat[:end].view(np.uint64), dtype=np.uint64)
    return int(words) + int(flat[end:].sum())


def _sum_by_place(values: NDArray[Any]) -> int:
    """Return the sum of the bits of numbers, each times an odd number that depends on its place."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return int(np.add.reduce(bits * np.arange(1, 2 * len(bits), 2, dtype=np.uint64)))


@dataclass
class Summary:
    """What a pass found out about n rows; summaries of disjoint rows add up.

    ``sums`` and ``squares``, (d,), are those of the features; ``positions``, (d + 1,), sums of
    features and weight times numbers that depend on where a row is: the same rows in another order
    have others. About ``capacity`` rows are held, in ``pieces``; ``complete`` tells whether these
    are all, ``by_size`` whether targets are pairs of a size and a label.
    """

    n: int
    n_features: int
    dtype: Any
    weight: float
    sums: NDArray[Any]
    squares: NDArray[Any]
    positions: NDArray[Any]
    max_abs: float
    tally: Tally
    capacity: int
    by_size: bool
    pieces: list[CheckedRows] = field(default_factory=list, repr=False)
    complete: bool = True

    @classmethod
    def of(cls, rows: CheckedRows, capacity: int, *, by_size: bool) -> Summary:
        """Summarise one block of rows."""
        X = rows.X
        values = X.data if sp.issparse(X) else X
        max_abs = float(max(values.max(initial=0), -values.min(initial=0)))
        with np.errstate(over="ignore"):
            if sp.issparse(X):
                data = values.astype(np.float64)
                sums = np.bincount(X.indices, data, minlength=X.shape[1])
                squares = np.bincount(X.indices, data * data, minlength=X.shape[1])
            else:
                sums = X.sum(axis=0, dtype=np.float64)
                squares = np.einsum("ij,ij->j", X, X).astype(np.float64)
        weight = float(len(rows) if rows.weight is None else rows.weight.sum())
        where = random_bits(rows.ids, _POSITION_SEED) / 2.0**64
        own = where.sum() if rows.weight is None else where @ rows.weight
        with np.errstate(over="ignore", invalid="ignore"):
            positions = np.append((X.T @ where.astype(X.dtype)).astype(np.float64), own)
        tally = Tally.of(rows.Y, rows.ids, rows.weight)
        known = (weight, sums, squares, positions, max_abs, tally)
        out = cls(len(rows), X.shape[1], X.dtype, *known, capacity, by_size, [rows])
        out.prune()
        return out

    def add(self, other: Summary) -> None:
        """Add the rows of another summary, which must not be used afterwards."""
        self.tally = self.tally + other.tally
        self.n, self.weight = self.n + other.n, self.weight + other.weight
        self.sums, self.squares = self.sums + other.sums, self.squares + other.squares
        self.positions = self.positions + other.positions
        self.max_abs = max(self.max_abs, other.max_abs)
        self.dtype = np.result_type(self.dtype, other.dtype)
        self.complete = self.complete and other.complete
        if self.n > self.capacity:
            self.complete = False
            self.pieces += [kept for piece in other.pieces if len(kept := self._kept(piece))]
        else:
            self.pieces += other.pieces
        if self.held > MAX_OVERFULL * self.capacity:
            self.prune()

    @property
    def held(self) -> int:
        """The number of rows that are held now."""
        return sum(len(piece) for piece in self.pieces)

    def chance(self, Y: Indicator) -> NDArray[np.float64]:
        """Return with which probability rows with these labels are held.

        Half of the places are for all rows alike, half are dealt out among the targets. As rows are
        added, no probability grows: a row that was dropped would not be taken back.
        """
        if self.complete:
            return np.ones(Y.shape[0])
        counts = self.tally.counts
        if not self.by_size:
            none = self.tally.sizes == 0
            counts = np.concatenate([counts[none], counts[~none].sum(axis=0, keepdims=True)])
        targets = max(1, int(np.count_nonzero(counts)))
        rarest = self.tally.rarest(Y, by_size=self.by_size)
        chance = self.capacity / 2 * (1 / (targets * rarest) + 1 / self.n)
        return np.asarray(np.minimum(1.0, chance))

    def _kept(self, piece: CheckedRows) -> CheckedRows:
        draw = random_bits(piece.ids) / 2.0**64
        rows = np.flatnonzero(draw < self.chance(piece.Y))
        return piece if len(rows) == len(piece) else piece.take(rows)

    def prune(self) -> None:
        """Drop rows until those that are held fit."""
        if self.n > self.capacity:
            self.complete = False
        if not self.complete:
            self.pieces = [kept for piece in self.pieces if len(kept := self._kept(piece))]

    def rows(self) -> CheckedRows:
        """Return the rows that are held: all, or those of the final probabilities."""
        self.prune()
        self.pieces = [CheckedRows.join(self.pieces)]
        return self.pieces[0]

    def fingerprint(self) -> dict[str, str]:
        """Return digests of the features, the labels and the weights, by what they are of."""
        tally = self.tally
        shape = np.array([self.n, self.n_features])
        parts = {
            "X": (shape, self.sums, self.squares, self.positions[:-1]),
            "the labels": (tally.sizes, tally.counts, tally.keys),
            "the weights": (tally.weights, self.positions[-1:]),
        }
        return {name: _digest(self.dtype, *arrays) for name, arrays in parts.items()}


def _digest(dtype: Any, *arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256(str(np.dtype(dtype)).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
