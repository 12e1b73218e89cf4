"""Reduction to cost-sensitive classification: the costs of the best F_beta, found on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace
from fbeta._validation import check_count, check_number
from fbeta.decoding.exact import SignOfScores
from fbeta.estimators.base import views
from fbeta.labels.forms import Indicator
from fbeta.linear import Design, LinearProbabilities, LinearProblems
from fbeta.linear.learner import LinearLearner, LinearScores, Weight
from fbeta.losses import LogisticLoss, Loss
from fbeta.metrics import averaged_fbeta
from fbeta.rivals.held_out import HeldOutClassifier

__all__ = ["CostSensitiveRelevance", "CostedLogistic"]


class CostedLogistic(Loss):
    """``phi(y, u) = fn y ln(1 + exp(-u)) + fp (1 - y) ln(1 + exp(u))``.

    The logistic loss with costs. Its link is the logit plus ``ln(fn / fp)``: a positive score means
    that predicting the label costs less than leaving it out. The strength is ``fn fp / max_p p (1 -
    p) (fn p + fp (1 - p))``.

    Parameters
    ----------
    fn, fp : float > 0
        Costs of a false negative and of a false positive.

    Examples
    --------
    >>> loss = CostedLogistic(fn=3.0, fp=1.0)
    >>> float(loss.inverse_link(np.float64(0.0)).round(12)), round(loss.strength, 3)
    (0.25, 5.68)
    """

    name = "costed logistic"

    def __init__(self, fn: float, fp: float) -> None:
        self.fn = check_number("fn", fn, strict=True)
        self.fp = check_number("fp", fp, strict=True)
        difference = self.fn - self.fp
        # where the derivative fp + 2 (difference - fp) p - 3 difference p^2 is zero, in (0, 1)
        p = self.fp / (self.fp - difference + np.sqrt(self.fn**2 - self.fn * self.fp + self.fp**2))
        self.strength = float(self.fn * self.fp / (p * (1 - p) * (self.fp + difference * p)))

    def link(self, q: Array) -> Array:
        """Return the logit of ``q`` plus ``ln(fn / fp)``."""
        return LogisticLoss().link(q) + self._shift()

    def inverse_link(self, u: Array) -> Array:
        """Return the probability whose link is ``u``."""
        return LogisticLoss().inverse_link(u - self._shift())

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together, from one exponential."""
        xp = array_namespace(u)
        e = xp.exp(-xp.abs(u))
        above, below = xp.clip(u, 0.0, None), xp.clip(-u, 0.0, None)
        p = xp.where(u >= 0, xp.ones_like(e), e) / (1 + e)
        cost, fn = self.fp + (self.fn - self.fp) * y, self.fn * y
        fp = cost - fn
        value = cost * xp.log1p(e) + fn * below + fp * above
        return value, cost * p - fn, cost * p * (1 - p)

    def _shift(self) -> float:
        return float(np.log(self.fn / self.fp))

    def __hash__(self) -> int:
        return hash((type(self), self.fn, self.fp))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fn={self.fn:g}, fp={self.fp:g})"


@dataclass(frozen=True)
class CostedModel(LinearScores):
    """Scores of which the positive ones cost less to predict than to leave out."""

    t: NDArray[np.float64]  # (s,), the cost of a false positive of each label
    beta: float  # that of a false negative is 1 + beta^2 - t
    n_iter: int

    def probabilities(self, X: Any) -> NDArray[Any]:
        """Return the marginal probabilities that the scores stand for, of shape (n, s)."""
        shift = np.log((1 + self.beta**2 - self.t) / self.t)
        return np.asarray(LogisticLoss().inverse_link(self.scores(X) - shift))


