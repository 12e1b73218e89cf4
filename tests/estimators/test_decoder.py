"""The decoder over probabilities of models that are there already."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logsumexp
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from fbeta import AlphaSearchCV, FBetaDecoder, LabelStatistics, decode, fbeta_score
from fbeta.datasets import load
from fbeta.decoding.expected import expected_fbeta

from ..places import TENSORS, put
from ..reference import label_sets, statistics_of

RNG = np.random.default_rng(0)
SETS = np.array(label_sets(3))


def coupled(n, seed):
    """Logits, and labels that repel each other more than the logits say."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, 3))
    scores = (0.5 * logits + 0.4) @ SETS.T + np.array([0.0, 1.5, 0.0, -3.0])[SETS.sum(axis=1)]
    p = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    which = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return logits, SETS[np.minimum(which, 7)], p


LOGITS, Y, _ = coupled(4000, 1)
NEW, _, TRUTH = coupled(2000, 2)


def test_it_learns_what_the_probabilities_do_not_say():
    truth = LabelStatistics.from_distribution(TRUTH, SETS)
    decoder = FBetaDecoder().fit(LOGITS, Y)
    assert decoder.inputs_ == "logits"
    found = decoder.predict_statistics(NEW)
    np.testing.assert_allclose(found.marginals(), truth.marginals(), atol=0.13)
    np.testing.assert_allclose(
        found.cardinality_distribution(), truth.cardinality_distribution(), atol=0.13
    )
    for beta in (0.5, 1.0, 2.0):
        best = decode(truth, beta, return_expected=True)[1].mean()
        mended = expected_fbeta(truth, decoder.predict(NEW, beta=beta), beta).mean()
        given = LabelStatistics.from_marginals(expit(NEW))
        as_given = expected_fbeta(truth, decode(given, beta), beta).mean()
        assert best - mended < 0.004 < 0.01 < best - as_given
        np.testing.assert_allclose(decoder.expected_fbeta(NEW, beta=beta).mean(), mended, atol=0.02)


def test_statistics_are_those_of_the_mended_law():
    decoder = FBetaDecoder(alpha=0.5).fit(LOGITS[:200], Y[:200])
    model = decoder._model
    curve = np.interp(NEW[:5], *decoder.curve_)
    number = (expit(curve).sum(axis=1) - model.centre) / model.scale
    u = curve * decoder.slope_ + model.rest * (NEW[:5] - curve) + decoder.offset_
    g = decoder.potential_[0] + number[:, None] * decoder.potential_[1]
    q = decoder.predict_statistics(NEW[:5])
    for i in range(5):
        scores = SETS @ u[i] + g[i][SETS.sum(axis=1)]
        empty, joint = statistics_of(np.exp(scores - logsumexp(scores)), label_sets(3))
        np.testing.assert_allclose(q.empty[i], empty, atol=1e-12)
        np.testing.assert_allclose(q.joint[i], joint, atol=1e-12)


def test_logits_beyond_those_of_fit_are_extremes():
    """Not the opposite, where the coefficient of the logit less its curve is negative."""
    decoder = FBetaDecoder().fit(LOGITS[:400], Y[:400])
    assert decoder.model.rest < 0
    z = np.linspace(-40, 40, 81)
    p = decoder.predict_proba(np.column_stack([z, 0 * z, 0 * z]))[:, 0]
    for outside in (z < LOGITS[:400].min() - 1, z > LOGITS[:400].max() + 1):
        assert (np.diff(p[outside]) >= -1e-12).all()
    assert p[0] < 0.1 < 0.5 < p[-1]


def test_probabilities_in_every_form():
    P = expit(LOGITS)
    decoder = FBetaDecoder().fit(P, Y)
    assert decoder.inputs_ == "probabilities"
    expected = decoder.predict(expit(NEW))
    as_list = [np.column_stack([1 - p, p]) for p in P.T]
    again = FBetaDecoder().fit(as_list, Y)
    np.testing.assert_array_equal(again.predict(expit(NEW)), expected)
    np.testing.assert_array_equal(FBetaDecoder().fit(P.tolist(), Y).predict(expit(NEW)), expected)
    # logits say the same, up to where probabilities are cut
    close = FBetaDecoder().fit(LOGITS, Y).predict(NEW) == expected
    assert close.mean() > 0.995
    names = [["abc"[j] for j in np.flatnonzero(y)] for y in Y]
    predicted = FBetaDecoder().fit(P, names).predict(expit(NEW[:2]))
    assert predicted == [["abc"[j] for j in np.flatnonzero(y)] for y in expected[:2]]
    assert sp.issparse(FBetaDecoder().fit(P, sp.csr_array(Y)).predict(P[:2]))


