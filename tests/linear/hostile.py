"""Problems that solvers get wrong, and their optima by other means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dposv

from fbeta._threads import one_blas_thread

RIDGE = 1e-13  # of a Hessian with ones on its diagonal, against rounding
SHAPES = ("plain", "collinear", "low rank", "heavy tails", "shifted", "scales", "rare", "wide")


@dataclass
class Case:
    """One X with several problems over it.

    ``targets`` is (n, m): 0/1 for binary problems, class numbers for multinomial ones.
    """

    X: Any
    targets: np.ndarray
    alpha: float
    weight: np.ndarray | None
    intercept: bool
    words: str

    @cached_property
    def dense(self):
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        return np.asarray(X, dtype=np.float64)

    @cached_property
    def rotated(self):
        """The data in coordinates in which they have orthonormal columns, and their penalties."""
        X, n = self.dense, len(self.dense)
        scale = np.abs(X).max() or 1.0
        A = X / scale
        if self.intercept:
            weight = np.ones(n) if self.weight is None else self.weight
            A = A - weight @ A / weight.sum()
        U, s, _ = np.linalg.svd(A, full_matrices=False)
        keep = s > 1e-15 * s.max(initial=0)
        U, penalty = U[:, keep], self.alpha / scale**2 / s[keep] ** 2
        if self.intercept:
            U, penalty = np.column_stack([U, np.ones(n)]), np.append(penalty, 0.0)
        return U, penalty


def features(rng, shape):
    n, d = int(rng.integers(20, 160)), int(rng.integers(1, 25))
    X = rng.normal(size=(n, d))
    if shape == "collinear":
        X = np.hstack([X, X + 10.0 ** rng.uniform(-8, -1) * rng.normal(size=X.shape)])
    elif shape == "low rank":
        X = X[:, : 1 + d // 4] @ rng.normal(size=(1 + d // 4, d))
    elif shape == "heavy tails":
        X = X**5
    elif shape == "shifted":
        X = X + 10.0 ** rng.uniform(0, 5) * rng.normal(size=d if rng.random() < 0.5 else 1)
    elif shape == "scales":
        X = X * 10.0 ** rng.uniform(-4, 4, d)
    elif shape == "rare":
        X = np.where(rng.random(X.shape) < 0.1, 1.0, 0.0)
    elif shape == "wide":
        X = rng.normal(size=(int(rng.integers(5, 40)), int(rng.integers(40, 120))))
    return X


def make_case(seed, multinomial=False, problems=10):
    """Draw a case."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[seed % len(SHAPES)]
    X = features(rng, shape)
    n, d = X.shape
    scale = 10.0 ** rng.choice([0, 0, rng.uniform(-8, 8)])
    truth = (
        rng.normal(size=(d, problems))
        * 10.0 ** rng.uniform(-1, 1)
        / np.maximum(X.std(0), 1e-9)[:, None]
    )
    truth /= np.sqrt(d)
    u = (X - X.mean(axis=0)) @ truth
    if multinomial:
        counts = rng.integers(2, 6, problems)
        columns = []
        for m, c in enumerate(counts):
            noise = rng.gumbel(size=(n, c)) + u[:, [m]] * np.linspace(-1, 1, c)
            columns.append(np.unique(noise.argmax(axis=1), return_inverse=True)[1])
        targets = np.stack(columns, axis=1)
    else:
        limit = np.quantile(u, rng.uniform(0.02, 0.98, problems), axis=0).diagonal()
        noise = 10.0 ** rng.uniform(-2, 0.5) * rng.logistic(size=u.shape)
        targets = (u + noise > limit).astype(np.int64)
    alpha = 10.0 ** rng.uniform(-4, 3)
    if rng.random() < 0.5:
        alpha *= scale**2
    X = X * scale
    single = rng.random() < 0.4
    X = X.astype(np.float32 if single else np.float64)
    sparse = rng.random() < 0.4
    weight = 10.0 ** rng.uniform(-2, 2, n) if rng.random() < 0.4 else None
    intercept = bool(rng.random() < 0.6)
    words = f"seed {seed}: {shape}, {n} x {d}, scale {scale:.1e}, alpha {alpha:.1e}, {X.dtype}" + (
        ", sparse" * sparse + ", weighted" * (weight is not None) + ", intercept" * intercept
    )
    return Case(sp.csr_array(X) if sparse else X, targets, alpha, weight, intercept, words)


