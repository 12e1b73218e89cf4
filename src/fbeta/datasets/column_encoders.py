"""Columns of a table as features: explicit state, made by scikit-learn's transformers.

A part holds what its transformer found - means, categories, terms - as numbers and words, and
nothing else: no patterns, no indices, no code. So a model file of anybody can hold it, and a new
version of scikit-learn breaks none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fbeta.datasets.cells import DATE_ORDERS, DECIMALS, date_reader, is_gap, to_number

__all__ = ["CategoryColumn", "ColumnPart", "DateColumn", "NumberColumn", "TextColumn"]

Cells: TypeAlias = Sequence[Any]
FloatArray: TypeAlias = NDArray[np.float64]

_MOST_CATEGORIES = 1_000
_MOST_TERMS = 20_000
_YEAR, _WEEK = 365.2425, 7.0


class ColumnPart(Protocol):
    """One column of a table, as features."""

    @property
    def width(self) -> int:
        """Number of features."""

    def bad(self, cells: Cells) -> int | None:
        """Return the first row whose cell cannot be read, if any."""

    def encode(self, cells: Cells) -> Any:
        """Return the features, of shape (n, width), dense or sparse."""

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""


def _numbers(cells: Cells, read: Callable[[Any], float | None]) -> FloatArray:
    """Read cells, with NaN for gaps and for what cannot be read."""
    found = (None if is_gap(cell) else read(cell) for cell in cells)
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def _first_bad(cells: Cells, read: Callable[[Any], float | None]) -> int | None:
    return next((i for i, c in enumerate(cells) if not is_gap(c) and read(c) is None), None)


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
    """Numbers, less their mean and over their standard deviation; a gap is the mean.

    Where the training had gaps, a second feature says where they are.
    """

    mean: float
    scale: float
    decimal: str = "."
    gaps: bool = False  # whether there is the second feature
    lenient: bool = False  # whether what is no number is a gap

    def __post_init__(self) -> None:
        sound = _is_real(self.mean, self.scale) and self.scale > 0 and self.decimal in DECIMALS
        _check(sound, "numbers")

    @classmethod
    def fit(cls, cells: Cells, detail: str) -> NumberColumn:
        """Find mean and scale; ``detail`` is that of the look at the column."""
        decimal, lenient = detail[:1] or ".", detail.endswith("?")
        values = _numbers(cells, lambda cell: to_number(cell, decimal))[:, None]
        gaps = np.isnan(values)
        filled = np.zeros_like(values) if gaps.all() else SimpleImputer().fit_transform(values)
        mean, scale = _moments(filled)
        return cls(float(mean[0]), float(scale[0]), decimal, bool(gaps.any()), lenient)

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 + self.gaps

    def _read(self, cell: Any) -> float | None:
        return to_number(cell, self.decimal)

    def bad(self, cells: Cells) -> int | None:
        """Return the first row whose cell is no number."""
        return None if self.lenient else _first_bad(cells, self._read)

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 1 or 2)."""
        values = _numbers(cells, self._read)
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
        """Find the categories, a gap among them."""
        counts = Counter(map(_category, cells)).most_common(_MOST_CATEGORIES)
        return cls(tuple(sorted(value for value, count in counts if count > 1)))

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.values)

    def bad(self, cells: Cells) -> int | None:
        """Return None: every cell is some category."""

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return one feature for each category."""
        column = np.array([_category(cell) for cell in cells], dtype=object)[:, None]
        if not self.values:
            return sparse.csr_array((len(cells), 0))
        known = np.array(self.values, dtype=object)
        coder = OneHotEncoder(categories=[known], handle_unknown="ignore").fit(known[:1, None])
        return sparse.csr_array(coder.transform(column))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}={value}" if value else f"{column} is missing" for value in self.values]


def _category(cell: Any) -> str:
    if is_gap(cell):
        return ""
    whole = isinstance(cell, float) and cell.is_integer()
    # a column of whole numbers with gaps has 3.0 in a data frame, and 3 in a file
    return str(int(cell) if whole else cell).strip()


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
        texts = list(map(_text, cells))
        # in short tables a word that is there once may be all there is
        vectorizer = _vectorizer(min_df=2 if len(texts) >= 50 else 1, max_features=_MOST_TERMS)
        try:
            vectorizer.fit(texts)
        except ValueError:  # no term is left: no word at all, or none twice
            return cls((), np.zeros(0))
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), vectorizer.idf_)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.terms)

    def bad(self, cells: Cells) -> int | None:
        """Return None: every cell is text."""

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return the weights of the terms."""
        if not self.terms:
            return sparse.csr_array((len(cells), 0))
        vectorizer = _vectorizer(vocabulary={term: j for j, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        return sparse.csr_array(vectorizer.transform(list(map(_text, cells))))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}: {term}" for term in self.terms]


def _vectorizer(**options: Any) -> TfidfVectorizer:
    return TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", **options)


def _text(cell: Any) -> str:
    return "" if is_gap(cell) else str(cell)


@dataclass(frozen=True)
class DateColumn:
    """Dates as numbers: days, and where in the year and in the week (and in the day) they lie."""

    order: str
    means: tuple[float, ...]
    scales: tuple[float, ...]
    fill: float  # days since 1970 that a gap stands for

    def __post_init__(self) -> None:
        sound = isinstance(self.means, tuple) and isinstance(self.scales, tuple)
        sound = sound and len(self.means) == len(self.scales) and len(self.means) in (5, 7)
        sound = sound and _is_real(self.fill, *self.means, *self.scales)
        _check(sound and min(self.scales) > 0 and self.order in DATE_ORDERS, "dates")

    @classmethod
    def fit(cls, cells: Cells, detail: str) -> DateColumn:
        """Find means and scales; ``detail`` is the order of year, month and day."""
        order = detail or "iso"
        days = _numbers(cells, date_reader(order))
        known = days[~np.isnan(days)]
        fill = float(known.mean()) if known.size else 0.0
        clock = bool((known % 1 != 0).any())
        means, scales = _moments(_calendar(np.where(np.isnan(days), fill, days), clock))
        return cls(order, tuple(map(float, means)), tuple(map(float, scales)), fill)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.means)

    def bad(self, cells: Cells) -> int | None:
        """Return the first row whose cell is no date."""
        return _first_bad(cells, date_reader(self.order))

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 5 or 7)."""
        days = _numbers(cells, date_reader(self.order))
        features = _calendar(np.where(np.isnan(days), self.fill, days), self.width == 7)
        return np.asarray((features - np.array(self.means)) / np.array(self.scales))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        parts = ["days", "year sin", "year cos", "week sin", "week cos", "day sin", "day cos"]
        return [f"{column}: {part}" for part in parts[: self.width]]


def _calendar(days: FloatArray, clock: bool) -> FloatArray:
    periods = (_YEAR, _WEEK, 1.0) if clock else (_YEAR, _WEEK)
    turns = [2 * np.pi * days / period for period in periods]
    return np.column_stack([days, *(f(turn) for turn in turns for f in (np.sin, np.cos))])