@pytest.mark.parametrize("place", TENSORS)
def test_tensors(place):
    decoder = FBetaDecoder().fit(put(LOGITS[:300], place), Y[:300])
    ours = FBetaDecoder().fit(LOGITS[:300], Y[:300])
    np.testing.assert_allclose(decoder.slope_, ours.slope_)
    found = decoder.predict_statistics(put(NEW[:7], place))
    assert found.form.place[0].__name__ != "numpy"
    expected = ours.predict(NEW[:7])
    labels = decode(found)
    assert [[int(v) for v in labels[i, :]] for i in range(7)] == expected.tolist()


def test_certain_probabilities_and_odd_labels():
    P = (RNG.random((50, 4)) < 0.5).astype(float)  # as of a forest that has seen these rows
    labels = P.astype(int)
    labels[:, 2], labels[:, 3] = 0, 1
    decoder = FBetaDecoder().fit(P, labels)
    predicted = decoder.predict(P)
    assert (predicted[:, 2] == 0).all()
    assert (predicted[:, 3] == 1).all()
    assert np.isfinite(decoder.expected_fbeta(P)).all()
    for odd in (0 * labels, 1 + 0 * labels):
        np.testing.assert_array_equal(FBetaDecoder().fit(P, odd).predict(P), odd)
    one = FBetaDecoder().fit(P[:, :1], labels[:, :1])
    np.testing.assert_array_equal(one.predict(P[:, :1]), labels[:, :1])
    assert FBetaDecoder().fit(P[:1], labels[:1]).predict(P).shape == (50, 4)


def test_limits_weights_and_copies():
    decoder = FBetaDecoder().fit(LOGITS[:500], Y[:500])
    size = decoder.predict(NEW, min_labels=1, max_labels=2).sum(axis=1)
    assert size.min() == 1
    assert size.max() == 2
    q = decoder.predict_statistics(NEW)
    np.testing.assert_array_equal(decoder.predict(NEW, min_labels=2), decode(q, min_labels=2))
    times = RNG.integers(0, 3, size=500)
    weighted = FBetaDecoder(tol=1e-10).fit(LOGITS[:500], Y[:500], times)
    repeated = FBetaDecoder(tol=1e-10).fit(
        np.repeat(LOGITS[:500], times, axis=0), np.repeat(Y[:500], times, axis=0)
    )
    np.testing.assert_allclose(weighted.slope_, repeated.slope_, atol=1e-4)
    np.testing.assert_allclose(weighted.potential_, repeated.potential_, atol=1e-4)
    copy = pickle.loads(pickle.dumps(decoder))
    np.testing.assert_array_equal(copy.predict(NEW), decoder.predict(NEW))
    with pytest.raises(NotFittedError):
        clone(decoder).predict(NEW)


def test_the_search_for_alpha():
    P = expit(LOGITS[:600])
    search = AlphaSearchCV(FBetaDecoder(), alphas=[1.0, 1e8], cv=3).fit(P, Y[:600])
    held_out = []
    for train, test in KFold(3, shuffle=True, random_state=0).split(P):
        # probabilities are cut by the rows of all folds in the search, and here by those of one
        decoder = FBetaDecoder().fit(P[train], Y[:600][train])
        held_out.append(decoder.score(P[test], Y[:600][test]))
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(np.mean(held_out), abs=0.005)
    assert search.alpha_ == 1.0
    np.testing.assert_array_equal(search.predict(P), FBetaDecoder().fit(P, Y[:600]).predict(P))


@pytest.mark.parametrize(
    ("parameters", "P", "labels", "message"),
    [
        ({}, LOGITS[:, :2], Y, "P has 2 columns, but y has 3 labels"),
        ({}, LOGITS[:9], Y, "X has 9 rows and y has 4000"),
        ({}, LOGITS * np.nan, Y, "NaN"),
        ({}, LOGITS[:, 0], Y, "shape"),
        ({"inputs": "odds"}, LOGITS, Y, "inputs must be one of"),
        ({"inputs": "probabilities"}, LOGITS, Y, "probabilities in"),
        ({"alpha": 0.0}, LOGITS, Y, "alpha"),
        ({"tol": 0.0}, LOGITS, Y, "tol"),
        ({}, expit(LOGITS)[:, :2], Y[:, 0], "one column for a 1-D target"),
        ({}, sp.coo_array(([0.1, 0.2], ([1, 1], [0, 0])), (4000, 3)), Y, "lists a label twice"),
    ],
)
def test_mistakes_are_named(parameters, P, labels, message):
    with pytest.raises(ValueError, match=message):
        FBetaDecoder(**parameters).fit(P, labels)


def test_mistakes_in_prediction_are_named():
    decoder = FBetaDecoder().fit(expit(LOGITS), Y)
    with pytest.raises(ValueError, match="for logits say inputs='logits'"):
        decoder.predict(LOGITS)
    with pytest.raises(ValueError, match="was fitted with 3: one for each label"):
        decoder.predict(expit(LOGITS)[:, :2])


