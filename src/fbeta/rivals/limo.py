"""LIMO: linear scores with large margins between labels and between instances, then a threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import zip_longest
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils import check_consistent_length, check_random_state

from fbeta._array import Array, check_choice, check_count, check_number
from fbeta.decoding.expected import ScoreThresholds, ordered_scores
from fbeta.estimators.base import FittedPath, MultiLabelClassifier, views
from fbeta.labels.forms import Indicator, read_labels
from fbeta.linear import LinearScores
from fbeta.linear.learner import Alphas, Rows, Weight, take_rows
from fbeta.metrics import best_thresholds

__all__ = ["Limo", "limo_path"]

Row = tuple[Any, Array]  # columns of the non-zero features of an instance, and their values
Pairs = Iterator[tuple[int, int, int]]
RIDGE_ALPHAS = np.logspace(-3, 4, 8)  # among which the regression of thresholds chooses
MAX_SCORE = 1e140  # sums of squares of scores stay finite


@dataclass(eq=False, repr=False)
class Limo(MultiLabelClassifier):
    """Label-wise and instance-wise margin optimisation (Wu and Zhou, 2017).

    Scores ``w_j.x`` minimise, by stochastic gradient descent, ``alpha / 2 sum_j |w_j|^2 + sum_i
    sum_{u in y_i, v not in y_i} [1 - (w_u - w_v).x_i]_+``, or the same with margins between the
    instances of a label, ``sum_j sum_{a in j, b not in j} [1 - w_j.(x_a - x_b)]_+``, or with both.
    The labels whose scores exceed a threshold are predicted.

    Parameters
    ----------
    beta : float > 0
        The measure that the threshold maximises.
    alpha : float > 0
        Strength of the penalty against the margins between labels. The authors' weight of these
        margins is ``lambda_1 = 1 / alpha``.
    alpha_instance : float > 0, optional
        Strength of the penalty against the margins between instances, ``lambda_2 = 1 /
        alpha_instance``; ``alpha`` by default.
    variant : {"label", "instance", "full"}
        Margins between the labels of an instance, between the instances of a label, or both.
    threshold : {"regression", "instance", "micro"}
        ``"instance"`` and ``"micro"``: the one threshold with the highest instance-averaged or
        micro-averaged F_beta on the training data. ``"regression"``: a threshold for each row,
        linear in its scores in the order of the labels and in descending order, fitted by least
        squares to the best thresholds of the training rows.
    eta : float in (0, 1)
        Step size.
    epochs : int
        Passes over the training data.
    random_state : int, RandomState or None
        Of the initial weights and of the order of the steps.

    Attributes
    ----------
    classes_ : ndarray of shape (s,)
        Names of the labels.
    coef_ : ndarray of shape (s, d)
        Weights of the features of each label; there is no intercept.
    threshold_coef_, threshold_intercept_ : ndarray of shape (2 s,), and float
        Coefficients of the scores and of the scores in descending order, zero for one threshold,
        and the rest of the threshold.
    beta_ : float
        The measure that the threshold was fitted for.

    Notes
    -----
    For the descent features are divided by their largest absolute value; ``coef_`` is for the
    features as they came. Rows with no or all labels have no pairs of labels and matter for the
    threshold only.

    Examples
    --------
    >>> X = [[1.0, 0.0], [0.9, 0.2], [0.1, 1.0], [0.0, 0.8]]
    >>> Y = [["sea"], ["sea"], ["sky"], ["sky"]]
    >>> Limo(alpha=0.1, epochs=50, random_state=0).fit(X, Y).predict([[1.0, 0.1], [0.1, 0.9]])
    [['sea'], ['sky']]
    """

    beta: float = 1.0
    alpha: float = 1.0
    _: KW_ONLY
    alpha_instance: float | None = None
    variant: str = "label"
    threshold: str = "regression"
    eta: float = 0.01
    epochs: int = 10
    random_state: Any = None

    (coef_,) = views("_model", "coef")
    threshold_coef_, threshold_intercept_, beta_ = views("_rule", "coef", "intercept", "beta")

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Fit scores, then the threshold, to rows that all count the same; X, y as elsewhere."""
        return super().fit(X, y)

    def _fit(self, X: Any, Y: Indicator, weight: Weight) -> None:
        check_choice("threshold", self.threshold, ("regression", "instance", "micro"))
        self._keep(X, Y, self._path(X, Y, [self.alpha])[0])

    def _path(self, X: Any, Y: Indicator, alphas: Sequence[float]) -> Array:
        """Return the weights for each strength, of shape (m, s, d)."""
        other = None if self.alpha_instance is None else [self.alpha_instance] * len(alphas)
        options = {k: getattr(self, k) for k in ("variant", "eta", "epochs", "random_state")}
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is refused in _keep
            return limo_path(X, Y, alphas, alphas_instance=other, **options)

    def _keep(self, X: Any, Y: Indicator, coef: Array) -> None:
        """Keep the weights, and fit the threshold of their scores."""
        self._model = LinearScores(coef, np.zeros(len(coef)))
        with np.errstate(over="ignore", invalid="ignore"):
            scores, beta = self._model.scores(X), float(self.beta)
        if not np.abs(scores).max() < MAX_SCORE:  # also where it is NaN
            raise ValueError("the scores overflow: increase alpha or alpha_instance")
        truth = Y.toarray()
        if self.threshold == "regression" and len(truth) > 1:
            # each row by itself, as elsewhere each label by itself
            best = best_thresholds(scores.T, truth.T, beta, average="macro")
            model = RidgeCV(RIDGE_ALPHAS).fit(ordered_scores(scores), best)
            self._rule = ScoreThresholds(beta, model.coef_, float(model.intercept_))
        else:
            average = "micro" if self.threshold == "micro" else "instance"
            best = best_thresholds(scores, truth, beta, average=average)
            self._rule = ScoreThresholds(beta, np.zeros(2 * scores.shape[1]), float(best))

    def alpha_path(
        self, shared: Any, Y: Indicator, weight: Weight, rows: Rows, alphas: Alphas
    ) -> FittedPath:
        """Learn all alphas in one pass over some rows."""
        X = take_rows(shared, rows)
        for alpha, coef in zip(alphas, self._path(X, Y[rows], alphas), strict=True):
            model = clone(self)
            model.n_labels_ = Y.shape[1]
            model._keep(X, Y[rows], coef)
            yield alpha, model