@dataclass(eq=False, repr=False)
class CostSensitiveRelevance(HeldOutClassifier):
    """Binary relevance with the costs that give the best F_beta (Parambath et al. 2014).

    The classifier with the highest F_beta minimises the cost of its errors when a false negative
    costs ``1 + beta^2 - t`` and a false positive ``t``, for t equal to that F_beta. Fits a
    cost-weighted logistic regression for each label and each t on a grid to a part of the rows,
    and keeps the t with the highest F_beta on the others.

    Parameters
    ----------
    beta : float > 0
        The measure to optimise; the models depend on it.
    alpha : float >= 0
        Each model minimises the SUM of its costs plus ``alpha / 2 |w|^2``; the intercept is not
        penalised.
    grid : int or sequence of float
        The values of t, between 0 and ``1 + beta^2``; a number m stands for 1/m, 2/m, ..., 1.
    average : {"instance", "micro", "macro"}
        Which average of F_beta. One t is shared by all labels for ``"instance"`` and ``"micro"``;
        each label has its own for ``"macro"``.
    validation_fraction : float
        Share of the rows to choose t on.
    fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    random_state : int, RandomState or None
        Decides which rows are held out, together with their values: a float32 copy of X has
        other values, and other rows of it are held out.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_
        As for :class:`BinaryRelevance`.
    t_ : ndarray of shape (s,)
        The chosen t of each label.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> Y = [["sea"], ["sea"], ["sea"], ["sky"], ["sky"], ["sky"]]
    >>> CostSensitiveRelevance(alpha=0.1, random_state=0).fit(X, Y).predict([[0.0], [5.0]])
    [['sea'], ['sky']]
    """

    _: KW_ONLY
    grid: int | Sequence[float] = 10

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "n_iter")
    (t_,) = views("_model", "t")

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        (X, Y, weight), held_out = self._parts(X, Y, weight)
        grid, beta = _read_grid(self.grid, self.beta), float(self.beta)
        models = self._fit_path(X, Y.tocsc(), weight, grid)
        self._model = self._choose(models, grid, *held_out)
        self._rule = SignOfScores(beta)

    def _fit_path(
        self, X: Any, targets: sp.csc_array, weight: Weight, grid: NDArray[np.float64]
    ) -> list[LinearProbabilities]:
        """Fit to labels of shape (n, s), for each t from the solution for the t before."""
        solver = LinearLearner(self.fit_intercept, self.tol, self.max_iter)
        design = Design.of(X, weight, intercept=solver.fit_intercept)
        alpha, start, models = check_number("alpha", self.alpha), None, []
        for t in grid:
            problems = LinearProblems(design, targets, CostedLogistic(1 + self.beta**2 - t, t))
            solution = problems.solve(alpha, start=start, tol=solver.tol, max_iter=solver.max_iter)
            problems.warn_if_not_converged(solution, alpha, solver.max_iter)
            start = solution.W
            models.append(problems.model(solution))
        return models

    def _choose(
        self,
        models: list[LinearProbabilities],
        grid: NDArray[np.float64],
        X: Any,
        Y: Indicator,
        weight: Weight,
    ) -> CostedModel:
        """Take for each label the model with the highest F_beta on the held-out rows."""

        def value(model: LinearProbabilities) -> Array:
            predicted = model.scores(X)[:, model.problem] > 0
            return averaged_fbeta(
                Y, predicted, self.beta, average=self.average, sample_weight=weight
            )

        values = [value(model) for model in models]
        best = np.broadcast_to(np.argmax(values, axis=0), Y.shape[1:])
        rows = [(models[b], models[b].problem[j]) for j, b in enumerate(best)]
        coef, intercept = (
            np.stack([getattr(model, name)[row] for model, row in rows])
            for name in ("coef", "intercept")
        )
        n_iter = max(int(model.n_iter.max(initial=0)) for model in models)
        return CostedModel(coef, intercept, grid[best], float(self.beta), n_iter)

    def predict_marginals(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label, of shape (n, s).

        As for :meth:`ThresholdedRelevance.predict_marginals`.
        """
        return np.asarray(self._model.probabilities(self._read_features(X)))


def _read_grid(grid: int | Sequence[float], beta: float) -> NDArray[np.float64]:
    """Return the values of t."""
    if isinstance(grid, (int, np.integer)):
        m = check_count("grid", grid)
        return np.arange(1, m + 1) / m
    values, high = np.asarray(grid, dtype=np.float64), 1 + beta**2
    if values.ndim != 1 or not len(values) or not ((values > 0) & (values < high)).all():
        raise ValueError(f"grid must hold numbers above 0 and below {high:g}, got {grid!r}")
    return values
