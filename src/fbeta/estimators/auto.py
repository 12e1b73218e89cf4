"""The automatic classifier: feature maps, models and their weights by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fbeta._threads import n_threads
from fbeta._validation import check_number
from fbeta.estimators.auto_search import JOINT, QUICK, Clock, Search
from fbeta.estimators.average import AverageClassifier, AverageModel
from fbeta.estimators.base import Fold
from fbeta.estimators.cardinality import CardinalityClassifier
from fbeta.estimators.feature_maps import RAW, feature_maps, is_large, is_mostly_zero
from fbeta.estimators.folds import make_folds
from fbeta.estimators.forest import FBetaForest
from fbeta.estimators.label_sets import LabelSetClassifier
from fbeta.estimators.linear import FBetaClassifier
from fbeta.estimators.members import Trial, as_candidates, kept_rows
from fbeta.estimators.neighbours import NeighboursClassifier
from fbeta.estimators.sized import SizedClassifier
from fbeta.labels.forms import Indicator
from fbeta.linear.learner import Weight

__all__ = ["FBetaAuto", "auto_models"]

# features among which a split of a forest is chosen: a share of all, up to a number
SPLIT_SHARE, MAX_SPLIT_FEATURES = 0.3, 150
MAX_FOREST_FEATURES = 5000  # columns of a sparse X beyond which forests are not tried
HELD_OUT_ROWS = 10_000  # of the one split of large data, at most


@dataclass(eq=False, repr=False)
class FBetaAuto(AverageClassifier):
    """Multi-label classifier that chooses everything by itself, for the highest F_beta.

    Tries several estimates of the label statistics - independent labels, sizes and marginals, the
    paper's, the cardinality model, label sets, forests, nearest neighbours - over several maps of
    the features - as they are, standardised, rows of length 1, TF-IDF, kernel features - and
    averages the statistics of those that serve it best on held-out rows.

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
        gaps filled.
    replace : bool
        Whether only your own candidates are tried.
    cv : "auto", int, splitter or iterable of (train, test)
        "auto" for five folds, or one split where X has more than 4 million numbers; else as for
        :class:`fbeta.AlphaSearchCV`.
    n_jobs : int, optional
        Folds that are run at the same time, in processes of joblib; by default on as many threads
        as BLAS uses.
    random_state : int, RandomState or None
        Of forests, of the landmarks of kernels, and of the rows that weights are chosen on.
    verbose : int
        Whether to print a line for everything that is tried.

    Attributes
    ----------
    leaderboard_ : list of dict
        ``"name"`` (map and model), ``"score"`` (the mean F_beta over the folds), ``"seconds"`` and
        ``"weight"`` of everything that was tried, the best first.
    best_score_ : float
        The mean F_beta over the folds of the average. Weights were chosen on the same rows.
    weights_ : dict
        From the names to the weights, which sum to 1.
    calibration_ : Calibration
        From the expected F_beta of the average to the one achieved on held-out rows.
    classes_, cardinalities_
        As for :class:`fbeta.FBetaClassifier`.

    Notes
    -----
    X is dense or sparse, of any scale, and may have gaps (NaN): they are filled with the median of
    the column, and columns that say where there were gaps are added. The maps are fitted to all
    training rows, without their labels, and shared by all folds.

    First comes the quickest model over one map, then your own candidates, the paper's method on the
    raw features, and every map with the quickest model; then every model over the best map, the
    quickest first, and what is left in the order of what it may gain in a second, if the effects of
    maps and models on the score add up. Alphas are decades, then half decades beside the best. What
    is expected to take longer than there is time is not begun, by the time of the same model
    elsewhere or of a fit to 400 rows. The search ends after ten candidates in a row that did not
    raise the F_beta of the average by 0.0005. Weights are those with which the average of the
    statistics of the held-out rows comes closest, in the squared error of what the decoder computes
    of them, to the labels; those below 0.02 are dropped. Where one candidate alone has an F_beta
    that is higher by more than a standard error, it is taken alone. Of large data, as many rows are
    kept for this as fit into half a gigabyte. With a time limit and more than 2000 rows, a first
    model is fitted to 2000 of them, and is what remains if nothing else is ready in time. Models
    with more than a gigabyte of coefficients are left out. A dense X that is mostly zeros is taken
    as sparse, and a large dense X in single precision. Ctrl-C ends the search: see :meth:`fit`.

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
    random_state: Any = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validate_X(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        if reset:
            self._taken_as_sparse = not sp.issparse(X) and is_mostly_zero(X)
        return sp.csr_array(X) if getattr(self, "_taken_as_sparse", False) else X

    def _search(self, X: Any, Y: Indicator, weight: Weight, report: Any) -> AverageModel:
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, strict=True)
        clock = Clock(limit=self.time_limit)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        own = as_candidates(self.candidates or (), "candidates")
        if self.replace and not own:
            raise ValueError("candidates is empty, and replace=True leaves nothing else to try")
        large = is_large(X)
        # half the memory and time, and no difference that held-out rows could show
        X = X.astype(np.float32) if large and not sp.issparse(X) else X
        maps = feature_maps(X, seed)
        folds = self._folds(X, Y, weight, large)
        trial = Trial(Y, weight, folds, self.beta, self.n_jobs, kept_rows(Y, folds, rng))
        models = {} if self.replace else auto_models(self.beta, seed, X, Y.shape[1])
        clash = [name for name in own if name in models]
        if clash:
            raise ValueError(f"candidates: {clash[0]!r} is the name of a built-in candidate")
        search = Search(X, trial, clock, report, maps, {**models, **own}, refine=True)
        return search.run([(RAW, name) for name in own] if self.replace else None)

    def _folds(self, X: Any, Y: Indicator, weight: Weight, large: bool) -> list[Fold]:
        if not (isinstance(self.cv, str) and self.cv == "auto"):
            return make_folds(self.cv, X, Y, weight)
        n = Y.shape[0]
        if not large:
            return make_folds(min(5, max(2, n)), X, Y, weight)
        # one split: that many held-out rows compare candidates with a standard error of .002
        count = min(n // 4, HELD_OUT_ROWS)
        order = np.random.RandomState(0).permutation(n)
        return [(np.sort(order[count:]), np.sort(order[:count]))]

    def summary(self) -> str:
        """Say in words and a table what was chosen, and why.

        Returns
        -------
        str
        """
        check_is_fitted(self)
        rows = self.leaderboard_
        chosen = [row for row in rows if row["weight"] > 0]
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
        return "\n".join(lines)


def auto_models(beta: float, seed: int, X: Any, n_labels: int) -> dict[str, Any]:
    """Return the models to try by name."""
    n_features, threads = X.shape[1], n_threads()
    drawn = max(1, int(n_features**0.5), int(min(SPLIT_SHARE * n_features, MAX_SPLIT_FEATURES)))
    models: dict[str, Any] = {
        QUICK: SizedClassifier(beta),
        JOINT: FBetaClassifier(beta),
        "cardinality": CardinalityClassifier(beta),
        "label sets": LabelSetClassifier(beta),
    }
    models["neighbours"] = NeighboursClassifier(beta)
    if hasattr(X, "nnz") and n_features > MAX_FOREST_FEATURES:
        return models
    for leaf in (3, 1):
        models[f"forest, leaves of {leaf}"] = FBetaForest(
            beta, min_samples_leaf=leaf, max_features=drawn, random_state=seed, n_jobs=threads
        )
    return models
