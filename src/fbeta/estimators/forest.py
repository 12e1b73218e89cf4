"""Models by trees and by neighbours: label sets of training rows that are near."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_array, check_random_state

from fbeta._array import check_choice, check_count
from fbeta._threads import check_cancelled, run_threaded
from fbeta.estimators.statistics_base import FunctionLearner, StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.statistics.codes import LabelSetCode
from fbeta.statistics.encoding import Targets
from fbeta.statistics.label_statistics import LabelStatistics

MAX_VISITS = 1 << 20  # numbers of X, or rows times trees, that are read together
MAX_DISTANCES = 1 << 22  # between rows of X and training rows that are computed together
MAX_OUTPUTS = 128  # labels beyond which splits are searched on a projection of them
PROJECTED_OUTPUTS = 64  # dimensions of the projection


@dataclass(frozen=True)
class SizedSetsCode(LabelSetCode):
    """Label sets whose labels are taken as independent given their number."""

    def statistics(self, P: Any) -> LabelStatistics:
        """Return the statistics by the marginals and sizes of a distribution (n, L)."""
        counts = np.diff(self.sets.indptr)
        sizes = np.zeros((len(P), int(counts.max(initial=0)) + 1))
        np.add.at(sizes.T, counts, np.asarray(P).T)
        marginals = np.clip(np.asarray(P @ self.sets), 0.0, 1.0)
        return LabelStatistics.from_marginals(marginals, sizes / sizes.sum(axis=1, keepdims=True))


def _code_of_sets(labels: str, Y: Indicator) -> LabelSetCode:
    check_choice("labels", labels, ("sets", "sized"))
    return (LabelSetCode if labels == "sets" else SizedSetsCode).of(Y)


@dataclass(frozen=True)
class Trees:
    """T trees as arrays over all their N nodes."""

    n_features: int
    roots: NDArray[np.int32]  # (T,), the first node of each tree
    feature: NDArray[np.int32]  # (N,)
    threshold: NDArray[np.float64]  # (N,), a row with x[feature] <= threshold goes to the left
    left: NDArray[np.int32]  # (N,), the node below; a leaf has itself
    right: NDArray[np.int32]  # (N,)

    def __post_init__(self) -> None:
        # a file may come from anybody, and every walk has to end within the arrays
        whole = self.roots, self.feature, self.left, self.right
        sizes = {a.shape for a in (self.threshold, *whole[1:])}
        typed = {(a.ndim, a.dtype.str[1:]) for a in whole} == {(1, "i4")}
        if len(sizes) > 1 or not typed or np.isnan(self.threshold).any():
            raise ValueError("the arrays of a forest do not belong together")
        nodes = np.arange(len(self.feature))
        inner = (self.left != nodes) | (self.right != nodes)
        # every node is a root, or below one node in front of it
        once = np.sort(np.concatenate([self.roots, self.left[inner], self.right[inner]]))
        down = np.minimum(self.left, self.right) >= nodes + inner
        known = (self.feature >= 0) & (self.feature < self.n_features)
        if not (np.array_equal(once, nodes) and (down & known).all()):
            raise ValueError("the nodes of a forest are not those of trees")

    @staticmethod
    def join(parts: Sequence[tuple[Any, ...]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of trees with (feature, threshold, left, right), left < 0 in leaves."""
        counts = [len(tree[0]) for tree in parts]
        roots: Any = np.cumsum(counts, dtype=np.int64) - counts
        columns = ([np.asarray(tree[i]) for tree in parts] for i in range(4))
        feature, threshold, left, right = (np.concatenate([[], *each]) for each in columns)
        nodes, first, leaf = np.arange(len(feature)), np.repeat(roots, counts), left < 0
        left, right = (np.where(leaf, nodes, child + first) for child in (left, right))
        places = {"roots": roots, "feature": np.where(leaf, 0, feature), "left": left}
        whole = {key: a.astype(np.int32) for key, a in (places | {"right": right}).items()}
        return whole | {"threshold": threshold}

    def _parts(self, X: Any) -> Iterator[tuple[slice, NDArray[np.int32]]]:
        """Yield some rows at a time, with their leaves."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"the trees are of {self.n_features} features, not of {X.shape[1]}")
        rows = max(1, MAX_VISITS // max(len(self.roots), self.n_features))
        for start in range(0, X.shape[0], rows):
            part = X[start : start + rows]
            leaves = self.leaves(part.toarray() if sp.issparse(part) else np.asarray(part))
            yield slice(start, start + rows), leaves

    def leaves(self, X: NDArray[Any]) -> NDArray[np.int32]:
        """Return the leaf of each tree that a row ends in, of shape (n, T)."""
        # the trees were grown on single precision; what exceeds it is infinite, above every split
        with np.errstate(over="ignore"):
            X = X.astype(np.float32, copy=False)
        node = np.repeat(self.roots[None, :], len(X), axis=0)
        flat, row = node.reshape(-1), np.repeat(np.arange(len(X)), len(self.roots))
        walking = np.flatnonzero(self.left[flat] != flat)
        while len(walking):
            at = flat[walking]
            low = X[row[walking], self.feature[at]] <= self.threshold[at]
            flat[walking] = after = np.where(low, self.left[at], self.right[at])
            walking = walking[self.left[after] != after]
        return node


@dataclass(frozen=True)
class ForestModel(Trees):
    """Trees with a distribution over label sets in each leaf."""

    shares: sp.csr_array  # (N, L), weights of label sets in a leaf, with the sum 1 / T, else zero

    def __post_init__(self) -> None:
        super().__post_init__()
        known = np.isfinite(self.shares.data) & (self.shares.data >= 0)
        if self.shares.shape[0] != len(self.feature) or not known.all():
            raise ValueError("the arrays of a forest do not belong together")

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the weight of each label set, of shape (n, L)."""
        out = np.empty((X.shape[0], self.shares.shape[1]))
        for rows, leaves in self._parts(X):
            ends = np.arange(0, leaves.size + 1, len(self.roots))
            visits = sp.csr_array(
                (np.ones(leaves.size), leaves.ravel(), ends), shape=(len(leaves), len(self.feature))
            )
            out[rows] = (visits @ self.shares).toarray()
        return out


