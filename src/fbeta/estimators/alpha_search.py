"""The choice of alpha by cross-validation, with one pass along the path for each fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fbeta._array import (
    array_namespace,
    check_number,
    is_accelerator,
    namespace_and_device,
    to_numpy,
)
from fbeta.decoding.exact import exact_decode
from fbeta.estimators import folds
from fbeta.estimators.base import MultiLabelClassifier, all_or_nothing, views
from fbeta.estimators.folds import ALPHAS, Calibration, HeldOutScores
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Alphas, Rows, Weight
from fbeta.metrics import fbeta_per_instance, fbeta_score
from fbeta.statistics.codes import Code

if TYPE_CHECKING:
    from fbeta.blocks.passes import RowSource

MAX_SCALE_RATIO = 1e3  # of the ranges of columns that one alpha penalises alike


def _score_rows(estimator: Any, code: Code, model: Any, rows: Any) -> tuple[float, float]:
    """Return the sum of the F_beta of some rows under a model, and of their weights."""
    fitted, beta = clone(estimator).adopt(code, model), estimator.beta  # for several threads
    found = fitted.decide(rows.X, [beta], expected=False, checked=True)
    weight = rows.X.shape[0] if rows.weight is None else float(rows.weight.sum())
    score = fbeta_score(rows.Y, to_numpy(found.labels[beta]), beta, sample_weight=rows.weight)
    return score * weight, weight


def _where_it_has(method: Callable[..., Any]) -> Any:
    """Make a method available to searches whose estimator has it."""
    return available_if(lambda search: hasattr(search.estimator, method.__name__))(method)


class AlphaSearchCV(MultiLabelClassifier):
    """Any estimator of the library with its alpha chosen by cross-validation.

    Picks the alpha with the best instance-averaged F_beta over the folds - the largest of those
    that tie - and fits with it to all rows. Has ``predict_proba``, ``predict_statistics`` and
    ``expected_fbeta`` where the estimator has them, as for :class:`fbeta.FBetaClassifier`.

    Parameters
    ----------
    estimator : estimator
        With a parameter ``alpha``; it is cloned, its ``beta`` is the measure.
    alphas : sequence of float
        The strengths of regularisation to try.
    cv : int, splitter or iterable of (train, test)
        A number of shuffled folds, or as in scikit-learn; splitters for multi-label data get Y as
        a 0/1 array.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.
    prune : bool
        Whether to leave out strengths that are too weak, by the rule below.

    Attributes
    ----------
    alpha_, best_score_ : float
        The chosen strength, and its mean F_beta over the folds.
    cv_results_ : dict
        ``"alpha"``, ``"split{i}_test_score"``, ``"mean_test_score"``, ``"std_test_score"`` and
        ``"rank_test_score"``, each of shape (number of strengths,). Scores of strengths that were
        left out are NaN, and their rank is the last.
    best_estimator_ : estimator
        Fitted to all rows with the chosen strength.
    calibration_ : Calibration or None
        From the expected F_beta to the one achieved on held-out rows, for estimators that expect
        something.

    Warns
    -----
    UserWarning
        Where the best of at least three strengths is the first or the last, and better than the
        next by more than 0.001 and two standard errors: the best may lie beyond. Where the ranges
        of the columns differ by more than a factor of 1000, and one alpha cannot suit them all.

    Notes
    -----
    Each fold goes from the strongest to the weakest strength, and weaker ones take the most time.
    It leaves out those that are left once both of these hold, on its held-out rows:

    - the best strength so far beats the label set that is best for all rows alike by more than 0.01
      and by more than two standard errors;
    - at least two strengths in a row, the last of them at most a tenth of the one before the first,
      did not gain: their mean F_beta was below that of the best before them plus 0.001, even with
      two standard errors added.

    Standard errors are those of the mean of paired differences over the rows: small folds leave
    out little, large ones what is flat or falls. A strength that any fold has left out cannot be
    chosen.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> search = AlphaSearchCV(FBetaClassifier(), alphas=[0.1, 1.0, 1000.0]).fit(X, Y)
    >>> search.alpha_ in (0.1, 1.0, 1000.0)
    True
    """

    state_version = 2

    def __init__(
        self,
        estimator: Any,
        *,
        alphas: Alphas = ALPHAS,
        cv: Any = 5,
        n_jobs: int | None = None,
        prune: bool = True,
    ) -> None:
        self.estimator, self.alphas, self.cv, self.n_jobs = estimator, alphas, cv, n_jobs
        self.prune = prune

    @classmethod
    def upgrade_state(
        cls, version: int, params: dict[str, Any], state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a search that was stored before there was a calibration."""
        return {"prune": False, **params}, {"calibration_": None, **state}

    beta, _streams = views("estimator", "beta", "_streams")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags, tags.array_api_support = own.input_tags, own.array_api_support
        return tags

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, groups: Any = None
    ) -> Self:
        """Search for alpha, fit with it to all rows, and return the search.

        Parameters
        ----------
        X, y, sample_weight
            As for the estimator; the weights count in fits and scores.
        groups : array-like of shape (n,), optional
            For splitters that need them.
        """
        estimator = self.estimator
        if not isinstance(estimator, MultiLabelClassifier) or not hasattr(estimator, "alpha"):
            raise TypeError(
                f"estimator must be an estimator of fbeta with a parameter alpha, got {estimator!r}"
            )
        with all_or_nothing(self) as draft:
            source = draft._open(X, y, sample_weight)
            if source is not None:
                draft._fit_blocks(source)
            else:
                features, Y, weight = draft._read_training(X, y, sample_weight)
                draft._search(features, Y, weight, groups)
                best = clone(estimator).set_params(alpha=draft.alpha_)
                weights = {} if weight is None else {"sample_weight": weight}
                draft.best_estimator_ = best.fit(X, y, **weights)
        return self

    def _fit_blocks(self, source: RowSource) -> None:
        if not isinstance(self.estimator, StatisticsClassifier):
            super()._fit_blocks(source)
        from fbeta.blocks.problems import BlockProblems

        best = clone(self.estimator)
        best.scan(source)
        self._set_scanned(source)
        rows = source.rows()
        if rows is not None:
            self._search(rows.X, rows.Y, rows.weight)
            self.best_estimator_ = best.set_params(alpha=self.alpha_).fit_scanned(source)
            return
        grid, (code, learner, name) = check_grid(self.alphas), best.plan(source.witnesses)
        problems = BlockProblems(source, code, learner, self.cv)
        self._rank(grid, problems.scores(grid, partial(_score_rows, self.estimator)))
        best.set_params(alpha=self.alpha_)
        self.best_estimator_ = best.adopt(code, problems.fit(self.alpha_, name))

    def _search(self, X: Any, Y: Indicator, weight: Weight, groups: Any = None) -> None:
        """Score every alpha on every fold, and choose the best of those that no fold left out."""
        estimator, grid = self.estimator, check_grid(self.alphas)
        beta = estimator.beta
        _warn_of_scales(X)
        parts = folds.make_folds(self.cv, X, Y, weight, groups)

        on_device = is_accelerator(namespace_and_device(X=X)[1])

        def expect(fitted: MultiLabelClassifier, held: Any) -> NDArray[np.float64] | None:
            values = fitted.decide(held, [beta], checked=True).expected.get(beta)
            return None if values is None else to_numpy(values)

        def look(fitted: MultiLabelClassifier, held: Any, rows: Rows, _: float) -> HeldOutScores:
            # a device takes longer for expected values than for the rest; one alpha needs them
            later = on_device and fitted.rule is not exact_decode
            found = fitted.decide(held, [beta], expected=not later, checked=True)
            achieved = fbeta_per_instance(Y[rows], to_numpy(found.labels[beta]), beta)
            if later:
                return HeldOutScores(achieved, partial(expect, fitted, held))
            expected = found.expected.get(beta)
            return HeldOutScores(achieved, None if expected is None else to_numpy(expected))

        def stop(fold: folds.Fold) -> Callable[[float, HeldOutScores], bool]:
            constant = folds.constant_scores(Y, *fold, beta, weight)
            is_over = folds.pruning(constant, None if weight is None else weight[fold[1]])
            return lambda alpha, found: is_over(alpha, found.achieved)

        options: Any = {"folds": parts, "alphas": grid, "n_jobs": self.n_jobs}
        options["stop"] = stop if self.prune else None
        found = folds.over_folds(look, estimator, X, Y, weight, **options)
        shares = folds.row_shares(parts, weight)
        best = self._rank(grid, folds.score_table(grid, found, shares))
        share = np.concatenate(shares)
        _warn_of_edge(grid, best, found, share)
        achieved, given, *_ = zip(*(fold[self.alpha_] for fold in found), strict=True)
        self.calibration_, expected = None, [e() if callable(e) else e for e in given]
        if expected[0] is not None:
            both = np.concatenate(expected), np.concatenate(achieved)
            self.calibration_ = Calibration.of(self.beta, *both, share)

    def _rank(self, grid: list[float], scores: NDArray[np.float64]) -> int:
        """Choose an alpha by the scores of the folds, (number of alphas, folds)."""
        mean = scores.mean(axis=1)
        best = folds.best_place(mean)
        self.alpha_, self.best_score_ = grid[best], float(mean[best])
        order = np.where(np.isnan(mean), -np.inf, mean)
        self.cv_results_: dict[str, NDArray[Any]] = {
            "alpha": np.array(grid),
            **{f"split{i}_test_score": scores[:, i] for i in range(scores.shape[1])},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=1),
            "rank_test_score": 1 + (order[None, :] > order[:, None]).sum(axis=1),
        }
        return best

    def estimates(self, X: Any, *, checked: bool = False) -> Iterator[Any]:
        """Yield the output of the model of the best estimator for some rows of X at a time."""
        check_is_fitted(self)
        yield from self.best_estimator_.estimates(X, checked=checked)

    (_rule,) = views("best_estimator_", "rule")
    predict_statistics = _where_it_has(StatisticsClassifier.predict_statistics)
    predict_proba = _where_it_has(StatisticsClassifier.predict_proba)
    expected_fbeta = _where_it_has(StatisticsClassifier.expected_fbeta)


