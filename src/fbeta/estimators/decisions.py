"""Label sets for several betas from one run of a model, also of held-out rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sklearn.pipeline import Pipeline

from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["Decisions", "HeldOut", "decide"]


@dataclass(frozen=True)
class Decisions:
    """Label sets of n rows for several betas, from one run of a model.

    Attributes
    ----------
    labels : dict
        From beta to label sets, bool of shape (n, s).
    expected : dict
        From beta to the expected F_beta of each label set, of shape (n,); empty where the estimator
        has no label statistics or it was not asked for.
    marginals : array of shape (n, s), or None
        The probability of each label, where it was asked for.
    """

    labels: dict[float, Any]
    expected: dict[float, Any] = field(default_factory=dict)
    marginals: Any = None


def decide(
    estimator: Any, X: Any, betas: Sequence[float] | None = None, **options: Any
) -> Decisions:
    """Call ``decide`` of a fitted estimator, or of the last step of a pipeline.

    The transformers of a pipeline are run once. Parameters are those of
    :meth:`MultiLabelClassifier.decide`.
    """
    if isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    decisions: Decisions = estimator.decide(X, betas, **options)
    return decisions


@dataclass(frozen=True)
class HeldOut:
    """An estimator that was fitted to other rows, and the held-out rows as its model takes them."""

    estimator: Any
    rows: Any

    def decide(self, beta: float) -> tuple[Any, Any]:
        """Return the label sets (n, s), and their expected F_beta or None."""
        found = self.estimator.decide(self.rows, [beta], checked=True)
        return found.labels[beta], found.expected.get(beta)

    def labels(self, beta: float) -> Any:
        """Return the predicted label sets, of shape (n, s)."""
        return self.estimator.decide(self.rows, [beta], expected=False, checked=True).labels[beta]

    def statistics(self) -> LabelStatistics:
        """Return the label statistics, of estimators that have them."""
        return LabelStatistics.concatenate(list(self.parts()))

    def parts(self) -> Iterator[LabelStatistics]:
        """Yield the label statistics of some rows at a time."""
        for estimates in self.estimator.estimates(self.rows, checked=True):
            yield estimates.statistics()
