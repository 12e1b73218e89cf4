"""The rows of a design in tiles, as an operator on coefficients and residuals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from fbeta._array import Array, is_accelerator
from fbeta.linear.rotation import cast

if TYPE_CHECKING:
    from fbeta.linear.design import Design

__all__ = ["RowTiles"]

SANDWICH_ENTRIES = 1 << 28  # entries of weighted rows that an accelerator multiplies at a time


class RowTiles:
    """The rows of a design in tiles of ``size`` rows that fit the device's fastest memory.

    Tiles are kept in the type of X, and converted to ``dtype``, that of the products, as they are
    visited.
    """

    def __init__(self, design: Design, size: int, dtype: Any) -> None:
        self.design, self.dtype = design, dtype
        n = design.matrix.shape[0]
        self.parts = [slice(at, min(at + size, n)) for at in range(0, n, size)]
        self.tiles = [design.matrix[part, :] for part in self.parts]

    def split(self, values: Array) -> list[Array]:
        """Return the tiles of an array with n rows."""
        return [values[part, :] for part in self.parts]

    def __iter__(self) -> Iterator[Array]:
        return (cast(self.design.xp, tile, self.dtype) for tile in self.tiles)

    def product(self, W: Array) -> list[Array]:
        """Return the scores of W, (p, m), tile by tile."""
        moved = cast(self.design.xp, self.design.forward(W), self.dtype)
        return [tile @ moved for tile in self]

    def adjoint(self, parts: list[Array]) -> Array:
        """Multiply the transpose with (rows, m) tiles: (p, m)."""
        xp, pairs = self.design.xp, zip(self, parts, strict=True)
        total = sum(tile.T @ cast(xp, part, self.dtype) for tile, part in pairs)
        return self.design.backward(total)

    def round_trip(self, W: Array, respond: Callable[[int, Array], Array]) -> Array:
        """Multiply the transpose with the response of each tile to its scores of W: (p, m)."""
        moved = self.design.forward(W)
        total = None
        for at, tile in enumerate(self):
            part = tile.T @ respond(at, tile @ moved)
            total = part if total is None else total + part
        return self.design.backward(total)

    def diagonal(self, total: Array) -> Array:
        """Return the diagonal of ``Z' B Z``, (p, m), if B did not depend on Z and summed to this.

        ``total`` has the sum over the rows for each column, (m,). The intercept's is exact.
        """
        spread, xp = self.design.spread, self.design.xp
        if self.design.intercept:
            spread = xp.concat([spread[:-1, :], xp.ones_like(spread[-1:, :])], axis=0)
        return spread * total

    def least_ratio(self, penalty: Array, D: Array) -> Array:
        """Return a lower bound of ``penalty / D`` over the entries that a projection mixes."""
        xp = self.design.xp
        return xp.min(xp.min(xp.broadcast_to(penalty, D.shape), axis=1) / xp.max(D, axis=1))

    def sandwiches(self, weights: list[Array], *, positive: bool) -> Array:
        """Return ``Z' diag(weight) Z``, (k, p, p), for (rows, k) tiles of weights."""
        xp, k, p = self.design.xp, weights[0].shape[1], self.design.matrix.shape[1]
        rows = max(tile.shape[0] for tile in self.tiles)
        # one after the other a processor is fast enough, and multiplies by its own transpose
        many = is_accelerator(self.design.device) and positive
        size = max(1, SANDWICH_ENTRIES // (rows * p)) if many else 1
        chunks = [slice(at, min(at + size, k)) for at in range(0, k, size)]
        out = [self._sandwich([w[:, chunk] for w in weights], positive) for chunk in chunks]
        return xp.concat(out)

    def _sandwich(self, weights: list[Array], positive: bool) -> Array:
        xp = self.design.xp
        total: Array = 0.0
        for tile, weight in zip(self, weights, strict=True):
            dense = tile.toarray() if sp.issparse(tile) else tile
            if weight.shape[1] > 1:
                half = dense[None, :, :] * xp.sqrt(weight).T[:, :, None]
                total = total + xp.matrix_transpose(half) @ half
                continue
            # a product of a matrix with its own transpose costs half
            half = dense * xp.sqrt(weight) if positive else dense
            total = total + (half.T @ (half if positive else weight * dense))[None, :, :]
        if not self.design.shifted:
            return total
        return self.design.backward(self.design.backward(total[0, :, :]).T).T[None, :, :]
