"""Every public estimator follows scikit-learn's conventions, with no exceptions."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import AlphaSearchCV, FBetaClassifier, FBetaClassifierCV, FBetaReduction


@parametrize_with_checks(
    [
        FBetaClassifier(),
        FBetaClassifier(loss="exponential"),
        FBetaClassifier(loss="squared", fit_intercept=False),
        FBetaClassifierCV(),
        AlphaSearchCV(FBetaClassifier()),
        FBetaReduction(LogisticRegression()),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
