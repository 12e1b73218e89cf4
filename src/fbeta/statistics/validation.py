"""The arguments of label statistics: read, checked, and named where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbeta._array import (
    Array,
    as_array,
    astype,
    is_tensor,
    namespace_and_device,
    widest_float,
    without_gradients,
)
from fbeta._validation import as_real
from fbeta.statistics.conditional_bernoulli import INFINITE_LOG_ODDS

MAX_STATISTIC = 1e30  # sums of more may overflow, in single precision


def as_floats(name: str, values: Any) -> Array:
    """Return an array in a floating type, NumPy's in double precision."""
    xp, device = namespace_and_device(**{name: values})
    if xp is np:
        return np.asarray(values, dtype=np.float64)
    floating = xp.isdtype(values.dtype, "real floating")
    return values if floating else astype(xp, values, widest_float(xp, device))


def read_matrix(P: Any) -> Array:
    """Return probabilities or logits of labels, of shape (n, s), in a floating type.

    A list of two columns for each label, as scikit-learn's forests give it, is read too.
    """
    if isinstance(P, (list, tuple)) and P and all(getattr(p, "ndim", 0) == 2 for p in P):
        P = _presence(P)
    P = as_floats("P", P)
    if P.ndim != 2 or P.shape[1] == 0:
        raise ValueError(f"P must have shape (n, s) with s >= 1, got {tuple(P.shape)}")
    return P


def _presence(P: Sequence[Any]) -> Array:
    """Return the last of the two columns of each label."""
    for j, p in enumerate(P):
        if p.shape[1] != 2:
            raise ValueError(
                f"P[{j}] must have shape (n, 2), the probabilities that label {j} is absent and "
                f"present, got {tuple(p.shape)}"
            )
        if p.shape[0] != P[0].shape[0]:
            raise ValueError(f"P[{j}] has {p.shape[0]} rows, but P[0] has {P[0].shape[0]}")
    xp, _ = namespace_and_device(**{f"P[{j}]": p for j, p in enumerate(P)})
    return xp.stack([p[:, 1] for p in P], axis=1)


def read_marginals(P: Any) -> Array:
    """Return marginals of shape (n, s) in a floating type."""
    P = read_matrix(P)
    if not bool(namespace_and_device(P=P)[0].all((P >= 0) & (P <= 1))):
        raise ValueError("P must hold probabilities in [0, 1]")
    return P


def read_logits(Z: Any) -> Array:
    """Return log-odds of shape (n, s) in the widest floating type, infinite ones as finite."""
    Z = read_matrix(Z)
    xp, device = namespace_and_device(Z=Z)
    if bool(xp.any(xp.isnan(Z))):
        raise ValueError("Z contains NaN")
    Z = astype(xp, Z, widest_float(xp, device))
    most = min(INFINITE_LOG_ODDS, float(xp.finfo(Z.dtype).max) / 4)
    return xp.clip(Z, -most, most)


def read_sizes(sizes: Any, P: Any) -> Array:
    """Return the law of the number of labels, (n, m + 1), in the place and type of P, (n, s)."""
    xp, device = namespace_and_device(P=P, sizes=sizes)
    sizes = astype(xp, as_array(xp, device, sizes), P.dtype)
    n, s = P.shape
    if sizes.ndim != 2 or sizes.shape[0] != n or not 1 <= sizes.shape[1] <= s + 1:
        raise ValueError(
            f"sizes must have shape ({n}, m + 1) with m <= {s}, one column for each number of "
            f"labels 0..m, got {tuple(sizes.shape)}"
        )
    check_statistics("sizes", sizes)
    return sizes


def read_weights(weights: ArrayLike | None, n_parts: int) -> tuple[float, ...]:
    """Return weights of the parts of an average, divided by their sum."""
    given = np.ones(n_parts) if weights is None else as_real("weights", weights)
    if given.shape != (n_parts,):
        raise ValueError(f"weights must have shape ({n_parts},), got {given.shape}")
    if not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise ValueError(f"weights must be finite, not negative and not all 0, got {weights!r}")
    given = given / given.max()  # a sum of large weights overflows
    return tuple(float(w) for w in given / given.sum())


