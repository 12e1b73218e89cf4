"""Cross-validation: folds, a pass along the alphas of each, its scores, pruning and calibration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from numbers import Integral
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression
from sklearn.model_selection import KFold, PredefinedSplit, check_cv

from fbeta._array import as_array, check_count, is_accelerator, namespace_and_device, to_numpy
from fbeta._threads import run_evenly, take_turns
from fbeta.decoding.exact import decode
from fbeta.estimators.features import check_takes_weight
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Alphas, Rows, Weight, take_rows
from fbeta.metrics import fbeta_of_counts
from fbeta.statistics.codes import JointCode
from fbeta.statistics.label_statistics import LabelStatistics

if TYPE_CHECKING:
    from fbeta.estimators.base import MultiLabelClassifier

#: The grid of the paper.
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
# gain of F_beta that counts, and lead over the best set without features that pruning needs
MIN_GAIN, MIN_LEAD = 1e-3, 1e-2
# alphas without a gain after which a path ends, and the factor that they have to span
PATIENCE, MIN_SPAN = 2, 10.0
STANDARD_ERRORS = 2.0  # of a difference that counts
# rows in a group of a calibration, and groups: a mean over fewer rows follows their noise
MIN_GROUP_ROWS, MAX_GROUPS = 25, 20
# rows that a straight line counts for in every group, and the slope 1 in the line
LINE_ROWS, SLOPE_ROWS = 25, 20

Found = TypeVar("Found")
Fold: TypeAlias = tuple[Rows, Rows]  # indices of training and held-out rows


def make_folds(
    cv: Any, X: Any, Y: Indicator, weight: Weight = None, groups: Any = None
) -> list[Fold]:
    """Return pairs of row indices (train, test); rows of weight zero are in no fold.

    A number stands for that many shuffled folds, always the same ones: files are often sorted by
    label, and label sets cannot be stratified. Splitters get all rows, and Y, (n, s), as an array.
    """
    rows = np.arange(Y.shape[0]) if weight is None else np.flatnonzero(weight)
    if isinstance(cv, Integral):
        if groups is not None:
            words = "a number of folds takes no groups: pass a splitter such as GroupKFold as cv"
            warnings.warn(words, UserWarning, stacklevel=2)
        if len(rows) < check_count("cv", cv, low=2):
            raise ValueError(
                f"{cv} folds need {cv} rows of positive weight, got n_samples={len(rows)}"
            )
        splitter = KFold(cv, shuffle=True, random_state=0)
        return [(rows[train], rows[test]) for train, test in splitter.split(rows)]
    folds = []
    for fold in check_cv(cv).split(X, Y.toarray(), groups):
        found = [p.nonzero()[0] if p.dtype == bool else p for p in map(np.asarray, fold)]
        strange = np.setdiff1d(np.concatenate(found), np.arange(Y.shape[0]))
        if len(strange):
            raise ValueError(f"cv has row {strange[0]}, and X has the rows 0 to {Y.shape[0] - 1}")
        train, test = (part[np.isin(part, rows)] for part in found)
        if not len(train) or not len(test):
            raise ValueError("a fold has no rows with positive sample_weight: choose another cv")
        folds.append((train, test))
    if not folds:
        raise ValueError("cv has no folds: expected at least one pair of train and test rows")
    return folds


def folds_of_rest(cv: Any, X: Any, Y: Indicator, weight: Weight) -> Any:
    """Return cv with numbers of rows as those among the rows that have a weight."""
    numbered = isinstance(cv, PredefinedSplit) or (isinstance(cv, Iterable) and cv != "auto")
    if weight is None or not numbered:
        return cv
    place = np.cumsum(weight > 0) - 1
    return [(place[train], place[test]) for train, test in make_folds(cv, X, Y, weight)]


def over_folds(
    look: Callable[[MultiLabelClassifier, Any, Rows, float], Found],
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

    It takes the fitted estimator, held-out rows (``checked``), their indices and the fit's seconds.
    """
    check_takes_weight(estimator, weight)
    shared = estimator.alpha_shared(X, weight)
    falling = sorted(set(alphas), reverse=True)

    def walk(fold: Fold, path: Any = None) -> Iterator[tuple[float, Found]]:
        train, test = fold
        path = path or estimator.alpha_path(shared, Y, weight, train, falling)
        held, is_over = take_rows(shared, test), None if stop is None else stop(fold)
        with closing(path):
            begin = perf_counter()
            for alpha, fitted in path:
                found = look(fitted, held, test, perf_counter() - begin)
                yield alpha, found
                if is_over is not None and is_over(alpha, found):
                    break
                begin = perf_counter()

    together = None
    if estimator.alpha_paths and is_accelerator(namespace_and_device(X=X)[1]):
        together = estimator.alpha_paths(shared, Y, [train for train, _ in folds], falling)
    if together is not None:
        pairs = take_turns([walk(*pair) for pair in zip(folds, together, strict=True)], 1)
    elif n_jobs is None and effective_n_jobs(None) == 1:
        pairs = run_evenly(walk, folds)
    else:
        run = delayed(lambda fold: list(walk(fold)))
        pairs = list(Parallel(n_jobs=n_jobs)(run(fold) for fold in folds))
    return [dict(found) for found in pairs]