def limo_path(
    X: Any,
    Y: Any,
    alphas: Sequence[float],
    *,
    alphas_instance: Sequence[float] | None = None,
    variant: str = "label",
    eta: float = 0.01,
    epochs: int = 10,
    random_state: Any = None,
) -> Array:
    """Learn the weights (m, s, d) for several strengths of the penalty in one pass over the data.

    A step draws a margin ``1 - w.z``, and where it is positive sets ``w <- (1 - eta) w + eta z /
    alpha`` for the weights in it. All strengths start from the same weights and take the same
    steps, so that each is what a run of its own with the same ``random_state`` gives: the average
    of all iterates, for the features as they came.

    Parameters
    ----------
    X : array-like or csr_array of shape (n, d)
        Features.
    Y : labels of n instances
        0/1 array or sparse matrix of shape (n, s), or any other form of labels.
    alphas, alphas_instance : sequence of m floats > 0
        Strengths of the penalty against the margins between labels, and between instances; the
        second are ``alphas`` by default.
    variant, eta, epochs, random_state
        As for :class:`Limo`.

    Examples
    --------
    >>> X, Y = np.eye(2), np.eye(2, dtype=int)
    >>> W = limo_path(X, Y, [0.1, 1.0], epochs=100, random_state=0)
    >>> W.shape, (W[0] @ X.T).argmax(axis=0).tolist()
    ((2, 2, 2), [0, 1])
    """
    check_choice("variant", variant, ("label", "instance", "full"))
    if not check_number("eta", eta, strict=True) < 1:
        raise ValueError(f"eta must be below 1, got {eta!r}")
    strength = [check_number("alpha", a, strict=True) for a in alphas]
    other = strength if alphas_instance is None else alphas_instance
    strength_instance = [check_number("alpha_instance", a, strict=True) for a in other]
    if len(strength) != len(strength_instance):
        raise ValueError(f"got {len(strength)} alphas and {len(strength_instance)} of instances")
    random, Y = check_random_state(random_state), read_labels(Y)[1]
    check_consistent_length(X, Y)
    scaler = MaxAbsScaler()
    row = _row_reader(scaler.fit_transform(X))
    d = scaler.n_features_in_
    iterates = _Iterates(random.normal(0.0, d**-0.5, (Y.shape[1], d)), len(strength), eta)
    gains = eta / np.array([strength, strength_instance])
    size, transposed = np.diff(Y.indptr), sp.csr_array(Y.T)
    mixed = (size > 0) & (size < Y.shape[1])
    size = size[mixed] if variant != "instance" and mixed.any() else size
    # the number of rows with pairs times the mean number of their labels
    steps = len(size) * max(1, round(float(size.mean())))
    for _ in range(check_count("epochs", epochs)):
        labels = _draw_pairs(random, Y, steps if variant != "instance" else 0)
        instances = _draw_pairs(random, transposed, steps if variant != "label" else 0)
        for label_pair, instance_pair in zip_longest(labels, instances):
            iterates.time += 1
            if label_pair is not None:
                i, u, v = label_pair
                x = row(i)
                iterates.widen(u, x, v, x, gains[0])
            if instance_pair is not None:
                j, a, b = instance_pair
                iterates.widen(j, row(a), j, row(b), gains[1])
    return np.ascontiguousarray(iterates.average() / scaler.scale_)


