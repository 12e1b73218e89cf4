"""The first pass: what is known of all rows, and which of them are held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta.blocks.tally import Tally, random_bits
from fbeta.labels.forms import Indicator

__all__ = ["Rows", "Summary"]

SLACK = 1.25  # rows held, in units of the capacity, from which some are dropped


@dataclass(frozen=True)
class Rows:
    """Checked rows with their labels, weights, and numbers that are theirs alone."""

    X: Any  # ndarray or csr_array of shape (n, d)
    Y: Indicator  # (n, s)
    weight: NDArray[np.float64] | None  # (n,), positive
    ids: NDArray[np.uint64]  # (n,)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: NDArray[Any]) -> Rows:
        """Return some of them."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.X[rows], self.Y[rows], weight, self.ids[rows])

    @classmethod
    def join(cls, pieces: Sequence[Rows]) -> Rows:
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


@dataclass
class Summary:
    """What a pass found out about its rows; summaries of disjoint rows add up.

    Attributes
    ----------
    n, n_features : int
    dtype : floating type
        Of X.
    weight : float
        The total weight.
    sums, squares : ndarray of shape (d,)
        Sums of the features, and of their squares.
    reach : float
        The largest absolute value of a feature.
    tally : Tally
        Of the labels.
    capacity : int
        How many rows are held, about.
    by_size : bool
        Whether targets are pairs of a size and a label, or labels.
    pieces : list of Rows
        Those that are held.
    complete : bool
        Whether these are all.
    """

    n: int
    n_features: int
    dtype: Any
    weight: float
    sums: NDArray[Any]
    squares: NDArray[Any]
    reach: float
    tally: Tally
    capacity: int
    by_size: bool
    pieces: list[Rows] = field(default_factory=list, repr=False)
    complete: bool = True

    @classmethod
    def of(cls, rows: Rows, capacity: int, *, by_size: bool) -> Summary:
        """Look at one block of rows."""
        X = rows.X
        values = X.data if sp.issparse(X) else X
        reach = float(max(values.max(initial=0), -values.min(initial=0)))
        with np.errstate(over="ignore"):
            if sp.issparse(X):
                data = values.astype(np.float64)
                sums = np.bincount(X.indices, data, minlength=X.shape[1])
                squares = np.bincount(X.indices, data * data, minlength=X.shape[1])
            else:
                sums = X.sum(axis=0, dtype=np.float64)
                squares = np.einsum("ij,ij->j", X, X).astype(np.float64)
        weight = float(len(rows) if rows.weight is None else rows.weight.sum())
        tally = Tally.of(rows.Y, rows.ids, rows.weight)
        out = cls(
            len(rows), X.shape[1], X.dtype, weight, sums, squares, reach, tally, capacity, by_size,
            [rows],
        )  # fmt: skip
        out.prune()
        return out

    def add(self, other: Summary) -> None:
        """Take in the rows of another summary, which may be used no more."""
        self.tally = self.tally + other.tally
        self.n, self.weight = self.n + other.n, self.weight + other.weight
        self.sums, self.squares = self.sums + other.sums, self.squares + other.squares
        self.reach = max(self.reach, other.reach)
        self.dtype = np.result_type(self.dtype, other.dtype)
        self.complete = self.complete and other.complete
        if self.n > self.capacity:
            self.complete = False
            self.pieces += [kept for piece in other.pieces if len(kept := self._kept(piece))]
        else:
            self.pieces += other.pieces
        if self.held > SLACK * self.capacity:
            self.prune()

    @property
    def held(self) -> int:
        """How many rows are held now."""
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

    def _kept(self, piece: Rows) -> Rows:
        draw = random_bits(piece.ids) / 2.0**64
        rows = np.flatnonzero(draw < self.chance(piece.Y))
        return piece if len(rows) == len(piece) else piece.take(rows)

    def prune(self) -> None:
        """Drop rows until those that are held fit."""
        if self.n > self.capacity:
            self.complete = False
        if not self.complete:
            self.pieces = [kept for piece in self.pieces if len(kept := self._kept(piece))]

    def rows(self) -> Rows:
        """Return the rows that are held: all, or those of the final probabilities."""
        self.prune()
        self.pieces = [Rows.join(self.pieces)]
        return self.pieces[0]

    def fingerprint(self) -> str:
        """Return a digest that other data would hardly have."""
        digest = hashlib.sha256(f"{self.n} {self.n_features} {self.dtype}".encode())
        tally = self.tally
        for array in (
            self.sums,
            self.squares,
            tally.sizes,
            tally.counts,
            tally.weights,
            tally.keys,
        ):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()
