"""Submodular multi-label learning: a structured SVM in which labels attract each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from fbeta._array import Array, check_number
from fbeta.estimators.base import views
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.metrics import fbeta_of_counts
from fbeta.rivals.structured import BundleClassifier, BundleModel, most_violated

__all__ = ["SubmodularMultiLabel"]

Sets = NDArray[np.bool_]
Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]
MAX_CAPACITY = 1 << 29  # of the widest edge of a row: twice as much must fit 32 bits
MAX_EDGES = 1 << 17  # of the graph of the rows that are cut in one call
MIN_GAIN = 1e-12  # a smaller change of the value may be rounding error


@dataclass(eq=False, repr=False)
class SubmodularMultiLabel(BundleClassifier):
    """Submodular multi-label learning (Petterson and Caetano, 2011).

    A label set has the score ``sum_j y_j w_j.x + sum_{u < v} theta_uv C_uv y_u y_v`` with ``theta
    >= 0`` and C the co-occurrence of labels. Minimises ``alpha / 2 sum_j |w_j|^2 + alpha_pair / 2
    |theta|^2`` plus the sum over the instances of ``max_yhat [1 - F_beta(y, yhat) + score(yhat) -
    score(y)]``, and predicts the label set with the highest score, by a minimum cut.

    Parameters
    ----------
    beta : float > 0
        The measure in the loss.
    alpha : float > 0
        Strength of the penalty on w against the SUM of the losses.
    alpha_pair : float > 0, optional
        Strength of the penalty on theta; ``alpha`` by default.
    fit_intercept, tol, max_iter
        As for :class:`ReverseMultiLabel`.

    Attributes
    ----------
    classes_, coef_, intercept_, objective_, gap_, n_iter_, beta_
        As for :class:`ReverseMultiLabel`.
    pairs_ : ndarray of shape (E, 2)
        Pairs of labels u < v that occur together.
    pair_coef_ : ndarray of shape (E,)
        Their attraction ``theta_uv C_uv``.

    Notes
    -----
    The maximum over yhat is not submodular, because F_beta depends on the size of yhat, and
    :func:`loss_augmented` searches for it approximately. Whatever it finds gives a valid plane, so
    that the lower bound is one; the objective may be underestimated.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> SubmodularMultiLabel(alpha=0.01).fit(X, Y).predict([[0.5], [2.5]])
    [['sea'], ['sea', 'sky']]
    """

    _: KW_ONLY
    alpha_pair: float | None = None
    max_iter: int = 500

    pairs_, pair_coef_ = views("_model", "pairs", "attraction")

    def _fit_scores(self, X: Any, Y: Indicator, weight: Weight) -> BundleModel:
        pair = self.alpha if self.alpha_pair is None else self.alpha_pair
        alpha_pair = check_number("alpha_pair", pair, strict=True)
        share = np.ones(X.shape[0]) if weight is None else weight
        truth = Y.toarray().astype(np.bool_)
        pairs, C = cooccurrence(Y, share)
        true_pairs = _pair_indicator(truth, pairs)

        def search(scores: Array, theta: Array) -> tuple[Any, ...]:
            attraction = theta * C
            sets, values = loss_augmented(scores, pairs, attraction, truth, self.beta)
            risk = share @ (values - _score(scores, pairs, attraction, truth))
            change = sets.astype(np.float64) - truth
            together = _pair_indicator(sets, pairs).astype(np.float64) - true_pairs
            return risk, share[:, None] * change, C * (share @ together)

        *scores, theta = self._minimise(X, Y.shape[1], search, np.full(len(C), alpha_pair))
        model = BundleModel(*scores)
        return replace(model, pairs=np.column_stack(pairs), attraction=theta * C)

    def _output(self, X: Any) -> Any:
        """Return 1 for the labels in the set with the highest score, and -1 for the others."""
        model = self._model
        sets = maximise_pairwise(model.scores(X), tuple(model.pairs.T), model.attraction)
        return 2 * sets.astype(np.int8) - 1


def cooccurrence(Y: Indicator, weight: Array | None = None) -> tuple[Pairs, Array]:
    """Return the pairs of labels u < v in Y (n, s), and their weights relative to the largest."""
    Y = Y.astype(np.float64)
    weighted = Y if weight is None else sp.diags_array(weight) @ Y
    counts = sp.csr_array(sp.triu(Y.T @ weighted, k=1)).sorted_indices().tocoo()
    pairs = counts.row.astype(np.intp), counts.col.astype(np.intp)
    return pairs, counts.data / max(counts.data.max(initial=0.0), np.finfo(np.float64).tiny)


def _pair_indicator(sets: Sets, pairs: Pairs) -> Sets:
    return np.asarray(sets[:, pairs[0]] & sets[:, pairs[1]])


def _score(scores: Array, pairs: Pairs, attraction: Array, sets: Sets) -> Array:
    """Return the score of each row's label set, of shape (n,)."""
    return np.asarray((scores * sets).sum(axis=1) + _pair_indicator(sets, pairs) @ attraction)


