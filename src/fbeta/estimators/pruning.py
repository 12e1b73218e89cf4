"""When a path of strengths of regularisation need not be followed any further."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.exact import decode
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.metrics import fbeta_per_instance
from fbeta.statistics import LabelStatistics, encode, observed_cardinalities

# what counts as a gain, and how far the best has to be above what needs no features
GAIN, RISE = 1e-3, 1e-2
# strengths without a gain after which a path ends, at least, and how far they reach, at least
PATIENCE, REACH = 2, 10.0
# standard errors of a difference
ERRORS = 2.0


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
    Y: Indicator, train: NDArray[np.intp], test: NDArray[np.intp], beta: float, weight: Weight
) -> NDArray[np.float64]:
    """Return F_beta of each test row where all get the set that is best without any features."""
    cardinalities = observed_cardinalities(Y[train])
    code = encode(Y[train], cardinalities).T.astype(np.float64)
    share = np.ones(len(train)) if weight is None else weight[train]
    mean = (code @ share / share.sum())[None, :]
    labels = decode(LabelStatistics.from_code(mean, cardinalities, Y.shape[1]), beta)
    return fbeta_per_instance(Y[test], np.repeat(labels, len(test), axis=0), beta)


@dataclass
class Pruning:
    """Looks at the scores of one fold from the strongest to the weakest strength.

    See :class:`fbeta.AlphaSearchCV` for the rule.
    """

    constant: NDArray[np.float64]  # (n,), scores of the test rows without features
    weight: Weight  # of the test rows
    best: NDArray[np.float64] | None = None
    before: float = np.inf  # the last strength that gained
    idle: int = 0  # strengths since

    def is_over(self, alpha: float, scores: NDArray[np.float64]) -> bool:
        """Take the scores of the next strength, and tell whether weaker ones are left out."""
        if self.best is None:
            self.best, self.before = scores, alpha
            return False
        gain, error = difference(scores, self.best, self.weight)
        if gain + ERRORS * error >= GAIN:
            self.before, self.idle = alpha, 0
        else:
            self.idle += 1
        if gain > 0:
            self.best = scores
        rise, error = difference(self.best, self.constant, self.weight)
        risen = rise > max(RISE, ERRORS * error)
        return risen and self.idle >= PATIENCE and alpha * REACH <= self.before
