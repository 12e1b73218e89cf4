"""Checks of parameters, with messages that name the offender."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import has_fit_parameter

from fbeta._array import check_unmasked, to_numpy

# the largest weight of a row for which sums over rows and their squares are normal numbers
MIN_LARGEST_WEIGHT, MAX_LARGEST_WEIGHT = 1e-100, 1e100


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_beta(beta: Any) -> float:
    """Return ``beta`` as a float, or raise where it is not a positive finite number."""
    if not _is_number(beta, Real):
        raise TypeError(f"beta must be a number, got {beta!r}")
    if not (0 < beta < np.inf):
        raise ValueError(f"beta must be positive and finite, got {beta!r}")
    return float(beta)


def check_number(name: str, value: Any, *, low: float = 0.0, strict: bool = False) -> float:
    """Return ``value`` as a float, or raise where it is not a finite number above ``low``."""
    if not _is_number(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    too_low = value <= low if strict else value < low
    if too_low or not np.isfinite(value):
        sign = ">" if strict else ">="
        raise ValueError(f"{name} must be finite and {sign} {low:g}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` as an int, or raise where it is not an integer from ``low`` to ``high``."""
    if not _is_number(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value!r}")
    if high is not None and value > high:
        raise ValueError(f"{name} must be at most {high}, got {value!r}")
    return int(value)


def check_solver(fit_intercept: Any, tol: Any, max_iter: Any) -> None:
    """Raise where a parameter of a solver is wrong; iterations are counted in 32 bits."""
    if not isinstance(fit_intercept, bool | np.bool_):  # strings such as "no" are truthy
        raise TypeError(f"fit_intercept must be True or False, got {fit_intercept!r}")
    check_number("tol", tol, strict=True)
    check_count("max_iter", max_iter, high=2**31 - 1)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return ``value``, or raise where it is not one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def as_real(name: str, value: Any) -> NDArray[np.float64]:
    """Return an array of float64; masked entries and complex numbers are an error."""
    check_unmasked(name, value)
    array = to_numpy(value)
    check_unmasked(name, array)
    return np.asarray(array, dtype=np.float64)


def check_sample_weight(
    sample_weight: ArrayLike | None, n: int, *, averaging: bool = False
) -> NDArray[np.float64] | None:
    """Return non-negative weights of shape (n,), from a scalar too; None stays None.

    Averages do not depend on the scale of the weights, which is changed where sums would overflow
    or vanish; a fit, in which the weights are compared with alpha, is refused.
    """
    if sample_weight is None:
        return None
    weight = as_real("sample_weight", sample_weight)
    if weight.ndim == 0:
        weight = np.full(n, weight)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {weight.shape}, expected ({n},)")
    if not np.isfinite(weight).all():
        raise ValueError("Input sample_weight contains NaN or infinity")
    if (weight < 0).any():
        raise ValueError(f"sample_weight is negative at row {int(np.argmax(weight < 0))}")
    if n and not weight.any():
        raise ValueError("sample_weight is zero on every row: nothing is left")
    largest = float(weight.max()) if n else 1.0
    if MIN_LARGEST_WEIGHT <= largest <= MAX_LARGEST_WEIGHT:
        return weight
    if averaging:
        return np.asarray(np.ldexp(weight, -int(np.frexp(largest)[1])))  # exact: a power of 2
    raise ValueError(
        f"sample_weight has a largest value of {largest:.3g}, expected {MIN_LARGEST_WEIGHT:g} to "
        f"{MAX_LARGEST_WEIGHT:g}: scale the weights, and alpha with them"
    )


def check_takes_weight(estimator: Any, sample_weight: Any) -> None:
    """Raise where there are weights and an estimator cannot be fitted with them."""
    if sample_weight is not None and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(f"{type(estimator).__name__} does not support sample_weight in fit")
