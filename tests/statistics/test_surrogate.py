"""The theorems of the paper, as theorems: on laws whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from fbeta import LabelStatistics, decode
from fbeta.losses import LOSSES
from fbeta.statistics.surrogate import code_norm, psi, psi_gradient, psi_regret, regret_bound

from .. import reference
from ..cases import slow_but

BETAS = (0.3, 0.5, 1.0, 2.0, 5.0)


def fbeta_matrix(s, beta):
    sets = reference.label_sets(s)
    return np.array([[reference.fbeta(y, yhat, beta) for yhat in sets] for y in sets])


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("s", [1, 2, 3, 4, 5, 6])
def test_rank_of_the_loss_matrix(s, beta):
    """At most s^2 + 1 as the paper says, and in fact s^2 - s + 2."""
    rank = np.linalg.matrix_rank(-fbeta_matrix(s, beta), tol=1e-9)
    assert rank <= s**2 + 1
    assert rank == s**2 - s + 2


@pytest.mark.parametrize("beta", BETAS)
def test_the_code_factorises_the_loss_matrix(beta):
    """-F(y, yhat) = a_y . b_yhat, with b as decode uses it: a prediction's value on one set."""
    s = 4
    sets = np.array(reference.label_sets(s))
    q = LabelStatistics.from_labels(sets)
    matrix = fbeta_matrix(s, beta)
    for column, yhat in enumerate(sets):
        values = [
            reference.value_of(q.empty[i], q.joint[i], q.cardinalities, yhat, beta)
            for i in range(len(sets))
        ]
        assert np.allclose(values, matrix[:, column])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_psi_and_its_gradient(loss):
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (4, 3))
    U = rng.normal(size=(4, 10))
    total = []
    for y, u in zip(Y, U, strict=True):
        code = [sum(y) == 0] + [sum(y) == k and y[j] == 1 for k in (1, 2, 3) for j in range(3)]
        total.append(
            sum(float(loss.value(float(a), np.float64(v))) for a, v in zip(code, u, strict=True))
        )
    assert np.allclose(psi(Y, U, loss=loss), total)
    gradient, h = psi_gradient(Y, U, loss=loss), 1e-6
    for c in range(10):
        shift = np.zeros(10)
        shift[c] = h
        slope = (psi(Y, U + shift, loss=loss) - psi(Y, U - shift, loss=loss)) / (2 * h)
        assert np.allclose(gradient[:, c], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_psi_regret_is_the_excess_expected_psi(loss):
    rng = np.random.default_rng(1)
    s = 3
    sets = np.array(reference.label_sets(s))
    p = rng.dirichlet(np.ones(len(sets)), size=5)
    q = LabelStatistics.from_distribution(p, sets)
    U = rng.normal(size=(5, s * s + 1))
    best = loss.link(q.to_code())
    for i in range(5):
        at = [
            float(psi(sets, np.tile(v, (len(sets), 1)), loss=loss) @ p[i]) for v in (U[i], best[i])
        ]
        assert psi_regret(q, U, loss=loss)[i] == pytest.approx(at[0] - at[1], rel=1e-9)
    assert np.allclose(psi_regret(q, best, loss=loss), 0)


def test_psi_regret_where_the_truth_is_certain():
    q = LabelStatistics.from_labels([[1, 0]])
    U = np.full((1, 3), -3.0)
    assert psi_regret(q, U)[0] == pytest.approx(np.log1p(np.exp(-3)) * 2 + np.log1p(np.exp(3)))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("beta", slow_but((1.0, BETAS[-1]), BETAS))
def test_regret_transfer_bound(beta, loss):
    """F-regret <= tight bound <= printed bound, for random laws and random scores."""
    rng = np.random.default_rng(2)
    ratios = []
    for s in (1, 2, 3, 5):
        sets = np.array(reference.label_sets(s))
        for noise in (0.05, 0.3, 1.0, 3.0):
            p = rng.dirichlet(np.full(len(sets), 0.3), size=60)
            q = LabelStatistics.from_distribution(p, sets)
            link = np.clip(loss.link(q.to_code()), -8, 8)
            U = link + noise * rng.normal(size=link.shape)
            estimate = LabelStatistics.from_code(loss.inverse_link(U), q.cardinalities, s)
            chosen = decode(estimate, beta)
            best = decode(q, beta, return_expected=True)[1]
            got = [
                reference.expected_fbeta(row, sets, y, beta)
                for row, y in zip(p, chosen, strict=True)
            ]
            for regret, surrogate in zip(best - got, psi_regret(q, U, loss=loss), strict=True):
                tight = regret_bound(surrogate, s, beta, loss=loss, tight=True)
                printed = regret_bound(surrogate, s, beta, loss=loss)
                assert -1e-12 <= regret <= tight + 1e-9
                assert tight <= printed * (1 + 1e-9) or s == 1
                ratios.append(regret / tight if tight > 1e-6 else 0)
    assert max(ratios) > 0.01, "the bound should not be vacuous on these laws"


@pytest.mark.parametrize("beta", BETAS)
def test_code_norm(beta):
    for s in (1, 4, 30):
        norms = [1.0]
        for t in range(1, s + 1):
            norms.append(
                np.sqrt(sum(t * ((1 + beta**2) / (beta**2 * k + t)) ** 2 for k in range(1, s + 1)))
            )
        assert code_norm(s, beta) == pytest.approx(max(norms))
    assert code_norm(2000, beta) <= (1 + beta**2) / beta


@pytest.mark.parametrize("beta", [1e-150, 1e150, 1e200])
def test_extreme_betas_do_not_overflow(beta):
    assert 1 <= code_norm(5, beta) < 10
    assert np.isfinite(regret_bound(0.1, 5, beta, tight=True))
    assert regret_bound(0.1, 5, beta) > 1e100


def test_printed_bound_is_the_formula():
    assert regret_bound(0.02, 10, 2.0) == pytest.approx(
        5 / 2 * np.sqrt(2 * (np.log(10) + 1) / 4 * 0.02)
    )


def test_bad_arguments():
    with pytest.raises(ValueError, match="U must have shape"):
        psi([[1, 0]], np.zeros((1, 4)))
    with pytest.raises(ValueError, match="U must have shape"):
        psi_regret(LabelStatistics.from_labels([[1]]), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="regret"):
        regret_bound(-1.0, 3)
    with pytest.raises(ValueError, match="n_labels"):
        code_norm(0)
