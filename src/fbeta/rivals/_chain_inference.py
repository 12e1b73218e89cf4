"""Label sets and their probabilities under a chain of conditional models.

``P(y | x) = prod_t P(y_t | x, y_1, ..., y_{t-1})`` with ``P(y_t = 1 | ...) = 1 / (1 + exp(-u_t))``
and scores ``u_t = b_t(x) + sum_{r < t} y_r c_tr``. Positions t follow the order of the chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta.losses import LogisticLoss
from fbeta.statistics.label_statistics import LabelStatistics

sigmoid = LogisticLoss().inverse_link


@dataclass(frozen=True)
class Candidates:
    """Weighted label sets of n instances."""

    sets: NDArray[np.bool_]  # (n, m, s), or (1, m, s) where all instances share them
    weight: NDArray[np.float64]  # (n, m), shares of a distribution over the sets, of sum 1
    probability: NDArray[np.float64]  # (n, m), the model's probability of each set

    def mode(self) -> NDArray[np.bool_]:
        """Return the set with the highest probability, of shape (n, s)."""
        best = self.probability.argmax(axis=1)
        row = np.arange(len(best)) if len(self.sets) > 1 else np.zeros(len(best), dtype=np.intp)
        return np.asarray(self.sets[row, best])

    def statistics(self) -> LabelStatistics:
        """Return the statistics of the distribution ``weight`` over the sets."""
        if len(self.sets) == 1:
            return LabelStatistics.from_distribution(self.weight, self.sets[0].astype(np.int8))
        sizes = self.sets.sum(axis=2)
        cardinalities = np.unique(sizes[sizes > 0])
        share = self.weight[:, None, :] * (sizes[:, None, :] == cardinalities[None, :, None])
        joint = share @ self.sets.astype(np.float64)
        return LabelStatistics((self.weight * (sizes == 0)).sum(axis=1), joint, cardinalities)


def enumerate_sets(B: NDArray[Any], chain: NDArray[Any]) -> Candidates:
    """Compute the probability of every label set.

    Parameters
    ----------
    B : ndarray of shape (n, s)
        Scores ``b_t(x_i)``.
    chain : ndarray of shape (s, s)
        ``c_tr``, zero unless r < t.

    Returns
    -------
    Candidates
        All 2^s sets, shared by the instances.

    Examples
    --------
    >>> found = enumerate_sets(np.zeros((1, 2)), np.array([[0.0, 0.0], [np.inf, 0.0]]))
    >>> found.sets[0].astype(int).tolist(), found.probability.tolist()
    ([[0, 0], [1, 0], [0, 1], [1, 1]], [[0.25, 0.0, 0.25, 0.5]])
    """
    n, s = B.shape
    sets = np.zeros((1, s), dtype=np.bool_)
    probability = np.ones((n, 1))
    for t in range(s):
        present = sigmoid(B[:, t, None] + _offset(sets, chain, t)[None, :])
        probability = np.concatenate([probability * (1 - present), probability * present], axis=1)
        sets = np.concatenate([sets, sets])
        sets[len(sets) // 2 :, t] = True
    return Candidates(sets[None], probability, probability)


def search_beam(B: NDArray[Any], chain: NDArray[Any], width: int) -> Candidates:
    """Keep the ``width`` most probable beginnings of each instance, label by label.

    Parameters
    ----------
    B, chain : ndarray
        As for :func:`enumerate_sets`.
    width : int
        Number of sets to keep.

    Returns
    -------
    Candidates
        At most ``width`` sets for each instance; the weights are the probabilities divided by
        their sum.
    """
    n, s = B.shape
    sets = np.zeros((n, 1, s), dtype=np.bool_)
    probability = np.ones((n, 1))
    for t in range(s):
        present = sigmoid(B[:, t, None] + _offset(sets, chain, t))
        both = np.concatenate([probability * (1 - present), probability * present], axis=1)
        m = probability.shape[1]
        kept = np.argsort(-both, axis=1, kind="stable")[:, :width]
        probability = np.take_along_axis(both, kept, axis=1)
        sets = np.take_along_axis(sets, (kept % m)[:, :, None], axis=1)
        sets[:, :, t] = kept >= m
    return Candidates(sets, probability / probability.sum(axis=1, keepdims=True), probability)


def sample_sets(B: NDArray[Any], chain: NDArray[Any], uniforms: NDArray[np.float64]) -> Candidates:
    """Sample label sets from the chain, label by label.

    Parameters
    ----------
    B, chain : ndarray
        As for :func:`enumerate_sets`.
    uniforms : ndarray of shape (m, s)
        Uniform random numbers of ``m`` samples. All instances use the same ones, so that the
        samples of an instance do not depend on which others are predicted with it.

    Returns
    -------
    Candidates
        ``m`` sets for each instance, with equal weights.
    """
    (n, s), m = B.shape, len(uniforms)
    sets = np.zeros((n, m, s), dtype=np.bool_)
    log_probability = np.zeros((n, m))
    for t in range(s):
        present = sigmoid(B[:, t, None] + _offset(sets, chain, t))
        sets[:, :, t] = uniforms[None, :, t] < present
        chosen = np.where(sets[:, :, t], present, 1 - present)
        log_probability += np.log(np.maximum(chosen, np.finfo(np.float64).tiny))
    return Candidates(sets, np.full((n, m), 1 / m), np.exp(log_probability))


def _offset(sets: NDArray[np.bool_], chain: NDArray[Any], t: int) -> NDArray[Any]:
    """Return ``sum_{r < t} y_r c_tr`` for each set."""
    out: NDArray[Any] = np.where(sets[..., :t], chain[t, :t], 0.0).sum(axis=-1)
    return out
