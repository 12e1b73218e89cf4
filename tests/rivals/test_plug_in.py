"""Exact F-measure plug-in against one scikit-learn fit per label, and odd training data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import decode
from fbeta.datasets import load
from fbeta.estimators.base import MultiLabelClassifier
from fbeta.linear.learner import take_rows
from fbeta.rivals.plug_in import ExactFPlugIn, PlugInCode

from .. import reference

labels = st.tuples(st.integers(1, 7), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1))
)


@pytest.mark.slow
@parametrize_with_checks([ExactFPlugIn(), ExactFPlugIn(rows="all", fit_intercept=False)])
def test_scikit_learn(estimator, check):
    check(estimator)


def toy(n=120, d=4, s=4, seed=0, empty=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, s)) + rng.normal(size=(n, s)) > 0.5).astype(int)
    if not empty:
        Y[Y.sum(axis=1) == 0, 0] = 1
    return X, Y


def slow_statistics(X, Y, alpha, rows):
    """One scikit-learn estimator for each label; dense arrays over all sizes 1..s."""
    n, s = Y.shape
    sizes = Y.sum(axis=1)
    empty = np.zeros(n)
    if (sizes == 0).any():
        single = LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=5000)
        empty = single.fit(X, sizes == 0).predict_proba(X)[:, 1]
    used = sizes > 0 if rows == "nonempty" else np.ones(n, dtype=bool)
    joint = np.zeros((n, s, s))
    for j in range(s):
        y = np.where(Y[used, j], sizes[used], 0)
        C = (2 if len(np.unique(y)) == 2 else 1) / alpha
        model = LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(X[used], y)
        for c, k in enumerate(model.classes_):
            if k:
                joint[:, k - 1, j] = model.predict_proba(X)[:, c]
    if rows == "nonempty":
        joint *= (1 - empty)[:, None, None]
    return empty, joint


@pytest.mark.parametrize("rows", ["nonempty", "all"])
@pytest.mark.parametrize("empty", [True, False])
def test_statistics_are_those_of_separate_fits(rows, empty):
    X, Y = toy(empty=empty)
    q = ExactFPlugIn(alpha=0.5, rows=rows, tol=1e-12).fit(X, Y).predict_statistics(X)
    none, joint = slow_statistics(X, Y, 0.5, rows)
    np.testing.assert_allclose(q.empty, none, atol=1e-5)
    np.testing.assert_allclose(q.joint, joint[:, q.cardinalities - 1], atol=1e-5)


def test_both_readings_agree_without_empty_rows():
    X, Y = toy(empty=False)
    a, b = (ExactFPlugIn(rows=r).fit(X, Y).predict_statistics(X) for r in ("nonempty", "all"))
    assert (a.empty == 0).all()
    np.testing.assert_array_equal(a.joint, b.joint)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_decodes_its_statistics(beta):
    X, Y = toy()
    model = ExactFPlugIn().fit(X, Y)
    assert np.array_equal(model.predict(X, beta=beta), decode(model.predict_statistics(X), beta))


def test_duplicate_constant_and_missing_labels():
    X, Y = toy(empty=False)
    Y = np.column_stack([Y, Y[:, 1], np.ones(len(Y)), np.zeros(len(Y))]).astype(int)
    model = ExactFPlugIn().fit(X, Y)
    q = model.predict_statistics(X)
    np.testing.assert_array_equal(q.joint[:, :, 1], q.joint[:, :, 4])
    np.testing.assert_allclose(q.joint[:, :, 5].sum(axis=1), 1)
    assert (q.joint[:, :, 6] == 0).all()
    # 4 distinct labels with class 0, one without, and nothing for the label that never occurs
    sizes = Y.sum(axis=1)
    counts = [1 + len(np.unique(sizes[Y[:, j] == 1])) for j in range(4)]
    assert len(model.coef_) == sum(counts) + len(np.unique(sizes))


def test_all_rows_empty():
    X, Y = toy()
    model = ExactFPlugIn().fit(X, Y * 0)
    assert not model.predict(X).any()
    assert (model.predict_statistics(X).empty == 1).all()
    assert (model.predict_proba(X) == 0).all()


@pytest.mark.parametrize("rows", ["nonempty", "all"])
def test_one_label_and_more_features_than_rows(rows):
    X, Y = toy(n=12, d=30, s=1)
    model = ExactFPlugIn(alpha=1e-2, rows=rows).fit(X, Y)
    assert np.array_equal(model.predict(X), Y)


def test_sparse_features_and_weights():
    X, Y = toy()
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    dense = ExactFPlugIn(tol=1e-12).fit(X, Y, sample_weight=weight)
    sparse = ExactFPlugIn(tol=1e-12).fit(sp.csr_array(X), Y, sample_weight=weight)
    twice = ExactFPlugIn(tol=1e-12).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight, axis=0))
    for other in (sparse, twice):
        np.testing.assert_allclose(other.predict_proba(X), dense.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("rows", ["nonempty", "all"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_path_predicts_what_separate_fits_do(rows, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 5))
    Y = sp.csr_array((X[:, :4] + rng.normal(size=(90, 4)) > 0.7).astype(np.int8))
    weight = rng.uniform(0.5, 2, 90) if weighted else None
    estimator = ExactFPlugIn(rows=rows, tol=1e-10, beta=1.5)
    train, test, alphas = np.arange(60), np.arange(60, 90), [100.0, 0.01, 1.0]
    shared = estimator.alpha_shared(X, weight)
    path = dict(estimator.alpha_path(shared, Y, weight, train, alphas))
    plain = dict(MultiLabelClassifier.alpha_path(estimator, X, Y, weight, train, alphas))
    assert path.keys() == plain.keys()
    held = take_rows(shared, test)
    for alpha, fitted in plain.items():
        found = path[alpha].decide(held, checked=True).labels[1.5]
        assert np.array_equal(found, fitted.decide(X[test]).labels[1.5])


def test_bad_rows():
    X, Y = toy()
    with pytest.raises(ValueError, match="rows must be one of 'nonempty', 'all'"):
        ExactFPlugIn(rows="some").fit(X, Y)


@pytest.mark.slow
def test_yeast(mulan):
    data = load("yeast", data_home=mulan)
    model = ExactFPlugIn().fit(data.X_train, data.Y_train)
    assert model.score(data.X_test, data.Y_test) == pytest.approx(0.6558, abs=0.002)


@given(labels, st.booleans())
def test_plug_in_classes_are_the_sizes(Y, conditional):
    """Each label's class is the size of the set, 0 where the label is absent."""
    code = PlugInCode.of(sp.csr_array(Y), conditional=conditional)
    empty, rows, found = code.targets(sp.csr_array(Y))
    size = Y.sum(axis=1)
    used = [i for i in range(len(Y)) if size[i] or not conditional or not size.any()]
    assert rows.tolist() == used
    assert empty.toarray()[:, 0].tolist() == (size == 0).astype(int).tolist()
    assert found.shape == (len(used), len(code.labels))
    assert code.width() == 1 + len(code.sizes)
    for m, label in enumerate(code.labels):
        sizes = code.sizes[code.problem == m]
        assert sizes[found[:, m]].tolist() == (size * Y[:, label])[used].tolist()
        assert sorted(set(found[:, m])) == list(range(len(sizes)))
    distinct = {tuple(column) for column in Y.T if column.any()}
    assert {tuple(Y[:, label]) for label in code.labels} == distinct
    assert len(code.labels) == len(distinct)


@given(labels, st.booleans())
def test_plug_in_statistics_of_certain_classes_are_those_of_the_labels(Y, conditional):
    """A model that is sure of every class gives the statistics of the label sets themselves."""
    code = PlugInCode.of(sp.csr_array(Y), conditional=conditional)
    empty, rows, found = code.targets(sp.csr_array(Y))
    P = np.zeros((len(Y), code.width()))
    P[:, 0] = empty.toarray()[:, 0]
    start = np.searchsorted(code.problem, np.arange(len(code.labels)))
    for row, classes in zip(rows, found, strict=True):
        P[row, 1 + start + classes] = 1
    q = code.statistics(P)
    for i, y in enumerate(Y):
        none, joint = reference.statistics_of([1.0], [y])
        assert q.empty[i] == none
        assert np.array_equal(q.joint[i], joint[q.cardinalities - 1])
