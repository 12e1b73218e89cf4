"""Reduction to cost-sensitive classification: the costs of the best F_beta, found on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._array import array_namespace
from fbeta._validation import check_choice, check_count, check_number
from fbeta.labels import Indicator
from fbeta.linear import Design, LinearModel, LinearProblems
from fbeta.losses import LogisticLoss, Loss
from fbeta.rivals._marginals import HeldOutChoice
from fbeta.rivals._splitting import AVERAGES, averaged_fbeta, split_rows

__all__ = ["CostSensitiveRelevance", "CostedLogistic"]

Array = Any


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

    def value(self, y: Array, u: Array) -> Array:
        """Return ``phi(y, u)``."""
        plain = LogisticLoss()
        return self.fn * y * plain.value(1.0, u) + self.fp * (1 - y) * plain.value(0.0, u)

    def derivative(self, y: Array, u: Array) -> Array:
        """Return the derivative of ``phi(y, u)`` in ``u``."""
        plain = LogisticLoss()
        return self.fp * (1 - y) * plain.inverse_link(u) - self.fn * y * plain.inverse_link(-u)

    def second_derivative(self, y: Array, u: Array) -> Array:
        """Return the second derivative of ``phi(y, u)`` in ``u``."""
        plain = LogisticLoss()
        return self._cost(y) * plain.inverse_link(u) * plain.inverse_link(-u)

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
        cost, fn = self._cost(y), self.fn * y
        fp = cost - fn
        value = cost * xp.log1p(e) + fn * below + fp * above
        return value, cost * p - fn, cost * p * (1 - p)

    def _cost(self, y: Array) -> Array:
        return self.fp + (self.fn - self.fp) * y

    def _shift(self) -> float:
        return float(np.log(self.fn / self.fp))

    def __hash__(self) -> int:
        return hash((type(self), self.fn, self.fp))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fn={self.fn:g}, fp={self.fp:g})"


class CostSensitiveRelevance(HeldOutChoice):
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
    fit_intercept : bool
        Whether the models have an intercept.
    tol : float > 0
        A model has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.
    random_state : int, RandomState or None
        Decides which rows are held out.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_ : ndarray of shape (s, d)
        Coefficients, one row for each label.
    intercept_ : ndarray of shape (s,)
        Intercepts, infinite where a label is always or never present.
    t_ : ndarray of shape (s,)
        The chosen t of each label.
    n_iter_ : int
        Most Newton iterations of a model.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> Y = [["sea"], ["sea"], ["sea"], ["sky"], ["sky"], ["sky"]]
    >>> CostSensitiveRelevance(alpha=0.1, random_state=0).fit(X, Y).predict([[0.0], [5.0]])
    [['sea'], ['sky']]
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        grid: int | Sequence[float] = 10,
        average: str = "instance",
        validation_fraction: float = 0.25,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.grid = grid
        self.average = average
        self.validation_fraction = validation_fraction
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> CostSensitiveRelevance:
        """Fit the models for each t and choose.

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
        CostSensitiveRelevance
            Itself.
        """
        check_choice("average", self.average, AVERAGES)
        X, Y, weight = self._read_training(X, y, sample_weight)
        grid = self._grid()
        fitting, held = split_rows(X, weight, self.validation_fraction, self.random_state)
        own, other = (None, None) if weight is None else (weight[fitting], weight[held])
        models = self._fit_grid(X[fitting], Y[fitting], own, grid)
        truth = Y[held].toarray() > 0
        value = []
        for model in models:
            predicted = model.scores(X[held])[:, model.problem] > 0
            value.append(averaged_fbeta(truth, predicted, self.beta, self.average, other))
        best = np.broadcast_to(np.argmax(value, axis=0), (self.n_labels_,))
        self._keep_chosen(models, best, grid)
        return self

    def _grid(self) -> NDArray[np.float64]:
        if isinstance(self.grid, (int, np.integer)):
            m = check_count("grid", self.grid)
            return np.arange(1, m + 1) / m
        grid = np.asarray(self.grid, dtype=np.float64)
        high = 1 + self.beta**2
        if grid.ndim != 1 or not len(grid) or not ((grid > 0) & (grid < high)).all():
            raise ValueError(
                f"grid must hold numbers above 0 and below {high:g}, got {self.grid!r}"
            )
        return grid

    def _fit_grid(
        self, X: Any, Y: Indicator, weight: NDArray[np.float64] | None, grid: NDArray[np.float64]
    ) -> list[LinearModel]:
        """Fit all labels for each t, each from the solution for the t before."""
        solver = self._check_solver()
        design = Design.of(X, weight, intercept=self.fit_intercept)
        targets, start, models = Y.tocsc(), None, []
        for t in grid:
            loss = CostedLogistic(fn=1 + self.beta**2 - t, fp=t)
            problems = LinearProblems(design, targets, loss)
            solution = problems.solve(start=start, **solver)
            problems.warn_if_not_converged(solution, solver["alpha"], solver["max_iter"])
            start = solution.W
            models.append(problems.model(solution))
        return models

    def _keep_chosen(
        self, models: list[LinearModel], best: NDArray[np.intp], grid: NDArray[np.float64]
    ) -> None:
        self.coef_ = np.stack([models[b].coef[models[b].problem[j]] for j, b in enumerate(best)])
        self.intercept_ = np.stack(
            [models[b].intercept[models[b].problem[j]] for j, b in enumerate(best)]
        )
        self.t_ = grid[best]
        self.n_iter_ = max(int(model.n_iter.max(initial=0)) for model in models)
        self._fitted_beta = float(self.beta)

    def _marginals(self, X: Any) -> NDArray[Any]:
        shift = np.log((1 + self._fitted_beta**2 - self.t_) / self.t_)
        return np.asarray(LogisticLoss().inverse_link(self._scores(X) - shift))

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        if beta != self._fitted_beta:
            raise ValueError(
                f"the models were fitted for beta={self._fitted_beta:g} and depend on it: "
                f"to predict for beta={beta:g}, fit again"
            )
        return np.asarray(self._scores(X) > 0)
