"""Averages that are searched for: of given estimators, or of feature maps and models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from fbeta._array import array_namespace, astype, check_number, is_accelerator, is_tensor
from fbeta._threads import n_threads
from fbeta.estimators.alpha_search import check_grid
from fbeta.estimators.auto_search import (
    BOOSTED_NAMES,
    FEW_ROWS,
    FOREST_NAMES,
    JOINT,
    QUICK,
    RAW,
    Search,
)
from fbeta.estimators.average import AverageClassifier, AverageModel, Clock, Progress, Report
from fbeta.estimators.base import validate_features
from fbeta.estimators.boosting import BoostedClassifier
from fbeta.estimators.folds import ALPHAS, make_folds
from fbeta.estimators.forest import FBetaForest, NeighboursClassifier
from fbeta.estimators.linear import CardinalityClassifier, LabelSetClassifier
from fbeta.estimators.members import (
    MAX_DECODED_NUMBERS,
    Trial,
    as_candidates,
    note_on_average,
)
from fbeta.estimators.reduction import SizedClassifier
from fbeta.estimators.statistics_base import FBetaClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight
from fbeta.statistics import observed_cardinalities

__all__ = ["FBetaAuto", "FBetaEnsemble", "auto_models", "feature_maps"]

# features among which a split of a forest is chosen: a share of all, up to a number
SPLIT_SHARE, MAX_SPLIT_FEATURES = 0.3, 150
FEW_TREES = 40  # that are boosted with the best splits: more follow the noise of many tables
MAX_FOREST_FEATURES = 5000  # columns of a sparse X beyond which forests are not tried
# of the one split of large data; fewer are held out where rows have many statistics to decode
MAX_TRAINING_ROWS, HELD_OUT_ROWS, MIN_HELD_OUT_ROWS = 50_000, 10_000, 2000
GAMMAS = (0.25, 0.1, 0.5)  # of the Laplacian kernel, over the features; the likeliest first
LANDMARKS, EXACT_ROWS = 1000, 2000  # of a kernel; rows up to which all of them are landmarks
# a dense matrix with a smaller share of nonzero numbers, and at least so many columns, is sparse
SPARSE_SHARE, MIN_SPARSE_COLUMNS = 0.1, 100
LARGE_ELEMENTS = 4_000_000  # of X: single precision, one held-out split, kernels by products
# X is large below that, too, where there are fewer seconds than these for it, and so many rows
LARGE_SECONDS, MIN_LARGE_ROWS = 120.0, 4000
LARGE_TOL = 1e-3  # of linear models of large data: no difference that held-out rows could show
RBF_GAMMAS = (0.3, 1.0)  # of the RBF kernel, over the number of features
# labels from which on models list the likely ones of each row, and how many they list
MANY_LABELS, MAX_LISTED = 2000, 50
SCALED_TOLERANCE = 1e-3  # of means and standard deviations of columns that are scaled already


@dataclass(eq=False, repr=False)
class FBetaEnsemble(AverageClassifier):
    """The average of the label statistics of several estimators, chosen by cross-validation.

    The expected F_beta is linear in the statistics, so those of several models can be averaged and
    decoded once. Every estimator is fitted to the training rows of each fold, for all its
    strengths of regularisation, and the best of these is kept. Weights are those with which the
    average of the statistics of the held-out rows comes closest to the labels, in the squared error
    of what the decoder computes of them; those below 0.02 are dropped. Where one estimator alone
    has an F_beta that is higher by more than two standard errors, it is taken alone. What has a
    weight is fitted to all rows.

    Parameters
    ----------
    estimators : list of (str, estimator)
        Estimators of this library with ``predict_statistics``, or any classifiers with
        ``predict_proba``, which become :class:`fbeta.SizedClassifier` of them; or pipelines that
        end with either. Their own beta does not matter.
    beta : float > 0
        The measure to be optimal for.
    cv : int, splitter or iterable of (train, test)
        As for :class:`fbeta.AlphaSearchCV`.
    alphas : sequence of float, or None
        The strengths to choose from for estimators with a parameter ``alpha``, whatever its value;
        None to leave each as it is. An :class:`fbeta.AlphaSearchCV` brings its own.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib.
    device : str, optional
        Where to fit to a dense NumPy array X, such as ``"cuda"``, as for :class:`fbeta.FBetaAuto`.
    verbose : int
        Whether to print a line for every estimator.

    Attributes
    ----------
    weights_ : dict
        From the names of the estimators to their weights, which sum to 1.
    leaderboard_ : list of dict
        ``"name"``, ``"score"`` (the mean F_beta over the folds), ``"seconds"`` and ``"weight"`` of
        each estimator, the best first.
    best_score_ : float
        The mean F_beta over the folds of the average. The choice was made on the same rows.
    calibration_ : Calibration
        From the expected F_beta of the average to the one achieved on held-out rows.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Examples
    --------
    >>> from fbeta import FBetaClassifier, SizedClassifier
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(200, n_labels=3, n_features=10)
    >>> members = [("joint", FBetaClassifier()), ("sized", SizedClassifier())]
    >>> clf = FBetaEnsemble(members, alphas=[0.1, 1.0], cv=3).fit(X, Y)
    >>> round(sum(clf.weights_.values()), 6), len(clf.leaderboard_), clf.predict(X).shape
    (1.0, 2, (200, 3))
    """

    estimators: Any
    beta: float = 1.0
    cv: Any = 5
    _: KW_ONLY
    alphas: Sequence[float] | None = ALPHAS
    n_jobs: int | None = None
    device: str | None = None
    verbose: int = 0

    _passes_on = True

    def _search(self, X: Any, Y: Indicator, weight: Weight, report: Report) -> AverageModel:
        if self.alphas is not None:
            check_grid(self.alphas)
        models = as_candidates(self.estimators, "estimators")
        if not models:
            raise ValueError("estimators is empty: there is nothing to average")
        trial = Trial(Y, weight, make_folds(self.cv, X, Y, weight), self.beta, self.n_jobs)
        search = Search(X, trial, Clock(), report, {"": None}, models, alphas=self.alphas)
        return search.run([("", name) for name in models], keep_errors=True)


@dataclass(eq=False, repr=False)
class FBetaAuto(AverageClassifier):
    """Multi-label classifier that chooses everything by itself, for the highest F_beta.

    Tries several estimates of the label statistics - independent labels, sizes and marginals, the
    paper's, the cardinality model, label sets, forests, boosted trees, nearest neighbours - over
    several maps of the features - as they are, standardised, rows of length 1, TF-IDF, kernel
    features - and averages the statistics of those that serve it best on held-out rows.

    Parameters
    ----------
    beta : float > 0
        The measure to be optimal for. One fitted model serves every other beta too.
    time_limit : float or None
        Seconds that ``fit`` may take, about: a step that has begun is not always cut short, and one
        model is fitted however short the time. None for no limit: the search ends where nothing
        that is left is expected to gain.
    candidates : list of (str, estimator), optional
        Your own candidates, beside the built-in ones: estimators with ``predict_statistics`` or any
        classifiers or pipelines with ``predict_proba``. They see the features as they are, with
        gaps filled; an ``alpha`` of an estimator of this library is searched.
    replace : bool
        Whether only your own candidates are tried.
    cv : "auto", int, splitter or iterable of (train, test)
        "auto" for five folds, or one split where X is large: more than 4 million numbers or, of
        4,000 rows and more, than 33,000 for each second of the time limit; else as for
        :class:`fbeta.AlphaSearchCV`.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.
    device : str, optional
        Where to fit to a dense NumPy array X without gaps, such as ``"cuda"``; PyTorch is needed,
        and the environment variable ``SCIPY_ARRAY_API=1``. The fitted model is on the host.
    random_state : int, RandomState or None
        Of trees and of the landmarks of kernels.
    verbose : int
        Whether to print a line for everything that is tried.

    Attributes
    ----------
    leaderboard_, best_score_, weights_, calibration_
        As for :class:`fbeta.FBetaEnsemble`, of everything that was tried; names are those of map
        and model.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Notes
    -----
    X is dense or sparse, of any scale, and may have gaps (NaN): they are filled with the median of
    the column (the mean of a large X without gaps), and all maps but one add columns that mark the
    gaps. The maps are fitted to all training rows, without their labels, and shared by all folds.
    A dense X that is mostly zeros is taken as sparse, and a large dense X in single precision.

    The quickest model comes first, over every map, then your own candidates and one of each kind;
    then what may gain most in a second, until ten candidates in a row did not raise the F_beta of
    the average by 0.0005. What is expected to take longer than there is time is not begun, and with
    little time there are fewer folds, rows, trees and landmarks. Weights are those of
    :class:`fbeta.FBetaEnsemble`. The guide on choosing by cross-validation has the details.

    X may be a tensor on any device (with ``array_api_dispatch`` of scikit-learn) that has no gaps:
    trees, nearest neighbours and label sets are then left out, on accelerators the cardinality
    model too, and the kernels are RBF kernels. Ctrl-C ends the search: see :meth:`fit`. From 2,000
    labels on, the model is :class:`fbeta.SizedClassifier` with lists of 50 labels for each row,
    over each map, and the best of them is taken alone.

    Examples
    --------
    >>> from fbeta.datasets import make_calibrated
    >>> X, Y, _, _ = make_calibrated(120, n_labels=2, n_features=6)
    >>> clf = FBetaAuto(time_limit=2, cv=3, random_state=0).fit(X, Y)
    >>> clf.predict(X).shape, round(sum(clf.weights_.values()), 6)
    ((120, 2), 1.0)
    """

    beta: float = 1.0
    _: KW_ONLY
    time_limit: float | None = 120.0
    candidates: Sequence[tuple[str, Any]] | None = None
    replace: bool = False
    cv: Any = "auto"
    n_jobs: int | None = None
    device: str | None = None
    random_state: Any = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validate_X(self, X: Any, *, reset: bool, weight: Weight = None) -> Any:
        if is_tensor(X) and get_config()["array_api_dispatch"]:
            return validate_features(self, X, reset=reset)
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
        X = validate_data(self, X, reset=reset, ensure_all_finite="allow-nan", **options)
        if reset:
            some = X[:: max(1, X.shape[0] // 1000)]
            zeros = not sp.issparse(X) and np.count_nonzero(some) < SPARSE_SHARE * some.size
            self._taken_as_sparse = bool(zeros and X.shape[1] >= MIN_SPARSE_COLUMNS)
        return sp.csr_array(X) if getattr(self, "_taken_as_sparse", False) else X

    def _search(self, X: Any, Y: Indicator, weight: Weight, report: Report) -> AverageModel:
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, strict=True)
        clock = Clock(limit=self.time_limit)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        own = as_candidates(self.candidates or (), "candidates")
        if self.replace and not own:
            raise ValueError("candidates is empty, and replace=True leaves nothing else to try")
        # half the memory and time, and no difference that held-out rows could show
        xp = np if sp.issparse(X) else array_namespace(X)
        large, many = is_large(X, self.time_limit), Y.shape[1] >= MANY_LABELS
        X = astype(xp, X, xp.float32) if large and not sp.issparse(X) else X
        maps = feature_maps(X, seed, large)
        automatic = isinstance(self.cv, str) and self.cv == "auto"
        folds = make_folds(_default_cv(Y, large) if automatic else self.cv, X, Y, weight)
        trial = Trial(Y, weight, folds, self.beta, self.n_jobs)
        models = {} if self.replace else auto_models(self.beta, seed, X, many, large)
        if is_tensor(X):
            other = [k for k, model in models.items() if not get_tags(model).array_api_support]
            reasons = dict.fromkeys(other, "it does not run on tensors")
            if models and is_accelerator(X.device):
                reasons["cardinality"] = "it is slow on accelerators"
            for name, why in reasons.items():
                report(Progress(name, "left out", None, None, clock.elapsed, clock.limit, why))
                models.pop(name, None)
        clash = [name for name in own if name in models]
        if clash:
            raise ValueError(f"candidates: {clash[0]!r} is the name of a built-in candidate")
        options: Any = {"kinds": True, "fewer_folds": automatic}
        options["refine"] = Y.shape[0] >= FEW_ROWS and not large
        search = Search(X, trial, clock, report, maps, {**models, **own}, **options)
        return search.run([(RAW, name) for name in own] if self.replace else None)

    def summary(self) -> str:
        """Say in words and a table what was chosen, and why.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        rows, chosen = self.leaderboard_, [w for w in self.weights_.values() if w > 0]
        lines = [
            f"F_{self.beta:g} of held-out rows: {self.best_score_:.4f} with the average of "
            f"{len(chosen)} out of {len(rows)} candidates.",
            "",
            f"{'weight':>6}  {'F':>6}  {'seconds':>7}  map: model",
            f"{1.0:>6.2f}  {self.best_score_:>6.4f}  {'':>7}  average",
        ]
        for row in rows:
            weight = f"{row['weight']:.2f}" if row["weight"] else ""
            numbers = f"{weight:>6}  {row['score']:>6.4f}  {row['seconds']:>7.1f}"
            lines.append(f"{numbers}  {row['name']}")
        lines.append(note_on_average(rows, self.best_score_))
        return "\n".join(lines).rstrip()


