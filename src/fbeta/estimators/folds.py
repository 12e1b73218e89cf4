"""Cross-validation: the folds, one pass along the path of alphas for each, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.model_selection import KFold, check_cv

from fbeta._array import to_numpy
from fbeta._threads import run_evenly
from fbeta._validation import check_count, check_takes_weight
from fbeta.estimators.base import Fold, MultiLabelClassifier
from fbeta.estimators.decisions import HeldOut
from fbeta.estimators.pruning import Pruning, constant_scores
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Alphas, Rows, Weight
from fbeta.metrics import fbeta_per_instance
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["ALPHAS", "HeldOutScores", "make_folds", "over_folds", "row_shares", "score_table",
           "stop_when_idle"]  # fmt: skip

#: The grid of the paper.
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)

Found = TypeVar("Found")


def make_folds(
    cv: Any, X: Any, Y: Indicator, weight: Weight = None, groups: Any = None
) -> list[Fold]:
    """Return pairs of row indices (train, test); rows of weight zero are in no fold.

    A number stands for that many shuffled folds of the rows with a positive weight, always the same
    ones: files of multi-label data are often sorted by label, and label sets cannot be stratified
    like classes. Splitters get all rows, and Y, (n, s), as a 0/1 array.
    """
    rows = np.arange(Y.shape[0]) if weight is None else np.flatnonzero(weight)
    if isinstance(cv, Integral):
        splitter = KFold(check_count("cv", cv, low=2), shuffle=True, random_state=0)
        return [(rows[train], rows[test]) for train, test in splitter.split(rows)]
    folds = []
    for fold in check_cv(cv).split(X, Y.toarray(), groups):
        train, test = (part[np.isin(part, rows)] for part in map(np.asarray, fold))
        if not len(train) or not len(test):
            raise ValueError("a fold has no rows with positive sample_weight: choose another cv")
        folds.append((train, test))
    if not folds:
        raise ValueError("cv has no folds: expected at least one pair of train and test rows")
    return folds


def over_folds(
    look: Callable[[HeldOut, Rows], Found],
    estimator: MultiLabelClassifier,
    X: Any,
    Y: Indicator,
    weight: Weight = None,
    *,
    folds: Sequence[Fold],
    alphas: Alphas = ALPHAS,
    n_jobs: int | None = None,
    stop: Callable[[Fold], Callable[[float, Found], bool]] | None = None,
) -> list[dict[float, Found]]:
    """Return what ``look`` returns for the held-out rows of every fold, by alpha.

    ``look`` is called with the fitted estimator and the held-out rows, and with their indices;
    ``stop`` with each fold. What ``stop`` returns is called with every alpha, from the strongest to
    the weakest, and what ``look`` returned, and tells whether weaker ones are left out.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> from fbeta.labels.forms import form_of
    >>> X, Y = np.arange(6.0)[:, None], form_of([[1], [0]] * 3).read([[1], [0]] * 3)
    >>> found = over_folds(lambda held, rows: held.statistics(), FBetaClassifier(), X, Y,
    ...                    folds=make_folds(2, X, Y), alphas=[0.1, 1.0])
    >>> [len(statistics[0.1]) for statistics in found]
    [3, 3]
    """
    check_takes_weight(estimator, weight)
    shared = estimator.alpha_shared(X, weight)
    falling = sorted(set(alphas), reverse=True)

    def walk(fold: Fold) -> Iterator[tuple[float, Found]]:
        is_over = stop(fold) if stop is not None else None
        for alpha, held in estimator.alpha_path(shared, Y, weight, fold, falling):
            found = look(held, fold[1])
            yield alpha, found
            if is_over is not None and is_over(alpha, found):
                break

    def run(fold: Fold) -> list[tuple[float, Found]]:
        return list(walk(fold))

    if n_jobs is None and effective_n_jobs(None) == 1:
        pairs = run_evenly(walk, folds)
    else:
        pairs = list(Parallel(n_jobs=n_jobs)(delayed(run)(fold) for fold in folds))
    return [dict(found) for found in pairs]


class HeldOutScores(NamedTuple):
    """What the predictions for the n rows of a fold got, and what was expected of them."""

    achieved: NDArray[np.float64]  # (n,), F_beta
    expected: NDArray[np.float64] | None  # (n,), where the estimator expects something
    statistics: LabelStatistics | None = None  # where they are kept

    @classmethod
    def of(cls, held: HeldOut, Y: Indicator, beta: float) -> HeldOutScores:
        """Predict, and compare with the truth of shape (n, s)."""
        labels, expected = held.decide(beta)
        achieved = fbeta_per_instance(Y, to_numpy(labels), beta)
        return cls(achieved, None if expected is None else to_numpy(expected))


def row_shares(folds: Sequence[Fold], weight: Weight) -> list[NDArray[np.float64]]:
    """Return what the held-out rows of each fold count in the mean over the folds."""
    own = [np.ones(len(test)) if weight is None else weight[test] for _, test in folds]
    return [share / share.sum() / len(folds) for share in own]


def score_table(
    grid: Sequence[float],
    found: Sequence[Mapping[float, HeldOutScores]],
    shares: Sequence[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the mean F_beta of strengths x folds, NaN where a fold has left a strength out."""
    table = np.full((len(grid), len(found)), np.nan)
    for j, (fold, share) in enumerate(zip(found, shares, strict=True)):
        for i, alpha in enumerate(grid):
            if alpha in fold:
                table[i, j] = np.average(fold[alpha].achieved, weights=share)
    return table


def stop_when_idle(
    Y: Indicator, weight: Weight, beta: float
) -> Callable[[Fold], Callable[[float, HeldOutScores], bool]]:
    """Return the ``stop`` of :func:`over_folds` that :class:`AlphaSearchCV` describes."""

    def stop(fold: Fold) -> Callable[[float, HeldOutScores], bool]:
        own = None if weight is None else weight[fold[1]]
        pruning = Pruning(constant_scores(Y, *fold, beta, weight), own)
        return lambda alpha, found: pruning.is_over(alpha, found.achieved)

    return stop
