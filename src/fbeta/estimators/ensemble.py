"""The average of the statistics of several estimators, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fbeta.estimators.alpha_search import check_grid
from fbeta.estimators.auto_search import Clock, Search
from fbeta.estimators.average import AverageClassifier, AverageModel
from fbeta.estimators.features import pass_features_on
from fbeta.estimators.folds import ALPHAS, make_folds
from fbeta.estimators.members import Trial, as_candidates
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight

__all__ = ["FBetaEnsemble"]


@dataclass(eq=False, repr=False)
class FBetaEnsemble(AverageClassifier):
    """The average of the label statistics of several estimators, chosen by cross-validation.

    The expected F_beta is linear in the statistics, so those of several models can be averaged and
    decoded once. Every estimator is fitted to the training rows of each fold, for all its
    strengths of regularisation, and the best of these is kept. Weights are those with which the
    average of the statistics of the held-out rows comes closest to the labels, in the squared error
    of what the decoder computes of them; those below 0.02 are dropped. Where one estimator alone
    has an F_beta that is higher by more than a standard error, it is taken alone. What has a weight
    is fitted to all rows.

    Parameters
    ----------
    estimators : list of (str, estimator)
        Estimators of this library with ``predict_statistics``, or any classifiers with
        ``predict_proba``, which become :class:`fbeta.SizedClassifier` of them; or pipelines that
        end with either. Their own beta does not matter.
    beta : float > 0
        The measure to be optimal for.
    cv : int, splitter or iterable of (train, test)
        As for :class:`fbeta.AlphaSearchCV`.
    alphas : sequence of float, or None
        The strengths to choose from for estimators with a parameter ``alpha``, whatever its value;
        None to leave each as it is. An :class:`fbeta.AlphaSearchCV` brings its own.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib.
    verbose : int
        Whether to print a line for every estimator.

    Attributes
    ----------
    weights_ : dict
        From the names of the estimators to their weights, which sum to 1.
    leaderboard_ : list of dict
        ``"name"``, ``"score"`` (the mean F_beta over the folds), ``"seconds"`` and ``"weight"`` of
        each estimator, the best first.
    best_score_ : float
        The mean F_beta over the folds of the average. The choice was made on the same rows.
    calibration_ : Calibration
        From the expected F_beta of the average to the one achieved on held-out rows.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Examples
    --------
    >>> from fbeta import FBetaClassifier, SizedClassifier
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> members = [("joint", FBetaClassifier()), ("sized", SizedClassifier())]
    >>> clf = FBetaEnsemble(members, alphas=[0.1, 1.0], cv=3).fit(X, Y)
    >>> round(sum(clf.weights_.values()), 6), len(clf.leaderboard_), clf.predict(X).shape
    (1.0, 2, (200, 3))
    """

    estimators: Any
    beta: float = 1.0
    cv: Any = 5
    _: KW_ONLY
    alphas: Sequence[float] | None = ALPHAS
    n_jobs: int | None = None
    verbose: int = 0

    _encodes_tables = False

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return pass_features_on(self, X, reset=reset)

    def _search(self, X: Any, Y: Indicator, weight: Weight, report: Any) -> AverageModel:
        if self.alphas is not None:
            check_grid(self.alphas)
        models = as_candidates(self.estimators, "estimators")
        if not models:
            raise ValueError("estimators is empty: there is nothing to average")
        trial = Trial(Y, weight, make_folds(self.cv, X, Y, weight), self.beta, self.n_jobs)
        search = Search(X, trial, Clock(), report, {"": None}, models, alphas=self.alphas)
        return search.run([("", name) for name in models], keep_errors=True)
