"""What a model expects of its predictions, put right by what it got on rows it had not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from fbeta._array import as_array, namespace_and_device, to_numpy
from fbeta.linear.learner import Weight

__all__ = ["Calibration", "calibrate"]

# rows in a group, at least, and groups, at most: a mean over fewer rows follows their noise
ROWS, GROUPS = 25, 20
# rows that a straight line counts for in every group, and the slope 1 in the line
LINE, SLOPE = 25, 20


@dataclass(frozen=True)
class Calibration:
    """A non-decreasing map from the expected F_beta to the one that was achieved.

    Held-out rows are sorted by what was expected of them and put into groups of the same size, at
    most 20 of them with at least 25 rows each. Few rows say little: in every group a straight line
    through all rows counts for 25 more, and in the line a slope of 1 for 20. An isotonic regression
    of the mean F_beta that the groups achieved on the mean that was expected gives the values at
    these means; the map is linear between them and constant beyond the first and the last.

    Attributes
    ----------
    beta : float
        The measure that it is for.
    expected, achieved : ndarray of shape (k,)
        Increasing means of the groups, and the values at them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> expected = rng.uniform(size=500)
    >>> achieved = (rng.uniform(size=500) < expected / 2).astype(float)  # half of what it says
    >>> calibration = Calibration.of(1.0, expected, achieved)
    >>> bool(abs(calibration(np.array([0.2, 0.8])) - [0.1, 0.4]).max() < 0.1)
    True
    """

    beta: float
    expected: NDArray[np.float64]
    achieved: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        beta: float,
        expected: NDArray[np.float64],
        achieved: NDArray[np.float64],
        weight: Weight = None,
    ) -> Calibration:
        """Learn from held-out rows; the three arrays have shape (n,) with n >= 1."""
        weight = np.ones(len(expected)) if weight is None else weight
        order = np.argsort(expected, kind="stable")
        n_groups = int(np.clip(len(order) // ROWS, 1, GROUPS))
        groups = [rows for rows in np.array_split(order, n_groups) if weight[rows].any()]
        x, y, total = np.array(
            [
                (expected[rows] @ weight[rows], achieved[rows] @ weight[rows], weight[rows].sum())
                for rows in groups
            ]
        ).T
        # groups of which the same is expected, up to rounding, are one
        at, place = np.unique(np.round(x / total, 12), return_inverse=True)
        y, total = np.bincount(place, y), np.bincount(place, total)
        # weights count rows, whatever their unit is
        y, total = (a * (len(order) / total.sum()) for a in (y, total))
        y, total = y + LINE * _line(expected, achieved, weight)(at), total + LINE
        values = isotonic_regression(y / total, sample_weight=total, y_min=0.0, y_max=1.0)
        return cls(float(beta), at, np.asarray(values, dtype=np.float64))

    def __call__(self, expected: Any) -> Any:
        """Return calibrated values, of the library and on the device of those expected."""
        xp, device = namespace_and_device(expected=expected)
        raw = to_numpy(expected)
        values = np.interp(raw, self.expected, self.achieved).astype(raw.dtype)
        return as_array(xp, device, values)


def _line(
    expected: NDArray[np.float64], achieved: NDArray[np.float64], weight: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return a line through what was achieved, never falling, with values in [0, 1]."""
    share = weight / weight.sum()
    x, y = float(expected @ share), float(achieved @ share)
    spread, both = ((expected - x) ** 2) @ share, ((expected - x) * (achieved - y)) @ share
    n = len(expected)
    slope = max(0.0, (n * both + SLOPE * spread) / ((n + SLOPE) * spread)) if spread > 0 else 0.0
    return lambda at: np.clip(y + slope * (at - x), 0.0, 1.0)


def calibrate(raw: Any, calibration: Calibration | None, beta: float | None) -> Any:
    """Put right what was expected, where it is known how: for one beta, or for None."""
    if calibration is None or beta not in (None, calibration.beta):
        return raw
    return calibration(raw)
