"""Feature maps to choose from: transformers of scikit-learn, for dense and for sparse features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler

__all__ = ["RAW", "feature_maps", "is_large", "is_mostly_zero"]

RAW = "raw"
# of the Laplacian kernel, over the number of features; the likeliest first
GAMMAS = (0.25, 0.1, 0.5)
# landmarks of a kernel: all rows, this many, or a tenth of the rows, up to a limit
LANDMARKS, MAX_LANDMARKS = 800, 1500
QUANTILES = 200
# a dense matrix with a smaller share of nonzero numbers, and at least so many columns, is sparse
SPARSE_SHARE, MIN_SPARSE_COLUMNS = 0.1, 100
LARGE_ELEMENTS = 4_000_000  # of X: single precision, one held-out split, kernels by products
RBF_GAMMAS = (0.3, 1.0)  # of the RBF kernel, over the number of features
SCALED_TOLERANCE = 1e-3  # of means and standard deviations of columns that are scaled already


def is_mostly_zero(X: Any) -> bool:
    """Return whether a dense X (n, d) is better kept as a sparse one."""
    rows = X[:: max(1, len(X) // 1000)]
    share = np.count_nonzero(rows) / max(1, rows.size)
    return bool(X.shape[1] >= MIN_SPARSE_COLUMNS and share < SPARSE_SHARE)


def is_large(X: Any) -> bool:
    """Return whether X has so many numbers that candidates are compared on one split."""
    return bool((X.nnz if sp.issparse(X) else X.size) > LARGE_ELEMENTS)


def feature_maps(X: Any, seed: int) -> dict[str, Pipeline]:
    """Return pipelines by name, not fitted, for X (n, d) which may have gaps (NaN).

    Those that are likely to do well come first. All begin with what fills gaps; ``"raw"`` does no
    more. ``seed`` is that of the landmarks of kernels.
    """
    gaps = _fill_gaps(X)
    maps = _maps_of_counts(X, seed) if sp.issparse(X) else _maps_of_numbers(X, seed)
    return {name: make_pipeline(*gaps, *steps) for name, steps in maps.items()}


def _fill_gaps(X: Any) -> list[Any]:
    """Return what fills gaps: medians, and columns that mark what was missing in training."""
    missing = bool(np.isnan(X.data if sp.issparse(X) else X).any())
    if sp.issparse(X) and not missing:
        return ["passthrough"]
    return [SimpleImputer(strategy="median", add_indicator=missing, keep_empty_features=True)]


def _maps_of_numbers(X: Any, seed: int) -> dict[str, list[Any]]:
    with np.errstate(invalid="ignore"):
        low, high = np.nanmin(X, axis=0, initial=np.inf), np.nanmax(X, axis=0, initial=-np.inf)
    d = max(1, int(np.sum(high > low)))

    def laplacian(gamma: float) -> Nystroem:
        return _kernel(X, "laplacian", gamma / d, seed)

    if is_large(X):
        # distances of pairs by matrix products; the Laplacian kernel has none
        return _scaled_once(X, {
            "standardised": [StandardScaler()],
            **{f"kernel {gamma:g}": [StandardScaler(), _kernel(X, "rbf", gamma / d, seed)]
               for gamma in RBF_GAMMAS},
            RAW: [],
        })  # fmt: skip
    maps: dict[str, list[Any]] = {"standardised": [StandardScaler()]}
    maps |= {f"kernel {gamma:g}": [StandardScaler(), laplacian(gamma)] for gamma in GAMMAS}
    normal = QuantileTransformer(
        n_quantiles=min(QUANTILES, X.shape[0]), output_distribution="normal", random_state=seed
    )
    quantiles = {
        f"quantiles, kernel {GAMMAS[0]:g}": [normal, StandardScaler(), laplacian(GAMMAS[0])]
    }
    first = f"kernel {GAMMAS[0]:g}"
    maps["RBF kernel"] = [StandardScaler(), _kernel(X, "rbf", 1 / d, seed)]
    order = [
        "standardised",
        first,
        "RBF kernel",
        *quantiles,
        *(name for name in maps if "kernel" in name),
    ]
    maps |= {**quantiles, RAW: []}
    return _scaled_once(X, {name: maps[name] for name in dict.fromkeys([*order, RAW])})


def _scaled_once(X: Any, maps: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Leave standardised features out where the raw ones are standardised already."""
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean, std = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    off = np.abs(mean) + np.where(std > 0, np.abs(std - 1), 0)
    if not bool((off < SCALED_TOLERANCE).all()):
        return maps
    return {RAW: [], **{name: steps for name, steps in maps.items() if name != "standardised"}}


def _maps_of_counts(X: Any, seed: int) -> dict[str, list[Any]]:
    kernel = _kernel(X, "rbf", 1.0, seed)
    squares = np.asarray(X.multiply(X).sum(axis=1) if sp.issparse(X) else (X * X).sum(axis=1))
    if np.allclose(squares[squares != 0], 1.0):
        return {RAW: [], "kernel": [kernel]}
    maps: dict[str, list[Any]] = {"length 1": [Normalizer()]}
    values = X.data if sp.issparse(X) else X
    # logarithms of what is no count may be below zero
    if ((values == 0) | (values >= 1)).all():
        maps["TF-IDF"] = [TfidfTransformer(sublinear_tf=True)]
    return {**maps, "length 1, kernel": [Normalizer(), kernel], RAW: []}


def _kernel(X: Any, kernel: str, gamma: float, seed: int) -> Nystroem:
    n = X.shape[0]
    landmarks = min(n, max(LANDMARKS, min(n // 10, MAX_LANDMARKS)))
    return Nystroem(kernel=kernel, gamma=gamma, n_components=landmarks, random_state=seed)
