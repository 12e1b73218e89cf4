"""Nearest neighbours and forests, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta import FBetaForest, LabelStatistics
from fbeta.estimators.boosting import BoostedClassifier
from fbeta.estimators.forest import NeighboursClassifier
from fbeta.storage.model_files import load_model, save_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X + 0.5 * RNG.normal(size=X.shape) > 0).astype(int)
NEW = RNG.normal(size=(9, 3))


def by_hand(x, k):
    """The distribution over training rows."""
    distance = np.sqrt(((X - x) ** 2).sum(axis=1))
    near = np.argsort(distance)[:k]
    share = 1 / distance[near]
    return near, share / share.sum()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_statistics_are_those_of_the_nearest_rows(form, tmp_path):
    clf = NeighboursClassifier(n_neighbours=7).fit(form(X), Y)
    found = clf.predict_statistics(form(NEW))
    for i, x in enumerate(NEW):
        near, share = by_hand(x, 7)
        one = LabelStatistics.from_distribution(share[None, :], Y[near])
        np.testing.assert_allclose(found.marginals()[i], one.marginals()[0], atol=1e-9)
        np.testing.assert_allclose(found.empty[i], one.empty[0], atol=1e-9)
    # a row that is there has all of its weight, nearly
    assert (clf.predict(form(X)) == Y).mean() > 0.95
    pytest.importorskip("skops")
    save_model(tmp_path / "m.skops", clf)
    stored = load_model(tmp_path / "m.skops").estimator
    assert np.array_equal(stored.predict(form(NEW)), clf.predict(form(NEW)))


@pytest.mark.parametrize(
    "estimator", [NeighboursClassifier(), FBetaForest(n_estimators=20, random_state=0)]
)
def test_sized_labels_keep_marginals_and_sizes(estimator):
    sets = estimator.fit(X, Y).predict_statistics(NEW)
    sized = estimator.set_params(labels="sized").fit(X, Y).predict_statistics(NEW)
    ours, theirs = (q.cardinality_distribution() for q in (sized, sets))
    np.testing.assert_allclose(ours, theirs[:, : ours.shape[1]], atol=1e-9)
    law = LabelStatistics.from_marginals(np.clip(sets.marginals(), 0, 1), theirs)
    np.testing.assert_allclose(sized.joint, law.joint, atol=1e-9)


def boosted():
    return BoostedClassifier(n_estimators=6, random_state=0).fit(X, Y)


def test_the_best_splits_find_rules_that_random_ones_miss():
    rng = np.random.default_rng(0)
    category, price = rng.integers(0, 12, size=1200), rng.normal(size=1200)
    points = np.column_stack([np.eye(12)[category], price, rng.normal(size=(1200, 3))])
    dear = rng.random((12, 4)) < 0.5
    labels = (dear[category] == (price > 0)[:, None]).astype(int)
    found = {}
    for splitter in ("random", "best"):
        options = {"max_features": 0.3, "min_samples_leaf": 3, "random_state": 0}
        forest = FBetaForest(n_estimators=30, splitter=splitter, **options)
        found[splitter] = forest.fit(points[:800], labels[:800]).score(points[800:], labels[800:])
    assert found["best"] > max(0.9, found["random"] + 0.03), found
    with pytest.raises(ValueError, match=r"splitter .*'worst'"):
        FBetaForest(splitter="worst").fit(X, Y)


def test_every_split_of_the_best_ones_is_the_best():
    y = Y[:, :1]
    model = FBetaForest(n_estimators=1, max_features=None, splitter="best").fit(X, y).model

    def spread(rows):
        return ((y[rows] - y[rows].mean()) ** 2).sum() if rows.any() else 0.0

    root = model.roots[0]
    low = X[:, model.feature[root]].astype(np.float32) <= model.threshold[root]
    every = [spread(X[:, j] <= v) + spread(X[:, j] > v) for j in range(3) for v in X[:, j]]
    np.testing.assert_allclose(spread(low) + spread(~low), min(every))


def test_a_feature_beyond_single_precision_is_above_every_split():
    far = np.array([[1e300, 0.0, 0.0], [-1e300, 0.0, 0.0]])
    for clf in (boosted(), FBetaForest(n_estimators=5, random_state=0).fit(X, Y)):
        near = clf.predict_proba(np.sign(far) * 1e30)
        np.testing.assert_array_equal(clf.predict_proba(far), near)


def test_nodes_of_files_are_those_of_trees():
    boost = boosted().model
    forest = FBetaForest(n_estimators=2, random_state=0).fit(X, Y).model
    neighbours = NeighboursClassifier().fit(X, Y).model

    def refuses(model, **changes):
        with pytest.raises(ValueError, match=r"do not belong together|not those of trees"):
            type(model)(**(vars(model) | changes))

    refuses(forest, shares=forest.shares * np.nan)
    refuses(forest, shares=-forest.shares)
    refuses(neighbours, which=neighbours.which - 1)
    refuses(neighbours, which=neighbours.which[1:])
    refuses(neighbours, weight=neighbours.weight * np.nan)
    refuses(neighbours, n_neighbours=0)
    for model in (boost, forest):
        refuses(model, threshold=model.threshold * np.nan)
        refuses(model, feature=np.full_like(model.feature, 3))
        for name in ("roots", "feature", "left", "right"):
            refuses(model, **{name: getattr(model, name).astype(np.int8)})  # numbers wrap around
            refuses(model, **{name: getattr(model, name).astype(float)})
            refuses(model, **{name: getattr(model, name)[:, None]})
        refuses(model, left=model.right)  # a node below another one twice
        refuses(model, right=model.right[::-1].copy())
        refuses(model, roots=0 * model.roots)