def check_alike(forms: Sequence[Any], same_rows: bool) -> None:
    """Raise where statistics differ in labels, library, device, or rows if these are to agree."""
    if not forms:
        raise ValueError("parts must hold at least one LabelStatistics")
    (n, s), place = forms[0].shape, forms[0].place
    for i, form in enumerate(forms):
        if form.shape[1] != s:
            raise ValueError(f"parts[{i}] has {form.shape[1]} labels, but parts[0] has {s}")
        if same_rows and form.shape[0] != n:
            raise ValueError(f"parts[{i}] has {form.shape[0]} rows, but parts[0] has {n}")
        if form.place != place:
            raise ValueError(f"parts[{i}] is of another library or on another device than parts[0]")


def row_numbers(rows: Any, n: int, place: tuple[Any, Any]) -> Any:
    """Return a slice, or an array of numbers of n rows in a place, from a mask or numbers."""
    if isinstance(rows, slice):
        return rows
    xp, device = place
    if is_tensor(rows):
        if xp.isdtype(rows.dtype, "bool"):
            return xp.nonzero(rows)[0]
        return xp.where(rows < 0, rows + n, rows)
    chosen = np.atleast_1d(np.asarray(rows))
    if chosen.dtype == np.bool_:
        if chosen.shape != (n,):
            raise IndexError(f"the mask of rows has shape {chosen.shape}, expected ({n},)")
        chosen = np.flatnonzero(chosen)
    chosen = chosen.astype(np.intp, casting="same_kind") if chosen.size else np.arange(0)
    if ((chosen < -n) | (chosen >= n)).any():
        raise IndexError(f"rows must lie in 0..{n - 1}")
    return xp.asarray(np.where(chosen < 0, chosen + n, chosen), device=device)


def check_dense(empty: Array, joint: Array, cardinalities: NDArray[Any]) -> None:
    """Raise where shapes, sizes or numbers are not those of dense statistics."""
    if joint.ndim != 3 or tuple(empty.shape) != tuple(joint.shape[:1]):
        raise ValueError(
            "empty must have shape (n,) and joint (n, K, s), "
            f"got {tuple(empty.shape)} and {tuple(joint.shape)}"
        )
    K, s = joint.shape[1:]
    if cardinalities.shape != (K,):
        raise ValueError(f"cardinalities must have shape ({K},), got {cardinalities.shape}")
    if K and cardinalities.dtype.kind not in "iu":
        raise ValueError(f"cardinalities must be integers, got {cardinalities.dtype}")
    outside = (cardinalities < 1) | (cardinalities > s)
    if outside.any():
        raise ValueError(f"cardinalities must lie in 1..{s}, got {cardinalities[outside][0]}")
    if (np.diff(cardinalities) <= 0).any():
        raise ValueError("cardinalities must increase strictly")
    check_statistics("empty", empty)
    check_statistics("joint", joint)


def check_statistics(name: str, values: Array) -> None:
    """Raise where numbers are not of a floating type, finite and non-negative."""
    xp, _ = namespace_and_device(**{name: values})
    if not xp.isdtype(values.dtype, "real floating"):
        raise ValueError(f"{name} must be of a floating type, got {values.dtype}")
    if 0 in values.shape:
        return
    # min and max see NaN too, and make no temporary of the size of the array
    with without_gradients(xp):
        low, high = float(xp.min(values)), float(xp.max(values))
    if not np.isfinite(low) or not np.isfinite(high):
        raise ValueError(f"{name} contains NaN or infinity")
    if low < 0:
        raise ValueError(f"{name} must not be negative, found {low}")
    if high > MAX_STATISTIC:
        raise ValueError(f"{name} must hold probabilities, or numbers of their size, found {high}")