def check_grid(alphas: Any) -> list[float]:
    """Return distinct strengths, the weakest first."""
    if np.ndim(alphas) != 1:
        raise ValueError(f"alphas must be a sequence of numbers, got {alphas!r}")
    grid = sorted({check_number("alphas", a) for a in alphas})
    if not grid:
        raise ValueError("alphas is empty: there is nothing to choose from")
    return grid


def _warn_of_edge(
    grid: list[float], best: int, found: list[dict[float, HeldOutScores]], share: Weight
) -> None:
    """Warn where the best strength is the first or the last, and the scores still rise there."""
    if len(grid) < 3 or best not in (0, len(grid) - 1):
        return
    inner = grid[1] if best == 0 else grid[-2]
    if not all(inner in fold for fold in found):
        return
    one, other = (
        np.concatenate([fold[alpha].achieved for fold in found]) for alpha in (grid[best], inner)
    )
    gain, error = folds.difference(one, other, share)
    if gain > max(folds.MIN_GAIN, folds.STANDARD_ERRORS * error):
        way = "weaker" if best == 0 else "stronger"
        warnings.warn(
            f"alpha={grid[best]:g} is the {way[:-1]}st of the strengths, and {gain:.3f} better "
            f"than alpha={inner:g}: try {way} ones",
            stacklevel=4,
        )


def _warn_of_scales(X: Any) -> None:
    """Warn where one strength cannot suit all columns."""
    if hasattr(X, "tocsc"):
        ranges = np.abs(X).max(axis=0).toarray().ravel()
    else:
        xp = array_namespace(X)
        ranges = to_numpy(xp.max(X, axis=0) - xp.min(X, axis=0))
    ranges = ranges[ranges > 0]
    if len(ranges) and ranges.max() > MAX_SCALE_RATIO * ranges.min():
        factor = ranges.max() / ranges.min()
        warnings.warn(
            f"the ranges of the columns of X differ by a factor of {factor:.0e}"
            ", and alpha holds for all of them: scale them first, for instance by StandardScaler",
            stacklevel=4,
        )
