"""Strictly proper composite binary losses phi, their links, and linear models with these.

A loss is a function of a target ``y`` in [0, 1] and a score ``u``, ``phi(y, u) = y phi(+1, u) +
(1 - y) phi(-1, u)``; with 0/1 targets this is the binary loss itself. Its expectation under
``P(y = 1) = q`` is smallest at ``u = link(q)`` and nowhere else, so ``inverse_link`` of a learned
score estimates the probability. Strength ``lambda`` is the largest number with ``E[phi(y, u) -
phi(y, link(q))] >= lambda / 2 (inverse_link(u) - q)^2``.

Everything here is elementwise, broadcasts, keeps the floating type, accepts arrays of any library
that follows the array API standard, and is finite and free of warnings for ``|u|`` up to 1e4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fbeta._array import Array, array_namespace, is_accelerator, is_tensor, multiply_add
from fbeta._threads import one_blas_thread

__all__ = ["LOSSES", "ExponentialLoss", "LogisticLoss", "Loss", "SquaredLoss", "get_loss"]

MIN_PARALLEL_SCORES = 1 << 17  # scores below which a second thread does not pay


class Loss(ABC):
    """A strictly proper composite binary loss.

    A loss defines its links, and :meth:`evaluate` or value, derivative and second derivative.

    Attributes
    ----------
    name : str
        The name that estimators take.
    strength : float
        The strong-properness constant lambda.
    self_concordance : float
        A number that the third derivative, relative to the second, never exceeds. The solver's
        certificate relies on it; it is 1 unless a loss says otherwise.
    """

    name: str
    strength: float
    self_concordance: float = 1.0

    def value(self, y: Array, u: Array) -> Array:
        """Return ``phi(y, u)``."""
        return self.evaluate(y, u)[0]

    def derivative(self, y: Array, u: Array) -> Array:
        """Return the derivative of ``phi(y, u)`` in ``u``."""
        return self.evaluate(y, u)[1]

    def second_derivative(self, y: Array, u: Array) -> Array:
        """Return the second derivative of ``phi(y, u)`` in ``u``."""
        return self.evaluate(y, u)[2] + 0 * y

    @abstractmethod
    def link(self, q: Array) -> Array:
        """Return the score ``u`` that is optimal for the probability ``q``.

        It is infinite at 0 and 1 where the loss has no minimiser there.
        """

    @abstractmethod
    def inverse_link(self, u: Array) -> Array:
        """Return the probability that the score ``u`` stands for."""

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together: the inner loop of the solver."""
        return self.value(y, u), self.derivative(y, u), self.second_derivative(y, u)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class LogisticLoss(Loss):
    """``phi(y, u) = ln(1 + exp(u)) - y u``, with the logit as its link.

    Examples
    --------
    >>> import numpy as np
    >>> loss = LogisticLoss()
    >>> float(loss.inverse_link(loss.link(np.float64(0.3))).round(12))
    0.3
    """

    name = "logistic"
    strength = 4.0

    def link(self, q: Array) -> Array:
        """Return the logit of ``q``."""
        return _logit(q)

    def inverse_link(self, u: Array) -> Array:
        """Return ``1 / (1 + exp(-u))``."""
        xp = array_namespace(u)
        e = xp.exp(-xp.abs(u))
        return xp.where(u >= 0, xp.ones_like(e), e) / (1 + e)

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together, from one exponential."""
        xp = array_namespace(u)
        if is_accelerator(getattr(u, "device", None)):  # where each operation is a pass over memory
            p = xp.sigmoid(u) if hasattr(xp, "sigmoid") else self.inverse_link(u)
            f = xp.logaddexp(u, xp.zeros_like(u[..., :1]))
            return multiply_add(xp, f, y, u, -1), p - y, multiply_add(xp, p, p, p, -1)
        above = xp.clip(u, -_exponent_limit(xp, u), None)  # exp(-u) must not overflow
        p = 1 / (1 + xp.exp(-above))
        return above - y * u - xp.log(p), p - y, p * (1 - p)


class ExponentialLoss(Loss):
    """``phi(+1, u) = exp(-u)``, ``phi(-1, u) = exp(u)``, with half the logit as its link.

    The exponent is cut where the sums of a solver would overflow (500 in double precision).

    Examples
    --------
    >>> import numpy as np
    >>> ExponentialLoss().link(np.float64(0.5)).item()
    0.0
    """

    name = "exponential"
    strength = 4.0

    def link(self, q: Array) -> Array:
        """Return half the logit of ``q``."""
        return _logit(q) / 2

    def inverse_link(self, u: Array) -> Array:
        """Return ``1 / (1 + exp(-2 u))``."""
        return LogisticLoss().inverse_link(2 * u)

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together, from one exponential."""
        xp = array_namespace(u)
        limit = _exponent_limit(xp, u)
        exponential = xp.exp(xp.clip(u, -limit, limit))
        plus, minus = (1 - y) * exponential, y * (1 / exponential)
        value = plus + minus
        return value, plus - minus, value


