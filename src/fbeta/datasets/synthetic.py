"""The synthetic law of the paper: linear models suffice, and the truth is known.

A distribution p over the 2^s label sets is drawn from a Dirichlet law, its statistics q are
computed, and the instance is ``x = pinv(W) logit(q)`` for a fixed matrix W: so ``q(x) =
sigmoid(W x)``, the class of linear functions contains the optimum, and the Bayes-optimal
prediction at x follows from q(x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._validation import check_count
from fbeta.decoding.exact import decode, expected_fbeta
from fbeta.losses import LogisticLoss
from fbeta.statistics import LabelStatistics, encode

__all__ = ["CalibratedLaw", "CalibratedSample", "all_label_sets", "make_calibrated"]

MAX_LABELS = 14
# Dirichlet probabilities reach 1e-50 and their sums round to 1: the logit needs room on both sides
CLIP = 1e-12


def all_label_sets(n_labels: int) -> NDArray[np.int8]:
    """Return all the 2^s label sets, of shape (2^s, s)."""
    numbers = np.arange(2 ** check_count("n_labels", n_labels))[:, None]
    return ((numbers >> np.arange(n_labels)[::-1]) & 1).astype(np.int8)


@dataclass(frozen=True)
class CalibratedSample:
    """Instances of a :class:`CalibratedLaw` with the truth about them.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Features.
    Y : int8 ndarray of shape (n, s)
        Labels.
    statistics : LabelStatistics
        The true q(x) of each instance.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.int8]
    statistics: LabelStatistics

    def bayes_fbeta(self, beta: float = 1.0) -> float:
        """Return the highest F_beta that any classifier can expect on these instances."""
        return float(decode(self.statistics, beta, return_expected=True)[1].mean())

    def expected_fbeta(self, Y_pred: Any, beta: float = 1.0) -> float:
        """Return the F_beta to be expected of predictions, over the labels given the instances.

        Parameters
        ----------
        Y_pred : labels of n instances
            Predictions.
        beta : float > 0
            Weight of recall against precision.

        Returns
        -------
        float
        """
        return float(expected_fbeta(self.statistics, Y_pred, beta).mean())

    def regret(self, Y_pred: Any, beta: float = 1.0) -> float:
        """Return how far predictions fall short of the Bayes optimum, exactly, from the true q."""
        return self.bayes_fbeta(beta) - self.expected_fbeta(Y_pred, beta)


class CalibratedLaw:
    """The law of the paper's Section 7.1, for any number of labels and features.

    Parameters
    ----------
    n_labels : int
        Number of labels s, at most 14: there are 2^s label sets.
    n_features : int
        Number of features d, at least the number ``s^2 + 1`` of statistics.
    random_state : int or Generator
        For the matrix W in [0, 1] and the Dirichlet parameters in [0.1, 1].

    Attributes
    ----------
    W : ndarray of shape (s^2 + 1, d)
        ``q(x) = sigmoid(W x)``.
    concentration : ndarray of shape (2^s,)
        Parameters of the Dirichlet law.

    Examples
    --------
    >>> law = CalibratedLaw(n_labels=3, n_features=20, random_state=0)
    >>> sample = law.sample(5, random_state=1)
    >>> sample.X.shape, sample.Y.shape, sample.statistics.joint.shape
    ((5, 20), (5, 3), (5, 3, 3))
    """

    def __init__(
        self,
        n_labels: int = 6,
        n_features: int = 100,
        random_state: int | np.random.Generator = 0,
    ) -> None:
        s = check_count("n_labels", n_labels)
        if s > MAX_LABELS:
            raise ValueError(f"n_labels must be at most {MAX_LABELS}, got {n_labels}")
        check_count("n_features", n_features, low=s * s + 1)
        rng = np.random.default_rng(random_state)
        self.n_labels, self.n_features = s, n_features
        self.label_sets = all_label_sets(s)
        self.sizes = np.arange(1, s + 1)
        self._code = encode(sp.csr_array(self.label_sets), self.sizes).toarray().astype(float)
        self.W = rng.uniform(size=(s * s + 1, n_features))
        if np.linalg.matrix_rank(self.W) < len(self.W):
            raise ValueError("W does not have full row rank: choose another random_state")
        self._inverse = np.linalg.pinv(self.W)
        self.concentration = rng.uniform(0.1, 1.0, size=2**s)

    def sample(self, n: int, random_state: int | np.random.Generator = 0) -> CalibratedSample:
        """Draw instances with their labels and true statistics.

        Parameters
        ----------
        n : int
            Number of instances.
        random_state : int or Generator
            Source of randomness.

        Returns
        -------
        CalibratedSample
        """
        rng = np.random.default_rng(random_state)
        p = rng.dirichlet(self.concentration, size=check_count("n", n))
        chosen = (p.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
        Y = self.label_sets[np.minimum(chosen, len(self.label_sets) - 1)]
        code = p @ self._code
        X = LogisticLoss().link(np.clip(code, CLIP, 1 - CLIP)) @ self._inverse.T
        statistics = LabelStatistics.from_code(code, self.sizes, self.n_labels)
        return CalibratedSample(X, Y, statistics)


def make_calibrated(
    n_samples: int = 1000,
    n_labels: int = 6,
    n_features: int = 100,
    *,
    beta: float = 1.0,
    random_state: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.int8], LabelStatistics, float]:
    """Make data for which linear models are optimal and the optimum is known.

    Parameters
    ----------
    n_samples : int
        Number of instances.
    n_labels : int
        Number of labels s.
    n_features : int
        Number of features d, at least ``s^2 + 1``.
    beta : float > 0
        For the Bayes optimum.
    random_state : int
        Of the law and the sample; use :class:`CalibratedLaw` for several samples of one law.

    Returns
    -------
    X : ndarray of shape (n, d)
    Y : int8 ndarray of shape (n, s)
    statistics : LabelStatistics
        The true q(x).
    bayes : float
        The Bayes-optimal F_beta on these instances.

    Examples
    --------
    >>> X, Y, q, bayes = make_calibrated(100, n_labels=3, n_features=10)
    >>> X.shape, Y.shape, 0 < bayes < 1
    ((100, 10), (100, 3), True)
    """
    law_seed, sample_seed = np.random.SeedSequence(random_state).spawn(2)
    law = CalibratedLaw(n_labels, n_features, np.random.default_rng(law_seed))
    sample = law.sample(n_samples, np.random.default_rng(sample_seed))
    return sample.X, sample.Y, sample.statistics, sample.bayes_fbeta(beta)
