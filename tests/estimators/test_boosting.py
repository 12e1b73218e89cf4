"""Boosting against plain loops and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier

from fbeta import LabelStatistics
from fbeta.estimators import boosting, forest
from fbeta.estimators.boosting import BoostedClassifier
from fbeta.storage.model_files import load_model, save_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X + 0.5 * RNG.normal(size=X.shape) > 0).astype(int)
NEW = RNG.normal(size=(9, 3))


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
    model = boosted(Y, weight, splitter="random").model
    targets = np.hstack([Y, Y.sum(axis=1)[:, None] == np.arange(4)])
    for j, y in enumerate(targets.T):
        share = np.average(y, weights=own)
        scores = np.full(len(X), np.log(share / (1 - share)))
        np.testing.assert_allclose(model.baseline[j], scores[0])
        losses = []
        for root in model.roots[model.target == j]:
            leaves = np.array([leaf_of(model, x, root) for x in X])
            p = 1 / (1 + np.exp(-scores))
            losses.append(-own @ np.log(np.where(y == 1, p, 1 - p)))
            for leaf in np.unique(leaves):
                rows = leaves == leaf
                slope, curvature = own[rows] @ (y - p)[rows], own[rows] @ (p * (1 - p))[rows]
                np.testing.assert_allclose(model.value[leaf], 0.1 * slope / (curvature + 1))
            counts = np.bincount(leaves)
            assert counts[counts > 0].min() >= 5
            assert (counts > 0).sum() <= 7
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


@pytest.mark.parametrize("splitter", ["random", "best"])
def test_boosting_finds_rules(monkeypatch, splitter):
    monkeypatch.setattr(forest, "MAX_VISITS", 1000)  # few rows at a time
    rng = np.random.default_rng(1)
    points = rng.normal(size=(900, 4))
    rules = (points[:, :2] > 0).all(axis=1), (points[:, 1] < 0) & (points[:, 2] > 0)
    labels = np.stack([*rules, ~rules[0] & ~rules[1]], axis=1).astype(int)
    clf = BoostedClassifier(splitter=splitter, random_state=0).fit(points[:600], labels[:600])
    assert clf.score(points[600:], labels[600:]) > 0.95
    with pytest.raises(ValueError, match=r"splitter .*'worst'"):
        BoostedClassifier(splitter="worst").fit(X, Y)


def test_the_best_splits_find_differences_of_signs():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1500, 8))
    labels = (points[:, :3] * points[:, 3:6] > 0).astype(int)  # no feature says anything alone
    clf = BoostedClassifier(random_state=0).fit(points[:1200], labels[:1200])
    assert clf.score(points[1200:], labels[1200:]) > 0.85


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_trees_of_many_features_see_those_with_the_best_stumps(monkeypatch, form, weighted):
    monkeypatch.setattr(boosting, "MAX_FEATURES", 4)
    rng = np.random.default_rng(0)
    points = np.where(rng.random((300, 12)) < 0.5, 0.0, rng.normal(size=(300, 12)))
    points[:, 11] = 1.0  # splits nothing
    labels = np.column_stack([points[:, 3] > 0.2, abs(points[:, 7]) > 0.5]).astype(int)
    weight = rng.uniform(0.5, 2, size=300) if weighted else None
    clf = BoostedClassifier(n_estimators=20, sizes="independent", random_state=0)
    clf.fit(form(points), labels, sample_weight=weight)
    own = np.ones(300) if weight is None else weight
    cuts = np.quantile(points.astype(np.float32), np.arange(1, 8) / 8, axis=0)
    for j, y in enumerate(labels.T):
        gains = np.zeros(12)
        for c in range(12):
            for cut in cuts[:, c]:
                high = points[:, c].astype(np.float32) > cut
                if 0 < high.sum() < 300:
                    # squared error without the stump, less that with the two means
                    halves = [np.average(y[h], weights=own[h]) for h in (high, ~high)]
                    error = own @ (y - np.average(y, weights=own)) ** 2
                    error -= own @ (y - np.where(high, *halves)) ** 2
                    gains[c] = max(gains[c], error)
        trees = np.repeat(clf.model.target, np.diff([*clf.model.roots, len(clf.model.feature)]))
        inner = clf.model.left != np.arange(len(clf.model.left))
        used = set(clf.model.feature[inner & (trees == j)].tolist())
        assert (3, 7)[j] in used
        assert used <= set(np.argsort(-gains)[:4].tolist())
    assert clf.score(form(points), labels) > 0.95


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_of_histograms_are_those_of_scikit_learn(weighted):
    weight = RNG.uniform(0.5, 2, size=len(X)) if weighted else None
    model = boosted(Y, weight).model
    seeds = np.random.RandomState(0).randint(2**31 - 1, size=6)
    for j in range(3):
        peer = HistGradientBoostingClassifier(
            max_iter=6,
            learning_rate=0.1,
            l2_regularization=1.0,
            max_leaf_nodes=15,
            min_samples_leaf=5,
            early_stopping=False,
            random_state=np.random.RandomState(seeds[j]),
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


@pytest.mark.parametrize("splitter", ["random", "best"])
def test_boosting_with_weights_of_any_scale(splitter):
    options = {"splitter": splitter}
    large = boosted(Y, np.full(60, 2.0**40), **options).predict_proba(NEW)
    # splits that tie may differ
    larger = boosted(Y, np.full(60, 2.0**300), **options).predict_proba(NEW)
    np.testing.assert_allclose(larger, large, atol=0.05)
    assert np.ptp(large, axis=0).min() > 0.05
    # all but nothing says that the first label is ever missing, or there
    for likely, other in ((1.0, 1e-20), (1e-300, 1e100)):
        P = boosted(Y, np.where(Y[:, 0], likely, other), **options).predict_proba(NEW)
        np.testing.assert_allclose(P[:, 0], likely > other, atol=1e-6)
        assert np.isfinite(P).all()


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
