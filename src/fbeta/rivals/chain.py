"""Probabilistic classifier chains: the joint distribution of the labels, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from fbeta._estimator import CHUNK
from fbeta._validation import check_choice, check_count, check_number
from fbeta.decoding import decode as decode_fbeta
from fbeta.encoding import LabelStatistics
from fbeta.linear import fit_linear
from fbeta.losses import LogisticLoss
from fbeta.rivals._chain_inference import (
    Candidates,
    enumerate_sets,
    sample_sets,
    search_beam,
)
from fbeta.rivals._marginals import OwnDecoding

__all__ = ["ProbabilisticChain"]

MOST_LABELS = 20  # of which all label sets are enumerated


class ProbabilisticChain(OwnDecoding):
    """Probabilistic classifier chain, PCC (Dembczynski et al. 2010).

    ``P(y | x) = prod_t P(y_t | x, y_1, ..., y_{t-1})``, with a logistic regression on x and the
    labels before for each factor.

    Parameters
    ----------
    beta : float > 0
        The measure that ``decode="fbeta"`` is optimal for.
    alpha : float >= 0
        Each model minimises the SUM of its losses plus ``alpha / 2 |w|^2``; the intercept is not
        penalised.
    inference : {"exhaustive", "beam", "monte_carlo"}
        Compute the probabilities of all 2^s label sets (for at most 20 labels), keep the most
        probable ones label by label, or sample.
    decode : {"fbeta", "subset", "hamming"}
        Predict the set with the highest expected F_beta, the most probable set among those of the
        inference, or the labels with a marginal probability above 1/2.
    order : None, "random" or sequence of int
        Order of the labels in the chain; that of the columns by default.
    beam_width : int
        Number of sets that a beam keeps.
    n_samples : int
        Number of label sets to sample for each instance.
    fit_intercept : bool
        Whether the models have an intercept.
    tol : float > 0
        A model has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.
    random_state : int, RandomState or None
        For the random order and for sampling. The random numbers are drawn in ``fit``: predictions
        of a fitted chain do not change from call to call.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    order_ : ndarray of shape (s,)
        The label at each position of the chain.
    coef_ : ndarray of shape (s, d)
        Coefficients of x, by position in the chain.
    chain_coef_ : ndarray of shape (s, s)
        ``chain_coef_[t, r]`` is the coefficient of the label at position r in the model of the one
        at position t.
    intercept_ : ndarray of shape (s,)
        Intercepts, by position in the chain.
    n_iter_ : int
        Most Newton iterations of a model.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ProbabilisticChain(alpha=0.1).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        inference: str = "monte_carlo",
        decode: str = "fbeta",
        order: str | Sequence[int] | None = None,
        beam_width: int = 16,
        n_samples: int = 200,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.inference = inference
        self.decode = decode
        self.order = order
        self.beam_width = beam_width
        self.n_samples = n_samples
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> ProbabilisticChain:
        """Fit the models.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        y : labels of n instances
            As for :meth:`fbeta.FBetaClassifier.fit`.
        sample_weight : array-like of shape (n,), optional
            Weights of the instances.

        Returns
        -------
        ProbabilisticChain
            Itself.
        """
        solver = self._check_parameters()
        X, Y, weight = self._read_training(X, y, sample_weight)
        s, d = self.n_labels_, X.shape[1]
        if self.inference == "exhaustive" and s > MOST_LABELS:
            raise ValueError(
                f"inference='exhaustive' needs at most {MOST_LABELS} labels, got {s}: use 'beam' "
                "or 'monte_carlo'"
            )
        random = check_random_state(self.random_state)
        self.order_ = _order(self.order, s, random)
        self._uniforms = random.random_sample((self.n_samples, s))
        self.cardinalities_ = np.arange(1, s + 1)
        Y = Y.tocsc()[:, self.order_]
        coef, self.intercept_ = np.zeros((s, d + s)), np.zeros(s)
        n_iter = 0
        for t in range(s):
            features = _append(X, Y[:, :t])
            model = fit_linear(features, Y[:, [t]], LogisticLoss(), weight=weight, **solver)
            coef[t, : d + t], self.intercept_[t] = model.coef[0], model.intercept[0]
            n_iter = max(n_iter, int(model.n_iter[0]))
        self.coef_, self.chain_coef_ = coef[:, :d].astype(X.dtype), coef[:, d:]
        self.n_iter_ = n_iter
        return self

    def _check_parameters(self) -> dict[str, Any]:
        check_choice("inference", self.inference, ("exhaustive", "beam", "monte_carlo"))
        check_choice("decode", self.decode, ("fbeta", "subset", "hamming"))
        check_count("beam_width", self.beam_width)
        check_count("n_samples", self.n_samples)
        return {
            "alpha": check_number("alpha", self.alpha),
            "fit_intercept": self.fit_intercept,
            "tol": check_number("tol", self.tol, strict=True),
            "max_iter": check_count("max_iter", self.max_iter),
        }

    def _candidates(self, X: Any) -> Iterator[tuple[slice, Candidates]]:
        """Run the inference on some rows at a time."""
        s = self.n_labels_
        sets = {
            "exhaustive": 2**s,
            "beam": s * min(self.beam_width, 2**s),
            "monte_carlo": s * self.n_samples,
        }[self.inference]
        rows = max(1, CHUNK // (4 * 8 * sets))
        for start in range(0, X.shape[0], rows):
            chunk = slice(start, start + rows)
            B = np.asarray(X[chunk] @ self.coef_.T) + self.intercept_
            yield chunk, self._infer(B)

    def _infer(self, B: NDArray[Any]) -> Candidates:
        if self.inference == "exhaustive":
            found = enumerate_sets(B, self.chain_coef_)
        elif self.inference == "beam":
            found = search_beam(B, self.chain_coef_, self.beam_width)
        else:
            found = sample_sets(B, self.chain_coef_, self._uniforms)
        # from positions in the chain back to columns
        sets = found.sets[:, :, np.argsort(self.order_)]
        return Candidates(sets, found.weight, found.probability)

    def _statistics(self, X: Any) -> LabelStatistics:
        return LabelStatistics.concatenate([found.statistics() for _, found in self._candidates(X)])

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        out = np.zeros((X.shape[0], self.n_labels_), dtype=np.bool_)
        for rows, found in self._candidates(X):
            if self.decode == "subset":
                out[rows] = found.mode()
            elif self.decode == "hamming":
                out[rows] = found.statistics().marginals() > 0.5
            else:
                out[rows] = decode_fbeta(found.statistics(), beta)
        return out


def _order(order: Any, s: int, random: np.random.RandomState) -> NDArray[np.intp]:
    """Return the label at each position of the chain."""
    if order is None:
        return np.arange(s)
    if isinstance(order, str):
        check_choice("order", order, ("random",))
        return np.asarray(random.permutation(s), dtype=np.intp)
    given = np.asarray(order)
    if given.shape != (s,) or not np.array_equal(np.sort(given), np.arange(s)):
        raise ValueError(f"order must be a permutation of 0..{s - 1}, got {order!r}")
    return given.astype(np.intp)


def _append(X: Any, labels: sp.csc_array) -> Any:
    """Put labels beside the features."""
    if sp.issparse(X):
        return sp.csr_array(sp.hstack([X, labels.astype(X.dtype)], format="csr"))
    return np.concatenate([X, labels.toarray().astype(X.dtype)], axis=1)
