"""Measures of a prediction that are linear in the hits, once the two sizes are known.

Their expectations need only the label statistics, so that one fitted model serves them all. A zero
denominator makes a ratio 1: for example the precision of an empty prediction. What the searches for
the best label set have in common is here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, astype, check_beta, check_count, cumulative_sum
from fbeta.statistics.composite import Form
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import Dense, fbeta_weight

__all__ = ["MEASURES", "Measure", "fbeta_measure", "get_measure"]

Sizes: TypeAlias = NDArray[np.float64]
Table: TypeAlias = Callable[[Sizes, Sizes, int], Any]


@dataclass(frozen=True)
class Measure:
    """A measure ``A(k, l) |y & yhat| + B(k, l)`` of label sets with ``k = |y|``, ``l = |yhat|``.

    Parameters
    ----------
    name : str
        What :func:`fbeta.decode` calls it.
    hits : callable
        ``A(k, l, s) >= 0`` for a row of sizes k and a column of sizes l, in 1..s.
    rest : callable
        ``B(k, l, s)`` for a row of sizes k and a column of sizes l, in 0..s.
    separable : bool
        Whether ``A(k, l) = a(k) b(l)``: one order of the labels then serves all sizes.
    bounded : bool
        Whether ``A(k, l) = c(k) / (d(k) + l)`` and ``B(k, l) = 0`` for all l > 0: values of large
        sets are then bounded by those of smaller ones, and the decoder stops early.

    Examples
    --------
    The share of predicted labels that are right, where a hit on a small label set counts more:

    >>> rare = Measure("rare", lambda k, size, s: 1 / (k * size), lambda k, size, s: 0.0)
    >>> A, B = rare.tables([1, 2], [1, 2], 2)
    >>> A.tolist()
    [[1.0, 0.5], [0.5, 0.25]]
    """

    name: str
    hits: Table
    rest: Table
    separable: bool = False
    bounded: bool = False

    def tables(self, k: Any, size: Any, s: int) -> tuple[Sizes, Sizes]:
        """Return A, (L, K), and B, (L, 1 + K), with the empty label set in column 0.

        ``k`` are K sizes of true label sets, in 1..s, ``size`` L sizes of predictions, in 0..s; for
        0 there are no hits, and A is 0.
        """
        true = np.asarray(k, dtype=np.float64)[None, :]
        predicted = np.asarray(size, dtype=np.float64)[:, None]
        shape = (predicted.shape[0], true.shape[1])
        A = np.broadcast_to(self.hits(true, np.maximum(predicted, 1.0), s), shape)
        if (A < 0).any():
            raise ValueError(f"the measure {self.name!r} must not fall with the number of hits")
        with_empty = np.concatenate([np.zeros((1, 1)), true], axis=1)
        B = np.broadcast_to(self.rest(with_empty, predicted, s), (shape[0], 1 + shape[1]))
        return np.where(predicted > 0, A, 0.0), np.array(B, dtype=np.float64)


def fbeta_measure(beta: float = 1.0) -> Measure:
    """Return F_beta, with 0/0 = 1.

    Examples
    --------
    >>> A, B = fbeta_measure(1.0).tables([1, 2], [0, 1], 2)
    >>> A.round(3).tolist(), B.tolist()
    ([[0.0, 0.0], [1.0, 0.667]], [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    """
    beta = check_beta(beta)
    return Measure(
        "fbeta",
        lambda k, size, s: fbeta_weight(k, size, beta),
        lambda k, size, s: (k == 0) & (size == 0),
        bounded=True,
    )


def get_measure(measure: str | Measure, beta: float = 1.0) -> Measure:
    """Return a measure by its name, ``"fbeta"`` or one of ``MEASURES``, or the object itself.

    Examples
    --------
    >>> get_measure("recall").separable
    True
    """
    beta = check_beta(beta)
    if isinstance(measure, Measure):
        return measure
    if measure == "fbeta":
        return fbeta_measure(beta)
    if isinstance(measure, str) and measure in MEASURES:
        return MEASURES[measure]
    names = ", ".join(map(repr, ("fbeta", *MEASURES)))
    raise ValueError(
        f"measure must be one of {names} or a fbeta.decoding.measures.Measure, got {measure!r}"
    )


def _inverse(size: Sizes) -> Sizes:
    """Return 1 / size, and 0 where it is 0."""
    return np.where(size > 0, 1 / np.maximum(size, 1.0), 0.0)


def _misses(true: Sizes, predicted: Sizes, below: Sizes, s: int) -> Sizes:
    """Return the part of (labels rightly left out) / below that does not depend on the hits."""
    return np.where(below > 0, (s - true - predicted) * _inverse(below), 1.0)


# of the s labels, s - k - size + hits are rightly left out
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure(
            "precision",
            lambda k, size, s: 1 / size,
            lambda k, size, s: size == 0,
            separable=True,
            bounded=True,
        ),
        Measure("recall", lambda k, size, s: 1 / k, lambda k, size, s: k == 0, separable=True),
        Measure(
            "informedness",
            lambda k, size, s: 1 / k + _inverse(s - k),
            lambda k, size, s: (k == 0) + _misses(k, size, s - k, s) - 1,
            separable=True,
        ),
        Measure(
            "markedness",
            lambda k, size, s: 1 / size + _inverse(s - size),
            lambda k, size, s: (size == 0) + _misses(k, size, s - size, s) - 1,
            separable=True,
        ),
        Measure(
            "hamming",
            lambda k, size, s: 2 / s,
            lambda k, size, s: 1 - (k + size) / s,
            separable=True,
        ),
    )
}


# values closer than this many units of rounding, relative to the sums they come from, are a tie:
# sums of the same numbers in another order differ so
TIE_UNITS = 64


def tie(xp: Any, dtype: Any) -> float:
    """Return the relative difference below which two values are a tie."""
    return TIE_UNITS * float(xp.finfo(dtype).eps)


@dataclass(frozen=True)
class Goal:
    """The measure to maximise in expectation, and how many labels a prediction may have."""

    measure: Measure
    low: int  # the smallest and the largest number of labels of a prediction
    high: int
    n_labels: int  # the number of labels s that there are


# from statistics, beta and a goal to label sets, (n, s), and expected values, (n,)
Search: TypeAlias = Callable[[Dense, float, Goal], tuple[Array, Array] | None]
_SEARCHES: dict[str, Search] = {}


def register_search(device_type: str, search: Search) -> None:
    """Register the decode of dense statistics on devices of a type, such as "cuda"."""
    _SEARCHES[device_type] = search


def search_on_device(form: Dense, beta: float, goal: Goal) -> tuple[Array, Array] | None:
    """Return label sets and expected values, or None where no search is registered."""
    search = _SEARCHES.get(getattr(form.place[1], "type", ""))
    return None if search is None else search(form, beta, goal)


def read_limits(min_labels: Any, max_labels: Any, s: int) -> tuple[int, int]:
    """Return the smallest and the largest number of labels of a prediction, checked."""
    low = check_count("min_labels", min_labels, low=0)
    high = s if max_labels is None else min(check_count("max_labels", max_labels, low=0), s)
    if low > s:
        raise ValueError(f"min_labels is {low}, but there are only {s} labels")
    if low > high:
        raise ValueError(f"min_labels must not be above max_labels, got {low} and {high}")
    return low, high


def choose_size(
    xp: Any, sizes: Array, values: Array, scales: Array | None = None
) -> tuple[Array, Array]:
    """Choose the best size of each instance, and the smallest among those that tie.

    Shapes: ``sizes`` (E,), ``values, scales`` (E, n); returns (n,), (n,).
    """
    zero = xp.zeros_like(values)
    if scales is None:
        scales = xp.where(values > -xp.inf, xp.abs(values), zero)
    top = xp.max(values, axis=0)
    scale = xp.max(xp.where(values == top, scales, zero), axis=0)
    near = values >= top - tie(xp, values.dtype) * xp.maximum(scales, scale)
    place = xp.arange(values.shape[0], device=values.device)
    place = xp.broadcast_to(place[:, None], values.shape)
    first = xp.min(xp.where(near, place, xp.full_like(place, values.shape[0] - 1)), axis=0)
    value = xp.sum(xp.where(place == first, values, zero), axis=0)
    return xp.take(sizes, first), value


def largest_of_size(xp: Any, scores: Array, descending: Array, size: Array) -> Array:
    """Return the sets of ``size`` (n,) labels with the largest scores, (n, s), sorted too."""
    n, s = scores.shape
    if not s:
        return astype(xp, scores, xp.int8)
    place = xp.arange(n, device=size.device) * s + xp.where(size > 0, size - 1, size)
    last = xp.take(xp.reshape(descending, (-1,)), place)
    near = tie(xp, scores.dtype) * xp.abs(last)
    return largest_labels(xp, scores, size, last - near, last + near)


def largest_labels(xp: Any, scores: Array, size: Array, low: Array, high: Array) -> Array:
    """Return the sets of the labels with the largest scores; the first come first among equals.

    Shapes: ``scores`` (n, s), ``size`` (n,), ``low, high`` (n,); returns (n, s).
    """
    infinite = xp.full_like(low, xp.inf)
    low, high = (xp.where(size > 0, limit, infinite)[:, None] for limit in (low, high))
    above = scores > high
    equal = (scores >= low) & ~above
    missing = size - xp.sum(astype(xp, above, size.dtype), axis=1)
    if xp is np and np.array_equal(equal.sum(axis=1), missing):
        return (above | equal).astype(np.int8)
    order = cumulative_sum(xp, astype(xp, equal, size.dtype), axis=1)
    return astype(xp, above | (equal & (order <= missing[:, None])), xp.int8)


def rest_of(xp: Any, B: Array, empty: Array, probabilities: Array) -> tuple[Array, Array]:
    """Return the part of the expected values that does not depend on hits, and its scale.

    Shapes: ``B`` (E, 1 + K), ``empty`` (n,), ``probabilities`` (K, n); returns (E, n).
    """
    law = xp.concat([empty[None, :], probabilities], axis=0)
    return xp.matmul(B, law), xp.matmul(xp.abs(B), law)


def form_of_statistics(statistics: Any) -> Form:
    """Return how label statistics are kept; anything else is a TypeError."""
    if not isinstance(statistics, LabelStatistics):
        raise TypeError(
            "statistics must be LabelStatistics; for probabilities of the labels see "
            f"LabelStatistics.from_marginals (got {type(statistics).__name__})"
        )
    return statistics.form
