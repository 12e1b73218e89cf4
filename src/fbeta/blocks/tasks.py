"""What the workers of Dask do with chunks, and with the rows held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import one_blas_thread
from fbeta.blocks.held import HeldRows
from fbeta.blocks.reading import Block
from fbeta.blocks.source import (
    MAX_CHUNK_ROWS,
    Pass,
    checked,
    evaluate_rows,
    folds_of,
    renewed,
    row_capacity,
)
from fbeta.blocks.summary import CheckedRows, Summary
from fbeta.labels.forms import LabelForm, form_of


def pack(number: int, X: Any, Y: Any, weight: Any) -> Block:
    """Put a chunk together."""
    if hasattr(weight, "to_numpy"):
        weight = weight.to_numpy()
    return Block(f"chunk {number}", 0, X, Y, weight)


def form_of_chunk(number: int, Y: Any) -> LabelForm | None:
    """Return the form of the labels of a chunk; None where it has no rows."""
    if not (Y.shape[0] if hasattr(Y, "shape") else len(Y)):
        return None
    try:
        return form_of(Y, "y")
    except ValueError as error:
        raise ValueError(f"chunk {number}: {error}") from error


def merge_forms(forms: list[LabelForm]) -> LabelForm:
    """Return the form of all labels."""
    if not forms:
        raise ValueError("X has no rows: at least one is required")
    first = forms[0]
    if first.kind == "sets":
        names = sorted(set().union(*(form.classes.tolist() for form in forms)))
        classes = np.empty(len(names), dtype=object)
        classes[:] = names
        return replace(first, classes=classes)
    if first.kind == "single":
        classes = np.unique(np.concatenate([form.classes for form in forms]))
        return replace(form_of(classes, "y"), container=first.container)
    return first


def check_chunk(block: Block, form: LabelForm, width: int) -> CheckedRows:
    """Check a chunk and number its rows."""
    number = int(block.part.rpartition(" ")[2])
    if not len(block):
        none = sp.csr_array((0, form.n_labels), dtype=np.int8)
        return CheckedRows(np.zeros((0, width)), none, None, np.zeros(0, np.uint64))
    return checked(block, form, number * MAX_CHUNK_ROWS, width, first=True)


def length(rows: CheckedRows) -> int:
    """Return how many rows there were, with those of weight zero that came before the last."""
    return int(rows.ids[-1] % np.uint64(MAX_CHUNK_ROWS)) + 1 if len(rows) else 0


def look(rows: CheckedRows, memory: int, by_size: bool) -> Summary | None:
    """Look at a chunk for the first time."""
    if not len(rows):
        return None
    return Summary.of(rows, row_capacity(memory, rows.X), by_size=by_size)


def add_summaries(found: list[Any]) -> Any:
    """Add up what the first round found."""
    some = [summary for summary in found if summary is not None]
    if not some:
        return None
    # a task must not change what another may need again
    total = replace(some[0], pieces=list(some[0].pieces))
    for summary in some[1:]:
        total.capacity = min(total.capacity, summary.capacity)
        total.add(summary)
    return total


def without_rows(summary: Summary | None) -> Summary:
    """Return a summary that is small enough to travel."""
    if summary is None:
        raise ValueError("X has no rows, or none with a positive weight")
    return replace(summary, pieces=[])


def add_lists(found: list[Any]) -> Any:
    """Add up lists of sums."""
    total = found[0]
    for own in found[1:]:
        total = [a + b for a, b in zip(total, own, strict=True)]
    return total


def evaluate_chunk(rows: CheckedRows, folds: Any, task: Pass) -> Any:
    """Evaluate problems on a chunk."""
    with one_blas_thread():
        return evaluate_rows(rows, task, folds)


def renew(held: HeldRows, drawn: list[Any], folds: list[Any], task: Pass) -> HeldRows:
    """Hold the rows that were drawn."""
    return renewed(held, task, [pair for pair in drawn if len(pair[0])], PartFolds(folds))


def build(make: Callable[..., HeldRows], summary: Summary, folds: list[Any] | None) -> HeldRows:
    """Build the held rows from those that the first round picked."""
    own = replace(summary, pieces=list(summary.pieces))
    with one_blas_thread():
        return make(own.rows(), folds=None if folds is None else PartFolds(folds))


class PartFolds:
    """The folds of rows by their numbers, which say the chunk as well."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces = pieces

    def __bool__(self) -> bool:
        return self.pieces[0] is not None

    def of(self, ids: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the fold of each row."""
        part = (ids // np.uint64(MAX_CHUNK_ROWS)).astype(np.intp)
        row = (ids % np.uint64(MAX_CHUNK_ROWS)).astype(np.intp)
        out = np.zeros(len(ids), np.int16)
        for number in np.unique(part):
            own = part == number
            out[own] = self.pieces[number][row[own]]
        return out


def with_held(work: Callable[[HeldRows, Any], Any], held: HeldRows, item: Any) -> Any:
    """Do some work with the held rows."""
    with one_blas_thread():
        return work(held, item)


def quietly(work: Callable[[CheckedRows, Any], Any], rows: CheckedRows, folds: Any) -> Any:
    """Do some work on a chunk."""
    with one_blas_thread():
        return work(rows, folds_of(folds, rows.ids))