def _grown_forest(
    trees: list[tuple[Any, ...]], n_features: int, targets: Targets, weight: Weight
) -> ForestModel:
    """Join trees with the leaf of each row, and weigh the label sets of the rows in each leaf."""
    T, n, joined = len(trees), len(targets.values), Trees.join(trees)
    places = np.concatenate([tree[4] for tree in trees]) + np.repeat(joined["roots"], n)
    own = np.tile(np.ones(n) if weight is None else weight, T)
    values = own / (np.bincount(places, own)[places] * T)
    entries = values, (places, np.tile(targets.values[:, 0], T))
    shape = (len(joined["feature"]), targets.structure.shape[0])
    return ForestModel(n_features, shares=sp.csr_array(entries, shape=shape), **joined)


@dataclass(eq=False, repr=False)
class FBetaForest(StatisticsClassifier):
    """Randomised trees for the F_beta-measure.

    Each tree is grown on all rows. At each node some features are drawn, with one random threshold
    each (extremely randomised trees) or with all thresholds, and the split that parts the labels
    best is taken. The leaves that an instance ends in weigh the training rows, and the statistics
    are the weighted mean of what their label sets say: they belong to a distribution over sets
    that were seen, and labels depend on each other as they do there.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for.
    n_estimators, min_samples_leaf, max_features, random_state
        As for :class:`sklearn.ensemble.ExtraTreesClassifier`.
    labels : {"sets", "sized"}
        Whether labels depend on each other as in the label sets of the leaves, or are independent
        given their number.
    splitter : {"random", "best"}
        Whether each drawn feature has one random threshold, or the best one. The best ones find
        rules, such as those of a category and a price.
    n_jobs : int, optional
        Trees that are grown at the same time, on threads.

    Attributes
    ----------
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> Y = [["sea"], ["sea"], ["sea", "sky"], ["sea", "sky"]]
    >>> FBetaForest(n_estimators=10, random_state=0).fit(X, Y).predict([[0.0], [3.0]])
    [['sea'], ['sea', 'sky']]
    """

    beta: float = 1.0
    _: KW_ONLY
    n_estimators: int = 300
    min_samples_leaf: float = 1
    max_features: Any = "sqrt"
    labels: str = "sets"
    splitter: str = "random"
    n_jobs: int | None = None
    random_state: Any = None

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return _code_of_sets(self.labels, Y)

    def _make_learner(self) -> FunctionLearner:
        check_count("n_estimators", self.n_estimators)
        check_choice("splitter", self.splitter, ("random", "best"))
        return FunctionLearner(self._grow)

    def _grow(self, X: Any, targets: Targets, weight: Weight, alpha: Any) -> ForestModel:
        """Fit every tree to all rows and their label sets."""
        X = check_array(X, accept_sparse="csc", dtype=np.float32)
        rows = X.tocsr() if sp.issparse(X) else X
        Y = targets.structure[targets.values[:, 0]].toarray().astype(np.float64)
        # what all rows share splits nothing
        Y = np.ascontiguousarray(Y[:, Y.min(axis=0) < Y.max(axis=0)]) if len(Y) else Y
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_estimators)
        options = {"min_samples_leaf": self.min_samples_leaf, "max_features": self.max_features}
        options["splitter"] = self.splitter

        def grow(seed: int) -> tuple[Any, ...]:
            """Return the nodes of a tree, and the leaf of each row."""
            check_cancelled()
            target = Y if Y.shape[1] else np.zeros(len(Y))
            if Y.shape[1] > MAX_OUTPUTS:
                # distances of label sets survive a random projection, and so does what splits lower
                signs = np.random.default_rng(seed).integers(0, 2, (Y.shape[1], PROJECTED_OUTPUTS))
                target = Y @ (2.0 * signs - 1)
            tree = DecisionTreeRegressor(**options, random_state=seed)
            # with 0/1 targets the squared error is half the Gini index of classification trees
            tree.fit(X, target, sample_weight=weight, check_input=False)
            nodes = tree.tree_
            parts = nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right
            return *(part.copy() for part in parts), tree.apply(rows, check_input=False)

        trees = run_threaded(grow, seeds.tolist(), workers=effective_n_jobs(self.n_jobs))
        return _grown_forest(trees, X.shape[1], targets, weight)


