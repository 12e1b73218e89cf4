"""Averages of label statistics: what FBetaEnsemble and FBetaAuto share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn import config_context

from fbeta._array import host_copy, is_tensor, optional_import
from fbeta.estimators.base import all_or_nothing, drop_weightless, in_blocks, views
from fbeta.estimators.folds import Calibration
from fbeta.estimators.members import split_pipeline
from fbeta.estimators.statistics_base import StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.statistics.codes import Estimates
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["AverageClassifier", "AverageModel", "Clock", "Progress"]

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

    def statistics(self, X: Any) -> LabelStatistics:
        """Return the average of the statistics for n rows."""
        seen = [X if mapping is None else mapping.transform(X) for mapping in self.maps]
        parts = []
        for member, place in zip(self.members, self.places, strict=True):
            steps, last = split_pipeline(member)
            Z = seen[place] if steps is None else steps.transform(seen[place])
            parts.append(last.predict_statistics(Z))
        return LabelStatistics.mixture(parts, self.weights)


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
            X, Y, weight = drop_weightless(*draft._read_training(X, y, sample_weight))
            if self.device is None or is_tensor(X):
                draft._model = draft._search(X, Y, weight, report)
            else:
                torch = optional_import("torch", "torch", f"device={self.device!r}")
                if not isinstance(X, np.ndarray):
                    raise TypeError(f"device={self.device!r} needs a dense array X, got {type(X)}")
                with config_context(array_api_dispatch=True):
                    moved = torch.asarray(X, device=self.device)
                    draft._model = host_copy(draft._search(moved, Y, weight, report))
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
