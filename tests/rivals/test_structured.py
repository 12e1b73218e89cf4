"""What the structured support vector machines have in common."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from fbeta.rivals import MacroFSvm, ReverseMultiLabel, SubmodularMultiLabel

MACHINES = pytest.mark.parametrize("machine", [MacroFSvm, ReverseMultiLabel, SubmodularMultiLabel])


def toy(n=40, d=4, s=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0).astype(int)


@MACHINES
def test_sparse_is_dense_and_no_intercept(machine):
    X, Y = toy()
    X[np.abs(X) < 0.5] = 0
    dense = machine(fit_intercept=False).fit(X, Y)
    sparse = machine(fit_intercept=False).fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-6)
    assert not dense.intercept_.any()
    assert dense.coef_.any()


@pytest.mark.parametrize(
    "Y",
    [
        np.zeros((6, 3), int),
        np.ones((6, 3), int),
        np.array([[1], [0], [1], [0], [0], [0]]),
        np.array([[1, 0, 1]] * 6),
    ],
    ids=["empty", "full", "one label", "constant"],
)
@MACHINES
def test_odd_labels(machine, Y):
    X = np.random.default_rng(0).normal(size=(6, 20))
    for features in (X, sp.csr_array(X)):
        predicted = machine(alpha=0.1).fit(features, Y).predict(features)
        np.testing.assert_array_equal(predicted, Y)


@MACHINES
def test_warns_without_convergence(machine):
    X, Y = toy()
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        machine(alpha=1e-3, max_iter=2).fit(X, Y)


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"tol": 0.0}, {"max_iter": 0}, {"beta": -1.0}])
@MACHINES
def test_parameters_are_checked(machine, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        machine(**bad).fit(*toy())


def test_strength_of_pairs_is_checked():
    with pytest.raises(ValueError, match="alpha_pair"):
        SubmodularMultiLabel(alpha_pair=0.0).fit(*toy())


@MACHINES
def test_another_beta_needs_another_fit(machine):
    X, Y = toy()
    with pytest.raises(ValueError, match="fitted for beta=1"):
        machine().fit(X, Y).predict(X, beta=2.0)
