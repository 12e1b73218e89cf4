"""Marginal probabilities on one part of the data, thresholds on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._validation import check_choice
from fbeta.linear import fit_linear
from fbeta.losses import LogisticLoss
from fbeta.rivals._marginals import HeldOutChoice
from fbeta.rivals._splitting import AVERAGES, fbeta_of_counts, split_rows

__all__ = ["ThresholdedRelevance", "best_thresholds"]


class ThresholdedRelevance(HeldOutChoice):
    """Binary relevance with the thresholds that are best on held-out rows (Koyejo et al. 2015).

    Fits one logistic regression for each label to a part of the rows, and predicts the labels
    whose probability exceeds a threshold: the one with the highest F_beta on the other rows,
    among all thresholds there are.

    Parameters
    ----------
    beta : float > 0
        The measure to choose the thresholds by.
    alpha : float >= 0
        Each label's model minimises the SUM of its losses plus ``alpha / 2 |w|^2``; the intercept
        is not penalised.
    average : {"instance", "micro", "macro"}
        Which average of F_beta. One threshold is shared by all labels for ``"instance"`` and
        ``"micro"``; each label has its own for ``"macro"``.
    validation_fraction : float
        Share of the rows to choose thresholds on.
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
    threshold_ : ndarray of shape (s,)
        Labels with a higher probability are predicted.
    n_iter_ : int
        Most Newton iterations of a model.

    Notes
    -----
    The held-out probabilities are kept, so that ``predict(X, beta=...)`` can choose the thresholds
    for another beta.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> Y = [["sea"], ["sea"], ["sea"], ["sky"], ["sky"], ["sky"]]
    >>> model = ThresholdedRelevance(alpha=0.1, validation_fraction=0.4, random_state=0).fit(X, Y)
    >>> model.predict([[0.0], [5.0]])
    [['sea'], ['sky']]
    """

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        average: str = "instance",
        validation_fraction: float = 0.25,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.average = average
        self.validation_fraction = validation_fraction
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> ThresholdedRelevance:
        """Fit the models and choose the thresholds.

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
        ThresholdedRelevance
            Itself.
        """
        check_choice("average", self.average, AVERAGES)
        solver = self._check_solver()
        X, Y, weight = self._read_training(X, y, sample_weight)
        fitting, held = split_rows(X, weight, self.validation_fraction, self.random_state)
        own, other = (None, None) if weight is None else (weight[fitting], weight[held])
        self._keep(
            fit_linear(
                X[fitting], Y[fitting].tocsc(), LogisticLoss(),
                weight=own, fit_intercept=self.fit_intercept, **solver,
            )
        )  # fmt: skip
        self._held = self._marginals(X[held]), Y[held].toarray() > 0, other
        self._fitted_beta = float(self.beta)
        self.threshold_ = self._choose(self._fitted_beta)
        return self

    def _choose(self, beta: float) -> NDArray[np.float64]:
        P, Y, weight = self._held
        threshold = best_thresholds(P, Y, beta, average=self.average, weight=weight)
        return np.broadcast_to(threshold, (self.n_labels_,)).copy()

    def _marginals(self, X: Any) -> NDArray[Any]:
        return np.asarray(LogisticLoss().inverse_link(self._scores(X)))

    def _predict_indicator(self, X: Any, beta: float) -> NDArray[np.bool_]:
        threshold = self.threshold_ if beta == self._fitted_beta else self._choose(beta)
        return np.asarray(self._marginals(X) > threshold)


def best_thresholds(
    P: NDArray[Any],
    Y: NDArray[np.bool_],
    beta: float = 1.0,
    *,
    average: str = "instance",
    weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Find the thresholds with the highest F_beta, exactly, in O(n s log(n s)).

    F_beta changes only where the threshold passes one of the probabilities. Going down through
    them in order, each one adds its label to the prediction of its row.

    Parameters
    ----------
    P : ndarray of shape (n, s)
        Probabilities; ``P > threshold`` is predicted.
    Y : bool ndarray of shape (n, s)
        The truth.
    beta : float > 0
        Weight of recall against precision.
    average : {"instance", "micro", "macro"}
        Which average of F_beta; macro maximises that of each label by itself.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    ndarray of shape (), or (s,) for ``"macro"``
        Halfway between two probabilities, or between the outermost and 0 or 1. Of several
        thresholds that are as good, the highest.

    Examples
    --------
    >>> P, Y = np.array([[0.9, 0.3], [0.2, 0.1]]), np.array([[1, 1], [0, 0]]) > 0
    >>> float(best_thresholds(P, Y))
    0.25
    """
    check_choice("average", average, AVERAGES)
    P, beta2 = np.asarray(P, dtype=np.float64), beta**2
    column = np.ones((len(P), 1)) if weight is None else weight[:, None]
    if average == "macro":
        return _best_cut(P, _values_of_counts(P, Y, column, beta2))
    flat, truth = P.reshape(-1, 1), Y.reshape(-1, 1)
    if average == "micro":
        wide = np.broadcast_to(column, P.shape).reshape(-1, 1)
        return np.asarray(_best_cut(flat, _values_of_counts(flat, truth, wide, beta2))[0])
    steps, start = _steps_of_rows(P, Y, beta2)
    order = np.argsort(-flat, axis=0, kind="stable")
    steps = np.take_along_axis((column * steps).reshape(-1, 1), order, axis=0)
    first = np.sum(column[:, 0] * start)
    values = first + np.cumsum(np.concatenate([[[0.0]], steps]), axis=0)
    return np.asarray(_best_cut(flat, values)[0])


