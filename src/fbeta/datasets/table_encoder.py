"""A table of numbers, categories, text and dates as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fbeta.datasets.cells import Cells, categories, columns_of, missing
from fbeta.datasets.column_encoders import (
    CategoryColumn,
    ColumnPart,
    DateColumn,
    NumberColumn,
    TextColumn,
)
from fbeta.datasets.column_kinds import KINDS, ColumnKind, infer_kind

__all__ = ["TableEncoder"]

_ENCODERS: dict[str, Any] = {
    "numeric": NumberColumn,
    "categorical": CategoryColumn,
    "text": TextColumn,
    "date": DateColumn,
}
# wider tables become sparse
_MAX_DENSE_FEATURES = 1_000


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers scaled, categories one-hot, text by TF-IDF, dates as numbers.

    Parameters
    ----------
    kinds : mapping from str to str, optional
        Kinds of columns by name, of ``fbeta.datasets.column_kinds.KINDS``; the others
        are inferred.
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
        """Infer the kinds of the columns, and find what their features need.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n, c)
            The cells.
        y : ignored

        Returns
        -------
        TableEncoder
            Itself.
        """
        names, columns = _named_columns(X)
        kinds = dict(self.kinds or {})
        absent = [name for name in kinds if name not in names]
        if absent:
            raise ValueError(f"kinds names columns that are not there: {absent}")
        pairs = zip(names, columns, strict=True)
        return self.fit_kinds([infer_kind(n, c, kinds.get(n)) for n, c in pairs], columns)

    def fit_kinds(self, kinds: Sequence[ColumnKind], columns: Sequence[Cells]) -> TableEncoder:
        """Fit to columns whose kinds are known; kinds and columns are in one order."""
        bad = [f"{column.name!r} {column.note}" for column in kinds if column.kind == "other"]
        if bad:
            raise ValueError(f"columns that are no features: {', '.join(bad)}")
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
        columns = self._matched(X)
        problems = self.problems(columns)
        if problems:
            raise ValueError(
                "; ".join(f"column {c!r}, row {row + 1}: {words}" for c, row, words in problems)
            )
        return self.encode(columns)

    def encode(self, columns: Sequence[Cells]) -> Any:
        """Return the features of columns in the order of ``fit``; bad cells count as missing."""
        pairs = [(p, cells) for p, cells in zip(self._parts(), columns, strict=True) if p]
        blocks = [part.encode(cells) for part, cells in pairs]
        if not blocks:
            return np.zeros((len(columns[0]) if columns else 0, 0))
        width = sum(part.width for part, _ in pairs)
        if width > _MAX_DENSE_FEATURES or any(isinstance(part, TextColumn) for part, _ in pairs):
            return sparse.csr_array(sparse.hstack(list(map(sparse.csr_array, blocks))))
        dense = [block.toarray() if sparse.issparse(block) else block for block in blocks]
        return np.hstack(dense)

    def unread(self, columns: Sequence[Cells]) -> list[tuple[str, str, NDArray[np.bool_]]]:
        """Return the columns that have cells which cannot be read: name, what they are, which."""
        found = []
        for name, part, cells in zip(self._names(), self._parts(), columns, strict=True):
            rows = part.unread(cells) if part else np.zeros(0, dtype=np.bool_)
            if rows.any():
                found.append((name, "date" if isinstance(part, DateColumn) else "number", rows))
        return found

    def problems(self, columns: Sequence[Cells], gaps: bool = False) -> list[tuple[str, int, str]]:
        """Return the first cell of each column that cannot be read: column, row and words.

        A missing number or date is such a cell if ``gaps``. Cells that cannot be read are none
        where some counted as missing in the training.
        """
        found = []
        unread = {name: (what, rows) for name, what, rows in self.unread(columns)}
        for name, part, cells in zip(self._names(), self._parts(), columns, strict=True):
            if name in unread and not getattr(part, "lenient", False):
                what, rows = unread[name]
                row = int(np.argmax(rows))
                cell = str(categories(cells[row : row + 1])[0])[:40]
                found.append((name, row, f"expected a {what}, found {cell!r}"))
            elif gaps and isinstance(part, NumberColumn | DateColumn):
                empty = np.flatnonzero(missing(cells))
                found += [(name, int(empty[0]), "a missing value")] if empty.size else []
        return found

    def blank_row(self) -> NDArray[Any]:
        """Return a row of gaps, of shape (1, c)."""
        return np.full((1, self.n_features_in_), None, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features, of shape (d,)."""
        names = zip(self._names(), self._parts(), strict=True)
        return np.array([f for name, part in names if part for f in part.names(name)], dtype=object)

    def _parts(self) -> Sequence[ColumnPart | None]:
        check_is_fitted(self)
        known = (*_ENCODERS.values(), type(None))
        if len(self.parts_) != self.n_features_in_ or not all(
            isinstance(part, known) for part in self.parts_
        ):
            raise ValueError("the parts of an encoder do not fit its columns")
        return self.parts_

    def _names(self) -> list[str]:
        return [str(name) for name in self.feature_names_in_]

    def _matched(self, X: Any) -> list[Any]:
        """Return the cells of the columns of ``fit``, in their order."""
        check_is_fitted(self)
        names, columns = _named_columns(X)
        if not hasattr(X, "columns"):
            if len(columns) != self.n_features_in_:
                raise ValueError(
                    f"X has {len(columns)} features, but TableEncoder is expecting "
                    f"{self.n_features_in_} features as input"
                )
            return columns
        place = {name: j for j, name in enumerate(names)}
        absent = [name for name in self._names() if name not in place]
        if absent:
            raise ValueError(f"X lacks the columns {absent}")
        return [columns[place[name]] for name in self._names()]


def _named_columns(X: Any) -> tuple[list[str], list[Cells]]:
    names, columns = columns_of(X)
    if len(set(names)) < len(names):
        raise ValueError("X has columns of the same name")
    return names, columns
