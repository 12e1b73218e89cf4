"""Gradient boosting of small trees, for the labels and for their number."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import expit
from sklearn import config_context
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_array, check_random_state

from fbeta._array import check_choice, check_count
from fbeta._threads import check_cancelled, one_openmp_thread, run_threaded
from fbeta.estimators.forest import Trees
from fbeta.estimators.statistics_base import FunctionLearner, StatisticsClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.statistics.codes import SizedCode

LEARNING_RATE, LEAF_PENALTY, MIN_LEAF_ROWS = 0.1, 1.0, 5
RANDOM_LEAVES, BEST_LEAVES = 7, 15  # of a tree with random splits, and with the best ones
MIN_CURVATURE = 1e-6  # of the loss of a row
# features that the trees of a target see: those whose best stump, out of so many, gains most
MAX_FEATURES, N_STUMPS = 100, 7


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


@dataclass(eq=False, repr=False)
class BoostedClassifier(StatisticsClassifier):
    """Gradient boosting of small trees, for the labels and for their number.

    ``sizes`` is as for :class:`fbeta.SizedClassifier`, ``splitter`` as for :class:`FBetaForest`. A
    candidate of :class:`fbeta.FBetaAuto`.
    """

    beta: float = 1.0
    _: KW_ONLY
    n_estimators: int = 100
    sizes: str = "model"
    splitter: str = "best"
    n_jobs: int | None = None
    random_state: Any = None

    def _make_code(self, Y: Indicator) -> SizedCode:
        check_choice("sizes", self.sizes, ("model", "independent"))
        return SizedCode.of(Y, independent=self.sizes == "independent")

    def _make_learner(self) -> FunctionLearner:
        check_count("n_estimators", self.n_estimators)
        check_choice("splitter", self.splitter, ("random", "best"))
        return FunctionLearner(self._boost)

    def _boost(self, X: Any, targets: sp.csc_array, weight: Weight, alpha: Any) -> BoostedModel:
        """Fit the trees of each target."""
        X = check_array(X, accept_sparse="csr", dtype=np.float32)
        X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=targets.shape[1])
        screened = screened_columns(X, targets, weight)

        trees_of = _random_trees if self.splitter == "random" else _best_trees

        def boost(j: int) -> tuple[float, list[tuple[Any, ...]]]:
            check_cancelled()
            y = targets[:, [j]].toarray()[:, 0]
            if y.min() == y.max():
                return (np.inf if y[0] else -np.inf), []
            some, rng = X[:, screened[j]], np.random.RandomState(seeds[j])
            baseline, trees = trees_of(some, y, weight, self.n_estimators, rng)
            return baseline, [(screened[j][tree[0]], *tree[1:]) for tree in trees]

        found = run_threaded(boost, range(len(seeds)), workers=effective_n_jobs(self.n_jobs))
        trees = [tree for _, own in found for tree in own]
        target = np.repeat(np.arange(len(found), dtype=np.int32), [len(own) for _, own in found])
        more = {"value": np.concatenate([[], *(tree[4] for tree in trees)]), "target": target}
        more["baseline"] = np.array([baseline for baseline, _ in found])
        return BoostedModel(X.shape[1], **Trees.join(trees), **more)


def screened_columns(
    X: NDArray[np.float32], targets: sp.csc_array, weight: Weight
) -> list[NDArray[np.intp]]:
    """Return the columns of X that the trees of each target see, in ascending order."""
    M, d = targets.shape[1], X.shape[1]
    if d <= MAX_FEATURES:
        return [np.arange(d)] * M
    own = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
    Y = targets.toarray()
    residuals = ((Y - own @ Y) * own[:, None]).astype(np.float32)
    gains = np.zeros((d, M), dtype=np.float32)
    for cut in np.quantile(X, np.arange(1, N_STUMPS + 1) / (N_STUMPS + 1), axis=0):
        check_cancelled()
        above = (cut < X).astype(np.float32)
        share = np.asarray(own.astype(np.float32) @ above, dtype=np.float64)
        spread = np.where((share > 0) & (share < 1), share * (1 - share), np.inf)
        np.maximum(gains, (above.T @ residuals) ** 2 / spread[:, None], out=gains)
    kept = np.argpartition(-gains, MAX_FEATURES, axis=0)[:MAX_FEATURES]
    return list(np.sort(kept, axis=0).T)


def _best_trees(
    X: NDArray[np.float32], y: NDArray[Any], weight: Weight, count: int, rng: np.random.RandomState
) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the log-odds of a target without trees, and trees whose splits are the best ones."""
    # gradients are in single precision, whose range a power of two keeps without rounding
    scale = 1.0 if weight is None else np.ldexp(1.0, np.frexp(weight.mean())[1] - 1)
    leaves = {"max_leaf_nodes": BEST_LEAVES, "min_samples_leaf": MIN_LEAF_ROWS}
    more = {"l2_regularization": LEAF_PENALTY / scale, "early_stopping": False, "random_state": rng}
    model = HistGradientBoostingClassifier(
        learning_rate=LEARNING_RATE, max_iter=count, **leaves, **more
    )
    with one_openmp_thread():
        model.fit(X, y, sample_weight=None if weight is None else weight / scale)
    return float(model._baseline_prediction[0, 0]), [_read(t) for (t,) in model._predictors]


def _random_trees(
    X: NDArray[np.float32], y: NDArray[Any], weight: Weight, count: int, rng: np.random.RandomState
) -> tuple[float, list[tuple[Any, ...]]]:
    """Return the log-odds of a target without trees, and trees by Newton steps of its loss."""
    own, trees = np.ones(len(y)) if weight is None else weight, list[tuple[Any, ...]]()
    options = {"max_leaf_nodes": RANDOM_LEAVES, "min_samples_leaf": MIN_LEAF_ROWS}
    baseline = float(np.log(own[y > 0].sum()) - np.log(own[y == 0].sum()))
    scores = np.full(len(y), baseline)
    for _ in range(count):
        check_cancelled()
        p = expit(scores)
        slope, curvature = y - p, np.maximum(p * (1 - p), MIN_CURVATURE)
        tree = DecisionTreeRegressor(splitter="random", **options, random_state=rng)
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
