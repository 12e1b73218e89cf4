"""A table of numbers, categories, text and dates as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fbeta.datasets.cells import is_gap
from fbeta.datasets.column_encoders import (
    CategoryColumn,
    ColumnPart,
    DateColumn,
    NumberColumn,
    TextColumn,
)
from fbeta.datasets.column_kinds import KINDS, Look, look_at

__all__ = ["TableEncoder"]

_PARTS: dict[str, Any] = {
    "numeric": NumberColumn, "categorical": CategoryColumn, "text": TextColumn, "date": DateColumn
}  # fmt: skip
# wider than this, zeros are not kept
_DENSE = 1_000


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
        """Look at the columns, and find what their features need.

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
        names, columns = _columns(X)
        kinds = dict(self.kinds or {})
        absent = [name for name in kinds if name not in names]
        if absent:
            raise ValueError(f"kinds names columns that are not there: {absent}")
        looks = [look_at(name, c, kinds.get(name)) for name, c in zip(names, columns, strict=True)]
        return self.fit_looks(looks, columns)

    def fit_looks(self, looks: Sequence[Look], columns: Sequence[Sequence[Any]]) -> TableEncoder:
        """Fit to columns that were looked at; their looks and their cells are in one order."""
        bad = [f"{look.name!r} {look.note}" for look in looks if look.kind == "other"]
        if bad:
            raise ValueError(f"columns that are no features: {', '.join(bad)}")
        self.parts_ = tuple(
            _PARTS[look.kind].fit(cells, look.detail) if look.kind in KINDS else None
            for look, cells in zip(looks, columns, strict=True)
        )
        self.feature_names_in_ = np.array([look.name for look in looks], dtype=object)
        self.n_features_in_ = len(looks)
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
        pairs = [(p, cells) for p, cells in zip(self._parts(), columns, strict=True) if p]
        blocks = [part.encode(cells) for part, cells in pairs]
        if not blocks:
            return np.zeros((len(columns[0]) if columns else 0, 0))
        width = sum(part.width for part, _ in pairs)
        if width > _DENSE or any(isinstance(part, TextColumn) for part, _ in pairs):
            return sparse.csr_array(sparse.hstack(list(map(sparse.csr_array, blocks))))
        dense = [block.toarray() if sparse.issparse(block) else block for block in blocks]
        return np.hstack(dense)

    def problems(
        self, columns: Sequence[Sequence[Any]], gaps: bool = False
    ) -> list[tuple[str, int, str]]:
        """Return the first cell of each column that cannot be read: column, row and words.

        Parameters
        ----------
        columns : sequence of c sequences
            The cells of each column.
        gaps : bool
            Whether a missing number or date is such a cell, too.
        """
        found = []
        for name, part, cells in zip(self._names(), self._parts(), columns, strict=True):
            row = part.bad(cells) if part else None
            if row is not None:
                kind = "date" if isinstance(part, DateColumn) else "number"
                found.append((name, row, f"expected a {kind}, found {str(cells[row])[:40]!r}"))
            elif gaps and isinstance(part, NumberColumn | DateColumn):
                empty = next((i for i, cell in enumerate(cells) if is_gap(cell)), None)
                found += [] if empty is None else [(name, empty, "a missing value")]
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
        known = (*_PARTS.values(), type(None))
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
        names, columns = _columns(X)
        if not hasattr(X, "iloc"):
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


def _columns(X: Any) -> tuple[list[str], list[Any]]:
    """Take a table apart into names and cells."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        if len(set(names)) < len(names):
            raise ValueError("X has columns of the same name")
        return names, [X.iloc[:, j].tolist() for j in range(X.shape[1])]
    table = np.asarray(X, dtype=object)
    if table.ndim != 2:
        raise ValueError(f"expected a table with rows and columns, got shape {table.shape}")
    return [f"x{j}" for j in range(table.shape[1])], [list(column) for column in table.T]
