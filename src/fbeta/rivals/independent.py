"""The F_beta-optimal label set of independent labels.

With independent labels the best set of each size has the labels with the largest marginals, and
:func:`fbeta.decode` uses that by itself, in O(s k) for each instance and sizes up to k with weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.decoding.exact import decode
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["decode_independent"]


def decode_independent(P: Any, beta: float = 1.0) -> NDArray[np.int8]:
    """Find the label set with the highest expected F_beta when labels are independent.

    Exact over all 2^s sets. Ties go to the smaller set and, within a size, to the labels that
    come first.

    Parameters
    ----------
    P : array-like of shape (n, s)
        ``P(y_j = 1 | x_i)``.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    int8 array of shape (n, s)
        Predicted label sets, 0/1.

    Examples
    --------
    >>> decode_independent([[0.9, 0.5, 0.1], [0.1, 0.1, 0.1]]).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    return decode(LabelStatistics.from_marginals(P), beta)
