"""Structured support vector machines with the loss 1 - F_beta, of instances and of columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, check_number, check_solver
from fbeta.decoding.expected import ScoreThresholds
from fbeta.estimators.base import MultiLabelClassifier, views
from fbeta.estimators.statistics_base import LinearParameters
from fbeta.labels.forms import Indicator
from fbeta.linear import LinearScores
from fbeta.linear.learner import Weight
from fbeta.metrics import fbeta_of_counts
from fbeta.rivals.bundle import minimise

__all__ = ["MacroFSvm", "ReverseMultiLabel"]


@dataclass(frozen=True)
class BundleModel(LinearScores):
    """Scores that the bundle method found."""

    objective: Any  # reached
    gap: Any  # how far above the minimum the objective is at most
    n_iter: int
    # what pairs of labels add, where a model has that
    pairs: NDArray[np.intp] | None = None  # (E, 2), labels u < v
    attraction: Array | None = None  # (E,), not negative


# from scores (n, s) and weights of pairs to the risk and its gradients in both
Search = Callable[[Array, Array], tuple[Any, ...]]


@dataclass(eq=False, repr=False)
class BundleClassifier(LinearParameters, MultiLabelClassifier):
    """Base of the structured SVMs; parameters as for :class:`fbeta.rivals.ReverseMultiLabel`."""

    _: KW_ONLY
    tol: float = 1e-3
    max_iter: int = 1000

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "n_iter")
    objective_, gap_ = views("_model", "objective", "gap")
    (beta_,) = views("_rule", "beta")

    @abstractmethod
    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        """Fit the scores to valid parameters."""

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        check_solver(self.fit_intercept, self.tol, self.max_iter)
        check_number("alpha", self.alpha, strict=True)
        self._rule = ScoreThresholds(float(self.beta))
        self._model = self._fit_scores(X, Y, weight)

    def _minimise(
        self, X: Any, s: int, search: Search, pair_penalty: Sequence[float] | Array = ()
    ) -> tuple[Any, ...]:
        """Minimise penalty plus risk: the first fields of the model, and the weights of pairs.

        The intercept is the weight of a constant feature; weights of pairs are not negative.
        """
        shape, constant = (s, X.shape[1] + 1), float(self.fit_intercept)
        size = s * shape[1]
        penalty = np.concatenate([np.full(size, float(self.alpha)), pair_penalty])

        def oracle(w: Array) -> tuple[float, Array]:
            W = w[:size].reshape(shape)
            scores = np.asarray(X @ W[:, :-1].T) + constant * W[:, -1]
            risk, residual, *rest = search(scores, w[size:])
            last = constant * residual.sum(axis=0)[:, None]
            gradient = np.hstack([np.asarray(X.T @ residual).T, last])
            return float(risk), np.concatenate([gradient.ravel(), *rest])

        nonnegative = np.arange(len(penalty)) >= size
        limits: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        found = minimise(oracle, penalty, nonnegative=nonnegative, **limits)
        W, theta = found.x[:size].reshape(shape), found.x[size:]
        return W[:, :-1].copy(), constant * W[:, -1], found.fun, found.gap, found.nit, theta


def most_violated(scores: Array, Y: NDArray[Any], beta: float) -> tuple[NDArray[np.bool_], Array]:
    """Return the label sets (n, s) that violate their margin most, and their values (n,).

    ``argmax_yhat 1 - F_beta(y, yhat) + sum_j yhat_j scores_j`` for scores and labels (n, s). The
    best set with t true and u false labels has those with the highest scores. For given t its value
    is concave in u, which is found by bisection: each row costs O(s log s).
    """
    sets, values = np.zeros(scores.shape, dtype=np.bool_), np.zeros(len(scores))
    truth = np.asarray(Y, dtype=np.bool_)
    size = truth.sum(axis=1)
    for p in np.unique(size).tolist():
        rows = np.flatnonzero(size == p)
        sets[rows], values[rows] = _most_violated_of_size(scores[rows], truth[rows], p, beta)
    return sets, values


def _most_violated_of_size(
    scores: Array, truth: NDArray[np.bool_], p: int, beta: float
) -> tuple[NDArray[np.bool_], Array]:
    """Solve the rows that have p true labels."""
    n, s = scores.shape
    order = np.lexsort((-scores, ~truth), axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    t = np.arange(p + 1)[None, :]
    true_sums, false_sums = (
        np.hstack([np.zeros((n, 1)), part.cumsum(axis=1)])
        for part in (ordered[:, :p], ordered[:, p:])
    )

    def value(u: NDArray[np.intp]) -> Array:
        loss = 1 - fbeta_of_counts(t, p, t + u, beta)
        return np.asarray(true_sums + np.take_along_axis(false_sums, u, axis=1) + loss)

    low, high = np.zeros((n, p + 1), dtype=np.intp), np.full((n, p + 1), s - p, dtype=np.intp)
    while (low < high).any():
        middle = (low + high) // 2
        # where low and high have met, the comparison is of u with itself
        rises = value(np.minimum(middle + 1, high)) > value(middle)
        low, high = np.where(rises, middle + 1, low), np.where(rises, high, middle)
    values = value(low)
    best = values.argmax(axis=1)[:, None]
    n_false = np.take_along_axis(low, best, axis=1)
    taken = np.hstack([np.arange(p) < best, np.arange(s - p) < n_false])
    sets = np.zeros((n, s), dtype=np.bool_)
    np.put_along_axis(sets, order, taken, axis=1)
    return sets, np.take_along_axis(values, best, axis=1)[:, 0]


class ReverseMultiLabel(BundleClassifier):
    """Reverse multi-label learning (Petterson and Caetano, 2010).

    Minimises ``alpha / 2 sum_j |w_j|^2 + sum_i max_yhat [1 - F_beta(y_i, yhat) + sum_j (yhat_j -
    y_ij) w_j.x_i]`` and predicts the labels with ``w_j.x > 0``.

    Parameters
    ----------
    beta : float > 0
        The measure in the loss.
    alpha : float > 0
        Strength of the penalty against the SUM of the losses.
    fit_intercept : bool
        Whether the scores have an intercept: the weight of a constant feature 1, penalised like
        the others.
    tol : float > 0
        Stop once the duality gap is below ``tol`` times the objective.
    max_iter : int
        Largest number of iterations of the bundle method.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_, intercept_ : ndarray of shape (s, d) and (s,)
        Weights of the features, and intercepts.
    objective_, gap_ : float
        The objective reached, and how far above the minimum it is at most.
    n_iter_ : int
        Iterations taken.
    beta_ : float
        The measure that the model was fitted for.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ReverseMultiLabel(alpha=0.01).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        truth = Y.toarray()
        share = np.ones(len(truth)) if weight is None else weight

        def search(scores: Array, _: Array) -> tuple[Any, ...]:
            sets, values = most_violated(scores, truth, self.beta)
            risk = share @ (values - (scores * truth).sum(axis=1))
            return risk, share[:, None] * (sets - truth)

        return BundleModel(*self._minimise(X, Y.shape[1], search)[:5])