class HeldOutScores(NamedTuple):
    """What the predictions for the n rows of a fold got, and what was expected of them."""

    achieved: NDArray[np.float64]  # (n,), F_beta
    # (n,), where the estimator expects something, or a function that computes it
    expected: NDArray[np.float64] | Callable[[], NDArray[np.float64] | None] | None
    statistics: LabelStatistics | None = None  # where they are kept
    seconds: float = 0.0  # of the fit


def row_shares(folds: Sequence[Fold], weight: Weight) -> list[NDArray[np.float64]]:
    """Return what the held-out rows of each fold count in the mean over the folds."""
    own = [np.ones(len(test)) if weight is None else weight[test] for _, test in folds]
    return [share / share.sum() / len(folds) for share in own]


def score_table(
    grid: Sequence[float],
    found: Sequence[Mapping[float, HeldOutScores]],
    shares: Sequence[NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the mean F_beta of alphas x folds, NaN where a fold has left an alpha out."""
    table = np.full((len(grid), len(found)), np.nan)
    for j, (fold, share) in enumerate(zip(found, shares, strict=True)):
        for i, alpha in enumerate(grid):
            if alpha in fold:
                table[i, j] = np.average(fold[alpha].achieved, weights=share)
    return table


def best_place(mean: NDArray[np.float64]) -> int:
    """Return the place of the best mean score that is known, the last of those that tie."""
    return int(np.flatnonzero(mean == np.nanmax(mean))[-1])


def difference(
    one: NDArray[np.float64], other: NDArray[np.float64], weight: Weight = None
) -> tuple[float, float]:
    """Return the mean of paired differences, and its standard error."""
    share = np.ones(len(one)) if weight is None else weight
    share = share / share.sum()
    gaps = one - other
    mean = float(gaps @ share)
    return mean, float(np.sqrt(share**2 @ (gaps - mean) ** 2))


def constant_scores(
    Y: Indicator, train: Rows, test: Rows, beta: float, weight: Weight
) -> NDArray[np.float64]:
    """Return F_beta of each test row where all get the set that is best without any features."""
    own = Y[train]
    code, share = JointCode.of(own), np.ones(len(train)) if weight is None else weight[train]
    mean = code.targets(own).T @ share / share.sum()
    labels = decode(code.statistics(mean[None, :]), beta)
    truth, size = Y[test], labels.sum()
    return fbeta_of_counts(truth @ labels[0].astype(float), np.diff(truth.indptr), size, beta)


def pruning(
    constant: NDArray[np.float64], weight: Weight
) -> Callable[[float, NDArray[np.float64]], bool]:
    """Return what tells by an alpha and its scores, (n,), whether weaker ones are left out."""
    best: NDArray[np.float64] | None = None
    before, idle = np.inf, 0  # the last alpha that gained, and alphas since

    def is_over(alpha: float, scores: NDArray[np.float64]) -> bool:
        nonlocal best, before, idle
        if best is None:
            best, before = scores, alpha
            return False
        gain, error = difference(scores, best, weight)
        gains = gain + STANDARD_ERRORS * error >= MIN_GAIN
        before, idle = (alpha, 0) if gains else (before, idle + 1)
        if gain > 0:
            best = scores
        lead, error = difference(best, constant, weight)
        leads = lead > max(MIN_LEAD, STANDARD_ERRORS * error)
        return leads and idle >= PATIENCE and alpha * MIN_SPAN <= before

    return is_over


@dataclass(frozen=True)
class Calibration:
    """A non-decreasing map from the expected F_beta to the one that was achieved.

    Held-out rows are sorted by what was expected of them and put into groups of the same size, at
    most 20 of them with at least 25 rows each. Few rows say little: in every group a straight line
    through all rows counts for 25 more, and in the line a slope of 1 for 20. An isotonic regression
    of the mean F_beta that the groups achieved on the mean that was expected gives the values at
    these means; the map is linear between them and constant beyond the first and the last.

    Attributes
    ----------
    beta : float
        The measure that it is for.
    expected, achieved : ndarray of shape (k,)
        Increasing means of the groups, and the values at them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> expected = rng.uniform(size=500)
    >>> achieved = (rng.uniform(size=500) < expected / 2).astype(float)  # half of what it says
    >>> calibration = Calibration.of(1.0, expected, achieved)
    >>> bool(abs(calibration(np.array([0.2, 0.8])) - [0.1, 0.4]).max() < 0.1)
    True
    """

    beta: float
    expected: NDArray[np.float64]
    achieved: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        beta: float,
        expected: NDArray[np.float64],
        achieved: NDArray[np.float64],
        weight: Weight = None,
    ) -> Calibration:
        """Learn from held-out rows; the three arrays have shape (n,) with n >= 1."""
        weight = np.ones(len(expected)) if weight is None else weight
        order = np.argsort(expected, kind="stable")
        n_groups = int(np.clip(len(order) // MIN_GROUP_ROWS, 1, MAX_GROUPS))
        groups = [rows for rows in np.array_split(order, n_groups) if weight[rows].any()]
        parts = [
            (expected[g] @ weight[g], achieved[g] @ weight[g], weight[g].sum()) for g in groups
        ]
        x, y, total = np.array(parts).T
        # groups of which the same is expected, up to rounding, are one
        at, place = np.unique(np.round(x / total, 12), return_inverse=True)
        y, total = np.bincount(place, y), np.bincount(place, total)
        # weights count rows, whatever their unit is
        y, total = (a * (len(order) / total.sum()) for a in (y, total))
        # a line through what was achieved, never falling
        n, share = len(expected), weight / weight.sum()
        middle, mean = expected @ share, achieved @ share
        spread = ((expected - middle) ** 2) @ share
        both = ((expected - middle) * (achieved - mean)) @ share
        slope = (n * both + SLOPE_ROWS * spread) / ((n + SLOPE_ROWS) * spread) if spread > 0 else 0
        line = np.clip(mean + max(0.0, slope) * (at - middle), 0.0, 1.0)
        y, total = y + LINE_ROWS * line, total + LINE_ROWS
        values = isotonic_regression(y / total, sample_weight=total, y_min=0.0, y_max=1.0)
        return cls(float(beta), at, np.asarray(values, dtype=np.float64))

    def __call__(self, expected: Any) -> Any:
        """Return calibrated values, of the library and on the device of those expected."""
        xp, device = namespace_and_device(expected=expected)
        raw = to_numpy(expected)
        values = np.interp(raw, self.expected, self.achieved).astype(raw.dtype)
        return as_array(xp, device, values)