def loss_augmented(
    scores: Array, pairs: Pairs, attraction: Array, Y: Sets, beta: float
) -> tuple[Sets, Array]:
    """Return label sets (n, s) that violate their margin most, approximately, and values (n,).

    ``argmax_yhat 1 - F_beta(y, yhat) + score(yhat)``: for a given size l of yhat the loss is
    linear. The maximisers for l = 1..s, the maximiser without attractions and the truth Y (n, s)
    are compared, and the best is improved by adding or removing single labels.
    """
    best, values = Y.copy(), _score(scores, pairs, attraction, Y)
    for rows, found in _candidates(scores, pairs, attraction, Y, beta):
        hits, size, true = (m.sum(axis=1) for m in (Y[rows] & found, found, Y[rows]))
        score = _score(scores[rows], pairs, attraction, found)
        value = 1 - fbeta_of_counts(hits, true, size, beta) + score
        # a row may come twice: the best of its candidates is written last
        order = np.argsort(value, kind="stable")
        order = order[value[order] > values[rows[order]]]
        best[rows[order]], values[rows[order]] = found[order], value[order]
    return _improve(best, values, scores, _symmetric(pairs, attraction, Y.shape[1]), Y, beta)


def _improve(
    sets: Sets, values: Array, scores: Array, A: sp.csr_array, Y: Sets, beta: float
) -> tuple[Sets, Array]:
    """Add or remove the one label that raises the value of a set most, while there is one."""
    rows = np.arange(len(Y))
    while len(rows):
        present, truth = sets[rows], Y[rows]
        sign = 1 - 2 * present.astype(np.intp)
        hits, size, size_true = (m.sum(axis=1)[:, None] for m in (present & truth, present, truth))
        f = fbeta_of_counts(hits + sign * truth, size_true, size + sign, beta)
        gain = sign * (scores[rows] + present @ A) - f
        label = gain.argmax(axis=1)
        change = gain.max(axis=1) + fbeta_of_counts(hits, size_true, size, beta)[:, 0]
        better = change > MIN_GAIN
        rows, label, change = rows[better], label[better], change[better]
        sets[rows, label] ^= True
        values[rows] += change
    return sets, values


