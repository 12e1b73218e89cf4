"""Which statistics to average: least squares of what the decoder makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fbeta.labels.forms import Indicator
from fbeta.metrics import fbeta_weight
from fbeta.statistics.label_statistics import LabelStatistics

__all__ = ["stacked_weights"]

NUMBERS = 1 << 22  # that are looked at together
RIDGE = 1e-9  # share of the mean square of the statistics that keeps equal ones apart
FIRM = 1e3  # how firmly weights are held to a sum of 1, before they are divided by it


def stacked_weights(
    parts: Sequence[LabelStatistics],
    truth: Indicator,
    beta: float = 1.0,
    share: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return weights, (m,), not negative and with the sum 1, for m statistics of n instances.

    A decoder needs of statistics what each label would add to a set of each size, and the
    probability of no labels. Weights are those with the least squared error of these numbers to
    those of the true labels (n, s), a proper score: its minimum is where the average has the right
    expectations. It is far less noisy than the F_beta of decoded sets, and convex. ``share``, (n,),
    weighs the instances.
    """
    sizes = np.unique(np.concatenate([_sizes(truth), *(part.cardinalities for part in parts)]))
    n, s = truth.shape
    share = np.full(n, 1 / n) if share is None else share
    predicted = np.arange(1, max(1, int(sizes.max(initial=1))) + 1)
    # q' A' A q for the table A of what a hit is worth, in as few numbers as there are sizes
    table = fbeta_weight(sizes[None, :].astype(float), predicted[:, None].astype(float), beta)
    root: NDArray[np.float64] = np.zeros((0, 0))
    if len(sizes):
        root = np.asarray(np.linalg.qr(np.asarray(table), mode="r"))
    m = len(parts)
    gram = np.zeros((m + 1, m + 1))
    rows = max(1, NUMBERS // ((m + 1) * (1 + s * max(1, len(sizes)))))
    for start in range(0, n, rows):
        own = slice(start, min(start + rows, n))
        index = np.arange(own.start, own.stop)
        labels = LabelStatistics.from_labels(truth[index].toarray())
        numbers = [_seen(q, sizes, root) for q in (*(part[index] for part in parts), labels)]
        values = np.stack(numbers) * np.sqrt(share[own])[:, None]
        flat = values.reshape(m + 1, -1)
        gram += flat @ flat.T
    return _on_the_simplex(gram[:m, :m], gram[:m, m])


def _sizes(truth: Indicator) -> NDArray[np.intp]:
    counts = np.asarray(truth.sum(axis=1)).ravel().astype(np.intp)
    return np.unique(counts[counts > 0])


def _seen(
    q: LabelStatistics, sizes: NDArray[np.intp], root: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what counts of statistics, of shape (n, 1 + K s)."""
    own = root[:, np.searchsorted(sizes, q.cardinalities)]
    turned = np.einsum("ak,nkj->naj", own, np.asarray(q.joint, dtype=np.float64))
    flat = turned.reshape(len(turned), -1)
    return np.concatenate([np.asarray(q.empty, dtype=np.float64)[:, None], flat], axis=1)


def _on_the_simplex(gram: NDArray[np.float64], cross: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise ``w' gram w / 2 - cross' w`` over weights that are not negative and sum to 1."""
    m = len(gram)
    size = max(float(np.trace(gram)) / m, 1e-300)
    lower = np.linalg.cholesky(gram / size + RIDGE * np.eye(m))
    design = np.vstack([lower.T, np.full(m, FIRM)])
    wanted = np.append(np.linalg.solve(lower, cross / size), FIRM)
    weights, _ = nnls(design, wanted)
    return np.asarray(weights / weights.sum())
