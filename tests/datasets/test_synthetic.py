from __future__ import annotations

import numpy as np
import pytest

from fbeta import FBetaClassifier, decode
from fbeta.datasets import CalibratedLaw, make_calibrated
from fbeta.datasets.benchmarks import all_label_sets
from fbeta.decoding.exact import expected_fbeta
from fbeta.losses import LogisticLoss

from .. import reference


def test_linear_scores_give_the_true_statistics():
    law = CalibratedLaw(n_labels=4, n_features=30, random_state=3)
    sample = law.sample(200, random_state=4)
    q = LogisticLoss().inverse_link(sample.X @ law.W.T)
    assert np.allclose(q, sample.statistics.to_code(), atol=1e-9)
    assert np.allclose(sample.statistics.cardinality_distribution().sum(axis=1), 1)


def test_labels_follow_the_law():
    sample = CalibratedLaw(n_labels=3, n_features=10, random_state=0).sample(40_000, random_state=1)
    gap = sample.Y.mean(axis=0) - sample.statistics.marginals().mean(axis=0)
    assert np.abs(gap).max() < 0.01


def test_expected_fbeta_is_the_definition():
    rng = np.random.default_rng(0)
    sets = all_label_sets(3)
    from fbeta import LabelStatistics

    p = rng.dirichlet(np.ones(8), size=6)
    q = LabelStatistics.from_distribution(p, sets)
    predictions = sets[rng.integers(0, 8, 6)]
    predictions[0] = 0
    for beta in (0.5, 2.0):
        expected = [reference.expected_fbeta(p[i], sets, predictions[i], beta) for i in range(6)]
        assert np.allclose(expected_fbeta(q, predictions, beta), expected)


def test_bayes_optimum_is_the_best_there_is():
    sample = CalibratedLaw(n_labels=3, n_features=10).sample(300, random_state=2)
    best = decode(sample.statistics, 1.0)
    assert sample.regret(best) == pytest.approx(0, abs=1e-12)
    for y in all_label_sets(3):
        assert sample.expected_fbeta(np.tile(y, (300, 1))) <= sample.bayes_fbeta() + 1e-12


def test_make_calibrated_is_reproducible():
    one, other = (make_calibrated(50, 3, 12, random_state=5) for _ in range(2))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
    assert one[3] == other[3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3, 5), "n_features must be at least 10"),
        ((10, 15, 300), "at most 14"),
        ((0, 3, 10), "n must"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_calibrated(*arguments)


def regret_after(law, test, n, seed):
    train = law.sample(n, random_state=seed)
    clf = FBetaClassifier(alpha=1.0, fit_intercept=False).fit(train.X, train.Y)
    return test.regret(clf.predict(test.X))


def test_consistency():
    """The regret, exact on the test points, falls with the sample and is small at 10,000."""
    law = CalibratedLaw(random_state=0)
    test = law.sample(5000, random_state=1)
    regrets = [regret_after(law, test, n, seed=2) for n in (100, 1000, 10_000)]
    assert regrets[0] > 2 * regrets[1] > 4 * regrets[2] > 0
    assert regrets[2] < 0.003


@pytest.mark.slow
def test_consistency_at_a_hundred_thousand():
    law = CalibratedLaw(random_state=0)
    test = law.sample(15_000, random_state=1)
    assert regret_after(law, test, 100_000, seed=2) < 0.001