def _draw_pairs(random: Any, Y: Indicator, count: int) -> Pairs:
    """Draw rows of Y that have a column present and one absent, and one column of either kind."""
    s, size, start = Y.shape[1], np.diff(Y.indptr), Y.indptr[:-1]
    rows = np.flatnonzero((size > 0) & (size < s))
    if not len(rows) or not count:
        return iter(())
    Y.sort_indices()
    row = rows[random.randint(0, len(rows), count)]
    present = Y.indices[start[row] + random.randint(0, size[row])]
    rank = random.randint(0, s - size[row])
    # the absent column of that rank is the rank plus the number of present columns before it;
    # column minus position grows within a row, so one search over all rows counts them
    position = np.arange(Y.nnz) - np.repeat(start, size)
    key = np.repeat(np.arange(Y.shape[0]) * s, size) + Y.indices - position
    absent = rank + np.searchsorted(key, row * s + rank, side="right") - start[row]
    return zip(row.tolist(), present.tolist(), absent.tolist(), strict=True)


def _row_reader(X: Any) -> Callable[[int], Row]:
    """Return what gives the non-zero features of a row: all of them where X is dense."""
    if not sp.issparse(X):
        X, everything = np.ascontiguousarray(X, dtype=np.float64), slice(None)
        return lambda i: (everything, X[i])
    X.sum_duplicates()
    data, indices, indptr = X.data.astype(np.float64), X.indices, X.indptr.tolist()

    def read(i: int) -> Row:
        here = slice(indptr[i], indptr[i + 1])
        return indices[here], data[here]

    return read


class _Iterates:
    """The weights ``w = c v`` of every label, and the sum ``a v + r`` of all iterates.

    With the scalars c and a apart, a step costs no more than the non-zero features of its row.
    Each holds one array per label, with a column for each of m penalties.
    """

    def __init__(self, start: Array, m: int, eta: float) -> None:
        self.v = [np.repeat(w[:, None], m, axis=1) for w in start]
        self.r = [np.zeros_like(v) for v in self.v]
        self.c, self.a = list(np.ones((len(start), m))), list(np.zeros((len(start), m)))
        self.counted = [0] * len(start)  # iterates of the label that are in the sum
        self.time, self.eta = 0, eta
        # r and a v cancel to the relative accuracy eps / c, so that c must not become small
        self.shrunk, self.period = [0] * len(start), max(1, int(np.log(1e-4) / np.log1p(-eta)))

    def scores(self, j: int, x: Row) -> Array:
        """Return ``w_j.x`` for every penalty, of shape (m,)."""
        columns, values = x
        return np.asarray(self.c[j] * (values @ self.v[j][columns]))

    def widen(self, j: int, x: Row, k: int, z: Row, gain: Array) -> None:
        """Take a step on ``[1 - w_j.x + w_k.z]_+`` for the penalties for which it is positive."""
        violated = self.scores(j, x) - self.scores(k, z) < 1
        if violated.any():
            factor, gain = 1 - self.eta * violated, gain * violated
            self._shrink(j, factor)
            if k != j:
                self._shrink(k, factor)
            self._add(j, x, gain)
            self._add(k, z, -gain)

    def _shrink(self, j: int, factor: NDArray[Any]) -> None:
        self.a[j] += (self.time - self.counted[j]) * self.c[j]
        self.counted[j] = self.time
        self.c[j] *= factor
        self.shrunk[j] += 1
        if self.shrunk[j] == self.period:
            self.r[j] += self.a[j] * self.v[j]
            self.v[j] *= self.c[j]
            self.a[j][:], self.c[j][:], self.shrunk[j] = 0.0, 1.0, 0

    def _add(self, j: int, x: Row, gain: Array) -> None:
        """Add ``gain x`` to w_j, which has just been shrunk and has all iterates in its sum."""
        columns, values = x
        change = values[:, None] * (gain / self.c[j])
        self.v[j][columns] += change
        self.r[j][columns] -= self.a[j] * change

    def average(self) -> Array:
        """Return the mean of the iterates, of shape (m, s, d)."""
        parts = zip(self.v, self.r, self.c, self.a, self.counted, strict=True)
        total = [(a + (self.time + 1 - n) * c) * v + r for v, r, c, a, n in parts]
        return np.moveaxis(np.stack(total), 2, 0) / (self.time + 1)
