"""Checked rows, and the first pass: what is known of all rows, and which of them are held."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import MAX_LARGEST_WEIGHT, as_real, check_unmasked
from fbeta.blocks.rows import Block
from fbeta.labels.containers import as_table, is_table
from fbeta.labels.forms import Indicator, LabelForm

MAX_OVERFULL = 1.25  # held rows, in units of the capacity, from which some are dropped
_KEYS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)  # of SplitMix64
_POSITION_SEED = 3  # of the bits that tell where a row is


def random_bits(ids: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Return 64 bits for each row, (n,), by its number and a seed alone: SplitMix64's finaliser."""
    with np.errstate(over="ignore"):
        z = (ids + np.uint64(1)) * np.uint64(_KEYS[0]) + np.uint64(seed) * np.uint64(_KEYS[1])
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


# odd numbers of the places in a chunk of words
_PLACES = random_bits(np.arange(256, dtype=np.uint64), 4) | np.uint64(1)


def weighted_bits(values: NDArray[Any]) -> int:
    """Return the sum modulo 2**64 of the words of an array, times odd numbers of their places."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    end = len(data) - len(data) % _PLACES.nbytes
    rest = np.pad(data[end:], (0, end + _PLACES.nbytes - len(data)))
    parts = (part.view(np.uint64).reshape(-1, len(_PLACES)) for part in (data[:end], rest))
    sums = np.concatenate([np.einsum("ij,j->i", part, _PLACES) for part in parts])
    return int(sums @ (random_bits(np.arange(len(sums), dtype=np.uint64)) | np.uint64(1)))


def check_features(block: Block, n_features: int | None, *, finite: bool = True) -> Any:
    """Return the features of a block as floats, dense or CSR, (n, d), or name the row at fault.

    ``n_features`` is their number in other blocks; ``finite`` says whether to check for NaN.
    """
    X: Any = block.X
    X = as_table(X, block.part)[1] if is_table(X) else X
    X = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    check_unmasked(f"X of {block.part}", X.data if sp.issparse(X) else X)
    if X.ndim != 2:
        raise ValueError(f"{block.part}: X must have two dimensions (rows, features), got {X.ndim}")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"{block.place(0)}: found {X.shape[1]} features where other blocks have {n_features}"
        )
    if X.dtype not in (np.float32, np.float64):
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{block.place(0)}: X must hold numbers: {error}") from error
    values = X.data if sp.issparse(X) else X
    # a sum of finite numbers in double precision is finite, and quicker than a check of each
    with np.errstate(over="ignore", invalid="ignore"):
        if not finite or np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return X
    bad = np.flatnonzero(~np.isfinite(values).ravel())[0]
    if sp.issparse(X):
        row, column = int(np.searchsorted(X.indptr, bad, side="right")) - 1, int(X.indices[bad])
    else:
        row, column = (int(i) for i in np.unravel_index(bad, X.shape))
    what = "NaN" if np.isnan(values.ravel()[bad]) else "infinity"
    raise ValueError(f"{block.place(row)}: Input X contains {what} (feature {column})")


def check_block(
    block: Block, form: LabelForm, start: int, n_features: int | None, *, finite: bool
) -> CheckedRows:
    """Check a block and number its rows from ``start``; those of weight zero are left out."""
    X = check_features(block, n_features, finite=finite)
    n, weight = X.shape[0], None
    if block.Y is None:
        raise ValueError(f"{block.part}: there are no labels")
    try:
        Y = form.read(block.Y, "y")
    except ValueError as error:
        where = f"{block.part}, rows {block.start} to {block.start + n - 1}"
        raise ValueError(f"{where}: {error}") from error
    if Y.shape[0] != n:
        raise ValueError(f"{block.part}: X has {n} rows and y has {Y.shape[0]}")
    if block.weight is not None:
        weight = as_real(f"the weight of {block.part}", block.weight)
        if weight.shape != (n,):
            raise ValueError(f"{block.part}: X has {n} rows and the weights have {weight.shape}")
        bad = np.flatnonzero(~((weight >= 0) & (weight <= MAX_LARGEST_WEIGHT)))
        if len(bad):
            raise ValueError(f"{block.place(int(bad[0]))}: the weight is {weight[bad[0]]}")
    rows = CheckedRows(X, Y, weight, np.arange(start, start + n, dtype=np.uint64))
    if weight is not None and (weight == 0).any():
        rows = rows.take(np.flatnonzero(weight))
    return rows


@dataclass(frozen=True)
class CheckedRows:
    """Checked rows with their labels, weights, unique numbers, and the folds that hold them out."""

    X: Any  # ndarray or csr_array of shape (n, d)
    Y: Any  # Indicator (n, s), or the targets of a code, csr_array (n, M)
    weight: NDArray[np.float64] | None  # (n,), positive
    ids: NDArray[np.uint64]  # (n,)
    fold: NDArray[np.integer[Any]] | None = None  # (n,)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights, (n,), 1 where there are none."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def take(self, rows: NDArray[Any]) -> CheckedRows:
        """Return some of them."""
        own: list[Any] = [None if a is None else a[rows] for a in vars(self).values()]
        return CheckedRows(*own)

    def checksum(self) -> tuple[int, ...]:
        """Return a sum of the bits of each array, weighted by their places."""
        X, Y = self.X, self.Y
        parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
        arrays = (Y.indices, Y.indptr, self.weight, *parts)
        return tuple(weighted_bits(values) for values in arrays if values is not None)

    @classmethod
    def join(cls, pieces: Sequence[CheckedRows]) -> CheckedRows:
        """Join rows, in the order of their numbers."""
        rows = pieces[0]
        if len(pieces) > 1:
            if any(piece.weight is not None for piece in pieces):
                pieces = [replace(piece, weight=piece.weights) for piece in pieces]
            rows = cls(*map(_stack, zip(*(vars(piece).values() for piece in pieces), strict=True)))
        order = np.argsort(rows.ids, kind="stable")
        return rows if np.array_equal(order, np.arange(len(order))) else rows.take(order)


def _stack(parts: Sequence[Any]) -> Any:
    """Return rows of arrays, or of sparse matrices as CSR, below each other; None for None."""
    if parts[0] is None:
        return None
    if any(map(sp.issparse, parts)):  # a folder may have dense parts too
        return sp.csr_array(sp.vstack(list(map(sp.csr_array, parts))))
    return np.concatenate(parts)


@dataclass(frozen=True)
class Tally:
    """Counts, weights and keys of the rows that have a label, for each of K sizes of label sets.

    ``sizes`` are those that occur, increasing, with so many ``rows``; ``counts`` and ``weights``,
    (K, s), are of the rows of a size that have a label, for size 0 in the first column of all rows;
    ``keys``, (K, 2, s), sums of the random bits of the rows: equal keys mean equal rows.
    """

    sizes: NDArray[np.intp]
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64]
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, rows: CheckedRows) -> Tally:
        """Count the label sets of a block, (n, s)."""
        n, s = rows.Y.shape
        lengths = np.diff(rows.Y.indptr)
        sizes, place = np.unique(lengths, return_inverse=True)
        # a row without labels stands in the first column of its size
        empty = np.flatnonzero(lengths == 0)
        owner = np.concatenate([np.repeat(np.arange(n), lengths), empty])
        column = np.concatenate([rows.Y.indices, np.zeros(len(empty), rows.Y.indices.dtype)])
        flat, shape = place[owner] * s + column, (len(sizes), s)
        counts = np.bincount(flat, minlength=len(sizes) * s).reshape(shape)
        weights = np.bincount(flat, rows.weights[owner], minlength=len(sizes) * s).reshape(shape)
        keys = np.zeros((2, len(sizes) * s), np.uint64)
        for seed in (0, 1):
            np.add.at(keys[seed], flat, random_bits(rows.ids, seed + 1)[owner])
        keys = np.moveaxis(keys.reshape(2, *shape), 0, 1)
        total = np.bincount(place, minlength=len(sizes)).astype(np.int64)
        return cls(sizes.astype(np.intp), total, counts.astype(np.int64), weights, keys)

    def _spread(self, sizes: NDArray[np.intp]) -> list[NDArray[Any]]:
        """Return all arrays but the sizes, for more sizes."""
        out = []
        for values in (self.rows, self.counts, self.weights, self.keys):
            wide = np.zeros((len(sizes), *values.shape[1:]), values.dtype)
            wide[np.searchsorted(sizes, self.sizes)] = values
            out.append(wide)
        return out

    def __add__(self, other: Tally) -> Tally:
        sizes = np.union1d(self.sizes, other.sizes)
        return Tally(sizes, *map(np.add, self._spread(sizes), other._spread(sizes)))

    def __sub__(self, other: Tally) -> Tally:
        sizes = self.sizes
        return Tally(sizes, *map(np.subtract, self._spread(sizes), other._spread(sizes)))

    @property
    def total_weight(self) -> float:
        """The weight of all rows: each label of a row is counted with it."""
        return float((self.weights.sum(axis=1) / np.maximum(self.sizes, 1)).sum())

    def rarest(self, Y: Indicator, *, by_size: bool) -> NDArray[np.int64]:
        """Return the count of the rarest target of each row of Y, (n, s), which is in the tally."""
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
        known = (weight, sums, squares, positions, max_abs, Tally.of(rows))
        out = cls(len(rows), X.shape[1], X.dtype, *known, capacity, by_size, [rows])
        out.prune()
        return out

    def __add__(self, other: Summary) -> Summary:
        if not (self.n and other.n):
            return self if self.n else other
        names = ("n", "weight", "sums", "squares", "positions", "tally")
        added = {name: getattr(self, name) + getattr(other, name) for name in names}
        added["dtype"] = np.result_type(self.dtype, other.dtype)
        added["max_abs"] = max(self.max_abs, other.max_abs)
        out = replace(self, **added, capacity=min(self.capacity, other.capacity))
        out.complete = self.complete and other.complete and out.n <= out.capacity
        out.pieces = self.pieces + (other.pieces if out.complete else out.kept(other.pieces))
        if sum(map(len, out.pieces)) > MAX_OVERFULL * out.capacity:
            out.prune()
        return out

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

    def kept(self, pieces: Sequence[CheckedRows]) -> list[CheckedRows]:
        """Return the rows of some pieces that are held by their present probabilities."""
        out = []
        for piece in pieces:
            held = random_bits(piece.ids) / 2.0**64 < self.chance(piece.Y)
            if held.any():
                out.append(piece if held.all() else piece.take(np.flatnonzero(held)))
        return out

    def prune(self) -> None:
        """Drop rows until those that are held fit."""
        self.complete = self.complete and self.n <= self.capacity
        if not self.complete:
            self.pieces = self.kept(self.pieces)

    def rows(self) -> CheckedRows:
        """Return the rows that are held: all, or those of the final probabilities."""
        return CheckedRows.join(self.pieces if self.complete else self.kept(self.pieces))

    def fingerprint(self) -> dict[str, str]:
        """Return digests of the features, the labels and the weights, by what they are of."""
        tally, shape = self.tally, np.array([self.n, self.n_features])
        parts = {
            "X": (shape, self.sums, self.squares, self.positions[:-1]),
            "the labels": (tally.sizes, tally.counts, tally.keys),
            "the weights": (tally.weights, self.positions[-1:]),
        }
        out = {}
        for name, arrays in parts.items():
            digest = hashlib.sha256(str(np.dtype(self.dtype)).encode())
            for array in arrays:
                digest.update(np.ascontiguousarray(array).tobytes())
            out[name] = digest.hexdigest()
        return out
