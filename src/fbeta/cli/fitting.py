"""The one way in which commands fit a method to data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sklearn.model_selection import KFold, cross_val_score

from fbeta.datasets import Dataset
from fbeta.estimators.alpha_search import AlphaSearchCV

TIME_LIMIT = 120.0  # seconds that the automatic method takes at most, about, unless told otherwise


def check_folds(cv: int | None, rows: int) -> None:
    """Raise before the work begins where there are more folds than rows."""
    if cv is not None and cv > rows:
        raise ValueError(f"--cv {cv}: there are only {rows} rows")


def default_method(method: str | None, *strengths: Any) -> str:
    """Return the method to fit: the automatic one, unless a choice of alpha asks for the paper's.

    Examples
    --------
    >>> default_method(None, None), default_method(None, 0.1), default_method("br", None)
    ('auto', 'fbeta', 'br')
    """
    if method is not None:
        return method
    return "auto" if all(strength is None for strength in strengths) else "fbeta"


def fit_method(
    model: Any,
    data: Dataset,
    *,
    alpha: float | None = None,
    alphas: Sequence[float] = (),
    cv: int = 5,
    jobs: int | None = None,
    time_limit: float | None = None,
    always_score: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Fit an estimator, with its alpha chosen by cross-validation unless one is given.

    Returns it, and a dict with ``alpha``, ``cv_score`` and ``seconds``. With ``always_score``,
    what needs no folds is scored on some too.
    """
    begin = time.perf_counter()
    score = None
    if alpha is not None:
        model = model.set_params(alpha=alpha).fit(data.X, data.Y)
    elif "alpha" in model.get_params(deep=False):
        # the search itself is kept: it knows how far to trust what the model expects
        model = AlphaSearchCV(model, alphas=alphas, cv=cv, n_jobs=jobs).fit(data.X, data.Y)
        alpha, score = model.alpha_, model.best_score_
    else:
        limit = TIME_LIMIT if time_limit is None else time_limit
        chosen = {"cv": cv, "n_jobs": jobs, "time_limit": limit}
        known = model.get_params(deep=False)
        model = model.set_params(**{key: value for key, value in chosen.items() if key in known})
        model = model.fit(data.X, data.Y)
        score = getattr(model, "best_score_", None)
    if score is None and always_score:
        folds = KFold(cv, shuffle=True, random_state=0)
        score = float(cross_val_score(model, data.X, data.Y, cv=folds).mean())
    return model, {"alpha": alpha, "cv_score": score, "seconds": time.perf_counter() - begin}