def _candidates(
    scores: Array, pairs: Pairs, attraction: Array, Y: Sets, beta: float
) -> Iterator[tuple[NDArray[np.intp], Sets]]:
    """Yield rows, and a label set for each: maximisers without attractions and for each l.

    A larger l takes less from the true labels, so the sets grow with l: between two values of l
    with the same set there is no other.
    """
    rows, s, size = np.arange(len(Y)), Y.shape[1], Y.sum(axis=1)
    yield rows, most_violated(scores, Y, beta)[0]
    if not attraction.any():
        return

    def cut(rows: NDArray[np.intp], length: NDArray[np.intp]) -> Sets:
        gain = fbeta_of_counts(1, size[rows], length, beta)
        return maximise_pairwise(scores[rows] - gain[:, None] * Y[rows], pairs, attraction)

    low, high = np.ones(len(rows), dtype=np.intp), np.full(len(rows), s, dtype=np.intp)
    below, above = cut(rows, low), cut(rows, high)
    yield rows, below
    yield rows, above
    while True:
        between = (high - low > 1) & (below != above).any(axis=1)
        rows, low, high, below, above = (a[between] for a in (rows, low, high, below, above))
        if not len(rows):
            return
        middle = (low + high) // 2
        found = cut(rows, middle)
        yield rows, found
        rows, low, high = np.r_[rows, rows], np.r_[low, middle], np.r_[middle, high]
        below, above = np.vstack([below, found]), np.vstack([found, above])


def maximise_pairwise(unary: Array, pairs: Pairs, attraction: Array) -> Sets:
    """Maximise ``sum_j y_j unary_j + sum_e attraction_e y_u(e) y_v(e)`` for each row, (n, s).

    Returns the smallest of the best sets. Rows in which labels decide one after the other are
    solved so; the others by a minimum cut with integer capacities, whose value may fall short of
    the maximum by ``(s + 2 E) 2^-29`` of the largest of a row.
    """
    s = unary.shape[1]
    A = _symmetric(pairs, attraction, s)

    def close(sets: Sets) -> Sets:  # labels that gain from the present set, until none changes
        while True:
            update = unary + sets @ A > 0
            if (update == sets).all():
                return sets
            sets = update

    lower, upper = (close(np.full(unary.shape, start)) for start in (False, True))
    rows = np.flatnonzero((lower != upper).any(axis=1))
    chunk = max(1, MAX_EDGES // (s + 2 * len(attraction)))
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        lower[part] = _minimum_cut(unary[part], pairs, attraction)
    return lower


def _symmetric(pairs: Pairs, attraction: Array, s: int) -> sp.csr_array:
    half = sp.coo_array((attraction, pairs), shape=(s, s))
    return sp.csr_array(half + half.T)


def _minimum_cut(unary: Array, pairs: Pairs, attraction: Array) -> Sets:
    """Solve all rows by one flow, through a graph that has a part for each row.

    With ``y_u y_v = (y_u + y_v - |y_u - y_v|) / 2`` the attractions become gains of the labels, and
    capacities that a cut between them has to pay for.
    """
    n, s = unary.shape
    half = attraction / 2
    gain = unary + sum(np.bincount(p, half, minlength=s) for p in pairs)
    widest = np.maximum(np.abs(gain).max(axis=1), half.max(initial=0.0))[:, None]
    widest[widest == 0] = 1.0
    source, sink = n * s, n * s + 1
    label = np.arange(n * s).reshape(n, s)
    u, v = (label[:, p].ravel() for p in pairs)
    wins = (gain > 0).ravel()
    tail = np.r_[np.where(wins, source, label.ravel()), u, v]
    head = np.r_[np.where(wins, label.ravel(), sink), v, u]
    between = np.rint(half / widest * MAX_CAPACITY).ravel()
    outside = np.rint(np.abs(gain) / widest * MAX_CAPACITY).ravel()
    capacity = np.r_[outside, between, between].astype(np.int32)
    # maximum_flow takes no wider indices than these
    ends = tuple(end.astype(np.int32) for end in (tail, head))
    graph = sp.csr_array((capacity, ends), shape=(n * s + 2, n * s + 2))
    graph.eliminate_zeros()
    residual = sp.csr_array(graph - maximum_flow(graph, source, sink).flow)
    residual.eliminate_zeros()
    sets = np.zeros(n * s + 2, dtype=np.bool_)
    sets[breadth_first_order(residual, source, return_predecessors=False)] = True
    return sets[: n * s].reshape(n, s)