class MacroFSvm(BundleClassifier):
    """Support vector machines for the macro-averaged F_beta (Joachims, 2005).

    For each label, with its column y in {0, 1}^n, minimises ``alpha / 2 |w|^2 + max_yhat [n (1 -
    F_beta(y, yhat)) + sum_i (yhat_i - y_i) w.x_i]`` over all columns yhat, and predicts the label
    where ``w.x > 0``. With the number of errors in place of ``n (1 - F_beta)`` this would be the
    sum of hinge losses, the ordinary machine.

    Parameters
    ----------
    beta : float > 0
        The measure in the loss.
    alpha : float > 0
        Strength of the penalty. Joachims' C for labels -1 and 1 is ``1 / (4 n alpha)``.
    fit_intercept, tol, max_iter
        As for :class:`ReverseMultiLabel`, for each label.

    Attributes
    ----------
    classes_, coef_, beta_
        As for :class:`ReverseMultiLabel`.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite for a label that all or none of the training rows have.
    objective_, gap_ : ndarray of shape (s,)
        The objective reached for each label, and how far above the minimum it is at most.
    n_iter_ : int
        Most iterations of a label.

    Notes
    -----
    F_beta of a column does not decompose over the rows, so that rows have no weights.
    :meth:`score` is the instance-averaged measure, like everywhere in this library.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> MacroFSvm(alpha=0.01).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Fit one machine per label, to rows that all count the same; X, y as elsewhere."""
        return super().fit(X, y)

    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        n, d = X.shape

        def search(scores: Array, _: Array, y: NDArray[np.int8]) -> tuple[Any, ...]:
            # the rows take the place of labels, and the loss counts n times
            labeling, values = most_violated(scores.T / n, y, self.beta)
            return n * values[0] - (scores.T * y).sum(), (labeling - y).T.astype(np.float64)

        found: list[tuple[Any, ...]] = []
        for y in Y.T.toarray():
            if y.min() == y.max():
                found.append((np.zeros((1, d)), [np.inf if y[0] else -np.inf], 0.0, 0.0, 0))
            else:
                found.append(self._minimise(X, 1, partial(search, y=y[None, :]))[:5])
        coef, intercept, objective, gap, n_iter = zip(*found, strict=True)
        weights = np.concatenate(coef), np.concatenate(intercept)
        return BundleModel(*weights, np.array(objective), np.array(gap), max(n_iter))
