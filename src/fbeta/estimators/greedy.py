"""Which statistics to average: greedy forward selection, with replacement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["GAIN", "greedy_counts"]

#: What another member has to add to the score.
GAIN = 1e-4
# members of an average, repetitions included
MOST = 40


def greedy_counts(
    parts: Sequence[LabelStatistics],
    score: Callable[[LabelStatistics], float],
    *,
    gain: float = GAIN,
    most: int = MOST,
) -> tuple[NDArray[np.intp], float]:
    """Choose how often each of several statistics counts in an average.

    Starts with the one that scores best, and adds, again and again, the one - new or there already
    - with which the average scores best, until that gains less than ``gain``. The first of several
    that score alike is taken.

    Parameters
    ----------
    parts : sequence of LabelStatistics
        Of the same n instances.
    score : callable
        Of statistics of these instances, to be made high.
    gain : float
        Least gain.
    most : int
        Most members, repetitions included.

    Returns
    -------
    counts : ndarray of shape (len(parts),)
    score : float
        Of the average.

    Examples
    --------
    >>> parts = [LabelStatistics.from_labels([[1, 0], [1, 0]]),
    ...          LabelStatistics.from_labels([[0, 1], [0, 1]])]
    >>> counts, value = greedy_counts(parts, lambda q: 1 - abs(q.marginals()[0, 1] - 1 / 3))
    >>> counts.tolist(), round(value, 3)
    ([2, 1], 1.0)
    """
    counts = np.zeros(len(parts), dtype=np.intp)
    total, best = None, -np.inf
    while counts.sum() < most:
        m = int(counts.sum())
        averages = [
            part if total is None else LabelStatistics.mixture([total, part], [m, 1])
            for part in parts
        ]
        scores = [score(average) for average in averages]
        i = int(np.argmax(scores))
        if not scores[i] >= best + gain:
            break
        counts[i] += 1
        # the average of many is one: each step averages two, however many there are
        total, best = averages[i].unfolded().astype(np.float32), scores[i]
    return counts, float(best)
