"""The output code y -> a_y, and its conditional expectation q: all that a decoder needs.

For s labels, ``a_y`` has one component for "no labels" and one for each pair of a size k and a
label j: ``1(|y| = k) y_j``. Their expectations given x are the label statistics ``q_0 = P(y = 0 |
x)`` and ``q_jk = P(|y| = k, y_j = 1 | x)``. They do not depend on beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fbeta._validation import check_choice
from fbeta.labels import Indicator, form_of

__all__ = ["LabelStatistics", "encode", "observed_cardinalities"]


def observed_cardinalities(Y: Indicator, which: str = "seen") -> NDArray[np.intp]:
    """Return the sizes k for which statistics are kept.

    Parameters
    ----------
    Y : csr_array of shape (n, s)
        0/1 indicator.
    which : {"seen", "all"}
        The sizes that occur in ``Y``, or all of 1..s.

    Returns
    -------
    ndarray of shape (K,)
        Increasing, without 0.
    """
    check_choice("cardinalities", which, ("seen", "all"))
    if which == "all":
        return np.arange(1, Y.shape[1] + 1)
    sizes = np.unique(np.diff(Y.indptr)).astype(np.intp)
    return sizes[sizes > 0]


def encode(Y: Indicator, cardinalities: NDArray[np.intp]) -> sp.csc_array:
    """Return the targets of every binary problem: a_y for each row.

    Column 0 is ``1(|y| = 0)``; column ``1 + k s + j`` is ``1(|y| = cardinalities[k]) y_j``. Each
    label of a row is in one column only, so the targets hold as many ones as ``Y`` (and one for
    each empty row), however many problems there are.

    Parameters
    ----------
    Y : csr_array of shape (n, s)
        0/1 indicator without explicit zeros.
    cardinalities : ndarray of shape (K,)
        Increasing sizes; rows of other sizes are in no column.

    Returns
    -------
    csc_array of shape (n, 1 + K s)
        0/1 targets, int8.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, 1], [0, 1], [0, 0]], dtype=np.int8))
    >>> encode(Y, np.array([1, 2])).toarray().tolist()
    [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]
    """
    n, s = Y.shape
    sizes = np.diff(Y.indptr)
    slot = np.full(s + 1, -1)
    slot[cardinalities] = np.arange(len(cardinalities))
    row = np.repeat(np.arange(n), sizes)
    k = slot[sizes[row]]
    row, column = row[k >= 0], (1 + k * s + Y.indices)[k >= 0]
    empty = np.flatnonzero(sizes == 0)
    rows = np.concatenate([empty, row])
    columns = np.concatenate([np.zeros(len(empty), dtype=np.intp), column])
    ones = np.ones(len(rows), dtype=np.int8)
    return sp.csc_array((ones, (rows, columns)), shape=(n, 1 + len(cardinalities) * s))


@dataclass(frozen=True)
class LabelStatistics:
    """The statistics q(x) of n instances: everything the decoder needs, for every beta.

    Parameters
    ----------
    empty : ndarray of shape (n,)
        ``P(no labels | x_i)``.
    joint : ndarray of shape (n, K, s)
        ``joint[i, k, j] = P(|y| = cardinalities[k], y_j = 1 | x_i)``.
    cardinalities : ndarray of shape (K,)
        Increasing sizes in 1..s; the joint probabilities of all other sizes are zero.

    Notes
    -----
    Any finite non-negative numbers are accepted: independent estimates of the components need not
    be the statistics of a distribution.

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.9, 0.5]])
    >>> q.joint.round(3).tolist(), q.empty.round(3).tolist()
    ([[[0.45, 0.05], [0.45, 0.45]]], [0.05])
    >>> q.marginals().round(3).tolist()
    [[0.9, 0.5]]
    """

    empty: NDArray[Any]
    joint: NDArray[Any]
    cardinalities: NDArray[np.intp]

    def __post_init__(self) -> None:
        empty, joint = np.asarray(self.empty), np.asarray(self.joint)
        cardinalities = np.asarray(self.cardinalities)
        for name, value in (("empty", empty), ("joint", joint), ("cardinalities", cardinalities)):
            object.__setattr__(self, name, value)
        if joint.ndim != 3 or empty.shape != joint.shape[:1]:
            raise ValueError(
                "empty must have shape (n,) and joint (n, K, s), "
                f"got {empty.shape} and {joint.shape}"
            )
        if cardinalities.shape != joint.shape[1:2]:
            raise ValueError(
                f"cardinalities must have shape ({joint.shape[1]},), got {cardinalities.shape}"
            )
        _check_cardinalities(cardinalities, self.n_labels)
        _check_statistics("empty", empty)
        _check_statistics("joint", joint)

    def __len__(self) -> int:
        return len(self.empty)

    def __getitem__(self, rows: Any) -> LabelStatistics:
        """Return the statistics of some rows, given by a slice, mask or integer array."""
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        return LabelStatistics(self.empty[rows], self.joint[rows], self.cardinalities)

    @property
    def n_labels(self) -> int:
        """Number of labels s."""
        return int(self.joint.shape[2])

    def marginals(self) -> NDArray[Any]:
        """Return ``P(y_j = 1 | x_i)``, of shape (n, s)."""
        return np.asarray(self.joint.sum(axis=1))

    def cardinality_distribution(self) -> NDArray[Any]:
        """Return ``P(|y| = k | x_i)`` for k in 0..s, of shape (n, s + 1).

        By ``sum_j P(|y| = k, y_j = 1) = k P(|y| = k)``. For estimated statistics the rows need
        not sum to 1.
        """
        out = np.zeros((len(self), self.n_labels + 1), dtype=self.joint.dtype)
        out[:, 0] = self.empty
        out[:, self.cardinalities] = self.joint.sum(axis=2) / self.cardinalities
        return out

    @classmethod
    def from_labels(cls, Y: Any) -> LabelStatistics:
        """Build the statistics of label sets that are known: all mass on the given set.

        Parameters
        ----------
        Y : labels of n instances
            0/1 array or sparse matrix of shape (n, s), DataFrame, or sequence of label sets.

        Returns
        -------
        LabelStatistics
        """
        indicator = form_of(Y).read(Y)
        cardinalities = observed_cardinalities(indicator)
        code = encode(indicator, cardinalities).toarray().astype(np.float64)
        return cls.from_code(code, cardinalities, indicator.shape[1])

    @classmethod
    def from_code(
        cls, code: NDArray[Any], cardinalities: NDArray[np.intp], n_labels: int
    ) -> LabelStatistics:
        """Build statistics from the components in the order of :func:`encode`.

        Parameters
        ----------
        code : ndarray of shape (n, 1 + K s)
            Component 0 is ``q_0``, component ``1 + k s + j`` is ``q_jk``.
        cardinalities : ndarray of shape (K,)
            Increasing sizes in 1..s.
        n_labels : int
            Number of labels s.

        Returns
        -------
        LabelStatistics
        """
        joint = code[:, 1:].reshape(len(code), len(cardinalities), n_labels)
        return cls(code[:, 0], joint, cardinalities)

    def to_code(self) -> NDArray[Any]:
        """Return the components in the order of :func:`encode`, of shape (n, 1 + K s)."""
        return np.concatenate([self.empty[:, None], self.joint.reshape(len(self), -1)], axis=1)

    @classmethod
    def from_marginals(cls, P: ArrayLike) -> LabelStatistics:
        """Build the statistics of independent labels with the given marginals.

        ``q_jk = p_j P(k - 1 of the other labels)``; the distribution of the number of the other
        labels is Poisson-binomial and computed exactly, in O(s^2) for each instance.

        Parameters
        ----------
        P : array-like of shape (n, s)
            ``P(y_j = 1 | x_i)``.

        Returns
        -------
        LabelStatistics
            With all the cardinalities 1..s.
        """
        P = np.asarray(P, dtype=np.float64)
        if P.ndim != 2 or P.shape[1] == 0:
            raise ValueError(f"P must have shape (n, s) with s >= 1, got {P.shape}")
        if not ((P >= 0) & (P <= 1)).all():
            raise ValueError("P must hold probabilities in [0, 1]")
        sizes = poisson_binomial(P)
        joint = P[:, None, :] * _sizes_of_others(P, sizes)
        return cls(sizes[:, 0], joint, np.arange(1, P.shape[1] + 1))

    @classmethod
    def from_samples(cls, S: ArrayLike) -> LabelStatistics:
        """Build the empirical statistics of sampled label sets.

        Parameters
        ----------
        S : array-like of shape (n, m, s)
            ``m`` sampled label sets for each of ``n`` instances, 0/1.

        Returns
        -------
        LabelStatistics
            With the cardinalities that occur in the samples.
        """
        S = np.asarray(S)
        if S.ndim != 3 or 0 in S.shape[1:]:
            raise ValueError(f"S must have shape (n, m, s) with m, s >= 1, got {S.shape}")
        if not ((S == 0) | (S == 1)).all():
            raise ValueError("S must hold only 0 and 1")
        S = S.astype(np.float64)
        sizes = S.sum(axis=2).astype(np.intp)
        cardinalities = np.unique(sizes[sizes > 0])
        is_size = (sizes[:, None, :] == cardinalities[None, :, None]).astype(np.float64)
        return cls((sizes == 0).mean(axis=1), is_size @ S / S.shape[1], cardinalities)

    @classmethod
    def from_distribution(cls, probabilities: ArrayLike, labelsets: Any) -> LabelStatistics:
        """Build the statistics of a distribution over given label sets.

        Parameters
        ----------
        probabilities : array-like of shape (n, m)
            ``P(y = labelsets[l] | x_i)``.
        labelsets : labels of m sets
            0/1 array or sparse matrix of shape (m, s), DataFrame, or sequence of label sets.

        Returns
        -------
        LabelStatistics
            With the cardinalities that occur among the label sets.
        """
        probabilities = np.asarray(probabilities, dtype=np.float64)
        indicator = form_of(labelsets, "labelsets").read(labelsets, "labelsets")
        if probabilities.ndim != 2 or probabilities.shape[1] != indicator.shape[0]:
            raise ValueError(
                f"probabilities must have shape (n, {indicator.shape[0]}), one column for each "
                f"label set, got {probabilities.shape}"
            )
        cardinalities = observed_cardinalities(indicator)
        code = encode(indicator, cardinalities).astype(np.float64)
        # sparse @ dense, because the product of an ndarray with a sparse array is a loop
        return cls.from_code((code.T @ probabilities.T).T, cardinalities, indicator.shape[1])


def poisson_binomial(P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distribution of the number of successes of independent trials.

    Parameters
    ----------
    P : ndarray of shape (n, s)
        Probabilities of success.

    Returns
    -------
    ndarray of shape (n, s + 1)
        ``P(k successes)``.

    Examples
    --------
    >>> poisson_binomial(np.array([[0.5, 0.5]])).tolist()
    [[0.25, 0.5, 0.25]]
    """
    n, s = P.shape
    sizes = np.zeros((n, s + 1))
    sizes[:, 0] = 1
    for j in range(s):
        p = P[:, j, None]
        head = sizes[:, : j + 2]
        head[:, 1:] = head[:, 1:] * (1 - p) + head[:, :-1] * p
        head[:, 0] *= 1 - p[:, 0]
    return sizes


