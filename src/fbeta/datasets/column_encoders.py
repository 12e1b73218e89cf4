"""Columns of a table as features: explicit state, and the transformations that it stands for.

An encoder holds means, categories and terms as numbers and words, and nothing else: no patterns, no
indices, no code. So a model file of anybody can hold it, and a new version of scikit-learn breaks
none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler

from fbeta._array import optional_import
from fbeta.datasets.cells import (
    DECIMALS,
    Cells,
    FloatArray,
    categories,
    read_numbers,
    texts,
)
from fbeta.datasets.dates import DATE_ORDERS, read_days

__all__ = ["CategoryColumn", "ColumnPart", "DateColumn", "NumberColumn", "TextColumn"]

_MAX_CATEGORIES = 1_000
_MAX_TERMS = 20_000
# in shorter tables a word that is there once may be all there is
_MIN_ROWS_FOR_REPEATED_TERMS = 50
_DAYS_PER_YEAR, _DAYS_PER_WEEK = 365.2425, 7.0


class ColumnPart(Protocol):
    """One column of a table, as features."""

    @property
    def width(self) -> int:
        """Number of features."""

    def unread(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which cells are not missing and cannot be read, of shape (n,)."""

    def encode(self, cells: Cells) -> Any:
        """Return the features, of shape (n, width), dense or sparse."""

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""


def _check(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(f"a column of {what} that does not fit together")


def _is_real(*values: Any) -> bool:
    return all(isinstance(value, float) and math.isfinite(value) for value in values)


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    scaler = StandardScaler().fit(values)
    return scaler.mean_, scaler.scale_


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, less their mean and over their standard deviation; a missing one is the mean.

    Where the training had missing values, a second feature says where they are.
    """

    mean: float
    scale: float
    decimal: str = "."
    gaps: bool = False  # whether there is the second feature
    lenient: bool = False  # whether text counted as missing in the training

    def __post_init__(self) -> None:
        sound = _is_real(self.mean, self.scale) and self.scale > 0 and self.decimal in DECIMALS
        _check(sound, "numbers")

    @classmethod
    def fit(cls, cells: Cells, detail: str) -> NumberColumn:
        """Find mean and scale; ``detail`` is that of the inferred kind."""
        decimal, values, _ = read_numbers(cells, detail[:1] or ".")
        gaps = np.isnan(values)
        known = values[~gaps] if not gaps.all() else np.zeros(1)
        filled = np.where(gaps, known.mean(), values)
        mean, scale = _moments(filled[:, None])
        lenient = detail.endswith("?")
        return cls(float(mean[0]), float(scale[0]), decimal, bool(gaps.any()), lenient)

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.gaps

    def unread(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which cells are no numbers, of shape (n,)."""
        return read_numbers(cells, self.decimal)[2]

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 1 or 2)."""
        values = read_numbers(cells, self.decimal)[1]
        gaps = np.isnan(values)
        scaled = np.where(gaps, 0.0, (values - self.mean) / self.scale)
        return np.column_stack([scaled, gaps] if self.gaps else [scaled])

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [column, f"{column} is missing"][: self.width]


@dataclass(frozen=True)
class CategoryColumn:
    """Categories that occur twice or more, one feature for each; others have none."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        sound = isinstance(self.values, tuple) and all(isinstance(v, str) for v in self.values)
        _check(sound and len(set(self.values)) == len(self.values), "categories")

    @classmethod
    def fit(cls, cells: Cells, detail: str = "") -> CategoryColumn:
        """Find the categories, a missing value among them."""
        compute = optional_import("pyarrow.compute", "data", "reading tables")
        found = compute.value_counts(categories(cells))
        counts = np.asarray(found.field("counts"))
        order = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        kept = [str(found.field("values")[int(i)]) for i in order if counts[i] > 1]
        return cls(tuple(sorted(kept)))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.values)

    def unread(self, cells: Cells) -> NDArray[np.bool_]:
        """Return False throughout: every cell is some category."""
        return np.zeros(len(cells), dtype=np.bool_)

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return one feature for each category."""
        arrow = optional_import("pyarrow", "data", "reading tables")
        compute = optional_import("pyarrow.compute", "data", "reading tables")
        known = arrow.array(self.values, arrow.string())
        codes = compute.fill_null(compute.index_in(categories(cells), value_set=known), -1)
        column = np.asarray(codes)
        rows = np.flatnonzero(column >= 0)
        entries = (np.ones(rows.size), (rows, column[rows]))
        return sparse.csr_array(entries, shape=(len(cells), self.width))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}={value}" if value else f"{column} is missing" for value in self.values]


@dataclass(frozen=True)
class TextColumn:
    """Words of text by TF-IDF."""

    terms: tuple[str, ...]
    idf: FloatArray  # of shape (number of terms,)

    def __post_init__(self) -> None:
        sound = isinstance(self.terms, tuple) and all(isinstance(t, str) for t in self.terms)
        idf = self.idf
        sound = sound and isinstance(idf, np.ndarray) and idf.shape == (len(self.terms),)
        sound = sound and idf.dtype == np.float64 and bool(np.isfinite(idf).all())
        _check(sound and len(set(self.terms)) == len(self.terms), "text")

    @classmethod
    def fit(cls, cells: Cells, detail: str = "") -> TextColumn:
        """Find the terms and how rare they are."""
        found = texts(cells)
        rows = 2 if len(found) >= _MIN_ROWS_FOR_REPEATED_TERMS else 1
        vectorizer = _vectorizer(min_df=rows, max_features=_MAX_TERMS)
        try:
            vectorizer.fit(found)
        except ValueError:  # no term is left: no word at all, or none twice
            return cls((), np.zeros(0))
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), vectorizer.idf_)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.terms)

    def unread(self, cells: Cells) -> NDArray[np.bool_]:
        """Return False throughout: every cell is text."""
        return np.zeros(len(cells), dtype=np.bool_)

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return the weights of the terms."""
        if not self.terms:
            return sparse.csr_array((len(cells), 0))
        vectorizer = _vectorizer(vocabulary={term: j for j, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        return sparse.csr_array(vectorizer.transform(texts(cells)))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}: {term}" for term in self.terms]


def _vectorizer(**options: Any) -> TfidfVectorizer:
    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)


