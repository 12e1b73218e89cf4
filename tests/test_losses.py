from __future__ import annotations

import pickle

import array_api_strict
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fbeta.losses import LOSSES, LogisticLoss, Loss, get_loss

ALL = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
SCORES = np.linspace(-4, 4, 41)
TARGETS = np.array([0.0, 0.25, 0.8, 1.0])[:, None]


@ALL
def test_derivatives_against_finite_differences(loss):
    h = 1e-5
    slope = (loss.value(TARGETS, SCORES + h) - loss.value(TARGETS, SCORES - h)) / (2 * h)
    assert np.allclose(loss.derivative(TARGETS, SCORES), slope, rtol=1e-6, atol=1e-7)
    bend = (loss.derivative(TARGETS, SCORES + h) - loss.derivative(TARGETS, SCORES - h)) / (2 * h)
    assert np.allclose(loss.second_derivative(TARGETS, SCORES), bend, rtol=1e-6, atol=1e-7)


PLAIN = {
    "logistic": lambda y, u: y * np.log(1 + np.exp(-u)) + (1 - y) * np.log(1 + np.exp(u)),
    "exponential": lambda y, u: y * np.exp(-u) + (1 - y) * np.exp(u),
    "squared": lambda y, u: y * (1 - u) ** 2 + (1 - y) * (1 + u) ** 2,
}


@ALL
def test_values_and_what_is_evaluated_together(loss):
    right = PLAIN[loss.name](TARGETS, SCORES)
    np.testing.assert_allclose(loss.value(TARGETS, SCORES), right, rtol=1e-12)
    apart = [f(TARGETS, SCORES) for f in (loss.value, loss.derivative, loss.second_derivative)]
    assert [part.shape for part in apart] == [right.shape] * 3
    for one, part in zip(loss.evaluate(TARGETS, SCORES), apart, strict=True):
        assert np.allclose(one, part, rtol=1e-10, atol=1e-12)


@ALL
@pytest.mark.parametrize("q", [0.003, 0.1, 0.4, 0.5, 0.77, 0.99])
def test_strictly_proper_the_minimiser_is_the_link(loss, q):
    found = minimize_scalar(
        lambda u: float(loss.value(q, np.float64(u))), bounds=(-12, 12), options={"xatol": 1e-10}
    )
    link = float(loss.link(np.float64(q)))
    assert found.x == pytest.approx(link, abs=1e-5)
    others = SCORES[np.abs(SCORES - link) > 1e-3]
    assert (loss.value(q, others) > loss.value(q, np.float64(link))).all()


@ALL
def test_links_invert_each_other(loss):
    q = np.linspace(0.001, 0.999, 99)
    assert np.allclose(loss.inverse_link(loss.link(q)), q, rtol=1e-12)
    ends = loss.inverse_link(loss.link(np.array([0.0, 1.0])))
    assert ends.tolist() == [0.0, 1.0]


@ALL
def test_strength_is_the_largest_constant(loss):
    q = np.linspace(0.001, 0.999, 400)[:, None]
    p = np.linspace(0.0005, 0.9995, 400)[None, :]
    regret = loss.value(q, loss.link(p)) - loss.value(q, loss.link(q))
    ratio = 2 * regret / np.where(np.abs(p - q) > 1e-3, (p - q) ** 2, np.inf)
    ratio = ratio[np.abs(p - q) > 1e-3]
    assert ratio.min() >= loss.strength * (1 - 1e-6)
    assert ratio.min() <= loss.strength * 1.01


@ALL
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_safe_for_large_scores(loss, dtype):
    u = np.array([-1e4, -500, -90, 0, 90, 500, 1e4], dtype=dtype)
    for y in (0.0, 0.3, 1.0):
        y = dtype(y)
        for f in (loss.value, loss.derivative, loss.second_derivative):
            out = f(y, u)
            assert np.isfinite(out).all()
            assert out.dtype == dtype
        assert all(np.isfinite(part).all() for part in loss.evaluate(y, u))
        assert (np.diff(loss.derivative(y, u)) >= 0).all()
    p = loss.inverse_link(u)
    assert p.dtype == dtype
    assert ((p >= 0) & (p <= 1)).all()


def test_logistic_value_does_not_saturate():
    u = np.array([-1e4, 1e4])
    assert LogisticLoss().evaluate(1.0, u)[0].tolist() == [1e4, 0.0]
    assert LogisticLoss().evaluate(0.0, u)[0].tolist() == [0.0, 1e4]


@ALL
def test_keeps_to_the_array_api_standard(loss):
    u, y = array_api_strict.asarray(SCORES), array_api_strict.asarray(SCORES * 0 + 0.25)
    numpy = loss.evaluate(0.25, SCORES)
    for one, other in zip(loss.evaluate(y, u), numpy, strict=True):
        assert np.allclose(np.asarray(one), other)
    assert np.allclose(np.asarray(loss.inverse_link(u)), loss.inverse_link(SCORES))
    q = array_api_strict.asarray(np.array([0.0, 0.2, 1.0]))
    assert np.array_equal(np.asarray(loss.link(q)), loss.link(np.array([0.0, 0.2, 1.0])))


@ALL
def test_pickles_compares_and_is_found_by_name(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert get_loss(loss.name) == loss
    assert get_loss(loss) is loss
    assert loss in {loss}
    assert isinstance(loss, Loss)


def test_unknown_loss():
    with pytest.raises(ValueError, match="hinge"):
        get_loss("hinge")
