"""Every public estimator follows scikit-learn's conventions, with no exceptions."""

from __future__ import annotations

from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from fbeta import FBetaClassifier, FBetaReduction


@parametrize_with_checks(
    [
        FBetaClassifier(),
        FBetaClassifier(loss="exponential"),
        FBetaClassifier(loss="squared", fit_intercept=False),
        FBetaReduction(LogisticRegression()),
    ]
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
