"""Data for fits to blocks of rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

SMALL = 200_000  # bytes, which hold a few hundred rows of ten features


def make_rows(n=4000, d=8, s=4, seed=0, dtype=np.float64, sparse=False):
    """Features with a mean, and labels of which some are rare."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    U = X @ rng.normal(size=(d, s)) * 0.7 + np.linspace(-3.5, 0, s)
    Y = (rng.random((n, s)) < 1 / (1 + np.exp(-U))).astype(np.int8)
    X = np.where(rng.random((n, d)) < 0.3, X, 0.0) if sparse else X + 2
    X = X.astype(dtype)
    return (sp.csr_array(X) if sparse else X), Y


def objectives(model, X, T, alpha, weight=None):
    """The logistic objective of each target, by plain sums."""
    X = X.toarray() if sp.issparse(X) else X
    weight = np.ones(len(X)) if weight is None else weight
    coef = model.coef.astype(np.float64)[model.problem]
    offset = np.clip(model.intercept.astype(np.float64), -1e3, 1e3)[model.problem]
    U = X.astype(np.float64) @ coef.T + offset
    losses = np.logaddexp(0, U) - np.asarray(T.todense() if sp.issparse(T) else T) * U
    return weight @ losses + alpha / 2 * (coef**2).sum(axis=1)