@pytest.mark.parametrize("as_sets", [False, True])
def test_names_of_probabilities_are_those_of_labels_or_all_others(as_sets):
    pd = pytest.importorskip("pandas")
    P, names = pd.DataFrame(expit(LOGITS), columns=["sea", "sky", "sun"]), ["sea", "sky", "moon"]
    labels = pd.DataFrame(Y, columns=names)
    if as_sets:
        labels = [[name for name, on in zip(names, row, strict=True) if on] for row in Y]
    with pytest.raises(ValueError, match="columns of P are not those of y: 'sun' is in only one"):
        FBetaDecoder().fit(P, labels)
    FBetaDecoder().fit(P.set_axis(["p1", "p2", "p3"], axis=1), labels)
    FBetaDecoder().fit(P.set_axis([1, 2, 3], axis=1), labels)


def test_over_a_forest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1300, 5))
    labels = (X[:, :3] + rng.normal(size=(1300, 3)) > 0.7).astype(int)
    forest = RandomForestClassifier(30, random_state=0)
    held_out = cross_val_predict(forest, X[:300], labels[:300], cv=3, method="predict_proba")
    decoder = FBetaDecoder().fit(held_out, labels[:300])
    P = forest.fit(X[:300], labels[:300]).predict_proba(X[300:])
    cut = np.column_stack([p[:, 1] > 0.5 for p in P])
    assert decoder.score(P, labels[300:]) > fbeta_score(labels[300:], cut) + 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Label not")
@pytest.mark.parametrize("name", ["yeast", "enron"])
def test_above_thresholds_and_independence(mulan, name):
    data = load(name, data_home=mulan)
    train, test = data.X_train, data.X_test
    if name == "yeast":
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
    truth = [sp.csr_array(part).toarray().astype(int) for part in (data.Y_train, data.Y_test)]
    model = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
    folds = KFold(3, shuffle=True, random_state=0)
    held_out = cross_val_predict(model, train, truth[0], cv=folds, method="predict_proba")
    P = model.fit(train, truth[0]).predict_proba(test)
    achieved = FBetaDecoder().fit(held_out, truth[0]).score(P, truth[1])
    cuts = np.unique(np.quantile(held_out, np.linspace(0.5, 1, 200)))
    best = max(cuts, key=lambda cut: fbeta_score(truth[0], held_out > cut))
    assert achieved > fbeta_score(truth[1], best < P)
    assert achieved > fbeta_score(truth[1], decode(LabelStatistics.from_marginals(P)))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_without_weight_are_not_looked_at(form):
    P, weight = expit(LOGITS[:100]), np.repeat([1.0, 0.0], 50)
    P[:2] = [[0.0], [1.0]]
    odd = P.copy()
    odd[70] = 3.0  # no probability
    found = FBetaDecoder().fit(form(odd), Y[:100], sample_weight=weight)
    expected = FBetaDecoder().fit(form(P[:50]), Y[:50])
    assert found.inputs_ == "probabilities"
    assert found.probability_floor == expected.probability_floor == 0.01
    difference = found.predict_proba(form(P)) - expected.predict_proba(form(P))
    assert abs(difference).max() < 1e-12


@pytest.mark.parametrize("scale", [1e14, 1e16, 1e100])
def test_large_weights(scale):
    P = expit(LOGITS[:500])
    found, expected = (
        FBetaDecoder().fit(P, Y[:500], sample_weight=np.full(500, own)) for own in (scale, 1e13)
    )
    assert found.n_iter_ > 0
    # a bin with one class alone has a logit that grows with the weights
    np.testing.assert_allclose(found.slope_, expected.slope_, rtol=0.1)


@pytest.mark.parametrize("as_sets", [False, True])
def test_later_columns_are_matched_with_the_names_of_labels(as_sets):
    pandas, P, names = pytest.importorskip("pandas"), expit(LOGITS[:200]), ["sea", "sky", "sun"]
    labels = pandas.DataFrame(Y[:200], columns=names)
    if as_sets:
        labels = [[name for name, on in zip(names, row, strict=True) if on] for row in Y[:200]]
    decoder = FBetaDecoder().fit(P, labels)  # an array: its columns have the order of the labels
    frame = pandas.DataFrame(P, columns=names)
    np.testing.assert_array_equal(
        decoder.predict_proba(frame[names[::-1]]), decoder.predict_proba(P)
    )
    with pytest.raises(ValueError, match="'sand' is in only one"):
        decoder.predict(frame.rename(columns={"sea": "sand"}))
    other = frame.set_axis(["a", "b", "c"], axis=1)  # names that say nothing of the labels
    np.testing.assert_array_equal(decoder.predict_proba(other), decoder.predict_proba(P))
