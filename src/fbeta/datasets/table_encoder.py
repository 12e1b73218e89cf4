"""A table of numbers, categories, text and dates as features.

A fitted encoder holds means, categories and terms as numbers and words: no patterns, no indices, no
code. So a model file of anybody can hold it, and a new version of scikit-learn breaks none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from fbeta.datasets.cells import (
    DATE_ORDERS,
    DECIMALS,
    Cells,
    FloatArray,
    Reading,
    arrow,
    categories,
    columns_of,
    compute,
    missing,
)
from fbeta.datasets.column_kinds import KINDS, ColumnKind, infer_kinds, read_best

_MAX_CATEGORIES = 1_000
_MAX_TERMS = 20_000
_TF_IDF: dict[str, Any] = {"sublinear_tf": True, "strip_accents": "unicode"}
# in shorter tables a word that is there once may be all there is
_MIN_ROWS_FOR_REPEATED_TERMS = 50
_PERIODS = (365.2425, 7.0, 1.0)  # days of a year, a week and a day
#: What a date of some order is called in messages.
ORDER_WORDS = {"dmy": " with the day before the month", "mdy": " with the month before the day"}
# wider tables become sparse
_MAX_DENSE_FEATURES = 1_000


def _check(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(f"a column of {what} that does not fit together")


def _is_real(*values: Any) -> bool:
    return all(isinstance(value, float) and math.isfinite(value) for value in values)


def _is_words(values: Any) -> bool:
    """Return whether values are a tuple of different words."""
    is_text = isinstance(values, tuple) and all(isinstance(value, str) for value in values)
    return is_text and len(set(values)) == len(values)


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
        decimal, values, _ = read_best(cells, "numeric", detail[:1] or ".")
        gaps = np.isnan(values)
        known = values[~gaps] if not gaps.all() else np.zeros(1)
        moments = StandardScaler().fit(np.where(gaps, known.mean(), values)[:, None])
        mean, scale = float(moments.mean_[0]), float(moments.scale_[0])
        return cls(mean, scale, decimal, bool(gaps.any()), detail.endswith("?"))

    def read(self, cells: Cells, first: str = "") -> Reading:
        """Read numbers with a mark, by default that of the training, or with another if needed."""
        return read_best(cells, "numeric", first or self.decimal)

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 1 or 2)."""
        values = self.read(cells)[1]
        gaps = np.isnan(values)
        scaled = np.where(gaps, 0.0, (values - self.mean) / self.scale)
        return np.column_stack([scaled, gaps]) if self.gaps else scaled[:, None]

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [column, f"{column} is missing"][: 1 + self.gaps]


@dataclass(frozen=True)
class CategoryColumn:
    """Categories that are there more than once, one feature for each; others have none."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _check(_is_words(self.values), "categories")

    @classmethod
    def fit(cls, cells: Cells, detail: str = "") -> CategoryColumn:
        """Find the categories, a missing value among them."""
        found = compute.value_counts(categories(cells))
        counts = np.asarray(found.field("counts"))
        order = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        kept = [str(found.field("values")[int(i)]) for i in order if counts[i] > 1]
        return cls(tuple(sorted(kept)))

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return one feature for each category."""
        known = arrow.array(self.values, arrow.string())
        codes = compute.fill_null(compute.index_in(categories(cells), value_set=known), -1)
        column = np.asarray(codes)
        rows = np.flatnonzero(column >= 0).astype(np.int32)  # trees of scikit-learn want no int64
        entries = (np.ones(rows.size), (rows, column[rows]))
        return sparse.csr_array(entries, shape=(len(cells), len(self.values)))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}={value}" if value else f"{column} is missing" for value in self.values]


