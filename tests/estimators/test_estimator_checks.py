"""Every public estimator follows scikit-learn's conventions, with no exceptions."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoderCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    SizedClassifier,
)


@parametrize_with_checks([FBetaClassifier(), SizedClassifier(), FBetaForest(n_estimators=5)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        FBetaClassifier(loss="exponential"),
        FBetaClassifier(loss="squared", fit_intercept=False),
        FBetaClassifierCV(alphas=(0.1, 10.0), cv=2),
        AlphaSearchCV(FBetaClassifier(), alphas=(0.1, 10.0), cv=2),
        FBetaReduction(LogisticRegression()),
        SizedClassifier(estimator=LogisticRegression(C=0.01, tol=1e-12, max_iter=1000)),
        CardinalityClassifier(),
        LabelSetClassifier(),
        FBetaDecoderCV(LogisticRegression(C=0.01, max_iter=1000), cv=2),
        # one candidate on the features as they are
        FBetaAuto(candidates=[("own", SizedClassifier())], replace=True, cv=2, random_state=0),
        FBetaEnsemble(
            [("joint", FBetaClassifier()), ("sized", SizedClassifier())], alphas=(0.1, 10.0), cv=2
        ),
    ]
)
def test_scikit_learn_conventions_of_the_others(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        FBetaClassifierCV(),
        AlphaSearchCV(FBetaClassifier()),
        FBetaEnsemble([("joint", FBetaClassifier()), ("sized", SizedClassifier())], cv=2),
    ],
)
def test_searches_as_they_are(estimator, check):
    check(estimator)


SEARCHES: dict[str, Any] = {}  # what was found, by a hash of all that a search is given


@pytest.fixture
def _shared_searches(request, monkeypatch):
    """Search once for the same data, but where a check is whether the same is found again."""
    search = FBetaAuto._search

    def shared(own, X, Y, weight, report):
        writeable = np.asarray(X.data).flags.writeable  # a search has to leave other arrays alone
        key = joblib.hash((X, Y, weight, own.get_params(), writeable))
        if key not in SEARCHES:
            SEARCHES[key] = search(own, X, Y, weight, report)
        return deepcopy(SEARCHES[key])

    if not any(check in request.node.name for check in ("idempotent", "consistency")):
        monkeypatch.setattr(FBetaAuto, "_search", shared)


@pytest.mark.slow
@pytest.mark.usefixtures("_shared_searches")
@parametrize_with_checks([FBetaAuto(random_state=0)])
def test_the_automatic_classifier_as_it_is(estimator, check):
    check(estimator)