@dataclass(frozen=True)
class NeighboursModel:
    """Training rows (n', d), the label set of each, their weights, and the number of neighbours."""

    X: Any
    which: NDArray[np.intp]
    weight: NDArray[np.float64]
    n_sets: int
    n_neighbours: int

    def __post_init__(self) -> None:
        known = (self.which >= 0) & (self.which < self.n_sets)
        same = known.shape == self.weight.shape == self.X.shape[:1] and self.n_neighbours >= 1
        if not (same and (known & (self.weight > 0)).all()):
            raise ValueError("the arrays of nearest neighbours do not belong together")

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the weight of each label set, (n, L): of neighbours, by their inverse distance."""
        n, count = X.shape[0], self.X.shape[0]
        out, rows = np.zeros((n, self.n_sets)), max(1, MAX_DISTANCES // max(1, count))
        k = min(self.n_neighbours, count)
        for start in range(0, n, rows):
            check_cancelled()
            distances = euclidean_distances(X[start : start + rows], self.X)
            near = np.argpartition(distances, k - 1, axis=1)[:, :k]
            distance = np.take_along_axis(distances, near, axis=1).astype(np.float64)
            # the weight of a row that is there already is bounded
            least = np.maximum(distance.max(axis=1, keepdims=True) * 1e-3, 1e-12)
            share = self.weight[near] / np.maximum(distance, least)
            share /= share.sum(axis=1, keepdims=True)
            place = np.arange(len(near))[:, None], self.which[near]
            np.add.at(out[start : start + rows], place, share)
        return out


@dataclass(eq=False, repr=False)
class NeighboursClassifier(StatisticsClassifier):
    """The label sets of the nearest training rows, weighted by their inverse distance.

    ``labels`` is as for :class:`fbeta.FBetaForest`. A candidate of :class:`fbeta.FBetaAuto`.
    """

    beta: float = 1.0
    _: KW_ONLY
    n_neighbours: int = 20
    labels: str = "sets"

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return _code_of_sets(self.labels, Y)

    def _make_learner(self) -> FunctionLearner:
        check_count("n_neighbours", self.n_neighbours)
        return FunctionLearner(self._keep_rows)

    def _keep_rows(self, X: Any, targets: Targets, weight: Weight, alpha: Any) -> NeighboursModel:
        which, n_sets = targets.values[:, 0], targets.structure.shape[0]
        own = np.ones(len(which)) if weight is None else weight
        return NeighboursModel(X, which, own, n_sets, self.n_neighbours)
