"""What the forms of label statistics have in common, and the plain one: every number.

Each form unfolds some rows at a time (``block``), so that nobody needs the whole table of shape
(n, K, s) at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, astype, namespace_and_device, take_rows, widest_float

Cardinalities: TypeAlias = NDArray[np.intp]
Rows: TypeAlias = Any  # a slice, or an array of integers


class Form(Protocol):
    """What the forms of the statistics of n instances with s labels have in common."""

    @property
    def cardinalities(self) -> Cardinalities:
        """Increasing sizes in 1..s; the statistics of all others are zero."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the unfolded statistics of one instance, at most."""

    def take(self, rows: Rows) -> Form:
        """Return some rows, in the same form."""

    def block(self, rows: Rows) -> Dense:
        """Return some rows unfolded, without the sizes that have no weight in them."""

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s)."""

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""


@dataclass(frozen=True)
class Dense:
    """Every number: ``empty`` of shape (n,) and ``joint`` of shape (n, K, s)."""

    empty: Array
    joint: Array
    cardinalities: Cardinalities

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, s)``."""
        return int(self.joint.shape[0]), int(self.joint.shape[2])

    @property
    def place(self) -> tuple[Any, Any]:
        """Namespace and device of the arrays."""
        return namespace_and_device(empty=self.empty, joint=self.joint)

    @property
    def row_bytes(self) -> int:
        """Bytes of the statistics of one instance."""
        return 8 * max(1, int(self.joint.shape[1]) * int(self.joint.shape[2]))

    def take(self, rows: Rows) -> Dense:
        """Return some rows."""
        xp = self.place[0]
        empty, joint = (take_rows(xp, array, rows) for array in (self.empty, self.joint))
        return Dense(empty, joint, self.cardinalities)

    def block(self, rows: Rows) -> Dense:
        """Return some rows in the widest floating type."""
        xp, device = self.place
        some, dtype = self.take(rows), widest_float(xp, device)
        empty, joint = (astype(xp, array, dtype) for array in (some.empty, some.joint))
        return Dense(empty, joint, self.cardinalities)

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        return self.empty

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self.place[0].sum(self.joint, axis=1)

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)``, by ``sum_j P(|y| = k, y_j = 1) = k P(|y| = k)``."""
        xp, device = self.place
        total = xp.sum(self.joint, axis=2)
        return total / xp.asarray(self.cardinalities, dtype=total.dtype, device=device)
