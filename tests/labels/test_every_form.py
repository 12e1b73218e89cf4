"""Every public function that takes labels, with labels of every form: the result for plain float64
labels, or an error; never another number."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fbeta import FBetaClassifier, FBetaReduction, LabelStatistics, fbeta_score, make_fbeta_scorer
from fbeta.blocks import RowBlocks
from fbeta.decoding.expected import expected_fbeta, expected_measure
from fbeta.metrics import (
    averaged_fbeta,
    best_thresholds,
    fbeta_per_instance,
    precision_score,
    recall_score,
)
from fbeta.rivals import BinaryRelevance, LowRankClassifier
from fbeta.statistics.surrogate import psi

from ..cases import slow_but
from .label_forms import MATCHED, MOVED, all_forms

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
PLAIN = (X @ RNG.normal(size=(2, 3)) + 0.3 * RNG.normal(size=(24, 3)) > 0).astype(np.float64)
OTHER = (X @ RNG.normal(size=(2, 3)) > 0).astype(np.float64)
WEIGHT = RNG.uniform(0.5, 2, size=24)
SCORES = RNG.normal(size=(24, 3))
Q = LabelStatistics.from_marginals(RNG.uniform(size=(24, 3)))
FORMS, OTHERS = all_forms(PLAIN), all_forms(OTHER)

METRICS = {
    "fbeta_score": lambda A, B: fbeta_score(A, B, 2.0, sample_weight=WEIGHT),
    "fbeta_per_instance": fbeta_per_instance,
    "micro": lambda A, B: averaged_fbeta(A, B, average="micro"),
    "macro": lambda A, B: np.sort(averaged_fbeta(A, B, average="macro")),
    "precision_score": precision_score,
    "recall_score": recall_score,
}
UNNAMED = {
    "best_thresholds": lambda Y: best_thresholds(SCORES, Y, average="macro"),
    "expected_fbeta": lambda Y: expected_fbeta(Q, Y, 0.5),
    "expected_measure": lambda Y: expected_measure(Q, Y, measure="hamming"),
}
FITS = {
    "FBetaClassifier": lambda Y: FBetaClassifier(tol=1e-3).fit(X, Y).predict_proba(X),
    "BinaryRelevance": lambda Y: BinaryRelevance(tol=1e-3).fit(X, Y).predict_proba(X),
    "LowRankClassifier": lambda Y: LowRankClassifier.for_fbeta(3).fit(X, Y).predict(X),
    "from_distribution": lambda Y: LabelStatistics.from_distribution(
        np.full((1, 24), 1 / 24), Y
    ).marginals(),
    "psi": lambda Y: psi(Y, np.zeros((24, 10))),
}


def put_in_order(found: np.ndarray, form: str) -> np.ndarray:
    """Return columns in the order of the plain labels."""
    moved = form == MOVED and np.ndim(found) == 2 and np.shape(found)[1] == 3
    return np.asarray(found)[:, [1, 2, 0]] if moved else found


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_of_every_form(metric):
    right = METRICS[metric](PLAIN, OTHER)
    for form in FORMS:
        A, B = FORMS[form][1], OTHERS[form][1]
        np.testing.assert_allclose(METRICS[metric](A, B), right, rtol=1e-13)


@pytest.mark.slow
def test_metrics_of_every_pair_of_forms():
    right, outcomes = fbeta_per_instance(PLAIN, OTHER), Counter()
    for i, (one, (group, A)) in enumerate(FORMS.items()):
        for two, (other, B) in list(OTHERS.items())[i % 3 :: 3]:  # each third, in turn
            if MOVED in (one, two) and "matrix" in (group, other):
                continue  # matched by the order of columns, which is another one here
            if other in MATCHED[group]:
                np.testing.assert_array_equal(fbeta_per_instance(A, B), right)
            else:
                with pytest.raises(ValueError, match=r"Y_true|Y_pred"):
                    fbeta_per_instance(A, B)
            outcomes[other in MATCHED[group]] += 1
    assert outcomes[True] > 700
    assert outcomes[False] > 300


@pytest.mark.parametrize("function", UNNAMED)
def test_functions_of_labels_without_names(function):
    right = UNNAMED[function](PLAIN)
    for group, Y in (pair for form, pair in FORMS.items() if form != MOVED):
        if group == "tags":
            with pytest.raises(ValueError, match="label names that were not expected"):
                UNNAMED[function](Y)
        else:
            np.testing.assert_allclose(UNNAMED[function](Y), right, rtol=1e-13)


@pytest.mark.parametrize(
    "function", slow_but(("FBetaClassifier", "from_distribution", "psi"), FITS)
)
def test_fits_to_every_form(function):
    right = FITS[function](PLAIN)
    for form, (group, Y) in FORMS.items():
        if function == "LowRankClassifier" and group in ("tags", "numbers"):
            continue  # its list of label sets has another form
        found = FITS[function](Y)
        found = found if isinstance(found, (np.ndarray, float)) else None
        if found is not None and found.dtype.kind == "f":
            np.testing.assert_allclose(put_in_order(found, form), right, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_partial_fit_and_blocks():
    from sklearn.linear_model import SGDClassifier

    base = SGDClassifier(loss="log_loss", random_state=0)

    def partial(Y):
        return FBetaReduction(base).partial_fit(X, Y).predict_proba(X)

    def blocks(Y):
        found = FBetaClassifier(tol=1e-9).fit(RowBlocks([(X, Y)]))
        return found.predict_proba(X)

    right = partial(PLAIN), blocks(PLAIN)
    for form, (_, Y) in FORMS.items():
        if form in (MOVED, "tags: dict values"):
            continue
        np.testing.assert_allclose(partial(Y), right[0], rtol=1e-9)
        np.testing.assert_allclose(blocks(Y), right[1], rtol=1e-6)


@pytest.mark.parametrize("group", slow_but(("matrix", "tags"), MATCHED))
def test_score_of_every_form_after_a_fit_to_another(group):
    right = FBetaClassifier(tol=1e-3).fit(X, PLAIN).score(X, OTHER)
    scorer = make_fbeta_scorer(1.0)
    first = {kind: next(name for name in FORMS if name.startswith(kind)) for kind in MATCHED}
    for fitted, (own, Y) in FORMS.items():
        if own != group:
            continue
        clf = FBetaClassifier(tol=1e-3).fit(X, Y)
        assert scorer(clf, X, OTHERS[fitted][1]) == pytest.approx(right, abs=1e-13)
        asked = OTHERS if fitted == first[own] else [*first.values(), fitted]
        for form in asked:
            other, labels = OTHERS[form]
            if MOVED in (fitted, form) and "matrix" in (own, other):
                continue
            if other in MATCHED[own]:
                assert clf.score(X, labels) == pytest.approx(right, abs=1e-13)
            else:
                with pytest.raises(ValueError, match=r"seen in fit|several types: int, str"):
                    clf.score(X, labels)
