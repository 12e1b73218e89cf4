"""Every public estimator follows scikit-learn's conventions, with no exceptions."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    SizedClassifier,
)


@parametrize_with_checks(
    [
        FBetaClassifier(),
        FBetaClassifier(loss="exponential"),
        FBetaClassifier(loss="squared", fit_intercept=False),
        FBetaClassifierCV(),
        AlphaSearchCV(FBetaClassifier()),
        FBetaReduction(LogisticRegression()),
        # repeated rows and weighted ones are solved in other coordinates: compare solutions
        SizedClassifier(alpha=10.0, tol=1e-14),
        CardinalityClassifier(alpha=100.0, tol=1e-14),
        LabelSetClassifier(alpha=100.0, tol=1e-14),
        FBetaForest(n_estimators=5),
        # the shortest of limits leaves the first candidate
        FBetaAuto(time_limit=1e-6, cv=2, random_state=0),
        FBetaEnsemble([("joint", FBetaClassifier()), ("sized", SizedClassifier())], cv=2),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