def auto_models(
    beta: float, seed: int, X: Any, many: bool = False, large: bool = False
) -> dict[str, Any]:
    """Return the models to try by name, of few labels or of ``many``, for a ``large`` X or not."""
    if many:
        return {QUICK: SizedClassifier(beta, max_listed=MAX_LISTED)}
    n_features, threads = X.shape[1], n_threads()
    drawn = max(1, int(n_features**0.5), int(min(SPLIT_SHARE * n_features, MAX_SPLIT_FEATURES)))
    rough: Any = {"tol": LARGE_TOL} if large and not is_tensor(X) else {}
    models: dict[str, Any] = {
        QUICK: SizedClassifier(beta, **rough),
        JOINT: FBetaClassifier(beta, **rough),
        "cardinality": CardinalityClassifier(beta, **rough),
        "label sets": LabelSetClassifier(beta, **rough),
        "neighbours": NeighboursClassifier(beta),
    }
    if X.shape[0] >= FEW_ROWS:
        models["five neighbours"] = NeighboursClassifier(beta, n_neighbours=5)
    if hasattr(X, "nnz") and n_features > MAX_FOREST_FEATURES:
        return models
    forest = FBetaForest(beta, max_features=drawn, random_state=seed, n_jobs=threads)
    if X.shape[0] < FEW_ROWS:
        return models | {FOREST_NAMES[0]: forest.set_params(n_estimators=100)}
    best = clone(forest).set_params(splitter="best", min_samples_leaf=3)
    boosted = BoostedClassifier(beta, random_state=seed, n_jobs=threads)
    random = clone(boosted).set_params(splitter="random")
    trees = forest, best, clone(boosted).set_params(n_estimators=FEW_TREES), boosted, random
    return models | dict(zip((*FOREST_NAMES, *BOOSTED_NAMES), trees, strict=True))


