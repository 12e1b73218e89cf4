"""The convex surrogate psi of the F_beta loss, its regret, and the regret transfer bound.

A score vector ``u`` has one component for each component of the code ``a_y``, in the order of
:func:`fbeta.statistics.encode`; decoding ``inverse_link(u)`` gives the prediction. Scores may be
arrays of any library that follows the array API standard, on any device; results are of the same
library and on the same device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fbeta._array import (
    Array,
    array_namespace,
    astype,
    check_beta,
    check_count,
    check_number,
    is_tensor,
    namespace_and_device,
)
from fbeta.labels.forms import read_labels
from fbeta.losses import Loss, get_loss
from fbeta.statistics.encoding import as_floats, encode_labels
from fbeta.statistics.label_statistics import LabelStatistics
from fbeta.statistics.storage import fbeta_weight

__all__ = ["code_norm", "psi", "psi_gradient", "psi_regret", "regret_bound"]


def psi(Y: Any, U: Any, cardinalities: Any = None, *, loss: str | Loss = "logistic") -> Array:
    """Compute ``psi(y, u) = sum_c a_yc phi(+1, u_c) + (1 - a_yc) phi(-1, u_c)`` of each instance.

    Parameters
    ----------
    Y : labels of n instances
        0/1 array or sparse matrix of shape (n, s), DataFrame, or sequence of label sets.
    U : array-like of shape (n, 1 + K s)
        Scores.
    cardinalities : array-like of shape (K,), optional
        The sizes that the scores are for; all of 1..s by default.
    loss : str or Loss
        The binary loss phi.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> psi([[1, 0]], np.zeros((1, 5))).round(4).tolist()
    [3.4657]
    """
    code, U = _code_and_scores(Y, U, cardinalities)
    return array_namespace(U).sum(get_loss(loss).value(code, U), axis=1)


def psi_gradient(
    Y: Any, U: Any, cardinalities: Any = None, *, loss: str | Loss = "logistic"
) -> Array:
    """Compute the gradient of :func:`psi` in the scores.

    Parameters
    ----------
    Y, U, cardinalities, loss
        As for :func:`psi`.

    Returns
    -------
    array of shape (n, 1 + K s)

    Examples
    --------
    >>> psi_gradient([[1, 0]], np.zeros((1, 5))).tolist()
    [[0.5, -0.5, 0.5, 0.5, 0.5]]
    """
    code, U = _code_and_scores(Y, U, cardinalities)
    return get_loss(loss).derivative(code, U)


def psi_regret(statistics: LabelStatistics, U: Any, *, loss: str | Loss = "logistic") -> Array:
    """Compute the surrogate regret of scores, ``E[psi(y, u) | x] - inf_u E[psi(y, u) | x]``.

    The expectation is linear in the code: it is ``sum_c phi(q_c, u_c) - phi(q_c, link(q_c))``.

    Parameters
    ----------
    statistics : LabelStatistics
        The true q of n instances.
    U : array-like of shape (n, 1 + K s)
        Scores for the cardinalities of the statistics.
    loss : str or Loss
        The binary loss phi.

    Returns
    -------
    array of shape (n,)
        Non-negative, and zero only where ``inverse_link(U)`` is the truth.

    Examples
    --------
    >>> q = LabelStatistics.from_marginals([[0.5, 0.5]])
    >>> psi_regret(q, np.zeros((1, 5))).round(4).tolist()
    [0.6541]
    """
    loss, q = get_loss(loss), statistics.to_code()
    xp, _ = namespace_and_device(statistics=q, U=U)
    U = as_floats("U", U)
    _check_shape(U, q)
    q = astype(xp, q, U.dtype)
    # at q in {0, 1} the infimum is approached at infinity: a finite score is near enough
    best = xp.clip(loss.link(q), -1e3, 1e3)
    value = loss.value(q, U)
    return xp.sum(value - xp.minimum(loss.value(q, best), value), axis=1)


def code_norm(n_labels: int, beta: float = 1.0) -> float:
    """Compute the largest norm of a code vector, ``max over yhat of |b_yhat|``.

    ``|b_yhat|^2 = (1 + beta^2)^2 sum_k t / (beta^2 k + t)^2`` for ``t = |yhat| > 0``, and 1 for
    the empty set. It is at most ``(1 + beta^2) / beta`` for any number of labels.

    Parameters
    ----------
    n_labels : int
        Number of labels s.
    beta : float > 0
        Weight of recall against precision.

    Examples
    --------
    >>> code_norm(1), code_norm(1000) < 2
    (1.0, True)
    """
    beta = check_beta(beta)
    sizes = np.arange(1, check_count("n_labels", n_labels) + 1, dtype=np.float64)
    squared = [t * float((fbeta_weight(sizes, t, beta) ** 2).sum()) for t in sizes]
    return float(np.sqrt(max(1.0, *squared)))


def regret_bound(
    regret: float,
    n_labels: int,
    beta: float = 1.0,
    *,
    loss: str | Loss = "logistic",
    tight: bool = False,
) -> float:
    """Bound the F_beta-regret of the decoded prediction by the surrogate regret.

    As printed: ``(1 + beta^2) / beta sqrt(2 (ln s + 1) / lambda regret)``. Tight: ``sqrt(2) max|b|
    sqrt(2 / lambda regret)``; all components of b have one sign, so two code vectors are at most
    ``sqrt(2) max|b|`` apart, and ``max|b|`` does not grow with s.

    Parameters
    ----------
    regret : float >= 0
        The expected surrogate regret.
    n_labels : int
        Number of labels s.
    beta : float > 0
        Weight of recall against precision.
    loss : str or Loss
        The binary loss, for its strength lambda.
    tight : bool
        Return the tighter bound instead of the printed one.

    Examples
    --------
    >>> round(regret_bound(0.01, 6), 3), round(regret_bound(0.01, 6, tight=True), 3)
    (0.236, 0.149)
    """
    strength = get_loss(loss).strength
    regret = check_number("regret", regret)
    if tight:
        factor = np.sqrt(2) * code_norm(n_labels, beta)
    else:
        s = check_count("n_labels", n_labels)
        factor = (check_beta(beta) + 1 / beta) * np.sqrt(np.log(s) + 1)
    return float(factor * np.sqrt(2 / strength * regret))


def _code_and_scores(Y: Any, U: Any, cardinalities: Any) -> tuple[Array, Array]:
    """Return the code of the labels, in the place and type of the scores, and the scores."""
    Y, U = Y if is_tensor(Y) else read_labels(Y)[1], as_floats("U", U)
    sizes = np.arange(1, int(Y.shape[1]) + 1) if cardinalities is None else cardinalities
    code = encode_labels(Y, sizes, like=U)[0]
    _check_shape(U, code)
    return code, U


def _check_shape(U: Array, code: Array) -> None:
    if U.shape != code.shape:
        raise ValueError(f"U must have shape {tuple(code.shape)}, got {tuple(U.shape)}")