def _sizes_of_others(P: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide one trial out of a Poisson-binomial distribution, for each trial.

    The recurrence is run from the end at which it damps its own rounding errors: upwards for
    p <= 1/2, downwards for p > 1/2.

    Returns ``out[i, k, j] = P(k successes among the trials other than j)``, of shape (n, s, s).
    """
    n, s = P.shape
    low = P <= 0.5
    divisor = np.where(low, 1 - P, P)
    ratio = np.where(low, P, 1 - P) / divisor
    out = np.empty((n, s, s))
    others = np.zeros((n, s))
    for k in range(s):
        others = sizes[:, k, None] / divisor - ratio * others
        out[:, k, :] = others
    others = np.zeros((n, s))
    for k in reversed(range(s)):
        others = sizes[:, k + 1, None] / divisor - ratio * others
        out[:, k, :] = np.where(low, out[:, k, :], others)
    return np.clip(out, 0.0, 1.0)


def _check_cardinalities(cardinalities: NDArray[Any], s: int) -> None:
    if cardinalities.size == 0:
        return
    if cardinalities.dtype.kind not in "iu":
        raise ValueError(f"cardinalities must be integers, got {cardinalities.dtype}")
    outside = (cardinalities < 1) | (cardinalities > s)
    if outside.any():
        raise ValueError(f"cardinalities must lie in 1..{s}, got {cardinalities[outside][0]}")
    if (np.diff(cardinalities) <= 0).any():
        raise ValueError("cardinalities must increase strictly")


def _check_statistics(name: str, values: NDArray[Any]) -> None:
    if values.dtype.kind != "f":
        raise ValueError(f"{name} must be of a floating type, got {values.dtype}")
    if values.size == 0:
        return
    # min and max see NaN too, and make no temporary of the size of the array
    low, high = values.min(), values.max()
    if not np.isfinite(low) or not np.isfinite(high):
        raise ValueError(f"{name} contains NaN or infinity")
    if low < 0:
        raise ValueError(f"{name} must not be negative, found {low}")
