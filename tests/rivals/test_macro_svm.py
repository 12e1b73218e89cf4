"""The SVM for the F_beta of a column, against all 2^n labelings."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import LinearConstraint, minimize
from sklearn.metrics import f1_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta.rivals.structured import MacroFSvm, most_violated


@parametrize_with_checks([MacroFSvm()])
def test_scikit_learn(estimator, check):
    check(estimator)


def losses(y, labelings, beta):
    """Return 1 - F_beta of the column, from its contingency table."""
    tp = labelings @ y
    fp, fn = labelings @ (1 - y), (1 - labelings) @ y
    bottom = (1 + beta**2) * tp + beta**2 * fn + fp
    return 1 - np.where(bottom > 0, (1 + beta**2) * tp / np.where(bottom > 0, bottom, 1), 1.0)


def all_labelings(n):
    return np.array(list(product([0, 1], repeat=n)))


def toy(n=120, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + 0.5 * rng.normal(size=(n, s)) > 1.5).astype(int)
    return X, Y


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            arrays(float, n, elements=st.floats(-3, 3)),
            arrays(int, n, elements=st.integers(0, 1)),
        )
    ),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_most_violated_labeling_is_the_best_of_all(case, beta):
    scores, y = case
    labelings = all_labelings(len(y))
    table = losses(y, labelings, beta) + labelings @ scores
    found, value = most_violated(scores[None, :], y[None, :], beta)
    assert value[0] == pytest.approx(table.max(), abs=1e-12)
    own = losses(y, found.astype(int), beta)[0] + found[0] @ scores
    assert own == pytest.approx(value[0], abs=1e-12)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_agrees_with_the_quadratic_program_over_all_labelings(beta):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(7, 2)), np.array([1, 0, 0, 1, 0, 0, 1])
    alpha = 3.0
    model = MacroFSvm(beta=beta, alpha=alpha, tol=1e-7).fit(X, y[:, None])
    labelings, design = all_labelings(7), np.hstack([X, np.ones((7, 1))])
    G, b = (labelings - y) @ design, 7 * losses(y, labelings, beta)
    w = np.r_[model.coef_[0], model.intercept_[0]]
    assert model.objective_[0] == pytest.approx(alpha / 2 * w @ w + (b + G @ w).max())
    reference = minimize(
        lambda z: alpha / 2 * z[:3] @ z[:3] + z[3],
        np.r_[np.zeros(3), b.max()],
        jac=lambda z: np.r_[alpha * z[:3], 1.0],
        constraints=LinearConstraint(np.hstack([-G, np.ones((128, 1))]), lb=b),
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert model.objective_[0] == pytest.approx(reference.fun, rel=1e-5)
    assert 0 <= model.gap_[0] <= 1e-7 * model.objective_[0]
    np.testing.assert_allclose(w, reference.x[:3], atol=1e-3)


def test_labels_are_fitted_on_their_own():
    X, Y = toy()
    together = MacroFSvm().fit(X, Y)
    for j in range(Y.shape[1]):
        alone = MacroFSvm().fit(X, Y[:, [j]])
        np.testing.assert_allclose(together.coef_[j], alone.coef_[0])


def test_learns_rare_labels():
    X, Y = toy(n=300)
    predicted = MacroFSvm(alpha=1.0).fit(X, Y).predict(X)
    everything = f1_score(Y, np.ones_like(Y), average="macro")
    assert f1_score(Y, predicted, average="macro") > everything + 0.2


def test_larger_beta_predicts_more():
    X, Y = toy(n=300)
    counts = [MacroFSvm(beta=b).fit(X, Y).predict(X).sum() for b in (0.3, 1.0, 4.0)]
    assert counts[0] < counts[1] < counts[2]


def test_constant_labels_are_predicted_everywhere():
    X, Y = toy()
    Y[:, 0], Y[:, 2] = 0, 1
    model = MacroFSvm().fit(X, Y)
    predicted = model.predict(100 * X)
    assert not predicted[:, 0].any()
    assert predicted[:, 2].all()
    assert model.intercept_[0] == -np.inf
    assert model.n_iter_ > 0


def test_more_features_than_rows():
    X = np.random.default_rng(0).normal(size=(6, 30))
    Y = np.array([[1, 0], [0, 0], [0, 1], [1, 1], [0, 0], [0, 0]])
    for features in (X, sp.csr_array(X)):
        predicted = MacroFSvm(alpha=0.1).fit(features, Y).predict(features)
        np.testing.assert_array_equal(predicted, Y)
