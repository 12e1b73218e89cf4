"""Fits of single models, as estimators make them."""

from __future__ import annotations

from fbeta.linear import LinearLearner, Multinomial, SolverLearner


def fit_linear(X, targets, loss, alpha, *, weight=None, describe=str, **solver):
    """Fit a binary model to each column of targets, (n, M)."""
    return LinearLearner(loss=loss, **solver).fit(X, targets, weight, alpha, describe)


def fit_softmax(X, classes, alpha, *, weight=None, **solver):
    """Fit a multinomial model to each column of classes, (n, m)."""
    learner = SolverLearner(objective=Multinomial, **solver)
    return learner.fit(X, classes, weight, alpha)


def fit_objective(objective, X, targets, alpha, weight=None, intercept=True, **solver):
    """Fit the model of an objective to targets as a code makes them."""
    learner = SolverLearner(intercept, objective=objective, **solver)
    return learner.fit(X, targets, weight, alpha)
