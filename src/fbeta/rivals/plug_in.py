"""Exact F-measure plug-in: label statistics by multinomial regression, then the exact decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from fbeta._estimator import CHUNK, StatisticsClassifier
from fbeta._validation import check_choice, check_count, check_number
from fbeta.decoding import decode
from fbeta.encoding import LabelStatistics, observed_cardinalities
from fbeta.labels import Indicator
from fbeta.linear import (
    Design,
    LinearModel,
    LinearProblems,
    SoftmaxModel,
    SoftmaxProblems,
    fit_linear,
    fit_softmax,
    solve_path,
)
from fbeta.linear.binary import distinct_columns
from fbeta.losses import LogisticLoss

__all__ = ["ExactFPlugIn"]


class ExactFPlugIn(StatisticsClassifier):
    """Exact F-measure plug-in, EFP (Dembczynski et al. 2013).

    ``q_0 = P(no labels | x)`` by logistic regression and, for each label j, one multinomial
    regression whose class is ``|y|`` if ``y_j = 1`` and 0 otherwise; ``q_jk`` is the probability of
    class k. Then the decoder of :class:`fbeta.FBetaClassifier`. The multinomial regressions of
    all labels are solved together.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    alpha : float >= 0
        Each problem minimises the SUM of its losses plus ``alpha / 2`` times the sum of the squares
        of its weights, those of all classes; intercepts are not penalised.
    rows : {"nonempty", "all"}
        Fit the multinomial regressions to the rows that have labels, and multiply their
        probabilities with ``1 - q_0``; or fit them to all rows. Without empty rows both are the
        same.
    fit_intercept : bool
        Whether the models have intercepts.
    tol : float > 0
        A problem has converged once the decrease of its objective that a further step promises is
        below ``tol`` times the objective.
    max_iter : int
        Largest number of Newton iterations.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    cardinalities_ : ndarray of shape (K,)
        Sizes of label sets in the training data.
    coef_ : ndarray of shape (M, d)
        Weights of the classes of the distinct multinomial problems, one problem after the other.
    intercept_ : ndarray of shape (M,)
        Their intercepts.
    n_iter_ : int
        Most Newton iterations of a problem.

    Notes
    -----
    Only classes that occur are fitted: a label has the sizes that were seen together with it, and
    a label that never occurs has no model. With two classes the penalty is ``alpha / 4 |w|^2`` on
    the difference w of their weights.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> ExactFPlugIn(alpha=0.1).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _empty_model: LinearModel | None
    _softmax: SoftmaxModel

    def __init__(
        self,
        beta: float = 1.0,
        alpha: float = 1.0,
        *,
        rows: str = "nonempty",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
    ) -> None:
        self.beta = beta
        self.alpha = alpha
        self.rows = rows
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> ExactFPlugIn:
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
        ExactFPlugIn
            Itself.
        """
        check_choice("rows", self.rows, ("nonempty", "all"))
        alpha = check_number("alpha", self.alpha)
        solver: dict[str, Any] = {
            "fit_intercept": self.fit_intercept,
            "tol": check_number("tol", self.tol, strict=True),
            "max_iter": check_count("max_iter", self.max_iter),
        }
        X, Y, weight = self._read_training(X, y, sample_weight)
        self.cardinalities_ = observed_cardinalities(Y)
        empty = np.diff(Y.indptr) == 0
        self._empty_model = None
        if empty.any():
            target = sp.csc_array(empty[:, None].astype(np.int8))
            self._empty_model = fit_linear(
                X, target, LogisticLoss(), alpha, weight=weight, **solver
            )
        if empty.any() and self.rows == "nonempty" and not empty.all():
            X, Y, weight = X[~empty], Y[~empty], None if weight is None else weight[~empty]
        classes = self._lay_out(Y)
        self._softmax = fit_softmax(X, classes, alpha, weight=weight, **solver)
        self.coef_, self.intercept_ = self._softmax.coef, self._softmax.intercept
        self.n_iter_ = int(self._softmax.n_iter.max(initial=0))
        if self._empty_model is not None:
            self.n_iter_ = max(self.n_iter_, int(self._empty_model.n_iter[0]))
        return self

    def _lay_out(self, Y: Indicator) -> NDArray[np.intp]:
        """Return the classes of the distinct problems, (n, m), and remember what they stand for.

        ``_source`` lists the classes of the model that are not class 0 and ``_component`` the
        component of the code, without the first, that each of them estimates.
        """
        sizes, slot = np.diff(Y.indptr), np.zeros(self.n_labels_ + 1, dtype=np.intp)
        slot[self.cardinalities_] = np.arange(len(self.cardinalities_))
        problem, first = distinct_columns(Y.tocsc())
        source, component, classes, start = [], [], [], 0
        for m, column in enumerate(first):
            present = Y[:, [column]].toarray()[:, 0] > 0
            if not present.any():
                continue
            values, ids = np.unique(np.where(present, sizes, 0), return_inverse=True)
            for label in np.flatnonzero(problem == m):
                source.append(start + np.flatnonzero(values))
                component.append(slot[values[values > 0]] * self.n_labels_ + label)
            classes.append(ids)
            start += len(values)
        nothing = [np.zeros(0, dtype=np.intp)]
        self._source = np.concatenate(source or nothing)
        self._component = np.concatenate(component or nothing)
        return np.array(classes, dtype=np.intp).reshape(len(classes), Y.shape[0]).T

    def _statistics(self, X: Any) -> LabelStatistics:
        empty = None
        if self._empty_model is not None:
            empty = LogisticLoss().inverse_link(self._empty_model.scores(X))[:, 0]
        return self._assemble(self._softmax.probabilities(X), empty)

    def _assemble(self, probability: NDArray[Any], empty: NDArray[Any] | None) -> LabelStatistics:
        """Put the probabilities of the classes (n, M), and of no labels (n,), into their places."""
        n, K, s = len(probability), len(self.cardinalities_), self.n_labels_
        code = np.zeros((n, 1 + K * s), dtype=probability.dtype)
        code[:, 1 + self._component] = probability[:, self._source]
        if empty is not None:
            code[:, 0] = empty
            if self.rows == "nonempty":
                code[:, 1:] *= 1 - code[:, :1]
        return LabelStatistics.from_code(code, self.cardinalities_, s)

    def alpha_shared(self, X: Any, weight: NDArray[np.float64] | None) -> Design:
        """Return X in coordinates that all folds and strengths share."""
        return Design.of(X, weight, intercept=self.fit_intercept)

    def alpha_path(
        self,
        shared: Design,
        Y: Indicator,
        weight: NDArray[np.float64] | None,
        train: NDArray[np.intp],
        test: NDArray[np.intp],
        alphas: Sequence[float],
    ) -> Iterator[tuple[float, NDArray[np.bool_]]]:
        """Solve along the path on some rows, and yield predictions for others."""
        layout = clone(self)
        layout.n_labels_, layout.cardinalities_ = Y.shape[1], observed_cardinalities(Y[train])
        solver: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        empty = np.diff(Y[train].indptr) == 0
        rows = train[~empty] if self.rows == "nonempty" and not empty.all() else train
        problems = SoftmaxProblems(shared.take(rows), layout._lay_out(Y[rows]))
        no_labels = sp.csc_array(empty[:, None].astype(np.int8))
        emptiness = LinearProblems(shared.take(train), no_labels, LogisticLoss())
        size = max(1, CHUNK // layout._row_bytes())
        chunks = [shared.take(test[i : i + size]) for i in range(0, len(test), size)]
        for (alpha, solution), (_, q0) in zip(
            solve_path(problems, alphas, **solver),
            solve_path(emptiness, alphas, **solver),
            strict=True,
        ):
            problems.warn_if_not_converged(solution, alpha, self.max_iter)
            emptiness.warn_if_not_converged(q0, alpha, self.max_iter, lambda _: "no labels")
            out = []
            for chunk in chunks:
                none = emptiness.probabilities(q0, chunk)[:, 0] if empty.any() else None
                statistics = layout._assemble(problems.probabilities(solution, chunk), none)
                out.append(decode(statistics, self.beta))
            yield alpha, np.concatenate(out).astype(np.bool_)
