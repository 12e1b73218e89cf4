"""Methods that fit to one part of the rows and choose by F_beta on the other: thresholds, costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fbeta._array import Array, check_choice, check_count, check_number
from fbeta.decoding.expected import ScoreThresholds
from fbeta.estimators.base import MultiLabelClassifier, views
from fbeta.estimators.statistics_base import LinearParameters
from fbeta.labels.forms import Indicator
from fbeta.linear import Binary, Design, LinearLearner, LinearProbabilities, LinearScores, Problems
from fbeta.linear.learner import Weight
from fbeta.losses import LogisticLoss, Loss
from fbeta.metrics import AVERAGES, averaged_fbeta, best_thresholds

__all__ = ["CostSensitiveRelevance", "CostedLogistic", "ThresholdedRelevance"]


@dataclass(eq=False, repr=False)
class HeldOutClassifier(LinearParameters, MultiLabelClassifier):
    """A classifier that chooses something by the F_beta on rows that it was not fitted to."""

    _: KW_ONLY
    average: str = "instance"
    validation_fraction: float = 0.25
    random_state: Any = None

    def _parts(self, X: Any, Y: Indicator, weight: Weight) -> list[tuple[Any, Indicator, Weight]]:
        """Return the features, labels and weights to fit to, and those to choose by."""
        check_choice("average", self.average, AVERAGES)
        parts = split_rows(X, weight, self.validation_fraction, self.random_state)
        return [(X[rows], Y[rows], None if weight is None else weight[rows]) for rows in parts]

    def predict_marginals(self, X: Any) -> NDArray[Any]:
        """Estimate the marginal probability of each label, of shape (n, s).

        It is not called ``predict_proba``: scikit-learn takes for granted that a classifier which
        has that predicts the most probable class. X is as for :meth:`predict`.
        """
        return np.asarray(self._model.probabilities(self._read_features(X)))


def split_rows(
    X: Any, weight: NDArray[np.float64] | None, fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of two random parts, equal rows on the same side; none is empty.

    The second part has the share ``fraction`` of the weight. A row's side depends on what it holds
    and not on its position, so that a row of weight 2 is treated as the same row twice.
    """
    fraction = check_number("validation_fraction", fraction, strict=True)
    if fraction >= 1:
        raise ValueError(f"validation_fraction must be below 1, got {fraction!r}")
    key, rows = check_random_state(random_state).bytes(16), sp.csr_array(X, copy=True)
    rows.eliminate_zeros()
    rows.sort_indices()
    columns, data = rows.indices.astype(np.int64), rows.data.astype(np.float64)
    digests = np.empty(X.shape[0], dtype=np.uint64)
    for i, (start, stop) in enumerate(pairwise(rows.indptr)):
        row = columns[start:stop].tobytes() + data[start:stop].tobytes()
        digests[i] = int.from_bytes(blake2b(row, key=key, digest_size=8).digest(), "little")
    distinct, which = np.unique(digests, return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(
            f"n_samples = 1 distinct row in X (of {X.shape[0]}): two are needed to choose on other "
            "rows than those that are fitted"
        )
    share = np.bincount(which, weights=weight)
    before = np.cumsum(share) - share / 2
    chosen = before < fraction * share.sum()
    chosen[0], chosen[-1] = True, False
    return np.flatnonzero(~chosen[which]), np.flatnonzero(chosen[which])


@dataclass(frozen=True)
class HeldOutThresholds:
    """Cut marginals where that is best on rows that were held out."""

    P: NDArray[Any]  # (n, s), marginals of these rows
    Y: NDArray[np.bool_]  # (n, s), their labels
    weight: Weight
    average: str  # which average of F_beta is to be the highest
    beta: float = np.nan  # the measure that the threshold is for
    threshold: Any = None  # (s,)

    def for_beta(self, beta: float) -> HeldOutThresholds:
        """Return the rule with the thresholds for one beta."""
        options: dict[str, Any] = {"average": self.average, "weight": self.weight}
        best = best_thresholds(self.P, self.Y, beta, ends=(0.0, 1.0), **options)
        return replace(self, beta=beta, threshold=np.broadcast_to(best, self.P.shape[1:]).copy())

    def __call__(self, output: NDArray[Any], beta: float) -> NDArray[np.bool_]:
        """Cut at the thresholds, which are chosen again for another beta."""
        rule = self if beta == self.beta else self.for_beta(beta)
        return np.asarray(output > rule.threshold)


@dataclass(eq=False, repr=False)
class ThresholdedRelevance(HeldOutClassifier):
    """Binary relevance with the thresholds that are best on held-out rows (Koyejo et al. 2015).

    Fits one logistic regression for each label to a part of the rows, and predicts the labels
    whose probability exceeds a threshold: of all, the one with the highest F_beta on the other
    rows. These are kept, so that ``predict(X, beta=...)`` can choose again for another beta.

    Parameters
    ----------
    beta : float > 0
        The measure to choose the thresholds by.
    alpha, fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.
    average : {"instance", "micro", "macro"}
        Which average of F_beta. One threshold is shared by all labels for ``"instance"`` and
        ``"micro"``; each label has its own for ``"macro"``.
    validation_fraction : float
        Share of the rows to choose thresholds on.
    random_state : int, RandomState or None
        Decides which rows are held out, together with their values: a float32 copy of X has
        other values, and other rows of it are held out.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_
        As for :class:`BinaryRelevance`.
    threshold_ : ndarray of shape (s,)
        Labels with a higher probability are predicted.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    >>> Y = [["sea"], ["sea"], ["sea"], ["sky"], ["sky"], ["sky"]]
    >>> model = ThresholdedRelevance(alpha=0.1, validation_fraction=0.4, random_state=0).fit(X, Y)
    >>> model.predict([[0.0], [5.0]])
    [['sea'], ['sky']]
    """

    coef_, intercept_, n_iter_ = views("_model", "coef", "intercept", "most_iter")
    (threshold_,) = views("_rule", "threshold")

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        (X, Y, weight), (held, truth, other) = self._parts(X, Y, weight)
        learner = LinearLearner(self.fit_intercept, self.tol, self.max_iter, unfold=True)
        self._model = learner.fit(X, Y.tocsc(), weight, self.alpha)
        rule = HeldOutThresholds(self._output(held), truth.toarray() > 0, other, self.average)
        self._rule = rule.for_beta(float(self.beta))

    def _output(self, X: Any) -> NDArray[Any]:
        return np.asarray(self._model.probabilities(X))


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
        return LogisticLoss().link(q) + float(np.log(self.fn / self.fp))

    def inverse_link(self, u: Array) -> Array:
        """Return the probability whose link is ``u``."""
        return LogisticLoss().inverse_link(u - float(np.log(self.fn / self.fp)))

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together, from one exponential."""
        cost = self.fp + (self.fn - self.fp) * y
        parts = LogisticLoss().evaluate(self.fn * y / cost, u)
        return cost * parts[0], cost * parts[1], cost * parts[2]

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
    average, validation_fraction, random_state
        As for :class:`ThresholdedRelevance`, with t in place of the threshold.
    fit_intercept, tol, max_iter
        As for :class:`fbeta.FBetaClassifier`.

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
        (X, Y, weight), (held, truth, share) = self._parts(X, Y, weight)
        if isinstance(self.grid, int | np.integer):
            grid = np.arange(1, check_count("grid", self.grid) + 1) / self.grid
        else:
            grid, high = np.asarray(self.grid, dtype=np.float64), 1 + self.beta**2
            if grid.ndim != 1 or not len(grid) or not ((grid > 0) & (grid < high)).all():
                raise ValueError(
                    f"grid must hold numbers above 0 and below {high:g}, got {self.grid!r}"
                )
        solver = LinearLearner(self.fit_intercept, self.tol, self.max_iter)
        design = Design.of(X, weight, intercept=solver.fit_intercept)
        alpha, start, targets = check_number("alpha", self.alpha), None, Y.tocsc()
        models: list[LinearProbabilities] = []
        for t in grid:  # from the solution for the t before
            problems = Problems(design, Binary(CostedLogistic(1 + self.beta**2 - t, t)), targets)
            solution = problems.solve(alpha, start=start, tol=solver.tol, max_iter=solver.max_iter)
            problems.warn_if_not_converged(solution, alpha, solver.max_iter)
            start = solution.W
            models.append(problems.model(solution).unfold())
        options: dict[str, Any] = {"average": self.average, "sample_weight": share}
        values = [averaged_fbeta(truth, m.scores(held) > 0, self.beta, **options) for m in models]
        best = np.broadcast_to(np.argmax(values, axis=0), Y.shape[1:])
        coef, intercept = (
            np.stack([getattr(models[b], name)[j] for j, b in enumerate(best)])
            for name in ("coef", "intercept")
        )
        n_iter = max(model.most_iter for model in models)
        self._model = CostedModel(coef, intercept, grid[best], float(self.beta), n_iter)
        self._rule = ScoreThresholds(float(self.beta))
