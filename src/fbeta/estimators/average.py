"""Averages of label statistics: what FBetaEnsemble and FBetaAuto share."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context

from fbeta._array import host_copy, is_tensor, optional_import
from fbeta._threads import periodic_check
from fbeta.estimators.base import all_or_nothing, in_blocks, views
from fbeta.estimators.folds import Calibration, folds_of_rest
from fbeta.estimators.members import (
    Candidate,
    Trial,
    at_most,
    fit_member,
    leaderboard,
    split_pipeline,
)
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight, drop_weightless
from fbeta.statistics import observed_cardinalities
from fbeta.statistics.codes import Estimates, LabelSetCode
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["AverageClassifier", "AverageModel", "Clock", "Progress"]

PROBE_ALPHAS = 6.0  # alphas of a path, about, each of which takes as long as a probe
# of the time limit that a probe may take; on accelerators the first one compiles kernels
PROBE_SHARE, PROBE_SHARE_ACCELERATOR = 0.03, 0.15
ACCELERATOR_ROWS = 30_000  # fewer rows take as long on accelerators
PROBE_ROWS = 400  # rows that predict the time of a model
MAX_ROW_BYTES = 1 << 17  # of the statistics of all members for one row, as an estimate


@dataclass(frozen=True)
class Progress:
    """An event of a search, for those who show its progress."""

    name: str  # of the candidate
    event: str  # "begin", "scored", "left out", "fit" (to all rows) or "stopped" (interrupted)
    score: float | None  # F_beta of the candidate on held-out rows
    best: float | None  # the highest so far
    elapsed: float  # seconds since the search began
    limit: float | None  # its time limit
    detail: str = ""  # a reason

    def __str__(self) -> str:
        score = "" if self.score is None else f" {self.score:.4f}, best {self.best:.4f}"
        detail = f" {self.event}, {self.detail}" if self.detail else f" {self.event}"
        return f"{self.elapsed:7.1f} s  {self.name}:{score or detail}"


Report: TypeAlias = Callable[[Progress], object]


@dataclass
class Clock:
    """Time since a search began, with a deadline for what is running."""

    now: Callable[[], float] = perf_counter
    limit: float | None = None
    deadline: float = np.inf
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.now()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.now() - self.begin

    def check(self) -> None:
        """Raise an error after the deadline."""
        if self.elapsed > self.deadline:
            raise TimeoutError


@dataclass(frozen=True)
class AverageModel:
    """Fitted estimators over fitted feature maps, and their weights."""

    maps: list[Any]  # transformers; None for the features as they are
    members: list[Any]  # estimators or pipelines with statistics
    places: list[int]  # the map of each member
    weights: list[float]  # they sum to 1
    calibration: Calibration  # of the average, on held-out rows
    score: float  # F_beta of the average on held-out rows
    leaderboard: list[dict[str, Any]] = field(default_factory=list)  # what was tried
    cardinalities: Any = None  # (K,), sizes of label sets that have statistics

    # of a linear member, in the library of X
    coef = property(lambda self: next((m.coef_ for m in self.members if hasattr(m, "coef_")), None))

    def statistics(self, X: Any) -> LabelStatistics:
        """Return the average of the statistics for n rows."""
        seen = [X if mapping is None else mapping.transform(X) for mapping in self.maps]
        parts = []
        for member, place in zip(self.members, self.places, strict=True):
            steps, last = split_pipeline(member)
            Z = seen[place] if steps is None else steps.transform(seen[place])
            parts.append(last.predict_statistics(Z))
        return LabelStatistics.mixture(parts, self.weights)


def check_may_fail(error: Exception, name: str, built_in: bool, needed: bool) -> None:
    """Raise the error of a candidate that is needed or has a bug; warn of one of the user."""
    numerical = ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError
    bug = built_in and not isinstance(error, numerical)
    if needed or bug or isinstance(error, CancelledError):
        error.add_note(f"the candidate is {name!r}")
        raise error
    if not built_in:
        why = f"{type(error).__name__}: {error}"
        warnings.warn(f"the candidate {name!r} is left out: {why}", UserWarning, stacklevel=2)


def probed_seconds(search: Any, name: str, kind: str, trees: int | None = None) -> float:
    """Return the seconds that a model will take over a map, by those of a fit to a few rows.

    Of models with so many ``trees`` or more, a few of them are fitted to all rows of a fold.
    """
    model, mapping, small = search.models[kind], search.maps[name], search.part(PROBE_ROWS)
    repeats = PROBE_ALPHAS if hasattr(model, "alpha") and not search.narrow else 1.0
    if trees is None:
        mapping = at_most(mapping, "n_components", PROBE_ROWS)
    else:  # all trees take the same time
        repeats, model = model.n_estimators / trees, at_most(model, "n_estimators", trees)
        one = replace(search.trial, folds=search.trial.folds[:1])
        small = replace(small, X=search.X, trial=one, seen=search.seen)
    small.maps, begin, share = {name: mapping}, search.clock.now(), PROBE_SHARE
    if search.on_accelerator:
        share = PROBE_SHARE_ACCELERATOR
    small.clock.deadline = share * float(search.clock.limit or np.inf)
    try:
        with periodic_check(small.clock.check):
            small.trial.try_out("", model, small.features(name)[1], (1.0,))
    except (TimeoutError, MemoryError):
        return np.inf
    except Exception:  # the trial on all rows has it too, and says so
        return 0.0
    seconds, (few, held) = search.clock.now() - begin, small.trial.folds[0]
    trained = sum(len(train) for train, _ in search.trial.folds)
    growth = max(1.0, trained / ACCELERATOR_ROWS) if search.on_accelerator else trained / len(few)
    if kind.endswith("neighbours"):  # every held-out row has a distance to each training row
        growth *= len(search.trial.folds[0][1]) / len(held)
    if kind == "label sets":  # every row has a score for each of them
        all_sets, some = (LabelSetCode.of(t.Y).sets for t in (search.trial, small.trial))
        growth *= all_sets.shape[0] / some.shape[0]
    return float(max(1.0, repeats) * seconds * growth)


def fit_average(
    judged: Trial,
    trial: Trial,
    candidates: Sequence[Candidate],
    pairs: Sequence[tuple[str, str]],
    weights: NDArray[np.float64],
    features: Callable[[int], tuple[Any, Any]],
) -> AverageModel:
    """Fit the candidates that have a weight, by pairs of a map and a model, to a trial's rows.

    ``judged`` is the trial that they were scored in; ``features`` returns the fitted map of a
    candidate, and its features of the rows.
    """
    mixture = LabelStatistics.mixture([c.statistics for c in candidates], weights)
    calibration, score = judged.calibration(mixture)
    chosen = sorted(np.flatnonzero(weights).tolist(), key=lambda i: pairs[i][0])
    maps, fits, fitted = dict[str, Any](), list[Any](), dict[Any, Any]()
    for i in chosen:
        maps[pairs[i][0]], Z = features(i)
        estimator, one = candidates[i].estimator, fitted.get(pairs[i])
        fitted[pairs[i]] = fit_member(estimator, Z, trial.Y, trial.weight, one)
        fits.append(fitted[pairs[i]])
    places = [list(maps).index(pairs[i][0]) for i in chosen]
    average = list(maps.values()), fits, places, [float(weights[i]) for i in chosen]
    sizes, board = observed_cardinalities(trial.Y), leaderboard(candidates, weights)
    return AverageModel(*average, calibration, score, board, sizes)


class AverageClassifier(StatisticsClassifier):
    """Base of the two estimators that average label statistics, chosen on held-out rows."""

    state_version = 2
    verbose: int
    device: str | None
    _model: AverageModel  # type: ignore[assignment]

    leaderboard_, best_score_, calibration_ = views("_model", "leaderboard", "score", "calibration")
    (cardinalities_,) = views("_model", "cardinalities")

    @classmethod
    def upgrade_state(
        cls, version: int, params: dict[str, Any], state: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read an average that was stored with a code of its own."""
        if "_code" in state:
            sizes = state["_code"].cardinalities
            state = {**state, "_model": replace(state["_model"], cardinalities=sizes)}
            del state["_code"]
        return params, state

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each member, by name."""
        return {row["name"]: row["weight"] for row in self.leaderboard_}

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        progress: Report | None = None,
    ) -> Self:
        """Try candidates on held-out rows, and fit those that have a weight to all rows.

        A fit that fails leaves the estimator as it was. The first KeyboardInterrupt (Ctrl-C) ends
        the search, and the best average so far is fitted; if nothing was scored yet, and for a
        second one, KeyboardInterrupt is raised and the estimator is left as it was.

        Parameters
        ----------
        X : features of n rows
            As the candidates take them.
        y : labels of n instances
            As for :meth:`fbeta.FBetaClassifier.fit`.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.
        progress : callable, optional
            Called with a ``Progress`` whenever something was tried.

        Returns
        -------
        estimator
            Itself.
        """

        def report(event: Progress) -> None:
            if self.verbose and event.event != "begin":
                print(event, flush=True)
            if progress is not None:
                progress(event)

        with all_or_nothing(self) as draft:
            if in_blocks(X):
                name = type(self).__name__
                raise TypeError(f"{name} cannot be fitted to blocks of rows: pass arrays")
            rows = draft._read_training(X, y, sample_weight)
            draft.cv = folds_of_rest(self.cv, *rows)
            X, Y, weight = drop_weightless(*rows)
            if self.device is None or is_tensor(X):
                draft._model = draft._search(X, Y, weight, report)
            else:
                torch = optional_import("torch", "torch", f"device={self.device!r}")
                if not isinstance(X, np.ndarray):
                    raise TypeError(f"device={self.device!r} needs a dense array X, got {type(X)}")
                with config_context(array_api_dispatch=True):
                    moved = torch.asarray(X, device=self.device)
                    draft._model = host_copy(draft._search(moved, Y, weight, report))
            draft.cv = self.cv
        return self

    @abstractmethod
    def _search(self, X: Any, Y: Indicator, weight: Weight, report: Report) -> AverageModel:
        """Return the fitted average; ``report`` is told what was tried."""

    def _output(self, X: Any) -> Any:
        return Estimates(None, self._model.statistics(X))

    def _row_bytes(self) -> int:
        # members bound their own memory; kept below a limit, so that maps are applied to many rows
        width = 1 + max(1, len(self.cardinalities_)) * self.n_labels_
        return int(min(8 * len(self._model.members) * width, MAX_ROW_BYTES))
