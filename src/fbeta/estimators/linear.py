"""Linear models: the search for alpha, cardinality, label sets, lists of likely labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import check_number
from fbeta._threads import check_cancelled, run_threaded
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.base import views
from fbeta.estimators.folds import ALPHAS
from fbeta.estimators.statistics_base import (
    FBetaClassifier,
    LinearParameters,
    StatisticsClassifier,
)
from fbeta.labels.forms import Indicator
from fbeta.linear import Cardinality, LabelSets, LinearLearner, LinearProbabilities
from fbeta.linear.design import Design
from fbeta.linear.learner import Names, Weight
from fbeta.losses import Loss
from fbeta.statistics.codes import CardinalityCode, Code, LabelSetCode, SizedCode
from fbeta.statistics.label_statistics import LabelStatistics

BATCH_BYTES = 1 << 27  # of the coefficients of labels that are fitted together
CHUNK_BYTES = 1 << 22  # of the scores of rows that are predicted together, on each thread
LABELS_OF_A_TOP = 16  # labels of which one, the most likely, is compared with those of other groups
MAX_SCORE_CHANGE = 0.05  # of a training row, by coefficients that are dropped


@dataclass(eq=False, repr=False)
class FBetaClassifierCV(AlphaSearchCV):
    """:class:`AlphaSearchCV` of :class:`FBetaClassifier`, with the parameters of both.

    Each fold is one pass along the path of alphas with warm starts, in coordinates of X that all
    folds and alphas share.

    Parameters
    ----------
    alphas, cv, n_jobs, prune
        As for :class:`AlphaSearchCV`.
    beta, loss, cardinalities, fit_intercept, tol, max_iter
        As for :class:`FBetaClassifier`.

    Attributes
    ----------
    alpha_, best_score_, cv_results_, best_estimator_, calibration_, coef_, intercept_, n_iter_
        As for the two.

    Examples
    --------
    >>> from fbeta import FBetaClassifierCV
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> clf = FBetaClassifierCV(alphas=[0.1, 1.0, 1000.0], cv=3).fit(X, Y)
    >>> clf.cv_results_["mean_test_score"].shape, clf.alpha_ < 1000
    ((3,), True)
    """

    alphas: Sequence[float] = ALPHAS
    cv: Any = 5
    beta: float = 1.0  # a parameter, where other searches take that of their estimator
    _: KW_ONLY
    loss: str | Loss = "logistic"
    cardinalities: str = "seen"
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 100
    n_jobs: int | None = None
    prune: bool = True

    @property
    def estimator(self) -> FBetaClassifier:
        """The estimator whose alpha is chosen."""
        names = ("beta", "loss", "cardinalities", "fit_intercept", "tol", "max_iter")
        return FBetaClassifier(**{name: getattr(self, name) for name in names})

    cardinalities_, coef_, intercept_, n_iter_ = views(
        "best_estimator_", "cardinalities_", "coef_", "intercept_", "n_iter_"
    )


@dataclass(eq=False, repr=False)
class CardinalityClassifier(LinearParameters, StatisticsClassifier):
    """Linear scores of labels, and linear potentials of how many there are.

    ``ln P(y | x) = sum_j y_j (w_j.x + b_j) + v_|y|.x + c_|y| - ln Z(x)`` over the sizes that were
    seen. The normaliser is exact, the model convex. It contains independent labels (v = c = 0) and
    learns how far to leave them; the statistics are those of a distribution by construction.

    Parameters
    ----------
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        and v is minimised; less than 1e-7 is taken for that. Intercepts have a penalty of 1e-5,
        which only keeps those of labels finite that are always or never there.
    beta, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`; the intercepts are b and c.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_, intercept_ : ndarrays of shape (s + C, d) and (s + C,)
        The w and b of the labels, then the v and c of the sizes that were seen.

    Notes
    -----
    A row costs O(s k) for sizes up to k. The two sides of the model can stand for each other - a
    constant added to all scores of labels, and its multiple by k taken off the potentials - and
    the solution is the one with the smallest coefficients.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = CardinalityClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    tol: float = 1e-4

    _any_array = True
    _streams = True

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")

    def _make_code(self, Y: Indicator) -> CardinalityCode:
        return CardinalityCode.of(Y)

    def _make_learner(self) -> LinearLearner:
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter, objective=Cardinality)


@dataclass(eq=False, repr=False)
class LabelSetClassifier(LinearParameters, StatisticsClassifier):
    """A softmax over the label sets of the training data.

    ``ln P(y | x) = sum_j y_j w_j.x + b_y - ln Z(x)``: the score of a set is the sum of the linear
    scores of its labels and a number of its own. Labels depend on each other as they do in the
    sets that were seen, and no other set has a probability. Memory grows with the number of rows
    times that of label sets.

    Parameters
    ----------
    alpha : float >= 0
        The SUM of the losses of all rows plus ``alpha / 2`` times the sum of the squares of all w
        is minimised. The b have a penalty of 1e-5.
    beta, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`; the intercepts are the b.

    Attributes
    ----------
    classes_, cardinalities_, n_iter_
        As for :class:`fbeta.FBetaClassifier`.
    coef_ : ndarray of shape (s, d)
        The w of the labels.
    offset_ : ndarray of shape (L,)
        The b of the label sets.
    labelsets_ : csr_array of shape (L, s)
        The label sets that were seen, as 0/1.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> clf = LabelSetClassifier(alpha=0.1).fit(X, Y)
    >>> clf.predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    tol: float = 1e-4

    coef_, offset_, n_iter_ = views("_model", "coef", "intercept", "most_iter")
    (labelsets_,) = views("_code", "sets")

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return LabelSetCode.of(Y)

    def _make_learner(self) -> LinearLearner:
        return LinearLearner(self.fit_intercept, self.tol, self.max_iter, objective=LabelSets)


