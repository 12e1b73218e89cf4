"""Models by trees and by neighbours: label sets of training rows that are near, and boosting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import expit
from sklearn import config_context
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.utils import check_array, check_random_state

from fbeta._array import check_choice, check_count
from fbeta._threads import check_cancelled, one_openmp_thread, run_threaded
from fbeta.estimators.statistics_base import FunctionLearner, StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.statistics.codes import LabelSetCode, SizedCode
from fbeta.statistics.encoding import Targets
from fbeta.statistics.label_statistics import LabelStatistics

MAX_VISITS = 1 << 20  # numbers of X, or rows times trees, that are read together
MAX_DISTANCES = 1 << 22  # between rows of X and training rows that are computed together
MAX_OUTPUTS = 128  # labels beyond which splits are searched on a projection of them
PROJECTED_OUTPUTS = 64  # dimensions of the projection
# of gradient boosting: every other tree has random splits, which are better for many noisy
# features, and the others the best ones among some features, which find rules
BOOSTED_TREES: tuple[dict[str, Any], ...] = (
    {"splitter": "random", "max_leaf_nodes": 7, "min_samples_leaf": 5},
    {"splitter": "best", "max_leaf_nodes": 7, "min_samples_leaf": 20, "max_features": 0.3},
)
LEARNING_RATE, LEAF_PENALTY = 0.1, 1.0
MAX_SORTED_ROWS = 2000  # beyond, the best splits are searched on histograms
HISTOGRAMS = {"max_leaf_nodes": 7, "early_stopping": False}
MIN_CURVATURE = 1e-6  # of the loss of a row


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


@dataclass(frozen=True)
class BoostedModel(Trees):
    """Trees whose leaves add to the log-odds of binary targets."""

    value: NDArray[np.float64]  # (N,), what a leaf adds
    target: NDArray[np.int32]  # (T,), the one that a tree is of
    baseline: NDArray[np.float64]  # (M,), log-odds without trees; infinite for a constant target

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (self.target >= 0) & (self.target < len(self.baseline))
        sizes = self.value.shape == self.feature.shape, self.target.shape == self.roots.shape
        numbers = np.isfinite(self.value).all() and not np.isnan(self.baseline).any()
        if not (all(sizes) and known.all() and numbers):
            raise ValueError("the arrays of boosted trees do not belong together")

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the targets, of shape (n, M)."""
        scores, T = np.tile(self.baseline, (X.shape[0], 1)), len(self.roots)
        entries = np.ones(T), (np.arange(T), self.target)
        members = sp.csr_array(entries, shape=(T, len(self.baseline)))
        for rows, leaves in self._parts(X):
            scores[rows] += self.value[leaves] @ members
        return np.asarray(expit(scores))


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
    """Extremely randomised trees for the F_beta-measure.

    Each tree is grown on all rows, its splits drawn at random and chosen by how well they part
    the labels. The leaves that an instance ends in weigh the training rows, and the statistics
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
    n_jobs: int | None = None
    random_state: Any = None

    def _make_code(self, Y: Indicator) -> LabelSetCode:
        return _code_of_sets(self.labels, Y)

    def _make_learner(self) -> FunctionLearner:
        check_count("n_estimators", self.n_estimators)
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

        def grow(seed: int) -> tuple[Any, ...]:
            """Return the nodes of a tree, and the leaf of each row."""
            check_cancelled()
            target = Y if Y.shape[1] else np.zeros(len(Y))
            if Y.shape[1] > MAX_OUTPUTS:
                # distances of label sets survive a random projection, and so does what splits lower
                signs = np.random.default_rng(seed).integers(0, 2, (Y.shape[1], PROJECTED_OUTPUTS))
                target = Y @ (2.0 * signs - 1)
            tree = ExtraTreeRegressor(**options, random_state=seed)
            # with 0/1 targets the squared error is half the Gini index of classification trees
            tree.fit(X, target, sample_weight=weight, check_input=False)
            nodes = tree.tree_
            parts = nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right
            return *(part.copy() for part in parts), tree.apply(rows, check_input=False)

        trees = run_threaded(grow, seeds.tolist(), workers=effective_n_jobs(self.n_jobs))
        return _grown_forest(trees, X.shape[1], targets, weight)


@dataclass(eq=False, repr=False)
class BoostedClassifier(StatisticsClassifier):
    """Gradient boosting of small trees, for the labels and for their number.

    ``sizes`` is as for :class:`fbeta.SizedClassifier`. A candidate of :class:`fbeta.FBetaAuto`.
    """

    beta: float = 1.0
    _: KW_ONLY
    n_estimators: int = 100
    sizes: str = "model"
    n_jobs: int | None = None
    random_state: Any = None

    def _make_code(self, Y: Indicator) -> SizedCode:
        check_choice("sizes", self.sizes, ("model", "independent"))
        return SizedCode.of(Y, independent=self.sizes == "independent")

    def _make_learner(self) -> FunctionLearner:
        check_count("n_estimators", self.n_estimators)
        return FunctionLearner(self._boost)

    def _boost(self, X: Any, targets: sp.csc_array, weight: Weight, alpha: Any) -> BoostedModel:
        """Fit the trees of each target."""
        X = check_array(X, accept_sparse="csr", dtype=np.float32)
        X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=targets.shape[1])

        def boost(j: int) -> tuple[float, list[tuple[Any, ...]]]:
            y = targets[:, [j]].toarray()[:, 0]
            return _boosted_trees(X, y, weight, self.n_estimators, seeds[j])

        found = run_threaded(boost, range(len(seeds)), workers=effective_n_jobs(self.n_jobs))
        trees = [tree for _, own in found for tree in own]
        target = np.repeat(np.arange(len(found), dtype=np.int32), [len(own) for _, own in found])
        more = {"value": np.concatenate([[], *(tree[4] for tree in trees)]), "target": target}
        more["baseline"] = np.array([baseline for baseline, _ in found])
        return BoostedModel(X.shape[1], **Trees.join(trees), **more)


def _boosted_trees(
    X: NDArray[np.float32], y: NDArray[Any], weight: Weight, count: int, seed: int
) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the log-odds of a target without trees, and trees by Newton steps of its loss."""
    check_cancelled()
    n, rng, trees = len(y), np.random.RandomState(seed), list[tuple[Any, ...]]()
    if y.min() == y.max():
        return (np.inf if y[0] else -np.inf), trees
    own = np.ones(n) if weight is None else weight
    if n > MAX_SORTED_ROWS:
        # gradients are in single precision, whose range a power of two keeps without rounding
        scale = np.ldexp(1.0, np.frexp(own.mean())[1] - 1)
        more = {"l2_regularization": LEAF_PENALTY / scale, **HISTOGRAMS}
        more |= {"learning_rate": LEARNING_RATE, "random_state": rng}
        model = HistGradientBoostingClassifier(max_iter=count, **more)
        with one_openmp_thread():
            model.fit(X, y, sample_weight=None if weight is None else own / scale)
        return float(model._baseline_prediction[0, 0]), [_read(t) for (t,) in model._predictors]
    baseline = float(np.log(own[y > 0].sum()) - np.log(own[y == 0].sum()))
    scores = np.full(n, baseline)
    for i in range(count):
        check_cancelled()
        p = expit(scores)
        slope, curvature = y - p, np.maximum(p * (1 - p), MIN_CURVATURE)
        tree = DecisionTreeRegressor(**BOOSTED_TREES[i % len(BOOSTED_TREES)], random_state=rng)
        with config_context(skip_parameter_validation=True, assume_finite=True):
            tree.fit(X, slope / curvature, sample_weight=own * curvature, check_input=False)
        nodes, leaf = tree.tree_, tree.tree_.apply(X)
        sums = (np.bincount(leaf, own * part, nodes.node_count) for part in (slope, curvature))
        value = LEARNING_RATE * next(sums) / (next(sums) + LEAF_PENALTY)
        scores += value[leaf]
        parts = nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right
        trees.append((*(part.copy() for part in parts), value))
    return baseline, trees


def _read(tree: Any) -> tuple[Any, ...]:
    """Return feature, threshold, left, right and value of the nodes of a tree of histograms."""
    nodes, leaf = tree.nodes, tree.nodes["is_leaf"] == 1
    left, right = (np.where(leaf, -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
    value = np.where(leaf, nodes["value"], 0.0)
    return nodes["feature_idx"], nodes["num_threshold"], left, right, value


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
