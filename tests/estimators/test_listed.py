"""Recalibration of short lists of scores, against plain loops, SciPy and laws that are known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from fbeta import (
    AlphaSearchCV,
    FBetaDecoder,
    FBetaDecoderCV,
    LabelStatistics,
    SizedClassifier,
    decode,
)
from fbeta.estimators.linear import ListedLinearModel, likely_labels
from fbeta.estimators.recalibration import fit_lines, fit_potentials, log_size_law
from fbeta.linear import LinearProbabilities
from fbeta.losses import LogisticLoss
from fbeta.metrics import fbeta_score
from fbeta.storage import load_model, save_model


def draw(rng, n=400, s=60, listed=8):
    """Lists of logits, and labels: listed ones by these, and sometimes another."""
    columns = np.stack([rng.permutation(s)[:listed] for _ in range(n)])
    z = rng.normal(-1, 1.5, size=(n, listed))
    present = rng.random((n, listed)) < expit(1.4 * z + 0.3)
    Y = np.zeros((n, s), dtype=np.int8)
    np.put_along_axis(Y, columns, present, axis=1)
    indptr = np.arange(0, n * listed + 1, listed)
    logits = sp.csr_array((z.ravel(), columns.ravel(), indptr), shape=(n, s))
    logits.sort_indices()
    Y[np.arange(n), rng.integers(0, s, n)] |= rng.random(n) < 0.2
    return logits, sp.csr_array(Y)


def test_lines_of_the_labels():
    rng = np.random.default_rng(0)
    label, m = rng.integers(0, 3, 300), rng.normal(size=300)
    y, weight = (rng.random(300) < expit(2 * m - label)).astype(float), rng.random(300) + 0.5
    (slope, offset), _ = fit_lines(m, y, weight, label, 4, 0.7, 1e-10, 100)
    assert (slope[3], offset[3]) == (1, 0)  # a label that is not listed
    for j in range(3):
        own = label == j

        def objective(w, own=own):
            u = w[0] * m[own] + w[1]
            losses = np.logaddexp(0, u) - y[own] * u
            return weight[own] @ losses + 0.35 * ((w[0] - 1) ** 2 + w[1] ** 2)

        right = minimize(objective, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9}).x
        np.testing.assert_allclose([slope[j], offset[j]], right, atol=1e-5)


@pytest.mark.parametrize("scale", [1, 30])
def test_lines_converge_from_afar(scale):
    rng = np.random.default_rng(1)
    m = scale * rng.normal(size=100)
    y = (m < 0).astype(float)  # the opposite of what the logits say
    (slope, _), n_iter = fit_lines(m, y, np.ones(100), np.zeros(100, int), 1, 1.0, 1e-6, 100)
    assert slope[0] < 0
    assert n_iter < 80


def test_law_of_the_number_of_listed_labels():
    rng = np.random.default_rng(0)
    P = rng.random((4, 5)) * (rng.random((4, 5)) < 0.7)
    P[3] = 0.0  # a row that lists nothing
    P = sp.csr_array(P)
    lists = sp.csr_array((logit(P.data), P.indices, P.indptr), P.shape)
    sizes = np.array([0, 2, 3])
    for row, found in zip(P.toarray(), log_size_law(lists, sizes), strict=True):
        law = np.array([1.0])
        for p in row:
            law = np.convolve(law, [1 - p, p])
        np.testing.assert_allclose(softmax(found), law[sizes] / law[sizes].sum(), atol=1e-12)


def test_potentials_of_the_sizes():
    rng = np.random.default_rng(0)
    law, number = np.log(rng.dirichlet(np.ones(4), size=200)), rng.normal(size=200)
    place, weight = rng.integers(0, 4, 200), rng.random(200)

    def objective(w):
        scores = law + w[:4] + number[:, None] * w[4:]
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return -weight @ scores[np.arange(200), place] + 0.5 * w @ w

    found, _ = fit_potentials(law, number, place, weight, 1.0, 1e-8, 100)
    right = minimize(objective, np.zeros(8), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(found.ravel(), right.x, atol=1e-4)
    with pytest.warns(ConvergenceWarning, match="potentials of the sizes .* lower the loss by"):
        fit_potentials(law, number, place, weight, 1e-6, 1e-12, 2)


def test_decoder_of_lists_beats_cuts_and_the_lists_as_they_are():
    rng = np.random.default_rng(0)
    logits, Y = draw(rng, n=3000)
    train, test = slice(0, 2000), slice(2000, 3000)
    decoder = FBetaDecoder(inputs="logits").fit(logits[train], Y[train])
    assert sp.issparse(decoder.predict(logits[test]))
    own = decoder.score(logits[test], Y[test])
    raw = sp.csr_array((expit(logits.data), logits.indices, logits.indptr), logits.shape)[test]
    as_they_are = fbeta_score(Y[test], decode(LabelStatistics.from_marginals(raw)))
    cuts = []
    for t in np.linspace(-2, 1, 13):
        cut = logits[test]
        cut.data = (cut.data > t).astype(float)
        cut.eliminate_zeros()
        cuts.append(fbeta_score(Y[test], cut.astype(np.int8)))
    assert own > max(as_they_are, *cuts)
    expected = decoder.expected_fbeta(logits[test])
    assert expected.mean() == pytest.approx(own, abs=0.02)


def test_forms_of_lists():
    rng = np.random.default_rng(0)
    logits, Y = draw(rng)
    P = sp.csr_array((expit(logits.data), logits.indices, logits.indptr), logits.shape)
    decoder = FBetaDecoder().fit(P, Y)
    assert decoder.inputs_ == "probabilities"
    marginals = decoder.predict_proba(P)
    assert sp.issparse(marginals)
    np.testing.assert_array_equal(marginals.indices, P.indices)
    q = decoder.predict_statistics(P)
    assert (decode(q) != decoder.predict(P)).nnz == 0
    names = [[f"t{j}" for j in row] for row in np.split(Y.indices, Y.indptr[1:-1])]
    columns = sorted({name for row in names for name in row})
    seen = [int(name[1:]) for name in columns]
    named = FBetaDecoder().fit(sp.csr_array(P[:, seen]), names)
    sets = named.predict(sp.csr_array(P[:, seen])[:3])
    assert all(set(row) <= set(columns) for row in sets)
    assert named.score(sp.csr_array(P[:, seen]), names) > 0.4
    weight = np.ones(P.shape[0])
    weight[::2] = 0
    weighted = FBetaDecoder().fit(P, Y, sample_weight=weight)
    half = FBetaDecoder().fit(P[1::2], Y[1::2])
    np.testing.assert_allclose(weighted.slope_, half.slope_, atol=1e-6)


def test_labels_that_were_never_listed_and_rows_without_lists():
    rng = np.random.default_rng(0)
    logits, Y = draw(rng)
    wide = sp.csr_array((logits.data, logits.indices, logits.indptr), shape=(400, 200))
    labels = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(400, 200))
    decoder = FBetaDecoder(inputs="logits").fit(wide, labels)
    new = sp.csr_array((np.array([3.0]), np.array([150]), np.array([0, 1, 1])), shape=(2, 200))
    found = decoder.predict(new)
    assert found.indices.tolist() == [150]
    assert np.isfinite(decoder.expected_fbeta(new)).all()


def test_what_lists_refuse():
    rng = np.random.default_rng(0)
    logits, Y = draw(rng, n=50)
    P = sp.csr_array((expit(logits.data), logits.indices, logits.indptr), logits.shape)
    decoder = FBetaDecoder().fit(P, Y)
    with pytest.raises(ValueError, match="columns"):
        decoder.predict(P[:, :10])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        decoder.predict(logits)
    with pytest.raises(ValueError, match="sparse"):
        decoder.predict(P.toarray())
    twice = sp.csr_array((np.array([0.1, 0.2]), np.array([3, 3]), np.array([0, 2])), (1, 60))
    with pytest.raises(ValueError, match="twice"):
        decoder.predict(twice)
    bad = P.copy()
    bad.data[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        FBetaDecoder().fit(bad, Y)


def test_alphas_by_cross_validation():
    rng = np.random.default_rng(0)
    logits, Y = draw(rng, n=200)
    P = sp.csr_array((expit(logits.data), logits.indices, logits.indptr), logits.shape)
    found = AlphaSearchCV(FBetaDecoder(), alphas=[0.1, 10.0], cv=2).fit(P, Y)
    assert found.alpha_ in (0.1, 10.0)


def draw_text(rng, n=300, words=80, s=40):
    """Sparse counts, and labels of which each has words of its own; the last one has no rows."""
    counts = sp.random_array((n, words), density=0.1, rng=rng, format="csr")
    weights = rng.normal(size=(words, s)) * (rng.random((words, s)) < 0.1) * 8
    Y = (rng.random((n, s)) < expit(counts @ weights - 2.5)).astype(np.int8)
    Y[:, -1] = 0
    return counts, sp.csr_array(Y)


@pytest.mark.parametrize("sizes", ["model", "independent"])
def test_lists_of_linear_models_are_those_of_dense_ones(sizes, monkeypatch):
    monkeypatch.setattr("fbeta.estimators.linear.BATCH_BYTES", 8 * 80 * 7)  # seven labels at once
    monkeypatch.setattr("fbeta.estimators.linear.CHUNK_BYTES", 8 * 40 * 50)  # fifty rows at once
    monkeypatch.setattr("fbeta.estimators.linear.MAX_SCORE_CHANGE", 0.0)
    X, Y = draw_text(np.random.default_rng(0))
    dense = SizedClassifier(sizes=sizes, tol=1e-12).fit(X, Y)
    lists = SizedClassifier(sizes=sizes, tol=1e-12, max_listed=40).fit(X, Y)
    assert lists.coef_.shape == (40, 80)
    assert np.isneginf(lists.intercept_[-1])
    labels, expected = (dense.predict(X), dense.expected_fbeta(X))
    assert (lists.predict(X) != labels).nnz == 0
    np.testing.assert_allclose(lists.expected_fbeta(X), expected, atol=1e-6)
    short = SizedClassifier(sizes=sizes, tol=1e-12, max_listed=5).fit(X, Y)
    P, all_of_them = short.predict_proba(X), dense.predict_proba(X)
    assert np.diff(P.indptr).max() == 5
    if sizes == "independent":
        least = np.sort(all_of_them, axis=1)[:, -5]
        np.testing.assert_allclose(
            P.toarray(), np.where(all_of_them >= least[:, None], all_of_them, 0), atol=1e-6
        )


def test_dropped_coefficients_change_scores_by_no_more_than_is_said():
    X, Y = draw_text(np.random.default_rng(1))
    dense = SizedClassifier(alpha=3.0, sizes="independent").fit(X, Y)
    lists = SizedClassifier(alpha=3.0, sizes="independent", max_listed=39).fit(X, Y)
    assert 0 < lists.coef_.nnz < dense.coef_.size
    full = X @ dense.coef_[:39].T + dense.intercept_[:39]
    found = (X @ sp.csr_array(lists.coef_.T)).toarray()[:, :39] + lists.intercept_[:39]
    assert np.abs(full - found).max() < 0.05 + 1e-4


def test_linear_lists_with_a_decoder_and_in_a_file(tmp_path):
    X, Y = draw_text(np.random.default_rng(2))
    model = FBetaDecoderCV(SizedClassifier(max_listed=10), cv=2).fit(X, Y)
    assert sp.issparse(model.predict(X))
    lists = model.estimator_.predict_proba(X)
    stored = {
        "lists": (SizedClassifier(max_listed=10).fit(X, Y), X),
        "cv": (model, X),
        "decoder": (FBetaDecoder().fit(lists, Y), lists),
    }
    for name, (fitted, X_new) in stored.items():
        save_model(tmp_path / name, fitted)
        again = load_model(tmp_path / name).estimator
        assert (again.predict(X_new) != fitted.predict(X_new)).nnz == 0
    found = AlphaSearchCV(SizedClassifier(max_listed=10), alphas=[0.1, 1.0], cv=2).fit(X, Y)
    assert found.best_score_ > 0.1
    with pytest.raises(ValueError, match="max_listed"):
        SizedClassifier(max_listed=0).fit(X, Y)
    with pytest.raises(ValueError, match="estimator must be None"):
        SizedClassifier(estimator=LogisticRegression(), max_listed=5).fit(X, Y)


@pytest.mark.parametrize("shape", [(20, 1000, 5), (9, 3000, 50), (7, 30, 50), (5, 160, 10)])
def test_likely_labels_are_the_first_of_a_stable_sort(shape):
    n, s, listed = shape
    rng = np.random.default_rng(s)
    scores = rng.integers(0, 9, size=(n, s)).astype(float) if n > 8 else rng.normal(size=(n, s))
    scores[rng.random((n, s)) < 0.2] = -np.inf
    scores[0] = -np.inf
    found = likely_labels(scores.copy(), listed)
    for i, row in enumerate(scores):
        first = np.argsort(-row, kind="stable")[:listed]
        right = np.sort(first[row[first] > -np.inf])
        own = found[[i]]
        assert own.indices.tolist() == right.tolist()
        np.testing.assert_array_equal(own.data, row[right])


def test_lists_keep_apart_what_probabilities_round_to_one():
    """Scores of two labels beyond 40: given one label, the one with the larger score is it."""
    Z = np.array([[60.0, 45.0, -3.0], [45.0, 60.0, -3.0]])
    nothing = np.zeros((1, 2)), np.zeros(1), np.zeros(1, dtype=int), np.ones(1), np.ones(1)
    of_size = LinearProbabilities(*nothing, LogisticLoss())
    arrays = Z.T.ravel(), np.tile([0, 1], 3), np.array([0, 2, 4, 6]), 2, np.zeros(3)
    lists = ListedLinearModel(*arrays, np.array([1]), of_size, 2, 1)
    found = lists.probabilities(sp.csr_array(np.eye(2)))
    assert decode(found, max_labels=1).toarray().tolist() == [[1, 0, 0], [0, 1, 0]]
    right = LabelStatistics.from_logits(Z, sizes=[[0.0, 1.0]] * 2)
    np.testing.assert_allclose(found.marginals().toarray(), right.marginals(), atol=1e-12)


def test_many_dense_labels_are_fitted_one_after_the_other(monkeypatch):
    rng = np.random.default_rng(0)
    Z = rng.normal(-2, 1, size=30) + rng.normal(size=(400, 30))
    Y = (rng.random(Z.shape) < expit(1.5 * Z + 0.5)).astype(np.int8)
    together = FBetaDecoder(inputs="logits").fit(Z[:300], Y[:300])
    monkeypatch.setattr("fbeta.estimators.recalibration.MAX_JOINT_LABELS", 10)
    apart = FBetaDecoder(inputs="logits").fit(Z[:300], Y[:300])
    assert isinstance(apart.predict_proba(Z), np.ndarray)
    np.testing.assert_allclose(apart.predict_proba(Z), together.predict_proba(Z), atol=0.05)
    assert abs(apart.score(Z[300:], Y[300:]) - together.score(Z[300:], Y[300:])) < 0.02
