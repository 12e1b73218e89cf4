"""Loss matrices as products of two factors: by singular values, and the paper's for F_beta."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fbeta._validation import check_beta, check_count
from fbeta.metrics import fbeta_of_counts
from fbeta.statistics.label_statistics import encode

__all__ = ["all_labelsets", "factorise", "fbeta_factors"]

Factors: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class FactorCode:
    """The factors of a loss as soft targets of classes."""

    A: NDArray[np.float64]  # (n_classes, r)
    B: NDArray[np.float64]  # (r, n_predictions)

    def targets(self, classes: NDArray[np.intp]) -> sp.csc_array:
        """Return the factors of given classes between 0 and 1, of shape (n, r)."""
        low, span = self._range()
        return sp.csc_array((self.A - low)[classes] / span)

    def losses(self, P: NDArray[Any]) -> NDArray[np.float64]:
        """Return the expected loss of each prediction, for expected targets of shape (n, r)."""
        low, span = self._range()
        return np.asarray((low + span * np.asarray(P, dtype=np.float64)) @ self.B)

    def _range(self) -> tuple[float, float]:
        return float(self.A.min()), float(np.ptp(self.A)) or 1.0


def factorise(L: ArrayLike) -> Factors:
    """Factorise a loss matrix by singular values: ``L = A @ B`` with as few factors as can be.

    Parameters
    ----------
    L : array-like of shape (n_classes, n_predictions)
        ``L[y, yhat]`` is the loss of predicting yhat for y.

    Returns
    -------
    A : ndarray of shape (n_classes, r)
    B : ndarray of shape (r, n_predictions)

    Examples
    --------
    >>> A, B = factorise([[0, 1, 2], [0, 2, 4]])
    >>> A.shape, (A @ B).round(12).tolist()
    ((2, 1), [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]])
    """
    L = np.asarray(L, dtype=np.float64)
    if L.ndim != 2 or 0 in L.shape or not np.isfinite(L).all():
        raise ValueError(f"the loss matrix must be finite and have two dimensions, got {L.shape}")
    U, sizes, V = np.linalg.svd(L, full_matrices=False)
    rank = max(1, int((sizes > max(L.shape) * np.finfo(np.float64).eps * sizes[0]).sum()))
    return U[:, :rank] * sizes[:rank], V[:rank]


def all_labelsets(n_labels: int) -> NDArray[np.int8]:
    """Return all subsets of s labels: small ones first, then those with the first labels first.

    Parameters
    ----------
    n_labels : int
        Number of labels s.

    Returns
    -------
    int8 ndarray of shape (2^s, s)

    Examples
    --------
    >>> all_labelsets(2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    s = check_count("n_labels", n_labels)
    sets = [c for size in range(s + 1) for c in combinations(range(s), size)]
    out = np.zeros((len(sets), s), dtype=np.int8)
    for i, members in enumerate(sets):
        out[i, list(members)] = 1
    return out


def fbeta_factors(n_labels: int, beta: float = 1.0) -> Factors:
    """Return the paper's factors of ``-F_beta`` over all 2^s label sets.

    ``a_y`` holds ``1(|y| = 0)`` and ``1(|y| = k) y_j``; ``b_yhat`` holds ``-1(|yhat| = 0)`` and
    ``-(1 + beta^2) yhat_j / (beta^2 k + |yhat|)``. There are s^2 + 1 of them.

    Parameters
    ----------
    n_labels : int
        Number of labels s.
    beta : float > 0
        Weight of recall against precision.

    Returns
    -------
    A : ndarray of shape (2^s, 1 + s^2)
    B : ndarray of shape (1 + s^2, 2^s)
        With label sets in the order of :func:`all_labelsets`.

    Examples
    --------
    >>> A, B = fbeta_factors(2)
    >>> (A @ B).round(3).tolist()[3]
    [0.0, -0.667, -0.667, -1.0]
    """
    beta = check_beta(beta)
    sets = all_labelsets(n_labels).astype(np.float64)
    cardinalities = np.arange(1, n_labels + 1)
    A = encode(sp.csr_array(sets.astype(np.int8)), cardinalities).toarray().astype(np.float64)
    size = sets.sum(axis=1)
    weight = fbeta_of_counts(1, cardinalities[None, :, None], size[:, None, None], beta)
    joint = (weight * sets[:, None, :]).reshape(len(sets), -1)
    return A, -np.concatenate([(size == 0)[:, None], joint], axis=1).T
