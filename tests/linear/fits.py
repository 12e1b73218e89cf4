"""Fits of single models, as estimators make them."""

from __future__ import annotations

from fbeta.linear import Binary, LinearLearner, Multinomial, Problems


def fit_linear(X, targets, loss, alpha, *, weight=None, describe=str, **solver):
    """Fit a binary model to each column of targets, (n, M)."""
    return LinearLearner(loss=loss, **solver).fit(X, targets, weight, alpha, describe)


def fit_softmax(X, classes, alpha, *, weight=None, **solver):
    """Fit a multinomial model to each column of classes, (n, m)."""
    learner = LinearLearner(objective=Multinomial, **solver)
    return learner.fit(X, classes, weight, alpha)


def fit_objective(objective, X, targets, alpha, weight=None, intercept=True, **solver):
    """Fit the model of an objective to targets as a code makes them."""
    learner = LinearLearner(intercept, objective=objective, **solver)
    return learner.fit(X, targets, weight, alpha)


def linear_problems(design, targets, loss, **options):
    """Return the binary problems whose targets are the columns of a matrix, (n, M)."""
    return Problems(design, Binary(loss), targets, **options)
