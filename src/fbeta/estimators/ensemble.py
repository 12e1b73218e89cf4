"""The average of the statistics of several estimators, chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fbeta.estimators.alpha_search import check_grid
from fbeta.estimators.base import views
from fbeta.estimators.calibration import Calibration, calibrate
from fbeta.estimators.features import pass_features_on
from fbeta.estimators.folds import ALPHAS, make_folds
from fbeta.estimators.greedy import greedy_counts
from fbeta.estimators.members import Candidate, Trial, fit_member, statistics_of
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Learner, Names, Weight
from fbeta.statistics.codes import Code
from fbeta.statistics.label_statistics import LabelStatistics, observed_cardinalities

__all__ = ["AverageCode", "AverageModel", "EnsembleLearner", "FBetaEnsemble",
           "calibrated_expectation", "leaderboard", "weights_by_name"]  # fmt: skip


@dataclass(frozen=True)
class AverageCode(Code):
    """No code: the model gives statistics."""

    members: int = 1  # of the average, for what a row of it takes

    @classmethod
    def of(cls, Y: Indicator, members: int) -> AverageCode:
        """Make it for the labels of Y, of shape (n, s)."""
        return cls(observed_cardinalities(Y), Y.shape[1], members)

    def width(self) -> int:
        """Return how many numbers the statistics of all members have for each row, at most."""
        return self.members * (1 + max(1, len(self.cardinalities)) * self.n_labels)

    def targets(self, Y: Indicator) -> Indicator:
        """Return the labels."""
        return Y

    def statistics(self, P: LabelStatistics) -> LabelStatistics:
        """Return what the model gave."""
        return P


@dataclass(frozen=True)
class AverageModel:
    """Fitted estimators over fitted feature maps, and what each counts.

    Attributes
    ----------
    maps : list
        Transformers; None for the features as they are.
    members : list
        Estimators or pipelines with statistics.
    places : list of int
        The map of each member.
    weights : list of float
        What each counts; they sum to 1.
    calibration : Calibration
        Of the average, on held-out rows.
    score : float
        Of the average, in cross-validation.
    leaderboard : list of dict
        What was tried.
    """

    maps: list[Any]
    members: list[Any]
    places: list[int]
    weights: list[float]
    calibration: Calibration
    score: float
    leaderboard: list[dict[str, Any]] = field(default_factory=list)

    def probabilities(self, X: Any) -> LabelStatistics:
        """Return the average of the statistics for n rows."""
        seen = [X if mapping is None else mapping.transform(X) for mapping in self.maps]
        parts = [
            statistics_of(member, seen[place])
            for member, place in zip(self.members, self.places, strict=True)
        ]
        return LabelStatistics.mixture(parts, self.weights)


def leaderboard(candidates: Sequence[Candidate], weights: Sequence[float]) -> list[dict[str, Any]]:
    """List what was tried: name, score in cross-validation, seconds and weight, the best first."""
    rows = [
        {
            "name": candidate.name,
            "score": candidate.score,
            "seconds": round(candidate.seconds, 3),
            "weight": float(weight),
        }
        for candidate, weight in zip(candidates, weights, strict=True)
    ]
    return sorted(rows, key=lambda row: -row["score"])


# Two estimators share what follows. They are no base of each other, and have it as attributes.


def weights_by_name(average: Any) -> dict[str, float]:
    """Return what each member of a fitted average counts, by name."""
    return {row["name"]: row["weight"] for row in average.leaderboard_}


def calibrated_expectation(
    self: Any, X: Any, *, beta: float | None = None, calibrated: bool = True, **limits: Any
) -> Any:
    """Estimate the F_beta of each prediction, as :meth:`fbeta.AlphaSearchCV.expected_fbeta`.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Features.
    beta : float, optional
        That of the estimator by default.
    calibrated : bool
        Whether to put right what the statistics say by what the average achieved on held-out rows;
        not for another beta, nor with limits.
    **limits : int
        ``min_labels`` and ``max_labels``.

    Returns
    -------
    ndarray of shape (n,)
    """
    raw = StatisticsClassifier.expected_fbeta(self, X, beta=beta, **limits)
    return calibrate(raw, self.calibration_ if calibrated and not limits else None, beta)


@dataclass(frozen=True)
class EnsembleLearner(Learner):
    """Tries out estimators, chooses weights, and fits those that count to all rows."""

    estimators: Sequence[tuple[str, Any]]
    beta: float
    cv: Any
    alphas: Any
    n_jobs: int | None
    verbose: int

    def __post_init__(self) -> None:
        if self.alphas is not None:
            check_grid(self.alphas)
        names = [name for name, _ in self.estimators]
        if not names:
            raise ValueError("estimators is empty: there is nothing to average")
        if len(set(names)) < len(names):
            raise ValueError(f"the names of the estimators must differ, got {names}")
        for name, estimator in self.estimators:
            last = estimator[-1] if hasattr(estimator, "steps") else estimator
            if not hasattr(last, "predict_statistics"):
                raise TypeError(f"estimator {name!r} has no predict_statistics: {estimator!r}")

    def fit(
        self, X: Any, targets: Indicator, weight: Weight, alpha: Any = None, name: Names = str
    ) -> AverageModel:
        """Fit to labels of shape (n, s)."""
        folds = make_folds(self.cv, X, targets, weight)
        trial = Trial(targets, weight, folds, self.beta, self.n_jobs)
        candidates = []
        for own, estimator in self.estimators:
            candidates.append(trial.try_out(own, estimator, X, self.alphas))
            if self.verbose:
                last = candidates[-1]
                print(f"{own}: F_{self.beta:g} {last.score:.4f}, {last.seconds:.1f} s")
        parts = [candidate.statistics for candidate in candidates]
        counts, score = greedy_counts([part.unfolded() for part in parts], trial.score())
        weights = (counts / counts.sum()).tolist()
        members = [
            fit_member(candidate.estimator, X, targets, weight)
            for candidate, count in zip(candidates, counts, strict=True)
            if count
        ]
        return AverageModel(
            [None], members, [0] * len(members), [w for w in weights if w],
            trial.calibration(LabelStatistics.mixture(parts, counts)), score,
            leaderboard(candidates, weights),
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class FBetaEnsemble(StatisticsClassifier):
    """The average of the label statistics of several estimators, chosen by cross-validation.

    The expected F_beta is linear in the statistics, so those of several models can be averaged and
    decoded once. Every estimator is fitted to the training rows of each fold, for all its
    strengths of regularisation, and the best of these is kept. Starting with the estimator whose
    predictions for held-out rows score best, the one is added, again and again, whose statistics
    bring the average most, until that is less than 0.0001. What has a weight is fitted to all rows.

    Parameters
    ----------
    estimators : list of (str, estimator)
        With ``predict_statistics``; or pipelines that end with such an estimator. Their own beta
        does not matter.
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
        From the names of the estimators to what they count; the values sum to 1.
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

    leaderboard_, best_score_, calibration_ = views("_model", "leaderboard", "score", "calibration")

    weights_ = property(weights_by_name)

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        return pass_features_on(self, X, reset=reset)

    def _make_code(self, Y: Indicator) -> AverageCode:
        return AverageCode.of(Y, len(self.estimators))

    def _make_learner(self) -> EnsembleLearner:
        return EnsembleLearner(
            self.estimators, self.beta, self.cv, self.alphas, self.n_jobs, self.verbose
        )

    expected_fbeta = calibrated_expectation
