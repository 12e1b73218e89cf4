"""The measures, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, fbeta_score, hamming_loss, jaccard_score

from fbeta.methods import make_method
from fbeta.report.evaluation import BETAS, calibration_bins, measure, scores_by_beta


def test_measures_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    Y, P = (rng.random((50, 4)) < 0.4 for _ in range(2))
    Y[:, 3] = P[:, 3] = False
    scores = measure(Y, P)
    for average in ("micro", "macro"):
        expected = f1_score(Y, P, average=average, zero_division=1)
        assert scores[f"{average}_fbeta"] == pytest.approx(expected)
    assert scores["hamming"] == pytest.approx(hamming_loss(Y, P))
    samples = f1_score(Y, P, average="samples", zero_division=1)
    assert scores["fbeta"] == pytest.approx(samples)
    equal = jaccard_score(Y, P, average="samples", zero_division=1)
    assert scores["subset_accuracy"] <= equal <= scores["fbeta"]


def test_measures_of_a_single_label_are_not_those_of_a_binary_target() -> None:
    Y, P = np.array([[1], [0], [1]]), np.array([[1], [0], [0]])
    scores = measure(Y, P)
    assert scores["micro_fbeta"] == pytest.approx(2 / 3)
    assert scores["fbeta"] == pytest.approx(2 / 3)


def test_a_method_that_refuses_a_beta_has_no_score_for_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = (X[:, :2] + rng.normal(size=(40, 2)) > 0).astype(int)
    model = make_method("fbeta").fit(X, Y)
    expected = {
        f"{beta:g}": fbeta_score(
            Y, model.predict(X, beta=beta), beta=beta, average="samples", zero_division=1
        )
        for beta in BETAS
    }
    assert scores_by_beta(model, X, Y) == pytest.approx(expected)
    assert list(scores_by_beta(make_method("limo").fit(X, Y), X, Y)) == ["1"]


def test_calibration_groups_are_of_one_size_and_sorted() -> None:
    rng = np.random.default_rng(1)
    expected = rng.random(25)
    Y, P = (rng.random((25, 3)) < 0.5 for _ in range(2))
    bins = calibration_bins(expected, f1_rows(Y, P), n_bins=4)
    assert [group["count"] for group in bins] == [7, 6, 6, 6]
    assert [group["expected"] for group in bins] == sorted(group["expected"] for group in bins)
    for key, values in (("expected", expected), ("actual", f1_rows(Y, P))):
        total = sum(group[key] * group["count"] for group in bins)
        assert total == pytest.approx(values.sum())


def f1_rows(Y: np.ndarray, P: np.ndarray) -> np.ndarray:
    return np.array(
        [f1_score(y, p, zero_division=1) for y, p in zip(Y.astype(int), P.astype(int), strict=True)]
    )
