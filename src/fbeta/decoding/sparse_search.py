"""The search for the best label sets among the labels that are listed for each row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._threads import map_rows, row_tasks
from fbeta.decoding.dense_search import Goal, largest_labels
from fbeta.decoding.factored_search import PrefixSearch, find_ties
from fbeta.decoding.measures import Measure
from fbeta.statistics.factored import law_bytes
from fbeta.statistics.sparse import Sparse


def search_sparse(form: Sparse, goal: Goal) -> tuple[Any, NDArray[np.float64]]:
    """Return the best label sets, a csr_array of shape (n, s), and their values, (n,).

    Sets hold listed labels alone: a row that lists fewer labels than the least number gets all.
    """
    listed = form.listed()
    if not form.shape[0]:
        return sp.csr_array(form.shape, dtype=np.int8), np.zeros(0)

    def work(rows: slice) -> tuple[NDArray[Any], ...]:
        some = form.take(rows)
        padded, used = some.padded()
        ascending = np.ascontiguousarray(np.sort(padded, axis=1).T)
        law, most = some.law(ascending), listed[rows]
        least = np.minimum(goal.low, most)
        own = replace(
            goal,
            low=int(least.min(initial=goal.low)),
            high=min(goal.high, int(most.max(initial=0))),
        )
        descending = np.ascontiguousarray(ascending[::-1])
        size, value = PrefixSearch(law, descending, own, (least, np.minimum(most, goal.high))).run()
        limits = find_ties(law, ascending, size, goal)
        chosen = largest_labels(np, padded, size, *limits).astype(bool)[used]
        places = np.arange(form.P.indptr[rows.start], form.P.indptr[rows.stop])[chosen]
        counts = np.zeros(len(size), dtype=np.intp)
        inside = np.repeat(np.arange(len(size)), most)[chosen]
        np.add.at(counts, inside, 1)
        results.append((rows.start, places))
        return counts, value

    results: list[tuple[int, NDArray[np.intp]]] = []
    counts, value = map_rows(np, work, _tasks(form))
    places = np.concatenate([part for _, part in sorted(results, key=lambda item: item[0])])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(places), dtype=np.int8)
    return sp.csr_array((ones, form.P.indices[places], indptr), shape=form.shape), value


def expected_of_sparse(form: Sparse, labels: Any, measure: Measure) -> NDArray[np.float64]:
    """Return the expected values of given label sets, a sparse matrix of shape (n, s)."""
    labels = sp.csr_array(labels, copy=True)
    if labels.shape != form.shape:
        raise ValueError(f"labels must have shape {form.shape}, got {labels.shape}")
    if not np.isin(labels.data, (0, 1)).all():
        raise ValueError("labels must hold only 0 and 1")
    labels.eliminate_zeros()
    number = np.diff(labels.indptr)
    # the places of predicted labels among the listed ones
    at = sp.csr_array((np.arange(1.0, form.P.nnz + 1), form.P.indices, form.P.indptr), form.P.shape)
    both = at.multiply(labels.astype(np.float64)).tocsr()
    is_chosen = np.zeros(form.P.nnz, dtype=bool)
    is_chosen[both.data.astype(np.intp) - 1] = True
    unlisted = number - np.diff(both.indptr)

    def work(rows: slice) -> tuple[NDArray[np.float64]]:
        some = form.take(rows)
        padded, used = some.padded()
        chosen = np.zeros(padded.shape)
        chosen[used] = is_chosen[form.P.indptr[rows.start] : form.P.indptr[rows.stop]]
        order = np.argsort(padded, axis=1)
        ascending, chosen, own = (
            np.ascontiguousarray(np.take_along_axis(a, order, axis=1).T)
            for a in (padded, chosen, used.astype(np.float64))
        )
        law, size = some.law(ascending), number[rows]
        hits = np.zeros_like(law.weights)
        listed = np.zeros_like(law.weights)
        for k, q in law.joint(ascending, max(1, len(law.weights))):
            hits[k] += (q * chosen[:, None]).sum(axis=0)
            listed[k] += (q * own[:, None]).sum(axis=0)
        cardinalities = np.arange(law.first, law.first + len(law.weights))
        # labels that are not listed share the rest of the labels that a row has
        rest = np.maximum(cardinalities[:, None] * law.weights - listed, 0.0)
        hits += rest * (unlisted[rows] / np.maximum(form.shape[1] - some.listed(), 1))
        sizes, place = np.unique(size, return_inverse=True)
        A, B = (table[place] for table in measure.tables(cardinalities, sizes, form.shape[1]))
        of_sizes = np.concatenate([law.empty[None], law.weights])
        return ((A * hits.T).sum(axis=1) + (B * of_sizes.T).sum(axis=1),)

    found: NDArray[np.float64] = map_rows(np, work, _tasks(form))[0]
    return found


def _tasks(form: Sparse) -> list[slice]:
    width = max(1, int(form.listed().max(initial=0)))
    return row_tasks(form.place, form.shape[0], law_bytes(width, len(form.cardinalities)))
