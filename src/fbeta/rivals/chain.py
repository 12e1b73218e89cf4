"""Probabilistic classifier chains: ``P(y_t = 1 | x, y_1, ..., y_{t-1}) = 1 / (1 + exp(-u_t))``.

Scores are ``u_t = b_t(x) + sum_{r < t} y_r c_tr``; positions t follow the order of the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fbeta._array import check_choice, check_count
from fbeta.decoding.exact import exact_decode
from fbeta.decoding.expected import cut_at_half
from fbeta.estimators.base import views
from fbeta.estimators.statistics_base import (
    FunctionLearner,
    LinearParameters,
    StatisticsClassifier,
)
from fbeta.labels.forms import Indicator
from fbeta.linear import LinearLearner
from fbeta.linear.learner import Weight
from fbeta.losses import LogisticLoss
from fbeta.statistics import LabelStatistics, observed_cardinalities
from fbeta.statistics.codes import Code, Estimates

__all__ = ["ProbabilisticChain"]

MAX_ENUMERATED_LABELS = 20  # 2^20 label sets
sigmoid = LogisticLoss().inverse_link
# for n instances: scores (n, s) of each position where no label before it is present, and (s, s)
# what the label at position r adds to that of position t
Conditionals: TypeAlias = tuple[NDArray[Any], NDArray[np.float64]]
# label sets (n, m, s), or (1, m, s) where all instances share them; their shares of a distribution
# over the sets, (n, m), of sum 1; and the model's probability of each set, (n, m)
Candidates: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]


def search_beam(B: NDArray[Any], chain: NDArray[Any], width: int | None) -> Candidates:
    """Keep the ``width`` most probable beginnings, label by label, or find all 2^s label sets.

    B (n, s) and chain (s, s) are the :data:`Conditionals`.
    """
    n, s = B.shape
    sets = np.zeros((1 if width is None else n, 1, s), dtype=np.bool_)
    probability = np.ones((n, 1))
    for t in range(s):
        present = sigmoid(B[:, t, None] + sets[:, :, :t] @ chain[t, :t])
        probability = np.concatenate([probability * (1 - present), probability * present], axis=1)
        sets = np.concatenate([sets, sets], axis=1)
        sets[:, sets.shape[1] // 2 :, t] = True
        if width is not None:
            kept = np.argsort(-probability, axis=1, kind="stable")[:, :width]
            probability = np.take_along_axis(probability, kept, axis=1)
            sets = np.take_along_axis(sets, kept[:, :, None], axis=1)
    total = 1.0 if width is None else probability.sum(axis=1, keepdims=True)
    return sets, probability / total, probability


def sample_sets(B: NDArray[Any], chain: NDArray[Any], uniforms: NDArray[np.float64]) -> Candidates:
    """Sample m label sets, label by label, from uniform numbers (m, s).

    All instances use the same numbers, so that the samples of an instance do not depend on which
    others are predicted with it.
    """
    n, m = len(B), len(uniforms)
    sets, probability = np.zeros((n, *uniforms.shape), dtype=np.bool_), np.ones((n, m))
    for t, numbers in enumerate(uniforms.T):
        present = sigmoid(B[:, t, None] + sets[:, :, :t] @ chain[t, :t])
        sets[:, :, t] = numbers < present
        probability *= np.where(sets[:, :, t], present, 1 - present)
    return sets, np.full((n, m), 1 / m), probability


@dataclass(frozen=True)
class ChainCode(Code):
    """The labels in the order of a chain, and how label sets are inferred from conditionals."""

    order: NDArray[np.intp]  # (s,), the label at each position
    inference: str
    beam_width: int
    uniforms: NDArray[np.float64]  # (m, s), random numbers for m samples

    def width(self) -> int:
        """Return the size of what the inference has in hand for one instance."""
        s = self.n_labels
        sets = {
            "exhaustive": 2**s,
            "beam": s * min(self.beam_width, 2**s),
            "monte_carlo": s * len(self.uniforms),
        }
        return int(4 * sets[self.inference])

    def targets(self, Y: Indicator) -> sp.csc_array:
        """Return the labels by position, of shape (n, s)."""
        return Y.tocsc()[:, self.order]

    def statistics(self, P: Conditionals) -> LabelStatistics:
        """Return the statistics of the distribution over the label sets that are found."""
        sets, weight, _ = self.candidates(P)
        if len(sets) == 1:
            return LabelStatistics.from_distribution(weight, sets[0].astype(np.int8))
        sizes = sets.sum(axis=2)
        cardinalities = np.unique(sizes[sizes > 0])
        share = weight[:, None, :] * (sizes[:, None, :] == cardinalities[None, :, None])
        joint = share @ sets.astype(np.float64)
        return LabelStatistics((weight * (sizes == 0)).sum(axis=1), joint, cardinalities)

    def candidates(self, P: Conditionals) -> Candidates:
        """Run the inference."""
        if self.inference == "monte_carlo":
            sets, weight, probability = sample_sets(*P, self.uniforms)
        else:
            width = self.beam_width if self.inference == "beam" else None
            sets, weight, probability = search_beam(*P, width)
        # from positions in the chain back to columns
        return sets[:, :, np.argsort(self.order)], weight, probability


def most_probable_set(output: Estimates, beta: float) -> NDArray[np.bool_]:
    """Choose the most probable of the label sets that are found, whatever beta."""
    sets, _, probability = cast(ChainCode, output.code).candidates(output.P)
    best = probability.argmax(axis=1)
    row = np.arange(len(best)) if len(sets) > 1 else np.zeros(len(best), dtype=np.intp)
    return np.asarray(sets[row, best])


@dataclass(frozen=True)
class ChainModel:
    """A chain of logistic regressions, by position."""

    coef: NDArray[Any]  # (s, d), of x
    chain: NDArray[np.float64]  # (s, s), of the labels before
    intercept: NDArray[np.float64]  # (s,)
    n_iter: int

    def probabilities(self, X: Any) -> Conditionals:
        """Return the conditional probabilities for n rows."""
        return np.asarray(X @ self.coef.T) + self.intercept, self.chain


RULES = {"fbeta": exact_decode, "subset": most_probable_set, "hamming": cut_at_half}


@dataclass(eq=False, repr=False)
class ProbabilisticChain(LinearParameters, StatisticsClassifier):
    """Probabilistic classifier chain, PCC (Dembczynski et al. 2010).

    ``P(y | x) = prod_t P(y_t | x, y_1, ..., y_{t-1})``, with a logistic regression on x and the
    labels before for each factor.

    Parameters
    ----------
    beta : float > 0
        The measure that ``decode="fbeta"`` is optimal for.
    alpha, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    inference : {"exhaustive", "beam", "monte_carlo"}
        Compute the probabilities of all 2^s label sets (for at most 20 labels), keep the most
        probable ones label by label, or sample.
    decode : {"fbeta", "subset", "hamming"}
        Predict the set with the highest expected F_beta, the most probable set among those of the
        inference, or the labels with a marginal probability above 1/2.
    order : None, "random" or sequence of int
        Order of the labels in the chain; that of the columns by default.
    beam_width, n_samples : int
        Number of sets that a beam keeps, and that are sampled for each instance.
    random_state : int, RandomState or None
        Of the random order and of the samples. The numbers are drawn in ``fit``: predictions of a
        fitted chain do not change from call to call.

    Attributes
    ----------
    classes_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    order_ : ndarray of shape (s,)
        The label at each position of the chain.
    coef_, intercept_ : ndarray of shape (s, d) and (s,)
        Coefficients of x and intercepts, by position.
    chain_coef_ : ndarray of shape (s, s)
        Coefficient of the label at position r in the model of position t, at ``[t, r]``.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ProbabilisticChain(alpha=0.1).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    inference: str = "monte_carlo"
    decode: str = "fbeta"
    order: str | Sequence[int] | None = None
    beam_width: int = 16
    n_samples: int = 200
    random_state: Any = None

    (order_,) = views("_code", "order")
    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "n_iter")
    (chain_coef_,) = views("_model", "chain")

    _rule = property(lambda self: RULES[self.decode])

    def _make_code(self, Y: Indicator) -> ChainCode:
        s = Y.shape[1]
        if self.inference == "exhaustive" and s > MAX_ENUMERATED_LABELS:
            raise ValueError(
                f"inference='exhaustive' needs at most {MAX_ENUMERATED_LABELS} labels, got {s}: "
                "use 'beam' or 'monte_carlo'"
            )
        random, order = check_random_state(self.random_state), np.arange(s)
        if isinstance(self.order, str):
            check_choice("order", self.order, ("random",))
            order = random.permutation(s)
        elif self.order is not None:
            order = np.asarray(self.order)
            if order.shape != (s,) or not np.array_equal(np.sort(order), np.arange(s)):
                raise ValueError(f"order must be a permutation of 0..{s - 1}, got {self.order!r}")
        uniforms = random.random_sample((self.n_samples, s))
        sizes = observed_cardinalities(Y, "all")
        order = order.astype(np.intp)
        return ChainCode(sizes, s, order, self.inference, self.beam_width, uniforms)

    def _make_learner(self) -> FunctionLearner:
        check_choice("inference", self.inference, ("exhaustive", "beam", "monte_carlo"))
        check_choice("decode", self.decode, tuple(RULES))
        check_count("beam_width", self.beam_width)
        check_count("n_samples", self.n_samples)
        return FunctionLearner(self._fit_chain)

    def _fit_chain(self, X: Any, targets: sp.csc_array, weight: Weight, alpha: float) -> ChainModel:
        """Fit logistic regressions of each target (n, s) on x and the targets before it."""
        learner = LinearLearner(self.fit_intercept, self.tol, self.max_iter)
        s, d = targets.shape[1], X.shape[1]
        coef, intercept, n_iter = np.zeros((s, d + s)), np.zeros(s), 0
        if sp.issparse(X):
            features = sp.csr_array(sp.hstack([X, targets.astype(X.dtype)]))
        else:
            features = np.hstack([X, targets.astype(X.dtype).toarray()])
        for t in range(s):
            fitted = learner.fit(features[:, : d + t], targets[:, [t]], weight, alpha)
            coef[t, : d + t], intercept[t] = fitted.coef[0], fitted.intercept[0]
            n_iter = max(n_iter, fitted.most_iter)
        return ChainModel(coef[:, :d].astype(X.dtype), coef[:, d:], intercept, n_iter)