def objectives(case, coef, intercept, multinomial=False):
    """Compute the objective of each problem; multinomial coefficients are lists by problem."""
    weight = np.ones(len(case.dense)) if case.weight is None else case.weight
    out = []
    for m, y in enumerate(case.targets.T):
        W, b = np.asarray(coef[m], dtype=np.float64), np.asarray(intercept[m], dtype=np.float64)
        out.append(
            _loss(case.dense @ W.T + b, y, weight, multinomial) + case.alpha / 2 * (W**2).sum()
        )
    return np.array(out)


def log_sums(u):
    """Compute the logarithms of sums of exponentials over each row."""
    top = u.max(axis=1)
    return top + np.log(np.exp(u - top[:, None]).sum(axis=1))


def _loss(u, y, weight, multinomial):
    if multinomial:
        return weight @ (log_sums(u) - u[np.arange(len(y)), y])
    return weight @ (np.logaddexp(0, u) - y * u)


@one_blas_thread()
def optimum(case, m, multinomial=False):
    """Minimise one problem by Newton's method with factorised Hessians.

    In coordinates in which the data have orthonormal columns, whatever their scales: only the
    penalty differs between them, and a diagonal scaling makes the Hessian well conditioned.
    """
    y, (U, penalty) = case.targets[:, m], case.rotated
    weight = np.ones(len(y)) if case.weight is None else case.weight
    C = y.max() + 1 if multinomial else 1
    T = np.zeros((U.shape[1], C))

    def values(T, step, lengths):
        """Objectives at several steps along a line, (steps,)."""
        u = U @ T + lengths[:, None, None] * (U @ step)
        if multinomial:
            top = u.max(axis=2)
            rows = top + np.log(np.exp(u - top[:, :, None]).sum(axis=2)) - u[:, at, y]
        else:
            rows = np.logaddexp(0, u[:, :, 0]) - y * u[:, :, 0]
        points = T + lengths[:, None, None] * step
        return rows @ weight + 0.5 * np.einsum("k,tkc->t", penalty, points**2)

    at, whole, halves = np.arange(len(y)), np.ones(1), 0.5 ** np.arange(1, 40)
    f = values(T, T, whole)[0]
    for _ in range(500):
        g, H = _derivatives(U, T, y, weight, penalty, multinomial)
        D = 1 / np.sqrt(np.maximum(H.diagonal(), 1e-300))
        H = D[:, None] * H * D
        step = D * _solve(H, -D * g.T.ravel())
        step = step.reshape(C, -1).T
        decrement = -(g * step).sum()
        if decrement <= 1e-13 * f:
            return f
        for lengths in (whole, halves):
            after = values(T, step, lengths)
            enough = np.flatnonzero(after <= f - 1e-4 * lengths * decrement)
            if len(enough):
                break
        else:
            return f
        T, f = T + lengths[enough[0]] * step, after[enough[0]]
    return f


def _solve(H, r):
    """Solve a system with the smallest ridge that makes it positive definite to rounding."""
    for ridge in RIDGE * 100.0 ** np.arange(4):
        _, found, failed = dposv(H + ridge * np.eye(len(H)), r)
        if not failed:
            return found
    return r


def _derivatives(U, T, y, weight, penalty, multinomial):
    k, C = T.shape
    if not multinomial:
        p = 1 / (1 + np.exp(-np.clip(U @ T[:, 0], -500, 500)))
        g = U.T @ (weight * (p - y)) + penalty * T[:, 0]
        return g[:, None], (U.T * (weight * p * (1 - p))) @ U + np.diag(penalty)
    u = U @ T
    P = np.exp(u - log_sums(u)[:, None])
    g = U.T @ (weight[:, None] * (P - np.eye(C)[y])) + penalty[:, None] * T
    H = np.zeros((C, k, C, k))
    for a in range(C):
        for b in range(a + 1):
            B = weight * P[:, a] * ((a == b) - P[:, b])
            H[a, :, b] = H[b, :, a] = (U.T * B) @ U
    H = H.reshape(C * k, C * k) + np.diag(np.tile(penalty, C))
    # a shift of all classes changes nothing, and gradients have no part in it
    size = np.einsum("akak->k", H.reshape(C, k, C, k))
    return g, H + np.tile(np.diag(size), (C, C))
