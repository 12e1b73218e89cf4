"""Nearest neighbours: label statistics of the training rows that are closest to x."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._threads import check_cancelled
from fbeta._validation import check_choice, check_count
from fbeta.estimators.forest import SizedSetsCode
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.statistics.codes import LabelSetCode
from fbeta.statistics.encoding import Targets

__all__ = ["NeighboursClassifier", "NeighboursLearner", "NeighboursModel"]

DISTANCES_AT_ONCE = 1 << 22  # between rows of X and training rows


@dataclass(frozen=True)
class NeighboursModel:
    """Training rows (n', d), the label set of each, their weights, and the number of neighbours."""

    X: Any
    which: NDArray[np.intp]
    weight: NDArray[np.float64]
    n_sets: int
    n_neighbours: int

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the weight of each label set, (n, L): of neighbours, by their inverse distance."""
        n, k = X.shape[0], min(self.n_neighbours, self.X.shape[0])
        out = np.zeros((n, self.n_sets))
        rows = max(1, DISTANCES_AT_ONCE // max(1, self.X.shape[0]))
        own = _squares(self.X)
        for start in range(0, n, rows):
            check_cancelled()
            part = X[start : start + rows]
            product = part @ self.X.T
            product = product.toarray() if hasattr(product, "toarray") else np.asarray(product)
            squares = np.maximum(_squares(part)[:, None] + own - 2 * product, 0.0)
            near = np.argpartition(squares, k - 1, axis=1)[:, :k]
            distance = np.sqrt(np.take_along_axis(squares, near, axis=1).astype(np.float64))
            # the weight of a row that is there already is bounded
            least = np.maximum(distance.max(axis=1, keepdims=True) * 1e-3, 1e-12)
            share = self.weight[near] / np.maximum(distance, least)
            share /= share.sum(axis=1, keepdims=True)
            place = np.arange(len(near))[:, None], self.which[near]
            np.add.at(out[start : start + rows], place, share)
        return out


def _squares(X: Any) -> NDArray[np.float64]:
    squares = X.multiply(X) if hasattr(X, "multiply") else X * X
    return np.asarray(squares.sum(axis=1)).ravel()


@dataclass(frozen=True)
class NeighboursLearner(Learner):
    """Keeps the training rows."""

    n_neighbours: int

    def fit(
        self, X: Any, targets: Targets, weight: Weight, alpha: Any = None, name: Names = str
    ) -> NeighboursModel:
        """Fit to label sets."""
        check_count("n_neighbours", self.n_neighbours)
        which, n_sets = targets.values[:, 0], targets.structure.shape[0]
        own = np.ones(len(which)) if weight is None else weight
        return NeighboursModel(X, which, own, n_sets, self.n_neighbours)


@dataclass(eq=False, repr=False)
class NeighboursClassifier(StatisticsClassifier):
    """The label sets of the nearest training rows, weighted by their inverse distance.

    ``labels`` is as for :class:`fbeta.FBetaForest`. A candidate of :class:`fbeta.FBetaAuto`.
    """

    beta: float = 1.0
    _: KW_ONLY
    n_neighbours: int = 20
    labels: str = "sets"

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        check_choice("labels", self.labels, ("sets", "sized"))
        return (LabelSetCode if self.labels == "sets" else SizedSetsCode).of(Y)

    def _make_learner(self) -> NeighboursLearner:
        return NeighboursLearner(self.n_neighbours)
