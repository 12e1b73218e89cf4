"""The measures, against scikit-learn; the numbers of the evaluation page, against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import (
    f1_score,
    fbeta_score,
    hamming_loss,
    jaccard_score,
    precision_recall_curve,
)

from fbeta import FBetaClassifier
from fbeta.methods import make_method
from fbeta.metrics import fbeta_per_instance
from fbeta.report.evaluation import (
    BETA_GRID,
    BETAS,
    calibration_bins,
    calibration_words,
    inspect_betas,
    measure,
    precision_recall_curves,
    scores_by_beta,
    speaking_features,
)
from fbeta.rivals import Limo
from fbeta.storage.model_files import StoredModel

from ..cli.toys import TEST, TRAIN

NAMES = tuple("abc")


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


def test_words_of_one_row_and_of_values_that_agree() -> None:
    right = np.array([[1, 0], [0, 1]])
    assert calibration_words(np.array([0.9999, 1.0]), right, right) == (
        "The model expects F_1 = 1.000 of these rows and gets 1.000: the two agree. "
        "The standard error is 0.000."
    )
    one = "One row does not show whether that is chance."
    assert calibration_words(np.array([0.6]), right[:1], right[:1]) == (
        f"The model expects F_1 = 0.600 of this row and gets 1.000: 0.400 too little. {one}"
    )
    assert calibration_words(np.ones(1), right[:1], right[:1]).endswith(f"the two agree. {one}")


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


@pytest.fixture(scope="module")
def stored() -> StoredModel:
    return StoredModel(FBetaClassifier().fit(*TRAIN), NAMES)


def test_numbers_at_each_beta(stored: StoredModel) -> None:
    X, Y = TEST
    views, marginals = inspect_betas(stored, X, Y, grid=[0.5, 1.0, 3.0])
    assert [view.beta for view in views] == [0.5, 1.0, 3.0]
    np.testing.assert_array_equal(marginals, stored.predict_proba(X))
    for view in views:
        P, expected = stored.predict(X, view.beta), stored.expected_fbeta(X, view.beta)
        f = fbeta_per_instance(Y, P, view.beta)
        assert view.scores["fbeta"] == f.mean()
        assert view.standard_error == pytest.approx(np.std(f, ddof=1) / len(f) ** 0.5)
        assert view.predicted.tolist() == P.sum(axis=0).tolist()
        assert view.hits.tolist() == (P * Y).sum(axis=0).tolist()
        sets = np.array(list(itertools.product([0, 1], repeat=3)))
        constant = max(
            fbeta_per_instance(Y, np.tile(one, (len(Y), 1)), view.beta).mean() for one in sets
        )
        assert view.baselines["constant"] == pytest.approx(constant, abs=1e-12)
        half = fbeta_per_instance(Y, stored.predict_proba(X) > 0.5, view.beta).mean()
        assert view.baselines["half"] == half
        order = np.argsort(f - expected, kind="stable")[:8]
        assert [row.row for row in view.rows["overconfident"]] == order.tolist()
        pairs = {
            (a, b): int(((Y[:, a] > P[:, a]) & (P[:, b] > Y[:, b])).sum())
            for a, b in itertools.permutations(range(3), 2)
        }
        assert {(a, b): n for a, b, n in view.confusions} == {k: n for k, n in pairs.items() if n}
        counts = [n for *_, n in view.confusions]
        assert counts == sorted(counts, reverse=True)


def test_chunks_of_rows_give_the_same(stored: StoredModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, marginals = inspect_betas(stored, *TEST, grid=[2.0])
    monkeypatch.setattr("fbeta.report.evaluation._CHUNK_BYTES", 50)
    parts, same = inspect_betas(stored, *TEST, grid=[2.0])
    np.testing.assert_array_equal(marginals, same)
    assert [(a.scores, a.rows, a.bins) for a in whole] == [
        (b.scores, b.rows, b.bins) for b in parts
    ]


def test_the_model_is_run_once(stored: StoredModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = type(stored.classifier.model)
    real, calls = model.probabilities, []

    def counted(self: object, X: object) -> object:
        calls.append(1)
        return real(self, X)

    monkeypatch.setattr(model, "probabilities", counted)
    inspect_betas(stored, *TEST)
    assert len(calls) == 1


def test_methods_for_one_beta_have_one_view() -> None:
    model = StoredModel(Limo(epochs=2, random_state=0).fit(*TRAIN), NAMES)
    views, marginals = inspect_betas(model, *TEST)
    assert [view.beta for view in views] == [1.0]
    assert marginals is None
    assert list(views[0].baselines) == ["constant"]
    with pytest.raises(ValueError, match="beta"):
        inspect_betas(model, *TEST, beta=2.0)


@pytest.mark.parametrize("beta", [1e-300, 1e300])
def test_extreme_betas(stored: StoredModel, beta: float) -> None:
    views, _ = inspect_betas(stored, *TEST, beta=beta)
    assert len(views) == len(BETA_GRID) + 1
    assert all(np.isfinite(list(view.scores.values())).all() for view in views)


def test_empty_sets_and_single_rows() -> None:
    X, Y = TRAIN
    model = StoredModel(FBetaClassifier().fit(X, np.zeros_like(Y)), NAMES)
    views, _ = inspect_betas(model, TEST[0], np.zeros_like(TEST[1]))
    assert all(view.scores["fbeta"] == 1 and view.mean_size == 0 for view in views)
    views, _ = inspect_betas(model, TEST[0][:1], TEST[1][:1])
    assert all(view.standard_error == 0 for view in views)


def test_curves_are_points_of_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    Y, P = rng.random((80, 3)) < 0.3, rng.random((80, 3))
    Y[:, 2] = False
    *curves, absent = precision_recall_curves(Y, P, n_points=9)
    assert absent == []
    for j, curve in enumerate(curves):
        precision, recall, _ = precision_recall_curve(Y[:, j], P[:, j])
        assert set(curve) <= set(zip(recall.round(4), precision.round(4), strict=True))
        assert len(curve) == 9
        assert (curve[0][0], curve[-1]) == (1.0, (0.0, 1.0))


def test_speaking_features_are_the_correlations_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 12)) * (rng.random((60, 12)) < 0.5)
    X[:, 3] = 2.0
    P = 1 / (1 + np.exp(-X[:, :3] - 0.2 * rng.normal(size=(60, 3))))
    names = [f"f{j}" for j in range(12)]
    with np.errstate(invalid="ignore"):
        exact = np.nan_to_num(np.corrcoef(X.T, P.T)[:12, 12:])
    monkeypatch.setattr("fbeta.report.evaluation._MAX_CORRELATIONS", 12)
    for j, found in enumerate(speaking_features(X, P, names)):
        strong = [i for i in np.argsort(-exact[:, j]) if exact[i, j] > 2 / 60**0.5][:8]
        assert found == [(names[i], pytest.approx(exact[i, j], abs=6e-4)) for i in strong]
        assert found[0][0] == f"f{j}"
