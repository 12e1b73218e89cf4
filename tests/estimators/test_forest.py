"""Nearest neighbours, forests with sized labels and boosting, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier

from fbeta import FBetaForest, LabelStatistics
from fbeta.estimators import forest as forest_module
from fbeta.estimators.forest import BoostedClassifier, NeighboursClassifier
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


def boosted(labels, weight=None, form=np.asarray, **options):
    clf = BoostedClassifier(n_estimators=6, random_state=0, **options)
    return clf.fit(form(X), labels, sample_weight=weight)


def leaf_of(model, x, node):
    x = x.astype(np.float32)
    while model.left[node] != node:
        low = x[model.feature[node]] <= model.threshold[node]
        node = (model.left if low else model.right)[node]
    return node


@pytest.mark.parametrize("weighted", [False, True])
def test_boosted_trees_take_newton_steps(weighted):
    weight = RNG.uniform(0.5, 2, size=len(X)) if weighted else None
    own = np.ones(len(X)) if weight is None else weight
    model = boosted(Y, weight).model
    targets = np.hstack([Y, Y.sum(axis=1)[:, None] == np.arange(4)])
    for j, y in enumerate(targets.T):
        share = np.average(y, weights=own)
        scores = np.full(len(X), np.log(share / (1 - share)))
        np.testing.assert_allclose(model.baseline[j], scores[0])
        losses = []
        for number, root in enumerate(model.roots[model.target == j]):
            leaves = np.array([leaf_of(model, x, root) for x in X])
            p = 1 / (1 + np.exp(-scores))
            losses.append(-own @ np.log(np.where(y == 1, p, 1 - p)))
            for leaf in np.unique(leaves):
                rows = leaves == leaf
                slope, curvature = own[rows] @ (y - p)[rows], own[rows] @ (p * (1 - p))[rows]
                np.testing.assert_allclose(model.value[leaf], 0.1 * slope / (curvature + 1))
            counts = np.bincount(leaves)
            assert counts[counts > 0].min() >= (5, 20)[number % 2]
            scores += model.value[leaves]
        assert (np.diff(losses) < 0).all()
        np.testing.assert_allclose(model.probabilities(X)[:, j], 1 / (1 + np.exp(-scores)))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_boosting_sizes_and_independent_labels(form):
    sized = boosted(Y, form=form)
    P = sized.model.probabilities(NEW)
    law = LabelStatistics.from_marginals(P[:, :3], P[:, 3:] / P[:, 3:].sum(axis=1, keepdims=True))
    found = sized.predict_statistics(form(NEW))
    np.testing.assert_allclose(found.joint, law.joint, atol=1e-12)
    np.testing.assert_allclose(found.empty, law.empty, atol=1e-12)
    independent = boosted(Y, form=form, sizes="independent")
    free = LabelStatistics.from_marginals(P[:, :3])
    np.testing.assert_allclose(independent.predict_statistics(NEW).joint, free.joint, atol=1e-12)
    assert independent.cardinalities_.tolist() == [1, 2, 3]


def test_boosting_finds_rules_by_sorted_rows_and_by_histograms(monkeypatch):
    rng = np.random.default_rng(1)
    points = rng.normal(size=(900, 4))
    rules = (points[:, :2] > 0).all(axis=1), (points[:, 1] < 0) & (points[:, 2] > 0)
    labels = np.stack([*rules, ~rules[0] & ~rules[1]], axis=1).astype(int)
    whole = BoostedClassifier(random_state=0).fit(points[:600], labels[:600])
    assert whole.score(points[600:], labels[600:]) > 0.95
    monkeypatch.setattr(forest_module, "MAX_SORTED_ROWS", 200)
    monkeypatch.setattr(forest_module, "MAX_VISITS", 1000)  # few rows at a time
    binned = BoostedClassifier(random_state=0).fit(points[:600], labels[:600])
    assert binned.score(points[600:], labels[600:]) > 0.95


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_of_histograms_are_those_of_scikit_learn(monkeypatch, weighted):
    monkeypatch.setattr(forest_module, "MAX_SORTED_ROWS", 50)
    weight = RNG.uniform(0.5, 2, size=len(X)) if weighted else None
    model = boosted(Y, weight).model
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=6)
    for j in range(3):
        peer = HistGradientBoostingClassifier(
            max_iter=6,
            learning_rate=0.1,
            l2_regularization=1.0,
            max_leaf_nodes=7,
            random_state=np.random.RandomState(seeds[j]),
            **forest_module.HISTOGRAMS,
        ).fit(X.astype(np.float32), Y[:, j], sample_weight=weight)
        own = model.probabilities(NEW)[:, j]
        np.testing.assert_allclose(own, peer.predict_proba(NEW.astype(np.float32))[:, 1])
        assert np.ptp(own) > 0.05


def test_boosting_with_constant_labels_and_rows_without_weight():
    one = np.ones((60, 1), dtype=int)
    always, never = boosted(np.hstack([Y, one])), boosted(np.hstack([Y, 0 * one]))
    np.testing.assert_allclose(always.predict_proba(NEW)[:, 3], 1.0)
    np.testing.assert_array_equal(never.predict_proba(NEW)[:, 3], 0.0)
    nothing = boosted(0 * Y)
    assert not len(nothing.model.roots)
    assert not nothing.predict(NEW).any()
    weight = np.repeat([1.0, 0.0], 30)
    some = BoostedClassifier(n_estimators=6, random_state=0).fit(X[:30], Y[:30])
    np.testing.assert_array_equal(boosted(Y, weight).predict_proba(NEW), some.predict_proba(NEW))


@pytest.mark.parametrize("most", [50, 2000])
def test_boosting_with_weights_of_any_scale(monkeypatch, most):
    monkeypatch.setattr(forest_module, "MAX_SORTED_ROWS", most)
    large = boosted(Y, np.full(60, 2.0**40)).predict_proba(NEW)
    # splits that tie may differ
    larger = boosted(Y, np.full(60, 2.0**300)).predict_proba(NEW)
    np.testing.assert_allclose(larger, large, atol=0.05)
    assert np.ptp(large, axis=0).min() > 0.05
    # all but nothing says that the first label is ever missing, or there
    for likely, other in ((1.0, 1e-20), (1e-300, 1e100)):
        P = boosted(Y, np.where(Y[:, 0], likely, other)).predict_proba(NEW)
        np.testing.assert_allclose(P[:, 0], likely > other, atol=1e-6)
        assert np.isfinite(P).all()


def test_a_feature_beyond_single_precision_is_above_every_split():
    far = np.array([[1e300, 0.0, 0.0], [-1e300, 0.0, 0.0]])
    for clf in (boosted(Y), FBetaForest(n_estimators=5, random_state=0).fit(X, Y)):
        near = clf.predict_proba(np.sign(far) * 1e30)
        np.testing.assert_array_equal(clf.predict_proba(far), near)


def test_boosted_trees_of_files_belong_together(tmp_path):
    pytest.importorskip("skops")
    clf = boosted(Y, sizes="independent")
    save_model(tmp_path / "m.skops", clf)
    stored = load_model(tmp_path / "m.skops").estimator
    assert np.array_equal(stored.predict_proba(NEW), clf.predict_proba(NEW))
    arrays = vars(clf.model)
    for name in ("value", "target", "threshold"):
        with pytest.raises(ValueError, match="do not belong together"):
            type(clf.model)(**(arrays | {name: arrays[name][:-1]}))
    with pytest.raises(ValueError, match="do not belong together"):
        type(clf.model)(**(arrays | {"target": arrays["target"] + 99}))
    for name, bad in (("value", np.nan), ("value", np.inf), ("baseline", np.nan)):
        with pytest.raises(ValueError, match="do not belong together"):
            type(clf.model)(**(arrays | {name: np.full_like(arrays[name], bad)}))
    with pytest.raises(ValueError, match="are of 3 features"):
        clf.model.probabilities(NEW[:, :2])
    longer = type(clf.model)(**(arrays | {"baseline": np.zeros(99)}))
    with pytest.raises(ValueError, match="has 99 targets"):
        clf.adopt(clf.code, longer).predict(NEW)


def test_nodes_of_files_are_those_of_trees():
    boost = boosted(Y).model
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
