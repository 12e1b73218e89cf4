"""Rules: from what a model says of the labels, and beta, to label sets.

A rule is called with what the model of an estimator gives for n rows and with beta, and returns
booleans of shape (n, s).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import array_namespace
from fbeta.decoding.exact import decode, expected_fbeta
from fbeta.statistics.codes import Estimates

__all__ = ["CutAtHalf", "ExactDecode", "SignOfScores", "StatisticsRule", "check_same_beta"]


class StatisticsRule(ABC):
    """A rule that reads :class:`fbeta.statistics.codes.Estimates`."""

    @abstractmethod
    def __call__(self, output: Estimates, beta: float) -> Any:
        """Return label sets, of shape (n, s)."""

    def expected(self, output: Estimates, beta: float) -> Any:
        """Return the expected F_beta of the label sets under the statistics, of shape (n,)."""
        return self.decide(output, beta)[1]

    def decide(self, output: Estimates, beta: float, **goal: Any) -> tuple[Any, Any]:
        """Return label sets, and the F_beta to be expected of them under the statistics."""
        labels = self(output, beta)
        return labels, expected_fbeta(output.statistics(), labels, beta)


@dataclass(frozen=True)
class ExactDecode(StatisticsRule):
    """The label set with the highest expected F_beta."""

    def __call__(self, output: Estimates, beta: float, **goal: Any) -> Any:
        """Decode the statistics, by the measure and within the limits of :func:`fbeta.decode`."""
        return self.decide(output, beta, **goal)[0]

    def decide(self, output: Estimates, beta: float, **goal: Any) -> tuple[Any, Any]:
        """Return the label sets, and the value that the decoder maximises."""
        labels, expected = decode(output.statistics(), beta, return_expected=True, **goal)
        xp = array_namespace(labels)
        return xp.astype(labels, xp.bool), expected


@dataclass(frozen=True)
class CutAtHalf(StatisticsRule):
    """The labels that are more likely than not, whatever beta."""

    def __call__(self, output: Estimates, beta: float) -> Any:
        """Cut the marginals at 1/2."""
        return output.marginals() > 0.5


@dataclass(frozen=True)
class SignOfScores:
    """The labels with positive scores, of a model that was fitted for one beta.

    Examples
    --------
    >>> SignOfScores(1.0)(np.array([[0.2, -0.1]]), 1.0).tolist()
    [[True, False]]
    """

    beta: float

    def __call__(self, output: NDArray[Any], beta: float) -> NDArray[np.bool_]:
        """Cut the scores at 0."""
        check_same_beta(beta, self.beta)
        return np.asarray(output > 0)


def check_same_beta(beta: float, fitted: float) -> None:
    """Raise where a model that was fitted for one measure is asked to predict for another."""
    if beta != fitted:
        raise ValueError(
            f"the model was fitted for beta={fitted:g} and depends on it: to predict for "
            f"beta={beta:g}, fit again"
        )
