"""The automatic classifier: feature maps, models and their weights by cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fbeta._validation import check_number
from fbeta.estimators.auto_search import PAIRS, Clock, Search
from fbeta.estimators.base import views
from fbeta.estimators.ensemble import (
    AverageCode,
    AverageModel,
    calibrated_expectation,
    weights_by_name,
)
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, Names, Weight

__all__ = ["AutoLearner", "FBetaAuto"]


@dataclass(frozen=True)
class AutoLearner(Learner):
    """Searches for feature maps, models and weights."""

    beta: float
    time_limit: float | None
    cv: Any
    n_jobs: int | None
    random_state: Any
    verbose: int

    def __post_init__(self) -> None:
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, strict=True)

    def fit(
        self, X: Any, targets: Indicator, weight: Weight, alpha: Any = None, name: Names = str
    ) -> AverageModel:
        """Fit to labels of shape (n, s)."""
        clock = Clock(perf_counter, self.time_limit)

        def tell(words: str) -> None:
            if self.verbose:
                print(f"{clock.elapsed:7.1f} s  {words}", flush=True)

        search = Search.over(
            X, targets, weight, clock, tell, beta=self.beta, cv=self.cv, n_jobs=self.n_jobs,
            rng=check_random_state(self.random_state),
        )  # fmt: skip
        return search.run()


@dataclass(eq=False, repr=False)
class FBetaAuto(StatisticsClassifier):
    """Multi-label classifier that chooses everything by itself, for the highest F_beta.

    Tries several estimates of the label statistics - the paper's, sizes and marginals, the
    cardinality model, label sets, forests - over several maps of the features - as they are,
    standardised, rows of length 1, TF-IDF, kernel features - and averages the statistics of those
    that serve it best on held-out rows. The paper's method on the raw features is among what is
    tried, as far as time allows, and the average is never worse than it on these rows.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for. One fitted model serves every other beta too.
    time_limit : float, optional
        Seconds that ``fit`` may take, about: a step that has begun is not always cut short, and one
        model is fitted however short the time. By default everything is tried.
    cv : int, splitter or iterable of (train, test)
        As for :class:`fbeta.AlphaSearchCV`.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.
    random_state : int, RandomState or None
        Of forests, of the landmarks of kernels, and of the rows that weights are chosen on.
    verbose : int
        Whether to print a line for everything that is tried.

    Attributes
    ----------
    leaderboard_ : list of dict
        ``"name"`` (map and model), ``"score"`` (the mean F_beta over the folds), ``"seconds"`` and
        ``"weight"`` of everything that was tried, the best first.
    best_score_ : float
        The mean F_beta over the folds of the average. Weights were chosen on the same rows.
    weights_ : dict
        From the names to the weights, which sum to 1.
    calibration_ : Calibration
        From the expected F_beta of the average to the one achieved on held-out rows.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Notes
    -----
    X is dense or sparse, of any scale, and may have gaps (NaN): they are filled with the median of
    the column, and columns that say where there were gaps are added. The maps are fitted to all
    training rows, without their labels, and shared by all folds.

    First come the quickest model over one map, and the paper's method on the raw features; then
    every map with the quickest model, and forests; then every model over the best map. What is
    left is tried in the order of what it may gain in a second, if the effects of maps and models on
    score and time add up. With a time limit nothing may take more than 60 % of what is left for
    trials. Weights are those with which the average of the statistics of the held-out rows comes
    closest, in the squared error of what the decoder makes of them, to the labels; those below
    0.02 are dropped. If the paper's method alone has the higher F_beta, it is taken. Of large
    data, as many rows are kept for this as fit into half a gigabyte. With a time limit and more
    than 2000 rows, a first model is fitted to 2000 of them, and is what remains if nothing else is
    ready in time. Models with more than a gigabyte of coefficients are left out.

    Examples
    --------
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(120, n_labels=2, n_features=6)
    >>> clf = FBetaAuto(time_limit=2, cv=3, random_state=0).fit(X, Y)
    >>> clf.predict(X).shape, round(sum(clf.weights_.values()), 6)
    ((120, 2), 1.0)
    """

    beta: float = 1.0
    _: KW_ONLY
    time_limit: float | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    leaderboard_, best_score_, calibration_ = views("_model", "leaderboard", "score", "calibration")

    weights_ = property(weights_by_name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )  # fmt: skip

    def _make_code(self, Y: Indicator) -> AverageCode:
        return AverageCode.of(Y, PAIRS)

    def _make_learner(self) -> AutoLearner:
        return AutoLearner(
            self.beta, self.time_limit, self.cv, self.n_jobs, self.random_state, self.verbose
        )

    expected_fbeta = calibrated_expectation

    def summary(self) -> str:
        """Say in words and a table what was chosen, and why.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        rows = self.leaderboard_
        chosen = [row for row in rows if row["weight"] > 0]
        lines = [
            f"F_{self.beta:g} of held-out rows: {self.best_score_:.4f} with the average of "
            f"{len(chosen)} out of {len(rows)} that were tried; the best of them alone has "
            f"{rows[0]['score']:.4f}.",
            "",
            f"{'weight':>6}  {'F':>6}  {'seconds':>7}  map: model",
        ]
        for row in rows:
            weight = f"{row['weight']:.2f}" if row["weight"] else ""
            numbers = f"{weight:>6}  {row['score']:>6.4f}  {row['seconds']:>7.1f}"
            lines.append(f"{numbers}  {row['name']}")
        return "\n".join(lines)