class SquaredLoss(Loss):
    """``phi(+1, u) = (1 - u)^2``, ``phi(-1, u) = (1 + u)^2``, with the link ``2 q - 1``.

    Scores beyond [-1, 1] stand for the probabilities 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredLoss().inverse_link(np.asarray([-3.0, 0.0, 0.5])).tolist()
    [0.0, 0.5, 0.75]
    """

    name = "squared"
    strength = 8.0
    self_concordance = 0.0

    def evaluate(self, y: Array, u: Array) -> tuple[Array, Array, Array]:
        """Return value, first and second derivative together."""
        value = y * (1 - u) ** 2 + (1 - y) * (1 + u) ** 2
        return value, 2 * u - (4 * y - 2), 0 * (y + u) + 2

    def link(self, q: Array) -> Array:
        """Return ``2 q - 1``."""
        return 2 * q - 1

    def inverse_link(self, u: Array) -> Array:
        """Return ``(1 + u) / 2``, cut to [0, 1]."""
        return array_namespace(u).clip((1 + u) / 2, 0.0, 1.0)


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (LogisticLoss(), ExponentialLoss(), SquaredLoss())
}


def get_loss(loss: str | Loss) -> Loss:
    """Return a loss by name, or the object itself.

    Parameters
    ----------
    loss : str or Loss
        ``"logistic"``, ``"exponential"``, ``"squared"``, or any object of the class
        :class:`Loss`.

    Returns
    -------
    Loss

    Examples
    --------
    >>> get_loss("logistic")
    LogisticLoss()
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a fbeta.losses.Loss, got {loss!r}")


def _logit(q: Array) -> Array:
    """Return ``ln(q / (1 - q))``, -inf at 0 and +inf at 1, without warnings."""
    xp = array_namespace(q)
    inside = (q > 0) & (q < 1)
    safe = xp.where(inside, q, xp.full_like(q, 0.5) if hasattr(q, "shape") else 0.5)
    finite = xp.log(safe) - xp.log1p(-safe)
    infinite = xp.where(q >= 0.5, xp.full_like(finite, xp.inf), xp.full_like(finite, -xp.inf))
    return xp.where(inside, finite, infinite)


def _exponent_limit(xp: Any, u: Array) -> float:
    """Return the largest exponent whose sums over many rows stay finite in the type of ``u``."""
    return 60.0 if u.dtype == xp.float32 else 500.0


def take_along(values: Any, places: NDArray[np.intp], axis: int = 0) -> Any:
    """Return the entries of an array of any library at some places along an axis."""
    xp = array_namespace(values)
    return xp.take(values, xp.asarray(places, device=values.device), axis=axis)


def linear_scores(X: Any, coef: Array, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept``; tensors are brought to one type first."""
    if is_tensor(X):
        xp = array_namespace(X)
        dtype = xp.result_type(X, coef)
        X, coef, intercept = (xp.astype(a, dtype, copy=False) for a in (X, coef, intercept))
        return X @ coef.T + intercept
    with one_blas_thread(X.shape[0] * coef.shape[0] < MIN_PARALLEL_SCORES):
        return X @ coef.T + intercept


@dataclass(frozen=True)
class LinearProbabilities:
    """Linear scores of distinct binary targets, and the loss whose link makes probabilities.

    Attributes
    ----------
    coef : array of shape (m, d)
        Of the distinct problems.
    intercept : array of shape (m,)
        Infinite where the target is constant and the loss has no minimiser.
    problem : ndarray of shape (M,)
        Row of ``coef`` that serves each of the M targets.
    n_iter : ndarray of shape (m,)
        Newton iterations; 0 where nothing had to be solved.
    converged : bool ndarray of shape (m,)
    loss : Loss
    """

    coef: Array
    intercept: Array
    problem: NDArray[np.intp]
    n_iter: NDArray[np.intp]
    converged: NDArray[np.bool_]
    loss: Loss

    def scores(self, X: Any) -> Array:
        """Return the scores of the distinct problems, of shape (n, m)."""
        return linear_scores(X, self.coef, self.intercept)

    def probabilities(self, X: Any) -> Any:
        """Return the probabilities of the targets, of shape (n, M)."""
        distinct: Any = self.loss.inverse_link(self.scores(X))
        return take_along(distinct, self.problem, axis=1)

    def log_odds(self, X: Any) -> Any:
        """Return the log-odds of the targets, of shape (n, M), of a model with logistic loss."""
        return take_along(self.scores(X), self.problem, axis=1)

    def unfold(self) -> LinearProbabilities:
        """Return a model with coefficients for each target, also where targets are equal."""
        names = ("coef", "intercept", "n_iter", "converged")
        own = {name: take_along(getattr(self, name), self.problem) for name in names}
        return LinearProbabilities(problem=np.arange(len(self.problem)), loss=self.loss, **own)

    @property
    def most_iter(self) -> int:
        """Most Newton iterations of a problem."""
        return int(self.n_iter.max(initial=0))