def _values_of_counts(
    P: NDArray[np.float64], Y: NDArray[np.bool_], column: NDArray[np.float64], beta2: float
) -> NDArray[np.float64]:
    """Return F_beta of each column when its 0, 1, ..., n largest are predicted: (n + 1, s)."""
    order = np.argsort(-P, axis=0, kind="stable")
    hit, size = (
        np.cumsum(np.take_along_axis(a, order, axis=0), axis=0)
        for a in (column * Y, np.broadcast_to(column, P.shape))
    )
    zero = np.zeros((1, P.shape[1]))
    hit, size = np.concatenate([zero, hit]), np.concatenate([zero, size])
    return fbeta_of_counts(hit, hit[-1:], size, beta2)


def _steps_of_rows(
    P: NDArray[np.float64], Y: NDArray[np.bool_], beta2: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return by how much each entry changes F_beta of its row when it joins, and F_beta before.

    Entries join in falling order of their probability. Shapes (n, s) and (n,).
    """
    n, s = P.shape
    order = np.argsort(-P, axis=1, kind="stable")
    hit = np.cumsum(np.take_along_axis(Y, order, axis=1), axis=1)
    hit = np.concatenate([np.zeros((n, 1)), hit], axis=1)
    value = fbeta_of_counts(hit, hit[:, -1:], np.arange(s + 1)[None, :], beta2)
    steps = np.empty((n, s))
    np.put_along_axis(steps, order, np.diff(value, axis=1), axis=1)
    return steps, value[:, 0]


def _best_cut(P: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the threshold of the best cut of each column.

    ``value[m]`` (m = 0, ..., n) belongs to predicting the m largest; cuts between equal
    probabilities do not exist.
    """
    s = P.shape[1]
    down = -np.sort(-P, axis=0)
    above, below = np.concatenate([np.ones((1, s)), down]), np.concatenate([down, np.zeros((1, s))])
    exists = above > below
    # nothing lies above 1; and all are predicted, even 0, below 0
    exists[0] = exists[-1] = True
    best = np.argmax(np.where(exists, value, -np.inf), axis=0)
    high, low = (np.take_along_axis(a, best[None], axis=0)[0] for a in (above, below))
    middle = np.minimum((high + low) / 2, np.nextafter(high, -1))
    everything = (best == len(P)) & (high <= 0)
    return np.where(everything, -1.0, np.maximum(middle, low))