@dataclass(frozen=True)
class DateColumn:
    """Dates as numbers: days, and where in the year and in the week (and in the day) they lie."""

    order: str
    means: tuple[float, ...]
    scales: tuple[float, ...]
    fill: float  # days since 1970 that a missing value stands for

    def __post_init__(self) -> None:
        sound = isinstance(self.means, tuple) and isinstance(self.scales, tuple)
        sound = sound and len(self.means) == len(self.scales) and len(self.means) in (5, 7)
        sound = sound and _is_real(self.fill, *self.means, *self.scales)
        _check(sound and min(self.scales) > 0 and self.order in DATE_ORDERS, "dates")

    @classmethod
    def fit(cls, cells: Cells, detail: str) -> DateColumn:
        """Find means and scales; ``detail`` is the order of year, month and day."""
        order, found, _ = read_days(cells, detail or "iso")
        known = found[~np.isnan(found)]
        fill = float(known.mean()) if known.size else 0.0
        clock = bool((known % 1 != 0).any())
        means, scales = _moments(_calendar(np.where(np.isnan(found), fill, found), clock))
        return cls(order, tuple(map(float, means)), tuple(map(float, scales)), fill)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.means)

    def unread(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which cells are no dates, of shape (n,)."""
        return read_days(cells, self.order)[2]

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 5 or 7)."""
        found = read_days(cells, self.order)[1]
        features = _calendar(np.where(np.isnan(found), self.fill, found), self.width == 7)
        return np.asarray((features - np.array(self.means)) / np.array(self.scales))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        parts = ["days", "year sin", "year cos", "week sin", "week cos", "day sin", "day cos"]
        return [f"{column}: {part}" for part in parts[: self.width]]


def _calendar(days: FloatArray, clock: bool) -> FloatArray:
    periods = (_DAYS_PER_YEAR, _DAYS_PER_WEEK, 1.0) if clock else (_DAYS_PER_YEAR, _DAYS_PER_WEEK)
    turns = [2 * np.pi * days / period for period in periods]
    return np.column_stack([days, *(f(turn) for turn in turns for f in (np.sin, np.cos))])