def is_large(X: Any, limit: float | None = None) -> bool:
    """Return whether X has so many numbers for the time that one split has to do."""
    share = (limit or np.inf) / LARGE_SECONDS if X.shape[0] >= MIN_LARGE_ROWS else 1.0
    size = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    return bool(size > LARGE_ELEMENTS * min(1.0, share))


def _default_cv(Y: Indicator, large: bool) -> Any:
    """Return five folds; or one split, whose rows compare with a standard error of .002."""
    (n, s), many = Y.shape, Y.shape[1] >= MANY_LABELS
    if not (many or large):
        return min(5, max(2, n))
    numbers = 1 if many else s * max(1, len(observed_cardinalities(Y)))
    most = max(MIN_HELD_OUT_ROWS, min(HELD_OUT_ROWS, int(MAX_DECODED_NUMBERS / numbers)))
    order, count = np.random.RandomState(0).permutation(n), min(n // 4, most)
    return [(np.sort(order[count : count + MAX_TRAINING_ROWS]), np.sort(order[:count]))]


def feature_maps(X: Any, seed: int, large: bool = False) -> dict[str, Pipeline]:
    """Return pipelines by name, not fitted, for X (n, d) that may have gaps; likely ones first."""
    sparse, gaps = sp.issparse(X), list[Any](["passthrough"])
    missing = not is_tensor(X) and bool(np.isnan(X.data if sparse else X).any())
    if missing or not (is_tensor(X) or sparse):
        # medians, which take long, and columns that mark what was missing in training
        strategy = "median" if missing or not large else "mean"
        gaps = [SimpleImputer(strategy=strategy, add_indicator=missing, keep_empty_features=True)]
    maps = _maps_of_counts(X, seed) if sparse else _maps_of_numbers(X, seed, large)
    found = {name: make_pipeline(*gaps, *steps) for name, steps in maps.items()}
    if missing and not sparse:
        filled = clone(gaps[0]).set_params(add_indicator=False)  # marks may be mere noise
        found["standardised, no marks"] = make_pipeline(filled, StandardScaler())
    return found


def _maps_of_numbers(X: Any, seed: int, large: bool) -> dict[str, list[Any]]:
    d, scale, is_scaled = X.shape[1], StandardScaler(), False
    if not is_tensor(X):
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            low, high = np.nanmin(X, axis=0, initial=np.inf), np.nanmax(X, axis=0, initial=-np.inf)
            mean, std = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        d = max(1, int(np.sum(high > low)))
        off = np.abs(mean) + np.where(std > 0, np.abs(std - 1), 0)
        is_scaled = bool((off < SCALED_TOLERANCE).all())  # the raw features are standardised
    maps: dict[str, list[Any]] = {RAW: []} if is_scaled else {"standardised": [scale]}
    # distances of pairs by matrix products; the Laplacian kernel has none
    by_products, few = is_tensor(X) or large, X.shape[0] < FEW_ROWS
    kernel, gammas = ("rbf", RBF_GAMMAS) if by_products else ("laplacian", GAMMAS)
    kernels = {f"kernel {g:g}": [scale, _kernel(X, kernel, g / d, seed)] for g in gammas}
    if not by_products:
        first = f"kernel {GAMMAS[0]:g}"
        maps |= {first: kernels[first], "RBF kernel": [scale, _kernel(X, "rbf", 1 / d, seed)]}
        if few:
            return maps | {RAW: []}
        options = {"output_distribution": "normal", "random_state": seed}
        normal = QuantileTransformer(n_quantiles=200, **options)
        maps[f"quantiles, {first}"] = [normal, *kernels[first]]
    return maps | kernels | {RAW: []}


def _maps_of_counts(X: Any, seed: int) -> dict[str, list[Any]]:
    kernel = _kernel(X, "rbf", 1.0, seed)
    squares = np.asarray(X.multiply(X).sum(axis=1))
    if np.allclose(squares[squares != 0], 1.0):
        return {RAW: [], "kernel": [kernel]}
    maps: dict[str, list[Any]] = {"length 1": [Normalizer()]}
    # logarithms of what is no count may be below zero
    if ((X.data == 0) | (X.data >= 1)).all():
        maps["TF-IDF"] = [TfidfTransformer(sublinear_tf=True)]
    return {**maps, "length 1, kernel": [Normalizer(), kernel], RAW: []}


def _kernel(X: Any, kernel: str, gamma: float, seed: int) -> Nystroem:
    n = X.shape[0]
    landmarks = n if n <= EXACT_ROWS else LANDMARKS
    return Nystroem(kernel=kernel, gamma=gamma, n_components=landmarks, random_state=seed)
