"""The reduction goes on with more rows where its classifiers can."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB

from fbeta import FBetaReduction

from ..blocks.toys import make_rows


def test_batches_add_up_to_one_fit():
    """Naive Bayes is exact however its rows are dealt out."""
    X, _ = make_rows(900)
    Y = (X[:, :2] + np.random.default_rng(0).normal(size=(900, 2)) > 2).astype(int)
    parts = FBetaReduction(GaussianNB(), cardinalities="all")
    for at in range(0, 900, 300):
        parts.partial_fit(X[at : at + 300], Y[at : at + 300])
    whole = FBetaReduction(GaussianNB(), cardinalities="all").fit(X, Y)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    assert (parts.predict(X) == whole.predict(X)).mean() > 0.999


def test_sizes_and_names_are_fixed_by_the_first_call():
    clf = FBetaReduction(SGDClassifier(loss="log_loss", random_state=0))
    clf.partial_fit([[0.0], [1.0]], [["sea"], []], classes=["sea", "sky"])
    assert clf.classes_.tolist() == ["sea", "sky"]
    clf.partial_fit([[2.0]], [["sky"]])
    before = clf.estimators_
    with pytest.raises(ValueError, match="label set of size 2"):
        clf.partial_fit([[2.0]], [["sea", "sky"]])
    with pytest.raises(ValueError, match="not seen in fit"):
        clf.partial_fit([[2.0]], [["rain"]])
    with pytest.raises(ValueError, match="X has 1 rows and y has 2"):
        clf.partial_fit([[2.0]], [["sea"], ["sky"]])
    assert clf.estimators_ is before
    assert len(clf.predict([[0.0], [2.0]])) == 2


def test_only_where_the_classifier_can():
    assert not hasattr(FBetaReduction(LogisticRegression()), "partial_fit")
    assert not hasattr(FBetaReduction(SGDClassifier(loss="hinge")), "partial_fit")
    X, Y = make_rows(100, s=2)
    clf = FBetaReduction(GaussianNB()).fit(X, np.column_stack([Y, Y[:, 0]]))
    with pytest.raises(ValueError, match="does not go on from fit"):
        clf.partial_fit(X, np.column_stack([Y, Y[:, 0]]))