@dataclass(frozen=True)
class ListedLinearModel:
    """Linear models of any number of labels, which list the likely ones, and of the sizes."""

    values: NDArray[np.float64]  # of the sparse coefficients, (s, d), by rows,
    columns: NDArray[np.intp]  # their features,
    starts: NDArray[np.intp]  # (s + 1,), and where each label begins
    n_features: int  # d
    intercept: NDArray[np.float64]  # (s,), -inf for labels without rows
    sizes: NDArray[np.intp]  # (C,), those seen; empty where sizes have no model
    of_size: LinearProbabilities | None  # of the C sizes
    list_length: int  # labels that are listed for each row, at most
    most_iter: int

    @property
    def coef(self) -> sp.csr_array:
        """Coefficients of the labels, of shape (s, d)."""
        shape = len(self.intercept), self.n_features
        return sp.csr_array((self.values, self.columns, self.starts), shape=shape)

    def probabilities(self, X: Any) -> LabelStatistics:
        """Return the statistics of the likely labels of n rows, and of the number of labels."""
        sparse, coef = sp.issparse(X), self.coef
        if sparse:  # with indices of one type, which the products need
            coef, X = sp.csr_array(coef.T), sp.csr_array((X.data, X.indices, X.indptr), X.shape)
        rows = max(1, CHUNK_BYTES // (8 * len(self.intercept)))

        def work(start: int) -> sp.csr_array:
            check_cancelled()
            some = X[start : start + rows]
            scores = (some @ coef).toarray() if sparse else np.ascontiguousarray((coef @ some.T).T)
            scores += self.intercept
            return likely_labels(scores, self.list_length)

        starts = range(0, max(X.shape[0], 1), rows)
        lists, law = sp.vstack(run_threaded(work, starts, small=True)), cast(Any, None)
        if self.of_size is not None:
            code = SizedCode(self.sizes, 0, self.sizes)
            law = code.law_of_sizes(code.estimates(self.of_size.log_odds(X)).P)
        return LabelStatistics.from_logits(lists, law)


def likely_labels(scores: NDArray[np.float64], max_listed: int) -> sp.csr_array:
    """Return the largest scores of each row, at most ``max_listed`` and above -inf, as CSR."""
    (n, s), tops = scores.shape, scores
    if s >= LABELS_OF_A_TOP * max_listed:
        # the k-th largest of the maxima of groups of labels is at most the k-th largest score
        width = s // LABELS_OF_A_TOP
        grouped = scores[:, : LABELS_OF_A_TOP * width].reshape(n, LABELS_OF_A_TOP, width)
        tops = grouped.max(axis=1)
    place = max(tops.shape[1] - max_listed, 0)
    least = np.partition(tops, place, axis=1)[:, place, None]
    row, label = np.nonzero((scores >= least) & (scores > -np.inf))
    value = scores[row, label]
    order = np.lexsort((-value, row))
    starts = np.searchsorted(row, np.arange(n + 1))
    kept = np.sort(order[np.arange(len(row)) - starts[row] < max_listed])
    indptr = np.searchsorted(row[kept], np.arange(n + 1))
    return sp.csr_array((value[kept], label[kept], indptr), shape=(n, s))


def fit_listed_models(
    solver: LinearLearner,
    max_listed: int,
    code: Code,
    name: Names,
    X: Any,
    targets: sp.csc_array,
    weight: Weight,
    alpha: float,
) -> ListedLinearModel:
    """Fit to labels, some at a time, and to the sizes of the code; drop small coefficients."""
    alpha, s = check_number("alpha", alpha), code.n_labels
    design = Design.of(X, weight, intercept=solver.fit_intercept, rotate=False)
    sizes = getattr(code, "sizes", np.zeros(0, dtype=np.intp))

    def solve(columns: NDArray[np.intp]) -> Any:
        some = targets[:, columns]
        return solver.fit_design(design, some, alpha, lambda column: name(int(columns[column])))

    smallest = MAX_SCORE_CHANGE / max(float(abs(X).sum(axis=1).max()), 1e-300)
    coef, intercept, most = [], np.full(s, -np.inf), 0
    labels = np.flatnonzero(np.diff(targets.indptr)[:s])
    at_once = max(1, BATCH_BYTES // (8 * X.shape[1]))
    for start in range(0, len(labels), at_once):
        batch = labels[start : start + at_once]
        model = solve(batch)
        some = model.coef[model.problem]
        coef.append(sp.csr_array(np.where(np.abs(some) < smallest, 0.0, some)))
        intercept[batch], most = model.intercept[model.problem], max(most, model.most_iter)
    place = np.full(s, len(labels))
    place[labels] = np.arange(len(labels))
    empty = sp.csr_array((1, X.shape[1]))
    stacked = sp.csr_array(sp.csr_array(sp.vstack([*coef, empty]))[place])
    of_size = solve(np.arange(s, targets.shape[1])) if len(sizes) else None
    arrays = stacked.data, stacked.indices, stacked.indptr, X.shape[1], intercept
    return ListedLinearModel(*arrays, sizes, of_size, max_listed, most)
