"""Several label statistics in one: averages of the same rows, and groups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fbeta._array import Array, astype, widest_float
from fbeta._threads import map_rows, row_tasks
from fbeta.statistics.dense import Cardinalities, Dense, Form, Rows
from fbeta.statistics.factored import Factored
from fbeta.statistics.sparse import Sparse, join_rows


@dataclass(frozen=True)
class Mixture:
    """The average of several statistics of the same rows, with weights that sum to 1."""

    parts: tuple[Form, ...]
    weights: tuple[float, ...]

    @property
    def cardinalities(self) -> Cardinalities:
        """The union of those of the parts."""
        return _union(self.parts)

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

    def take(self, rows: Rows) -> Mixture:
        """Return some rows."""
        return Mixture(tuple(part.take(rows) for part in self.parts), self.weights)

    def block(self, rows: Rows) -> Dense:
        """Return some rows unfolded, without the sizes that have no weight in them."""
        blocks = [part.block(rows) for part in self.parts]
        out = _zeros(self, _union(blocks), n=blocks[0].shape[0])
        for block, weight in zip(blocks, self.weights, strict=True):
            out.empty[...] += weight * block.empty
            for slot, i in _slots(out, block):
                out.joint[:, slot, :] += weight * block.joint[:, i, :]
        return out

    def empty_probability(self) -> Array:
        """Return ``P(no labels)``, of shape (n,)."""
        return self._average([part.empty_probability() for part in self.parts])

    def marginals(self) -> Array:
        """Return ``P(y_j = 1)``, of shape (n, s)."""
        return self._average([part.marginals() for part in self.parts])

    def size_probabilities(self) -> Array:
        """Return ``P(|y| = k)`` for the cardinalities, of shape (n, K)."""
        sums = _zeros(self, self.cardinalities, s=1)
        for part, weight in zip(self.parts, self.weights, strict=True):
            probabilities = part.size_probabilities()
            for slot, i in _slots(sums, part):
                sums.joint[:, slot, 0] += weight * probabilities[:, i]
        return sums.joint[:, :, 0]

    def _average(self, arrays: list[Array]) -> Array:
        terms = [weight * array for array, weight in zip(arrays, self.weights, strict=True)]
        return sum(terms[1:], start=terms[0])


def unfold(form: Form) -> Dense:
    """Return every number of a form, with all its cardinalities."""
    if isinstance(form, Dense):
        return form
    if isinstance(form, Sparse):
        return form.block(slice(None))
    xp, out = form.place[0], _zeros(form, form.cardinalities)

    def work(rows: slice) -> tuple[Array, ...]:
        _write(out, rows, form.block(rows))
        return ()

    map_rows(xp, work, row_tasks(form.place, form.shape[0], form.row_bytes, unfolding=True))
    return out


def cast(form: Form, dtype: Any) -> Form:
    """Return a form with numbers of another type."""
    xp = form.place[0]
    if isinstance(form, Mixture):
        return Mixture(tuple(cast(part, dtype) for part in form.parts), form.weights)
    if isinstance(form, Sparse):
        return form
    if isinstance(form, Factored):
        sizes = None if form.sizes is None else astype(xp, form.sizes, dtype)
        return Factored(astype(xp, form.P, dtype), sizes, form.log_odds)
    dense = unfold(form)
    empty, joint = (astype(xp, array, dtype) for array in (dense.empty, dense.joint))
    return Dense(empty, joint, dense.cardinalities)


def concatenate(forms: Sequence[Form]) -> Form:
    """Join the rows of several forms; factors stay factors where all of them are."""
    if len(forms) == 1:
        return forms[0]
    xp = forms[0].place[0]
    sparse = [form for form in forms if isinstance(form, Sparse)]
    if len(sparse) == len(forms) and len({form.sized() for form in sparse}) == 1:
        return join_rows(sparse)
    factored = [form for form in forms if isinstance(form, Factored)]
    sized = [form.sizes for form in factored if form.sizes is not None]
    alike = len({form.log_odds for form in factored}) == 1 and len(factored) == len(forms)
    if alike and len(sized) in (0, len(forms)):
        P = xp.concat([form.P for form in factored], axis=0)
        return Factored(P, _concatenate_sizes(xp, sized) if sized else None, factored[0].log_odds)
    dense = [form.joint.dtype for form in forms if isinstance(form, Dense)]
    dtype = xp.result_type(*dense) if len(dense) == len(forms) else None
    out = _zeros(forms[0], _union(forms), n=sum(form.shape[0] for form in forms), dtype=dtype)
    start = 0
    for form in forms:
        stop = start + form.shape[0]
        _write(out, slice(start, stop), unfold(form))
        start = stop
    return out


def _concatenate_sizes(xp: Any, sizes: Sequence[Array]) -> Array:
    width = max(int(array.shape[1]) for array in sizes)
    padded = []
    for array in sizes:
        shape = (array.shape[0], width - array.shape[1])
        zeros = xp.zeros(shape, dtype=array.dtype, device=array.device)
        padded.append(xp.concat([array, zeros], axis=1))
    return xp.concat(padded, axis=0)


def _zeros(
    form: Form,
    cardinalities: Cardinalities,
    *,
    n: int | None = None,
    s: int | None = None,
    dtype: Any = None,
) -> Dense:
    """Return statistics that are zero, of the shape and in the place of a form."""
    xp, device = form.place
    dtype = widest_float(xp, device) if dtype is None else dtype
    n, s = form.shape[0] if n is None else n, form.shape[1] if s is None else s
    joint = xp.zeros((n, len(cardinalities), s), dtype=dtype, device=device)
    return Dense(xp.zeros(n, dtype=dtype, device=device), joint, cardinalities)


def _write(out: Dense, rows: slice, block: Dense) -> None:
    """Write statistics to some rows, each size to its slot."""
    out.empty[rows] = block.empty
    for slot, i in _slots(out, block):
        out.joint[rows, slot, :] = block.joint[:, i, :]


def _union(forms: Sequence[Form]) -> Cardinalities:
    """Return the cardinalities of all forms together."""
    return np.unique(np.concatenate([form.cardinalities for form in forms]))


def _slots(out: Form, form: Form) -> list[tuple[int, int]]:
    """Return where each of the form's sizes is among the cardinalities of ``out``."""
    found = np.searchsorted(out.cardinalities, form.cardinalities)
    return [(int(slot), i) for i, slot in enumerate(found)]
