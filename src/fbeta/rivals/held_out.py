"""Classifiers that fit to one part of the rows, and choose by F_beta on the other."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fbeta._validation import check_choice, check_number
from fbeta.estimators.base import MultiLabelClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.metrics import AVERAGES


@dataclass(eq=False, repr=False)
class HeldOutClassifier(MultiLabelClassifier):
    """A classifier that chooses something by the F_beta on rows that it was not fitted to."""

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    average: str = "instance"
    validation_fraction: float = 0.25
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    random_state: Any = None

    def _parts(self, X: Any, Y: Indicator, weight: Weight) -> list[tuple[Any, Indicator, Weight]]:
        """Return the features, labels and weights to fit to, and those to choose by."""
        check_choice("average", self.average, AVERAGES)
        parts = split_rows(X, weight, self.validation_fraction, self.random_state)
        return [(X[rows], Y[rows], None if weight is None else weight[rows]) for rows in parts]


def split_rows(
    X: Any, weight: NDArray[np.float64] | None, fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of two random parts, equal rows on the same side; none is empty.

    The second part has the share ``fraction`` of the weight. A row's side depends on what it holds
    and not on its position: a row of weight 2 is treated as the same row twice, and no copy of a
    row that was fitted is used for choosing.
    """
    fraction = check_number("validation_fraction", fraction, strict=True)
    if fraction >= 1:
        raise ValueError(f"validation_fraction must be below 1, got {fraction!r}")
    key = check_random_state(random_state).bytes(16)
    distinct, which = np.unique(_digests(X, key), return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(
            f"n_samples = 1 distinct row in X (of {X.shape[0]}): two are needed to choose on other "
            "rows than those that are fitted"
        )
    share = np.bincount(which, weights=weight)
    before = np.cumsum(share) - share / 2
    chosen = before < fraction * share.sum()
    chosen[0], chosen[-1] = True, False
    return np.flatnonzero(~chosen[which]), np.flatnonzero(chosen[which])


def _digests(X: Any, key: bytes) -> NDArray[np.uint64]:
    """Return a keyed hash of each row, equal for equal rows."""
    X = sp.csr_array(X, copy=True)
    X.eliminate_zeros()
    X.sort_indices()
    columns, out = X.indices.astype(np.int64), np.empty(X.shape[0], dtype=np.uint64)
    for i, (start, stop) in enumerate(zip(X.indptr[:-1], X.indptr[1:], strict=True)):
        row = columns[start:stop].tobytes() + X.data[start:stop].tobytes()
        out[i] = int.from_bytes(blake2b(row, key=key, digest_size=8).digest(), "little")
    return out