@dataclass(frozen=True)
class TextColumn:
    """Words of text by TF-IDF."""

    terms: tuple[str, ...]
    idf: FloatArray  # of shape (number of terms,)

    def __post_init__(self) -> None:
        idf = self.idf
        sound = _is_words(self.terms) and isinstance(idf, np.ndarray)
        sound = sound and idf.shape == (len(self.terms),) and idf.dtype == np.float64
        _check(sound and bool(np.isfinite(idf).all()), "text")

    @classmethod
    def fit(cls, cells: Cells, detail: str = "") -> TextColumn:
        """Find the terms and how rare they are."""
        rows = 2 if len(cells) >= _MIN_ROWS_FOR_REPEATED_TERMS else 1
        vectorizer = TfidfVectorizer(min_df=rows, max_features=_MAX_TERMS, **_TF_IDF)
        try:
            vectorizer.fit(categories(cells).to_pylist())
        except ValueError:  # no term is left: no word at all, or none twice
            return cls((), np.zeros(0))
        return cls(tuple(map(str, vectorizer.get_feature_names_out())), vectorizer.idf_)

    def encode(self, cells: Cells) -> sparse.csr_array:
        """Return the weights of the terms."""
        if not self.terms:
            return sparse.csr_array((len(cells), 0))
        places = {term: j for j, term in enumerate(self.terms)}
        vectorizer = TfidfVectorizer(vocabulary=places, **_TF_IDF)
        vectorizer.idf_ = self.idf
        return sparse.csr_array(vectorizer.transform(categories(cells).to_pylist()))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        return [f"{column}: {term}" for term in self.terms]


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
        order, found, _ = read_best(cells, "date", detail or "iso")
        known = found[~np.isnan(found)]
        fill = float(known.mean()) if known.size else 0.0
        periods = _PERIODS if (known % 1 != 0).any() else _PERIODS[:2]
        moments = StandardScaler().fit(_calendar(np.where(np.isnan(found), fill, found), periods))
        return cls(order, tuple(moments.mean_.tolist()), tuple(moments.scale_.tolist()), fill)

    @property
    def periods(self) -> tuple[float, ...]:
        """The periods, in days, in which a date has a place."""
        return _PERIODS[: len(self.means) // 2]

    def read(self, cells: Cells, first: str = "") -> Reading:
        """Read dates in an order, by default that of the training, or in another if needed."""
        return read_best(cells, "date", first or self.order)

    def encode(self, cells: Cells) -> FloatArray:
        """Return the features, of shape (n, 5 or 7)."""
        found = self.read(cells)[1]
        features = _calendar(np.where(np.isnan(found), self.fill, found), self.periods)
        return np.asarray((features - np.array(self.means)) / np.array(self.scales))

    def names(self, column: str) -> list[str]:
        """Return the names of the features."""
        parts = ["days", "year sin", "year cos", "week sin", "week cos", "day sin", "day cos"]
        return [f"{column}: {part}" for part in parts[: len(self.means)]]


def _calendar(days: FloatArray, periods: Sequence[float]) -> FloatArray:
    turns = [2 * np.pi * days / period for period in periods]
    return np.column_stack([days, *(f(turn) for turn in turns for f in (np.sin, np.cos))])


_ENCODERS: dict[str, Any] = {
    "numeric": NumberColumn,
    "categorical": CategoryColumn,
    "text": TextColumn,
    "date": DateColumn,
}


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers scaled, categories one-hot, text by TF-IDF, dates as numbers.

    Parameters
    ----------
    kinds : mapping from str to str, optional
        Kinds of columns by name, of ``fbeta.datasets.column_kinds.KINDS``; the others are inferred.
        Columns that name the rows, are constant or have no value are left out.

    Attributes
    ----------
    parts_ : tuple
        One for each column, None where it is left out.
    feature_names_in_ : ndarray of shape (c,)
        Names of the columns.
    n_features_in_ : int
        Their number.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", "red"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'size is missing', 'colour=red']
    >>> encoder.transform(frame).round(1).tolist()
    [[-1.2, 0.0, 1.0], [0.0, 1.0, 0.0], [1.2, 0.0, 1.0]]
    """

    def __init__(self, kinds: Any = None) -> None:
        self.kinds = kinds

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Infer the kinds of the columns of X, (n, c), and find what their features need."""
        columns = _named_columns(X)
        chosen = dict(self.kinds or {})
        absent = [name for name in chosen if name not in columns]
        if absent:
            raise ValueError(f"kinds names columns that are not there: {absent}")
        return self.fit_kinds(infer_kinds(columns, chosen), list(columns.values()))

    def fit_kinds(self, kinds: Sequence[ColumnKind], columns: Sequence[Cells]) -> TableEncoder:
        """Fit to columns whose kinds are known; kinds and columns are in one order."""
        self.parts_ = tuple(
            _ENCODERS[column.kind].fit(cells, column.detail) if column.kind in KINDS else None
            for column, cells in zip(kinds, columns, strict=True)
        )
        self.feature_names_in_ = np.array([column.name for column in kinds], dtype=object)
        self.n_features_in_ = len(kinds)
        return self

    def transform(self, X: Any) -> Any:
        """Return the features.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, c)
            The cells, with the columns of ``fit``; those of a DataFrame are matched by name.

        Returns
        -------
        ndarray or csr_array of shape (n, d)
            Sparse if there is text, or more than 1,000 features.

        Raises
        ------
        ValueError
            If cells cannot be read, with the first of every column.
        """
        names = [name for name, _ in self._parts()]
        found = _named_columns(X)
        columns = list(found.values())
        if hasattr(X, "columns"):
            absent = [name for name in names if name not in found]
            if absent:
                raise ValueError(f"X lacks the columns {absent}")
            columns = [found[name] for name in names]
        if len(columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(columns)} features, but TableEncoder is expecting "
                f"{self.n_features_in_} features as input"
            )
        problems = self.problems(columns, lambda row: f"row {row + 1}")
        if problems:
            raise ValueError(problems)
        return self.encode(columns)

    def encode(self, columns: Sequence[Cells]) -> Any:
        """Return the features of columns in the order of ``fit``; bad cells count as missing."""
        pairs = zip(self._parts(), columns, strict=True)
        blocks = [part.encode(cells) for (_, part), cells in pairs if part]
        if not blocks:
            return np.zeros((len(columns[0]) if columns else 0, 0))
        width = sum(block.shape[1] for block in blocks)
        if width > _MAX_DENSE_FEATURES or any(isinstance(p, TextColumn) for p in self.parts_):
            return sparse.csr_array(sparse.hstack(list(map(sparse.csr_array, blocks))))
        return np.hstack([b.toarray() if sparse.issparse(b) else b for b in blocks])

    def problems(
        self, columns: Sequence[Cells], where: Callable[[int], str], gaps: bool = False
    ) -> str:
        """Return words for the first cell of each column that cannot be read, by its row.

        A missing number or date is such a cell if ``gaps``. Cells that cannot be read are none
        where some counted as missing in the training.
        """
        found = []
        for (name, part), cells in zip(self._parts(), columns, strict=True):
            if not isinstance(part, NumberColumn | DateColumn):
                continue
            bad, words = part.read(cells)[2], "a missing value"
            if bad.any() and not getattr(part, "lenient", False):
                row = int(np.argmax(bad))
                cell = str(categories(cells[row : row + 1])[0])[:40]
                what = "number" if isinstance(part, NumberColumn) else "date"
                what += ORDER_WORDS.get(getattr(part, "order", ""), "")
                words = f"expected a {what}, found {cell!r}"
            else:
                bad = missing(cells) if gaps else bad[:0]
            if bad.any():
                found.append(f"column {name!r}, {where(int(np.argmax(bad)))}: {words}")
        return "; ".join(found)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features, of shape (d,)."""
        found = [feature for name, part in self._parts() if part for feature in part.names(name)]
        return np.array(found, dtype=object)

    def _parts(self) -> list[tuple[str, Any]]:
        """Return the name and the encoder of each column, None where it is left out."""
        check_is_fitted(self)
        known = (*_ENCODERS.values(), type(None))
        if len(self.parts_) != self.n_features_in_ or not all(
            isinstance(part, known) for part in self.parts_
        ):
            raise ValueError("the parts of an encoder do not fit its columns")
        return list(zip(map(str, self.feature_names_in_), self.parts_, strict=True))


def _named_columns(X: Any) -> dict[str, Cells]:
    names, columns = columns_of(X)
    if len(set(names)) < len(names):
        raise ValueError("X has columns of the same name")
    return dict(zip(names, columns, strict=True))
