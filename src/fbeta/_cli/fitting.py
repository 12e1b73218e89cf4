"""The one way in which commands fit a method to data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fbeta.datasets import Dataset
from fbeta.selection import AlphaSearchCV


def check_folds(cv: int | None, rows: int) -> None:
    """Raise before the work begins where there are more folds than rows."""
    if cv is not None and cv > rows:
        raise ValueError(f"--cv {cv}: there are only {rows} rows")


def fit_method(
    model: Any,
    data: Dataset,
    *,
    alpha: float | None = None,
    alphas: Sequence[float] = (),
    cv: int = 5,
    jobs: int | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Fit an estimator, with its alpha chosen by cross-validation unless one is given.

    Returns it, and a dict with ``alpha``, ``cv_score`` and ``seconds``, and with what was
    ``searched`` where there was a search.
    """
    begin = time.perf_counter()
    score, searched = None, {}
    if alpha is not None:
        model = model.set_params(alpha=alpha).fit(data.X, data.Y)
    elif "alpha" in model.get_params(deep=False):
        search = AlphaSearchCV(model, alphas=alphas, cv=cv, n_jobs=jobs).fit(data.X, data.Y)
        model, alpha, score = search.best_estimator_, search.alpha_, search.best_score_
        path = {key: search.cv_results_[key].tolist() for key in ("alpha", "mean_test_score")}
        searched = {"alphas": path["alpha"], "scores": path["mean_test_score"], "folds": cv}
    else:
        model = model.fit(data.X, data.Y)
    seconds = time.perf_counter() - begin
    found = {"alpha": alpha, "cv_score": score, "seconds": seconds}
    return model, {**found, "searched": searched} if searched else found
