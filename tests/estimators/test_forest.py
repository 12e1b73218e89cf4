"""Nearest neighbours, and forests with sized labels, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fbeta import FBetaForest, LabelStatistics
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
