"""Parameters and cells that Python would take, and nobody means."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from fbeta import FBetaClassifier, fbeta_score
from fbeta.datasets import DatasetError, read_csv, read_meka, read_svmlight
from fbeta.methods import METHODS, make_method
from fbeta.metrics import averaged_fbeta, best_thresholds, fbeta_of_counts, precision_score
from fbeta.report.evaluation import calibration_words, label_scores, measure

X = np.random.default_rng(0).normal(size=(12, 2))
Y = (X > 0).astype(int)
SOLVED = [name for name in METHODS if "fit_intercept" in make_method(name).get_params()]


@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize("value", ["no", 0, None, "False"])
def test_an_intercept_is_there_or_not(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match="fit_intercept must be True or False"):
        make_method(name).set_params(fit_intercept=value).fit(X, Y)


@pytest.mark.parametrize("name", [m for m in SOLVED if "max_iter" in make_method(m).get_params()])
def test_iterations_are_counted_in_32_bits(name: str) -> None:
    with pytest.raises(ValueError, match="max_iter must be at most 2147483647, got 8589934592"):
        make_method(name).set_params(max_iter=2**33).fit(X, Y)


def test_true_and_false_of_numpy_will_do() -> None:
    assert not FBetaClassifier(fit_intercept=np.bool_(False)).fit(X, Y).intercept_.any()


def test_rows_of_labels_do_not_broadcast() -> None:
    for wrong in (Y[:1], Y[:, :1], Y[0]):
        with pytest.raises(ValueError, match=r"must agree|two dimensions"):
            fbeta_score(Y, wrong)
        with pytest.raises(ValueError, match="must agree"):
            best_thresholds(X, wrong)
        with pytest.raises(ValueError, match=r"must agree|two dimensions"):
            measure(Y, wrong)


def exact(both: int, true: int, pred: int, beta: float) -> Fraction:
    square = Fraction(beta) ** 2
    bottom = square * true + pred
    return (1 + square) * both / bottom if bottom else Fraction(1)


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.floats(-150, 150).map(lambda power: 10.0**power),
)
def test_f_is_right_for_every_beta(both: int, more: int, other: int, beta: float) -> None:
    true, pred = both + more, both + other
    expected = float(exact(both, true, pred, beta))
    assert fbeta_of_counts(both, true, pred, beta) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("beta", [1e-150, 1e-80, 1.0, 1e80, 1e150])
def test_every_measure_is_right_for_every_beta(beta: float) -> None:
    rng = np.random.default_rng(1)
    truth, guess = (rng.integers(0, 2, size=(9, 3)) for _ in range(2))
    found = measure(truth, guess, beta)
    rows = [
        exact(int((t & g).sum()), int(t.sum()), int(g.sum()), beta)
        for t, g in zip(truth, guess, strict=True)
    ]
    columns = [
        exact(int((t & g).sum()), int(t.sum()), int(g.sum()), beta)
        for t, g in zip(truth.T, guess.T, strict=True)
    ]
    whole = exact(int((truth & guess).sum()), int(truth.sum()), int(guess.sum()), beta)
    assert found["fbeta"] == pytest.approx(float(sum(rows) / len(rows)))
    assert found["macro_fbeta"] == pytest.approx(float(sum(columns) / len(columns)))
    assert found["micro_fbeta"] == pytest.approx(float(whole))
    np.testing.assert_allclose(
        label_scores(truth, guess, beta)["fbeta"], np.array(columns, dtype=float)
    )


ODD = ["\u0661\u0662", "1_0", "\uff11", "\u00bd"]


@pytest.mark.parametrize("word", ODD)
def test_odd_digits_are_no_numbers(word: str, tmp_path: Path) -> None:
    table, arff, svm = (tmp_path / name for name in ("a.csv", "a.arff", "a.svm"))
    table.write_text(f"x,y\n{word},1\n", encoding="utf-8")
    arff.write_text(
        f"@relation 'x: -C 1'\n@attribute y {{0,1}}\n@attribute x real\n@data\n1,{word}\n",
        encoding="utf-8",
    )
    svm.write_text(f"1 1:{word}\n", encoding="utf-8")
    for read in (
        lambda: read_csv(table, labels=["y"]),
        lambda: read_meka(arff),
        lambda: read_svmlight(svm),
    ):
        with pytest.raises(DatasetError):
            read()


def test_a_small_file_is_not_wide(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:1 999999999:1\n")
    assert path.stat().st_size < 34
    with pytest.raises(DatasetError, match="line 1: expected feature indices up to 1,0"):
        read_svmlight(path)
    assert read_svmlight(path, n_features=10**9).n_features == 10**9, "unless one says so"
    path.write_text("1 1:1 1000000:1\n")
    assert read_svmlight(path).n_features == 10**6


def test_calibration_in_words() -> None:
    rng = np.random.default_rng(0)
    P = rng.uniform(0.3, 0.7, size=(2_000, 1))
    truth = (rng.random(P.shape) < P).astype(int)
    guess = np.ones_like(truth)
    fair = " ".join(calibration_words(P[:, 0], truth, guess).split())
    assert "chance can explain that" in fair
    assert "least sure" in fair
    assert "too sure of its predictions" in calibration_words(P[:, 0] + 0.2, truth, guess)
    assert "better than it thinks" in calibration_words(P[:, 0] - 0.2, truth, guess)


@pytest.mark.parametrize("scale", [1e308, 1e200, 1e-200, 5e-320])
def test_averages_do_not_depend_on_the_scale_of_weights(scale: float) -> None:
    weight, other = np.repeat([1.0, 0.5], 6), 1 - Y[:, ::-1]
    for call in (
        lambda w: fbeta_score(Y, other, sample_weight=w),
        lambda w: averaged_fbeta(Y, other, average="micro", sample_weight=w),
        lambda w: averaged_fbeta(Y, other, average="macro", sample_weight=w),
        lambda w: precision_score(Y, other, sample_weight=w),
        lambda w: best_thresholds(X, Y, weight=w),
    ):
        np.testing.assert_allclose(call(scale * weight), call(weight), rtol=1e-12)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("scale", [1e308, 1e-320])
def test_weights_out_of_range_are_named(name: str, scale: float) -> None:
    model = make_method(name)
    if has_fit_parameter(model, "sample_weight"):
        with pytest.raises(ValueError, match="sample_weight has a largest value of"):
            model.fit(X, Y, sample_weight=np.full(12, scale))


@pytest.mark.parametrize("name", ["limo", "macrof", "rml", "sml"])
def test_overflow_of_the_rivals_names_alpha(name: str) -> None:
    model = make_method(name).set_params(alpha=1e-310)
    with pytest.raises(ValueError, match="overflow: increase alpha"):
        model.fit(X, Y)
    if name != "limo":  # whose features are scaled
        with pytest.raises(ValueError, match="overflow: increase alpha, or scale X"):
            make_method(name).fit(1e160 * X, Y)


def test_limo_does_not_depend_on_the_scale_of_features() -> None:
    model, far = (make_method("limo").set_params(random_state=0) for _ in range(2))
    found = far.fit(1e160 * X, Y).predict(1e160 * X)
    assert np.array_equal(found, model.fit(X, Y).predict(X))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "auto"])
def test_columns_of_other_names_are_matched_or_refused(name: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make_method(name).fit(frame, Y)
    right = model.predict(frame)
    with pytest.raises(ValueError, match=r"names|columns"):
        model.predict(frame.rename(columns={"a": "c"}))
    try:
        found = model.predict(frame[["b", "a"]])
    except ValueError:
        return
    assert np.array_equal(found, right)
