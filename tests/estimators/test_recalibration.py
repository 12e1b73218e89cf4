"""The recalibration of logits against a general optimiser over all label sets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from fbeta import FBetaDecoder
from fbeta.estimators.recalibration import fit_recalibration
from fbeta.statistics.codes import SizedCode

from ..reference import set_features


def test_recalibration_is_the_optimum():
    rng = np.random.default_rng(0)
    n, s, alpha = 80, 3, 0.7
    logits = 2 * rng.normal(size=(n, s))
    Y = sp.csr_array((rng.uniform(size=(n, s)) < 1 / (1 + np.exp(-0.5 * logits))).astype(np.int8))
    code, weight = SizedCode.of(Y), rng.uniform(0.5, 2, size=n)
    F, targets = set_features(s, code.sizes), code.targets(Y).toarray()
    model = fit_recalibration(logits, code.targets(Y), code.sizes, alpha, weight=weight, tol=1e-10)
    curve = np.interp(logits, model.knots, model.values)
    assert (np.diff(model.values) >= 0).all()
    number = ((1 / (1 + np.exp(-curve))).sum(axis=1) - model.centre) / model.scale

    def value(w):
        places = np.cumsum([s, s, len(code.sizes), len(code.sizes)])
        slope, offset, constant, factor, rest = np.split(w, places)
        labels = curve * slope + (logits - curve) * rest + offset
        u = np.concatenate([labels, constant + number[:, None] * factor], axis=1)
        losses = logsumexp(u @ F.T, axis=1) - (u * targets).sum(axis=1)
        distance = w - np.repeat([1.0, 0.0], [s, len(w) - s])
        return (weight * losses).sum() + alpha / 2 * (distance**2).sum()

    found = np.concatenate([model.slope, model.offset, model.potential.ravel(), [model.rest]])
    best = minimize(value, found * 0, method="BFGS")
    assert model.converged.all()
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    assert value(found) <= best.fun * (1 + 1e-7)
    # with a strong penalty nothing is mended
    strong = fit_recalibration(logits, code.targets(Y), code.sizes, 1e8)
    np.testing.assert_allclose(strong.slope, 1, atol=1e-4)
    inside = np.abs(strong.knots) < np.log(2 * n - 1)
    np.testing.assert_allclose(strong.values[inside], strong.knots[inside], atol=1e-4)


def test_it_says_where_it_did_not_converge():
    rng = np.random.default_rng(0)
    P = rng.uniform(size=(60, 4))
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        FBetaDecoder(max_iter=1, tol=1e-12).fit(P, (rng.uniform(size=P.shape) < 0.3).astype(int))


def test_large_logits_and_many_labels():
    rng = np.random.default_rng(0)
    logits = 30 * rng.choice([-1.0, 1.0], size=(20, 300), p=[0.99, 0.01])
    Y = (logits > 0).astype(int)
    Y[:5] = 0
    decoder = FBetaDecoder(inputs="logits").fit(logits, Y)
    assert np.isfinite(decoder.slope_).all()
    assert (decoder.predict(logits[5:]) == Y[5:]).all()
    assert decoder.predict_proba(expit(logits) * 60 - 30).shape == Y.shape
