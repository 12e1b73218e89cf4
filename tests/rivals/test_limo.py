"""LIMO against a plain loop over the steps."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import fbeta_score
from fbeta.rivals.limo import Limo, _draw_pairs, limo_path

from ..cases import slow


@pytest.mark.slow
@parametrize_with_checks(
    [
        Limo(epochs=2),
        Limo(epochs=2, variant="instance", threshold="micro"),
        Limo(epochs=2, variant="full", threshold="instance"),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=40, d=5, s=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + 0.3 * rng.normal(size=(n, s)) > 0.5).astype(int)
    return X, Y


def slow_limo(X, Y, alpha, alpha_instance, variant, eta, epochs, seed):
    """Follow the definition step by step, with every iterate in memory."""
    random = np.random.RandomState(seed)
    scale = np.abs(X).max(axis=0)
    X = X / np.where(scale == 0, 1, scale)
    d, s = X.shape[1], Y.shape[1]
    W = random.normal(0.0, 1 / np.sqrt(d), (s, d))
    iterates = [W.copy()]
    size = Y.sum(axis=1)
    mixed = (size > 0) & (size < s)
    rows = size if variant == "instance" else size[mixed]
    steps = len(rows) * max(1, round(rows.mean()))
    for _ in range(epochs):
        labels = list(_draw_pairs(random, sp.csr_array(Y), steps * (variant != "instance")))
        instances = list(_draw_pairs(random, sp.csr_array(Y.T), steps * (variant != "label")))
        for t in range(steps):
            if labels:
                i, u, v = labels[t]
                assert Y[i, u] == 1
                assert Y[i, v] == 0
                if (W[u] - W[v]) @ X[i] < 1:
                    W[u] -= eta * (W[u] - X[i] / alpha)
                    W[v] -= eta * (W[v] + X[i] / alpha)
            if instances:
                j, a, b = instances[t]
                assert Y[a, j] == 1
                assert Y[b, j] == 0
                if W[j] @ (X[a] - X[b]) < 1:
                    W[j] -= eta * (W[j] - (X[a] - X[b]) / alpha_instance)
            iterates.append(W.copy())
    return np.mean(iterates, axis=0) / np.where(scale == 0, 1, scale)


@pytest.mark.parametrize("variant", ["label", "instance", "full"])
@pytest.mark.parametrize("eta", [0.01, 0.9])
def test_weights_follow_the_definition(variant, eta):
    X, Y = toy()
    X[:, 2] = 0.0
    Y[:3], Y[3:5] = 0, 1
    expected = slow_limo(X, Y, 0.3, 2.0, variant, eta, 6, seed=1)
    options = {"variant": variant, "eta": eta, "epochs": 6, "random_state": 1}
    W = limo_path(X, Y, [0.3], alphas_instance=[2.0], **options)
    np.testing.assert_allclose(W[0], expected, rtol=1e-9, atol=1e-10)


def test_a_path_is_what_single_runs_give_and_sparse_is_dense():
    X, Y = toy()
    X[np.abs(X) < 0.7] = 0.0
    alphas = [1e-3, 0.1, 10.0]
    for variant in ("label", "full"):
        path = limo_path(X, Y, alphas, variant=variant, random_state=3)
        for alpha, W in zip(alphas, path, strict=True):
            model = Limo(alpha=alpha, variant=variant, random_state=3).fit(X, Y)
            np.testing.assert_allclose(model.coef_, W, rtol=1e-9, atol=1e-12)
        sparse = limo_path(sp.csr_array(X), Y, alphas, variant=variant, random_state=3)
        np.testing.assert_allclose(sparse, path, rtol=1e-9, atol=1e-12)


def test_sparse_rows_with_repeated_entries():
    X = sp.csr_array((np.array([1.0, 2.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])))
    Y = np.eye(2, dtype=int)
    W = limo_path(X, Y, [0.1], random_state=0)
    np.testing.assert_allclose(W, limo_path(X.toarray(), Y, [0.1], random_state=0))


def test_pairs_are_drawn_uniformly():
    Y = sp.csr_array(np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 0]]))
    draws = np.array(list(_draw_pairs(np.random.RandomState(0), Y, 20000)))
    assert set(draws[:, 0]) == {0, 3}
    first = draws[draws[:, 0] == 0]
    assert abs(len(first) / 20000 - 0.5) < 0.02
    for column, expected in ((1, [0, 2, 4]), (2, [1, 3])):
        values, counts = np.unique(first[:, column], return_counts=True)
        assert values.tolist() == expected
        np.testing.assert_allclose(counts / len(first), 1 / len(expected), atol=0.03)
    assert list(_draw_pairs(np.random.RandomState(0), sp.csr_array(np.ones((2, 2))), 5)) == []


@pytest.mark.parametrize("threshold", ["regression", slow("instance"), slow("micro")])
def test_learns_and_is_reproducible(threshold):
    X, Y = toy(n=200)
    model = Limo(alpha=0.1, threshold=threshold, epochs=30, random_state=5).fit(X, Y)
    again = Limo(alpha=0.1, threshold=threshold, epochs=30, random_state=5).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    other = Limo(alpha=0.1, threshold=threshold, epochs=30, random_state=6).fit(X, Y)
    assert not np.array_equal(model.coef_, other.coef_)
    constant = max(fbeta_score(Y, np.tile(y, (len(Y), 1))) for y in np.unique(Y, axis=0))
    assert model.score(X, Y) > constant + 0.05


@pytest.mark.parametrize("variant", ["label", "instance", "full"])
@pytest.mark.parametrize("threshold", ["regression", "instance", "micro"])
@pytest.mark.parametrize(
    "Y",
    [
        np.zeros((6, 3), int),
        np.ones((6, 3), int),
        np.array([[1], [0], [1], [0], [0], [0]]),
        np.array([[1, 0, 1]] * 6),
        np.eye(6, dtype=int),
    ],
    ids=["empty", "full", "one label", "constant", "diagonal"],
)
def test_odd_labels(variant, threshold, Y):
    X = np.random.default_rng(0).normal(size=(6, 9))
    for features in (X, sp.csr_array(X)):
        model = Limo(variant=variant, threshold=threshold, epochs=2, random_state=0)
        predicted = model.fit(features, Y).predict(features)
        assert predicted.shape == Y.shape
    if not Y.any():
        assert not predicted.any()


def test_one_row():
    model = Limo(random_state=0).fit([[1.0, 2.0]], [[1, 0]])
    assert model.predict([[1.0, 2.0]]).shape == (1, 2)


@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": 0.0},
        {"alpha_instance": -1.0},
        {"variant": "both"},
        {"threshold": "best"},
        {"eta": 1.0},
        {"eta": 0.0},
        {"epochs": 0},
        {"beta": 0.0},
    ],
)
def test_parameters_are_checked(bad):
    X, Y = toy(10)
    with pytest.raises(ValueError, match=next(iter(bad))):
        Limo(**bad).fit(X, Y)


def test_other_mistakes_are_named():
    X, Y = toy(10)
    with pytest.raises(ValueError, match="fitted for beta=1"):
        Limo(epochs=1, random_state=0).fit(X, Y).predict(X, beta=2.0)
    with pytest.raises(ValueError, match="2 alphas and 1"):
        limo_path(X, Y, [1.0, 2.0], alphas_instance=[1.0])
    with pytest.raises(ValueError, match="inconsistent"):
        limo_path(X, Y[:-1], [1.0])


def test_path_search_is_separate_fits():
    """All strengths in one pass give what one fit for each gives, for the same seed."""
    from fbeta.labels.forms import form_of

    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 5)), rng.integers(0, 2, (60, 4))
    train, test = np.arange(40), np.arange(40, 60)
    alphas = [0.01, 0.1, 10.0]
    limo = Limo(random_state=3, epochs=2)
    found = dict(limo.alpha_path(X, form_of(Y).read(Y), None, train, alphas))
    for alpha in alphas:
        fitted = Limo(alpha=alpha, random_state=3, epochs=2).fit(X[train], Y[train])
        assert np.array_equal(
            found[alpha].decide(X[test], checked=True).labels[1.0],
            fitted.predict(X[test]).astype(bool),
        )
